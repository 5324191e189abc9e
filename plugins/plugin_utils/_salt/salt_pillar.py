# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables from a pillar: settings of Salt Virt, and those of well-known formulas. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._network.plan_network import NETWORK
from ansible_collections.corral.virt.plugins.module_utils._noun import run_noun, run_noun_options, xml_document
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Found
from ansible_collections.corral.virt.plugins.module_utils._noun.run_noun_info import arguments
from ansible_collections.corral.virt.plugins.module_utils._xml import tree
from ansible_collections.corral.virt.plugins.module_utils._xml.remainder import remainder
from ansible_collections.corral.virt.plugins.plugin_utils._salt import salt_hosts
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_devices import Cloud
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_mapping import (
    NOT_QEMU,
    Placed,
    SaltNote,
    SaltPart,
    merged,
    overlaid,
    present,
)

Variables = dict[str, t.Any]

_LATER = "another value comes later in Salt's order:"
_MINION = "the configuration of the minion comes before pillars:"
_ONLY_KVM = "only kvm and qemu are supported; its guests are not written"
_STATES = {"running": "active", "present": "present", "stopped": "inactive", "absent": "absent"}
_UYUNI = ("hypervisor", "default_pool_enabled", "default_pool", "default_net_enabled", "default_net", "tuning")


@dataclasses.dataclass
class Pillar:
    """Variables, and objects with the parts that they come from."""

    variables: Variables = dataclasses.field(default_factory=dict)
    pools: list[tuple[SaltPart, Variables]] = dataclasses.field(default_factory=list)
    networks: list[tuple[SaltPart, Variables]] = dataclasses.field(default_factory=list)
    guests: list[tuple[SaltPart, str, str | None, Variables]] = dataclasses.field(default_factory=list)  # name, host


def is_read(path: str) -> bool:
    """True if the converter uses a value at this path."""
    return path.split(":", 1)[0] in ("virt", "libvirt", *_UYUNI) or path.startswith("salt:control:")


def beside(below: Placed, data: t.Mapping[str, t.Any], file: str, notes: list[SaltNote]) -> Placed:
    """The pillar `below` with a later one merged over it."""
    return overlaid(below, _dotted(data), file, "", notes, _LATER)


def under(below: Placed, data: t.Mapping[str, t.Any], file: str, notes: list[SaltNote]) -> Placed:
    """The pillar with a minion's configuration over it, each of whose settings replaces the pillar's as a whole."""
    virt = _dotted(data).get("virt")
    others = [key for key in data if key != "virt" and not key.startswith("virt.")]
    notes += [SaltNote(file, key, "settings of Salt", about=False) for key in others]
    for key, argument in (("file_roots", "salt_root"), ("pillar_roots", "pillar")):
        roots = [str(root) for one in _environments(data.get(key)) for root in one if isinstance(root, str)]
        if roots:
            notes.append(SaltNote(file, key, f"Salt reads them in this order: -e {argument}={','.join(roots)}"))
    if not isinstance(virt, dict):
        return below
    old = below.get("virt")
    mapped = old if isinstance(old, dict) else {}
    kept = Placed(mapped, *below.places.get("virt", (file, "")))
    for key in [key for key in virt if key in kept]:
        if kept[key] != virt[key]:
            notes.append(SaltNote(kept.places[key][0], f"virt:{key}", f"{_MINION} {file}"))
        del kept[key]
    found = Placed(below, file, "")
    found["virt"] = overlaid(kept, virt, file, "virt", notes, _MINION)
    found.places.setdefault("virt", (file, ""))
    return found


def _environments(value: t.Any) -> list[list[t.Any]]:
    return [one for one in value.values() if isinstance(one, list)] if isinstance(value, dict) else []


def _dotted(data: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The data with the older `virt.nic:`, `virt.disk:`, ... merged into `virt:`."""
    older = {key[5:]: value for key, value in data.items() if key.startswith("virt.")}
    inner = merged(data.get("virt"))
    found = {key: value for key, value in data.items() if key != "virt" and not key.startswith("virt.")}
    if older or inner is not None:
        found["virt"] = {**older, **inner} if isinstance(inner, dict) else older
    return found


def read(data: Placed, notes: list[SaltNote], cloud: Cloud) -> Pillar:
    """The variables and objects of a pillar."""
    found = Pillar()
    part = SaltPart(notes, "", "", data)
    if part.is_mapping("libvirt") and (formula := part.part("libvirt")):
        _formula(formula, found, cloud)
    if any(key in part for key in _UYUNI[1:]):
        _uyuni(part, found, cloud)
    if (virt := part.part("virt")) is not None:
        found.variables.update(salt_hosts.settings(virt, cloud))
    if part.is_mapping("salt") and (salt := part.part("salt")):
        _control(salt, found)
    part.raw("include")  # followed where the tree is read
    for key in part.untaken():
        _other(part, key)
    return found


def _other(part: SaltPart, key: str) -> None:
    """Report data of another formula if its states may concern libvirt, else count it."""
    if part.mentions(key):
        part.skip("what its states make of it is not known; render them", key)
    part.foreign(key)


def _formula(part: SaltPart, found: Pillar, cloud: Cloud) -> None:
    """Read `libvirt:` of the formulas: settings of the daemon, pools and networks (in one formula below `lookup`)."""
    if (kind := part.text("hypervisor")) not in (None, "qemu", "kvm"):
        part.note("hypervisor", f"{kind}: {_ONLY_KVM}")
        cloud.foreign = kind
        part.skip(NOT_QEMU, "connection")
    found.variables.update(salt_hosts.daemons(part))
    for key, pools, networks in (("server", "pool", "network"), ("lookup", "pools", "networks")):
        if part.is_mapping(key) and (below := part.part(key)):
            for name, one in below.named(pools):
                if pool := _pool(one, name):
                    found.pools.append((one, pool))
            for name, one in below.named(networks):
                if network := _network(one, name):
                    found.networks.append((one, network))
            below.left("the role hypervisor chooses it")
    part.skip("the role hypervisor chooses it", "lookup", "daemon_opts", "tofs")
    part.left()


def _state(part: SaltPart) -> str:
    return _STATES.get(part.text("ensure") or "running", "active")


def _pool(part: SaltPart, name: str) -> Variables | None:
    state, kind, path = _state(part), part.text("type"), part.text("path")
    xml, autostart = part.text("xml"), part.truth("autostart")
    if state == "absent":
        part.drop()
        return {"name": name, "state": "absent"}
    if kind != "dir" or not path:
        part.note("", salt_hosts.other_pool(kind, path))
        part.drop()
        return None
    if xml and (root := _parsed(part, xml)) is not None:
        known = {"name", "uuid", "target", "source", "capacity", "allocation", "available"}
        target = root.findtext("target/path")
        if target and target != path:
            part.note("xml", f"its path is {target}, which Salt defines; {path} is only made")
            path = target
        if others := [one.tag for one in root.iterfind("*") if one.tag not in known] + [
            one.tag for one in root.iterfind("target/*") if one.tag != "path"
        ]:
            part.note("xml", f"{', '.join(others)}: no option covers it")
    part.left()
    return {
        "name": name,
        "path": path,
        **present(state=None if state == "active" else "inactive", autostart=autostart),
    }


def _parsed(part: SaltPart, xml: str) -> t.Any:
    try:
        return tree.parse(xml)
    except VirtError as error:
        part.note("xml", f"it cannot be read: {error}")
        return None


def _network(part: SaltPart, name: str) -> Variables | None:
    """A network from its XML, described as virt_network_info describes an existing one; None if it cannot be."""
    state, xml, autostart = _state(part), part.text("xml"), part.truth("autostart")
    if state == "absent":
        part.drop()
        return {"name": name, "state": "absent"}
    root = _parsed(part, xml) if xml else None
    if root is None:
        part.note("", "virsh net-define it, then let virt_network_info describe it (arguments: true)")
        part.drop()
        return None
    try:
        found = Found("", True, autostart is not False, xml or "")
        shown = {**arguments(NETWORK.schema, root.findtext("name") or name, found), "state": state}
        rest = _rest(root, shown)
    except VirtError as error:
        part.note("xml", f"it cannot be described: {error}")
        return None
    part.left()
    return {**shown, **present(xml=None if rest is None else tree.text(rest))}


def _rest(root: t.Any, shown: t.Mapping[str, t.Any]) -> t.Any:
    """The XML of a network that its options do not express; None if there is none."""
    for one in root.xpath("name|uuid"):
        root.remove(one)
    for one in root.xpath("ip[@netmask]"):  # the options have its prefix
        del one.attrib["netmask"]
    result = ArgumentSpecValidator(run_noun_options.argument_spec(NETWORK.schema)).validate(dict(shown))
    spec = run_noun.spec(NETWORK, result.validated_parameters)
    table, shape, finish = NETWORK.schema.table, NETWORK.shape, NETWORK.finish
    made = xml_document.edit(NETWORK.skeleton(spec), spec.fields, table=table, shape=shape, finish=finish)
    return remainder(root, tree.parse(made.xml), shape)


def _uyuni(part: SaltPart, found: Pillar, cloud: Cloud) -> None:
    """Read the formula Virtualization Host of Uyuni."""
    if (kind := part.text("hypervisor")) not in (None, "KVM", "kvm"):
        part.note("hypervisor", f"{kind}: {_ONLY_KVM}")
        cloud.foreign = kind
    pool, network = part.part("default_pool"), part.part("default_net")
    if part.truth("default_pool_enabled") and pool and (path := pool.text("path")):
        found.pools.append((pool, {"name": "default", "path": path}))
    if part.truth("default_net_enabled") and network:
        found.networks.append((network, _default_network(network)))
    for one in (pool, network):
        if one:
            one.left("it is not enabled")
    if tuning := part.part("tuning"):
        tuning.left("set the kernel's parameter with the system's own tools")


def _default_network(part: SaltPart) -> Variables:
    mode = (part.text("mode") or "nat").lower()
    found: Variables = {"name": "default", "state": "active", "mode": mode}
    bridge = part.text("bridge")
    if mode == "bridge":
        found.update(present(bridge=bridge))
        part.skip("a network on a bridge has no addresses", "ipv4", "ipv6")
    ips = []
    for family in [] if mode == "bridge" else ["ipv4", "ipv6"]:
        one = part.part(family)
        if one and (gateway := one.text("gateway")):
            ends = {"start": one.text("dhcp_start"), "end": one.text("dhcp_end")}
            dhcp = {"ranges": [ends]} if all(ends.values()) else None
            ips.append(present(address=gateway, prefix=one.number("prefix"), dhcp=dhcp))
            one.left()
    part.left()
    return {**found, **present(ips=ips or None)}


def _control(salt: SaltPart, found: Pillar) -> None:
    """Read `salt:control` of the formula salt: guests by cluster, with named sizes."""
    control = salt.part("control")
    for key in salt.untaken():
        _other(salt, key)
    if not control:
        return
    sizes = {name: {key: size.raw(key) for key in size.untaken()} for name, size in control.named("size")}
    enabled = [control.truth(key) for key in ("enabled", "virt_enabled")]
    if False in enabled:
        control.note("", "it is not enabled, and no guest of it is written")
        control.drop()
    for _cluster, cluster in control.named("cluster"):
        domain = cluster.text("domain")
        common = {key: cluster.raw(key) for key in ("enable_vnc", "seed", "rng", "cloud_init", "config")}
        if (engine := cluster.text("engine")) not in (None, "virt"):
            cluster.note("engine", f"{engine} creates no guests on hypervisors; the cluster is left out")
            cluster.drop()
        for name, node in cluster.named("node"):
            _node(node, name, domain, common, sizes, found)
        cluster.left()
    control.left()


def _node(
    node: SaltPart,
    name: str,
    domain: str | None,
    common: t.Mapping[str, t.Any],
    sizes: t.Mapping[str, t.Mapping[str, t.Any]],
    found: Pillar,
) -> None:
    """Add one guest of a cluster, with the vcpus, memory and profiles of its named size."""
    own = {key: node.raw(key) for key in node.untaken()}
    size = sizes.get(str(own.pop("size", None)), {})
    if not size:
        node.note("size", "there is no such size, so its vcpus and memory are missing")
    cpu = {"maximum": size.get("cpu"), "cpuset": own.pop("cpuset", None), "mode": own.pop("cpu_mode", None)}
    macs, host = own.pop("mac", None), own.pop("provider", None)
    values = {
        "autostart": True,
        **common,
        "interfaces": [{"name": nic, "mac": mac} for nic, mac in macs.items()] if isinstance(macs, dict) else None,
        **own,
        "disk": size.get("disk_profile") or "default",
        "nic": size.get("net_profile") or "default",
        "cpu": cpu,
        "mem": size.get("ram"),
    }
    short = values.pop("name", None) or name
    title = f"{short}.{domain}" if domain else str(short)
    found.guests.append((node, title, None if host is None else str(host), values))
