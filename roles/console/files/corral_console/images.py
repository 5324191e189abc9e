# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images that hosts have, as the names of their volumes tell."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Image

__all__ = ["images", "merged"]

Volume = t.Mapping[str, t.Any]


def images(volumes: t.Sequence[Volume]) -> list[dict[str, t.Any]]:
    """Of the volumes of one pool: names that point to a content, with the newest content's size."""
    names = {volume["name"]: volume for volume in volumes}
    found = []
    for name, volume in sorted(names.items()):
        image = Image(name, "", "")
        contents = [other for other in names if image.owns(other)]
        if contents:
            found.append({"name": name, "bytes": volume["allocation_bytes"], "contents": sorted(contents)})
    return found


def merged(pools: t.Iterable[tuple[str, str, t.Sequence[Volume]]]) -> list[dict[str, t.Any]]:
    """Host, pool and volumes: each image once, with the places that have it."""
    found: dict[str, dict[str, t.Any]] = {}
    for host, pool, volumes in pools:
        for image in images(volumes):
            known = found.setdefault(image["name"], {"name": image["name"], "places": []})
            known["places"].append({"host": host, "pool": pool, "bytes": image["bytes"], "contents": image["contents"]})
    return [found[name] for name in sorted(found)]
