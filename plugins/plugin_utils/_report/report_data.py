# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports of playbooks as data of a stable shape, which the guide of commands documents. Pure.

Fields may be added at any time; a removed field, or one with another meaning, needs another `VERSION`.
"""

from __future__ import annotations

import math
import re
import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._report import terminal
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable

VERSION = 1

Told = t.Mapping[str, t.Any]
Guests = t.Collection[str] | None


def data(
    kind: str, hosts: t.Mapping[str, Told], missing: t.Sequence[str], guests: Guests, hidden: t.Collection[str] = ()
) -> dict[str, t.Any]:
    """The report over all hosts, including those that were not reached or gave no valid answer.

    `hidden` are those of `missing` that `--limit` excludes. Only these `guests`, if given.
    """
    found = {host: _host(kind, result, guests) for host, result in hosts.items()}
    found.update(dict.fromkeys(missing))
    shown = [
        {
            "name": host,
            "reached": answer is not None,
            **({"excluded": True} if host in hidden else {}),
            **(answer or {}),
        }
        for host, answer in sorted(found.items())
        if answer is None or not guests or any({*guests} & {*pair} for pair in guests_of(hosts[host]))
    ]
    return {"version": VERSION, "kind": kind, "hosts": shown}


def guests_of(result: Told) -> list[tuple[str, str]]:
    """Name and UUID of the guests in a host's answer, as far as it is valid."""
    answers = [result.get(key) for key in ("domains", "guests")]
    found = [one for several in answers if isinstance(several, list) for one in several if isinstance(one, dict)]
    return [(str(one["name"]), str(one.get("uuid"))) for one in found if "name" in one]


def unreadable(kind: str, hosts: t.Mapping[str, Told], guests: Guests) -> list[str]:
    """Hosts whose answer is invalid."""
    return [host for host, result in hosts.items() if kind in KINDS and _host(kind, result, guests) is None]


_OF_A_CHANGE = ("changed", "dest", "steps", "pending", "notes", "seconds", "downtime_ms", "bytes_sent")
_OF_A_DISK = ("disk", "pool", "source", "moved_from", "old_file", "size_bytes", "seconds")  # that moved


def changes(result: Told) -> list[dict[str, t.Any]]:
    """What a task did, or would do, to each guest."""
    return [
        {
            "name": str(one["name"]),
            **{key: _plain(one[key]) for key in _OF_A_CHANGE if key in one},
            **({"disks": disks} if (disks := _moved_disks(one)) else {}),
            "failed": _has_failed(one),
        }
        for one in _guests(result)
    ]


def _moved_disks(one: Told) -> list[dict[str, t.Any]]:
    """The disks of a guest that moved to other pools; the result of one move is about one."""
    several = [one] if "disk" in one else one.get("disks")
    entries = several if isinstance(several, list) else []
    found = [entry for entry in entries if isinstance(entry, dict) and "disk" in entry]
    return [{key: _plain(entry[key]) for key in _OF_A_DISK if key in entry} for entry in found]


def problems(host: str | None, result: Told, named: t.Sequence[str], *, failed: bool) -> list[dict[str, t.Any]]:
    """Problems of a task, on a host or for all: by guest or by argument if the task reports these.

    `named` are guests and hosts that the user named.
    """
    found = [(str(one["name"]), terminal.message(one)) for one in _guests(result) if _has_failed(one)]
    if failed and not found:
        several = result.get("problems")
        texts = several if isinstance(several, (list, tuple)) and several else [terminal.message(result)]
        found = [(_object(str(text), named) or host or "run", str(printable(str(text)))) for text in texts]
    return [_problem(host, what, " ".join(text.split())) for what, text in found]


def _object(text: str, named: t.Sequence[str]) -> str:
    """The argument that a problem begins with, or the first of `named` that it mentions; empty if neither."""
    argument = re.match(r"([a-z_]+)(?:\.[a-z_.0-9\[\]]+)?: ", text)
    mentioned = (name for name in named if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text))
    return argument.group(1) if argument else next(mentioned, "")


def _plain(value: object) -> t.Any:
    """An untrusted value as JSON: infinite numbers become None, other types become text."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)


def _problem(host: str | None, what: str, text: str) -> dict[str, t.Any]:
    remedy = _REMEDY.search(text)
    return {
        "host": host,
        "object": what,
        "problem": text[: remedy.start()] if remedy else text,
        "remedy": text[remedy.end(1) :] if remedy else None,
    }


# A clause that begins with one of these tells what to do; what follows it belongs to it. Some name playbooks, too.
_REMEDY = re.compile(
    r"""([;:.]\ )(?=(?:(?:then\ |first\ )?(?:
        add|allow|boot|change|check|choose|combine|compare|confirm|copy|correct|create|define|delete|detach|enable|exclude
        |finish|give|import|inspect|install|issue|leave|list|look|make|mend|migrate|move|name|omit|open|pass|put|read
        |reboot|remove|rename|repeat|replace|restart|restore|resume|run|say|see|send|set|shut|specify|start|stop|switch
        |take|try|undrain|unmount|update|upgrade|use|wait|write
    )\b|to\ [a-z\ ]+:|did\ you\ mean)(?!\ (?:acts|does|has|is|needs|prints|requires|takes)\b))""",
    re.IGNORECASE | re.VERBOSE,
)


def _guests(result: Told) -> list[Told]:
    """Guests in a task's result: its entries, or the result itself if it is about one guest."""
    several = result.get("results")
    entries = several if isinstance(several, (list, tuple)) else [result]
    return [one for one in entries if isinstance(one, dict) and "name" in one and ("steps" in one or _has_failed(one))]


def _has_failed(one: Told) -> bool:
    return bool(one.get("failed"))


def _host(kind: str, result: Told, guests: Guests) -> dict[str, t.Any] | None:
    """A host's answer as report data; None if it is invalid: a host may be anybody's."""
    try:
        return KINDS[kind](result, guests)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _query(result: Told, guests: Guests) -> dict[str, t.Any]:
    host = result.get("host") or {}
    return {
        "cpus": _number(host.get("cpus")),
        "cpu_percent": _number(host.get("cpu_percent")),
        "memory_mib": _number(host.get("memory_mib")),
        "memory_used_mib": _number(host.get("memory_used_mib")),
        "guests": [_guest(item) for item in _chosen(result, guests)],
    }


_BACKUP = ("age_s", "proven_age_s", "every_s", "proven_every_s")


def _guest(item: Told) -> dict[str, t.Any]:
    backup, ha = item.get("backup") or {}, item.get("ha") or None
    return {
        "name": str(item["name"]),
        "uuid": str(item["uuid"]),
        "state": str(item["state"]),
        "vcpus": _number(item["vcpus"]["current"]),
        "cpu_percent": _number(item.get("cpu_percent")),
        "memory_mib": _number(item["memory"]["current_mib"]),
        "memory_maximum_mib": _number(item["memory"].get("maximum_mib")),
        "autostart": bool(item.get("autostart")),
        "disks": [_disk(disk) for disk in item["disks"]],
        "interfaces": [_interface(nic) for nic in item["interfaces"]],
        "graphics": [
            {"type": _text(display.get("type")), "commands": _texts(display.get("connect"))}
            for display in item["graphics"]
        ],
        "console": _text(item.get("console_command")),
        "addresses": _texts(item.get("addresses")),
        "tags": _texts(item.get("tags")),
        "snapshots": {name: _number((item.get("snapshots") or {}).get(name)) for name in ("count", "oldest_age_s")},
        "backup": {**{name: _number(backup.get(name)) for name in _BACKUP}, "late": bool(backup.get("late"))},
        "ha": ha and _protection(ha),
    }


def _protection(ha: Told) -> dict[str, t.Any]:
    """How another host runs a guest when its host is dead."""
    words = {"mode": str(ha.get("mode")), "priority": _number(ha.get("priority")), "group": _text(ha.get("group"))}
    return {**words, **_kept(ha.get("kept"))}


def _kept(kept: Told | None) -> dict[str, t.Any]:
    """What is noted of a protected guest; `kept` is false if nothing would start it on another host."""
    found = kept or {"history": [], "problem": "its definition is not kept"}
    return {
        "kept": not found["problem"],
        **{key: _text(found.get(key)) for key in ("problem", "directory", "owner", "resource")},
        "history": [{key: str(one[key]) for key in ("at", "from", "to", "why")} for one in found["history"]],
    }


def _disk(disk: Told) -> dict[str, t.Any]:
    return {
        "target": _text(disk.get("target")),
        "file": _text(disk.get("source") or disk.get("volume")),
        "format": str(disk.get("format") or "raw"),
        "size_bytes": _number(disk.get("capacity_bytes")),
    }


def _interface(nic: Told) -> dict[str, t.Any]:
    return {
        "mac": _text(nic.get("mac")),
        "type": _text(nic.get("type")),
        "source": _text(nic.get("bridge") or nic.get("network")),
    }


def _list(result: Told, guests: Guests) -> dict[str, t.Any]:
    found = [
        {
            **{key: str(item[key]) for key in ("name", "state")},
            "protected": bool(item.get("protected")),
        }
        for item in _chosen(result, guests)
    ]
    return {"guests": found}


_FIGURES = (
    "cpus",
    "sockets",
    "cores",
    "threads",
    "cpu_mhz",
    "vcpus_used",
    "memory_mib",
    "memory_used_mib",
    "memory_free_mib",
)


def _host_info(result: Told, _guests: Guests) -> dict[str, t.Any]:
    info = result["host"]
    return {
        **{figure: _number(info[figure]) for figure in _FIGURES},
        "cpu_model": _text(info.get("cpu_model")),
        "virt_types": _texts(info.get("virt_types")),
        "platform": _texts((info.get("domain_capabilities") or {}).get("platform")),
        "libvirt": _text(info.get("libvirt_version")),
        "hypervisor": _text(info.get("hypervisor_version")),
        "pools": [_pool(pool) for pool in info["pools"]],
        "bridges": _texts(info.get("bridges")),
        "guests": len(info["guests"]),
        "maintenance": _text((info.get("maintenance") or {}).get("reason")),
        "fencing": _fencing(info["fencing"]) if info.get("fencing") else None,
        "removed_disks": _texts([disk.get("note") for disk in info.get("removed_disks") or ()]),
    }


def _fencing(found: Told) -> dict[str, t.Any]:
    devices = [
        {"name": str(name), "ok": bool(one["ok"]), "says": _text(one["says"]), "why": _text(one["why"])}
        for name, one in sorted(found["devices"].items())
    ]
    return {"tested": str(found["tested"]), "devices": devices}


def _pool(pool: Told) -> dict[str, t.Any]:
    sizes = {size: _number(pool.get(size)) for size in ("capacity_bytes", "available_bytes")}
    return {"name": str(pool["name"]), "path": _text(pool.get("path")), **sizes}


def _images(result: Told, _guests: Guests) -> dict[str, t.Any]:
    return {"images": [_image(item) for item in result["images"]]}


def _image(item: Told) -> dict[str, t.Any]:
    contents = item["contents"]
    return {
        "name": str(item["name"]),
        "pool": str(item["pool"]),
        "content": _text(item.get("content")),
        "source": _text(item.get("source")),
        "fetched": _text(item.get("fetched")),
        "verified": bool(item.get("verified")),
        "used": bool(item["used"]),
        "contents": len(contents),
        "bytes": sum(_number(one.get("bytes")) or 0 for one in contents),
        "unused_contents": [
            str(one["content"]) for one in contents if not one.get("used_by") and one["content"] != item.get("content")
        ],
    }


def _pools(result: Told, _guests: Guests) -> dict[str, t.Any]:
    return {"pools": [_whole_pool(pool) for pool in sorted(result["pools"], key=lambda pool: str(pool["name"]))]}


def _whole_pool(pool: Told) -> dict[str, t.Any]:
    return {
        **_pool(pool),
        "type": str(pool["type"]),
        "source": _source(pool.get("source") or {}),
        "active": bool(pool["active"]),
        "autostart": bool(pool.get("autostart")),
        "allocation_bytes": _number(pool.get("allocation_bytes")),
    }


def _source(source: Told) -> str | None:
    """Where the volumes of a pool come from: `nas:/export`, a volume group, devices."""
    hosts = ",".join(str(host["name"]) for host in source.get("hosts") or ())
    adapter = (source.get("adapter") or {}).get("name")
    things = [source.get("name"), source.get("dir"), *(source.get("devices") or ()), adapter]
    return ":".join(filter(None, (hosts, ",".join(str(one) for one in things if one)))) or None


def _volumes(result: Told, _guests: Guests) -> dict[str, t.Any]:
    volumes = sorted(result["volumes"], key=lambda volume: (str(volume["pool"]), str(volume["name"])))
    return {"volumes": [_volume(volume) for volume in volumes]}


def _volume(volume: Told) -> dict[str, t.Any]:
    sizes = {size: _number(volume.get(size)) for size in ("capacity_bytes", "allocation_bytes")}
    return {
        "name": str(volume["name"]),
        "pool": str(volume["pool"]),
        "path": _text(volume.get("path")),
        "format": _text(volume.get("format")),
        "encryption": _text(volume.get("encryption")),
        **sizes,
        "backing_file": _text((volume.get("backing") or {}).get("path")),
    }


def _snapshots(result: Told, guests: Guests) -> dict[str, t.Any]:
    found = sorted(result["guests"], key=lambda guest: str(guest["name"]))
    chosen = [guest for guest in found if not guests or guest["name"] in guests]
    return {"snapshots": [_snapshot(str(guest["name"]), one) for guest in chosen for one in guest["snapshots"]]}


def _snapshot(guest: str, one: Told) -> dict[str, t.Any]:
    return {
        "guest": guest,
        "name": str(one["name"]),
        "parent": _text(one["parent"]),
        **{name: _number(one[name]) for name in ("depth", "age_s", "size_bytes", "merge_bytes")},
        **{name: str(one[name]) for name in ("created", "description", "state", "kind")},
        **{name: bool(one[name]) for name in ("current", "memory", "scheduled", "deleting")},
        "files": [str(path) for path in one["files"]],
    }


def _backups(result: Told, guests: Guests) -> dict[str, t.Any]:
    found = sorted(result["guests"], key=lambda guest: str(guest["name"]))
    chosen = [guest for guest in found if not guests or guest["name"] in guests or guest["uuid"] in guests]
    return {
        "backups": [_backup(str(guest["name"]), one) for guest in chosen for one in guest["points"]],
        "guests": [_backed_up(guest) for guest in chosen],
        "problems": [str(problem) for problem in result["problems"]],
    }


def _backed_up(guest: Told) -> dict[str, t.Any]:
    return {
        **{name: str(guest[name]) for name in ("name", "uuid", "last")},
        **{name: _number(guest[name]) for name in ("age_s", "stored_bytes", "chain")},
        "full_reason": _text(guest["full_reason"]),
        "proven": {"point": str(guest["proven"]["point"]), **_proof(guest["proven"])} if guest["proven"] else None,
    }


def _backup(guest: str, one: Told) -> dict[str, t.Any]:
    return {
        "guest": guest,
        **{name: str(one[name]) for name in ("id", "created")},
        **{name: _number(one[name]) for name in ("age_s", "stored_bytes")},
        **{name: bool(one[name]) for name in ("running", "quiesced", "restorable")},
        "problems": [str(problem) for problem in one["problems"]],
        "proof": _proof(one["proof"]) if one.get("proof") else None,
        "disks": [
            {"target": str(disk["target"]), "reason": _text(disk["reason"]), "depth": _number(disk["depth"])}
            for disk in one["disks"]
        ],
    }


def _files(result: Told, _guests: Guests) -> dict[str, t.Any]:
    texts = ("name", "kind", "mode", "modified")
    found = [
        {**{name: str(one[name]) for name in texts}, "size_bytes": _number(one["size_bytes"])}
        for one in result["entries"]
    ]
    return {"guest": str(result["name"]), "point": str(result["point"]), "files": found}


def _proof(one: Told) -> dict[str, t.Any]:
    return {
        **{name: _number(one[name]) for name in ("age_s", "seconds")},
        **{name: _text(one[name]) for name in ("at", "evidence", "why")},
        "ok": bool(one["ok"]),
    }


KINDS: dict[str, t.Callable[[Told, Guests], dict[str, t.Any]]] = {
    "query": _query,
    "list": _list,
    "host_info": _host_info,
    "images": _images,
    "pools": _pools,
    "volumes": _volumes,
    "snapshots": _snapshots,
    "backups": _backups,
    "files": _files,
}


def _chosen(result: Told, guests: Guests) -> list[Told]:
    return sorted(
        (item for item in result["domains"] if not guests or item["name"] in guests), key=lambda item: str(item["name"])
    )


def _number(value: object) -> int | float | None:
    """The number or None; raises ValueError for anything else, also for infinity, which JSON lacks."""
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value)
    ):
        raise ValueError(value)
    return value


def _text(value: object) -> str | None:
    return None if value in (None, "") else str(value)


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, (list, tuple)) else []
