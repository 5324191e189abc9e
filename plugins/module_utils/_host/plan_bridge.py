# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decisions about a host's bridge: its port, the port's manager, and the steps. Pure."""

from __future__ import annotations

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
    rolled_back,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_bridge_steps import (
    ConfirmBridge,
    RequirePackages,
    SetBridgeOption,
    SetSysctl,
    SwitchToBridge,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import (
    HostStep,
    WriteFile,
)

__all__ = ["NF_CALLS", "confirm", "decide", "manager", "port", "spec", "switch"]

Draft = tuple[list[HostStep], list[Change]]
Link = t.Mapping[str, t.Any]
NF_CALLS = ("bridge-nf-call-arptables", "bridge-nf-call-ip6tables", "bridge-nf-call-iptables")
_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,15}")
_AUTO = "auto"
_HEAD = "# Written by the role corral.virt.bridge: guests on a bridge are not filtered by the host.\n"
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
    )


def port(wanted: BridgeSpec, facts: BridgeFacts) -> str | None:
    """The link that the bridge takes over; None if the bridge exists. Raises Refused."""
    trial = facts.trial
    if trial and trial.running and not trial.result:
        raise Refused(
            f"cannot create bridge {wanted.name} on {facts.host}: a switch to {trial.bridge} is in progress; wait "
            "until it is confirmed or rolled back, and run again"
        )
    if wanted.name in facts.links:
        return None
    found = wanted.port or _default_port(wanted, facts)
    problems = _unfit(found, facts)
    if problems:
        raise Refused(f"cannot create bridge {wanted.name}: {'; '.join(problems)}")
    return found


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


def switch(bridge: str, name: str, facts: BridgeFacts, config: Config) -> NetworkChange:
    """How the host's network switches to the bridge; raises Refused."""
    mac = facts.links[name]["address"]
    if isinstance(config, Ifupdown):
        return plan_ifupdown.switch(name, bridge, mac, config)
    if isinstance(config, Networkd):
        return plan_networkd.switch(name, bridge, mac, config)
    if isinstance(config, NmProfiles):
        return plan_networkmanager.switch(name, bridge, mac, config)
    return plan_netplan.switch(name, bridge, mac, config)


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
        return [f"there is no interface {name}; choose one of {', '.join(sorted(facts.links))}"]
    problems = []
    if _kind(link) == "bridge":
        problems.append(f"{name} is already a bridge; set name (bridge_name) to {name} to use it")
    if link.get("master"):
        problems.append(f"{name} belongs to {link['master']}; add that to the bridge instead")
    if name in facts.wireless:
        reason = "access points do not let bridged guests through"
        problems.append(f"{name} is wireless and {reason}; use a cable")
    if link.get("link_type") != "ether":
        problems.append(f"{name} is not an Ethernet interface; choose another port (bridge_port)")
    return problems


def _kind(link: Link) -> str | None:
    kind: str | None = link.get("linkinfo", {}).get("info_kind")
    return kind


def _mended(wanted: BridgeSpec, facts: BridgeFacts) -> Draft:
    """Steps for an existing bridge: without STP and forward delay. Raises Refused if it has no port."""
    name, link = wanted.name, facts.links[wanted.name]
    if _kind(link) != "bridge":
        raise Refused(f"cannot use {name}: it is not a bridge; choose another name (bridge_name)")
    ports = [one for one in facts.links.values() if one.get("master") == name]
    lasting = [str(one["ifname"]) for one in ports if _kind(one) != "tun"]
    if wanted.port and wanted.port not in lasting:
        raise Refused(f"cannot use bridge {name}: {wanted.port} is not in it; add it yourself, or remove the bridge")
    if not lasting:
        raise Refused(
            f"cannot use bridge {name}: it has no port and leads nowhere; choose another name (bridge_name), add an "
            "interface to it, or remove it"
        )
    steps: list[HostStep] = []
    changes: list[Change] = []
    options = link["linkinfo"].get("info_data", {})
    for field, word in (("stp_state", "stp"), ("forward_delay", "forward delay")):
        if options.get("stp_state") and options.get(field):  # without STP, the kernel forwards at once
            steps.append(SetBridgeOption(name, field, word))
            changes.append(Change(f"{name}.{field}", options[field], 0))
    return steps, changes


def _switched(wanted: BridgeSpec, facts: BridgeFacts, change: NetworkChange) -> Draft:
    addresses = facts.addresses.get(change.port, ())
    name = change.bridge
    step = SwitchToBridge(change, addresses, wanted.timeout_s)
    return [step], [
        Change(f"{name}.port", None, change.port),
        Change(f"{name}.addresses", None, [*addresses]),
    ]


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
