"""One case on its way: guests, the hosts, a run of a playbook, and what has to be undone afterwards."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import typing as t

from ansible_collections.corral.virt.tests.faults.foreign import Foreign
from ansible_collections.corral.virt.tests.faults.guest import Guest
from ansible_collections.corral.virt.tests.faults.hosts import Host, until
from ansible_collections.corral.virt.tests.faults.phases import Phase
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import Patience
from ansible_collections.corral.virt.tests.lab.hypervisors import Hypervisors

__all__ = ["RUN_S", "Missed", "Run", "Scene", "Violation"]

RUN_S = 240  # a run that has not ended by then does not end by itself
LINK = "host0"
RATE = "40mbit"  # memory then takes seven seconds


class Missed(Exception):
    """The run ended well before the fault came: nothing was shown."""


class Violation(Exception):
    """What must never be was seen."""


class Run:
    """A run of a playbook in the background, in a process group of its own."""

    def __init__(self, lab: Hypervisors, book: str, arguments: t.Mapping[str, t.Any]) -> None:
        inventory = lab.folder / "inventory/hosts.yml"  # it needs no look at the guests
        self._process = lab.start(
            "ansible-playbook", "-i", inventory, f"corral.virt.{book}", "-v", "-e", json.dumps(arguments)
        )
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
        patience = Patience(RUN_S)
        while not self.hung:
            try:
                self.output = self._process.communicate(timeout=max(1.0, patience.left_s))[0]
                break
            except subprocess.TimeoutExpired:
                self.hung = patience.is_over
        else:
            self.signal(signal.SIGKILL)
            self.output = self._process.communicate()[0]
        return self._process.returncode == 0

    def reason(self) -> str:
        """What it said at the end that it failed, of which -v shows all fields."""
        text = re.sub(r"\s+", " ", re.sub(r"\nPLAY RECAP.*", "", self.output, flags=re.DOTALL))
        told = r"fatal: \[[^]]*\]: (?:FAILED! => .*?\bmsg: [\"'|>-]* ?)?((?:[Cc]annot|the module) .*?)"
        end = r"(?= fatal: | skipping: | TASK |$)"
        result = re.findall(told + end, text) or re.findall(rf"fatal: \[.*?{end}", text)
        return str((result or [text[-200:]])[-1]).strip('" |-')[:400]


@dataclasses.dataclass
class Scene:
    """What a fault may touch."""

    lab: Hypervisors
    book: str  # the playbook: migrate, drain, rebalance
    guests: list[Guest]
    source: Host
    dest: Host
    third: Host
    options: dict[str, t.Any]  # of the migration
    undo: contextlib.ExitStack  # when the run has ended: the fault goes
    after: contextlib.ExitStack  # when the case has
    run: Run | None = None
    module: list[int] = dataclasses.field(default_factory=list)  # its process, once it is at work
    # on dest, on third, and late: on dest, in the middle of it
    foreign: dict[str, Foreign] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, host in (("dest", self.dest), ("third", self.third), ("late", self.dest)):
            self.foreign[key] = Foreign(host.apart())
            self.after.callback(self.foreign[key].remove)

    @property
    def hosts(self) -> tuple[Host, Host, Host]:
        """All of them."""
        return self.source, self.dest, self.third

    @property
    def guest(self) -> Guest:
        """The first, or the only one."""
        return self.guests[0]

    @guest.setter
    def guest(self, guest: Guest) -> None:
        self.guests[0] = guest

    @property
    def locks(self) -> list[str]:
        """The files that the module holds while it is at work on a guest."""
        return [f"/run/corral/{guest.name}.lock" for guest in self.guests]

    @property
    def dests(self) -> tuple[Host, ...]:
        """Where a guest may arrive."""
        return (self.dest,) if self.book == "migrate" else (self.dest, self.third)

    def start(self, to: Host | None = None, **options: t.Any) -> Run:
        """Begin a run."""
        options = {**self.options, **options}
        arguments: dict[str, t.Any] = {"guest": self.guest.name, "to": (to or self.dest).name, **options}
        if self.book != "migrate":
            arguments = {"options": options, **({"host": self.source.name} if self.book == "drain" else {})}
        run = Run(self.lab, self.book, arguments)
        self.after.callback(run.stop)
        return run

    def slow(self, rate: str = RATE) -> None:
        """Let the source send no faster."""
        self.source.network(
            "tc", "qdisc", "replace", "dev", LINK, "root", "tbf", "rate", rate, "burst", "64kb", "latency", "400ms"
        )
        self.undo.callback(self.fast)

    def fast(self) -> None:
        """As before."""
        with contextlib.suppress(subprocess.CalledProcessError, RuntimeError):  # its host was switched off
            self.source.network("tc", "qdisc", "delete", "dev", LINK, "root")

    def reached(self, phase: Phase, run: Run) -> bool:
        """Wait for a moment, as closely as can be; False when the run ended before."""
        self.module = []
        until(lambda: run.ended or self._found(), RUN_S, every_s=0.01)
        return until(lambda: self._seen(phase) or run.ended, RUN_S, every_s=0.0005) and not run.ended

    def _seen(self, phase: Phase) -> bool:
        return any(phase.seen(guest, self.source, dest) for guest in self.guests for dest in self.dests)

    def _found(self) -> bool:
        self.module = [pid for lock in self.locks for pid in self.source.find("virt_migrat", with_open=lock)]
        return bool(self.module)

    def left_alone(self) -> bool:
        """Wait until no module is at work on a guest any more: it goes on without its controller."""
        return until(lambda: not any(self.source.holds(lock) for lock in self.locks), RUN_S)

    def states(self, guest: Guest | None = None) -> dict[str, str]:
        """Of a guest, by host, as virsh says it; of the hosts that have it."""
        states = {host.name: host.state((guest or self.guest).uuid) for host in self.hosts}
        return {name: state for name, state in states.items() if state}

    def dropped(self, what: str) -> None:
        """Who owns a file or a guest (UUID) on the destination removes it: until now nobody else touched it."""
        if changed := self.foreign["dest"].drop(what):
            raise Violation(f"somebody else's: {changed}")

    def host(self, name: str) -> Host:
        """One of them."""
        return next(host for host in self.hosts if host.name == name)

    def records(self) -> dict[str, list[str]]:
        """Migrations that are not settled, by host."""
        records = {host.name: host.records() for host in self.hosts}
        return {name: guests for name, guests in records.items() if guests}
