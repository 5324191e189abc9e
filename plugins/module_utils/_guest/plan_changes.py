# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what must be done to a guest. Pure: data in, steps out; nothing here touches a host."""

from __future__ import annotations

import dataclasses
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import step
from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.output import agree, some_of
from ansible_collections.corral.virt.plugins.module_utils._core.problems import WHERE_IT_IS
from ansible_collections.corral.virt.plugins.module_utils._domain import plan_snapshot_names
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest, Grafted, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import Snapshot
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_steps, plan_live
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_guest_steps import GuestStep
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_seeding import Seeding
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power import power_off, state_change, state_steps

# Decide whether a guest may have another name. Pure.

_NAMED_AFTER = {  # what libvirt keeps under a guest's name, and what removes it
    "managed_save": ("managed save", "virsh managedsave-remove {}"),
    "checkpoints": ("checkpoints", "virsh checkpoint-delete {} CHECKPOINT"),
}


def rename(
    wanted: GuestSpec,
    found: FoundGuest | None,
    former: FoundGuest | None,
    *,
    managed_state: t.Sequence[str],
    recorded: t.Mapping[str, t.Any],
    snapshots: t.Sequence[Snapshot] = (),
) -> plan_guest_steps.Rename | None:
    """The step that renames a guest; None if it has its new name. `found` has the new name, `former` the old one.

    `managed_state` and `snapshots` are what libvirt keeps of `former`, `recorded` our record of it.
    """
    what = f"cannot rename {wanted.renamed_from} to {wanted.name}"
    if former is None and found is None:
        raise NotFound(f"{what}: there is no guest {wanted.renamed_from} here; {WHERE_IT_IS}")
    if former is None:
        return None
    if found is not None:
        raise Refused(f"{what}: another guest has this name (UUID {found.uuid}); choose another name")
    if wanted.uuid and wanted.uuid != former.uuid:
        raise Refused(f"{what}: the guest with this name has UUID {former.uuid}, not {wanted.uuid}; check the UUID")
    if former.active:
        raise Refused(
            f"{what}: it is {former.state}; shut it down first: ansible-playbook corral.virt.shutdown -e "
            f"guest={former.name}"
        )
    if recorded.get("moving"):
        raise Refused(
            f"{what}: its migration is in progress or was interrupted; finish it with virt_migrate (playbook migrate)"
        )
    if recorded.get("making"):
        raise Refused(f"{what}: an interrupted run left {', '.join(recorded['making'])} incomplete; repeat it first")
    _refuse_named_after(what, former.name, managed_state, [one.name for one in snapshots])
    return plan_guest_steps.Rename(former.name, wanted.name)


def _refuse_named_after(what: str, guest: str, managed_state: t.Sequence[str], snapshots: t.Sequence[str]) -> None:
    kept = [(kind, remedy.format(guest)) for key, (kind, remedy) in _NAMED_AFTER.items() if key in managed_state]
    if snapshots:
        kept.append((plan_snapshot_names.named(snapshots), plan_snapshot_names.remedy(guest, snapshots)))
    if kept:
        raise Refused(
            f"{what}: libvirt keeps its {' and '.join(kind for kind, _remedy in kept)} under its name; remove that "
            f"first: {'; '.join(remedy for _kind, remedy in kept)}"
        )


# Decide what a change of disks means for snapshots. Pure.


def grown(guest: str, paths: t.Sequence[str], snapshots: t.Sequence[Snapshot]) -> list[str]:
    """Notes on snapshots of a guest whose disks grow; raises Refused for those inside a disk."""
    inside = [
        one.name for one in snapshots if any(disk.kind == "internal" and disk.base in paths for disk in one.disks)
    ]
    if inside:
        raise Refused(
            f"cannot grow {', '.join(paths)} of {guest}: {plan_snapshot_names.named(inside)} inside it would have "
            f"another size; {plan_snapshot_names.remedy(guest, inside)}"
        )
    names = [one.name for one in snapshots] if paths else []
    same = f"{plan_snapshot_names.named(names)} of {guest} {agree(len(names), 'keeps', 'keep')} the size of then"
    return [f"{same}; what grows is {', '.join(paths)}"] if names else []


def attached(
    guest: str, disks: t.Mapping[str, str], snapshots: t.Sequence[Snapshot], *, removed: t.Collection[str]
) -> list[str]:
    """Notes on disks (target: path) that snapshots do not have, and on `removed` ones (paths) that they have."""
    lacking = [one.name for one in snapshots if set(disks) - {disk.target for disk in one.disks}]
    having = [
        one.name for one in snapshots if {path for disk in one.disks for path in (disk.base, disk.overlay)} & {*removed}
    ]
    notes = []
    if lacking:
        what = agree(len(lacking), "was taken without it", "were taken without it")
        notes.append(f"{plan_snapshot_names.named(lacking)} of {guest} {what}: {', '.join(disks.values())}")
    if having:
        needs = agree(len(having), "needs", "need")
        notes.append(
            f"{plan_snapshot_names.named(having)} of {guest} {needs} {', '.join(sorted(removed))}: keep the file until "
            "they are deleted"
        )
    return notes


# Decide whether a guest is still as a plan has seen it, before its definition is replaced or removed. Pure.


@dataclasses.dataclass(frozen=True)
class DefinitionSight:
    """What libvirt has now of the guest with a UUID."""

    exists: bool
    expected: bool  # whether the plan was made for a guest that exists
    active: bool = False
    persistent: bool = True
    differs: t.Sequence[str] = ()  # parts of its definition that the plan did not see like this


def check_unchanged(verb: str, guest: str, sight: DefinitionSight, *, must_be_off: bool = False) -> None:
    """Raise Refused if somebody has changed the guest since it was read: their change is not overwritten."""
    reason = _reason(sight, must_be_off=must_be_off)
    if reason:
        raise Refused(
            f"cannot {verb} {guest}: {reason} since this run has read it, so it is left as it is; inspect it "
            f"(`{shlex.join(['virsh', 'dumpxml', '--inactive', guest])}`), and run again"
        )


def _reason(sight: DefinitionSight, *, must_be_off: bool) -> str:
    if not sight.exists:
        return "it was removed" if sight.expected else ""
    if not sight.expected:
        return "a guest with its UUID was defined"
    if not sight.persistent and must_be_off:
        return "its definition was removed, and it still runs,"
    if sight.differs:
        return f"somebody has changed its definition ({', '.join(sight.differs)})"
    return "it was started" if must_be_off and sight.active else ""


@dataclasses.dataclass(frozen=True)
class GuestPlan(step.Plan[GuestStep]):
    """What is done to a guest; `pending` changes wait for its next boot."""

    uuid: str | None = None  # whom the steps are done to; None: there is no such guest
    wait: plan_guest_steps.WaitForAddress | None = None  # afterwards
    ssh_host_key: str | None = None  # public
    misplaced: tuple[tuple[str, str, str], ...] = ()  # disks that are to be in other pools: name, pool, thin pool
    found_xml: str | None = dataclasses.field(default=None, repr=False)  # the definition that was looked at


def plan(
    wanted: GuestSpec,
    found: FoundGuest | None,
    stored: Grafted,
    now: plan_live.Now | None,
    *,
    storage: t.Sequence[GuestStep] = (),
    unfinished_xml: str | None = None,
    seed_changed: bool = False,
    record_changed: bool = False,
) -> GuestPlan:
    """Steps that make the guest as wanted.

    `stored` is the definition after the graft, `now` what runs, `unfinished_xml` the definition that says which disks
    are being made.
    """
    _refuse_fixed(wanted, found, stored.changes)
    if wanted.apply == "live":
        _refuse_not_live(wanted, now, storage)
        made: list[GuestStep] = []
    else:
        made = _definition(wanted, found, stored, storage, unfinished_xml, record_changed=record_changed)
    if wanted.autostart is not None and wanted.autostart != (found.autostart if found else False):
        made.append(plan_guest_steps.SetAutostart(wanted.name, wanted.autostart))
    pending: list[str] = []
    notes: tuple[str, ...] = ()
    if now is not None and wanted.state not in ("shutdown", "destroyed"):
        reached, pending = _reach_running(wanted, now, record_changed=record_changed)
        if seed_changed:
            pending.append("cloud_init: the new seed is read at the next boot")
        if pending and wanted.allow_restart:
            return GuestPlan((*made, *_restart(wanted, t.cast(FoundGuest, found))))
        made, notes = _merged(made, reached), _waiting(wanted, now)
    return GuestPlan((*made, *state_steps(wanted, found)), pending=tuple(pending), notes=notes)


def _definition(
    wanted: GuestSpec,
    found: FoundGuest | None,
    stored: Grafted,
    storage: t.Sequence[GuestStep],
    unfinished_xml: str | None,
    *,
    record_changed: bool,
) -> list[GuestStep]:
    """Steps that define the guest as wanted and create or change the files it names."""
    if unfinished_xml:
        begun = plan_guest_steps.Define(wanted.name, unfinished_xml, "disks to be created")
        return [begun, *storage, plan_guest_steps.Define(wanted.name, stored.xml, "complete")]
    if not stored.changes and found is not None and not record_changed:
        return [*storage]
    return [*storage, plan_guest_steps.Define(wanted.name, stored.xml, _summary(stored.changes) or "its record")]


def changes(
    wanted: GuestSpec,
    found: FoundGuest | None,
    stored: Grafted,
    now: plan_live.Now | None,
    plan: GuestPlan,
    seed_plan: Seeding,
    recorded: str | None,
) -> tuple[Change, ...]:
    """The changes that a diff shows: of the definition, of files, and of the running guest alone.

    `recorded` is the digest of the former seed.
    """
    running = now.running.changes if now and plan.steps else ()
    made = [
        *(() if wanted.apply == "live" else stored.changes),
        *_only_running(wanted, stored, running, plan),
        *seed_plan.disks.changes,
    ]
    if found is None:  # what the skeleton said was never anybody's wish
        made = [Change(change.where, None, change.after) for change in made]
    if seed_plan.rewritten and wanted.seed:
        made.append(Change("cloud_init", str(recorded)[:12], wanted.seed.digest[:12]))
    return (*made, *state_change(found, plan.steps), *_autostart_change(found, plan))


def _only_running(wanted: GuestSpec, stored: Grafted, running: t.Sequence[Change], plan: GuestPlan) -> list[Change]:
    """Changes that an earlier run stored and that the running guest gets now."""
    if wanted.apply == "live":
        return [*running]
    places = {change.where for change in stored.changes}
    return [change for change in running if change.where not in places and str(change) not in plan.pending]


def _autostart_change(found: FoundGuest | None, plan: GuestPlan) -> list[Change]:
    return [
        Change("autostart", found and found.autostart, step.on)
        for step in plan.steps
        if isinstance(step, plan_guest_steps.SetAutostart)
    ]


def saved(name: str) -> str:
    """A note on a guest that has a managed save."""
    return (
        f"{name} has a managed save: its next start resumes from that, and the changes take effect at the start after "
        f"it; to discard the managed save: virsh managedsave-remove {name}"
    )


def _refuse_not_live(wanted: GuestSpec, now: plan_live.Now | None, storage: t.Sequence[GuestStep]) -> None:
    if now is None:
        raise Refused(f"cannot change {wanted.name} live: it is not running; use apply: both")
    if storage:
        raise Refused(f"cannot {storage[0]} with apply: live, which leaves the definition unchanged; use apply: both")


def _reach_running(wanted: GuestSpec, now: plan_live.Now, *, record_changed: bool) -> tuple[list[GuestStep], list[str]]:
    """Live steps for what the running guest lacks, and the changes that wait for the next boot."""
    if wanted.apply == "next_boot":
        return [], [str(change) for change in now.running.changes]
    made, pending = plan_live.live_steps(now, record_changed=record_changed)
    if pending and wanted.apply == "live":
        reasons = "; ".join(dict.fromkeys(plan_live.obstacles(now).values()))
        raise Refused(
            f"cannot change {'; '.join(pending)} of {wanted.name} while it runs{reasons and ': '}{reasons}; use apply: "
            "both to apply it at the next boot"
        )
    return made, pending


def _waiting(wanted: GuestSpec, now: plan_live.Now) -> tuple[str, ...]:
    """Reasons why devices wait for the next boot although the task does not ask for that."""
    if wanted.apply == "next_boot":
        return ()
    devices: dict[str, list[str]] = {}
    for device, reason in plan_live.obstacles(now).items():
        devices.setdefault(reason, []).append(device)
    remedy = "shut it down and start it, or set allow_restart: true"
    return tuple(
        f"{', '.join(names)} of {wanted.name}: {reason}; the change takes effect at its next start ({remedy})"
        for reason, names in devices.items()
    )


def _merged(made: list[GuestStep], reached: t.Sequence[GuestStep]) -> list[GuestStep]:
    """The steps on the definition combined with those on the running guest.

    A device is updated before it is defined: if the host refuses the update (a network that is not active), the
    definition must not keep it for the next boot. Devices are attached after the definition: a disk that a running
    guest has must be complete in its definition.
    """
    first = [step for step in reached if isinstance(step, plan_guest_steps.UpdateDevice)]
    defines = [at for at, step in enumerate(made) if isinstance(step, plan_guest_steps.Define)]
    last = defines[-1] if defines else len(made)
    return [*made[:last], *first, *made[last:], *(step for step in reached if step not in first)]


def awaited(
    wanted: GuestSpec, result: GuestPlan, *, assigned: t.Collection[str], seen: t.Collection[str]
) -> plan_guest_steps.WaitForAddress | None:
    """The step that waits for an address of the guest; None if none is waited for.

    An `assigned` address is known; so is one at which the guest was `seen`, unless it starts only now.
    """
    source = wanted.wait_for_ip or "none"
    if source == "unknown":
        starts = any(isinstance(step, plan_guest_steps.Start) for step in result.steps)
        source = "none" if assigned or (seen and not starts) else "any"
    if source == "none" or wanted.state not in ("running", "rebooted"):
        return None
    return plan_guest_steps.WaitForAddress(wanted.name, source, wanted.wait_timeout_s)


def _refuse_fixed(wanted: GuestSpec, found: FoundGuest | None, changes: t.Sequence[Change]) -> None:
    fixed = [str(change) for change in changes if plan_live.how(change.where) == plan_live.FIXED]
    if found is not None and fixed:
        raise Refused(
            f"cannot change {', '.join(fixed)} of {wanted.name}: it is fixed when a guest is created; create a new "
            "guest"
        )
    if found is not None and wanted.uuid and wanted.uuid != found.uuid:
        raise Refused(
            f"cannot change uuid of {wanted.name} from {found.uuid} to {wanted.uuid}: another guest has this name; "
            "choose another name, or omit uuid"
        )


def _restart(wanted: GuestSpec, found: FoundGuest) -> list[GuestStep]:
    """Steps that shut down and start the guest: the new definition makes live steps needless.

    A guest that somebody paused is paused again, unless it shall run; one that an I/O error stopped is not.
    """
    held = found.state == "paused" and not found.stopped_itself
    paused = wanted.state == "paused" or (wanted.state == "present" and held)
    return [*power_off(wanted, found), plan_guest_steps.Start(wanted.name, paused=paused)]


def _summary(changes: t.Sequence[Change]) -> str:
    return some_of(sorted(change.option for change in changes), 4)
