# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tickets for consoles: each is good once, for seconds, for one session and one guest."""

from __future__ import annotations

import dataclasses
import secrets
import time
import typing as t

__all__ = ["Ticket", "Tickets"]

LIFETIME_S = 15.0
_MOST = 10_000


@dataclasses.dataclass(frozen=True)
class Ticket:
    """What it opens, and for whom (the digest of a session)."""

    session: str
    host: str
    guest: str  # UUID
    kind: str  # vnc or serial
    take_over: bool = False


class Tickets:
    """Not for use by several threads."""

    def __init__(self, *, clock: t.Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[str, tuple[float, Ticket]] = {}

    def issue(self, ticket: Ticket) -> str:
        """The ticket's secret."""
        now = self._clock()
        self._open = {secret: known for secret, known in self._open.items() if known[0] > now}
        if len(self._open) >= _MOST:
            del self._open[next(iter(self._open))]
        secret = secrets.token_urlsafe(24)
        self._open[secret] = now + LIFETIME_S, ticket
        return secret

    def take(self, secret: str, session: str) -> Ticket | None:
        """The ticket, which is void then: also when somebody else shows it."""
        expires, ticket = self._open.pop(secret, (0.0, None))
        if ticket is None or expires <= self._clock():
            return None
        return ticket if secrets.compare_digest(ticket.session, session) else None
