"""Steps as data, on every Python of hosts: what a field's type makes of JSON, and the digest of facts."""

from __future__ import annotations

import dataclasses
import json
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core import step_data
from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.digest import digest
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._core.step import Plan, Step


@dataclasses.dataclass(frozen=True)
class Part:
    """A value within a step; one may contain another."""

    name: str
    below: Part | None = None


class Pair(t.NamedTuple):
    """The same as a named tuple."""

    one: int
    two: str


@dataclasses.dataclass(frozen=True)
class Assemble(Step):
    """Put parts together."""

    parts: tuple[Part, ...]
    pair: Pair = dataclasses.field(default_factory=lambda: Pair(1, "a"))
    names: frozenset[str] = frozenset()
    sizes: t.Mapping[str, int | tuple[int, str] | None] = dataclasses.field(default_factory=dict)
    either: Part | str = ""
    image: bytes = b""
    inner: Step | None = None

    def __str__(self) -> str:
        return "assemble"


@dataclasses.dataclass(frozen=True)
class Reassemble(Assemble):
    """The same again."""


STEP = Reassemble(
    (Part("a", Part("b")), Part("c")),
    Pair(2, "b"),
    frozenset("xyz"),
    {"a": 1, "b": (2, "GiB"), "c": None},
    Part("d"),
    b"\0\xff",
    Assemble(()),
)
DATA = {
    "step": "module_utils.Reassemble",
    "parts": [{"name": "a", "below": {"name": "b", "below": None}}, {"name": "c", "below": None}],
    "pair": {"one": 2, "two": "b"},
    "names": ["x", "y", "z"],
    "sizes": {"a": 1, "b": [2, "GiB"], "c": None},
    "either": {"name": "d", "below": None},
    "image": "AP8=",
    "inner": {
        "step": "module_utils.Assemble",
        "parts": [],
        "pair": {"one": 1, "two": "a"},
        "names": [],
        "sizes": {},
        "either": "",
        "image": "",
        "inner": None,
    },
}


def test_a_step_as_data() -> None:
    assert json.loads(json.dumps(step_data.as_data(STEP))) == DATA
    assert step_data.step_of(DATA) == STEP


@pytest.mark.parametrize(
    ("wrong", "problems"),
    [
        ({"parts": [{"name": "a"}, 7]}, ["parts[0].below: is missing", "parts[1]: must be an object, not a number"]),
        (
            {"parts": [{"name": "a", "below": {"name": True, "below": None}}]},
            ["parts[0].below.name: must be of type string, not a boolean"],
        ),
        (
            {"pair": {"one": 1.0, "two": None, "three": 3}},
            [
                ": has no field 'three'",
                ".one: must be of type integer, not a number",
                ".two: must be of type string, not null",
            ],
        ),
        ({"names": ["x", 1]}, ["names[1]: must be of type string, not a number"]),
        ({"sizes": {"b": [2]}}, ["sizes['b']: must be of type integer, not a list"]),
        ({"sizes": {"b": [2, 3]}}, ["sizes['b'][1]: must be of type string, not a number"]),
        ({"sizes": {1: 1}}, ["sizes[1]: must have a string as its name"]),
        ({"image": "A"}, ["image: is no bytes"]),
        ({"inner": {"step": "module_utils.Assemble"}}, ["inner.parts: is missing"]),
    ],
)
def test_what_is_wrong_is_told_with_its_place(wrong: dict[str, t.Any], problems: list[str]) -> None:
    with pytest.raises(BadInput, match=r"^plan\.steps\[3\]") as told:
        step_data.step_of({**DATA, **wrong}, "plan.steps[3]")
    found = told.value.problems
    assert len(found) >= len(problems)
    assert all(any(problem in one for one in found) for problem in problems), found


def test_data_that_is_nested_without_an_end_is_refused() -> None:
    part: dict[str, t.Any] = {"name": "a"}
    part["below"] = part
    with pytest.raises(BadInput, match=r"^step: is nested too deeply$"):
        step_data.step_of({**DATA, "parts": [part]})


@pytest.mark.parametrize(
    "wrong",
    [{"parts": []}, {"parts": ("a",)}, {"names": {"x"}}, {"sizes": {1: 1}}, {"sizes": {"a": True}}, {"inner": 1}],
)
def test_a_step_that_holds_what_its_types_do_not_say(wrong: dict[str, t.Any]) -> None:
    with pytest.raises(TypeError):
        step_data.as_data(dataclasses.replace(STEP, **wrong))


def test_the_schema_of_a_step() -> None:
    schema = step_data.schema_of(Assemble)
    assert schema["properties"]["step"] == {"const": "module_utils.Assemble"}
    assert schema["properties"]["parts"] == {"type": "array", "items": {"$ref": "#/$defs/Part"}}
    assert schema["properties"]["sizes"]["additionalProperties"]["anyOf"][1]["prefixItems"][1] == {"type": "string"}
    assert schema["required"] == [*schema["properties"]]
    assert schema["$defs"]["Part"]["properties"]["below"]["anyOf"][0] == {"$ref": "#/$defs/Part"}


def test_a_plan_as_data() -> None:
    plan = Plan((STEP,), (Change("a", ["b"], ("c", {"d": None})),), ("later",), ("note",), "0a")
    data = json.loads(json.dumps(step_data.plan_data(plan)))
    assert (data["version"], data["plan"], data["steps"], data["seen"]) == (1, "core.Plan", [DATA], "0a")
    again = step_data.plan_of(data)
    assert again == plan
    assert isinstance(again.changes[0].after, tuple)


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a plan is made from."""

    guests: t.Mapping[str, t.Any]
    links: frozenset[str] = frozenset()
    asked: int = dataclasses.field(default=0, compare=False)


def test_a_digest_depends_on_the_facts_alone() -> None:
    one = Facts({"a": (1, None), "b": Part("x")}, frozenset(("br0", "br1")), asked=1)
    other = Facts({"b": Part("x"), "a": (1, None)}, frozenset(("br1", "br0")), asked=2)
    assert digest(one) == digest(other) == "a539ba7b0226dc3e9d3ddb3adadc421eba78c5b51ed5d3542b12a80365ffed77"


@pytest.mark.parametrize(
    "other",
    [Facts({"a": 1}), Facts({"a": True}), Facts({"a": "1"}), Facts({"a": [1]}), Facts({"a": {"a": 1}}), Facts({"a": {1: 1}}),
     Facts({"a": {"1": 1}}), Facts({"a": frozenset((1,))}), Facts({"a": b"1"}), Facts({"a": Part("1")}), Facts({"a": None}), Facts({})],
)  # fmt: skip
def test_other_facts_have_another_digest(other: Facts) -> None:
    assert digest(other) != digest(Facts({"a": 2})) and len(digest(other)) == 64


def test_what_has_no_digest() -> None:
    with pytest.raises(TypeError, match=r"^a value of the type object has no digest$"):
        digest({"a": object()})
