"""A command in a fork of a process that has loaded Ansible does what it does in a process of its own."""

from __future__ import annotations

import json
import subprocess
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.contract.play import defaults
from ansible_collections.corral.virt.tests.tools import preloaded

pytestmark = [pytest.mark.slow, pytest.mark.deep]  # of a tool of the tests

SHOW = {
    "ansible.builtin.debug": {
        "msg": "{{ lookup('pipe', 'pwd') }} {{ lookup('env', 'GREETING') }} {{ lookup('config', 'DEFAULT_LOCAL_TMP') "
        "is string }}"
    }
}


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[None]:
    """As if no command had been run yet."""
    monkeypatch.setattr(preloaded, "_SEEN", set())
    monkeypatch.setattr(preloaded, "_SERVERS", {})
    yield
    preloaded._end_all()


def play(folder: Path, *tasks: t.Any, timeout_s: float = 60, **env: str) -> subprocess.CompletedProcess[str]:
    (folder / "play.yml").write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    env = defaults(HOME=str(folder), ANSIBLE_LOCALHOST_WARNING="0", **env)
    return preloaded.run(["ansible-playbook", "play.yml"], cwd=folder, env=env, timeout_s=timeout_s, given=None)


def test_all_commands_of_an_environment_say_the_same(tmp_path: Path) -> None:
    output = [play(tmp_path, SHOW, GREETING="hello") for _command in range(3)]
    assert len(preloaded._SERVERS) == 1
    assert len({(done.returncode, done.stdout, done.stderr) for done in output}) == 1
    assert output[0].returncode == 0 and f"{tmp_path} hello True" in output[0].stdout
    failed = [
        play(tmp_path, {"ansible.builtin.fail": {"msg": "no"}}, GREETING=greeting) for greeting in ("hello", "other")
    ]
    assert [done.returncode for done in failed] == [2, 2] and failed[0].stdout == failed[1].stdout
    assert not [*(tmp_path / ".ansible/tmp").glob("*-*-*-*")], "what it had of its own goes with it"


def test_another_environment_or_configuration_counts(tmp_path: Path) -> None:
    config = tmp_path / "ansible.cfg"
    for callback in ("default", "minimal"):
        config.write_text(f"[defaults]\nstdout_callback = ansible.builtin.{callback}\n")
        for greeting in ("hello", "bye"):
            for _again in range(2):
                printed = play(tmp_path, SHOW, GREETING=greeting, ANSIBLE_CONFIG=str(config)).stdout
                assert f"{tmp_path} {greeting} True" in printed
                assert ("PLAY RECAP" in printed) == (callback == "default")
    assert len(preloaded._SERVERS) == preloaded.AT_ONCE


def test_two_commands_share_no_numbers(tmp_path: Path) -> None:
    """Ansible numbers tasks by what it drew when it was loaded."""
    config = tmp_path / "callback_plugins"
    config.mkdir()
    (config / "numbers.py").write_text(
        "from ansible.plugins.callback import CallbackBase\n"
        "class CallbackModule(CallbackBase):\n"
        "    CALLBACK_NAME = 'numbers'\n"
        "    def v2_playbook_on_task_start(self, task, is_conditional):\n"
        "        print('NUMBER', task._uuid)\n"
    )
    output = [play(tmp_path, SHOW).stdout.partition("NUMBER ")[2].split()[0] for _command in range(3)]
    assert len(preloaded._SERVERS) == 1 and len(set(output)) == 3


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    play(tmp_path, SHOW)
    assert play(tmp_path, SHOW).returncode == 0
    with pytest.raises(subprocess.TimeoutExpired):
        play(tmp_path, {"ansible.builtin.pause": {"seconds": 60}}, timeout_s=2)
    assert play(tmp_path, SHOW).returncode == 0
