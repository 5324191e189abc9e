# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a host takes no guests: libvirt does not know, so the relay reads the mark of the role `maintenance`."""

from __future__ import annotations

import json
import subprocess
import typing as t

__all__ = ["REQUEST", "Unknown", "read"]

REQUEST = "maintenance"
_ANSWER_S = 20
_LONGEST = 200


class Unknown(Exception):
    """The host did not tell."""


def read(relay: t.Sequence[str]) -> str | None:
    """Why the host is in maintenance; None when it is not. Raises Unknown."""
    try:
        done = subprocess.run([*relay, REQUEST], capture_output=True, timeout=_ANSWER_S, check=False)
        first, _line, rest = done.stdout.decode(errors="replace").partition("\n")
        if first != "ok":
            raise Unknown(first or done.stderr.decode(errors="replace"))
        found = json.loads(rest)
        return None if found is None else str(found["reason"])[:_LONGEST]
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
        raise Unknown(str(error)) from error
