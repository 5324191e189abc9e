# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Bring one guest to another host: look at both ends, plan, gate, judge by observation, report."""

from __future__ import annotations

import contextlib
import dataclasses
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils import _changes, _units
from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, Failed, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._files import local
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
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse, sources

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


_FORGET: dict[str, t.Any] = {"moving": "", "moving_made": ()}


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
    another = f"cannot migrate {name}: another run is moving it from this host right now; wait for that one"
    with local.locked(name, another) if gate.open else contextlib.nullcontext():
        return _converge(ends, name, params, gate)


def _converge(ends: Ends, name: str, params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    found, source, dest = look.find(ends.source, name), _host(ends.source), _host(ends.dest())
    there = dest.guests.get(name)
    if found is None and there is None:
        raise NotFound(f"cannot migrate {name}: it is neither on {source.name} nor on {params['dest']}; where is it?")
    if found is None:
        return _arrived(ends, params, gate, source)
    if source.uuid == dest.uuid and source.name == dest.name:
        return _result(params, [])  # this host is the destination
    memory = record.read(found.live_xml or found.xml)
    discard = []
    if there is not None and there[0] == found.uuid and memory.get("moving") == params["dest"]:
        discard = _unsettled(ends, params, found, memory, there[1])
        dest.guests.pop(name)
    move = _move(ends, params, found, source)
    root = parse(t.cast(str, found.live_xml))
    kind = {"machine": root.find("os/type").get("machine") or "", "virt_type": root.get("type"), "uuid": found.uuid}
    needs_mib = int(root.findtext("currentMemory") or root.findtext("memory")) // 1024
    problems = plans.findings(move, source, dest, memory_mib=needs_mib, **kind)
    if problems:
        raise Refused(f"cannot migrate {name} to {move.dest}: " + "; ".join(problems))
    steps = [*discard, *plans.steps(move)]
    figures: dict[str, t.Any] = {}
    gate.run(steps, lambda step: _do(ends, step, figures))
    shown = ("target", "path", "how", "why", "bytes_to_move")
    return {
        **_result(params, steps, [Change("host", source.name, move.dest)]),
        "disks": [{key: getattr(item, key) for key in shown} for item in move.disks],
        "bytes_to_move": sum(item.bytes_to_move for item in move.disks),
        **{key: value for key, value in figures.items() if value is not None},
    }


def _result(params: t.Mapping[str, t.Any], steps: t.Sequence[object], changes: t.Sequence[Change] = ()) -> dict[str, t.Any]:
    return {
        "changed": bool(steps),
        "name": params["name"],
        "dest": params["dest"],
        "steps": [str(step) for step in steps],
        "diff": _changes.diff(changes),
    }


def _arrived(ends: Ends, params: t.Mapping[str, t.Any], gate: Gate, source: Host) -> dict[str, t.Any]:
    """It is on the destination. When a run from here was interrupted after that, do what remained."""
    there = look.find(ends.dest(), params["name"])
    memory = record.read(there.live_xml or there.xml) if there else {}
    if there is None or memory.get("moving_from") != source.uuid:
        return _result(params, [])
    in_use = {path for guest in look.all_guests(ends.source) for path in sources(guest.XMLDesc())}
    left = [path for path in memory.get("moving_made") or () if path not in in_use and storage.volume_at(ends.source, path)]
    move = _plain_move(params, autostart=bool(memory.get("moving_autostart")) and not there.autostart)
    steps = plans.finish(move, left, resume=there.state == "paused" and not memory.get("moving_paused"))
    gate.run(steps, lambda step: _do(ends, step, {}))
    return _result(params, steps, [Change("unfinished migration", "yes", "no")])


def _unsettled(
    ends: Ends, params: t.Mapping[str, t.Any], found: Found, memory: t.Mapping[str, t.Any], there: str
) -> list[plans.MigrateStep]:
    """An earlier run left the guest on both ends: what to clear away before it is tried again; raises Refused where nobody may decide."""
    active = migrate.job_active(ends.source, found.name)
    verdict = plans.judge(found.state, there, was_paused=bool(memory.get("moving_paused")), job_active=active)
    if verdict.action != "clean_dest":
        raise Refused(f"cannot migrate {found.name}: seen on both hosts: {verdict.meaning}")
    move = _plain_move(params)
    return [plans.MigrateStep(move, "discard", text=f"remove the dead copy of {found.name} from {move.dest}")]


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


def _move(ends: Ends, params: t.Mapping[str, t.Any], found: Found, source: Host) -> Move:
    if not found.active:
        raise Refused(f"cannot migrate {found.name}: it is shut off, and only running or paused guests are moved; start it first")
    return _plain_move(
        params,
        source_uuid=source.uuid,
        paused=found.state == "paused",
        autostart=found.autostart,
        disks=_disk_moves(ends, params, found),
    )


def _plain_move(params: t.Mapping[str, t.Any], **more: t.Any) -> Move:
    return Move(
        guest=params["name"],
        dest=params["dest"],
        dest_uri=dest_uri(params),
        transport=params["transport"],
        timeout_s=params["timeout"],
        bandwidth_mib_s=params["bandwidth"],
        max_downtime_ms=params["max_downtime"],
        auto_converge=params["auto_converge"],
        keep_source_storage=params["keep_source_storage"],
        **more,
    )


def _disk_moves(ends: Ends, params: t.Mapping[str, t.Any], found: Found) -> tuple[DiskMove, ...]:
    """How each disk travels, and why; raises Refused with every disk that cannot."""
    live = t.cast(str, found.live_xml)
    memory = record.read(live)
    # Only what a run to this very host made there may be replaced.
    ours = set(memory.get("moving_made") or ()) if memory.get("moving") == params["dest"] else set()
    pools = {
        os.path.normpath(info["path"]): pool["name"]
        for pool in look.pools(ends.dest())
        if pool["active"] and (info := caps.pool(pool["xml"]))["path"]
    }
    moves: list[DiskMove] = []
    problems = [
        f"disk {path} waits for the next boot; plug it in or take it out first" for path in set(sources(found.xml)) - set(sources(live))
    ]
    for item in disk.read_all(parse(live)):
        if item.get("source"):
            try:
                moves.append(_disk_move(ends, params["storage"], item, pools, ours))
            except (Refused, NotFound) as error:
                problems.append(str(error))
    if problems:
        raise Refused(f"cannot migrate {found.name} to {params['dest']}: " + "; ".join(problems))
    used = {path for guest in look.all_guests(ends.source) if guest.name() != found.name for path in sources(guest.XMLDesc())}
    owned = set(memory.get("volumes") or ())
    # A copied disk goes from the source unless others use it there; what is only read (an ISO) goes when it was made for this guest.
    return tuple(dataclasses.replace(move, goes=move.path not in used and (move.how != CARRY or move.path in owned)) for move in moves)


def _disk_move(ends: Ends, mode: str, item: t.Mapping[str, t.Any], pools: t.Mapping[str, str], ours: t.Collection[str]) -> DiskMove:
    path, target = t.cast(str, item["source"]), t.cast(str, item["target"])
    shared = local.shared_filesystem(path)
    if mode == "shared" or (mode == "auto" and shared):
        return DiskMove(target, path, SHARED, f"on {shared or 'storage that you call shared'}")
    if item.get("shareable"):
        raise Refused(f"disk {target}: it is shareable, and a copy would no longer be the disk the others use; put it on shared storage")
    directory, file = os.path.split(path)
    pool = pools.get(os.path.normpath(directory))
    if pool is None:
        raise Refused(f"disk {target}: the destination has no active storage pool at {directory}; make one there")
    storage.refresh(ends.dest(), pool)
    there = storage.volume_in(ends.dest(), pool, file) is not None
    if there and path not in ours:
        raise Refused(
            f"disk {target}: {path} exists on the destination already, and no migration of ours made it; if it is the same file, set "
            "storage: shared; if it is a leftover, look at it and remove it there"
        )
    info = _local(ends.source, path)
    size, whole = info["capacity_bytes"], info["allocation_bytes"]
    volume = Volume(pool, file, path, size, info["format"])
    if item.get("readonly") or item.get("device") == "cdrom":
        return DiskMove(target, path, CARRY, "read-only", volume, size, replace=there)
    base = info["backing_path"]
    if base is None:
        return DiskMove(target, path, FULL, "stands alone", volume, whole, replace=there)
    there_base = storage.volume_at(ends.dest(), base)
    alike = there_base is not None and caps.volume(there_base)["capacity_bytes"] == _local(ends.source, base)["capacity_bytes"]
    # The same name is the same content only where the name holds the content's checksum; else the user must vouch for it.
    if alike and (mode == "delta" or (mode == "auto" and _units.CONTENT_NAME.search(base))):
        based = dataclasses.replace(volume, backing_path=base, backing_format=info["backing_format"])
        return DiskMove(target, path, DELTA, f"{base} is there", based, whole, replace=there)
    if mode == "delta":
        raise Refused(f"disk {target}: its base {base} is not on the destination; bring it there with virt_image, or use storage: full")
    why = f"{base} is not known to be the same there" if alike else f"{base} is not there"
    return DiskMove(target, path, FULL, why, volume, whole + _local(ends.source, base)["allocation_bytes"], flatten=True, replace=there)


def _local(connection: t.Any, path: str) -> dict[str, t.Any]:
    xml = storage.volume_at(connection, path)
    if xml is None:
        raise NotFound(f"disk {path} is in no active storage pool of the source; make a pool for its directory")
    return caps.volume(xml)


def _host(connection: t.Any) -> Host:
    node, known = look.node(connection), caps.host(look.capabilities(connection))
    return Host(
        name=node["hostname"],
        uuid=known["uuid"],
        memory_free_mib=migrate.memory_free_mib(connection),
        machines=tuple(known["machines"].get(known["arch"]) or ()),
        virt_types=tuple(known["virt_types"].get(known["arch"]) or ()),
        guests={item.name(): (item.UUIDString(), look.state(item)) for item in look.all_guests(connection)},
    )


def _do(ends: Ends, step: plans.MigrateStep, figures: dict[str, t.Any]) -> None:
    move = step.move
    item = next((each for each in move.disks if each.path == step.path), None)
    if step.verb == "record":
        fields: dict[str, t.Any] = {"moving": move.dest, "moving_from": move.source_uuid}
        fields.update(moving_paused="yes" if move.paused else "", moving_autostart="yes" if move.autostart else "")
        fields["moving_made"] = tuple(each.path for each in move.disks if each.volume)
        _record(look.lookup(ends.source, move.guest), fields)
    elif step.verb == "discard":
        migrate.discard(ends.dest(), move.guest)
    elif step.verb in ("make", "carry"):
        volume = t.cast(Volume, item and item.volume)
        storage.create(ends.dest(), volume.pool, caps.new_volume(volume), name=volume.name, replace=bool(item and item.replace))
        if step.verb == "carry":
            storage.copy(ends.source, volume.path, ends.dest(), volume.pool, volume.name)
    elif step.verb == "migrate":
        figures.update(_migrate(ends, move))
    elif step.verb == "resume":
        migrate.resume(ends.dest(), move.guest)
    elif step.verb == "autostart":
        migrate.set_autostart(ends.dest(), move.guest)
    elif step.verb == "remove":
        storage.delete(ends.source, step.path)
    elif step.verb == "forget":
        _record(look.lookup(ends.dest(), move.guest), _FORGET)


def _record(guest: t.Any, fields: t.Mapping[str, t.Any]) -> None:
    now = look.found(guest)
    migrate.set_record(guest, record.update(now.xml, fields), now.live_xml and record.update(now.live_xml, fields))


def _migrate(ends: Ends, move: Move) -> dict[str, t.Any]:
    """Send it paused, look at both ends, do the one thing that is right; raises Failed when it did not arrive."""
    ends.dest()  # opened before, so that the commit costs no connection
    domain, (flags, parameters) = look.lookup(ends.source, move.guest), plans.call(move)
    outcome = migrate.run(domain, move.dest_uri, flags, parameters, timeout_s=move.timeout_s, max_downtime_ms=move.max_downtime_ms)
    dest = ends.dest_or_none()
    states = (migrate.state_of(ends.source, move.guest), migrate.state_of(dest, move.guest))
    verdict = plans.judge(*states, was_paused=move.paused, job_active=migrate.job_active(ends.source, move.guest))
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
    _record(look.lookup(ends.source, move.guest), _FORGET)
