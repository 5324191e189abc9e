"""Who may do what: every action of the catalogue, for users with and without a rule, and ways around a rule."""

from __future__ import annotations

import json
import time
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.corral.virt.roles.console.files.corral_console import offers, order, policy
from ansible_collections.corral.virt.roles.console.files.corral_console.order import BadOrder, Order, Seen
from ansible_collections.corral.virt.roles.console.files.corral_console.policy import BadPolicy, Guest, Request, Who

HOSTS = ("hyper1", "hyper2", "rack1-a", "rack1-b")
TEAM: list[dict[str, t.Any]] = [
    {"who": "group:admins", "may": "*"},
    {"who": "group:web-team", "may": ["start", "shutdown", "reboot", "console"], "guests": "web*"},
    {"who": "group:web-team", "may": "migrate", "guests": "web*", "hosts": "rack1-*"},
    {
        "who": "group:web-team",
        "may": "create",
        "guests": "ci-*",
        "hosts": "rack1-*",
        "at_most": {"memory": "8GiB", "vcpus": 4},
        "arguments": {"image": "debian-*", "cloud_init": "*"},
    },
    {"who": "group:web-team", "may": "rename", "guests": "web*"},
    {"who": "user:front", "may": ["reset", "force_off"], "tags": "front"},
    {"who": "user:keeper", "may": ["drain", "undrain"], "hosts": "rack1-*"},
    {
        "who": "user:disks",
        "may": ["create_volume", "delete_volume"],
        "hosts": "rack1-*",
        "at_most": {"size": "10GiB"},
        "arguments": {"pool": "data", "volume": "team-*"},
    },
    {
        "who": "user:mover",
        "may": ["move_disk", "drain_pool"],
        "hosts": "hyper1",
        "arguments": {"pool": ["old", "fast"], "to": ["fast", "spare-*"]},
    },
    {"who": "user:half", "may": ["drain", "rebalance"], "guests": "web*"},
    {"who": "user:auditor", "may": ["view", "audit"]},
]
RULES = policy.parsed(TEAM, offers.names())
ADMIN, TEAMER, FRONT = Who("alice", ("admins",)), Who("bob", ("web-team",)), Who("front")
KEEPER, HALF, DISKS, NOBODY = Who("keeper"), Who("half"), Who("disks"), Who("eve", ("others",))
MOVER = Who("mover")


VOLUME = {"volume": "team-a", "pool": "data"}
VOLUMES: dict[str, dict[str, t.Any]] = {
    "create_volume": {**VOLUME, "size": "5GiB"},
    "resize_volume": {**VOLUME, "size": "6GiB"},
    "delete_volume": VOLUME,
}


def seen(name: str, host: str = "hyper1", *tags: str) -> Seen:
    return Seen(f"uuid-{name}", name, host, "running", tags)


def ordered(action: str, *guests: Seen, **more: t.Any) -> Order:
    hosts = {"hosts": [more.pop("host")]} if "host" in more else {}
    confirm = more.pop("confirm", len(guests))
    given = {"action": action, "arguments": more, "confirm": confirm, **hosts}
    return order.order(given, tuple(guests), HOSTS)


def refused(who: Who, action: str, *guests: Seen, **more: t.Any) -> str:
    return policy.refusal(RULES, who, ordered(action, *guests, **more).request)


def sample(action: str) -> Order:
    """Some order of an action, with all that it requires."""
    if action == "create":
        return _create()
    if action in ("drain", "undrain"):
        return ordered(action, host="hyper1")
    if action in VOLUMES:
        return ordered(action, host="hyper1", **VOLUMES[action])
    if action == "drain_pool":
        return ordered(action, host="hyper1", pool="old", to=["fast"])
    if action == "rebalance":
        return ordered(action)
    more: dict[str, dict[str, t.Any]] = {
        "rename": {"to": "db2"}, "change": {"memory": "1GiB"}, "add_disk": {"disk": "data"}, "remove_disk": {"disk": "data"},
        "add_nic": {"nic": "eth1"}, "remove_nic": {"nic": "eth1"}, "insert_iso": {"iso": "a.iso"},
        "move_disk": {"disk": "data", "pool": "fast"}, "revert": {"snapshot": "a", "run": True}, "delete_snapshot": {"snapshot": "a"},
    }  # fmt: skip
    return ordered(action, seen("db1"), **more.get(action, {}))


def _create(**more: t.Any) -> Order:
    return order.order({"action": "create", "arguments": {"guest": "ci-1", **more}}, (), HOSTS)


@pytest.mark.parametrize("action", offers.names())
def test_each_action_needs_a_rule(action: str) -> None:
    request = sample(action).request
    assert policy.refusal(RULES, ADMIN, request) == ""
    for who in (NOBODY, TEAMER, FRONT, HALF):
        assert f"user {who.name} may not {action}" in policy.refusal(RULES, who, request)
    assert policy.refusal([], ADMIN, request), "without rules nobody may anything"


@pytest.mark.parametrize("right", policy.RIGHTS)
def test_each_right_needs_a_rule(right: str) -> None:
    request = Request(right, guests=(Guest("db1", (), "hyper1"),) if right in ("view", "console") else ())
    assert not policy.refusal(RULES, ADMIN, request) and policy.refusal(RULES, NOBODY, request)
    assert bool(policy.refusal(RULES, Who("auditor"), request)) == (right not in ("view", "audit"))


def test_a_rule_is_for_its_guests() -> None:
    assert not refused(TEAMER, "start", seen("web1"), seen("web2"))
    assert "not db1" in refused(TEAMER, "start", seen("web1"), seen("db1")), "each guest counts"
    assert not refused(FRONT, "reset", seen("db1", "hyper1", "front", "x"))
    assert "with the tag front" in refused(FRONT, "reset", seen("db1", "hyper1", "back"))


def test_who_may_do_something_to_a_guest_sees_it() -> None:
    assert not policy.refusal(RULES, TEAMER, Request("view", guests=(Guest("web1", (), "hyper1"),)))
    assert policy.refusal(RULES, TEAMER, Request("view", guests=(Guest("db1", (), "hyper1"),)))
    assert not policy.refusal(RULES, TEAMER, Request("view", hosts=("hyper1",)))


def test_a_destination_counts() -> None:
    assert not refused(TEAMER, "migrate", seen("web1"), to="rack1-a")
    assert "not hyper2" in refused(TEAMER, "migrate", seen("web1"), to="hyper2")
    assert "choose one of the hosts rack1-*" in refused(TEAMER, "migrate", seen("web1", "rack1-a"))


def test_a_host_that_is_gone_is_none_where_it_acts() -> None:
    dead = {"gone": ["rack1-b"], "confirm": ["rack1-b"]}
    rules = policy.parsed([{"who": "user:tim", "may": ["create", "migrate", "rename"], "hosts": "rack1-*"}])

    def reason(request: Request) -> str:
        return policy.refusal(rules, Who("tim"), request)

    for more in ({}, dead):
        assert "choose one of the hosts rack1-*" in reason(_create(**more).request)
        assert "choose one of the hosts rack1-*" in reason(_order("migrate", seen("web1"), **more).request)
        assert "not hyper1" in reason(_order("rename", seen("web1"), to="web2", **more).request)
        assert not reason(_create(host="rack1-a", **more).request)
        assert not reason(_order("migrate", seen("web1"), to="rack1-a", **more).request)
        assert not reason(_order("rename", seen("web1", "rack1-a"), to="web2", **more).request)
    assert "not hyper1" in reason(_order("rename", seen("web1"), to="web2", host="rack1-a").request)


def _order(action: str, *guests: Seen, **arguments: t.Any) -> Order:
    return order.order({"action": action, "arguments": arguments}, guests, HOSTS)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, ""),
        ({"image": "debian-12.qcow2", "cloud_init": {"user_data": "x"}}, ""),
        ({"memory": "9GiB"}, "memory at most 8GiB"),
        ({"memory": 8193}, "memory at most 8GiB"),
        ({"memory": {"current": "1GiB", "maximum": "64GiB"}}, "memory at most"),
        ({"memory": None}, "give memory, at most 8GiB"),
        ({"vcpus": {"current": 2, "maximum": 64}}, "vcpus at most 4"),
        ({"vcpus": "5"}, "vcpus at most 4"),
        ({"vcpus": {"current": 1, "topology": {"sockets": 2, "cores": 2}}}, ""),
        ({"vcpus": {"current": 1, "topology": {"sockets": 2, "cores": "3"}}}, "vcpus at most 4"),
        ({"vcpus": {"current": 1, "topology": "sockets=64"}}, "vcpus at most 4"),
        ({"memory": {"maximum": "1GiB", "hotplug_maximum": "64GiB", "slots": 4}}, "memory at most 8GiB"),
        ({"image": "windows"}, "image only debian-*"),
        ({"xml": "<domain/>"}, "not with xml"),
        ({"hostdevs": []}, "not with hostdevs"),
        ({"domain": {"memory": "64GiB"}}, "memory at most 8GiB"),
        ({"options": {"memory": "64GiB"}}, "memory at most 8GiB"),
        ({"options": {"memory": "1GiB"}, "domain": {"xml": "<domain/>"}}, "not with xml"),
        ({"domain": {"tags": ["front"]}}, "not with tags"),
        ({"host": "hyper1"}, "not hyper1"),
        ({"host": None}, "choose one of the hosts"),
        ({"guest": "db1"}, "not db1"),
    ],
)
def test_limits_of_arguments(arguments: dict[str, t.Any], reason: str) -> None:
    asked = {"guest": "ci-1", "host": "rack1-a", "memory": "8GiB", "vcpus": 4, **arguments}
    if "memory" in {**asked.get("domain", {}), **asked.get("options", {})}:
        del asked["memory"]
    request = _create(**{name: value for name, value in asked.items() if value is not None}).request
    found = policy.refusal(RULES, TEAMER, request)
    assert reason in found if reason else not found
    assert not policy.refusal(RULES, ADMIN, request)


# Of a rule as in the guide: what a user of it tries, and why it is refused.
GUIDE = {"image": "debian-*", "disks": "*", "cloud_init": "*", "interfaces": "*"}
ATTACKS: list[tuple[dict[str, t.Any], str]] = [
    ({"disks": [{"name": "system", "source": "/etc/shadow", "format": "raw"}]}, "not with disks.source"),
    ({"disks": [{"name": "system", "source": "/var/lib/libvirt/images/db1-system.qcow2"}]}, "not with disks.source"),
    ({"disks": [{"name": "system"}, {"name": "other", "source": "/etc/shadow"}]}, "not with disks.source"),
    ({"disks": '[{"name": "system", "source": "/etc/shadow"}]'}, "not with disks.source"),
    ({"disks": "[{name: system, source: /etc/shadow}]"}, "not with disks.source"),
    ({"disks": ["name=system source=/etc/shadow"]}, "not with disks.source"),
    ({"domain": {"disks": ["name=system source=/etc/shadow"]}}, "not with disks.source"),
    ({"options": '{"disks": [{"name": "a", "source": "/etc/shadow"}]}'}, "not with disks.source"),
    ({"disks": [{"name": "system", "volume": "default/db1-system.qcow2"}]}, "not with disks.volume"),
    ({"disks": [{"name": "system", "url": "http://169.254.169.254/"}]}, "not with disks.url"),
    ({"disks": [{"name": "system", "network": '{"protocol": "nbd", "socket": "/run/x"}'}]}, "not with disks.network."),
    ({"disks": [{"name": "system", "image": "windows"}]}, "image only debian-*"),
    (
        {"disks": [{"name": "a", "image": "debian-12"}, {"name": "b", "image": "db1-system.qcow2"}]},
        "image only debian-*",
    ),
    ({"disks": [{"name": "system", "pool": "fast"}]}, "not with disks.pool"),
    ({"disks": [{"name": "system", "size": "1000TiB"}]}, "not with disks.size"),
    ({"disks": [{"name": f"d{number}"} for number in range(1000)]}, "at most 16 disks"),
    ({"networks": [{"name": "a", "bridge": "br-payroll"}]}, "not with interfaces.bridge"),
    ({"interfaces": [{"name": "a", "vlan": [7]}]}, "not with interfaces.vlan"),
    ({"serials": []}, "not with serials"),
    ({"interfaces": [{"name": "a", "rom": {"file": "/etc/shadow"}}]}, "not with interfaces.rom.file"),
    ({"cloud_init": {"user_data": "x", "method": "virt_customize"}}, "not with cloud_init.method"),
    ({"memory": {"current": "1GiB", "locked": True}}, "not with memory.locked"),
    ({"memory": {"current": "1GiB", "maximum": "64GiB"}}, "memory at most 8GiB"),
    ({"vcpus": {"current": 1, "cpuset": "0"}}, "not with vcpus.cpuset"),
]


@pytest.mark.parametrize(("arguments", "reason"), ATTACKS)
def test_a_pattern_for_all_disks_makes_nobody_root_on_a_hypervisor(arguments: dict[str, t.Any], reason: str) -> None:
    rule = {"who": "user:tim", "may": "create", "at_most": {"memory": "8GiB", "vcpus": 4}, "arguments": GUIDE}
    rules = policy.parsed([rule, {"who": "user:root", "may": "*"}], offers.names())
    request = _create(**{"memory": "1GiB", "vcpus": 1, **arguments}).request
    assert reason in policy.refusal(rules, Who("tim"), request)
    assert not policy.refusal(rules, Who("root"), request)
    harmless = {"disks": [{"name": "system", "image": "debian-12", "bus": "scsi"}], "interfaces": [{"name": "a"}]}
    made = _create(memory="1GiB", vcpus=1, cloud_init={"user_data": "x"}, **harmless)
    assert not policy.refusal(rules, Who("tim"), made.request)


# Of rules that name no option, and that limit some: what an everyday command may be given.
EVERYDAY: list[tuple[str, dict[str, t.Any], str, str]] = [
    ("add_disk", {"disk": "data"}, "", ""),
    ("add_disk", {"disk": "data", "size": "9GiB"}, "not with disks.size", ""),
    ("add_disk", {"disk": "data", "size": "11GiB"}, "not with disks.size", "disks.size at most 10GiB"),
    ("add_disk", {"disk": "data", "image": "debian-12"}, "not with image", ""),
    ("add_disk", {"disk": "data", "image": "windows"}, "not with image", "image only debian-*"),
    ("add_disk", {"disk": "data", "pool": "fast"}, "not with disks.pool", "not with disks.pool"),
    ("add_disk", {"disk": "data", "source": "/etc/shadow"}, "not with disks.source", "not with disks.source"),
    ("remove_disk", {"disk": "data"}, "", ""),
    ("add_nic", {"nic": "eth1"}, "", ""),
    ("add_nic", {"nic": "eth1", "bridge": "br0"}, "not with interfaces.bridge", "not with interfaces.bridge"),
    ("add_nic", {"nic": "eth1", "vlan": [7]}, "not with interfaces.vlan", "not with interfaces.vlan"),
    ("add_nic", {"nic": "eth1", "mac": "52:54:00:00:00:01"}, "not with interfaces.mac", "not with interfaces.mac"),
    ("remove_nic", {"nic": "eth1"}, "", ""),
    ("insert_iso", {"iso": "/etc/shadow"}, "not with disks.source", "not with disks.source"),
    ("insert_iso", {"iso": "http://192.0.2.1/"}, "not with disks.url", "not with disks.url"),
    ("insert_iso", {"iso": "default/db1-system.qcow2"}, "not with disks.volume", "disks.volume only default/*.iso"),
    ("insert_iso", {"iso": "debian.iso"}, "not with disks.volume", ""),
    ("eject", {}, "", ""),
]


@pytest.mark.parametrize(("action", "arguments", "bare", "limited"), EVERYDAY, ids=str)
def test_an_everyday_command_reaches_no_further_than_the_options_that_it_stands_for(
    action: str, arguments: dict[str, t.Any], bare: str, limited: str
) -> None:
    limits: dict[str, t.Any] = {
        "add_disk": {"arguments": {"image": "debian-*"}, "at_most": {"disks.size": "10GiB"}},
        "insert_iso": {"arguments": {"disks.volume": "default/*.iso"}},
    }
    request = ordered(action, seen("web1"), **arguments).request
    for more, reason in (({}, bare), (limits.get(action, {}), limited)):
        rules = policy.parsed([{"who": "user:tim", "may": action, **more}], offers.names())
        found = policy.refusal(rules, Who("tim"), request)
        assert (reason in found) if reason else not found, found


@pytest.mark.parametrize(
    "disks",
    [
        {"name": "system", "source": "/etc/shadow"},
        [7],
        ["10GiB"],
        ["name"],
        [{"name": "system", "soruce": "/etc/shadow"}],
        [{"name": "system", "Source": "/etc/shadow"}],
        [{"name": "system", "network": "nbd"}],
        [{"name": "system", "nvme": ["x"]}],
    ],
)
def test_what_no_module_reads_is_no_order(disks: t.Any) -> None:
    for arguments in ({"disks": disks}, {"domain": {"disks": disks}}, {"options": {"disks": disks}}):
        with pytest.raises(BadOrder):
            _create(**arguments)


# Limits and patterns of a rule; options of the request; whether they are allowed.
NESTED: list[tuple[dict[str, t.Any], dict[str, t.Any], bool]] = [
    ({"arguments": {"disks": "*", "disks.source": "/srv/iso/*"}}, {"disks": [{"source": "/srv/iso/a.iso"}]}, True),
    ({"arguments": {"disks.source": "/srv/iso/*"}}, {"disks": [{"source": "/srv/iso/a.iso"}]}, True),
    ({"arguments": {"disks.source": "/srv/iso/*"}}, {"disks": [{"source": "/srv/iso/a.iso", "bus": "ide"}]}, False),
    ({"arguments": {"disks.source": "/srv/iso/*"}}, {"disks": [{"source": "/etc/shadow"}]}, False),
    ({"arguments": {"disks.source": "/srv/iso/*"}}, {"disks": [{"source": "/srv/iso/../../etc/shadow"}]}, False),
    ({"arguments": {"disks.source": "/srv/iso/*"}}, {"disks": [{"source": "/srv/iso/$X"}]}, False),
    ({"arguments": {"disks.volume": "iso/*"}}, {"disks": [{"volume": "iso/a.iso"}, {"volume": "default/b"}]}, False),
    ({"arguments": {"networks.network": "team-a-*"}}, {"interfaces": [{"network": "team-a-1"}]}, True),
    ({"arguments": {"interfaces.network": "team-a-*"}}, {"networks": [{"network": "team-b"}]}, False),
    ({}, {"networks": []}, False),
    ({"arguments": {"interfaces.vlan": ["7", "8"]}}, {"interfaces": [{"vlan": [7]}, {"vlan": [8]}]}, True),
    ({"arguments": {"interfaces.vlan": ["7", "8"]}}, {"interfaces": [{"vlan": [7, 9]}]}, False),
    ({"arguments": {"disks.image": "debian-*"}}, {"image": "debian-12"}, True),
    ({"arguments": {"disks.image": "debian-*"}}, {"image": "windows"}, False),
    ({"arguments": {"serial": "*"}}, {"serial": {"type": "pty"}}, True),
    ({"arguments": {"serial": "*"}}, {"serial": {"type": "tcp", "host": "0.0.0.0", "service": 22}}, False),
    ({"arguments": {"graphics": "*"}}, {"graphics": {"type": "vnc", "listen": "127.0.0.1"}}, True),
    ({"arguments": {"graphics": "*"}}, {"graphics": {"type": "vnc", "listen": "0.0.0.0"}}, False),
    ({"at_most": {"disks.size": "100GiB"}, "arguments": {"disks": "*"}}, {"disks": [{"size": 100}]}, True),
    ({"at_most": {"disks.size": 100}, "arguments": {"disks": "*"}}, {"disks": [{"size": "101GiB"}]}, False),
    ({"at_most": {"disks.size": "100GiB"}}, {"disks": [{"size": 60}, {"size": "60GiB"}]}, False),
    ({"at_most": {"disks.size": "100GiB"}}, {"disks": [{"size": 60}, {"size": "40GiB"}]}, True),
    ({"at_most": {"disks.size": "60GiB"}, "arguments": {"disks": "*"}}, {"disks": [{"name": "a"}] * 8}, False),
    ({"at_most": {"disks.size": "60GiB"}, "arguments": {"disks": "*"}}, {"disks": [{"name": "a"}] * 7}, True),
    ({"at_most": {"disks.size": "60GiB"}}, {"disks": [{"size": {"x": 1}}]}, False),
    ({"at_most": {"disks.size": "60GiB"}}, {"disks": [{"size": [1]}]}, False),
    ({"at_most": {"disks.size": "60GiB"}}, {"disks": [{"size": 1e999}]}, False),
    ({"at_most": {"disks": 2}}, {"disks": [{"name": "a"}] * 2}, True),
    ({"at_most": {"disks": 2}}, {"disks": [{"name": "a"}] * 3}, False),
    ({"at_most": {"disks": 20}}, {"disks": [{"name": "a"}] * 20}, True),
    ({"at_most": {"disks": 2}}, {"disks": [{"name": "a", "size": "1GiB"}]}, False),
    (
        {"at_most": {"vcpus": 2}, "arguments": {"numa": "*"}},
        {"vcpus": 1, "numa": {"cells": [{"memory": "9TiB"}]}},
        False,
    ),
    ({"at_most": {"memory": "2GiB"}}, {"memory": {"current": "1GiB", "hotplug_maximum": "3GiB"}}, False),
    ({"at_most": {"memory": "2GiB"}}, {"memory": {"current": "1GiB", "slots": 2}}, True),
    ({"arguments": {"memory": ["1GiB", "2GiB"]}}, {"memory": "2GiB"}, True),
    ({"arguments": {"memory": ["1GiB", "2GiB"]}}, {"memory": "3GiB"}, False),
    ({"arguments": {"memory": ["1GiB"]}}, {"memory": {"maximum": "1GiB"}}, False),
]


@pytest.mark.parametrize(("limits", "arguments", "allowed"), NESTED)
def test_what_limits_a_rule_to_options_in_others(
    limits: dict[str, t.Any], arguments: dict[str, t.Any], allowed: bool
) -> None:
    rules = policy.parsed([{"who": "user:a", "may": "create", **limits}], offers.names())
    request = Request("create", arguments=arguments, bound=tuple(arguments))
    assert (not policy.refusal(rules, Who("a"), request)) is allowed


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ({"arguments": {"disks.soruce": "*"}}, "arguments: no action of the rule has an option disks.soruce"),
        ({"at_most": {"dsiks": 4}}, "at_most: no action of the rule has an option dsiks"),
        ({"arguments": {"bandwidth": "*"}}, "arguments: no action of the rule has an option bandwidth"),
        ({"arguments": {"disks.size": "*"}}, "disks.size is an amount without a limit; write at_most: {disks.size"),
        ({"arguments": {"memory": "*"}}, "memory is an amount without a limit"),
        ({"arguments": {"vcpus.maximum": "?"}}, "vcpus.maximum is an amount without a limit"),
        ({"arguments": {"image": "a", "disks.image": "b"}}, "disks.image is the same as image; give one of them"),
        ({"at_most": {"networks": 1, "interfaces": 2}}, "interfaces is the same as networks; give one of them"),
    ],
)
def test_a_rule_that_limits_nothing_is_refused(limits: dict[str, t.Any], problem: str) -> None:
    rule = {"who": "user:a", "may": ["create", "start", "view"], **limits}
    with pytest.raises(BadPolicy) as error:
        policy.parsed([rule], offers.names())
    assert problem in str(error.value)


MANY: list[dict[str, t.Any]] = [{} for _number in range(2000)]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"disks": MANY}, "disks: has 2000 entries"),
        ({"disks": ",".join(["a=b"] * 2000)}, "disks: a text of more than 4096 characters must be JSON"),
        ({"disks": f"[{'{a: b}, ' * 1000}]"}, "disks: a text of more than 4096 characters must be JSON"),
        ({"disks": "[" * 20_000}, "disks: a text of more than 4096 characters must be JSON"),
        ({"disks": json.dumps(MANY)}, "disks: has 2000 entries"),
        ({"options": json.dumps({"disks": MANY})}, "options: has 2000 entries"),
        ({"domain": {"disks": [{"name": "a", "network": {"hosts": MANY}}]}}, "domain: has 2002 entries"),
        ({"disks": [json.dumps({"network": json.dumps({"hosts": MANY})})]}, "disks: has 2002 entries"),
        ({"numa": {"cells": [{"distances": [{}] * 100}] * 100}}, "numa: has 10101 entries"),
        ({"vcpus": {"current": 1, "pinning": MANY}}, "vcpus: has 2001 entries"),
    ],
)
def test_a_request_that_takes_seconds_to_read_is_refused_at_once(arguments: dict[str, t.Any], problem: str) -> None:
    began = time.process_time()
    with pytest.raises(BadOrder, match=problem):
        _create(**arguments)
    assert time.process_time() - began < 1


def test_what_is_judged_is_what_is_done() -> None:
    """No text is left in the job that a module would read as another value than the policy did."""
    made = _create(disks=["name=system size=10"], domain={"memory": {"current": "1GiB"}, "graphics": '{"type": "vnc"}'})
    assert made.values["disks"] == [{"name": "system", "size": "10"}]
    assert made.values["domain"] == {"memory": {"current": "1GiB"}, "graphics": {"type": "vnc"}}


def test_each_word_of_a_list_counts_however_it_is_written() -> None:
    rules = policy.parsed(
        [{"who": "user:tim", "may": ["create", "change"], "tags": "front", "arguments": {"tags": "front*"}}]
    )
    for tags, allowed in {"front": True, "front,front-2": True, "front,prod": False, "front, prod": False}.items():
        for written in (tags, tags.split(",")):
            made = _create(domain={"tags": written}).request
            changed = _order("change", seen("web1", "hyper1", "front"), domain={"tags": written}).request
            for request in (made, changed):
                assert (not policy.refusal(rules, Who("tim"), request)) == allowed, written


@pytest.mark.parametrize(
    ("action", "arguments", "where"),
    [
        ("create", {"memory": {"maximum": "64GiB"}, "domain": {"memory": {"current": "1GiB"}}}, "memory"),
        ("create", {"options": {"vcpus": {"maximum": 64}}, "domain": {"vcpus": {"current": 1}}}, "vcpus"),
        ("create", {"host": "rack1-a", "domain": {"host": "hyper1"}}, "host"),
        ("create", {"options": {"host": "hyper1"}}, "host"),
        ("create", {"domain": {"name": "db1"}}, "name"),
        ("create", {"domain": {"renamed_from": "db1"}}, "renamed_from"),
        ("migrate", {"to": "rack1-a", "options": {"dest": "hyper1"}}, "options"),
        ("change", {"memory": {"maximum": "64GiB"}, "domain": {"memory": {"current": "1GiB"}}}, "memory"),
    ],
)
def test_an_option_is_said_at_one_place(action: str, arguments: dict[str, t.Any], where: str) -> None:
    """Playbooks merge what is said of a guest: a rule would see one part of it."""
    given = {"action": action, "arguments": {"guest": "ci-1", **arguments}}
    with pytest.raises(BadOrder) as error:
        order.order(given, () if action == "create" else (seen("ci-1"),), HOSTS)
    assert list(error.value.errors) == [where]
    assert _create(domain={"image": "debian-12.qcow2"}).request.arguments["image"], "but at any of them"


def test_options_of_a_module_need_a_rule_that_names_them() -> None:
    assert "not with dest_uri" in refused(TEAMER, "migrate", seen("web1"), to="rack1-a", options={"dest_uri": "x"})
    assert "not with bandwidth" in refused(TEAMER, "migrate", seen("web1"), to="rack1-a", bandwidth=1)


def test_a_limit_is_none_for_what_a_change_leaves_alone() -> None:
    rules = policy.parsed(
        [{"who": "user:tim", "may": "change", "at_most": {"memory": "2GiB"}, "arguments": {"title": "*"}}]
    )
    reasons = [
        policy.refusal(rules, Who("tim"), ordered("change", seen("web1"), **arguments).request)
        for arguments in ({"title": "Shop"}, {"memory": "2GiB"}, {"memory": "3GiB"}, {"vcpus": 9})
    ]
    assert reasons[:2] == ["", ""] and "memory at most 2GiB" in reasons[2] and "not with vcpus" in reasons[3]


def test_a_name_to_be_counts() -> None:
    assert not refused(TEAMER, "rename", seen("web1"), to="web2")
    assert "not db1" in refused(TEAMER, "rename", seen("web1"), to="db1")


def test_a_rule_for_some_guests_is_none_for_whole_hosts() -> None:
    assert not refused(KEEPER, "drain", host="rack1-a") and "not hyper1" in refused(KEEPER, "drain", host="hyper1")
    assert "the rule is for some guests" in refused(HALF, "drain", host="hyper1")
    assert "acts on all hosts" in refused(HALF, "rebalance")


@pytest.mark.parametrize(
    ("action", "more", "why"),
    [
        ("create_volume", {}, ""),
        ("create_volume", {"disk_format": "raw"}, ""),
        ("create_volume", {"size": "11GiB"}, "size at most 10GiB"),
        ("create_volume", {"size": "lots"}, "give size, at most 10GiB"),
        ("create_volume", {"volume": "web1-data.qcow2"}, "volume only team-*"),
        ("create_volume", {"volume": "team-/../web1-data.qcow2"}, "volume only team-*"),
        ("create_volume", {"pool": "default"}, "pool only data"),
        ("create_volume", {"pool": None}, "pool only data"),
        ("create_volume", {"host": "hyper1"}, "only hosts rack1-*, not hyper1"),
        ("resize_volume", {}, "may not resize_volume"),
    ],
)
def test_a_volume_is_judged_by_its_name_its_pool_and_its_size(action: str, more: dict[str, t.Any], why: str) -> None:
    given = {**VOLUMES[action], "host": "rack1-a", **more}
    found = refused(DISKS, action, **given)
    assert why in found if why else not found, found


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, ""),
        ({"to": "fast,spare-1"}, ""),
        ({"to": ["fast", "default"]}, "to only fast spare-*"),
        ({"pool": "default"}, "pool only old fast"),
        ({"host": "rack1-a"}, "only hosts hyper1, not rack1-a"),
    ],
)
def test_a_pool_is_drained_where_a_rule_names_it_and_where_its_disks_go(more: dict[str, t.Any], why: str) -> None:
    found = refused(MOVER, "drain_pool", **{"host": "hyper1", "pool": "old", "to": ["fast"], **more})
    assert why in found if why else not found, found


def test_a_disk_moves_to_a_pool_that_a_rule_names() -> None:
    assert not refused(MOVER, "move_disk", seen("db1"), disk="data", pool="fast")
    assert "pool only old fast" in refused(MOVER, "move_disk", seen("db1"), disk="data", pool="default")
    assert "only hosts hyper1" in refused(MOVER, "move_disk", seen("db1", "rack1-a"), disk="data", pool="fast")


def test_who_may_take_a_snapshot_may_not_go_back_to_it() -> None:
    """Going back and deleting lose something, so a rule names them; their number of guests is confirmed, too."""
    rule = {"who": "user:x", "may": ["snapshot"], "guests": "web*"}
    rules = policy.parsed(
        [rule, {"who": "user:y", "may": ["revert", "delete_snapshot"], "guests": "web*"}], offers.names()
    )
    taken = ordered("snapshot", seen("web1"), seen("web2"), snapshot="a", memory=True).request
    assert not policy.refusal(rules, Who("x"), taken) and policy.refusal(rules, Who("y"), taken)
    for action, more in (("revert", {"run": True, "confirm_snapshot": "a"}), ("delete_snapshot", {"bandwidth": 50})):
        request = ordered(action, seen("web1"), snapshot="a", **more).request
        assert policy.refusal(rules, Who("x"), request) and not policy.refusal(rules, Who("y"), request)
        assert policy.refusal(rules, Who("y"), ordered(action, seen("db1"), snapshot="a", **more).request)
        with pytest.raises(BadOrder, match="number of guests"):
            ordered(action, seen("web1"), snapshot="a", confirm=2, **more)
    with pytest.raises(BadOrder, match="one guest at a time"):
        ordered("revert", seen("web1"), seen("web2"), snapshot="a", run=True)
    limited = policy.parsed([{**rule, "arguments": {"memory": "false"}}], offers.names())
    assert "memory only" in policy.refusal(limited, Who("x"), taken)


@pytest.mark.parametrize("named", [{"pool": "*"}, {"volume": "*"}, {"*": "*"}])
def test_a_rule_must_name_volumes_and_pools(named: dict[str, str]) -> None:
    """A volume may be another guest's disk."""
    rule = {"who": "user:x", "may": ["create_volume"], "at_most": {"size": "10GiB"}, "arguments": named}
    request = ordered("create_volume", host="hyper1", **VOLUMES["create_volume"]).request
    assert "would allow it" in policy.refusal(policy.parsed([rule], offers.names()), Who("x"), request)


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"action": "site"}, "action"),
        ({"action": "console"}, "action"),
        ({"action": ["start"]}, "action"),
        ({"action": "start"}, "guests"),
        ({"action": "start", "guests": ["uuid-gone"]}, "guests"),
        ({"action": "query", "arguments": {"out": "/etc/passwd"}}, "action"),
        ({"action": "start", "arguments": {"virt_group": "all"}}, "virt_group"),
        ({"action": "start", "arguments": {"ansible_connection": "local"}}, "ansible_connection"),
        ({"action": "start", "arguments": {"virt_uri": "x"}}, "virt_uri"),
        ({"action": "migrate", "arguments": {"to": "evil.example"}}, "to"),
        ({"action": "migrate", "arguments": {"to": "169.254.169.254"}}, "to"),
        ({"action": "create", "arguments": {"guest": "../x", "host": "-oProxyCommand=x"}}, "guest"),
        ({"action": "create", "arguments": {"guest": "x", "host": "localhost"}}, "host"),
        ({"action": "drain", "hosts": ["hyper1", "hyper2"]}, "host"),
        ({"action": "drain", "hosts": ["other"]}, "host"),
        ({"action": "create", "arguments": {"guest": "x", "vcpu": 2}}, "vcpu"),
        ({"action": "shutdown", "arguments": {"wait_timeout": 0}}, "wait_timeout"),
    ],
)
def test_what_cannot_be_done_is_said_by_argument(given: dict[str, t.Any], where: str) -> None:
    guests = (seen("web1"),) if given.get("action") in ("migrate", "shutdown") else ()
    if where in ("virt_group", "ansible_connection", "virt_uri"):
        guests = (seen("web1"),)
    with pytest.raises(BadOrder) as error:
        order.order(given, guests, HOSTS)
    assert where in error.value.errors, error.value.errors


def test_a_problem_is_told_whole() -> None:
    given = {"guest": "a: b; write -e c", "host": "rack1-a", "domain": {"vcpu": 2, "memori": "1GiB"}}
    with pytest.raises(BadOrder) as error:
        order.order({"action": "create", "arguments": given}, (), HOSTS)
    assert error.value.errors["guest"].startswith("'a: b; write -e c' is not a valid name; use letters, ")
    assert error.value.errors["domain"] == (
        "vcpu: virt_domain has no such option; did you mean vcpus?; "
        "memori: virt_domain has no such option; did you mean memory?"
    )


def test_the_console_tells_no_remedy_of_a_command_line() -> None:
    with pytest.raises(BadOrder) as error:
        order.order({"action": "create"}, (), HOSTS)
    assert error.value.errors == {"guest": "create requires this argument"}


def test_what_is_destructive_is_confirmed_and_a_preview_is_not() -> None:
    for confirm in (None, True, 1, "2"):
        with pytest.raises(BadOrder, match="number of guests: 2"):
            ordered("purge", seen("a1"), seen("a2"), confirm=confirm)
    assert ordered("purge", seen("a1"), seen("a2"), confirm=2).guests
    assert order.order({"action": "purge", "check": True}, (seen("a1"),), HOSTS).check
    assert ordered("delete_volume", host="hyper1", confirm=None, **VOLUME).hosts, "it is named exactly"


def test_a_name_that_is_taken_is_told_only_to_whom_the_policy_allows_the_rest() -> None:
    taken = order.Others(frozenset({"ci-1", "web9"}))
    made = order.order({"action": "create", "arguments": {"guest": "ci-1"}}, (), HOSTS, taken)
    renamed = order.order({"action": "rename", "arguments": {"to": "web9"}}, (seen("web1"),), HOSTS, taken)
    assert (made.unavailable, renamed.unavailable, _create().unavailable) == ("guest", "to", "")


def test_a_copy_is_of_a_guest_that_the_user_may_view_and_has_its_tags() -> None:
    given = {"action": "create", "arguments": {"guest": "ci-1", "domain": {"clone_of": "db1"}}}
    with pytest.raises(BadOrder, match="clone_of: there is no guest db1"):
        order.order(given, (), HOSTS, order.Others(originals=(seen("web1"),)))
    made = order.order(given, (), HOSTS, order.Others(originals=(seen("db1", "hyper1", "prod"),)))
    assert made.request.guests == (Guest("ci-1", ("prod",), ""),), "else a rule for other tags would allow it"


def test_what_a_job_holds() -> None:
    move = ordered("migrate", seen("web1", "hyper1"), to="hyper2")
    assert (move.exclusive, move.shared) == (("guest:uuid-web1",), ("host:hyper1", "host:hyper2"))
    assert ordered("drain", host="hyper1").exclusive == ("host:hyper1",)
    assert ordered("rebalance").exclusive == tuple(f"host:{host}" for host in HOSTS)
    assert _create().exclusive == ("name:ci-1",)
    made = ordered("resize_volume", host="hyper1", **VOLUMES["resize_volume"])
    assert (made.exclusive, made.shared) == (("volume:hyper1/data/team-a",), ("host:hyper1",))


def test_secrets_are_known() -> None:
    assert _create(cloud_init={"user_data": "x"}).secret == ("cloud_init",)


def test_all_that_is_wrong_with_a_policy_is_said() -> None:
    wrong: list[t.Any] = [
        "x",
        {"who": "alice", "may": "*"},
        {"who": "user:a", "may": []},
        {"who": "user:a", "may": "strat"},
        {"who": "user:a", "may": "*", "guest": "x"},
        {"who": "user:a", "may": "*", "guests": [1]},
        {"who": "user:a", "may": "*", "at_most": {"memory": "much"}, "arguments": {"image": 1}},
    ]
    with pytest.raises(BadPolicy) as error:
        policy.parsed(wrong, offers.names())
    for part in (
        "rule 1: must be",
        "rule 2: who",
        "rule 3: may",
        "rule 4: may: there is no action strat",
        "rule 5: guest is",
    ):
        assert part in str(error.value)
    for part in ("rule 6: guests", "rule 7: at_most: memory", "rule 7: arguments: image"):
        assert part in str(error.value)
    with pytest.raises(BadPolicy, match="a list of rules"):
        policy.parsed({"who": "user:a"})


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"who": "guest:a"}, "who must be user:NAME or group:NAME"),
        ({"who": "user:"}, "who must be user:NAME or group:NAME"),
        ({"who": ["user:a"]}, "who must be user:NAME or group:NAME"),
        ({"may": None}, "may is required"),
        ({"may": ""}, "may is required"),
        ({"may": 7}, "may must be a text or a list of texts"),
        ({"may": ["start", ""]}, "may must be a text or a list of texts"),
        ({"may": ["start", ["*"]]}, "may must be a text or a list of texts"),
        ({"guests": []}, "guests must be a text or a list of texts, and not empty"),
        ({"tags": ""}, "tags must be a text or a list of texts, and not empty"),
        ({"hosts": {"a": 1}}, "hosts must be a text or a list of texts"),
        ({"at_most": ["memory"]}, "at_most must be a dictionary"),
        ({"arguments": "image"}, "arguments must be a dictionary"),
        ({"at_most": {"vcpus": True}}, "at_most: vcpus must be a number or a size"),
        ({"arguments": {"image": []}}, "arguments: image must be a pattern"),
    ],
)
def test_a_rule_that_says_nothing_clear_is_none(more: dict[str, t.Any], problem: str) -> None:
    with pytest.raises(BadPolicy, match=problem):
        policy.parsed([{"who": "user:a:b", "may": "start", **more}], offers.names())
    assert policy.parsed([{"who": "user:a:b", "may": "start"}], offers.names())[0].who == "user:a:b"


WEB1, ON_RACK = Guest("web1", ("front",), "hyper1"), Guest("web2", ("back",), "rack1-a")
# The rule's limits, the request; whether it is allowed.
WHERE: list[tuple[dict[str, t.Any], Request, bool]] = [
    ({}, Request("rebalance", everywhere=True), True),
    ({"tags": "front"}, Request("rebalance", everywhere=True), False),
    ({"hosts": "hyper1"}, Request("rebalance", everywhere=True), False),
    ({"tags": "front"}, Request("drain", hosts=("hyper1",)), False),
    ({"tags": "front"}, Request("view", hosts=("hyper1",)), True),
    ({"guests": "web*"}, Request("audit"), True),
    ({"hosts": "hyper1"}, Request("audit"), True),
    ({"hosts": "hyper1"}, Request("users"), True),
    ({"hosts": "hyper1"}, Request("view"), False),
    ({"hosts": "hyper1"}, Request("start", guests=(WEB1,)), True),
    ({"hosts": "hyper1"}, Request("start", guests=(ON_RACK,)), False),
    ({"hosts": "hyper1"}, Request("start", guests=(WEB1, ON_RACK)), False),
    ({"hosts": "rack1-*"}, Request("start", guests=(WEB1, ON_RACK), hosts=("rack1-a",)), True),
    ({"tags": ["fr*", "x"]}, Request("start", guests=(WEB1,)), True),
    ({"tags": "front"}, Request("start", guests=(WEB1, ON_RACK)), False),
]


@pytest.mark.parametrize(("limits", "request_", "allowed"), WHERE)
def test_what_limits_a_rule_to_places(limits: dict[str, t.Any], request_: Request, allowed: bool) -> None:
    rules = policy.parsed([{"who": "user:a", "may": "*", **limits}])
    assert (not policy.refusal(rules, Who("a"), request_)) is allowed


# Limits of the rule, arguments of the request that are all options of a module; whether they are allowed.
HOW: list[tuple[dict[str, t.Any], dict[str, t.Any], bool]] = [
    ({}, {}, True),
    ({}, {"disks": []}, False),
    ({"arguments": {"*": "*"}}, {"disks": [{}]}, True),
    ({"arguments": {"*": "a*"}}, {"title": "ab", "machine": "a"}, True),
    ({"arguments": {"*": "a*"}}, {"title": "ab", "machine": "b"}, False),
    ({"arguments": {"*": "a*"}}, {"title": "ab", "image": "a"}, False),
    ({"arguments": {"*": "a*", "image": "b"}}, {"title": "a", "image": "b"}, True),
    ({"arguments": {"image": ["a", "b"]}}, {"image": ["a", "b"]}, True),
    ({"arguments": {"image": "a"}}, {"image": ["a", "b"]}, False),
    ({"arguments": {"cpu": "?*"}}, {"cpu": {"model": "x"}}, False),
    ({"arguments": {"cpu": "?*"}}, {"cpu": None}, False),
    ({"arguments": {"autostart": "true"}}, {"autostart": True}, True),
    ({"arguments": {"autostart": "true"}}, {"autostart": False}, False),
    ({"at_most": {"vcpus": 4}}, {"vcpus": 4}, True),
    ({"at_most": {"vcpus": 4}}, {"vcpus": " 4 "}, True),
    ({"at_most": {"vcpus": 4}}, {"vcpus": 5}, False),
    ({"at_most": {"vcpus": 4}}, {"vcpus": True}, False),
    ({"at_most": {"vcpus": 4}}, {"vcpus": {}}, False),
    ({"at_most": {"vcpus": 4}}, {"vcpus": {"current": 1, "maximum": []}}, False),
    ({"at_most": {"vcpus": 4}}, {"vcpus": [1]}, False),
    ({"at_most": {"memory": "2GiB"}}, {"memory": "2048MiB"}, True),
    ({"at_most": {"memory": "2GiB"}}, {"memory": "2147483649B"}, False),
    ({"at_most": {"memory": "2GiB"}}, {"memory": 2048}, True),
    ({"at_most": {"memory": 2048}}, {"memory": "2.5GiB"}, False),
    ({"at_most": {"memory": "2GiB"}}, {"memory": "all"}, False),
    ({"at_most": {"memory": "2GiB", "vcpus": 4}}, {"memory": "1GiB"}, False),
]


@pytest.mark.parametrize(("limits", "arguments", "allowed"), HOW)
def test_what_limits_a_rule_to_arguments(limits: dict[str, t.Any], arguments: dict[str, t.Any], allowed: bool) -> None:
    rules = policy.parsed([{"who": "user:a", "may": ["create"], **limits}])
    request = Request("create", arguments=arguments, bound=tuple(arguments))
    assert (not policy.refusal(rules, Who("a"), request)) is allowed


def test_each_limit_of_a_change_counts() -> None:
    rules = policy.parsed([{"who": "user:a", "may": "change", "at_most": {"vcpus": 4, "memory": "2GiB"}}])
    change = Request("change", arguments={"memory": "3GiB"}, bound=("memory",), partial=True)
    assert policy.refusal(rules, Who("a"), change).endswith("memory at most 2GiB")


def test_options_in_dictionaries_are_options() -> None:
    """However they are spread over the arguments, each must be allowed."""
    for more in (
        {"hostdevs": [], "options": {"title": "x"}},
        {"options": {"hostdevs": []}, "domain": {"title": "x"}},
        {"domain": {"hostdevs": []}, "options": {"title": "x"}},
    ):
        assert set(_create(**more).request.bound) >= {"hostdevs", "title"}


def test_a_guest_that_is_made_counts_with_its_tags_and_its_host() -> None:
    request = _create(host="rack1-a", domain={"tags": ["front"]}).request
    assert request.guests == (Guest("ci-1", ("front",), "rack1-a"),) and request.hosts == ("rack1-a",)
    assert _create().request.guests == (Guest("ci-1", (), ""),) and _create().request.hosts == ("",)
    renamed = ordered("rename", seen("web1", "hyper1", "front"), to="web2").request
    assert renamed.guests == (Guest("web1", ("front",), "hyper1"), Guest("web2", ("front",), "hyper1"))


def test_an_order_is_what_was_asked() -> None:
    made = _create(title="x", wait_timeout="5")
    assert (made.action, made.creates, made.guests, made.check) == ("create", "ci-1", (), False)
    assert made.values == {"guest": "ci-1", "title": "x", "wait_timeout": 5} and set(made.arguments) == set(made.values)
    moved = ordered("migrate", seen("web1"), to="hyper2")
    assert (moved.creates, moved.hosts, moved.guests) == ("", ("hyper2",), (seen("web1"),))
    assert ordered("drain", host="hyper1", confirm=None).guests == () and ordered("drain", host="hyper1").hosts == (
        "hyper1",
    )
    assert order.order({"action": "drain", "hosts": ["hyper1"]}, (seen("web1"),), HOSTS).guests == ()


def test_one_guest_at_a_time() -> None:
    with pytest.raises(BadOrder, match="migrate acts on one guest at a time"):
        ordered("migrate", seen("web1"), seen("web2"), to="hyper2")
    both = (seen("web1", "hyper1"), seen("web1", "hyper2"))  # copies of one that migrates
    assert order.order({"action": "migrate", "arguments": {"to": "hyper2"}}, both, HOSTS).guests == both
    with pytest.raises(BadOrder, match="there is no guest uuid-web9"):
        order.order({"action": "start", "guests": ["uuid-web1", "uuid-web9"]}, (seen("web1"),), HOSTS)


@pytest.mark.parametrize("confirm", [None, True, 1.0, "1", 0, 2, [1]])
def test_only_the_very_number_of_guests_confirms(confirm: object) -> None:
    with pytest.raises(BadOrder, match="confirm with the number of guests: 1"):
        ordered("purge", seen("web1"), confirm=confirm)
    assert ordered("purge", seen("web1"), confirm=1).action == "purge"


def test_all_that_are_missing_are_named() -> None:
    with pytest.raises(BadOrder, match="there is no guest uuid-web8, uuid-web9"):
        order.order({"action": "start", "guests": ["uuid-web9", "uuid-web1", "uuid-web8"]}, (seen("web1"),), HOSTS)
    with pytest.raises(BadOrder, match="there is no hypervisor hyper8, hyper9"):
        ordered("create", guest="ci-1", gone=["hyper9", "hyper8"], confirm=["hyper9", "hyper8"])
    many = [f"g{number:02}" for number in range(12)]
    with pytest.raises(BadOrder, match=r"there is no guest g00, g01.*, g09 and 2 more"):
        order.order({"action": "start", "guests": many}, (seen("web1"),), HOSTS)


@pytest.mark.parametrize("given", [None, [1], [{}], {"uuid": "x"}, [{"uuid": "u", "name": "n", "host": "h"}]])
def test_guests_that_cannot_be_read(given: object) -> None:
    with pytest.raises(BadOrder, match="cannot be read"):
        order.seen_guests(given)


def test_guests_as_the_web_process_sends_them() -> None:
    card = {"uuid": "u", "name": "web1", "host": "hyper1", "state": "running", "tags": ["front"], "vcpus": 2}
    assert order.seen_guests([card]) == (Seen("u", "web1", "hyper1", "running", ("front",)),)


def test_rules_go_to_the_web_process_and_back() -> None:
    said = json.loads(json.dumps([rule.written() for rule in RULES]))
    assert policy.parsed(said, offers.names()) == RULES


@given(st.text(), st.text(), st.lists(st.text(), max_size=2))
def test_no_name_is_a_way_around(user: str, guest: str, groups: list[str]) -> None:
    """A user or a guest may be called anything; only the rules' own words count."""
    rules = policy.parsed([{"who": "user:root", "may": "*"}, {"who": "group:web", "may": "start", "guests": "web1"}])
    request = Request("start", guests=(Guest(guest, (), "hyper1"),))
    allowed = not policy.refusal(rules, Who(user, tuple(groups)), request)
    assert allowed == (user == "root" or ("web" in groups and guest == "web1"))
