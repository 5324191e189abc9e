"""Repeat sanity, unit, golden and contract tests on every other Python of this machine.

From 3.11 on a Python runs the controller: it gets an environment of its own, with the ansible-core that
requirements-dev.txt pins for it. Older ones only run what is shipped to hosts: ansible-test compiles and imports
that with them, and runs the module-side tests.

Last come the oldest libraries that requirements.txt allows, under the oldest Python of a controller: newer ones have no
wheels of them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pythons

ROOT = Path(__file__).parents[2]
TOOLS = Path(__file__).parent
CONTROLLER, HOST = 11, 9  # the oldest 3.x for each


def controller(number: str, python: Path) -> list[tuple[str, list[str]]]:
    """What to run on a Python that can be a controller's."""
    venv = ROOT / ".cache/matrix" / number
    own = str(venv / "bin/python")
    return [
        ("venv", [str(python), str(TOOLS / "venv.py"), str(venv)]),
        ("sanity", [own, str(TOOLS / "offline_ansible_test.py"), "sanity", "--local", "--python", number]),
        ("units", [own, "-m", "pytest", "-q"]),
    ]


def host(number: str) -> list[tuple[str, list[str]]]:
    """What to run on a Python that only hosts have."""
    tested = [sys.executable, str(TOOLS / "offline_ansible_test.py")]
    own = f"origin:python=3.{sys.version_info.minor}"
    return [
        (
            "sanity",
            [
                *tested,
                "sanity",
                "--controller",
                own,
                "--target-python",
                number,
                "--test",
                "import",
                "--test",
                "compile",
            ],
        ),
        ("units", [*tested, "units", "--venv", "--python", number]),
    ]


def floors() -> list[str]:
    """The oldest libraries that requirements.txt allows, as pip takes them."""
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return [line.replace(">=", "==") for line in lines if line and not line.startswith("#")]


def oldest_libraries(python: Path) -> list[tuple[str, list[str]]]:
    """What to run with them; libvirt-python has no wheel in any version, so it takes no longer to build this one.

    pip tells that ansible-lint wants newer ones: no test runs that.
    """
    venv = ROOT / ".cache/matrix/floors"
    own = str(venv / "bin/python")
    return [
        ("venv", [str(python), str(TOOLS / "venv.py"), str(venv)]),
        ("venv", [own, "-m", "pip", "--disable-pip-version-check", "install", "-qq", *floors()]),
        ("floors", [own, "-m", "pytest", "-q"]),
    ]


def stages() -> list[tuple[str, str, list[str]]]:
    """Python, stage and command, in their order."""
    rows: list[tuple[str, str, list[str]]] = []
    pythons_here = pythons.found()
    for number, python in pythons_here.items():
        minor = int(number.split(".")[1])
        if minor >= HOST and minor != sys.version_info.minor:
            rows += [(number, *row) for row in (controller(number, python) if minor >= CONTROLLER else host(number))]
    oldest = f"3.{CONTROLLER}"
    if oldest in pythons_here:
        rows += [(oldest, *row) for row in oldest_libraries(pythons_here[oldest])]
    return rows


def main() -> int:
    """Run all, print a table, fail when anything failed."""
    rows: list[tuple[str, str, bool, float]] = []
    unmade = ""
    for number, stage, argv in stages():
        if number == unmade:
            continue
        print(f"\n== Python {number}: {stage}", flush=True)
        started = time.monotonic()
        ok = subprocess.run(argv, cwd=ROOT, check=False).returncode == 0
        rows.append((number, stage, ok, time.monotonic() - started))
        if stage == "venv" and not ok:
            unmade = number
    print()
    for number, stage, ok, seconds in rows:
        print(f"{'ok' if ok else 'FAILED':7} Python {number:5} {stage:7} {seconds:6.0f} s")
    return 0 if all(ok for _number, _stage, ok, _seconds in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
