"""What becomes of a disk that moves: the steps, and what is refused."""

from __future__ import annotations

import dataclasses
import re
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._disk_move import (
    plan_disk_move,
    plan_disk_move_steps,
    plan_disk_place,
    xml_disk_move,
)
from ansible_collections.corral.virt.plugins.module_utils._disk_move.plan_disk_move import Mark, MoveSpec
from ansible_collections.corral.virt.plugins.module_utils._disk_move.plan_disk_place import DiskFile
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest, owner_tag
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_guest_steps import Define, DeleteVolume
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import ThinPool, VolumeGroup
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity, OwnedVolume

UUID, HOST = "2ff4c3c5-8a3b-4f9d-9b5e-cc7cf3cbb8f2", "9b5e2ff4-8a3b-4f9d-8a3b-cc7cf3cbb8f2"
OLD, NEW = "/images/g-system.qcow2", "/fast/g-system.qcow2"
FILE = DiskFile(40 * 1024**2, 64 * 1024**2, "qcow2", None, None, None, encrypted=False, identity=FileIdentity(7, 9))
LV = FileIdentity(0, mark=f"LVM-{'a' * 64}")
PART = FileIdentity(3, 3)
MARK = Mark("system", UUID, OLD, True, FileIdentity(7, 9))
SPEC = MoveSpec("g", "system", "fast")
THIN = ThinPool("thin", "vg0", 100 * 1024**2, 336 * 1024**2, data_percent=50.0, metadata_percent=5.0)


def document(path: str = OLD, *, form: str = "qcow2", mirror: str = "", more: str = "", owned: str | None = OLD) -> str:
    """A guest with one disk."""
    copied = f"<mirror type='file' job='copy'><source file='{mirror}'/></mirror>" if mirror else ""
    xml = (
        f"<domain type='kvm'><name>g</name><uuid>{UUID}</uuid><metadata/><devices><disk type='file' device='disk'><driver "
        f"name='qemu' type='qcow2'/><source file='{path}'/>{copied}<target dev='vda' bus='virtio'/>{more}<alias "
        "name='ua-system'/></disk></devices></domain>"
    )
    known = LV if str(owned).startswith("/dev/") else FileIdentity(7, 9)
    entries = [OwnedVolume(owned, UUID, HOST, known)] if owned else None
    return xml_disk_move.moved(xml, "system", path, form, entries)


@dataclasses.dataclass
class Host:
    """A `MoveHost` that knows all its answers."""

    stored: str = dataclasses.field(default_factory=document)
    live: str | None = None
    persistent: bool = True
    there: t.Collection[str] = (OLD,)
    files: DiskFile | None = FILE
    free: int = 1024**3
    keeps: tuple[str, ...] = ()
    backups: bool = False
    at_work: str | None = None
    users: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    marked: tuple[str, FileIdentity | None] | None = None
    asks_lvm: bool = True
    thin: ThinPool | None = None
    thin_of: str | None = None  # the thin pool that the disk is in

    def guest(self, name: str) -> FoundGuest | None:
        state = "running" if self.live else "off"
        return FoundGuest("g", UUID, state, self.persistent, False, self.stored, self.live) if name == "g" else None

    def pools(self) -> tuple[str, ...]:
        return ("default", "fast", "lvm")

    def pool(self, name: str) -> PoolDirectory:
        if name == "lvm":
            return PoolDirectory(name, "logical", "/dev/vg0", group="vg0")
        return PoolDirectory(name, "dir", "/images" if name == "default" else f"/{name}", here=True)

    def group(self, pool: str) -> VolumeGroup | None:
        return VolumeGroup("vg0", 4 * 1024**2, self.free) if pool == "lvm" and self.asks_lvm else None

    def thin_pool(self, _pool: str, _name: str, but: str) -> ThinPool | None:
        return self.thin if not but else dataclasses.replace(THIN, virtual_bytes=0)

    def thin_pool_of(self, _path: str) -> str | None:
        return self.thin_of

    def pool_of(self, path: str) -> str | None:
        return "lvm" if path.startswith("/dev/vg") else None

    def free_bytes(self, _pool: PoolDirectory) -> int:
        return self.free

    def content_bytes(self, _path: str, _form: str) -> int:
        return 50 * 1024**2

    def located(self, _pool: str, volume: str) -> str | None:
        return f"/images/{volume}"

    def kept(self, _uuid: str) -> tuple[str, ...]:
        return self.keeps

    def only_backups(self, _uuid: str) -> bool:
        return self.backups

    def job(self, _uuid: str, _target: str) -> str | None:
        return self.at_work

    def user(self, path: str, _but: str) -> str | None:
        return self.users.get(path)

    def file(self, _path: str, _form: str) -> DiskFile | None:
        return self.files

    def exists(self, path: str) -> bool:
        return path in self.there

    def taken_bytes(self, _path: str) -> int:
        return 2 * 1024**2

    def mark(self, _pool: str, _name: str) -> tuple[str, FileIdentity | None] | None:
        return self.marked

    def host_uuid(self) -> str:
        return HOST


def steps(host: Host, spec: MoveSpec = SPEC) -> list[str]:
    """What is done."""
    return [str(step).partition(" (")[0] for step in plan_disk_move.plan(spec, host).steps]


RUNNING = Host(live=document())
SWITCHED = [
    "switch disk vda of running g to /fast/g-system.qcow2",
    "record that disk /fast/g-system.qcow2 is of g",
    "delete disk /images/g-system.qcow2",
    "record that g-system.qcow2 of pool fast is complete",
]


def test_the_disk_of_a_running_guest() -> None:
    made = plan_disk_move.plan(SPEC, RUNNING)
    assert [str(step) for step in made.steps] == [
        "create disk /fast/g-system.qcow2",
        "copy disk vda of running g (40 MiB) to /fast/g-system.qcow2",
        *SWITCHED,
    ]
    assert [str(one) for one in made.changes] == [f"disks[system].source: {OLD} -> {NEW}"] and made.path == NEW
    assert steps(RUNNING, MoveSpec("g", "vda", "fast")) == steps(RUNNING)


def test_the_disk_of_a_guest_that_is_off() -> None:
    made = plan_disk_move.plan(SPEC, Host())
    assert [type(step).__name__ for step in made.steps] == ["Begin", "CopyOff", "Define", "DeleteVolume", "Finish"]
    (define,) = [step for step in made.steps if isinstance(step, Define)]
    assert NEW in define.xml and f"'{OLD}'" not in define.xml and define.uuid == UUID
    assert fields_record.read(define.xml)["volumes"] == (OwnedVolume(NEW, UUID, HOST),)
    (delete,) = [step for step in made.steps if isinstance(step, DeleteVolume)]
    assert (delete.path, delete.expected) == (OLD, FileIdentity(7, 9))


@pytest.mark.parametrize("live", [None, document(owned=None)])
@pytest.mark.parametrize("owned", [None, "/images/other.qcow2"])
def test_a_disk_that_was_not_made_for_the_guest_is_kept(live: str | None, owned: str | None) -> None:
    made = plan_disk_move.plan(SPEC, Host(document(owned=owned), live and document(owned=owned)))
    assert not [step for step in made.steps if isinstance(step, DeleteVolume)]
    assert "was not made for g by the collection; it is kept" in made.notes[0]


@pytest.mark.parametrize("found", [FileIdentity(8, 9), FileIdentity(7), None])
def test_another_file_of_the_name_and_one_that_cannot_be_told_are_kept(found: FileIdentity | None) -> None:
    made = plan_disk_move.plan(SPEC, Host(files=FILE._replace(identity=found)))
    assert "it is kept" in made.notes[0] and not [one for one in made.steps if isinstance(one, DeleteVolume)]


def test_a_seed_moves_as_it_is_the_guests_own() -> None:
    for live in (None, document(more="<readonly/>")):
        made = plan_disk_move.plan(SPEC, Host(document(more="<readonly/>"), live))
        assert made.path == NEW and [step for step in made.steps if isinstance(step, DeleteVolume)]


def test_what_is_there_already() -> None:
    there = Host(document(NEW, owned=NEW), there=(NEW,))
    assert steps(there) == [] and plan_disk_move.plan(SPEC, there).path == NEW
    assert steps(dataclasses.replace(there, marked=("somebody's", PART))) == []


def test_a_switch_that_was_interrupted_is_finished() -> None:
    marked = (MARK.text(), PART)
    done = Host(document(NEW), document(NEW), there=(OLD, NEW), marked=marked)
    assert steps(done) == SWITCHED[1:]
    assert steps(dataclasses.replace(done, there=(NEW,))) == [SWITCHED[1], SWITCHED[3]]
    kept = (MARK._replace(owned=False).text(), PART)
    assert steps(dataclasses.replace(done, marked=kept)) == [SWITCHED[3]]
    off = Host(document(NEW, owned=NEW), there=(OLD, NEW), marked=marked)
    assert steps(off) == SWITCHED[2:]
    for foreign in (("disk x of guest y, moved from /z (own, unknown)", PART), (MARK.text(), None)):
        assert steps(dataclasses.replace(done, marked=foreign)) == []


def test_a_copy_that_was_interrupted() -> None:
    copying = Host(live=document(mirror=NEW), there=(OLD, NEW), at_work="copy", marked=(MARK.text(), PART))
    assert steps(copying) == ["go on copying disk vda of running g", *SWITCHED]
    left = Host(live=document(), there=(OLD, NEW), marked=(MARK.text(), PART))
    assert steps(left)[0] == "create disk /fast/g-system.qcow2" and "again" in str(
        plan_disk_move.plan(SPEC, left).steps[0]
    )
    (begin, *_rest) = plan_disk_move.plan(SPEC, left).steps
    assert isinstance(begin, plan_disk_move_steps.Begin) and begin.part == PART
    tight = dataclasses.replace(left, free=39 * 1024**2)
    assert steps(tight) == steps(left), "what the part takes is free then"
    with pytest.raises(Refused, match="are free there"):
        steps(dataclasses.replace(left, free=37 * 1024**2))
    none = Host(live=document(), marked=(MARK.text(), None))
    assert "again" not in str(plan_disk_move.plan(SPEC, none).steps[0])


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ({"persistent": False}, "is transient"),
        ({"keeps": ("snapshots",)}, "it has snapshots"),
        ({"keeps": ("checkpoints",)}, "it has checkpoints"),
        ({"keeps": ("managed_save",)}, "its saved state names the file"),
        ({"live": document(), "at_work": "backup"}, r"a block job .backup. works on it"),
        ({"live": document(mirror="/x"), "at_work": "copy", "marked": (MARK.text(), PART)}, "a block job"),
        ({"live": document(mirror=NEW), "at_work": "copy"}, "a block job"),
        ({"live": document("/else")}, "the running guest has /else, the stored definition /images"),
        ({"stored": document(more="<readonly/>", owned=None)}, "only disks that one guest alone writes"),
        ({"stored": document(more="<shareable/>")}, "only disks that one guest alone writes"),
        ({"files": None}, "is missing, or neither a file nor a device"),
        ({"files": FILE._replace(encrypted=True)}, "it is encrypted"),
        ({"files": FILE._replace(data_file="/d")}, "its data is in /d"),
        ({"files": FILE._replace(format="raw")}, "its first bytes say raw"),
        ({"files": FILE._replace(backing="base", backing_format="raw")}, "names its backing file without a directory"),
        ({"files": FILE._replace(backing="/base")}, "which format its backing file /base has"),
        ({"users": {OLD: "guest h"}}, "guest h uses /images/g-system.qcow2, too"),
        ({"there": (OLD, NEW)}, "exists, and is no part of this move; rename or remove it if no other host uses it"),
        ({"there": (OLD, NEW), "users": {NEW: "guest h"}}, "exists, and guest h uses it; choose another pool"),
        ({"there": (OLD, NEW), "marked": (MARK.text(), None)}, "exists, and is no part of this move"),
        ({"there": (OLD, NEW), "marked": (MARK.text(), PART), "users": {NEW: "guest h"}}, "and guest h uses it"),
        ({"free": 1024**2}, "it takes 40 MiB, and 1 MiB are free there"),
    ],
)
def test_what_cannot_move(host: dict[str, t.Any], told: str) -> None:
    with pytest.raises((Refused, NotFound), match=told):
        plan_disk_move.plan(SPEC, Host(**host))


LUKS = "<encryption format='luks'><secret type='passphrase' uuid='2ff4c3c5-8a3b-4f9d-9b5e-cc7cf3cbb8f2'/></encryption>"
IN_SOURCE = document(form="raw").replace(f'"{OLD}"/>', f'"{OLD}">{LUKS}</source>')


@pytest.mark.parametrize("xml", [document(form="raw", more=LUKS), IN_SOURCE])
def test_an_encrypted_disk_moves_only_as_the_file_that_it_is(xml: str) -> None:
    """libvirt's LUKS disks are raw, so their first bytes are not read; what QEMU copies of them is the plain content."""
    assert "<encryption" in xml
    raw = FILE._replace(format="raw")
    for spec, live in (
        (dataclasses.replace(SPEC, format="qcow2"), None),
        (dataclasses.replace(SPEC, pool="lvm"), None),
        (SPEC, xml),
    ):
        with pytest.raises(
            Refused, match="it is encrypted, and its copy would not be; shut the guest down, and move it"
        ):
            plan_disk_move.plan(spec, Host(stored=xml, live=live, files=raw))
    (define,) = [one for one in plan_disk_move.plan(SPEC, Host(stored=xml, files=raw)).steps if isinstance(one, Define)]
    assert NEW in define.xml and "<encryption" in define.xml


def test_checkpoints_of_backups_do_not_hold_a_disk() -> None:
    assert steps(Host(keeps=("checkpoints",), backups=True)) == steps(Host())


def test_all_reasons_are_told_at_once() -> None:
    with pytest.raises(Refused, match=r"it has snapshots.*; cannot move .*it is encrypted"):
        plan_disk_move.plan(SPEC, Host(keeps=("snapshots",), files=FILE._replace(encrypted=True)))


def test_what_is_not_there_is_told() -> None:
    with pytest.raises(NotFound, match="no such guest here"):
        plan_disk_move.plan(MoveSpec("x", "system", "fast"), Host())
    with pytest.raises(NotFound, match="choose one of system"):
        plan_disk_move.plan(MoveSpec("g", "data", "fast"), Host())


def test_bad_values_are_told_at_once() -> None:
    good = {"guest": "g", "disk": "vda", "pool": "fast", "bandwidth": 0, "job_timeout": 1}
    assert plan_disk_move.checked(good) == MoveSpec("g", "vda", "fast")
    for wrong in ({"bandwidth": -1}, {"job_timeout": 0}, {"bandwidth": 2**31}, {"pool": ""}):
        with pytest.raises(BadInput, match=f"{next(iter(wrong))}: must "):
            plan_disk_move.checked({**good, **wrong})
    with pytest.raises(BadInput, match="disk: must") as error:
        plan_disk_move.checked({**good, "disk": "", "bandwidth": -1, "job_timeout": -1})
    assert len(error.value.problems) == 3


def test_a_mark_comes_back() -> None:
    for mark in (
        MARK,
        MARK._replace(owned=False, old=None),
        MARK._replace(source="/a b/(own, 7 9)", old=FileIdentity(7)),
        MARK._replace(old=FileIdentity(7, None, "0a1b")),
        MARK._replace(old=LV, source="/dev/vg0/g-system"),
    ):
        assert Mark.of(mark.text()) == mark
        assert plan_disk_move.of_tags(("corral.guest.x", mark.tag)) == mark.text()
        assert re.fullmatch(r"[\w.-]+", mark.tag) and len(mark.tag) < 1024, "as LVM wants it"
    assert plan_disk_move.of_tags(("corral.guest.x",)) is None
    assert Mark.of("a copy of volume x of pool y") is None


@pytest.mark.parametrize(
    ("which", "mark", "file", "taken", "is_it"),
    [
        ("7 1 m", FileIdentity(1, 50), FileIdentity(7, 60), 99 * 1024**2, True),
        ("7 2 m", FileIdentity(1, 50), FileIdentity(7, 60), 0, False),
        ("", FileIdentity(1, 50), FileIdentity(7, 60), 200 * 1024, True),
        ("", FileIdentity(1, 50), FileIdentity(7, 50), 200 * 1024, True),
        ("", FileIdentity(1, 50), FileIdentity(7, 49), 200 * 1024, False),
        ("", FileIdentity(1, 50), FileIdentity(7, 60), 1024**2, False),
        ("", FileIdentity(1, 50), FileIdentity(7), 0, False),
        ("", FileIdentity(1), FileIdentity(7, 60), 0, False),
        ("", None, FileIdentity(7, 60), 0, False),
        ("", FileIdentity(1, 50), None, 0, False),
    ],
)
def test_a_mark_is_about_the_file_that_it_names_or_a_new_one(
    which: str, mark: FileIdentity | None, file: FileIdentity | None, taken: int, is_it: bool
) -> None:
    assert plan_disk_move.is_marked(which, "7 1 m", mark, file, taken) is is_it


def test_nobody_switches_to_what_was_not_copied() -> None:
    (pivot,) = [one for one in plan_disk_move.plan(SPEC, RUNNING).steps if isinstance(one, plan_disk_move_steps.Pivot)]
    plan_disk_move.check_pivot(pivot, OLD, NEW, marked=True)
    for source, copied, marked in (("/else", NEW, True), (OLD, "/else", True), (None, None, False), (OLD, NEW, False)):
        with pytest.raises(Refused, match="cannot switch disk vda of g: it is"):
            plan_disk_move.check_pivot(pivot, source, copied, marked=marked)
    (copy,) = [one for one in plan_disk_move.plan(SPEC, Host()).steps if isinstance(one, plan_disk_move_steps.CopyOff)]
    plan_disk_move.check_still_off(copy, active=False, written=False)
    for wrong in ({"active": True, "written": False}, {"active": False, "written": True}):
        with pytest.raises(Refused, match="it is where it was"):
            plan_disk_move.check_still_off(copy, **wrong)


def test_a_record_of_a_running_guest_follows() -> None:
    made = OwnedVolume(NEW, UUID, HOST, FileIdentity(8, 8))
    told = xml_disk_move.remembered(document(), OLD, made)
    assert NEW in told and OLD not in told and 'inode="8"' in told


OVERLAY = FILE._replace(backing="/images/base.qcow2", backing_format="qcow2")
RAW = MoveSpec("g", "system", "fast", "raw")


def test_a_disk_becomes_raw_and_leaves_its_image() -> None:
    for live, how in ((None, "disk /images/g-system.qcow2"), (document(), "disk vda of running g")):
        made = plan_disk_move.plan(RAW, Host(live=live, files=OVERLAY))
        reads = f"copy {how} (50 MiB, with what it reads of /images/base.qcow2) to /fast/g-system.img as raw"
        assert str(made.steps[1]).startswith(reads), "of what it reads only the whole is told"
        (begin, *_rest) = made.steps
        assert isinstance(begin, plan_disk_move_steps.Begin) and begin.volume.backing_path is None
        assert (begin.volume.format, made.path, made.format) == ("raw", "/fast/g-system.img", "raw")
        assert [str(one) for one in made.changes][1] == "disks[system].format: qcow2 -> raw"
    with pytest.raises(Refused, match=r"it takes 50 MiB with what it reads of /images/base.qcow2, and 45 MiB are free"):
        plan_disk_move.plan(RAW, Host(files=OVERLAY, free=45 * 1024**2))
    kept = plan_disk_move.plan(SPEC, Host(live=document(), files=OVERLAY)).steps[1]
    assert isinstance(kept, plan_disk_move_steps.CopyRunning) and kept.shallow and not kept.flattens


def test_the_definition_of_a_disk_that_is_off_says_raw() -> None:
    more = "<backingStore type='file'><format type='qcow2'/><source file='/b'/><backingStore/></backingStore>"
    before = document(more=more).replace("type='qcow2'/>", "type='qcow2'><metadata_cache/></driver>", 1)
    made = plan_disk_move.plan(RAW, Host(before))
    (define,) = [step for step in made.steps if isinstance(step, Define)]
    assert 'type="raw"' in define.xml and "backingStore" not in define.xml and "metadata_cache" not in define.xml
    same = plan_disk_move.plan(SPEC, Host(before)).steps[2]
    assert isinstance(same, Define) and "backingStore" in same.xml


def test_another_format_in_the_same_pool_is_a_move() -> None:
    there = MoveSpec("g", "system", "default", "raw")
    assert plan_disk_move.plan(there, Host()).path == "/images/g-system.img"
    done = Host(document("/images/g-system.img", form="raw", owned="/images/g-system.img"))
    assert not plan_disk_move.plan(there, done).steps
    assert not plan_disk_move.plan(MoveSpec("g", "system", "default"), done).steps, "it has the format that it has"
    marked = dataclasses.replace(done, there=(OLD, "/images/g-system.img"), marked=(MARK.text(), PART))
    assert steps(marked, there)[0] == f"delete disk {OLD}"


@pytest.mark.parametrize(
    ("source", "form", "wanted", "pool", "path"),
    [
        ("/images/a.qcow2", "qcow2", None, "fast", "/fast/a.qcow2"),
        ("/images/a.qcow2", "qcow2", "raw", "fast", "/fast/a.img"),
        ("/images/a.raw", "raw", "qcow2", "fast", "/fast/a.qcow2"),
        ("/images/a.b", "raw", "qcow2", "fast", "/fast/a.b.qcow2"),
        ("/images/a.img", "qcow2", "raw", "default", "/images/a.img.img"),
        ("/images/a.img", "raw", None, "lvm", "/dev/vg0/a"),
        ("/images/a.b", "raw", None, "lvm", "/dev/vg0/a.b"),
        ("/dev/vg0/a", "raw", None, "fast", "/fast/a.img"),
        ("/dev/vg0/a", "raw", "qcow2", "fast", "/fast/a.qcow2"),
        ("/dev/vg1/a", "raw", None, "lvm", "/dev/vg0/a"),
    ],
)
def test_where_a_disk_goes(source: str, form: str, wanted: str | None, pool: str, path: str) -> None:
    assert plan_disk_place.place_in(Host().pool(pool), source, form, wanted).path == path


LVM = MoveSpec("g", "system", "lvm")


def test_a_disk_goes_onto_a_logical_volume() -> None:
    file = OVERLAY._replace(capacity_bytes=62 * 1024**2)
    for live in (None, document()):
        made = plan_disk_move.plan(LVM, Host(live=live, files=file))
        *grown, begin, copy = made.steps[: 3 if live else 2]
        assert [str(step) for step in grown] == [f"grow disk {OLD} to 64 MiB while it runs"] * bool(live)
        assert str(begin) == "create disk /dev/vg0/g-system (64 MiB, logical volume in pool lvm)"
        assert isinstance(begin, plan_disk_move_steps.BeginLogical) and begin.tags[0] == owner_tag(UUID)
        assert begin.content_bytes == 62 * 1024**2, "what is behind it becomes zeros"
        assert "(50 MiB, with what it reads of /images/base.qcow2) to /dev/vg0/g-system as raw" in str(copy)
        assert str(made.steps[-1]) == "record that /dev/vg0/g-system of pool lvm is complete"
        assert (made.needed_bytes, made.size_bytes) == (64 * 1024**2, 50 * 1024**2)
    with pytest.raises(
        Refused, match=r"it takes 64 MiB, and 60 MiB are free in volume group vg0; extend it \(vgextend"
    ):
        plan_disk_move.plan(LVM, Host(files=file, free=60 * 1024**2))


def on_lvm(**more: t.Any) -> Host:
    """A guest whose disk is a logical volume of its own."""
    xml = document("/dev/vg0/g-system", form="raw", owned="/dev/vg0/g-system")
    size = 64 * 1024**2
    file = DiskFile(size, size, "raw", None, None, None, encrypted=False, identity=LV, is_device=True)
    return Host(**{"stored": xml, "there": ("/dev/vg0/g-system",), "files": file, **more})


def test_a_switch_to_a_logical_volume_that_was_interrupted_is_finished() -> None:
    host = on_lvm(there=(OLD, "/dev/vg0/g-system"), marked=(MARK.text(), LV))
    assert [str(step) for step in plan_disk_move.plan(LVM, host).steps] == [
        f"delete disk {OLD}",
        "record that /dev/vg0/g-system of pool lvm is complete",
    ]
    running = dataclasses.replace(host, stored=document("/dev/vg0/g-system", form="raw"))
    running.live = running.stored
    assert steps(running, LVM)[0] == "record that disk /dev/vg0/g-system is of g"
    (*_rest, finish) = plan_disk_move.plan(LVM, running).steps
    assert isinstance(finish, plan_disk_move_steps.FinishLogical) and finish.tag == MARK.tag


@pytest.mark.parametrize("wanted", [None, "qcow2"])
def test_a_disk_leaves_a_logical_volume(wanted: str | None) -> None:
    host = on_lvm()
    for live in (None, host.stored):
        made = plan_disk_move.plan(MoveSpec("g", "system", "fast", wanted), dataclasses.replace(host, live=live))
        assert made.path == f"/fast/g-system.{wanted or 'img'}"
        (delete,) = [step for step in made.steps if isinstance(step, DeleteVolume)]
        assert (delete.path, delete.expected) == ("/dev/vg0/g-system", LV)
    (define,) = [
        step for step in plan_disk_move.plan(MoveSpec("g", "system", "fast"), host).steps if isinstance(step, Define)
    ]
    assert 'type="file"' in define.xml and "dev=" not in define.xml.partition("<target")[0]


def test_a_volume_of_a_running_guest_grows_before_it_moves_to_larger_extents() -> None:
    host = on_lvm(there=())
    host.live, size = host.stored.replace("/dev/vg0", "/dev/vg1"), 62 * 1024**2
    host.stored = host.live
    host.files = t.cast(DiskFile, host.files)._replace(capacity_bytes=size, allocated_bytes=size)
    made = plan_disk_move.plan(LVM, host)
    assert [str(step) for step in made.steps[:3]] == [
        "grow logical volume /dev/vg1/g-system to 64 MiB",
        "grow disk /dev/vg1/g-system to 64 MiB while it runs",
        "create disk /dev/vg0/g-system (64 MiB, logical volume in pool lvm)",
    ]
    for wrong in ({"free": 1024**2}, {"stored": host.stored.replace("/dev/vg1", "/dev/x"), "live": None}):
        other = dataclasses.replace(host, **t.cast("dict[str, t.Any]", wrong))
        other.live = other.stored
        with pytest.raises(Refused, match="its disk must first grow to that, which it cannot"):
            plan_disk_move.plan(LVM, other)
    thin = plan_disk_move.plan(LVM, dataclasses.replace(host, thin_of="thin")).steps
    assert str(thin[0]) == "grow thin volume /dev/vg1/g-system to 64 MiB"
    off = plan_disk_move.plan(LVM, dataclasses.replace(host, live=None)).steps
    assert str(off[0]).startswith("create disk"), "what is behind it becomes zeros"
    half = dataclasses.replace(host, files=host.files._replace(capacity_bytes=1))
    with pytest.raises(Refused, match="an interrupted run was growing it; run virt_domain with its size again"):
        plan_disk_move.plan(LVM, half)


def test_a_logical_volume_of_others_is_kept() -> None:
    for known in (FileIdentity(0, mark=f"LVM-{'b' * 64}"), None):
        host = on_lvm()
        made = plan_disk_move.plan(SPEC, dataclasses.replace(host, files=host.files._replace(identity=known)))  # type: ignore[union-attr]
        assert made.old_file == "kept" and made.notes == (
            "/dev/vg0/g-system was not made for g by the collection; it is kept",
        )


@pytest.mark.parametrize(
    ("spec", "host", "told"),
    [
        (LVM, Host(asks_lvm=False), "volume group vg0 cannot be read from here"),
        (MoveSpec("g", "system", "lvm", "qcow2"), Host(), "a logical volume is always raw; omit format"),
        (LVM, Host(document(more="<readonly/>")), "as a seed of cloud-init, stays the file that it is"),
        (LVM, Host(document("/images/ä.qcow2", owned=None)), "is no name for a logical volume"),
        (SPEC, on_lvm(files=on_lvm().files._replace(opened=True)), "a process that libvirt does not know has it open"),  # type: ignore[union-attr]
    ],
)
def test_what_no_logical_volume_can_be(spec: MoveSpec, host: Host, told: str) -> None:
    with pytest.raises(Refused, match=told):
        plan_disk_move.plan(spec, host)


INTO_THIN = MoveSpec("g", "system", "lvm", thin_pool="thin")


def test_a_disk_goes_into_a_thin_pool() -> None:
    made = plan_disk_move.plan(INTO_THIN, Host(files=OVERLAY, thin=THIN))
    begin, copy, *_rest = made.steps
    assert str(begin) == "create disk /dev/vg0/g-system (64 MiB, thin volume of vg0/thin in pool lvm)"
    assert isinstance(copy, plan_disk_move_steps.ConvertOff) and copy.empty, "it reads as zeros"
    assert made.needed_bytes == 50 * 1024**2, "only the content"
    with pytest.raises(Refused, match=r"thin pool vg0/thin has 50 MiB free of 64 MiB that are copied; extend it"):
        plan_disk_move.plan(INTO_THIN, Host(live=document(), files=OVERLAY, thin=THIN))
    with pytest.raises(Refused, match=r"its volumes would have 404 MiB, more than 4 times its 100 MiB; extend it"):
        plan_disk_move.plan(INTO_THIN, Host(files=OVERLAY, thin=dataclasses.replace(THIN, virtual_bytes=340 * 1024**2)))
    with pytest.raises(NotFound, match=r"volume group vg0 has no thin pool thin; create it \(lvcreate"):
        plan_disk_move.plan(INTO_THIN, Host())
    with pytest.raises(Refused, match="it is of type dir, and thin pools are in pools of type logical; omit thin_pool"):
        plan_disk_move.plan(dataclasses.replace(INTO_THIN, pool="fast"), Host())


def test_what_an_interrupted_run_has_left_in_a_thin_pool_takes_no_room_beside_it() -> None:
    mark = MARK.text()
    full = dataclasses.replace(THIN, virtual_bytes=400 * 1024**2)
    left = Host(there=(OLD, "/dev/vg0/g-system"), thin=full, files=FILE, marked=(mark, LV))
    assert steps(left, INTO_THIN)[0] == "create disk /dev/vg0/g-system" and "again" in str(
        plan_disk_move.plan(INTO_THIN, left).steps[0]
    )


def test_a_logical_volume_becomes_a_thin_one_beside_itself() -> None:
    host = on_lvm(thin=THIN, thin_of=None)
    made = plan_disk_move.plan(INTO_THIN, host)
    assert made.path == "/dev/vg0/g-system.thin" and "delete disk /dev/vg0/g-system" in map(str, made.steps)
    thin = document("/dev/vg0/g-system.thin", form="raw", owned="/dev/vg0/g-system.thin")
    done = on_lvm(stored=thin, there=("/dev/vg0/g-system.thin",), thin=THIN, thin_of="thin")
    for spec in (INTO_THIN, LVM):
        assert not plan_disk_move.plan(spec, done).steps, "it is what it is"
