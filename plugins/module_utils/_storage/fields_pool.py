# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table and the XML of a storage pool (https://libvirt.org/formatstorage.html)."""

from __future__ import annotations

import posixpath
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._noun.fields_schema import Schema
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Found, Spec
from ansible_collections.corral.virt.plugins.module_utils._storage.model_pool import (
    BUILT,
    DIRECTORIES,
    POOL_KIND,
    POOL_TYPES,
    DirectoryId,
    PoolHost,
    PoolUser,
    RawPoolHost,
)
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml import row, tree
from ansible_collections.corral.virt.plugins.module_utils._xml.overlay import Shape
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Items, Many, Row

SHAPE = Shape("pool", ours=("uuid",), several=frozenset({"device", "host", "option"}))


def _same_path(found: str | None, wanted: str) -> bool:
    """True if both spellings name the same path."""
    return found is not None and posixpath.normpath(found) == posixpath.normpath(wanted)


def _same_mode(found: str | None, wanted: str) -> bool:
    """True if both are the same permissions: 755 is 0755."""
    return found is not None and found.lstrip("0") == wanted.lstrip("0")


def _mode(value: t.Any) -> str:
    """The permissions as text; YAML makes a number of 0755 without quotes."""
    if not isinstance(value, str):
        raise ValueError("must be octal digits in quotes, such as '0711'")
    return str(_OCTAL.check(value))


_OCTAL = k.matching("0?[0-7]{3}", "must be three octal digits in quotes, such as '0711'")
_DEVICE = k.matching(r"[^\s]+", "must be the path of a device, or the name of an iSCSI target")
_EXPORT = k.matching(r"/[^\n\t]*", "must be an absolute path")
_WWN = k.matching("(0x)?[0-9a-fA-F]{16}", "must be 16 hexadecimal digits")


def _of(field: str) -> dict[str, tuple[str, ...]]:
    """The types that have a field."""
    return {"type": tuple(name for name, one in POOL_TYPES.items() if field in (*one.needs, *one.may))}


def _row(field: str, path: str, kind: k.Kind = k.LINE, **more: t.Any) -> dict[str, Row]:
    return {field: Row(path, kind, valid_with=_of(field), **more)}


POOL: row.Table = {
    "type": Row("./@type", k.choice(*POOL_TYPES)),
    **_row("path", "target/path", k.PATH, same=_same_path),
    "source.hosts": Items(
        "source/host",
        table={"name": Row("./@name", k.HOST), "port": Row("./@port", k.integer(1, 65535))},
        valid_with=_of("source.hosts"),
        shown=("port",),
    ),
    **_row("source.dir", "source/dir/@path", _EXPORT, same=_same_path),
    **_row("source.name", "source/name"),
    "source.devices": Many("source/device/@path", _DEVICE, valid_with=_of("source.devices")),
    **_row("source.format", "source/format/@type", k.WORD),
    **_row("source.protocol", "source/protocol/@ver", k.matching("[0-9.]{1,8}", "must be a version"), since=(5, 1)),
    **_row("source.adapter.type", "source/adapter/@type", k.choice("scsi_host", "fc_host")),
    **_row("source.adapter.name", "source/adapter/@name", k.WORD),
    **_row("source.adapter.parent", "source/adapter/@parent", k.WORD),
    **_row("source.adapter.wwnn", "source/adapter/@wwnn", _WWN),
    **_row("source.adapter.wwpn", "source/adapter/@wwpn", _WWN),
    **_row("source.initiator", "source/initiator/iqn/@name"),
    **_row("source.auth.type", "source/auth/@type", k.choice("chap", "ceph")),
    **_row("source.auth.username", "source/auth/@username", required_with={"source.auth.type": ("chap", "ceph")}),
    **_row("source.auth.secret", "source/auth/secret/@uuid", k.SECRET_UUID),
    **_row("source.auth.secret_usage", "source/auth/secret/@usage", k.SECRET_USAGE),
    **_row("cow", "features/cow/@state", k.YESNO, since=(6, 6)),
    "mode": Row("target/permissions/mode", k.Kind({"type": "raw"}, _mode), same=_same_mode),
    "owner": Row("target/permissions/owner", k.integer(-1)),
    "group": Row("target/permissions/group", k.integer(-1)),
    "label": Row("target/permissions/label", k.LINE),
}

POOL_SCHEMA = Schema(
    kind=POOL_KIND,
    table=POOL,
    states=("active", "inactive", "absent"),
    extras=("uuid", "xml"),
    own={"build": {"type": "bool", "default": False}, "refresh": {"type": "bool", "default": False}},
)


def host(raw: RawPoolHost, name: str, found: Found | None) -> PoolHost:
    """The host's other pools, and guests with disks in this pool."""

    def users() -> list[PoolUser]:
        directory = tree.parse(found.xml).findtext("target/path") if found else None
        seen = (_user(guest, documents, name, directory, raw.identity) for guest, documents in raw.guests())
        return [user for user in seen if user]

    def others() -> dict[str, dict[str, t.Any]]:
        return {pool: row.values(xml, POOL) for pool, xml in raw.pools()}

    return PoolHost(others, users, raw.obstacle, raw.identity, raw.closed, raw.content, raw.has_group)


def _user(
    guest: str, documents: tuple[str, ...], pool: str, directory: str | None, identity: DirectoryId
) -> PoolUser | None:
    disks = [source for xml in documents for source in tree.parse(xml).iterfind("devices/disk/source")]
    by_pool = any(source.get("pool") == pool for source in disks)
    files = [posixpath.dirname(source.get("file") or source.get("dev") or "") for source in disks]
    inside = directory is not None and identity(directory) in {identity(path) for path in files if path}
    return PoolUser(guest, by_pool) if by_pool or inside else None


def skeleton(spec: Spec) -> str:
    """The XML of a new pool, without its own fields."""
    kind = spec.fields.get("type") or "dir"
    pool = tree.parse(f"<pool type='{kind}'/>")
    tree.make(pool, "name").text = spec.name
    if spec.uuid:
        tree.make(pool, "uuid").text = spec.uuid
    path = POOL_TYPES[kind].path
    if kind == "logical":  # as libvirt names both
        tree.make(tree.make(pool, "source"), "name").text = spec.name
        path = f"/dev/{spec.fields.get('source.name') or spec.name}"
    if path:
        tree.make(tree.make(pool, "target"), "path").text = path
    return tree.text(pool)


def places(name: str, values: row.Values, identity: DirectoryId) -> t.Iterator[tuple[str, t.Hashable, str]]:
    """What a pool consists of: the kind of thing, its identity, and the thing in words. No two pools share one."""
    kind, path = values.get("type"), values.get("path")
    source = values.get("source.name") or name
    hosts = [str(one["name"]).lower() for one in values.get("source.hosts") or ()] or [""]
    devices = tuple(values.get("source.devices") or ())
    if kind in DIRECTORIES and path:
        yield "directory", identity(path), path
    if kind in ("logical", "zfs"):
        yield kind, source, f"{'volume group' if kind == 'logical' else 'dataset'} {source}"
    if kind in BUILT:
        yield from (("device", identity(device), device) for device in devices)
    if kind == "mpath":
        yield kind, "", "all multipath devices"
    if kind == "scsi":
        adapter = [values[field] for field in ("source.adapter.wwpn", "source.adapter.name") if values.get(field)]
        yield from ((kind, one, f"adapter {one}") for one in adapter)
    shared = {
        "netfs": [posixpath.normpath(values.get("source.dir") or "/")],
        "gluster": [posixpath.normpath(f"/{source}/{values.get('source.dir') or ''}")],
        "iscsi": devices,
        "iscsi-direct": devices,
        "rbd": [source],
    }
    for one in shared.get(str(kind), ()):
        yield from ((f"{str(kind)[:5]} {one}", host, f"{host}:{one}".lstrip(":")) for host in hosts)


def where(name: str, values: row.Values) -> str:
    """Where a pool keeps its volumes, for people."""
    found = [words for thing, _key, words in places(name, values, lambda path: path) if thing != "directory"]
    told = f"({values.get('type')} {', '.join(dict.fromkeys(found))})" if values.get("type") != "dir" else ""
    path = f"in {values['path']}" if values.get("type") in DIRECTORIES and values.get("path") else ""
    return " ".join(filter(None, (path, told)))
