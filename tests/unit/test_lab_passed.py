"""Which files of lab tests are run again."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.tools import passed

PLUGIN = "ansible_collections.corral.virt.tests.tools.lab_passed"
pytestmark = pytest.mark.slow
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "AGAIN"))}
FILES = {
    "tests/lab/test_a.py": "def test_one(): pass\ndef test_two(): pass\n",
    "tests/lab/test_b.py": "def test_three(): pass\n",
    "plugins/c.py": "",
    "tests/unit/test_d.py": "",
    ".gitignore": ".cache\n__pycache__\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Of two lab tests, with the plugin and what it builds on."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    tools = tmp_path / "tests/tools"
    tools.mkdir()
    for name in ("passed", "lab_passed"):
        shutil.copy(passed.ROOT / f"tests/tools/{name}.py", tools)
    virt = tmp_path / ".cache/ansible_collections/corral/virt"
    virt.parent.mkdir(parents=True)
    virt.symlink_to("../../..")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def ran(checkout: Path, *more: str, code: int = 0, **variables: str) -> set[str]:
    """Files that a run ran."""
    options = [
        "-v",
        "-c",
        "/dev/null",
        "--rootdir",
        str(checkout),
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "-p",
        PLUGIN,
    ]
    command = [sys.executable, "-m", "pytest", *options, *more, "tests/lab"]
    environment = {**ENVIRONMENT, **variables, "PYTHONPATH": str(checkout / ".cache")}
    done = subprocess.run(command, cwd=checkout, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return set(re.findall(r"test_\w+\.py(?=::)", done.stdout))


ALL = {"test_a.py", "test_b.py"}


@pytest.mark.parametrize(
    "more",
    [
        pytest.param([], id="alone"),
        pytest.param(["-n", "2", "--dist", "loadfile"], id="xdist", marks=pytest.mark.deep),
    ],
)
def test_what_passed_is_not_run_again(checkout: Path, more: list[str]) -> None:
    assert ran(checkout, *more) == ALL
    assert ran(checkout, *more) == set()
    (checkout / "tests/lab/test_a.py").write_text("def test_one(): pass\n")
    (checkout / "tests/unit/test_d.py").write_text("new = 1\n")
    assert ran(checkout, *more) == {"test_a.py"}
    (checkout / "plugins/c.py").write_text("new = 1\n")
    assert ran(checkout, *more) == ALL
    assert ran(checkout, *more, AGAIN="1") == ALL


def test_a_file_that_fails_or_was_not_run_whole_is_run_again(checkout: Path) -> None:
    (checkout / "tests/lab/test_a.py").write_text("def test_one(): pass\ndef test_two(): assert 0\n")
    assert ran(checkout, "-x", code=1) == {"test_a.py"}
    assert ran(checkout, code=1) == ALL
    assert ran(checkout, code=1) == {"test_a.py"}
    (checkout / "tests/lab/test_a.py").write_text("import os\ndef test_one(): pass\ndef test_two(): os._exit(1)\n")
    ran(checkout, code=1)
    (checkout / "tests/lab/test_a.py").write_text(
        "def test_one(): open('plugins/c.py', 'w').write('changed meanwhile')\n"
    )
    assert ran(checkout) == {"test_a.py"}
    assert ran(checkout) == ALL
