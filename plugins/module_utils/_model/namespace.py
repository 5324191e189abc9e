# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""XML namespaces of what the collection records in libvirt's <metadata> of a guest."""

from __future__ import annotations

__all__ = ["CORRAL", "SEEN"]

CORRAL = "urn:corral:virt:guest:1"
# Addresses change by themselves. Of two runs that write, each replaces its own element as a whole and none of the
# other's.
SEEN = "urn:corral:virt:seen:1"
