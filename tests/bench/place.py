"""Where benches run: a lab of their own, its hosts made hypervisors by the collection's roles, and commands with
their seconds.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache/bench"
BUILD = ROOT / "build/bench"
STARTED = time.monotonic()
NAME = "bench"
LAB_BUILD = ROOT / "build/lab" / NAME
COMMAND_TIMEOUT_S = 600
# Up to five measurements, as many as begin in this time.
REPEATS, ENOUGH_S = 5, 10.0
# The same for all who speak through Ansible.
SETTINGS = f"""\
[defaults]
inventory = {LAB_BUILD}/inventory/hosts.yml
collections_path = {ROOT}/.cache:{CACHE}/collections
retry_files_enabled = false
forks = 8

[ssh_connection]
pipelining = true
"""
# As Ansible does it: one connection, kept.
SSH = ("ssh", "-F", str(LAB_BUILD / "ssh_config"), "-o", "ControlMaster=auto", "-o", "ControlPersist=60s")


class Failed(Exception):
    """A command ended badly; its text says how."""

    def reason(self) -> str:
        """The last line that looks like an error's."""
        text = str(self)
        return (re.findall(r"^(?:\[ERROR\]|ERROR|\S*Error): .*", text, re.MULTILINE) or text.splitlines())[-1]


@dataclasses.dataclass(frozen=True)
class Ran:
    """A command that ran well."""

    output: str
    seconds: float


def run(*command: str | Path, given: str | None = None) -> Ran:
    """Run a command to its end and time it."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "PYTHON"))}
    environment = {**kept, "ANSIBLE_CONFIG": str(BUILD / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    argv = [str(word) for word in command]
    BUILD.mkdir(parents=True, exist_ok=True)  # others use these peers, too, before any bench has run
    started = time.monotonic()
    try:
        done = subprocess.run(
            argv,
            cwd=BUILD,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"`{' '.join(argv)}` was still running after {COMMAND_TIMEOUT_S} s") from None
    seconds = time.monotonic() - started
    if done.returncode:
        raise Failed(f"`{' '.join(argv)}` ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return Ran(done.stdout, seconds)


def on(host: str, command: str, *, given: str | None = None) -> Ran:
    """Run a shell command on a host of the lab."""
    return run(*SSH, "-o", f"ControlPath=/run/corral-{NAME}-%C", "--", host, command, given=given)


def medians(*measured: t.Callable[[], float]) -> list[float]:
    """The median of each, measured in turns, so that a busy moment of the machine meets all of them."""
    turns: list[list[float]] = []
    started = time.monotonic()
    while len(turns) < REPEATS and (not turns or time.monotonic() - started < ENOUGH_S):
        turns.append([each() for each in measured])
    return [statistics.median(column) for column in zip(*turns, strict=True)]


def up(hosts: int, *, image: bool) -> None:
    """Have bare hosts, whatever an earlier run left."""
    down()
    _lab("up", "--hosts", str(hosts), "--image" if image else "--no-image")


def prepare() -> None:
    """Have the directory that commands run in, with nothing of an earlier run."""
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    (BUILD / "ansible.cfg").write_text(SETTINGS)


def hypervisors(roles: t.Iterable[str]) -> None:
    """Make the hosts hypervisors by these roles of the collection."""
    playbook = BUILD / "hypervisors.json"
    playbook.write_text(json.dumps([{"hosts": "hyper", "roles": [f"corral.virt.{role}" for role in roles]}]))
    run("ansible-playbook", playbook)


def undefine_all() -> None:
    """Have no guest on the first host."""
    on("hyper1", "virsh -q list --all --name | sed -n 's/^..*/undefine & --nvram/p' | virsh")


def down() -> None:
    """Remove the lab."""
    _lab("down")


def say(text: str) -> None:
    """Tell what happens, with the seconds since the start."""
    print(f"{time.monotonic() - STARTED:6.1f} s  {text}", flush=True)


def _lab(command: str, *arguments: str) -> None:
    done = subprocess.run([sys.executable, ROOT / "tests/lab/lab.py", command, "--name", NAME, *arguments], check=False)
    if done.returncode:
        raise Failed(f"lab.py {command} ended with {done.returncode}")
