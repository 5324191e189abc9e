"""Job templates of AWX, Semaphore and Rundeck, and the playbooks that they run: made from the action catalogue.

job_templates.py --write puts them where they belong in the collection; job_templates.py --playbooks DIRECTORY makes
only the playbooks, for a project.
"""

from __future__ import annotations

import json
import re
import sys
import typing as t
import uuid
from pathlib import Path

import yaml

from ansible_collections.corral.virt.plugins.doc_fragments.domain import ModuleDocFragment
from ansible_collections.corral.virt.plugins.modules import virt_migrate
from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions, surveys
from ansible_collections.corral.virt.plugins.plugin_utils._commands.actions import PlaybookAction
from ansible_collections.corral.virt.plugins.plugin_utils._commands.surveys import JobTemplate, Question

__all__ = ["ACTIONS", "PATTERN", "TEMPLATES", "awx", "files", "pattern", "playbook", "rundeck", "semaphore", "stale"]

ROOT = Path(__file__).parents[2]
PATTERN = "private_cloud"
ACTIONS = [action for action in map(actions.action, actions.names()) if action.template]
TEMPLATES = [template for action in ACTIONS for template in surveys.job_templates(action)]
PLAYBOOKS = (ROOT / "extensions/patterns" / PATTERN / "playbooks", ROOT / "examples/project/playbooks")
MADE = "Made by tests/tools/job_templates.py from the action catalogue."
VIEWS = {"guest": "Guests", "host": "Hypervisors", "image": "Images"}
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://github.com/corral-virt/corral.virt")
WIDTH = 120  # of lines in YAML


def _texts() -> dict[str, str]:
    """The first sentence on each option of a module, about its plain form."""
    found = {}
    for documentation in (virt_migrate.DOCUMENTATION, vars(ModuleDocFragment)["DOCUMENTATION"]):
        for name, option in yaml.safe_load(documentation)["options"].items():
            text = option["description"]
            plain = re.sub(r"\b[A-Z]\(([^)]*)\)", r"\1", text if isinstance(text, str) else text[0])
            found[name] = re.split(r"(?<=\.)\s", plain)[0].replace(", or a dictionary with the keys below", "")
    return found


TEXTS = _texts()


def questions(template: JobTemplate) -> list[Question]:
    """The survey of a template."""
    return surveys.survey(template, TEXTS)


def description(template: JobTemplate) -> str:
    """What it does, whether a mistake costs something, and whether it is as good as root."""
    marks = ["destructive"] * template.action.destructive + ["for admins"] * template.admin
    return template.action.description + (f" ({', '.join(marks)})" if marks else "")


def playbook(action: PlaybookAction) -> str:
    """A project's playbook for a job template: AWX runs files of the project only."""
    return f"---\n- name: {action.description}\n  ansible.builtin.import_playbook: corral.virt.{action.name}\n"


def awx() -> dict[str, t.Any]:
    """Variables of the role awx."""
    templates = [
        {
            "name": template.name,
            "playbook": template.action.name,
            "description": description(template),
            "destructive": template.action.destructive,
            "admin": template.admin,
            "authority": template.action.authority,
            "survey": questions(template),
        }
        for template in TEMPLATES
    ]
    return {"__awx_templates": templates}


def pattern() -> dict[str, t.Any]:
    """The pattern of Ansible Automation Platform; it knows only defaults that are texts."""
    labels = ["corral.virt", "admin"]
    templates = [
        {
            "name": f"corral.virt.{template.name}",
            "description": description(template),
            "playbook": f"{template.action.name}.yml",
            "primary": template.name == "create",
            "ask_credential_on_launch": True,
            "ask_inventory_on_launch": True,
            "ask_variables_on_launch": False,
            "labels": labels if template.admin else labels[:1],
            "survey": {
                "name": f"corral.virt.{template.name}",
                "description": description(template),
                "spec": [_with_text(question) for question in questions(template)],
            },
        }
        for template in TEMPLATES
    ]
    text = "Job templates for everyday work with KVM hypervisors and their guests"
    return {
        "schema_version": "1.0",
        "name": PATTERN,
        "title": "Run a private cloud of KVM hypervisors",
        "short_description": text,
        "description": f"{text}: create, start, migrate and remove guests, and maintain the hypervisors.",
        "tags": ["cloud", "kvm", "libvirt", "virtualization"],
        "aap_resources": {
            "controller_project": {"name": "corral.virt", "description": text},
            "controller_labels": labels,
            "controller_job_templates": templates,
        },
    }


def _with_text(question: Question) -> Question:
    """Without a default that is none; the playbook has the same."""
    return {key: value for key, value in question.items() if key != "default" or isinstance(value, str)}


def semaphore() -> dict[str, t.Any]:
    """A project of Semaphore, as its backup has it. What is missing there is null, which a restore does not take."""
    own, none = "corral.virt", "None"
    templates = [
        {
            "name": template.name,
            "description": description(template),
            "app": "ansible",
            "type": "",
            "playbook": f"playbooks/{template.action.name}.yml",
            "arguments": "[]",
            "allow_override_args_in_task": False,
            "suppress_success_alerts": False,
            "autorun": False,
            "inventory": own,
            "repository": own,
            "environment": own,
            "view": VIEWS[template.action.kind],
            "vaults": [],
            "survey_vars": [_survey_variable(question) for question in questions(template)],
        }
        for template in TEMPLATES
    ]
    return {
        "meta": {"name": own, "alert": False, "max_parallel_tasks": 0, "type": ""},
        "templates": templates,
        "repositories": [
            {"name": own, "git_url": "https://git.example.org/cloud.git", "git_branch": "main", "ssh_key": none}
        ],
        "keys": [{"name": none, "type": "none"}, {"name": "hypervisors", "type": "ssh"}],
        "views": [{"title": title, "position": position} for position, title in enumerate(VIEWS.values())],
        "inventories": [{"name": own, "type": "file", "inventory": "inventory", "ssh_key": "hypervisors"}],
        "environments": [{"name": own, "json": "{}", "env": "{}"}],
        "integrations": [],
        "integration_aliases": [],
    }


def _survey_variable(question: Question) -> dict[str, t.Any]:
    choices = [{"name": choice, "value": choice} for choice in question.get("choices") or ()]
    return {
        "name": question["variable"],
        "title": question["question_name"],
        "description": _with_default(question),
        "type": "enum" if choices else "int" if question["type"] == "integer" else "",
        "required": question["required"],
        "values": choices,
    }


def _with_default(question: Question) -> str:
    """For who has no place for a default."""
    default = f" Default: {question['default']}." if "default" in question else ""
    return f"{question['question_description']}{default}"


# Answers are data: without !unsafe, Ansible would run what stands in {{ }}.
RUN = """\
import json, os, subprocess, sys, tempfile
given = {key[10:].lower(): value for key, value in os.environ.items() if key.startswith("RD_OPTION_")}
lines = [f"{name}: !unsafe {json.dumps(value, ensure_ascii=False)}\\n" for name, value in given.items()]
project = os.environ.get("CORRAL_PROJECT") or os.path.expanduser("~/cloud")
with tempfile.NamedTemporaryFile("w", suffix=".yml") as answers:
    answers.write("".join(lines) or "{}")
    answers.flush()
    playbook = os.environ["RD_JOB_NAME"].removesuffix("_admin")
    command = ["ansible-playbook", f"playbooks/{playbook}.yml", "-e", f"@{answers.name}"]
    sys.exit(subprocess.run(command, cwd=project).returncode)
"""


def rundeck() -> list[dict[str, t.Any]]:
    """Jobs of Rundeck."""
    return [
        {
            "uuid": str(uuid.uuid5(NAMESPACE, template.name)),
            "name": template.name,
            "group": f"corral.virt/{VIEWS[template.action.kind]}",
            "description": description(template),
            "loglevel": "INFO",
            "multipleExecutions": template.action.kind == "guest",
            "options": [_option(question) for question in questions(template)],
            "sequence": {
                "keepgoing": False,
                "strategy": "node-first",
                "commands": [{"script": RUN, "scriptInterpreter": "python3", "interpreterArgsQuoted": False}],
            },
        }
        for template in TEMPLATES
    ]


def _option(question: Question) -> dict[str, t.Any]:
    option: dict[str, t.Any] = {
        "name": question["variable"],
        "label": question["question_name"],
        "description": question["question_description"],
        "required": question["required"],
    }
    if "default" in question:
        option["value"] = str(question["default"]).replace("\n", ",")
    if question["type"] == "integer":
        option["regex"] = r"\d+"
    if "choices" in question:
        option |= {"values": question["choices"], "enforced": True}
    if question["type"] == "multiselect":
        option |= {"multivalued": True, "delimiter": ","}
    if question["type"] == "password":
        option |= {"secure": True, "valueExposed": True}
    return option


class _Dumper(yaml.SafeDumper):
    """Lists below their key, texts of several lines as they are, and nothing by reference."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def _yaml(data: object) -> str:
    return f"---\n# {MADE}\n" + yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=WIDTH, allow_unicode=True)


def _json(data: object) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def files() -> dict[Path, str]:
    """Each file that is made, and its content."""
    there = ROOT / "extensions/patterns" / PATTERN
    return {
        ROOT / "roles/awx/vars/main/templates.yml": _yaml(awx()),
        ROOT / "extensions/semaphore/project.json": _json(semaphore()),
        ROOT / "extensions/rundeck/jobs.yml": _yaml(rundeck()),
        there / "meta/pattern.json": _json(pattern()),
        **{place / f"{action.name}.yml": playbook(action) for place in PLAYBOOKS for action in ACTIONS},
    }


def stale() -> list[str]:
    """Files that are missing, not as they would be made, or left over."""
    wanted = files()
    left = {path for place in PLAYBOOKS for path in place.glob("*")} - set(wanted)
    wrong = {path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text}
    return sorted(str(path.relative_to(ROOT)) for path in wrong | left)


def _write(wanted: t.Mapping[Path, str]) -> None:
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        _write(files())
        for name in stale():
            (ROOT / name).unlink()
    elif sys.argv[1:2] == ["--playbooks"] and len(sys.argv) == 3:
        _write({Path(sys.argv[2]) / f"{action.name}.yml": playbook(action) for action in ACTIONS})
    else:
        sys.exit(__doc__)
