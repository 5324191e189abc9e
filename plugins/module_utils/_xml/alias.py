# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The name that a user gave a device of a guest."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element

__all__ = ["alias_name"]


def alias_name(device: Element) -> str:
    """The name of a device as its user knows it: our alias is `ua-<name>`. Empty where libvirt named it."""
    alias = device.find("alias")
    name = "" if alias is None else alias.get("name") or ""
    return name[len("ua-") :] if name.startswith("ua-") else ""
