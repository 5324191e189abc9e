# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What must be on the host before a guest can start, or get a device: libvirt opens it."""

from __future__ import annotations

import dataclasses
import typing as t

__all__ = ["UNFINISHED_SUFFIX", "Missing", "Prerequisites"]

# after the path of a disk that is not complete: libvirt finds no such file, and does not start the guest
UNFINISHED_SUFFIX = ".making"  # of a disk's path in the definition, until the disk is made

Volume = tuple[str, str]  # pool and name


@dataclasses.dataclass(frozen=True)
class Prerequisites:
    """Named by the definition of a guest, or by devices."""

    networks: frozenset[str] = frozenset()
    links: frozenset[str] = frozenset()  # network devices of the host, bridges among them
    files: frozenset[str] = frozenset()  # files, devices and directories
    volumes: frozenset[Volume] = frozenset()
    templates: t.Mapping[str, str] = dataclasses.field(default_factory=dict)  # of UEFI variables -> where these are

    def __or__(self, other: Prerequisites) -> Prerequisites:
        return Prerequisites(
            self.networks | other.networks,
            self.links | other.links,
            self.files | other.files,
            self.volumes | other.volumes,
            {**self.templates, **other.templates},
        )

    @property
    def paths(self) -> frozenset[str]:
        """All that the host may be asked for by its path."""
        return self.files | {*self.templates, *self.templates.values()}


@dataclasses.dataclass(frozen=True)
class Missing:
    """Prerequisites that the host is known not to have."""

    networks: t.Mapping[str, bool] = dataclasses.field(default_factory=dict)  # whether it is there, and only not active
    no_autostart: frozenset[str] = frozenset()  # networks that are there, and do not start with the host
    links: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    volumes: t.Mapping[Volume, str] = dataclasses.field(default_factory=dict)  # why libvirt does not find it
