# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest as the user wants it and as the host reports it. None: the user does not set it, so it is left alone."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity

STATES = ("present", "running", "shutdown", "destroyed", "paused", "absent")
ACTIONS = ("reset", "rebooted")  # done each time they are asked for
APPLY = ("both", "live", "next_boot")
OFFLINE = "virt_customize"  # the seed is applied to the disk before the first start


@dataclasses.dataclass(frozen=True)
class Original:
    """The disk of another guest that a disk is to be a copy of."""

    guest: str
    path: str
    format: str  # in which that guest has it


@dataclasses.dataclass(frozen=True)
class OriginalDisk:
    """A disk of a guest that is being cloned."""

    name: str
    target: str
    path: str
    format: str
    shared: bool  # both guests have it
    obstacle: str = ""  # why it cannot be copied


@dataclasses.dataclass(frozen=True)
class OwnedDisk:
    """What exists of a disk that was made for a guest."""

    volume: bool = False  # an active pool has it
    key: str | None = None  # of that volume
    pool: str | None = None  # whose directory it is in
    active: bool = False  # the pool
    exists: bool | None = None  # as a file of this machine; None: nobody can tell
    opened: bool = False  # a process of this machine has it open as an image
    identity: FileIdentity | None = None  # of a regular file or logical volume of this machine
    tags: tuple[str, ...] | None = None  # of a logical volume of this machine

    @property
    def gone(self) -> bool:
        """True if the disk is known not to exist. Nobody sees what an inactive pool holds."""
        return not self.volume and (self.active or (self.pool is None and self.exists is False))


def owner_tag(guest_uuid: str) -> str:
    """The LVM tag of a logical volume that is made for a guest."""
    return f"corral.guest.{guest_uuid}"


# The options that say where the bytes of a disk are, and the fields that decide it.
PLACES = {"source": "source", "volume": "volume", "url": "url", "network": "network.protocol", "nvme": "nvme.address"}


@dataclasses.dataclass(frozen=True)
class Disk(Item):
    """A disk, and how its volume is created."""

    size_bytes: int | None = None
    pool: str | None = None
    image: str | None = None
    clone: str | None = None  # of the image: overlay (when silent) or copy
    image_pool: str | None = None  # where the image is, if not in `pool`
    thin_pool: str | None = None  # of the volume group that is `pool`
    copy_of: Original | None = None

    @property
    def places(self) -> tuple[str, ...]:
        """The options that are set and say where the disk's bytes are."""
        return tuple(option for option, field in PLACES.items() if self.fields.get(field))


@dataclasses.dataclass(frozen=True)
class Seed:
    """The cloud-init data for the first boot, as texts; `digest` is over the user's input."""

    user_data: str = dataclasses.field(repr=False)
    vendor_data: str = dataclasses.field(repr=False)
    meta_data: t.Mapping[str, t.Any] = dataclasses.field(repr=False)
    network_config: str | None = dataclasses.field(repr=False)
    config: t.Mapping[str, t.Any] = dataclasses.field(repr=False)  # what user data says where it is a cloud-config
    vendor_config: t.Mapping[str, t.Any] = dataclasses.field(repr=False)
    host_keys: t.Mapping[str, str] = dataclasses.field(repr=False)  # the user's own, private, by kind and best first
    on_change: str
    method: str
    digest: str
    addresses: tuple[str, ...] = ()
    of_a_copy: str | None = None  # UUID of the guest whose disk was another one's


@dataclasses.dataclass(frozen=True)
class GuestSpec:
    """All options of one `virt_domain` call."""

    name: str
    state: str = "present"
    # rows of `_domain/fields_domain.py`, by path; lists hold Items
    fields: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    graphics: t.Mapping[str, t.Any] | None = None
    allow_unprotected: bool = False  # a display that anybody can use who reaches its port
    xml: str | None = dataclasses.field(default=None, repr=False)
    image: str | None = None
    seed: Seed | None = None
    uuid: str | None = None
    renamed_from: str | None = None
    clone_of: str | None = None
    virt_type: str = "auto"
    autostart: bool | None = None
    as_numbers: tuple[str, ...] = ()  # of vcpus and memory: told as a number, so the maximum follows
    apply: str = "both"
    allow_restart: bool = False
    move_disks: bool = False
    force: bool = False
    force_off: bool = False  # when it is removed: it is not asked to shut down
    remove_storage: bool = False
    keep_shared: bool = False  # its disks on filesystems that other hosts may mount stay then
    keep_removed_h: int = 0  # how long its disks are kept aside then, in hours
    wait: bool = True
    wait_timeout_s: int = 300
    wait_for_ip: str | None = None

    @property
    def disks(self) -> tuple[Disk, ...] | None:
        """The disks that the user lists; None when the option is not set."""
        return self.fields.get("disks")

    @property
    def interfaces(self) -> tuple[Item, ...] | None:
        """The network interfaces that the user lists; None when the option is not set."""
        return self.fields.get("interfaces")

    def with_fields(self, **more: t.Any) -> GuestSpec:
        """A copy of the guest with some fields set; None unsets a field."""
        fields = {**self.fields, **more}
        return dataclasses.replace(self, fields={field: value for field, value in fields.items() if value is not None})


@dataclasses.dataclass(frozen=True)
class FoundGuest:
    """A guest as libvirt has it. `xml` is the definition (secrets included), `live_xml` the running one."""

    name: str
    uuid: str
    state: str
    persistent: bool
    autostart: bool
    xml: str = dataclasses.field(repr=False)
    live_xml: str | None = dataclasses.field(default=None, repr=False)
    stopped_itself: bool = False  # paused, and by nobody: by an I/O error, or because it sleeps

    @property
    def active(self) -> bool:
        """True if a hypervisor process exists for the guest."""
        return self.live_xml is not None


class Power(t.NamedTuple):
    """A guest as libvirt has it, without its XML; `moving` is True if our record says so."""

    name: str
    uuid: str
    state: str
    active: bool
    moving: bool
    stopped_itself: bool = False


@dataclasses.dataclass(frozen=True)
class Volume:
    """A disk image in a pool, existing or to be created."""

    pool: str
    name: str
    path: str
    capacity_bytes: int
    format: str = "qcow2"
    backing_path: str | None = None
    backing_format: str | None = None
    copy_of: str | None = None
    allocation_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class Grafted:
    """A document after the options were written into it."""

    xml: str = dataclasses.field(repr=False)
    changes: tuple[Change, ...]
    # Devices with a change, by `disks[name]` or `graphics`: as they are now, or as they were where they are gone.
    devices: t.Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    metadata: str = dataclasses.field(default="", repr=False)
    osinfo: str = ""  # libosinfo's element, for a running guest


APART, TOGETHER, HOST_GROUPS, REQUIRES = "apart-", "together-", "host_groups-", "requires-"


def after_prefix(tags: t.Iterable[str], prefix: str) -> frozenset[str]:
    """The rest of the tags with this prefix: groups or requirements."""
    return frozenset(tag[len(prefix) :] for tag in tags if tag.startswith(prefix))


def versions(tags: t.Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Required programs and their oldest sufficient version, from tags such as `requires-qemu-8.2`."""
    pairs = (word.partition("-") for word in after_prefix(tags, REQUIRES))
    return tuple(sorted((program, version) for program, _dash, version in pairs if version))


@dataclasses.dataclass(frozen=True)
class Display:
    """A display of a guest. `listens`: addresses, `network NAME`, or an empty text for the host's default.

    Empty for a socket.
    """

    type: str
    listens: tuple[str, ...]
    password: bool
    tls: bool


@dataclasses.dataclass(frozen=True)
class DisplayDefaults:
    """The defaults of a host for all its guests: where displays listen, and which types have a password or TLS."""

    listen: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    protected: frozenset[str] = frozenset()


# A network filter of libvirt, as far as it matters where the kernel looks at its rules.


@dataclasses.dataclass(frozen=True)
class NetworkFilter:
    """A network filter: the `protocols` of its own rules, and the filters that it refers to."""

    protocols: frozenset[str]
    references: tuple[str, ...] = ()


PCI, EXPRESS = "PCI", "PCI Express"  # kinds of slots

Slot = tuple[int, int]  # number of the bus, and of the slot on it


@dataclasses.dataclass(frozen=True)
class Plug:
    """A device: its element, its type (of a disk, the bus), and its model."""

    what: str
    kind: str
    model: str = ""
    drive: str = ""  # of a disk: disk, lun, cdrom or floppy
    empty: bool = False  # a drive without a medium
    slot: Slot | None = None  # where it is, or shall be


@dataclasses.dataclass(frozen=True)
class Buses:
    """The PCI buses of a running guest that take devices while it runs."""

    slots: t.Mapping[Slot, str]  # all of them, with their kind
    used: t.Mapping[Slot, int]  # by how many devices, on any bus
    express: bool = False  # whether its root is PCI Express, as that of a q35 machine
    scsi: bool = False  # whether it has a controller for SCSI disks
    usb: int | None = None  # free USB ports; None: nobody can tell
    no_usb: bool = False  # it has no USB controller
