"""What the action reads from descriptions of guests and hosts, and tells of guests that leave."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._placement import model_placement
from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import Guest, Placement
from ansible_collections.corral.virt.plugins.plugin_utils._guests import (
    missing_arguments,
    placed_guests,
)
from ansible_collections.corral.virt.plugins.plugin_utils._placement import reported_hosts

UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"


def test_apart_is_the_word_that_tags_hold() -> None:
    """A number meets its tag; what could be no tag is refused before anything is placed."""
    [guest] = placed_guests.needs([{"name": "web1", "apart": 1}], [[]], {})
    assert guest.apart == frozenset({"1"})
    with pytest.raises(BadInput, match="apart of web1: 'a b' is not a valid name"):
        placed_guests.needs([{"name": "web1", "apart": "a b"}], [[]], {})


def test_what_its_host_would_refuse_is_said_of_all_guests() -> None:
    guests: list[dict[str, t.Any]] = [{"name": "web1"}, {"name": "web2", "apart": "a b"}, {"name": "web3"}]
    with pytest.raises(BadInput, match="apart of web2") as refused:
        placed_guests.needs(guests, [["one"], [], ["two", "three"]], {})
    assert refused.value.problems[0] == "one" and refused.value.problems[2:] == ["two", "three"]


def test_a_guest_that_exists_keeps_its_name_and_a_new_one_gets_no_such_name() -> None:
    there = {"h1": {"guests": [{"name": "Windows 10", "uuid": UUID}]}}
    guests: list[dict[str, t.Any]] = [{"name": "Windows 10"}, {"name": "Windows 11"}]
    [kept] = placed_guests.needs(guests[:1], [[]], there)
    assert kept.name == "Windows 10" and kept.uuid is None
    [chosen] = placed_guests.needs([{"name": "Windows 10", "uuid": UUID}], [[]], there)
    assert chosen.uuid == UUID
    with pytest.raises(BadInput, match="guest name: 'Windows 11' is not a valid name"):
        placed_guests.needs(guests, [[], []], there)


def test_guests_that_are_left_as_they_are_share_a_warning() -> None:
    many = [Placement(f"web{number}", None, "h9 may have it", deferred=True) for number in range(13)]
    placed = [*many, Placement("db1", None, "h8 may have it", deferred=True), Placement("db2", "h1", "room")]
    names = ", ".join(f"web{number}" for number in range(10))
    assert list(placed_guests.warnings(placed)) == [
        f"{names} and 3 more are neither created nor changed: h9 may have it",
        "db1 is neither created nor changed: h8 may have it",
    ]


def test_only_what_an_admin_must_choose_is_unclear() -> None:
    """Guests of hosts that are silent are due when these answer; what leaves a host is told with its moves."""
    asked = placed_guests.PlacementRequest(
        {}, {"h2": [{"name": "old1"}]}, frozenset(), [], [], model_placement.Policy()
    )
    placed = [
        Placement("web1", None, "off twice", deferred=True, unclear=True),
        Placement("old1", None, "off twice", deferred=True, unclear=True),
        Placement("web2", None, "h9 may have it", deferred=True),
        Placement("web3", "h1", "room"),
    ]
    found = placed_guests.placements(asked, placed)
    assert found["deferred"] == ["web1", "web2"] and found["unclear"] == ["web1: off twice"]


def test_guests_that_are_refused_for_the_same_reason_share_a_message() -> None:
    many = [Placement(f"big{number}", None, "no host has 1 TiB") for number in range(12)]
    names = ", ".join(f"big{number}" for number in range(10))
    assert placed_guests.message([*many[:1], Placement("db1", None, "no br7"), *many[1:]]) == (
        f"cannot place {names} and 2 more: no host has 1 TiB; cannot place db1: no br7"
    )


def test_a_host_finds_its_guests_by_their_positions() -> None:
    guests = [{"name": name} for name in ("d", "a", "c", "b")]
    assert placed_guests.positions(guests, {"a": "h1", "b": "h2", "d": "h1", "leaves": "h3"}) == {
        "h1": {"d": 0, "a": 1},
        "h2": {"b": 3},
    }


@pytest.mark.parametrize("place", [{"network": {"protocol": "rbd"}}, {"url": "nbd://h/x"}, {"nvme": {"address": "x"}}])
def test_a_disk_that_is_elsewhere_needs_no_pool(place: dict[str, t.Any]) -> None:
    [guest] = placed_guests.needs([{"name": "web1", "disks": [{"name": "a", **place}]}], [[]], {})
    assert guest.pools == frozenset()


def found(name: str, state: str, memory_mib: int) -> dict[str, t.Any]:
    """A guest as virt_host_info tells it."""
    needs = {"bridges": ["br1"], "pools": ["fast"], "tags": ["web", "apart-db"]}
    return {
        "name": name,
        "uuid": f"{name}-uuid",
        "state": state,
        "vcpus": 2,
        "memory_mib": memory_mib,
        "disk_mib": 7,
        **needs,
    }


def test_what_a_guest_that_exists_needs() -> None:
    guest = reported_hosts.guest(found("db1", "running", 512))
    assert guest == Guest(
        "db1", 2, 512, apart=frozenset({"db"}), bridges=frozenset(["br1"]), pools=frozenset(["fast"]), uuid="db1-uuid"
    )


def test_running_guests_leave_first_and_the_biggest_first() -> None:
    guests = [found("off", "shutdown", 9000), found("small", "running", 64), found("big", "paused", 512)]
    stuck = [found("twin", "shutdown", 64), found("huge", "running", 99999)]
    placed = {guest["name"]: Placement(guest["name"], "hyper2", "room") for guest in guests}
    placed["twin"] = Placement("twin", "hyper3", "it is there", exists=True)
    placed["huge"] = Placement("huge", None, "no hypervisor fits")
    told = placed_guests.departures({"hyper1": [*guests, *stuck]}, placed)
    assert [move["name"] for move in told["moves"]] == ["big", "small", "off"]
    assert told["moves"][0] == {
        "name": "big", "source": "hyper1", "dest": "hyper2", "state": "paused", "memory_mib": 512, "disk_mib": 7, "why": "room",
    }  # fmt: skip
    assert [(stay["name"], stay["why"]) for stay in told["stays"]] == [
        ("huge", "no hypervisor fits"),
        ("twin", "hyper3 has it too, and it runs there; remove the copy on hyper1"),
    ]


@pytest.mark.parametrize(
    ("only", "running_only", "leaving"),
    [
        (None, False, ["web1", "db1", "off"]),
        (["off"], False, ["off"]),
        (["db1"], False, ["db1"]),
        ([], False, []),
        (None, True, ["web1", "db1"]),
        (["db1", "off"], True, ["db1"]),
        (["off"], True, []),
    ],
)
def test_which_guests_leave(only: list[str] | None, running_only: bool, leaving: list[str]) -> None:
    """Those that are named, and those that hold memory: a paused guest runs, too."""
    info = {"guests": [found("web1", "running", 64), found("db1", "paused", 64), found("off", "shutdown", 64)]}
    options = {"only": only, "running_only": running_only, "stay": []}
    assert [guest["name"] for guest in placed_guests.leaving(info, options)] == leaving
    stay = [f"{name}-uuid" for name in ("off", "db1")]
    left = [guest["name"] for guest in placed_guests.leaving(info, {**options, "stay": stay})]
    assert left == [name for name in leaving if name != "off"], "one that runs does not stay"


HOST: dict[str, t.Any] = {
    "cpus": 8,
    "memory_mib": 8192,
    "memory_reserved_mib": 0,
    "vcpus_used": 0,
    "memory_used_mib": 0,
    "bridges": None,
    "pools": None,
    "guests": [],
}
OPTIONS: dict[str, t.Any] = {
    "guests": [],
    "group": None,
    "gone": [],
    "leave": [],
    "only": None,
    "running_only": False,
    "stay": [],
    "cpu_overcommit": 4.0,
    "memory_overcommit": 1.0,
    "all_defined": False,
    "rules": {},
}


@pytest.mark.parametrize(
    ("running_only", "moves", "stays"),
    [(False, ["on", "held", "off", "begun"], ["huge", "vast"]), (True, ["on", "held"], ["huge"])],
)
def test_guests_that_are_off_may_stay(running_only: bool, moves: list[str], stays: list[str]) -> None:
    """Then nothing is told of them, nor of a move of theirs that was begun. A paused guest is not off.

    A move that was begun elsewhere is none of these.
    """
    here = [
        {**found(name, state, memory_mib), "tags": []}
        for name, state, memory_mib in (
            ("on", "running", 128),
            ("held", "paused", 64),
            ("off", "shutdown", 64),
            ("huge", "running", 99999),
            ("vast", "shutdown", 99999),
        )
    ]
    begun = {**found("begun", "shutdown", 64), "moving": "h2", "moving_from": "uuid1"}
    elsewhere = {**found("elsewhere", "paused", 64), "moving": "h2", "moving_from": "uuid3"}
    reported = {
        "h1": {"host": {**HOST, "uuid": "uuid1", "guests": here}},
        "h2": {"host": {**HOST, "uuid": "uuid2", "guests": [begun, elsewhere]}},
        "h3": {"host": {**HOST, "uuid": "uuid3"}},
    }
    options = {**OPTIONS, "hosts": reported, "leave": ["h1"], "running_only": running_only}
    asked = placed_guests.PlacementRequest.of(options, [], reported_hosts.Counting.of({}, None))
    placed = placed_guests.place_guests(asked, options, {})
    told = placed_guests.moving(asked, placed, options)
    assert [move["name"] for move in told["moves"]] == moves
    assert [stay["name"] for stay in told["stays"]] == stays
    assert sorted(item.guest for item in placed) == sorted({*moves, *stays} - {"begun"})


def test_protected_guests_without_room_after_the_loss_of_their_host_are_told() -> None:
    """Those that Pacemaker runs, and new ones on a member of a cluster; a host that is no member has no room for them."""
    guest = {**found("db1", "running", 6000), "tags": [], "bridges": [], "pools": [], "resource": "guest-db1"}
    plain = {**guest, "name": "plain", "uuid": "plain", "resource": ""}
    member = {**HOST, "members": ["h1", "h2"]}

    def warnings(memory_mib: int, ha: object = None, *, leave: bool = False) -> list[str]:
        used = {"memory_used_mib": memory_mib, "vcpus_used": 4}
        full = {**member, **used, "guests": [{**plain, "memory_mib": memory_mib}]}
        first = {**member, "memory_used_mib": 6000, "vcpus_used": 2, "guests": [guest]}
        hosts = {"h1": {"host": first}, "h2": {"host": full}, "h3": {"host": HOST}}
        new = {"name": "web1", "vcpus": 1, "memory": "1GiB", "host": "h2", "ha": ha}
        options = {**OPTIONS, "hosts": hosts, "guests": [new], "leave": ["h3"] if leave else []}
        asked = placed_guests.PlacementRequest.of(options, [[]], reported_hosts.Counting.of({}, None))
        return list(placed_guests.homeless_warnings(asked, options, placed_guests.place_guests(asked, options, {})))

    assert warnings(1000) == []
    (told,) = warnings(4000)
    assert told.startswith("after the loss of h1, the other members") and told.endswith(
        "1 of its protected guests: db1"
    )
    assert warnings(4000, leave=True) == []
    assert [line.split(",")[0] for line in warnings(1200, {"mode": "restart"})] == ["after the loss of h1"]
    assert warnings(1200, "restart") == warnings(1200, []) == warnings(1200), "the module refuses it"


def test_a_path_is_no_image() -> None:
    guests: list[dict[str, t.Any]] = [
        {"name": "web1", "image": "/root/a.qcow2"},
        {"name": "web2", "disks": [{"name": "system", "image": "~/b.qcow2"}]},
    ]
    with pytest.raises(
        BadInput, match=r"image of web1: '/root/a.qcow2' is a path.*; disk system of web2: '~/b.qcow2' is a path"
    ):
        placed_guests.needs(guests, [[], []], {})


@pytest.mark.parametrize(
    ("said", "lacking"),
    [
        ({}, "creating it requires vcpus and memory, for example vcpus=2 memory=2GiB"),
        ({"vcpus": 2}, "creating it requires memory, for example memory=2GiB"),
        ({"vcpus": {"maximum": 4}, "memory": 64}, ""),
        ({"vcpus": 2, "numa": {"cells": [{"id": 0, "memory": 64}]}}, ""),
        ({"state": "absent"}, ""),
        ({"state": "running"}, "creating it requires vcpus and memory, for example vcpus=2 memory=2GiB"),
        ({"clone_of": "db1"}, ""),
        ({"clone_of": "db1", "host": "hyper1"}, ""),
        (
            {"clone_of": "db1", "host": "hyper2"},
            "db1 (clone_of) is on hyper1, and a copy is created there; omit host, and migrate the copy",
        ),
        ({"clone_of": "db2"}, "no hypervisor has db2 (clone_of)"),
        ({"clone_of": "twin"}, "twin (clone_of) is on hyper1 and hyper2; find out which"),
        ({"clone_of": "busy"}, "busy (clone_of) is running; shut it down first"),
        ({"clone_of": "db2", "state": "absent"}, ""),
    ],
)
def test_what_a_guest_cannot_be_made_without(said: dict[str, t.Any], lacking: str) -> None:
    told = missing_arguments.why({"name": "web1", **said}, HOSTS)
    assert lacking in told and bool(lacking) == bool(told)


HOSTS = {
    "hyper1": {"guests": [found("db1", "shutdown", 512), found("twin", "running", 64), found("busy", "running", 64)]},
    "hyper2": {"guests": [found("twin", "shutdown", 64)]},
}


def test_a_copy_goes_where_its_original_is() -> None:
    first, larger, lost = placed_guests.needs(
        [
            {"name": "a", "clone_of": "db1"},
            {"name": "b", "clone_of": "db1", "vcpus": 4, "memory": "1GiB", "host": "hyper2"},
            {"name": "c", "clone_of": "db2"},
        ],
        [[], [], []],
        HOSTS,
    )
    assert first == Guest("a", 2, 512, host="hyper1")
    assert larger == Guest("b", 4, 1024, host="hyper1")
    assert lost.host is None


def test_a_guest_that_runs_stays_within_its_migration_group() -> None:
    """One that is off goes anywhere."""
    guests = [found("on", "running", 64), found("off", "shutdown", 64)]
    reported = {"h1": {"host": {**HOST, "guests": guests}}, "h2": {"host": HOST}, "h3": {"host": HOST}}
    rules = {"migration_groups": {"h1": "intel", "h2": "amd", "h3": "intel"}}
    options = {**OPTIONS, "hosts": reported, "leave": ["h1"], "rules": rules}
    asked = placed_guests.PlacementRequest.of(options, [], reported_hosts.Counting.of(rules, None))
    assert {guest.name: guest.runs_within for guest in asked.guests} == {"on": "intel", "off": None}
    assert {one.guest: one.host for one in placed_guests.place_guests(asked, options, {})} == {"on": "h3", "off": "h2"}


@pytest.mark.parametrize(
    ("play_hosts", "said"),
    [
        (None, "h2, h3 failed or could not be reached and may have it"),
        (["h1", "h2", "h3"], "h2, h3 failed or could not be reached and may have it"),
        (["h1"], "this run leaves out h2, h3, which may have it"),
        (["h1", "h3"], "h3 failed or could not be reached, this run leaves out h2, and each may have it"),
    ],
)
def test_hosts_that_a_run_leaves_out_are_not_called_dead(play_hosts: list[str] | None, said: str) -> None:
    guests = [{"name": "web1", "vcpus": 1, "memory": "64MiB"}]
    options = {**OPTIONS, "hosts": {"h1": {"host": HOST}}, "guests": guests, "group": ["h1", "h2", "h3"]}
    asked = placed_guests.PlacementRequest.of(options, [[]], reported_hosts.Counting.of({}, None))
    (placed,) = placed_guests.place_guests(asked, options, {"ansible_play_hosts_all": play_hosts} if play_hosts else {})
    assert placed.why.startswith(f"{said}; ") and placed.deferred


def test_a_host_that_is_gone_has_no_guests_and_is_named_again_with_the_next() -> None:
    guests = [{"name": "web1", "vcpus": 1, "memory": "64MiB"}]
    options = {**OPTIONS, "hosts": {"h1": {"host": HOST}}, "guests": guests, "group": ["h1", "h2"], "gone": ["h2"]}
    asked = placed_guests.PlacementRequest.of(options, [[]], reported_hosts.Counting.of({}, None))
    (placed,) = placed_guests.place_guests(asked, options, {})
    assert placed.host == "h1"
    (placed,) = placed_guests.place_guests(asked, {**options, "group": ["h1", "h2", "h3"]}, {})
    assert placed.deferred and placed.why.startswith("h3 failed or could not be reached and may have it; ")
    assert placed.why.endswith(": -e gone=h2,h3 -e confirm=h2,h3")


def test_a_new_guest_that_cannot_be_made_is_not_placed() -> None:
    new = placed_guests.incomplete(Placement("web1", "h1", "room"), "memory must be given")
    assert new == Placement("web1", None, "memory must be given")
    for fine in (
        Placement("web1", "h1", "it is there", exists=True),
        Placement("web1", None, "no room"),
        Placement("web1", "h1", "room"),
    ):
        assert placed_guests.incomplete(fine, "" if fine.why == "room" else "vcpus") is fine
