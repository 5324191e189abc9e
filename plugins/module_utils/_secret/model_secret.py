# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What libvirt calls a secret, and its value."""

from __future__ import annotations

import base64
import binascii

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import ObjectKind, Spec

SECRET_KIND = ObjectKind("secret", within="usage")
NUMBERS = {"none": 0, "volume": 1, "ceph": 2, "iscsi": 3, "tls": 4, "vtpm": 5}  # virSecretUsageType


def value_of(spec: Spec) -> bytes | None:
    """The value that the options give; None: they give none. Raises BadInput."""
    value = spec.own.get("value")
    if value is None:
        return None
    if spec.own.get("value_encoding") != "base64":
        return str(value).encode()
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise BadInput(f"value of secret {spec.name}: it is not Base64; or set value_encoding: text") from None
