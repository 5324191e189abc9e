"""Asking many at once: who fails or hangs does so alone."""

from __future__ import annotations

import threading
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import Failed, Timeout
from ansible_collections.corral.virt.plugins.plugin_utils import _hypervisors


def test_each_for_itself() -> None:
    never, started = threading.Event(), time.monotonic()

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
    answers, failures = _hypervisors.ask(questions, concurrency=2, timeout_s=0.3)
    never.set()
    assert answers == {"good": "yes"}
    assert {name: type(error) for name, error in failures.items()} == {"hung1": Timeout, "hung2": Timeout, "bad": Failed}
    assert time.monotonic() - started < 2


def test_all_at_once() -> None:
    together = threading.Barrier(20, timeout=5)
    questions = {str(number): lambda _heard: together.wait() for number in range(20)}
    answers, _failures = _hypervisors.ask(questions, concurrency=20, timeout_s=10)
    assert len(answers) == 20


def test_who_goes_on_replying_is_not_given_up() -> None:
    def slow(heard: t.Callable[[], None]) -> str:
        for _reply in range(8):
            time.sleep(0.1)
            heard()
        return "all"

    answers, failures = _hypervisors.ask({"slow": slow}, concurrency=1, timeout_s=0.4)
    assert (answers, failures) == ({"slow": "all"}, {})


def test_nobody_is_given_up_because_this_process_is_slow() -> None:
    """While others reply, who waits for its turn is not silent; one that hangs is given up all the same."""
    never = threading.Event()

    def talks(heard: t.Callable[[], None]) -> str:
        for _reply in range(10):
            time.sleep(0.08)
            heard()
        return "all"

    def waits(_heard: t.Callable[[], None]) -> str:
        time.sleep(0.7)
        return "late"

    def hangs(_heard: t.Callable[[], None]) -> str:
        return str(never.wait())

    answers, failures = _hypervisors.ask({"talks": talks, "waits": waits, "hangs": hangs}, concurrency=3, timeout_s=0.3)
    never.set()
    assert answers == {"talks": "all", "waits": "late"}
    assert list(failures) == ["hangs"]


def test_reasons() -> None:
    assert _hypervisors.reason(Failed("closed")) == "closed"
    assert _hypervisors.reason(ValueError("bad port")) == "ValueError: bad port"
