"""Who meddles: two controllers with playbooks of the collection, and an owner in a hurry with virsh and qemu-img."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import random
import re
import signal
import subprocess
import threading
import time
import typing as t
import uuid as uuids

from lxml import etree

from ansible_collections.corral.virt.tests.faults.foreign import Foreign, definition
from ansible_collections.corral.virt.tests.faults.guest import BASE, Guest
from ansible_collections.corral.virt.tests.faults.hosts import Host, until
from ansible_collections.corral.virt.tests.faults.scene import Run
from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES, Hypervisors
from ansible_collections.corral.virt.tests.tools.beside import Beside

__all__ = [
    "MARK", "MOVERS", "SECOND", "THROWN_AWAY", "Command", "Controller", "Field", "Outcome", "Owner", "Subject", "chain",
    "commands", "disks",
]  # fmt: skip

MARK = "/var/lib/libvirt/corral-maintenance.json"
SECOND = "/srv/second"
THROWN_AWAY = ("t1", "t2")
MOVERS = ("migrate", "drain", "rebalance")
_SNAPSHOT = re.compile(r"\.s\d+$")
_RECORD_S = 6
_LINES = re.DOTALL | re.MULTILINE


@dataclasses.dataclass
class Subject(Guest):
    """A guest whose sectors are counted, and what others have done to it."""

    paths: dict[str, str] = dataclasses.field(default_factory=dict)  # by target, where they are not what they were
    at: str = ""  # the host that had it last
    loose: bool = False  # somebody has switched it on or off
    damaged: str = ""  # its owner destroyed it
    twins: set[str] = dataclasses.field(default_factory=set)  # hosts on which somebody has defined its UUID
    writes: list[tuple[float, float, str, bool]] = dataclasses.field(default_factory=list)  # of its title
    title: str = ""

    @property
    def disk(self) -> str:
        """Its path at the moment."""
        return self.paths.get("vda", f"{self.directory}/{self.name}.qcow2")

    def places(self, hosts: t.Iterable[Host]) -> dict[str, str]:
        """State by host, as virsh says it."""
        found = {host.name: host.state(self.uuid) for host in hosts}
        return {name: state for name, state in found.items() if state}

    def home(self, hosts: t.Sequence[Host]) -> Host | None:
        """The host that has it; of two that have it, the one that runs it, or had it before."""
        states = {name: state for name, state in self.places(hosts).items() if name not in self.twins}
        order = sorted(
            states, key=lambda name: (states[name] != "running", name != self.at, states[name] == "shut off")
        )
        return next((host for host in hosts if order and host.name == order[0]), None)


@dataclasses.dataclass
class Field:
    """What all meddle with; each thread has its own."""

    lab: Hypervisors
    hosts: tuple[Host, ...]
    base: str
    subjects: list[Subject]
    told: t.Callable[[str], None]
    counts: collections.Counter[str]
    runs: list[Outcome]
    lock: threading.Lock
    copies: set[str] = dataclasses.field(default_factory=set)  # UUIDs of definitions that their owner has copied

    def apart(self) -> Field:
        """For another thread."""
        return dataclasses.replace(self, hosts=tuple(host.apart() for host in self.hosts))

    def count(self, what: str) -> None:
        """One more."""
        with self.lock:
            self.counts[what] += 1

    def subject(self, name: str) -> Subject | None:
        """That of this name."""
        return next((subject for subject in self.subjects if subject.name == name), None)


# The controllers ----------------------------------------------------------------------------------------------------


class Command(t.NamedTuple):
    """A run of a playbook."""

    after_s: float
    book: str
    arguments: dict[str, t.Any]

    def __str__(self) -> str:
        return f"{self.book} {json.dumps(self.arguments)}"


@dataclasses.dataclass
class Outcome:
    """What came of it."""

    who: str
    command: Command
    run: Run
    began: float
    ended: float = 0
    ok: bool = False
    untrue: str = ""  # what it said, and is not so
    killed: bool = False  # by the owner

    @property
    def book(self) -> str:
        """The playbook."""
        return self.command.book

    @property
    def reason(self) -> str:
        """All that it said that failed."""
        told = re.findall(r"^\[ERROR\]: (?:Task failed: )?(.+?)(?=\nOrigin: |\n\n|\nfatal: )", self.run.output, _LINES)
        return re.sub(r"\s+", " ", " | ".join(dict.fromkeys(told)) or self.run.reason())[:1200]

    @property
    def guest(self) -> str:
        """Its name, where it is about one."""
        return str(self.command.arguments.get("guest", ""))

    def moves(self, name: str) -> bool:
        """Whether it may move that guest."""
        return self.book in ("drain", "rebalance") or (self.book == "migrate" and self.guest == name)

    def overlaps(self, other: Outcome) -> bool:
        """Whether both were at work at the same time; one that has not ended still is."""
        return other.began <= (self.ended or time.monotonic()) and self.began <= (other.ended or time.monotonic())


def commands(chance: random.Random, at: t.Mapping[str, str], hosts: t.Sequence[str], focus: str) -> list[Command]:
    """What a controller does in a round; `at` says which guest is where when it begins."""
    made = []
    for _number in range(chance.choice((1, 2, 2, 3))):
        book = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        guest = focus if chance.random() < 0.6 else chance.choice([*at])
        thrown = chance.choice(THROWN_AWAY)
        host = chance.choice(hosts)
        options = {"bandwidth": chance.choice((4, 8, 16, 64))}
        every: dict[str, dict[str, t.Any]] = {
            "migrate": {"guest": guest, "to": chance.choice([one for one in hosts if one != at[guest]]), **options},
            "drain": {"host": host, "running_only": True, "options": options},
            "undrain": {"host": host},
            "rebalance": {"options": options, "tolerance": 1.0},
            "change": {"guest": guest, "title": f"title {chance.randrange(10**6)}"},
            "rename": {"guest": guest, "to": f"{guest}-r"},
            "shutdown": {"guest": guest, "wait_timeout": 3, "force": True},
            "start": {"guest": guest},
            "pause": {"guest": guest},
            "resume": {"guest": guest},
            "purge": {"guest": thrown, "wait_timeout": 3},
            "create": {
                "guest": thrown, "host": host, "image": BASE, "state": "shutdown", "memory": "32MiB", "vcpus": 1,
                "wait_timeout": 60,  # its owner may have started it, and its guest obeys nobody
            },
        }  # fmt: skip
        if book == "purge" and chance.random() < 0.8:
            made.append(Command(0, "create", every["create"]))
        made.append(Command(round(chance.uniform(0, 6), 1), book, every[book]))
    return made


_WEIGHTS = {
    "migrate": 34, "drain": 12, "undrain": 6, "rebalance": 9, "change": 9, "rename": 3, "shutdown": 4, "start": 4,
    "pause": 2, "resume": 2, "purge": 10, "create": 8,
}  # fmt: skip


class Controller(Beside):
    """Runs its commands one after another."""

    def __init__(self, field: Field, who: str, its: t.Sequence[Command]) -> None:
        super().__init__()
        self._field, self._who, self._its = field.apart(), who, its
        self.error = ""

    def run(self) -> None:
        """Until all have ended."""
        try:
            for command in self._its:
                if self.over.wait(command.after_s):
                    return
                self.one(command)
        except (RuntimeError, OSError, StopIteration, subprocess.SubprocessError) as error:
            self.error = f"{type(error).__name__}: {error}"

    def one(self, command: Command) -> Outcome:
        """Run it, and look whether what it said is so."""
        field = self._field
        subject = field.subject(str(command.arguments.get("guest", "")))
        if subject and command.book in ("shutdown", "start", "pause", "resume"):
            subject.loose = True
        outcome = Outcome(self._who, command, Run(field.lab, command.book, command.arguments), time.monotonic())
        with field.lock:
            field.runs.append(outcome)
        field.told(f"{self._who} begins {command}")
        ok = outcome.run.wait()
        said = "" if not ok else _untrue(command, field, subject)
        if subject and command.book == "change":
            subject.writes.append((outcome.began, time.monotonic(), command.arguments["title"], ok))
        outcome.untrue, outcome.ok, outcome.ended = said, ok, time.monotonic()
        field.count(f"run {command.book} {'green' if ok else 'red'}")
        field.told(f"{self._who} ended {command}: {'green ' + said if ok else 'red: ' + outcome.reason}")
        return outcome


def _untrue(command: Command, field: Field, subject: Subject | None) -> str:
    """What a run that ended well has not done."""
    book, arguments = command.book, command.arguments
    if book == "drain":
        host = next(host for host in field.hosts if host.name == arguments["host"])
        active = host.virsh("list --name", ok=False).split()
        marked = host.run(f"test -e {MARK} && echo yes", ok=False)
        return f"{active} are active on {host.name}, mark: {marked or 'no'}" if active or not marked else ""
    if book == "undrain":
        host = next(host for host in field.hosts if host.name == arguments["host"])
        return host.run(f"test -e {MARK} && echo {host.name} is marked", ok=False)
    if book == "purge":
        left = [host.name for host in field.hosts if arguments["guest"] in host.virsh("list --all --name").split()]
        return f"{arguments['guest']} is on {left}" if left else ""
    if subject:
        return _untrue_of(book, arguments, subject, field)
    return ""


def _untrue_of(book: str, arguments: t.Mapping[str, t.Any], subject: Subject, field: Field) -> str:
    states = {name: state for name, state in subject.places(field.hosts).items() if name not in subject.twins}
    wanted = {"shutdown": "shut off", "start": "running", "resume": "running", "pause": "paused"}.get(book)
    if wanted and [*states.values()] != [wanted]:
        return f"{subject.name} is {states}"
    if book == "migrate" and [*states] != [arguments["to"]]:
        return f"{subject.name} is on {states}"
    home = next((host for host in field.hosts if host.name in states), None)
    if book == "rename" and home and home.virsh(f"domname {subject.uuid}", ok=False) != arguments["to"]:
        return f"{subject.name} has not the name {arguments['to']}"
    return ""


# The owner ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Mess:
    """What the owner has begun, and what ends it; returns what must not have become of it."""

    what: str
    subject: Subject
    undo: t.Callable[[], list[str]]
    early: bool  # they may end it while others are at work


class Owner(Beside):
    """Acts in a hurry, at random, until the round ends."""

    def __init__(self, field: Field, chance: random.Random, focus: Subject, number: int) -> None:
        super().__init__()
        self._field, self._chance, self._focus = field.apart(), chance, focus
        self._number = number * 100
        self._hosts = self._field.hosts
        self._foreign = {host.name: Foreign(host) for host in self._hosts}
        self._messes: list[Mess] = []
        self._watched: set[tuple[str, str]] = set()  # host and path of what others of theirs need
        self._clearing: list[t.Callable[[], None]] = []
        self.wrong: list[str] = []
        self.done = 0
        acts = [chance.choices(list(_ACTS), [weight for weight, _act in _ACTS.values()])[0] for _number in range(40)]
        self._plan = [(act, chance.random() < 0.6, chance.uniform(0, 3), chance.random()) for act in acts]

    def run(self) -> None:
        """Until the round ends."""
        possible = True
        for act, waits, delay, whom in self._plan:
            subjects, moving = self._field.subjects, self._under_way()
            subject = moving if moving and whom < 0.7 else subjects[int(whom * 1000) % len(subjects)]
            if waits and possible:
                until(lambda s=subject: self.over.is_set() or self._moving(s), _RECORD_S, every_s=0.05)  # type: ignore[misc]
            if self.over.wait(delay if possible else 0.1):
                return
            possible = self._one(act, subject)

    def _under_way(self) -> Subject | None:
        """One that somebody moves at the moment."""
        moved = [self._field.subject(one.guest) for one in self._field.runs if not one.ended and one.book == "migrate"]
        return next(iter(moved), self._focus)

    def _moving(self, subject: Subject) -> bool:
        return any("<corral:moving " in host.definition(subject.uuid) for host in self._hosts)

    def _one(self, act: str, subject: Subject) -> bool:
        self._number += 1
        try:
            told = str(_ACTS[act][1](self, subject))
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            told = f"could not: {error}"
        result = " ".join(told.split())[:160]
        if result:
            kind = "refused" if result.startswith(("error", "could not")) else "act"
            self._field.count(f"{kind} {act}")
            self._field.told(f"owner {act} {subject.name}: {result}")
        self.done += bool(result)
        return bool(result)

    def ends(self) -> list[str]:
        """All that they have begun, the latest first; what must not have become of it."""
        waiting = []
        while self._messes:
            mess = self._messes.pop()
            if mess.what == "attaches" and self._moving(mess.subject):  # they wait until it has settled
                waiting.append(mess)
            else:
                self._end(mess)
        self._messes = waiting
        for clears in self._clearing:  # when nobody of theirs has any of it any more
            clears()
        self._clearing.clear()
        return self.wrong

    def ends_late(self) -> list[str]:
        """What they waited for has settled; what must not have become of it."""
        before = len(self.wrong)
        while self._messes:
            self._end(self._messes.pop())
        return self.wrong[before:]

    def _end(self, mess: Mess) -> None:
        try:
            found = mess.undo()
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            found = [f"could not end: {error}"]
        self._field.told(f"owner ends {mess.what} {mess.subject.name}: {found or 'as it was'}")
        self.wrong += [f"{mess.what} of {mess.subject.name}: {line}" for line in found]

    def _begun(self, what: str, subject: Subject, undo: t.Callable[[], list[str]], *, early: bool = False) -> None:
        self._messes.append(Mess(what, subject, undo, early))

    def ends_one(self, _subject: Subject) -> str:
        """Something that they have begun, while others are at work."""
        mess = next((mess for mess in self._messes if mess.early), None)
        if not mess:
            return ""
        self._messes.remove(mess)
        self._end(mess)
        return f"ended {mess.what} of {mess.subject.name}"

    def starts(self, subject: Subject) -> str:
        """Whatever is the matter with it."""
        home = subject.home(self._hosts)
        if not home or home.state(subject.uuid) != "shut off":
            return ""
        subject.loose = True
        return home.virsh(f"start {subject.uuid} 2>&1", ok=False) or "started"

    def shuts_down(self, subject: Subject) -> str:
        """Through its serial port."""
        home = subject.home(self._hosts)
        if not home or home.state(subject.uuid) != "running":
            return ""
        subject.loose = True
        subject.noted(home)
        with contextlib.suppress(OSError), home.path(home.virsh(f"ttyconsole {subject.uuid}")).open("wb", 0) as line:
            line.write(b"x")
            until(lambda: home.state(subject.uuid) != "running", 5)
        return home.state(subject.uuid) or "gone"

    def suspends(self, subject: Subject) -> str:
        """And lets it run again later."""
        home = subject.home(self._hosts)
        if not home or home.state(subject.uuid) != "running":
            return ""
        subject.loose = True
        told = home.virsh(f"suspend {subject.uuid} 2>&1", ok=False)
        subject.noted(home)

        def resumes() -> list[str]:
            places = {name: state for name, state in subject.places(self._hosts).items() if name not in subject.twins}
            if [*places.values()] == ["paused"] and not self._moving(subject):
                host = next(host for host in self._hosts if host.name in places)
                host.virsh(f"resume {subject.uuid}", ok=False)
            return []

        self._begun("suspends", subject, resumes, early=True)
        return told or "suspended"

    def snapshots(self, subject: Subject) -> str:
        """Disk-only, without metadata."""
        home = subject.home(self._hosts)
        if not home:
            return ""
        file = f".s{self._number}"
        specs = " ".join(
            f"--diskspec {target},{f'file={_SNAPSHOT.sub(str(), path)}{file}' if target != 'vdc' else 'snapshot=no'}"
            for target, path in disks(home, subject.uuid).items()
        )
        told = home.virsh(
            f"snapshot-create-as {subject.uuid} s{self._number} --disk-only --no-metadata {specs} 2>&1", ok=False
        )
        if told.startswith("error"):
            return told
        self._begun("snapshots", subject, lambda: self._merges(subject), early=True)
        return told or "created"

    def _merges(self, subject: Subject) -> list[str]:
        home = subject.home(self._hosts)
        while home and (above := _above(home, subject)):
            target, path, below = above
            if home.state(subject.uuid) in ("running", "paused"):
                command = f"blockcommit {subject.uuid} {target} --shallow --active --pivot --wait --timeout 40 2>&1"
                home.virsh(command, ok=False)
            else:
                home.run(f"qemu-img commit -q '{path}'")
                _redefined(home, subject, path, below)
            if disks(home, subject.uuid).get(target) != below:
                return [] if any(not one.ended for one in self._field.runs) else [f"{path} could not be merged"]
            home.run(f"rm -f '{path}'; virsh -q pool-refresh default; virsh -q pool-refresh second", ok=False)
        return []

    def attaches(self, subject: Subject) -> str:
        """A disk, and takes it away again."""
        home = subject.home(self._hosts)
        if not home or "vdc" in disks(home, subject.uuid):
            return ""
        path = f"{IMAGES}/{subject.name}-more{self._number}.qcow2"
        home.run(f"qemu-img create -q -f qcow2 {path} 16M")
        live = "--live --config" if home.state(subject.uuid) in ("running", "paused") else "--config"
        told = home.virsh(
            f"attach-disk {subject.uuid} {path} vdc --driver qemu --subdriver qcow2 {live} 2>&1", ok=False
        )
        if told.startswith("error"):
            home.run(f"rm -f {path}")
            return told
        self._begun("attaches", subject, lambda: self._detaches(subject))
        return told or "attached"

    def _detaches(self, subject: Subject) -> list[str]:
        home = subject.home(self._hosts)
        if not home:
            return []
        if not (path := disks(home, subject.uuid, "--inactive").get("vdc")):
            return ["the disk that was attached is not in its definition"]
        found = [] if home.run(f"test -e '{path}' && echo yes", ok=False) else [f"{path} is not on {home.name}"]
        if home.state(subject.uuid) in ("running", "paused"):  # nobody in the guest lets go of it
            subject.loose = True
            home.virsh(f"suspend {subject.uuid}", ok=False)
            subject.noted(home)
            home.virsh(f"destroy {subject.uuid} --graceful", ok=False)
        home.virsh(f"detach-disk {subject.uuid} vdc --config")
        home.run(f"rm -f '{path}'; virsh -q pool-refresh default", ok=False)
        return found

    def renames(self, subject: Subject) -> str:
        """For a while."""
        home = subject.home(self._hosts)
        if not home or home.state(subject.uuid) != "shut off":
            return ""
        subject.loose = True
        return home.virsh(f"domrename {subject.uuid} {subject.name}-o 2>&1", ok=False) or "renamed"

    def titles(self, subject: Subject) -> str:
        """Write its title."""
        home = subject.home(self._hosts)
        if not home:
            return ""
        began, title = time.monotonic(), f"of its owner {self._number}"
        told = home.virsh(f"desc {subject.uuid} --config --title '{title}' 2>&1", ok=False)
        subject.writes.append((began, time.monotonic(), title, not told.startswith("error")))
        return told

    def twins(self, subject: Subject) -> str:
        """On another host they define a guest of that name and UUID."""
        home = subject.home(self._hosts)
        others = [host for host in self._hosts if home and host.name != home.name and host.name not in subject.twins]
        if not home or not others:
            return ""
        host, path = self._chance.choice(others), f"{IMAGES}/twin-{self._number}.raw"
        foreign = self._foreign[host.name]
        foreign.file(path)
        told = host.run("virsh -q define /dev/stdin 2>&1", given=definition(subject.name, path, subject.uuid), ok=False)
        xml = host.virsh(f"dumpxml --inactive {subject.uuid} 2>/dev/null", ok=False)
        if told.startswith("error") or path not in xml:
            return f"{told} {foreign.drop(path) or ''}"
        if not home.state(subject.uuid):
            subject.damaged = "its owner defined another guest over it, when it had arrived"
            foreign.drop(path)
            return subject.damaged
        subject.twins.add(host.name)

        def undefines() -> list[str]:
            now = host.virsh(f"dumpxml --inactive {subject.uuid} 2>/dev/null", ok=False)
            found = [] if now == xml else [f"the twin on {host.name} was touched: {now[:300] or 'it is gone'}"]
            if not found:
                host.virsh(f"undefine {subject.uuid}", ok=False)
            subject.twins.discard(host.name)
            return found + foreign.drop(path)

        self._begun("twins", subject, undefines)
        return told or "defined"

    def copies_definition(self, subject: Subject) -> str:
        """dumpxml | sed | define."""
        home = subject.home(self._hosts)
        if not home:
            return ""
        xml = home.virsh(f"dumpxml --inactive {subject.uuid} 2>/dev/null", ok=False)
        uuid, name = str(uuids.UUID(int=self._chance.getrandbits(128), version=4)), f"copy-{self._number}"
        xml = xml.replace(subject.uuid, uuid).replace(f"<name>{subject.name}</name>", f"<name>{name}</name>")
        told = home.run("virsh -q define /dev/stdin 2>&1", given=re.sub(r"\n *<mac address=[^>]*>", "", xml), ok=False)
        if told.startswith("error"):
            return told
        foreign = self._foreign[home.name]
        foreign.keep(uuid)
        self._field.copies.add(uuid)
        paths = [path for path in disks(home, uuid).values() if path]
        self._watched |= {(home.name, path) for path in paths}
        inodes = {path: _inode(home, path) for path in paths}

        def removes() -> list[str]:
            found = foreign.drop(uuid)
            found += [
                f"{path} of its copy is another file, or gone"
                for path in paths
                if inodes[path] and _inode(home, path) != inodes[path] and not _SNAPSHOT.search(path)
            ]
            self._clearing.append(lambda: self._clears(home, subject, paths))
            return found

        self._begun("copies definition", subject, removes)
        return told or "defined"

    def overlays(self, subject: Subject) -> str:
        """Somebody's disk stands on its disk, with or without a guest of theirs."""
        home = subject.home(self._hosts)
        base = disks(home, subject.uuid).get("vda", "") if home else ""
        if not home or not (inode := _inode(home, base)):
            return ""
        path = f"{IMAGES}/overlay-{self._number}.qcow2"
        home.run(f"qemu-img create -q -u -f qcow2 -b '{base}' -F qcow2 {path} 256M; virsh -q pool-refresh default")
        self._watched.add((home.name, base))
        foreign, uuid = self._foreign[home.name], ""
        foreign.keep(path)
        if _inode(home, base) != inode:  # it was gone before
            foreign.drop(path)
            return ""
        if self._chance.random() < 0.6:
            xml = definition(f"overlay-{self._number}", path).replace('"raw"', '"qcow2"')
            home.run("virsh -q define /dev/stdin", given=xml)
            foreign.keep(uuid := home.virsh(f"domuuid overlay-{self._number}"))

        def removes() -> list[str]:
            # A snapshot that was merged is gone by its owner's own hand.
            gone = _inode(home, base) != inode and not _SNAPSHOT.search(base)
            found = [f"{base}, on which a disk stands, is another file, or gone"] if gone else []
            found += [line for each in (uuid, path) if each for line in foreign.drop(each)]
            self._clearing.append(lambda: self._clears(home, subject, [base]))
            return found

        self._begun("overlays", subject, removes)
        return f"made {path}{' and a guest' if uuid else ''}"

    def uses_thrown_away(self, _subject: Subject) -> str:
        """A guest that somebody else removes, and its disk."""
        name = self._chance.choice(THROWN_AWAY)
        uuids_found = [host.virsh(f"domuuid {name} 2>/dev/null", ok=False) for host in self._hosts]
        if not (uuid := next(filter(None, uuids_found), "")):
            return ""
        thrown = Subject("thrown away", self._field.base, name=name, uuid=uuid)
        act = self._chance.choice((self.overlays, self.copies_definition, self.starts, self.titles))
        told = act(thrown)
        return told and f"{act.__name__} {name}: {told}"

    def _clears(self, host: Host, subject: Subject, paths: t.Iterable[str]) -> None:
        """What was kept for them, and nobody has any more, they remove by hand."""
        home = subject.home(self._hosts)
        if home and home.name == host.name:
            return
        again = subject.name in host.virsh("list --all --name", ok=False).split()  # made anew
        if again or host.name in subject.places(self._hosts):
            return
        for path in paths:
            host.run(f"rm -f '{path}'", ok=False)
        host.run("virsh -q pool-refresh default; virsh -q pool-refresh second", ok=False)

    def replaces(self, subject: Subject) -> str:
        """Where its disk is being made, somebody renames a file over it, as rsync and restores do."""
        home = subject.home(self._hosts)
        disk = disks(home, subject.uuid).get("vda", "") if home else ""
        others = [
            one for one in self._hosts if home and one.name != home.name and (one.name, disk) not in self._watched
        ]
        host = next((host for host in others if _inode(host, disk)), None)
        if not home or not host:
            return ""
        new = f"{IMAGES}/restored-{self._number}.qcow2"
        host.run(f"qemu-img create -q -f qcow2 {new} 256M && qemu-io -c 'write -q -P 0x77 1M 3M' {new}")
        told = host.run(
            f"if [ -e '{disk}' ] && [ \"$(virsh domstate {subject.uuid} 2>/dev/null)\" != running ]; then "
            f"mv {new} '{disk}' && echo renamed over it; else rm -f {new}; fi",
            ok=False,
        )
        if not told:
            return ""
        foreign = self._foreign[host.name]
        foreign.keep(disk)
        if subject.places(self._hosts).keys() <= {host.name}:
            subject.damaged = "its owner renamed a file over its disk, when it had arrived"

        def takes_away() -> list[str]:
            if host.name not in subject.places(self._hosts) or host.name in subject.twins or subject.damaged:
                return [] if subject.damaged else foreign.drop(disk)
            subject.damaged = "its owner renamed a file over its disk while it was sent"
            kept = [one.name for one in self._hosts if one.name != host.name and _inode(one, disk)]
            return [] if kept else ["it has arrived over another file, and its disk was deleted"]

        self._begun("replaces", subject, takes_away)
        return told

    def kills_incoming(self, subject: Subject) -> str:
        """QEMU that waits for the guest."""
        home = subject.home(self._hosts)
        for host in self._hosts:
            if not home or host.name == home.name or home.state(subject.uuid) != "running":
                continue
            pids = host.find("qemu-system", uuid=subject.uuid)
            if pids and host.look(subject.uuid)[0] != "running":
                subject.loose = True
                subject.noted(home)
                host.kill(pids)
                if home.state(subject.uuid) != "running":
                    subject.damaged = "its owner killed it when it had just arrived"
                return f"killed on {host.name}"
        return ""

    def kills_modules(self, subject: Subject) -> str:
        """Of whichever controller."""
        for host in self._chance.sample(self._hosts, len(self._hosts)):
            if pids := host.find("virt_migrat") or host.find("virt_domains"):
                self._killed()
                return f"killed {host.kill(pids)} on {host.name}"
        return ""

    def kills_a_controller(self, _subject: Subject) -> str:
        """The machine that runs Ansible; the module goes on."""
        alive = [one for one in self._field.runs if not one.ended]
        if not alive:
            return ""
        one = self._chance.choice(alive)
        one.killed = True
        one.run.signal(self._chance.choice((signal.SIGKILL, signal.SIGINT)))
        return f"killed {one.who} {one.book}"

    def _killed(self) -> None:
        for one in self._field.runs:
            if not one.ended:
                one.killed = True

    def restarts_libvirtd(self, _subject: Subject) -> str:
        """On one of the hosts."""
        host = self._chance.choice(self._hosts)
        host.run("systemctl reset-failed libvirtd; systemctl restart libvirtd", ok=False)
        return f"restarted on {host.name}"


_ACTS: dict[str, tuple[int, t.Callable[[Owner, Subject], str]]] = {
    "starts": (8, Owner.starts),
    "shuts down": (5, Owner.shuts_down),
    "suspends": (5, Owner.suspends),
    "snapshots": (10, Owner.snapshots),
    "ends one": (12, Owner.ends_one),
    "attaches": (7, Owner.attaches),
    "renames": (5, Owner.renames),
    "titles": (8, Owner.titles),
    "twins": (4, Owner.twins),
    "copies definition": (8, Owner.copies_definition),
    "overlays": (8, Owner.overlays),
    "replaces": (9, Owner.replaces),
    "uses thrown away": (9, Owner.uses_thrown_away),
    "kills incoming": (7, Owner.kills_incoming),
    "kills modules": (5, Owner.kills_modules),
    "kills a controller": (3, Owner.kills_a_controller),
    "restarts libvirtd": (4, Owner.restarts_libvirtd),
}


def disks(host: Host, uuid: str, flags: str = "") -> dict[str, str]:
    """Path by target, as its definition names them."""
    rows = [line.split(None, 1) for line in host.virsh(f"domblklist {uuid} {flags} 2>/dev/null", ok=False).splitlines()]
    return {row[0]: row[1].strip() for row in rows if len(row) == 2}


def chain(host: Host, path: str) -> list[str]:
    """A disk and all that it stands on."""
    told = host.run(f"qemu-img info -U --backing-chain --output=json -f qcow2 '{path}' 2>/dev/null", ok=False)
    return [one["filename"] for one in json.loads(told or "[]")]


def _above(host: Host, subject: Subject) -> tuple[str, str, str] | None:
    """Of a disk that is a snapshot: target, path, and what is below it."""
    for target, path in disks(host, subject.uuid).items():
        if not _SNAPSHOT.search(path):
            continue
        below = [one for one in chain(host, path)[1:2] if one != subject.base]
        if below:
            return target, path, below[0]
        subject.paths[target] = path  # a migration has made one file of them
    return None


def _redefined(host: Host, subject: Subject, path: str, below: str) -> None:
    """Its disk is the one below, whose own chain libvirt reads from it."""
    tree = etree.fromstring(host.virsh(f"dumpxml --inactive {subject.uuid}"))
    for source in tree.findall("devices/disk/source[@file]"):
        disk = source.getparent()
        if source.get("file") == path and disk is not None:
            source.set("file", below)
            for each in disk.findall("backingStore"):
                disk.remove(each)
    host.run("virsh -q define /dev/stdin", given=etree.tostring(tree, encoding="unicode"))


def _inode(host: Host, path: str) -> str:
    return host.run(f"stat -c %i '{path}' 2>/dev/null", ok=False) if path else ""
