"""Jobs as AWX composes them: a private data directory for ansible-runner, with the answers to a survey."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.contract.play import deep, defaults
from ansible_collections.corral.virt.tests.contract.test_commands import GUESTS, HOST, numbers
from ansible_collections.corral.virt.tests.contract.test_inventory import guest
from ansible_collections.corral.virt.tests.tools import job_templates, payload

pytestmark = pytest.mark.slow

Answers = dict[str, t.Any]


class Job:
    """A private data directory: an inventory, the project's playbooks, and what a job is given."""

    def __init__(self, place: Path) -> None:
        self.place, self.code = place, -1
        for folder in ("env", "inventory", "project/playbooks"):
            (place / folder).mkdir(parents=True)
        for action in job_templates.ACTIONS:
            (place / f"project/playbooks/{action.name}.yml").write_text(job_templates.playbook(action))
        self._inventory()
        environment = {"ANSIBLE_COLLECTIONS_PATH": str(payload.ROOT / ".cache"), "ANSIBLE_NOCOLOR": "1"}
        (place / "env/envvars").write_text(json.dumps(environment))

    def _inventory(self) -> None:
        """A program that prints it, as AWX writes one."""
        hosts, number_of = {}, numbers(GUESTS)
        for host, guests in GUESTS.items():
            path = self.place / f"{host}.xml"
            there = "".join(guest(number_of[each[0]], *each[:2], record=each[2]) for each in guests)
            path.write_text(HOST.replace("</node>", f"{there}</node>"))
            hosts[host] = {"virt_uri": f"test://{path}", "ansible_connection": "local"}
        # The guests that ran before the job: AWX does not read the inventory again while it runs.
        groups = {
            "hyper": {"hosts": list(hosts)},
            "guests": {"children": ["guests_running"]},
            "guests_running": {"hosts": []},
        }
        variables = {"ansible_python_interpreter": sys.executable}
        content = {"all": {"vars": variables}, **groups, "_meta": {"hostvars": hosts}}
        program = self.place / "inventory/hosts"
        program.write_text(f"#!{sys.executable}\nprint({json.dumps(content)!r})\n")
        program.chmod(0o755)

    def run(self, action: str, answers: Answers, *words: str) -> str:
        """What a job printed, in one line."""
        given = {"awx_job_id": 7, "tower_job_id": 7, "awx_user_name": "{{ 1 }}", **answers}
        lines = [f"!unsafe {json.dumps(name)}: {_written(value)}\n" for name, value in given.items()]
        (self.place / "env/extravars").write_text("".join(lines))
        (self.place / "env/cmdline").write_text(" ".join(words))
        command = ["ansible-runner", "run", str(self.place), "-p", f"playbooks/{action}.yml"]
        environment = {name: value for name, value in defaults().items() if not name.startswith("CORRAL_")}
        environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=1200)
        self.code = done.returncode
        return re.sub(r"\s+", " ", done.stdout + done.stderr)


def _written(value: object) -> str:
    """As AWX writes the answers: no text is a template."""
    return f"!unsafe {json.dumps(value)}" if isinstance(value, str) else json.dumps(value)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("job"))


def unanswered(action: str) -> Answers:
    """Defaults of the generated survey, and an empty text for each question without one."""
    template = [each for each in job_templates.TEMPLATES if each.action.name == action][-1]  # that asks for all
    questions = job_templates.questions(template)
    return {question["variable"]: question.get("default", "") for question in questions}


NEW: Answers = {
    "guest": "new",
    "vcpus": "1",
    "memory": "64MiB",
    "interfaces": "[]",
    "disks": "- name: data\n  size: 1MiB\n",
}


@pytest.mark.parametrize(
    ("action", "answers", "told"),
    [
        ("start", {"guest": "web2,db1"}, "h1 start web2 h2 db1 is already in that state"),
        ("shutdown", {"tag": "front", "wait_timeout": "60", "force": "false"}, "h1 shut down web1"),
        ("force_off", {"guest": "w*", "confirm": "2"}, "h1 destroy web1 web2 is already in that state"),
        ("query", {}, "web1"),
        ("create", NEW, "changed=1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_job_does_what_its_survey_says(job: Job, action: str, answers: Answers, told: str) -> None:
    output = job.run(action, {**unanswered(action), **answers})
    assert told in output and job.code == 0, output


def test_a_job_that_only_checks(job: Job) -> None:
    output = job.run("start", {**unanswered("start"), "guest": "web2"}, "--check")
    assert "h1 start web2" in output and job.code == 0, output


@pytest.mark.parametrize(
    ("action", "name", "more"),
    [
        ("start", "guest", {}),
        deep("start", "tag", {}),
        deep("create", "guest", {}),
        deep("create", "memory", NEW),
        ("create", "disks", NEW),
        deep("create", "apart", NEW),
        ("drain", "reason", {"host": "h1"}),
        deep("drain", "host", {}),
        deep("query", "guest", {}),
        ("site", "gone", {}),
        deep("build_image", "build_host", {"image": "a.qcow2", "dest": "/nonexistent"}),
    ],
)
def test_an_answer_is_no_template(job: Job, action: str, name: str, more: Answers) -> None:
    """Whoever may start a job may not run programs on the controller."""
    made = job.place / "made"
    hostile = f"{{{{ lookup('ansible.builtin.pipe', 'touch {made}') }}}}"
    answer = f'- name: "{hostile}"' if name == "disks" else hostile
    output = job.run(action, {**unanswered(action), **more, name: answer})
    assert not made.exists(), output
    assert job.code != 0 or name in ("apart", "reason"), output


def test_what_is_missing_is_named(job: Job) -> None:
    assert "guest: start requires a guest or a tag" in job.run("start", unanswered("start")) and job.code != 0
    assert "host: drain requires this argument" in job.run("drain", unanswered("drain")) and job.code != 0
