# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for one object of a noun: its steps, and the decisions that all nouns share."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import step
from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.object_ref import Ref
from ansible_collections.corral.virt.plugins.module_utils._core.output import some_of
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Edited, Entry, Found, ObjectKind, Spec


@dataclasses.dataclass(frozen=True)
class NounStep(step.Step):
    """One change of one object of a noun."""

    template = "{0.verb} {0.ref}"
    is_gone: t.ClassVar[bool] = False  # whether it is about an object that libvirt does not have any more

    ref: Ref


@dataclasses.dataclass(frozen=True)
class Define(NounStep):
    """Store the definition; a running object is not changed."""

    look: t.ClassVar[step.Look | None] = step.Look(
        at="UUID, and the whole stored definition of an object that exists",
        holds="",
        leaves="the definition as others have changed it",
        by=("ref.uuid", "seen"),
    )

    xml: str = dataclasses.field(repr=False)
    detail: str = ""
    seen: str = dataclasses.field(default="", repr=False)  # digest of the definition that it replaces

    def __str__(self) -> str:
        return f"{self.verb} {self.ref}{self.detail and ' '}{self.detail}"


@dataclasses.dataclass(frozen=True)
class Create(Define):
    """Create an object of a kind that libvirt cannot define anew."""


@dataclasses.dataclass(frozen=True)
class Start(NounStep):
    """Start the object."""


@dataclasses.dataclass(frozen=True)
class Stop(NounStep):
    """Stop the object; its definition stays."""


@dataclasses.dataclass(frozen=True)
class SetAutostart(NounStep):
    """Set whether the object starts with the host."""

    on: bool

    def __str__(self) -> str:
        return f"set autostart of {self.ref} {'on' if self.on else 'off'}"


@dataclasses.dataclass(frozen=True)
class Undefine(NounStep):
    """Remove the definition of the object."""

    look: t.ClassVar[step.Look | None] = step.Look(
        at="UUID, and the whole stored definition",
        holds="",
        leaves="the object as others have changed it",
        by=("ref.uuid", "seen"),
    )

    seen: str = dataclasses.field(default="", repr=False)  # digest of the definition


@dataclasses.dataclass(frozen=True)
class Update(NounStep):
    """Add, modify or delete one entry of a list of a running object."""

    template = "{0.command} {0.what} of running {0.ref}"
    command: str  # add, modify, delete
    section: str
    what: str  # the entry in the words of the options
    parent: int
    xml: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class NounPlan(step.Plan[NounStep]):
    """What is done to one object."""

    after: t.Mapping[str, t.Any] | None = None  # its fields afterwards; None if it does not exist then
    row: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)  # what the result tells beside them


@dataclasses.dataclass(frozen=True)
class Case:
    """The input of a noun's rules."""

    spec: Spec
    found: Found | None  # the object as libvirt has it
    host: t.Any  # what the rules of the noun need to know beside it
    stored: Edited  # the definition
    running: Edited | None = None  # the running object, if it stays running
    live: t.Mapping[str, t.Any] | None = None  # fields of the running object, whether or not it stays

    def ref(self, kind: ObjectKind) -> Ref:
        """Which object it is."""
        return kind.ref(self.spec.name, self.spec.within, self.found.uuid if self.found else self.spec.uuid)

    def changed(self, *fields: str) -> bool:
        """True if the definition changes at or within one of these fields."""
        form = re.compile(r"({})([\[.].*)?".format("|".join(map(re.escape, fields))))
        return any(form.fullmatch(change.where) for change in self.stored.changes)


# Yields refusals, and notes as texts, for a case and the plan for it.
Rule = t.Callable[[Case, NounPlan], t.Iterator[t.Union[VirtError, str]]]


@dataclasses.dataclass(frozen=True)
class Live:
    """How a change of a list's entry is applied to a running object."""

    section: str  # libvirt's name of the list
    modify: bool = False  # else an entry that changes is deleted and added
    when: t.Callable[[Case, t.Sequence[Change]], bool] = lambda _case, _changes: True


Policy = t.Mapping[str, Live]  # `ips[].dhcp.hosts[]`; what is not in it waits for a restart


def check_unchanged(made: NounStep, *, exists: bool, same: bool) -> None:
    """Raise Refused if somebody has changed the object since the plan has seen it."""
    what = f"cannot {made.verb} {made.ref}"
    if not exists:
        raise Refused(f"{what}: it was removed in the meantime; run again")
    if not same:
        raise Refused(f"{what}: somebody has changed its definition in the meantime; inspect it, and run again")


def check_still_planned(made: NounStep, now: NounPlan) -> None:
    """Raise Refused if the plan that is made `now`, right before an object stops, does not stop it."""
    if isinstance(made, Stop) and not any(isinstance(one, Stop) for one in now.steps):
        raise Refused(
            f"cannot {made.verb} {made.ref}: somebody has stopped or started it anew in the meantime; run again"
        )


def noted(before: t.Sequence[str], now: t.Sequence[str]) -> tuple[str, ...]:
    """Notes of a plan and of a later one, whose notes replace those that only name others at their end."""
    new = [note for note in now if note not in before]
    replaced = {_before_names(note) for note in new}
    return (*(note for note in before if note in now or _before_names(note) not in replaced), *new)


def _before_names(note: str) -> str:
    return note.rpartition(": ")[0] or note


def undo(found: Found | None, done: t.Sequence[NounStep]) -> tuple[NounStep, ...]:
    """Steps that restore what was there before these steps, after a start that failed."""
    back: list[NounStep] = []
    for one in done:
        if isinstance(one, Define) and (found is None or not found.persistent):
            back.append(Undefine(one.ref))
        elif isinstance(one, Define) and found:
            back.append(Define(one.ref, found.xml, "(as it was)"))
        elif isinstance(one, SetAutostart) and found and found.persistent:
            back.append(SetAutostart(one.ref, not one.on))
    return (*back, *(Start(one.ref) for one in done if isinstance(one, Stop)))


def not_started(start: NounStep, error: object, undone: t.Sequence[NounStep], failure: object) -> Failed:
    """The failure of a start, with what was undone."""
    if failure:
        return Failed(
            f"{error}; bringing back what was there before failed as well: {failure}; inspect {start.ref.name}"
        )
    return Failed(f"{error}; it is as before ({'; '.join(map(str, undone))}): mend the reason, and run again")


def absent(
    kind: ObjectKind,
    case: Case,
    shown: t.Collection[str],
    remove: t.Callable[[Case], NounStep],
    left: t.Callable[[Case], t.Sequence[NounStep]],
) -> NounPlan:
    """The plan that stops an object and removes its definition, or what is left of it."""
    found = case.found
    if found is None:
        return NounPlan(tuple(left(case)))
    stop = (Stop(case.ref(kind)),) if found.active else ()
    forget = (remove(case),) if found.persistent else ()
    before = {**{field: case.stored.before.get(field) for field in shown}, **_states(kind, found)}
    return NounPlan((*stop, *forget), tuple(Change(where, value, None) for where, value in before.items()))


def present(kind: ObjectKind, case: Case, policy: Policy, made: str, own: t.Sequence[NounStep] = ()) -> NounPlan:
    """The plan that defines an object, updates the running one, and starts or stops it; `made` describes a new one.

    `own` are steps of this noun only; the definition is there, and the object does not run for them.
    """
    spec, found, stored, ref = case.spec, case.found, case.stored, case.ref(kind)
    live, pending = _live_updates(ref, case, policy) if case.running else ([], [])
    restart = bool(pending) and spec.allow_restart
    steps: list[NounStep] = [] if restart else [*live]
    if found is None or not found.persistent or (stored.changes and kind.redefine):
        detail = made if found is None else _summary(stored.changes)
        steps.append((Define if kind.redefine else Create)(ref, stored.xml, detail, found.digest if found else ""))
    steps += own
    before, after = _states(kind, found), _wanted_states(kind, spec, found)
    if kind.autostart and after["autostart"] != bool(before["autostart"]):
        steps.append(SetAutostart(ref, after["autostart"]))
    if restart:
        steps += [Stop(ref), Start(ref)]
    elif kind.activity and after["active"] != bool(before["active"]):
        steps.append((Start if after["active"] else Stop)(ref))
    waits = () if restart else tuple(pending)
    states = (Change(where, before[where], value) for where, value in after.items() if before[where] != value)
    return NounPlan(tuple(steps), (*_changes(case, waits), *states), waits, after=stored.after)


def _states(kind: ObjectKind, found: Found | None) -> dict[str, bool | None]:
    states = {state: getattr(found, state) if found else None for state in _CAPABILITY}
    return {state: value for state, value in states.items() if getattr(kind, _CAPABILITY[state])}


_CAPABILITY = {"active": "activity", "autostart": "autostart"}


def _wanted_states(kind: ObjectKind, spec: Spec, found: Found | None) -> dict[str, bool]:
    """Whether the object runs, and starts with the host. By default, a new one that runs also starts with the host."""
    was = found is not None and found.active
    active = was if spec.state == "present" else spec.state == "active"
    autostart = found.autostart if found else spec.state == "active"
    states = {"active": active, "autostart": autostart if spec.autostart is None else spec.autostart}
    return {state: value for state, value in states.items() if getattr(kind, _CAPABILITY[state])}


def _changes(case: Case, pending: t.Collection[str]) -> list[Change]:
    """Changes of the definition, and changes of only the running object that are not pending."""
    if case.found is None:
        return [Change(change.where, None, change.after) for change in case.stored.changes]
    stored = {change.where for change in case.stored.changes}
    running = case.running.changes if case.running else ()
    mended = [change for change in running if change.where not in stored]
    return [
        *case.stored.changes,
        *(change for change in mended if str(change) not in pending),
    ]


def _summary(changes: t.Sequence[Change]) -> str:
    if not changes:
        return "(kept when it stops)"  # it was transient
    return f"({some_of(sorted(change.option for change in changes), 4)})"


def _live_updates(ref: Ref, case: Case, policy: Policy) -> tuple[list[Update], list[str]]:
    """Steps that update the running object, and the changes that wait for a restart.

    Deletions in a list come first: an entry can get what another one had, such as the client of a DHCP reservation.
    """
    running = t.cast(Edited, case.running)
    grouped: dict[str, list[Change]] = {}
    for change in running.changes:
        grouped.setdefault(_entry_of(change.where, policy), []).append(change)
    steps: list[Update] = []
    pending: list[str] = []
    for place, changes in grouped.items():
        live = policy.get(_pattern(place))
        if live is None or not live.when(case, changes):
            pending += map(str, changes)
        else:
            steps += _updates(ref, place, live, running.entries[place])
    sections = list(dict.fromkeys(step.section for step in steps))
    return sorted(steps, key=lambda step: (sections.index(step.section), step.command != "delete")), pending


def _pattern(place: str) -> str:
    return re.sub(r"\[[^\]]*\]", "[]", place)


def _entry_of(where: str, policy: Policy) -> str:
    """The innermost updatable entry that contains the change; else the place itself."""
    ends = [match.end() for match in re.finditer(r"\]", where)]
    return next((where[:end] for end in reversed(ends) if _pattern(where[:end]) in policy), where)


def _updates(ref: Ref, place: str, live: Live, entry: Entry) -> list[Update]:
    def update(command: str, xml: str) -> Update:
        return Update(ref, command, live.section, place, entry.parent, xml)

    if entry.xml is None:
        return [update("delete", entry.identity_xml)]
    if not entry.found:
        return [update("add", entry.xml)]
    if live.modify:
        return [update("modify", entry.xml)]
    return [update("delete", entry.identity_xml), update("add", entry.xml)]
