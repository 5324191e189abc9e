"""What `make test` makes of the times that test runs left."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.tools import payload, stages

TESTS = """
import time
import pytest

@pytest.fixture
def slow():
    time.sleep(0.2)
    yield
    time.sleep(0.2)

def test_slow(slow):
    time.sleep(0.6)

@pytest.mark.parametrize("number", range(3))
def test_many(number):
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [pytest.param([], id="alone"), pytest.param(["-n", "2"], id="xdist", marks=pytest.mark.deep)]
)
def test_a_run_tells_what_each_file_took(tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "conftest.py").write_text((payload.ROOT / "tests/conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(TESTS)
    report = tmp_path / "report/times"
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    for _run in range(2):
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-c",
            "/dev/null",
            "--rootdir",
            str(tmp_path),
            *more,
            str(tmp_path),
        ]
        subprocess.run(command, env={**env, "CORRAL_TEST_TIMES": str(report)}, check=True, capture_output=True)
    (row,) = stages.files(report.read_text().splitlines())
    assert (row["name"], row["tests"]) == ("test_it.py", 8)
    assert row["seconds"] >= 2
    assert row["slow"]["test_slow"] >= 1, "set-up and tear-down are its own"


def test_files_of_several_runs_are_one_row_the_slowest_first() -> None:
    rows = [("a.py", 1.5, 2), ("b.py", 4, 1), ("a.py", 3, 1)]
    lines = [
        json.dumps({"name": name, "seconds": seconds, "tests": tests, "slow": {f"test_{tests}": 1.0}})
        for name, seconds, tests in rows
    ]
    result = stages.files(lines)
    assert result == [
        {"name": "a.py", "seconds": 4.5, "tests": 3, "slow": {"test_2": 1.0, "test_1": 1.0}},
        {"name": "b.py", "seconds": 4, "tests": 1, "slow": {"test_1": 1.0}},
    ]
    shown = stages.table(
        [{"name": "units", "ok": False, "seconds": 8.25, "processor_s": 5.0, "files": result}]
    ).splitlines()
    assert [line.split() for line in shown] == [
        ["FAILED", "units", "8.2", "s,", "5.0", "of", "processors"],
        ["4.5", "s", "a.py", "(3", "tests)"],
        ["4.0", "s", "b.py", "(1", "tests)"],
    ]


def test_make_finds_each_file_with_deep_tests() -> None:
    recipe = subprocess.run(
        ["make", "-n", "deep-units"], cwd=payload.ROOT, check=True, capture_output=True, text=True
    ).stdout
    folders = (payload.ROOT / "tests" / name for name in ("unit", "golden", "contract"))
    texts = {path: path.read_text() for folder in folders for path in folder.rglob("test_*.py")}
    deep = {path for path, text in texts.items() if re.search(r"\bmark\.deep\b|\bplay import .*\bdeep\b", text)}
    assert {str(path.relative_to(payload.ROOT)) for path in deep if path != Path(__file__)} - {*recipe.split()} == set()
