# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of a network disk, and of an NVMe device of the host.

A user's secret is in libvirt; the definition only names it.
"""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._domain.fields_interface import PciAddress
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml.row import ANY, Items, Row, Table, Values, silent_is
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, child, drop

_SECRETS = {"iscsi": "iscsi", "rbd": "ceph"}  # what libvirt calls a secret for a protocol
_PROTOCOLS = ("nbd", "iscsi", "rbd")
_ONE_HOST = ("nbd", "iscsi")
_PROTOCOL = "network.protocol"


def forget_source(device: Element) -> None:
    """Remove what belongs to the source: it, its backing chain, mirror and login."""
    for tag in ("source", "backingStore", "mirror", "auth"):
        drop(device.findall(tag))


_OF_NO_MEDIUM = {"index", "startupPolicy"}  # of the source of a drive, also of an empty one


def has_medium(device: Element) -> bool:
    """True if the disk has a medium. An empty drive of a running guest has a source with an index."""
    source = device.find("source")
    return source is not None and (len(source) > 0 or bool(set(source.attrib) - _OF_NO_MEDIUM))


def eject(device: Element) -> None:
    """Empty the drive, but keep its startup policy."""
    source = device.find("source")
    policy = None if source is None else source.get("startupPolicy")
    forget_source(device)
    device.set("type", "file")
    if policy:
        child(device, "source").set("startupPolicy", policy)


def forget_chain(device: Element) -> None:
    """Remove the backing chain and mirror, as the bytes become others."""
    drop((*device.findall("backingStore"), *device.findall("mirror")))


def _forget_hosts(device: Element) -> None:
    """Remove the servers: another one has other bytes."""
    forget_chain(device)
    drop(device.findall("source/host"))


def _become_network(device: Element) -> None:
    forget_source(device)
    device.set("type", "network")


def _protocol_of(device: Element) -> str:
    source = device.find("source")
    return "" if source is None or device.get("type") != "network" else source.get("protocol") or ""


class Remote(Row):
    """A field that only some protocols have."""

    def read(self, element: Element) -> t.Any:
        """The value, if the disk has such a protocol; else None."""
        return super().read(element) if _protocol_of(element) in self.valid_with.get(_PROTOCOL, _PROTOCOLS) else None


class Name(Remote):
    """The name on the server; without a LUN, libvirt takes LUN 0 of a target."""

    def read(self, element: Element) -> t.Any:
        """The name, with the LUN of an iSCSI target."""
        found = super().read(element)
        return f"{found}/0" if found and _protocol_of(element) == "iscsi" and "/" not in found else found


class Auth(Remote):
    """The login; libvirt keeps it beside or within the source, as it was given."""

    @property
    def _within(self) -> Row:
        return Row(f"source/{self.path}", self.kind)

    def read(self, element: Element) -> t.Any:
        """The value, from either place."""
        found = super().read(element)
        return self._within.read(element) if found is None and self._fits(element) else found

    def write(self, element: Element, value: t.Any) -> None:
        """Write the value where the login is."""
        if element.find("source/auth") is not None:
            self._within.write(element, value)
        else:
            super().write(element, value)

    def _fits(self, element: Element) -> bool:
        return _protocol_of(element) in self.valid_with[_PROTOCOL]


class Login(Auth):
    """The user name of a login; removing it removes the login."""

    def write(self, element: Element, value: t.Any) -> None:
        """Set the user name, or remove the whole login."""
        if value != "":
            super().write(element, value)
            return
        drop((*element.findall("auth"), *element.findall("source/auth")))


def _without_secret(device: Element) -> None:
    """Remove the secret's UUID and usage: only one of them may identify it."""
    for secret in (*device.findall("auth/secret"), *device.findall("source/auth/secret")):
        for name in ("uuid", "usage"):
            secret.attrib.pop(name, None)


class HostsRow(Items):
    """The servers. The list is complete: a server that is not in it is removed."""

    def elements(self, root: Element) -> list[Element]:
        """The servers with a name; another may have a socket instead."""
        return [host for host in super().elements(root) if host.get("name")] if _protocol_of(root) in _PROTOCOLS else []

    def read(self, element: Element) -> t.Any:
        """The servers; None if two have the same name, which no option can express."""
        names = [name for name, _host in self.names(element)]
        return super().read(element) if len(names) == len(set(names)) else None

    def graft(self, root: Element, wanted: t.Sequence[Item], where: str) -> list[Change]:
        """Write the servers, and return the changes by server."""
        changes = self._forget_twins(root, where)
        if any(item.state == "present" for item in wanted):
            drop(root.findall("source/host[@socket]"))
        listed = {item.name for item in wanted}
        gone = [Item(name, state="absent") for name, _host in self.names(root) if name not in listed]
        changes += super().graft(root, (*wanted, *gone), where)
        if changes and _protocol_of(root) in _ONE_HOST:
            forget_chain(root)
        return changes

    def _forget_twins(self, root: Element, where: str) -> list[Change]:
        changes, seen = [], set()
        for name, host in self.names(root):
            if name in seen:
                changes.append(Change(f"{where}[{name}]", self.summary(host), None))
                host.getparent().remove(host)
            seen.add(name)
        return changes


_WORD = k.matching(r"[A-Za-z0-9_+-]{1,128}", "must be letters, digits, '_', '+' and '-'")
_ANYWHERE = {_PROTOCOL: _PROTOCOLS}
_NBD, _ISCSI, _RBD = ({_PROTOCOL: (one,)} for one in _PROTOCOLS)
_NAMED = {_PROTOCOL: ("iscsi", "rbd")}
_SECURED = {_PROTOCOL: tuple(_SECRETS)}
_OF_USER = {**_SECURED, "network.auth.username": ANY}
NETWORK: Table = {
    _PROTOCOL: Remote("source/@protocol", k.choice(*_PROTOCOLS), on_change=_become_network),
    "network.name": Name("source/@name", k.LINE, valid_with=_ANYWHERE, required_with=_NAMED, on_change=forget_chain),
    "network.hosts": HostsRow(
        "source/host",
        table={"name": Row("./@name", k.HOST), "port": Row("./@port", k.integer(1, 65535))},
        shown=("port",),
        valid_with=_ANYWHERE,
    ),
    "network.socket": Remote("source/host/@socket", k.PATH, valid_with=_NBD, on_change=_forget_hosts),
    "network.tls": Remote("source/@tls", k.YESNO, same=silent_is(False), valid_with=_NBD),
    "network.snapshot": Remote("source/snapshot/@name", _WORD, valid_with=_RBD, on_change=forget_chain),
    "network.config": Remote("source/config/@file", k.PATH, valid_with=_RBD),
    "network.initiator": Remote("source/initiator/iqn/@name", k.LINE, valid_with=_ISCSI),
    "network.auth.username": Login("auth/@username", _WORD, valid_with=_SECURED),
    "network.auth.secret_uuid": Auth(
        "auth/secret/@uuid", k.SECRET_UUID, valid_with=_OF_USER, on_change=_without_secret
    ),
    "network.auth.secret_usage": Auth(
        "auth/secret/@usage", k.SECRET_USAGE, valid_with=_OF_USER, on_change=_without_secret
    ),
}


class NvmeAddress(PciAddress):
    """The PCI address of an NVMe controller whose namespace is the disk."""

    def read(self, element: Element) -> t.Any:
        """The address as lspci prints it; None for other disks."""
        found = element.find(self.path) if element.get("type") == "nvme" else None
        return None if found is None else self.of(found)

    def write(self, element: Element, value: t.Any) -> None:
        """Write the address; by default libvirt detaches the controller from the host's driver."""
        source = child(element, "source")
        source.set("type", "pci")
        if source.get("managed") is None:
            source.set("managed", "yes")
        super().write(element, value)


class OfNvme(Row):
    """A field of an NVMe device."""

    def read(self, element: Element) -> t.Any:
        """The value; None for other disks."""
        return super().read(element) if element.get("type") == "nvme" else None


class Managed(OfNvme):
    """Whether libvirt detaches the controller from the host's driver; without a value it does not."""

    def read(self, element: Element) -> t.Any:
        """True if libvirt detaches it; None for other disks."""
        found = super().read(element)
        return False if found is None and element.get("type") == "nvme" else found


def _become_nvme(device: Element) -> None:
    if device.get("type") == "nvme":
        forget_chain(device)
    else:
        forget_source(device)
        device.set("type", "nvme")


_OF_NVME: t.Mapping[str, t.Collection[t.Any]] = {"nvme.address": ANY}
NVME: Table = {
    # first, because an address without it is taken by libvirt
    "nvme.managed": Managed("source/@managed", k.YESNO, valid_with=_OF_NVME, on_change=_become_nvme),
    "nvme.address": NvmeAddress("source/address", k.PCI, on_change=_become_nvme),
    "nvme.namespace": OfNvme("source/@namespace", k.integer(1, 2**32 - 1), valid_with=_OF_NVME, on_change=forget_chain),
}


def normalise(device: Element) -> None:
    """Remove empty elements, and set the type of secrets."""
    source = device.find("source")
    if source is None or _protocol_of(device) not in _PROTOCOLS:
        return
    for host in source.findall("host[@socket]"):
        host.set("transport", "unix")
    for tag in ("host", "snapshot", "config", "initiator"):
        for part in source.findall(tag):
            if not any(one.get("name") or one.get("file") or one.get("socket") for one in part.iter()):
                source.remove(part)
    for auth in (*device.findall("auth"), *source.findall("auth")):
        if _protocol_of(device) in _SECRETS:
            child(auth, "secret").set("type", _SECRETS[_protocol_of(device)])


def check(values: Values) -> t.Iterator[str]:
    """Combinations that libvirt would refuse for a network disk or an NVMe device."""
    protocol, hosts = values.get(_PROTOCOL), values.get("network.hosts") or ()
    if protocol in _ONE_HOST and len(hosts) != 1 and not values.get("network.socket"):
        either = " or network.socket" if protocol == "nbd" else ""
        yield f"network.protocol {protocol} requires one host, not {len(hosts)}; set network.hosts{either}"
    secrets = {"network.auth.secret_uuid", "network.auth.secret_usage"} & set(values)
    if values.get("nvme.address") and not values.get("nvme.namespace"):
        yield "nvme.address requires nvme.namespace; the first one is 1"
    if values.get("network.auth.username") and not secrets:
        yield (
            "network.auth.username requires network.auth.secret_uuid or network.auth.secret_usage; store the secret "
            "with virsh secret-define and virsh secret-set-value"
        )
