"""Every rule of networks on both sides: what is refused or noted, and the nearest that is not; of pools, what breaks each."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._domain.model_address import HostSubnet
from ansible_collections.corral.virt.plugins.module_utils._network import files_neighbours, plan_network, xml_network
from ansible_collections.corral.virt.plugins.module_utils._network.model_network import (
    NETWORK_KIND,
    Neighbour,
    NetworkHost,
    RawNetworkHost,
    User,
)
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Edited, Found, Spec
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import (
    Case,
    Define,
    NounPlan,
    NounStep,
    Rule,
    Start,
    Stop,
    Update,
)
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_pool
from ansible_collections.corral.virt.plugins.module_utils._storage.model_pool import PoolHost, PoolUser

Values = dict[str, t.Any]
THERE = Found("u", persistent=True, autostart=False, xml="<network/>")
ACTIVE = Found("u", persistent=True, autostart=False, xml="<network/>", live_xml="<network/>")
ALL = ("mode", "ips", "bridge", "interfaces", "pf", "nat", "vlan", "portgroups", "virtualport", "bandwidth")


def told(
    after: Values,
    *changed: str,
    rules: t.Sequence[Rule] = plan_network.RULES,
    found: Found | None = None,
    before: Values | None = None,
    running: Values | None = None,
    live: Values | None = None,
    host: NetworkHost | PoolHost | None = None,
    steps: t.Sequence[str] = (),
    state: str = "active",
    force: bool = False,
    own: t.Mapping[str, t.Any] | None = None,
    recent: tuple[tuple[str, tuple[int, int]], ...] = (),
) -> list[str]:
    """What the rules say of a new network; or of one that is there, after those places `changed`."""
    kinds: dict[str, t.Any] = {"start": Start, "stop": Stop}
    made: list[NounStep] = [kinds[step](NETWORK_KIND.ref("lab")) for step in steps if step in kinds]
    made += [Define(NETWORK_KIND.ref("lab"), "") for step in steps if step == "define"]
    made += [
        Update(NETWORK_KIND.ref("lab"), "add", "", place[len("add ") :], 0, "") for place in steps if "add " in place
    ]
    changes = tuple(Change(where, "a", "b") for where in changed)
    stored = Edited("", changes, before if before is not None else {"mode": "nat"}, after, recent=recent)
    runs = None if running is None else Edited("", changes, running, after)
    case = Case(Spec("lab", state, force=force, own=own or {}), found, host, stored, runs, live or running)
    plan = NounPlan(tuple(made))
    return [str(finding) for rule in rules for finding in rule(case, plan)]


IP4 = {"address": "192.168.150.1", "prefix": 24}
NAT: Values = {"mode": "nat", "ips": [IP4]}
BRIDGED: Values = {"mode": "bridge", "bridge": "br0"}
OF = "of network lab:"


@pytest.mark.parametrize(
    ("after", "problem"),
    [
        *(({"mode": mode}, f"ips {OF} mode {mode} requires an address") for mode in ("nat", "route", "open")),
        ({"mode": "isolated"}, ""),
        *(({"mode": mode, "ips": [IP4]}, "") for mode in ("nat", "route", "open")),
        ({"mode": "bridge"}, f"bridge {OF} mode bridge requires bridge or interfaces"),
        (BRIDGED, ""),
        ({"mode": "bridge", "interfaces": ["eth1"]}, ""),
        *(
            ({"mode": mode}, f"interfaces {OF} mode {mode} requires interfaces or pf")
            for mode in ("passthrough", "hostdev")
        ),
        *(({"mode": mode}, f"interfaces {OF} mode {mode} requires interfaces") for mode in ("private", "vepa")),
        ({"mode": "hostdev", "pf": "eth1"}, ""),
        (
            {**BRIDGED, "interfaces": ["eth1"]},
            f"bridge {OF} it and interfaces are mutually exclusive; omit one of the two",
        ),
        (
            {"mode": "hostdev", "interfaces": ["eth1"], "pf": "eth2"},
            f"pf {OF} it and interfaces are mutually exclusive; omit one of the two",
        ),
        *(
            ({**NAT, f"nat.{what}_{end}": 5}, f"nat.{what}_start {OF} it requires nat.{what}_end, and vice versa")
            for what in ("address", "port")
            for end in ("start", "end")
        ),
        ({**NAT, "nat.port_start": 5, "nat.port_end": 6}, ""),
    ],
    ids=str,
)
def test_what_a_mode_requires(after: Values, problem: str) -> None:
    wanted = [problem] if problem else []
    assert told(after) == wanted
    assert told(after, found=THERE) == [], "what nobody touches is left alone"
    assert told(after, state="absent") == []
    where = next((place for place in ALL if place in after or any(key.startswith(place) for key in after)), "mode")
    assert told(after, "mode", *(["nat"] if "nat" in problem else [where]), found=THERE) == wanted


@pytest.mark.parametrize("changed", ["mode", "ips", "ips[192.168.150.1]", "bridge", "interfaces[eth1]", "pf"])
def test_any_change_of_its_place_asks_again(changed: str) -> None:
    assert told({"mode": "nat"}, changed, found=THERE) == [f"ips {OF} mode nat requires an address"]
    assert told({"mode": "nat"}, "mtu", found=THERE) == []


BRIDGES = NetworkHost(frozenset({"br1"}))
MISSING = (
    "cannot put network lab on bridge br0: this host has no such bridge; create it with role corral.virt.bridge, or "
    "name one that exists"
)


def test_a_bridge_of_the_host_must_be_there() -> None:
    assert told(BRIDGED, host=BRIDGES) == [MISSING]
    for changed in ("mode", "bridge"):
        assert told(BRIDGED, changed, found=THERE, host=BRIDGES) == [MISSING]
    assert told(BRIDGED, "mtu", found=THERE, host=BRIDGES) == []
    assert told({**BRIDGED, "virtualport": "openvswitch"}, host=BRIDGES) == []
    assert told({**BRIDGED, "bridge": "br1"}, host=BRIDGES) == []
    assert told(BRIDGED, host=NetworkHost()) == [], "nobody can tell from here"
    assert told({"mode": "bridge", "interfaces": ["eth1"]}, host=BRIDGES) == []
    lost = (
        "cannot put network lab on bridge br1: libvirt made it for this network, and removes it when the network stops; "
        "name another bridge"
    )
    after: Values = {**BRIDGED, "bridge": "br1"}
    there: Values = {"found": ACTIVE, "host": BRIDGES}
    assert told(after, "mode", live={"mode": "nat", "bridge": "br1"}, **there) == [lost]
    assert told(after, "mode", live={"mode": "nat", "bridge": "virbr0"}, **there) == []
    assert told(after, "bridge", live={"mode": "bridge", "bridge": "br1"}, **there) == []


TAKEN = "choose another, or set mode: bridge to use it as it is"


def test_a_bridge_that_libvirt_makes_is_nobody_elses() -> None:
    after, others = {**NAT, "bridge": "virbr1"}, NetworkHost(neighbours=(Neighbour("other", False, "virbr1", ()),))
    refused = [f"cannot create bridge virbr1 for network lab: network other has one with this name; {TAKEN}"]
    assert told(after, host=others) == refused
    for changed in ("mode", "bridge"):
        assert told(after, changed, found=THERE, host=others) == refused
    assert told(after, "mtu", found=THERE, host=others) == []
    assert told({**after, "bridge": "virbr2"}, host=others) == [] == told(NAT, host=others)
    here = NetworkHost(frozenset({"virbr1"}))
    taken = [f"cannot create bridge virbr1 for network lab: this host already has one with this name; {TAKEN}"]
    assert told(after, host=here) == taken
    assert told(after, "mode", found=ACTIVE, host=here, running={"mode": "nat", "bridge": "virbr1"}) == []
    assert told(after, "mode", found=ACTIVE, host=here, running={"mode": "nat", "bridge": "virbr9"}) == taken
    assert told(after, "mode", found=ACTIVE, host=here, running={"mode": "bridge", "bridge": "virbr1"}) == taken
    off: Values = {"found": ACTIVE, "host": here, "state": "inactive"}
    assert told(after, "mode", **off, live={"mode": "nat", "bridge": "virbr1"}) == [], "it goes with the network"


def test_of_two_networks_with_the_same_addresses_one_runs() -> None:
    def at(subnet: str, active: bool = True) -> NetworkHost:
        return NetworkHost(neighbours=(Neighbour("other", active, None, (subnet,)),))

    refused = [
        "cannot use 192.168.150.0/24 for network lab: it overlaps with network other, which is active; choose other addresses, or stop that one"
    ]
    assert told(NAT, host=at("192.168.150.128/25"), steps=["define", "start"]) == refused
    assert told(NAT, host=at("192.168.0.0/16"), steps=["start"]) == refused
    assert told(NAT, host=at("192.168.151.0/24"), steps=["start"]) == []
    assert told(NAT, host=at("fd00::/64"), steps=["start"]) == []
    assert told(NAT, host=at("no subnet"), steps=["start"]) == []
    assert told(NAT, host=at("192.168.150.0/24", active=False), steps=["start"]) == []
    assert told(NAT, host=at("192.168.150.0/24"), steps=["define"]) == []
    odd = {"mode": "nat", "ips": [{"address": "x", "prefix": 24}]}
    assert told(odd, found=THERE, host=at("192.168.150.0/24"), steps=["start"]) == []
    live: Values = {"found": ACTIVE, "running": NAT, "host": at("192.168.150.0/24")}
    assert told(NAT, "ips[192.168.150.1]", **live) == refused
    assert told(NAT, "mtu", **live) == []


OF_THE_HOST = [
    HostSubnet("br0", "10.86.2.0/24"),
    HostSubnet("lo", "127.0.0.0/8"),
    HostSubnet("ppp0", "192.0.2.7/32"),
    HostSubnet("br0", "2001:db8:86::/64"),
    HostSubnet("wg0", "10.90.0.0/16", is_connected=False),
    HostSubnet("", "10.91.7.0/24", is_connected=False),
    HostSubnet("virbr7", "192.168.77.0/24"),
]


@pytest.mark.parametrize(
    ("address", "prefix", "refused"),
    [
        ("10.86.2.200", 24, "10.86.2.0/24 for network lab: this host has 10.86.2.0/24 on device br0"),
        ("10.86.2.201", 25, "10.86.2.128/25 for network lab: this host has 10.86.2.0/24 on device br0"),
        ("10.86.1.1", 16, "10.86.0.0/16 for network lab: this host has 10.86.2.0/24 on device br0"),
        ("10.86.3.1", 24, ""),
        ("10.86.2.200", 32, ""),
        ("192.0.2.1", 24, "192.0.2.0/24 for network lab: this host has 192.0.2.7/32 on device ppp0"),
        ("2001:db8:86::1", 64, "2001:db8:86::/64 for network lab: this host has 2001:db8:86::/64 on device br0"),
        ("2001:db8:87::1", 64, ""),
        ("10.90.1.1", 16, "10.90.0.0/16 for network lab: this host has a route to 10.90.0.0/16 on device wg0"),
        ("10.90.1.1", 15, "10.90.0.0/15 for network lab: this host has a route to 10.90.0.0/16 on device wg0"),
        ("10.91.7.1", 24, "10.91.7.0/24 for network lab: this host has a route to 10.91.7.0/24 that rejects packets"),
        ("192.168.77.1", 24, "192.168.77.0/24 for network lab: this host has 192.168.77.0/24 on device virbr7"),
    ],
)
def test_a_network_does_not_start_on_what_the_host_itself_uses(address: str, prefix: int, refused: str) -> None:
    after: Values = {"mode": "nat", "ips": [{"address": address, "prefix": prefix}]}
    host = NetworkHost(subnets=lambda: OF_THE_HOST)
    wanted = [f"cannot use {refused}; choose other addresses"] if refused else []
    assert told(after, host=host, steps=["define", "start"]) == wanted
    assert told(after, "ips", found=ACTIVE, running=after, host=host) == wanted, "it comes with the restart"
    assert told(after, host=host, steps=["define"]) == [], "it does not run"
    assert told(after, "mtu", found=ACTIVE, running=after, host=host) == [], "it runs as it is"


def test_addresses_of_a_network_itself_and_of_its_neighbours_are_not_the_hosts() -> None:
    after: Values = {"mode": "nat", "ips": [{"address": "192.168.77.1", "prefix": 24}]}
    host = NetworkHost(subnets=lambda: OF_THE_HOST)
    assert told(after, found=ACTIVE, live={"mode": "nat", "bridge": "virbr7"}, host=host, steps=["stop", "start"]) == []
    other = Neighbour("other", True, "virbr7", ("192.168.77.1/24",))
    [refused] = told(after, host=NetworkHost(neighbours=(other,), subnets=lambda: OF_THE_HOST), steps=["start"])
    assert "it overlaps with network other" in refused, "told once"


def test_a_part_of_what_a_route_of_the_host_reaches_is_told() -> None:
    host = NetworkHost(subnets=lambda: OF_THE_HOST)
    after: Values = {"mode": "nat", "ips": [{"address": "10.90.5.1", "prefix": 24}]}
    assert told(after, host=host, steps=["start"]) == [
        "network lab takes 10.90.5.0/24 out of what the host reaches otherwise: this host has a route to 10.90.0.0/16 on device wg0"
    ]


def test_a_route_of_a_network_is_none_that_the_host_has() -> None:
    host = NetworkHost(subnets=lambda: OF_THE_HOST)
    routes = [{"address": "10.90.0.0", "prefix": 16, "gateway": "192.168.150.2"}]
    after: Values = {"mode": "nat", "ips": [IP4], "routes": routes}
    assert told(after, host=host, steps=["start"]) == [
        "cannot route 10.90.0.0/16 over network lab: this host has a route to 10.90.0.0/16 on device wg0; choose another destination"
    ]
    after["routes"] = [{**routes[0], "prefix": 24}]
    assert told(after, host=host, steps=["start"]) == []


def test_addresses_and_routes_of_a_host_are_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "addr show": [
            {
                "ifname": "br0",
                "addr_info": [{"local": "10.86.2.11", "prefixlen": 24}, {"local": "fe80::1", "prefixlen": 64}],
            },
            {"ifname": "eth1"},
        ],
        "route show": [
            {"dst": "default", "gateway": "10.86.2.1", "dev": "br0"},
            {"dst": "10.86.2.0/24", "dev": "br0", "protocol": "kernel"},
            {"dst": "10.90.0.0/16", "gateway": "10.86.2.9", "dev": "br0"},
            {"type": "unreachable", "dst": "10.91.7.9"},
        ],
        "-6 route show": [{"dst": "fe80::/64", "dev": "br0", "protocol": "kernel"}],
    }
    monkeypatch.setattr(files_neighbours, "ip", lambda *words: answers[" ".join(words)])
    assert files_neighbours.subnets() == [
        HostSubnet("br0", "10.86.2.0/24"),
        HostSubnet("br0", "10.90.0.0/16", is_connected=False),
        HostSubnet("", "10.91.7.9", is_connected=False),
    ]


@pytest.mark.parametrize(
    ("address", "prefix", "problem"),
    [
        ("192.168.61.0", 24, "192.168.61.0 is the network address of 192.168.61.0/24, and no host can have it; use 192.168.61.1 to 192.168.61.254"),
        ("192.168.61.255", 24, "192.168.61.255 is the broadcast address of 192.168.61.0/24, and no host can have it; use 192.168.61.1 to 192.168.61.254"),
        ("192.168.61.0", 23, "192.168.61.0 is not at an end of its subnet"),
        ("192.168.61.0", 31, ""),
        ("192.168.61.1", 31, ""),
        ("192.168.61.0", 32, ""),
        ("fd00:61::", 64, "fd00:61:: is the network address of fd00:61::/64, and no host can have it; use fd00:61::1 to fd00:61::ffff:ffff:ffff:ffff"),
        ("fd00:61::ffff:ffff:ffff:ffff", 64, ""),
        ("fd00:61::", 127, ""),
    ],
)  # fmt: skip
def test_a_host_has_no_address_that_is_the_subnets(address: str, prefix: int, problem: str) -> None:
    after: Values = {"mode": "nat", "ips": [{"address": address, "prefix": prefix}]}
    wanted = [f"ips[{address}] {OF} {problem}"] if "; use" in problem else []
    assert told(after) == told(after, "ips", found=THERE) == wanted
    assert told(after, "mtu", found=THERE) == [] == told(after, state="absent")


def test_a_guest_is_given_no_address_that_is_the_subnets() -> None:
    ranges, hosts = [{"start": "192.168.150.0", "end": "192.168.150.255"}], [{"mac": "x", "ip": "192.168.150.255"}]
    after: Values = {"mode": "nat", "ips": [{**IP4, "dhcp.ranges": ranges, "dhcp.hosts": hosts}]}
    assert [one.partition(" of network lab: ")[0] for one in told(after)] == [
        "ips[192.168.150.1].dhcp.ranges[192.168.150.0-192.168.150.255]",
        "ips[192.168.150.1].dhcp.ranges[192.168.150.0-192.168.150.255]",
        "ips[192.168.150.1].dhcp.hosts[192.168.150.255]",
    ]


def match(left: Values, right: t.Any, op: str = "==") -> Values:
    return {"match": {"op": op, "left": left, "right": right}}


INPUT = {"family": "inet", "table": "filter"}


def dropping(*rules: list[Values], **more: str) -> list[Values]:
    """A host's ruleset with a chain that drops what its rules do not accept."""
    chain = {**INPUT, "name": "input", "type": "filter", "hook": "input", "policy": "drop", **more}
    listed = [{"rule": {**INPUT, "chain": chain["name"], "expr": expr}} for expr in rules]
    return [{"metainfo": {}}, {"table": INPUT}, {"chain": chain}, *listed]


IFNAME, DPORT, STATE = (
    {"meta": {"key": "iifname"}},
    {"payload": {"protocol": "udp", "field": "dport"}},
    {"ct": {"key": "state"}},
)
ACCEPT: Values = {"accept": None}
SSH = [match({"payload": {"protocol": "tcp", "field": "dport"}}, 22), ACCEPT]
DROPPING = dropping(SSH)


@pytest.mark.parametrize(
    ("ruleset", "passes"),
    [
        (DROPPING, False),
        ([], True),
        (dropping(SSH, policy="accept"), True),
        (dropping(SSH, [{"counter": {}}, {"drop": None}], policy="accept"), False),
        (dropping([match(STATE, ["established", "related"]), ACCEPT]), False),
        (dropping([match(STATE, "new"), ACCEPT]), True),
        (dropping([{"vmap": {"key": STATE, "data": {"set": []}}}]), False),
        (dropping([{"vmap": {"key": IFNAME, "data": {"set": []}}}]), True),
        (dropping([match(IFNAME, "virbr1"), match(DPORT, {"set": [53, 67]}), ACCEPT]), True),
        (dropping([match(IFNAME, "virbr*"), match(DPORT, {"set": [{"range": [53, 67]}]}), ACCEPT]), True),
        (dropping([match(IFNAME, {"set": ["lo", "virbr1"]}), ACCEPT]), True),
        (dropping([match(IFNAME, "lo"), ACCEPT]), False),
        (dropping([match(IFNAME, "eth0", "!="), ACCEPT]), True),
        (dropping([match(IFNAME, "virbr1"), match(DPORT, 53), ACCEPT]), False),
        (dropping([match({"meta": {"key": "l4proto"}}, "udp"), ACCEPT]), True),
        (dropping([match({"payload": {"protocol": "ip", "field": "saddr"}}, "192.0.2.1"), ACCEPT]), False),
        (dropping([match(IFNAME, "virbr1"), {"drop": None}], [ACCEPT]), False),
        ([*dropping([{"jump": {"target": "x"}}]), {"rule": {**INPUT, "chain": "x", "expr": [ACCEPT]}}], True),
        (dropping([{"jump": {"target": "x"}}]), False),
        (dropping(SSH, hook="forward"), True),
    ],
    ids=str,
)  # fmt: skip
def test_a_network_that_a_firewall_cuts_off_from_dhcp_is_told(ruleset: list[Values], *, passes: bool) -> None:
    host = NetworkHost(version=11_003_000, ruleset=lambda: ruleset)
    notes = told({**NAT, "bridge": "virbr1"}, host=host, steps=["start"])
    mend = 'insert rule inet filter input iifname "virbr1" meta l4proto { tcp, udp } th dport { 53, 67, 547 } accept'
    assert bool(notes) is not passes
    assert all(f"`nft '{mend}'`" in note and "role corral.virt.firewall" in note for note in notes)


def test_dhcp_is_looked_at_only_where_a_network_serves_it() -> None:
    host = NetworkHost(version=11_003_000, ruleset=lambda: DROPPING)
    assert told(NAT, host=host, steps=["define"]) == [] == told({"mode": "isolated"}, host=host, steps=["start"])
    assert told(BRIDGED, host=host, steps=["start"]) == []
    assert "virbr*" in told(NAT, host=host, steps=["start"])[0], "libvirt chooses the name"
    of_iptables = dropping(SSH, name="INPUT")
    for version, notes in ((9_000_000, 0), (11_003_000, 1)):
        old = NetworkHost(version=version, ruleset=lambda: of_iptables)
        assert len(told(NAT, host=old, steps=["start"])) == notes, "libvirt before 10.4 accepts in this very chain"


RANGE, HOST = {"start": "192.168.150.10", "end": "192.168.150.20"}, {"mac": "x", "ip": "192.168.150.9"}


@pytest.mark.parametrize(
    ("more", "problems"),
    [
        ({"dhcp.ranges": [RANGE], "dhcp.hosts": [HOST, {"mac": "y", "name": "z"}]}, []),
        (
            {"dhcp.ranges": [{**RANGE, "end": "192.168.151.20"}]},
            [f"ips[192.168.150.1].dhcp.ranges[192.168.150.10-192.168.151.20] {OF} it is not within 192.168.150.0/24"],
        ),
        (
            {"dhcp.ranges": [{**RANGE, "start": "192.168.149.1"}]},
            [f"ips[192.168.150.1].dhcp.ranges[192.168.149.1-192.168.150.20] {OF} it is not within 192.168.150.0/24"],
        ),
        (
            {"dhcp.ranges": [{**RANGE, "end": "192.168.150.9"}]},
            [f"ips[192.168.150.1].dhcp.ranges[192.168.150.10-192.168.150.9] {OF} its end is before its start"],
        ),
        ({"dhcp.ranges": [{**RANGE, "end": "192.168.150.10"}]}, []),
        (
            {"dhcp.hosts": [{"mac": "x", "ip": "192.168.151.9"}]},
            [f"ips[192.168.150.1].dhcp.hosts[192.168.151.9] {OF} it is not within 192.168.150.0/24"],
        ),
    ],
    ids=str,
)
def test_dhcp_gives_addresses_of_its_subnet(more: Values, problems: list[str]) -> None:
    after = {"mode": "nat", "ips": [{**IP4, **more}]}
    assert told(after) == told(after, "ips[192.168.150.1]", found=THERE) == problems
    assert told(after, "mtu", found=THERE) == [] == told(after, state="absent")


AT = "ips[192.168.150.1].dhcp.hosts"


@pytest.mark.parametrize(
    ("hosts", "added", "problem"),
    [
        (
            [{"mac": "aa:b", "ip": "192.168.150.9"}, {"mac": "AA:B", "ip": "192.168.150.8"}],
            "8",
            "mac aa:b has reservation 192.168.150.9 already; set state: absent there",
        ),
        (
            [{"name": "web", "ip": "192.168.150.8"}, {"name": "web", "ip": "192.168.150.9"}],
            "8",
            "name web has reservation 192.168.150.9 already; set state: absent there",
        ),
        ([{"name": "web", "ip": "192.168.150.8"}, {"name": "db", "ip": "192.168.150.9"}], "8", ""),
        ([{"mac": "aa:b", "ip": "192.168.150.8"}], "8", ""),
        # what is there stays as it is
        ([{"mac": "aa:b", "ip": "192.168.150.9"}, {"mac": "aa:b", "ip": "192.168.150.8"}], "7", ""),
    ],
)
def test_a_client_has_one_reservation(hosts: list[Values], added: str, problem: str) -> None:
    place = f"{AT}[192.168.150.{added}]"
    after = {"mode": "nat", "ips": [{**IP4, "dhcp.hosts": hosts}]}
    expected = [f"{place} {OF} {problem}"] if problem else []
    assert told(after, place, found=ACTIVE, running=NAT, steps=[f"add {place}"]) == expected
    assert told(after, place, found=ACTIVE, running=NAT, steps=["define"]) == []


def test_one_subnet_of_each_family_has_dhcp() -> None:
    second = {"address": "192.168.151.1", "prefix": 24, "dhcp.hosts": [{"mac": "x", "ip": "192.168.151.9"}]}
    sixth = {"address": "fd00::1", "prefix": 64, "dhcp.ranges": [{"start": "fd00::2", "end": "fd00::3"}]}
    first = {**IP4, "dhcp.ranges": [RANGE]}
    reason = f"ips {OF} only one IPv4 address can have DHCP, not 192.168.150.1 and 192.168.151.1"
    assert told({"mode": "nat", "ips": [first, second]}) == [reason]
    assert told({"mode": "nat", "ips": [first, sixth]}) == []
    assert told({"mode": "nat", "ips": [first, {**second, "dhcp.hosts": []}]}) == []


TAGS = (
    "VLAN tags require mode bridge with virtualport openvswitch, or mode passthrough or hostdev; Linux bridges support "
    "them since libvirt 11.0"
)


def test_what_libvirt_is_too_old_for() -> None:
    recent = (("nat.ipv6", (6, 5)), ("isolate_ports", (6, 1)))
    assert told(NAT, recent=recent, host=NetworkHost(version=6_004_000)) == [
        f"nat.ipv6 {OF[:-1]}: it requires libvirt 6.5, and this host has 6.4.0; upgrade libvirt, or leave it out"
    ]
    assert told(NAT, recent=recent, host=NetworkHost(version=6_005_000)) == []


NEW = NetworkHost(version=11_000_000)
GROUP: Values = {"name": "g", "vlan": [5]}


@pytest.mark.parametrize(
    ("after", "host", "places"),
    [
        ({**NAT, "vlan": [5]}, NEW, ["vlan"]),
        ({**BRIDGED, "vlan": [5]}, None, ["vlan"]),
        ({**BRIDGED, "vlan": [5]}, NetworkHost(version=10_999_999), ["vlan"]),
        ({**BRIDGED, "vlan": [5]}, NEW, []),
        ({"mode": "bridge", "interfaces": ["eth1"], "vlan": [5]}, NEW, ["vlan"]),
        ({**BRIDGED, "vlan": [5], "virtualport": "openvswitch"}, None, []),
        *(({"mode": mode, "pf": "eth1", "vlan": [5]}, None, []) for mode in ("passthrough", "hostdev")),
        ({"mode": "passthrough", "pf": "eth1", "vlan": [5], "virtualport": "802.1Qbh"}, None, ["vlan"]),
        ({"mode": "vepa", "interfaces": ["eth1"], "vlan": [5]}, NEW, ["vlan"]),
        ({**NAT, "portgroups": [GROUP, {"name": "h"}]}, None, ["portgroups[g].vlan"]),
        ({**BRIDGED, "portgroups": [{**GROUP, "virtualport": "openvswitch"}]}, None, []),
        ({**BRIDGED, "virtualport": "openvswitch", "portgroups": [GROUP]}, None, []),
        (
            {**BRIDGED, "virtualport": "openvswitch", "portgroups": [{**GROUP, "virtualport": "x"}]},
            None,
            ["portgroups[g].vlan"],
        ),
        ({**BRIDGED, "vlan": [5], "portgroups": [{"name": "g", "default": True}]}, None, ["vlan"]),
        (
            {**BRIDGED, "vlan": [5], "portgroups": [{"name": "g", "default": True, "virtualport": "openvswitch"}]},
            None,
            [],
        ),
        ({**BRIDGED, "vlan": [5], "portgroups": [{"name": "g", "virtualport": "openvswitch"}]}, None, ["vlan"]),
    ],
    ids=str,
)
def test_vlan_tags_stand_where_libvirt_sets_them(after: Values, host: NetworkHost | None, places: list[str]) -> None:
    wanted = [f"{place} {OF} {TAGS}" for place in places]
    assert told(after, host=host) == wanted
    for changed in ("mode", "vlan", "portgroups[g]", "virtualport", "bridge"):
        assert told(after, changed, found=THERE, host=host) == wanted
    assert told(after, "mtu", found=THERE, host=host) == []


def test_one_portgroup_is_the_default() -> None:
    groups = [{"name": name, "default": default} for name, default in (("a", True), ("b", False), ("c", True))]
    after = {**NAT, "portgroups": groups}
    reason = [f"portgroups {OF} only one can be the default, not a and c"]
    assert told(after) == told(after, "portgroups[c].default", found=THERE) == reason
    assert told(after, "mtu", found=THERE) == [] == told({**NAT, "portgroups": groups[:2]})


LIMIT = {"bandwidth.inbound.average": 5}
ONLY = "bandwidth can be limited on bridges only; omit it"


@pytest.mark.parametrize(
    ("after", "places"),
    [
        ({**NAT, **LIMIT}, []),
        ({**BRIDGED, **LIMIT}, []),
        ({"mode": "bridge", "interfaces": ["eth1"], **LIMIT}, ["bandwidth"]),
        ({"mode": "vepa", "interfaces": ["eth1"], "bridge": "", **LIMIT}, ["bandwidth"]),
        (
            {"mode": "vepa", "interfaces": ["eth1"], "portgroups": [{"name": "g", **LIMIT}, {"name": "h"}]},
            ["portgroups[g].bandwidth"],
        ),
        ({"mode": "vepa", "interfaces": ["eth1"]}, []),
    ],
    ids=str,
)
def test_bandwidth_is_limited_on_bridges(after: Values, places: list[str]) -> None:
    wanted = [f"{place} {OF} {ONLY}" for place in places]
    assert told(after) == wanted
    for changed in ("mode", "bandwidth.inbound.average", "portgroups[g]", "bridge"):
        assert told(after, changed, found=THERE) == wanted
    assert told(after, "mtu", found=THERE) == []


def test_nobody_is_cut_off_without_a_word() -> None:
    users = NetworkHost(users=lambda: (User("web2", True), User("db1", False), User("web1", True)))
    live: Values = {"found": ACTIVE, "running": {"mode": "nat"}, "host": users}
    mend = "running guests would lose it: web1, web2; shut them down first, or set force: true"
    assert told(NAT, steps=["stop"], **live) == [f"cannot stop network lab: {mend}"]
    assert told(NAT, steps=["stop", "start"], **live) == [f"cannot restart network lab: {mend}"]
    forced = ["guests lose network lab until they are restarted: web1, web2"]
    assert told(NAT, steps=["stop"], force=True, **live) == forced
    stay = ["running guests stay on their devices while network lab is off: web1, web2"]
    assert told(BRIDGED, steps=["stop"], **{**live, "running": BRIDGED}) == stay
    assert told(NAT, steps=["stop"], found=ACTIVE, host=users, before=BRIDGED) == stay, "what it was is what is lost"
    for state in ("inactive", "absent"):
        waits: Values = {"found": ACTIVE, "host": users, "steps": ["stop"], "state": state}
        stopped = told(BRIDGED, before=BRIDGED, live={"mode": "nat"}, **waits)
        assert stopped[0] == f"cannot stop network lab: {mend}", "a definition that waits says nothing of what runs"
        assert told(NAT, before=NAT, live=BRIDGED, **waits)[0] == stay[0]
    assert told(NAT, steps=["define"], **live) == []
    off = NetworkHost(users=lambda: (User("db1", False),))
    assert told(NAT, steps=["stop"], **{**live, "host": off}) == []
    gone = ["guests that use network lab cannot start without it: db1"]
    assert told(NAT, state="absent", found=THERE, host=off) == gone
    assert told(NAT, found=THERE, host=off) == [] == told(NAT, state="absent", host=off)


def test_devices_that_are_no_guests_are_not_cut_off_without_a_word() -> None:
    host = NetworkHost(strangers=lambda: {"virbr1": ("tap a", "vethb"), "br0": ("eth0",)})
    live: Values = {"found": ACTIVE, "running": {**NAT, "bridge": "virbr1"}, "host": host}
    note = (
        "devices that belong to no guest lose bridge virbr1 of network lab: tap a, vethb; to put them on it again when it "
        "runs: `ip link set 'tap a' master virbr1; ip link set vethb master virbr1`"
    )
    assert told(NAT, steps=["stop", "start"], **live) == [note] == told(NAT, steps=["stop"], state="inactive", **live)
    assert told(NAT, steps=["define"], **live) == []
    assert told(NAT, steps=["stop"], **{**live, "running": {**NAT, "bridge": "virbr2"}}) == []
    assert told(BRIDGED, steps=["stop"], **{**live, "running": BRIDGED}) == [], "that bridge stays"


def test_who_is_on_a_bridge() -> None:
    guest = "<domain><devices><interface type='bridge'><target dev='vnet0'/></interface></devices></domain>"
    ports = {"virbr1": ("mytap", "virbr1-nic", "vnet0"), "br0": ()}
    raw = RawNetworkHost(frozenset(ports), (), lambda: (("web1", True, (guest,)),), 0, ports)
    assert xml_network.host(raw, "lab", None).strangers() == {"virbr1": ("mytap",), "br0": ()}
    assert libvirt_query.ports(["no-such-bridge"]) == {}


@pytest.mark.parametrize(
    ("live", "changed", "after", "running", "at_once"),
    [
        ({"mode": "private"}, "interfaces[eth1]", "eth1", True, True),
        ({"mode": "passthrough"}, "interfaces[eth1]", None, False, True),
        ({"mode": "passthrough"}, "interfaces[eth1]", None, True, False),
        ({"mode": "nat"}, "interfaces[eth1]", "eth1", False, False),
        ({}, "interfaces[eth1]", "eth1", False, False),
        (None, "interfaces[eth1]", "eth1", False, False),
        ({"mode": "private"}, "mode", "vepa", False, False),
    ],
)
def test_a_device_joins_a_pool_that_runs(
    live: Values | None, changed: str, after: str | None, running: bool, at_once: bool
) -> None:
    changes = (Change(changed, "x", after),)
    host = NetworkHost(users=lambda: (User("web1", running),))
    case = Case(Spec("lab", "active"), ACTIVE, host, Edited("", changes, {}, {}), None, live)
    when = plan_network.LIVE["interfaces[]"].when
    assert when(case, changes) is at_once


AT_B = {"type": "dir", "path": "/b"}
BROKEN: dict[str, dict[str, t.Any]] = {
    "_is_complete": {"after": {"mode": "nat"}},
    "_has_whole_ranges": {"after": {**NAT, "nat.port_start": 1024}},
    "_has_its_bridge": {"after": BRIDGED, "host": BRIDGES},
    "_takes_no_bridge": {"after": {**NAT, "bridge": "virbr1"}, "host": NetworkHost(frozenset({"virbr1"}))},
    "_is_alone_on_its_subnets": {
        "after": NAT,
        "host": NetworkHost(neighbours=(Neighbour("other", True, None, ("192.168.0.0/16",)),)),
        "steps": ["start"],
    },
    "_takes_nothing_of_the_host": {
        "after": NAT,
        "host": NetworkHost(subnets=lambda: [HostSubnet("br0", "192.168.150.0/24")]),
        "steps": ["start"],
    },
    "_has_addresses_of_hosts": {"after": {"mode": "nat", "ips": [{"address": "192.168.150.0", "prefix": 24}]}},
    "_serves_its_subnets": {
        "after": {"mode": "nat", "ips": [{**IP4, "dhcp.hosts": [{"mac": "x", "ip": "192.168.151.9"}]}]}
    },
    "_reserves_once": {
        "after": {"mode": "nat", "ips": [{**IP4, "dhcp.hosts": [HOST, {**HOST, "ip": "192.168.150.8"}]}]},
        "steps": [f"add {AT}[192.168.150.8]"],
    },
    "_tags_where_libvirt_does": {"after": {**NAT, "vlan": [5]}},
    "_has_one_default": {"after": {**NAT, "portgroups": [{"name": name, "default": True} for name in "ab"]}},
    "_limits_where_libvirt_does": {"after": {"mode": "vepa", "interfaces": ["eth1"], **LIMIT}},
    "_cuts_nobody_off": {
        "after": NAT,
        "host": NetworkHost(users=lambda: (User("web1", True),)),
        "found": ACTIVE,
        "running": NAT,
        "steps": ["stop"],
    },
    "_reaches_its_guests": {
        "after": {**NAT, "bridge": "virbr1"},
        "host": NetworkHost(ruleset=lambda: DROPPING),
        "steps": ["start"],
    },
    "_says_enough": {"after": {"type": "dir"}},
    "_is_alone": {"after": AT_B, "host": PoolHost(lambda: {"b": AT_B})},
    "_is_buildable": {"after": {"type": "mpath"}, "own": {"build": True}},
    "_is_on_its_way_out": {
        "after": {"type": "gluster", "source.hosts": [{"name": "g"}], "source.name": "v"},
        "steps": ["define"],
    },
    "_can_be_made": {"after": AT_B, "host": PoolHost(obstacle=lambda path: path), "steps": ["start"]},
    "_is_open_to_guests": {"after": AT_B, "host": PoolHost(closed=lambda _: "qemu:/b"), "steps": ["start"]},
    "_keeps_no_guest_off": {
        "after": {},
        "before": {"type": "dir"},
        "found": THERE,
        "host": PoolHost(users=lambda: (PoolUser("web1", True),)),
        "steps": ["stop"],
    },
    "_is_known_to_libvirt": {"after": NAT, "recent": (("nat.ipv6", (6, 5)),), "host": NetworkHost(version=6_004_000)},
    "_stays": {
        "after": {"type": "dir", "path": "/b"},
        "before": {"type": "dir", "path": "/a"},
        "found": THERE,
        "changed": ("path",),
    },
}


@pytest.mark.parametrize("rule", [*plan_network.RULES, *plan_pool.RULES], ids=lambda rule: rule.__name__)
def test_every_rule_has_a_case_that_breaks_it(rule: t.Any) -> None:
    case = dict(BROKEN[rule.__name__])
    after, changed, every = case.pop("after"), case.pop("changed", ()), plan_network.RULES
    assert told(after, *changed, rules=[rule], **case), "nothing is said by this rule"
    others = [one for one in (every if rule in every else plan_pool.RULES) if one is not rule]
    assert not told(after, *changed, rules=others, **case), "another rule says it, too"
