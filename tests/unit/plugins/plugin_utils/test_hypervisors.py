"""Asking many at once: who fails or hangs does so alone."""

from __future__ import annotations

import threading
import time

from ansible_collections.corral.virt.plugins.module_utils._errors import Failed, Timeout
from ansible_collections.corral.virt.plugins.plugin_utils import _hypervisors


def test_each_for_itself() -> None:
    never, started = threading.Event(), time.monotonic()

    def fail() -> str:
        raise Failed("closed")

    questions = {"hung1": lambda: str(never.wait()), "hung2": lambda: str(never.wait()), "bad": fail, "good": lambda: "yes"}
    answers, failures = _hypervisors.ask(questions, concurrency=2, timeout_s=0.3)
    never.set()
    assert answers == {"good": "yes"}
    assert {name: type(error) for name, error in failures.items()} == {"hung1": Timeout, "hung2": Timeout, "bad": Failed}
    assert time.monotonic() - started < 2


def test_all_at_once() -> None:
    together = threading.Barrier(20, timeout=5)
    answers, _failures = _hypervisors.ask({str(number): together.wait for number in range(20)}, concurrency=20, timeout_s=10)
    assert len(answers) == 20


def test_reasons() -> None:
    assert _hypervisors.reason(Failed("closed")) == "closed"
    assert _hypervisors.reason(ValueError("bad port")) == "ValueError: bad port"
