# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""TCP ports of libvirt and of QEMU's migrations, as libvirt has them where nobody changes its settings."""

from __future__ import annotations

__all__ = ["FIRST_MIGRATION", "LAST_MIGRATION", "LIBVIRT_TLS", "MIGRATIONS"]

LIBVIRT_TLS = 16514
FIRST_MIGRATION, LAST_MIGRATION = 49152, 49215  # migration_port_min and _max of qemu.conf
MIGRATIONS = f"{FIRST_MIGRATION}-{LAST_MIGRATION}"
