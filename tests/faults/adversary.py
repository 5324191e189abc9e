"""Others act between plan and act, right before each step that cannot be undone: the owner of the guest, the owner of a
file, a second controller.

A run stops before a named step (`between.py`); somebody acts with virsh and qemu-img; the run goes on. Judged by what
virsh, qemu-img and the bytes say: nothing acknowledged is lost, nothing of others is touched, no run ends well over
something unsettled. `during` acts while libvirt migrates.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import subprocess
import time
import typing as t
from pathlib import Path

import ansible

from ansible_collections.corral.virt.tests.faults.foreign import Foreign, definition
from ansible_collections.corral.virt.tests.faults.guest import Guest
from ansible_collections.corral.virt.tests.faults.hosts import Host, until
from ansible_collections.corral.virt.tests.faults.scene import Violation
from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES, ROOT

__all__ = ["ACTS", "Act", "Stage"]

_PLACE = "/root/between"
_RUN_S = 900  # for one that hangs
_NEW = f"{IMAGES}/new-owner.qcow2"
_PATTERN = 0x5A
_SECOND = "/srv/second/subject-2.qcow2"


class Between:
    """A front of the collection on a host, which stops at a step."""

    def __init__(self, host: Host, front: str, at: str, params: t.Mapping[str, t.Any]) -> None:
        enter = ["nsenter", f"--target={host.init}", "--all", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
        self._process = subprocess.Popen(
            [*enter, "HOME=/root", "python3", f"{_PLACE}/between.py", _PLACE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.result: t.Any = None
        self.failed = ""
        self._give({"front": front, "at": at, "params": dict(params)})

    def _give(self, told: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(told), file=self._process.stdin, flush=True)

    def reached(self) -> str:
        """The step that it waits before; empty when it has ended."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        told = json.loads(line) if line else {"failed": f"it died: {self._process.communicate()[1][-600:]}"}
        self.result, self.failed = told.get("result"), told.get("failed", "")
        return str(told.get("reached", ""))

    def go(self) -> None:
        """Let it go on."""
        self._give("go")

    def end(self) -> bool:
        """Wait for its end; whether it ended well."""
        while self.reached():
            self.go()
        try:
            self._process.wait(_RUN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self.failed = "it did not end"
        return not self.failed


class MadeGuest(Guest):
    """Made by the collection, so that it has a record of its disk; off, with data."""

    @property
    def disk(self) -> str:
        """Its path."""
        return f"{self.directory}/{self.name}-system.qcow2"

    def make(self, host: Host) -> None:
        """Have it there."""
        params = {
            "name": self.name,
            "uuid": self.uuid,
            "state": "shutdown",
            "memory": "64MiB",
            "vcpus": 1,
            "interfaces": [],
            "disks": [{"name": "system", "size": "256MiB"}],
        }
        run = Between(host, "guest", "", params)
        if not run.end():
            raise RuntimeError(f"it was not made: {run.failed}")
        host.run(f"qemu-io -c 'write -q -P {_PATTERN} 8M 40M' {self.disk}")

    def on_disk(self, host: Host) -> int:
        """What was written is there."""
        host.run(f"qemu-io -r -c 'read -q -P {_PATTERN} 8M 40M' {self.disk}")
        return 0


@dataclasses.dataclass
class Stage:
    """The hosts, the guest, and what others have on them."""

    source: Host
    dest: Host
    guest: Guest
    foreign: Foreign  # on the destination
    here: Foreign  # on the source
    notes: dict[str, str] = dataclasses.field(default_factory=dict)

    def states(self) -> dict[str, str]:
        """Of the guest, by host, as virsh says it."""
        found = {host.name: host.state(self.guest.uuid) for host in (self.source, self.dest)}
        return {name: state for name, state in found.items() if state}


@dataclasses.dataclass(frozen=True)
class Act:
    """One thing that somebody does before one step."""

    name: str
    kind: str  # of the guest: cold, delta, full
    at: str  # class and number of the step
    acts: t.Callable[[Stage], None]
    ends: str  # `arrives`, `stays`, `gone`, or `either`: then at one place, with all its sectors
    says: str = ""  # what a run that fails must say
    front: str = "migrate"
    params: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    during: bool = False  # while libvirt migrates
    settles: t.Callable[[Stage], None] | None = None  # what the owner does when they were told
    again: bool = True  # then the same command ends well


# What somebody does -------------------------------------------------------------------------------------------------


def starts_and_writes(stage: Stage) -> None:
    """The owner starts it, lets it write, and shuts it down; or is told that this is not possible now."""
    told = stage.source.run(f"virsh start {stage.guest.uuid} 2>&1", ok=False)
    stage.notes["start"] = told
    if "started" in told:
        until(lambda: stage.guest.counter(stage.source) > stage.guest.written + 40, 20)
        stage.guest.noted(stage.source)
        stage.source.virsh(f"destroy {stage.guest.uuid}")


def snapshots(stage: Stage) -> None:
    """A disk-only snapshot without metadata: it goes on in a new file, which stands on the old one."""
    extra = ""
    if stage.guest.second:
        extra = f"--diskspec vdb,file={stage.guest.second}.s1"
    told = stage.source.run(
        f"virsh snapshot-create-as {stage.guest.uuid} s1 --disk-only --no-metadata --diskspec "
        f"vda,file={IMAGES}/{stage.guest.name}.s1 {extra} 2>&1",
        ok=False,
    )
    stage.notes["snapshot"] = told


def merges(stage: Stage) -> None:
    """The snapshot is merged again."""
    for target in ("vda", "vdb") if stage.guest.second else ("vda",):
        if stage.source.state(stage.guest.uuid) == "running":
            stage.source.virsh(f"blockcommit {stage.guest.uuid} {target} --active --pivot --wait", ok=False)
        else:
            _commit_offline(stage, target)
    stage.source.run(f"rm -f {IMAGES}/{stage.guest.name}.s1 {_SECOND}.s1", ok=False)


def _commit_offline(stage: Stage, target: str) -> None:
    paths = {"vda": (stage.guest.disk, f"{IMAGES}/{stage.guest.name}.s1")}
    if stage.guest.second:
        paths["vdb"] = (stage.guest.second, f"{stage.guest.second}.s1")
    below, above = paths[target]
    if stage.source.run(f"test -e {above} && echo yes", ok=False) != "yes":
        return
    stage.source.run(f"qemu-img commit -q {above}")
    xml = stage.source.virsh(f"dumpxml --inactive {stage.guest.uuid}")
    stage.source.run("virsh -q define /dev/stdin", given=xml.replace(above, below))


def attaches(stage: Stage) -> None:
    """The owner attaches a disk."""
    path = f"{IMAGES}/{stage.guest.name}-more.qcow2"
    stage.source.run(f"qemu-img create -q -f qcow2 {path} 16M")
    live = "--live --config" if stage.source.state(stage.guest.uuid) == "running" else "--config"
    told = stage.source.run(
        f"virsh attach-disk {stage.guest.uuid} {path} vdc --driver qemu --subdriver qcow2 {live} 2>&1", ok=False
    )
    stage.notes["attach"] = told


def detaches(stage: Stage) -> None:
    """And takes it away again."""
    live = "--live --config" if stage.source.state(stage.guest.uuid) == "running" else "--config"
    stage.source.virsh(f"detach-disk {stage.guest.uuid} vdc {live}", ok=False)
    until(lambda: "vdc" not in stage.source.virsh(f"domblklist {stage.guest.uuid}"), 10)
    if "vdc" in stage.source.virsh(f"domblklist {stage.guest.uuid}"):  # nobody in the guest lets go of it
        stage.source.virsh(f"detach-disk {stage.guest.uuid} vdc --config", ok=False)
        stage.source.virsh(f"destroy {stage.guest.uuid}", ok=False)
        stage.guest.noted(stage.source)
        stage.source.virsh(f"start {stage.guest.uuid}", ok=False)
    stage.source.run(f"rm -f {IMAGES}/{stage.guest.name}-more.qcow2")


def renames(stage: Stage) -> None:
    """The owner gives it another name."""
    stage.notes["rename"] = stage.source.run(f"virsh domrename {stage.guest.uuid} renamed 2>&1", ok=False)


def renames_back(stage: Stage) -> None:
    """And the old one again."""
    stage.source.virsh(f"domrename {stage.guest.uuid} {stage.guest.name}")


def replaces(stage: Stage) -> None:
    """On the destination somebody renames a file over the disk, as rsync and restores do."""
    stage.dest.run(
        f"qemu-img create -q -f qcow2 {_NEW} 256M && qemu-io -c 'write -q -P 0x77 1M 3M' {_NEW} && "
        f"mv {_NEW} {stage.guest.disk}"
    )
    stage.foreign.keep(stage.guest.disk)


def replaces_and_kills(stage: Stage) -> None:
    """The same, and then the guest's process there dies."""
    replaces(stage)
    stage.dest.kill(stage.dest.find("qemu-system", uuid=stage.guest.uuid))


def replaces_here(stage: Stage) -> None:
    """On its own host somebody renames a file over the disk."""
    stage.source.run(
        f"qemu-img create -q -f qcow2 {_NEW} 256M && qemu-io -c 'write -q -P 0x77 1M 3M' {_NEW} && "
        f"mv {_NEW} {stage.guest.disk}"
    )
    stage.here.keep(stage.guest.disk)


def gives_way_here(stage: Stage) -> None:
    """Whoever has that file takes it away."""
    if changed := stage.here.drop(stage.guest.disk):
        raise Violation(f"somebody else's: {changed}")


def gives_way(stage: Stage) -> None:
    """Whoever has that file takes it away."""
    if changed := stage.foreign.drop(stage.guest.disk):
        raise Violation(f"somebody else's: {changed}")
    stage.dest.virsh("pool-refresh default")


def defines_a_twin(stage: Stage) -> None:
    """On the destination somebody defines a guest of that name and UUID."""
    path = f"{IMAGES}/twin.raw"
    stage.foreign.file(path)
    xml = definition(stage.guest.name, path, stage.guest.uuid)
    stage.notes["twin"] = stage.dest.run("virsh -q define /dev/stdin 2>&1", given=xml, ok=False)
    stage.notes["twin xml"] = stage.dest.virsh(f"dumpxml --inactive {stage.guest.uuid}")


def starts_a_twin(stage: Stage) -> None:
    """The same, and it runs."""
    defines_a_twin(stage)
    stage.dest.virsh(f"start --paused {stage.guest.uuid}")
    stage.foreign.keep(f"{IMAGES}/twin.raw")  # libvirt has given it to QEMU


def undefines_there(stage: Stage) -> None:
    """On the destination somebody undefines the guest that has arrived."""
    stage.notes["arrived"] = stage.dest.virsh(f"dumpxml --inactive --security-info {stage.guest.uuid}")
    stage.dest.virsh(f"undefine {stage.guest.uuid}")


def defines_it_again(stage: Stage) -> None:
    """Its disk is still on the source, whole; the guest is defined again on the destination."""
    stage.guest.on_disk(stage.source)
    stage.dest.run("virsh -q define /dev/stdin", given=stage.notes["arrived"])


def undefines_the_twin(stage: Stage) -> None:
    """Its owner removes it; until now it was as they had defined it."""
    if (now := stage.dest.virsh(f"dumpxml --inactive {stage.guest.uuid}", ok=False)) != stage.notes["twin xml"]:
        raise Violation(f"the twin was touched: {now}")
    if changed := stage.foreign.drop(f"{IMAGES}/twin.raw"):
        raise Violation(f"the twin's disk was touched: {changed}")
    stage.dest.virsh(f"destroy {stage.guest.uuid} 2>/dev/null", ok=False)
    stage.dest.virsh(f"undefine {stage.guest.uuid}")


def undefines_beside(stage: Stage) -> None:
    """Its owner removes it, beside the guest that has arrived, which goes on."""
    if (now := stage.dest.virsh(f"dumpxml --inactive {stage.guest.uuid}", ok=False)) != stage.notes["twin xml"]:
        raise Violation(f"the twin was touched: {now}")
    stage.dest.virsh(f"undefine {stage.guest.uuid}")


def uses_the_disk(stage: Stage) -> None:
    """On the source somebody has made a disk that stands on the guest's, for a guest of theirs."""
    path = f"{IMAGES}/overlay-of-others.qcow2"
    base = stage.guest.disk
    stage.source.run(f"qemu-img create -q -f qcow2 -b {base} -F qcow2 {path}")
    stage.source.virsh("pool-refresh default")
    stage.source.run(
        "virsh -q define /dev/stdin", given=definition("overlay-of-others", path).replace('"raw"', '"qcow2"')
    )
    stage.notes["used"] = stage.source.run(f"stat -c %i {base}")


def snapshots_there(stage: Stage) -> None:
    """The owner finds it on the destination, running, and takes a snapshot."""
    stage.dest.virsh(
        f"snapshot-create-as {stage.guest.uuid} s1 --disk-only --no-metadata --diskspec vda,file={IMAGES}/subject.s1"
    )


def has_the_same_disks_when_it_starts_again(stage: Stage) -> None:
    """Its stored definition names what it writes to."""
    stored, live = (stage.dest.virsh(f"domblklist {flag} {stage.guest.uuid}") for flag in ("--inactive", ""))
    if stored.split() != live.split():
        raise Violation(f"it runs with {live}, and would start with {stored}")


def keeps_the_disk(stage: Stage) -> None:
    """Until now it is there; then its new user lets it go."""
    if stage.source.run(f"stat -c %i {stage.guest.disk}", ok=False) != stage.notes["used"]:
        raise Violation("a disk that somebody had come to use was deleted")
    stage.source.virsh("undefine overlay-of-others")
    stage.source.run(f"rm -f {IMAGES}/overlay-of-others.qcow2")
    stage.source.virsh("pool-refresh default")


def nothing(_stage: Stage) -> None:
    """Whatever they did was refused."""


def drops_the_disk(stage: Stage) -> None:
    """As `keeps_the_disk`; and it is removed by hand, as nobody has it any more."""
    keeps_the_disk(stage)
    stage.source.run(f"rm -f {stage.guest.disk}")
    stage.source.virsh("pool-refresh default")


_SLOW = {"bandwidth_mib_s": 4}
_DEFINITION = "definition"
_PURGE = {"state": "absent", "remove_storage": True}

ACTS = (
    # Off
    Act("the owner starts it while its second disk is copied", "cold", "CopyDisk 2", starts_and_writes, "arrives"),
    Act("the owner starts it before its place is reserved", "cold", "Reserve 1", starts_and_writes, "arrives"),
    Act("the owner starts it before it is undefined", "cold", "UndefineOnSource 1", starts_and_writes, "arrives"),
    *(
        Act(f"{what} at {at}", "cold", f"{at} {number}", act, "stays", _DEFINITION, settles=undo)
        for what, act, undo in (
            ("a snapshot", snapshots, merges),
            ("a disk attached", attaches, detaches),
            ("another name", renames, renames_back),
        )
        for at, number in (("CopyDisk", 2), ("Reserve", 1), ("UndefineOnSource", 1))
    ),
    *(
        Act(f"the copy replaced at {at}", "cold", at, replaces, "stays", "replaced|took this name", settles=gives_way)
        for at in ("CopyDisk 2", "Reserve 1", "UndefineOnSource 1")
    ),
    *(
        Act(f"{what} on the destination at {at}", "cold", at, act, "stays", "uuid|reserve", settles=undefines_the_twin)
        for what, act in (("a twin", defines_a_twin), ("a twin that runs", starts_a_twin))
        for at in ("CopyDisk 1", "Reserve 1", "UndefineOnSource 1")
    ),
    Act("the source's disk used before it is removed", "cold", "RemoveDisk 1", uses_the_disk, "arrives", "use",
        settles=keeps_the_disk),
    Act("the guest undefined on the destination before the source's disk is removed", "cold", "RemoveDisk 1",
        undefines_there, "gone", "no longer on the destination", settles=defines_it_again),
    # Removed
    *(
        Act(f"{what} before it is {verb}", "made", f"{at} 1", act, ends, says, "guest", _PURGE, settles=undo)
        for what, at, verb, act, ends, says, undo in (
            ("an overlay", "Undefine", "undefined", uses_the_disk, "gone", "use", keeps_the_disk),
            ("an overlay", "DeleteVolume", "deleted", uses_the_disk, "gone", "use", keeps_the_disk),
            ("a disk attached", "Undefine", "undefined", attaches, "stays", _DEFINITION, detaches),
            ("a snapshot", "Undefine", "undefined", snapshots, "stays", _DEFINITION, merges),
            ("another file", "DeleteVolume", "deleted", replaces_here, "gone", "another file|not the", gives_way_here),
        )
    ),
    # Running
    Act("a snapshot of a running guest", "full", "Migrate 1", snapshots, "stays", _DEFINITION, settles=merges),
    Act("a snapshot before its disk is made there", "full", "MakeDisk 1", snapshots, "stays", _DEFINITION,
        settles=merges),
    Act("a snapshot that stays", "full", "Record 1", snapshots, "stays", _DEFINITION, settles=nothing),
    Act("a snapshot that stays, on an image", "delta", "Record 1", snapshots, "stays", _DEFINITION, settles=nothing),
    Act("a snapshot that stays, of a guest that is off", "cold", "Record 1", snapshots, "stays", _DEFINITION,
        settles=nothing),
    Act("a disk attached to a running guest", "delta", "Migrate 1", attaches, "stays", _DEFINITION, settles=detaches),
    Act("the running guest's copy replaced before it is sent", "delta", "Migrate 1", replaces, "either", "replaced",
        settles=gives_way, again=False),
    Act("the running guest's copy replaced while it is sent", "full", "Migrate 1", replaces, "either", "replaced",
        params=_SLOW, during=True, settles=gives_way, again=False),
    Act("the copy replaced, and its process killed", "full", "Migrate 1", replaces_and_kills, "stays", "",
        params=_SLOW, during=True, settles=gives_way),
    *(
        Act(f"{what} of a running guest at {at}", "delta", at, act, "stays", "uuid", settles=undefines_the_twin)
        for what, act in (("a twin", defines_a_twin), ("a twin that runs", starts_a_twin))
        for at in ("MakeDisk 1", "Reserve 1")
    ),
    Act("a twin while it is sent", "full", "Migrate 1", defines_a_twin, "either", "somebody", params=_SLOW,
        during=True, settles=undefines_beside),
    Act("a snapshot there before it is defined", "full", "DefineOnDest 1", snapshots_there, "arrives",
        settles=has_the_same_disks_when_it_starts_again),
    Act("a running guest's disk used before it is removed", "full", "RemoveDisk 1", uses_the_disk, "arrives", "use",
        settles=keeps_the_disk),
)  # fmt: skip


# How it is tried ----------------------------------------------------------------------------------------------------


def install(host: Host) -> None:
    """The collection, what it imports of Ansible, and the program that stops, where no run of Ansible looks."""
    ansible_code = Path(ansible.__file__).parent
    parts = (
        (ROOT / "plugins", ("module_utils",), "ansible_collections/corral/virt/plugins"),
        (ansible_code, ("release.py", "module_utils", "_internal"), "ansible"),
    )
    place = host.path(_PLACE)
    for folder, names, where in parts:
        packed = ["tar", "-C", str(folder), "--exclude=__pycache__", "-cf", "-", *names]
        code = subprocess.run(packed, capture_output=True, check=True).stdout
        (place / where).mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-C", str(place / where), "-xf", "-"], input=code, check=True)
    (place / "ansible/__init__.py").write_text("")
    (place / "between.py").write_text((ROOT / "tests/faults/between.py").read_text())


@contextlib.contextmanager
def staged(act: Act, source: Host, dest: Host, base: str) -> t.Iterator[Stage]:
    """The guest on the source; afterwards nothing is left on either host."""
    foreign, here = Foreign(dest), Foreign(source)
    kind = MadeGuest if act.kind == "made" else Guest
    guest = kind(act.kind, base, second=_SECOND if act.kind == "cold" else "")
    before = {host: host.path("/srv/second").exists() for host in (source, dest)}
    install(source)
    for host in (source, dest):
        _second_pool(host)
    with contextlib.ExitStack() as after:
        after.callback(_without_second_pool, [host for host, had in before.items() if not had])
        after.callback(_swept, source, dest, guest)
        after.callback(foreign.remove)
        after.callback(here.remove)
        guest.make(source)
        yield Stage(source, dest, guest, foreign, here)


def _second_pool(host: Host) -> None:
    host.run(
        "mkdir -p /srv/second; virsh -q pool-info second >/dev/null 2>&1 || { virsh -q pool-define-as second dir "
        "--target /srv/second; virsh -q pool-start second; virsh -q pool-autostart second; }"
    )


def _without_second_pool(hosts: t.Iterable[Host]) -> None:
    for host in hosts:
        host.run("virsh -q pool-destroy second; virsh -q pool-undefine second; rm -rf /srv/second", ok=False)


def _swept(source: Host, dest: Host, guest: Guest) -> None:
    for host in (source, dest):
        host.virsh(f"domrename renamed {guest.name} 2>/dev/null", ok=False)
        host.virsh("undefine overlay-of-others 2>/dev/null", ok=False)
        guest.remove(host)
        host.virsh(f"undefine {guest.uuid} 2>/dev/null", ok=False)
        host.run(
            f"rm -rf {IMAGES}/{guest.name}* {IMAGES}/.corral {IMAGES}/twin.raw {IMAGES}/overlay-of-others.qcow2 {_NEW} "
            f"{_SECOND}* /srv/second/.corral; virsh -q pool-refresh default; virsh -q pool-refresh second",
            ok=False,
        )


def tried(act: Act, source: Host, dest: Host, base: str) -> str:
    """What came of it, in words; raises Violation."""
    with staged(act, source, dest, base) as stage:
        params = {"name": stage.guest.name, **({"dest": dest.name} if act.front == "migrate" else {}), **act.params}
        run = Between(source, act.front, act.at, params)
        step = run.reached()
        if not step:
            raise Violation(f"it never came to {act.at}: {run.failed or run.result}")
        if act.during:
            run.go()
            _under_way(stage)
            act.acts(stage)
        else:
            act.acts(stage)
            run.go()
        arrived = run.end()
        result = "arrived" if arrived else run.failed
        _judge(act, stage, result, arrived=arrived)
        told = f"{stage.notes.get('start', '')} {result}".strip()
        if act.settles:
            act.settles(stage)
        if act.again:
            again = Between(source, act.front, "", params)
            if not again.end():
                raise Violation(f"settled, and run again, it failed: {again.failed} (first: {result})")
            if act.front == "migrate":
                _is_home(stage, dest, "run again")
        written = _counted(stage) if act.front == "migrate" else _removed(stage)
        if changed := [*stage.foreign.changed(), *stage.here.changed()]:
            raise Violation(f"what is somebody else's was touched: {changed} ({result})")
        return f"{told[:300]}; {written} sectors"


def _under_way(stage: Stage) -> None:
    """libvirt copies."""
    if not until(lambda: stage.source.look(stage.guest.uuid)[1].get("data_processed", 0) > 2**20, 60, every_s=0.02):
        raise Violation(f"nothing was sent: {stage.states()}")
    time.sleep(0.2)


def _judge(act: Act, stage: Stage, result: str, *, arrived: bool) -> None:
    """Where it is, and what was said."""
    fails = act.ends == "stays" or bool(act.says)
    if fails and arrived:
        raise Violation(f"it ended well over {act.name}: {stage.states()} {stage.notes}")
    if not fails and not arrived:
        raise Violation(f"it failed: {result} {stage.notes}")
    if fails and not re.search(act.says, re.sub(r"\s+", " ", result)):
        raise Violation(f"it did not say '{act.says}': {result}")
    states = stage.states()
    running = [name for name, state in states.items() if state == "running"]
    if len(running) > 1:
        raise Violation(f"it runs twice: {states} ({result})")
    home = {"arrives": stage.dest, "stays": stage.source}.get(act.ends)
    if act.front == "migrate" and home:
        _is_home(stage, home, result)
    if act.ends == "gone" and states:
        raise Violation(f"it is still there: {states}")
    if act.ends == "stays" and not states:
        raise Violation(f"it is gone: {result}")


def _is_home(stage: Stage, home: Host, when: str) -> None:
    state = home.state(stage.guest.uuid)
    wanted = "shut off" if stage.guest.kind == "cold" else "running"
    if state != wanted:
        raise Violation(f"{when}: it is not {wanted} on {home.name}: {stage.states()} {stage.notes}")


def _removed(stage: Stage) -> int:
    """The guest is gone, and so is its disk, unless somebody needed it."""
    if stage.states():
        raise Violation(f"it was not removed: {stage.states()}")
    return 0


def _fold(stage: Stage, home: Host) -> None:
    """What was written since a snapshot, into the file that it was taken of."""
    for above in home.virsh(f"domblklist {stage.guest.uuid}").split():
        if above.endswith(".s1"):
            home.run(f"qemu-img commit -q {above}")


def _counted(stage: Stage) -> int:
    """How many sectors stand on the disk of the guest, none of those acknowledged missing."""
    home = next(
        (host for host in (stage.dest, stage.source) if stage.states().get(host.name) in ("running", "paused")), None
    ) or next(host for host in (stage.dest, stage.source) if stage.states().get(host.name))
    written = stage.guest.written
    if stage.states()[home.name] == "paused":  # its disk is the source's, as of the switch-over
        home.virsh(f"destroy {stage.guest.uuid}")
        home = stage.source
        return stage.guest.on_disk(home)
    if stage.states()[home.name] == "running":
        home.virsh(f"suspend {stage.guest.uuid}")
        stage.guest.noted(home)
        home.virsh(f"destroy {stage.guest.uuid} --graceful")
    _fold(stage, home)
    count = stage.guest.on_disk(home)
    if count < max(written, stage.guest.written):
        raise Violation(f"its disk went back: {count} sectors, and {max(written, stage.guest.written)} were written")
    return count
