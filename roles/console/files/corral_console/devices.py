# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices from which users have logged in: a signed cookie tells them from those who guess."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import time
import typing as t
from pathlib import Path

from .durable import replace

__all__ = ["LIFETIME_S", "Devices"]

LIFETIME_S = 180 * 86400
_LOG = logging.getLogger(__name__)


class Devices:
    """The signature is for one user with one password (`stamp`)."""

    def __init__(self, path: Path, *, clock: t.Callable[[], float] = time.time) -> None:
        self._key, self._clock = _key(path), clock

    def made(self, name: str, stamp: str, device: str = "") -> str:
        """The value of the cookie of that device, or of a new one."""
        content = f"{device or secrets.token_hex(16)}.{int(self._clock())}"
        return f"{content}.{self._signature(content, name, stamp)}"

    def known(self, value: str, name: str, stamp: str) -> str:
        """The device that the cookie names; empty for one that this user was not logged in with."""
        content, _dot, signature = value.rpartition(".")
        device, _dot, made = content.partition(".")
        if not (value.isascii() and made.isdecimal() and len(made) < 12):
            return ""
        if not hmac.compare_digest(signature, self._signature(content, name, stamp)):
            return ""
        return device if 0 <= self._clock() - int(made) < LIFETIME_S else ""

    def _signature(self, content: str, name: str, stamp: str) -> str:
        text = "\0".join((content, name, stamp)).encode(errors="replace")
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()


def _key(path: Path) -> bytes:
    """A key that lasts, or at least as long as the process."""
    try:
        if not path.exists():
            replace(path, secrets.token_bytes(32))
        if len(found := path.read_bytes()) == 32:
            return found
        _LOG.error("%s is no key of devices; devices are known until the next restart", path)
    except OSError as error:  # a full disk keeps nobody from logging in
        _LOG.error("cannot keep %s; devices are known until the next restart: %s", path, error)
    return secrets.token_bytes(32)
