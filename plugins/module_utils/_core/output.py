# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make texts safe to show: without secrets and without control characters that a terminal obeys."""

from __future__ import annotations

import re
import typing as t
from urllib.parse import parse_qsl, unquote

# User and password are all up to the last @, also where a password holds a slash that should have been escaped.
_URL = re.compile(r"\b([a-z][a-z0-9+.-]*)://(?:([^\s?#]*:[^\s?#]*|[^\s/?#]*)@)?([^\s?#]*)([?#]\S*)?", re.IGNORECASE)
_WEB = ("http", "https", "ftp", "ftps")
# C0, DEL, C1, line and paragraph separators, what turns the direction of writing, and halves of characters.
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def without_secrets(text: str) -> str:
    """A text whose URLs lack user, password, query and fragment.

    A libvirt URI keeps its query, and a user without password.
    """

    def shown(match: re.Match[str]) -> str:
        scheme, user, rest, query = match.group(1), match.group(2) or "", match.group(3), match.group(4) or ""
        if scheme.lower() in _WEB:
            return f"{scheme}://{rest}"
        return f"{scheme}://{user + '@' if user and ':' not in user else ''}{rest}{query}"

    return _URL.sub(shown, text)


def some_of(names: t.Sequence[str], most: int) -> str:
    """The first names, at most `most`, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def agree(count: int, one: str, several: str) -> str:
    """The singular or plural word for a count, such as `is` or `are`."""
    return one if count == 1 else several


def secrets(value: object) -> t.Iterator[str]:
    """The parts of URLs inside a value that `without_secrets` leaves out."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from secrets(item)
    elif isinstance(value, str):
        for match in _URL.finditer(value):
            web, user, query = match.group(1).lower() in _WEB, match.group(2) or "", (match.group(4) or "")[1:]
            password = user.partition(":")[2]
            found = [user] * (web or bool(password)) + [password, unquote(password)]
            found += [query, *(part for _key, part in parse_qsl(query))] * web
            yield from found


def printable(value: t.Any, *, keep: str = "") -> t.Any:
    """The value with `\\x1b` for an escape in each of its texts, and so on for all that a terminal obeys.

    `keep` stays as it is.
    """
    if isinstance(value, str):
        return _OBEYED.sub(lambda found: found[0] if found[0] in keep else _escaped(found[0]), value)
    if isinstance(value, (list, tuple)):
        return [printable(item, keep=keep) for item in value]
    if isinstance(value, dict):
        return {printable(key, keep=keep): printable(item, keep=keep) for key, item in value.items()}
    return value


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode()
