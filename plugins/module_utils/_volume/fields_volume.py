# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table and the XML of a volume (https://libvirt.org/formatstorage.html)."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._noun.fields_schema import Schema
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Spec
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import LOGICAL
from ansible_collections.corral.virt.plugins.module_utils._volume.model_volume import UNFINISHED, VOLUME_KIND
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml import tree
from ansible_collections.corral.virt.plugins.module_utils._xml.overlay import Shape
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Row, Table

SHAPE = Shape("volume")
_NAME_BYTES = 255 - len(UNFINISHED)


def _same_format(found: str | None, wanted: str) -> bool:
    """True for one format; libvirt calls a raw file with the content of a CD iso, and a device nothing."""
    return found == wanted or (found in ("iso", None) and wanted == "raw")


VOLUME: Table = {
    "capacity_kib": Row("capacity", k.KIB, unit="KiB"),
    "format": Row("target/format/@type", k.choice("raw", "qcow2", "qed", "vdi", "vmdk", "vpc"), same=_same_format),
    "encryption": Row("target/encryption/@format", k.choice("luks")),
    "backing.path": Row("backingStore/path", k.PATH),
    "backing.format": Row(
        "backingStore/format/@type",
        k.choice("raw", "qcow2", "qed", "vdi", "vmdk", "vpc"),
    ),
}


def _check_name(name: object, *, what: str) -> str:
    fits = isinstance(name, str) and 0 < len(name.encode("utf-8", "surrogateescape")) <= _NAME_BYTES
    if not fits or str(name) in (".", "..") or "/" in str(name) or not str(name).isprintable():
        raise BadInput(f"{what}: must be a file name of 1 to {_NAME_BYTES} bytes, without '/' and control characters")
    if str(name).endswith(UNFINISHED) or str(name).startswith(".corral"):
        raise BadInput(f"{what}: names that begin with '.corral' or end in '{UNFINISHED}' are the collection's own")
    return str(name)


def check_users_of(paths: t.Iterable[str]) -> None:
    """Raise BadInput with all that are neither absolute paths nor UUIDs of logical volumes."""
    if bad := [f"users_of: {path!r} is not an absolute path" for path in paths if not path.startswith(("/", LOGICAL))]:
        raise BadInput(bad)


_PATH = {"type": "path"}
VOLUME_SCHEMA = Schema(
    kind=VOLUME_KIND,
    table={**VOLUME, "path": Row("target/path", k.PATH)},
    states=("present", "absent"),
    extras=(),
    without_option=("path",),
    own={
        "clone_of": {"type": "str"},
        "clone_pool": {"type": "str"},
        "source": _PATH,
        "dest": _PATH,
        "secret": {"type": "str", "no_log": False},
        "preallocate": {"type": "bool", "default": False},
        "shrink": {"type": "bool", "default": False},
        "wipe": {"type": "bool", "default": False},
        "mode": {"type": "raw"},
        "owner": {"type": "int"},
        "group": {"type": "int"},
        "label": {"type": "str"},
        "progress": _PATH,
    },
    check_name=_check_name,
)


def skeleton(spec: Spec) -> str:
    """The XML of a new volume, before its fields."""
    volume, own = tree.parse("<volume/>"), spec.own
    tree.make(volume, "name").text = spec.name
    tree.make(volume, "capacity", unit="bytes").text = "0"
    tree.make(volume, "allocation", unit="KiB").text = str(spec.fields["capacity_kib"] if own.get("preallocate") else 0)
    target = tree.make(volume, "target")
    is_raw = own.get("source") or (spec.fields.get("encryption") and not spec.fields.get("backing.path"))
    tree.make(target, "format", type="raw" if is_raw else "qcow2")
    permissions = {option: own[option] for option in ("mode", "owner", "group", "label") if option in own}
    if permissions:
        element = tree.make(target, "permissions")
        for option, value in permissions.items():
            tree.make(element, option).text = str(value)
    if "secret" in own and spec.fields.get("encryption"):
        encryption = tree.make(target, "encryption", format=spec.fields["encryption"])
        tree.make(encryption, "secret", type="passphrase", uuid=own["secret"])
    finish(volume)
    return tree.text(volume)


def sized(xml: str, size_bytes: int) -> str:
    """The XML of a new volume with another size."""
    volume = tree.parse(xml)
    capacity = tree.child(volume, "capacity")
    capacity.text = str(size_bytes)
    capacity.set("unit", "bytes")
    return tree.text(volume)


def sizes(xml: str) -> dict[str, int]:
    """Bytes that a guest sees of a volume, and that it takes. libvirt's own documents have them in bytes."""
    volume = tree.parse(xml)
    return {f"{size}_bytes": int(volume.findtext(size) or 0) for size in ("capacity", "allocation")}


def finish(volume: tree.Element) -> None:
    """Give a new qcow2 the format of today; libvirt's default is that of 2010."""
    target, form = volume.find("target"), volume.find("target/format")
    if target is None or form is None:
        return
    compat = target.find("compat")
    if form.get("type") == "qcow2" and compat is None:
        tree.make(target, "compat").text = "1.1"
    elif form.get("type") != "qcow2" and compat is not None:
        target.remove(compat)
