# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plain values as text with the same meaning in JSON and YAML 1.1: a host needs no YAML library.

JSON alone is not enough: YAML reads `1e+20` as text, and a surrogate pair as two invalid characters.
"""

from __future__ import annotations

import json
import math
import re
import typing as t

_KEY_LENGTH = 1000  # YAML reads no longer key in one line
_SURROGATE = re.compile("[\ud800-\udfff]")


def yaml_text(value: object) -> str:
    """A value as text in one line, with sorted keys; `unkept` must return nothing for it."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_quoted(key)}: {yaml_text(value[key])}' for key in sorted(value))}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(yaml_text, value))}]"
    if isinstance(value, str):
        return _quoted(value)
    text = json.dumps(value)
    is_whole_mantissa = isinstance(value, float) and "." not in text
    return text.replace("e", ".0e") if is_whole_mantissa else text


def _quoted(text: str) -> str:
    """A quoted text, without surrogate pairs, DEL and other line breaks, which YAML reads differently."""
    return re.sub("[\x7f-\uffff]", lambda found: f"\\u{ord(found.group()):04x}", json.dumps(text, ensure_ascii=False))


def unkept(value: object, place: str = "") -> t.Iterator[str]:
    """The parts of a value that such a text cannot hold, each with its place and a remedy."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _unkept_key(key, place)
            yield from unkept(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from unkept(item, f"{place}[{index}]")
    elif isinstance(value, str):
        if _SURROGATE.search(value):
            yield f"{_shown(place)} has half of a surrogate pair, which is no Unicode text; write it as UTF-8"
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{_shown(place)} is {value}, which cannot be kept; quote it, or use a number"
    elif value is not None and not isinstance(value, (bool, int, float)):
        name = {"bytes": "binary (!!binary)", "set": "a set (!!set)"}.get(type(value).__name__, type(value).__name__)
        yield f"{_shown(place)} is {name}, which cannot be kept; quote it, or give the document as text"


def _unkept_key(key: object, place: str) -> t.Iterator[str]:
    if not isinstance(key, str):
        yield f"key {key!r} of {_shown(place)} is {type(key).__name__}, not text; quote it"
    elif _SURROGATE.search(key) or len(key) > _KEY_LENGTH:
        yield f"key {key[:20]!r} of {_shown(place)} is longer than {_KEY_LENGTH} characters, or no Unicode text"


def _shown(place: str) -> str:
    return place or "the document"
