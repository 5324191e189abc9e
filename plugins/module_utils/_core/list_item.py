# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One entry of a list in the options."""

from __future__ import annotations

import dataclasses
import typing as t


@dataclasses.dataclass(frozen=True)
class Item:
    """One entry of a list (a disk, a CPU feature). `name` is its identity; what the XML has beyond `fields` stays."""

    name: str
    state: str = "present"
    fields: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)  # rows of its table, by path
    # for one that is made now; one that exists keeps its own
    initial: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    template: str = dataclasses.field(default="", repr=False)  # the XML that one that is made now begins with

    def with_fields(self, **more: t.Any) -> Item:
        """A copy of the entry with some fields set."""
        return dataclasses.replace(self, fields={**self.fields, **more})
