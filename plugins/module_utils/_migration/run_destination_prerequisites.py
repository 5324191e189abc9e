# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find prerequisites of a guest, beside its disks, that the destination lacks.

Its files are seen through libvirt: a directory is a storage pool while its files are listed. Nothing is written there.
"""

from __future__ import annotations

import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.cached_answers import asked
from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, VirtError
from ansible_collections.corral.virt.plugins.module_utils._domain import (
    xml_host,
    xml_host_bindings,
    xml_host_devices,
    xml_prerequisites,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import NamedBy, Prerequisites
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_start, run_host_prerequisites
from ansible_collections.corral.virt.plugins.module_utils._libvirt import statistics
from ansible_collections.corral.virt.plugins.module_utils._migration import files_migration, plan_firmware
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import MigrationHost
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_firmware import Build, Descriptor
from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage, run_directories

_HOOKS = "/etc/libvirt/hooks"
_OURS = "50-corral"  # it refuses guests, and sets up nothing
_OF_THE_KERNEL = ("/dev/", "/sys/", "/proc/", "/run/", "/var/run/")


class Lacking(t.NamedTuple):
    """What one destination lacks for one guest."""

    problems: list[tuple[str, str]]  # each with its remedy
    left: list[str]  # directories whose content stays behind
    hooked: bool  # a hook there may set up what is missing
    firmware: dict[str, str]  # paths there for those here


def lacking(
    source: t.Any, dest: t.Any, its: MigrationHost, found: FoundGuest, copied: t.Collection[str] = ()
) -> Lacking:
    """What the destination lacks for the guest, now and at its next start. Firmware under another path is not missing,
    nor is the template of variables that are `copied`.
    """
    needed = plan_start.combined(
        xml_prerequisites.prerequisites(xml, disks=False) for xml in (found.xml, found.live_xml) if xml
    )
    needed = plan_start.without(needed, [template for template, made in needed.templates.items() if made in copied])
    look = _Look(dest, its.links, its.emulators)
    missing, renamed = run_host_prerequisites.missing(dest, needed, look), dict[str, str]()
    if missing.paths & {*needed.loaders, *needed.templates}:
        renamed = _renamed(_Look(source), look, found.live_xml or found.xml)
    return Lacking(
        plan_start.problems(plan_start.without(needed, renamed), missing, its.name),
        [path for path in sorted(needed.contents) if not files_migration.shared_by(path)],
        missing.hooked,
        renamed,
    )


class _Look:
    """A `HostLook` for a host at the other end of a connection; each directory is read once."""

    def __init__(
        self, connection: t.Any, links: frozenset[str] | None = None, emulators: t.Collection[str] = ()
    ) -> None:
        self._connection, self._links, self._emulators = connection, links, emulators

    def has_hook(self, of: str) -> bool:
        """True if a hook script exists there beside ours."""
        scripts = set(self.names_in(f"{_HOOKS}/{of}.d") or ()) - {_OURS}
        return bool(scripts) or of in (self.names_in(_HOOKS) or ())

    def missing_links(self, names: t.Collection[str], switches: t.Collection[str]) -> frozenset[str]:
        """The missing network devices; empty if those of the host are unknown."""
        return frozenset() if self._links is None else frozenset({*names, *switches} - self._links)

    def missing_devices(self, names: t.Collection[str]) -> frozenset[str]:
        """The missing devices; empty if libvirt cannot list those of the host."""
        offered = xml_host_devices.offered(statistics.devices(self._connection)) if names else None
        return frozenset() if offered is None else frozenset(names).difference(offered)

    def missing_paths(self, needed: Prerequisites) -> frozenset[str]:
        """The missing files and directories; devices and sockets cannot be checked."""
        asked = needed.paths - needed.special - set(self._emulators)
        return frozenset(path for path in asked if not path.startswith(_OF_THE_KERNEL) and self._lacks(path))

    def missing_named(self, _needed: Prerequisites) -> dict[str, NamedBy]:
        """Always empty: disks and their files are checked elsewhere."""
        return {}

    def _lacks(self, path: str) -> bool:
        directory, name = os.path.split(os.path.normpath(path))
        found = self.names_in(directory)
        return bool(name) and found is not None and name not in found

    @asked
    def names_in(self, directory: str) -> t.Collection[str] | None:
        """The names in a directory; empty if it is missing; None if libvirt cannot list it."""
        try:
            with run_directories.pool_for(self._connection, directory) as pool:
                return tuple(libvirt_storage.names(self._connection, pool))
        except NotFound:
            return ()
        except VirtError:
            return None

    def descriptors(self) -> list[Descriptor]:
        """The host's firmware descriptors."""
        return plan_firmware.descriptors(
            text for directory in plan_firmware.DIRECTORIES for text in self._contents(directory)
        )

    def _contents(self, directory: str) -> t.Iterator[bytes]:
        names = [name for name in sorted(self.names_in(directory) or ()) if name.endswith(".json")]
        if names:
            with run_directories.pool_for(self._connection, directory) as pool:
                yield from (libvirt_storage.read(self._connection, pool, name) or b"" for name in names)

    def size(self, path: str) -> int | None:
        """The size of a file in bytes; None if it is missing or unknown."""
        directory, name = os.path.split(path)
        try:
            with run_directories.pool_for(self._connection, directory) as pool:
                xml = libvirt_storage.volume_in(self._connection, pool, name)
        except VirtError:
            return None
        return xml_host.volume(xml)["physical_bytes"] if xml else None


def _renamed(here: _Look, there: _Look, xml: str) -> dict[str, str]:
    """Maps the paths of the guest's firmware here to those there."""

    def alike(mine: Descriptor, its: Descriptor) -> bool:
        pairs = ((mine.loader, its.loader), (mine.template, its.template))
        sizes = [(here.size(own), there.size(other)) for own, other in pairs]
        return all(own is not None and own == other for own, other in sizes)

    return plan_firmware.translation(
        Build(*xml_host_bindings.firmware(xml)), here.descriptors(), there.descriptors(), alike
    )
