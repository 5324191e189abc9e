# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a job template asks for: the arguments of an action as a survey of AWX. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._actions import Argument, PlaybookAction, Spec

__all__ = ["Question", "survey"]

Question = dict[str, t.Any]

_STRUCTURED = "Write it as YAML or JSON."
_SEVERAL = "Separate several by commas."


def survey(action: PlaybookAction, texts: t.Mapping[str, str]) -> list[Question]:
    """The questions, in the order of the catalogue; `texts` describe options of modules, by name."""
    return [_question(action.arguments[name], texts) for name in action.survey]


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
    """AWX's type of question."""
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
    """As AWX takes it: a number, or a text that stands for the others; None where there is none."""
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
