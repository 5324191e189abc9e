# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Field-level differences, and the form in which Ansible shows them."""

from __future__ import annotations

import dataclasses
import typing as t

__all__ = ["Change", "diff"]


@dataclasses.dataclass(frozen=True)
class Change:
    """One field: where it stands (`disks[system].size`), what it was, what it becomes."""

    where: str
    before: object
    after: object

    def __str__(self) -> str:
        return f"{self.where}: {_show(self.before)} -> {_show(self.after)}"


def diff(changes: t.Iterable[Change]) -> dict[str, dict[str, object]]:
    """Ansible's `diff` value: only the fields that change."""
    rows = sorted(changes, key=lambda change: change.where)
    return {
        "before": {row.where: row.before for row in rows if row.before is not None},
        "after": {row.where: row.after for row in rows if row.after is not None},
    }


def _show(value: object) -> str:
    return "(unset)" if value is None else str(value)
