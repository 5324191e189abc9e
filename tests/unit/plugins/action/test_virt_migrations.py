"""What is told of migrations while they are made, and of those that are ended."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.action import virt_migrate, virt_migrations
from ansible_collections.corral.virt.plugins.plugin_utils._report import terminal

ENDED = {"name": "web1", "dest": "h2", "changed": True, "steps": ["remove the record from web1"], "notes": ["left: /a"]}


@pytest.mark.parametrize(
    ("state", "told"),
    [("aborted", ["h1: web1: remove the record from web1", "h1: web1: left: /a"]), ("present", ["h1: web1 is on h2"])],
)
def test_what_an_end_leaves_is_told(state: str, told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    results = [{**ENDED, "mode": "offline"}, {"name": "b", "dest": "h2", "changed": False, "failed": True}]
    monkeypatch.setattr(virt_migrate.ActionModule, "run", lambda *_told: {"results": results})
    monkeypatch.setattr(terminal, "say", said.append)
    action = virt_migrations.ActionModule.__new__(virt_migrations.ActionModule)
    task = types.SimpleNamespace(args={"options": {"state": state}}, check_mode=False)
    action._task = t.cast(t.Any, task)
    action.run(None, {"inventory_hostname": "h1"})
    assert said == told
