"""What is shown while a host waits for guests."""

from __future__ import annotations

import time
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils._report import terminal, waiting

WEB: dict[str, t.Any] = {"name": "web1", "state": "shutdown"}
BOOT = {"name": "b", "state": "rebooted"}


@pytest.mark.parametrize(
    ("guests", "text"),
    [
        ([WEB], "h1: waiting for web1 to shut down, at most 300 s"),
        ([{**WEB, "wait_timeout": "60"}], "h1: waiting for web1 to shut down, at most 60 s"),
        (
            [{**WEB, "wait_timeout": "x"}, BOOT],
            "h1: waiting for web1, b to shut down or reboot, at most 300 s",
        ),
        (
            [{**WEB, "name": f"g{n}"} for n in range(7)],
            "h1: waiting for g0, g1, g2, g3, g4 and 2 more to shut down, at most 300 s",
        ),
        ([{**WEB, "name": "\x1b"}], "h1: waiting for \\x1b to shut down, at most 300 s"),
        ([{**WEB, "wait": False}], None),
        (
            [{"name": "a", "state": "running", "wait_for_ip": "any"}],
            "h1: waiting for a to have an address, at most 300 s of CPU",
        ),
        (
            [{**BOOT, "wait_for_ip": "lease", "wait_timeout": 9}],
            "h1: waiting for b to reboot or have an address, at most 9 s of CPU",
        ),
        ([{"name": "a", "state": "present", "wait_for_ip": "any"}], None),
        ([{"name": "a", "state": "running"}, {"name": "b"}, "c"], None),
        (
            [{"name": "a", "state": "running", "wait_for_ip": "unknown"}],
            "h1: waiting for a to have an address, at most 300 s of CPU",
        ),
        ([{"name": "a", "state": "running", "wait_for_ip": "none"}, {"name": "b", "wait_for_ip": "any"}], None),
        (
            [WEB, {**BOOT, "wait_for_ip": "agent"}],
            "h1: waiting for web1, b to shut down or reboot or have an address, at most 300 s of CPU",
        ),
    ],
)
def test_what_is_waited_for(guests: list[t.Any], text: str | None) -> None:
    assert waiting.waits("h1", guests) == text


def test_a_line_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(waiting, "_EVERY_S", 0.05)
    monkeypatch.setattr(terminal, "say", shown.append)
    with waiting.lines("waiting"):
        time.sleep(0.2)
    count = len(shown)
    assert count >= 2 and shown[0] == "waiting; 0 s so far"
    with waiting.lines(None):
        time.sleep(0.1)
    assert len(shown) == count, "nothing after the end, and nothing without a text"
