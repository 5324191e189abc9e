# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A remote display, with what tells who can reach it."""

from __future__ import annotations

import dataclasses
import typing as t


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
