# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A remote display, with what tells who can reach it."""

from __future__ import annotations

import dataclasses
import typing as t

__all__ = ["Display", "DisplayDefaults"]


@dataclasses.dataclass(frozen=True)
class Display:
    """A display of a guest. `listens`: addresses, `network NAME`, or an empty text for the host's default.

    Empty for a socket.
    """

    type: str
    listens: tuple[str, ...]
    password: bool
    tls: bool


@dataclasses.dataclass(frozen=True)
class DisplayDefaults:
    """The defaults of a host for all its guests: where displays listen, and which types have a password or TLS."""

    listen: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    protected: frozenset[str] = frozenset()
