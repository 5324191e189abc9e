"""A host's bridge: which link it takes over, what is refused, and how each configuration changes."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import (
    BadInput,
    Failed,
    Refused,
    Unsupported,
)
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._host import (
    files_bridge,
    files_links,
    plan_bridge,
    plan_ifupdown,
    plan_netplan,
    plan_networkd,
    run_bridge,
    run_daemon,
    run_firewall,
    run_tuning,
)
from ansible_collections.corral.virt.plugins.module_utils._host.model_bridge import (
    RESULT,
    STATE,
    SYSCTL,
    TRIAL_INTERFACES,
    UDEV,
    BridgeFacts,
    BridgeSpec,
    Document,
    Ifupdown,
    Netplan,
    NetworkChange,
    Networkd,
    NmProfiles,
    PortOwner,
    Profile,
    Trial,
    Vlan,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_bridge import (
    ConfirmBridge,
    RequirePackages,
    SetBridgeOption,
    SetSysctl,
    SwitchToBridge,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_daemon import RestartDaemons
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import (
    HostStep,
    WriteFile,
)

MAC = "52:54:00:ab:34:56"
ETHER = {"ifname": "eth0", "link_type": "ether", "address": MAC}
PARAMS: dict[str, t.Any] = {
    "name": "br0",
    "state": "present",
    "port": "auto",
    "address": None,
    "timeout": 60,
    "filter_guests": True,
    "vlan": None,
    "vlan_filtering": False,
    "switch_off_stp": False,
}


def host(*more: t.Mapping[str, t.Any], **fields: t.Any) -> BridgeFacts:
    """One with an Ethernet interface, and more links."""
    found = {str(link["ifname"]): link for link in (ETHER, *more)}
    return BridgeFacts(host="hyper1", links=found, **fields)


def br0(**data: int) -> dict[str, t.Any]:
    return {"ifname": "br0", "linkinfo": {"info_kind": "bridge", "info_data": data}}


def port_of_br0(name: str = "eth0", kind: str | None = None) -> dict[str, t.Any]:
    found: dict[str, t.Any] = {"ifname": name, "link_type": "ether", "master": "br0"}
    return {**found, "linkinfo": {"info_kind": kind}} if kind else found


# What is wanted


def test_what_is_wanted() -> None:
    assert plan_bridge.spec(PARAMS) == BridgeSpec("br0", None, None, 60, filter_guests=True)
    assert plan_bridge.spec({**PARAMS, "address": ""}).address is None
    more = {"name": "br.0_-123456789", "port": "eno1", "address": "192.0.2.1", "timeout": 5}
    expected = BridgeSpec("br.0_-123456789", "eno1", "192.0.2.1", 5, filter_guests=False)
    assert plan_bridge.spec({**PARAMS, **more, "filter_guests": False}) == expected


@pytest.mark.parametrize("name", ["", ".", "..", "br 0", "br/0", "b" * 16, "br0\n", "brü", "-e;x"])
def test_bad_names_are_refused(name: str) -> None:
    for option in ("name", "port"):
        with pytest.raises(BadInput, match=f"{option}: .* is not a valid interface name"):
            plan_bridge.spec({**PARAMS, option: name})


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(BadInput, match="name: ") as caught:
        plan_bridge.spec({**PARAMS, "name": "a b", "port": "c d", "timeout": 4})
    assert [one.split(":")[0] for one in caught.value.problems] == ["name", "port", "timeout"]
    with pytest.raises(BadInput, match="br0 cannot be a port of itself"):
        plan_bridge.spec({**PARAMS, "port": "br0"})


# The port


@pytest.mark.parametrize(
    ("wanted", "facts", "expected"),
    [
        (BridgeSpec("br0"), host(default_routes=("eth0",)), "eth0"),
        (
            BridgeSpec("br0"),
            host({**ETHER, "ifname": "eth1"}, default_routes=("eth1", "eth0")),
            "eth1",
        ),
        (BridgeSpec("br0", "eth0"), host(default_routes=("eth1",)), "eth0"),
        (BridgeSpec("br0", address="192.0.2.1"), host(addresses={"eth0": ("192.0.2.1",)}), "eth0"),
        (BridgeSpec("br0"), host(br0()), None),
        (BridgeSpec("br0", "none"), host(br0()), None),
    ],
)
def test_the_port(wanted: BridgeSpec, facts: BridgeFacts, expected: str | None) -> None:
    assert plan_bridge.port(wanted, facts) == expected


def test_the_address_of_another_host_leads_nowhere() -> None:
    facts = host(addresses={"eth0": ("192.0.2.2",), "eth1": ()})
    for address in ("192.0.2.1", None):
        with pytest.raises(Refused, match=r"hyper1 has no default route; set port .bridge_port"):
            plan_bridge.port(BridgeSpec("br0", address=address), facts)


@pytest.mark.parametrize(
    ("link", "fields", "reasons"),
    [
        ({"linkinfo": {"info_kind": "bridge"}}, {}, ["is already a bridge"]),
        ({"master": "bond0"}, {}, ["belongs to bond0; add that to"]),
        ({"link_type": "none"}, {}, ["not an Ethernet"]),
        ({}, {"wireless": frozenset(["eth0"])}, ["is wireless and access points do not let"]),
        (
            {"linkinfo": {"info_kind": "bridge"}, "master": "x", "link_type": "none"},
            {"wireless": frozenset(["eth0"])},
            ["is already a bridge", "belongs to x", "wireless", "not an Ethernet"],
        ),
    ],
)
def test_ports_that_cannot_be_bridged_are_refused(
    link: dict[str, t.Any], fields: dict[str, t.Any], reasons: list[str]
) -> None:
    facts = BridgeFacts(host="hyper1", links={"eth0": {**ETHER, **link}}, **fields)
    with pytest.raises(Refused, match="cannot create bridge br0: ") as caught:
        plan_bridge.port(BridgeSpec("br0", "eth0"), facts)
    problems = str(caught.value).split("; ")
    assert [reason for reason in reasons if reason not in str(caught.value)] == []
    assert ("; choose another port" in str(caught.value)) is ("not an Ethernet" in reasons)
    assert len(problems) >= len(reasons)


def test_a_port_that_is_not_there_is_refused() -> None:
    with pytest.raises(Refused, match="no interface eth9, and no bond is made; choose one of eth0, lo"):
        plan_bridge.port(BridgeSpec("br0", "eth9"), host({"ifname": "lo"}))


@pytest.mark.parametrize(
    ("trial", "refused"),
    [
        (Trial("br0", running=True), True),
        (Trial("br0", running=True, result={"ok": True}), False),
        (Trial("br1", running=False), False),
        (None, False),
    ],
)
def test_one_switch_at_a_time(trial: Trial | None, refused: bool) -> None:
    """Also when its bridge is there already: it may be taken back."""
    for facts in (host(default_routes=("eth0",), trial=trial), host(br0(), trial=trial)):
        if refused:
            with pytest.raises(Refused, match="on hyper1: a switch to br0 is in progress"):
                plan_bridge.port(BridgeSpec("br0"), facts)
        else:
            plan_bridge.port(BridgeSpec("br0"), facts)


def test_a_bridge_whose_trial_was_cut_off_may_be_gone_at_the_next_boot() -> None:
    cut_off = Trial("br0", running=False)
    with pytest.raises(Refused, match=r"whether bridge br0 on hyper1 lasts: .* ended without a result; see journalctl"):
        plan_bridge.port(BridgeSpec("br0"), host(br0(), trial=cut_off))
    for trial in (Trial("br1", running=False), Trial("br0", running=False, result={"ok": True})):
        assert plan_bridge.port(BridgeSpec("br0"), host(br0(), trial=trial)) is None


# Whoever configured it


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (PortOwner(ifupdown=True), "ifupdown"),
        (PortOwner(network_file="/etc/systemd/network/a.network", ifupdown=True), "networkd"),
        (PortOwner(network_file="/run/systemd/network/10-netplan-a.network"), "netplan"),
        (PortOwner(networkmanager=True, netplan=True, ifupdown=True), "netplan"),
        (
            PortOwner(networkmanager=True, network_file="/run/systemd/network/a.network", ifupdown=True),
            "networkmanager",
        ),
    ],
)
def test_whoever_configured_the_port_configures_the_bridge(owner: PortOwner, expected: str) -> None:
    assert plan_bridge.manager("eth0", owner, host(), bridge="br0") == expected


def test_a_bridge_that_is_to_be_made_by_hand_is_refused() -> None:
    with pytest.raises(Refused, match=r"neither ifupdown, .* configures eth0 on hyper1"):
        plan_bridge.manager("eth0", PortOwner(), host(), bridge="br0")


CONFIGS = [
    ("ifupdown", Ifupdown({"/etc/network/interfaces": "iface eth0 inet dhcp\n"})),
    ("networkd", Networkd("/etc/systemd/network/a.network", "[Match]\nName=eth0\n")),
    ("netplan", Netplan({"/etc/netplan/a.yaml": {"network": {"ethernets": {"eth0": {}}}}})),
    ("networkmanager", NmProfiles((Profile("u1", "eth0", "/etc/a", "[connection]\ntype=ethernet\n"),), "u1")),
]


@pytest.mark.parametrize(("manager", "config"), CONFIGS)
def test_each_configuration_switches_and_comes_back(manager: str, config: t.Any) -> None:
    change = plan_bridge.switch(BridgeSpec("br0"), "eth0", host(), config)
    assert (change.bridge, change.port, change.manager) == ("br0", "eth0", manager)
    assert all(path.startswith("/run/") for path in change.trial), "a reboot forgets it"
    assert all(path.startswith("/etc/") for path in change.lasting)
    assert ("ip", "link", "delete", "br0") in change.undo
    assert MAC in str([*change.trial.values()]) + str([one.content for one in _documents(change)])


def _documents(change: NetworkChange) -> list[Document]:
    return [text for text in change.trial.values() if isinstance(text, Document)]


# What is to be done


CHANGE = NetworkChange("br0", "eth0", "networkd", {}, {}, up=(), undo=())


def test_a_new_bridge_is_a_switch() -> None:
    facts = host(addresses={"eth0": ("192.0.2.1", "2001:db8::1")})
    wanted = BridgeSpec("br0", timeout_s=30, filter_guests=True)
    steps, changes = plan_bridge.decide(wanted, facts, CHANGE)
    kept = ("192.0.2.1", "2001:db8::1")
    assert steps == [SwitchToBridge(CHANGE, kept, 30)]
    text = "bridge br0 takes over 192.0.2.1, 2001:db8::1 from eth0 (networkd)"
    assert [str(step) for step in steps] == [text]
    assert changes == [
        Change("br0.port", None, "eth0"),
        Change("br0.addresses", None, ["192.0.2.1", "2001:db8::1"]),
    ]
    (step,), _changes = plan_bridge.decide(wanted, host(), CHANGE)
    assert str(step) == "bridge br0 takes over the link from eth0 (networkd)"


def test_packages_are_required_before_anything_is_done() -> None:
    change = dataclasses.replace(CHANGE, packages=("bridge-utils",))
    steps, _changes = plan_bridge.decide(BridgeSpec("br0"), host(filtering=plan_bridge.NF_CALLS), change)
    assert steps[0] == RequirePackages(("bridge-utils",))
    assert str(steps[0]) == "require bridge-utils"
    assert isinstance(steps[-1], SwitchToBridge), "what may cut the connection comes last"
    assert len(steps) == 5


@pytest.mark.parametrize(
    ("link", "fields"),
    [
        (br0(), []),
        ({"ifname": "br0", "linkinfo": {"info_kind": "bridge"}}, []),
        (br0(stp_state=0, forward_delay=0), []),
        (br0(stp_state=0, forward_delay=1500), []),  # of no effect, and set so by NetworkManager
        (br0(stp_state=1, forward_delay=0), ["stp_state"]),
        (br0(stp_state=1, forward_delay=1500), ["stp_state", "forward_delay"]),
    ],
)
def test_a_bridge_that_is_there_lets_guests_talk_at_once(link: dict[str, t.Any], fields: list[str]) -> None:
    facts = host(link, port_of_br0())
    for wanted in (
        BridgeSpec("br0", filter_guests=True, switch_off_stp=True),
        BridgeSpec("br0", "eth0", filter_guests=True, switch_off_stp=True),
    ):
        assert plan_bridge.decide(dataclasses.replace(wanted, switch_off_stp=False), facts, None) == ([], [])
        steps, changes = plan_bridge.decide(wanted, facts, None)
        words = {"stp_state": "stp", "forward_delay": "forward delay"}
        assert steps == [SetBridgeOption("br0", field, words[field]) for field in fields]
        assert [str(step) for step in steps] == [f"switch off {words[field]} of br0" for field in fields]
        assert [change.where for change in changes] == [f"br0.{field}" for field in fields]
        assert all(change.before and change.after == 0 for change in changes)


@pytest.mark.parametrize(
    ("facts", "port", "reason"),
    [
        (host({"ifname": "br0"}), None, "cannot use br0: it is not a bridge"),
        (host({"ifname": "br0", "linkinfo": {"info_kind": "veth"}}), None, "it is not a bridge"),
        (host(br0()), None, "has no port and leads nowhere"),
        (host(br0(), port_of_br0("vnet0", "tun")), None, "has no port and leads nowhere"),
        (host(br0(), port_of_br0("eth1")), "eth0", "eth0 is not in it"),
        (host(br0(), port_of_br0("tap0", "tun")), "tap0", "tap0 is not in it"),
    ],
)
def test_a_bridge_that_does_not_fit_is_refused(facts: BridgeFacts, port: str | None, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        plan_bridge.decide(BridgeSpec("br0", port), facts, None)


FILTER_OFF = "# Written by the role corral.virt.bridge: guests on a bridge are not filtered by the host.\n"
FILES = {
    SYSCTL: FILTER_OFF + "".join(f"-net.bridge.{call} = 0\n" for call in plan_bridge.NF_CALLS),
    UDEV: f'{FILTER_OFF}ACTION=="add", SUBSYSTEM=="module", KERNEL=="br_netfilter", RUN+="/lib/systemd-sysctl '
    '--prefix=/net/bridge"\n',
}


@pytest.mark.parametrize("change", [None, CHANGE])
def test_guests_are_not_filtered_now_and_later(change: NetworkChange | None) -> None:
    wanted, there = BridgeSpec("br0"), (br0(), port_of_br0())
    known: dict[str, t.Any] = {"systemd_sysctl": "/lib/systemd-sysctl"}
    bare = host(*there, filtering=("bridge-nf-call-iptables",), **known)
    steps, changes = plan_bridge.decide(wanted, bare, change)
    key = "net.bridge.bridge-nf-call-iptables"
    steps = [step for step in steps if not isinstance(step, SwitchToBridge)]
    assert steps == [
        WriteFile(SYSCTL, FILES[SYSCTL]),
        WriteFile(UDEV, FILES[UDEV]),
        SetSysctl((key,), "0", "do not filter bridged guests"),
    ]
    assert str(steps[2]) == f"set {key} to 0 (do not filter bridged guests)"
    assert [change for change in changes if not change.where.startswith("br0.")] == [
        Change(SYSCTL, None, FILES[SYSCTL]),
        Change(UDEV, None, FILES[UDEV]),
        Change(key, 1, 0),
    ]
    empty = host(*there, files={SYSCTL: "", UDEV: ""}, **known)
    assert [one.before for one in plan_bridge.decide(wanted, empty, None)[1]] == [None, None]
    done = host(*there, files=FILES, **known)
    assert not [one for one in plan_bridge.decide(wanted, done, change)[0] if isinstance(one, WriteFile)]
    other = host(*there, files={**FILES, SYSCTL: "old"}, **known)
    steps, changes = plan_bridge.decide(wanted, other, None)
    assert (steps, changes) == (
        [WriteFile(SYSCTL, FILES[SYSCTL])],
        [Change(SYSCTL, "old", FILES[SYSCTL])],
    )
    left_alone = dataclasses.replace(wanted, filter_guests=True)
    assert plan_bridge.decide(left_alone, bare, None) == ([], [])


# VLANs


def vlan(name: str, number: int, parent: str = "eth0", **more: str) -> dict[str, t.Any]:
    info = {"info_kind": "vlan", "info_data": {"id": number}}
    return {"ifname": name, "link": parent, "link_type": "ether", "address": MAC, "linkinfo": info, **more}


ON_42 = BridgeSpec("br42", "eth0", vlan=42)
IN_BR0 = {**ETHER, "master": "br0"}


@pytest.mark.parametrize(
    ("wanted", "facts", "expected"),
    [
        (ON_42, host(), Vlan("eth0.42", 42, "eth0", "eth0")),
        (dataclasses.replace(ON_42, port=None), host(default_routes=("eth0",)), Vlan("eth0.42", 42, "eth0", "eth0")),
        (dataclasses.replace(ON_42, port=None), host(IN_BR0, br0(), port_of_br0("vnet0", "tun"), default_routes=("br0",)),
         Vlan("eth0.42", 42, "eth0", "br0")),
        (dataclasses.replace(ON_42, port="enx525400123456"), host({**ETHER, "ifname": "enx525400123456"}),
         Vlan("vlan42", 42, "enx525400123456", "enx525400123456")),
        (ON_42, host(vlan("eth0.42", 42)), "eth0.42"),
        (ON_42, host(vlan("office", 42), vlan("eth0.43", 43)), "office"),
        (dataclasses.replace(ON_42, port="bond0"), host({**ETHER, "ifname": "bond0", "linkinfo": {"info_kind": "bond"}}),
         Vlan("bond0.42", 42, "bond0", "bond0")),
        (ON_42, host({**br0(), "ifname": "br42"}), None),
    ],
)  # fmt: skip
def test_the_vlan_of_a_port(wanted: BridgeSpec, facts: BridgeFacts, expected: str | Vlan | None) -> None:
    assert plan_bridge.port(wanted, facts) == expected


BOND0 = {"ifname": "bond0", "linkinfo": {"info_kind": "bond"}}


@pytest.mark.parametrize(
    ("port", "facts", "reason"),
    [
        ("eth9", host(), "no interface eth9, and no bond is made; choose one of eth0"),
        ("eth0", host(wireless=frozenset(["eth0"])), r"of mode nat or route \(virt_networks\) in place of the bridge"),
        ("eth0", host(vlan("eth0.42", 7)), "eth0.42 exists and is not VLAN 42 of eth0"),
        ("br0", host(br0(), IN_BR0), "br0 is a bridge; set port to its port, eth0"),
        ("eth0", host({**ETHER, "master": "bond0"}, BOND0), "eth0 belongs to bond0; set port to bond0"),
        ("eth0", host(br0(vlan_filtering=1), IN_BR0), "connect guests to br0, with vlan 42"),
        ("eth0", host(vlan("eth0.42", 42, master="br7")), "eth0.42 belongs to br7"),
        (
            None,
            host(br0(), IN_BR0, port_of_br0("eth1"), default_routes=("br0",)),
            "br0 has 2 ports; set port to the one",
        ),
    ],
)
def test_ports_that_cannot_have_a_vlan_are_refused(port: str | None, facts: BridgeFacts, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        plan_bridge.port(BridgeSpec("br42", port, vlan=42), facts)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"vlan": 0}, "0 is no VLAN; choose 1 to 4094"),
        ({"vlan": 4095}, "4095 is no VLAN"),
        ({"vlan": 1, "vlan_filtering": True}, "omit vlan, and set vlan of guests"),
    ],
)
def test_numbers_of_vlans(more: dict[str, t.Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        plan_bridge.spec({**PARAMS, **more})
    assert plan_bridge.spec({**PARAMS, "vlan": 4094}).vlan == 4094


@pytest.mark.parametrize(("manager", "config"), CONFIGS)
def test_each_configuration_adds_a_vlan_and_leaves_the_addresses(manager: str, config: t.Any) -> None:
    new = Vlan("eth0.42", 42, "eth0", "br0")
    change = plan_bridge.switch(ON_42, new, host(), config)
    assert (change.bridge, change.port, change.manager, change.holder) == ("br42", "eth0.42", manager, "br0")
    assert all(path.startswith("/run/") for path in change.trial)
    undone = [" ".join(words) for words in change.undo]
    assert [one for one in undone if one.startswith("ip link")] == ["ip link delete br42", "ip link delete eth0.42"]
    (step,), changes = plan_bridge.decide(dataclasses.replace(ON_42, filter_guests=True), host(), change)
    assert str(step) == f"bridge br42 gets the port eth0.42 ({manager})"
    assert changes == [Change("br42.port", None, "eth0.42")]


@pytest.mark.parametrize(("manager", "config"), CONFIGS)
def test_bridges_that_filter_vlans(manager: str, config: t.Any) -> None:
    wanted = BridgeSpec("br0", vlan_filtering=True)
    if manager == "netplan":
        with pytest.raises(Refused, match="netplan has no VLAN filtering for bridges; set vlan instead"):
            plan_bridge.switch(wanted, "eth0", host(), config)
        return
    text = "\n".join(map(str, plan_bridge.switch(wanted, "eth0", host(), config).lasting.values()))
    own = {
        "ifupdown": ["\tbridge_vlan_aware yes\n", "\tup bridge vlan add dev eth0 vid 2-4094\n"],
        "networkd": ["VLANFiltering=true\n", "[BridgeVLAN]\nVLAN=2-4094\n"],
        "networkmanager": ["vlan-filtering=true\n", "[bridge-port]\nvlans=2-4094\n"],
    }
    assert [line for line in own[manager] if line not in text] == []


@pytest.mark.parametrize(
    ("wanted", "links", "reason"),
    [
        (ON_42, (vlan("eth0.42", 42, master="br42"),), None),
        (dataclasses.replace(ON_42, port=None), (vlan("v", 42, master="br42"),), None),
        (ON_42, (vlan("eth0.42", 43, master="br42"),), "VLAN 42 of eth0 is not in it"),
        (ON_42, (vlan("eth1.42", 42, "eth1", master="br42"),), "VLAN 42 of eth0 is not in it"),
        (dataclasses.replace(ON_42, port=None), ({**ETHER, "master": "br42"},), "VLAN 42 is not in it"),
        (BridgeSpec("br42", vlan_filtering=True), (port_of_br0(),), "it has no port"),
        (BridgeSpec("br42", vlan_filtering=True), ({**ETHER, "master": "br42"},), "does not filter VLANs"),
    ],
)
def test_an_existing_bridge_is_that_of_the_vlan(
    wanted: BridgeSpec, links: tuple[dict[str, t.Any], ...], reason: str | None
) -> None:
    facts = host({**br0(), "ifname": "br42"}, *links)
    wanted = dataclasses.replace(wanted, filter_guests=True)
    if reason is None:
        assert plan_bridge.decide(wanted, facts, None) == ([], [])
    else:
        with pytest.raises(Refused, match=reason):
            plan_bridge.decide(wanted, facts, None)


@pytest.mark.parametrize(
    ("links", "addresses", "refused"),
    [
        ((vlan("bond0.5", 5, "bond0"),), {}, True),
        ((vlan("eth1.5", 5, "eth1"),), {}, False),
        ((), {}, False),
    ],
)
def test_ifdown_of_a_bond_must_not_lose_vlans(
    links: tuple[dict[str, t.Any], ...], addresses: dict[str, t.Any], refused: bool
) -> None:
    facts = host({**ETHER, **BOND0, "link_type": "ether"}, *links, addresses=addresses)
    config = Ifupdown({"/etc/network/interfaces": "auto bond0\niface bond0 inet dhcp\n\tbond-slaves eth0\n"})
    if refused:
        with pytest.raises(Refused, match=r"ifdown bond0 would take bond0\.5 down"):
            plan_bridge.switch(BridgeSpec("br0"), "bond0", facts, config)
        return
    (text,) = plan_bridge.switch(BridgeSpec("br0"), "bond0", facts, config).lasting.values()
    assert str(text).startswith("auto bond0 br0\niface br0 inet dhcp\n"), "nothing but its stanza makes a bond"
    assert str(text).endswith("iface bond0 inet manual\n\tbond-slaves eth0\n")


def test_ifdown_must_not_lose_the_routes_of_vlans() -> None:
    config = Ifupdown({"/etc/network/interfaces": "auto eth0\niface eth0 inet dhcp\n"})
    plan_bridge.switch(BridgeSpec("br0"), "eth0", host(vlan("eth0.5", 5)), config)
    with pytest.raises(Refused, match=r"ifdown eth0 would take eth0\.5 down"):
        plan_bridge.switch(
            BridgeSpec("br0"), "eth0", host(vlan("eth0.5", 5), addresses={"eth0.5": ("192.0.2.5",)}), config
        )


def test_ifupdown_takes_the_members_of_a_bond_that_name_it() -> None:
    text = "iface bond0 inet manual\n\tbond-slaves none\niface eth0 inet manual\n\tbond-master bond0\n"
    change = plan_ifupdown.switch("bond0", "br0", MAC, Ifupdown({"/etc/network/interfaces": text}), virtual=True)
    words = [" ".join(one) for one in (*change.down, *change.up, *change.undo_in_trial, *change.up_again)]
    assert words == [
        "ifdown --force eth0 bond0",
        f"systemd-run --quiet --scope ifup --force -i {TRIAL_INTERFACES} bond0 eth0 br0",
        f"ifdown --force -i {TRIAL_INTERFACES} br0 eth0 bond0",
        "systemd-run --quiet --scope ifup --force bond0 eth0",
    ]


def test_ifupdown_adds_stanzas_of_the_vlan() -> None:
    files = {
        "/etc/network/interfaces": "iface eth0 inet dhcp\n\n",
        "/etc/network/interfaces.d/a": "iface eth1 inet dhcp\n",
    }
    new = Vlan("eth0.42", 42, "eth0", "eth0")
    change = plan_ifupdown.switch_on_vlan(new, "br42", Ifupdown(files, has_vlan=False))
    own = """
auto eth0.42
iface eth0.42 inet manual
\tvlan-raw-device eth0

auto br42
iface br42 inet manual
\tbridge_ports eth0.42
\tbridge_stp off
\tbridge_fd 0
\tbridge_maxwait 0
\tup sysctl -q -e -w net/ipv6/conf/br42/disable_ipv6=1
"""
    assert change.lasting == {"/etc/network/interfaces": f"iface eth0 inet dhcp\n{own}"}
    assert str(change.trial[TRIAL_INTERFACES]).endswith(f"iface eth1 inet dhcp\n{own}")
    assert (change.packages, change.down) == ((), ()), "it makes VLANs with a dot in their names itself"
    named = plan_ifupdown.switch_on_vlan(Vlan("vlan42", 42, "eth0", "eth0"), "br42", Ifupdown(files, has_vlan=False))
    assert named.packages == ("vlan",)
    assert [" ".join(words) for words in (*change.up, *change.undo_in_trial)] == [
        f"ifup -i {TRIAL_INTERFACES} eth0.42 br42",
        f"ifdown -i {TRIAL_INTERFACES} br42 eth0.42",
    ]


@pytest.mark.parametrize(
    ("match", "shared"),
    [
        ("Name=eth0", False),
        ("MACAddress=52:54:00:ab:34:56", False),
        ("Name=en*", True),
        ("Name=eth0 eth1", True),
        ("Type=ether", True),
        ("Name=!eth1", True),
    ],
)
def test_networkd_adds_a_vlan_to_one_link(match: str, shared: bool) -> None:
    config = Networkd("/run/systemd/network/10-a.network", f"[Match]\n{match}\n[Network]\nDHCP=yes\n")
    change = plan_networkd.switch_on_vlan(Vlan("eth0.42", 42, "eth0", "eth0"), "br42", MAC, config)
    texts = {path.removeprefix("/etc/systemd/network/"): str(text) for path, text in change.lasting.items()}
    own = "06-corral-eth0.network" if shared else "10-a.network"
    assert texts[f"{own}.d/corral-br42.conf"].endswith("[Network]\nVLAN=eth0.42\n")
    assert texts["05-corral-eth0.42.netdev"].endswith("Kind=vlan\n\n[VLAN]\nId=42\n")
    assert ("06-corral-eth0.network" in texts) is shared
    if shared:
        assert texts[own].endswith("[Match]\nName=eth0\n\n[Network]\nDHCP=yes\n")
    assert [*change.trial] == [path.replace("/etc/", "/run/") for path in change.lasting]


def test_networkd_keeps_the_link_and_its_vlans_on_the_port() -> None:
    text = "[Match]\nName=eth0\n[Link]\nMTUBytes=9000\n[Network]\nDHCP=yes\nVLAN=eth0.42\n"
    change = plan_networkd.switch("eth0", "br0", MAC, Networkd("/etc/systemd/network/a.network", text))
    of_bridge, of_port = (str(text) for path, text in change.lasting.items() if path.endswith(".network"))
    assert "VLAN" not in of_bridge and "MTUBytes=9000" in of_bridge and "DHCP=yes" in of_bridge
    head = "# Written by the role corral.virt.bridge.\n[Match]\nName=eth0\n\n[Link]\nMTUBytes=9000\n\n"
    assert of_port == f"{head}[Network]\nBridge=br0\nLinkLocalAddressing=no\nVLAN=eth0.42\n"


@pytest.mark.parametrize("kind", ["ethernets", "bonds", "vlans"])
def test_netplan_adds_a_vlan_to_its_parent(kind: str) -> None:
    document: dict[str, t.Any] = {"network": {kind: {"nic": {"match": {"name": "eth0"}, "dhcp4": True}, "x": {}}}}
    other: dict[str, t.Any] = {"network": {"bridges": {"br0": {}}}}
    config = Netplan({"/etc/netplan/a.yaml": document, "/etc/netplan/b.yaml": other})
    change = plan_netplan.switch_on_vlan(Vlan("eth0.42", 42, "eth0", "br0"), "br42", MAC, config)
    (trial,) = _documents(change)
    network = t.cast(t.Any, trial.content["network"])
    nothing = {"dhcp4": False, "dhcp6": False, "link-local": [], "accept-ra": False}
    assert network["vlans"]["eth0.42"] == {"id": 42, "link": "nic", **nothing}
    parameters = {"stp": False, "forward-delay": 0}
    assert network["bridges"] == {"br42": {"interfaces": ["eth0.42"], "parameters": parameters, **nothing}}
    assert network[kind]["nic"] == {"match": {"name": "eth0"}, "dhcp4": True}
    with pytest.raises(Refused, match="0 netplan files configure eth0"):
        plan_netplan.switch_on_vlan(Vlan("eth0.42", 42, "eth0", "br0"), "br42", MAC, Netplan({"/b": other}))


# Confirm


def test_a_switch_is_confirmed_once() -> None:
    steps, changes = plan_bridge.confirm("br0", Trial("br0", running=True))
    assert (steps, changes) == ([ConfirmBridge("br0")], [Change("br0.lasting", False, True)])
    assert str(steps[0]) == "keep bridge br0"
    for running in (True, False):
        assert plan_bridge.confirm("br0", Trial("br0", running, {"ok": True})) == ([], [])


@pytest.mark.parametrize(
    ("trial", "reason"),
    [
        (None, "no switch to it was started"),
        (Trial("br1", running=True), "no switch to it was started"),
        (Trial("br0", running=False), "ended without a result; see journalctl -u corral-bridge"),
        (
            Trial("br0", running=True, result={"ok": False, "why": "too late"}),
            "it was rolled back and the host is as before: too late",
        ),
        (Trial("br0", running=False, result={}), "it was rolled back"),
    ],
)
def test_what_cannot_be_confirmed_is_refused(trial: Trial | None, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        plan_bridge.confirm("br0", trial)


# ifupdown

OPTIONS = plan_ifupdown.bridge_options("eth0", MAC)


@pytest.mark.parametrize("end", ["", " ", "X"])
def test_ifupdown_keeps_the_last_line_as_it_is(end: str) -> None:
    before = f"iface eth0 inet static\n\tup echo{end}\n\n"
    after = plan_ifupdown.bridged(before, "eth0", "br0", OPTIONS)
    assert after.endswith(f"\n\tup echo{end}\n\niface eth0 inet manual\n"), after


def test_ifupdown_moves_the_address_and_keeps_the_link() -> None:
    before = """\
auto lo
iface lo inet loopback

allow-hotplug eth0
iface eth0 inet static
\taddress 192.0.2.7/24
\tgateway 192.0.2.1
\tup ip route add 198.51.100.0/24 via 192.0.2.2 dev eth0
\tup ethtool -K eth0 gro off
\tethernet-wol g
iface eth0 inet6 auto

auto eth1
iface eth1 inet dhcp
\tethernet-wol g
\tup ip route add 203.0.113.0/24 via 192.0.2.2 dev eth0
"""
    assert (
        plan_ifupdown.bridged(before, "eth0", "br0", OPTIONS)
        == f"""\
auto lo
iface lo inet loopback

auto br0
iface br0 inet static
\tbridge_ports eth0
\tbridge_stp off
\tbridge_fd 0
\tbridge_maxwait 0
\tbridge_hw {MAC}
\taddress 192.0.2.7/24
\tgateway 192.0.2.1
\tup ip route add 198.51.100.0/24 via 192.0.2.2 dev br0
\tup ethtool -K eth0 gro off
iface br0 inet6 auto

auto eth1
iface eth1 inet dhcp
\tethernet-wol g
\tup ip route add 203.0.113.0/24 via 192.0.2.2 dev eth0

iface eth0 inet manual
\tethernet-wol g
"""
    )


ALIASED = """auto eth0
iface eth0 inet static
\taddress 192.0.2.5/24

auto eth0:0
iface eth0:0 inet static
\taddress 192.0.2.6/24
\tup ip addr add 192.0.2.8/24 dev eth0 label eth0:0
"""


def test_ifupdown_moves_the_addresses_of_aliases() -> None:
    change = plan_ifupdown.switch("eth0", "br7", MAC, Ifupdown({"/etc/network/interfaces": ALIASED}))
    [text] = map(str, change.lasting.values())
    assert (
        text
        == f"""auto br7
iface br7 inet static
\tbridge_ports eth0
\tbridge_stp off
\tbridge_fd 0
\tbridge_maxwait 0
\tbridge_hw {MAC}
\taddress 192.0.2.5/24

auto br7:0
iface br7:0 inet static
\taddress 192.0.2.6/24
\tup ip addr add 192.0.2.8/24 dev br7 label br7:0

iface eth0 inet manual
"""
    )
    words = [" ".join(one) for one in (*change.down, *change.up, *change.undo_in_trial, *change.up_again)]
    assert words == [
        "ifdown --force eth0:0 eth0",
        f"systemd-run --quiet --scope ifup --force -i {TRIAL_INTERFACES} eth0 br7 br7:0",
        f"ifdown --force -i {TRIAL_INTERFACES} br7:0 br7 eth0",
        "systemd-run --quiet --scope ifup --force eth0 eth0:0",
    ]


def test_ifupdown_refuses_an_alias_whose_name_would_be_too_long() -> None:
    with pytest.raises(Refused, match=r"a-longer-bridg:0 would be longer than 15 characters; choose a shorter name"):
        plan_ifupdown.switch("eth0", "a-longer-bridg", MAC, Ifupdown({"/etc/network/interfaces": ALIASED}))
    plan_ifupdown.switch("eth0", "a-longer-bridg", MAC, Ifupdown({"/etc/network/interfaces": "iface eth0 inet dhcp\n"}))


@pytest.mark.parametrize(
    ("stanza", "files"),
    [
        ("inet dhcp\niface eth0 inet6 dhcp", [("dhclient.eth0", "dhclient.br0"), ("dhclient6.eth0", "dhclient6.br0")]),
        ("inet static\n\taddress 192.0.2.5/24\niface eth1 inet dhcp", []),
    ],
)
def test_to_a_dhcp_server_the_bridge_is_the_client_that_the_port_was(stanza: str, files: list[tuple[str, str]]) -> None:
    config = Ifupdown({"/etc/network/interfaces": f"auto eth0\niface eth0 {stanza}\n"})
    _ifdown, *copies = plan_ifupdown.switch("eth0", "br0", MAC, config).down
    assert copies == [("cp", *(f"/var/lib/dhcp/{name}.leases" for name in pair)) for pair in files]


def test_ifupdown_leaves_names_that_only_begin_alike() -> None:
    before = "auto eth0 eth0.5\niface eth0 inet dhcp\niface eth0.5 inet manual\n"
    after = plan_ifupdown.bridged(f"\n{before}\n\n", "eth0", "br0", OPTIONS)
    assert after.startswith("\nauto br0 eth0.5\niface br0 inet dhcp\n")
    assert after.endswith(f"{MAC}\niface eth0.5 inet manual\n\niface eth0 inet manual\n")
    assert plan_ifupdown.has_stanza(before, "eth0") and not plan_ifupdown.has_stanza(before, "eth")


def test_ifupdown_keeps_classes_other_than_hotplug() -> None:
    text = "allow-ovs eth0\nno-auto-down eth0\nmapping eth0\n"
    after = plan_ifupdown.bridged(text, "eth0", "br0", OPTIONS)
    assert after == "allow-ovs br0\nno-auto-down eth0\nmapping eth0\n"
    for other in ("allow-hotplug eth1\n", "\tip route dev eth0", "auto   eth1  lo\n\n\n", ""):
        assert plan_ifupdown.bridged(other, "eth0", "br0", OPTIONS) == other


@pytest.mark.parametrize("word", ["mapping", "rename", "template", "no-auto-down", "no-scripts"])
def test_ifupdown_ends_a_stanza_where_another_begins(word: str) -> None:
    text = f"iface eth0 inet dhcp\n{word} eth1\n\tethernet-wol g\n"
    after = plan_ifupdown.bridged(text, "eth0", "br0", OPTIONS)
    assert f"{word} eth1\n\tethernet-wol g\n" in after


def test_ifupdown_changes_each_file_that_speaks_of_the_port() -> None:
    files = {
        "/etc/network/interfaces": "auto eth0\nsource interfaces.d/*\n",
        "/etc/network/interfaces.d/a": "iface eth0 inet dhcp\n\tethernet-wol g\n",
        "/etc/network/interfaces.d/b": "iface eth0 inet6 auto\n",
        "/etc/network/interfaces.d/c": "iface eth1 inet dhcp",
        "/etc/network/interfaces.d/d": "iface eth0 inet6 manual\n\tlink-speed 1000\n",
    }
    change = plan_ifupdown.switch("eth0", "br0", MAC, Ifupdown(files))
    texts = {path.rpartition("/")[2]: str(text) for path, text in change.lasting.items()}
    assert texts == {
        "interfaces": "auto br0\nsource interfaces.d/*\n",
        "a": texts["a"],
        "b": "iface br0 inet6 auto\n",
        "d": "iface br0 inet6 manual\n\niface eth0 inet manual\n\tlink-speed 1000\n",
    }
    assert texts["a"].startswith("iface br0 inet dhcp\n\tbridge_ports eth0\n")
    assert f"\tbridge_hw {MAC}\n" in texts["a"]
    assert texts["a"].endswith("\n\niface eth0 inet manual\n\tethernet-wol g\n")
    (trial,) = change.trial.values()
    flat = "auto br0\niface br0 inet dhcp\n\tbridge_ports eth0\n"
    assert str(trial).startswith(flat) and "source" not in str(trial)
    assert str(trial).count("bridge_ports") == str(trial).count("iface eth0 inet manual") == 1


@pytest.mark.parametrize(
    ("config", "packages", "ipv6"),
    [
        (Ifupdown({}, "1", has_brctl=True), (), "1"),
        (Ifupdown({}, "", has_brctl=False), ("bridge-utils",), "0"),
    ],
)
def test_ifupdown_commands(config: Ifupdown, packages: tuple[str, ...], ipv6: str) -> None:
    change = plan_ifupdown.switch("eth0", "br0", MAC, config)
    trial = TRIAL_INTERFACES
    assert change.packages == packages
    assert [*change.trial] == [trial]
    assert [" ".join(words) for words in (*change.down, *change.up)] == [
        "ifdown --force eth0",
        f"systemd-run --quiet --scope ifup --force -i {trial} eth0 br0",
    ]
    assert [" ".join(words) for words in (*change.undo_in_trial, *change.undo, *change.up_again)] == [
        f"ifdown --force -i {trial} br0 eth0",
        "ip link delete br0",
        f"sysctl -w net/ipv6/conf/eth0/disable_ipv6={ipv6}",
        "ip link set dev eth0 addrgenmode eui64",
        "systemd-run --quiet --scope ifup --force eth0",
    ]
    assert change.reload == ()


def test_ifupdown_follows_what_is_sourced(tmp_path: Path) -> None:
    folder = tmp_path / "interfaces.d"
    (folder / "more").mkdir(parents=True)
    (tmp_path / "interfaces").write_text(
        "auto lo\nsource\nsource interfaces.d/*.cfg\nsource-directory interfaces.d/more\n"
    )
    (folder / "eth0.cfg").write_text("auto eth0\niface eth0 inet dhcp\nsource ../interfaces\n")
    (folder / "not").write_text("iface not inet dhcp\n")
    (folder / "more/eth1").write_text("auto eth1\n")
    (folder / "more/eth1.bak").write_text("auto bak\n")
    found = files_links.interfaces_files(str(tmp_path / "interfaces"))
    assert plan_ifupdown.flat(found) == "auto lo\nauto eth0\niface eth0 inet dhcp\nauto eth1\n"


# systemd-networkd


@pytest.mark.parametrize(("iaid", "tail"), [(255, "\n[DHCPv4]\nIAID=255\n"), (None, "")])
def test_networkd_gives_the_bridge_the_ports_network(iaid: int | None, tail: str) -> None:
    link = "[Link]\nMACAddress=52:54:00:00:00:01\nMTUBytes=9000\n"
    text = f"[Match]\nName=en*\n{link}[Network]\nDHCP=yes\nMACAddress=x\n"
    after = plan_networkd.network_of_bridge(text, "br0", iaid)
    network = "[Network]\nDHCP=yes\nMACAddress=x\n"
    assert after == f"[Match]\nName=br0\n\n[Link]\nMTUBytes=9000\n{network}{tail}"


def test_networkd_files_and_commands() -> None:
    text = "[Match]\nName=eth0\n[Network]\nDHCP=yes\n"
    config = Networkd("/etc/systemd/network/10-a.network", text, iaid=7)
    change = plan_networkd.switch("eth0", "br0", MAC, config)
    head = "# Written by the role corral.virt.bridge.\n"
    netdev = f"[NetDev]\nName=br0\nKind=bridge\nMACAddress={MAC}\n"
    assert change.lasting == {
        "/etc/systemd/network/05-corral-br0.netdev": (f"{head}{netdev}\n[Bridge]\nSTP=false\nForwardDelaySec=0\n"),
        "/etc/systemd/network/05-corral-br0.network": (
            f"{head}# As /etc/systemd/network/10-a.network for "
            "eth0.\n[Match]\nName=br0\n\n[Network]\nDHCP=yes\n\n[DHCPv4]\nIAID=7\n"
        ),
        "/etc/systemd/network/05-corral-br0-eth0.network": (
            f"{head}[Match]\nName=eth0\n\n[Network]\nBridge=br0\nLinkLocalAddressing=no\n"
        ),
    }
    assert change.trial == {path.replace("/etc/", "/run/"): text for path, text in change.lasting.items()}
    assert (change.down, change.up, change.reload) == ((), (("networkctl", "reload"),), change.up)
    assert [" ".join(words) for words in (*change.undo, *change.up_again)] == [
        "networkctl reload",
        "ip link delete br0",
        "networkctl reconfigure eth0",
    ]


def test_a_networkd_file_that_is_gone_is_refused() -> None:
    with pytest.raises(Refused, match=r"/a\.network, which configured eth0, is gone"):
        plan_networkd.switch("eth0", "br0", MAC, Networkd("/a.network", " \n"))


# netplan


@pytest.mark.parametrize(
    ("key", "match"),
    [
        ("eth0", {}),
        ("nic", {"match": {"macaddress": MAC.upper()}, "set-name": "other"}),
        ("nic", {"set-name": "eth0"}),
        ("nic", {"match": {"name": "eth0"}}),
    ],
)
@pytest.mark.parametrize("kind", ["ethernets", "bonds", "vlans"])
def test_netplan_moves_all_but_the_link(key: str, match: dict[str, t.Any], kind: str) -> None:
    servers = {"addresses": ["192.0.2.1"]}
    of_the_link = {**match, "mtu": 9000, "id": 5, "link": "a", "interfaces": ["b"]}
    of_the_link.update({"wakeonlan": True, "renderer": "networkd", "optional": True})
    of_the_link["parameters"] = {"mode": "802.3ad"}
    place = {"dhcp4": True, "nameservers": servers, "macaddress": MAC}
    links_there = {"before": {"dhcp4": True}, key: {**of_the_link, **place}}
    network: dict[str, t.Any] = {kind: links_there, "bridges": None}
    assert plan_netplan.move_to_bridge(network, "eth0", "br0", MAC)
    none = {"dhcp4": False, "dhcp6": False, "link-local": []}
    assert network[kind] == {"before": {"dhcp4": True}, key: {**of_the_link, **none}}
    assert network["bridges"]["br0"] == {
        "dhcp4": True,
        "nameservers": servers,
        "interfaces": [key],
        "macaddress": MAC,
        "parameters": {"stp": False, "forward-delay": 0},
    }


@pytest.mark.parametrize(
    "network",
    [
        {},
        {"ethernets": None},
        {"ethernets": {"eth1": {"match": {"macaddress": "x"}}}},
        {"wifis": {"eth0": {}}},
    ],
)
def test_netplan_leaves_what_is_not_the_port(network: dict[str, t.Any]) -> None:
    before = str(network)
    assert not plan_netplan.move_to_bridge(network, "eth0", "br0", MAC)
    assert str(network) == before


def test_netplan_keeps_other_bridges() -> None:
    network: dict[str, t.Any] = {"ethernets": {"eth0": {}}, "bridges": {"br1": {}}}
    plan_netplan.move_to_bridge(network, "eth0", "br0", MAC)
    assert sorted(network["bridges"]) == ["br0", "br1"]


@pytest.mark.parametrize("name", ["50-cloud-init.yaml", "01-network.yaml"])
def test_netplan_files_and_commands(name: str) -> None:
    path, other = f"/etc/netplan/{name}", "/etc/netplan/99-other.yaml"
    ethernets = {"eth1": {"dhcp6": True}, "eth0": {"dhcp4": True}}
    document = {"network": {"version": 2, "ethernets": ethernets}}
    config = Netplan({path: document, other: {"network": None}, "/etc/netplan/x.yaml": {}})
    change = plan_netplan.switch("eth0", "br0", MAC, config)
    assert [*change.trial] == [f"/run/netplan/{name}"]
    (trial,) = change.trial.values()
    assert isinstance(trial, Document) and change.lasting[path] == trial
    assert trial.head == "# eth0 was moved to the bridge br0 by the role corral.virt.bridge.\n"
    network = t.cast(t.Any, trial.content["network"])
    assert network["bridges"]["br0"]["interfaces"] == ["eth0"]
    assert ethernets == {"eth1": {"dhcp6": True}, "eth0": {"dhcp4": True}}
    cloud = "/etc/cloud/cloud.cfg.d/99-corral-bridge.cfg"
    assert set(change.lasting) == ({path, cloud} if "cloud" in name else {path})
    if cloud in change.lasting:
        text = f"# {path} is no longer cloud-init's.\nnetwork: {{config: disabled}}\n"
        assert change.lasting[cloud] == text
    generate, apply = ("netplan", "generate"), ("netplan", "apply")
    assert (change.up, change.reload) == ((generate, apply), (generate,))
    assert change.undo == (generate, ("ip", "link", "delete", "br0"), apply)


@pytest.mark.parametrize("count", [0, 2])
def test_netplan_describes_a_port_in_one_file(count: int) -> None:
    one: dict[str, t.Any] = {"network": {"ethernets": {"eth0": {}}}}
    documents = {f"/etc/netplan/{number}.yaml": one for number in range(count)}
    with pytest.raises(Refused, match=f"{count} netplan files configure eth0"):
        plan_netplan.switch("eth0", "br0", MAC, Netplan(documents))


# The host


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a switch keeps what it needs."""
    folder = tmp_path / "corral-bridge"
    for module in (files_bridge, files_links):
        monkeypatch.setattr(module, "STATE", str(folder))
        monkeypatch.setattr(module, "RESULT", str(folder / "result.json"))
    return folder


def test_a_switch_is_begun_with_all_that_it_needs(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(files_bridge, "run", lambda *words: ran.append(words))
    monkeypatch.setattr(files_links, "active", lambda _unit: True)
    state.mkdir(mode=0o700)
    for leftover in ("confirmed", "result.json"):
        (state / leftover).write_text("{}")
    document = Document("# head\n", {"network": {"b": 1, "a": 2}})
    change = dataclasses.replace(CHANGE, trial={"/run/a": document}, lasting={"/etc/a": "text"})
    files_bridge.start(change, 30)
    trial = files_links.trial()
    assert trial == Trial("br0", running=True)
    text = (state / "change.json").read_text()
    assert '"/run/a": "# head\\nnetwork:\\n  b: 1\\n  a: 2\\n"' in text and '"timeout_s": 30' in text
    (command,) = ran
    assert command[:4] == ("systemd-run", "--collect", "--unit", "corral-bridge")
    assert command[-2:] == ("-I", str(state / "bridge.py"))
    program = (state / "bridge.py").read_text()
    compile(program, "bridge.py", "exec")
    assert "ansible_collections" not in program, "it runs without the module"
    assert [one.stat().st_mode & 0o077 for one in (state, *state.iterdir())] == [0, 0, 0]


def test_a_result_is_read(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_links, "active", lambda _unit: False)
    assert files_links.trial() is None
    state.mkdir()
    (state / "change.json").write_text('{"bridge": "br1"}')
    assert files_links.trial() == Trial("br1", running=False)
    (state / "result.json").write_text('{"ok": true}')
    assert files_links.trial() == Trial("br1", running=False, result={"ok": True})


def test_a_confirmation_waits_for_the_result(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state.mkdir()
    results = ['{"ok": true}', '{"ok": false, "why": "too late"}']

    def answer(_seconds: float) -> None:
        assert (state / "confirmed").exists()
        (state / "result.json").write_text(results[0])

    monkeypatch.setattr("time.sleep", answer)
    files_bridge.confirm("br0")
    (state / "confirmed").unlink()
    files_bridge.confirm("br0")
    assert not (state / "confirmed").exists(), "there is a result already"
    (state / "result.json").write_text(results[1])
    with pytest.raises(Failed, match="as before: too late"):
        files_bridge.confirm("br0")
    (state / "result.json").unlink()
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    monkeypatch.setattr(files_bridge, "_ANSWER_S", -1)
    with pytest.raises(Failed, match="did not report a result within"):
        files_bridge.confirm("br0")


def test_small_verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(files_bridge, "run", lambda *words: ran.append(" ".join(words)))
    files_bridge.switch_off("br0", "stp_state")
    files_bridge.set_sysctl(["net.a", "net.b"], "0")
    assert ran == [
        "ip link set br0 type bridge stp_state 0",
        "sysctl -w net.a=0",
        "sysctl -w net.b=0",
    ]
    monkeypatch.setattr("shutil.which", lambda _name, **_path: None)
    with pytest.raises(Unsupported, match="without bridge-utils; install bridge-utils first"):
        files_bridge.require(["bridge-utils"])
    monkeypatch.setattr("shutil.which", lambda name, path: path and name)
    files_bridge.require(["bridge-utils"])


NETWORKCTL = """    Network File: /etc/systemd/network/10-a.network
           State: routable
  DHCP4 Client ID: IAID:0xb7a1/DUID
"""


def test_whoever_could_have_configured_a_link_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interfaces = tmp_path / "interfaces"
    interfaces.write_text("iface eth0 inet dhcp\n")
    monkeypatch.setattr(files_links, "_INTERFACES", str(interfaces))
    monkeypatch.setattr(files_links, "_NETPLAN", str(tmp_path / "*.yaml"))
    running: set[str] = set()
    monkeypatch.setattr(files_links, "active", lambda unit: unit in running)
    answers = {"nmcli": "", "networkctl": NETWORKCTL}
    monkeypatch.setattr(files_links, "answer", lambda *words: answers[words[0]])
    assert files_links.owner("eth0") == PortOwner(ifupdown=True)
    assert files_links.owner("eth1") == PortOwner()
    running |= {"NetworkManager", "systemd-networkd"}
    path = "/etc/systemd/network/10-a.network"
    assert files_links.owner("eth1") == PortOwner(network_file=path)
    profiles = tmp_path / "system-connections"
    profiles.mkdir()
    answers.update(nmcli=f"u1:eth1:{profiles}/eth1.nmconnection\n", networkctl="")
    for text, is_its in (("[connection]\nid=eth1\n", True), ("[.nmmeta]\nnm-generated=true\nexternal=true\n", False)):
        (profiles / "eth1.nmconnection").write_text(text)
        assert files_links.owner("eth1") == PortOwner(networkmanager=is_its)
        assert files_links.owner("eth2") == PortOwner()
    answers["nmcli"] = f"u1:eth1:{profiles}/netplan-eth1.nmconnection\n"
    (profiles / "netplan-eth1.nmconnection").write_text("[connection]\n")
    assert files_links.owner("eth1") == PortOwner(networkmanager=True, netplan=True)
    (tmp_path / "a.yaml").write_text("network:\n  ethernets: {eth1: {}}\n")
    found = files_links.config("netplan", "eth1")
    assert found == Netplan({str(tmp_path / "a.yaml"): {"network": {"ethernets": {"eth1": {}}}}})
    (tmp_path / "a.yaml").write_text("{")
    with pytest.raises(Failed, match=r"cannot read .*a\.yaml: "):
        files_links.config("netplan", "eth1")


def test_a_network_file_is_read_with_its_drop_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "10-a.network"
    path.write_text("[Match]\nName=eth0")
    (tmp_path / "10-a.network.d").mkdir()
    (tmp_path / "10-a.network.d/more.conf").write_text("[Network]\nDHCP=yes")
    status = NETWORKCTL.replace("/etc/systemd/network", str(tmp_path))
    monkeypatch.setattr(files_links, "answer", lambda *_words: status)
    text = "[Match]\nName=eth0\n[Network]\nDHCP=yes"
    assert files_links.config("networkd", "eth0") == Networkd(str(path), text, 0xB7A1)


def subclasses(kind: type[HostStep]) -> set[type[HostStep]]:
    return set(kind.__subclasses__()).union(*map(subclasses, kind.__subclasses__()))


def test_every_step_has_a_doer() -> None:
    # The restart is done by itself, as it tells the jobs that it waited for in vain.
    done = {*run_bridge._DOERS, *run_firewall._DOERS, *run_daemon._DOERS, *run_tuning._DOERS}
    assert {*done, RestartDaemons} == subclasses(HostStep)
    assert {*run_bridge._DOERS} & {*run_firewall._DOERS} & {*run_daemon._DOERS} & {*run_tuning._DOERS} == {WriteFile}


def test_check_mode_says_what_a_real_run_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = port_of_br0()
    found = host(br0(stp_state=1), link, systemd_sysctl="/lib/systemd-sysctl")
    monkeypatch.setattr(files_links, "facts", lambda _calls: found)
    did: list[str] = []

    def note(step: HostStep) -> None:
        did.append(str(step))

    for kind in [*run_bridge._DOERS]:
        monkeypatch.setitem(run_bridge._DOERS, kind, note)
    params = {**PARAMS, "filter_guests": False, "switch_off_stp": True}
    predicted = run_bridge.converge(params, Gate(check_mode=True))
    assert did == [] and predicted["changed"]
    assert run_bridge.converge(params, Gate(check_mode=False)) == predicted
    assert did == predicted["steps"] == ["switch off stp of br0", f"write {SYSCTL}", f"write {UDEV}"]
    assert (predicted["switches"], predicted["port"], predicted["packages"]) == (False, None, [])
    monkeypatch.setattr(files_links, "trial", lambda: Trial("br0", running=True))
    confirmed = run_bridge.converge({**params, "state": "confirmed"}, Gate(check_mode=True))
    assert (confirmed["steps"], confirmed["switches"]) == (["keep bridge br0"], False)


def test_a_switch_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = host(default_routes=("eth0",), addresses={"eth0": ("192.0.2.1",)})
    monkeypatch.setattr(files_links, "facts", lambda _calls: found)
    monkeypatch.setattr(files_links, "owner", lambda _port: PortOwner(ifupdown=True))
    config = Ifupdown({"/etc/network/interfaces": "iface eth0 inet dhcp\n"}, has_brctl=False)
    monkeypatch.setattr(files_links, "config", lambda _manager, _port: config)
    predicted = run_bridge.converge(PARAMS, Gate(check_mode=True))
    assert (predicted["manager"], predicted["port"], predicted["switches"]) == (
        "ifupdown",
        "eth0",
        True,
    )
    assert predicted["packages"] == ["bridge-utils"]
    assert predicted["steps"] == [
        "require bridge-utils",
        "bridge br0 takes over 192.0.2.1 from eth0 (ifupdown)",
    ]
    assert predicted["diff"]["after"] == {"br0.port": "eth0", "br0.addresses": ["192.0.2.1"]}
    assert (STATE, RESULT) == ("/run/corral-bridge", "/run/corral-bridge/result.json")
