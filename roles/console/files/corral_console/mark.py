# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What libvirt does not know of a host and its relay tells: whether it takes guests, when its certificates end, and
what protects its guests.
"""

from __future__ import annotations

import subprocess
import threading
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._host import files_ha_records

from . import strict

__all__ = ["REQUEST", "Unknown", "read"]

REQUEST = "host"
CERTIFICATES = ("libvirt server", "libvirt client", "QEMU server", "QEMU client")
_ANSWER_S = 20
_LONGEST, _LONGEST_REASON, _LARGEST = 200, 1000, 1024 * 1024
_NEVER = 253_402_300_800  # the year 10000


class Unknown(Exception):
    """The host did not tell."""


def read(relay: t.Sequence[str]) -> dict[str, t.Any]:
    """`maintenance`, the reason or None; `certificates`, by name when each ends; `fencing`, when the fence devices of
    other members were `tested` and how many `of` them are `ok`, or None; `protected`, what is noted of guests, by UUID.
    Raises Unknown.
    """
    try:
        answer, errors = _asked([*relay, REQUEST])
        first, _line, rest = answer.decode(errors="replace").partition("\n")
        if first != "ok":
            raise Unknown((first or errors.decode(errors="replace"))[:_LONGEST_REASON])
        found = strict.parsed(rest)
        maintenance, ends = found["maintenance"], found["certificates"]
        return {
            "maintenance": None if maintenance is None else str(maintenance["reason"])[:_LONGEST],
            "certificates": {name: _seconds(ends[name]) for name in CERTIFICATES if name in ends},
            "fencing": _tested(found.get("fencing")),
            "protected": files_ha_records.of_guests(found.get("protected") or {}),
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unknown(str(error)) from error


def _asked(command: t.Sequence[str]) -> tuple[bytes, bytes]:
    """The beginning of what a command writes, and of its errors: a host may write without end."""
    errors = list[bytes]()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        answer, problems = t.cast("tuple[t.IO[bytes], t.IO[bytes]]", (process.stdout, process.stderr))
        reading = threading.Thread(target=lambda: errors.append(problems.read(_LARGEST)), daemon=True)
        timer = threading.Timer(_ANSWER_S, process.kill)
        reading.start()
        timer.start()
        try:
            found = answer.read(_LARGEST)
        finally:
            timer.cancel()
            process.kill()
            reading.join()
    return found, b"".join(errors)


def _tested(found: t.Any) -> dict[str, t.Any] | None:
    """Without the names of the members: who views a host may not view them."""
    if not found:
        return None
    test = files_ha_records.of_devices(found)
    good = sum(one["ok"] for one in test["devices"].values())
    return {"tested": test["tested"][:_LONGEST], "ok": good, "of": len(test["devices"])}


def _seconds(value: object) -> int | None:
    """Since the epoch; None where the host cannot read the certificate."""
    if value is None or (isinstance(value, int) and 0 <= value < _NEVER):
        return value
    raise ValueError("the end of a certificate is no time")
