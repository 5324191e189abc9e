# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps and plans as JSON, with a schema, and back. Pure; data names only classes that are loaded."""

from __future__ import annotations

import ast
import collections.abc
import dataclasses
import functools
import sys
import types
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import data_forms as forms
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._core.step import Plan, Step

VERSION = 1
_UNIONS = (t.Union, getattr(types, "UnionType", t.Union))  # typing's caches take one for the other
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def as_data(step: Step) -> dict[str, t.Any]:
    """A step as JSON has it. Raises TypeError if a field holds what its type does not say."""
    return {"step": name_of(type(step)), **_record(type(step)).data(step)}


def step_of(data: object, place: str = "step") -> Step:
    """The step, equal to the one that the data was made of; raises BadInput with every problem and its place."""
    return t.cast(Step, _read(_STEPS, data, place))


def plan_data(plan: Plan[t.Any]) -> dict[str, t.Any]:
    """A plan of any noun as JSON has it."""
    return {"version": VERSION, "plan": name_of(type(plan)), **_record(type(plan)).data(plan)}


def plan_of(data: object) -> Plan[t.Any]:
    """The plan, equal to the one that the data was made of; raises BadInput with every problem and its place."""
    rest = {**data} if isinstance(data, dict) else {}
    version = rest.pop("version", None)
    if not forms.exactly(version, int) or version != VERSION:
        raise BadInput(f"plan.version: must be {VERSION}; this version of the collection reads no other")
    return t.cast("Plan[t.Any]", _read(_Named(Plan, "plan"), rest, "plan"))


def _read(form: forms.Form, data: object, place: str) -> object:
    problems: list[str] = []
    try:
        value = form.value(data, place, problems)
    except RecursionError:
        raise BadInput(f"{place}: is nested too deeply") from None
    if problems:
        raise BadInput(problems)
    return value


def schema_of(step: type[Step]) -> dict[str, t.Any]:
    """The JSON Schema of one class of steps."""
    known: dict[str, t.Any] = {}
    return {"$schema": _DIALECT, **_named_object(step, "step", known), "$defs": known}


def schema(plan: type[Plan[t.Any]] = Plan) -> dict[str, t.Any]:
    """The JSON Schema of a plan with all steps that are loaded."""
    known: dict[str, t.Any] = {}
    shape = _record(plan).object(known, {"version": {"const": VERSION}, "plan": {"const": name_of(plan)}})
    return {"$schema": _DIALECT, **shape, "$defs": known}


def name_of(kind: type) -> str:
    """The name of a step or plan in data: its subject and its class."""
    return f"{kind.__module__.split('.')[-2].lstrip('_')}.{kind.__name__}"


def _loaded(kind: t.Any) -> dict[str, t.Any]:
    """The classes below one by their names, without those that others only derive from."""
    found = {} if kind.__name__.startswith("_") or kind.__name__.endswith("Step") else {name_of(kind): kind}
    for below in kind.__subclasses__():
        found.update(_loaded(below))
    return found


def _named_object(kind: type, field: str, known: dict[str, t.Any]) -> dict[str, t.Any]:
    return _record(kind).object(known, {field: {"const": name_of(kind)}})


@dataclasses.dataclass(frozen=True)
class _Named:
    """The `Form` of an object of any class below `python`; a field has the name of its class."""

    python: t.Any
    field: str

    def data(self, value: t.Any) -> t.Any:
        if not isinstance(value, self.python):
            raise TypeError(f"a value of the type {type(value).__name__} is no {self.field}")
        return {self.field: name_of(type(value)), **_record(type(value)).data(value)}

    def value(self, data: t.Any, place: str, problems: list[str]) -> t.Any:
        rest = {**data} if isinstance(data, dict) else {}
        name = rest.pop(self.field, None)
        kind = _loaded(self.python).get(name) if isinstance(name, str) else None
        if kind is None:
            what = f"no {self.field} {name!r} is known" if isinstance(name, str) else f"must name a {self.field}"
            problems.append(f"{place}.{self.field}: {what}")
            return None
        return _record(kind).value(rest, place, problems)

    def schema(self, known: dict[str, t.Any]) -> dict[str, t.Any]:
        names = sorted(_loaded(self.python).items())
        for name, kind in names:
            if name not in known:
                known[name] = {}  # a step may contain one
                known[name].update(_named_object(kind, self.field, known))
        return {"anyOf": [{"$ref": f"#/$defs/{name}"} for name, _kind in names]}


_STEPS = _Named(Step, "step")


def _record(kind: type) -> forms.Record:
    return forms.Record(kind, lambda: _fields(t.cast(t.Hashable, kind)))


@functools.cache
def _fields(kind: t.Hashable) -> dict[str, forms.Form]:
    return {name: _form(hint) for name, hint in _hints(t.cast(type, kind))}


def _hints(kind: type) -> t.Iterator[tuple[str, t.Any]]:
    if dataclasses.is_dataclass(kind):
        yield from ((one.name, _hint(kind, one)) for one in dataclasses.fields(kind) if one.init)
    else:  # a named tuple
        yield from t.get_type_hints(kind).items()


class _Unions(ast.NodeTransformer):
    """`a | b` as `Union[a, b]`, for Python 3.9."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        parts: list[ast.expr] = [self.visit(node.left), self.visit(node.right)]
        return ast.Subscript(ast.Name("Union", ast.Load()), ast.Tuple(parts, ast.Load()), ast.Load())


def _hint(kind: type, field: dataclasses.Field[t.Any]) -> t.Any:
    """The type of a field, whose text is read where the class that declares it stands."""
    owner = next(
        one for one in reversed(kind.__mro__) if vars(one).get("__dataclass_fields__", {}).get(field.name) is field
    )
    text = ast.unparse(_Unions().visit(ast.parse(str(field.type), mode="eval")))
    there = type("Hints", (), {"__annotations__": {field.name: text}})
    return t.get_type_hints(there, vars(sys.modules[owner.__module__]), {"Union": t.Union})[field.name]


def _form(hint: t.Any) -> forms.Form:
    if hint in forms.SIMPLE:
        return forms.SIMPLE[hint]
    if isinstance(hint, t.TypeVar):
        hint = hint.__bound__
    origin, of = t.get_origin(hint), t.get_args(hint)
    if origin in _UNIONS:
        return forms.OneOf(tuple(map(_form, of)))
    if origin is tuple and of[-1] is not Ellipsis:
        return forms.FixedTuple(tuple(map(_form, of)))
    if origin in (tuple, frozenset):
        return forms.Several(origin, _form(of[0]))
    if origin in (dict, collections.abc.Mapping) and of[0] is str:
        return forms.Mapping(_form(of[1]))
    if isinstance(hint, type) and issubclass(hint, Step):
        return _STEPS
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or hasattr(hint, "_fields")):
        return _record(hint)
    raise TypeError(f"{hint} has no form in data")
