# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists the images of a pool, their sources and their users."""

from __future__ import annotations

import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._image import files_image, plan_image
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Image
from ansible_collections.corral.virt.plugins.module_utils._storage import run_file_users, run_pool_directory
from ansible_collections.corral.virt.plugins.module_utils._system import locks


def described(connection: t.Any, pool: str, *, missing_ok: bool = False) -> list[dict[str, t.Any]] | None:
    """The images of a pool that were imported by `virt_image`; None if `missing_ok`, and there is no such pool."""
    try:
        directory = run_pool_directory.directory(connection, pool, "images")
    except NotFound:
        if missing_ok:
            return None
        raise
    users = run_file_users.users(connection)
    used, where = users.inside(directory), {"pool": pool, "shared": locks.shared_filesystem(directory)}
    return [{**_described(Image(name, directory, ""), used, users), **where} for name in files_image.names(directory)]


def _described(image: Image, used: t.Mapping[str, str], users: run_file_users.Users) -> dict[str, t.Any]:
    found = files_image.look(image)
    manifest = files_image.manifest_of(image.directory, found.target) if found.target else None
    contents = [_content(image, name, used) for name in plan_image.old(image, found, (), every=True)]
    by_name = users.based_on(os.path.join(image.directory, image.name))
    return {
        "name": image.name,
        "path": os.path.join(image.directory, image.name),
        "content": found.target,
        "source": manifest.source if manifest else None,
        "checksum": manifest.checksum if manifest else None,
        "fetched": manifest.fetched if manifest else None,
        "verified": bool(manifest and manifest.verified),
        "contents": contents,
        "used": bool(by_name) or any(one["used_by"] for one in contents),
    }


def _content(image: Image, name: str, used: t.Mapping[str, str]) -> dict[str, t.Any]:
    manifest = files_image.manifest_of(image.directory, name)
    path, size = os.path.join(image.directory, name), manifest.bytes if manifest else None
    return {"content": name, "path": path, "bytes": size, "used_by": used.get(name)}
