# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values as JSON and back, by their types: each form has three functions. Pure."""

from __future__ import annotations

import base64
import collections.abc
import dataclasses
import datetime
import json
import pathlib
import typing as t

Schema = dict[str, t.Any]
_WORDS = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}


def exactly(value: object, *kinds: type) -> bool:
    """Tell whether a value is of one of these types itself: in JSON a boolean is no number."""
    return value.__class__ in kinds


def _word(data: object) -> str:
    """The JSON type of data, for a message; never the data itself, which may be a secret."""
    return _WORDS.get(type(data), "a number")


class Form(t.Protocol):
    """A type of values, and what it is in JSON."""

    def data(self, value: t.Any) -> t.Any:
        """The value as JSON has it; raises TypeError if it is not of this type."""

    def value(self, data: t.Any, place: str, problems: list[str]) -> t.Any:
        """The value of the data; with new problems, each with its place, the result means nothing."""

    def schema(self, known: Schema) -> Schema:
        """The JSON Schema; that of a class goes into `known`, the `$defs` of the whole."""


@dataclasses.dataclass(frozen=True)
class Scalar:
    """The `Form` of a type that JSON has, or one that has a text or number there."""

    python: t.Any
    json: type
    shape: t.Mapping[str, str]
    to: t.Callable[[t.Any], t.Any] = lambda value: value
    back: t.Callable[[t.Any], t.Any] = lambda data: data

    def data(self, value: t.Any) -> t.Any:
        """A path is of another class on each system, a bool is no int."""
        if not isinstance(value, self.python) or (isinstance(value, bool) and self.python is not bool):
            raise TypeError(f"a value of the type {type(value).__name__} is no {self.python.__name__}")
        return self.to(value)

    def value(self, data: t.Any, place: str, problems: list[str]) -> t.Any:
        if exactly(data, self.json):
            try:
                return self.back(data)
            except (ValueError, OverflowError):
                problems.append(f"{place}: is no {self.shape.get('format', self.python.__name__)}")
        else:
            problems.append(f"{place}: must be of type {self.shape['type']}, not {_word(data)}")
        return None

    def schema(self, _known: Schema) -> Schema:
        return {**self.shape}


@dataclasses.dataclass(frozen=True)
class Several:
    """The `Form` of a tuple of any length, a list, or a frozenset."""

    python: t.Any
    of: Form

    def data(self, value: t.Any) -> t.Any:
        """A set is sorted."""
        if not exactly(value, self.python):
            raise TypeError(f"a value of the type {type(value).__name__} is no {self.python.__name__}")
        found = [self.of.data(one) for one in value]
        return found if self.python is not frozenset else sorted(found, key=json.dumps)

    def value(self, data: t.Any, place: str, problems: list[str]) -> t.Any:
        if not exactly(data, list):
            problems.append(f"{place}: must be a list, not {_word(data)}")
            return None
        found = [self.of.value(one, f"{place}[{at}]", problems) for at, one in enumerate(data)]
        return None if problems else self.python(found)

    def schema(self, known: Schema) -> Schema:
        return {"type": "array", "items": self.of.schema(known)}


@dataclasses.dataclass(frozen=True)
class FixedTuple:
    """The `Form` of a tuple with a type for each place."""

    of: tuple[Form, ...]

    def data(self, value: t.Any) -> t.Any:
        if not exactly(value, tuple) or len(value) != len(self.of):
            raise TypeError(f"a value of the type {type(value).__name__} is no tuple of {len(self.of)}")
        return [form.data(one) for form, one in zip(self.of, value)]

    def value(self, data: t.Any, place: str, problems: list[str]) -> t.Any:
        if not exactly(data, list) or len(data) != len(self.of):
            problems.append(f"{place}: must be a list of {len(self.of)}")
            return None
        return tuple(form.value(one, f"{place}[{at}]", problems) for at, (form, one) in enumerate(zip(self.of, data)))

    def schema(self, known: Schema) -> Schema:
        parts, count = [form.schema(known) for form in self.of], len(self.of)
        return {"type": "array", "prefixItems": parts, "items": False, "minItems": count, "maxItems": count}


@dataclasses.dataclass(frozen=True)
class Mapping:
    """The `Form` of a mapping with texts as keys; read back, it is a dict."""

    of: Form

    def data(self, value: t.Any) -> t.Any:
        if not isinstance(value, collections.abc.Mapping) or not all(exactly(key, str) for key in value):
            raise TypeError(f"a value of the type {type(value).__name__} is no mapping of texts")
        return {key: self.of.data(one) for key, one in value.items()}

    def value(self, data: t.Any, place: str, problems: list[str]) -> t.Any:
        if not exactly(data, dict):
            problems.append(f"{place}: must be an object, not {_word(data)}")
            return None
        problems += [f"{place}[{key!r}]: must have a string as its name" for key in data if not exactly(key, str)]
        return {key: self.of.value(one, f"{place}[{key!r}]", problems) for key, one in data.items()}

    def schema(self, known: Schema) -> Schema:
        return {"type": "object", "additionalProperties": self.of.schema(known)}


@dataclasses.dataclass(frozen=True)
class OneOf:
    """The `Form` of a value of several types: the first one that fits."""

    of: tuple[Form, ...]

    def data(self, value: t.Any) -> t.Any:
        reasons = []
        for form in self.of:
            try:
                return form.data(value)
            except TypeError as error:
                reasons.append(str(error))
        raise TypeError(reasons[0])

    def value(self, data: t.Any, place: str, problems: list[str]) -> t.Any:
        """If no type fits, the problems are those of the type that was meant, as far as that is seen."""
        tries: list[list[str]] = []
        for form in self.of:
            tries.append([])
            value = form.value(data, place, tries[-1])
            if not tries[-1]:
                return value
        problems += min(tries, key=lambda found: any(one.startswith(f"{place}: ") for one in found))
        return None

    def schema(self, known: Schema) -> Schema:
        return {"anyOf": [form.schema(known) for form in self.of]}


@dataclasses.dataclass(frozen=True)
class Record:
    """The `Form` of a frozen dataclass or a named tuple: all of its fields by name; none is guessed."""

    python: type
    fields: t.Callable[[], t.Mapping[str, Form]]  # called when it is needed: a class may contain itself

    def data(self, value: t.Any) -> t.Any:
        if not exactly(value, self.python):
            raise TypeError(f"a value of the type {type(value).__name__} is no {self.python.__name__}")
        return {name: form.data(getattr(value, name)) for name, form in self.fields().items()}

    def value(self, data: t.Any, place: str, problems: list[str]) -> t.Any:
        if not exactly(data, dict):
            problems.append(f"{place}: must be an object, not {_word(data)}")
            return None
        fields, mine = self.fields(), []
        mine += [f"{place}.{name}: is missing" for name in fields if name not in data]
        mine += [f"{place}: has no field {name!r}" for name in data if name not in fields]
        found = {name: fields[name].value(one, f"{place}.{name}", mine) for name, one in data.items() if name in fields}
        problems += mine
        return None if mine else self.python(**found)

    def schema(self, known: Schema) -> Schema:
        name = self.python.__name__
        if name not in known:
            known[name] = {}
            known[name].update(self.object(known))
        return {"$ref": f"#/$defs/{name}"}

    def object(self, known: Schema, first: Schema | None = None) -> Schema:
        """The schema of the class, which begins with the properties `first`."""
        properties = {**(first or {}), **{name: form.schema(known) for name, form in self.fields().items()}}
        return {
            "type": "object",
            "description": (self.python.__doc__ or "").strip().partition("\n")[0],
            "properties": properties,
            "required": [*properties],
            "additionalProperties": False,
        }


class Plain:
    """The `Form` of texts, numbers, lists, tuples and mappings; what JSON cannot tell apart has its name before it."""

    def data(self, value: t.Any) -> t.Any:
        if value is None or exactly(value, bool, int, float, str):
            return value
        if exactly(value, list, tuple):
            return {type(value).__name__: [self.data(one) for one in value]}
        if isinstance(value, collections.abc.Mapping):
            return {"dict": Mapping(self).data(value)}
        raise TypeError(f"a value of the type {type(value).__name__} is no plain data")

    def value(self, data: t.Any, place: str, problems: list[str]) -> t.Any:
        if not exactly(data, dict, list):
            return data
        made: t.Mapping[str, Form] = {"list": Several(list, self), "tuple": Several(tuple, self), "dict": Mapping(self)}
        name = next(iter(data)) if exactly(data, dict) and len(data) == 1 else ""
        if name not in made:
            problems.append(f"{place}: must be a scalar, or an object of one list, tuple or dict")
            return None
        return made[name].value(data[name], place, problems)

    def schema(self, known: Schema) -> Schema:
        own = {"$ref": "#/$defs/plain"}
        each = {"list": {"type": "array", "items": own}, "dict": {"type": "object", "additionalProperties": own}}
        each["tuple"] = each["list"]
        objects = [
            {"type": "object", "properties": {name: shape}, "required": [name], "additionalProperties": False}
            for name, shape in each.items()
        ]
        known["plain"] = {"anyOf": [{"type": ["null", "boolean", "number", "string"]}, *objects]}
        return own


_MICROSECOND = datetime.timedelta(microseconds=1)
SIMPLE: dict[t.Any, Form] = {
    type(None): Scalar(type(None), type(None), {"type": "null"}),
    bool: Scalar(bool, bool, {"type": "boolean"}),
    int: Scalar(int, int, {"type": "integer"}),
    float: Scalar(float, float, {"type": "number"}),
    str: Scalar(str, str, {"type": "string"}),
    bytes: Scalar(
        bytes,
        str,
        {"type": "string", "contentEncoding": "base64"},
        lambda value: base64.b64encode(value).decode(),
        lambda data: base64.b64decode(data, validate=True),
    ),
    pathlib.Path: Scalar(pathlib.Path, str, {"type": "string"}, str, pathlib.Path),
    datetime.datetime: Scalar(
        datetime.datetime,
        str,
        {"type": "string", "format": "date-time"},
        datetime.datetime.isoformat,
        datetime.datetime.fromisoformat,
    ),
    datetime.timedelta: Scalar(
        datetime.timedelta,
        int,
        {"type": "integer", "description": "microseconds"},
        lambda value: value // _MICROSECOND,
        lambda data: data * _MICROSECOND,
    ),
    object: Plain(),
    t.Any: Plain(),
}
