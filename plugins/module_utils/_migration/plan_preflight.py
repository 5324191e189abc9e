# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All preflight failures of a migration, before anything is touched. Pure."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import version
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_backup_record import HELD
from ansible_collections.corral.virt.plugins.module_utils._migration import plan_snapshot_migration
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    COPIED,
    MigratingGuest,
    MigrationHost,
    Move,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migrate import may_switch
from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import FreeSpace

_KEPT = {
    "managed_save": "it has a managed save and would resume from that; start it, or discard the managed save (virsh "
    "managedsave-remove {name})",
    "checkpoints": "libvirt keeps checkpoints of it, which no backup of this collection has made and which would stay "
    "behind; delete them (virsh checkpoint-list {name})",
}


def check(
    move: Move,
    guest: MigratingGuest,
    source: MigrationHost,
    dest: MigrationHost,
    *,
    lacks: str | None = None,
    ports_filtered: str | None = None,
    outsider: str | None = None,
    missing: t.Sequence[tuple[str, str]] = (),
) -> None:
    """Raise Refused with all preflight failures.

    `lacks` says why the destination cannot provide the CPU, `ports_filtered` why its ports are unreachable,
    `outsider` why the guest's cluster must not lose it; `missing` are other prerequisites that the destination lacks,
    each with its remedy.
    """
    problems = [*findings(move, guest, source, dest), *_with_remedies(missing)]
    if lacks:
        problems.append(f"{move.dest} cannot provide its CPU: {lacks}; set a CPU model that both hosts support")
    problems += filter(None, (ports_filtered, outsider))
    if problems:
        raise Refused(f"cannot migrate {guest.name} to {move.dest}: " + "; ".join(problems))


def _with_remedies(missing: t.Iterable[tuple[str, str]]) -> t.Iterator[str]:
    """The reasons grouped by remedy."""
    reasons: dict[str, list[str]] = {}
    for reason, remedy in missing:
        reasons.setdefault(remedy, []).append(reason)
    for remedy, found in reasons.items():
        yield f"{', and '.join(found)}; {remedy}"


def taken_variables(taken: t.Mapping[str, str], dest: str) -> list[tuple[str, str]]:
    """The UEFI variables of a running guest into which QEMU would write another guest's there, with the remedy."""
    remedy = "give one of the guests a file of its own (nvram.path of virt_domain, while it is off)"
    return [(f"guest {user} of {dest} has its UEFI variables in {path}, too", remedy) for path, user in taken.items()]


def notes(move: Move, left: t.Iterable[str], *, hooked: bool) -> list[str]:
    """Notes on a migration that passes the preflight; `left` are directories that the guest shares with its host and
    that are on no shared storage.
    """
    found = [f"the content of {path}, which the guest uses, is not copied to {move.dest}" for path in left]
    found += [f"the guest's {here} is {there} on {move.dest}" for here, there in move.firmware]
    found += [
        f"logical volume {disk.path} stays on the source, as it was not created for {move.guest}, or others "
        f"use it; to remove it when nobody needs it: lvremove {disk.path}"
        for disk in move.disks
        if disk.volume and disk.path.startswith("/dev/") and not disk.delete_source
    ]
    found += [
        f"{disk.path} stays on {disk.stays_on}, as guests of other hosts may use it; to delete it if none does: "
        "playbook delete_volume"
        for disk in move.disks
        if disk.stays_on and not move.keep_source_storage
    ]
    found += [f"the UEFI variables in {path} stay on the source: {why}" for path, why in move.kept]
    if hooked:
        found.append(
            f"a hook of libvirt on {move.dest} may set up files and devices for guests, so it is unknown whether all "
            "that the guest needs is there"
        )
    return found


def uses_ports(move: Move) -> bool:
    """True if QEMU connects to QEMU: a tunnel, and a guest that is off, need only libvirt's port."""
    return move.active and move.tuning.transport != "tunnelled"


def outsider(
    resource: str, dest: str, known_as: t.Collection[str], members: t.Mapping[str, t.Collection[str]]
) -> str | None:
    """Why a guest that Pacemaker runs as `resource` must not go to the host `known_as` these names and addresses; None
    if that is one of the `members`, which have addresses.
    """
    if any(not {name, *addresses}.isdisjoint(known_as) for name, addresses in members.items()):
        return None
    return (
        f"Pacemaker runs it as {resource}, and would not see it on {dest}, which is no member of its cluster (members: "
        f"{', '.join(sorted(members))}); choose a member, or end its protection first (virt_domain with "
        "ha: {mode: none}, or cluster_guests without it and the role corral.virt.cluster)"
    )


def findings(move: Move, guest: MigratingGuest, source: MigrationHost, dest: MigrationHost) -> list[str]:
    """All preflight failures that both hosts' facts show, each with its remedy."""
    parts = (
        _maintenance,
        _identity,
        _free_space,
        _what_it_runs_on,
        _what_it_is_tied_to,
        _snapshots,
        _transport,
        _versions,
    )
    return [*move.refused, *(text for part in parts for text in part(move, guest, source, dest))]


def _maintenance(move: Move, _guest: MigratingGuest, _source: MigrationHost, dest: MigrationHost) -> t.Iterator[str]:
    if dest.maintenance is not None:
        yield (
            f"{move.dest} is in maintenance ({dest.maintenance}) and takes no guests; end that with playbook undrain, "
            "or choose another host"
        )


def _identity(move: Move, guest: MigratingGuest, source: MigrationHost, dest: MigrationHost) -> t.Iterator[str]:
    if source.uuid == dest.uuid:
        yield (
            f"{source.name} and {move.dest} report the same host UUID {dest.uuid}: they are the same host, or clones; "
            "set host_uuid in libvirtd.conf (virtqemud.conf) of one"
        )
    other = dest.guests.get(guest.name)
    if other is not None and other[0] == guest.uuid:
        yield f"{move.dest} already has this guest ({other[1]}); inspect it there, then remove the wrong one"
    elif other is not None:
        yield (
            f"{move.dest} has another guest with this name ({other[1]}, UUID {other[0]}); rename one of them (virsh "
            "domrename)"
        )
    twin = next((name for name, (its, _state) in dest.guests.items() if its == guest.uuid and name != guest.name), None)
    if twin:
        yield f"{move.dest} has guest {twin} with the same UUID {guest.uuid}; compare them, then remove the wrong one"


def _free_space(move: Move, guest: MigratingGuest, _source: MigrationHost, dest: MigrationHost) -> t.Iterator[str]:
    if move.active and guest.memory_mib > dest.memory_free_mib:
        free, needed = (bytes_text(mib * 1024**2) for mib in (dest.memory_free_mib, guest.memory_mib))
        yield f"{move.dest} has {free} of memory free, and the guest may use {needed}; free some there"
    for pool in dest.pools:
        needs = [disk.room_bytes for disk in move.disks if disk.volume and disk.volume.pool == pool.name]
        reserve = 0 if pool.logical and move.reserve_bytes is None else move.reserve_bytes  # no volume grows there
        space = FreeSpace(pool.capacity_bytes, pool.available_bytes, reserve)
        problem = space.problem(sum(needs), f"pool {pool.name} of {move.dest}") if needs else ""
        if problem:
            yield f"its disks: {problem}"


def _what_it_runs_on(move: Move, guest: MigratingGuest, source: MigrationHost, dest: MigrationHost) -> t.Iterator[str]:
    if guest.virt_type not in dest.virt_types:
        yield (
            f"{move.dest} cannot run {guest.virt_type} guests (it offers {', '.join(dest.virt_types)}); enable that "
            "there, or choose another host"
        )
    if guest.machine and dest.machines and guest.machine not in dest.machines:
        remedy = _machine_remedy(guest.machine, source, dest)
        yield f"QEMU on {move.dest} does not provide machine type {guest.machine}; {remedy}"
    if move.active and guest.cpu_mode == "host-passthrough" and source.cpu_xml != dest.cpu_xml:
        yield (
            f"the guest uses the exact CPU of {source.name} (host-passthrough), and that of {move.dest} differs; set a "
            "CPU model that both support (virt_host_info baseline returns one), or migrate it while it is off"
        )


_MACHINE = re.compile(r"(.*?)(\d+(?:\.\d+)+)")  # pc-q35-7.2; also those of distributions, pc-q35-rhel9.2.0


def _machine_remedy(machine: str, source: MigrationHost, dest: MigrationHost) -> str:
    """What to do about a missing machine type: newer QEMU drops old ones, and distributions have their own."""
    kind = _MACHINE.fullmatch(machine)
    if kind is None:
        return "choose a host that provides it"
    there = _numbers(kind[1], dest.machines)
    if there and _numbers(kind[1], [machine])[0][0] > there[-1][0]:
        return "upgrade QEMU there, or choose another host"
    both = [name for _number, name in there if name in source.machines]
    if both:
        newest = f"set machine: {both[-1]}, which both hosts provide, with virt_domain and shut the guest down"
        return f"newer versions have dropped it: {newest}"
    return "choose a host that provides it, or set a machine type that both hosts provide with virt_domain"


def _numbers(family: str, machines: t.Iterable[str]) -> list[tuple[tuple[int, ...], str]]:
    """The machine types of a family with their versions, the oldest first."""
    kinds = [_MACHINE.fullmatch(name) for name in machines]
    return sorted((tuple(map(int, one[2].split("."))), one[0]) for one in kinds if one and one[1] == family)


def _what_it_is_tied_to(
    move: Move, guest: MigratingGuest, source: MigrationHost, _dest: MigrationHost
) -> t.Iterator[str]:
    if guest.devices and move.active:
        yield (
            f"it uses {', '.join(guest.devices)} of {source.name}, which cannot be migrated; detach that, or migrate "
            "the guest while it is off"
        )
    left = [path for path, shared_on in guest.local_state if not shared_on]
    if left and not move.active:
        yield (
            f"it keeps data in {', '.join(left)}, which is not copied; put that on shared storage, or create it on "
            f"{move.dest} and migrate the guest while it runs"
        )
    for kept in guest.managed_state:
        if kept in _KEPT and not (kept == "checkpoints" and guest.backups):
            yield _KEPT[kept].format(name=guest.name)
    if guest.held:
        yield f"{HELD}; {guest.held}"
    if guest.job:
        yield (
            f"libvirt is running a job on it ({guest.job}); wait for that, or abort it (virsh domjobabort {guest.name})"
        )


def _snapshots(move: Move, guest: MigratingGuest, _source: MigrationHost, _dest: MigrationHost) -> t.Iterator[str]:
    return plan_snapshot_migration.problems(move, guest)


def _transport(move: Move, _guest: MigratingGuest, _source: MigrationHost, _dest: MigrationHost) -> t.Iterator[str]:
    copied = [disk.target for disk in move.disks if disk.how in COPIED]
    if move.active and copied and move.tuning.transport == "tunnelled":
        yield (
            f"{', '.join(copied)} would have to be copied, and a tunnel cannot carry a storage copy; use transport: "
            "tls, or put that on shared storage (storage: shared, if it is there already)"
        )


def _versions(move: Move, _guest: MigratingGuest, source: MigrationHost, dest: MigrationHost) -> t.Iterator[str]:
    if not move.active:
        return
    either = min(source.libvirt_version, dest.libvirt_version)
    tuning, copied = move.tuning, any(disk.how in COPIED for disk in move.disks)
    lost = "the name in the certificate is lost"
    traps = (
        # libvirt's own release notes: what is broken, and in which version that ended.
        (
            "10.3",
            tuning.parallel and copied and tuning.transport == "tls",
            f"parallel with tls and disks to copy ({lost})",
        ),
        (
            "10.3",
            tuning.postcopy and copied and tuning.transport == "tls",
            f"postcopy with tls and disks to copy ({lost})",
        ),
        ("9.4", {"zlib", "zstd"} & set(tuning.compression), "compression of parallel connections"),
    )
    for release, met, what in traps:
        if met and either < version.number(*map(int, release.split("."))):
            yield (
                f"libvirt before {release} (here {version.text(either)}) does not support {what}; omit that, or "
                "upgrade both hosts"
            )
    qemu = min(source.qemu_version, dest.qemu_version)
    if may_switch(move) and tuning.parallel and qemu < version.number(10, 1):
        yield (
            f"QEMU before 10.1 (here {version.text(qemu)}) loses the guest with postcopy and parallel together; omit "
            "one"
        )
