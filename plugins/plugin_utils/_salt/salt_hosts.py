# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks, pools, profiles and settings of hypervisors in Salt's files, as variables. Pure."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.output import without_secrets
from ansible_collections.corral.virt.plugins.module_utils._core.uri import SYSTEM
from ansible_collections.corral.virt.plugins.plugin_utils._salt import salt_devices
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_devices import Cloud
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_mapping import NOT_QEMU, SaltPart, present

Variables = dict[str, t.Any]

_QEMU = re.compile(r"qemu(?:\+[a-z0-9]+)?://")
_SETTING = re.compile(r"[a-z0-9_]+")  # of libvirtd.conf
_GRUB_LINE = re.compile(r"""^GRUB_CMDLINE_LINUX(?:_DEFAULT)?=["']([^"']*)["']""", re.MULTILINE)
_LOGIN = "no login of libvirt is written"
_HERE = f"it is made on the hypervisors of the inventory, and {_LOGIN}"
_PKI = "the role pki chooses it"
_STORAGE = "mount the storage (storage_mounts), and make its directory a pool in storage_pools"


def profiles(part: SaltPart, cloud: Cloud) -> Variables:
    """Disk and interface profiles."""
    disks, nics = part.raw("disk"), part.raw("nic")
    found: Variables = {}
    for option, key, entries, known in (
        ("virt_disk_profiles", "disk", disks, cloud.disk_profiles),
        ("virt_nic_profiles", "nic", nics, cloud.nic_profiles),
    ):
        if entries is not None and not isinstance(entries, dict):
            part.note(key, "it is not a mapping of profiles, and is left out")
            continue
        for name, items in (entries or {}).items():
            below = SaltPart(part.notes, part.file, f"{part.path}:{key}:{name}", {})
            parts = _items(below, items)
            made = [
                item
                for one in parts
                if (item := salt_devices.disk(one, cloud) if key == "disk" else salt_devices.interface(one))
            ]
            refused = [note for one in parts for note in one.refused]
            part.notes += [dataclasses.replace(note, why=f"the profile lacks it: {note.why}") for note in refused]
            known[name] = made
            found.setdefault(option, {})[name] = made
    return found


def _items(place: SaltPart, items: t.Any) -> list[SaltPart]:
    """Devices of a profile: a mapping by name, a list of such mappings, or a list of mappings with `name`."""
    found: list[SaltPart] = []
    entries = [items] if isinstance(items, dict) else items
    for one in entries if isinstance(entries, list) else []:
        if not isinstance(one, dict):
            place.note("", "it is not a mapping, and is left out")
        elif "name" in one:
            found.append(SaltPart(place.notes, place.file, f"{place.path}:{one['name']}", one))
        elif len(empty := [key for key, value in one.items() if value is None]) == 1 and len(one) > 1:
            values = {key: value for key, value in one.items() if value is not None}  # keys one step too far left
            found.append(SaltPart(place.notes, place.file, f"{place.path}:{empty[0]}", {**values, "name": empty[0]}))
        else:
            found += [_named(place, name, values) for name, values in one.items()]
    return found


def _named(place: SaltPart, name: str, values: t.Any) -> SaltPart:
    if values is not None and not isinstance(values, dict):
        place.note(name, "it is not a mapping, and is left out")
    mapping = values if isinstance(values, dict) else {}
    return SaltPart(place.notes, place.file, f"{place.path}:{name}", {**mapping, "name": name})


def settings(part: SaltPart, cloud: Cloud) -> Variables:
    """Variables from `virt:` of a pillar or of a minion's configuration."""
    images = part.text("images")
    if images and (name := salt_devices.pool_of(part, "images", images, cloud)) is not None:
        cloud.images_path = images
        part.note("images", f"new disks go to the pool {name}, which the role storage makes of {images}")
    found = profiles(part, cloud)
    if connection := part.part("connection"):
        found.update(_uri(connection, "uri", cloud))
        connection.skip(_LOGIN + "; see https://libvirt.org/auth.html", "auth")
        connection.left()
    found.update(_uri(part, "connect", cloud))
    if part.truth("tunnel"):
        part.note("tunnel", "migrations are encrypted by default; for one open port: -e transport=tunnelled")
    part.skip("a disk names its pool, and else has the pool default", "storagepool")
    part.left()
    return found


def _uri(part: SaltPart, key: str, cloud: Cloud) -> Variables:
    """The variable `virt_uri`, if a host's libvirt has another URI."""
    uri = part.text(key)
    if uri in (None, "", SYSTEM):
        return {}
    if not _QEMU.match(uri or ""):
        part.note(key, NOT_QEMU)
        cloud.foreign = (uri or "").partition(":")[0]
        return {}
    if without_secrets(uri or "") != uri:
        part.note(key, _LOGIN + "; set the host's variable virt_uri")
        return {}
    return {"virt_uri": uri}


def network(part: SaltPart, name: str, *, active: bool) -> Variables:
    """A virtual network, as an entry of `virt_networks`."""
    found: Variables = {"name": name, "state": "active" if active else "present"}
    mode = part.text("forward")
    found["mode"] = mode or "isolated"
    found.update(part.rows(texts="bridge", numbers="mtu", truths="autostart"))
    for device in [part.texts("interfaces")]:
        if device:
            found["interfaces"] = [{"device": one} for one in device]
    found.update(present(pf=part.text("physical_function")))
    if domain := part.part("domain"):
        found["domain"] = present(name=domain.text("name"), local_only=domain.truth("localOnly"))
        domain.left()
    if nat := part.part("nat"):
        found.update(present(nat=_nat(nat)))
    ips = [ip for key in ("ipv4_config", "ipv6_config") if (one := part.part(key)) and (ip := _ip(one))]
    if ips:
        found["ips"] = ips
    if dns := part.part("dns"):
        found["dns"] = _dns(dns)
    _tags(part, found)
    if part.raw("addresses") is not None:
        part.refuse("addresses", "no option covers it; name the devices in interfaces or pf")
    part.skip(_HERE, "connection", "username", "password")
    return found


def _nat(nat: SaltPart) -> Variables:
    found: Variables = {}
    for key in ("address", "port"):
        if ends := nat.part(key):
            first, last = (ends.text(end) if key == "address" else ends.number(end) for end in ("start", "end"))
            found.update(present(**{f"{key}_start": first, f"{key}_end": last}))
            ends.left()
    nat.left()
    return found


def _ip(part: SaltPart) -> Variables | None:
    cidr = part.text("cidr")
    try:
        subnet = ipaddress.ip_network(cidr or "", strict=False)
    except ValueError:
        part.refuse("cidr", "it is not a subnet")
        return None
    found: Variables = {"address": str(subnet[1] if subnet.num_addresses > 1 else subnet[0])}
    found["prefix"] = subnet.prefixlen
    dhcp: Variables = {}
    ranges = part.parts("dhcp_ranges") or []
    if ranges:
        dhcp["ranges"] = [one.rows(texts="start end") for one in ranges]
    for one in ranges:
        one.left()
    hosts = []
    for host in _reservations(part):
        hosts.append(host.rows(texts="ip mac id name"))
        host.left()
    if hosts:
        dhcp["hosts"] = hosts
    if bootp := part.part("bootp"):
        dhcp.update(present(boot_file=bootp.text("file"), boot_server=bootp.text("server")))
        bootp.left()
    found.update(present(dhcp=dhcp, tftp_root=part.text("tftp")))
    part.left()
    return found


def _reservations(part: SaltPart) -> list[SaltPart]:
    """DHCP reservations, from a list or from a mapping by address."""
    hosts = part.raw("hosts")
    listed = (
        [{"ip": ip, **one} for ip, one in hosts.items() if isinstance(one, dict)] if isinstance(hosts, dict) else hosts
    )
    return SaltPart(part.notes, part.file, part.path, {"hosts": listed}).parts("hosts") or []


def _dns(dns: SaltPart) -> Variables:
    found: Variables = {}
    forwarders = dns.parts("forwarders") or []
    servers = [present(address=one.text("addr"), domain=one.text("domain")) for one in forwarders]
    if any("address" not in one for one in servers):
        dns.note("forwarders", "one without addr is left out: names that only libvirt answers for are local_only here")
    found.update(present(forwarders=[one for one in servers if "address" in one] or None))
    if txt := dns.part("txt"):
        found["txts"] = [{"name": name, "value": txt.text(name)} for name in txt.untaken()]
    if hosts := dns.part("hosts"):
        found["hosts"] = [{"ip": ip, "hostnames": hosts.texts(ip)} for ip in hosts.untaken()]
    records = dns.parts("srvs") or []
    if records:
        found["srvs"] = [
            present(service=one.text("name"), **one.rows("protocol target domain", "port priority weight"))
            for one in records
        ]
    for one in (*forwarders, *records):
        one.left()
    dns.left()
    return found


def _tags(part: SaltPart, found: Variables) -> None:
    """Set the VLANs and the virtual port of a network."""
    if part.is_mapping("tag"):
        if tag := part.part("tag"):
            tags = [one.number("id") for one in tag.parts("tags") or ()]
            found["vlan"] = [one for one in tags if one is not None]
            tag.skip("several tags are a trunk, here too", "trunk")
            tag.left()
    elif (number := part.number("tag")) is not None:
        found["vlan"] = [number]
    if part.is_mapping("vport"):
        if port := part.part("vport"):
            found.update(present(virtualport=port.text("type")))
            if port.raw("parameters") is not None:
                port.refuse("parameters", "no option covers it; see the option xml")
            port.left()
    else:
        found.update(present(virtualport=part.text("vport")))


def pool(part: SaltPart, name: str, *, active: bool) -> Variables | None:
    """A storage pool; None for one that is no directory, or transient."""
    kind, path = part.text("ptype"), part.text("target")
    found: Variables = {"name": name, **present(path=path), "state": "active" if active else "inactive"}
    found.update(part.rows(truths="autostart"))
    part.skip(_HERE, "connection", "username", "password")
    if kind not in (None, "dir"):
        part.note("ptype", other_pool(kind, path))
        part.drop()
        return None
    if part.truth("transient"):
        part.note("transient", f"the pool {name} is not written: a pool is always defined here")
        part.drop()
        return None
    if permissions := part.part("permissions"):
        found.update(present(mode=_mode(permissions, "mode")))
        found.update(permissions.rows(texts="owner group"))
        permissions.left("libvirt labels its files itself")
    part.skip("a directory has no source", "source")
    return found


def other_pool(kind: str | None, path: str | None) -> str:
    """Why a pool that is no directory is not written."""
    if kind in ("netfs", "fs", "vstorage", "gluster"):
        return f"a pool of type {kind} is not made: {_STORAGE}" + (f" ({path})" if path else "")
    if kind in (None, "dir"):
        return "a pool without type and path is not written"
    return f"a pool of type {kind} is not made; one that libvirt has is kept, and disks name its volumes (volume)"


def _mode(part: SaltPart, key: str) -> str | None:
    """The octal digits of a mode; Salt takes 0770 for 770. None if it is not octal."""
    mode = part.text(key)
    if mode is None or re.fullmatch("0?o?[0-7]{3,4}", mode):
        return mode and mode.replace("o", "").rjust(4, "0")
    part.note(key, f"{mode} is no octal mode, and is left out")
    return None


def keys(part: SaltPart) -> Variables:
    """Variables from `virt.keys`: the role pki issues the certificates."""
    part.skip(_PKI, "basepath", "country", "state", "locality", "st", "organization")
    return present(pki_days=part.number("expiration_days"))


@dataclasses.dataclass
class Bridge:
    """A bridge of a host, with the first part of Salt's files that describes it."""

    name: str
    ports: list[str]
    part: SaltPart


def bridge(part: SaltPart, name: str) -> Bridge | None:
    """The bridge of `network.managed`, or of an interface in one; None for an interface without a bridge."""
    kind, on = part.text("type"), part.text("bridge")
    if kind != "bridge" and not on:
        part.note("", "configure an interface that is in no bridge with the system's own tools")
        part.drop()
        return None
    part.skip("the bridge takes over the addresses of its port", "proto", "ipaddr", "netmask", "gateway", "dns")
    part.raw("enabled")
    if kind != "bridge":
        part.left()
        return Bridge(on or "", [name], part)
    found = Bridge(name, part.texts("ports"), part)
    part.skip("the role bridge chooses it", "delay", "stp", "bypassfirewall", "use")
    if part.raw("mtu") is not None:
        part.refuse("mtu", "the role bridge sets none")
    part.left()
    return found


def written_bridges(bridges: t.Mapping[str, Bridge]) -> Variables:
    """Variables of a host's bridges, br0 first: others may be on VLANs of its port. Reports those that are left out."""
    found: list[Variables] = []
    for one in sorted(bridges.values(), key=lambda one: one.name != "br0"):
        if len(one.ports) > 1:
            one.part.refuse("ports", f"the role bridge takes one port, and these are {', '.join(one.ports)}")
        if len(bridges) > 1 and not one.ports:
            one.part.refuse("", "it has no port; the role bridge makes only bridges that have one")
        for note in one.part.refused:
            why = f"the bridge {one.name} is not written: {note.why}; use the system's own tools"
            one.part.notes.append(dataclasses.replace(note, why=why))
        if not one.part.refused:
            found.append(present(name=one.name, port=one.ports[0] if one.ports else None))
    if len(bridges) > 1:
        return present(virt_bridges=found or None)
    return {f"bridge_{key}": value for key, value in found[0].items()} if found else {}


def daemons(part: SaltPart) -> Variables:
    """Settings of the daemon and its QEMU driver, from `libvirt:libvirtd`, `libvirt:qemu` and the like of formulas."""
    found = _conf(part.part("libvirtd"), ("listen_", "tls_", "tcp_", "auth_t", "key_file", "cert_file", "ca_file"))
    if server := part.part("server"):
        found.update(_conf(server.part("config"), ("listen_", "tls_", "tcp_", "auth_t")))
        found.update({key: _setting(server, key) for key in server.untaken() if key.startswith("unix_sock_")})
        part.put("server", server)
    driver = _conf(part.part("qemu"), ("default_tls_", "migrate_tls_", "vnc_tls", "spice_tls", "nbd_tls"))
    part.skip("these are settings of libvirt's clients; the host's variable virt_uri has the URI", "libvirt")
    part.skip("the role hypervisor enables libvirt's daemons, and the role pki their TLS", "sockets")
    part.skip("set tuning_libvirt_guests to ignore, shutdown or suspend", "guests")
    return present(hypervisor_libvirtd_conf=found, hypervisor_qemu_conf=driver)


def _conf(part: SaltPart | None, of_pki: tuple[str, ...]) -> Variables:
    found: Variables = {}
    for key in part.untaken() if part else []:
        if not part:
            break
        if key.startswith(of_pki):
            part.skip("the role pki sets up TLS on port 16514, and nothing else listens", key)
        elif not _SETTING.fullmatch(key):
            part.skip("it is not a setting of libvirt, and is left out", key)
        else:
            found[key] = _setting(part, key)
    return found


def _setting(part: SaltPart, key: str) -> t.Any:
    """A setting as libvirt reads it; permissions as a text of octal digits."""
    return _mode(part, key) if key.endswith("_perms") else part.raw(key)


def _sysctl(part: SaltPart, name: str) -> Variables | None:
    """`sysctl.present`: a setting of the kernel."""
    part.raw("config")  # a file of Salt's, which stays
    value = part.raw("value")
    return None if value is None else {"tuning_sysctl": {name: value}}


def _grub(part: SaltPart, name: str) -> Variables | None:
    """`file.append` of GRUB's line of kernel arguments."""
    text = part.raw("text")
    lines = "\n".join(map(str, text)) if isinstance(text, list) else str(text)
    found = [word for line in _GRUB_LINE.findall(lines) for word in line.split()]
    if not found or not name.startswith("/etc/default/grub"):
        return None
    part.note("text", f"remove these lines from {name} on the hypervisors, or the kernel gets the arguments twice")
    return {"tuning_kernel_arguments": [*dict.fromkeys(found)]}


# States of any machine: those of hypervisors become variables of the role tuning.
OF_KERNEL: dict[str, t.Callable[[SaltPart, str], Variables | None]] = {"sysctl.present": _sysctl, "file.append": _grub}
