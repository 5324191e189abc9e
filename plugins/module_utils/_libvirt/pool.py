# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Verbs on storage pools."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, libvirt, said

__all__ = ["define", "look", "set_autostart", "start", "stop", "undefine"]


def look(connection: Connection, name: str) -> tuple[str, bool, bool] | None:
    """The pool's document, whether it is active and whether it starts with the host; None when there is no such pool."""
    try:
        pool = connection.storagePoolLookupByName(name)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_STORAGE_POOL:
            return None
        with said("find storage pool", name):
            raise
    with said("read storage pool", name):
        return pool.XMLDesc(), bool(pool.isActive()), bool(pool.autostart())


def define(connection: Connection, name: str, xml: str) -> None:
    """Make it known."""
    with said("define storage pool", name):
        connection.storagePoolDefineXML(xml)


def start(connection: Connection, name: str) -> None:
    """Start it; its directory is made where there is none."""
    with said("start storage pool", name, "can its directory be made and read?"):
        pool = _pool(connection, name)
        pool.build(0)  # for a directory: mkdir
        pool.create()


def stop(connection: Connection, name: str) -> None:
    """Stop it; files stay."""
    with said("stop storage pool", name):
        _pool(connection, name).destroy()


def set_autostart(connection: Connection, name: str, on: bool) -> None:
    """Start with the host, or not."""
    with said("set autostart of storage pool", name):
        _pool(connection, name).setAutostart(on)


def undefine(connection: Connection, name: str) -> None:
    """Forget it; files stay."""
    with said("undefine storage pool", name):
        _pool(connection, name).undefine()


def _pool(connection: Connection, name: str) -> t.Any:
    return connection.storagePoolLookupByName(name)
