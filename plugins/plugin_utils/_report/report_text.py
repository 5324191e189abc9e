# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports of playbooks such as `query`, `list` and `host_info` as text. Pure."""

from __future__ import annotations

import typing as t

import yaml

from ansible_collections.corral.virt.plugins.plugin_utils._report import tables
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable

_ODD = (KeyError, TypeError, ValueError, AttributeError)
_OF_SOME = ("steps", "console", "migrations", "disk_moves")  # kinds that show no host without lines

Guests = t.Sequence[t.Mapping[str, t.Any]]


def text(
    kind: str,
    hosts: t.Mapping[str, t.Mapping[str, t.Any]],
    missing: t.Sequence[str],
    guests: t.Collection[str] | None,
    hidden: t.Collection[str] = (),
) -> str:
    """The report over all hosts, including those that were not reached.

    `hidden` are those of `missing` that `--limit` excludes. Only these `guests`, if given.
    """
    blocks = {host: _block(kind, host, result, guests) for host, result in hosts.items()}
    for host in missing:
        why = "excluded by --limit" if host in hidden else "not reached"
        blocks[host] = [f"({why}: its guests are not shown)"]
    lines = []
    for host in sorted(blocks):
        if blocks[host] or (not guests and kind not in _OF_SOME):
            lines += [host, *(f"  {printable(line)}" for line in blocks[host])]
    return "\n".join(lines)


def _block(kind: str, host: str, result: t.Mapping[str, t.Any], guests: t.Collection[str] | None) -> list[str]:
    """The lines of one host, whose answer may be invalid."""
    try:
        return KINDS[kind](host, result, guests)
    except _ODD:
        return ["(its answer cannot be read)"]


def unreadable(kind: str, hosts: t.Mapping[str, t.Mapping[str, t.Any]], guests: t.Collection[str] | None) -> list[str]:
    """Hosts whose answer is invalid."""
    odd = []
    for host, result in sorted(hosts.items()):
        try:
            KINDS[kind](host, result, guests)
        except _ODD:
            odd.append(host)
    return odd


def _query(host: str, result: t.Mapping[str, t.Any], guests: t.Collection[str] | None) -> list[str]:
    """Guests in the text format of Salt Virt."""
    lines = []
    for item in _chosen(result["domains"], guests):
        lines += [
            item["name"],
            f"  CPU: {item['vcpus']['current']}",
            f"  Memory: {item['memory']['current_mib'] * 1024}",
            f"  State: {item['state']}",
        ]
        for display in item["graphics"]:
            lines += [f"  Graphics: {display['type']} - {_place(host, display)}"]
            lines += [f"    Open: {_opened(display)}"] if display.get("connect") else []
        for disk in item["disks"]:
            lines += [
                f"  Disk - {disk['target']}:",
                f"    Size: {_size(disk.get('capacity_bytes'))}",
                f"    File: {disk.get('source') or disk.get('volume') or '-'}",
                f"    File Format: {disk.get('format', 'raw')}",
            ]
        for nic in item["interfaces"]:
            lines += [
                f"  Nic - {nic['mac']}:",
                f"    Source: {nic.get('bridge') or nic.get('network') or '-'}",
                f"    Type: {nic['type']}",
            ]
        lines += [f"  Address: {address}" for address in item.get("addresses") or ()]
        lines += _snapshots(item.get("snapshots") or {})
        backup = tables.backup_ages(item.get("backup") or {})
        lines += [f"  Backup: {backup}"] if backup != "-" else []
        if ha := item.get("ha"):
            lines += _protection(item["uuid"], ha, ha.get("kept"))
    return lines


def _protection(uuid: str, ha: t.Mapping[str, t.Any], kept: t.Mapping[str, t.Any] | None) -> t.Iterator[str]:
    """What starts a guest when its host is dead, and why it runs where it does."""
    by = "by nobody: its definition is not kept; set hypervisor_keeps_definitions: true"
    if kept:
        by = f"by Pacemaker ({kept['resource']})" if kept["resource"] else "by playbook recover"
        by = f"but {kept['problem']}" if kept["problem"] else by
    group = f"group {ha['group']}, " if ha.get("group") else ""
    yield f"  Protected: {ha['mode']}, priority {ha['priority']}, {group}{by}"
    if kept and kept["directory"]:
        yield f"    Kept in: {kept['directory']}/.corral/guests/{uuid}"
        yield f"    Owner: {kept['owner']}"
    for one in tables.failovers(kept["history"] if kept else ())[-1:]:
        yield f"    Failed over: {one['at']} from {one['from']} to {one['to']}: {one['why']}"


def _snapshots(found: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    if found.get("count"):
        old = "; a snapshot is no backup: delete it when it has done its work" if tables.is_old(found) else ""
        yield f"  Snapshots: {tables.count_and_age(found)}{old}"


def _place(host: str, display: t.Mapping[str, t.Any]) -> str:
    """The hypervisor and the display's port; `nothing listens` if there is none."""
    ports = [display[name] for name in ("port", "tls_port") if display.get(name)]
    return f"{host}:{ports[0]}" if display.get("connect") and ports else "nothing listens"


def _opened(display: t.Mapping[str, t.Any]) -> str:
    """The commands that open a display; `nothing listens` if there are none."""
    return "; ".join(display.get("connect") or ["nothing listens"])


def moved(one: t.Mapping[str, t.Any]) -> str:
    """A line about a guest that moved: `web1 is on hyper2, after 1.2 s; downtime 35 ms, 12.5 MiB sent`."""
    line = f"{one['name']} is on {one['dest']}"
    if "seconds" in one:
        line += f", after {one['seconds']} s"
    figures = [f"downtime {one['downtime_ms']} ms"] if one.get("downtime_ms") is not None else []
    figures += [f"{tables.amount(one['bytes_sent'])} sent"] if one.get("bytes_sent") is not None else []
    return "; ".join([line, ", ".join(figures)] if figures else [line])


def _disk_moves(_host: str, result: t.Mapping[str, t.Any], _guests: t.Collection[str] | None) -> list[str]:
    """Where disks went, or how they would go; and the files that stay in a pool that is drained."""
    lines = []
    for one in result.get("results") or ():
        for disk in one.get("disks") or [one]:
            lines += _disk_move({**disk, "name": one["name"]})
    for each in result.get("left") or ():
        lines.append(f"stays: {each['path']} ({tables.amount(each['size_bytes'])}): {each['why']}")
    return [*lines, "nothing stays"] if result.get("left") == [] else lines


def _disk_move(one: t.Mapping[str, t.Any]) -> list[str]:
    """A line such as `disk data of db1 is in pool fast (/fast/d.img), after 1.2 s; 12.5 MiB copied, …`."""
    what = f"disk {one['disk']} of {one['name']}"
    if one.get("failed"):
        return [f"{what} is not moved"]
    if not one["steps"]:
        return [f"{what} is already in pool {one['pool']}"]
    copied = tables.amount(one["size_bytes"])
    if "seconds" in one:
        old = f"the old file {one['moved_from']} is {one['old_file']}"
        return [f"{what} is in pool {one['pool']} ({one['source']}), after {one['seconds']} s; {copied} copied, {old}"]
    line = f"{what} to pool {one['pool']} ({one['source']}), {copied}"
    return [line, *(f"  {text}" for text in (*one["steps"], *one["notes"]))]


def _migrations(_host: str, result: t.Mapping[str, t.Any], _guests: t.Collection[str] | None) -> list[str]:
    """What a migration would do: how each disk is copied, how fast the guest writes its memory, and the steps."""
    lines = []
    for one in result.get("results") or ():
        parts = [f"{one['name']}: {one.get('msg') or ('to ' + one['dest'])}"]
        if one.get("mode"):
            parts += [one["mode"], f"{tables.amount(one.get('bytes_to_move') or 0)} of disk"]
        if one.get("dirty_rate_mib_s") is not None:
            parts.append(f"writes {one['dirty_rate_mib_s']} MiB/s of memory")
        lines.append(", ".join(parts))
        disks = one.get("disks") or ()
        lines += [
            f"  {disk['target']}: {disk['how']}, {tables.amount(disk['bytes_to_move'])} ({disk['why']})"
            for disk in disks
        ]
        lines += [f"  {line}" for line in (*(one.get("steps") or ()), *(one.get("notes") or ()))]
    return lines


def _console(_host: str, result: t.Mapping[str, t.Any], guests: t.Collection[str] | None) -> list[str]:
    """The commands that open the consoles of guests."""
    lines = []
    for item in _chosen(result["domains"], guests):
        lines.append(f"{item['name']}: {item.get('console_command') or 'it has no serial console'}")
        lines += [f"{item['name']}: {_opened(display)}" for display in item["graphics"]]
    return lines


def _list(_host: str, result: t.Mapping[str, t.Any], guests: t.Collection[str] | None) -> list[str]:
    """Names of guests by state, and which of them another host can run."""
    states: dict[str, list[str]] = {}
    for item in _chosen(result["domains"], guests):
        states.setdefault(item["state"], []).append(item["name"] + (" (protected)" if item.get("protected") else ""))
    return [line for state in sorted(states) for line in (state, *(f"  {name}" for name in sorted(states[state])))]


def _host_info(_host: str, result: t.Mapping[str, t.Any], _guests: t.Collection[str] | None) -> list[str]:
    """The figures of a hypervisor, as YAML."""
    info = result["host"]
    shown = {
        "cpus": f"{info['cpus']} ({info['vcpus_used']} vcpus in use)",
        "cpu_model": info["cpu_model"],
        "topology": "{sockets} sockets, {cores} cores each, {threads} threads each, {cpu_mhz} MHz".format_map(info),
        "memory_mib": f"{info['memory_mib']} ({info['memory_free_mib']} free)",
        "virt_types": ", ".join(info["virt_types"]),
        "libvirt": info["libvirt_version"],
        "hypervisor": info["hypervisor_version"],
        "pools": {pool["name"]: f"{pool['path']} ({_size(pool['available_bytes'])} free)" for pool in info["pools"]},
        "bridges": ", ".join(info["bridges"] or []),
        "guests": len(info["guests"]),
        **({"removed_disks": [disk["note"] for disk in removed]} if (removed := info.get("removed_disks")) else {}),
        **({"maintenance": info["maintenance"]["reason"]} if info.get("maintenance") else {}),
        **({"fencing": _fencing(info["fencing"])} if info.get("fencing") else {}),
    }
    return yaml.safe_dump(shown, sort_keys=False, default_flow_style=False).splitlines()


def _fencing(found: t.Mapping[str, t.Any]) -> dict[str, str]:
    """The last test of the fence devices of other members."""
    devices = {name: one["says"] if one["ok"] else f"of no use: {one['why']}" for name, one in found["devices"].items()}
    return {"tested": found["tested"], **devices}


def _steps(_host: str, result: t.Mapping[str, t.Any], _guests: t.Collection[str] | None) -> list[str]:
    """What was, or would be, done to each guest, and changes that wait for its next start."""
    lines: list[str] = []
    for one in result.get("results") or ():
        waits = [f"waits for the next start of {one['name']}: {change}" for change in one.get("pending") or ()]
        done = one.get("steps") or ([] if one.get("failed") or waits else [f"{one['name']} is already in that state"])
        lines += [*done, *waits]
    return lines


KINDS: dict[str, t.Callable[[str, t.Mapping[str, t.Any], t.Collection[str] | None], list[str]]] = {
    "query": _query,
    "list": _list,
    "host_info": _host_info,
    "steps": _steps,
    "console": _console,
    "migrations": _migrations,
    "disk_moves": _disk_moves,
}


def _chosen(items: Guests, guests: t.Collection[str] | None) -> Guests:
    return [item for item in items if not guests or item["name"] in guests]


def _size(size_bytes: int | None) -> str:
    """A size such as `2.0G`, in the format of qemu-img."""
    if size_bytes is None:
        return "unknown"
    size = float(size_bytes)
    for unit in "BKMGT":
        if size < 1024 or unit == "T":
            return f"{size:.1f}{unit}"
        size /= 1024
    return ""
