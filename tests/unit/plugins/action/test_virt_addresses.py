"""What the action says while the host waits for guests that boot."""

from __future__ import annotations

import time
import types
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.action.virt_addresses import ActionModule
from ansible_collections.corral.virt.plugins.plugin_utils._report import terminal, waiting
from ansible_collections.corral.virt.plugins.plugin_utils._report.safe_results import UntrustedAction

LINE = "h1: waiting for web1, web2 to have an address, at most {} s of CPU; 0 s so far"


class Action(ActionModule):
    """Of a task with these arguments."""

    def __init__(self, args: dict[str, t.Any]) -> None:
        self._task = types.SimpleNamespace(args=args)


@pytest.mark.parametrize(
    ("args", "first"),
    [
        ({"names": ["web1", "web2"], "boots": True, "wait_timeout": 9}, LINE.format(9)),
        ({"names": ["web1", "web2"], "boots": "yes"}, LINE.format(3)),
        ({"names": ["web1", "web2"], "boots": False}, None),
        ({"names": ["web1", "web2"]}, None),
        ({"names": "web1", "boots": True}, None),  # refused by the module
        ({"boots": True}, None),
    ],
)
def test_guests_that_boot_are_named_while_they_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, args: dict[str, t.Any], first: str | None
) -> None:
    shown: list[str] = []

    def module(*_args: t.Any) -> dict[str, t.Any]:
        """It takes its time."""
        limit = time.monotonic() + 5
        while len(shown) < 2 and time.monotonic() < (limit if first else limit - 4.9):
            time.sleep(0.01)
        return {"changed": False}

    monkeypatch.setattr(UntrustedAction, "run", module)
    monkeypatch.setattr(waiting, "_EVERY_S", 0.02)
    monkeypatch.setattr(terminal, "say", shown.append)
    assert Action(args).run(None, {"inventory_hostname": "h1"}) == {"changed": False}
    assert (shown[:1] == [first] and len(shown) >= 2) if first else shown == []
