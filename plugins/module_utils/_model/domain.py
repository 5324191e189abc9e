# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A guest as the user wants it and as the host reports it. None = the user is silent: not ours to touch."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._changes import Change

__all__ = ["ACTIONS", "STATES", "Disk", "Found", "Grafted", "Interface", "Seed", "Volume", "Wanted"]

STATES = ("present", "running", "shutdown", "destroyed", "paused", "absent")
ACTIONS = ("reset", "rebooted")  # done each time they are asked for


@dataclasses.dataclass(frozen=True)
class Disk:
    """One disk. `name` is its identity; what the XML holds beyond these fields stays."""

    name: str
    state: str = "present"
    # How its volume is made; not in the domain's XML.
    size_bytes: int | None = None
    pool: str | None = None
    image: str | None = None
    # Rows of `_xml/disk.py`.
    device: str | None = None
    source: str | None = None
    format: str | None = None
    bus: str | None = None
    target: str | None = None
    cache: str | None = None
    discard: str | None = None
    io: str | None = None
    serial: str | None = None
    readonly: bool | None = None
    shareable: bool | None = None
    boot_order: int | None = None


@dataclasses.dataclass(frozen=True)
class Interface:
    """One network interface. `name` is its identity in the definition, not inside the guest."""

    name: str
    state: str = "present"
    type: str | None = None
    bridge: str | None = None
    network: str | None = None
    portgroup: str | None = None
    mac: str | None = None
    mac_derived: bool = False  # a proposal for a new interface; one that exists keeps its own
    model: str | None = None
    mtu: int | None = None
    vlan: int | None = None
    link: str | None = None
    boot_order: int | None = None


@dataclasses.dataclass(frozen=True)
class Seed:
    """What cloud-init is told at first boot (NoCloud). Texts, ready to be written; `digest` is over what the user said."""

    user_data: str = dataclasses.field(repr=False)
    meta_data: t.Mapping[str, t.Any]
    network_config: str | None
    on_change: str
    digest: str
    addresses: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Wanted:
    """Everything one `virt_domain` call says."""

    name: str
    state: str = "present"
    fields: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)  # rows of `_xml/domain.py`, by path
    graphics: t.Mapping[str, t.Any] | None = None
    disks: tuple[Disk, ...] | None = None
    interfaces: tuple[Interface, ...] | None = None
    image: str | None = None
    seed: Seed | None = None
    uuid: str | None = None
    virt_type: str = "auto"
    autostart: bool | None = None
    allow_restart: bool = False
    force: bool = False
    remove_storage: bool = False
    wait: bool = True
    wait_timeout_s: int = 300
    wait_for_ip: str | None = None


@dataclasses.dataclass(frozen=True)
class Found:
    """A guest as libvirt has it. `xml` is the definition (secrets included), `live_xml` what runs now."""

    name: str
    uuid: str
    state: str
    persistent: bool
    autostart: bool
    xml: str = dataclasses.field(repr=False)
    live_xml: str | None = dataclasses.field(default=None, repr=False)
    keeps: tuple[str, ...] = ()  # what libvirt stores beside the definition: managed_save, snapshots, checkpoints

    @property
    def active(self) -> bool:
        """Whether a hypervisor process exists for it."""
        return self.live_xml is not None


@dataclasses.dataclass(frozen=True)
class Volume:
    """A disk image in a pool, there or to be made."""

    pool: str
    name: str
    path: str
    capacity_bytes: int
    format: str = "qcow2"
    backing_path: str | None = None
    backing_format: str | None = None
    allocation_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class Grafted:
    """A document after the user's wishes were written into it."""

    xml: str = dataclasses.field(repr=False)
    changes: tuple[Change, ...]
    # Devices that were added or removed as a whole, by `disks[name]` / `interfaces[name]`.
    added: t.Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    removed: t.Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    metadata: str = dataclasses.field(default="", repr=False)
