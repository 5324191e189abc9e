# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roll-over of an authority: when a new CA is due, which one signs, which ones are trusted.

A new CA is trusted by all hosts before it signs, and an old one is trusted until no host uses its certificates.
Between these moments any two hosts can verify each other, even if many could not be reached meanwhile.
"""

from __future__ import annotations

import dataclasses
import datetime
import typing as t

_END = datetime.timedelta(days=1)  # libvirt loads no list of CAs of which one has expired


@dataclasses.dataclass(frozen=True)
class Generation:
    """One CA of an authority. `shared`: an earlier version's, which signed for the other authority too."""

    digest: str  # SHA-256 of its certificate, hex
    not_after: datetime.datetime
    shared: bool = False


@dataclasses.dataclass(frozen=True)
class Holder:
    """A holder of an authority's valid certificates: the CAs that it trusts, and those that signed its certificates."""

    name: str
    trusts: t.AbstractSet[str]
    uses: t.AbstractSet[str]


def due(generations: t.Sequence[Generation], *, now: datetime.datetime, days: datetime.timedelta) -> bool:
    """True if a new CA is due: certificates could outlive the newest before the next one is trusted everywhere."""
    return not generations or generations[-1].shared or generations[-1].not_after - now < 2 * days


def lacking(generation: Generation, holders: t.Iterable[Holder], *, name: str) -> tuple[str, ...]:
    """Holders that do not yet trust a CA, except `name`, which gets it together with its certificates."""
    return tuple(
        sorted(holder.name for holder in holders if holder.name != name and generation.digest not in holder.trusts)
    )


def signer(
    generations: t.Sequence[Generation], holders: t.Sequence[Holder], *, name: str, now: datetime.datetime
) -> Generation:
    """The CA that signs for `name`: the newest (they come oldest first) that all others already trust."""
    alive = _alive(generations, now)
    known = [generation for generation in alive if not lacking(generation, holders, name=name)]
    return (known or alive[:1] or generations)[-1]


def trusted(
    generations: t.Sequence[Generation], holders: t.Sequence[Holder], *, name: str, now: datetime.datetime
) -> tuple[str, ...]:
    """The CAs that `name` trusts, the signing one first, then all newer ones and older ones in use."""
    first = signer(generations, holders, name=name, now=now)
    used = {digest for holder in holders for digest in holder.uses}
    newer = generations[generations.index(first) + 1 :]
    others = [
        one.digest for one in _alive(generations, now) if one is not first and (one in newer or one.digest in used)
    ]
    return (first.digest, *others)


def _alive(generations: t.Sequence[Generation], now: datetime.datetime) -> list[Generation]:
    return [generation for generation in generations if generation.not_after - now > _END]
