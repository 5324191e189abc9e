# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what libvirt tells of a host's block devices, and of where a pool's volumes come from."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, parse


def device(path: str, nodes: t.Iterable[str], volume: str | None, pool: str | None) -> dict[str, t.Any] | None:
    """Size and names of the block device at this path, from the documents of the host's devices, of its volume and of
    that one's pool; None if none of them knows it. A volume that lies on one disk has the names of that, too.
    """
    known = [_node(root) for root in map(parse, nodes)]
    found = next((dict(one) for one in known if path in one["links"]), {})
    if volume and pool:
        root = parse(volume)
        below = {each.get("path") for each in root.iterfind("source/device")}
        names = [one["links"] for one in known if len(below) == 1 and below & {*one["links"]}]
        found = {
            "size_bytes": int(root.findtext("capacity") or 0),
            "links": (path, *sum(names, ())),
            **found,
            "pool_type": parse(pool).get("type"),
            "key": root.findtext("key") or "",
        }
    return found or None


def _node(root: Element) -> dict[str, t.Any]:
    """Size and names of one device of the host."""
    names = {one.text or "" for one in root.iterfind("devnode")} | {root.findtext("capability/block") or ""}
    return {"size_bytes": int(root.findtext("capability/size") or 0), "links": tuple(sorted(names - {""}))}


def pool_source(xml: str) -> dict[str, t.Any]:
    """Type of a pool, its servers, and its Ceph pool, Gluster volume with its directory, or target."""
    root = parse(xml)
    name = root.findtext("source/name") or ""
    paths = [one.get("path") or "" for place in ("source/device", "source/dir") for one in root.iterfind(place)]
    return {
        "type": root.get("type"),
        "servers": tuple(host.get("name") or "" for host in root.iterfind("source/host")),
        "name": " ".join(filter(None, [name, *paths])),
    }
