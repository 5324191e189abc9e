# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host must have before a guest can start, or get a device: libvirt opens it."""

from __future__ import annotations

import dataclasses
import typing as t

# after the path of a disk that is not complete: libvirt finds no such file, and does not start the guest
UNFINISHED_SUFFIX = ".making"  # of a disk's path in the definition, until the disk is made

Volume = tuple[str, str]  # pool and name


class Qcow2(t.NamedTuple):
    """An image that names other files."""

    place: str | Volume
    is_alone: bool = False  # the definition says what it stands on, so that nobody asks the image


class NamedBy(t.NamedTuple):
    """How an image names a file."""

    image: str
    is_data: bool  # its content is there; else the image stands on it


class Uplink(t.NamedTuple):
    """Network devices of the host that connect the guests of a network."""

    bridge: str = ""
    is_own: bool = False  # libvirt makes the bridge when the network starts
    interfaces: tuple[str, ...] = ()  # below macvtap devices: libvirt takes one of them


class Offer(t.NamedTuple):
    """What libvirt must offer guests of this type and machine."""

    what: str  # efi, bios: firmware that libvirt chooses; swtpm
    virt_type: str
    arch: str
    machine: str


@dataclasses.dataclass(frozen=True)
class Prerequisites:
    """What the definition of a guest, or its devices, names."""

    networks: frozenset[str] = frozenset()
    plugged: frozenset[str] = frozenset()  # those of the networks whose devices the kernel knows
    filters: frozenset[str] = frozenset()  # of network packets
    links: frozenset[str] = frozenset()  # network devices of the host, bridges among them
    lower: frozenset[str] = frozenset()  # those of them that are below macvtap devices
    devices: frozenset[str] = frozenset()  # of the host, as `pci 0000:06:00.0`
    switches: frozenset[str] = frozenset()  # bridges of Open vSwitch
    files: frozenset[str] = frozenset()  # files, devices and directories
    media: frozenset[str | Volume] = frozenset()  # files and volumes in drives, which eject them
    special: frozenset[str] = frozenset()  # those of them that are devices or sockets: a storage pool lists none
    contents: frozenset[str] = frozenset()  # those of them that are directories which the guest has for its own
    loaders: frozenset[str] = frozenset()  # those of them that are firmware
    directories: frozenset[str] = frozenset()  # in which logs and sockets are made
    secrets: frozenset[str] = frozenset()  # of libvirt, by UUID or usage
    helpers: frozenset[str] = frozenset()  # virtiofsd, where libvirt chooses the program
    offers: frozenset[Offer] = frozenset()
    volumes: frozenset[Volume] = frozenset()
    images: frozenset[Qcow2] = frozenset()  # those of the files and volumes that name other files
    templates: t.Mapping[str, str] = dataclasses.field(default_factory=dict)  # of UEFI variables -> where these are
    restored: bool = False  # by a saved definition, which a hook of libvirt may change

    def __or__(self, other: Prerequisites) -> Prerequisites:
        mine, its = vars(self), vars(other)
        templates = {**self.templates, **other.templates}
        return Prerequisites(
            **{**{name: mine[name] | its[name] for name in mine if name != "templates"}, "templates": templates}
        )

    @property
    def paths(self) -> frozenset[str]:
        """All paths that the host may be asked for."""
        return self.files | self.directories | {*self.templates, *self.templates.values()}


@dataclasses.dataclass(frozen=True)
class Missing:
    """Prerequisites that the host is known not to have."""

    networks: t.Mapping[str, bool] = dataclasses.field(default_factory=dict)  # whether it is there, and only not active
    no_autostart: frozenset[str] = frozenset()  # networks that are there, and do not start with the host
    transient: frozenset[str] = frozenset()  # those of them that are gone when they stop
    uplinks: t.Mapping[str, Uplink] = dataclasses.field(default_factory=dict)  # of active networks
    filters: frozenset[str] = frozenset()
    links: frozenset[str] = frozenset()  # those of networks as well
    devices: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    named: t.Mapping[str, NamedBy] = dataclasses.field(default_factory=dict)  # files that images name
    volumes: t.Mapping[Volume, str] = dataclasses.field(default_factory=dict)  # why libvirt does not find it
    secrets: frozenset[str] = frozenset()
    helpers: frozenset[str] = frozenset()
    offers: frozenset[Offer] = frozenset()
    hooked: bool = False  # a hook of libvirt may set up files and devices, so that nobody knows what is missing
    maintenance: str | None = None  # the reason, while the host takes no guests
