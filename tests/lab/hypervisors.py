"""A lab made hypervisors by the collection's own roles, and the ways a user has to it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["IMAGES", "Hypervisors", "hypervisors", "until"]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
IMAGES = "/var/lib/libvirt/images"
COMMAND_S = 400


@dataclasses.dataclass(frozen=True)
class Hypervisors:
    """Commands run as a user of the lab would run them; each fails the test when it ends badly, or (`ok=False`) when it does not."""

    name: str

    @property
    def folder(self) -> Path:
        """What the lab tells its users: inventory, ssh_config, ansible.cfg."""
        return ROOT / "build/lab" / self.name

    @property
    def environment(self) -> dict[str, str]:
        """For Ansible."""
        return {**os.environ, "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}

    @property
    def gateway(self) -> str:
        """This machine's address as the hosts see it."""
        return t.cast(str, json.loads(self.run("ansible-inventory", "--host", "hyper1"))["virt_lab_gateway"])

    def run(self, *command: str | Path, ok: bool = True, timeout_s: int = COMMAND_S, given: str | None = None) -> str:
        """What a command printed."""
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment, check=False, capture_output=True, text=True, timeout=timeout_s, input=given
        )
        text = done.stdout + done.stderr
        assert (done.returncode == 0) == ok, f"{command} ended with {done.returncode}:\n{text[-6000:]}"
        return done.stdout if ok else text

    def start(self, *command: str | Path) -> subprocess.Popen[str]:
        """A command in the background, in a process group of its own."""
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def on(self, host: str, command: str, *, ok: bool = True, given: str | None = None) -> str:
        """A shell command on a host."""
        return self.run("ssh", "-F", self.folder / "ssh_config", host, command, ok=ok, given=given)

    def tell(self, *tasks: dict[str, t.Any], hosts: str = "hyper", check: bool = False) -> dict[str, t.Any]:
        """Run tasks; what they registered as `told`, by host."""
        book = self.folder / "book.json"
        dest = f"{self.folder}/told-{{{{ inventory_hostname }}}}"
        told = {"content": "{{ told | ansible.builtin.to_json }}", "dest": dest, "mode": "0600"}
        copy = {"ansible.builtin.copy": told, "delegate_to": "localhost", "check_mode": False}
        for old in self.folder.glob("told-*"):
            old.unlink()
        book.write_text(json.dumps([{"hosts": hosts, "gather_facts": False, "tasks": [*tasks, copy]}]))
        self.run("ansible-playbook", book, *(["--check"] if check else []))
        return {path.name.removeprefix("told-"): json.loads(path.read_text()) for path in self.folder.glob("told-*")}


@contextlib.contextmanager
def hypervisors(name: str, *roles: str, hosts: int = 1, image: bool = False) -> Iterator[Hypervisors]:
    """A lab for the length of a `with` block. For work on tests: CORRAL_LAB_KEPT=name uses one that is up, and keeps it."""
    lab = Hypervisors(name)
    kept = os.environ.get("CORRAL_LAB_KEPT") == name
    if not kept:
        lab_py, arguments = HERE / "lab.py", [] if image else ["--no-image"]
        lab.run(sys.executable, lab_py, "down", "--name", name)
        lab.run(sys.executable, lab_py, "up", "--name", name, "--hosts", str(hosts), *arguments, timeout_s=900)
        lab.run(sys.executable, HERE / "demo.py", "config", "--name", name)
        book = lab.folder / "hypervisors.json"
        book.write_text(json.dumps([{"hosts": "hyper", "roles": [f"corral.virt.{role}" for role in roles]}]))
        lab.run("ansible-playbook", book, timeout_s=600)
    try:
        yield lab
    finally:
        if not kept:
            lab.run(sys.executable, HERE / "lab.py", "down", "--name", name)


def until(condition: Callable[[], object], timeout_s: float = 30) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)
