# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What images a pool has, where they are from, and who uses them."""

from __future__ import annotations

import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._files import image as files
from ansible_collections.corral.virt.plugins.module_utils._front import file_users, pool_directory
from ansible_collections.corral.virt.plugins.module_utils._model.image import Image
from ansible_collections.corral.virt.plugins.module_utils._plan import image as plans

__all__ = ["described"]


def described(connection: t.Any, pool: str) -> list[dict[str, t.Any]]:
    """The images of a pool that were imported by `virt_image`."""
    directory = pool_directory.directory(connection, pool, "images")
    users = file_users.users(connection)
    used = users.inside(directory)
    return [_described(Image(name, directory, ""), pool, used, users) for name in files.names(directory)]


def _described(image: Image, pool: str, used: t.Mapping[str, str], users: file_users.Users) -> dict[str, t.Any]:
    found = files.look(image)
    manifest = files.manifest_of(image.directory, found.target) if found.target else None
    contents = [_content(image, name, used) for name in plans.old(image, found, (), every=True)]
    by_name = users.based_on(os.path.join(image.directory, image.name))
    return {
        "name": image.name,
        "pool": pool,
        "content": found.target,
        "source": manifest.source if manifest else None,
        "checksum": manifest.checksum if manifest else None,
        "fetched": manifest.fetched if manifest else None,
        "verified": bool(manifest and manifest.verified),
        "contents": contents,
        "used": bool(by_name) or any(one["used_by"] for one in contents),
    }


def _content(image: Image, name: str, used: t.Mapping[str, str]) -> dict[str, t.Any]:
    manifest = files.manifest_of(image.directory, name)
    return {"content": name, "bytes": manifest.bytes if manifest else None, "used_by": used.get(name)}
