"""A module that goes on without whoever began it: judged by flock, ps and signals."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AT_WORK = 75
MODULE = """
import os
import sys
import time
from ansible_collections.corral.virt.plugins.module_utils._system import private
from ansible_collections.corral.virt.plugins.module_utils._system.detached import detach
private.place = lambda: sys.argv[2]
detach("virt_long_named")
print("works", file=sys.stderr)
open(sys.argv[1]).read()  # a pipe: until somebody opens it for writing
print('{"changed": true}')
class Stuck:
    def __del__(self, sleep=time.sleep):
        sleep(30)
stuck = Stuck() if "STUCK" in os.environ else None
"""


@pytest.fixture
def go(tmp_path: Path) -> Iterator[Path]:
    """What the module waits for; in the end nobody waits any more."""
    os.mkfifo(tmp_path / "go")
    yield tmp_path / "go"
    with contextlib.suppress(OSError):
        os.close(os.open(tmp_path / "go", os.O_WRONLY | os.O_NONBLOCK))


def begin(go: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Start the module, and have what whoever started it is told."""
    known = {**os.environ, "PYTHONPATH": str(ROOT / ".cache")}
    command = [sys.executable, "-c", MODULE, str(go), str(go.parent / "private")]
    return subprocess.run(
        command, env={**known, **environment}, capture_output=True, text=True, check=False, timeout=1200
    )


def has_open(process: Path, path: str) -> bool:
    """Whether a process, by its place in /proc, has a file open; nobody may ask that of some."""
    with contextlib.suppress(OSError):
        return path in [str(link.readlink()) for link in process.glob("fd/*")]
    return False


def detached(go: Path, **environment: str) -> tuple[str, int]:
    """The answer's file and the process that will write it."""
    answer = json.loads(begin(go, CORRAL_DETACHED="1", **environment).stdout)["answer"]
    pids = {pid for pid in Path("/proc").glob("[0-9]*") if has_open(pid, answer)}
    assert len(pids) == 1
    return answer, int(pids.pop().name)


def wait(answer: str, seconds: float) -> subprocess.CompletedProcess[str]:
    """As the action does it."""
    command = ["flock", "-w", str(seconds), "-E", str(AT_WORK), answer, "cat", answer]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_works_alone_until_its_answer_is_there(go: Path) -> None:
    answer, pid = detached(go)
    assert os.getsid(pid) == pid, "no terminal and no connection ends it"
    assert Path(f"/proc/{pid}/comm").read_text() == "virt_long_named\n"
    assert wait(answer, 0.1).returncode == AT_WORK
    assert Path(answer).stat().st_mode & 0o077 == 0
    go.write_text("")
    ended = wait(answer, 60)
    assert (ended.returncode, ended.stdout) == (0, 'works\n{"changed": true}\n')


def test_what_hangs_at_the_end_of_the_interpreter_delays_no_answer(go: Path) -> None:
    answer, _pid = detached(go, STUCK="1")
    go.write_text("")
    assert wait(answer, 10).stdout == 'works\n{"changed": true}\n'


def test_its_death_is_known_at_once(go: Path) -> None:
    answer, pid = detached(go)
    os.kill(pid, signal.SIGKILL)
    assert wait(answer, 60).stdout == "works\n"


def test_the_end_of_its_terminal_does_not_end_it(go: Path) -> None:
    """As over SSH without pipelining: the shell that leads the session ends, and the kernel hangs up on all that
    share its terminal.
    """
    module = shlex.join([sys.executable, "-c", MODULE, str(go), str(go.parent / "private")])
    known = {**os.environ, "PYTHONPATH": str(ROOT / ".cache"), "CORRAL_DETACHED": "1"}
    command = ["script", "--quiet", "--return", "--command", f"{module}; true", "/dev/null"]
    result = subprocess.run(command, env=known, capture_output=True, text=True, check=True, timeout=1200).stdout
    assert wait(json.loads(result)["answer"], 0.5).returncode == AT_WORK


def test_who_did_not_ask_waits(go: Path) -> None:
    with subprocess.Popen(["sh", "-c", f"echo > {go}"]):
        ended = begin(go)
    assert (ended.stdout, ended.stderr) == ('{"changed": true}\n', "works\n")
    assert list(go.parent.iterdir()) == [go]


def test_no_place_for_the_answer_is_said_before_it_begins(go: Path) -> None:
    command = [sys.executable, "-c", MODULE, str(go), "/proc/self/nowhere/private"]
    known = {**os.environ, "PYTHONPATH": str(ROOT / ".cache"), "CORRAL_DETACHED": "1"}
    output = subprocess.run(command, env=known, capture_output=True, text=True, check=False).stderr
    assert "Failed: cannot start virt_long_named: cannot create a file for its answer" in output
