# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The digest of facts: two plans from the same facts have the same one. Pure."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import hashlib
import json
import os
import typing as t


def digest(value: object) -> str:
    """The SHA-256 of a value: frozen dataclasses, mappings, sets, lists, tuples and scalars in any depth.

    It depends neither on the order of a mapping or set, nor on the process. What a class does not compare does not
    count. Raises TypeError for any other object.
    """
    return hashlib.sha256(_text(value).encode()).hexdigest()


def _text(value: object) -> str:
    """Canonical JSON, in which types that differ never have the same text."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(value: t.Any) -> object:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [one.name for one in dataclasses.fields(value) if one.compare]
        return {type(value).__name__: {name: _plain(getattr(value, name)) for name in fields}}
    if isinstance(value, collections.abc.Mapping):
        return {"mapping": sorted([_text(key), _text(one)] for key, one in value.items())}
    if isinstance(value, (set, frozenset)):
        return {"set": sorted(map(_text, value))}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, os.PathLike):
        return {"path": os.fspath(value)}
    if isinstance(value, (datetime.date, datetime.timedelta)):
        return {"time": str(value)}
    raise TypeError(f"a value of the type {type(value).__name__} has no digest")
