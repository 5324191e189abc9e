# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""States that make hosts members of a cluster, as variables of the role cluster; what it does itself, and what has no
counterpart, is reported line by line. Pure.
"""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._guests.variable_files import Placeholder, word
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_mapping import SaltPart
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_states import Call

Variables = dict[str, t.Any]
ByHost = dict[str, Variables]

_ROLE = "the role cluster installs, configures and starts it, when each host has cluster_fencing"
_CMAN = (
    "cman does not exist any more: Corosync counts the quorum, and Pacemaker fences; list the hosts in cluster_hosts, "
    "and the fence device of each in its cluster_fencing"
)
_CLVM = (
    "clvmd does not exist any more, and no role sets up lvmlockd and dlm, which replace it: put disks of guests on a "
    "filesystem that all hosts mount (storage_mounts), with leases against a second writer (storage_leases)"
)
_GFS2 = (
    "no role makes or mounts a filesystem that is shared by locks of dlm; a mounted one counts as shared storage "
    "(hypervisor_keeps_definitions)"
)
_RGMANAGER = "rgmanager does not exist any more: Pacemaker starts guests; list them in cluster_guests"
_GUESTS = "tuning_libvirt_guests sets it; on members of a cluster it does nothing, as Pacemaker starts and stops guests"
_PCS = "the role cluster configures Pacemaker by Pacemaker's own programs; nothing listens for pcs"
# By the name of a package, a service or, without its ending, a program.
_NAMES = {
    **dict.fromkeys(("corosync", "pacemaker", "pacemaker-cli-utils", "resource-agents", "fence-agents"), _ROLE),
    **dict.fromkeys(("cman", "redhat-cluster-suite", "fence-virt", "ricci", "modcluster", "ccs"), _CMAN),
    **dict.fromkeys(("clvm", "clvmd", "lvm2-cluster"), _CLVM),
    **dict.fromkeys(("lvm2-lockd", "lvm2-lvmlockd", "lvmlockd", "lvmlocks", "dlm", "dlm-controld"), _CLVM),
    **dict.fromkeys(("gfs2", "gfs2-utils", "gfs2-tools", "ocfs2-tools", "o2cb"), _GFS2),
    "rgmanager": _RGMANAGER,
    "libvirt-guests": _GUESTS,
    "pcsd": _PCS,
}
_FOR_PEOPLE = ("pcs", "crmsh")  # what the role does not need
_FILES = {
    "/etc/corosync/corosync.conf": (
        "the role cluster writes it from the inventory: set cluster_name, cluster_links (the addresses of each host) "
        "and cluster_token_ms"
    ),
    "/etc/corosync/authkey": "the role cluster makes the key on one host, and copies it to the others",
    "/etc/corosync/service.d/pcmk": "Pacemaker is a service of its own today",
    "/etc/default/corosync": "systemd starts Corosync",
    "/etc/cluster/cluster.conf": (
        "cman's file: its nodes are cluster_hosts, its name is cluster_name, and each fencedevice with the options of "
        "its node is cluster_fencing of that host"
    ),
    "/etc/default/cman": _CMAN,
    "/etc/init.d/clvm": _CLVM,
    "/etc/default/clvm": _CLVM,
    "/etc/default/libvirt-guests": _GUESTS,
    "/etc/sysconfig/libvirt-guests": _GUESTS,
}
_KEPT = "it is in cluster_packages"
_SERVICES = ("running", "enabled", "dead", "disabled")
_FILESYSTEMS = ("gfs2", "ocfs2")
# Options of fence agents by their older names.
_OPTIONS = {"ipaddr": "ip", "login": "username", "passwd": "password", "port": "plug"}
_SECRET = ("password", "passphrase", "snmp_priv_passwd", "community")
_FENCED = "pcmk_host_list", "pcmk_host_map"


def lines(call: Call, name: str, values: t.Mapping[str, t.Any]) -> dict[str, str]:
    """What is told of a state, by key; nothing if it is neither about a cluster nor about libvirt-guests."""
    what = f"{call.module}.{call.function}"
    if call.module == "pcs":
        return {"": _PCS}
    if call.module == "pkg":
        return {f"pkgs:{one}": why for one in _packages(name, values) if (why := _of_package(one))}
    if call.module == "service" and call.function in _SERVICES:
        why = _NAMES.get(name.removesuffix(".service"), "")
    elif what == "mount.mounted":
        why = _GFS2 if values.get("fstype") in _FILESYSTEMS else ""
    else:
        why = _FILES.get(name, "") if call.module == "file" else ""
    return {"": why} if why else {}


def _packages(name: str, values: t.Mapping[str, t.Any]) -> list[str]:
    """The packages of a state; one may be given with its version."""
    listed = values.get("pkgs")
    entries = listed if isinstance(listed, list) else [name]
    return [str(next(iter(one), "")) if isinstance(one, dict) else str(one) for one in entries]


def _of_package(name: str) -> str:
    if name.startswith("fence-agents-") or name in _FOR_PEOPLE:
        return _KEPT
    return _NAMES.get(name, "")


def converted(part: SaltPart, call: Call, name: str, values: t.Mapping[str, t.Any]) -> tuple[Variables, ByHost]:
    """The variables of all members, and of single ones."""
    if call.module == "pcs":
        found, by_host = _PCS_STATES.get(call.function, _pcs)(part, name)
        part.skip("the role cluster asks Pacemaker itself", "extra_args", "cibname", "scope", "wipe_default")
        return found, by_host
    found = lines(call, name, values)
    others = [one for one in _packages(name, values) if f"pkgs:{one}" not in found] if call.module == "pkg" else []
    if others:
        part.note("pkgs", f"add to hypervisor_extra_packages what the roles do not install: {', '.join(others)}")
    for key, why in found.items():
        part.note(key, why)
    part.drop()
    added = [key.removeprefix("pkgs:") for key, why in found.items() if why == _KEPT]
    return ({"cluster_packages": added} if added else {}), {}


def _setup(part: SaltPart, _name: str) -> tuple[Variables, ByHost]:
    """`pcs.cluster_setup`: the name and the members of a cluster."""
    found: Variables = {"cluster_name": part.text("pcsclustername") or "pcscluster"}
    nodes = part.texts("nodes")
    return {**found, **({"cluster_hosts": nodes} if nodes else {})}, {}


def _property(part: SaltPart, name: str) -> tuple[Variables, ByHost]:
    """`pcs.prop_has_value`: an option of Pacemaker."""
    option, value = part.text("prop") or name, part.raw("value")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if option == "stonith-enabled" or (option == "no-quorum-policy" and text == "ignore"):
        part.note(
            "value", "stonith-enabled is always true, and no-quorum-policy is not ignore: else a guest could run twice"
        )
        return {}, {}
    return {"cluster_properties": {option: text}}, {}


def _stonith(part: SaltPart, name: str) -> tuple[Variables, ByHost]:
    """`pcs.stonith_present`: the fence device of one host, or of several."""
    agent, identity = part.text("stonith_device_type") or "", part.text("stonith_id") or name
    options: dict[str, str] = {}
    for one in part.texts("stonith_device_options"):
        key, _equals, value = one.partition("=")
        key = _OPTIONS.get(key, key)
        if key in _SECRET:
            variable = f"vault_{word(identity)}_{key}"
            part.note("stonith_device_options", f"set {variable} (ansible-vault); the {key} itself is not written")
            value = Placeholder.of(variable)
        options[key] = value
    listed, mapped = options.pop(_FENCED[0], ""), options.pop(_FENCED[1], "")
    options.pop("pcmk_host_check", None)
    hosts: dict[str, dict[str, str]] = dict.fromkeys(listed.replace(",", " ").split(), options)
    for pair in mapped.replace(";", " ").split():
        host, _colon, plug = pair.partition(":")
        hosts[host] = {**options, "plug": plug}
    if not hosts or not agent:
        part.note("", f"{identity} does not name its hosts (pcmk_host_list): set cluster_fencing of each by hand")
    return {}, {host: {"cluster_fencing": {"agent": agent, "options": own}} for host, own in hosts.items() if agent}


def _resource(part: SaltPart, name: str) -> tuple[Variables, ByHost]:
    kind, identity = part.text("resource_type") or "", part.text("resource_id") or name
    if kind.endswith(":VirtualDomain"):
        why = (
            f"protect the guest (ha of virt_domain), and list it in cluster_guests, with its uuid and store: {identity}"
        )
    elif kind.rpartition(":")[2] in ("clvm", "controld", "lvmlockd", "LVM-activate", "Filesystem"):
        why = _GFS2 if kind.endswith("Filesystem") else _CLVM
    else:
        why = "the role cluster leaves resources that are not its own as they are"
    part.note("resource_type", why)
    part.drop()
    return {}, {}


def _pcs(part: SaltPart, _name: str) -> tuple[Variables, ByHost]:
    part.note("", _PCS)
    part.drop()
    return {}, {}


def _constraint(part: SaltPart, _name: str) -> tuple[Variables, ByHost]:
    part.note("", "rules of guests are their ha: prefer, colocate and apart; others in Pacemaker stay as they are")
    part.drop()
    return {}, {}


_PCS_STATES: dict[str, t.Callable[[SaltPart, str], tuple[Variables, ByHost]]] = {
    "cluster_setup": _setup,
    "prop_has_value": _property,
    "stonith_present": _stonith,
    "resource_present": _resource,
    "constraint_present": _constraint,
}
