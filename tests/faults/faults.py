"""Hurt migrations on a lab made for it, print a table and leave build/faults.json. Usage: faults.py [REGULAR EXPRESSION
OF NAMES]

SOAK_MINUTES=30 SEED=1: cases put together at random instead, for so long. DRAIN_KILLS=20: so many drains whose module
is killed at random. MEDDLING_MINUTES=60 SEED=1: two controllers and an owner act at random for so long, all at once
(build/meddling.json). FAULTS_LAB=NAME: another lab, beside one that is at work.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import re
import secrets
import signal
import sys
import time
import typing as t

from ansible_collections.corral.virt.tests.faults import adversary, meddling, objects, soak
from ansible_collections.corral.virt.tests.faults.cases import ARRIVES, CASES, FAILS, Case, drains
from ansible_collections.corral.virt.tests.faults.foreign import Latecomers
from ansible_collections.corral.virt.tests.faults.guest import BASE, Guest, make_base, subjects
from ansible_collections.corral.virt.tests.faults.hosts import IMAGES, Host, until
from ansible_collections.corral.virt.tests.faults.phases import PHASES, Phase
from ansible_collections.corral.virt.tests.faults.scene import Missed, Run, Scene, Violation
from ansible_collections.corral.virt.tests.faults.twice import Twice
from ansible_collections.corral.virt.tests.lab.hypervisors import ROOT, Hypervisors, allowed_to_fault, hypervisors

ROLES = ("hypervisor", "bridge", "firewall", "pki", "storage")
LAB = os.environ.get("FAULTS_LAB") or "faults"
REPORT = ROOT / f"build/{LAB}.json"
LEFT_IN_QEMU = "shut the guest down and start it"  # libvirt that was killed forgets a part of the copy in QEMU
MARK = "/var/lib/libvirt/corral-maintenance.json"  # of a host that was drained


@dataclasses.dataclass(frozen=True)
class Row:
    """What came of a case."""

    name: str
    ok: bool
    detail: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class Place:
    """Where cases are tried."""

    lab: Hypervisors
    hosts: tuple[Host, Host, Host]
    base: str

    def tried(self, case: Case) -> Row:
        """The case's row; what it did to the lab is undone whatever happens."""
        started = time.monotonic()
        try:
            with contextlib.ExitStack() as after, contextlib.ExitStack() as undo:
                detail, ok = self._case(case, undo, after), True
        except Missed as error:
            detail, ok = f"missed: {error}", case.may_miss
            self._swept()
        except (Violation, RuntimeError, ValueError, OSError) as error:
            detail, ok = f"{type(error).__name__}: {error}", False
            self._swept()
        return Row(case.name, ok, detail, round(time.monotonic() - started, 1))

    def acted(self, act: adversary.Act | objects.ObjectAct) -> Row:
        """The row of what somebody does between plan and act."""
        started = time.monotonic()
        before = {host.name: host.footprint() for host in self.hosts}
        try:
            if isinstance(act, objects.ObjectAct):
                detail, ok = objects.tried(act, self.hosts[0]), True
            else:
                detail, ok = adversary.tried(act, self.hosts[0], self.hosts[1], self.base), True
            for host in self.hosts:
                self._same(host, before[host.name])
        except (Violation, RuntimeError, ValueError, OSError) as error:
            detail, ok = f"{type(error).__name__}: {error}", False
            self._swept()
        return Row(act.name, ok, detail, round(time.monotonic() - started, 1))

    def _case(self, case: Case, undo: contextlib.ExitStack, after: contextlib.ExitStack) -> str:
        source, dest, third = self.hosts
        before = {host.name: host.footprint() for host in self.hosts}
        scene = Scene(self.lab, case.book, subjects(case.kind, self.base), source, dest, third, {}, undo, after)
        for guest in scene.guests:
            guest.make(source)
        with Twice(scene.guests, scene.hosts) as twice:
            result = self._hurt(case, scene)
            self._once(case, scene)
            story = self._story(case, scene)
            result += self._crashed(case, scene)
            try:
                detail = self._repeated(case, scene)
            except Violation as error:
                raise Violation(f"{error} (it had {result}{story})") from None
        if twice.seen:
            raise Violation(f"it ran on two hosts at once: {twice.seen}")
        counts = [self._written(scene, guest) for guest in scene.guests]
        if changed := [line for each in scene.foreign.values() for line in each.changed()]:
            raise Violation(f"what is somebody else's was touched: {changed}")
        others = sum(map(len, scene.foreign.values()))
        after.close()
        for host in self.hosts:
            self._same(host, before[host.name])
        return f"{result}; {detail}; {' and '.join(map(str, counts))} sectors; {others} objects of others as before"

    def _hurt(self, case: Case, scene: Scene) -> str:
        """The run with the fault in it."""
        phase = PHASES[case.when] if case.when else None
        needed = self._prepared(case, scene, phase)
        with Latecomers(scene.foreign["late"], scene.source.apart(), scene.guests) as late:
            scene.run = run = scene.start()
            if phase:
                if not scene.reached(phase, run):
                    what = Missed if run.wait() else Violation
                    raise what(f"it never came to '{case.when}': {run.reason()}")
                time.sleep(case.after_s)
                case.fault(scene)
            arrived = run.wait()
            scene.left_alone()
        scene.undo.close()
        scene.options.clear()
        scene.options.update(needed)
        if run.hung:
            raise Violation(
                f"the run did not end by itself: {scene.states()}; {run.reason()}; {scene.source.at_work()}"
            )
        if late.error or (phase and not late.planted):
            raise RuntimeError(f"nothing of others came in the middle of the move: {late.error}")
        if arrived:
            self._settled(case, scene, "it said that all is well")
        return self._told(case, scene, run, arrived=arrived)

    def _prepared(self, case: Case, scene: Scene, phase: Phase | None) -> dict[str, t.Any]:
        """All that is there when it begins; the options without which the same run could not succeed later."""
        if case.book == "drain":
            scene.after.callback(scene.source.run, f"rm -f {MARK}")
        if case.before:
            case.before(scene)
        scene.foreign["dest"].plant(scene.guest.disk, "early", runs=True)
        scene.foreign["third"].plant(f"{IMAGES}/third.qcow2", "early")
        if not phase:
            case.fault(scene)
        needed = dict(scene.options)
        scene.options.update({**(phase.options if phase else {}), **case.options})
        if phase and phase.tight:
            scene.slow()
        if "postcopy" in scene.options:
            scene.after.enter_context(allowed_to_fault())  # also for what is left to the next run
        for guest in scene.guests:
            if guest.kind != "cold":
                guest.noted(scene.source)
        return needed

    def _told(self, case: Case, scene: Scene, run: Run, *, arrived: bool) -> str:
        """How the run ended, which is as it should."""
        result = "arrived" if arrived else f"failed: {run.reason()}" if run.reason() else "failed"
        if (case.ends == ARRIVES and not arrived) or (case.ends == FAILS and arrived):
            raise Violation(f"the run {result}: {scene.states()}")
        if case.says and not re.search(case.says, re.sub(r"\s+", " ", run.output)):
            raise Violation(f"the run did not say '{case.says}': {run.reason()}")
        return result

    def _once(self, case: Case, scene: Scene) -> None:
        """At most one host executes a guest, and one has it; what was refused was not moved."""
        for guest in scene.guests:
            states = scene.states(guest)
            running = [name for name, state in states.items() if state == "running"]
            if len(running) > 1 or not states:
                raise Violation(f"after the fault: {states or 'no host has it'}")
            if case.when is None and case.ends == FAILS and running != [scene.source.name]:
                raise Violation(f"the run was refused, and it moved: {states}")

    def _story(self, case: Case, scene: Scene) -> str:
        """How guests came to be in another state than they must have in the end; the next run changes what tells it."""
        stopped = [guest for guest in scene.guests if case.finally_ not in scene.states(guest).values()]
        return "".join(f"; {host.story(guest.uuid)}" for guest in stopped for host in scene.hosts[:2])

    def _crashed(self, case: Case, scene: Scene) -> str:
        """Start guests whose QEMU ended by an error of its own, as the run must have said."""
        crashed = [
            guest for guest in scene.guests if case.finally_ == "running" and scene.source.failed_by_itself(guest.uuid)
        ]
        for guest in crashed:
            if not scene.run or "its QEMU process crashed" not in re.sub(r"\s+", " ", scene.run.output):
                raise Violation(f"QEMU crashed, and nobody said it: {scene.source.story(guest.uuid)}")
            scene.source.run(f"rm -f {MARK}")  # a drain's: no guest starts there
            scene.source.virsh(f"start {guest.uuid}")
        return "; QEMU had crashed" if crashed else ""

    def _repeated(self, case: Case, scene: Scene) -> str:
        """The same again, and all are there, as they should be."""
        left = " and ".join(str(scene.states(guest)) for guest in scene.guests)
        run, how = scene.start(), "run again"
        if not run.wait() and LEFT_IN_QEMU in re.sub(r"\s+", " ", run.output):
            for guest in scene.guests:  # as that tells
                guest.stopped(scene.source)
                scene.source.run(f"rm -f {MARK}")
                scene.source.virsh(f"start {guest.uuid}")
            run, how = scene.start(), "run again, shut down and started, and run again"
        if not run.wait():
            raise Violation(f"{how} on {left} it failed: {run.reason()}")
        self._settled(case, scene, f"{how} on {left}")
        return f"then {left}, {how}: there"

    def _settled(self, case: Case, scene: Scene, when: str) -> None:
        """Each guest is in one place, defined and in its state, which is a right one.

        And no migration waits for anything.
        """
        homes: list[str] = []
        for guest in scene.guests:
            states = scene.states(guest)
            homes += states
            if list(states.values()) != [case.finally_]:
                raise Violation(f"{when}: {guest.name} is {states or 'nowhere'}")
            result = scene.host(homes[-1]).virsh(f"dominfo {guest.uuid}")
            if not re.search("Persistent: +yes", result) or ("enable" in result) != guest.autostart:
                raise Violation(f"{when}: {guest.name} is on {homes[-1]}, but not defined as it was")
        away = {
            "migrate": homes == [scene.dest.name],
            "drain": scene.source.name not in homes,
            "rebalance": len({*homes}) > 1,
        }
        if not away[case.book]:
            raise Violation(f"{when}: they are on {homes}")
        if records := scene.records():
            raise Violation(f"{when}, and these are not settled: {records}")

    def _written(self, scene: Scene, guest: Guest) -> int:
        """How many sectors it wrote, all of which are there; it is removed."""
        host = scene.host(next(iter(scene.states(guest))))
        written, count = guest.written, guest.stopped(host)
        if count < max(written, guest.written):
            raise Violation(f"its disk went back: {count} sectors, and {max(written, guest.written)} had been written")
        guest.remove(host)
        return count

    def _same(self, host: Host, before: dict[str, list[str]]) -> None:
        """Nothing was left, and nothing is missing."""
        until(lambda: host.footprint() == before, 5)
        now = host.footprint()
        changed = {key: sorted(set(now[key]) ^ set(before[key])) for key in now if now[key] != before[key]}
        if changed:
            raise Violation(f"left on {host.name}, or gone: {changed}")

    def _swept(self) -> None:
        """After a violation: the next case finds the hosts as this one did."""
        for host in self.hosts:
            host.kill(host.find("virt_migrat"))
            host.run(f"rm -rf /run/corral {MARK}")
            for guest in subjects("delta full", ""):
                guest.remove(host)


def table(rows: t.Sequence[Row]) -> str:
    """For people."""
    width = max(len(row.name) for row in rows)
    return "\n".join(
        f"{'ok' if row.ok else 'FAILED':6}  {row.name:{width}}  {row.seconds:6.1f} s  {row.detail}" for row in rows
    )


def place(lab: Hypervisors) -> Place:
    """The hosts, with an image on each that boots the guest."""
    inventory = json.loads(lab.run("ansible-inventory", "-i", lab.folder / "inventory/hosts.yml", "--list"))["_meta"][
        "hostvars"
    ]
    hosts = [Host(lab.name, name, inventory[name]["ansible_host"]) for name in ("hyper1", "hyper2", "hyper3")]
    checksum = {f"sha256:{make_base(host, '/srv/base')}" for host in hosts}.pop()
    image = {"name": BASE, "src": f"/srv/base/{BASE}", "remote_src": True, "checksum": checksum}
    lab.play({"corral.virt.virt_image": image}, hosts="hyper")
    contents = {host.run(f"readlink -f {IMAGES}/{BASE}") for host in hosts}
    if len(contents) != 1:
        raise RuntimeError(f"the image has not the same name everywhere: {contents}")
    return Place(lab, (hosts[0], hosts[1], hosts[2]), contents.pop())


def main(part: str = "") -> int:
    """Exit code 0 when nothing was violated. `part` of a name, a regular expression, chooses cases."""
    seed = os.environ.get("SEED") or str(secrets.randbelow(10**6))
    print(f"SEED={seed}", flush=True)
    every: list[Case | adversary.Act | objects.ObjectAct] = [
        *CASES,
        *drains(int(os.environ.get("DRAIN_KILLS") or 3), random.Random(seed)),
        *adversary.ACTS,
        *objects.OBJECTS,
    ]
    chosen = [case for case in every if re.search(part, case.name)]
    if not chosen:
        sys.exit(f"There is no case '{part}'; there are:\n  " + "\n  ".join(case.name for case in every))
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, _interrupt)
    rows: list[Row] = []
    minutes = float(os.environ.get("SOAK_MINUTES") or 0)
    meddled = float(os.environ.get("MEDDLING_MINUTES") or 0)
    with hypervisors(LAB, *ROLES, hosts=3) as lab:
        where = place(lab)
        if meddled:
            return meddling.meddled(lab, where.hosts, where.base, meddled, seed)
        cases: t.Iterable[Case | adversary.Act | objects.ObjectAct] = soak.cases(minutes, seed) if minutes else chosen
        for case in cases:
            rows.append(where.tried(case) if isinstance(case, Case) else where.acted(case))
            print(table(rows[-1:]), flush=True)
            REPORT.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=2) + "\n")
    bad = [row.name for row in rows if not row.ok]
    print(f"\n{table(rows)}\n\n{len(rows)} cases, {len(bad)} violations. Written to {REPORT}")
    return 1 if bad else 0


def _interrupt(*_ignored: object) -> None:
    """End in order, once."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    sys.exit("Interrupted")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
