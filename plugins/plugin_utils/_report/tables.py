# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports as tables for people: bars for the use of hosts, a line for each guest. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.units import SIZE_UNITS, age_text
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable

_BAR = 20
_LEVELS = ((90, "red"), (70, "yellow"), (0, "green"))  # from so many percent on
_STATES = {"running": "green", "paused": "yellow", "crashed": "red"}

Report = t.Mapping[str, t.Any]
Paint = t.Callable[[str, str], str]  # a text in a colour of Ansible's, or as it is


class _Cell(t.NamedTuple):
    """A text in a column."""

    text: str
    colour: str | None = None
    right: bool = False


def text(report: Report, paint: Paint | None = None) -> str:
    """The table of a report as `report_data` makes it."""
    kind, hosts, paint = report["kind"], report["hosts"], paint or _unpainted
    return "\n".join(_by_host(hosts, *_LISTS[kind], paint) if kind in _LISTS else _KINDS[kind](hosts, paint))


def columns(rows: t.Sequence[t.Sequence[str]]) -> list[str]:
    """Lines with aligned columns."""
    return _rows([list(map(_Cell, row)) for row in rows], _unpainted)


def _unpainted(text: str, _colour: str) -> str:
    return text


def size(size_bytes: float | None) -> str:
    """A size such as `8.0 GiB` or `512.0 MiB`; `-` if unknown."""
    if size_bytes is None:
        return "-"
    unit, factor = next((pair for pair in SIZE_UNITS if size_bytes >= pair[1]), ("B", 1))
    return f"{size_bytes / factor:.1f} {unit}" if factor > 1 else f"{size_bytes:.0f} B"


def amount(done: int, total: int = 0) -> str:
    """Progress such as `82.1 of 190.0 MiB` or `1.2 of 8.0 GiB`; without a total, only what is done."""
    unit, factor = ("GiB", 1024**3) if max(done, total) >= 1024**3 else ("MiB", 1024**2)
    return f"{done / factor:.1f}{f' of {total / factor:.1f}' if total else ''} {unit}"


def count_and_age(snapshots: Report) -> str:
    """The snapshots of a guest: `3, oldest 9 days`; `-` if it has none."""
    age_s = snapshots.get("oldest_age_s")
    return f"{snapshots.get('count') or '-'}{'' if age_s is None else f', oldest {age_text(age_s)}'}"


def backup_ages(backup: Report) -> str:
    """How old the last backup is, and its last proof: `2 hours, proven 9 days (late)`; `-` without one."""
    words = []
    for age_s, limit_s, done, missing in (
        (backup.get("age_s"), backup.get("every_s"), "", "none"),
        (backup.get("proven_age_s"), backup.get("proven_every_s"), "proven ", "not proven"),
    ):
        if age_s is not None:
            words.append(f"{done}{age_text(age_s)}{' (late)' if limit_s is not None and age_s > limit_s else ''}")
        elif limit_s is not None:
            words.append(missing)
    return ", ".join(words) or "-"


def failovers(history: t.Iterable[Report]) -> list[Report]:
    """The entries of a guest's history of owners that are neither migrations nor its first owner."""
    return [one for one in history if one["from"] and not one["why"].startswith("migrated")]


def is_old(snapshots: Report) -> bool:
    """True if the oldest is too old to be of use."""
    return (snapshots.get("oldest_age_s") or 0) > _OLD_S


def _query(hosts: t.Sequence[Report], paint: Paint) -> t.Iterator[str]:
    heads = _rows([_head(host) for host in hosts], paint)
    rows = [_guest(guest) for host in hosts for guest in host.get("guests") or ()]
    title = "GUEST|STATE|VCPUS>|CPU %>|MEMORY>|DISK>|SNAPSHOTS|BACKUP|ADDRESSES|TAGS"
    names, *lines = _rows([_titles(title), *rows], paint)
    for host, head in zip(hosts, heads, strict=True):
        yield head
        count = len(host.get("guests") or ())
        yield from (f"  {line}" for line in ([names] if count else []) + lines[:count])
        lines = lines[count:]


def _head(host: Report) -> list[_Cell]:
    """A host with its CPU load and the memory of its guests."""
    if not host["reached"]:
        return _silent(host)
    percent, cpus = host["cpu_percent"], host["cpus"]
    busy = f"{_percent(percent)} of {_figure(cpus)} CPUs" if cpus is not None else "-"
    return [
        _Cell(host["name"]),
        _Cell("CPU"),
        _bar(percent, 100),
        _Cell(busy),
        *_memory(host["memory_used_mib"], host["memory_mib"]),
    ]


def _memory(used_mib: float | None, memory_mib: float | None) -> list[_Cell]:
    used = f"{_mib(used_mib)} of {_mib(memory_mib)}" if memory_mib is not None else "-"
    return [_Cell("memory"), _bar(used_mib, memory_mib), _Cell(used)]


def _silent(host: Report) -> list[_Cell]:
    return [_Cell(host["name"]), _Cell("excluded by --limit") if host.get("excluded") else _Cell("not reached", "red")]


def _guest(guest: Report) -> list[_Cell]:
    sizes = [disk["size_bytes"] for disk in guest["disks"] if disk["size_bytes"] is not None]
    return [
        _Cell(guest["name"]),
        _Cell(guest["state"], _STATES.get(guest["state"])),
        _Cell(_figure(guest["vcpus"]), right=True),
        _Cell(_figure(guest["cpu_percent"]), right=True),
        _Cell(_mib(guest["memory_mib"]), right=True),
        _Cell(size(sum(sizes)) if sizes else "-", right=True),
        _Cell(count_and_age(guest["snapshots"]), "yellow" if is_old(guest["snapshots"]) else None),
        _Cell(backup_ages(guest["backup"]), "red" if guest["backup"]["late"] else None),
        _Cell(", ".join(guest["addresses"]) or "-"),
        _Cell(", ".join(guest["tags"]) or "-"),
    ]


def _name_and_state(guest: Report) -> list[_Cell]:
    return [_Cell(guest["name"]), _Cell(guest["state"], _STATES.get(guest["state"]))]


def _host_info(hosts: t.Sequence[Report], paint: Paint) -> t.Iterator[str]:
    rows = []
    for host in hosts:
        if not host["reached"]:
            rows.append(_silent(host))
            continue
        vcpus = f"{_figure(host['vcpus_used'])} on {_figure(host['cpus'])} CPUs"
        bars = [_Cell("vCPUs"), _bar(host["vcpus_used"], host["cpus"]), _Cell(vcpus)]
        memory = _memory(host["memory_used_mib"], host["memory_mib"])
        rows.append(
            [_Cell(host["name"]), *bars, *memory, _Cell(f"{host['guests']} guest{'' if host['guests'] == 1 else 's'}")]
        )
    details = _rows([cells for host in hosts for cells in _details(host)], paint)
    for host, head in zip(hosts, _rows(rows, paint), strict=True):
        yield head
        count = len(_details(host))
        yield from (f"  {line}" for line in details[:count])
        details = details[count:]


def _details(host: Report) -> list[list[_Cell]]:
    """Further details of a host."""
    if not host["reached"]:
        return []
    shape = "{sockets} x {cores} x {threads} (sockets, cores, threads), {cpu_mhz} MHz".format_map(host)
    rows = [
        ("processors", f"{host['cpu_model'] or '-'}, {shape}"),
        (
            "versions",
            (
                f"libvirt {host['libvirt'] or '-'}, QEMU {host['hypervisor'] or '-'}, "
                f"{' and '.join(host['virt_types']) or '-'}"
            ),
        ),
        ("bridges", ", ".join(host["bridges"]) or "-"),
        *(
            (f"pool {pool['name']}", f"{size(pool['available_bytes'])} free of {size(pool['capacity_bytes'])}")
            for pool in host["pools"]
        ),
        *(("removed disk", note) for note in host["removed_disks"]),
    ]
    kept_free = [[_Cell("maintenance"), _Cell(host["maintenance"], "yellow")]] if host["maintenance"] else []
    return [*kept_free, *([_Cell(what), _Cell(words)] for what, words in rows)]


def _image(image: Report) -> list[_Cell]:
    unused = len(image["unused_contents"])
    return [
        _Cell(image["name"]),
        _Cell(image["pool"]),
        _Cell((image["fetched"] or "-")[:10]),
        _Cell(size(image["bytes"]), right=True),
        _Cell(f"{image['contents']}{f' ({unused} unused)' if unused else ''}", right=True),
        _Cell("yes" if image["used"] else "no"),
        _Cell("yes" if image["verified"] else "no", None if image["verified"] else "yellow"),
        _Cell(image["source"] or "-"),
    ]


def _pool(pool: Report) -> list[_Cell]:
    used, whole = pool["allocation_bytes"], pool["capacity_bytes"]
    return [
        _Cell(pool["name"]),
        _Cell(pool["type"]),
        _Cell("active") if pool["active"] else _Cell("inactive", "yellow"),
        _bar(used, whole),
        *(_Cell(size(each), right=True) for each in (used, whole, pool["available_bytes"])),
        _Cell(" ".join(filter(None, (pool["path"], pool["source"] and f"({pool['source']})"))) or "-"),
    ]


def _volume(volume: Report) -> list[_Cell]:
    encrypted = f" ({volume['encryption']})" if volume["encryption"] else ""
    return [
        _Cell(volume["pool"]),
        _Cell(volume["name"]),
        _Cell(f"{volume['format'] or '-'}{encrypted}"),
        _Cell(size(volume["capacity_bytes"]), right=True),
        _Cell(size(volume["allocation_bytes"]), right=True),
        _Cell(volume["backing_file"] or "-"),
    ]


def _snapshot(one: Report) -> list[_Cell]:
    old = (one["age_s"] or 0) > _OLD_S
    state = "being deleted" if one["deleting"] else "stands on it"
    return [
        _Cell(one["guest"]),
        _Cell(f"{'  ' * (one['depth'] or 0)}{one['name']}"),
        _Cell(one["created"], "yellow" if old else None),
        _Cell(f"{one['kind']}{', memory' if one['memory'] else ''}"),
        _Cell(size(one["size_bytes"]) if one["kind"] == "external" else "-", right=True),
        _Cell(state if one["current"] or one["deleting"] else "-"),
    ]


def _backup(one: Report) -> list[_Cell]:
    deepest = max((disk["depth"] or 0 for disk in one["disks"]), default=0)
    how = "like a power cut" if one["running"] else "off"
    state = _Cell("quiesced" if one["quiesced"] else how)
    return [
        _Cell(one["guest"]),
        _Cell(one["id"]),
        _Cell(one["created"]),
        _Cell("all" if not deepest else f"changes, on {deepest}"),
        _Cell(size(one["stored_bytes"]), right=True),
        _proven(one["proof"]),
        state if one["restorable"] else _Cell("damaged", "red"),
    ]


def _file(one: Report) -> list[_Cell]:
    return [
        _Cell(one["mode"] or "-"),
        _Cell(one["kind"]),
        _Cell(size(one["size_bytes"]) if one["kind"] == "file" else "-", right=True),
        _Cell(one["modified"] or "-"),
        _Cell(one["name"]),
    ]


def _proven(proof: Report | None) -> _Cell:
    """How long the guest took to give evidence, when it was last restored to prove the backup."""
    if proof is None:
        return _Cell("-")
    return _Cell(f"{proof['evidence']}, {proof['seconds']:.0f} s", "green") if proof["ok"] else _Cell("failed", "red")


_OLD_S = 7 * 86400  # a snapshot is no backup
# Of each list: the objects of a host, the titles, and a row. A title that ends in `>` is flush right.
_LISTS: dict[str, tuple[str, str, t.Callable[[Report], list[_Cell]]]] = {
    "list": ("guests", "HOST|GUEST|STATE", _name_and_state),
    "images": ("images", "HOST|IMAGE|POOL|FETCHED|SIZE>|CONTENTS>|USED|VERIFIED|FROM", _image),
    "pools": ("pools", "HOST|POOL|TYPE|STATE||USED>|SIZE>|FREE>|PATH", _pool),
    "volumes": ("volumes", "HOST|POOL|VOLUME|FORMAT|SIZE>|TAKEN>|BACKING FILE", _volume),
    "snapshots": ("snapshots", "HOST|GUEST|SNAPSHOT|CREATED|KIND|TAKEN>|NOW", _snapshot),
    "backups": ("backups", "HOST|GUEST|BACKUP|CREATED|HOLDS|TAKEN>|PROVEN|STATE", _backup),
    "files": ("files", "HOST|MODE|KIND|SIZE>|MODIFIED|NAME", _file),
}


def _by_host(
    hosts: t.Sequence[Report], of: str, titles: str, row: t.Callable[[Report], list[_Cell]], paint: Paint
) -> list[str]:
    """A line for each object of each host; one for a host that has none, or was not reached."""
    rows = [_titles(titles)]
    for host in hosts:
        if not host.get(of):
            rows.append([_Cell(host["name"]), _Cell("-")] if host["reached"] else _silent(host))
        rows += [[_Cell(host["name"]), *row(each)] for each in host.get(of) or ()]
    return _rows(rows, paint)


def _titles(titles: str) -> list[_Cell]:
    return [_Cell(word.rstrip(">"), right=word.endswith(">")) for word in titles.split("|")]


_KINDS: dict[str, t.Callable[[t.Sequence[Report], Paint], t.Iterator[str]]] = {"query": _query, "host_info": _host_info}


def _bar(used: float | None, total: float | None) -> _Cell:
    """A bar `[########............]`; a question mark if unknown."""
    if used is None or not total:
        return _Cell(f"[{'?'.center(_BAR)}]")
    share = 100 * used / total
    filled = max(0, min(_BAR, round(_BAR * share / 100)))
    return _Cell(
        f"[{'#' * filled}{'.' * (_BAR - filled)}]",
        next((colour for least, colour in _LEVELS if share >= least), "green"),
    )


def _figure(value: float | None) -> str:
    return "-" if value is None else str(value)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} %"


def _mib(value: float | None) -> str:
    return size(None if value is None else value * 1024**2)


def _rows(rows: t.Sequence[t.Sequence[_Cell]], paint: Paint) -> list[str]:
    """Lines with aligned columns.

    The last column has no fixed width.
    """
    rows = [[cell._replace(text=str(printable(cell.text))) for cell in row] for row in rows]
    widths: dict[int, int] = {}
    for row in rows:
        for column, cell in enumerate(row[:-1]):
            widths[column] = max(widths.get(column, 0), len(cell.text))
    for row in rows:  # a last cell that is flush right needs its width, too
        if row and row[-1].right:
            widths[len(row) - 1] = max(widths.get(len(row) - 1, 0), len(row[-1].text))
    return [
        "  ".join(_padded(cell, widths.get(column, 0), paint) for column, cell in enumerate(row)).rstrip()
        for row in rows
    ]


def _padded(cell: _Cell, width: int, paint: Paint) -> str:
    space = " " * (width - len(cell.text))
    shown = paint(cell.text, cell.colour) if cell.colour else cell.text
    return f"{space}{shown}" if cell.right else f"{shown}{space}"
