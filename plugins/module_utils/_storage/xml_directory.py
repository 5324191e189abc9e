# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The XML of a directory as a storage pool."""

from __future__ import annotations

import dataclasses
import hashlib

from ansible_collections.corral.virt.plugins.module_utils._storage.model_directory import Access
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import make, parse, text


def new_pool(directory: str, made_with: Access | None = None) -> str:
    """The XML of a temporary pool for this directory; its name is derived from the path."""
    root = parse("<pool type='dir'/>")
    make(root, "name").text = "corral-" + hashlib.sha256(directory.encode()).hexdigest()[:12]
    target = make(root, "target")
    make(target, "path").text = directory
    if made_with is not None:
        permissions = make(target, "permissions")
        for field, value in dataclasses.asdict(made_with).items():
            make(permissions, field).text = str(value)
    return text(root)


def access(pool_xml: str) -> Access | None:
    """Mode and owners of a pool's directory; None if libvirt does not report them."""
    found = parse(pool_xml).find("target/permissions")
    values = {} if found is None else {one.tag: one.text or "" for one in found}
    if not {"mode", "owner", "group"} <= set(values):
        return None
    return Access(values["mode"], int(values["owner"]), int(values["group"]))


def qemu_user(capabilities_xml: str) -> tuple[int, int] | None:
    """The numbers of the user and group that run QEMU; None if it runs as whoever starts it."""
    for model in parse(capabilities_xml).iterfind("host/secmodel"):
        user, _colon, group = (model.findtext("baselabel") or "").partition(":")
        if model.findtext("model") == "dac" and user[1:].isdigit() and group[1:].isdigit():
            return int(user), int(group)
    return None
