# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps of the host itself, as data with a readable text."""

from __future__ import annotations

import dataclasses

from ansible_collections.corral.virt.plugins.module_utils._core.step import Step


@dataclasses.dataclass(frozen=True)
class HostStep(Step):
    """One change of the host, in one verb."""


@dataclasses.dataclass(frozen=True)
class WriteFile(HostStep):
    """Replace a text file, once the program that reads it (`checked_by`) accepts the new one."""

    path: str
    content: str = dataclasses.field(repr=False)
    why: str | None = None
    checked_by: str | None = None  # nft, iptables or ip6tables
    # The file that includes it, and its text with the new one in place; that is checked then.
    checked_within: tuple[str, str] | None = dataclasses.field(default=None, repr=False)
    mode: int | None = None  # permissions; that of the file that is there

    def __str__(self) -> str:
        return f"write {self.path}{f' ({self.why})' if self.why else ''}"
