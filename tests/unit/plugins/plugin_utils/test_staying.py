"""Nobody is told that a host is empty while a guest stays there, or waits elsewhere for the end of its migration."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.filter import running_guests, starting_guests, staying_guests
from ansible_collections.corral.virt.plugins.plugin_utils._commands.hosted_guests import running, starting, staying

ARRIVED = {"name": "web1", "uuid": "aaaa", "state": "paused", "moving": "hyper2", "moving_from": "1111"}
STAYING = {"name": "web2", "uuid": "bbbb", "state": "running", "moving": None, "moving_from": None}
SEEN: dict[str, t.Any] = {
    "hyper1": {"host": {"uuid": "1111", "guests": [STAYING]}},
    "hyper2": {"host": {"uuid": "2222", "guests": [ARRIVED, STAYING]}},
    "hyper3": {"host": {"uuid": "3333", "guests": []}},
}
FINISH = "run the same command again, or finish it (playbook migrate -e guest=web1 -e to=hyper2)"
OPEN = ["These migrations are unfinished", f"web1: migrating to hyper2, now paused on hyper2; {FINISH}"]


@pytest.mark.parametrize(
    ("host", "emptied", "told"),
    [("hyper1", "1111", OPEN), ("hyper3", "3333", []), ("hyper2", None, OPEN), ("hyper1", None, [])],
)
def test_a_migration_that_is_unfinished(host: str, emptied: str | None, told: list[str]) -> None:
    """From a host that is emptied wherever its guest is; else where the guest is."""
    assert staying(host, SEEN, [], {"skipped": True}, emptied=emptied) == told


def test_a_record_that_names_no_source_counts_where_the_guest_is() -> None:
    seen = {"hyper2": {"host": {"guests": [{**ARRIVED, "moving_from": None}]}}}
    assert staying("hyper1", seen, [], {}) == staying("hyper1", seen, [], {}, emptied="1111") == []
    assert staying("hyper2", seen, [], {}) == OPEN


@pytest.mark.parametrize(
    ("stays", "moved", "left"),
    [
        ([], {"skipped": True}, []),
        ([], {"results": [{"name": "web3", "changed": True}]}, []),
        ([{"name": "web2", "why": "no room", "state": "running"}], {"skipped": True}, ["web2: no room"]),
        ([], {"results": [{"name": "web3", "failed": True, "msg": "it is busy"}, {"name": "web4"}]}, ["web3: it is busy"]),
        (
            [{"name": "web2", "why": "no room"}],
            {"results": [{"name": "web3", "failed": True, "msg": "it is busy"}]},
            ["web2: no room", "web3: it is busy"],
        ),
    ],
)  # fmt: skip
def test_guests_that_stay(stays: list[dict[str, t.Any]], moved: dict[str, t.Any], left: list[str]) -> None:
    """Those that were not placed, and those that did not arrive; before migrations that are unfinished."""
    told = ["These guests stay on hyper1", *left] if left else []
    assert staying("hyper1", {}, stays, moved) == told
    assert staying("hyper1", SEEN, stays, moved, emptied="1111") == [*told, *OPEN]


@pytest.mark.parametrize("result", [None, {}, {"failed": True, "msg": "no answer"}, {"host": None}, {"host": {}}])
def test_a_host_that_does_not_answer_has_no_guests(result: t.Any) -> None:
    """In check mode nobody is asked."""
    assert staying("hyper1", {"hyper1": result}, [], {}, emptied="1111") == []


def test_a_drain_tells_who_is_there_at_its_end_whatever_it_planned() -> None:
    """Those that came meanwhile, those whose migration failed, and none that has left after all."""
    off = {**STAYING, "name": "off", "state": "shutdown"}
    seen = {"hyper1": {"host": {"uuid": "1111", "guests": [STAYING, {**STAYING, "name": "web9"}, off]}}}
    failed = [{"name": "web2", "failed": True, "msg": "it is busy"}, {"name": "web3", "failed": True, "msg": "refused"}]
    there = staying("hyper1", seen, [], {"results": failed}, emptied="1111", running_only=True)
    came = "and was started or migrated there while others left; run the same command again, which moves it"
    assert there == ["These guests stay on hyper1", "web2: it is busy", f"web9: it is running, {came}"]
    every = staying("hyper1", seen, [], {"results": failed}, emptied="1111", running_only=False)
    assert every == [*there, f"off: it is shutdown, {came}"]
    failing, kept = {"results": failed}, [str(off["uuid"]), str(STAYING["uuid"])]
    assert staying("hyper1", seen, [], failing, "1111", running_only=False, kept=kept) == there, "only while it is off"
    assert staying("hyper1", {}, [], {"results": failed}, running_only=False)[1:] == [
        "web2: it is busy",
        "web3: refused",
    ]


@pytest.mark.parametrize("state", ["running", "paused", "crashed"])
def test_a_host_with_a_guest_is_not_rebooted(state: str) -> None:
    found = running("hyper1", {"host": {"guests": [{**STAYING, "state": state}]}}, "rebooted")
    assert found["running"][:2] == ["These guests run on hyper1, which is to be rebooted", f"web2: {state}"]
    assert "-e force=true" in found["running"][2] and not found["arriving"]


def test_a_guest_that_arrives_is_never_overruled() -> None:
    found = running("hyper2", SEEN["hyper2"], "rebooted")
    assert found["arriving"] == OPEN and len(found["running"]) == 4


def test_guests_that_are_off_do_not_keep_a_host_from_a_reboot() -> None:
    nobody: dict[str, list[str]] = {"running": [], "arriving": []}
    assert running("hyper1", {"host": {"guests": [{**STAYING, "state": "shutdown"}]}}, "rebooted") == nobody
    assert running("hyper1", {"failed": True}, "rebooted") == nobody, "the task itself is red"


def test_they_are_filters() -> None:
    assert staying_guests.FilterModule().filters() == {"staying_guests": staying}
    assert running_guests.FilterModule().filters() == {"running_guests": running}


OFF: dict[str, t.Any] = {"name": "web1", "uuid": "aaaa", "state": "shutdown", "autostart": False}


@pytest.mark.parametrize(
    ("own", "other", "why"),
    [
        ({}, None, ""),
        ({}, {"state": "shutdown"}, ""),
        ({}, {"name": "db1", "uuid": "bbbb"}, ""),
        ({}, {}, "it is running on hyper2; compare both copies, and undefine the wrong one"),
        ({}, {"name": "web2", "state": "paused"}, "it is paused on hyper2 as web2; "),
        ({"autostart": True}, {}, "undefine the wrong one before hyper1 boots again and starts its own"),
        ({}, {"uuid": "bbbb"}, "another guest of this name is running on hyper2 (UUID bbbb); rename one of them"),
        ({"unfinished": True}, None, "it is being migrated or created"),
        ({"moving": "hyper2"}, {"state": "paused"}, "it is being migrated or created"),
    ],
)
def test_guests_that_start_when_a_maintenance_ends(
    own: dict[str, t.Any], other: dict[str, t.Any] | None, why: str
) -> None:
    """Not those that others have active, or that have the name of such a guest."""
    there = [] if other is None else [{**OFF, "state": "running", **other}]
    seen = {"hyper1": {"host": {"guests": [{**OFF, **own}]}}, "hyper2": {"domains": there}}
    found = starting("hyper1", seen, ["hyper1", "hyper2"], ["aaaa"])
    assert found["now"] == ([] if why else [{"name": "web1", "uuid": "aaaa", "state": "running"}])
    assert [why in one["why"] for one in found["off"]] == ([True] if why else [])
    whole = {**seen, "hyper2": {"host": {"uuid": "2222", "guests": there}}}
    assert starting("hyper1", whole, ["hyper1", "hyper2"], ["aaaa"]) == found, "the answer of virt_host_info"
    assert starting("hyper1", seen, ["hyper1", "hyper2"], []) == {"now": [], "off": []}, "nobody wants it to start"
    assert starting_guests.FilterModule().filters()["starting_guests"]("hyper1", {}, [], []) == {"now": [], "off": []}


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ([{**OFF, "name": "Windows 10"}], ["it is on hyper2 by now; to start it there: ansible-playbook "]),
        ([{**OFF, "state": "running"}], []),
        ([], []),  # it was removed
    ],
)
def test_a_guest_that_was_stopped_and_is_elsewhere_by_now_is_told(
    there: list[dict[str, t.Any]], told: list[str]
) -> None:
    seen = {"hyper1": {"host": {"guests": []}}, "hyper2": {"domains": there}}
    found = starting("hyper1", seen, ["hyper1", "hyper2"], ["aaaa"])
    assert found["now"] == [] and [one["may_start"] for one in found["off"]] == [True] * len(told)
    assert all(one["why"].startswith(text) for one, text in zip(found["off"], told, strict=True))
    assert all(one["why"].endswith("corral.virt.start -e guest='Windows 10'") for one in found["off"])


def test_no_guest_starts_that_may_run_on_a_host_that_nobody_has_asked() -> None:
    seen = {"hyper1": {"host": {"guests": [{**OFF, "autostart": True}]}}, "hyper2": {"unreachable": True}}
    group = ["hyper1", "hyper2", "hyper3"]
    (off,) = starting("hyper1", seen, group, [], booted=True)["off"]
    assert off["may_start"] and "may run on hyper2, hyper3" in off["why"]
    assert "-e gone=hyper2,hyper3 -e confirm=hyper2,hyper3" in off["why"]
    assert off["why"].endswith("; or start it yourself: ansible-playbook corral.virt.start -e guest=web1")
    assert starting("hyper1", seen, group, [], booted=True, stopped=["web1"])["off"] == [], "this run has stopped it"
    assert starting("hyper1", seen, group, []) == {"now": [], "off": []}


def test_hosts_that_were_declared_dead_stay_so_in_what_is_proposed() -> None:
    """Otherwise two dead hosts make a circle."""
    seen = {"hyper1": {"host": {"guests": [{**OFF, "autostart": True}]}}}
    group = ["hyper1", "hyper7", "hyper8"]
    (off,) = starting("hyper1", seen, group, [], booted=True, gone=["hyper7"])["off"]
    assert "may run on hyper8, " in off["why"]
    assert "; or, if it is dead: -e gone=hyper7,hyper8 -e confirm=hyper7,hyper8; " in off["why"]
    (off,) = starting("hyper1", seen, group, [], booted=True)["off"]
    assert "run it again when hyper7 and hyper8 can be asked; " in off["why"]
    assert "if all of them are dead, otherwise with the dead ones only: -e gone=hyper7,hyper8" in off["why"]
    assert starting("hyper1", seen, group, [], booted=True, gone=["hyper7", "hyper8"])["off"] == []


def test_a_host_that_limit_excludes_is_not_taken_for_dead() -> None:
    """It answers, so nobody can declare it dead."""
    seen = {
        "hyper1": {"host": {"guests": [{**OFF, "autostart": True}]}},
        "hyper2": {"failed": True, "msg": "no libvirt"},
    }
    group = ["hyper1", "hyper2", "hyper3"]
    (off,) = starting("hyper1", seen, group, [], booted=True, hidden=["hyper3"])["off"]
    assert "omit --limit, which excludes hyper3; " in off["why"] and "-e gone=hyper2 -e confirm=hyper2" in off["why"]
    assert "it may run on hyper2, hyper3, of which nothing is known (hyper2: no libvirt); " in off["why"]
    (off,) = starting("hyper1", seen, group, [], booted=True, hidden=["hyper2", "hyper3"])["off"]
    assert off["may_start"] and off["why"].endswith("; omit --limit, which excludes hyper2, hyper3")
    there = {"domains": [{**OFF, "state": "running"}]}
    (off,) = starting("hyper1", {**seen, "hyper2": there}, group, [], booted=True, hidden=["hyper3"])["off"]
    assert not off["may_start"], "it runs on one that has answered"
