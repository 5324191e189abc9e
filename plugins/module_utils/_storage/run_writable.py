# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of `virt_writable`, and how it looks."""

from __future__ import annotations

import os
import pwd
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._storage import files_mount, files_writable, plan_writable
from ansible_collections.corral.virt.plugins.module_utils._storage.files_pool import closed
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_writable import BOOLEANS, TIMEOUT_S, Attempt
from ansible_collections.corral.virt.plugins.module_utils._storage.xml_directory import qemu_user

OPTIONS: dict[str, t.Any] = {"paths": {"type": "list", "elements": "str", "required": True}}


def check(connection: t.Any, params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    """Try all directories, in a real run only, and return the result."""
    plan_writable.check_paths(params["paths"])
    user = qemu_user(libvirt_query.capabilities(connection)) or (os.geteuid(), os.getegid())
    attempts: list[Attempt] = gate.perform(lambda: [_attempt(path, user) for path in params["paths"]], otherwise=list)
    return {"changed": False, "tried": [one.path for one in attempts], "notes": plan_writable.decide(attempts)}


def _attempt(path: str, user: tuple[int, int]) -> Attempt:
    try:
        name = pwd.getpwuid(user[0]).pw_name
        groups = os.getgrouplist(name, user[1])
    except KeyError:
        name, groups = str(user[0]), [user[1]]
    stage, code = files_writable.attempt(path, user, groups, TIMEOUT_S)
    found = files_mount.mounted(files_mount.mount_point(path))
    way = closed(path, user) if stage in ("own", "write") else None
    boolean = BOOLEANS.get(found.fstype if found else "")
    off = boolean if boolean and files_writable.boolean_is_off(boolean) else ""
    return Attempt(path, name, stage, code, found, (way or "").partition(":")[2], off)
