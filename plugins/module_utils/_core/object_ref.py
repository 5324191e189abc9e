# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The identity of an object: which one is meant."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Ref:
    """One object of libvirt: where it is, its name there, and the UUID behind the name."""

    kind: str  # domain, pool, network, volume, secret, ...
    name: str
    within: Ref | None = None  # the pool of a volume; None for kinds that lie in nothing
    uuid: str | None = None  # None: the kind has none, or the object does not exist yet
    host: str = ""  # as the inventory names it; empty: the host that is asked

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" of {self.within}" if self.within else "")
