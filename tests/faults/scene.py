"""One case on its way: a guest, two ends, a run of the playbook, and what has to be undone afterwards."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import typing as t

from ansible_collections.corral.virt.tests.faults.guest import Guest
from ansible_collections.corral.virt.tests.faults.hosts import Host, until
from ansible_collections.corral.virt.tests.faults.phases import Phase
from ansible_collections.corral.virt.tests.lab.hypervisors import Hypervisors

__all__ = ["Run", "Scene"]

RUN_S = 240  # a run that has not ended by then does not end by itself
LINK = "host0"
RATE = "40mbit"  # memory then takes seven seconds


class Run:
    """A run of playbook `migrate` in the background, in a process group of its own."""

    def __init__(self, lab: Hypervisors, guest: str, to: str, options: t.Mapping[str, t.Any]) -> None:
        arguments = json.dumps({"guest": guest, "to": to, **options})
        inventory = lab.folder / "inventory/hosts.yml"  # it needs no look at the guests
        self._process = lab.start("ansible-playbook", "-i", inventory, "corral.virt.migrate", "-v", "-e", arguments)
        self.output, self.hung = "", False

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self._process.poll() is not None

    def signal(self, number: int) -> None:
        """To all of it, as a terminal does it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def stop(self) -> None:
        """Where the case was given up."""
        if not self.ended:
            self.signal(signal.SIGKILL)
            self._process.wait()

    def wait(self) -> bool:
        """Its end; whether it ended well. One that does not end by itself is killed."""
        try:
            self.output, _none = self._process.communicate(timeout=RUN_S)
        except subprocess.TimeoutExpired:
            self.hung = True
            self.signal(signal.SIGKILL)
            self.output = self._process.communicate()[0]
        return self._process.returncode == 0

    def reason(self) -> str:
        """What it said at the end that it failed."""
        text = re.sub(r"\s+", " ", re.sub(r"\nPLAY RECAP.*", "", self.output, flags=re.DOTALL))
        told = re.findall(r"(?:\[ERROR\]: .*?: |msg: )((?:[Cc]annot|the module) .*?)(?= Origin: | msg: |$)", text)
        return str((told or [text[-200:]])[-1]).strip('" |-')[:400]


@dataclasses.dataclass
class Scene:
    """What a fault may touch."""

    lab: Hypervisors
    guest: Guest
    source: Host
    dest: Host
    third: Host
    options: dict[str, t.Any]
    undo: contextlib.ExitStack  # when the run has ended: the fault goes
    after: contextlib.ExitStack  # when the case has
    run: Run | None = None
    module: list[int] = dataclasses.field(default_factory=list)  # its process, once it is at work

    @property
    def lock(self) -> str:
        """The file that the module holds while it is at work."""
        return f"/run/lock/corral-{self.guest.name}.lock"

    def start(self, to: Host | None = None, **options: t.Any) -> Run:
        """Begin a run."""
        run = Run(self.lab, self.guest.name, (to or self.dest).name, {**self.options, **options})
        self.after.callback(run.stop)
        return run

    def slow(self, rate: str = RATE) -> None:
        """Let the source send no faster."""
        self.source.network("tc", "qdisc", "replace", "dev", LINK, "root", "tbf", "rate", rate, "burst", "64kb", "latency", "400ms")
        self.undo.callback(self.fast)

    def fast(self) -> None:
        """As before."""
        with contextlib.suppress(subprocess.CalledProcessError, RuntimeError):  # its host was switched off
            self.source.network("tc", "qdisc", "delete", "dev", LINK, "root")

    def reached(self, phase: Phase, run: Run) -> bool:
        """Wait for a moment, as closely as can be; False when the run ended before."""
        self.module = []
        until(lambda: run.ended or self._found(), RUN_S, every_s=0.01)
        return until(lambda: phase.seen(self.guest, self.source, self.dest) or run.ended, RUN_S, every_s=0.0005) and not run.ended

    def _found(self) -> bool:
        self.module = self.source.find("virt_migrate", with_open=self.lock)
        return bool(self.module)

    def left_alone(self) -> bool:
        """Wait until no module is at work on the guest any more: it goes on without its controller."""
        return until(lambda: not self.source.holds(self.lock), RUN_S)

    def states(self) -> dict[str, str]:
        """Of the guest, by host, as virsh says it; of the hosts that have it."""
        states = {host.name: host.state(self.guest.name) for host in (self.source, self.dest, self.third)}
        return {name: state for name, state in states.items() if state}
