# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tickets for consoles as the web process redeems them: each once, within seconds, by the session that got it.

Their signature is for the relay on the host: the web process could say that it has checked anything.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import secrets
import time
import typing as t

__all__ = ["Ticket", "Tickets"]

_LONGEST = 2000
_LONGEST_LIFE_S = 60
_MOST = 10_000
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
            content = json.loads(base64.urlsafe_b64decode(f"{text[:_LONGEST].partition('.')[0]}===").decode())
            texts = {name: content[name] for name in _TEXTS}
            expires = float(content["expires"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        return cls(**texts, expires=expires) if all(isinstance(each, str) for each in texts.values()) else None


class Tickets:
    """Not for use by several threads."""

    def __init__(self, *, clock: t.Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._used: dict[str, float] = {}

    def take(self, text: str, session: str) -> Ticket | None:
        """The ticket, which is void then: also when somebody else shows it."""
        ticket, now = Ticket.of(text), self._clock()
        if ticket is None or not now < ticket.expires <= now + _LONGEST_LIFE_S or ticket.nonce in self._used:
            return None
        self._used = {nonce: expires for nonce, expires in self._used.items() if expires > now}
        if len(self._used) >= _MOST:
            return None
        self._used[ticket.nonce] = ticket.expires
        return ticket if secrets.compare_digest(ticket.session.encode(), session.encode()) else None
