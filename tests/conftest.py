"""Seconds per test file: with CORRAL_TEST_TIMES=FILE, each run appends a JSON line for each test file to FILE."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest


class Times:
    """What each file's tests took: set-up, call and tear-down summed."""

    def __init__(self, report: Path) -> None:
        self.report = report
        self.seconds: dict[str, float] = defaultdict(float)
        self.tests: dict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of one test; xdist passes on what its workers report."""
        name = report.nodeid.split("::", 1)[0]
        self.seconds[name] += report.duration
        self.tests[name].add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Append: several runs may share a report."""
        self.report.parent.mkdir(parents=True, exist_ok=True)
        rows = [{"name": name, "seconds": round(self.seconds[name], 2), "tests": len(self.tests[name])} for name in self.seconds]
        with self.report.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def pytest_configure(config: pytest.Config) -> None:
    """Measure once: where the reports of all workers arrive."""
    report = os.environ.get("CORRAL_TEST_TIMES")
    if report and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Times(Path(report)), "corral-test-times")
