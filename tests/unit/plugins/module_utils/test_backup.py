"""What is done about backups: the steps, why all of a disk is copied, and what is refused before anything is touched."""

from __future__ import annotations

import dataclasses
import json
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._backup import (
    files_repository,
    plan_backup,
    plan_backup_info,
    plan_instant_restore,
    plan_repository,
    run_backup,
    run_backup_info,
    xml_backup,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import (
    BackupDisk,
    BackupPoint,
    BrokenPoint,
    Pin,
    Repository,
    RepositoryFacts,
    chains,
    needed,
    read_manifest,
    read_pin,
    text_of,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup import (
    BackupPlan,
    BackupSpec,
    Checkpoint,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup_info import BackupPolicy, KnownGuest
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup_steps import (
    CopyDisk,
    DeletePoint,
    DropCheckpoint,
    FinishPoint,
    PushDisks,
)
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Failed, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._domain import xml_backup_record
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_backup_record import BackupNote, seconds
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_snapshot import GuestDisk
from ansible_collections.corral.virt.plugins.module_utils._guest import run_summary
from ansible_collections.corral.virt.plugins.module_utils._storage import files_qemu_img
from ansible_collections.corral.virt.plugins.module_utils._system import locks
from ansible_collections.corral.virt.plugins.module_utils._xml.names import sealed
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse
from ansible_collections.corral.virt.plugins.plugin_utils._report import tables

UUID, HOST, STORE = "2ff4c3c5-8a3b-4f9d-9b5e-cc7cf3cbb8f2", "h1", "/srv/b"
NOW_S, DAY_S, MIB = 1_795_878_000, 86400, 1024**2
REPOSITORY = "5e0a4a56-37a5-4c6b-8a4c-7f7e7d4d3f10"
MARKER = json.dumps({"version": 1, "id": REPOSITORY})
AGENT = (
    "<domain><devices><channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0' state='connected'/>"
    "</channel></devices></domain>"
)
VDA = GuestDisk("vda", "file", "/i/a.qcow2", "qcow2", written=True)
RAW = GuestDisk("vdb", "file", "/i/b.raw", "raw", written=True)
ISO = GuestDisk("sda", "file", "/i/c.iso", "raw", written=False)


def stored(target: str = "vda", **more: t.Any) -> BackupDisk:
    """A disk of a point, as it still is."""
    what: dict[str, t.Any] = {"source": "/i/a.qcow2", "format": "qcow2", "inode": 7, "written_ns": 5, "reason": "all"}
    return BackupDisk(target, 64 * MIB, **{**what, **more})


def ident(number: int) -> str:
    return f"202611{number:02}T000000Z-0000000{number % 10}"


def point(number: int, *disks: BackupDisk, **more: t.Any) -> BackupPoint:
    """The point of a day; with a checkpoint, if it is not said otherwise."""
    what: dict[str, t.Any] = {"checkpoint": f"corral-{ident(number)}", "host": HOST, **more}
    return BackupPoint(
        ident(number), "g", UUID, NOW_S - (30 - number) * DAY_S, what.pop("host"), disks or (stored(),), **what
    )


def chain(*numbers: int, **more: t.Any) -> tuple[BackupPoint, ...]:
    """Points that stand on each other."""
    made = [point(numbers[0], **more)]
    for number in numbers[1:]:
        made.append(point(number, stored(reason="", parent=made[-1].id), **more))
    return tuple(made)


PLACE = RepositoryFacts(True, MARKER, (), None, 2)


@dataclasses.dataclass
class Host:
    """A `BackupHost` that knows all its answers."""

    points: tuple[BackupPoint, ...] = ()
    known: t.Sequence[Checkpoint] | None = None  # None: that of the newest point, with a bitmap
    all_disks: tuple[GuestDisk, ...] = (VDA,)
    running: bool = True
    persistent: bool = True
    xml: str = "<domain><devices/></domain>"
    keeps: tuple[str, ...] = ()
    at_work: str | None = None
    backup: tuple[str, ...] | None = None
    size: int = 64 * MIB
    file: tuple[int, int, int] = (7, 5, 1)
    free: int = 1024**3
    flat: int = 20 * MIB
    unfinished: tuple[BackupPoint, ...] = ()
    broken: tuple[BrokenPoint, ...] = ()
    place: RepositoryFacts = PLACE
    clock: int = NOW_S
    pins: t.Mapping[str, tuple[Pin, ...]] = dataclasses.field(default_factory=dict)
    standing: str | None = None
    rotten: t.Collection[str] = ()
    in_the_clear: str = ""
    repository_id: str = REPOSITORY

    def guest(self, name: str) -> FoundGuest | None:
        live = self.xml if self.running else None
        state = "running" if self.running else "off"
        return FoundGuest("g", UUID, state, self.persistent, False, self.xml, live) if name == "g" else None

    def facts(self, _path: str) -> RepositoryFacts:
        return self.place

    def unencrypted(self, _path: str) -> str:
        return self.in_the_clear

    def repository(self, _path: str) -> Repository:
        return Repository(self.repository_id, self.points, self.broken, self.unfinished, {}, self.pins)

    def disks(self, _xml: str) -> tuple[GuestDisk, ...]:
        return self.all_disks

    def kept(self, _uuid: str) -> tuple[str, ...]:
        return self.keeps

    def checkpoints(self, _uuid: str) -> list[Checkpoint]:
        newest = [one for one in self.points if one.checkpoint][-1:]
        found = [Checkpoint(str(one.checkpoint), REPOSITORY, {"vda": MIB}) for one in newest]
        return found if self.known is None else list(self.known)

    def backup_job(self, _uuid: str) -> tuple[str, ...] | None:
        return self.backup

    def job(self, _uuid: str, _target: str) -> str | None:
        return self.at_work

    def size_bytes(self, _uuid: str, _disk: GuestDisk) -> int:
        return self.size

    def file_facts(self, _path: str) -> tuple[int, int, int]:
        return self.file

    def flat_bytes(self, _disk: GuestDisk) -> int:
        return self.flat

    def backed_states(self, _xml: str, _uuid: str) -> tuple[tuple[str, str], ...]:
        return (("/nvram/g.fd", "nvram.fd"),)

    def sha256(self, path: str) -> str:
        return {f"{STORE}/{UUID}/{one.id}/{disk.file}": disk.sha256 for one in self.points for disk in one.disks}.get(
            path if path not in self.rotten else "", "other"
        )

    def free_in(self, _directory: str) -> int:
        return self.free

    def host_uuid(self) -> str:
        return HOST

    def stands_on(self, _uuid: str) -> str | None:
        return self.standing

    def token(self) -> str:
        return "1a2b3c4d"

    def now_s(self) -> int:
        return self.clock


def spec(**more: t.Any) -> BackupSpec:
    return BackupSpec("g", STORE, **more)


def planned(host: Host, **more: t.Any) -> BackupPlan:
    return plan_backup.plan(plan_backup.scene(spec(**more), host))


def mended(host: Host) -> list[str]:
    return [str(step) for step in plan_backup.repair(plan_backup.scene(spec(), host)).steps]


def reason(host: Host) -> str:
    """Why all of vda is copied; empty if only its changes are."""
    made = planned(host).point
    assert made and made.disks[0].target == "vda"
    assert bool(made.disks[0].reason) != bool(made.disks[0].parent)
    return made.disks[0].reason


def test_the_first_backup_holds_all_and_marks_the_directory() -> None:
    made = planned(Host(place=RepositoryFacts(True), all_disks=(VDA, RAW, ISO)))
    assert [str(step) for step in made.steps] == [
        "create backup repository /srv/b",
        "begin a backup of g",
        (
            "copy the disks of g (vda: all, as it is the first backup; vdb: all, as a raw disk does not note what is "
            "changed; 40 MiB)"
        ),
        "finish the backup of g",
    ]
    push = t.cast(PushDisks, made.steps[2])
    assert (push.targets, push.bitmaps, push.since) == (("vda", "vdb", "sda"), ("vda",), None)
    assert made.point and made.point.checkpoint == f"corral-{made.point.id}" and not made.point.parents
    assert made.point.states == (("/nvram/g.fd", "nvram.fd"),)


def test_later_ones_hold_what_was_changed_and_the_checkpoint_goes_last() -> None:
    made = planned(Host(chain(1, 2)))
    assert [str(step) for step in made.steps] == [
        "begin a backup of g",
        "copy the disks of g (vda: what was changed; 1 MiB)",
        "finish the backup of g",
        f"delete checkpoint corral-{ident(2)} of g",
    ]
    push = t.cast(PushDisks, made.steps[1])
    assert push.since == f"corral-{ident(2)}" and push.point.disks[0].parent == ident(2)


REASONS: list[tuple[str, dict[str, t.Any]]] = [
    ("", {"points": chain(1, 2)}),
    ("all, as it is the first backup", {}),
    ("all, as no backup was taken while it ran", {"points": (point(1, checkpoint=None),)}),
    ("all, as its size was 64 MiB", {"points": chain(1), "size": 65 * MIB}),
    ("all, as its file is another one than at the last backup", {"points": chain(1), "file": (8, 5, 1)}),
    ("", {"points": chain(1, host="h2"), "file": (8, 5, 1)}),
    ("all, as the disk is new", {"points": (point(1, stored("vdz")),)}),
    (
        "all, as what was changed is unknown: its bitmap is missing, or QEMU was killed",
        {"points": chain(1), "known": ()},
    ),
    (f"all, as a backup that {ident(2)} stands on is missing or damaged", {"points": chain(1, 2)[1:]}),
    (
        "all, as what was changed is unknown: its bitmap is missing, or QEMU was killed",
        {"points": chain(1), "known": [Checkpoint(f"corral-{ident(1)}", REPOSITORY)]},
    ),
    (
        "all, as what was changed is unknown: its bitmap is missing, or QEMU was killed",
        {"points": chain(1), "known": [Checkpoint(f"corral-{ident(1)}", "another", {"vda": 1})]},
    ),
]


@pytest.mark.parametrize(("expected", "facts"), REASONS, ids=[str(number) for number in range(len(REASONS))])
def test_why_all_of_a_disk_is_copied(expected: str, facts: dict[str, t.Any]) -> None:
    assert reason(Host(**facts)) == expected


def test_a_long_chain_is_made_whole_in_the_repository() -> None:
    for increments, whole in ((3, ()), (2, ("vda",))):
        made = planned(Host(chain(1, 2, 3)), increments=increments)
        assert t.cast(FinishPoint, made.steps[2]).flatten == whole
    assert reason(Host(chain(1))) == "" and t.cast(
        FinishPoint, planned(Host(chain(1)), increments=0).steps[2]
    ).flatten == ("vda",)


def test_a_damaged_chain_is_not_made_whole() -> None:
    """Its checksum would be a new one, and nobody would see the damage any more."""
    points = chain(1, 2, 3)
    rotten = f"{STORE}/{UUID}/{ident(1)}/vda.qcow2"
    made = planned(Host(points, rotten=[rotten]), increments=2)
    assert made.point and made.point.disks[0].reason == f"all, as {rotten} is damaged, or cannot be read"
    assert t.cast(FinishPoint, made.steps[2]).flatten == () and made.point.disks[0].parent is None
    assert planned(Host(points, rotten=[rotten]), increments=3).point.disks[0].parent == ident(3), "not read then"  # type: ignore[union-attr]


def test_all_is_copied_when_told() -> None:
    made = planned(Host(chain(1, 2)), full=True).point
    assert made and (made.disks[0].reason, made.disks[0].parent) == ("all, as was asked for", None)
    off = point(3, checkpoint=None, running=False)
    assert planned(Host((*chain(1), off), running=False), full=True).point


def test_a_guest_that_is_off_is_copied_unless_nobody_has_written() -> None:
    off = point(3, checkpoint=None, running=False)
    made = planned(Host((*chain(1), off), running=False))
    assert made.steps == () and made.notes == (f"g was not written since backup {ident(3)}",)
    for changed in ({"file": (7, 6, 1)}, {"size": 1}, {"points": (point(3),)}):
        facts: dict[str, t.Any] = {"points": (*chain(1), off), "running": False, **changed}
        steps = [str(step) for step in planned(Host(**facts)).steps]
        assert steps[1] == "copy disk vda of g (all, as the guest is off)", changed
    assert planned(Host((*chain(1), off))).point.disks[0].parent == ident(1), "its bitmap went on"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "device",
    [VDA._replace(path="/dev/vg/g", type="block", format="raw"), VDA._replace(path="/dev/vg/g", format="raw")],
    ids=["block", "file"],
)
def test_a_device_is_always_copied(device: GuestDisk) -> None:
    """Its node in /dev does not tell whether anybody has written: a mount or another host leaves it as it is."""
    off = point(3, stored(source="/dev/vg/g", format="raw"), checkpoint=None, running=False)
    steps = [str(step) for step in planned(Host((off,), all_disks=(device,), running=False)).steps]
    assert steps[1] == "copy disk vda of g (all, as the guest is off)"
    both = dataclasses.replace(off, disks=(stored(), dataclasses.replace(off.disks[0], target="vdb")))
    assert planned(Host((both,), all_disks=(VDA, device._replace(target="vdb")), running=False)).point


def test_a_device_that_is_written_while_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (node := tmp_path / "node").touch()
    counters = iter(["100", "108"])
    monkeypatch.setattr(locks, "sectors_written", lambda _path: next(counters))
    monkeypatch.setattr(files_qemu_img, "convert", lambda *_paths, **_options: None)
    work = run_backup._Work(None, spec(), {}, None)
    off = point(3, stored(source=str(node)), checkpoint=None, running=False)
    work.copy(CopyDisk("g", UUID, off, "vda", str(node), "raw", "all"))
    with pytest.raises(Refused, match=f"{node} was written while it was copied; run again"):
        work.finish(FinishPoint("g", UUID, off))


def test_a_clock_that_went_back_does_not_change_the_order() -> None:
    made = planned(Host(chain(1, 29), clock=NOW_S - 20 * DAY_S)).point
    assert made and made.created_s == point(29).created_s + 1


REFUSED: list[tuple[str, dict[str, t.Any], dict[str, t.Any]]] = [
    ("it is transient", {"persistent": False}, {}),
    ("no disk that it writes to", {"all_disks": (ISO,)}, {}),
    ("quiesce: required needs a running guest", {}, {"quiesce": "required"}),
    (r"discard the image \(virsh managedsave-remove g\)", {"keeps": ("managed_save",)}, {}),
    (r"a block job \(copy\) works on disk vda \(virsh blockjob g vda\)", {"at_work": "copy"}, {}),
    ("is encrypted, and its backup would not be", {"all_disks": (VDA._replace(encrypted=True),)}, {}),
    (
        "back the guest up while it runs",
        {"running": False, "all_disks": (VDA._replace(path=None, type="network"),)},
        {},
    ),
    ("has 50 MiB free, and it needs about 84 MiB; make room, or keep less", {"free": 50 * MIB}, {}),
    (f"{ident(2)} holds only what was changed since", {"points": chain(1, 2)}, {"point": ident(1)}),
]


@pytest.mark.parametrize(("why", "facts", "asked"), REFUSED, ids=[row[0][:20] for row in REFUSED])
def test_what_is_refused(why: str, facts: dict[str, t.Any], asked: dict[str, t.Any]) -> None:
    with pytest.raises(Refused, match=why):
        planned(Host(**facts), **asked)


def test_a_guest_that_is_not_here() -> None:
    with pytest.raises(NotFound, match="there is no such guest here"):
        plan_backup.scene(BackupSpec("other", STORE), Host())


PLACES: list[tuple[str, RepositoryFacts]] = [
    ("there is no directory /srv/b; create it, or mount", RepositoryFacts(False)),
    (r"has other files \(a, b\)", RepositoryFacts(True, None, ("a", "b"))),
    ("was not written by this version", RepositoryFacts(True, '{"version": 2, "id": "x"}')),
    ("was not written by this version", RepositoryFacts(True, "half a mark")),
    (r"\(chmod go-w /srv/b\)", RepositoryFacts(True, MARKER, is_open=True)),
    (r"\(chmod o\+x /srv\)", RepositoryFacts(True, MARKER, (), "/srv")),
]


@pytest.mark.parametrize(("why", "facts"), PLACES)
def test_what_is_no_repository(why: str, facts: RepositoryFacts) -> None:
    with pytest.raises(Refused, match=why):
        planned(Host(place=facts))


def test_an_encrypted_repository_is_one_now() -> None:
    clear = Host(in_the_clear="ext4 of /dev/vda1")
    assert planned(clear).point and planned(Host(), encrypted=True).point
    for place in (PLACE, RepositoryFacts(True)):  # the directory below a filesystem that is not mounted
        with pytest.raises(Refused, match="/srv/b is not encrypted: it lies on ext4 of /dev/vda1; open and mount"):
            planned(dataclasses.replace(clear, place=place), encrypted=True)
    with pytest.raises(Refused, match="there is no directory"):
        planned(dataclasses.replace(clear, place=RepositoryFacts(False)), encrypted=True)


def test_an_empty_directory_is_a_repository_only_for_who_writes() -> None:
    itself = RepositoryFacts(True, None, (), STORE, closes_itself=True)
    assert plan_repository.checked_repository(STORE, itself, "cannot", new=True)
    with pytest.raises(Refused, match="cannot pass through /srv/b"):
        plan_repository.checked_repository(STORE, itself._replace(marker=MARKER), "cannot", new=True)
    with pytest.raises(Refused, match=r"has no corral-backup\.json; mount"):
        plan_repository.checked_repository(STORE, RepositoryFacts(True), "cannot")
    readable = RepositoryFacts(True, MARKER, (), "/srv", is_open=True)
    assert not plan_repository.checked_repository(STORE, readable, "cannot")


def test_what_interrupted_runs_left_goes() -> None:
    left = point(9)
    extra = Checkpoint(str(left.checkpoint), REPOSITORY, {})
    newest = Checkpoint(f"corral-{ident(2)}", REPOSITORY, {"vda": 1})
    others = Checkpoint("somebodys", None, {}), Checkpoint("corral-x", "another repository", {})
    host = Host(
        chain(1, 2),
        [newest, extra, *others],
        unfinished=(left,),
        broken=(BrokenPoint(ident(8) + ".part", UUID, "it has no manifest"), BrokenPoint(ident(7), UUID, "damaged")),
    )
    assert mended(host) == [
        f"delete checkpoint corral-{ident(9)} of g",
        f"delete the interrupted backup {ident(9)} of g",
        f"delete the interrupted backup {ident(8)} of g",
    ]
    for whole, lost in ((True, False), (False, True)):
        one = dataclasses.replace(host, known=[newest, extra._replace(whole=whole)])
        (drop, *_rest) = plan_backup.repair(plan_backup.scene(spec(), one)).steps
        assert t.cast(DropCheckpoint, drop).lost is lost
    off = dataclasses.replace(host, running=False)
    assert not [one for one in mended(off) if "checkpoint" in one], "libvirt can do that only while it runs"


def test_a_job_that_goes_on_is_finished() -> None:
    left = point(9)
    files = (f"{STORE}/{UUID}/{left.id}.part/vda.qcow2",)
    extra = Checkpoint(str(left.checkpoint), REPOSITORY, {})
    found = mended(
        Host(chain(1), [Checkpoint(f"corral-{ident(1)}", REPOSITORY), extra], unfinished=(left,), backup=files)
    )
    assert found == ["go on copying the disks of g (vda: all)", "finish the backup of g"]
    for job in (("/elsewhere/vda.qcow2",), ()):
        with pytest.raises(Refused, match=r"another backup of it is running .* \(virsh domjobabort g\)"):
            mended(Host(chain(1), unfinished=(left,), backup=job))


def test_after_a_migration_libvirt_is_told_of_the_checkpoint_again() -> None:
    host = Host(chain(1, 2, host="h2"), known=())
    assert mended(host) == [f"let libvirt know checkpoint corral-{ident(2)} of g again"]
    assert mended(dataclasses.replace(host, running=False)) == []
    again = [f"corral-{ident(2)}"]
    for assumed, parent in ((True, ident(2)), (False, None)):
        made = plan_backup.plan(plan_backup.scene(spec(), host, again, assumed=assumed)).point
        assert made and made.disks[0].parent == parent


def deleted(host: Host, **keep: int) -> list[str]:
    return [step.point.id for step in planned(host, keep=keep).steps if isinstance(step, DeletePoint)]


def test_old_points_go_and_none_that_a_kept_one_stands_on() -> None:
    points = (*chain(1, 2, 3), *chain(10, 11))
    assert deleted(Host(points), daily=1) == [ident(3), ident(2), ident(1)], "the new one stands on the last chain"
    assert deleted(Host(points), daily=4) == []
    assert deleted(Host(points), daily=2) == [ident(3), ident(2), ident(1)]
    assert deleted(Host(points)) == []
    off = (*chain(1, 2), point(20, checkpoint=None, running=False), point(21, checkpoint=None, running=False))
    assert deleted(Host(off, running=False, file=(7, 6, 1)), daily=1) == [ident(21), ident(20)], "changes go on from 2"


def test_what_cannot_be_restored_takes_no_period_from_what_can() -> None:
    """Backup 26 is missing, so 27 and 28 are the newest of their days, and worth nothing."""
    old = tuple(point(number) for number in (20, 21, 22, 25))
    dead = (point(27, stored(reason="", parent=ident(26))), point(28, stored(reason="", parent=ident(27))))
    seen = Host((*old, *dead))
    assert deleted(seen, daily=3) == [ident(21), ident(20)]
    assert deleted(seen, daily=1) == [ident(number) for number in (28, 27, 25, 22, 21, 20)]
    [note] = [one for one in planned(seen, keep={"daily": 3}).notes if "does not count" in one]
    assert note.startswith(f"{ident(27)}, {ident(28)} cannot be restored, as a backup below is missing or damaged")
    assert not [one for one in planned(seen).notes if "does not count" in one], "nothing is pruned"


def test_a_full_repository_is_pruned_before_the_new_backup() -> None:
    big = {"checkpoint": None, "running": False}
    points = tuple(point(number, stored(stored_bytes=60 * MIB), **big) for number in (20, 21, 22))
    full = Host(points, running=False, file=(7, 6, 1), free=30 * MIB)
    steps = planned(full, keep={"daily": 1}).steps
    names = [type(step).__name__ for step in steps]
    assert names == ["DeletePoint", "DeletePoint", "StartPoint", "CopyDisk", "FinishPoint", "DeletePoint"]
    assert [step.point.id for step in steps if isinstance(step, DeletePoint)] == [ident(21), ident(20), ident(22)]
    roomy = planned(dataclasses.replace(full, free=1024**3), keep={"daily": 1}).steps
    assert [type(step).__name__ for step in roomy] == [*names[2:5], *["DeletePoint"] * 3], "the new one is first"
    text = "has 120 MiB free without the 2 that are not kept, and it needs about 121 MiB; make room, or keep less"
    with pytest.raises(Refused, match=text):
        planned(dataclasses.replace(full, free=0, flat=57 * MIB), keep={"daily": 1})


def test_an_empty_repository_that_another_host_has_filled_is_told() -> None:
    """Its filesystem may not be mounted here."""
    new = Host(xml=noted(host="h2"), place=RepositoryFacts(True))
    [note] = [one for one in planned(new).notes if "another host" in one]
    what = f"{STORE} is empty here, and held backup {ident(9)} of it on another host"
    assert note == f"{what}; if it is to be the same, mount it here"
    assert not [one for one in planned(Host(xml=noted(host="h2"))).notes if "another host" in one]


def test_a_damaged_point_holds_what_it_stands_on() -> None:
    """One of its disks may be whole, and so may be that disk of the points above."""
    broken = (BrokenPoint(ident(2), UUID, "its file vdb.qcow2 is missing", frozenset({ident(1)})),)
    over = point(3, stored(reason="", parent=ident(2)))
    seen = Host((point(1), over, *chain(10, 11)), broken=broken)
    assert deleted(seen, daily=1) == [ident(3)]
    assert deleted(dataclasses.replace(seen, broken=()), daily=1) == [ident(3), ident(1)]
    with pytest.raises(Refused, match=f"cannot delete backup {ident(1)} of g: {ident(2)} holds only what was changed"):
        planned(seen, point=ident(1))
    with pytest.raises(Refused, match="it has changed meanwhile"):
        plan_backup.check_same_point(DeletePoint("g", UUID, point(1)), [point(1), *broken])


def test_a_damaged_point_is_deleted_by_its_id() -> None:
    broken = BrokenPoint(ident(3), UUID, "its file vda.qcow2 is missing", frozenset({ident(1)}))
    seen = Host(chain(1, 2), broken=(broken, BrokenPoint(ident(3), "another", "its manifest is damaged")))
    assert planned(seen, point=ident(4)).steps == ()
    [step] = planned(seen, point=ident(3)).steps
    assert str(step) == f"delete backup {ident(3)} of g (damaged: its file vda.qcow2 is missing)"
    step = t.cast(DeletePoint, step)
    plan_backup.check_same_point(step, [*chain(1, 2), broken])
    with pytest.raises(Refused, match="it has changed meanwhile"):
        plan_backup.check_same_point(step, [*chain(1, 2), broken._replace(why="its file vda.qcow2 has 1 bytes")])
    above = (*chain(1, 2), point(4, stored(parent=ident(3))))
    with pytest.raises(Refused, match=f"{ident(4)} holds only what was changed"):
        planned(dataclasses.replace(seen, points=above), point=ident(3))
    pins = {ident(3): (Pin("i", "u", "h2", NOW_S),)}
    gone = f"if that host is gone for good: rm {STORE}/{UUID}/{ident(3)}/instant-u.json"
    with pytest.raises(Refused, match=f"i on the host with UUID h2 runs on it .*; {gone}$"):
        planned(dataclasses.replace(seen, pins=pins), point=ident(3))


def test_a_damaged_point_keeps_its_pins_and_goes_with_its_folder(tmp_path: Path) -> None:
    place = tmp_path / UUID / ident(3)
    place.mkdir(parents=True)
    pin = Pin("i", "u", "h2", NOW_S)
    (place / "instant-u.json").write_text(text_of(pin))
    found = files_repository.read(str(tmp_path), MARKER)
    assert found.pins == {ident(3): (pin,)}
    files_repository.delete(str(tmp_path), found.broken[0])
    assert list((tmp_path / UUID).iterdir()) == []


def test_backups_of_a_guest_that_is_gone_are_told() -> None:
    """Only their folder can be deleted, and only by hand: no guest has a lock that other runs respect."""
    only = dataclasses.replace(point(1), guest="gone")
    broken = BrokenPoint(ident(2), UUID, "it has no manifest")
    for seen, name, ident_ in ((Host((only,)), "gone", ident(1)), (Host(broken=(broken,)), "other", ident(2))):
        with pytest.raises(
            NotFound, match=rf"there is no such guest here; .*in /srv/b/{UUID}.*\(rm -r /srv/b/{UUID}\)"
        ):
            plan_backup.scene(BackupSpec(name, STORE, ident_), seen)
    pins = {ident(1): (Pin("i", "u", "h2", NOW_S),)}
    held = (
        rf"its UUID is {UUID}, and i on the host with UUID h2 runs on its backups in /srv/b/{UUID} until all is copied"
    )
    gone = f"if that host is gone for good: rm /srv/b/{UUID}/{ident(1)}/instant-u.json"
    with pytest.raises(NotFound, match=f"{held}; wait for the end of that restore; {gone}$"):
        plan_backup.scene(BackupSpec("gone", STORE, ident(1)), Host((only,), pins=pins))
    for place in (PLACE, RepositoryFacts(False), RepositoryFacts(True)):
        with pytest.raises(NotFound, match=r"there is no such guest here; [^/]*$"):
            plan_backup.scene(BackupSpec("gone", STORE, ident(9)), Host((only,), place=place))


def test_a_damaged_point_with_a_manifest_tells_what_it_stands_on(tmp_path: Path) -> None:
    made = point(2, stored("vda", parent=ident(1), stored_bytes=1), stored("vdb", parent=ident(1)))
    place = tmp_path / UUID / made.id
    place.mkdir(parents=True)
    for text, files, expected in (
        (
            text_of(made),
            ("vda.qcow2",),
            BrokenPoint(made.id, UUID, "its file vda.qcow2 has 0 bytes instead of 1", frozenset({ident(1)})),
        ),
        ("{", (), BrokenPoint(made.id, UUID, "its manifest is damaged")),
    ):
        (place / "manifest.json").write_text(text)
        for name in files:
            (place / name).touch()
        [found] = files_repository.read(str(tmp_path), MARKER).broken
        assert found._replace(why=found.why.partition(" (")[0]) == expected


@pytest.mark.parametrize("running", [True, False])
def test_a_clock_that_was_ahead_prunes_nothing(running: bool) -> None:
    """The next points get times right after that one: they would take each other's place, and that of all before."""
    days = (*chain(1, 2), *chain(10, 11))
    ahead = dataclasses.replace(point(12, checkpoint=None, running=False), created_s=NOW_S + 300 * DAY_S)
    after = dataclasses.replace(point(13, checkpoint=None, running=False), created_s=ahead.created_s + 1)
    seen = Host((*days, ahead, after), running=running)
    keep = {"daily": 1}
    assert deleted(seen, **keep) == []
    assert planned(seen, keep=keep).notes[-1] == (
        f"backup {ident(12)} is dated in the future; set the clock, or delete it and the later ones (state: absent); "
        "nothing is pruned"
    )
    assert planned(seen).notes == () or "future" not in planned(seen).notes[-1], "nothing is asked to go"
    soon = dataclasses.replace(ahead, created_s=NOW_S + DAY_S)
    assert deleted(Host((*days, soon), running=running), **keep)


@pytest.mark.parametrize(
    ("host", "age_s", "standing", "held"),
    [
        ("h2", 90 * DAY_S, None, True),
        (HOST, 90 * DAY_S, ident(2), True),
        (HOST, 90 * DAY_S, None, False),
        (HOST, 60, None, True),
        (HOST, 60, ident(3), False),
    ],
    ids=["of another host", "runs on it", "gone", "not there yet", "on another one by now"],
)
def test_points_that_a_guest_runs_on_stay(host: str, age_s: int, standing: str | None, *, held: bool) -> None:
    points = (*chain(1, 2, 3), *chain(10, 11))
    pins = {ident(2): (Pin("i", "u", host, NOW_S - age_s),)}
    seen = Host(points, pins=pins, standing=standing)
    assert deleted(seen, daily=1) == [ident(3), *([] if held else [ident(2), ident(1)])]
    last = Host(chain(1, 2), pins=pins, standing=standing)
    if not held:
        assert [str(step) for step in planned(last, point=ident(2)).steps] == [f"delete backup {ident(2)} of g (0 MiB)"]
        return
    where = " on the host with UUID h2" if host == "h2" else ""
    with pytest.raises(Refused, match=f"cannot delete backup {ident(2)} of g: i{where} runs on it until all of it is"):
        planned(last, point=ident(2))
    with pytest.raises(Refused, match="it has changed meanwhile"):
        plan_backup.check_same_point(DeletePoint("g", UUID, last.points[1]), last.points, [ident(2)])


def test_a_pin_of_a_host_that_does_not_end_its_restore_is_told() -> None:
    """Nobody else can: it may be gone for good."""
    pins = {ident(2): (Pin("i", "u", "h2", NOW_S - 2 * DAY_S),), ident(1): (Pin("i", "v", "h2", NOW_S),)}
    whole, policy = Repository(REPOSITORY, chain(1, 2), pins=pins), BackupPolicy()
    [told] = plan_backup_info.problems(whole, [], known=[], now_s=NOW_S, policy=policy, wanted=None)
    assert told.startswith(f"i on the host with UUID h2 runs on backup {ident(2)} since 20")
    assert told.endswith(f"if that host is gone for good, remove {UUID}/{ident(2)}/instant-u.json of the repository")


def test_pins() -> None:
    pin = Pin("i", "u", "h", 7)
    assert read_pin(text_of(pin), "u") == pin and read_pin("{", "u") == Pin("u", "u", "", 0)
    assert [one.id for one in needed(chain(1, 2, 3), ident(2))] == [ident(2), ident(1)]
    closes = plan_instant_restore.closable(Repository("r", (*chain(1, 2, 3), *chain(10, 11))), UUID, [ident(2)])
    assert [one.id for one in closes] == [ident(3), ident(10), ident(11)]


def test_a_guest_that_runs_on_a_backup_gets_none() -> None:
    noted = xml_backup_record.document(BackupNote(stands_on=f"/srv/b/{UUID}/{ident(1)}"), UUID).replace(
        "<guest", "<b:guest xmlns:b='urn:corral:virt:backup:1'"
    )
    xml = f"<domain><name>g</name><uuid>{UUID}</uuid><metadata>{noted}</metadata><devices/></domain>"
    go_on = f"-e repository=/srv/b -e guest={UUID} -e point={ident(1)} -e instant=true"
    with pytest.raises(Refused, match=f"it runs on a backup until that is copied; wait.*{go_on}"):
        planned(Host(xml=xml))
    assert "new_name=h -e instant=true" in xml_backup_record.held(
        xml.replace(f"<uuid>{UUID}", "<uuid>u").replace("e>g<", "e>h<").replace(sealed(UUID), sealed("u"))
    )
    assert xml_backup_record.held(xml.replace(f"<uuid>{UUID}", "<uuid>u")) == "", "the note of another guest"


def noted(**more: t.Any) -> str:
    """A guest with a backup in the repository of these tests."""
    note = BackupNote(ident(9), 7, repository=STORE, repository_id=REPOSITORY, host=HOST)._replace(**more)
    text = xml_backup_record.document(note, UUID).replace("<guest", "<b:guest xmlns:b='urn:corral:virt:backup:1'")
    return f"<domain><uuid>{UUID}</uuid><metadata>{text}</metadata><devices/></domain>"


OTHER_MARKER = RepositoryFacts(True, json.dumps({"version": 1, "id": "another"}))


@pytest.mark.parametrize(
    ("facts", "asked", "found"),
    [
        ({}, {}, "is empty"),
        ({"place": OTHER_MARKER}, {}, "has none of its backups"),
        ({}, {"full": True}, ""),
        ({"xml": noted(host="h2")}, {}, ""),
        ({"xml": noted(repository="/srv/c")}, {}, ""),
        ({"xml": noted(repository=None, repository_id=None, host=None)}, {}, ""),
        ({"place": OTHER_MARKER, "points": chain(1), "repository_id": "another"}, {}, ""),
        ({"place": PLACE}, {}, ""),
    ],
    ids=[
        *("not mounted", "made by another guest's run", "on purpose", "other host", "other directory", "older note"),
        *("two disks by turns", "all of it deleted"),
    ],
)
def test_no_repository_is_made_below_a_filesystem_that_is_not_mounted(
    facts: dict[str, t.Any], asked: dict[str, t.Any], found: str
) -> None:
    given: dict[str, t.Any] = {"xml": noted(), "place": RepositoryFacts(True), **facts}
    given.setdefault("repository_id", "another" if given["place"] is OTHER_MARKER else REPOSITORY)
    if not found:
        assert planned(Host(**given), **asked).point
        return
    again = "ansible-playbook corral.virt.backup -e guest=g -e repository=/srv/b -e full=true"
    with pytest.raises(Refused, match=f"/srv/b {found}, and held backup {ident(9)} of it; mount its .*{again}"):
        planned(Host(**given), **asked)


def test_the_repository_is_noted_with_the_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, t.Any] = {}
    monkeypatch.setattr(run_backup, "note", lambda _connection, _uuid, **values: told.update(values))
    work = run_backup._Work(None, spec(), {}, None)
    work.host = t.cast(t.Any, Host())
    work._found = Host().guest("g")
    assert work.note(ident(9)) == []
    place = {"repository": STORE, "repository_id": REPOSITORY, "host": HOST}
    assert told == {"point": ident(9), "at_s": NOW_S, **place}


def test_what_was_seen_must_still_be_so() -> None:
    made = chain(1, 2)
    plan_backup.check_same_point(DeletePoint("g", UUID, made[1]), made)
    for found in (
        (made[0],),
        (made[0], dataclasses.replace(made[1], quiesced=True)),
        (*made, point(3, stored(parent=ident(2)))),
    ):
        with pytest.raises(Refused, match="it has changed meanwhile; run again"):
            plan_backup.check_same_point(DeletePoint("g", UUID, made[1]), found)
    step = DropCheckpoint("g", UUID, "corral-1", REPOSITORY)
    plan_backup.check_same_checkpoint(step, [Checkpoint("corral-1", REPOSITORY)])
    with pytest.raises(Refused, match="it is another one by now"):
        plan_backup.check_same_checkpoint(step, [Checkpoint("corral-1", None)])
    finish = FinishPoint("g", UUID, made[0])
    plan_backup.check_unwritten(finish, {"/i/a": ((1, 2, 3), (1, 2, 3))})
    with pytest.raises(Refused, match="/i/a was written while it was copied"):
        plan_backup.check_unwritten(finish, {"/i/a": ((1, 2, 3), (1, 4, 3))})


OPTIONS: dict[str, t.Any] = {
    "guests": ["g"],
    "repository": "/srv/b/",
    "state": "present",
    "point": None,
    "quiesce": "auto",
    "increments": 30,
    "full": False,
    "keep": None,
    "encrypted": False,
    "bandwidth": 0,
    "job_timeout": 7200,
    "at_once": 2,
}


def test_all_problems_of_the_options_are_told_at_once() -> None:
    assert plan_backup.checked(OPTIONS) == [BackupSpec("g", "/srv/b")]
    wrong = {
        "guests": ["g", "g"],
        "repository": "b",
        "increments": -1,
        "keep": {"daily": 0, "weekly": -1},
        "at_once": 0,
    }
    with pytest.raises(BadInput, match="guests: ") as told:
        plan_backup.checked({**OPTIONS, **wrong})
    assert [problem.partition(":")[0] for problem in told.value.problems] == [
        *("guests", "repository", "increments", "at_once", "keep.weekly"),
    ]
    for given, why in (
        ({"state": "absent"}, "requires it"),
        ({"point": "x"}, "requires state: absent"),
        ({"state": "absent", "point": "x", "keep": {"daily": 1}}, "requires state: present"),
        ({"state": "absent", "point": "x", "guests": ["a", "b"]}, "name one"),
        ({"guests": []}, "name at least one"),
        ({"keep": {}}, "must keep at least one"),
    ):
        with pytest.raises(BadInput, match=why):
            plan_backup.checked({**OPTIONS, **given})


def test_a_manifest_is_read_as_it_was_written_and_no_damaged_one() -> None:
    made = point(1, stored(parent=ident(2)), files=(("domain.xml", "0" * 64),), states=(("/n", "nvram.fd"),))
    text = text_of(made)
    assert read_manifest(text, made.id) == read_manifest(text, made.id + ".part") == made
    for wrong, why in (
        (text[:-20], "damaged"),
        (text.replace('"version": 1', '"version": 2'), "another version"),
        (text.replace('"vda"', '"../vda"'), "outside"),
        (text.replace("nvram.fd", "/etc/passwd"), "outside"),
        (text.replace(ident(2), "../../x"), "outside"),
        ("[]", "damaged"),
        (text.replace('"sha256"', '"sha1"'), "damaged"),
    ):
        assert why in t.cast(str, read_manifest(wrong, made.id)), wrong
    assert "is that of point" in t.cast(str, read_manifest(text, ident(3)))


def test_chains_are_as_long_as_they_are_and_no_circle() -> None:
    found = chains(chain(1, 2, 3))
    assert list(found.values()) == [0, 1, 2]
    circle = (point(1, stored(parent=ident(2))), point(2, stored(parent=ident(1))))
    assert set(chains(circle).values()) == {-1}


def test_documents_name_all_disks() -> None:
    text = xml_backup.backup({"vda": "/b/vda.qcow2", "vdb": "/b/vdb.qcow2"}, {"vda": "corral-1"}, ("vda", "vdb", "sda"))
    assert 'backupmode="incremental" incremental="corral-1"' in text and '<disk name="sda" backup="no"/>' in text
    assert xml_backup.job_targets(text) == ("/b/vda.qcow2", "/b/vdb.qcow2")
    made = xml_backup.checkpoint("corral-1", REPOSITORY, ("vda",), ("vda", "vdb"))
    assert xml_backup.repository_of(made) == REPOSITORY and '<disk name="vdb" checkpoint="no"/>' in made
    assert xml_backup.repository_of("<domaincheckpoint><description>mine</description></domaincheckpoint>") is None
    then = made.replace("</disks>", "</disks><domain><name>old</name></domain><parent><name>x</name></parent>")
    again = xml_backup.with_definition(then, "<domain/>")
    assert "<domain/>" in again and "old" not in again and "parent" not in again and "corral-1" in again
    sized = made.replace('name="vda"', 'name="vda" size="65536"')
    assert xml_backup.sizes(sized) == {"vda": 65536} and xml_backup.sizes(made) == {}
    assert xml_backup.is_whole(sized) and not xml_backup.is_whole(made), "without a size, the bitmap is lost"


def test_what_there_is_to_see_to() -> None:
    points = chain(1, 2)
    broken = (BrokenPoint(ident(3), UUID, "its file vda.qcow2 is missing"),)
    repository = Repository(REPOSITORY, points, broken, (point(4),))
    damage = plan_backup_info.inherited(points, {ident(1): ["its file vda.qcow2 is damaged"]})
    guests = plan_backup_info.described(repository, damage, NOW_S)
    assert [one["restorable"] for one in guests[0]["points"]] == [False, False]
    told = list(
        plan_backup_info.problems(
            repository,
            guests,
            known=[KnownGuest("g", UUID), KnownGuest("other", "u2")],
            now_s=NOW_S,
            policy=BackupPolicy(DAY_S),
            wanted=None,
        )
    )
    assert told == [
        f"backup {ident(3)} of the guest with UUID {UUID} cannot be restored: its file vda.qcow2 is missing",
        f"backup {ident(4)} of g was interrupted, or is being made; the next run sees to it",
        f"backup {ident(1)} of g: its file vda.qcow2 is damaged",
        f"backup {ident(2)} of g cannot be restored: a backup below is missing or damaged",
        (
            "the last backup of g cannot be restored; make one that stands on none: ansible-playbook corral.virt.backup "
            "-e guest=g -e full=true"
        ),
        "the last backup of g is 28 days old, and one is due every 24 hours",
        "other has no backup",
    ]
    missing = plan_backup_info.inherited(points[1:], {})
    assert missing == {ident(2): [f"it stands on {ident(1)}, which is missing or damaged"]}
    chosen = plan_backup_info.chosen(repository, ["other"])
    assert (chosen.points, chosen.broken, chosen.unfinished) == ((), (), ())
    assert plan_backup_info.chosen(repository, ["g"]) == repository == plan_backup_info.chosen(repository, None)
    lost = Repository(REPOSITORY, (), broken, ())
    here = [KnownGuest("g", UUID), KnownGuest("h", "u2")]
    assert plan_backup_info.chosen(lost, ["g"], here) == lost, "by the guest of that name, as its points are damaged"
    assert plan_backup_info.chosen(lost, [UUID]) == lost
    assert plan_backup_info.chosen(lost, ["h"], here).broken == () == plan_backup_info.chosen(lost, ["g"]).broken
    assert plan_backup_info.missing([UUID], lost, []) == []
    assert plan_backup_info.missing(["nobody", "here", "g"], repository, [KnownGuest("here", "u")]) == ["nobody"]
    assert plan_backup_info.missing(None, repository, []) == []


def test_a_report_of_one_guest_tells_that_all_its_points_are_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files_repository.create(str(tmp_path))
    (tmp_path / UUID / ident(1)).mkdir(parents=True)
    known = [KnownGuest("g", UUID), KnownGuest("h", "u2")]
    monkeypatch.setattr(f"{run_backup_info.__name__}.libvirt_query.of_all", lambda *_of: known)
    options = {"repository": str(tmp_path), "missing_ok": False, "verify": False, "needs": False}
    options |= dict.fromkeys(("every", "proven", "at", "tag"))
    damaged = f"backup {ident(1)} of the guest with UUID {UUID} cannot be restored: it has no manifest"
    for guests, told in ((["g"], [damaged]), ([UUID], [damaged]), (["h"], [])):
        assert run_backup_info.read(None, {**options, "guests": guests})["problems"] == told


def test_a_guest_with_tags_has_a_policy_of_its_own() -> None:
    """Whatever is asked for; and a run that has seen that its last backup is as new as the guest counts as one."""
    points = chain(1)
    [only] = points
    repository, now_s = Repository(REPOSITORY, points), only.created_s + 2 * DAY_S
    guests = plan_backup_info.described(repository, {}, now_s)

    def told(*tags: str, note: BackupNote | None = None, every_s: int | None = None) -> list[str]:
        known = [KnownGuest("g", UUID, tags, note or BackupNote())]
        policy = BackupPolicy(every_s)
        return list(plan_backup_info.problems(repository, guests, known=known, now_s=now_s, policy=policy, wanted=None))

    assert told() == told("backup-7d", "backup-server", every_s=DAY_S) == []
    late = "the last backup of g is 2 days old, and one is due every 24 hours"
    assert told("backup-24h") == told("backup-1d", every_s=9 * DAY_S) == told(every_s=DAY_S) == [late]
    fresh = BackupNote(only.id, now_s - 60)
    assert told("backup-24h", note=fresh) == []
    assert told("backup-24h", note=fresh._replace(point="other")) == [late]
    [unproven] = told("proven-7d")
    assert unproven.startswith("no backup of g was proven by a restore")
    assert list(
        plan_backup_info.problems(
            Repository("r"),
            [],
            known=[KnownGuest("h", "u", ("backup-24h",))],
            now_s=0,
            policy=BackupPolicy(),
            wanted=None,
        )
    ) == ["h has no backup"]


PLACED = BackupNote(repository="/srv/b", repository_id=REPOSITORY, host=HOST)


def test_a_note_of_backups_says_what_it_said() -> None:
    for note in (BackupNote(), BackupNote("20261125T030000Z-00000001", 7, 8), BackupNote(proven_s=9), PLACED):
        text = xml_backup_record.document(note, UUID)
        assert xml_backup_record.read(text, UUID) == note
        assert xml_backup_record.read(text, "of a guest with a copy of the definition") == BackupNote()
    odd = xml_backup_record.document(BackupNote("p", 1, 2), UUID).replace('"1"', '"x"').replace('"2"', '"-1"')
    assert xml_backup_record.read(odd, UUID) == BackupNote("p")
    assert xml_backup_record.read(None, UUID) == xml_backup_record.read("<guest at='1'/>", UUID) == BackupNote()


def test_guests_that_nobody_knows_are_refused() -> None:
    plan_backup_info.check_found([], STORE)
    with pytest.raises(NotFound, match="has none of nobody, and there is no such guest here"):
        plan_backup_info.check_found(["nobody"], STORE)
    plan_backup_info.check_tags([], STORE)
    with pytest.raises(Failed, match="cannot read the tags of a, b: no definition"):
        plan_backup_info.check_tags(["b", "a"], STORE)


@pytest.mark.parametrize(
    ("tags", "at", "proven", "late"),
    [
        ((), None, None, False),
        (("backup-1h",), 59 * 60, None, False),
        (("backup-1h",), 61 * 60, None, True),
        (("backup-1h",), None, None, True),
        (("proven-1d",), 60, None, True),
        (("proven-1d",), 60, 23 * 3600, False),
        (("proven-1d", "backup-1h"), 2 * 3600, 60, True),
    ],
)
def test_what_reports_say_of_a_guest(tags: tuple[str, ...], at: int | None, proven: int | None, late: bool) -> None:
    """By what is noted with it, which a copy of its definition has not."""
    now_s = int(time.time())
    at_s, proven_s = (None if age is None else now_s - age for age in (at, proven))
    note = BackupNote("p", at_s, proven_s)
    text = xml_backup_record.document(note, UUID).replace("<guest", '<guest xmlns="urn:corral:virt:backup:1"')
    tagged = "".join(f"<tag>{tag}</tag>" for tag in tags)
    record = f'<guest xmlns="urn:corral:virt:guest:1">{tagged}</guest>'
    told = run_summary.backup(parse(f"<domain><uuid>{UUID}</uuid><metadata>{record}{text}</metadata></domain>"))
    assert told["late"] is late and (told["age_s"] is None) is (at is None)
    copied = run_summary.backup(parse(f"<domain><uuid>other</uuid><metadata>{record}{text}</metadata></domain>"))
    assert (copied["age_s"], copied["proven_age_s"], copied["late"]) == (None, None, bool(tags))


@pytest.mark.parametrize(
    ("backup", "words"),
    [
        ({}, "-"),
        ({"age_s": 7200}, "2 hours"),
        ({"age_s": 7200, "every_s": 3600}, "2 hours (late)"),
        ({"every_s": 3600}, "none"),
        ({"age_s": 7200, "every_s": 9000, "proven_every_s": 60}, "2 hours, not proven"),
        ({"proven_age_s": 200000, "proven_every_s": 300000}, "proven 2 days"),
    ],
)
def test_a_backup_in_a_table(backup: dict[str, int], words: str) -> None:
    assert tables.backup_ages(backup) == words


def test_a_repository_as_it_was() -> None:
    repository = Repository(REPOSITORY, chain(1, 2), (), (point(3),))
    assert plan_backup_info.until(repository, None) == repository
    [first, second] = repository.points
    then = plan_backup_info.until(repository, second.created_s - 1)
    assert (then.points, then.unfinished) == ((first,), ())
    assert plan_backup_info.until(repository, second.created_s).points == (first, second)


def test_two_runs_that_make_a_repository_agree_on_its_mark(tmp_path: Path) -> None:
    marks = set()
    (tmp_path / "corral-backup.json.killed").touch()
    assert files_repository.look(str(tmp_path)).others == ()
    (tmp_path / "corral-backup.json.killed").unlink()
    for _run in range(2):
        files_repository.create(str(tmp_path))
        marks.add(files_repository.look(str(tmp_path)).marker)
    assert len(marks) == 1 and [path.name for path in tmp_path.iterdir()] == ["corral-backup.json"]


def test_an_empty_directory_has_no_backups_of_the_guests_of_its_host() -> None:
    assert plan_repository.checked_repository(STORE, RepositoryFacts(True), "cannot", empty=True)
    for known, told in (((KnownGuest("g", UUID),), 1), ((), 0)):
        found = plan_backup_info.problems(Repository(""), [], known=known, now_s=0, policy=BackupPolicy(), wanted=None)
        assert len([one for one in found if "its filesystem is not mounted" in one]) == told


def test_durations() -> None:
    assert [seconds(text) for text in ("90m", "24 h", "7d", "2w")] == [5400, 86400, 604800, 1209600]
    with pytest.raises(BadInput, match=r"repository: .*; every: must be a number and one of m, h, d and w"):
        plan_backup_info.checked({"repository": "b", "every": "1 day", "proven": None, "at": None})
    noon = {"repository": "/b", "every": "1d", "proven": None, "at": "2026-11-25T12:00:00Z"}
    with pytest.raises(BadInput, match="at: every and proven count from now"):
        plan_backup_info.checked(noon)
    assert plan_backup_info.checked({**noon, "every": None}).at_s == 1_795_608_000


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ("", None),
        ("<c:ha mode='restart'/>", {"mode": "restart", "priority": 0, "group": "", "kept": "noted"}),
        (
            "<c:ha mode='restart' priority='100' group='shop'/>",
            {"mode": "restart", "priority": 100, "group": "shop", "kept": "noted"},
        ),
    ],
)
def test_a_guest_tells_whether_it_is_protected(record: str, told: object) -> None:
    guest = f"<c:guest xmlns:c='urn:corral:virt:guest:1'>{record}</c:guest>"
    root = parse(f"<domain><uuid>u</uuid><metadata>{guest}</metadata></domain>")
    assert run_summary.protection(root, {"u": "noted"}) == told
    assert (run_summary.protection(root, {}) or {"kept": None})["kept"] is None
