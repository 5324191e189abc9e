"""What is done about snapshots: the steps, and what is refused before anything is touched."""

from __future__ import annotations

import dataclasses
import json
import typing as t
import zlib

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.retention import expired
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import (
    Snapshot,
    SnapshotDisk,
    SnapshotRecord,
    Tree,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_snapshot import GuestDisk, disks
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_guest_steps import Define
from ansible_collections.corral.virt.plugins.module_utils._snapshot import (
    plan_delete,
    plan_revert,
    plan_snapshot,
    plan_snapshot_info,
    plan_take,
)
from ansible_collections.corral.virt.plugins.module_utils._snapshot.plan_snapshot import (
    ChainLink,
    SnapshotPlan,
    SnapshotSpec,
)
from ansible_collections.corral.virt.plugins.module_utils._snapshot.plan_snapshot_steps import (
    Merge,
    MergeOff,
    PowerOff,
    RecordSnapshot,
    Redefine,
    Revert,
    TakeSnapshot,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.model_removed_disk import DiskAside, RemovedDisk
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

UUID = "2ff4c3c5-8a3b-4f9d-9b5e-cc7cf3cbb8f2"
MIB = 1024**2
NOW_S = 1_795_878_000
PLANS = {"present": plan_take.plan, "absent": plan_delete.plan, "reverted": plan_revert.plan}
AGENT = "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0' state='connected'/></channel>"


def disk(target: str, path: str, form: str = "qcow2", more: str = "", kind: str = "file") -> str:
    """A disk in a definition."""
    attribute = {"file": "file", "block": "dev"}.get(kind, "name")
    return (
        f"<disk type='{kind}' device='disk'><driver name='qemu' type='{form}'/><source {attribute}='{path}'/>"
        f"<target dev='{target}' bus='virtio'/>{more}</disk>"
    )


def document(*devices: str, entries: t.Sequence[SnapshotRecord] = (), os: str = "") -> str:
    """A guest with these disks, and these entries in its record."""
    record = "".join(f"<corral:snapshot>{entry.text()}</corral:snapshot>" for entry in entries)
    metadata = f"<metadata><corral:guest xmlns:corral='urn:corral:virt:guest:1'>{record}</corral:guest></metadata>"
    return (
        f"<domain type='kvm'><name>g</name><uuid>{UUID}</uuid>{metadata}<memory unit='KiB'>65536</memory><os>{os}</os>"
        f"<devices>{''.join(devices)}</devices></domain>"
    )


def snapshot(name: str, parent: str | None, overlay: str, base: str, **more: t.Any) -> Snapshot:
    """A snapshot of one disk."""
    what: dict[str, t.Any] = {
        "created_s": NOW_S - 7200,
        "parent": parent,
        "disks": (SnapshotDisk("vda", "external", overlay, "qcow2", base, "qcow2"),),
        "xml": f"<domainsnapshot><name>{name}</name>{document(disk('vda', base))}</domainsnapshot>",
    }
    return Snapshot(name, **{**what, **more})


@dataclasses.dataclass
class Host:
    """A `SnapshotHost` that knows all its answers."""

    stored: str
    running: bool = True
    snapshots: t.Sequence[Snapshot] = ()
    live: str = ""
    persistent: bool = True
    keeps: tuple[str, ...] = ()
    at_work: str | None = None
    users: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    missing: t.Collection[str] = ()
    free: int = 1024**3
    unpooled: t.Collection[str] = ()
    states: tuple[str, ...] = ()
    bitmaps: bool = False
    libvirt: int = 9_000_000
    due: tuple[DiskAside, ...] = ()
    chains: t.Sequence[str] = ()  # of vda, the top first
    inodes: t.Mapping[str, int] = dataclasses.field(default_factory=dict)  # of files with several names

    def guest(self, name: str) -> FoundGuest | None:
        live = (self.live or self.stored) if self.running else None
        state = "running" if self.running else "off"
        return FoundGuest("g", UUID, state, self.persistent, False, self.stored, live) if name == "g" else None

    def tree(self, _uuid: str) -> Tree:
        return Tree(self.snapshots)

    def kept(self, _uuid: str) -> tuple[str, ...]:
        return self.keeps

    def disks(self, xml: str) -> tuple[GuestDisk, ...]:
        return tuple(disks(xml, lambda _pool, volume: f"/p/{volume}"))

    def job(self, _uuid: str, _target: str) -> str | None:
        return self.at_work

    def chain(self, path: str, form: str) -> tuple[ChainLink, ...]:
        found = list(self.chains)[list(self.chains).index(path) :] if path in self.chains else [path]
        return tuple(ChainLink(one, "raw" if one.endswith(".raw") else form) for one in found)

    def other_user(self, path: str, _but: str, _without: tuple[str, ...]) -> str | None:
        return self.users.get(path)

    def exists(self, path: str) -> bool:
        return path not in self.missing

    def identity(self, path: str) -> FileIdentity | None:
        return FileIdentity(self.inodes.get(path, zlib.crc32(path.encode())), 9)

    def taken_bytes(self, _path: str) -> int:
        return 2 * MIB

    def unfinished_removals(self) -> tuple[DiskAside, ...]:
        return self.due

    def is_pooled(self, directory: str) -> bool:
        return directory.rstrip("/") not in self.unpooled

    def free_in(self, _directory: str) -> int:
        return self.free

    def memory_bytes(self, _xml: str) -> int:
        return 64 * MIB

    def state_files(self, _xml: str, _uuid: str) -> tuple[str, ...]:
        return self.states

    def has_bitmaps(self, _path: str) -> bool:
        return self.bitmaps

    def version(self) -> int:
        return self.libvirt

    def token(self) -> str:
        return "0a1b"

    def now_s(self) -> int:
        return NOW_S


def plan(host: Host, state: str = "present", name: str = "s", **more: t.Any) -> SnapshotPlan:
    """The plan for one snapshot."""
    return PLANS[state](plan_snapshot.scene(SnapshotSpec("g", name, state, **more), host))


def steps(host: Host, state: str = "present", name: str = "s", **more: t.Any) -> list[str]:
    return [str(step) for step in plan(host, state, name, **more).steps]


def why(host: Host, state: str = "present", name: str = "s", **more: t.Any) -> str:
    """Why it is refused."""
    with pytest.raises((Refused, BadInput, NotFound)) as refused:
        plan(host, state, name, **more)
    return str(refused.value)


PLAIN = document(disk("vda", "/p/g.qcow2"), disk("vdb", "/p/b.raw", "raw"))
ENTRY = SnapshotRecord("s", UUID, SnapshotRecord.MADE, files=("/p/1",))
ONE = (snapshot("s", None, "/p/1", "/p/0", current=True),)
TWO = (snapshot("s", None, "/p/1", "/p/0"), snapshot("n", "s", "/p/2", "/p/1", current=True))


def on_one(**more: t.Any) -> Host:
    """A guest whose disk stands on a snapshot."""
    entries = more.pop("entries", (ENTRY,))
    return Host(document(disk("vda", "/p/1"), entries=entries), snapshots=ONE, chains=("/p/1", "/p/0"), **more)


def on_two(**more: t.Any) -> Host:
    return Host(document(disk("vda", "/p/2")), snapshots=TWO, chains=("/p/2", "/p/1", "/p/0"), **more)


def test_all_disks_that_are_written_are_taken() -> None:
    """Others are named, so that libvirt leaves them out; each file has a path of its own."""
    cdrom = "<disk type='file' device='cdrom'><source file='/p/a.iso'/><target dev='sda'/><readonly/></disk>"
    host = Host(document(disk("vda", "/p/g.qcow2"), disk("vdb", "/p/b.raw", "raw"), cdrom))
    made = plan(host)
    assert [str(step) for step in made.steps] == [
        "record that snapshot s of g is being taken",
        "take snapshot s of g (external)",
        "record snapshot s of g",
    ]
    take = t.cast(TakeSnapshot, made.steps[1])
    found = {
        one.get("name"): (one.get("snapshot"), one.find("source")) for one in parse(take.xml).iterfind("disks/disk")
    }
    assert {target: kind for target, (kind, _source) in found.items()} == {
        "vda": "external",
        "vdb": "external",
        "sda": "no",
    }
    assert found["vdb"][1].get("file") == "/p/g-vdb.s.0a1b.qcow2"
    assert "no guest agent answers" in made.notes[0] and not plan(host, quiesce="never").notes
    assert plan(Host(document(disk("vda", "/p/g.qcow2"), AGENT))).notes == ()


@pytest.mark.parametrize(
    ("device", "more", "expected"),
    [
        (AGENT, {}, "take snapshot s of g (external, quiesced)"),
        (AGENT, {"quiesce": "never"}, "take snapshot s of g (external)"),
        (AGENT, {"memory": True}, "take snapshot s of g (external, with memory)"),
    ],
)
def test_the_agent_is_asked_where_it_helps(device: str, more: dict[str, t.Any], expected: str) -> None:
    assert steps(Host(document(disk("vda", "/p/g.qcow2"), device)), **more)[1] == expected


def test_state_beside_the_disks_is_copied_unless_memory_has_it() -> None:
    host = Host(PLAIN, states=("/n/g.fd", f"/tpm/{UUID}"))
    made = plan(host)
    copies = [str(step) for step in made.steps if str(step).startswith("copy")]
    assert copies == ["copy /n/g.fd beside the disks of g", f"copy /tpm/{UUID} beside the disks of g"]
    assert not [step for step in steps(host, memory=True) if step.startswith("copy")]


@pytest.mark.parametrize(
    ("host", "more", "reason"),
    [
        (Host(PLAIN, persistent=False), {}, "it is transient"),
        (Host(document()), {}, "no disk that it writes to"),
        (Host(PLAIN, running=False), {"memory": True}, "it is off"),
        (Host(PLAIN), {"quiesce": "required"}, "needs a running guest whose agent"),
        (Host(PLAIN, running=False), {"quiesce": "required"}, "needs a running guest whose agent"),
        (Host(document(disk("vda", "/p/a"), "<hostdev/>")), {"memory": True}, "devices of the host"),
        (Host(PLAIN, running=False, keeps=("managed_save",)), {}, "virsh managedsave-remove g"),
        (Host(PLAIN, at_work="backup"), {}, "a block job (backup) works on disk vda (virsh blockjob g vda)"),
        (Host(document(disk("vda", "/p/a", more="<shareable/>"))), {}, "shared with other guests"),
        (Host(document(disk("vda", "x/y", kind="network"))), {}, "no file or device of this host (network)"),
        (Host(document(disk("vda", "/p/a", more="<encryption format='luks'/>"))), {}, "is encrypted"),
        (Host(document(disk("vda", "/dev/vg/a", "raw", kind="block"))), {}, "set directory"),
        (Host(PLAIN, free=31 * MIB), {}, "has 31 MiB free, and it needs 32 MiB"),
        (Host(PLAIN, free=95 * MIB), {"memory": True}, "needs 96 MiB"),
        (Host(PLAIN, missing=("/s",)), {"directory": "/s"}, "there is no directory /s"),
        (Host(PLAIN), {"kind": "internal"}, "set memory: true"),
        (Host(PLAIN), {"kind": "internal", "memory": True}, "disk vdb is raw"),
        (on_one(entries=()), {"name": "x", "kind": "internal", "memory": True}, "does not mix them with internal ones"),
    ],
)
def test_what_takes_none(host: Host, more: dict[str, t.Any], reason: str) -> None:
    assert reason in why(host, **more)


@pytest.mark.parametrize(
    ("changed", "os", "reason"),
    [
        ({"states": ("/n/g.fd",)}, "", "UEFI variables or TPM state"),
        ({}, "<nvram>/n/g.fd</nvram>", "UEFI variables or TPM state"),
        ({"keeps": ("checkpoints",)}, "", "it has checkpoints"),
        ({"bitmaps": True}, "", "bitmaps of backups"),
    ],
)
def test_internal_ones_of_which_nobody_could_go_back(changed: dict[str, t.Any], os: str, reason: str) -> None:
    host = Host(document(disk("vda", "/p/a"), os=os), running=False, **changed)
    assert reason in why(host, kind="internal")
    assert steps(Host(document(disk("vda", "/p/a")), running=False), kind="internal") == [
        "take snapshot s of g (internal)"
    ]


def test_one_that_is_there_is_not_taken_again() -> None:
    assert steps(on_one()) == []
    half = dataclasses.replace(ENTRY, phase=SnapshotRecord.TAKING)
    assert steps(on_one(entries=(half,))) == ["record snapshot s of g"], "a run died right after it"
    begun = dataclasses.replace(ENTRY, phase=SnapshotRecord.DELETING)
    assert "its deletion was begun" in why(on_one(entries=(begun,)))
    assert "its deletion was begun" in why(on_one(entries=(begun,)), "reverted", run=True, confirm="s")


def test_what_interrupted_runs_left_goes() -> None:
    """What is recorded before it is made, and libvirt does not know; of one that others deleted, only our copies."""
    half = SnapshotRecord("dead", UUID, SnapshotRecord.TAKING, files=("/p/x", "/p/gone"), copies=(("/n/g", "/p/n"),))
    other = SnapshotRecord("by-virsh", UUID, SnapshotRecord.MADE, files=("/p/used",), copies=(("/n/g", "/p/m"),))
    copied = dataclasses.replace(half, guest="another")
    host = on_one(entries=(half, other, copied, ENTRY), missing=("/p/gone",))
    assert steps(host) == [
        "delete disk /p/x",
        "delete disk /p/n",
        "delete disk /p/m",
        "record that snapshot dead of g is deleted",
        "record that snapshot by-virsh of g is deleted",
    ]


NOTE = RemovedDisk(
    "/i/x.qcow2", "x", "x-uuid", "h", 9, 1, None, 5, "boot", 1, "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"
)
DUE = DiskAside("/i/.corral/.removed/x.disk", NOTE)


def test_a_revert_finishes_removals_that_are_due() -> None:
    before = steps(on_one(), "reverted", **GO)
    first, *rest = steps(dataclasses.replace(on_one(), due=(DUE,)), "reverted", **GO)
    assert first.startswith("delete disk /i/x.qcow2") and rest == before


@pytest.mark.parametrize("state", ["present", "absent", "reverted"])
def test_a_second_name_that_an_interrupted_revert_left_goes(state: str) -> None:
    """The guest still writes to that file: to delete it as a file of its own is refused, each time."""
    second = "/p/1.reverted.0b2c"
    left = dataclasses.replace(ENTRY, files=("/p/1", second))
    host = on_one(entries=(left,), inodes={"/p/1": 4, second: 4})
    found = steps(host, state, **(GO if state == "reverted" else {}))
    assert found[0] == f"remove {second}, a second name of /p/1"
    assert not [step for step in found if f"delete disk {second}" in step]
    gone = dataclasses.replace(host, inodes={})
    assert f"delete disk {second}, after 168 h in /p/.corral/.removed" in steps(gone), "libvirt has made another file"


def test_the_newest_is_merged_while_the_guest_runs() -> None:
    made = plan(on_one(), "absent")
    assert [str(step) for step in made.steps] == [
        "record that snapshot s of g is being deleted",
        "merge disk vda of snapshot s of g (2 MiB)",
        "delete snapshot s of g",
        "delete disk /p/1",
        "record that snapshot s of g is deleted",
    ]
    merge = t.cast(Merge, made.steps[1])
    assert (merge.overlay, merge.base, merge.active, merge.goes_on) == ("/p/1", "/p/0", True, False)
    assert steps(on_one(), "absent", "nobody") == []


def test_one_below_others_is_merged_and_they_stand_on_its_base() -> None:
    made = plan(on_two(), "absent")
    assert [step.verb for step in made.steps[:4]] == ["recordsnapshot", "merge", "redefine", "dropsnapshot"]
    merge, redefine = t.cast(Merge, made.steps[1]), t.cast(Redefine, made.steps[2])
    assert not merge.active and redefine.name == "n" and redefine.moved == (("/p/1", "/p/0", "qcow2"),)


def test_only_snapshots_that_name_a_merged_file_are_changed() -> None:
    """Of a running guest, libvirt's documents have the whole chain of then."""
    below = "<backingStore type='file'><format type='qcow2'/><source file='/p/1'/></backingStore>"
    changed = {}
    for more in ("", below):
        far = snapshot("far", "n", "/p/3", "/p/2", current=True)
        xml = document(disk("vda", "/p/2", more=more))
        far = dataclasses.replace(far, xml=f"<domainsnapshot><name>far</name>{xml}</domainsnapshot>")
        tree = (TWO[0], dataclasses.replace(TWO[1], current=False), far)
        host = Host(document(disk("vda", "/p/3")), snapshots=tree, chains=("/p/3", "/p/2", "/p/1", "/p/0"))
        changed[more] = [step.name for step in plan(host, "absent").steps if isinstance(step, Redefine)]
    assert changed == {"": ["n"], below: ["n", "far"]}


def test_a_file_that_another_disk_of_the_guest_stands_on_is_not_changed() -> None:
    host = Host(document(disk("vda", "/p/1"), disk("vdb", "/p/0")), snapshots=ONE, chains=("/p/1", "/p/0"))
    assert "merging disk vda would change /p/0, which disk vdb uses, too; remove that first" in why(host, "absent")


def test_of_a_guest_that_is_off() -> None:
    made = plan(on_two(running=False), "absent")
    merge = t.cast(MergeOff, made.steps[1])
    assert (merge.above, merge.base, merge.base_format) == ("/p/2", "/p/0", "qcow2")
    assert not [step for step in made.steps if isinstance(step, Define)]
    made = plan(on_one(running=False), "absent")
    define = t.cast(Define, made.steps[2])
    assert "/p/0" in define.xml and "/p/1" not in parse(define.xml).xpath("string(devices/disk/source/@file)")


def test_an_interrupted_deletion_goes_on() -> None:
    begun = dataclasses.replace(ENTRY, phase=SnapshotRecord.DELETING)
    assert "go on merging disk vda of snapshot s of g (2 MiB)" in steps(
        on_one(entries=(begun,), at_work="commit"), "absent"
    )
    merged = Host(document(disk("vda", "/p/0"), entries=(begun,)), snapshots=ONE, chains=("/p/0",))
    assert steps(merged, "absent") == [
        "record that snapshot s of g is being deleted",
        "delete snapshot s of g",
        "delete disk /p/1",
        "record that snapshot s of g is deleted",
    ]


SIDE = (*TWO[:1], snapshot("n", "s", "/p/2", "/p/1"), snapshot("m", "s", "/p/3", "/p/1", current=True))


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        (dataclasses.replace(on_two(), snapshots=SIDE), "delete n first"),
        (on_one(persistent=False), "transient"),
        (on_one(running=False, keeps=("checkpoints",)), "its checkpoints would be lost"),
        (on_one(running=False, keeps=("managed_save",)), "managedsave-remove"),
        (on_one(at_work="copy"), "a block job (copy)"),
        (on_one(at_work="commit"), "a block job (commit)"),
        (on_one(users={"/p/0": "guest h"}), "would change /p/0, which guest h uses"),
        (dataclasses.replace(on_one(), chains=("/p/1", "/p/other")), "somebody has changed its chain"),
        (dataclasses.replace(on_one(), chains=("/p/1",)), "the backing file of /p/1 is missing"),
        (Host(document(disk("vda", "/p/0")), snapshots=ONE), "/p/1 is no longer in the chain of disk vda"),
        (
            Host(
                document(disk("vda", "/p/1")),
                snapshots=(dataclasses.replace(ONE[0], disks=(*ONE[0].disks, SnapshotDisk("vdb", "internal"))),),
                chains=("/p/1", "/p/0"),
            ),
            "virsh snapshot-delete g s",
        ),
    ],
)
def test_what_is_not_deleted(host: Host, reason: str) -> None:
    assert reason in why(host, "absent")


def detached(*entries: SnapshotRecord, other: str = "vdb", **more: t.Any) -> Host:
    """A guest whose disk was detached since the snapshot, and its file kept."""
    return Host(document(disk(other, "/p/b"), entries=entries), **{"snapshots": ONE, **more})


BEGUN = dataclasses.replace(ENTRY, phase=SnapshotRecord.DELETING)


@pytest.mark.parametrize("other", ["vdb", "vda"])
@pytest.mark.parametrize("entries", [(), (ENTRY,), (BEGUN,)])
def test_a_disk_that_the_guest_has_no_longer_is_kept(entries: tuple[SnapshotRecord, ...], other: str) -> None:
    """Another one may have its place, also since a deletion was begun that was interrupted."""
    made = plan(detached(*entries, other=other), "absent")
    assert "snapshot s; /p/1, which it wrote to since, is kept" in made.notes[0]
    assert not [step for step in made.steps if "delete disk" in str(step)]
    recorded = t.cast(RecordSnapshot, made.steps[0]).entry.files
    assert "/p/1" not in recorded, "an interrupted run does not leave it to the next one"
    assert not plan(detached(*entries, other=other, missing=["/p/1"]), "absent").notes, "nothing is kept"


GO: dict[str, t.Any] = {"run": True, "confirm": "s"}


def test_the_guest_goes_back() -> None:
    copies = (("/n/g.fd", "/p/n"),)
    host = on_one(entries=(dataclasses.replace(ENTRY, copies=copies),))
    made = plan(host, "reverted", **GO)
    assert [str(step) for step in made.steps] == [
        "record snapshot s of g",
        "create a file for disk vda of g on /p/0",
        "switch off g",
        "define g (as of snapshot s)",
        "record the files of snapshot s of g",
        "restore /n/g.fd from /p/n",
        "record snapshot s of g",
        "start g",
        "delete disk /p/1, after 168 h in /p/.corral/.removed",
    ]
    assert made.thrown_away == (("/p/1", 2 * MIB),) and made.kept == ("/p/1",)
    define = next(step for step in made.steps if isinstance(step, Define))
    assert "/p/g-vda.s.0a1b.qcow2" in define.xml
    assert fields_record.read(define.xml)["snapshots"] == fields_record.read(host.stored)["snapshots"]
    stopped = steps(host, "reverted", run=False, confirm="s")
    assert stopped.index("leave g off") == stopped.index("delete disk /p/1, after 168 h in /p/.corral/.removed") - 1
    off = steps(on_one(running=False), "reverted", run=False, confirm="s", keep_reverted_h=0)
    assert "switch off g" not in off and "start g" not in off and off[-1] == "delete disk /p/1"


@pytest.mark.parametrize("other", ["vdb", "vda"])
@pytest.mark.parametrize("keep_h", [0, 168])
def test_who_goes_back_keeps_a_disk_that_was_detached_since(other: str, keep_h: int) -> None:
    """Nobody has asked to throw it away: its owner kept it. Another disk may have its place."""
    host = detached(ENTRY, other=other)
    made = plan(host, "reverted", **GO, keep_reverted_h=keep_h)
    assert not [step for step in made.steps if "delete disk" in str(step)] and (*made.thrown_away, *made.kept) == ()
    assert [note.rpartition("; ")[2] for note in made.notes] == [
        "/p/b is kept",
        "/p/1, which it wrote to since, is kept",
    ]
    recorded = [step.entry.files for step in made.steps if isinstance(step, RecordSnapshot)]
    assert recorded == [("/p/g-vda.s.0a1b.qcow2",)] * 2, "the next run finds no leftovers"
    assert "(to none of the disks that it has now)" in why(host, "reverted", run=True)


def test_what_an_interrupted_revert_left_is_no_detached_disk() -> None:
    """The guest is defined on the new file, and libvirt's document names that of before."""
    half = Host(document(disk("vda", "/p/new"), entries=(ENTRY,)), snapshots=ONE, chains=("/p/new", "/p/0"))
    made = plan(half, "reverted", **GO)
    assert [path for path, _bytes in made.thrown_away] == ["/p/new"] and not made.notes
    assert "delete disk /p/1, after 168 h in /p/.corral/.removed" in [str(step) for step in made.steps]


def test_libvirt_does_not_remove_a_disk_that_was_detached_since() -> None:
    """It removes all files of the current snapshot: this one has a second name until then."""
    newer = SnapshotRecord("n", UUID, SnapshotRecord.MADE, files=("/p/2",))
    made = plan(detached(newer, snapshots=TWO, libvirt=9_009_000), "reverted", **GO)
    revert = t.cast(Revert, made.steps[-1])
    names = {"n": ("/p/2", "/p/2.reverted.0a1b"), "s": ("/p/1", "/p/1.reverted.0a1b")}
    assert revert.spared == (names["n"], names["s"]) and revert.thrown_away == ()
    recorded = {step.name: step.entry for step in made.steps if isinstance(step, RecordSnapshot)}
    assert {name: (one.files, one.spared) for name, one in recorded.items()} == {
        name: ((), (pair,)) for name, pair in names.items()
    }
    assert "disk vda of snapshot n; /p/2, which it wrote to since, is kept" in made.notes[-1]
    assert len(made.notes) == 2, "with the disk that is detached by the revert, and without what /p/2 stands on"


def test_a_disk_that_was_detached_before_the_current_snapshot_is_spared_as_well() -> None:
    none = dataclasses.replace(TWO[1], disks=())
    made = plan(detached(ENTRY, snapshots=(TWO[0], none), libvirt=9_009_000), "reverted", **GO)
    (recorded,) = [step.entry for step in made.steps if isinstance(step, RecordSnapshot)]
    assert recorded.files == () and recorded.spared == (("/p/1", "/p/1.reverted.0a1b"),)
    assert "disk vda of snapshot s; /p/1, which it wrote to since, is kept" in made.notes[-1]


def test_a_disk_that_has_another_target_by_now_is_spared_as_well() -> None:
    """libvirt removes the file by its path."""
    host = Host(document(disk("vdb", "/p/2")), snapshots=TWO, chains=("/p/2", "/p/1", "/p/0"), libvirt=9_009_000)
    assert [path for path, _name in t.cast(Revert, plan(host, "reverted", **GO).steps[-1]).spared] == ["/p/2", "/p/1"]


def after_a_revert(*names: str, spared: bool = True) -> Host:
    """libvirt has gone back to `s`, on a new file, and goes on naming the files of a disk that was detached before."""
    found = {
        "s": dataclasses.replace(
            ONE[0], disks=(SnapshotDisk("vda", "external", "/p/1", "qcow2", "/p/0", "qcow2", "/p/1b"),)
        ),
        "n": dataclasses.replace(TWO[1], current=False),
    }
    paths = {"n": "/p/2", "s": "/p/1"}
    entries = [
        SnapshotRecord(name, UUID, SnapshotRecord.MADE, spared=((paths[name], f"{paths[name]}.reverted.0b2c"),))
        for name in (names if spared else ())
    ]
    return Host(
        document(disk("vda", "/p/1b"), entries=entries),
        snapshots=[found[name] for name in names],
        chains=("/p/1b", "/p/0"),
        missing=[f"{path}.reverted.0b2c" for path in paths.values()],
    )


def test_what_a_revert_has_spared_outlives_its_snapshot() -> None:
    """The guest has a disk of that target again, and libvirt's document names the file: our record tells."""
    made = plan(after_a_revert("s", "n"), "absent", "n")
    assert "disk vda of snapshot n; /p/2, which it wrote to since, is kept" in made.notes[0]
    assert not [step for step in made.steps if "delete disk" in str(step)], "nor what it stands on"
    made = plan(after_a_revert("s"), "absent", "s")
    assert [str(step) for step in made.steps if "delete disk" in str(step)] == ["delete disk /p/1b"]
    assert "delete disk /p/2" in steps(after_a_revert("s", "n", spared=False), "absent", "n"), "without a record"


@pytest.mark.parametrize("state", ["present", "absent", "reverted"])
@pytest.mark.parametrize("first", [True, False])
def test_what_an_interrupted_revert_was_to_spare_has_its_name_again(state: str, first: bool) -> None:
    """Its second name is on record, and is never deleted as a leftover is."""
    name = "/p/2.reverted.0b2c"
    host = after_a_revert("s", "n")
    missing = [path for path in host.missing if path != name] + ([] if first else ["/p/2"])
    host = dataclasses.replace(host, missing=missing, inodes={"/p/2": 4, name: 4}, libvirt=9_009_000)
    found = steps(host, state, "n" if state == "absent" else "s", **(GO if state == "reverted" else {}))
    assert found[0] == (f"remove {name}, a second name of /p/2" if first else f"bring /p/2 back from {name}")
    assert not [step for step in found if "delete disk /p/2" in step]
    other = dataclasses.replace(host, inodes={})
    assert not first or name not in "".join(steps(other)), "another file has the name by now: both stay"


def test_a_spared_file_that_is_a_disk_again_is_merged_as_any() -> None:
    entry = SnapshotRecord("s", UUID, SnapshotRecord.MADE, spared=(("/p/1", "/p/1.reverted.0b2c"),))
    made = plan(on_one(entries=(entry,)), "absent")
    assert "delete disk /p/1" in [str(step) for step in made.steps] and not made.notes
    recorded = t.cast(RecordSnapshot, made.steps[0]).entry
    assert recorded.spared == () and "/p/1" in recorded.files, "an interrupted run has merged it, then"


def test_what_goes_is_named_before() -> None:
    found = why(on_one(), "reverted", run=True)
    assert "what the guest has written in 2 hours (/p/1: 2 MiB)" in found and "set confirm: s" in found
    assert "confirm" in why(on_one(), "reverted", run=True, confirm="x")


def test_libvirt_goes_back_to_those_that_others_stand_on() -> None:
    made = plan(on_two(libvirt=9_009_000), "reverted", **GO)
    assert str(made.steps[0]) == "record snapshot s of g", "with the name that the file is kept by"
    step = t.cast(Revert, made.steps[1])
    assert step.running and step.thrown_away == (("/p/2", "/p/2.reverted.0a1b"),)
    assert str(made.steps[-1]) == "delete disk /p/2.reverted.0a1b, after 168 h in /p/.corral/.removed"


@pytest.mark.parametrize(
    ("host", "more", "reason"),
    [
        (on_two(), GO, "it has newer ones (n), which needs libvirt 9.9"),
        (dataclasses.replace(on_one(), snapshots=(dataclasses.replace(ONE[0], memory="external"),)), GO, "libvirt 9.9"),
        (
            dataclasses.replace(
                on_one(libvirt=11_000_000), snapshots=(dataclasses.replace(ONE[0], memory="external"),)
            ),
            {"run": False, "confirm": "s"},
            "set run: true",
        ),
        (on_one(keeps=("checkpoints",)), GO, "virsh checkpoint-delete g NAME"),
        (on_one(keeps=("managed_save",)), GO, "discard the image (virsh managedsave-remove g)"),
        (on_one(persistent=False), GO, "transient"),
        (on_one(missing=("/p/0",)), GO, "/p/0 with the content of disk vda is missing"),
        (Host(PLAIN), GO, "it has no snapshot s; it has none"),
    ],
)
def test_what_nobody_goes_back_to(host: Host, more: dict[str, t.Any], reason: str) -> None:
    assert reason in why(host, "reverted", **more)


def test_the_guest_is_not_switched_off_when_it_has_other_disks_by_now() -> None:
    step = PowerOff("g", UUID, "s", ("/p/1",))
    plan_revert.check_present(step, ["/p/1"])
    with pytest.raises(Refused, match="goes on as it is"):
        plan_revert.check_present(step, ["/p/2"])
    revert = Revert("g", UUID, "s", 7, True, (("/p/1", "/p/1.reverted"),))
    plan_revert.check_present(revert, ["/p/1", "/p/b"], created_s=7)
    for files, created_s in ((["/p/2"], 7), (["/p/1"], 8)):
        with pytest.raises(Refused, match="run again"):
            plan_revert.check_present(revert, files, created_s=created_s)


def test_nothing_is_merged_into_another_file() -> None:
    step = Merge("g", UUID, "s", "vda", "/p/1", "/p/0", 1)
    plan_delete.check_merge(step, ["/p/2", "/p/1", "/p/0"], active=True)
    for chain, active in ((["/p/1", "/p/x"], True), (["/p/0"], True), (["/p/1", "/p/0"], False), (["/p/1"], True)):
        with pytest.raises(Refused, match="nothing was merged"):
            plan_delete.check_merge(step, chain, active=active)


HOUR, DAY = 3600, 86400


@pytest.mark.parametrize(
    ("ages_s", "keep", "left"),
    [
        ([0, HOUR, 2 * HOUR], {"hourly": 2}, [0, HOUR]),
        ([0, 60, 120], {"hourly": 5}, [0]),  # the newest of an hour
        ([0, HOUR, DAY, 2 * DAY, 3 * DAY], {"hourly": 1, "daily": 3}, [0, DAY, 2 * DAY]),
        ([0, 7 * DAY, 14 * DAY], {"weekly": 2}, [0, 7 * DAY]),
        ([0, 40 * DAY, 80 * DAY], {"monthly": 2}, [0, 40 * DAY]),
        ([-DAY, 0], {"daily": 1}, [-DAY]),  # a clock that went back
        ([0], {"hourly": 0}, [0]),
    ],
)
def test_how_long_scheduled_ones_are_kept(ages_s: list[int], keep: dict[str, int], left: list[int]) -> None:
    noon = 1_795_867_200 + 30 * 60
    found = [Snapshot(f"at-{age}", noon - age) for age in ages_s]
    gone = expired(found, keep)
    assert [age for age in ages_s if f"at-{age}" not in gone] == left
    assert plan_snapshot.time_name(0) == "corral-19700101T000000Z"


@pytest.mark.parametrize("keep", [{"daily": 2}, {"hourly": 1}])
def test_the_one_that_a_run_takes_is_kept_when_the_clock_went_back(keep: dict[str, int]) -> None:
    found = [Snapshot(f"at-{age}", NOW_S - age) for age in (-DAY, -2 * DAY, 0, DAY)]
    gone = plan_snapshot.time_is_over(SnapshotSpec("g", "at-0", scheduled=True, keep=keep), found)
    assert gone == [f"at-{age}" for age in ((DAY,) if "daily" in keep else (DAY, -DAY))]


OPTIONS: dict[str, t.Any] = {
    "guests": ["g"], "name": "s", "state": "present", "description": None, "kind": "external", "memory": False,
    "quiesce": "auto", "directory": None, "keep": None, "run": None, "confirm": None, "keep_reverted_h": 168,
    "bandwidth": 0, "job_timeout": 3600, "at_once": 4,
}  # fmt: skip


def test_all_problems_of_the_options_are_told_at_once() -> None:
    bad = {
        **OPTIONS, "guests": ["g", "g", "a/b"], "name": "-x", "keep": {"hourly": 0}, "run": True, "confirm": "s",
        "keep_reverted_h": -1, "bandwidth": -1, "job_timeout": 0, "at_once": 0, "directory": "here",
    }  # fmt: skip
    with pytest.raises(BadInput, match="guests") as refused:
        plan_snapshot.checked(bad, 0)
    words = ("twice", "a/b", "-x", "omit name", "at least one", "run:", "confirm:", "keep_reverted_h", "bandwidth")
    text = "; ".join(refused.value.problems)
    assert [word for word in (*words, "job_timeout", "at_once", "absolute") if word not in text] == []
    with pytest.raises(BadInput, match="requires it") as refused:
        plan_snapshot.checked({**OPTIONS, "state": "reverted", "name": "a/b"}, 0)
    assert len(refused.value.problems) == 2
    with pytest.raises(BadInput, match="requires the name"):
        plan_snapshot.checked({**OPTIONS, "state": "absent", "name": None}, 0)
    (spec,) = plan_snapshot.checked({**OPTIONS, "name": None, "keep": {"hourly": 3, "daily": None}}, 60)
    assert spec.scheduled and spec.name == "corral-19700101T000100Z" and spec.keep == {"hourly": 3}


def test_entries_of_the_record_survive_and_damaged_ones_do_not_count() -> None:
    entry = SnapshotRecord(
        "a b", UUID, SnapshotRecord.DELETING, True, ("/p/1",), (("/n", "/p/n"),), (("/p/2", "/p/m"),)
    )
    assert SnapshotRecord.of(entry.text(), UUID) == entry
    before = {name: value for name, value in json.loads(entry.text()).items() if name != "spared"}
    assert SnapshotRecord.of(json.dumps(before), UUID) == dataclasses.replace(entry, spared=()), "an earlier version"
    assert SnapshotRecord.of(entry.text(), "another") is None
    for text in ("", "{}", "[]", "null", '{"name": 1}'):
        assert SnapshotRecord.of(text, UUID) is None


def test_the_picture_and_what_to_see_to() -> None:
    tree = Tree(
        [
            dataclasses.replace(TWO[0], created_s=NOW_S - 9 * DAY, name="x\ny"),
            dataclasses.replace(TWO[1], parent="x\ny"),
        ]
    )
    entry = SnapshotRecord("n", UUID, SnapshotRecord.DELETING)
    found = plan_snapshot_info.described(tree, [entry], {"/p/1": MIB, "/p/2": 3 * MIB}, NOW_S)
    assert plan_snapshot_info.picture("g", found) == (
        "g\n  - x\\ny (9 days, external, 1 MiB)\n    - n (2 hours, external, 3 MiB, being deleted)\n      * now"
    )
    assert found[1]["merge_bytes"] == 3 * MIB and found[0]["created"].endswith("Z")
    room = {"/p": (5 * MIB, 100 * MIB), "/q": (50 * MIB, 100 * MIB)}
    told = list(plan_snapshot_info.warnings("g", found, room))
    assert ["9 days old and holds 1 MiB" in told[0], "was interrupted" in told[1], "/p has 5 MiB" in told[2]] == [
        True
    ] * 3
    assert len(told) == 3


ASIDE = (
    snapshot("one", None, "/p/1", "/p/0"),
    dataclasses.replace(
        snapshot("two", "one", "/p/2", "/p/1"),
        disks=(SnapshotDisk("vda", "external", "/p/2", "qcow2", "/p/1", "qcow2", "/p/2b"),),
    ),
    snapshot("three", "two", "/p/3", "/p/2"),
    snapshot("four", "two", "/p/4", "/p/2b", current=True),
)


class Branches(Host):
    """After a guest went back to `two`: three stands on /p/2, and the guest on /p/4 and /p/2b; both on /p/1 and /p/0."""

    below: t.ClassVar = {"/p/4": "/p/2b", "/p/3": "/p/2", "/p/2b": "/p/1", "/p/2": "/p/1", "/p/1": "/p/0"}

    def chain(self, path: str, form: str) -> tuple[ChainLink, ...]:
        found = [path]
        while found[-1] in self.below:
            found.append(self.below[found[-1]])
        return tuple(ChainLink(one, form) for one in found)


def branches(*gone: str, entries: t.Sequence[SnapshotRecord] = (), **more: t.Any) -> Branches:
    kept = [one for one in ASIDE if one.name not in gone]
    return Branches(document(disk("vda", "/p/4"), entries=entries), snapshots=kept, **more)


def test_what_a_branch_aside_stands_on_is_not_merged() -> None:
    """Not even where the tree alone would allow it: `one` has but one child, and that is below the guest."""
    for name in ("one", "two"):
        assert "three" in why(branches(), "absent", name)
    assert "merge disk vda of snapshot four of g" in steps(branches(), "absent", "four")[1]
    # The last of a branch takes with it what only the branch stood on.
    left = steps(branches(missing=["/p/3"]), "absent", "three")
    assert left[1:] == [
        "record the files of snapshot two of g",
        "delete snapshot three of g",
        "delete disk /p/2, after 168 h in /p/.corral/.removed",  # what the guest wrote to, before it went back
        "record that snapshot three of g is deleted",
    ]
    assert "merge disk vda of snapshot one of g" in steps(branches("three"), "absent", "one")[1]


def test_what_was_left_of_a_snapshot_stays_while_others_stand_on_it() -> None:
    begun = SnapshotRecord("one", UUID, SnapshotRecord.DELETING, files=("/p/1", "/p/m"))
    assert steps(branches("one", entries=[begun]), "absent", "nothing") == ["delete disk /p/m"]
    free = Host(document(disk("vda", "/p/0"), entries=[begun]))
    assert steps(free, "absent", "nothing")[:2] == ["delete disk /p/1", "delete disk /p/m"]


def test_files_outside_of_all_pools_are_neither_made_nor_removed() -> None:
    said = why(Host(PLAIN, unpooled=["/p"]))
    assert "no active storage pool has its directory /p;" in said and "virt_pool (path: /p)" in said
    assert "has its directory /x" in why(Host(PLAIN, unpooled=["/x"]), directory="/x")
    assert "has its directory /p" in why(on_one(unpooled=["/p"]), "absent")
    assert "has its directory /p" in why(on_one(unpooled=["/p"]), "reverted", run=True, confirm="s")
