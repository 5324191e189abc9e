# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gather the snapshots of a guest."""

from __future__ import annotations

import functools
import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import Tree
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_snapshot import snapshot
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_sources import variables
from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

_TPM = "/var/lib/libvirt/swtpm"


def tree(connection: t.Any, uuid: str, *, secrets: bool = False) -> Tree:
    """The snapshots of the guest with this UUID, on request with `secrets` in their documents; raises NotFound."""
    located = functools.partial(libvirt_storage.path_in, connection)
    domain = libvirt_query.by_uuid(connection, uuid)
    found, current = libvirt_query.snapshots(domain, secrets=secrets), libvirt_query.current_snapshot(domain)
    return Tree(snapshot(xml, located, current=name == current) for name, xml in found)


def state_files(xml: str, uuid: str) -> tuple[str, ...]:
    """The UEFI variables of a guest and the directory with the state of its TPM, where they exist."""
    root = parse(xml)
    tpm = [os.path.join(_TPM, uuid)] if root.find("devices/tpm/backend[@type='emulator']") is not None else []
    return tuple(path for path in (*variables(root), *tpm) if os.path.exists(path))
