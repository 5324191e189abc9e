# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Bring one guest to another host: look at both ends, plan, gate, judge by observation, report."""

from __future__ import annotations

import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils import _changes, _units
from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, Failed, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._files import mounts
from ansible_collections.corral.virt.plugins.module_utils._libvirt import look, migrate, storage
from ansible_collections.corral.virt.plugins.module_utils._model.domain import Found, Volume
from ansible_collections.corral.virt.plugins.module_utils._plan import migrate as plans
from ansible_collections.corral.virt.plugins.module_utils._plan.migrate import (
    CARRY,
    DELTA,
    FULL,
    SHARED,
    DiskMove,
    Host,
    Move,
)
from ansible_collections.corral.virt.plugins.module_utils._run import Gate
from ansible_collections.corral.virt.plugins.module_utils._xml import caps, disk, record
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

__all__ = ["OPTIONS", "Ends", "converge"]

OPTIONS: dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "dest": {"type": "str", "required": True},
    "dest_uri": {"type": "str"},
    "transport": {"type": "str", "choices": ["tls", "tunnelled", "plain"], "default": "tls"},
    "storage": {"type": "str", "choices": ["auto", "shared", "delta", "full"], "default": "auto"},
    "bandwidth": {"type": "int"},
    "max_downtime": {"type": "int"},
    "auto_converge": {"type": "bool", "default": True},
    "keep_source_storage": {"type": "bool", "default": False},
    "timeout": {"type": "int", "default": 1800},
}


class Ends:
    """Both connections. The destination's is opened anew when it broke: a verdict needs a fresh look."""

    def __init__(self, source: t.Any, dest_uri: str, open_dest: t.Callable[[str], t.Any]) -> None:
        self.source = source
        self._uri, self._open = dest_uri, open_dest
        self._dest: t.Any = None

    def dest(self) -> t.Any:
        """The destination; raises Failed when it cannot be reached."""
        if self._dest is None or not self._dest.isAlive():
            self._dest = self._open(self._uri)
        return self._dest

    def dest_or_none(self) -> t.Any:
        """The destination, or None when it cannot be reached."""
        try:
            return self.dest()
        except Failed:
            return None


def dest_uri(params: t.Mapping[str, t.Any]) -> str:
    """Where the destination's libvirt is, as the source reaches it."""
    return params["dest_uri"] or f"qemu+tls://{params['dest']}/system"


def converge(ends: Ends, params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    """Do what the parameters say: afterwards the guest is on `dest`, and nowhere else."""
    name = _checked(params)
    found = look.find(ends.source, name)
    if found is None:
        return _not_here(ends, params, gate)
    move = _move(ends, params, found)
    problems = _findings(ends, move, found)
    if problems:
        raise Refused(f"cannot migrate {name} to {move.dest}: " + "; ".join(problems))
    steps = plans.steps(move)
    figures: dict[str, t.Any] = {}
    gate.run(steps, lambda step: _do(ends, step, figures))
    return {
        "changed": True,
        "name": name,
        "dest": move.dest,
        "steps": [str(step) for step in steps],
        "disks": [
            {
                "target": item.target,
                "path": item.path,
                "how": item.how,
                "why": item.why,
                "bytes_to_move": item.bytes_to_move,
            }
            for item in move.disks
        ],
        "bytes_to_move": sum(item.bytes_to_move for item in move.disks),
        "diff": _changes.diff([Change("host", ends.source.getHostname(), move.dest)]),
        **{key: value for key, value in figures.items() if value is not None},
    }


def _checked(params: t.Mapping[str, t.Any]) -> str:
    problems = []
    for key in ("name", "dest"):
        try:
            _units.check_name(params[key], what=key)
        except BadInput as error:
            problems += error.problems
    for key in ("bandwidth", "max_downtime", "timeout"):
        if params[key] is not None and params[key] < 1:
            problems.append(f"{key}: must be at least 1, not {params[key]}")
    if params["transport"] == "tunnelled" and params["storage"] in ("delta", "full"):
        problems.append("transport: a tunnel carries no storage copy; use tls, or shared storage")
    if problems:
        raise BadInput(problems)
    return t.cast(str, params["name"])


def _not_here(ends: Ends, params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    """Not on this host: fine when it is on the destination, whose half of an interrupted run is finished."""
    name, dest = params["name"], ends.dest()
    state = migrate.state_of(dest, name)
    if state == "absent":
        raise NotFound(f"cannot migrate {name}: it is neither on {ends.source.getHostname()} nor on {params['dest']}; where is it?")
    there = look.find(dest, name)
    known = record.read(there.xml) if there else {}
    if known.get("moving") is None:
        return {"changed": False, "name": name, "dest": params["dest"], "steps": [], "diff": _changes.diff([])}
    move = _finishing(params, there, known, ends)
    steps = [step for step in plans.steps(move) if step.verb in ("remove", "forget")]
    if state == "paused" and not known.get("moving_paused"):
        steps.insert(0, plans.MigrateStep(move, "resume", text=f"resume {name} on {move.dest}, where an interrupted run left it"))
    gate.run(steps, lambda step: _do(ends, step, {}))
    return {
        "changed": bool(steps),
        "name": name,
        "dest": params["dest"],
        "steps": [str(step) for step in steps],
        "diff": _changes.diff([Change("unfinished move", "yes", "no")] if steps else []),
    }


def _finishing(params: t.Mapping[str, t.Any], there: Found | None, known: t.Mapping[str, t.Any], ends: Ends) -> Move:
    """The rest of a move that arrived: the record in the guest says what was made there, so what was copied is known.

    Only what the destination really has is removed here.
    """
    made = [path for path in known.get("moving_made") or () if storage.volume_at(ends.dest(), path) is not None]
    left = [path for path in made if storage.volume_at(ends.source, path) is not None]
    disks = tuple(DiskMove("", path, FULL, "copied", Volume("", os.path.basename(path), path, 1)) for path in left)
    placeholder = DiskMove("", "", FULL, "record", Volume("", "", "", 1))
    return Move(
        guest=params["name"],
        dest=params["dest"],
        dest_uri=dest_uri(params),
        transport=params["transport"],
        timeout_s=params["timeout"],
        keep_source_storage=params["keep_source_storage"] or not disks,
        disks=disks or (placeholder,),
        paused=bool(there and there.state == "paused"),
    )


def _move(ends: Ends, params: t.Mapping[str, t.Any], found: Found) -> Move:
    if not found.active:
        raise Refused(f"cannot migrate {found.name}: it is shut off, and only running or paused guests are moved; start it first")
    return Move(
        guest=found.name,
        dest=params["dest"],
        dest_uri=dest_uri(params),
        transport=params["transport"],
        timeout_s=params["timeout"],
        paused=found.state == "paused",
        autostart=found.autostart,
        bandwidth_mib_s=params["bandwidth"],
        max_downtime_ms=params["max_downtime"],
        auto_converge=params["auto_converge"],
        keep_source_storage=params["keep_source_storage"],
        disks=_disk_moves(ends, params, found),
    )


def _disk_moves(ends: Ends, params: t.Mapping[str, t.Any], found: Found) -> tuple[DiskMove, ...]:
    """How each disk travels, and why; what an interrupted run of ours made on the destination may be replaced."""
    dest = ends.dest()
    ours = set(record.read(t.cast(str, found.live_xml)).get("moving_made") or ())
    pools = {
        os.path.normpath(info["path"]): pool["name"]
        for pool in look.pools(dest)
        if pool["active"] and (info := caps.pool(pool["xml"]))["path"]
    }
    moves, problems = [], []
    for item in disk.read_all(parse(t.cast(str, found.live_xml))):
        if not item.get("source"):
            continue
        try:
            moves.append(_disk_move(ends, dest, params["storage"], item, pools, ours))
        except (Refused, NotFound) as error:
            problems.append(str(error))
    if problems:
        raise Refused(f"cannot migrate {found.name} to {params['dest']}: " + "; ".join(problems))
    return tuple(moves)


def _disk_move(
    ends: Ends, dest: t.Any, mode: str, item: t.Mapping[str, t.Any], pools: t.Mapping[str, str], ours: t.Collection[str]
) -> DiskMove:
    path, target = t.cast(str, item["source"]), t.cast(str, item["target"])
    shared = mounts.shared_filesystem(path)
    if mode == "shared" or (mode == "auto" and shared):
        return DiskMove(target, path, SHARED, f"on {shared or 'storage that you call shared'}")
    directory, file = os.path.split(path)
    pool = pools.get(os.path.normpath(directory))
    if pool is None:
        raise Refused(f"disk {target}: the destination has no active storage pool at {directory}; make one there")
    storage.refresh(dest, pool)
    there = storage.volume_in(dest, pool, file)
    info = _local(ends.source, path)
    carried = bool(item.get("readonly")) or item.get("device") == "cdrom"
    if there is not None and path not in ours:
        raise Refused(f"disk {target}: {path} exists on the destination already, and no migration of ours made it; remove it there")
    volume = Volume(pool, file, path, info["capacity_bytes"], info["format"])
    if carried:
        return DiskMove(target, path, CARRY, "read-only", volume, info["capacity_bytes"])
    backing = info["backing_path"]
    if backing is None:
        return DiskMove(target, path, FULL, "stands alone", volume, info["allocation_bytes"])
    base = storage.volume_at(dest, backing)
    if mode != "full" and base is not None and caps.volume(base)["capacity_bytes"] == _local(ends.source, backing)["capacity_bytes"]:
        based = Volume(pool, file, path, info["capacity_bytes"], info["format"], backing, info["backing_format"])
        return DiskMove(target, path, DELTA, f"{backing} is there", based, info["allocation_bytes"])
    if mode == "delta":
        raise Refused(f"disk {target}: its base {backing} is not on the destination; bring it there with virt_image, or use storage: full")
    whole = info["allocation_bytes"] + _local(ends.source, backing)["allocation_bytes"]
    return DiskMove(target, path, FULL, f"flattened: {backing} is not there", volume, whole)


def _local(connection: t.Any, path: str) -> dict[str, t.Any]:
    xml = storage.volume_at(connection, path)
    if xml is None:
        raise NotFound(f"disk {path} is in no active storage pool of the source; make a pool for its directory")
    return caps.volume(xml)


def _findings(ends: Ends, move: Move, found: Found) -> list[str]:
    root = parse(t.cast(str, found.live_xml))
    source, dest = _host(ends.source), _host(ends.dest())
    return plans.findings(
        move,
        source,
        dest,
        machine=root.find("os/type").get("machine") or "",
        virt_type=root.get("type"),
        memory_mib=int(root.findtext("currentMemory") or root.findtext("memory")) // 1024,
        uuid=found.uuid,
    )


def _host(connection: t.Any) -> Host:
    node, known = look.node(connection), caps.host(look.capabilities(connection))
    return Host(
        name=node["hostname"],
        uuid=known["uuid"],
        libvirt_version=connection.getLibVersion(),
        memory_free_mib=connection.getFreeMemory() // 1024**2,
        machines=tuple(known["machines"].get(known["arch"]) or ()),
        virt_types=tuple(known["virt_types"].get(known["arch"]) or ()),
        guests={item.name(): (item.UUIDString(), look.state(item)) for item in look.all_guests(connection)},
    )


def _do(ends: Ends, step: plans.MigrateStep, figures: dict[str, t.Any]) -> None:
    move = step.move
    item = next((each for each in move.disks if each.path == step.path), None)
    if step.verb == "record":
        made = tuple(each.path for each in move.disks if each.volume)
        _record(look.lookup(ends.source, move.guest), {"moving": move.dest, "moving_made": made})
    elif step.verb in ("make", "carry"):
        volume = t.cast(Volume, item and item.volume)
        storage.create(ends.dest(), volume.pool, caps.new_volume(volume), name=volume.name, replace=True)
        if step.verb == "carry":
            storage.upload(ends.dest(), volume.pool, volume.name, storage.download(ends.source, volume.path))
    elif step.verb == "migrate":
        figures.update(_migrate(ends, move))
    elif step.verb == "resume":
        migrate.resume(ends.dest(), move.guest)
    elif step.verb == "autostart":
        migrate.set_autostart(ends.dest(), move.guest)
    elif step.verb == "remove":
        storage.delete(ends.source, step.path)
    elif step.verb == "forget":
        _record(look.lookup(ends.dest(), move.guest), {"moving": "", "moving_made": ()})


def _record(guest: t.Any, fields: t.Mapping[str, t.Any]) -> None:
    now = look.found(guest)
    migrate.set_record(guest, record.update(now.live_xml or now.xml, fields))


def _migrate(ends: Ends, move: Move) -> dict[str, t.Any]:
    """Send it paused, look at both ends, do the one thing that is right; raises Failed when it did not arrive."""
    ends.dest()  # opened before, so that the commit costs no connection
    outcome = migrate.run(
        look.lookup(ends.source, move.guest),
        dest=move.dest,
        dest_uri=move.dest_uri,
        transport=move.transport,
        copy=plans.copy_flag(move),
        disks=[item.target for item in move.disks if item.how in (DELTA, FULL)],
        auto_converge=move.auto_converge,
        bandwidth_mib_s=move.bandwidth_mib_s,
        max_downtime_ms=move.max_downtime_ms,
        timeout_s=move.timeout_s,
    )
    dest = ends.dest_or_none()
    verdict = plans.judge(migrate.state_of(ends.source, move.guest), migrate.state_of(dest, move.guest), was_paused=move.paused)
    if verdict.action == "resume_dest":
        migrate.resume(dest, move.guest)
    if verdict.action in ("resume_dest", "done"):
        return {"seconds": outcome["seconds"], "passes": outcome["passes"], **migrate.completed(dest, move.guest)}
    if verdict.action == "clean_dest":
        migrate.discard(dest, move.guest)
    if verdict.action == "resume_source":
        migrate.resume(ends.source, move.guest)
    if verdict.action != "nothing":
        _clean_up(ends, move)
    reason = "it took longer than timeout" if outcome["aborted"] else outcome["error"] or "libvirt gave no reason"
    raise Failed(f"cannot migrate {move.guest} to {move.dest}: {reason}. Seen on both hosts: {verdict.meaning}")


def _clean_up(ends: Ends, move: Move) -> None:
    """The guest stayed: remove the images that this run made on the destination, and the record."""
    dest = ends.dest_or_none()
    if dest is None:
        return
    for item in move.disks:
        if item.volume is not None:
            storage.delete(dest, item.path)
    if any(item.volume for item in move.disks):
        _record(look.lookup(ends.source, move.guest), {"moving": "", "moving_made": ()})
