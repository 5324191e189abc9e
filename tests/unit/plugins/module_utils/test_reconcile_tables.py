"""One copy of a guest after a migration: what is done on which host, in which order, and what is left alone."""

from __future__ import annotations

import types
import typing as t

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Volume
from ansible_collections.corral.virt.plugins.module_utils._migration import (
    libvirt_migrate,
    run_copy_offline,
    run_migration_files,
    run_reconcile,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    DELTA,
    SHARED,
    DiskMove,
    Move,
    Tuning,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_outcome import Verdict
from ansible_collections.corral.virt.plugins.module_utils._xml.names import sealed

UUID = "11111111-2222-3333-4444-555555555555"
# States of the guest on the source and on the destination; `, complete`: with all its memory.
Look = tuple[str, str]


class Hosts:
    """Both ends, with guests whose states follow a script; the last state stays until it is changed.

    Notes what is done to them.
    """

    def __init__(self, looks: t.Sequence[Look], *, jobs: int = 0, reachable: tuple[bool, bool] = (True, True)) -> None:
        self.looks, self.jobs, self.reachable = list(looks), jobs, reachable
        self.done: list[str] = []
        self.source, self.dest = "source", "dest"
        self.time_s, self.memory = 0.0, ""
        self.later = len(self.looks) > 1  # the script goes on
        self.takes_back = False

    def or_none(self, end: str) -> str | None:
        """A host, or None when it cannot be reached."""
        return end if self.reachable[end == "dest"] else None

    def act(self, verb: str, end: str) -> None:
        """What a doer does; where the script says nothing about what comes of it, it works."""
        self.done.append(f"{verb} {end}")
        if len(self.looks) == 1 and not self.later:
            here, there = self.looks[0]
            now = {"resume": "running", "discard": "absent", "release": "shutdown"}[verb]
            self.looks = [(now, there) if end == "source" else (here, now)]

    def doer(self, verb: str) -> t.Callable[..., None]:
        """What does it to the guest."""

        def do(end: str, uuid: str, *_name: str) -> None:
            assert uuid == UUID
            self.act(verb, end)

        return do

    def state(self, end: str | None, uuid: str, **_options: t.Any) -> str:
        """Of the guest on one host; both have been asked after the destination was."""
        assert uuid == UUID
        here, there = self.looks[0]
        if end == "dest" and len(self.looks) > 1:
            self.looks.pop(0)
        there, _comma, self.memory = there.partition(", ")
        return "unreachable" if end is None else here if end == "source" else there

    def has_all_memory(self, end: str, uuid: str) -> bool:
        """Of the guest on the destination, as it was seen last."""
        assert (end, uuid) == ("dest", UUID)
        return self.memory == "complete"

    def job_active(self, _end: str | None, *_more: t.Any, **_options: t.Any) -> bool:
        """Whether libvirt is at work, for as many looks as told."""
        self.jobs -= 1
        return self.jobs >= 0

    def sleep(self, seconds: float) -> None:
        """Time passes only here."""
        self.time_s += seconds
        if self.time_s > 3600:
            raise AssertionError("waits for ever")


def play(monkeypatch: pytest.MonkeyPatch, hosts: Hosts, *, paused: bool = False, again: bool = False) -> Verdict:
    """Reconcile the migration of web1."""
    patched: dict[str, t.Any] = {
        "state_there": hosts.state,
        "job_active": hosts.job_active,
        "has_all_memory": hosts.has_all_memory,
        "resume": hosts.doer("resume"),
        "discard": hosts.doer("discard"),
    }
    for name, fake in patched.items():
        monkeypatch.setattr(libvirt_migrate, name, fake)
    monkeypatch.setattr(run_reconcile._Ends, "is_suspended_by_owner", lambda _ends: False)
    monkeypatch.setattr(run_reconcile._Ends, "is_superseded", lambda _ends: False)
    monkeypatch.setattr(run_reconcile._Ends, "takes_disks_back", lambda _ends: hosts.takes_back)
    monkeypatch.setattr(run_reconcile, "resume_guest", hosts.doer("resume"))
    monkeypatch.setattr(run_copy_offline, "release", hosts.doer("release"))
    monkeypatch.setattr(
        libvirt_query, "find_by_uuid", lambda *_more: None
    )  # what is stored is as it was: contract tests
    monkeypatch.setattr(run_reconcile, "time", types.SimpleNamespace(sleep=hosts.sleep, monotonic=lambda: hosts.time_s))
    more: dict[str, t.Any] = {"again": True} if again else {}
    return run_reconcile.reconcile(t.cast(t.Any, hosts), Move("web1", UUID, "hyper2", "", paused=paused), **more)


# Looks (the last one stays, or what is done there works), whether the guest was paused before; what is done, and where
# it is then.
CASES: list[tuple[list[Look], bool, list[str], str]] = [
    ([("absent", "running")], False, [], "arrived"),
    ([("absent", "paused")], False, ["resume dest"], "arrived"),
    ([("absent", "paused")], True, [], "arrived"),
    ([("absent", "reserved")], False, ["release dest"], "arrived"),
    ([("absent", "paused"), ("absent", "crashed")], False, ["resume dest"], "arrived"),
    ([("absent", "paused"), ("absent", "absent")], False, ["resume dest"], "open"),
    ([("absent", "paused"), ("absent", "paused")], False, ["resume dest"], "arrived"),  # it stopped for another reason
    ([("absent", "paused"), ("unreachable", "running")], False, ["resume dest"], "arrived"),
    ([("running", "absent")], False, [], "stayed"),
    ([("running", "paused")], False, ["discard dest"], "stayed"),
    ([("running", "paused"), ("running", "absent")], False, ["discard dest"], "stayed"),
    ([("paused", "paused")], False, ["discard dest", "resume source"], "stayed"),
    ([("paused", "paused")], True, ["discard dest"], "stayed"),
    ([("paused", "paused"), ("paused", "unreachable")], False, ["discard dest"], "stayed"),
    ([("paused", "absent")], False, ["resume source"], "stayed"),
    ([("paused", "absent")], True, [], "stayed"),
    ([("incoming", "absent")], False, ["resume source"], "stayed"),  # paused by its migration
    ([("paused", "running")], False, ["discard source"], "arrived"),
    ([("migrated", "running")], False, ["discard source"], "arrived"),
    ([("migrated", "paused")], False, ["resume dest", "discard source"], "arrived"),
    ([("migrated", "paused")], True, ["discard source"], "arrived"),
    ([("running", "running")], False, [], "open"),
    ([("migrated", "absent")], False, [], "open"),
    ([("absent", "absent")], False, [], "open"),
    ([("absent", "shutdown")], False, [], "open"),
    ([("absent", "incoming"), ("absent", "paused")], False, ["resume dest"], "arrived"),
    ([("paused", "incoming"), ("absent", "paused")], False, ["resume dest"], "arrived"),
    ([("paused", "incoming")], False, ["discard dest", "resume source"], "stayed"),  # when libvirt has had its time
    ([("shutdown", "incoming")], False, ["discard dest"], "stayed"),
    ([("postcopy", "running")], False, [], "open"),
    ([("postcopy", "running, complete")], False, ["discard source"], "arrived"),  # when libvirt has had its time
    ([("postcopy", "running"), ("postcopy", "running, complete"), ("absent", "running")], False, [], "arrived"),
    ([("unreachable", "running")], False, [], "open"),
]


@pytest.mark.parametrize(("looks", "paused", "done", "end"), CASES)
def test_one_copy_remains_as_the_table_says(
    looks: list[Look], paused: bool, done: list[str], end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = Hosts(looks)
    verdict = play(monkeypatch, hosts, paused=paused)
    assert (hosts.done, verdict.end) == (done, end)


INSPECT = "inspect its disks on the destination before you start it there"
# Looks; what the run tells of what it found first.
WORDS: list[tuple[list[Look], str]] = [
    ([("absent", "paused")], "arrived"),
    ([("migrated", "paused")], "arrived, paused; its definition was left on the source"),
    ([("paused", "paused")], "still on the source; a dead copy was left on the destination"),
    ([("absent", "paused"), ("absent", "crashed")], "arrived"),
    (
        [("absent", "paused"), ("absent", "absent")],
        f"stopped on the way (source: absent, destination: absent); {INSPECT}",
    ),
    ([("absent", "crashed")], f"stopped on the way (source: absent, destination: crashed); {INSPECT}"),
]


@pytest.mark.parametrize(("looks", "told"), WORDS)
def test_what_was_found_first_is_told_when_it_is_settled(
    looks: list[Look], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert play(monkeypatch, Hosts(looks)).meaning == told


def test_a_guest_that_is_found_off_where_it_was_sent_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts([("absent", "shutdown")])
    assert (play(monkeypatch, hosts, again=True).end, hosts.done) == ("arrived", [])


def test_libvirt_is_given_its_time_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts([("unreachable", "running")])
    play(monkeypatch, hosts)
    assert hosts.time_s == 45, "libvirt notices after 30 s that its other end is gone"
    hosts = Hosts([("running", "absent")], jobs=3)
    assert play(monkeypatch, hosts).end == "stayed"
    assert hosts.time_s == 3 * 0.5
    hosts = Hosts([("running", "running")])
    play(monkeypatch, hosts)
    assert hosts.time_s == 0


def test_libvirt_has_its_time_from_when_the_destination_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be ending the migration itself."""
    hosts = Hosts([("postcopy", "running")] * 89 + [("postcopy", "running, complete")])
    assert (play(monkeypatch, hosts).end, hosts.done) == ("arrived", ["discard source"])
    assert 44 + 45 <= hosts.time_s < 44 + 47


# Looks of half a second each; when the run ends, in seconds.
PATIENCE: list[tuple[list[Look], float]] = [
    # What only waits has its time from the beginning, whatever it waits for.
    ([("unreachable", "running")] * 60 + [("postcopy", "running")], 45),
    # What is done to a copy waits from when that copy was seen, not another one.
    ([("paused", "incoming")] * 60 + [("postcopy", "running, complete")], 30 + 45),
]


@pytest.mark.parametrize(("looks", "end_s"), PATIENCE)
def test_each_act_has_its_own_patience(looks: list[Look], end_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts(looks)
    play(monkeypatch, hosts)
    assert end_s - 1 <= hosts.time_s <= end_s + 1


@pytest.mark.parametrize("looks", [("paused", "running"), ("postcopy", "running, complete")])
def test_a_copy_whose_end_takes_the_disks_of_the_guest_is_left(looks: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts([looks])
    hosts.takes_back = True
    verdict = play(monkeypatch, hosts)
    assert (verdict.end, hosts.done) == ("open", []) and "owner or the label of the shared disks" in verdict.meaning


def test_an_end_that_cannot_be_reached_is_not_taken_for_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    for reachable in ((False, True), (True, False), (False, False)):
        hosts = Hosts([("absent", "paused")], reachable=reachable)
        assert play(monkeypatch, hosts).end == "open"
        assert not hosts.done


def test_images_are_removed_only_where_both_ends_are_seen_and_the_guest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    cleared: list[str] = []
    forgotten: list[str] = []

    def clear(_ends: object, uuid: str) -> list[str]:
        cleared.append(uuid)
        return ["/b stays"]

    monkeypatch.setattr(run_migration_files, "clear", clear)
    monkeypatch.setattr(run_reconcile, "_forget_migration", lambda end, uuid: forgotten.append(f"{end} {uuid}"))
    for here, reachable, acts in [
        ("running", (True, True), True),
        ("absent", (True, True), False),
        ("running", (False, True), False),
        ("running", (True, False), False),
    ]:
        hosts = Hosts([(here, "absent")], reachable=reachable)
        monkeypatch.setattr(libvirt_migrate, "state_there", hosts.state)
        result = run_reconcile.clean_up(t.cast(t.Any, hosts), UUID)
        assert (cleared, forgotten, result) == (([UUID], [f"source {UUID}"], ["/b stays"]) if acts else ([], [], []))
        cleared.clear()
        forgotten.clear()


def disk(target: str, how: str = DELTA, **more: t.Any) -> DiskMove:
    """A disk; a volume is made for it unless it is shared."""
    return DiskMove(
        target, f"/{target}", how, "", None if how == SHARED else Volume("default", target, f"/{target}", 1), **more
    )


def test_the_record_says_what_goes_and_of_what_is_made_nothing_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[dict[str, t.Any]] = []
    monkeypatch.setattr(libvirt_query, "by_uuid", lambda connection, *_more: connection)
    monkeypatch.setattr(libvirt_query, "found", lambda _guest: None)  # nothing is recorded
    monkeypatch.setattr(run_migration_files, "remember", lambda _guest, fields: written.append(dict(fields)))
    disks = (disk("vda"), disk("vdb", SHARED), disk("vdc", delete_source=False))
    source = types.SimpleNamespace(getURI=lambda: "qemu+tls://hyper1/system")
    run_reconcile.begin(source, Move("web1", UUID, "hyper2", "", source_uuid="1111", seen="5eed /a", disks=disks))
    more: dict[str, t.Any] = {"keep_source_storage": True, "paused": True, "autostart": True}
    more["tuning"] = Tuning(timeout_action="suspend")
    run_reconcile.begin(source, Move("web1", UUID, "hyper2", "", source_uuid="1111", seen="5eed", disks=disks, **more))
    run_reconcile.forget(source, UUID)
    common = {
        "moving": "hyper2",
        "moving_from": "1111",
        "moving_seal": sealed(UUID),
        "moving_seen": "5eed",
        "moving_made": (),
        "moving_let_run": "",  # of an earlier migration, or of the guest that was copied
    }
    assert written == [
        {
            **common,
            "moving_goes": ("/vda",),
            "moving_paused": "",
            "moving_autostart": "",
            "moving_suspends": "",
        },
        {
            **common,
            "moving_goes": (),
            "moving_paused": "yes",
            "moving_autostart": "yes",
            "moving_suspends": "yes",
        },
        {"moving": "", "moving_made": (), "moving_goes": ()},
    ]


class Guest:
    """A virDomain in one state."""

    def __init__(self, code: int, reason: int = 0, *, persistent: bool = True) -> None:
        self._state, self._persistent = [code, reason], persistent

    def state(self, *_flags: int) -> list[int]:
        """Code and reason."""
        return self._state

    def isPersistent(self) -> bool:  # noqa: N802 - libvirt's name
        """Whether it is defined."""
        return self._persistent

    def XMLDesc(self, *_flags: int) -> str:  # noqa: N802 - libvirt's name
        """A document."""
        return "<domain/>"

    def UUIDString(self) -> str:  # noqa: N802 - libvirt's name
        """An identity."""
        return UUID


class Host:
    """A connection that has one guest, or fails."""

    def __init__(self, answer: Guest | int) -> None:
        self._answer = answer

    def lookupByName(self, _name: str) -> Guest:  # noqa: N802 - libvirt's name
        """The guest."""
        if isinstance(self._answer, int):
            error = libvirt.libvirtError("failed")
            error.err = (self._answer, 0, "failed", 0, "", None, None, 0, 0)
            raise error
        return self._answer

    lookupByUUIDString = lookupByName  # noqa: N815 - libvirt's name


# Code and reason as libvirt has them; the word.
STATES: list[tuple[int, int, str]] = [
    (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED, "running"),
    (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER, "paused"),
    (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION, "incoming"),
    (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY, "postcopy"),
    (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED, "postcopy"),
    (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED, "migrated"),
    (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN, "shutdown"),
    (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_CRASHED, "crashed"),
    (libvirt.VIR_DOMAIN_CRASHED, 0, "crashed"),
]


def yes(_xml: str) -> bool:
    """Reserved."""
    return True


def no(_xml: str) -> bool:
    """Not reserved."""
    return False


def test_a_state_is_told_with_what_libvirt_knows_of_it() -> None:
    wrong: list[object] = []
    for code, reason, word in STATES:
        for reserved in (False, True):
            for persistent in (False, True):
                host = t.cast(t.Any, Host(Guest(code, reason, persistent=persistent)))
                found = libvirt_migrate.state_there(host, "web1", reserved=yes if reserved else no)
                off = word in ("shutdown", "crashed", "migrated")
                expected = "reserved" if off and reserved and persistent else word
                if found != expected:
                    wrong.append((code, reason, reserved, persistent, found))
        if libvirt_migrate.state_there(t.cast(t.Any, Host(Guest(code, reason))), "web1") != word:
            wrong.append((code, reason, "without a rule for reserved"))
    assert not wrong


def test_only_libvirts_own_word_makes_a_guest_absent() -> None:
    assert libvirt_migrate.state_there(None, "web1") == "unreachable"
    assert libvirt_migrate.state_there(t.cast(t.Any, Host(libvirt.VIR_ERR_NO_DOMAIN)), "web1") == "absent"
    for code in (libvirt.VIR_ERR_RPC, libvirt.VIR_ERR_SYSTEM_ERROR, libvirt.VIR_ERR_AUTH_FAILED):
        assert libvirt_migrate.state_there(t.cast(t.Any, Host(code)), "web1") == "unreachable"
