"""The table of migration: every row of it decides something, and a run does with each what it says."""

from __future__ import annotations

import itertools
import types
import typing as t

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, NotFound, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._migration import libvirt_migrate, plan_outcome
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    MigrationHost,
    Move,
    Observation,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migrate import Reconcile, aborting, clearing
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_outcome import Verdict, judge

STATES = [
    "running",
    "paused",
    "shutdown",
    "crashed",
    "absent",
    "unreachable",
    "unknown",
    "incoming",
    "reserved",
    "postcopy",
    "migrated",
]
FLAGS = ("was_paused", "job_active", "superseded", "complete", "takes_back", "again", "same_host")
EVERY = [
    Observation(source, dest, begun=begun, **t.cast("dict[str, t.Any]", dict(zip(FLAGS, flags))))
    for begun in plan_outcome.TABLES
    for source, dest in itertools.product(STATES, STATES)
    for flags in itertools.product((False, True), repeat=len(FLAGS))
]


def test_every_row_decides_something() -> None:
    """One that never does is a mistake in the order of the table."""
    for begun, table in plan_outcome.TABLES.items():
        mine = [seen for seen in EVERY if seen.begun == begun]
        deciding = {next(number for number, row in enumerate(table) if row.holds(seen)) for seen in mine}
        assert deciding == set(range(len(table)))


def test_no_condition_is_idle() -> None:
    """Turned round, each gives another verdict for something that can be seen."""
    for begun, table in plan_outcome.TABLES.items():
        mine = [seen for seen in EVERY if seen.begun == begun]
        for number, row in enumerate(table):
            if row.when:
                turned = [*table[:number], _Turned(row), *table[number + 1 :]]
                assert any(first(turned, seen) != first(table, seen) for seen in mine), row


class _Turned:
    """A row with its condition inverted."""

    def __init__(self, row: plan_outcome.VerdictRow) -> None:
        self._row, self.verdict = row, row.verdict

    def holds(self, seen: Observation) -> bool:
        """Where the condition does not hold."""
        return self._row._replace(when="").holds(seen) and not getattr(seen, self._row.when)


def first(table: t.Sequence[t.Any], seen: Observation) -> Verdict:
    """What a table decides."""
    return t.cast(Verdict, next(row.verdict for row in table if row.holds(seen)))


def test_nothing_is_done_to_what_may_run_or_to_the_last_copy() -> None:
    for seen in EVERY:
        action = judge(seen).action
        if action == "resume_dest":
            assert seen.dest == "paused" and seen.source in ("absent", "migrated") and not seen.was_paused
        if action == "resume_source":
            assert (seen.source, seen.dest, seen.was_paused) == ("paused", "absent", False)
        if action == "clean_dest":
            assert seen.dest not in ("running", "unreachable", "unknown", "absent") and seen.source not in (
                "absent",
                "unreachable",
            )
            assert seen.source in ("running", "paused") or seen.dest in ("incoming", "reserved"), "the last copy"
        if action == "finish_dest":
            assert (seen.source, seen.dest) == ("absent", "reserved"), "it may still be elsewhere"
        if action == "clean_source":
            assert seen.dest in ("running", "paused") and seen.source not in ("running", "absent", "unreachable")
            assert seen.source != "postcopy" or (seen.complete and seen.dest == "running")
            assert not seen.takes_back or seen.source != "paused" or seen.dest != "running"
            assert not seen.takes_back or seen.source != "postcopy"
        if action in plan_outcome.DONE_BY:
            assert (
                seen.begun == "here"
                and not seen.same_host
                and (not seen.job_active or (seen.source == "postcopy" and seen.complete))  # nothing is left to be sent
                and "unreachable" not in (seen.source, seen.dest)
            )


HERE: dict[str, t.Any] = {"begun": "here"}
NONE: dict[str, t.Any] = {"begun": "none"}
ELSEWHERE: dict[str, t.Any] = {"begun": "elsewhere"}
# What is seen; the verdict's state, what a run does then, or why it does not.
TASKS: list[tuple[Observation, str, str]] = [
    (
        Observation("absent", "absent", **NONE),
        "missing",
        "cannot migrate web1: it is neither on hyper1 nor on hyper2; `ansible-playbook corral.virt.list` shows which host has it",
    ),
    (Observation("absent", "running", **NONE), "is there", "leave"),
    (Observation("absent", "incoming", **NONE), "is there", "leave"),
    (Observation("running", "running", same_host=True, **NONE), "is there", "leave"),
    (Observation("running", "running", same_host=True, **HERE), "is there", "leave"),
    (Observation("running", "running", same_host=True, **ELSEWHERE), "is there", "leave"),
    (Observation("running", "absent", **NONE), "is here", "move"),
    (Observation("running", "running", **NONE), "is here", "move"),  # the preflight says why not
    (
        Observation("running", "absent", **ELSEWHERE),
        "on its way",
        "its migration to hyper3 is in progress or was interrupted",
    ),
    (Observation("running", "absent", **HERE), "here", "move"),
    (Observation("paused", "absent", **HERE), "here, paused", "reconcile"),
    (Observation("paused", "absent", was_paused=True, **HERE), "here", "move"),
    (Observation("running", "paused", **HERE), "dead copy", "reconcile"),
    (Observation("running", "incoming", job_active=True, **HERE), "under way", "reconcile"),
    (Observation("running", "running", **HERE), "split", "seen on both hosts: split"),
    (Observation("migrated", "paused", **HERE), "left behind, paused", "reconcile"),
    (Observation("absent", "paused", again=True, **HERE), "arrived, paused", "finish"),
    (Observation("absent", "running", again=True, **HERE), "arrived", "finish"),
    (Observation("absent", "reserved", again=True, **HERE), "arrived, reserved", "finish"),
    (Observation("absent", "shutdown", again=True, **HERE), "arrived, off", "finish"),
    (Observation("absent", "shutdown", **HERE), "stopped", "seen on both hosts: stopped on the way"),
    (Observation("absent", "incoming", again=True, **HERE), "gone too early", "reconcile"),
]


@pytest.mark.parametrize(("seen", "state", "does"), TASKS, ids=str)
def test_what_a_run_does(seen: Observation, state: str, does: str) -> None:
    verdict = judge(seen)
    try:
        plan_outcome.check(verdict, "web1", source="hyper1", dest="hyper2", moving="hyper3")
        result = plan_outcome.task(seen, verdict)
    except VirtError as error:
        result = str(error)
        assert isinstance(error, NotFound if state == "missing" else Refused)
    assert verdict.state == state and (
        result == does if does in ("leave", "move", "reconcile", "finish") else does in result
    )


UNSEEN = "one host cannot be reached; the guest may be on either; run again when both can be reached"
INSPECT = "inspect its disks on the destination before you start it there"
LEFT = "its definition was left on the source"
CRASHED = (
    "its QEMU process crashed on the source (/var/log/libvirt/qemu); start it there (virt_state with state: running), "
    "and run again; otherwise it moves shut off"
)
NEVER_RAN = "it stopped on the source in the meantime; what was created on the destination never ran"
WHICH = "on the destination: it cannot be determined which is newer; nothing was touched; "
LOST = (
    "on the destination: the part of its memory that was there is lost; destroy and undefine it here, and start it "
    "there from its disks, which are newer"
)
DANGER = (
    "runs on the destination; a dead copy is left on the source. When libvirt there ends the copy, it may change the "
    "owner or the label of the shared disks, so that the guest can no longer write to them. Suspend the guest on the "
    "destination, destroy and undefine it on the source, set the owner and the label as before, and run again"
)
HALVES = (
    "its memory is on both hosts; run again when the network is back, or resume it (virsh migrate --postcopy-resume)"
)
# Source, destination and what else is seen, of a move that has begun; the verdict: in a word, what is done (`~`: when
# libvirt has had its time), and what it means.
MEANINGS: list[tuple[str, str, str, tuple[str, str, str]]] = [
    ("running", "running", "same_host", ("is there", "leave", "this host is the destination")),
    ("postcopy", "absent", "", ("memory lost", "nothing~", f"post-copy, and absent {LOST}")),
    ("postcopy", "shutdown", "", ("memory lost", "nothing~", f"post-copy, and shutdown {LOST}")),
    ("postcopy", "crashed", "job_active", ("memory lost", "nothing~", f"post-copy, and crashed {LOST}")),
    (
        "postcopy",
        "running",
        "complete",
        ("unconfirmed", "clean_source~", "arrived with all its memory; libvirt on the source did not learn of it"),
    ),
    ("postcopy", "running", "takes_back", ("disks in danger", "nothing~", DANGER)),
    ("paused", "running", "takes_back", ("disks in danger", "nothing", DANGER)),
    ("postcopy", "running", "", ("memory on both", "nothing~", f"post-copy (running on the destination): {HALVES}")),
    (
        "running",
        "incoming",
        "job_active",
        (
            "under way",
            "nothing~",
            "libvirt is still running a job on it; wait, or abort it with state: aborted, and run again",
        ),
    ),
    ("unreachable", "running", "", ("unseen", "nothing~", UNSEEN)),
    ("running", "unreachable", "", ("unseen", "nothing~", UNSEEN)),
    (
        "running",
        "running",
        "",
        (
            "split",
            "nothing",
            "split: it runs on both hosts; nothing was touched; compare them and destroy the wrong one",
        ),
    ),
    (
        "shutdown",
        "running",
        "",
        (
            "nobody can tell",
            "nothing",
            f"off on the source, running {WHICH}compare their disks, then undefine the wrong one",
        ),
    ),
    (
        "running",
        "paused",
        "",
        ("dead copy", "clean_dest", "still on the source; a dead copy was left on the destination"),
    ),
    *[
        (
            source,
            dest,
            "",
            (
                "unclear",
                "nothing",
                (
                    f"unclear (source: {source}, destination: {dest}); inspect it on both hosts "
                    "(virsh domstate --reason), and run again"
                ),
            ),
        )
        for source, dest in (("running", "unknown"), ("paused", "postcopy"))
    ],
    ("absent", "running", "", ("arrived", "done", "arrived")),
    ("absent", "paused", "was_paused", ("arrived", "done", "arrived")),
    ("absent", "paused", "", ("arrived, paused", "resume_dest", "arrived")),
    ("absent", "reserved", "", ("arrived, reserved", "finish_dest", "arrived, not yet to be started")),
    (
        "absent",
        "incoming",
        "",
        ("gone too early", "nothing~", "gone from the source before all of it arrived; run again"),
    ),
    ("absent", "crashed", "again", ("arrived, off", "done", "arrived")),
    (
        "absent",
        "crashed",
        "",
        ("stopped", "nothing", f"stopped on the way (source: absent, destination: crashed); {INSPECT}"),
    ),
    ("migrated", "running", "", ("left behind", "clean_source", f"arrived; {LEFT}")),
    ("migrated", "paused", "was_paused", ("left behind", "clean_source", f"arrived; {LEFT}")),
    ("migrated", "paused", "", ("left behind, paused", "resume_dest", f"arrived, paused; {LEFT}")),
    (
        "migrated",
        "incoming",
        "",
        ("gone too early", "nothing~", "handed over by the source before all of it arrived; run again"),
    ),
    (
        "migrated",
        "absent",
        "",
        (
            "handed over",
            "nothing",
            (
                "handed over by the source, and missing on the destination; nothing was touched; if its disks are left "
                "there, they are newer: define it there with them, and undefine it here; otherwise start it here, and "
                "run again"
            ),
        ),
    ),
    (
        "shutdown",
        "running",
        "superseded",
        (
            "superseded",
            "clean_source",
            "runs on the destination; the source's host went down before its definition was removed",
        ),
    ),
    ("shutdown", "absent", "", ("stopped here", "rolled_back", "it stopped on the source in the meantime")),
    ("crashed", "absent", "", ("crashed here", "rolled_back", CRASHED)),
    ("shutdown", "incoming", "", ("stopped here", "clean_dest~", NEVER_RAN)),
    ("migrated", "reserved", "", ("stopped here", "clean_dest", NEVER_RAN)),
    (
        "shutdown",
        "paused",
        "",
        (
            "nobody can tell",
            "nothing",
            (
                f"off on the source, paused {WHICH}if the source host died during the migration, resume it there "
                "(virsh resume) and undefine it here; if it was used here since, destroy and undefine it there"
            ),
        ),
    ),
    (
        "migrated",
        "crashed",
        "",
        (
            "nobody can tell",
            "nothing",
            f"off on the source, crashed {WHICH}compare their disks, then undefine the wrong one",
        ),
    ),
    ("running", "absent", "", ("here", "rolled_back", "still on the source")),
    ("paused", "absent", "was_paused", ("here", "rolled_back", "still on the source")),
    ("paused", "absent", "", ("here, paused", "resume_source", "still on the source, paused")),
    (
        "paused",
        "running",
        "was_paused",
        (
            "split",
            "nothing",
            "paused on the source as before, and running on the destination; nothing was touched; compare them",
        ),
    ),
    (
        "paused",
        "running",
        "",
        ("held back", "clean_source", "runs on the destination; a paused copy was left on the source"),
    ),
    ("paused", "incoming", "", ("undecided", "clean_dest~", "not yet decided by libvirt")),
    (
        "running",
        "reserved",
        "",
        ("dead copy", "clean_dest", "still on the source; a dead copy was left on the destination"),
    ),
    (
        "running",
        "migrated",
        "",
        (
            "twin",
            "nothing",
            (
                "still on the source, and defined on the destination, where it does not run (migrated) and this migration "
                "did not define it: nothing was touched; compare the definitions, undefine the wrong one (virsh undefine, "
                "without its disks), and run again"
            ),
        ),
    ),
    (
        "unknown",
        "running",
        "",
        (
            "unclear",
            "nothing",
            "unclear (source: unknown, destination: running); inspect it on both hosts (virsh domstate --reason), and run again",
        ),
    ),
]


@pytest.mark.parametrize(("source", "dest", "flag", "expected"), MEANINGS)
def test_what_is_seen_of_a_move_that_has_begun_is_told_in_words(
    source: str, dest: str, flag: str, expected: tuple[str, str, str]
) -> None:
    found = judge(Observation(source, dest, begun="here", **t.cast("dict[str, t.Any]", {flag: True} if flag else {})))
    assert (found.state, f"{found.action}{'~' if found.wait else ''}", found.meaning) == expected


@pytest.mark.parametrize(
    ("begun", "source", "dest", "expected"),
    [
        ("none", "absent", "absent", ("missing", "nothing", "open", "it is on neither host")),
        ("none", "absent", "running", ("is there", "leave", "arrived", "it is on the destination")),
        ("none", "running", "absent", ("is here", "move", "stayed", "it is on the source")),
        (
            "elsewhere",
            "running",
            "absent",
            (
                "on its way",
                "nothing",
                "open",
                "its migration to another destination is in progress or was interrupted",
            ),
        ),
    ],
)
def test_what_is_seen_before_a_move_is_told_in_words(
    begun: str, source: str, dest: str, expected: tuple[str, str, str, str]
) -> None:
    found = judge(Observation(source, dest, begun=begun))
    assert (found.state, found.action, found.end, found.meaning) == expected
    same = judge(Observation("running", "running", begun=begun, same_host=True))
    assert (same.state, same.action, same.end) == ("is there", "leave", "arrived")
    assert (same.meaning, same.wait) == ("this host is the destination", False)


@pytest.mark.parametrize("action", ["resume_dest", "finish_dest", "clean_source", "resume_source", "clean_dest"])
def test_what_a_verdict_asks_for_is_done(action: str) -> None:
    assert plan_outcome.following(Verdict("", action, ""), [], late=False) == action


def test_a_record_tells_whether_it_moves() -> None:
    to, origin = {"moving": "hyper2"}, {"moving_from": "1111"}
    cases: list[tuple[dict[str, str], bool, str]] = [
        ({}, True, "none"),
        ({"moving": ""}, True, "none"),
        (to, True, "here"),
        ({"moving": "hyper3"}, True, "elsewhere"),
        (origin, False, "here"),
        ({"moving_from": "2222"}, False, "none"),
        (to, False, "none"),
    ]
    assert [
        plan_outcome.begun(memory, here=here, source_uuid="1111", dest="hyper2") for memory, here, _begun in cases
    ] == [begun for *_case, begun in cases]
    for memory in ({}, {"moving_from": ""}):  # a source that nobody can name
        assert plan_outcome.begun(memory, here=False, source_uuid="", dest="hyper2") == "none"


def seen_as(action: str, meaning: str = "", *, wait: bool = False) -> Verdict:
    """A verdict."""
    return Verdict("", action, meaning, wait)


def test_each_action_is_taken_once_and_libvirt_waited_for_before() -> None:
    clean, unseen = seen_as("clean_dest"), seen_as("nothing", wait=True)
    cases: list[tuple[Verdict, list[Verdict], bool, str]] = [
        (clean, [], False, "clean_dest"),
        (clean, [clean], False, ""),
        (seen_as("resume_source"), [clean], False, "resume_source"),
        (unseen, [], False, "wait"),
        (unseen, [], True, ""),
        (unseen, [clean], False, ""),
        (seen_as("clean_dest", wait=True), [], False, "wait"),
        (seen_as("clean_dest", wait=True), [], True, "clean_dest"),
        *[
            (seen_as(action), [], late, "")
            for action in ("done", "rolled_back", "nothing", "leave", "move")
            for late in (False, True)
        ],
    ]
    assert [plan_outcome.following(verdict, acted, late=late) for verdict, acted, late, _next in cases] == [
        case[3] for case in cases
    ]


def test_what_was_acted_upon_first_says_why() -> None:
    clean, unseen, lost = seen_as("clean_dest", "a"), seen_as("nothing", "b", wait=True), seen_as("nothing", "c")
    cases: list[tuple[list[Verdict], Verdict, tuple[str, str]]] = [
        ([], lost, ("open", "c")),
        ([], seen_as("done", "d"), ("arrived", "d")),
        ([clean], seen_as("rolled_back", "d"), ("stayed", "a")),
        ([clean], lost, ("open", "c")),
        ([clean], unseen, ("stayed", "a")),
        ([seen_as("resume_dest", "a")], seen_as("rolled_back", "d"), ("stayed", "a")),
        ([seen_as("resume_dest", "a"), seen_as("clean_source", "d")], unseen, ("arrived", "a")),
    ]
    found = [plan_outcome.outcome(acted, last) for acted, last, _expected in cases]
    assert [(verdict.end, verdict.meaning) for verdict in found] == [expected for *_case, expected in cases]


def test_only_a_guest_that_stays_moves_after_it_was_settled() -> None:
    result = {
        action: plan_outcome.foreseen(seen_as(action))
        for action in ("clean_dest", "resume_source", "resume_dest", "nothing")
    }
    assert result == {"clean_dest": True, "resume_source": True, "resume_dest": False, "nothing": False}
    assert not plan_outcome.foreseen(seen_as("clean_dest", wait=True))


def test_what_failed_is_told_with_what_was_seen() -> None:
    plan_outcome.check_arrived(seen_as("done"), "web1", "hyper2", "reset", [])
    with pytest.raises(
        Failed, match=r"^cannot migrate web1 to hyper2: reset\. Seen on both hosts: still there; /a stays$"
    ):
        plan_outcome.check_arrived(seen_as("rolled_back", "still there"), "web1", "hyper2", "reset", ["/a stays"])
    with pytest.raises(Failed, match=r"reset\. Seen on both hosts: unclear$"):
        plan_outcome.check_arrived(seen_as("nothing", "unclear"), "web1", "hyper2", "reset", [])
    error = plan_outcome.unsettled("web1", "hyper2", "reset", Failed("busy"))
    assert str(error).endswith("hyper2: reset. What it left was not cleaned up: busy; run again")
    plan_outcome.check_reconciled(seen_as("rolled_back"), "web1", "hyper2")
    for verdict, still in ((seen_as("nothing", "split"), False), (seen_as("done", "split"), True)):
        with pytest.raises(
            Failed, match=r"^cannot resolve the migration of web1 to hyper2: seen on both hosts: split$"
        ):
            plan_outcome.check_reconciled(verdict, "web1", "hyper2", still=still)


def test_a_migration_is_ended_only_while_its_guest_is_whole_here() -> None:
    for state in ("running", "paused", "absent", "unreachable"):
        plan_outcome.check_abort("web1", state)
    with pytest.raises(Refused, match="cannot abort the migration of web1: in post-copy the guest would be lost"):
        plan_outcome.check_abort("web1", "postcopy")


OUT = libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT
JOBS: list[tuple[dict[str, int] | int, bool]] = [
    ({"type": 0}, False),
    ({"type": libvirt.VIR_DOMAIN_JOB_UNBOUNDED, "operation": OUT}, True),
    ({"type": libvirt.VIR_DOMAIN_JOB_UNBOUNDED}, True),  # it does not tell
    ({"type": libvirt.VIR_DOMAIN_JOB_BOUNDED, "operation": libvirt.VIR_DOMAIN_JOB_OPERATION_BACKUP}, False),
    ({"type": libvirt.VIR_DOMAIN_JOB_UNBOUNDED, "operation": libvirt.VIR_DOMAIN_JOB_OPERATION_SAVE}, False),
    (libvirt.VIR_ERR_OPERATION_TIMEOUT, True),  # busy
    (libvirt.VIR_ERR_OPERATION_INVALID, False),  # off
]


@pytest.mark.parametrize(("told", "migrates"), JOBS)
def test_a_job_of_another_kind_is_no_migration(told: dict[str, int] | int, migrates: bool) -> None:
    """A backup would be aborted with it."""

    def job_stats() -> dict[str, int]:
        if isinstance(told, int):
            error = libvirt.libvirtError("of libvirt")
            error.err = (told, 0, "of libvirt", 2)
            raise error
        return told

    kind = told.get("type", 0) if isinstance(told, dict) else 0
    domain = types.SimpleNamespace(jobStats=job_stats, jobInfo=lambda: job_stats() and [kind])
    connection = types.SimpleNamespace(lookupByUUIDString=lambda _uuid: domain)
    assert libvirt_migrate.job_active(connection, "aaaa") is migrates


def test_what_moves_there_is_cleared_away_unless_its_run_does() -> None:
    move = Move("web1", "aaaa", "hyper2", "")
    assert [step.verb for step in aborting(move, job_active=True)] == ["abort"] and not aborting(move, job_active=False)
    cases = [("hyper2", False, 1), ("hyper2", True, 0), ("hyper3", False, 0), (None, False, 0), ("", False, 0)]
    assert [len(clearing(move, moving, held=held)) for moving, held, _steps in cases] == [
        steps for *_case, steps in cases
    ]
    assert (
        str(Reconcile(move)) == "resolve the interrupted migration of web1 to hyper2"
        and Reconcile(move).verb == "reconcile"
    )


def host(name: str, uuid: str, **guests: tuple[str, str]) -> MigrationHost:
    return MigrationHost(name, uuid, "x86_64", 9000000, 7002000, 1, "<cpu/>", (), ("kvm",), guests)


@pytest.mark.parametrize(
    ("dest", "one"), [(("h1", "1"), True), (("h2", "1"), False), (("h1", "2"), False), (("h2", "2"), False)]
)
def test_a_host_is_known_by_its_name_and_its_uuid(dest: tuple[str, str], one: bool) -> None:
    assert plan_outcome.is_one_host(host("h1", "1"), host(*dest)) is one


def test_only_the_copies_of_the_guest_itself_are_in_nobodys_way() -> None:
    web2 = ("u1", "running")
    assert plan_outcome.without_copies(host("h1", "1", web1=("u1", "paused"), web2=web2), "web1", "u1").guests == {
        "web2": web2
    }
    other = host("h1", "1", web1=("u2", "running"))
    assert plan_outcome.without_copies(other, "web1", "u1") == other
