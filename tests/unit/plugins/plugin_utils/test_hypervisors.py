"""Asking many at once: who fails or hangs does so alone."""

from __future__ import annotations

import threading
import time
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._errors import Failed, Timeout
from ansible_collections.corral.virt.plugins.plugin_utils import _hypervisors


def test_each_for_itself() -> None:
    never = threading.Event()

    def fail(_heard: t.Callable[[], None]) -> str:
        raise Failed("closed")

    def hang(_heard: t.Callable[[], None]) -> str:
        return str(never.wait())

    questions: dict[str, t.Callable[[t.Callable[[], None]], str]] = {
        "hung1": hang,
        "hung2": hang,
        "bad": fail,
        "good": lambda _heard: "yes",
    }
    answers, failures = _hypervisors.ask(questions, concurrency=2, timeout_s=1)
    never.set()
    assert answers == {"good": "yes"}
    assert {name: type(error) for name, error in failures.items()} == {"hung1": Timeout, "hung2": Timeout, "bad": Failed}


def test_all_at_once() -> None:
    together = threading.Barrier(20, timeout=30)
    questions = {str(number): lambda _heard: together.wait() for number in range(20)}
    answers, _failures = _hypervisors.ask(questions, concurrency=20, timeout_s=60)
    assert len(answers) == 20


def test_who_goes_on_replying_is_not_given_up() -> None:
    def slow(heard: t.Callable[[], None]) -> str:
        for _reply in range(4):
            time.sleep(0.5)
            heard()
        return "all"

    answers, failures = _hypervisors.ask({"slow": slow}, concurrency=1, timeout_s=1.5)
    assert (answers, failures) == ({"slow": "all"}, {})


@pytest.mark.parametrize(
    ("now", "talks", "given_up"),
    [
        (10.9, 10, set()),
        (11.0, 10, {"waits", "talks"}),
        (11.0, 10.6, set()),
        (13.9, 13.5, set()),
        (13.9, 13.4, {"waits"}),
        (14.0, 13.6, {"waits"}),
    ],
    ids=["in time", "all silent", "one talks", "busy for long", "no longer busy", "busy for too long"],
)
def test_nobody_is_given_up_because_this_process_is_slow(now: float, talks: float, given_up: set[str]) -> None:
    """While others reply, who waits for its turn is not silent; one that hangs is given up all the same."""
    assert _hypervisors.silent({"waits", "talks"}, {"waits": 10, "talks": talks, "ended": 3}, now, timeout_s=1) == given_up


def test_reasons() -> None:
    assert _hypervisors.reason(Failed("closed")) == "closed"
    assert _hypervisors.reason(ValueError("bad port")) == "ValueError: bad port"
