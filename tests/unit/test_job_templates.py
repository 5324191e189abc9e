"""Job templates are as the catalogue, and as those who read them want them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import jsonschema
import pytest
import yaml

from ansible_collections.corral.virt.plugins.plugin_utils._commands import action_arguments, actions, option_reach
from ansible_collections.corral.virt.plugins.plugin_utils._commands.actions import PlaybookAction
from ansible_collections.corral.virt.plugins.plugin_utils._commands.surveys import JobTemplate
from ansible_collections.corral.virt.tests.contract.awx_server import survey_problem
from ansible_collections.corral.virt.tests.tools import job_templates, payload

SURVEYS = {template.name: job_templates.questions(template) for template in job_templates.TEMPLATES}
NAMED = pytest.mark.parametrize("action", job_templates.ACTIONS, ids=lambda action: action.name)


def test_the_files_are_as_the_catalogue() -> None:
    assert job_templates.stale() == [], "make them anew: PYTHONPATH=.cache python tests/tools/job_templates.py --write"


def test_every_action_that_is_a_job_has_a_job_template() -> None:
    there = {template.action.name for template in job_templates.TEMPLATES}
    assert set(actions.names()) - there == {"awx_setup", "console_server", "from_salt", "import", "simulate"}


@pytest.mark.parametrize("name", SURVEYS)
def test_awx_takes_the_survey(name: str) -> None:
    assert survey_problem({"name": "", "description": "", "spec": SURVEYS[name]}) is None


@pytest.mark.parametrize("template", job_templates.TEMPLATES, ids=lambda template: template.name)
def test_no_answer_reaches_a_hypervisor_but_that_of_an_admin(template: JobTemplate) -> None:
    """Free YAML could hold any option, such as the file of the host that is a disk."""
    far = {name for name in template.asks if option_reach.reaches_host(template.action, name)}
    assert bool(far) == template.admin
    assert template.admin or "textarea" not in {question["type"] for question in SURVEYS[template.name]}
    assert template.admin == ("for admins" in job_templates.description(template))


def test_a_template_keeps_its_name() -> None:
    """Who may run it, and schedules, are bound to it."""
    assert {action.name for action in job_templates.ACTIONS} <= set(SURVEYS)
    admins = {template.name for template in job_templates.TEMPLATES if template.admin}
    assert admins == {
        *("build_image", "insert_iso", "create_volume", "resize_volume", "delete_volume"),
        *(
            f"{name}_admin"
            for name in (
                *(
                    "add_disk",
                    "backup",
                    "create",
                    "drain",
                    "migrate",
                    "prove",
                    "rebalance",
                    "restore",
                    "restore_files",
                    "recover",
                    "restore_group",
                ),
                "rolling_update",
            )
        ),
    }


WRONG: list[dict[str, t.Any]] = [
    {"type": "number"},
    {"required": "yes"},
    {"type": "integer", "default": "3"},
    {"type": "integer", "min": "1"},
    {"type": "multiplechoice"},
    {"type": "multiplechoice", "choices": ["a"], "default": "b"},
    {"type": "multiplechoice", "choices": ["a", "b"], "default": "a\nb"},
    {"default": "$encrypted$"},
    {"variable": None},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_awx_does_not_take_every_survey(wrong: dict[str, t.Any]) -> None:
    question = {"question_name": "A", "variable": "a", "type": "text", "required": False}
    assert survey_problem({"name": "", "description": "", "spec": [question]}) is None
    assert survey_problem({"name": "", "description": "", "spec": [{**question, **wrong}]})
    assert survey_problem({"name": "", "description": "", "spec": [question, question]}) == "a: twice"
    assert survey_problem({"name": "", "description": "", "spec": []})


@NAMED
def test_no_question_is_about_a_secret(action: PlaybookAction) -> None:
    """What is answered is shown with the job."""
    secret = {name for name, argument in action.arguments.items() if argument.confidential}
    assert set(action.survey) & secret == set()


@NAMED
def test_who_must_confirm_is_asked(action: PlaybookAction) -> None:
    assert not action.counts_guests or "confirm" in action.survey
    required = {name for name, argument in action.arguments.items() if argument.required}
    assert required <= set(action.survey)


SAMPLES = {"guest": "web1", "to": "web2", "host": "hyper1", "image": "a.qcow2", "dest": "/srv", "out": "a.yml"}
SAMPLES |= {"disk": "data", "nic": "eth1", "iso": "a.iso", "volume": "a.qcow2", "size": "1GiB", "pool": "data"}
SAMPLES |= {"snapshot": "before-upgrade", "run": "true", "repository": "/srv/backup", "tag": "shop"}


@NAMED
def test_a_survey_whose_optional_questions_nobody_answers_is_good(action: PlaybookAction) -> None:
    """AWX gives defaults of their types, Semaphore and Rundeck as texts, and each of them may give ''."""
    survey = SURVEYS[f"{action.name}_admin"] if f"{action.name}_admin" in SURVEYS else SURVEYS[action.name]
    needed = {name: SAMPLES[name] for name in ("guest",) if name in action.survey}
    needed |= {question["variable"]: SAMPLES[question["variable"]] for question in survey if question["required"]}
    needed |= {"memory": "4GiB"} if action.partial and not action.entry else {}
    unsaid = action_arguments.asked(action, needed)
    defaults = {question["variable"]: question["default"] for question in survey if "default" in question}
    for given in (defaults, {name: str(value) for name, value in defaults.items()}, dict.fromkeys(action.survey, "")):
        values = action_arguments.asked(action, {**dict.fromkeys(action.survey, ""), **given, **needed})
        assert {name: values[name] for name in unsaid} == unsaid
        assert set(values) - set(unsaid) <= set(given) - {name for name, value in given.items() if value == ""}


PATTERN_TEXT = {"type": "string", "minLength": 1}
PATTERN: dict[str, t.Any] = {
    "required": ["schema_version", "name", "title", "description", "short_description", "aap_resources"],
    "properties": {
        "name": {"pattern": "^[a-z0-9_]{1,64}$"},
        "title": {"type": "string", "maxLength": 64},
        "description": PATTERN_TEXT,
        "short_description": {"type": "string", "pattern": "[^.]$"},
        "tags": {"items": PATTERN_TEXT, "uniqueItems": True},
        "aap_resources": {
            "required": ["controller_project", "controller_job_templates", "controller_labels"],
            "properties": {
                "controller_project": {"required": ["name", "description"]},
                "controller_labels": {"items": PATTERN_TEXT, "minItems": 1, "uniqueItems": True},
                "controller_job_templates": {
                    "minItems": 1,
                    "items": {
                        "required": ["name", "description", "playbook"],
                        "properties": {
                            "name": {"type": "string", "maxLength": 200},
                            "primary": {"type": "boolean"},
                            "survey": {
                                "required": ["name", "description", "spec"],
                                "properties": {
                                    "spec": {
                                        "items": {
                                            "required": [
                                                "type",
                                                "question_name",
                                                "question_description",
                                                "variable",
                                                "required",
                                            ],
                                            "properties": {
                                                "variable": {"pattern": "^[a-z0-9_]{1,64}$"},
                                                "choices": {"items": {"type": "string"}},
                                                "default": {"type": "string"},
                                            },
                                        }
                                    }
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


def test_the_pattern_is_one() -> None:
    """As pattern-schema 1.0.0 of ansible/pattern-service says it, and as galaxy-importer looks for its files."""
    place = payload.ROOT / "extensions/patterns" / job_templates.PATTERN
    found = json.loads((place / "meta/pattern.json").read_text())
    jsonschema.validate(found, PATTERN)
    assert found["name"] == place.name and (place / "README.md").exists()
    templates = found["aap_resources"]["controller_job_templates"]
    assert {each["playbook"] for each in templates} == {path.name for path in (place / "playbooks").iterdir()}
    assert [each["name"] for each in templates if each["primary"]] == ["corral.virt.create"]
    for each in templates:
        assert survey_problem(each["survey"]) is None
        assert set(each["labels"]) <= set(found["aap_resources"]["controller_labels"])


TEXT, FLAG, TEXTS = {"type": "string"}, {"type": "boolean"}, {"type": "array", "items": {"type": "string"}}


def _objects(**properties: t.Any) -> dict[str, t.Any]:
    """A list of objects that have all of these, and nothing else."""
    each = {"properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "array", "items": {"type": "object", **each}}


SEMAPHORE = _objects(
    meta={"required": ["name", "alert", "max_parallel_tasks"]},
    templates=_objects(
        **dict.fromkeys(("name", "description", "playbook", "arguments"), TEXT),
        **dict.fromkeys(("inventory", "repository", "environment", "view"), TEXT),
        **dict.fromkeys(("allow_override_args_in_task", "suppress_success_alerts", "autorun"), FLAG),
        app={"const": "ansible"},
        type={"const": ""},
        vaults={"type": "array"},
        survey_vars=_objects(
            **dict.fromkeys(("name", "title", "description"), TEXT),
            type={"enum": ["", "int", "enum"]},
            required=FLAG,
            values=_objects(name=TEXT, value=TEXT),
        ),
    ),
    repositories=_objects(name=TEXT, git_url=TEXT, git_branch=TEXT, ssh_key=TEXT),
    keys=_objects(name=TEXT, type={"enum": ["ssh", "login_password", "none"]}),
    views=_objects(title=TEXT, position={"type": "integer", "minimum": 0}),
    inventories=_objects(name=TEXT, type={"const": "file"}, inventory=TEXT, ssh_key=TEXT),
    environments=_objects(name=TEXT, json=TEXT, env=TEXT),
    integrations={"type": "array"},
    integration_aliases=TEXTS,
)


def test_semaphore_restores_the_project() -> None:
    """As the definition of its API says it, and as its restore checks it."""
    found = json.loads((payload.ROOT / "extensions/semaphore/project.json").read_text())
    jsonschema.validate([found], SEMAPHORE)
    names = {kind: {each.get("name", each.get("title")) for each in found[kind]} for kind in found if kind != "meta"}
    for template in found["templates"]:
        assert template["inventory"] in names["inventories"] and template["repository"] in names["repositories"]
        assert template["environment"] in names["environments"] and template["view"] in names["views"]
        assert json.loads(template["arguments"]) == []
        for question in template["survey_vars"]:
            assert bool(question["values"]) == (question["type"] == "enum")
    for each in [*found["repositories"], *found["inventories"]]:
        assert each["ssh_key"] in names["keys"]


RUNDECK = {
    "type": "array",
    "items": {
        "required": ["name", "description", "loglevel", "sequence", "uuid"],
        "properties": {
            "loglevel": {"enum": ["DEBUG", "VERBOSE", "INFO", "WARN", "ERROR"]},
            "uuid": {"pattern": "^[0-9a-f-]{36}$"},
            "multipleExecutions": FLAG,
            "options": {
                "type": "array",
                "items": {
                    "required": ["name", "description", "required"],
                    "properties": {
                        "name": {"pattern": r"^[A-Za-z0-9_.-]+$"},
                        "value": TEXT,
                        "values": TEXTS,
                        "regex": TEXT,
                        **dict.fromkeys(("required", "enforced", "multivalued", "secure", "valueExposed"), FLAG),
                    },
                    "dependentRequired": {"enforced": ["values"], "multivalued": ["delimiter"]},
                },
            },
            "sequence": {
                "required": ["keepgoing", "strategy", "commands"],
                "properties": {"strategy": {"enum": ["node-first", "step-first"]}},
            },
        },
    },
}


def test_rundeck_loads_the_jobs() -> None:
    """As its reference of the format job-yaml says it."""
    found = yaml.safe_load((payload.ROOT / "extensions/rundeck/jobs.yml").read_text())
    jsonschema.validate(found, RUNDECK)
    assert len({job["uuid"] for job in found}) == len(found)
    for job in found:
        for option in job["options"]:
            assert not option.get("enforced") or option.get("value", option["values"][0]) in option["values"]


def test_a_job_of_rundeck_gives_answers_as_data(tmp_path: Path) -> None:
    """What stands in for ansible-playbook keeps what it was given."""
    program, kept = tmp_path / "ansible-playbook", tmp_path / "kept"
    program.write_text(f'#!/bin/sh\necho "$1 $PWD" > {kept}; cat "${{3#@}}" >> {kept}; exit 7\n')
    program.chmod(0o755)
    answers = {"RD_OPTION_GUEST": "{{ lookup('pipe', 'id') }}", "RD_OPTION_REASON": 'a "b"\n\N{SNOWMAN}: c'}
    environment = {**os.environ, **answers, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment |= {"RD_JOB_NAME": "drain", "CORRAL_PROJECT": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", job_templates.RUN], env=environment, check=False, timeout=1200)
    first, *lines = kept.read_text().splitlines()
    assert done.returncode == 7 and first == f"playbooks/drain.yml {tmp_path}"
    assert lines == [
        "guest: !unsafe \"{{ lookup('pipe', 'id') }}\"",
        'reason: !unsafe "a \\"b\\"\\n\N{SNOWMAN}: c"',
    ]


def test_a_project_gets_its_playbooks(tmp_path: Path) -> None:
    tool = payload.ROOT / "tests/tools/job_templates.py"
    environment = {**os.environ, "PYTHONPATH": str(payload.ROOT / ".cache")}
    subprocess.run([sys.executable, tool, "--playbooks", tmp_path], env=environment, check=True, timeout=1200)
    assert {path.stem for path in tmp_path.iterdir()} == {action.name for action in job_templates.ACTIONS}
    (play,) = yaml.safe_load((tmp_path / "start.yml").read_text())
    assert play["ansible.builtin.import_playbook"] == "corral.virt.start"
