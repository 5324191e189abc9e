"""A role's variables carry its name or the collection's: ansible-lint knows only the former, so this takes its
place.
"""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
import yaml

ROLES = Path(__file__).parents[2] / "roles"
FILES = sorted(
    path for path in ROLES.glob("*/*/*.yml") if path.parent.name in ("defaults", "vars", "tasks", "handlers")
)
SET_FACT = ("set_fact", "ansible.builtin.set_fact")


def label(path: Path) -> str:
    """How a file is called in test names."""
    return str(path.relative_to(ROLES))


def set_by(task: dict[str, t.Any]) -> set[str]:
    """Names a task gives to variables, the tasks of its block included."""
    names = set(task.get("vars") or {}) | {task.get("loop_control", {}).get("loop_var", "item")} - {"item"}
    if isinstance(task.get("register"), str):
        names.add(task["register"])
    for module in SET_FACT:
        names |= set(task.get(module) or {}) - {"cacheable"}
    for part in ("block", "rescue", "always"):
        for inner in task.get(part) or []:
            names |= set_by(inner)
    return names


def variables(path: Path) -> set[str]:
    """Names a file of a role gives to variables."""
    content = yaml.safe_load(path.read_text()) or []
    return set(content) if isinstance(content, dict) else set().union(*map(set_by, content))


@pytest.mark.parametrize("path", FILES, ids=label)
def test_variables_carry_the_role_or_the_collection(path: Path) -> None:
    role = path.relative_to(ROLES).parts[0]
    allowed = re.compile(rf"(__)?({role}|virt)_|ansible_")
    assert not {name for name in variables(path) if not allowed.match(name)}


@pytest.mark.parametrize("path", sorted(ROLES.glob("*/meta/argument_specs.yml")), ids=label)
def test_options_are_public(path: Path) -> None:
    role = path.relative_to(ROLES).parts[0]
    spec = yaml.safe_load(path.read_text())["argument_specs"]
    options = {name for entry in spec.values() for name in entry.get("options", {})}
    assert not {name for name in options if not name.startswith((f"{role}_", "virt_"))}


def booleans(role: str) -> set[str]:
    """Options of a role that are true or false."""
    spec = yaml.safe_load((ROLES / role / "meta/argument_specs.yml").read_text())["argument_specs"]
    return {
        name for entry in spec.values() for name, each in entry.get("options", {}).items() if each["type"] == "bool"
    }


@pytest.mark.parametrize("path", FILES, ids=label)
def test_a_boolean_that_is_given_as_text_means_what_it_says(path: Path) -> None:
    """Extra variables are texts.

    The check of a role's options does not convert them, and "false" is true where it is not told apart.
    """
    names = "|".join(sorted(booleans(path.relative_to(ROLES).parts[0]))) or "$^"
    handed_on = re.compile(rf"\"{{{{ ({names}) }}}}\"|^ *({names}):|#.*|name: .*")  # a module converts what it is given
    text = "\n".join(handed_on.sub("", line) for line in path.read_text().splitlines())
    assert re.findall(rf"\b(?:{names})\b(?! \| bool|: false)", text) == []
