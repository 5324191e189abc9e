# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The schema of a noun: what info modules need of it, without its rules and its document."""

from __future__ import annotations

import dataclasses

from ansible_collections.corral.virt.plugins.module_utils._xml.row import Table

__all__ = ["Schema"]


@dataclasses.dataclass(frozen=True)
class Schema:
    """The kind of a noun, its fields, and their options."""

    kind: str  # in steps and messages
    table: Table
    states: tuple[str, ...]  # the first is the default
    extras: tuple[str, ...] = ()  # of uuid, xml, allow_restart, force: options it has
    without_option: tuple[str, ...] = ()  # fields that rules look at and no option has

    @property
    def options(self) -> Table:
        """The rows that have an option."""
        return {field: row for field, row in self.table.items() if field not in self.without_option}
