# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of virtual networks, and which fields change on a running one."""

from __future__ import annotations

import ipaddress
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import version
from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, NotFound, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._domain.model_address import HostSubnet
from ansible_collections.corral.virt.plugins.module_utils._host import plan_ruleset
from ansible_collections.corral.virt.plugins.module_utils._network.fields_network import NETWORK_SCHEMA
from ansible_collections.corral.virt.plugins.module_utils._network.model_network import DIRECT, OWN, NetworkHost
from ansible_collections.corral.virt.plugins.module_utils._network.xml_network import SHAPE, finish, host, skeleton
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import (
    Case,
    Live,
    NounPlan,
    Policy,
    Rule,
    Start,
    Stop,
    Update,
)
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun_stages import Noun

Findings = t.Iterator[t.Union[VirtError, str]]
_TAGS_ON_BRIDGES = version.number(11, 0)  # of libvirt


def _host(case: Case) -> NetworkHost:
    return case.host or NetworkHost()


def _problem(case: Case, place: str, reason: str) -> BadInput:
    return BadInput(f"{place} of network {case.spec.name}: {reason}")


def _new_or_changed(case: Case, *fields: str) -> bool:
    return case.spec.state != "absent" and (case.found is None or case.changed(*fields))


def _is_complete(case: Case, _plan: NounPlan) -> Findings:
    """Checks that fields that the mode requires are set."""
    after = case.stored.after
    if not _new_or_changed(case, "mode", "ips", "bridge", "interfaces", "pf"):
        return
    mode, devices = after["mode"], after.get("interfaces") or after.get("pf")
    if mode in ("nat", "route", "open") and not after.get("ips"):
        yield _problem(case, "ips", f"mode {mode} requires an address")
    if mode == "bridge" and not (after.get("bridge") or devices):
        yield _problem(case, "bridge", "mode bridge requires bridge or interfaces")
    if mode not in (*OWN, "bridge") and not devices:
        pf = " or pf" if mode in ("passthrough", "hostdev") else ""
        yield _problem(case, "interfaces", f"mode {mode} requires interfaces{pf}")
    for other, both in (("bridge", devices), ("pf", after.get("interfaces"))):
        if after.get(other) and both:
            yield _problem(case, other, "it and interfaces are mutually exclusive; omit one of the two")


def _is_known_to_libvirt(case: Case, _plan: NounPlan) -> Findings:
    """Checks that the host's libvirt supports all fields."""
    yield from map(BadInput, version.too_old(f"network {case.spec.name}", case.stored.recent, _host(case).version))


def _has_whole_ranges(case: Case, _plan: NounPlan) -> Findings:
    after = case.stored.after
    for what in ("address", "port"):
        ends = [after.get(f"nat.{what}_{end}") for end in ("start", "end")]
        if _new_or_changed(case, "nat") and ends.count(None) == 1:
            yield _problem(case, f"nat.{what}_start", f"it requires nat.{what}_end, and vice versa")


def _has_its_bridge(case: Case, _plan: NounPlan) -> Findings:
    """Checks that the host bridge of a network in mode bridge exists."""
    after, bridges = case.stored.after, _host(case).bridges
    if after.get("mode") != "bridge" or not _new_or_changed(case, "mode", "bridge"):
        return
    if after.get("virtualport") == "openvswitch":
        return  # the kernel knows nothing of such bridges
    bridge, live = after.get("bridge"), case.live or {}
    if bridge and live.get("bridge") == bridge and live["mode"] in OWN:
        yield Refused(
            f"cannot put network {case.spec.name} on bridge {bridge}: libvirt made it for this network, and removes it "
            "when the network stops; name another bridge"
        )
    elif bridge and bridges is not None and bridge not in bridges:
        yield NotFound(
            f"cannot put network {case.spec.name} on bridge {bridge}: this host has no such bridge; create it with "
            "role corral.virt.bridge, or name one that exists"
        )


def _takes_no_bridge(case: Case, _plan: NounPlan) -> Findings:
    """Checks that no other network or bridge has the name of the bridge that libvirt creates."""
    after, host = case.stored.after, _host(case)
    bridge = after.get("bridge")
    if not bridge or after["mode"] not in OWN or not _new_or_changed(case, "mode", "bridge"):
        return
    of = [one.name for one in host.neighbours if one.bridge == bridge]
    live = case.live or {}
    is_ours = live.get("mode") in OWN and live.get("bridge") == bridge
    if of or (bridge in (host.bridges or ()) and not is_ours):
        owner = f"network {of[0]} has" if of else "this host already has"
        yield Refused(
            f"cannot create bridge {bridge} for network {case.spec.name}: {owner} one with this name; choose another, "
            "or set mode: bridge to use it as it is"
        )


def _is_alone_on_its_subnets(case: Case, plan: NounPlan) -> Findings:
    """Checks that no active network has overlapping addresses."""
    if not _comes_to_its_subnets(case, plan):
        return
    for address in case.stored.after.get("ips", ()):
        ours = _subnet(address)
        for other in _host(case).neighbours:
            if other.active and ours and any(one and ours.overlaps(one) for one in map(_parsed, other.subnets)):
                yield Refused(
                    f"cannot use {ours} for network {case.spec.name}: it overlaps with network {other.name}, which is "
                    "active; choose other addresses, or stop that one"
                )


def _comes_to_its_subnets(case: Case, plan: NounPlan) -> bool:
    """True if the network gets new addresses now, or with a pending restart."""
    starts = any(isinstance(step, Start) for step in plan.steps)
    return starts or bool(case.running and case.changed("ips", "routes"))


def _takes_nothing_of_the_host(case: Case, plan: NounPlan) -> Findings:
    """Checks that addresses and routes do not collide with the host's, which libvirt refuses."""
    if case.stored.after.get("mode") not in OWN or not _comes_to_its_subnets(case, plan):
        return
    name, host, after = case.spec.name, _host(case), case.stored.after
    bridges = {(case.live or {}).get("bridge"), *(one.bridge for one in host.neighbours if one.active)}
    taken = [(one, _parsed(one.subnet)) for one in host.subnets() if one.device not in bridges]
    for ours in filter(None, map(_subnet, after.get("ips", ()))):
        for one, theirs in taken:
            if not theirs or not ours.overlaps(theirs):
                continue
            if _collides(ours, theirs, one):
                yield Refused(f"cannot use {ours} for network {name}: {_place(one, theirs)}; choose other addresses")
                break
            if not one.is_connected:
                yield f"network {name} takes {ours} out of what the host reaches otherwise: {_place(one, theirs)}"
    for route in filter(None, map(_subnet, after.get("routes", ()))):
        for one, theirs in taken:
            if theirs == route:
                yield Refused(
                    f"cannot route {route} over network {name}: {_place(one, theirs)}; choose another destination"
                )
                break


def _collides(ours: t.Any, theirs: t.Any, one: HostSubnet) -> bool:
    """True if overlapping subnets exclude each other.

    A broader route of the host leaves a subnet to the network, and a single address may be one of the host's.
    """
    if one.is_connected:
        return bool(ours.prefixlen < ours.max_prefixlen)
    return bool(theirs.subnet_of(ours))


def _place(one: HostSubnet, theirs: t.Any) -> str:
    where = f"on device {one.device}" if one.device else "that rejects packets"
    return f"this host has {theirs} {where}" if one.is_connected else f"this host has a route to {theirs} {where}"


def _has_addresses_of_hosts(case: Case, _plan: NounPlan) -> Findings:
    """Checks that no address is a subnet's network or broadcast address."""
    if not _new_or_changed(case, "ips"):
        return
    for address in case.stored.after.get("ips", ()):
        place, subnet = f"ips[{address['address']}]", _subnet(address)
        given = {f"{place}.dhcp.{what}": ends for what, ends in _given(address).items()}
        for where, ends in {place: (address["address"],), **given}.items() if subnet else ():
            for one in dict.fromkeys(ends):
                if role := _of_the_subnet(subnet, ipaddress.ip_address(one)):
                    first, last = subnet[1], subnet[-2 if subnet.version == 4 else -1]
                    reason = f"{one} is the {role} of {subnet}, and no host can have it; use {first} to {last}"
                    yield _problem(case, where, reason)


def _of_the_subnet(subnet: t.Any, address: t.Any) -> str:
    """The special role of an address in its subnet; empty for a host address. Tiny subnets have only hosts."""
    if subnet.prefixlen >= subnet.max_prefixlen - 1:
        return ""
    if address == subnet.network_address:
        return "network address"
    return "broadcast address" if subnet.version == 4 and address == subnet.broadcast_address else ""


def _subnet(address: t.Mapping[str, t.Any]) -> t.Any:
    return _parsed(f"{address.get('address')}/{address.get('prefix')}")


def _parsed(text: str) -> t.Any:
    """The IPv4 or IPv6 network of a text; None if there is none."""
    try:
        return ipaddress.ip_interface(text).network
    except ValueError:
        return None


def _serves_its_subnets(case: Case, _plan: NounPlan) -> Findings:
    """Checks that DHCP addresses are in their subnet, and that one subnet per family has DHCP."""
    if not _new_or_changed(case, "ips"):
        return
    serving: dict[int, list[str]] = {}
    for address in case.stored.after.get("ips", ()):
        place, subnet = f"ips[{address['address']}]", _subnet(address)
        given = _given(address)
        for what, ends in given.items() if subnet else ():
            first, last = ipaddress.ip_address(ends[0]), ipaddress.ip_address(ends[-1])
            if subnet and (first not in subnet or last not in subnet):
                yield _problem(case, f"{place}.dhcp.{what}", f"it is not within {subnet}")
            elif int(first) > int(last):
                yield _problem(case, f"{place}.dhcp.{what}", "its end is before its start")
        if given and subnet:
            serving.setdefault(subnet.version, []).append(str(address["address"]))
    for family, addresses in serving.items():
        if len(addresses) > 1:
            reason = f"only one IPv{family} address can have DHCP, not {' and '.join(addresses)}"
            yield _problem(case, "ips", reason)


def _reserves_once(case: Case, plan: NounPlan) -> Findings:
    """Checks that a running network gets no second reservation for a client, which libvirt refuses."""
    added = {step.what for step in plan.steps if isinstance(step, Update) and step.command == "add"}
    for address in case.stored.after.get("ips", ()) if added else ():
        place = f"ips[{address['address']}].dhcp.hosts"
        for field in ("mac", "name"):
            owners: dict[str, list[str]] = {}
            for entry in address.get("dhcp.hosts", ()):
                owners.setdefault(str(entry.get(field) or "").lower(), []).append(str(entry.get("ip")))
            for client, ips in owners.items():
                late = [ip for ip in ips if f"{place}[{ip}]" in added]
                if client and late and len(ips) > 1:
                    other, *_more = [ip for ip in ips if ip != late[-1]]
                    yield _problem(
                        case,
                        f"{place}[{late[-1]}]",
                        f"{field} {client} has reservation {other} already; set state: absent there",
                    )


def _given(address: t.Mapping[str, t.Any]) -> dict[str, tuple[str, ...]]:
    """First and last address of each DHCP range and reservation, by place."""
    ranges, hosts = address.get("dhcp.ranges", ()), address.get("dhcp.hosts", ())
    return {
        **{f"ranges[{one['start']}-{one['end']}]": (one["start"], one["end"]) for one in ranges},
        **{f"hosts[{one['ip']}]": (one["ip"],) for one in hosts if "ip" in one},
    }


def _tags_where_libvirt_does(case: Case, _plan: NounPlan) -> Findings:
    """Checks that VLAN tags are supported: by Open vSwitch, SR-IOV, or Linux bridges since libvirt 11.0."""
    if not _new_or_changed(case, "mode", "vlan", "portgroups", "virtualport", "bridge"):
        return
    after = case.stored.after
    wide, groups = after.get("virtualport"), after.get("portgroups", ())
    default = any(group.get("default") is True for group in groups)
    tagged = [("vlan", wide)] if after.get("vlan") and not default else []
    for group in groups:
        if group.get("vlan") or after.get("vlan"):
            place = f"portgroups[{group['name']}].vlan" if group.get("vlan") else "vlan"
            tagged.append((place, group.get("virtualport") or wide))
    refused = [place for place, virtualport in tagged if not _takes_tags(case, virtualport)]
    for place in dict.fromkeys(refused):
        yield _problem(case, place, _TAGS)


_TAGS = (
    "VLAN tags require mode bridge with virtualport openvswitch, or mode passthrough or hostdev; Linux bridges support "
    "them since libvirt 11.0"
)


def _takes_tags(case: Case, virtualport: str | None) -> bool:
    after = case.stored.after
    if after["mode"] != "bridge":
        return after["mode"] in ("passthrough", "hostdev") and not virtualport
    bridged = bool(after.get("bridge")) and _host(case).version >= _TAGS_ON_BRIDGES
    return virtualport == "openvswitch" or bridged


def _has_one_default(case: Case, _plan: NounPlan) -> Findings:
    groups = case.stored.after.get("portgroups", ())
    defaults = [str(group["name"]) for group in groups if group.get("default") is True]
    if _new_or_changed(case, "portgroups") and len(defaults) > 1:
        reason = f"only one can be the default, not {' and '.join(defaults)}"
        yield _problem(case, "portgroups", reason)


def _limits_where_libvirt_does(case: Case, _plan: NounPlan) -> Findings:
    after = case.stored.after
    if not _new_or_changed(case, "mode", "bandwidth", "portgroups", "bridge"):
        return
    if after["mode"] in OWN or (after["mode"] == "bridge" and after.get("bridge")):
        return
    reason = "bandwidth can be limited on bridges only; omit it"
    if _limited(after):
        yield _problem(case, "bandwidth", reason)
    for group in filter(_limited, after.get("portgroups", ())):
        yield _problem(case, f"portgroups[{group['name']}].bandwidth", reason)


def _limited(values: t.Mapping[str, t.Any]) -> bool:
    return any(field.startswith("bandwidth.") for field in values)


def _reaches_its_guests(case: Case, plan: NounPlan) -> Findings:
    """Warns of nftables chains that drop guests' DHCP and DNS: an accept of libvirt's does not override them."""
    after, name = case.stored.after, case.spec.name
    starts = any(isinstance(step, Start) for step in plan.steps)
    if not starts or after.get("mode") not in OWN or not after.get("ips"):
        return
    bridge, host = str(after.get("bridge") or "virbr*"), _host(case)
    for chain in plan_ruleset.shut_off(host.ruleset(), bridge, host.version):
        ports = "meta l4proto { tcp, udp } th dport { 53, 67, 547 }"
        rule = shlex.join(["nft", f'insert rule {chain} iifname "{bridge}" {ports} accept'])
        yield (
            f"guests on network {name} get no address by DHCP and no DNS: nftables chain {chain} drops what comes from "
            f"bridge {bridge}; admit it with role corral.virt.firewall (firewall_bridges), or until the next boot with "
            f"`{rule}`"
        )


def _cuts_nobody_off(case: Case, plan: NounPlan) -> Findings:
    """Checks that stopping a network does not disconnect running guests."""
    stops, goes = any(isinstance(step, Stop) for step in plan.steps), case.found and case.spec.state == "absent"
    users, name = _host(case).users() if stops or goes else (), case.spec.name
    if stops:
        running = ", ".join(sorted(user.name for user in users if user.running))
        before = case.live or case.stored.before  # the definition may have another mode by now
        if running and before["mode"] in OWN:
            yield _cut_off(case, plan, running)
        elif running:
            yield f"running guests stay on their devices while network {name} is off: {running}"
        yield from _strangers_cut_off(case, before)
    defined = ", ".join(sorted(user.name for user in users))
    if defined and goes:
        yield f"guests that use network {name} cannot start without it: {defined}"


def _strangers_cut_off(case: Case, before: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """Warns of devices of no guest on the bridge: libvirt reconnects only guests."""
    bridge = str(before.get("bridge"))
    strangers = _host(case).strangers().get(bridge) if before["mode"] in OWN else ()
    if strangers:
        again = "; ".join(shlex.join(["ip", "link", "set", port, "master", bridge]) for port in strangers)
        yield (
            f"devices that belong to no guest lose bridge {bridge} of network {case.spec.name}: "
            f"{', '.join(strangers)}; to put them on it again when it runs: `{again}`"
        )


def _cut_off(case: Case, plan: NounPlan, running: str) -> VirtError | str:
    name = case.spec.name
    if case.spec.force:
        return f"guests lose network {name} until they are restarted: {running}"
    verb = "restart" if any(isinstance(step, Start) for step in plan.steps) else "stop"
    return Refused(
        f"cannot {verb} network {name}: running guests would lose it: {running}; shut them down first, or set force: "
        "true"
    )


RULES: tuple[Rule, ...] = (
    _is_complete,
    _is_known_to_libvirt,
    _has_whole_ranges,
    _has_its_bridge,
    _takes_no_bridge,
    _is_alone_on_its_subnets,
    _takes_nothing_of_the_host,
    _has_addresses_of_hosts,
    _serves_its_subnets,
    _reserves_once,
    _tags_where_libvirt_does,
    _has_one_default,
    _limits_where_libvirt_does,
    _reaches_its_guests,
    _cuts_nobody_off,
)


def _of_a_free_pool(case: Case, changes: t.Sequence[Change]) -> bool:
    """True if the device pool changes without removing a device that running guests may use."""
    goes = any(change.after is None for change in changes)
    is_pool = (case.live or {}).get("mode") in DIRECT and not case.changed("mode")
    return is_pool and not (goes and any(user.running for user in _host(case).users()))


def _is_no_default(_case: Case, changes: t.Sequence[Change]) -> bool:
    """True unless the default port group changes, which would need two updates at once."""
    return not any(change.where.endswith(".default") for change in changes)


LIVE: Policy = {
    "ips[].dhcp.ranges[]": Live("IP_DHCP_RANGE"),
    "ips[].dhcp.hosts[]": Live("IP_DHCP_HOST"),
    "dns.hosts[]": Live("DNS_HOST"),
    "dns.txts[]": Live("DNS_TXT"),
    "dns.srvs[]": Live("DNS_SRV"),
    "portgroups[]": Live("PORTGROUP", modify=True, when=_is_no_default),
    "interfaces[]": Live("FORWARD_INTERFACE", when=_of_a_free_pool),
}


# A virtual network.

NETWORK = Noun(
    schema=NETWORK_SCHEMA,
    shape=SHAPE,
    skeleton=skeleton,
    rules=RULES,
    live=LIVE,
    finish=finish,
    made=lambda values: f"(mode {values['mode']})",
    shown=("mode", "bridge"),
    host=host,
)
