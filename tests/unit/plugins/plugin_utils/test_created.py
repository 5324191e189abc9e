"""Where the inventory shows a new guest, and whether it is waited for."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.filter import created_guest, missing_guests, reached_guests
from ansible_collections.corral.virt.plugins.plugin_utils._inventory import created_guests
from ansible_collections.corral.virt.plugins.plugin_utils._inventory.created_guests import missing, reached

SEEDED = [{"name": "web1", "ssh_host_key": "ssh-ed25519 AAAA"}]
GUEST = {"name": "web1", "state": "running", "wait_for_ip": "unknown"}
PLACED = {"placements": {"web1": "h-1"}, "explained": ["web1: no hypervisor fits", "db1: neither"]}
HERE = {"virt_name": "web1", "virt_hypervisor": "h-1", "ansible_host": "10.0.0.7"}


def created(
    *,
    guest: dict[str, t.Any] | None = None,
    made: t.Any,
    shown: dict[str, dict[str, t.Any]] | None = None,
    plugin: bool = True,
    placed: dict[str, t.Any] | None = None,
    awaited: bool = True,
) -> dict[str, t.Any]:
    """In an inventory with hypervisor h-1, and guests on it."""
    guests = {"web1": HERE} if shown is None else shown
    groups = {"all": ["h-1", *guests], **({"on_h_1": [*guests], "guests_running": [*guests]} if plugin else {})}
    hostvars: dict[str, dict[str, t.Any]] = {"h-1": {"__guests_result": made}, **guests}
    return created_guests.created(guest or GUEST, placed or PLACED, groups, hostvars, awaited=awaited)


@pytest.mark.parametrize(
    ("more", "reached"),
    [
        ({}, True),
        ({"awaited": False}, False),
        ({"plugin": False}, False),
        ({"guest": {**GUEST, "state": "present"}}, False),
        ({"guest": {**GUEST, "wait_for_ip": "none"}}, False),
        ({"made": {"results": [{"name": "web1"}]}}, False),
        ({"made": {"results": ["ssh_host_key", None]}}, False),
        ({"made": {"skipped": True}}, False),
        ({"made": None}, False),
    ],
    ids=["it runs", "check mode", "no plugin", "off", "not waited for", "not seeded", "nonsense", "skipped", "none"],
)
def test_a_guest_that_lets_somebody_in_is_waited_for(more: dict[str, t.Any], reached: bool) -> None:
    given = {"made": {"results": SEEDED}, **more}
    assert created(**given) == {"shown": "web1", "host": "h-1", "reached": reached, "problem": ""}


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        ({"db1": {**HERE, "virt_name": "db1"}, "web1.here": HERE}, "web1.here"),
        ({"web1.there": {**HERE, "virt_hypervisor": "h.1"}, "web1": HERE}, "web1"),
        ({"other": {}, "web1": HERE}, "web1"),
    ],
    ids=["another name", "a host whose name makes the same group", "a host of the user"],
)
def test_it_is_found_under_the_name_that_the_inventory_gives_it(shown: dict[str, dict[str, t.Any]], name: str) -> None:
    assert created(made={"results": SEEDED}, shown=shown) == {
        "shown": name,
        "host": "h-1",
        "reached": True,
        "problem": "",
    }


@pytest.mark.parametrize("shown", [{}, {"web1": {"virt_name": "web1", "virt_hypervisor": "h-1"}}], ids=["gone", "bare"])
def test_one_without_an_address_is_a_problem(shown: dict[str, dict[str, t.Any]]) -> None:
    problem = created(made={"results": SEEDED}, shown=shown)["problem"]
    assert (
        "web1 runs, but the inventory has no address for it" in problem and "ansible-inventory --host web1" in problem
    )
    assert created(made={"results": SEEDED}, shown=shown, awaited=False)["problem"] == ""


def test_one_that_was_not_placed_is_a_problem() -> None:
    found = created(made=None, placed={**PLACED, "placements": {}})
    assert found == {"shown": "web1", "host": "", "reached": False, "problem": "web1: no hypervisor fits; db1: neither"}
    assert created_guest.FilterModule().filters() == {"created_guest": created_guests.created}


def test_one_that_has_no_place_is_a_problem_also_without_a_reason() -> None:
    placed: dict[str, t.Any] = {"placements": {}, "explained": []}
    assert created(made={}, placed=placed) == {
        "shown": "web1",
        "host": "",
        "reached": False,
        "problem": "web1 was not placed",
    }


SHOWN: dict[str, dict[str, t.Any]] = {
    "web1": {"ansible_host": "192.0.2.1"},
    "web2": {},
    "web4.shown": {"ansible_host": "192.0.2.4", "virt_name": "web4"},
    "web5.shown": {"ansible_host": "192.0.2.5", "virt_name": "web5"},
    "off1": {"ansible_host": "192.0.2.6"},
}
GROUPS = {
    "guests_running": ["web1", "web2", "web4.shown", "web5.shown"],
    "on_h_1": ["web4.shown", "off1"],
    "on_other": ["web5.shown"],
}
KNOWN = "warnings above may say why, and `ansible-inventory --host web2` shows what is known"


@pytest.mark.parametrize(
    ("name", "has_address"),
    [("web1", True), ("web2", False), ("web3", False), ("web4", True), ("web5", False), ("off1", False)],
)
def test_a_guest_that_runs_is_to_be_in_the_inventory(name: str, has_address: bool) -> None:
    """It may be shown under another name; a namesake on another hypervisor is not it."""
    found = missing([{"name": name, "state": "running"}], "h-1", GROUPS, SHOWN)
    assert found == {"running": [] if has_address else [name], "problem": ""}
    found = missing([{"name": name, "wait_for_ip": "any"}], "h-1", GROUPS, SHOWN)
    assert found["running"] == [] and bool(found["problem"]) != has_address


def test_the_problem_names_those_that_are_waited_for() -> None:
    guests = [
        {"name": "web1", "state": "running", "wait_for_ip": "unknown"},
        {"name": "web2", "state": "running", "wait_for_ip": "unknown"},
        {"name": "web3", "state": "running", "wait_for_ip": "none"},
        {"name": "web6", "state": "running"},
    ]
    found = missing(guests, "h-1", GROUPS, SHOWN)
    assert found["running"] == ["web2", "web3", "web6"]
    assert found["problem"] == f"web2 should run on h-1, but the inventory has no address to reach it; {KNOWN}"
    more = missing([*guests, {"name": "web5", "wait_for_ip": "any"}], "h-1", GROUPS, SHOWN)
    assert more["problem"] == f"web2, web5 should run on h-1, but the inventory has no address to reach them; {KNOWN}"


def test_without_the_inventory_plugin_all_are_missing() -> None:
    guests = [{"name": "web1", "state": "running"}]
    assert missing(guests, "h-1", {"all": ["web1"]}, SHOWN) == {"running": ["web1"], "problem": ""}
    assert missing_guests.FilterModule().filters() == {"missing_guests": missing}


def test_a_started_guest_is_reached_where_the_inventory_or_else_its_hypervisor_knows_it() -> None:
    """A namesake's address is nobody else's."""
    seen = [
        {"name": "web1", "uuid": "u1", "addresses": ["192.0.2.9"]},
        {"name": "new", "uuid": "u2", "addresses": ["192.0.2.7", "2001:db8::7"]},
        {"name": "mute", "uuid": "u3", "addresses": []},
        {"name": "again", "uuid": "u4", "addresses": ["192.0.2.8"]},
    ]
    started = [
        {"name": name, "uuid": uuid, "host": "h-1"}
        for name, uuid in (("web1", "u1"), ("new", "u2"), ("mute", "u3"), ("again", "u5"), ("web4", "u6"))
    ]
    groups = {"all": ["h-1", "h-2", *SHOWN], **GROUPS}
    hostvars: dict[str, dict[str, t.Any]] = {
        "h-1": {"__guests_addressed": {"guests": seen}},
        "h-2": {"__guests_addressed": {"skipped": True}},
        **SHOWN,
        "web4.shown": {**SHOWN["web4.shown"], "virt_hypervisor": "h-1"},
    }
    found = reached([*started, {"name": "x", "uuid": "u", "host": "h-2"}], groups, hostvars)
    assert [(one["name"], one["host"], one["shown"], one["known"], one["address"]) for one in found] == [
        ("web1", "h-1", "web1", True, SHOWN["web1"]["ansible_host"]),
        ("new", "h-1", "new", False, "192.0.2.7"),
        ("mute", "h-1", "mute", False, ""),
        ("again", "h-1", "again", False, ""),
        ("web4", "h-1", "web4.shown", True, SHOWN["web4.shown"]["ansible_host"]),
        ("x", "h-2", "x", False, ""),
    ]
    assert reached_guests.FilterModule().filters() == {"reached_guests": reached}
