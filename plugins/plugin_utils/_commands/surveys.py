# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Job templates of an action, and their questions: arguments as a survey of AWX. Pure.

A template for everybody asks for nothing that reaches a hypervisor, so for no lists or dictionaries that can hold such
options. A template for admins asks for these, too.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions, option_reach
from ansible_collections.corral.virt.plugins.plugin_utils._commands.actions import Argument, PlaybookAction, Spec

Question = dict[str, t.Any]

_STRUCTURED = "Write it as YAML or JSON."
_SEVERAL = "Separate several by commas."
# Arguments that are an existing hypervisor or image: by name, with the actions in which the name means that.
_EXISTING: dict[str, dict[str, set[str] | None]] = {
    "hypervisor": {"host": None, "to": {"migrate"}},
    "image": {"image": {"create", "add_disk"}},
}


@dataclasses.dataclass(frozen=True)
class JobTemplate:
    """One job template of an action."""

    name: str
    action: PlaybookAction
    asks: tuple[str, ...]  # names of arguments
    admin: bool  # whether an answer can reach a hypervisor, as root


def job_templates(action: PlaybookAction) -> list[JobTemplate]:
    """The action's templates: one for everybody, one for admins, or both."""
    far = [name for name in action.survey if option_reach.reaches_host(action, name)]
    whole = JobTemplate(f"{action.name}_admin", action, action.survey, admin=True)
    if any(action.arguments[name].required for name in far):
        return [dataclasses.replace(whole, name=action.name)]
    near = tuple(name for name in action.survey if name not in far)
    return [JobTemplate(action.name, action, near, admin=False), *([whole] if far else [])]


def survey(template: JobTemplate, texts: t.Mapping[str, str]) -> list[Question]:
    """The questions, in the order of the catalogue; `texts` describe options of modules, by name."""
    return [_question(template.action.arguments[name], texts) for name in template.asks]


def offering(name: str, questions: t.Iterable[Question], there: t.Mapping[str, list[str]]) -> list[Question]:
    """The questions of a playbook, with what is there as choices; without any, the answer stays free."""
    action = actions.action(name)
    return [_offering(action, question, there) for question in questions]


def _offering(action: PlaybookAction, question: Question, there: t.Mapping[str, list[str]]) -> Question:
    variable = question["variable"]
    for kind, names in _EXISTING.items():
        only = names.get(variable, set())
        if there[kind] and question["type"] == "text" and (only is None or action.name in only):
            several = action.arguments[variable].spec["type"] == "list"
            text = question["question_description"].removesuffix(_SEVERAL).strip()
            return question | {
                "type": "multiselect" if several else "multiplechoice",
                "question_description": text,
                "choices": there[kind],
            }
    return question


def _question(argument: Argument, texts: t.Mapping[str, str]) -> Question:
    kind, default = _kind(argument.spec), _default(argument.spec)
    question: Question = {
        "question_name": argument.name.replace("_", " ").capitalize(),
        "question_description": _description(argument, texts),
        "variable": argument.name,
        "type": kind,
        "required": argument.required,
    }
    if kind in ("multiplechoice", "multiselect"):
        question["choices"] = _choices(argument.spec)
    if kind in ("integer", "float") and argument.minimum is not None:
        question["min"] = argument.minimum
    if default is not None and not argument.required:
        question["default"] = default
    return question


def _kind(spec: Spec) -> str:
    """AWX's type of question for an option."""
    if spec.get("no_log"):
        return "password"
    if spec["type"] == "list":
        if spec.get("choices"):
            return "multiselect"
        return "textarea" if spec.get("elements") == "dict" else "text"
    if _choices(spec):
        return "multiplechoice"
    return {"int": "integer", "float": "float", "dict": "textarea"}.get(spec["type"], "text")


def _choices(spec: Spec) -> list[str]:
    return ["true", "false"] if spec["type"] == "bool" else list(map(str, spec.get("choices") or ()))


def _default(spec: Spec) -> object:
    """A default as AWX takes it: a number, or a text for other types; None if there is none."""
    value = spec.get("default")
    if value in (None, "", [], {}):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "\n".join(map(str, value)) if spec.get("choices") else ",".join(map(str, value))
    return value


def _description(argument: Argument, texts: t.Mapping[str, str]) -> str:
    text = (texts[argument.name] if argument.option else argument.description).replace("`", "")
    hint = {"textarea": _STRUCTURED, "text": _SEVERAL if argument.spec["type"] == "list" else ""}
    return f"{text} {hint.get(_kind(argument.spec), '')}".strip()
