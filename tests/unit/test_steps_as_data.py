"""Every step and plan of the collection goes through JSON unharmed, fits its schema, and is refused where damaged."""

from __future__ import annotations

import collections.abc
import copy
import dataclasses
import datetime
import json
import pathlib
import types
import typing as t

import jsonschema
import pytest

from ansible_collections.corral.virt.plugins.module_utils._core import step_data
from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._core.step import Plan, Step
from ansible_collections.corral.virt.tests.tools import payload
from ansible_collections.corral.virt.tests.unit.test_every_step import BASES, STEPS, name

PLANNED = [step for step in STEPS if name(step) not in BASES]
PLANS = [
    Plan,
    *(plan for plan in Plan.__subclasses__() if plan.__module__.startswith(payload.NAMESPACE + "plugins.")),
]

_SCALARS: dict[t.Any, tuple[t.Any, t.Any]] = {
    str: ("", 'ü<"\n\u2028'),
    int: (0, -(2**63)),
    bool: (False, True),
    float: (0.5, -1e300),
    bytes: (b"", b"\0\xff"),
    type(None): (None, None),
    object: (None, [1, ("a", {"b": [None, True]}), 0.5]),
    t.Any: (None, {"a": ()}),
    pathlib.Path: (pathlib.Path("/"), pathlib.Path("/a/b")),
    datetime.timedelta: (datetime.timedelta(), datetime.timedelta(days=-3, microseconds=7)),
    datetime.datetime: (datetime.datetime(1, 1, 1), datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC)),
}


def example(hint: t.Any, *, full: bool) -> t.Any:
    """A value of a type: the least that there is of it, or one with all that it may hold."""
    if hint in _SCALARS:
        return _SCALARS[hint][full]
    if isinstance(hint, t.TypeVar):
        return example(hint.__bound__, full=full)
    origin, of = t.get_origin(hint), t.get_args(hint)
    if origin in (t.Union, types.UnionType):
        return example(sorted(of, key=lambda one: (one is type(None)) == full)[0], full=full)
    if origin is tuple and of[-1] is not Ellipsis:
        return tuple(example(one, full=full) for one in of)
    if origin in (tuple, frozenset):
        return origin([example(of[0], full=one) for one in (True, False)] if full else [])
    if origin is collections.abc.Mapping:
        return {key: example(of[1], full=bool(key)) for key in ("", "a.b")} if full else {}
    if hint is Step:
        return example(PLANNED[-1 if full else 0], full=full)
    hints = t.get_type_hints(hint)
    inner = {field for field, one in hints.items() if hint in t.get_args(one)}  # it may contain one of its own
    fields = [one.name for one in dataclasses.fields(hint)] if dataclasses.is_dataclass(hint) else [*hints]
    made = hint(**{field: example(hints[field], full=full and field not in inner) for field in fields})
    return dataclasses.replace(made, **dict.fromkeys(inner, made)) if full and inner else made


def there_and_back(data: object) -> t.Any:
    """As a file would hold it."""
    return json.loads(json.dumps(data, allow_nan=False))


def same(one: object, other: object) -> bool:
    """Equal, and of the same types in any depth: True is no 1, a list no tuple."""
    return one == other and repr_of(one) == repr_of(other)


def repr_of(value: object) -> str:
    """What `repr` shows, with the fields that it leaves out."""
    if dataclasses.is_dataclass(value):
        fields = [f"{one.name}={repr_of(getattr(value, one.name))}" for one in dataclasses.fields(value)]
        return f"{type(value)}({', '.join(fields)})"
    if isinstance(value, (tuple, list)):
        return f"{type(value)}({', '.join(map(repr_of, value))})"
    return repr(value)


@pytest.mark.parametrize("step", PLANNED, ids=name)
@pytest.mark.parametrize("full", [False, True])
def test_a_step_goes_through_json(step: type[Step], full: bool) -> None:
    made = example(step, full=full)
    data = there_and_back(step_data.as_data(made))
    assert same(step_data.step_of(data), made)
    jsonschema.Draft202012Validator(step_data.schema_of(step)).validate(data)


@pytest.mark.parametrize("step", PLANNED, ids=name)
def test_a_schema_is_one(step: type[Step]) -> None:
    jsonschema.Draft202012Validator.check_schema(step_data.schema_of(step))


def damaged(data: t.Any) -> t.Iterator[tuple[str, t.Any]]:
    """Copies of a step's data with one thing wrong, each with its place."""
    for field in [field for field in data if field != "step"]:
        yield f"step.{field}: is missing", {key: one for key, one in data.items() if key != field}
        if data[field] is not None and not (isinstance(data[field], dict) and len(data[field]) == 1):
            yield f"step.{field}", {**data, field: [[[]]] if isinstance(data[field], str) else 0.5}
    yield "step: has no field 'more'", {**data, "more": 1}
    yield "step.step: no step 'no.Such' is known", {**data, "step": "no.Such"}


@pytest.mark.parametrize("step", PLANNED, ids=name)
def test_damaged_data_is_refused(step: type[Step]) -> None:
    data = there_and_back(step_data.as_data(example(step, full=True)))
    schema = jsonschema.Draft202012Validator(step_data.schema_of(step))
    for place, wrong in damaged(data):
        with pytest.raises(BadInput, match=r"^step") as told:
            step_data.step_of(wrong)
        assert [problem for problem in told.value.problems if problem.startswith(place)], place
        assert not schema.is_valid(wrong), place


def test_what_nobody_plans_is_no_step() -> None:
    for base in [step for step in STEPS if name(step) in BASES]:
        with pytest.raises(BadInput, match=r"no step .* is known"):
            step_data.step_of({"step": step_data.name_of(base)})


def test_a_name_is_that_of_one_step() -> None:
    names = [step_data.name_of(step) for step in PLANNED]
    assert sorted(set(names)) == sorted(names)
    assert not {one for one in names for word in one.split(".") if not word or word.startswith("_")}


def test_no_step_holds_just_anything() -> None:
    """What a field may hold is in its type, so that a schema says it."""

    def types_of(hint: t.Any, known: set[t.Any]) -> set[t.Any]:
        if hint not in known:
            known.add(hint)
            fields = dataclasses.fields(hint) if dataclasses.is_dataclass(hint) else ()
            hints = t.get_type_hints(hint) if fields else {}
            for part in (*(hints[one.name] for one in fields), *t.get_args(hint)):
                types_of(part, known)
        return known

    assert [name(step) for step in PLANNED if t.Any in types_of(step, set())] == []


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.__name__)
@pytest.mark.parametrize("full", [False, True])
def test_a_plan_goes_through_json(plan: type[Plan[t.Any]], full: bool) -> None:
    made = example(plan, full=full)
    if full:
        steps = tuple(example(step, full=True) for step in (PLANNED if plan is Plan else PLANNED[::20]))
        made = dataclasses.replace(made, steps=steps, changes=(Change("a", None, ["b", ("c",)]),), seen="0a")
    data = there_and_back(step_data.plan_data(made))
    assert data["version"] == 1
    assert same(step_data.plan_of(data), made)
    jsonschema.Draft202012Validator(step_data.schema(plan)).validate(data)


def test_a_plan_says_all_that_is_wrong_and_where() -> None:
    plan = Plan((example(PLANNED[0], full=True),) * 3, (Change("a", 1, 2),), notes=("b",), seen="0a")
    data = there_and_back(step_data.plan_data(plan))
    data["steps"][0]["guest"] = 7
    data["steps"][1]["guest"] = "seen at ../../etc"
    data["steps"][2] = "start web1"
    data["changes"][0]["after"] = {"set": []}
    data["notes"] = "b"
    del data["pending"]
    with pytest.raises(BadInput, match=r"^plan") as told:
        step_data.plan_of(data)
    assert told.value.problems == [
        "plan.pending: is missing",
        "plan.steps[0].guest: must be of type string, not a number",
        "plan.steps[2].step: must name a step",
        "plan.changes[0].after: must be a scalar, or an object of one list, tuple or dict",
        "plan.notes: must be a list, not a string",
    ]


@pytest.mark.parametrize("version", [None, 0, 2, "1", True, 1.0])
def test_another_version_is_refused(version: object) -> None:
    data = {**step_data.plan_data(Plan()), "version": version}
    with pytest.raises(BadInput, match=r"^plan\.version: must be 1; "):
        step_data.plan_of(data)


@pytest.mark.parametrize("data", [None, [], "a", {}, {"version": 1}, {"version": 1, "plan": []}])
def test_what_is_no_plan_is_refused(data: object) -> None:
    with pytest.raises(BadInput, match=r"^plan\.(version|plan): must "):
        step_data.plan_of(data)


def test_a_name_imports_nothing() -> None:
    data = {**step_data.plan_data(Plan()), "plan": "os.Path"}
    with pytest.raises(BadInput, match=r"^plan\.plan: no plan 'os\.Path' is known$"):
        step_data.plan_of(copy.deepcopy(data))
