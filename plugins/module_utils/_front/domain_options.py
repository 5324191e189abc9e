# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Options of `virt_domain`, and what they mean: parameters in, one `Wanted` out. Docs: plugins/doc_fragments/domain.py."""

from __future__ import annotations

import math
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils import _units
from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._model.domain import (
    ACTIONS,
    STATES,
    Disk,
    Interface,
    Seed,
    Wanted,
)
from ansible_collections.corral.virt.plugins.module_utils._plan import seed as seeds

__all__ = ["GUEST_OPTIONS", "wanted"]

_STR, _INT, _BOOL = {"type": "str"}, {"type": "int"}, {"type": "bool"}
_ITEM_STATE = {"type": "str", "choices": ["present", "absent"], "default": "present"}


def _choice(*values: str) -> dict[str, t.Any]:
    return {"type": "str", "choices": list(values)}


def _dict(**options: t.Any) -> dict[str, t.Any]:
    return {"type": "dict", "options": options}


def _list(**options: t.Any) -> dict[str, t.Any]:
    return {"type": "list", "elements": "dict", "options": options}


GUEST_OPTIONS: dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "uuid": _STR,
    "state": {"type": "str", "choices": [*STATES, *ACTIONS], "default": "present"},
    "virt_type": {"type": "str", "choices": ["auto", "kvm", "qemu"], "default": "auto"},
    "vcpus": {"type": "raw"},
    "memory": {"type": "raw"},
    "cpu": _dict(mode=_choice("host-model", "host-passthrough", "maximum", "custom"), model=_STR),
    "machine": _STR,
    "firmware": _choice("bios", "efi"),
    "tpm": _dict(model=_choice("tpm-crb", "tpm-tis"), version=_choice("2.0", "1.2")),
    "rng": _dict(model=_choice("virtio"), source=_STR),
    "watchdog": _dict(
        model=_choice("itco", "i6300esb", "ib700"),
        action=_choice("reset", "shutdown", "poweroff", "pause", "none", "dump"),
    ),
    "video": _dict(model=_choice("virtio", "vga", "qxl", "bochs", "none")),
    "clock": _dict(offset=_choice("utc", "localtime")),
    "on_poweroff": _choice("destroy", "restart"),
    "on_reboot": _choice("destroy", "restart"),
    "on_crash": _choice("destroy", "restart", "preserve", "coredump-destroy", "coredump-restart"),
    "title": _STR,
    "description": _STR,
    "tags": {"type": "list", "elements": "str"},
    "autostart": _BOOL,
    "image": _STR,
    "disks": _list(
        name={"type": "str", "required": True},
        state=_ITEM_STATE,
        size={"type": "raw"},
        pool=_STR,
        image=_STR,
        device=_choice("disk", "cdrom"),
        source={"type": "path"},
        format=_choice("qcow2", "raw"),
        bus=_choice("virtio", "scsi", "sata", "usb", "ide"),
        target=_STR,
        cache=_choice("none", "writethrough", "writeback", "directsync", "unsafe"),
        discard=_choice("unmap", "ignore"),
        io=_choice("native", "threads", "io_uring"),
        serial=_STR,
        readonly=_BOOL,
        shareable=_BOOL,
        boot_order=_INT,
    ),
    "interfaces": {
        **_list(
            name={"type": "str", "required": True},
            state=_ITEM_STATE,
            type=_choice("bridge", "network", "user"),
            bridge=_STR,
            network=_STR,
            portgroup=_STR,
            mac=_STR,
            model=_STR,
            mtu=_INT,
            vlan=_INT,
            link=_choice("up", "down"),
            boot_order=_INT,
        ),
        "aliases": ["networks"],
    },
    "graphics": _dict(
        type=_choice("vnc", "spice", "none"),
        listen=_STR,
        port=_INT,
        password={"type": "str", "no_log": True},
    ),
    "serial": _dict(type=_choice("pty", "file", "dev"), path={"type": "path"}, log={"type": "path"}),
    "cloud_init": _dict(
        user_data={"type": "raw", "no_log": True},
        meta_data={"type": "raw"},
        network_config={"type": "raw"},
        on_change={"type": "str", "choices": list(seeds.ON_CHANGE), "default": "ignore"},
    ),
    "allow_restart": {"type": "bool", "default": False},
    "force": {"type": "bool", "default": False},
    "remove_storage": {"type": "bool", "default": False},
    "wait_timeout": {"type": "int", "default": 300},
    "wait_for_ip": _choice("any", "lease", "arp", "agent"),
}

_PLAIN = ("machine", "firmware", "on_poweroff", "on_reboot", "on_crash", "title", "description", "tags")
_NESTED = ("cpu", "tpm", "rng", "watchdog", "video", "clock", "serial")
_COUNT = {"vcpus": ("current", "maximum"), "memory": ("current", "maximum")}


def wanted(params: t.Mapping[str, t.Any]) -> Wanted:
    """What the user said about one guest; raises BadInput with every problem."""
    problems: list[str] = []
    result: dict[str, t.Any] = {}

    def keep(key: str, make: t.Callable[[], object]) -> None:
        try:
            result[key] = make()
        except BadInput as error:
            problems.extend(error.problems)

    name = params["name"]
    keep("name", lambda: _units.check_name(name, what="name"))
    keep("uuid", lambda: params.get("uuid") and _units.uuid_of(params["uuid"], what=f"uuid of {name!r}"))
    spoken = {key: value for key, value in params.items() if key not in ("name", "title", "description", "cloud_init")}
    problems.extend(_units.control_characters(spoken, where=""))
    keep("fields", lambda: _fields(params, name))
    keep("disks", lambda: _disks(params.get("disks"), name))
    keep("interfaces", lambda: _interfaces(params.get("interfaces"), name))
    keep("graphics", lambda: _graphics(params.get("graphics"), name))
    keep("seed", lambda: _seed(params.get("cloud_init"), name))
    keep("image", lambda: params.get("image") and _units.check_name(params["image"], what=f"image of {name}"))
    if params.get("disks") is not None and params.get("image"):
        problems.append(f"{name}: image is short for the image of the first disk; with disks given, set disks[].image instead")
    if problems:
        raise BadInput(problems)
    same = ("state", "virt_type", "autostart", "allow_restart", "force", "remove_storage", "wait_for_ip")
    result.update({key: params[key] for key in same if params.get(key) is not None})
    return Wanted(**result, wait_timeout_s=params.get("wait_timeout") or 300)


def _fields(params: t.Mapping[str, t.Any], name: str) -> dict[str, t.Any]:
    """The rows of the domain, by path."""
    fields: dict[str, t.Any] = {key: params[key] for key in _PLAIN if params.get(key) is not None}
    for key in _NESTED:
        fields.update({f"{key}.{sub}": value for sub, value in (params.get(key) or {}).items() if value is not None})
    if "serial.path" in fields and fields.get("serial.type") not in ("file", "dev"):
        raise BadInput(f"serial.path of {name}: a path belongs to serial.type file or dev; say which")
    if "tags" in fields:
        fields["tags"] = tuple(sorted({_units.check_name(tag, what=f"tag of {name}") for tag in fields["tags"]}))
    problems = _units.control_characters({"title": fields.get("title"), "description": fields.get("description")}, allowed="\n\t")
    if "\n" in fields.get("title", ""):
        problems.append(f"title of {name}: libvirt refuses line breaks in a title; use description")
    for read_option, option in ((_vcpus, "vcpus"), (_memory, "memory")):
        try:
            fields.update(read_option(params.get(option), name))
        except BadInput as error:
            problems += error.problems
    if problems:
        raise BadInput(problems)
    return fields


def _vcpus(value: object, name: str) -> dict[str, t.Any]:
    if value is None:
        return {}
    spoken: dict[str, t.Any] = dict(value) if isinstance(value, dict) else {"current": value}
    unknown = set(spoken) - {"current", "maximum", "placement", "cpuset", "topology"}
    topology = spoken.pop("topology", None) or {}
    unknown |= {f"topology.{key}" for key in set(topology) - {"sockets", "cores", "threads"}}
    if unknown:
        raise BadInput(
            f"vcpus of {name}: no such option {', '.join(sorted(unknown))}; there are current, maximum, placement, "
            "cpuset, topology{sockets, cores, threads}"
        )
    fields = {f"vcpus.{key}": item for key, item in spoken.items() if item is not None}
    if "vcpus.cpuset" in fields:
        fields["vcpus.cpuset"] = _cpuset(fields["vcpus.cpuset"], what=f"vcpus.cpuset of {name}")
    for key in ("current", "maximum"):
        if f"vcpus.{key}" in fields:
            fields[f"vcpus.{key}"] = _positive(fields[f"vcpus.{key}"], f"vcpus.{key} of {name}")
    if fields.get("vcpus.placement", "static") not in ("static", "auto"):
        raise BadInput(f"vcpus.placement of {name}: must be static or auto, not {fields['vcpus.placement']!r}")
    if fields.get("vcpus.placement") == "auto" and "vcpus.cpuset" in fields:
        raise BadInput(f"vcpus of {name}: placement auto chooses the processors itself; leave out cpuset, or say placement: static")
    if topology:
        for key in ("sockets", "cores", "threads"):
            fields[f"vcpus.topology.{key}"] = _positive(topology.get(key, 1), f"vcpus.topology.{key} of {name}")
        product = math.prod(fields[f"vcpus.topology.{key}"] for key in ("sockets", "cores", "threads"))
        if fields.setdefault("vcpus.maximum", product) != product:
            raise BadInput(f"vcpus of {name}: the topology has {product} vcpus, maximum says {fields['vcpus.maximum']}; make them equal")
    if fields.get("vcpus.maximum", 10**9) < fields.get("vcpus.current", 1):
        raise BadInput(f"vcpus of {name}: current {fields['vcpus.current']} is above maximum {fields['vcpus.maximum']}")
    return fields


def _cpuset(value: object, *, what: str) -> str:
    """A CPU set as libvirt reads and prints it: `0-1,4` for `4,0,1`; `^N` takes out of what stands before it. Raises BadInput."""
    cpus: set[int] = set()
    for part in str(value).split(","):
        match = re.fullmatch(r"\s*(?:(\^)(?!.*-))?(\d{1,5})\s*(?:-\s*(\d{1,5}))?\s*", part, re.ASCII)
        these = set(range(int(match.group(2)), int(match.group(3) or match.group(2)) + 1)) if match else set()
        out = bool(match and match.group(1))
        # libvirt's sets end at 16383. It lets ^N before N stand without effect; whoever writes that means something else.
        if isinstance(value, bool) or not these or max(these) > 16383 or (out and not these <= cpus):
            raise BadInput(f"{what}: cannot read {value!r} as a set of CPUs; write 0-3,8 or 0-7,^3")
        cpus = cpus - these if out else cpus | these
    if not cpus:
        raise BadInput(f"{what}: {value!r} leaves no CPU")
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _memory(value: object, name: str) -> dict[str, t.Any]:
    if value is None:
        return {}
    spoken = dict(value) if isinstance(value, dict) else {"current": value}
    unknown = set(spoken) - {"current", "maximum"}
    if unknown:
        raise BadInput(f"memory of {name}: no such option {', '.join(sorted(unknown))}; there are current and maximum")
    fields = {
        f"memory.{key}_kib": _units.kib_of(t.cast("int | str", item), what=f"memory of {name}")
        for key, item in spoken.items()
        if item is not None
    }
    if fields.get("memory.maximum_kib", 2**62) < fields.get("memory.current_kib", 0):
        raise BadInput(f"memory of {name}: current is above maximum")
    return fields


def _positive(value: object, what: str) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise BadInput(f"{what}: must be a whole number from 1, not {value!r}")
    return number


def _disks(items: t.Sequence[t.Mapping[str, t.Any]] | None, name: str) -> tuple[Disk, ...] | None:
    if items is None:
        return None
    found = []
    for item in items:
        fields = {key: value for key, value in item.items() if value is not None and key != "size"}
        _units.check_name(fields["name"], what=f"disk of {name}")
        if "image" in fields:
            _units.check_name(fields["image"], what=f"image of disk {fields['name']} of {name}")
        if item.get("size") is not None:
            fields["size_bytes"] = _units.bytes_of(item["size"], bare="G", what=f"size of disk {fields['name']} of {name}")
        if "serial" in fields:
            _units.check_name(fields["serial"], what=f"serial of disk {fields['name']} of {name}")
        if not (fields.get("source") or "/").startswith("/"):
            raise BadInput(f"source of disk {fields['name']} of {name}: {fields['source']!r} is not an absolute path")
        if "source" in fields and ("image" in fields or "size_bytes" in fields):
            raise BadInput(f"disk {fields['name']} of {name}: source uses a file as it is; it excludes image and size")
        found.append(Disk(**fields))
    _no_doubles([item.name for item in found], f"disk of {name}")
    if any(item.name == "seed" for item in found):
        raise BadInput(f"disk of {name}: the name 'seed' belongs to the cloud-init seed; choose another")
    return tuple(found)


def _interfaces(items: t.Sequence[t.Mapping[str, t.Any]] | None, name: str) -> tuple[Interface, ...] | None:
    if items is None:
        return None
    found = []
    for item in items:
        fields = {key: value for key, value in item.items() if value is not None}
        _units.check_name(fields["name"], what=f"interface of {name}")
        for key in ("bridge", "network", "portgroup"):
            if key in fields:
                _units.check_name(fields[key], what=f"{key} of interface {fields['name']} of {name}")
        if "mac" in fields:
            fields["mac"] = _units.mac_of(fields["mac"], what=f"mac of interface {fields['name']} of {name}")
        if "bridge" in fields and "network" in fields:
            raise BadInput(f"interface {fields['name']} of {name}: bridge and network exclude each other")
        if "bridge" in fields or "network" in fields:
            fields.setdefault("type", "bridge" if "bridge" in fields else "network")
        found.append(Interface(**fields))
    _no_doubles([item.name for item in found], f"interface of {name}")
    return tuple(found)


def _no_doubles(names: t.Sequence[str], what: str) -> None:
    doubles = sorted({item for item in names if names.count(item) > 1})
    if doubles:
        raise BadInput(f"{what}: {', '.join(doubles)} is given twice; names are identities")


def _graphics(value: t.Mapping[str, t.Any] | None, name: str) -> dict[str, t.Any] | None:
    if value is None:
        return None
    fields = {key: item for key, item in value.items() if item is not None}
    if len(fields.get("password", "")) > 8 and fields.get("type", "vnc") == "vnc":
        raise BadInput(f"graphics.password of {name}: VNC looks at 8 characters only; give at most 8")
    if "port" in fields:
        if not 5900 <= fields["port"] <= 65535:
            raise BadInput(f"graphics.port of {name}: must be 5900 to 65535, not {fields['port']}")
        fields["autoport"] = False
    return fields


def _seed(value: t.Mapping[str, t.Any] | None, name: str) -> Seed | None:
    return None if value is None else seeds.seed(value, guest=name)
