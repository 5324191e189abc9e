"""A plugin of pytest: files of lab tests that passed with this very checkout are not run again (`-p
ansible_collections...lab_passed`).

A lab test may depend on all of the checkout, but not on other tests; and on the month, as certificates grow old. What
passed is kept in the checkout, so a new one runs everything, as `AGAIN=1` does; `make clean` forgets it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.tools import passed

TESTS = ("tests/unit", "tests/golden", "tests/contract", "tests/lab/test_*.py")
NO_MATTER = ("changelogs", "CHANGELOG.rst", ".github")


@functools.cache
def _common() -> str:
    files = passed.hashes(passed.tracked(".", *(f":(exclude){each}" for each in (*TESTS, *NO_MATTER))))
    return hashlib.sha256(json.dumps(files).encode()).hexdigest() if files else ""


def _content(path: Path) -> dict[str, str]:
    """Of a test and all that it may depend on; empty where nobody knows."""
    own = passed.ROOT / path.resolve().relative_to(passed.ROOT.resolve())
    return {"common": _common(), **passed.hashes([own])} if _common() else {}


def _check(path: Path) -> passed.Check:
    return passed.Check(f"lab-{path.stem}", [time.strftime("%Y-%m"), platform.release()])


class Passed:
    """Leaves files out, and notes which ones have passed whole."""

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self.due: dict[Path, set[str]] = {}  # tests by their file
        self.good: set[str] = set()
        self.bad: set[str] = set()
        self.before: dict[Path, dict[str, str]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Workers of one run find the same: notes are written at its end."""
        files = {item.path for item in items}
        known = {path for path in files if (content := _content(path)) and _check(path).passed() == content}
        self.left_out = sorted(path.name for path in known)
        if hasattr(config, "workeroutput"):
            config.workeroutput["left_out"] = self.left_out
        config.hook.pytest_deselected(items=[item for item in items if item.path in known])
        items[:] = [item for item in items if item.path not in known]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without workers, all that will run."""
        self._collected(session.config.rootpath, [item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: t.Any, ids: t.Sequence[str]) -> None:
        """With workers, the same; each has found it."""
        self._collected(node.config.rootpath, ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: t.Any) -> None:
        """A worker's end: what it left out, as the others did."""
        self.left_out = getattr(node, "workeroutput", {}).get("left_out", self.left_out)

    def _collected(self, root: Path, ids: t.Iterable[str]) -> None:
        for nodeid in ids:
            path = (root / nodeid.partition("::")[0]).resolve()
            self.due.setdefault(path, set()).add(nodeid)
            self.before.setdefault(path, _content(path))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of a test; xdist passes on what its workers report."""
        (self.bad if report.failed else self.good).add(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Note files of which every test ended well, unless something has changed meanwhile.

        That nothing was left to run is no failure.
        """
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.left_out:
            session.exitstatus = pytest.ExitCode.OK
        _common.cache_clear()
        for path, tests in self.due.items():
            content = _content(path)
            if (
                not hasattr(session.config, "workerinput")
                and content
                and tests <= self.good - self.bad
                and content == self.before[path]
            ):
                _check(path).note(content)

    def pytest_terminal_summary(self, terminalreporter: t.Any) -> None:
        """What was left out."""
        if self.left_out:
            text = f"passed before with the same checkout, not run again (AGAIN=1 does): {', '.join(self.left_out)}"
            terminalreporter.write_line(text)


def pytest_configure(config: pytest.Config) -> None:
    """For whole runs only: of one test nobody asks whether it has passed."""
    if not os.environ.get("AGAIN"):
        config.pluginmanager.register(Passed(), "corral-lab-passed")
