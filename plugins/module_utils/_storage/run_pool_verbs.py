# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The libvirt API of storage pools, with what is seen of their directories on this machine."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.gate import Looked
from ansible_collections.corral.virt.plugins.module_utils._core.uri import has_files_here
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Spec
from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_pool, plan_pool
from ansible_collections.corral.virt.plugins.module_utils._storage.files_lvm import has_group
from ansible_collections.corral.virt.plugins.module_utils._storage.files_pool import (
    closed,
    content,
    directory_id,
    obstacle,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.model_pool import RawPoolHost
from ansible_collections.corral.virt.plugins.module_utils._storage.xml_directory import qemu_user


def _host(connection: t.Any, spec: Spec) -> RawPoolHost:
    raw: RawPoolHost = libvirt_pool.API.host(connection, spec)
    if not has_files_here(connection.getURI()):
        return raw

    def closed_to_qemu(path: str) -> str | None:
        user = qemu_user(libvirt_query.capabilities(connection))
        return closed(path, user) if user else None

    return dataclasses.replace(
        raw, obstacle=obstacle, identity=directory_id, closed=closed_to_qemu, content=content, has_group=has_group
    )


def _build(pool: t.Any, step: plan_pool.Build) -> None:
    libvirt_pool.build(pool, step.type)


def _still_empty(_pool: t.Any, step: plan_pool.Build) -> None:
    plan_pool.check_empty(step.ref, [(device, content(device)) for device in step.devices])
    plan_pool.check_group(step, there=bool(step.group) and has_group(step.group))


API = dataclasses.replace(
    libvirt_pool.API,
    own={
        **libvirt_pool.API.own,
        plan_pool.Build: Looked(_still_empty, _build),
        plan_pool.Refresh: libvirt_pool.refresh,
    },
    host=_host,
)
