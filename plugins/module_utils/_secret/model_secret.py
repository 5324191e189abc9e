# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What libvirt calls a secret."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import ObjectKind

__all__ = ["NUMBERS", "SECRET_KIND"]

SECRET_KIND = ObjectKind("secret", within="usage")
NUMBERS = {"none": 0, "volume": 1, "ceph": 2, "iscsi": 3, "tls": 4, "vtpm": 5}  # virSecretUsageType
