# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What libvirt calls a secret."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import ObjectKind

SECRET_KIND = ObjectKind("secret", within="usage")
NUMBERS = {"none": 0, "volume": 1, "ceph": 2, "iscsi": 3, "tls": 4, "vtpm": 5}  # virSecretUsageType
