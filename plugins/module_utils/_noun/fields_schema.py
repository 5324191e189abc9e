# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of a noun: what info modules need of it, without its rules and its document."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import ObjectKind
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Table


class NameCheck(t.Protocol):
    """The name itself if the kind takes it; raises BadInput."""

    def __call__(self, name: object, *, what: str) -> str:
        """Check the value of the option `what`."""


@dataclasses.dataclass(frozen=True)
class Schema:
    """The kind of a noun, its fields, and their options."""

    kind: ObjectKind
    table: Table
    states: tuple[str, ...]  # the first is the default
    extras: tuple[str, ...] = ()  # of uuid, xml, allow_restart, force: options it has
    without_option: tuple[str, ...] = ()  # fields that rules look at and no option has
    own: t.Mapping[str, t.Mapping[str, t.Any]] = dataclasses.field(default_factory=dict)  # options that are no field
    check_name: NameCheck = units.check_name

    @property
    def options(self) -> Table:
        """The rows that have an option."""
        return {field: row for field, row in self.table.items() if field not in self.without_option}
