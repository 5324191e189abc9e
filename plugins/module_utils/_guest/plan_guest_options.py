# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the options of a guest mean: contradictions, implied options and defaults. Pure."""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
import math
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import defaults, units
from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change, option_of, shown
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import (
    Disk,
    Display,
    DisplayDefaults,
    GuestSpec,
)
from ansible_collections.corral.virt.plugins.module_utils._xml.names import AGENT_CHANNEL

# Decide whether a guest's screen may be reached over the network. Pure.

_LOOPBACK = "127.0.0.1"  # where libvirt lets displays listen unless it is told otherwise
_TLS = {"vnc": "vnc_tls in qemu.conf (hypervisor_qemu_conf)", "spice": "graphics.tls: true"}


def check_display(
    wanted: GuestSpec,
    before: t.Collection[Display],
    after: t.Sequence[Display],
    ask: t.Callable[[], DisplayDefaults],
) -> list[str]:
    """Warnings about displays that anybody can use who reaches their port.

    Asks the host for its defaults only where they matter. Raises Refused where the task is about such a display.
    """
    exposed = [display for display in after if not all(map(_is_loopback, display.listens))]
    if wanted.allow_unprotected or not exposed:
        return []
    defaults, notes = ask(), list[str]()
    for display in exposed:
        places = [place for place in _places(display, defaults) if not _is_loopback(place)]
        if not places or display.password or display.tls or display.type in defaults.protected:
            continue
        what = f"{display.type} of {wanted.name} on {' and '.join(places)} has neither password nor TLS"
        remedy = (
            f"set graphics.listen: {_LOOPBACK} and use a tunnel (ssh -L), or graphics.password, or "
            f"{_TLS[display.type]}, or graphics.allow_unprotected: true"
        )
        if display not in before or display is _mentioned(wanted, after):
            raise Refused(
                f"cannot open graphics: {what}, so whoever reaches its port has the guest's screen and keyboard; "
                f"{remedy}"
            )
        notes.append(f"{what}: whoever reaches its port has the guest's screen and keyboard; {remedy}")
    return notes


def beyond_loopback(display: Display) -> bool:
    """True if the display's own settings let other hosts reach it."""
    return not all(map(_is_loopback, _places(display, DisplayDefaults())))


def _mentioned(wanted: GuestSpec, after: t.Sequence[Display]) -> Display | None:
    """The display that the task describes: the first of its type, or the first of all; None without graphics."""
    if wanted.graphics is None:
        return None
    kind = wanted.graphics.get("type")
    return next((display for display in after if kind in (None, display.type)), None)


def _places(display: Display, defaults: DisplayDefaults) -> list[str]:
    return [place or defaults.listen.get(display.type, _LOOPBACK) for place in display.listens]


def _is_loopback(place: str) -> bool:
    try:
        return ipaddress.ip_address(place).is_loopback
    except ValueError:
        return place == "localhost"


Fields = t.Mapping[str, t.Any]
Graphics = t.Optional["dict[str, t.Any]"]

_OPTIONS = {"vcpus.current": "vcpus", "memory.current_kib": "memory"}
_FOLLOW = (("vcpus.current", "vcpus.maximum"), ("memory.current_kib", "memory.maximum_kib"))
# Of the seeds' default profile, as the one disk is.
_NIC = Item("eth0", fields={"type": "bridge", "bridge": defaults.BRIDGE})
_MAKING = ("image", "image_pool", "clone", "size", "thin_pool")
_TOPOLOGY = tuple(f"vcpus.topology.{part}" for part in ("sockets", "cores", "threads"))


def described(wanted: GuestSpec) -> GuestSpec:
    """A new guest whose current sizes default to the maxima, and maximum memory to the sum of its NUMA cells.

    Raises BadInput if vcpus or memory is missing.
    """
    cells = [item.fields["memory_kib"] for item in wanted.fields.get("numa.cells", ()) if "memory_kib" in item.fields]
    fields = {**({"memory.maximum_kib": sum(cells)} if cells else {}), **wanted.fields}
    follows = {current: fields[maximum] for current, maximum in _FOLLOW if maximum in fields}
    wanted = wanted.with_fields(**{**follows, **fields})
    missing = [option for field, option in _OPTIONS.items() if wanted.fields.get(field) is None]
    if missing:
        raise BadInput(
            f"cannot create {wanted.name}: there is no such guest here, and creating it requires "
            f"{' and '.join(missing)}"
        )
    return wanted


def completed(wanted: GuestSpec, found: t.Mapping[str, t.Any]) -> GuestSpec:
    """Let a maximum follow its current value if the user set only the latter.

    A guest without room to grow (current = maximum) stays without; one with room keeps its maximum unless it is
    exceeded. A value set as `current` leaves the maximum alone if it fits.
    """
    fields = dict(wanted.fields)
    for current, maximum in _FOLLOW:
        value, limit = fields.get(current), fields.get(maximum)
        if value is None:
            # A lowered maximum takes the current value with it.
            if limit is not None and (found.get(current) or limit) > limit:
                fields[current] = limit
        elif limit is None:
            most = found.get(maximum) or value
            stays = (found.get(current) or value) < most or _OPTIONS[current] not in wanted.as_numbers
            fields[maximum] = max(value, most) if stays else value
    return wanted.with_fields(**fields)


def virt_type(wanted: GuestSpec, by_arch: t.Mapping[str, t.Sequence[str]], arch: str) -> str:
    """The virtualization type, by default the best that the host offers; raises Refused for one it does not offer."""
    offered = by_arch.get(arch) or [kind for kinds in by_arch.values() for kind in kinds]
    if wanted.virt_type == "auto":
        return defaults.virt_type(offered)
    if wanted.virt_type not in offered:
        raise Refused(
            f"cannot create {wanted.name}: this host offers {', '.join(offered)}, not {wanted.virt_type}; set "
            "virt_type: auto"
        )
    return wanted.virt_type


def machine(wanted: GuestSpec, offered: t.Collection[str]) -> str:
    """The machine type; empty: libvirt chooses."""
    return str(wanted.fields.get("machine") or defaults.machine(offered))


def equipped(wanted: GuestSpec) -> GuestSpec:
    """The guest with a `system` disk and `eth0` on `br0`, unless the user lists disks and interfaces."""
    return wanted.with_fields(
        interfaces=(_NIC,) if wanted.interfaces is None else wanted.interfaces,
        disks=(Disk("system", image=wanted.image),) if wanted.disks is None else wanted.disks,
    )


# What Windows needs before drivers are installed in it, and what makes it run well under KVM: as virt-manager chooses.
_WINDOWS: Fields = {
    "clock.offset": "localtime",
    "clock.timers": (Item("hypervclock", fields={"present": True}),),
    "features.hyperv.relaxed": True,
    "features.hyperv.vapic": True,
    "features.hyperv.spinlocks": True,
    "features.hyperv.spinlocks_retries": 8191,
    "inputs": (Item("tablet-usb"),),
}
_TRUSTED_WINDOWS: Fields = {  # its setup refuses a machine without
    "firmware": "efi",
    "secure_boot": True,
    "tpm.model": "tpm-crb",
    "tpm.type": "emulator",
    "tpm.version": "2.0",
}
_TRUSTED = re.compile(r"(?:https?://microsoft\.com/win/|win)(?:11|2k25)")


def is_trusted_windows(osinfo: str) -> bool:
    """True if a new guest with this system gets UEFI firmware with secure boot and a TPM."""
    return _TRUSTED.fullmatch(osinfo) is not None


def suited(wanted: GuestSpec, in_xml: t.Collection[str] = ()) -> GuestSpec:
    """The new guest with the hardware that Windows needs, except for what options or `in_xml` set. Other systems know
    virtio.
    """
    osinfo = str(wanted.fields.get("osinfo") or "")
    if not osinfo.rpartition("/")[0].endswith("//microsoft.com/win"):
        return wanted
    disks = tuple(_on_bus(disk, "sata") for disk in wanted.disks or ())
    interfaces = tuple(
        nic if nic.fields.get("model") or nic.state == "absent" else nic.with_fields(model="e1000e")
        for nic in wanted.interfaces or ()
    )
    more = _TRUSTED_WINDOWS if is_trusted_windows(osinfo) and wanted.fields.get("firmware", "efi") == "efi" else {}
    said = {field.partition(".")[0] for field in wanted.fields} | {*in_xml}
    said |= {"firmware", "secure_boot"} if "loader" in said else set()  # with it, libvirt chooses none
    said |= {"secure_boot"} if "nvram" in said else set()  # the variables are of a firmware
    needs = {field: value for field, value in {**_WINDOWS, **more}.items() if field.partition(".")[0] not in said}
    return wanted.with_fields(**needs, disks=disks, interfaces=interfaces)


def _on_bus(disk: Disk, bus: str) -> Disk:
    """The disk on this bus, unless the user sets one; read-only media keep their own bus."""
    is_free = disk.state == "present" and not disk.fields.get("bus") and disk.fields.get("device", "disk") == "disk"
    return dataclasses.replace(disk, fields={**disk.fields, "bus": bus}) if is_free else disk


def _is_missing(name: str | None, there: t.AbstractSet[str] | None) -> bool:
    return bool(name) and there is not None and name not in there


def check_links(
    what: str,
    interfaces: t.Sequence[Item],
    bridges: t.AbstractSet[str] | None,
    networks: t.AbstractSet[str],
    *,
    switched: t.Iterable[str] = (),
) -> None:
    """Raise NotFound for a missing bridge or network: the guest would be defined and then fail to start. Interfaces in
    `switched` are on bridges of Open vSwitch, which the kernel does not know.
    """
    switched = {*switched, *(item.name for item in interfaces if item.fields.get("virtualport") == "openvswitch")}
    known = {"bridge": bridges, "network": networks}
    missing = {
        f"{kind} {item.fields[kind]} (interface {item.name})": kind
        for item in interfaces
        for kind, there in known.items()
        if _is_missing(item.fields.get(kind), there) and not (kind == "bridge" and item.name in switched)
    }
    if missing:
        makes = {"bridge": "create it with role corral.virt.bridge", "network": "create it with virt_network"}
        remedy = ", ".join(makes[kind] for kind in dict.fromkeys(missing.values()))
        raise NotFound(f"cannot {what}: this host has no {' and no '.join(missing)}; {remedy}, or name one that exists")


def newly_connected(wanted: GuestSpec, changes: t.Iterable[Change]) -> list[Item]:
    """Interfaces that are new, or that get another bridge or network."""
    places = {change.where for change in changes}
    at = ("", ".bridge", ".network")
    return [item for item in wanted.interfaces or () if places & {f"interfaces[{item.name}]{field}" for field in at}]


def unwanted_devices(wanted: GuestSpec) -> set[str]:
    """Default devices that a new guest must not have."""
    names = {"serials": {"0": "serial"}, "channels": {AGENT_CHANNEL: AGENT_CHANNEL}}
    gone = [(option, item.name) for option in names for item in wanted.fields.get(option, ()) if item.state == "absent"]
    rng = {"rng"} if wanted.fields.get("rng.model") == "none" else set()
    return {names[option][name] for option, name in gone if name in names[option]} | rng


def with_image(guest: GuestSpec) -> GuestSpec:
    """The guest with its `image` as the image of its first disk; raises BadInput if no disk takes one."""
    disks = list(guest.disks or ())
    first = next((i for i, disk in enumerate(disks) if disk.state == "present" and _has_image(disk)), None)
    if guest.image and disks:
        if first is None:
            raise BadInput(
                f"image of {guest.name}: none of its disks is created from an image; omit image, or list a disk for it"
            )
        if disks[first].image not in (None, guest.image):
            raise BadInput(
                f"image of {guest.name}: disk {disks[first].name} has its own image, {disks[first].image}; omit one"
            )
        disks[first] = dataclasses.replace(disks[first], image=guest.image)
    options = (("clone", "how it is created from image"), ("image_pool", "which pool has its image"))
    bare = [
        f"disk {disk.name} of {guest.name}: {option} says {what}; set image too"
        for disk in disks
        for option, what in options
        if getattr(disk, option) and not disk.image
    ]
    if bare:
        raise BadInput(bare)
    return guest.with_fields(disks=tuple(disks)) if disks else guest


def _has_image(disk: Disk) -> bool:
    return not disk.places and disk.fields.get("device", "disk") == "disk"


def disks(
    items: t.Sequence[Item], given: t.Sequence[t.Mapping[str, t.Any]], guest: str, problems: Problems
) -> tuple[Disk, ...]:
    """Disks with their size, pool, image and clone options; adds to `problems`."""
    found = []
    for item, entry in zip(items, given):
        what = f"disk {item.name} of {guest}"
        size, size_bytes = entry.get("size"), None
        if size is not None:
            size_bytes = problems.tried(functools.partial(units.bytes_of, size, bare="G", what=f"size of {what}"))
        names = ((option, units.check_name) for option in ("pool", "image_pool", "thin_pool"))
        checks = (("image", units.check_image), *names)
        for option, check_word in checks:
            if entry.get(option) is not None:
                problems.tried(functools.partial(check_word, entry[option], what=f"{option} of {what}"))
        if item.name == "seed":
            reason = "the name 'seed' is reserved for the cloud-init seed; choose another"
            problems.found.append(f"disk of {guest}: {reason}")
        options = ("pool", "image", "image_pool", "thin_pool", "clone")
        made: dict[str, t.Any] = {option: entry.get(option) for option in options}
        disk = Disk(item.name, item.state, item.fields, size_bytes=size_bytes, **made)
        problems.found += [f"{what}: {reason}" for reason in _place_problems(disk, entry)]
        found.append(disk)
    return tuple(found)


_TWO_PARTS = {"rbd": "pool/image", "iscsi": "target/LUN (iqn.2026-01.org.example:disk/0)"}


def _place_problems(disk: Disk, entry: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """What is wrong with the options that say where the disk's bytes are."""
    places, fields, kind = disk.places, disk.fields, disk.fields.get("device", "disk")
    made = [option for option in (*_MAKING, "pool") if entry.get(option) is not None]
    if kind != "disk" and made and disk.state == "present":
        yield (
            f"a {kind} is not created, and so takes no {', '.join(made)}; name what is there: volume: POOL/NAME, or "
            "source: /PATH"
        )
    if kind in ("cdrom", "floppy") and not places and fields.get("format") not in (None, "raw"):
        yield f"an empty {kind} has no format, and that of its medium is not known yet; omit format"
    if len(places) > 1 or (places and any(entry.get(option) is not None for option in _MAKING)):
        yield f"{places[0]} uses existing storage; it excludes {', '.join([*places[1:], *_MAKING])}"
    if entry.get("network") is not None and not entry["network"].get("protocol"):
        yield "network requires protocol; set it also to change another option of it"
    if entry.get("nvme") is not None and not entry["nvme"].get("address"):
        yield "nvme requires address; set it also to change another option of it"
    protocol, name = fields.get("network.protocol"), fields.get("network.name")
    if protocol in _TWO_PARTS and name and not all(name.partition("/")):
        yield f"network.name must be {_TWO_PARTS[protocol]} for protocol {protocol}, not {name}"
    if fields.get("network.socket") and any(host.state == "present" for host in fields.get("network.hosts", ())):
        yield "network.socket and network.hosts are mutually exclusive; omit one of them"
    if fields.get("network.auth.secret_uuid") and fields.get("network.auth.secret_usage"):
        yield "network.auth.secret_uuid and network.auth.secret_usage are mutually exclusive; omit one of them"


def conflicts(fields: Fields, stop_on_reboot: bool | None, guest: str, *, most_vcpus: int) -> t.Iterator[str]:
    """Contradictions between two options that set the same thing."""
    if stop_on_reboot is not None and "on_reboot" in fields:
        yield f"stop_on_reboot of {guest}: it is short for on_reboot: destroy; set only one of them"
    product = _vcpus_of_topology(fields)
    if product is None:
        return
    if product > most_vcpus:
        yield f"vcpus.topology of {guest}: it has {product} vcpus; a guest has at most {most_vcpus}"
    elif fields.get("vcpus.maximum", product) != product:
        yield (
            f"vcpus of {guest}: the topology has {product} vcpus, but maximum is {fields['vcpus.maximum']}; make "
            "them equal"
        )


def implied(fields: Fields, stop_on_reboot: bool | None) -> dict[str, t.Any]:
    """The fields with those that follow from them."""
    found = dict(fields)
    if stop_on_reboot is not None:
        found["on_reboot"] = "destroy" if stop_on_reboot else "restart"
    product = _vcpus_of_topology(fields)
    if product is not None:
        found = {**dict.fromkeys(_TOPOLOGY, 1), "vcpus.maximum": product, **found}
    if "tags" in found:
        found["tags"] = tuple(sorted(set(found["tags"])))
    if "memory.hugepage_size_kib" in found:
        found.setdefault("memory.hugepages", True)
    if "interfaces" in found:
        found["interfaces"] = tuple(map(_typed, found["interfaces"]))
    return found


def implied_graphics(graphics: Graphics) -> Graphics:
    """The display options; a port of -1 means that libvirt chooses."""
    said = graphics or {}
    ports: dict[str, t.Any] = {port: said[port] for port in ("port", "tls_port") if port in said}
    if not ports:
        return graphics
    chosen = {port: None if number == -1 else number for port, number in ports.items()}
    return {**said, **chosen, "autoport": not any(chosen.values())}


def _vcpus_of_topology(fields: Fields) -> int | None:
    stated = [field for field in fields if field.startswith("vcpus.topology.")]
    return math.prod(fields.get(field, 1) for field in {*_TOPOLOGY, *stated}) if stated else None


_TYPES = {"bridge": "bridge", "network": "network", "device": "direct", "address": "hostdev"}


def _typed(item: Item) -> Item:
    """The interface with the type that its bridge, network, device or address implies."""
    kind = next((kind for place, kind in _TYPES.items() if item.fields.get(place)), None)
    return item if kind is None or item.fields.get("type") else item.with_fields(type=kind)


def limit_problems(fields: Fields, guest: str) -> t.Iterator[str]:
    """Values above their own maximum."""
    for low, high in (*_FOLLOW, ("memory.maximum_kib", "memory.hotplug_maximum_kib")):
        if {low, high} <= fields.keys() and fields[low] > fields[high]:
            yield (
                f"{option_of(low)} of {guest}: {shown(low, fields[low])} is above {option_of(high)}, "
                f"{shown(high, fields[high])}"
            )


def origin_problems(params: t.Mapping[str, t.Any]) -> list[str]:
    """What is wrong with `renamed_from` and `clone_of`."""
    problems = Problems()
    for option, further in (("renamed_from", _former_problems), ("clone_of", _original_problems)):
        if params.get(option):
            what = f"{option} of {params['name']}"
            problems.tried(functools.partial(units.check_existing_name, params[option], what=what))
            problems.found += further(params, what)
    return problems.found


def _former_problems(params: t.Mapping[str, t.Any], what: str) -> t.Iterator[str]:
    if params["renamed_from"] == params["name"]:
        yield f"{what}: it is the guest's current name; omit it, or specify another name"
    if params.get("state") == "absent":
        yield f"{what}: a guest that is removed needs no new name; omit it to remove {params['name']}"


def _original_problems(params: t.Mapping[str, t.Any], what: str) -> t.Iterator[str]:
    if params["clone_of"] == params["name"]:
        yield f"{what}: a guest cannot be a copy of itself; specify another one"
    given = {option: params.get(option) for option in ("image", "renamed_from")}
    given["virt_type"] = params.get("virt_type") not in (None, "auto")
    given["state: absent"] = params.get("state") == "absent"
    for option, value in given.items():
        if value:
            yield f"{what}: clone_of and {option} are mutually exclusive; omit one of them"


def with_macs(wanted: GuestSpec, uuid: str) -> GuestSpec:
    """Give new interfaces a stable MAC address; existing ones keep theirs."""
    named = [
        item if ":" in item.name else dataclasses.replace(item, initial={"mac": units.derived_mac(uuid, item.name)})
        for item in wanted.interfaces or ()
    ]
    return wanted.with_fields(interfaces=tuple(named)) if named else wanted


def protection_problems(
    name: str, kinds: t.Mapping[str, str | None] | None, by_pool: t.Collection[str], *, autostart: bool
) -> list[str]:
    """Why another host could not run the guest, or why this one could start it when it no longer may.

    `kinds` are the shared filesystems that hold its files, None of a local one; `by_pool` are volumes without a path in
    the definition.
    """
    found = []
    if autostart:
        found.append(
            f"{name} is protected (ha) and starts with its host, which may come back while it runs elsewhere; set "
            "autostart: false"
        )
    mend = "move it to a filesystem that all hosts mount (NFS, CephFS, GlusterFS, GFS2, OCFS2), or set ha.mode: none"
    if by_pool:
        volumes = ", ".join(by_pool)
        found.append(f"{name} is protected (ha), and its definition names {volumes} by the pool; name it by its path")
    if kinds is None:
        return found
    found += [
        f"{name} is protected (ha), and {path} is on a filesystem of this host alone; {mend}"
        for path, kind in kinds.items()
        if kind is None
    ]
    if not kinds and not by_pool:
        found.append(
            f"{name} is protected (ha), and none of its disks is a file, beside which it could be kept; {mend}"
        )
    return found
