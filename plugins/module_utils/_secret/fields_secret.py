# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table and the XML of a secret. libvirt gives it no name: its name here is what it is used for."""

from __future__ import annotations

import uuid

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._noun.fields_schema import Schema
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Spec
from ansible_collections.corral.virt.plugins.module_utils._secret.model_secret import SECRET_KIND
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml import tree
from ansible_collections.corral.virt.plugins.module_utils._xml.overlay import Shape
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Row, Table

SHAPE = Shape("secret")
# What a secret is for, and the element of its XML that names it (https://libvirt.org/formatsecret.html).
USAGES = {"ceph": "name", "iscsi": "target", "tls": "name", "volume": "volume", "vtpm": "name", "none": None}

_OURS = uuid.UUID("9d6f6a58-6c1b-4d4b-9a3e-2f0d4f0c6a11")  # any; fixed for ever

SECRET: Table = {
    "description": Row("description", k.TEXT),
    "ephemeral": Row("./@ephemeral", k.YESNO),
    "private": Row("./@private", k.YESNO),
}


def _check_name(name: object, *, what: str) -> str:
    if not isinstance(name, str) or not name or len(name.encode()) > 255 or not name.isprintable():
        raise BadInput(f"{what}: must be 1 to 255 bytes of printable text: what the secret is used for, or its UUID")
    return name


SECRET_SCHEMA = Schema(
    kind=SECRET_KIND,
    table=SECRET,
    states=("present", "absent"),
    extras=("uuid", "force"),
    own={
        "usage": {"type": "str", "required": True, "choices": sorted(USAGES)},
        "value": {"type": "str", "no_log": True},
        "value_encoding": {"type": "str", "choices": ["text", "base64"], "default": "text", "no_log": False},
        "update_value": {
            "type": "str",
            "choices": ["on_change", "always", "on_create"],
            "default": "on_change",
            "no_log": False,
        },
    },
    check_name=_check_name,
)


def uuid_of(spec: Spec) -> str:
    """The UUID of a new secret: by default the same on every host, as definitions of guests name it."""
    if spec.within == "none":
        return units.uuid_of(spec.name, what="name")
    return spec.uuid or str(uuid.uuid5(_OURS, f"{spec.within} {spec.name}"))


def skeleton(spec: Spec) -> str:
    """The XML of a new secret."""
    secret = tree.parse("<secret ephemeral='no' private='no'/>")
    usage = str(spec.within)
    tree.make(secret, "uuid").text = uuid_of(spec)
    if element := USAGES[usage]:
        tree.make(tree.make(secret, "usage", type=usage), element).text = spec.name
    return tree.text(secret)


def is_named(document: str, uuid: str, usage: str, name: str) -> bool:
    """True if a document of a guest or a pool names the secret, by its UUID or by its usage."""
    root = tree.parse(document)
    by_uuid = {one.get("uuid") for one in root.iter("secret")} | {one.get("secret") for one in root.iter("encryption")}
    by_usage = {(one.get("type"), one.get("usage")) for one in root.iter("secret")}
    return uuid in by_uuid or any(used == name and kind in (usage, "passphrase", None) for kind, used in by_usage)
