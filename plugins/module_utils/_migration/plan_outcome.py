# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what the observed states of a guest on two hosts mean, and the one action to take. Pure.

Every run goes round in one loop: observe both hosts, judge, act, observe again. This table alone decides: for a move
that begins, for one that was interrupted and is found again, for one that is to be aborted, and for what is left when
libvirt's call has returned. What libvirt returned decides nothing: it can report a failure for a guest that arrived. A
guest is sent paused, so that at most one copy runs until both hosts were seen.
"""

from __future__ import annotations

import dataclasses
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, NotFound, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.problems import WHERE_IT_IS
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_host_bindings import arriving_name
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    LeftDisk,
    MigrationHost,
    Move,
    Observation,
)
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity
from ansible_collections.corral.virt.plugins.module_utils._xml.names import sealed

# What is recorded with a guest that moves, and what that means for the next run. Pure.


def record_of_move(move: Move, found: t.Mapping[str, FileIdentity | None]) -> dict[str, t.Any]:
    """The record before anything is made: the destination, and what is deleted when the guest has arrived.

    `found` maps paths of disks to their files, where they are of this host.
    """
    goes = [
        str(LeftDisk(disk.path, found.get(disk.path)))
        for disk in reversed(move.disks)
        if disk.volume and disk.delete_source
    ] + [str(left) for left in move.variables]
    return {
        "moving": move.dest,
        "moving_from": move.source_uuid,
        "moving_seal": sealed(move.uuid),
        "moving_seen": move.seen.partition(" ")[0],
        "moving_paused": "yes" if move.paused else "",
        "moving_autostart": "yes" if move.autostart else "",
        "moving_suspends": "yes" if move.tuning.timeout_action == "suspend" else "",
        "moving_goes": () if move.keep_source_storage else tuple(goes),
    }


def starts_with_host(recorded: t.Mapping[str, t.Any], *, autostart: bool) -> bool:
    """True if the guest is to start with its host: it does, or did until an earlier run disabled that."""
    return autostart or bool(recorded.get("moving") and recorded.get("moving_autostart"))


# Decide what both hosts must be asked about a guest that moves, and what it means for a verdict. Pure.


class GuestEnds(t.Protocol):
    """Both hosts of a guest that moves. Nothing is asked that decides nothing."""

    def is_suspended_by_owner(self) -> bool:
        """True if its owner has suspended the guest on the source, perhaps while it was being sent."""

    def is_superseded(self) -> bool:
        """True if nobody has written to the guest's disks on the source since it was resumed on the destination."""

    def has_job(self) -> bool:
        """True if libvirt runs a job on the guest on the source."""

    def has_all_memory(self) -> bool:
        """True if all memory of the guest is on the destination, after a post-copy."""

    def takes_disks_back(self) -> bool:
        """True if libvirt on the source would take shared disks from the destination, if it ended the copy there."""


def observation(
    source: str, there: str, hosts: GuestEnds, *, was_paused: bool = False, again: bool = False
) -> Observation:
    """The observation to judge, of the guest's states as libvirt reports them; asks only what decides something."""
    was_paused = was_paused or (source == "paused" and hosts.is_suspended_by_owner())
    here = "paused" if source == "incoming" else source  # of the source: paused by its migration
    off = here in ("shutdown", "crashed")
    superseded = off and there == "running" and hosts.is_superseded()
    job_active = hosts.has_job()
    complete = (here, there) == ("postcopy", "running") and hosts.has_all_memory()
    ends_here = complete or (here, there) == ("paused", "running")
    return Observation(
        here,
        there,
        was_paused=was_paused,
        job_active=job_active,
        superseded=superseded,
        complete=complete,
        takes_back=ends_here and hosts.takes_disks_back(),
        again=again,
    )


# where the guest is when nothing is left to be done; open: nobody may decide
ARRIVED, STAYED, OPEN = "arrived", "stayed", "open"

# What is done, and where the guest is then.
_ENDS = {
    "resume_dest": ARRIVED,
    "finish_dest": ARRIVED,  # let it be started there
    "clean_source": ARRIVED,  # remove the dead copy, never its storage
    "resume_source": STAYED,
    "clean_dest": STAYED,
    # Nothing is left to be done to either copy:
    "done": ARRIVED,
    "leave": ARRIVED,
    "rolled_back": STAYED,
    "move": STAYED,
    "nothing": OPEN,
}
DONE_BY = ("resume_dest", "finish_dest", "clean_source", "resume_source", "clean_dest")  # actions that a doer takes


class Verdict(t.NamedTuple):
    """The meaning of two observed states, and the one action to take."""

    state: str
    action: str  # one of _ENDS
    meaning: str
    wait: bool = False  # libvirt may still decide: look again, and act only when it has had its time

    @property
    def end(self) -> str:
        """Where the guest is after the action."""
        return _ENDS[self.action]


class VerdictRow(t.NamedTuple):
    """States of the source and of the destination (`*`: any), the field of the observation that must be true, and the
    verdict.
    """

    source: str
    dest: str
    when: str
    verdict: Verdict

    def holds(self, seen: Observation) -> bool:
        """True if the row matches the observation."""
        ends = ((self.source, seen.source), (self.dest, seen.dest))
        return all(states == "*" or state in states.split() for states, state in ends) and (
            not self.when or bool(getattr(seen, self.when))
        )


def _row(source: str, dest: str, state: str, action: str, meaning: str, *, when: str = "") -> VerdictRow:
    return VerdictRow(source, dest, when, Verdict(state, action.partition("~")[0], meaning, wait=action.endswith("~")))


_IN_DANGER = (
    "runs on the destination; a dead copy is left on the source. When libvirt there ends the copy, it may change the "
    "owner or the label of the shared disks, so that the guest can no longer write to them. Suspend the guest on the "
    "destination, destroy and undefine it on the source, set the owner and the label as before, and run again"
)
_ONE_SEEN = "one host cannot be reached; the guest may be on either; run again when both can be reached"
_NEVER_RAN = "it stopped on the source in the meantime; what was created on the destination never ran"
# The first row that holds decides. An action with `~` waits: libvirt may still decide.
_NOT_BEGUN = (
    # source, destination, state, action, meaning
    _row("absent", "absent", "missing", "nothing", "it is on neither host"),
    _row("absent", "*", "is there", "leave", "it is on the destination"),
    _row("*", "*", "is there", "leave", "this host is the destination", when="same_host"),
    _row("*", "*", "is here", "move", "it is on the source"),
)  # fmt: skip

_ELSEWHERE = (
    _row("*", "*", "is there", "leave", "this host is the destination", when="same_host"),
    _row("*", "*", "on its way", "nothing", "its migration to another destination is in progress or was interrupted"),
)  # fmt: skip

_BEGUN = (
    _row("*", "*", "is there", "leave", "this host is the destination", when="same_host"),
    # It ran on the destination before all of it was there.
    _row("postcopy", "absent shutdown crashed", "memory lost", "nothing~",
         "post-copy, and {dest} on the destination: the part of its memory that was there is lost; destroy and "
         "undefine it here, and start it there from its disks, which are newer"),
    _row("postcopy", "running", "disks in danger", "nothing~", _IN_DANGER, when="takes_back"),
    _row("postcopy", "running", "unconfirmed", "clean_source~",
         "arrived with all its memory; libvirt on the source did not learn of it", when="complete"),
    _row("postcopy", "*", "memory on both", "nothing~",
         "post-copy ({dest} on the destination): its memory is on both hosts; run again when the network is back, or "
         "resume it (virsh migrate --postcopy-resume)"),
    # Nobody can tell yet.
    _row("*", "*", "under way", "nothing~",
         "libvirt is still running a job on it; wait, or abort it with state: aborted, and run again",
         when="job_active"),
    _row("unreachable", "*", "unseen", "nothing~",
         _ONE_SEEN),
    _row("*", "unreachable", "unseen", "nothing~",
         _ONE_SEEN),
    _row("running", "running", "split", "nothing",
         "split: it runs on both hosts; nothing was touched; compare them and destroy the wrong one"),
    # The source has it no more.
    _row("absent", "running", "arrived", "done", "arrived"),
    _row("absent", "paused", "arrived", "done", "arrived", when="was_paused"),
    _row("absent", "paused", "arrived, paused", "resume_dest", "arrived"),
    _row("absent", "reserved", "arrived, reserved", "finish_dest", "arrived, not yet to be started"),
    _row("absent", "incoming", "gone too early", "nothing~",
         "gone from the source before all of it arrived; run again"),
    _row("absent", "shutdown crashed migrated unknown", "arrived, off", "done", "arrived", when="again"),
    _row("absent", "*", "stopped", "nothing",
         "stopped on the way (source: absent, destination: {dest}); inspect its disks on the destination before "
         "you start it there"),
    # libvirt gave it away, and left its definition on the source.
    _row("migrated", "running", "left behind", "clean_source", "arrived; its definition was left on the source"),
    _row("migrated", "paused", "left behind", "clean_source",
         "arrived; its definition was left on the source", when="was_paused"),
    _row("migrated", "paused", "left behind, paused", "resume_dest",
         "arrived, paused; its definition was left on the source"),
    _row("migrated", "incoming", "gone too early", "nothing~",
         "handed over by the source before all of it arrived; run again"),
    _row("migrated", "absent", "handed over", "nothing",
         "handed over by the source, and missing on the destination; nothing was touched; if its disks are left there, "
         "they are newer: define it there with them, and undefine it here; otherwise start it here, and run again"),
    # It is off on the source: its owner stopped it, or it crashed, or the host did.
    _row("shutdown crashed", "running", "superseded", "clean_source",
         "runs on the destination; the source's host went down before its definition was removed", when="superseded"),
    # QEMU 7.2 can end itself when the destination's libvirtd dies at switch-over (bdrv_co_write_req_prepare).
    _row("crashed", "absent", "crashed here", "rolled_back",
         "its QEMU process crashed on the source (/var/log/libvirt/qemu); start it there (virt_state with state: "
         "running), and run again; otherwise it moves shut off"),
    _row("shutdown", "absent", "stopped here", "rolled_back", "it stopped on the source in the meantime"),
    _row("shutdown crashed", "incoming", "stopped here", "clean_dest~",
         _NEVER_RAN),
    _row("shutdown crashed migrated", "reserved", "stopped here", "clean_dest",
         _NEVER_RAN),
    _row("shutdown crashed", "paused", "nobody can tell", "nothing",
         "off on the source, {dest} on the destination: it cannot be determined which is newer; nothing was touched; "
         "if the source host died during the migration, resume it there (virsh resume) and undefine it here; if it was "
         "used here since, destroy and undefine it there"),
    _row("shutdown crashed migrated", "*", "nobody can tell", "nothing",
         "off on the source, {dest} on the destination: it cannot be determined which is newer; nothing was touched; "
         "compare their disks, then undefine the wrong one"),
    # The source has it, whole.
    _row("running", "absent", "here", "rolled_back", "still on the source"),
    _row("paused", "absent", "here", "rolled_back", "still on the source", when="was_paused"),
    _row("paused", "absent", "here, paused", "resume_source", "still on the source, paused"),
    _row("paused", "running", "split", "nothing",
         "paused on the source as before, and running on the destination; nothing was touched; compare them",
         when="was_paused"),
    _row("paused", "running", "disks in danger", "nothing", _IN_DANGER, when="takes_back"),
    _row("paused", "running", "held back", "clean_source",
         "runs on the destination; a paused copy was left on the source"),
    _row("paused", "incoming", "undecided", "clean_dest~", "not yet decided by libvirt"),
    _row("running paused", "paused incoming reserved", "dead copy", "clean_dest",
         "still on the source; a dead copy was left on the destination"),
    # What a migration reserves there says so; a definition that does not may be somebody's.
    _row("running paused", "shutdown crashed migrated", "twin", "nothing",
         "still on the source, and defined on the destination, where it does not run ({dest}) and this migration did "
         "not define it: nothing was touched; compare the definitions, undefine the wrong one (virsh undefine, "
         "without its disks), and run again"),
    _row("*", "*", "unclear", "nothing",
         "unclear (source: {source}, destination: {dest}); inspect it on both hosts (virsh domstate --reason), and "
         "run again"),
)  # fmt: skip

TABLES = {"none": _NOT_BEGUN, "elsewhere": _ELSEWHERE, "here": _BEGUN}


def begun(recorded: t.Mapping[str, t.Any], *, here: bool, source_uuid: str, dest: str) -> str:
    """Whether a move of the guest has begun, by its record: `none`, `here` (to this destination) or `elsewhere`.

    `here`: True if the record is the source's, else it is the destination's.
    """
    if not here:
        return "here" if source_uuid and recorded.get("moving_from") == source_uuid else "none"
    moving = recorded.get("moving")
    if not moving:
        return "none"
    return "here" if moving == dest else "elsewhere"


def came_here(recorded: t.Mapping[str, t.Any], dest: str, host_uuid: str) -> bool:
    """True if the record of a guest on this host is of a migration from another one to `dest`."""
    return recorded.get("moving") == dest and recorded.get("moving_from") not in (None, "", host_uuid)


def is_one_host(source: MigrationHost, dest: MigrationHost) -> bool:
    """True if both ends are one host, by UUID and name: cloned machines can have the same UUID."""
    return (source.uuid, source.name) == (dest.uuid, dest.name)


def without_copies(dest: MigrationHost, guest: str, uuid: str) -> MigrationHost:
    """The destination without the copies of a guest that an earlier run made there: they block nothing."""
    copies = ((guest, uuid), (arriving_name(uuid), uuid))
    others = {name: its for name, its in dest.guests.items() if (name, its[0]) not in copies}
    return dataclasses.replace(dest, guests=others)


def too_late(guest: str, dest: str) -> str:
    """The note on a guest that is no longer on the source when its migration has been aborted."""
    return f"nothing was aborted: {guest} had left for {dest} before; a run with state: present tells where it is"


def has_left(seen: Observation) -> bool:
    """True if a guest that was found on the source is no longer there."""
    return seen.source == "absent"


def judge(seen: Observation) -> Verdict:
    """The verdict on an observation, never on a return code."""
    verdict = next(row.verdict for row in TABLES[seen.begun] if row.holds(seen))
    return verdict._replace(meaning=verdict.meaning.format(source=seen.source, dest=seen.dest))


def superseded(let_run_s: float, written_s: t.Iterable[float | None]) -> bool:
    """True if the source's copy is old: the guest was resumed on the destination, and no disk here was written since.

    Seconds since the epoch by the source's clock, 0 if unknown; None for a disk that cannot be inspected, which may
    have been written.
    """
    return bool(let_run_s) and all(each is not None and each <= let_run_s for each in written_s)


def following(verdict: Verdict, acted: t.Sequence[Verdict], *, late: bool) -> str:
    """The next action: `wait`, an action, or empty for none. `acted` are verdicts that were acted upon; each action is
    taken once.

    `late`: True if libvirt has had its time. After an action there is no waiting: what was done decides.
    """
    if verdict.wait and not late:
        return "" if acted else "wait"
    return verdict.action if verdict.action in DONE_BY and verdict.action not in [each.action for each in acted] else ""


def outcome(acted: t.Sequence[Verdict], last: Verdict) -> Verdict:
    """The final verdict, with the meaning of the first one that was acted upon."""
    if not acted or (last.end == OPEN and not last.wait):
        return last
    return (acted[-1] if last.wait else last)._replace(meaning=acted[0].meaning)


def task(seen: Observation, verdict: Verdict, *, noted: bool = False) -> str:
    """What a run does about a guest found like this: leave it, move it, finish an arrived migration, or reconcile
    first. `noted`: True if snapshots of the guest are in a note, and may be missing on the source.
    """
    if verdict.action in ("leave", "move"):
        return verdict.action
    if verdict.action == "rolled_back" and not noted:
        return "move"  # what was made there for it is made anew
    return "finish" if seen.source == "absent" and verdict.end == ARRIVED else "reconcile"


def check(verdict: Verdict, guest: str, *, source: str, dest: str, moving: str) -> None:
    """Raise NotFound or Refused if no action is possible.

    `source` and `dest` are hosts, `moving` is the destination in the guest's record.
    """
    if verdict.action != "nothing" or verdict.wait:
        return
    if verdict.state == "missing":
        raise NotFound(f"cannot migrate {guest}: it is neither on {source} nor on {dest}; {WHERE_IT_IS}")
    if verdict.state == "on its way":
        raise Refused(
            f"cannot migrate {guest} to {dest}: its migration to {moving} is in progress or was interrupted; let that "
            f"one finish first, or abort it and clean up what it left with dest: {moving} and state: aborted, and "
            f"dest_gone: true if {moving} is gone for good"
        )
    raise Refused(f"cannot migrate {guest}: seen on both hosts: {verdict.meaning}")


def foreseen(verdict: Verdict) -> bool:
    """True if it is certain before the action that the guest stays, and so can move after it."""
    return verdict.end == STAYED and not verdict.wait


def check_copy(guest: str, host: str, *, same: bool) -> None:
    """Raise Failed if the copy of a guest to remove is not the one that the migration left."""
    if not same:
        raise Failed(
            f"cannot remove the copy of {guest} on {host}: its definition there was changed by somebody else; nothing "
            "was touched; compare the definitions on both hosts (virsh dumpxml), and undefine the wrong one"
        )


def check_arrived(verdict: Verdict, guest: str, dest: str, reason: str, left: t.Sequence[str]) -> None:
    """Raise Failed if a guest that was sent is not on the destination: the reason, what was seen, and what is `left` of
    it.
    """
    if verdict.end != ARRIVED:
        observed = "; ".join([verdict.meaning, *left])
        raise Failed(f"cannot migrate {guest} to {dest}: {reason}. Seen on both hosts: {observed}")


def unsettled(guest: str, dest: str, reason: str, error: VirtError) -> Failed:
    """The failure of a migration whose cleanup failed as well, with another error."""
    told = str(error).removesuffix("; run again").removesuffix(", and run again")
    return Failed(f"cannot migrate {guest} to {dest}: {reason}. What it left was not cleaned up: {told}; run again")


def check_reconciled(verdict: Verdict, guest: str, dest: str, *, still: bool = False) -> None:
    """Raise Failed if an interrupted migration could not be resolved, or is `still` unresolved after an attempt."""
    if still or verdict.end == OPEN:
        raise Failed(f"cannot resolve the migration of {guest} to {dest}: seen on both hosts: {verdict.meaning}")


def check_settles(found: FoundGuest, *, runs: bool, ran: bool, reserved: bool) -> None:
    """Raise Refused if what a guest has here may be less than what its source had.

    It `runs` here with all its memory, it `ran`, or it has its own definition, which it gets when it has arrived.
    """
    if runs or ran or not reserved:
        return
    cannot = (
        f"cannot end the migration of {found.name} on its destination: nothing shows that all of it came here; bring "
        "its source back, and run again there; if that is gone for good, "
    )
    resume, destroy, edit = (shlex.join(["virsh", verb, found.name]) for verb in ("resume", "destroy", "edit"))
    if found.active:
        raise Refused(
            f"{cannot}let it run here (`{resume}`), and repeat this; if it stands still in post-copy, a part of its "
            f"memory is lost: power it off (`{destroy}`), and repeat this"
        )
    raise Refused(
        f"{cannot}check its disks here (qemu-img check): if they are whole, take .arriving off all paths, and away a "
        f"kernel that is nothing else (`{edit}`), and repeat this; if not, restore the guest (virt_restore)"
    )


def check_abort_to(guest: str, dest: str, moving: str) -> None:
    """Raise Refused if the guest's record tells of a migration to another host than the one that is to be aborted."""
    if moving not in ("", dest):
        raise Refused(
            f"cannot abort the migration of {guest} to {dest}: it is being migrated to {moving}, or was; to abort "
            f"that: dest: {moving} and state: aborted"
        )


_WHOLE = ("running", "paused", "shutdown", "crashed")


def check_gone(guest: str, dest: str, source: str, *, answers: bool) -> None:
    """Raise Refused if the destination `answers`, or if the guest's state on the source does not tell that all of it is
    there.
    """
    cannot = f"cannot forget the migration of {guest} to {dest}"
    if answers:
        raise Refused(f"{cannot}: {dest} answers; abort it without dest_gone (-e gone)")
    if source not in _WHOLE:
        off = shlex.join(["virsh", "destroy", guest])
        raise Refused(
            f"{cannot}: it is {source} on the source, so it may have run on {dest} since; if that is off for good, "
            f"switch it off here ({off}), repeat this, and start it, as after a power cut"
        )


def check_abort(guest: str, source: str) -> None:
    """Raise Refused if the guest's state on the source does not allow an abort."""
    if source == "postcopy":
        raise Refused(
            f"cannot abort the migration of {guest}: in post-copy the guest would be lost; let it arrive, then migrate "
            "it back"
        )
