"""Arguments as questions of AWX."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions, surveys
from ansible_collections.corral.virt.plugins.plugin_utils._commands.actions import Argument

TEXTS = {"vcpus": "Number of vCPUs.", "disks": "Disks.", "storage": "What is copied."}

Wanted = dict[str, t.Any]

QUESTIONS: list[tuple[Argument, Wanted]] = [
    (
        Argument("to", {"type": "str"}, "Where."),
        {"type": "text", "question_name": "To", "question_description": "Where."},
    ),
    (Argument("out", {"type": "path"}, "A `file`."), {"type": "text", "question_description": "A file."}),
    (
        Argument("wait_timeout", {"type": "int", "default": 300}, "Seconds.", minimum=1),
        {"type": "integer", "min": 1, "default": 300, "question_name": "Wait timeout"},
    ),
    (Argument("tolerance", {"type": "float", "default": 1.0}, "Points."), {"type": "float", "default": 1.0}),
    (
        Argument("force", {"type": "bool", "default": False}, "Whether."),
        {"type": "multiplechoice", "choices": ["true", "false"], "default": "false"},
    ),
    (Argument("wait", {"type": "bool"}, "Whether."), {"type": "multiplechoice", "choices": ["true", "false"]}),
    (
        Argument("format", {"type": "str", "choices": ["a", "b"], "default": "a"}, "Which."),
        {"type": "multiplechoice", "choices": ["a", "b"], "default": "a"},
    ),
    (
        Argument("guest", {"type": "list", "elements": "str"}, "Names.", required=True),
        {"type": "text", "required": True, "question_description": "Names. Separate several by commas."},
    ),
    (Argument("stay", {"type": "list", "elements": "str", "default": []}, "Names."), {"type": "text"}),
    (Argument("stay", {"type": "list", "elements": "str", "default": ["a", "b"]}, "Names."), {"default": "a,b"}),
    (
        Argument("ways", {"type": "list", "choices": ["a", "b"], "default": ["a", "b"]}, "Ways."),
        {"type": "multiselect", "choices": ["a", "b"], "default": "a\nb"},
    ),
    (
        Argument("disks", {"type": "list", "elements": "dict"}, option=True),
        {"type": "textarea", "question_description": "Disks. Write it as YAML or JSON."},
    ),
    (Argument("options", {"type": "dict", "default": {}}, "More."), {"type": "textarea"}),
    (Argument("vcpus", {"type": "raw"}, option=True), {"type": "text", "question_description": "Number of vCPUs."}),
    (Argument("phrase", {"type": "str", "no_log": True}, "Secret."), {"type": "password"}),
]


@pytest.mark.parametrize(("argument", "wanted"), QUESTIONS, ids=lambda value: getattr(value, "name", ""))
def test_an_argument_is_a_question(argument: Argument, wanted: Wanted) -> None:
    found = surveys._question(argument, TEXTS)
    assert {key: found.get(key) for key in wanted} == wanted
    assert found["variable"] == argument.name and found["required"] is argument.required
    assert ("default" in found, "choices" in found, "min" in found) == (
        "default" in wanted,
        "choices" in wanted,
        "min" in wanted,
    )


def test_what_must_be_answered_has_no_default() -> None:
    found = surveys._question(Argument("to", {"type": "str", "default": "x"}, "Where.", required=True), {})
    assert "default" not in found


def test_a_survey_asks_for_what_the_catalogue_says() -> None:
    texts = dict.fromkeys(actions.action("create").arguments, "Text.")
    plain, whole = surveys.job_templates(actions.action("create"))
    asked = [question["variable"] for question in surveys.survey(whole, texts)]
    assert asked[:6] == ["guest", "image", "vcpus", "memory", "disks", "interfaces"] and whole.name == "create_admin"
    assert [name for name in asked if name not in plain.asks] == ["disks", "interfaces"] and plain.name == "create"
    (start,) = surveys.job_templates(actions.action("start"))
    assert [question["variable"] for question in surveys.survey(start, {})] == ["guest", "tag", "wait_for_login"]
    assert not start.admin
    (build,) = surveys.job_templates(actions.action("build_image"))
    assert (build.name, build.admin) == ("build_image", True), "what it must be told reaches the host"


@pytest.mark.parametrize(
    ("action", "variable", "kind", "choices"),
    [
        ("create", "host", "multiplechoice", ["h1", "h2"]),
        ("create", "image", "multiplechoice", ["a.qcow2"]),
        ("migrate", "to", "multiplechoice", ["h1", "h2"]),
        ("rolling_update", "host", "multiselect", ["h1", "h2"]),
        ("rename", "to", "text", None),
        ("images", "image", "text", None),
        ("drain_pool", "to", "text", None),
    ],
)
def test_what_exists_is_offered(action: str, variable: str, kind: str, choices: list[str] | None) -> None:
    template = surveys.job_templates(actions.action(action))[0]
    asked = surveys.survey(template, dict.fromkeys(template.asks, "Text."))
    offered = surveys.offering(action, asked, {"hypervisor": ["h1", "h2"], "image": ["a.qcow2"]})
    (found,) = (each for each in offered if each["variable"] == variable)
    assert (found["type"], found.get("choices")) == (kind, choices)
    assert ("commas" in found["question_description"]) == (
        (kind == "text" and variable != "to") or action == "drain_pool"
    )
    assert surveys.offering(action, asked, {"hypervisor": [], "image": []}) == asked
