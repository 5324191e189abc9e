"""How the action waits for jobs of guests in short calls, and what it tells meanwhile."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.corral.virt.plugins.action import virt_daemon
from ansible_collections.corral.virt.plugins.plugin_utils._report import terminal
from ansible_collections.corral.virt.plugins.plugin_utils._report.safe_results import UntrustedAction

BUSY = {
    "failed": True,
    "changed": False,
    "jobs": ["web: block job on vda"],
    "restart": "libvirtd.service",
    "steps": [],
    "msg": "Run again",
}
DONE = {"changed": True, "jobs": [], "restart": "libvirtd.service", "steps": ["restart libvirtd.service"], "diff": {}}


class Called:
    """The action on `hyper1`, whose module answers with these results; what it was asked, and what was shown."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *results: dict[str, t.Any], check_mode: bool = False) -> None:
        self.timeouts: list[int] = []
        self.shown: list[str] = []
        answers = iter(results)

        def module(_action: object, module_args: dict[str, t.Any], task_vars: object) -> dict[str, t.Any]:
            self.timeouts.append(module_args["restart_timeout"])
            return dict(next(answers))

        monkeypatch.setattr(UntrustedAction, "run", lambda *_arguments: {})
        monkeypatch.setattr(UntrustedAction, "_execute_module", module)
        monkeypatch.setattr(terminal, "say", self.shown.append)
        self.action = virt_daemon.ActionModule.__new__(virt_daemon.ActionModule)
        self.task = types.SimpleNamespace(args={}, check_mode=check_mode)
        self.action._task = self.task

    def __call__(self, **arguments: t.Any) -> dict[str, t.Any]:
        self.task.args = arguments
        return self.action.run(None, {"inventory_hostname": "hyper1"})


def test_without_jobs_one_call_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    called = Called(monkeypatch, DONE)
    assert called() == DONE
    assert called.timeouts == [0] and called.shown == []


def test_it_tells_what_it_waits_for_and_adds_up_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    wrote = {**BUSY, "changed": True, "steps": ["write a"], "diff": {"after": {"a": 1}}}
    called = Called(monkeypatch, wrote, BUSY, DONE)
    made = called(restart_timeout="25")
    assert (
        made["changed"]
        and made["steps"] == ["write a", "restart libvirtd.service"]
        and made["diff"] == {"after": {"a": 1}}
    )
    assert called.timeouts == [0, 10, 10]
    assert called.shown == ["hyper1: waiting up to 25 s for these jobs to end: web: block job on vda"] * 2


def test_it_ends_in_time_and_tells_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    called = Called(monkeypatch, BUSY)
    made = called(restart_timeout=0)
    assert made["failed"] and made["msg"] == "Run again: ansible-playbook corral.virt.site --limit hyper1"
    assert called.timeouts == [0] and called.shown == []


def test_check_mode_tells_of_the_restart_and_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    predicted = {**DONE, "jobs": BUSY["jobs"]}
    called = Called(monkeypatch, predicted, check_mode=True)
    assert called() == predicted
    assert called.shown == ["hyper1: would restart libvirtd.service after these jobs end: web: block job on vda"]


def test_a_failure_of_another_kind_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    called = Called(monkeypatch, {"failed": True, "msg": "no systemd"})
    assert called(restart_timeout=100) == {"failed": True, "msg": "no systemd"}
    with pytest.raises(AnsibleActionFail, match="restart_timeout: 'soon'"):
        called(restart_timeout="soon")
