"""Nothing that a guest, a host or a file says is obeyed by the terminal that shows it."""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.contract.play import Play
from ansible_collections.corral.virt.tests.tools import payload

pytestmark = pytest.mark.slow

BAD = "\x1b[31m\x9b31m\x7f\x00\r\b\u202e"
ESCAPED = r"\x1b[31m\x9b31m\x7f"
SHIPPED = sorted({path.stem for path in payload.modules()} - payload.ON_THE_CONTROLLER)
NODE = """<node><pool type='dir'><name>default</name><target><path>/p</path></target></pool>
<domain type='test'><name>web1</name><title>{0}</title><description>{0}
more</description><memory>65536</memory><os><type>hvm</type></os></domain></node>"""
ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "virt_domain": {"name": "web1", "allow_duplicates": True},
    "virt_domains": {"domains": [{"name": "web1"}], "allow_duplicates": True},
    "virt_disk_move": {"guest": "web1", "disk": "vda", "pool": "default"},
    "virt_pool_drain": {"pool": "default", "to": ["fast"]},
    "virt_firewall": {"sources": ["any"]},
    "virt_image": {"name": "a.qcow2"},
    "virt_migrate": {"name": "web1", "dest": "hyper2"},
    "virt_migrations": {"guests": [{"name": "web1", "dest": "hyper2"}]},
    "virt_mounts": {"mounts": []},
    "virt_network": {"name": "default"},
    "virt_network_info": {},
    "virt_nwfilter": {"name": "a"},
    "virt_pool": {"name": "default"},
    "virt_secret": {"name": "a", "usage": "ceph"},
    "virt_snapshot": {"guests": ["web1"], "name": "a"},
    "virt_tuning": {},
    "virt_volume": {"name": "a", "pool": "default"},
    "virt_writable": {"paths": []},
}


def obeyed(text: str) -> list[str]:
    """What a terminal obeys of it."""
    return [char for char in text if (not char.isprintable() and char not in "\n\t\xa0") or char == "\u202e"]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path)


def evil(place: Path, name: str, answer: str) -> dict[str, str]:
    """A host that answers every module so."""
    (place / f"{name}.answer").write_text(answer)
    program = place / f"{name}.python3"
    program.write_text(f"#!/bin/sh\ncat {place}/{name}.answer\nprintf '\\033[31mbad\\233' >&2\n")
    program.chmod(0o755)
    return {"ansible_python_interpreter": str(program)}


FINE = {"changed": True, "msg": BAD, "steps": [BAD], "results": [], "diff": {"before": {"a": BAD}, "after": {}}}
ANSWERS = {
    "failed": json.dumps({"failed": True, "msg": BAD, "results": [], "warnings": [BAD]}),
    "fine": json.dumps({**FINE, "warnings": [BAD]}),
    "silent": f"{BAD}\n",
    "odd": json.dumps(
        {"changed": True, BAD: {BAD: [BAD]}, "deprecations": [{"msg": BAD, "version": "9"}], "results": []}
    ),
}


def test_a_host_that_answers_what_it_likes_reaches_no_terminal(play: Play) -> None:
    play.hosts(hyper={name: evil(play.place, name, answer) for name, answer in ANSWERS.items()})
    tasks: list[dict[str, t.Any]] = [
        {f"corral.virt.{module}": ARGUMENTS.get(module, {}), "register": "told", "ignore_errors": True}
        for module in SHIPPED
    ]
    play.run(*tasks, {"ansible.builtin.debug": {"var": "told"}}, options=["--diff", "-v"])
    assert play.stdout.count("TASK [corral.virt.") == len(SHIPPED)
    for place, text in enumerate(play.stdout.split("TASK [corral.virt.")[1:]):
        assert "[31m" in text and obeyed(text) == [], SHIPPED[place] + text


def test_a_guest_that_calls_itself_what_it_likes_reaches_no_terminal(play: Play) -> None:
    (play.place / "node.xml").write_text(NODE.format("bad&#x9b;31m&#x7f;&#x202e;"))
    uri = f"test://{play.place}/node.xml"
    play.hosts(hyper={"h1": {"uri": uri}})
    known = {"uri": uri}
    report: dict[str, t.Any] = {"results": {"h1": "{{ told }}"}, "group": ["h1"]}
    result = play.run(
        {"corral.virt.virt_domain_info": known, "register": "told"},
        {"ansible.builtin.debug": {"msg": "{{ told.domains[0].title }} {{ told.domains[0].description }}"}},
        {"corral.virt.virt_report": {**report, "kind": "query"}},
        {"corral.virt.virt_domain": {**known, "name": "web1", "title": "better"}, "diff": True},
        {"corral.virt.virt_domain": {"uri": "test:///no\x1b[31m.xml\x9b", "name": "web1"}, "ignore_errors": True},
    )
    assert result["h1"]["domains"][0]["title"] == r"bad\x9b31m\x7f\u202e"
    assert result["h1"]["domains"][0]["description"].endswith("\nmore")
    assert r"bad\\x9b31m" in play.stdout and obeyed(play.stdout) == [], play.stdout


HOST_SAID = re.compile(
    r"\.stdout|\.stderr|ansible_facts\.(?!os_family|user_uid|python)|__bridge_plan|_lost_(bridges|pools)|__firewall_(result|shown)"
)


def messages() -> t.Iterator[tuple[Path, str]]:
    """Every message of a role or playbook that holds what a host said, with the task's variables."""
    for path in [*(payload.ROOT / "roles").glob("*/tasks/*.yml"), *(payload.ROOT / "playbooks").glob("**/*.yml")]:
        entries = yaml.safe_load(path.read_text()) or []
        for task in [
            task for entry in entries for task in (entry.get("tasks", [entry]) if isinstance(entry, dict) else [])
        ]:
            for module in ("debug", "assert", "fail"):
                output = task.get(f"ansible.builtin.{module}") or {}
                text = str(output.get("msg") or output.get("fail_msg") or "")
                for expression in re.findall(r"{{.*?}}", text, re.DOTALL):
                    if HOST_SAID.search(expression) or (
                        re.search(r"\bitem\b", expression) and HOST_SAID.search(str(task.get("loop")))
                    ):
                        yield path, expression + str(task.get("vars", "")) + str(task.get("loop", ""))


def test_messages_of_roles_show_what_hosts_say_printable() -> None:
    found = list(messages())
    assert len(found) > 5
    assert [f"{path}: {text}" for path, text in found if "corral.virt.printable" not in text] == []
