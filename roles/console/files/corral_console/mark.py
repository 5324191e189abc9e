# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What libvirt does not know of a host and its relay tells: whether it takes guests, and when its certificates end."""

from __future__ import annotations

import json
import subprocess
import typing as t

__all__ = ["REQUEST", "Unknown", "read"]

REQUEST = "host"
CERTIFICATES = ("libvirt server", "libvirt client", "QEMU server", "QEMU client")
_ANSWER_S = 20
_LONGEST = 200
_NEVER = 253_402_300_800  # the year 10000


class Unknown(Exception):
    """The host did not tell."""


def read(relay: t.Sequence[str]) -> dict[str, t.Any]:
    """`maintenance`, the reason or None, and `certificates`, by name when each ends. Raises Unknown."""
    try:
        done = subprocess.run([*relay, REQUEST], capture_output=True, timeout=_ANSWER_S, check=False)
        first, _line, rest = done.stdout.decode(errors="replace").partition("\n")
        if first != "ok":
            raise Unknown(first or done.stderr.decode(errors="replace"))
        found = json.loads(rest)
        maintenance, ends = found["maintenance"], found["certificates"]
        return {
            "maintenance": None if maintenance is None else str(maintenance["reason"])[:_LONGEST],
            "certificates": {name: _seconds(ends[name]) for name in CERTIFICATES if name in ends},
        }
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
        raise Unknown(str(error)) from error


def _seconds(value: object) -> int | None:
    """Since the epoch; None where the host cannot read the certificate."""
    if value is None or (isinstance(value, int) and 0 <= value < _NEVER):
        return value
    raise ValueError("the end of a certificate is no time")
