# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Read guests: one call for a list, one document each."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, libvirt, said
from ansible_collections.corral.virt.plugins.module_utils._model.domain import Found

__all__ = ["all_guests", "find", "lookup", "names"]


def names(connection: Connection) -> list[str]:
    """Names of all guests, running or not."""
    with said("list guests of", connection.getURI()):
        return sorted(domain.name() for domain in connection.listAllDomains())


def all_guests(connection: Connection) -> list[t.Any]:
    """All virDomain objects."""
    with said("list guests of", connection.getURI()):
        return t.cast("list[t.Any]", connection.listAllDomains())


def lookup(connection: Connection, name: str) -> t.Any:
    """The virDomain of that name; raises NotFound."""
    with said("find guest", name):
        return connection.lookupByName(name)


def find(connection: Connection, name: str) -> Found | None:
    """The guest as libvirt has it, or None."""
    try:
        domain = connection.lookupByName(name)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        with said("find guest", name):
            raise
    return found(domain)


def found(domain: t.Any) -> Found:
    """Definition (secrets included, so that redefining loses none), live document and state of a guest."""
    with said("read guest", domain.name()):
        active = bool(domain.isActive())
        flags = libvirt.VIR_DOMAIN_XML_SECURE
        return Found(
            name=domain.name(),
            uuid=domain.UUIDString(),
            state=state(domain),
            persistent=bool(domain.isPersistent()),
            autostart=bool(domain.autostart()) if domain.isPersistent() else False,
            xml=domain.XMLDesc(flags | libvirt.VIR_DOMAIN_XML_INACTIVE),
            live_xml=domain.XMLDesc(flags) if active else None,
            keeps=_keeps(domain),
        )


def _keeps(domain: t.Any) -> tuple[str, ...]:
    """A driver that does not know a kind has none of it."""
    questions = {
        "managed_save": domain.hasManagedSaveImage,
        "snapshots": domain.snapshotNum,
        "checkpoints": domain.listAllCheckpoints,
    }
    kept = []
    for kind, ask in questions.items():
        with contextlib.suppress(libvirt.libvirtError):
            if ask():
                kept.append(kind)
    return tuple(kept)


def state(domain: t.Any) -> str:
    """running, paused, shutdown or crashed, in the words of option `state`."""
    code, _reason = domain.state()
    return {
        libvirt.VIR_DOMAIN_RUNNING: "running",
        libvirt.VIR_DOMAIN_BLOCKED: "running",
        libvirt.VIR_DOMAIN_PAUSED: "paused",
        libvirt.VIR_DOMAIN_PMSUSPENDED: "paused",
        libvirt.VIR_DOMAIN_SHUTDOWN: "running",
        libvirt.VIR_DOMAIN_SHUTOFF: "shutdown",
        libvirt.VIR_DOMAIN_CRASHED: "crashed",
    }.get(code, "unknown")
