# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Field-level differences, and the form in which Ansible shows them."""

from __future__ import annotations

import dataclasses
import typing as t

_SIZE = "_kib"  # kept inside in KiB; the user says MiB, or a size with its unit


def size_text(kib: int) -> str:
    """KiB as an exact size that a user may write: `5GiB`, `1536MiB`."""
    for unit, size in (("TiB", 1024**3), ("GiB", 1024**2), ("MiB", 1024)):
        if kib and kib % size == 0:
            return f"{kib // size}{unit}"
    return f"{kib}KiB"


def option_of(field: str) -> str:
    """The option of a field: its path without the suffix of sizes."""
    return field[: -len(_SIZE)] if field.endswith(_SIZE) else field


def shown(field: str, value: object) -> object:
    """A field's value as its option takes it: sizes with their unit."""
    return size_text(value) if field.endswith(_SIZE) and isinstance(value, int) else value


@dataclasses.dataclass(frozen=True)
class Change:
    """One changed field: its place (`disks[system].size`), and its value before and after."""

    where: str
    before: object
    after: object

    def __str__(self) -> str:
        return f"{self.option}: {_text(shown(self.where, self.before))} -> {_text(shown(self.where, self.after))}"

    @property
    def option(self) -> str:
        """The place, by names of options."""
        return option_of(self.where)


def diff(changes: t.Iterable[Change]) -> dict[str, dict[str, object]]:
    """Ansible's `diff` value: only the fields that change."""
    rows = sorted(changes, key=lambda change: change.where)
    return {
        "before": {row.option: shown(row.where, row.before) for row in rows if row.before is not None},
        "after": {row.option: shown(row.where, row.after) for row in rows if row.after is not None},
    }


def _text(value: object) -> str:
    return "(unset)" if value is None else str(value)
