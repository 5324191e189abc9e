# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON that every reader can read: the console takes, stores and sends I-JSON (RFC 7493) without control characters.

`parsed` refuses everything else. `read` and `written` are for what is stored already, or comes from a host: they never
fail, and show what cannot be read as such.
"""

from __future__ import annotations

import json
import math
import re
import typing as t

__all__ = ["DEEPEST", "BadDocument", "Unreadable", "mended", "parsed", "problem", "read", "text", "written"]

DEEPEST = 32
_MOST, _LONGEST, _LONGEST_KEY = 16 * 1024 * 1024, 64 * 1024, 256
_DEEPEST_SHOWN = 64  # of what is stored: results of modules
_LARGEST = 2**53 - 1  # browsers round larger whole numbers
_UNREADABLE = "(unreadable)"
_SURROGATE = re.compile("[\ud800-\udfff]")
# Tabs and ends of lines are part of texts such as a cloud-init document. XML, and so libvirt, allows those above 126.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_CONTROL_OF_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_CONTROL_OF_KEY = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class BadDocument(ValueError):
    """What is wrong with it, and where."""


class Unreadable(dict[str, t.Any]):
    """An object in place of one that cannot be read: `unreadable` says why."""

    def __init__(self, reason: str, content: str) -> None:
        super().__init__(unreadable=reason, content=text(content)[:500])


def parsed(content: bytes | str, *, foreign: t.Collection[str] = ()) -> t.Any:
    """A document; raises BadDocument. Texts below the keys `foreign` of the document may have what XML allows."""
    try:
        whole = content.decode() if isinstance(content, bytes) else content
        if whole.startswith("\ufeff"):
            raise BadDocument("it begins with a byte order mark; send UTF-8 without one")
        found = json.loads(whole, object_pairs_hook=_object, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise BadDocument(f"it is not UTF-8: byte {error.start}") from error
    except RecursionError as error:
        raise BadDocument(f"it is deeper than {DEEPEST} levels") from error
    except BadDocument:
        raise
    except ValueError as error:  # among them, numbers with thousands of digits
        raise BadDocument(f"it is not JSON: {error}") from error
    if reason := problem(found, foreign=foreign):
        raise BadDocument(reason)
    return found


def _object(pairs: list[tuple[str, t.Any]]) -> dict[str, t.Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _value in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadDocument(f"it has the key {twice[:64]!a} twice")
    return found


def _no_constant(name: str) -> t.NoReturn:
    raise BadDocument(f"{name} is not a number of JSON")


def problem(value: object, *, foreign: t.Collection[str] = (), most: int = _MOST) -> str:
    """The first part of a value that is not for JSON, with its place; empty if there is none."""
    rest: list[tuple[object, str, int, re.Pattern[str]]] = [(value, "", 1, _CONTROL)]
    size = 0  # aliases of YAML make little into much
    while rest:
        part, place, depth, control = rest.pop()
        size += 1 + (len(part) if isinstance(part, str) else 0)
        if size > most:
            return f"it is larger than {most} characters"
        if reason := _problem_of(part, depth, control):
            return f"{place}: {reason}" if place else reason
        if isinstance(part, dict):
            for key, each in part.items():
                if reason := _problem_of_key(key):
                    return f"{place}: {reason}" if place else reason
                below = _CONTROL_OF_XML if depth == 1 and key in foreign else control
                rest.append((each, f"{place}.{key}" if place else str(key), depth + 1, below))
        elif isinstance(part, (list, tuple)):
            rest += [(each, f"{place}[{index}]", depth + 1, control) for index, each in enumerate(part)]
    return ""


def _problem_of(part: object, depth: int, control: re.Pattern[str]) -> str:
    """Of one part, without what is in it."""
    if part is None or isinstance(part, bool):
        return ""
    if isinstance(part, str):
        return _problem_of_text(part, control, _LONGEST)
    if isinstance(part, int):
        return "" if -_LARGEST <= part <= _LARGEST else "the number is too large"
    if isinstance(part, float):
        return "" if math.isfinite(part) else "the number is not finite"
    if isinstance(part, (dict, list, tuple)):
        return "" if depth <= DEEPEST else f"it is deeper than {DEEPEST} levels"
    return f"it is of the type {type(part).__name__}"


def _problem_of_text(part: str, control: re.Pattern[str], longest: int) -> str:
    if len(part) > longest:
        return f"the text is longer than {longest} characters"
    if _SURROGATE.search(part):
        return "the text has half of a character (a lone surrogate)"
    if found := control.search(part):
        return f"the text has the control character U+{ord(found[0]):04X}"
    return ""


def _problem_of_key(key: object) -> str:
    if not isinstance(key, str):
        return f"a key is of the type {type(key).__name__}"
    reason = _problem_of_text(key, _CONTROL_OF_KEY, _LONGEST_KEY)
    return f"the key {key[:64]!a}: {reason}" if reason else ""


def read(content: bytes | str) -> t.Any:
    """A stored document; an Unreadable in place of one that is none. What is odd in it is shown as such."""
    try:
        whole = content.decode() if isinstance(content, bytes) else content
        return mended(json.loads(whole))
    except (ValueError, RecursionError, TypeError, AttributeError) as error:
        shown = content.decode(errors="replace") if isinstance(content, bytes) else str(content)
        return Unreadable(f"it is not JSON: {error}", shown)


def mended(value: object, depth: int = 1) -> t.Any:
    """The value, with a text in place of each part that JSON cannot hold."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else f"{_UNREADABLE}: a number that is too large"
    if isinstance(value, float):
        return value if math.isfinite(value) else f"{_UNREADABLE}: the number {value}"
    if depth > _DEEPEST_SHOWN:
        return f"{_UNREADABLE}: it is too deep"
    if isinstance(value, dict):
        return {text(str(key)): mended(each, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [mended(each, depth + 1) for each in value]
    return f"{_UNREADABLE}: of the type {type(value).__name__}"


def text(value: str) -> str:
    """A text without halves of characters, and with control characters made visible."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", _SURROGATE.sub("\ufffd", value))


def written(value: object) -> bytes:
    """Strict JSON in any case: of a value that is not for it, what `mended` makes of it."""
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (ValueError, TypeError, RecursionError):
        return json.dumps(mended(value), allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
