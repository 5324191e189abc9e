"""Two controllers and an owner in a hurry act at random on three hosts, all at once, for as long as they are told.

Each round lets the controllers run playbooks while the owner acts with virsh and qemu-img (`meddlers.py`). Judged by
virsh, qemu-img, stat and sums, never by our own modules: each guest is in one place and never runs twice, each sector
that it was told is written stands on the disk that its definition names, what is somebody else's is as it was, and no
run ended well over anything that is not settled. Then the owner ends what they have begun, what was left is settled by
the same commands, and nothing is left over. The seed reproduces the choices, not the times.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import random
import re
import subprocess
import threading
import time
import typing as t
import uuid as uuids

from ansible_collections.corral.virt.tests.faults.boot_sector import count
from ansible_collections.corral.virt.tests.faults.foreign import Foreign
from ansible_collections.corral.virt.tests.faults.guest import NAME
from ansible_collections.corral.virt.tests.faults.hosts import NOTES, Host, until
from ansible_collections.corral.virt.tests.faults.meddlers import (
    MARK,
    MOVERS,
    SECOND,
    THROWN_AWAY,
    Command,
    Controller,
    Field,
    Outcome,
    Owner,
    Subject,
    chain,
    commands,
    disks,
)
from ansible_collections.corral.virt.tests.faults.scene import RUN_S, Violation
from ansible_collections.corral.virt.tests.faults.twice import Twice
from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES, ROOT, Hypervisors

__all__ = ["meddled"]

FOLDER = ROOT / "build/meddling"
REPORT = ROOT / "build/meddling.json"
RETIRED_AT = 3500  # sectors; its journal has room for 8191
SHAPES = {  # of the guests: storage, another disk, autostart
    f"{NAME}1": ("delta", False, True),
    f"{NAME}2": ("full", False, False),
    f"{NAME}3": ("full", True, False),
    f"{NAME}4": ("cold", True, True),
    f"{NAME}5": ("delta", True, False),
}
LEFT_IN_QEMU = "shut the guest down and start it"
HELD_BY_LIBVIRT = "restart the libvirt daemon of that host"
_JOURNAL_MIB = 4
_INTERNAL = re.compile(
    r"Traceback \(most|MODULE FAILURE|name '\w+' is not defined|object has no attribute|unexpected exception",
    re.IGNORECASE,
)


@dataclasses.dataclass
class Result:
    """What came of a round."""

    number: int
    seconds: float
    runs: list[str]
    acts: int
    violations: list[str]


class Meddling:
    """The lab and its guests, from round to round."""

    def __init__(self, lab: Hypervisors, hosts: t.Sequence[Host], base: str, seed: str) -> None:
        self._hosts, self._seed, self._began = (*hosts,), seed, time.monotonic()
        self._lines: list[str] = []
        self._field = Field(lab, self._hosts, base, [], self._told, collections.Counter(), [], threading.Lock())
        self._foreign = {host.name: Foreign(host.apart()) for host in hosts}
        self._number, self.results = 0, list[Result]()
        self.sectors = self.retired = 0
        self.reds: collections.Counter[str] = collections.Counter()
        self.destroyed: list[str] = []
        for host in hosts:
            self._prepared(host)
        self._base_sums = {host.name: host.run(f"sha256sum '{base}'") for host in hosts}
        self._before = {host.name: host.footprint() for host in hosts}
        self._files = {host.name: set(_files(host)) for host in hosts}

    def _prepared(self, host: Host) -> None:
        """Another pool, and what others have."""
        host.run(
            f"mkdir -p {SECOND}; virsh -q pool-info second >/dev/null 2>&1 || {{ virsh -q pool-define-as second dir "
            f"--target {SECOND}; virsh -q pool-start second; virsh -q pool-autostart second; }}"
        )
        for name in [*SHAPES][::2]:
            self._foreign[host.name].plant(f"{IMAGES}/{name}.qcow2", f"theirs-{name}")

    def _told(self, line: str) -> None:
        line = f"{time.monotonic() - self._began:7.1f} {line}"
        self._lines.append(line)
        print(line, flush=True)

    # A round --------------------------------------------------------------------------------------------------------

    def round(self) -> Result:
        """One; its violations are told, and the next finds the hosts as this one did."""
        self._number += 1
        began, self._lines = time.monotonic(), []
        self._told(f"ROUND {self._number}")
        self._field.runs.clear()
        wrong: list[str] = []
        owner = None
        try:
            chance = random.Random(f"{self._seed}/{self._number}")
            self._made(chance)
            owner = self._meddled(chance, wrong)
            self._judged(owner, wrong)
        except (Violation, RuntimeError, ValueError, OSError, AssertionError, subprocess.SubprocessError) as error:
            wrong.append(f"{type(error).__name__}: {error}")
        runs = [f"{one.command}: {'green' if one.ok else 'red: ' + one.reason}" for one in self._field.runs]
        self._kept_logs(wrong)
        if wrong:
            self._swept()
        seconds = round(time.monotonic() - began, 1)
        self.results.append(Result(self._number, seconds, runs, owner.done if owner else 0, wrong))
        for line in wrong:
            self._told(f"VIOLATION {line}")
        return self.results[-1]

    def _made(self, chance: random.Random) -> None:
        """All guests are there; those that wrote most are counted, removed and made anew."""
        for subject in [*self._field.subjects]:
            if subject.written > RETIRED_AT or subject.paths:
                self._retires(subject)
        for name, (kind, second, autostart) in SHAPES.items():
            uuid = str(uuids.UUID(int=chance.getrandbits(128), version=4))
            host = chance.choice(self._hosts)
            if self._field.subject(name):
                continue
            path = f"{SECOND}/{name}-2.qcow2" if second else ""
            subject = Subject(
                kind, self._field.base, name=name, uuid=uuid, second=path, autostart=autostart, at=host.name
            )
            subject.make(host)
            subject.noted(host)
            self._field.subjects.append(subject)
        for subject in self._field.subjects:
            subject.loose, subject.title = False, self._title(subject)
            subject.writes.clear()

    def _title(self, subject: Subject) -> str:
        home = subject.home(self._hosts)
        return home.virsh(f"desc {subject.uuid} --config --title 2>/dev/null", ok=False) if home else ""

    def _meddled(self, chance: random.Random, wrong: list[str]) -> Owner:
        """All act, until the controllers have done their work."""
        hosts = [host.name for host in self._hosts]
        focus = chance.choice(self._field.subjects)
        at = {subject.name: subject.at for subject in self._field.subjects}
        its = [commands(chance, at, hosts, focus.name) for _who in "AB"]
        owner = Owner(self._field, chance, focus, self._number)
        controllers = [Controller(self._field, who, one) for who, one in zip("AB", its, strict=True)]
        with owner, Twice(self._field.subjects, self._hosts) as twice:
            for each in controllers:
                each.start()
            for each in controllers:
                each.join()
        wrong += [each.error for each in controllers if each.error]
        if not until(self._quiet, RUN_S, every_s=1):
            wrong.append("modules are still at work")
        if twice.seen:
            wrong.append(f"it ran on two hosts at once: {twice.seen}")
        return owner

    def _quiet(self) -> bool:
        return not any(host.find("virt_") for host in self._hosts)

    # Judging --------------------------------------------------------------------------------------------------------

    def _judged(self, owner: Owner, wrong: list[str]) -> None:
        """Right after the acts; then ended and settled, and again."""
        self._said(wrong)
        traces = self._traces()
        self._told(f"left: {traces or 'nothing'}")
        if traces and all(one.ok for one in self._field.runs):
            wrong.append(f"all runs ended well, and this is not settled: {traces}")
        self._unsettled(wrong)
        for subject in self._field.subjects:
            states = subject.places(self._hosts)
            if not states and not subject.damaged:
                wrong.append(f"{subject.name} is nowhere")
            if [*states.values()].count("running") > 1:
                wrong.append(f"{subject.name} runs twice: {states}")
        self._untouched(wrong)
        wrong += [f"somebody else's: {line}" for line in owner.ends()]
        self._gone()
        self._named(wrong)
        self._settled(wrong)
        wrong += [f"somebody else's: {line}" for line in owner.ends_late()]
        self._in_place(wrong)
        self._nothing_left(wrong)

    def _said(self, wrong: list[str]) -> None:
        """Each run that ended well did what it said; each that failed says of what, and why."""
        for one in self._field.runs:
            if one.run.hung:
                wrong.append(f"{one.command} did not end: {one.reason}")
            if one.untrue and not self._excused(one):
                wrong.append(f"{one.command} ended well, and {one.untrue}")
            if one.ok or one.killed:
                continue
            reason = one.reason
            self.reds[_plain(f"{one.book}: {reason}")] += 1
            named = re.search(rf"{NAME}\d|t\d|hyper\d|[0-9a-f]{{8}}-|its libvirt daemon was restarted", reason)
            if not named or _INTERNAL.search(one.run.output):
                wrong.append(f"{one.command} failed, and says: {reason}")

    def _excused(self, one: Outcome) -> bool:
        """Whether somebody else may have undone meanwhile what it has done."""
        others = [other for other in self._field.runs if other is not one and one.overlaps(other)]
        subject = self._field.subject(one.guest)
        if one.book == "drain":
            return any(other.book in ("undrain", *MOVERS) for other in others)
        if one.book == "undrain":
            return any(other.book in ("undrain", "drain") for other in others)
        if one.book == "purge":
            return any(other.book == "create" for other in others)
        if subject and one.book == "migrate":
            return any(other.moves(subject.name) for other in others)
        return bool(subject and subject.loose)  # state and name

    def _records(self) -> list[tuple[Host, str]]:
        """Hosts, and guests whose migration is recorded there, but for copies that somebody made of definitions."""
        return [(host, uuid) for host in self._hosts for uuid in host.records() if uuid not in self._field.copies]

    def _unsettled(self, wrong: list[str]) -> None:
        """No migration is left that all runs passed over which could have moved that guest."""
        names = {subject.uuid: subject.name for subject in self._field.subjects}
        for host, uuid in self._records():
            its = [one for one in self._field.runs if one.moves(names.get(uuid, ""))]
            if uuid in names and all(one.ok for one in its):
                wrong.append(
                    f"{[*map(str, (one.command for one in its))]} ended well over {names[uuid]} on {host.name}"
                )

    def _traces(self) -> list[str]:
        """What a run that was cut short may leave, and the next one must settle."""
        found = [f"{host.name}: a migration of {uuid} is recorded" for host, uuid in self._records()]
        for host in self._hosts:
            aside = f"find {IMAGES}/.corral {SECOND}/.corral -type f 2>/dev/null"
            found += [f"{host.name}: {path}" for path in host.run(aside, ok=False).split()]
        for subject in self._field.subjects:
            places = [name for name in subject.places(self._hosts) if name not in subject.twins]
            found += [f"{subject.name} is on {places}"] if len(places) > 1 else []
        return found

    def _untouched(self, wrong: list[str]) -> None:
        for host in self._hosts:
            wrong += [f"somebody else's: {line}" for line in self._foreign[host.name].changed()]
            if (now := host.run(f"sha256sum '{self._field.base}'", ok=False)) != self._base_sums[host.name]:
                wrong.append(f"the image on {host.name} has changed: {now}")

    def _gone(self) -> None:
        """Guests that their owner has destroyed."""
        for subject in [one for one in self._field.subjects if one.damaged]:
            self._told(f"{subject.name}: {subject.damaged}")
            self.destroyed.append(f"round {self._number}: {subject.name}: {subject.damaged}")
            paths = {path for host in self._hosts for path in disks(host, subject.uuid).values()}
            for host in self._hosts:
                subject.remove(host)
                for path in {*paths, *(one for one in _files(host) if _is_of(one, subject.name))}:
                    if path not in self._files[host.name] and path.startswith((IMAGES, SECOND)):
                        host.run(f"rm -f '{path}'", ok=False)
            self._field.subjects.remove(subject)

    def _named(self, wrong: list[str]) -> None:
        """Who was given another name gets its own again."""
        for subject in self._field.subjects:
            home = subject.home(self._hosts)
            if not home or (name := home.virsh(f"domname {subject.uuid}", ok=False)) == subject.name:
                continue
            if name not in (f"{subject.name}-r", f"{subject.name}-o"):
                wrong.append(f"{subject.name} is called {name}")
            subject.loose = True
            if home.state(subject.uuid) != "shut off":
                subject.stopped(home)
            home.virsh(f"domrename {subject.uuid} {subject.name}")

    def _settled(self, wrong: list[str]) -> None:
        """The same commands again, as long as something is left; the hosts take guests again."""
        cut = [one for one in self._field.runs if not one.ok and one.book in (*MOVERS, "purge")]
        for attempt in range(2):
            self._undrained(wrong)
            traces = self._traces()
            if not traces:
                return
            for command in dict.fromkeys(map(str, (one.command for one in reversed(cut)))):
                self._again(next(one for one in cut if str(one.command) == command).command)
            self._finished()
            self._cleared()
            self._told(f"settled {attempt + 1}: {self._traces() or 'nothing is left'}")
        self._undrained(wrong)
        if traces := self._traces():
            said = " | ".join(f"{one.command}: {one.reason}" for one in self._field.runs if one.who == "again")
            wrong.append(f"run again, and this is not settled: {traces}; {said}")

    def _finished(self) -> None:
        """As messages tell: a drain of running guests leaves those that are off, and names what finishes them."""
        said = " ".join(one.run.output for one in self._field.runs if one.who == "again" and not one.ok)
        for guest, to in sorted(set(re.findall(r"playbook\s+migrate\s+-e\s+guest=(\w+)\s+-e\s+to=(\w+)\)", said))):
            if any(
                subject.name == guest and subject.uuid == uuid
                for subject in self._field.subjects
                for _host, uuid in self._records()
            ):
                self._again(Command(0, "migrate", {"guest": guest, "to": to}))

    def _cleared(self) -> None:
        """As messages tell: a part of a copy whose source its owner has changed since cannot be proved to be ours.

        Whoever inspects it sees that the guest's record names it, and that no guest there has it.
        """
        said = " ".join(re.sub(r"\s+", " ", one.run.output) for one in self._field.runs if one.who == "again")
        told = r"cannot migrate (\w+) to (\w+): disk \w+: (\S+) already exists on the destination, and no migration"
        for name, to, path in sorted(set(re.findall(told, said))):
            subject = next(one for one in self._field.subjects if one.name == name)
            home, host = subject.home(self._hosts), next(one for one in self._hosts if one.name == to)
            recorded = home and re.search(
                rf"moving-made>[^<]*{re.escape(path)}", home.virsh(f"dumpxml --inactive {subject.uuid}", ok=False)
            )
            used = host.run(f"grep -lr --include '*.xml' '{path}' /etc/libvirt/qemu /run/libvirt/qemu", ok=False)
            if recorded and not used and path not in self._foreign[to]:
                host.run(f"rm -f '{path}'; virsh -q pool-refresh default; virsh -q pool-refresh second", ok=False)
                self._told(f"settles by hand {name}: {path} on {to}, as it was told")
                self._again(Command(0, "migrate", {"guest": name, "to": to}))

    def _again(self, command: Command) -> Outcome:
        one = Controller(self._field, "again", []).one(command)
        subject = self._field.subject(one.guest)
        if not one.ok and subject and LEFT_IN_QEMU in re.sub(r"\s+", " ", one.run.output):
            home = subject.home(self._hosts)
            if home:
                subject.stopped(home)
                home.virsh(f"start {subject.uuid}")
            one = Controller(self._field, "again", []).one(command)
        if not one.ok and subject and HELD_BY_LIBVIRT in re.sub(r"\s+", " ", one.run.output):
            for host in self._hosts:
                if subject.name in host.virsh("list --all --name", ok=False).split():
                    host.run("systemctl restart libvirtd", ok=False)
                    self._told(f"settles by hand {subject.name}: libvirtd of {host.name} is restarted, as it was told")
            one = Controller(self._field, "again", []).one(command)
        return one

    def _undrained(self, wrong: list[str]) -> None:
        for host in self._hosts:
            if not host.run(f"test -e {MARK} && echo yes", ok=False):
                continue
            one = Controller(self._field, "settles", []).one(Command(0, "undrain", {"host": host.name}))
            if not one.ok or one.untrue:
                wrong.append(f"{host.name} stays in maintenance: {one.reason} {one.untrue}")

    def _in_place(self, wrong: list[str]) -> None:
        """Each guest is in one place, as it was, with all that it wrote."""
        for subject in self._field.subjects:
            states = subject.places(self._hosts)
            if len(states) != 1:
                wrong.append(f"{subject.name} is on {states or 'no host'}")
                continue
            home = next(host for host in self._hosts if host.name in states)
            subject.at = home.name
            self._defined(subject, home, wrong)
            self._powered(subject, home, states[home.name], wrong)
            try:
                self._intact(subject, home)
            except (ValueError, RuntimeError, Violation) as error:
                wrong.append(f"{subject.name} on {home.name}: {error}")

    def _defined(self, subject: Subject, home: Host, wrong: list[str]) -> None:
        """Persistence, autostart and title."""
        about = home.virsh(f"dominfo {subject.uuid}")
        if (
            not re.search("Persistent: +yes", about)
            or bool(re.search("Autostart: +enable", about)) != subject.autostart
        ):
            wrong.append(f"{subject.name} on {home.name} is not defined as it was: {' '.join(about.split())}")
        if (title := self._title(subject)) not in (allowed := _titles(subject)):
            wrong.append(f"{subject.name} has title '{title}', and {allowed} was written")

    def _powered(self, subject: Subject, home: Host, state: str, wrong: list[str]) -> None:
        """In the state in which somebody has brought it; then as it is at the beginning of a round."""
        wanted = "shut off" if subject.kind == "cold" else "running"
        if state == wanted:
            return
        if not subject.loose and not home.failed_by_itself(subject.uuid):
            wrong.append(f"{subject.name} was {wanted}, and is {home.story(subject.uuid)}")
        if state == "paused":
            home.virsh(f"resume {subject.uuid}")
            until(lambda: subject.counter(home), 10)
        if wanted == "shut off":
            subject.stopped(home)
        elif state != "paused":
            home.virsh(f"start {subject.uuid}")
            until(lambda: subject.counter(home) >= subject.written, 20)

    def _intact(self, subject: Subject, home: Host) -> None:
        """All that it was told is written is on the disk that its definition names."""
        path = disks(home, subject.uuid).get("vda", "")
        runs = home.state(subject.uuid) == "running"
        if runs:
            home.virsh(f"suspend {subject.uuid}")
            subject.noted(home)
        head = f"/tmp/{subject.name}.head"
        home.run(f"qemu-img dd -U -f qcow2 -O raw bs=1M count={_JOURNAL_MIB} if='{path}' of={head}")
        if runs:
            home.virsh(f"resume {subject.uuid}")
        found = count(home.path(head).read_bytes())
        home.run(f"rm -f {head}")
        if found < subject.written:
            raise Violation(f"its disk went back: {found} sectors, and {subject.written} had been written")
        subject.written = found

    def _retires(self, subject: Subject) -> None:
        """All of it is counted, and it is removed."""
        home = subject.home(self._hosts)
        if home is None:
            raise Violation(f"{subject.name} is nowhere")
        named = disks(home, subject.uuid)
        subject.paths = {"vda": named["vda"]}
        subject.second = named.get("vdb", "")
        written, found = subject.written, subject.stopped(home)
        if found < max(written, subject.written):
            raise Violation(f"{subject.name}: {found} sectors, and {max(written, subject.written)} had been written")
        self.sectors, self.retired = self.sectors + found, self.retired + 1
        self._told(f"retired {subject.name} with {found} sectors")
        files = [one for path in named.values() for one in chain(home, path) if one != self._field.base]
        subject.remove(home)
        for path in files:
            home.run(f"rm -f '{path}'", ok=False)
        self._field.subjects.remove(subject)

    def _nothing_left(self, wrong: list[str]) -> None:
        """No file, definition, note or lock is there that nobody has."""
        said = " ".join(re.sub(r"\s+", " ", one.run.output) for one in self._field.runs)
        cut = any(one.killed for one in self._field.runs)
        for host in self._hosts:
            home = [subject for subject in self._field.subjects if subject.at == host.name]
            theirs = {
                file for one in home for path in disks(host, one.uuid).values() for file in [path, *chain(host, path)]
            }
            left = sorted(set(_files(host)) - self._files[host.name] - theirs)
            for path in [one for one in left if not _is_thrown_away(host, one)]:
                if path not in said and not (cut and _is_thrown_away(host, path, defined=False)):
                    wrong.append(f"left on {host.name} without a word: {path}")
                else:
                    self._field.count("kept and told")
                host.run(f"rm -f '{path}'", ok=False)
            for note in host.run(NOTES, ok=False).split():
                if not (cut and note.endswith(".progress")):  # of a module that was killed; its next run takes it
                    wrong.append(f"left on {host.name}: {note}")
                host.run(f"rm -f '{note}'", ok=False)
            if gone := self._files[host.name] - set(_files(host)):
                wrong.append(f"gone from {host.name}: {gone}")

    # Between rounds -------------------------------------------------------------------------------------------------

    def _kept_logs(self, wrong: list[str]) -> None:
        folder = FOLDER / f"{self._number:03}{'-VIOLATION' if wrong else ''}"
        folder.mkdir(parents=True, exist_ok=True)
        for number, one in enumerate(self._field.runs):
            (folder / f"{number}-{one.who}-{one.book}.log").write_text(f"{one.command}\n{one.run.output}")
        if wrong:
            ask = f"virsh list --all; ls -laR {IMAGES} {SECOND} /run/corral; journalctl -qn 60 --no-pager"
            self._lines += [f"== {host.name}\n{host.run(ask, ok=False)}" for host in self._hosts]
            for subject in self._field.subjects:
                self._lines += [f"== {subject}\n{host.story(subject.uuid)}" for host in self._hosts]
                self._lines += [host.virsh(f"dumpxml {subject.uuid} 2>&1", ok=False) for host in self._hosts]
        (folder / "round.log").write_text("\n".join([*self._lines, *wrong]) + "\n")

    def _swept(self) -> None:
        """After a violation: nothing but what was there at the beginning."""
        self._field.subjects.clear()
        for host in self._hosts:
            host.kill(host.find("virt_"))
            known = self._before[host.name]["definitions"]
            for uuid in host.virsh("list --all --uuid", ok=False).split():
                if uuid not in known:
                    host.virsh(f"destroy {uuid} 2>/dev/null", ok=False)
                    host.virsh(f"undefine {uuid} --nvram --managed-save 2>/dev/null", ok=False)
            for path in sorted(set(_files(host)) - self._files[host.name]):
                host.run(f"rm -f '{path}'", ok=False)
            host.run(f"rm -rf /run/corral {MARK} {IMAGES}/.corral {SECOND}/.corral", ok=False)
            host.run("virsh -q pool-refresh default; virsh -q pool-refresh second", ok=False)

    def ends(self) -> list[str]:
        """All guests are counted and removed; what is left then."""
        wrong: list[str] = []
        for subject in [*self._field.subjects]:
            try:
                self._retires(subject)
            except (Violation, RuntimeError, ValueError) as error:
                wrong.append(str(error))
        self._field.runs.clear()
        for name in THROWN_AWAY:
            if any(name in host.virsh("list --all --name").split() for host in self._hosts):
                one = Controller(self._field, "settles", []).one(Command(0, "purge", {"guest": name}))
                wrong += [] if one.ok else [f"{one.command}: {one.reason}"]
        self._untouched(wrong)
        for host in self._hosts:
            until(lambda h=host: h.footprint() == self._before[h.name], 5)  # type: ignore[misc]
            now, before = host.footprint(), self._before[host.name]
            changed = {key: sorted(set(now[key]) ^ set(before[key])) for key in now if now[key] != before[key]}
            wrong += [f"left on {host.name}, or gone: {changed}"] if changed else []
        self._swept()
        for each in self._foreign.values():
            each.remove()
        return wrong

    def report(self, ended: t.Sequence[str] = ()) -> str:
        """Written to a file; in short for people."""
        counts = self._field.counts
        bad = [f"round {one.number}: {line}" for one in self.results for line in one.violations] + [*ended]
        figures = {
            "seed": self._seed, "seconds": round(time.monotonic() - self._began), "rounds": len(self.results),
            "counts": dict(sorted(counts.items())), "guests counted": self.retired, "sectors counted": self.sectors,
            "objects of others": sum(map(len, self._foreign.values())), "destroyed by their owner": self.destroyed,
            "violations": bad, "reds": dict(self.reds.most_common()),
            "results": [dataclasses.asdict(one) for one in self.results],
        }  # fmt: skip
        REPORT.write_text(json.dumps(figures, indent=2) + "\n")
        lines = "\n".join(f"  {number:5} {what}" for what, number in sorted(counts.items()))
        return (
            f"{lines}\n{len(self.results)} rounds, {self.retired} guests with {self.sectors} sectors, "
            f"{len(self.destroyed)} destroyed by their owner, {len(bad)} violations. Written to {REPORT}\n"
            + "\n".join(bad)
        )


def meddled(lab: Hypervisors, hosts: t.Sequence[Host], base: str, minutes: float, seed: str) -> int:
    """As many rounds as begin in this time; exit code 0 when nothing was violated."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.environ["CORRAL_VIRT_KNOWN_HOSTS"] = str(FOLDER / "known_hosts")
    end = time.monotonic() + minutes * 60
    meddling = Meddling(lab, hosts, base, seed)
    ended: list[str] = []
    try:
        while time.monotonic() < end:
            meddling.round()
            meddling.report()
    finally:
        ended = meddling.ends()
        print(meddling.report(ended), flush=True)
    return 1 if ended or any(one.violations for one in meddling.results) else 0


def _files(host: Host) -> list[str]:
    return host.run(f"find {IMAGES} {SECOND} -mindepth 1 ! -type d 2>/dev/null | sort", ok=False).splitlines()


def _is_of(path: str, name: str) -> bool:
    return bool(re.search(rf"/{re.escape(name)}(-2|-more\d+)?\.qcow2(\.s\d+)?$", path))


def _is_thrown_away(host: Host, path: str, *, defined: bool = True) -> bool:
    """Whether it is of a guest that is made to be removed; by default of one that is there."""
    found = re.search(rf"/({'|'.join(THROWN_AWAY)})-(system\.qcow2|seed\.iso)$", path)
    return found is not None and (not defined or found[1] in host.virsh("list --all --name", ok=False).split())


def _titles(subject: Subject) -> set[str]:
    """Those that it may have, after all that was written: of writes at the same time any, and what may have failed."""
    good = [write for write in subject.writes if write[3]]
    last = [one for one in good if not any(other[0] >= one[1] for other in good)]
    since = min((one[0] for one in last), default=0.0)
    maybe = [one for one in subject.writes if not one[3] and one[1] >= since]
    return {one[2] for one in [*last, *maybe]} | ({subject.title} if not last else set())


def _plain(text: str) -> str:
    """Without what differs from run to run."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UUID", text)
    return re.sub(r"\d+", "N", text)[:600]
