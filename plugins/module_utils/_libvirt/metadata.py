# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What the collection records with a guest, beside its definition."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._model import xml_names
from ansible_collections.corral.virt.plugins.module_utils._plan import steps

__all__ = ["record_addresses"]


def record_addresses(domain: t.Any, step: steps.RecordAddresses) -> None:
    element = (
        libvirt.VIR_DOMAIN_METADATA_ELEMENT,
        step.xml or None,
        "corral-seen" if step.xml else None,
        xml_names.SEEN,
    )
    with explained("set metadata of", step.guest):
        flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG if domain.isPersistent() else 0
        domain.setMetadata(*element, flags | (libvirt.VIR_DOMAIN_AFFECT_LIVE if domain.isActive() else 0))
