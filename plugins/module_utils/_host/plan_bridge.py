# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decisions about a host's bridge: its port, the port's manager, and the steps. Pure."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._host import (
    plan_ifupdown,
    plan_netplan,
    plan_networkd,
    plan_networkmanager,
)
from ansible_collections.corral.virt.plugins.module_utils._host.model_bridge import (
    RESULT,
    SYSCTL,
    UDEV,
    UNIT,
    BridgeFacts,
    BridgeSpec,
    Config,
    Ifupdown,
    NetworkChange,
    Networkd,
    NmProfiles,
    PortOwner,
    Trial,
    Vlan,
    rolled_back,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import (
    HostStep,
    WriteFile,
)


@dataclasses.dataclass(frozen=True)
class RequirePackages(HostStep):
    """Fail unless packages are installed; this does not install them."""

    packages: tuple[str, ...]

    def __str__(self) -> str:
        return f"require {' '.join(self.packages)}"


@dataclasses.dataclass(frozen=True)
class SetBridgeOption(HostStep):
    """Switch an option of a running bridge off."""

    template = "switch off {0.word} of {0.bridge}"
    bridge: str
    field: str
    word: str  # for the user


@dataclasses.dataclass(frozen=True)
class SetSysctl(HostStep):
    """Set keys of the running kernel."""

    keys: tuple[str, ...]
    value: str
    why: str

    def __str__(self) -> str:
        return f"set {' '.join(self.keys)} to {self.value} ({self.why})"


@dataclasses.dataclass(frozen=True)
class SwitchToBridge(HostStep):
    """Start a trial of the network with the bridge; it is rolled back unless confirmed in time."""

    change: NetworkChange
    addresses: tuple[str, ...]  # that the bridge takes over
    timeout_s: int

    def __str__(self) -> str:
        change, addresses = self.change, ", ".join(self.addresses) or "the link"
        if change.holder:
            return f"bridge {change.bridge} gets the port {change.port} ({change.manager})"
        return f"bridge {change.bridge} takes over {addresses} from {change.port} ({change.manager})"


@dataclasses.dataclass(frozen=True)
class ConfirmBridge(HostStep):
    """Keep the bridge on trial, also at the next boot."""

    template = "keep bridge {0.bridge}"
    bridge: str


Draft = tuple[list[HostStep], list[Change]]
Link = t.Mapping[str, t.Any]
NF_CALLS = ("bridge-nf-call-arptables", "bridge-nf-call-ip6tables", "bridge-nf-call-iptables")
_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,15}")
_AUTO = "auto"
_HEAD = "# Written by the role corral.virt.bridge: guests on a bridge are not filtered by the host.\n"
_LAST_VLAN = 4094
_LONGEST_NAME = 15
_SHORTEST_S = 5  # for a connection to come back


def spec(params: t.Mapping[str, t.Any]) -> BridgeSpec:
    """The requested bridge; raises BadInput with every problem."""
    name, wanted_port, timeout_s = params["name"], params["port"], params["timeout"]
    problems = []
    for option, value in (("name", name), ("port", wanted_port)):
        if not _NAME.fullmatch(value):
            problems.append(
                f"{option}: {value!r} is not a valid interface name; use up to 15 letters, digits, '.', '_' and '-'"
            )
    if name == wanted_port:
        problems.append(f"port: {name} cannot be a port of itself; give the bridge another name")
    vlan = params["vlan"]
    if vlan is not None and not 1 <= vlan <= _LAST_VLAN:
        problems.append(f"vlan: {vlan} is no VLAN; choose 1 to {_LAST_VLAN}")
    if vlan is not None and params["vlan_filtering"]:
        problems.append(
            "vlan_filtering: a bridge on one VLAN gets no tagged frames; omit vlan, and set vlan of guests' interfaces"
        )
    if timeout_s < _SHORTEST_S:
        problems.append(f"timeout: {timeout_s} s is too short; set at least {_SHORTEST_S}")
    if problems:
        raise BadInput(problems)
    return BridgeSpec(
        name=name,
        port=None if wanted_port == _AUTO else wanted_port,
        address=params["address"] or None,
        timeout_s=timeout_s,
        filter_guests=params["filter_guests"],
        vlan=vlan,
        vlan_filtering=params["vlan_filtering"],
        switch_off_stp=params["switch_off_stp"],
    )


def port(wanted: BridgeSpec, facts: BridgeFacts) -> str | Vlan | None:
    """The link that the bridge takes over, or the VLAN to be made; None if the bridge exists. Raises Refused."""
    trial = facts.trial
    if trial and trial.running and not trial.result:
        raise Refused(
            f"cannot create bridge {wanted.name} on {facts.host}: a switch to {trial.bridge} is in progress; wait "
            "until it is confirmed or rolled back, and run again"
        )
    if wanted.name in facts.links:
        if trial and trial.bridge == wanted.name and trial.result is None:
            raise Refused(
                f"cannot tell whether bridge {wanted.name} on {facts.host} lasts: the service {UNIT} has ended without "
                f"a result; see journalctl -u {UNIT}, reboot the host, and run again"
            )
        return None
    found = wanted.port or _default_port(wanted, facts)
    vlan = _vlan(found, wanted.vlan, facts) if wanted.vlan else None
    if vlan and vlan.name in facts.links and _is_vlan(facts.links[vlan.name], wanted.vlan, vlan.parent):
        found, vlan = vlan.name, None  # it is a port like others
    problems = _unfit_parent(vlan, facts) if vlan else _unfit(found, facts)
    if problems:
        raise Refused(f"cannot create bridge {wanted.name}: {'; '.join(problems)}")
    return vlan or found


def manager(name: str, owner: PortOwner, facts: BridgeFacts, *, bridge: str) -> str:
    """The program that configures a port; raises Refused if the bridge must be created by hand."""
    if owner.netplan or "netplan" in owner.network_file:
        return "netplan"
    if owner.networkmanager:
        return "networkmanager"
    if owner.network_file:
        return "networkd"
    if owner.ifupdown:
        return "ifupdown"
    raise Refused(
        f"cannot create bridge {bridge}: neither ifupdown, systemd-networkd, netplan nor NetworkManager configures "
        f"{name} on {facts.host}; create the bridge yourself, with the address and the MAC address of {name}, and run "
        "again"
    )


def switch(wanted: BridgeSpec, new: str | Vlan, facts: BridgeFacts, config: Config) -> NetworkChange:
    """How the host's network switches to the bridge; raises Refused."""
    bridge, filtering = wanted.name, wanted.vlan_filtering
    if isinstance(new, Vlan):
        return _switch_on_vlan(bridge, new, facts, config)
    mac = facts.links[new]["address"]
    if isinstance(config, Ifupdown):
        virtual = _kind(facts.links[new]) in ("bond", "vlan")
        _refuse_lost_vlans(bridge, new, facts, virtual=virtual)
        return plan_ifupdown.switch(new, bridge, mac, config, virtual=virtual, vlan_filtering=filtering)
    if isinstance(config, Networkd):
        return plan_networkd.switch(new, bridge, mac, config, vlan_filtering=filtering)
    if isinstance(config, NmProfiles):
        return plan_networkmanager.switch(new, bridge, mac, config, vlan_filtering=filtering)
    if filtering:
        raise Refused(
            f"cannot create bridge {bridge}: netplan has no VLAN filtering for bridges; set vlan instead, with one "
            "bridge for each VLAN, or configure this host with systemd-networkd or NetworkManager"
        )
    return plan_netplan.switch(new, bridge, mac, config)


def _switch_on_vlan(bridge: str, vlan: Vlan, facts: BridgeFacts, config: Config) -> NetworkChange:
    mac = facts.links[vlan.parent]["address"]
    if isinstance(config, Ifupdown):
        return plan_ifupdown.switch_on_vlan(vlan, bridge, config)
    if isinstance(config, Networkd):
        return plan_networkd.switch_on_vlan(vlan, bridge, mac, config)
    if isinstance(config, NmProfiles):
        return plan_networkmanager.switch_on_vlan(vlan, bridge, mac, config)
    return plan_netplan.switch_on_vlan(vlan, bridge, mac, config)


def _refuse_lost_vlans(bridge: str, port: str, facts: BridgeFacts, *, virtual: bool) -> None:
    """ifdown of a bond deletes its VLANs, and that of another port their routes."""
    on_it = [str(link["ifname"]) for link in facts.links.values() if link.get("link") == port and _kind(link) == "vlan"]
    lost = [name for name in on_it if virtual or facts.addresses.get(name)]
    if lost:
        raise Refused(
            f"cannot create bridge {bridge}: ifdown {port} would take {', '.join(lost)} down; run `ifdown` for what "
            f"is on it, create {bridge}, and run `ifup` for it (in virt_bridges, list {bridge} before bridges on VLANs)"
        )


def decide(wanted: BridgeSpec, facts: BridgeFacts, change: NetworkChange | None) -> Draft:
    """Steps and their changes; raises Refused if the existing bridge does not fit.

    `change`: how to switch to a bridge that does not exist yet.
    """
    drafts = [] if wanted.filter_guests else [_unfiltered(facts)]
    if change is None:
        drafts.insert(0, _mended(wanted, facts))
    else:
        if change.packages:
            drafts.insert(0, ([RequirePackages(change.packages)], []))
        drafts.append(_switched(wanted, facts, change))
    steps = [step for draft in drafts for step in draft[0]]
    return steps, [change for draft in drafts for change in draft[1]]


def confirm(name: str, trial: Trial | None) -> Draft:
    """The step that keeps the bridge on trial; raises Refused if there is no such trial."""
    if trial is None or trial.bridge != name:
        raise Refused(
            f"cannot confirm bridge {name}: no switch to it was started since the last boot; use state: present"
        )
    if trial.result is None:
        if not trial.running:
            raise Refused(
                f"cannot confirm bridge {name}: the service {UNIT} has ended without a result; "
                f"see journalctl -u {UNIT}, reboot the host, and use state: present again"
            )
        return [ConfirmBridge(name)], [Change(f"{name}.lasting", False, True)]
    if not trial.result.get("ok"):
        raise Refused(
            f"cannot confirm bridge {name}: {rolled_back(trial.result)}; see {RESULT}, and use state: present again"
        )
    return [], []


def _default_port(wanted: BridgeSpec, facts: BridgeFacts) -> str:
    """The link of the default route, else the one with the address that the controller uses."""
    holders = [link for link, addresses in facts.addresses.items() if wanted.address in addresses]
    found = next(iter((*facts.default_routes, *holders)), None)
    if found and wanted.vlan and _kind(facts.links[found]) == "bridge":  # an earlier one of this role
        ports = _lasting_ports(found, facts)
        if len(ports) != 1:
            raise Refused(
                f"cannot create bridge {wanted.name}: {found} has {len(ports)} ports; set port to the one that "
                f"has VLAN {wanted.vlan}"
            )
        found = ports[0]
    if not found:
        raise Refused(
            f"cannot create bridge {wanted.name}: {facts.host} has no default route; set port (bridge_port) to the "
            "interface that belongs in the bridge"
        )
    return found


def _unfit(name: str, facts: BridgeFacts) -> list[str]:
    """Why a link cannot be a port; empty if it can."""
    link = facts.links.get(name)
    if link is None:
        return [f"there is no interface {name}, and no bond is made; choose one of {', '.join(sorted(facts.links))}"]
    problems = _no_ethernet(name, facts)
    if _kind(link) == "bridge":
        problems.append(f"{name} is already a bridge; set name (bridge_name) to {name} to use it")
    if link.get("master"):
        problems.append(f"{name} belongs to {link['master']}; add that to the bridge instead")
    return problems


def _no_ethernet(name: str, facts: BridgeFacts) -> list[str]:
    problems = []
    if name in facts.wireless:
        problems.append(
            f"{name} is wireless and access points do not let bridged guests through; use a cable, or a libvirt "
            "network of mode nat or route (virt_networks) in place of the bridge"
        )
    if facts.links[name].get("link_type") != "ether":
        problems.append(f"{name} is not an Ethernet interface; choose another port (bridge_port)")
    return problems


def _vlan(parent: str, number: int, facts: BridgeFacts) -> Vlan:
    """The VLAN of a link, with the name that it has, or the usual one."""
    usual = f"{parent}.{number}"
    names = [str(link["ifname"]) for link in facts.links.values() if _is_vlan(link, number, parent)]
    names.append(usual if len(usual) <= _LONGEST_NAME else f"vlan{number}")
    master = facts.links.get(parent, {}).get("master")
    return Vlan(names[0], number, parent, master or parent)


def _is_vlan(link: Link, number: int | None, parent: str) -> bool:
    info = link.get("linkinfo", {})
    return (info.get("info_kind"), info.get("info_data", {}).get("id"), link.get("link")) == ("vlan", number, parent)


def _unfit_parent(vlan: Vlan, facts: BridgeFacts) -> list[str]:
    """Why a link cannot have a new VLAN for a bridge; empty if it can."""
    parent = vlan.parent
    if parent not in facts.links:
        return _unfit(parent, facts)
    problems = _no_ethernet(parent, facts)
    if vlan.name in facts.links:
        problems.append(f"{vlan.name} exists and is not VLAN {vlan.id} of {parent}; remove or rename it")
    if _kind(facts.links[parent]) == "bridge":
        problems.append(
            f"{parent} is a bridge; set port to its port, {' or '.join(_lasting_ports(parent, facts)) or 'if any'}"
        )
    master = facts.links[parent].get("master")
    over = facts.links.get(str(master), {})
    if master and _kind(over) != "bridge":
        problems.append(f"{parent} belongs to {master}; set port to {master}")
    elif over.get("linkinfo", {}).get("info_data", {}).get("vlan_filtering"):
        problems.append(
            f"{parent} belongs to {master}, which filters VLANs; connect guests to {master}, with vlan {vlan.id} of "
            "their interfaces"
        )
    return problems


def _lasting_ports(bridge: str, facts: BridgeFacts) -> list[str]:
    """The ports of a bridge that are not those of guests."""
    ports = [link for link in facts.links.values() if link.get("master") == bridge]
    return [str(link["ifname"]) for link in ports if _kind(link) != "tun"]


def _kind(link: Link) -> str | None:
    kind: str | None = link.get("linkinfo", {}).get("info_kind")
    return kind


def _mended(wanted: BridgeSpec, facts: BridgeFacts) -> Draft:
    """Steps for an existing bridge: without STP and forward delay, if told. Raises Refused if it does not fit."""
    name, link = wanted.name, facts.links[wanted.name]
    if _kind(link) != "bridge":
        raise Refused(f"cannot use {name}: it is not a bridge; choose another name (bridge_name)")
    lasting = _lasting_ports(name, facts)
    options = link["linkinfo"].get("info_data", {})
    if wanted.vlan:
        _require_vlan(wanted, wanted.vlan, lasting, facts)
    elif wanted.port and wanted.port not in lasting:
        raise Refused(f"cannot use bridge {name}: {wanted.port} is not in it; add it yourself, or remove the bridge")
    if not lasting:
        raise Refused(
            f"cannot use bridge {name}: it has no port and leads nowhere; choose another name (bridge_name), add an "
            "interface to it, or remove it"
        )
    if wanted.vlan_filtering and not options.get("vlan_filtering"):
        raise Refused(
            f"cannot use bridge {name}: it does not filter VLANs; set that in its own configuration, or omit "
            "vlan_filtering"
        )
    steps: list[HostStep] = []
    changes: list[Change] = []
    for field, word in (("stp_state", "stp"), ("forward_delay", "forward delay")):
        # Without STP, the kernel forwards at once.
        if wanted.switch_off_stp and options.get("stp_state") and options.get(field):
            steps.append(SetBridgeOption(name, field, word))
            changes.append(Change(f"{name}.{field}", options[field], 0))
    return steps, changes


def _require_vlan(wanted: BridgeSpec, number: int, ports: list[str], facts: BridgeFacts) -> None:
    parents = [wanted.port] if wanted.port else [str(facts.links[port].get("link")) for port in ports]
    if not any(_is_vlan(facts.links[port], number, parent) for port in ports for parent in parents):
        of = f" of {wanted.port}" if wanted.port else ""
        raise Refused(
            f"cannot use bridge {wanted.name}: VLAN {number}{of} is not in it; add it yourself, or remove the bridge"
        )


def _switched(wanted: BridgeSpec, facts: BridgeFacts, change: NetworkChange) -> Draft:
    addresses = facts.addresses.get(change.port, ())
    name = change.bridge
    step = SwitchToBridge(change, addresses, wanted.timeout_s)
    moved = [] if change.holder else [Change(f"{name}.addresses", None, [*addresses])]
    return [step], [Change(f"{name}.port", None, change.port), *moved]


def _unfiltered(facts: BridgeFacts) -> Draft:
    """Steps that keep the host's packet filter from guests' packets on a bridge, also with br_netfilter."""
    rule = 'ACTION=="add", SUBSYSTEM=="module", KERNEL=="br_netfilter"'
    texts = {
        SYSCTL: _HEAD + "".join(f"-net.bridge.{call} = 0\n" for call in NF_CALLS),
        UDEV: f'{_HEAD}{rule}, RUN+="{facts.systemd_sysctl} --prefix=/net/bridge"\n',
    }
    new = {path: text for path, text in texts.items() if facts.files.get(path) != text}
    steps: list[HostStep] = [WriteFile(path, text) for path, text in new.items()]
    changes = [Change(path, facts.files.get(path) or None, text) for path, text in new.items()]
    if facts.filtering:
        keys = tuple(f"net.bridge.{call}" for call in facts.filtering)
        steps.append(SetSysctl(keys, "0", "do not filter bridged guests"))
        changes += [Change(key, 1, 0) for key in keys]
    return steps, changes
