"""Plays against libvirt's test driver, through ansible-playbook: what each host was told."""

from __future__ import annotations

import json
import os
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.tools import payload, preloaded

Told = dict[str, dict[str, t.Any]]


def deep(*values: t.Any) -> t.Any:
    """A case of a test that only `make test-deep` runs: one more of what another case shows."""
    return pytest.param(*values, marks=pytest.mark.deep)


def defaults(**more: str) -> dict[str, str]:
    """An environment for Ansible with its defaults, whoever runs the test.

    The same for all tests, which is what `preloaded` asks for.
    """
    config = payload.ROOT / ".cache/defaults.cfg"
    if not config.exists():
        config.touch()
    here = {
        "ANSIBLE_COLLECTIONS_PATH": str(payload.ROOT / ".cache"),
        "ANSIBLE_CONFIG": str(config),
        "ANSIBLE_NOCOLOR": "1",
    }
    code = {
        "PYTHONPATH": str(payload.ROOT / "tests/tools/kept_code"),
        "CORRAL_KEPT_CODE": str(payload.ROOT / ".cache/code"),
    }
    plain = {name: value for name, value in os.environ.items() if name != "ANSIBLE_STDOUT_CALLBACK"}
    return {**plain, **here, **code, **more}


class Play:
    """A directory with an inventory, in which plays run."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.inventory = place / "hosts.yml"
        self.stdout = ""

    def hosts(self, **groups: t.Mapping[str, t.Any]) -> None:
        """The inventory: hosts with their variables, by group; all of them are this machine."""
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        everything: dict[str, t.Any] = {name: {"hosts": dict(hosts)} for name, hosts in groups.items()}
        self.inventory.write_text(json.dumps({"all": {"vars": local, "children": everything}}))

    def run(
        self, *tasks: t.Mapping[str, t.Any], hosts: str = "hyper", options: t.Sequence[str] = (), **play: t.Any
    ) -> Told:
        """What the tasks have registered as `told`, by host; hosts that failed or were not reached included."""
        result = self.place / "told.json"
        result.unlink(missing_ok=True)
        text = (
            "{{ dict(everyone | zip(everyone | map('extract', hostvars) | map(attribute='told', default={}))) | "
            "to_json }}"
        )
        keep = {"keep": {"content": text, "dest": str(result)}}
        everyone = {"everyone": f"{{{{ query('inventory_hostnames', '{hosts}') }}}}"}
        last = {"hosts": "localhost", "gather_facts": False, "vars": everyone, "tasks": [keep]}
        main = {"hosts": hosts, "gather_facts": False, "tasks": list(tasks), **play}
        preloaded.link_actions(self.place)
        (self.place / "play.yml").write_text(json.dumps([main, last]))
        self._ansible("--inventory", str(self.inventory), *options)
        assert result.exists(), self.stdout
        return t.cast(Told, json.loads(result.read_text()))

    def ends(
        self, *tasks: t.Mapping[str, t.Any], hosts: str = "hyper", options: t.Sequence[str] = (), **play: t.Any
    ) -> int:
        """The exit code of a play that may fail; what it printed is in `stdout`."""
        main = {"hosts": hosts, "gather_facts": False, "tasks": list(tasks), **play}
        (self.place / "play.yml").write_text(json.dumps([main]))
        return self._ansible("--inventory", str(self.inventory), *options)

    def reads(self, tasks: t.Sequence[t.Mapping[str, t.Any]]) -> bool:
        """Whether Ansible can read the tasks, and knows what they call."""
        (self.place / "play.yml").write_text(json.dumps([{"hosts": "hyper", "tasks": list(tasks)}]))
        return self._ansible("--inventory", str(self.inventory), "--syntax-check") == 0

    def _ansible(self, *words: str) -> int:
        command = ["ansible-playbook", *words, str(self.place / "play.yml")]
        done = preloaded.run(
            command, cwd=self.place, env=defaults(ANSIBLE_LOCALHOST_WARNING="0"), timeout_s=300, given=None
        )
        self.stdout = done.stdout + done.stderr
        return done.returncode
