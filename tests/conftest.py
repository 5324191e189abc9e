"""Seconds per test file and test: with CORRAL_TEST_TIMES=FILE, each run appends a JSON line for each test file to
FILE.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

SLOW_S = 1.0  # what takes less is not told for itself


class Times:
    """What each file's tests took: set-up, call and tear-down summed."""

    def __init__(self, report: Path) -> None:
        self.report = report
        self.seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))  # by file and test

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of one test; xdist passes on what its workers report."""
        name, _colons, test = report.nodeid.partition("::")
        self.seconds[name][test] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Append: several runs may share a report."""
        self.report.parent.mkdir(parents=True, exist_ok=True)
        rows = [_row(name, seconds) for name, seconds in self.seconds.items()]
        with self.report.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def _row(name: str, seconds: Mapping[str, float]) -> dict[str, object]:
    slow = sorted(((took, test) for test, took in seconds.items() if took >= SLOW_S), reverse=True)
    shown = {test: round(took, 1) for took, test in slow}
    return {"name": name, "seconds": round(sum(seconds.values()), 2), "tests": len(seconds), "slow": shown}


def pytest_configure(config: pytest.Config) -> None:
    """Measure once: where the reports of all workers arrive."""
    report = os.environ.get("CORRAL_TEST_TIMES")
    if report and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Times(Path(report)), "corral-test-times")
