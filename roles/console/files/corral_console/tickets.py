# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tickets for consoles as the web process redeems them: each once, within seconds, by the session that got it.

Their signature is for the relay on the host: the web process could say that it has checked anything.
"""

from __future__ import annotations

import base64
import dataclasses
import secrets
import time
import typing as t

from . import strict

__all__ = ["Ticket", "Tickets"]

_LONGEST = 2000
_LONGEST_LIFE_S = 60
_MOST, _MOST_OF_ONE = 10_000, 200
_TEXTS = ("nonce", "session", "user", "host", "guest", "kind")


@dataclasses.dataclass(frozen=True)
class Ticket:
    """What it opens, and for whom (the digest of a session)."""

    nonce: str
    session: str
    user: str
    host: str
    guest: str  # UUID
    kind: str  # vnc or serial
    expires: float

    @classmethod
    def of(cls, text: str) -> Ticket | None:
        """None for what is no ticket."""
        try:
            content = strict.parsed(base64.urlsafe_b64decode(f"{text[:_LONGEST].partition('.')[0]}==="))
            texts = {name: content[name] for name in _TEXTS}
            expires = float(content["expires"])
        except (ValueError, TypeError, KeyError):
            return None
        return cls(**texts, expires=expires) if all(isinstance(each, str) for each in texts.values()) else None


class Tickets:
    """Not for use by several threads."""

    def __init__(self, *, clock: t.Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._used: dict[str, tuple[float, str]] = {}  # when it expires, and which session has shown it

    def take(self, text: str, session: str) -> Ticket | None:
        """The ticket, which is void then: also when somebody else shows it."""
        ticket, now = Ticket.of(text), self._clock()
        if ticket is None or not now < ticket.expires <= now + _LONGEST_LIFE_S or ticket.nonce in self._used:
            return None
        self._used = {nonce: (expires, by) for nonce, (expires, by) in self._used.items() if expires > now}
        if len(self._used) >= _MOST or sum(by == session for _expires, by in self._used.values()) >= _MOST_OF_ONE:
            return None  # their signature is not checked here, so anybody can make them up
        self._used[ticket.nonce] = ticket.expires, session
        return ticket if secrets.compare_digest(ticket.session.encode(), session.encode()) else None
