# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long what is taken by a schedule is kept."""

from __future__ import annotations

import datetime
import typing as t

PERIODS = {"hourly": "%Y%m%d%H", "daily": "%Y%m%d", "weekly": "%G-%V", "monthly": "%Y%m", "yearly": "%Y"}


class Dated(t.Protocol):
    """Something that was taken at a time."""

    @property
    def name(self) -> str:
        """The name of what was taken."""

    @property
    def created_s(self) -> int:
        """When it was taken, in seconds since the epoch."""


def keep_problems(keep: t.Mapping[str, int]) -> t.Iterator[str]:
    """The problems of numbers of periods."""
    if not any(keep.values()):
        yield "keep: must keep at least one; set one of its periods, such as daily, to 1 or more"
    yield from (f"keep.{period}: must not be negative, as {count} is" for period, count in keep.items() if count < 0)


def expired(found: t.Iterable[Dated], keep: t.Mapping[str, int]) -> list[str]:
    """The names of those whose time is over, the oldest first.

    The newest of each hour, day, ISO week, month and year (UTC) counts, of as many of them as are kept. The newest of
    all is always kept.
    """
    newest_first = sorted(found, key=lambda one: (one.created_s, one.name), reverse=True)
    kept: set[str] = {one.name for one in newest_first[:1]}
    for period, count in keep.items():
        first_of: dict[str, str] = {}
        for one in newest_first:
            moment = datetime.datetime.fromtimestamp(one.created_s, datetime.timezone.utc)
            first_of.setdefault(moment.strftime(PERIODS[period]), one.name)
        kept.update(list(first_of.values())[:count])
    return [one.name for one in reversed(newest_first) if one.name not in kept]
