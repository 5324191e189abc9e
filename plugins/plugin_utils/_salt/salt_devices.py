# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices of a guest as Salt describes them - disks, interfaces, displays - as arguments of `virt_domain`. Pure."""

from __future__ import annotations

import dataclasses
import posixpath
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.output import without_secrets
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_host_devices import pci_address
from ansible_collections.corral.virt.plugins.plugin_utils._guests.variable_files import Placeholder, word
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_mapping import SaltPart, present

Device = dict[str, t.Any]
PLUGS = ("type", "bridge", "network", "device", "address")  # what an interface is plugged into

_DEFAULT_POOL = "/var/lib/libvirt/images"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SUFFIXES = (".qcow2", ".raw", ".img")


@dataclasses.dataclass
class Cloud:
    """What guests of some hypervisors refer to: profiles, images and pools."""

    disk_profiles: dict[str, list[Device]] = dataclasses.field(default_factory=dict)
    nic_profiles: dict[str, list[Device]] = dataclasses.field(default_factory=dict)
    images_path: str | None = None  # virt:images
    foreign: str | None = None  # the hypervisor, where it is neither QEMU nor KVM
    images: dict[tuple[str, str | None], Device] = dataclasses.field(default_factory=dict)  # by source and pool
    pools: dict[str, str] = dataclasses.field(default_factory=dict)  # path by name

    def beside(self) -> Cloud:
        """An empty cloud for other hypervisors, which shares images and pools."""
        return Cloud(images=self.images, pools=self.pools)

    def bring(self, name: str, pool: str) -> None:
        """Add a known image to another pool."""
        for (source, _pool), image in list(self.images.items()):
            if image["name"] == name and (source, pool) not in self.images:
                self.images[source, pool] = {**image, "pool": pool}


def pool_of(part: SaltPart, key: str, path: str, cloud: Cloud) -> str | None:
    """The name of the pool in a directory, which is recorded; None for the default pool."""
    if not path.startswith("/"):
        part.note(
            key,
            f"{path} is not a directory; mount the storage, and name a pool there; until then it is the pool default",
        )
        return None
    path = posixpath.normpath(path)
    if path == _DEFAULT_POOL:
        return None
    name = re.sub(r"[^A-Za-z0-9._-]", "-", path.strip("/"))[:63]
    cloud.pools[name] = path
    return name


def disk(part: SaltPart, cloud: Cloud, profile: t.Sequence[Device] = ()) -> Device | None:
    """A disk, whose pool may come from the `profile`; None for one without a name, which Salt ignores, too."""
    name = part.text("name")
    if not name:
        part.note("", "a disk without a name is left out, as Salt does")
        return None
    found: Device = {"name": name}
    device = part.text("device")
    if device not in (None, "disk"):
        found["device"] = device
    size = part.mebibytes("size")
    if not _place(part, cloud, found):
        here = "pool" in part or name not in names_of(profile)
        found.update(present(size=size, pool=pool(part, cloud) if here and device in (None, "disk") else None))
    if image := part.text("image"):
        from_image(part, image, cloud, found, overlay=bool(part.truth("overlay_image")))
    found.update(part.rows(texts="format io"))
    found.update(present(bus=part.text("model"), iothread=part.number("iothread_id")))
    if part.raw("backing_store_path") is not None:
        part.refuse("backing_store_path", "a disk on top of another file: name that as an image instead")
    part.skip("it goes with backing_store_path", "backing_store_format")
    part.skip("an image is a file here", "overlay_image")
    part.left()
    return found


def pool(part: SaltPart, cloud: Cloud) -> str | None:
    """The name of a new disk's pool; Salt also takes a directory."""
    name = part.text("pool") or cloud.images_path
    return pool_of(part, "pool", name, cloud) if name and "/" in name else name


def _place(part: SaltPart, cloud: Cloud, found: Device) -> bool:
    """Set the place of an existing disk or medium; True if there is one."""
    source = part.text("source_file")
    if not source:
        return False
    if "://" in source:
        found["url"] = source
    elif source.startswith("/"):
        found["source"] = source
    else:
        found["volume"] = f"{pool(part, cloud) or 'default'}/{source}"
    return True


def from_image(part: SaltPart, source: str, cloud: Cloud, found: Device, *, overlay: bool) -> None:
    """Set the image of a disk, and record that every hypervisor needs it."""
    if "://" not in source and not source.startswith("/"):
        source = f"salt://{source}"
    base = posixpath.basename(source.split("?", 1)[0])
    name = re.sub(r"[^A-Za-z0-9._-]", "-", base).lstrip("-._") or "image"
    if not name.endswith(_SUFFIXES):
        name = f"{name.rpartition('.')[0] or name}.qcow2"
    others = {image["name"] for (other, _where), image in cloud.images.items() if other != source}
    if name in others:
        name = f"{word(posixpath.dirname(source))[-8:]}-{name}"
    where = found.get("pool")
    if (source, where) not in cloud.images:
        cloud.images[source, where] = {**_image(part, source, name), **present(pool=where)}
    found["image"] = name
    if not overlay:
        found["clone"] = "copy"


def _image(part: SaltPart, source: str, name: str) -> Device:
    scheme = source.split("://", 1)[0] if "://" in source else ""
    if scheme in ("http", "https", "ftp"):
        part.note("image", f"set checksum_{word(name)} to the checksum of {name}, or to none")
        return {"name": name, "url": _url(part, source, name), "checksum": Placeholder.of(f"checksum_{word(name)}")}
    if scheme == "salt":
        return {"name": name, "src": source}  # where it is on the controller is found later
    if scheme:
        part.note("image", f"no image is brought by {scheme}; put it on the controller, and set src of {name}")
        return {"name": name, "src": name}
    return {"name": name, "src": source, "remote_src": True}


def _url(part: SaltPart, source: str, name: str) -> str:
    """The address of an image; a placeholder for one with a login or a query, which may be a secret."""
    if without_secrets(source) == source:
        return source
    variable = f"vault_url_{word(name)}"
    part.note("image", f"set {variable} (ansible-vault) to the URL of {name}: its login or query is not written")
    return Placeholder.of(variable)


def names_of(devices: t.Iterable[Device]) -> list[str]:
    """Names of the devices, in order."""
    return [one["name"] for one in devices]


def interface(part: SaltPart, profile: t.Sequence[Device] = ()) -> Device | None:
    """An interface. If Salt does not say what it connects to, that is the profile's, or br0."""
    name = part.text("name")
    if not name:
        part.note("", "an interface without a name is left out, as Salt does")
        return None
    found: Device = {"name": name}
    kind, source = part.text("type"), part.text("source")
    for short in ("bridge", "network"):
        if (value := part.text(short)) is not None:
            kind, source = short, value
    if kind is not None or source is not None or name not in names_of(profile):
        found.update(_plug(part, kind or "bridge", source))
    mac = part.text("mac")
    found.update(present(mac=mac and mac.lower(), model=part.text("model"), mtu=part.number("mtu")))
    if port := part.part("virtualport"):
        found.update(present(virtualport=port.text("type")))
        port.left()
    part.left()
    return found


def _plug(part: SaltPart, kind: str, source: str | None) -> Device:
    options = {"bridge": "bridge", "network": "network", "direct": "device"}
    if kind in options:
        if source is None and kind != "bridge":
            part.note("source", f"it is not there; Salt takes br0 for the {kind}, too")
        return {options[kind]: source or "br0"}
    if kind == "hostdev" and (address := _pci(source or "")):
        return {"type": kind, "address": address}
    if kind == "user":
        return {"type": kind}
    part.refuse("type", f"an interface of type {kind}{f' ({source})' if source else ''} has no counterpart")
    return {}


def _pci(name: str) -> str | None:
    """A PCI address, from the spelling of lspci or of virsh nodedev-list; None if it is none."""
    return name if re.fullmatch(r"[0-9a-f]{4}(:[0-9a-f]{2}){2}\.[0-7]", name) else pci_address(name)


def graphics(part: SaltPart, name: str) -> Device | None:
    """The display. Salt's listens everywhere without a password, ours only on the host."""
    if (vnc := part.truth("enable_vnc")) and "graphics" not in part:
        return {"type": "vnc"}
    display = part.part("graphics")
    if display is None:
        return {"type": "none"} if vnc is False else None
    found = display.rows(texts="type keymap", numbers="port tls_port")
    for key in ("passwd", "password"):
        if display.raw(key) is not None:
            variable = f"vault_{word(name)}_graphics_password"
            found["password"] = Placeholder.of(variable)
            display.note(key, f"set {variable} (ansible-vault); the password itself is not written")
    listen = display.part("listen") if display.is_mapping("listen") else None
    address = display.text("listen") if listen is None else listen.text("address")
    if address in _LOOPBACK or (address and "password" in found):
        found["listen"] = address
    elif found.get("type") not in (None, "none"):
        where = f"on {address}" if address else "on all addresses"
        display.note("listen", f"the display listened {where}; here it listens on 127.0.0.1 (see guide_consoles)")
    if listen:
        listen.raw("type")  # follows from the address
        listen.left()
    display.left()
    return found or None


def serials(part: SaltPart) -> list[Device] | None:
    """Serial ports; a console on the first of them is the same device."""
    found = []
    for number, port in enumerate(part.parts("serials") or ()):
        if one := _serial(port, number):
            found.append(one)
    kind = part.text("serial_type")
    if kind == "pty" and not found:
        found.append({"port": 0, "type": "pty"})
    elif kind not in (None, "None", "pty"):
        part.note("serial_type", "the port would be open to everybody; virsh console needs no port")
    for port in part.parts("consoles") or ():
        if port.text("target_type") not in (None, "serial"):
            port.note("", "a console that is not the first serial port; see the option consoles")
        port.drop()
    part.skip("virsh console opens the first serial port", "console", "telnet_port")
    return found or None


def _serial(port: SaltPart, number: int) -> Device | None:
    kind = port.text("type") or "tcp"
    target = port.number("target_port")
    found: Device = {"port": number if target is None else target, "type": kind}
    port.skip("libvirt chooses the device", "target_type")
    if kind == "tcp":
        found["mode"] = "bind"
        found["host"] = port.text("host") or "127.0.0.1"
        found["service"] = port.number("port") or 23023
        found["protocol"] = port.text("protocol") or "telnet"
        found.update(present(tls=port.truth("tls")))
        if found["host"] not in _LOOPBACK:
            port.note("host", f"everybody who reaches {found['host']} gets this console without a password")
    elif kind in ("file", "dev", "unix"):
        found.update(present(path=port.text("path"), mode="bind" if kind == "unix" else None))
    elif kind != "pty":
        port.note("type", f"{kind} is not supported here")
        return None
    port.left()
    return found


def hostdevs(part: SaltPart) -> list[Device] | None:
    """Host devices, which Salt names as `virsh nodedev-list` does."""
    found = []
    for name in part.texts("host_devices"):
        if address := pci_address(name):
            found.append({"name": name, "type": "pci", "address": address, "managed": True})
        else:
            part.note("host_devices", f"{name}: set hostdevs by hand, from virsh nodedev-dumpxml {name}")
    return found or None
