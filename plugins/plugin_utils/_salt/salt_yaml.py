# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Salt file's text as plain data, or why it cannot be read. Nothing in it is executed. Pure.

Salt renders a file by Jinja, or by a program (`#!py`), before it reads YAML. Both may run anything, so such a file is
not read; Salt itself prints its result.
"""

from __future__ import annotations

import datetime
import re
import typing as t

import yaml

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text

LARGEST_BYTES = 2 * 1024 * 1024
_MOST_VALUES = 200_000  # with every alias counted as what it stands for
_DEEPEST = 60
_MOST_MERGED = 1000  # keys that a mapping has after `<<`
_JINJA = re.compile(r"\{\{|\{%|\{#")
_PLAIN = ("#!yaml", "#!jinja|yaml")
RENDER = (
    "let Salt render on each minion what is not read here, and give the result as -e rendered=FILE: "
    "salt-call --out=yaml state.show_highstate, salt-call --out=yaml pillar.items"
)


_BASE: t.Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast; recurses in C, so _scan comes first


class NotRendered(BadInput):
    """The file must be rendered by Salt first."""


class _Loader(_BASE):
    """SafeLoader that refuses duplicate keys, as Salt does, and unlimited merges."""

    def construct_mapping(self, node: t.Any, deep: bool = False) -> dict[t.Any, t.Any]:
        seen: set[tuple[str, str]] = set()
        for key, _value in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is there twice", key.start_mark
                )
            seen.add((key.tag, str(key.value)))
        return t.cast("dict[t.Any, t.Any]", super().construct_mapping(node, deep=deep))

    def flatten_mapping(self, node: t.Any) -> None:
        own = len(node.value)
        super().flatten_mapping(node)
        if len(node.value) > max(own, _MOST_MERGED):
            raise yaml.constructor.ConstructorError(None, None, "it merges too many keys", node.start_mark)


def _whole(loader: t.Any, node: t.Any) -> int | str:
    """A whole number as Salt reads one: `0770` is 770, so that a mode keeps its digits.

    YAML's numbers to the base 60, such as an unquoted MAC address, stay texts.
    """
    value: str = loader.construct_scalar(node)
    if ":" in value:
        return value
    if value.startswith("0") and not value.startswith(("0b", "0x")):
        node.value = value.lstrip("0_") or "0"
    return t.cast("int", loader.construct_yaml_int(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _whole)


def load(data: bytes, *, rendered: bool = False) -> dict[str, t.Any]:
    """The mapping that a file holds; raises BadInput with the reason if it cannot be read.

    In data that Salt has rendered, `{{` is plain text.
    """
    text = _text(data)
    first = text.split("\n", 1)[0].strip()
    if first.startswith("#!") and first.replace(" ", "") not in _PLAIN:
        raise NotRendered(f"the renderer {first[2:40].strip()} runs code")
    if not rendered and (found := _JINJA.search(text)):
        line = text.count("\n", 0, found.start()) + 1
        raise NotRendered(f"line {line} has Jinja, which only Salt can render")
    value = _parsed(text)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput("it holds no mapping")
    _measure(value)
    return t.cast("dict[str, t.Any]", _plain(value))


def _text(data: bytes) -> str:
    if len(data) > LARGEST_BYTES:
        raise BadInput(f"it is larger than {bytes_text(LARGEST_BYTES)}")
    if b"\0" in data:
        raise BadInput("it contains NUL bytes, and is not a text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"byte {error.start} is not UTF-8") from error


def _parsed(text: str) -> object:
    try:
        _scan(text)
        return yaml.load(text, Loader=_Loader)  # noqa: S506 (a SafeLoader)
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise BadInput(f"{where}{error.problem or error.context or 'it is not YAML'}") from error
    except yaml.YAMLError as error:
        raise BadInput(f"it is not YAML: {str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise BadInput("it is nested too deeply") from error
    except (ValueError, TypeError, OverflowError) as error:
        raise BadInput(f"a value cannot be read: {error}") from error


def _scan(text: str) -> None:
    """Raises BadInput for YAML that is too deep or too large, before it is constructed."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_BASE)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise BadInput("it is nested too deeply")
        if count > _MOST_VALUES:
            raise BadInput(f"it has more than {_MOST_VALUES} values")


def _measure(value: object) -> None:
    """Raises BadInput for a value that aliases make endless or too large."""
    sizes: dict[int, int] = {}

    def size(one: object, depth: int) -> int:
        if not isinstance(one, (dict, list)):
            return 1
        if depth > _DEEPEST:  # also what holds itself
            raise BadInput("it is nested too deeply")
        if id(one) not in sizes:
            parts = [*one, *one.values()] if isinstance(one, dict) else one
            sizes[id(one)] = 1 + sum(size(part, depth + 1) for part in parts)
        return sizes[id(one)]

    if size(value, 0) > _MOST_VALUES:
        raise BadInput("its aliases stand for too many values")


def _plain(value: t.Any) -> t.Any:
    """The value with texts as keys and only plain types; raises BadInput for any other type."""
    if isinstance(value, dict):
        return {_key(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise BadInput(f"a value is {type(value).__name__}, which no state takes")


def _key(key: object) -> str:
    if isinstance(key, bool) or key is None:
        return {True: "true", False: "false", None: "null"}[key]
    return str(key)
