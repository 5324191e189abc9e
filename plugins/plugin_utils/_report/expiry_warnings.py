# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificates and CAs that will expire, by the records of the directory of the CA: one warning for each day."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

_REMEDY = "run corral.virt.rotate_certificates, or site, when they can be reached"
_FORGOTTEN = datetime.timedelta(days=90)  # nobody wants them any more
_CA = datetime.timedelta(days=90)  # one that is kept in the directory has been replaced long before


def expiry_warnings(ca_dir: str, *, now: datetime.datetime) -> list[str]:
    """One sentence per day on which certificates expire, and per expiring CA; none without records."""
    late: dict[str, list[str]] = {}
    authorities: dict[str, datetime.datetime] = {}
    for path in sorted(Path(ca_dir).expanduser().glob("hosts/*.json")):
        try:
            host_record = json.loads(path.read_text())
            end = min(datetime.datetime.fromisoformat(end) for end in host_record["ends"].values())
            renewal = datetime.timedelta(days=host_record["renew_before"])
            for name, last in host_record["authorities"].items():
                authorities[name] = max(datetime.datetime.fromisoformat(last), authorities.get(name, now))
            if now - end > _FORGOTTEN:
                continue
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # whoever signs says what is wrong with it
        if end - now < renewal:
            late.setdefault(f"{end:%Y-%m-%d}", []).append(path.stem)
    sentences = [
        f"certificates of {', '.join(names)} {_ends(day, now)}; {_REMEDY}" for day, names in sorted(late.items())
    ]
    ending = {name: end for name, end in authorities.items() if end - now < _CA}
    sentences += [
        f"the CA of {name} expires on {end:%Y-%m-%d}; provide a new one (see guide_tls)"
        for name, end in sorted(ending.items())
    ]
    return sentences


def _ends(day: str, now: datetime.datetime) -> str:
    return f"expired on {day}" if day < f"{now:%Y-%m-%d}" else f"expire on {day}"
