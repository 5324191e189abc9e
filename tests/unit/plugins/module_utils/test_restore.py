"""How a guest is restored from a backup: the steps, and what is refused before anything is touched."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import re
import tarfile
import typing as t
import zlib
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._backup import (
    files_restored,
    plan_instant_restore,
    plan_restore,
    run_restore,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import (
    MARKER,
    UNREADABLE,
    BackupDisk,
    BackupPoint,
    BrokenPoint,
    Repository,
    RepositoryFacts,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup import Checkpoint
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup_steps import (
    DefineRestored,
    ForgetCheckpoints,
    PutInPlace,
    ReleasePoint,
    RestoreDisk,
    SwappedDisk,
    VerifyPoint,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_restore import (
    RestoreNetwork,
    RestorePlan,
    RestoreSpec,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.xml_restored import (
    definition,
    macs_on,
    pausing,
    reporting,
)
from ansible_collections.corral.virt.plugins.module_utils._core.errors import (
    BadInput,
    Failed,
    NotFound,
    Refused,
    VirtError,
)
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record, xml_backup_record
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_backup_record import BackupNote
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_snapshot import GuestDisk, disks
from ansible_collections.corral.virt.plugins.module_utils._snapshot.plan_snapshot import ChainLink
from ansible_collections.corral.virt.plugins.module_utils._storage.model_removed_disk import DiskAside, RemovedDisk
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity, OwnedVolume
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse, text

UUID, OTHER, NEW = (f"2ff4c3c5-8a3b-4f9d-9b5e-cc7cf3cbb8f{digit}" for digit in "234")
MIB = 1024**2
KNOWN = FileIdentity(7, 9)
FULL, NEXT = "20261125T030000Z-00000001", "20261126T030000Z-00000002"
NOON = 1_795_608_000  # 2026-11-25T12:00:00Z


def disk(target: str, path: str, form: str = "qcow2", more: str = "", kind: str = "file") -> str:
    """A disk in a definition."""
    attribute = {"file": "file", "block": "dev"}[kind]
    return (
        f"<disk type='{kind}' device='disk'><driver name='qemu' type='{form}'/><source {attribute}='{path}'/>"
        f"<target dev='{target}' bus='virtio'/>{more}</disk>"
    )


def document(*devices: str, record: str = "", os: str = "") -> str:
    """A guest with these devices."""
    metadata = f"<metadata><corral:guest xmlns:corral='urn:corral:virt:guest:1'>{record}</corral:guest></metadata>"
    nic = "<interface type='network'><mac address='52:54:00:11:22:33'/><source network='n'/></interface>"
    return (
        f"<domain type='kvm'><name>g</name><uuid>{UUID}</uuid>{metadata}<memory unit='KiB'>65536</memory><os>{os}</os>"
        f"<devices>{''.join(devices)}{nic}</devices></domain>"
    )


TWO = document(disk("vda", "/i/g.qcow2"), disk("vdb", "/i/g.raw", "raw"))


def point(ident: str, day: int, parent: str | None = None, **more: t.Any) -> BackupPoint:
    """A point of two disks."""
    made = (
        BackupDisk("vda", 16 * MIB, "/i/g.qcow2", "qcow2", parent=parent, sha256="a"),
        BackupDisk("vdb", 16 * MIB, "/i/g.raw", "raw", sha256="a"),
    )
    created_s = 1_795_575_600 + (day - 25) * 86400
    given: dict[str, t.Any] = {"disks": made, "files": (("domain.xml", "a"),), **more}
    return BackupPoint(ident, "g", UUID, created_s, "h", **given)


POINTS = (point(FULL, 25), point(NEXT, 26, FULL))


@dataclasses.dataclass
class Host:
    """A `RestoreHost` that knows all its answers."""

    here: str = ""  # the definition of the guest; empty: it is gone
    running: bool = False
    state: str = ""
    persistent: bool = True
    others: t.Mapping[str, str] = dataclasses.field(default_factory=dict)  # UUIDs of other guests
    points: tuple[BackupPoint, ...] = POINTS
    broken: tuple[BrokenPoint, ...] = ()
    then: str = TWO
    damaged: t.Collection[str] = ()
    keeps: tuple[str, ...] = ()
    known: t.Sequence[Checkpoint] = ()
    files: t.Collection[str] = ("/i/g.qcow2", "/i/g.raw")
    unfinished: t.Collection[str] = ()
    users: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    pooled: t.Collection[str] = ("/i",)
    free: int = 1024**3
    due: tuple[DiskAside, ...] = ()
    links: t.Collection[str] = ()
    marks: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    chains: t.Sequence[str] = ()
    networks: t.Mapping[str, RestoreNetwork] = dataclasses.field(default_factory=dict)
    marker: str | None = '{"version": 1, "id": "r"}'

    def facts(self, _path: str) -> RepositoryFacts:
        return RepositoryFacts(True, self.marker)

    def repository(self, _path: str) -> Repository:
        return Repository("r", self.points, self.broken)

    def sha256(self, path: str) -> str:
        return {True: "b", False: "a"}[any(one in path for one in self.damaged)]

    def text(self, _path: str) -> str:
        return self.then

    def guest(self, name: str) -> FoundGuest | None:
        if name in self.others:
            return FoundGuest(name, self.others[name], "off", True, False, "<domain/>")
        return self.guest_with(UUID) if name == "g" else None

    def guest_with(self, _uuid: str) -> FoundGuest | None:
        live = self.here if self.running else None
        if not self.here:
            return None
        return FoundGuest("g", UUID, self.state, self.persistent, False, self.here, live)

    def disks(self, xml: str) -> tuple[GuestDisk, ...]:
        return tuple(disks(xml, lambda _pool, volume: f"/p/{volume}"))

    def chain(self, path: str, form: str) -> tuple[ChainLink, ...]:
        return tuple(ChainLink(one, form) for one in (path, *self.chains))

    def kept(self, _uuid: str) -> tuple[str, ...]:
        return self.keeps

    def checkpoints(self, _uuid: str) -> list[Checkpoint]:
        return list(self.known)

    def exists(self, path: str) -> bool:
        return path in self.files

    def identity(self, path: str) -> FileIdentity | None:
        known = path in self.files and path not in self.links
        return dataclasses.replace(KNOWN, mark=self.marks.get(path, path)) if known else None

    def file_facts(self, path: str) -> tuple[int, int, int]:
        return zlib.crc32(path.encode()), 0, 7

    def unfinished_removals(self) -> tuple[DiskAside, ...]:
        return self.due

    def is_unfinished(self, path: str) -> bool:
        return path in self.unfinished

    def other_user(self, path: str, _but: str, _without: tuple[str, ...]) -> str | None:
        return self.users.get(path)

    def is_pooled(self, directory: str) -> bool:
        return directory in self.pooled

    def pool(self, name: str) -> PoolDirectory:
        if name == "vg":
            return PoolDirectory("vg", "logical", "/dev/vg", here=True)
        return PoolDirectory(name, "dir", f"/p/{name}", here=True)

    def network(self, name: str) -> RestoreNetwork | None:
        return self.networks.get(name)

    def free_in(self, _directory: str) -> int:
        return self.free

    def flat_size_bytes(self, _path: str) -> int:
        return 2 * MIB

    def host_uuid(self) -> str:
        return "h"

    def new_uuid(self) -> str:
        return NEW


def planned(host: Host, **options: t.Any) -> RestorePlan:
    """The plan."""
    return plan_restore.plan(plan_restore.scene(RestoreSpec("/r", **{"guest": "g", **options}), host))


def steps(host: Host, **options: t.Any) -> list[str]:
    """Its steps."""
    return [str(step) for step in planned(host, **options).steps]


def restored(path: str, target: str = "vda", name: str = "g", ident: str = NEXT) -> str:
    return f"restore disk {target} of {name} from backup {ident} to {path} (2 MiB)"


def test_a_guest_that_is_gone_comes_back() -> None:
    host = Host(files=())
    made = planned(host, run=True)
    assert [str(step) for step in made.steps] == [
        restored("/i/g.qcow2"),
        restored("/i/g.raw", "vdb"),
        "define g",
        "start g",
    ]
    assert (made.name, made.uuid, made.point, made.kept) == ("g", UUID, NEXT, ())
    [define] = [step for step in made.steps if isinstance(step, DefineRestored)]
    assert "52:54:00:11:22:33" in define.xml and f"<uuid>{UUID}</uuid>" in define.xml
    paths = ("/i/g.qcow2", "/i/g.raw")
    assert fields_record.read(define.xml)["volumes"] == tuple(OwnedVolume(path, UUID, "h") for path in paths)
    host = Host(files=(), pooled=())
    assert steps(host)[:2] == [restored("/p/default/g.qcow2"), restored("/p/default/g.raw", "vdb")]
    assert steps(Host(files=()), pool="fast")[0] == restored("/p/fast/g.qcow2")


def test_another_name_is_another_guest() -> None:
    made = planned(Host(here=TWO, running=True), name="h", point=FULL)
    assert [str(step) for step in made.steps] == [
        restored("/i/h-vda.qcow2", name="h", ident=FULL),
        restored("/i/h-vdb.raw", "vdb", "h", FULL),
        "define h",
    ]
    [define] = [step for step in made.steps if isinstance(step, DefineRestored)]
    assert made.uuid == NEW and UUID not in define.xml and "52:54:00:11:22:33" not in define.xml


def test_the_point() -> None:
    assert planned(Host(files=())).point == NEXT
    assert planned(Host(files=()), at_s=NOON).point == planned(Host(files=()), guest=UUID, point=FULL).point == FULL
    broken = BrokenPoint("20261127T030000Z-00000003", UUID, "its file vda.qcow2 is missing")
    host = Host(files=(), broken=(broken,))
    assert planned(host).notes == (f"backup {broken.id} of g is newer and damaged: {broken.why}",)
    with pytest.raises(Refused, match=f"its file vda.qcow2 is missing; the newest other one is {NEXT}"):
        planned(host, point=broken.id)


def test_in_place() -> None:
    own = Checkpoint("corral-1", "r")
    host = Host(here=TWO, keeps=("checkpoints",), known=[own])
    made = planned(host, confirm="g")
    assert [str(step) for step in made.steps] == [
        restored("/i/g.qcow2.restored"),
        restored("/i/g.raw.restored", "vdb"),
        "forget checkpoints of g: corral-1",
        "put the restored disks of g in place: /i/g.qcow2, /i/g.raw",
        "delete disk /i/g.qcow2.replaced, after 168 h in /i/.corral/.removed",
        "delete disk /i/g.raw.replaced, after 168 h in /i/.corral/.removed",
    ]
    assert made.kept == ("/i/g.qcow2", "/i/g.raw") and made.notes == ()
    one = planned(Host(here=TWO), confirm="g", disks=("vdb",), keep_h=0)
    assert [str(step) for step in one.steps] == [
        restored("/i/g.raw.restored", "vdb"),
        "put the restored disks of g in place: /i/g.raw",
        "delete disk /i/g.raw.replaced",
    ]
    assert one.kept == ()
    gone = planned(Host(here=TWO, files=()))
    assert [str(step) for step in gone.steps][2:] == ["put the restored disks of g in place: /i/g.qcow2, /i/g.raw"]


NOTE = RemovedDisk(
    "/i/x.qcow2", "x", "x-uuid", "h", 9, 1, None, 5, "boot", 1, "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"
)
DUE = DiskAside("/i/.corral/.removed/x.disk", NOTE)


def test_a_restore_in_place_finishes_removals_that_are_due() -> None:
    """Else a guest that is restored again and again fills its pool with what it has replaced."""
    first, *rest = steps(Host(here=TWO, due=(DUE,)), confirm="g")
    assert first.startswith("delete disk /i/x.qcow2") and rest == steps(Host(here=TWO), confirm="g")
    assert planned(Host(files=(), due=(DUE,))).steps == planned(Host(files=())).steps, "a new guest replaces none"


def test_what_a_restore_needs_is_told_by_filesystem() -> None:
    """So that several on one host can be added."""
    [need] = planned(Host(here=TWO), confirm="g").needs
    assert need == ("/i", 7, 4 * MIB, 1024**3 - 64 * MIB)
    assert planned(Host(files=())).needs == (need,)


def test_disks_that_one_of_both_lacks() -> None:
    now = document(disk("vda", "/i/g.qcow2"), disk("vdc", "/i/c.qcow2"))
    states = (("/v/g_VARS.fd", "nvram.fd"),)
    host = Host(here=now, points=(point(NEXT, 26, states=states),))
    assert planned(host, confirm="g").notes == (
        f"disk vdb of backup {NEXT} is left out: g has no such disk any more",
        f"disk vdc of g stays as it is: backup {NEXT} is older than it",
        f"/v/g_VARS.fd of g stays as it is; as it was then, it is in /r/{UUID}/{NEXT}/nvram.fd",
    )


FOLDER = f"/r/{UUID}/{NEXT}"


def ends(name: str = "g", *targets: str) -> list[str]:
    """The last steps of an instant restore."""
    pulls = [f"copy disk {target} of {name} from backup {NEXT} while it runs" for target in targets]
    return [f"check backup {NEXT}, on which {name} runs", *pulls, f"release backup {NEXT} from {name}"]


def keeps(name: str = "g") -> str:
    return f"keep backup {NEXT} until {name} has all of it"


def created(path: str, name: str = "g") -> str:
    return f"create disk {path} of {name} on backup {NEXT}"


def standing(name: str = "g", uuid: str = UUID, *, on: str = FOLDER) -> str:
    """A guest that stands on a point since an earlier run."""
    made = definition(
        TWO,
        name=name,
        uuid=uuid,
        files={"vda": ("/i/g.qcow2", "qcow2"), "vdb": ("/i/b", "qcow2")},
        seed=None,
        nvram=None,
        volumes=(),
        stands_on=on,
    )
    assert made.count("error_policy") == 2
    return made


def test_instant_anew() -> None:
    made = planned(Host(files=(), damaged=["vda.qcow2"]), instant=True)
    assert [str(step) for step in made.steps] == [
        keeps(),
        created("/i/g.qcow2"),
        created("/i/g-vdb.qcow2"),
        "define g",
        "start g",
        *ends("g", "vda", "vdb"),
    ], "disks are checked when it runs"
    [define] = [step for step in made.steps if isinstance(step, DefineRestored)]
    assert xml_backup_record.within(parse(define.xml)) == BackupNote(
        stands_on=FOLDER, disks=("vda", "vdb"), stops=("vda", "vdb")
    )
    [release] = [step for step in made.steps if isinstance(step, ReleasePoint)]
    assert (release.folder, release.stops) == (FOLDER, ("vda", "vdb"))
    with pytest.raises(Refused, match=r"domain\.xml is damaged"):
        planned(Host(files=(), damaged=["domain.xml"]), instant=True)
    with pytest.raises(Refused, match=f"backup {FULL}, which it stands on, is damaged"):
        planned(Host(files=(), points=POINTS[1:]), instant=True)


def test_instant_in_place() -> None:
    own = "<driver name='qemu' type='qcow2' rerror_policy='report'/>"
    now = TWO.replace("<driver name='qemu' type='raw'/>", own)
    made = planned(Host(here=now), confirm="g", instant=True)
    assert [str(step) for step in made.steps] == [
        keeps(),
        created("/i/g.qcow2.restored"),
        created("/i/g.raw.restored"),
        "let g pause if vda, vdb cannot be read",
        "put the restored disks of g in place: /i/g.qcow2, /i/g.raw",
        "delete disk /i/g.qcow2.replaced, after 168 h in /i/.corral/.removed",
        "delete disk /i/g.raw.replaced, after 168 h in /i/.corral/.removed",
        "start g",
        *ends("g", "vda", "vdb"),
    ]
    [release] = [step for step in made.steps if isinstance(step, ReleasePoint)]
    assert release.stops == ("vda",), "the other one stays as its owner has set it"
    xml, stops = pausing(now, ["vda", "vdb"])
    assert stops == ("vda",) and text(parse(reporting(xml, stops))) == text(parse(now))
    with pytest.raises(Refused, match="disk vdb is raw, and only qcow2 disks can stand on a backup"):
        planned(Host(here=TWO), confirm="g", instant=True)


def test_instant_goes_on() -> None:
    """From what an interrupted run has left, whatever point is the newest by now."""
    below = [f"{FOLDER}/vda.qcow2"]
    host = Host(here=standing(), running=True, chains=below)
    assert steps(host, instant=True) == [keeps(), *ends("g", "vda", "vdb")]
    assert steps(host, instant=True, point=NEXT, confirm="g") == steps(host, instant=True)
    assert steps(dataclasses.replace(host, running=False), instant=True)[:2] == [keeps(), "start g"]
    assert steps(dataclasses.replace(host, chains=()), instant=True) == [keeps(), *ends("g")], "all is copied"
    died = dataclasses.replace(host, chains=(), running=False)
    again = [f"let disk {target} of g stand on backup {NEXT} again" for target in ("vda", "vdb")]
    assert steps(died, instant=True) == [keeps(), *again, "start g", *ends("g", "vda", "vdb")], "it was not on the disk"
    paused = dataclasses.replace(host, state="paused")
    assert steps(paused, instant=True)[:2] == [keeps(), "resume g"]
    with pytest.raises(Refused, match=f"it runs on a backup until that is copied; .* -e point={NEXT} "):
        steps(host)
    with pytest.raises(Refused, match="it is running; shut it down"):
        steps(host, instant=True, point=FULL, confirm="g")
    off = dataclasses.replace(host, running=False, files=("/i/g.qcow2", "/i/b"))
    assert f"release backup {NEXT} from g" in steps(off, point=FULL, confirm="g"), "another point instead"
    half = dataclasses.replace(off, files=("/i/g.qcow2", "/i/b.restored"), unfinished=["/i/b.restored"])
    assert steps(half, instant=True, confirm="g")[1] == created("/i/g.qcow2.restored"), "the disks are not in place yet"


def test_instant_ends_only_when_nothing_is_below() -> None:
    step = ReleasePoint("g", UUID, FOLDER)
    plan_instant_restore.check_released(step, {"/i/a": ["/i/base"], "/i/b": []})
    with pytest.raises(Refused, match=r"/i/a still stands on /r/.*run again"):
        plan_instant_restore.check_released(step, {"/i/a": [f"/r/{UUID}/{FULL}/vda.qcow2"]})
    check = VerifyPoint("g", UUID, POINTS[0])
    plan_instant_restore.check_verified(check, [], "/r")
    with pytest.raises(
        Failed, match=r"g runs on backup .* damaged: x; y is .*; switch it off \(virsh destroy g\), and restore"
    ):
        plan_instant_restore.check_verified(check, ["x", f"y is {UNREADABLE}"], "/r")
    with pytest.raises(Failed, match=r"cannot check backup .*: y is .*; g stands on .* see to it that /r can be read"):
        plan_instant_restore.check_verified(check, [f"y is {UNREADABLE}"], "/r")


def test_a_chain_in_the_definition_goes() -> None:
    chain = "<backingStore type='file'><format type='qcow2'/><source file='/i/base'/></backingStore>"
    host = Host(here=document(disk("vda", "/i/g.qcow2", more=chain)), chains=["/i/base"])
    made = planned(host, confirm="g", disks=("vda",))
    assert str(made.steps[1]) == "define g (its disks stand on no other file)", "before the record of the new disk"


def test_what_an_interrupted_run_has_left() -> None:
    """Of a copy, and of a disk that was replaced: by its entry in the record, which other files of that name lack."""
    host = Host(here=TWO, files=("/i/g.qcow2", "/i/g.qcow2.restored"), unfinished=["/i/g.qcow2.restored"])
    first = planned(host, confirm="g", disks=("vda",)).steps[0]
    assert isinstance(first, RestoreDisk) and first.leftover == host.identity("/i/g.qcow2.restored")
    aside = Host(here=TWO, files=("/i/g.qcow2", "/i/g.qcow2.replaced"))
    with pytest.raises(Refused, match=r"/i/g.qcow2.replaced is in the way; move it \(mv "):
        planned(aside, confirm="g", disks=("vda",))
    entry = OwnedVolume("/i/g.qcow2.replaced", UUID, "h", aside.identity("/i/g.qcow2.replaced"))
    record = document(disk("vda", "/i/g.qcow2"), record=inside(fields_record.update(TWO, {"volumes": (entry,)})))
    made = steps(dataclasses.replace(aside, here=record), confirm="g", disks=("vda",))
    gone = "delete disk /i/g.qcow2.replaced, after 168 h in /i/.corral/.removed"
    assert made == [restored("/i/g.qcow2.restored"), gone, "put the restored disks of g in place: /i/g.qcow2", gone]
    linked = dataclasses.replace(aside, marks={"/i/g.qcow2.replaced": "/i/g.qcow2"})
    assert len(steps(linked, confirm="g", disks=("vda",))) == 3, "one file under two names"


def test_files_are_of_the_guest_when_it_is_defined(monkeypatch: pytest.MonkeyPatch) -> None:
    """If libvirt refuses it, they are what an interrupted restore has left, and the next run takes their names again."""
    done: list[str] = []

    def define(_connection: object, guest: str, _xml: str) -> None:
        done.append(f"define {guest}")
        if guest == "refused":
            raise Failed("libvirt refuses it")

    for name in (
        "libvirt_query.find_by_uuid",
        "libvirt_query.find",
        "identity.of_path",
        "run_pool_directory.pool_with",
    ):
        monkeypatch.setattr(f"{run_restore.__name__}.{name}", lambda *_of: None)
    monkeypatch.setattr(f"{run_restore.__name__}.definition.define", define)
    monkeypatch.setattr(f"{run_restore.__name__}.files_restored.settle", done.append)
    monkeypatch.setattr(f"{run_restore.__name__}.files_restored.mark", lambda path: done.append(f"mark {path}"))
    work = run_restore.RestoreWork(None, RestoreSpec("/b", "g"), t.cast(t.Any, None))
    work.define(DefineRestored("g", UUID, TWO, ("/i/g.qcow2",), ("/i/g.qcow2", "/v/g_VARS.fd")))
    assert done == ["/i/g.qcow2", "/v/g_VARS.fd", "define g"]
    with pytest.raises(Failed, match="libvirt refuses it"):
        work.define(DefineRestored("refused", UUID, TWO, ("/i/g.qcow2",), ("/i/g.qcow2",)))
    assert done[3:] == ["/i/g.qcow2", "define refused", "mark /i/g.qcow2"]


@pytest.mark.parametrize(("number", "raises"), [(errno.ENODATA, False), (errno.EIO, True), (errno.EROFS, True)])
def test_a_mark_that_stays_stops_the_restore(number: int, raises: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later one would take the guest's own file for a leftover."""

    def fail(*_arguments: object, **_more: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "removexattr", fail)
    with (
        pytest.raises(Failed, match=r"cannot let /i/g.qcow2 count as restored") if raises else contextlib.nullcontext()
    ):
        files_restored.settle("/i/g.qcow2")


def leave_file(path: Path) -> None:
    path.write_text("left, and longer than what is restored")


def leave_directory(path: Path) -> None:
    (path / "left").mkdir(parents=True)


@pytest.mark.parametrize("leave", [leave_file, leave_directory])
def test_a_state_replaces_what_an_interrupted_restore_has_left(tmp_path: Path, leave: t.Callable[[Path], None]) -> None:
    (tmp_path / "tpm").mkdir()
    (tmp_path / "tpm/state").touch()
    with tarfile.open(tmp_path / "tpm.tar", "w") as archive:
        archive.add(tmp_path / "tpm/state", "state")
    (tmp_path / "nvram.fd").write_text("variables")
    for name in ("tpm.tar", "nvram.fd"):
        leave(tmp_path / "new.restoring")
        files_restored.state(str(tmp_path / name), str(tmp_path / "new"))
        made = tmp_path / "new"
        assert made.read_text() == "variables" if made.is_file() else [one.name for one in made.iterdir()] == ["state"]
        assert not (tmp_path / "new.restoring").exists()
        made.rename(tmp_path / f"made-{name}")


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "stopped"]
)
def test_a_state_that_cannot_be_restored_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    (tmp_path / "nvram.fd").touch()
    (tmp_path / "tpm.tar").touch()

    def fail(*_of: object) -> t.NoReturn:
        raise error

    monkeypatch.setattr(f"{files_restored.__name__}.shutil.copyfileobj", fail)
    monkeypatch.setattr(f"{files_restored.__name__}._unpack", fail)
    for name in ("nvram.fd", "tpm.tar"):
        with pytest.raises((Failed, KeyboardInterrupt)):
            files_restored.state(str(tmp_path / name), str(tmp_path / "new"))
    monkeypatch.undo()
    with pytest.raises(Failed, match="use another backup"):
        files_restored.state(str(tmp_path / "tpm.tar"), str(tmp_path / "new"))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["nvram.fd", "tpm.tar"]


def inside(element: str) -> str:
    """The entries of a record, with their prefix."""
    return "".join(re.findall(r"<volume.*</volume>", element)).replace("volume", "corral:volume")


BLOCK = document(disk("vda", "/dev/vg/g", "raw", kind="block"), disk("vdb", "/i/g.raw", "raw"))
SECRET = document(disk("vda", "/i/g.qcow2", more="<encryption format='luks'/>"))
FOREIGN = Checkpoint("theirs", None)


@pytest.mark.parametrize(
    ("host", "options", "why"),
    [
        (Host(marker=None), {}, f"/r is no repository of backups: it has no {MARKER}"),
        (Host(marker='{"version": 9, "id": "r"}'), {}, "was not written by this version"),
        (Host(), {"guest": "x"}, "/r has no backup of it; it has backups of g"),
        (Host(points=()), {}, "it has no whole backup"),
        (Host(points=(*POINTS, dataclasses.replace(POINTS[0], uuid=OTHER))), {}, f"one: {UUID}, {OTHER}"),
        (Host(), {"point": "no"}, f"it has no backup no; the newest are {FULL}, {NEXT}"),
        (Host(), {"at_s": 1}, f"its oldest backup is {FULL}; choose a later time"),
        (Host(here=TWO), {"disks": ("vdx",)}, "it has no disk vdx; it has vda, vdb"),
        (Host(damaged=[f"{FULL}/vda"]), {}, f"{FULL}/vda.qcow2 is damaged: its SHA-256 .* no other backup is whole"),
        (Host(damaged=[f"{NEXT}/vda"]), {}, rf"is damaged.*; the newest backup that is whole is {FULL} \(point: "),
        (Host(damaged=["domain.xml"]), {}, "domain.xml is damaged"),
        (Host(points=POINTS[1:]), {}, f"backup {FULL}, which it stands on, is damaged: it is missing"),
        (
            Host(others={"h": OTHER}),
            {"name": "h"},
            f"with that name is here, whose UUID is {OTHER}; choose another name",
        ),
        (Host(others={"g": OTHER}), {}, "with that name is here.*; rename it, or set name"),
        (Host(), {"disks": ("vda",)}, "disks is only for a guest that is on this host"),
        (Host(), {}, r"/i/g.qcow2 is there already; move it away \(mv /i/g.qcow2 /i/g.qcow2.old\)"),
        (Host(users={"/i/g.raw": "guest x"}), {}, "guest x uses /i/g.raw"),
        (Host(files=(), pooled=()), {"pool": "vg"}, "cannot keep disks of g in pool vg: its type is logical"),
        (
            Host(files=(), free=MIB),
            {},
            "/i has 1 MiB free, and it needs about 68 MiB; make room, or choose another pool",
        ),
        (Host(here=TWO, free=MIB), {"confirm": "g"}, "needs about 68 MiB; make room$"),
        (  # two directories of one filesystem, which has room for one of the disks
            Host(
                here=TWO.replace("/i/g.raw", "/j/g.raw"),
                files=("/i/g.qcow2", "/j/g.raw"),
                pooled=("/i", "/j"),
                free=67 * MIB,
            ),
            {"confirm": "g"},
            "/i has 67 MiB free, and it needs about 68 MiB; make room",
        ),
        (
            Host(here=TWO, free=MIB, files=("/i/g.qcow2", "/i/g.raw", "/i/.corral/.removed")),
            {"confirm": "g"},
            r"make room \(removed disks are kept in /i/.corral/.removed\)$",
        ),
        (Host(here=TWO), {}, r"replaces /i/g.qcow2, /i/g.raw \(they are kept aside for 168 hours\).*set confirm: g "),
        (Host(here=TWO), {"keep_h": 0, "confirm": "x"}, r"\(they are deleted\).*-e confirm_guest=g"),
        (
            Host(here=TWO, running=True),
            {"confirm": "g"},
            r"it is running; shut it down \(ansible-playbook corral.virt.shutdown -e guest=g\)",
        ),
        (Host(here=TWO, persistent=False), {"confirm": "g"}, "it is transient"),
        (Host(here=TWO), {"confirm": "g", "pool": "x"}, "pool is only for new disks"),
        (Host(here=TWO, keeps=("snapshots",)), {"confirm": "g"}, r"it has snapshots.*\(virsh snapshot-delete g NAME\)"),
        (Host(here=TWO, keeps=("managed_save",)), {"confirm": "g"}, "virsh managedsave-remove g"),
        (
            Host(here=TWO, keeps=("checkpoints",), known=[FOREIGN]),
            {"confirm": "g"},
            "checkpoint theirs is another program's.*virsh checkpoint-delete g theirs --metadata",
        ),
        (Host(here=BLOCK), {"confirm": "g"}, "disk vda is no file now, and only files are replaced; set name"),
        (Host(here=SECRET), {"confirm": "g"}, "disk vda is encrypted now"),
        (Host(here=document(disk("vda", "/i/g.vmdk", "vmdk"))), {"confirm": "g"}, "is of format vmdk now"),
        (Host(here=document()), {"confirm": "g"}, "none of its disks is in the backup"),
        (
            Host(here=TWO, pooled=()),
            {"confirm": "g"},
            r"no active storage pool has its directory /i; start .*path: /i\)",
        ),
        (Host(here=TWO, links=["/i/g.raw"]), {"confirm": "g"}, r"vdb is a link now \(/i/g.raw\); let"),
        (Host(here=TWO, users={"/i/g.raw": "guest x"}), {"confirm": "g"}, r"vdb is used by others, too \(guest x\)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_refused(host: Host, options: dict[str, t.Any], why: str) -> None:
    with pytest.raises((Refused, NotFound), match=why):
        planned(host, **options)


def test_all_problems_at_once() -> None:
    host = Host(here=BLOCK, running=True, keeps=("snapshots", "managed_save"))
    with pytest.raises(Refused, match=r"is running.*has snapshots.*managed save.*no file now"):
        planned(host)


def options(**given: t.Any) -> dict[str, t.Any]:
    """All options of the module."""
    names = ("point", "at", "name", "disks", "pool", "confirm", "network")
    bare = {"repository": "/r", "guest": "g", "run": False, "keep_replaced_h": 168, "instant": False, "job_timeout": 9}
    return {**dict.fromkeys(names), **bare, **given}


def test_the_options() -> None:
    spec = plan_restore.checked(options(at="2026-11-25T12:00:00Z", repository="/r/", disks=["vda"]))
    assert spec == RestoreSpec("/r", "g", at_s=NOON, disks=("vda",))
    for same in ("2026-11-25T12:00", "2026-11-25T13:00:00+01:00"):
        assert plan_restore.checked(options(at=same)).at_s == NOON
    with pytest.raises(BadInput, match="use point or at, not both") as refused:
        plan_restore.checked(
            options(repository="r", guest="a/b", name="../x", point="p", at="noon", disks=["vda"], keep_replaced_h=-1)
        )
    told = [one.partition(":")[0] for one in refused.value.problems]
    assert sorted(told) == ["at", "at", "disks", "guest", "keep_replaced_h", "name", "repository"]


def test_the_definition() -> None:
    """Disks are files without chains; variables and seed are the new ones; nothing tells of files of then."""
    chain = "<backingStore type='file'><format type='qcow2'/><source file='/i/base'/></backingStore>"
    seed = (
        "<disk type='file' device='cdrom'><source file='/i/g-seed.iso'/><target dev='sda' bus='sata'/><readonly/>"
        "<alias name='ua-seed'/></disk>"
    )
    record = "<corral:tag>web</corral:tag><corral:making>/i/x</corral:making><corral:volume>/i/old</corral:volume>"
    then = document(
        disk("vda", "/dev/vg/g", "raw", chain, "block"), seed, record=record, os="<nvram>/v/g_VARS.fd</nvram>"
    )
    for name, uuid in (("g", UUID), ("h", NEW)):
        made = definition(
            then,
            name=name,
            uuid=uuid,
            files={"vda": ("/i/a.raw", "raw")},
            seed="/i/s.iso",
            nvram="/v/h_VARS.fd",
            volumes=[OwnedVolume("/i/a.raw", uuid, "h")],
        )
        root = parse(made)
        assert (root.findtext("name"), root.findtext("uuid"), root.findtext("os/nvram")) == (name, uuid, "/v/h_VARS.fd")
        first, second = root.findall("devices/disk")
        assert first.get("type") == "file" and first.find("backingStore") is None
        assert [text(one.find("source")).strip() for one in (first, second)] == [
            '<source file="/i/a.raw"/>',
            '<source file="/i/s.iso"/>',
        ]
        kept = fields_record.read(made)
        assert kept["volumes"] == (OwnedVolume("/i/a.raw", uuid, "h"),) and "making" not in kept
        assert "web" in made


def test_a_last_look() -> None:
    swap = PutInPlace("g", UUID, (SwappedDisk("/i/g.restored", "/i/g", "/i/g.replaced", KNOWN),))
    plan_restore.check_present(swap, active=False, found={"/i/g": KNOWN}, written=())
    for active, found, written, why in (
        (True, KNOWN, (), "it is running by now; shut it down"),
        (False, KNOWN, ("/i/g",), "a process writes to /i/g by now"),
        (False, None, (), "/i/g is another file than this run has seen"),
    ):
        with pytest.raises(Refused, match=why):
            plan_restore.check_present(swap, active=active, found={"/i/g": found}, written=written)
    forget = ForgetCheckpoints("g", UUID, ("a",), "r")
    plan_restore.check_checkpoints(forget, [Checkpoint("a", "r")])
    with pytest.raises(Refused, match="a changed meanwhile; run again"):
        plan_restore.check_checkpoints(forget, [Checkpoint("a", "other")])
    define = DefineRestored("g", UUID, "<domain/>")
    plan_restore.check_absent(define, None)
    with pytest.raises(Refused, match="is here by now; run again"):
        plan_restore.check_absent(define, Host(here=TWO).guest("g"))


NETWORKS = {
    "lone": RestoreNetwork(active=True, forward="isolated"),
    "n": RestoreNetwork(active=True, forward="nat"),
    "off": RestoreNetwork(active=False, forward="isolated"),
    "lan": RestoreNetwork(active=True, forward="bridge"),
    "busy": RestoreNetwork(active=True, forward="isolated", macs=["52:54:00:11:22:33"]),
}


@pytest.mark.parametrize(("network", "keeps"), [("lone", True), ("n", False), ("busy", False)])
def test_on_another_network_interfaces_keep_their_addresses(network: str, keeps: bool) -> None:
    """So that the system inside finds them; on the same one, the original may be, and others may have them, too."""
    made = planned(Host(here=TWO, networks=NETWORKS), name="then", network=network)
    [define] = [step for step in made.steps if isinstance(step, DefineRestored)]
    root = parse(define.xml)
    assert [one.get("network") for one in root.iterfind("devices/interface/source")] == [network]
    assert (root.find("devices/interface/mac").get("address") == "52:54:00:11:22:33") is keeps
    assert root.findtext("uuid") == NEW


def test_which_addresses_a_network_has() -> None:
    assert macs_on(TWO, "n") == ["52:54:00:11:22:33"] and macs_on(TWO, "other") == []


def test_a_guest_that_is_gone_comes_back_on_another_network() -> None:
    made = planned(Host(files=(), networks=NETWORKS), network="n")
    [define] = [step for step in made.steps if isinstance(step, DefineRestored)]
    assert parse(define.xml).find("devices/interface/source").get("network") == "n"


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        ("none", "there is no network none; create it"),
        ("off", "network off is off; start it (virsh net-start off)"),
        ("lan", "network lan (forward mode bridge) has no bridge of its own"),
    ],
)
def test_networks_that_do_not_fit(network: str, reason: str) -> None:
    with pytest.raises(VirtError, match=re.escape(reason)):
        planned(Host(here=TWO, networks=NETWORKS), name="then", network=network)
    with pytest.raises(Refused, match="network is only for a guest that is not here"):
        planned(Host(here=TWO, networks=NETWORKS), confirm="g", network=network)
