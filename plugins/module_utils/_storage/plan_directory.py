# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide who owns a directory that is created on another host. Pure."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._storage.model_directory import Access

_ROOT = 0
User = tuple[int, int]  # numbers of a user and its group


def access_there(here: Access | None, qemu_here: User | None, qemu_there: User | None) -> Access | None:
    """The access for a directory that is created on the destination as on the source; None leaves it to libvirt.

    libvirt would give it to root alone. A directory of the user that runs QEMU, such as that of the UEFI variables,
    must belong to that user there. Only root and this user are known on both hosts.
    """
    if here is None or qemu_here is None or qemu_there is None:
        return None
    owners = {_ROOT: _ROOT, qemu_here[0]: qemu_there[0]}
    groups = {_ROOT: _ROOT, qemu_here[1]: qemu_there[1]}
    if here.owner not in owners:
        return None
    own_group = qemu_there[1] if owners[here.owner] else _ROOT
    return Access(here.mode, owners[here.owner], groups.get(here.group, own_group))
