"""Files out of a backup: which point, filesystem and path are read, and what a guest's files cannot do to the host."""

from __future__ import annotations

import dataclasses
import io
import os
import re
import tarfile
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._backup import files_extracted, plan_backup_files
from ansible_collections.corral.virt.plugins.module_utils._backup.files_extracted import Extraction
from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import (
    BackupDisk,
    BackupPoint,
    Repository,
    RepositoryFacts,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup_files import (
    Content,
    Destination,
    FilesPlan,
    FilesSpec,
    Inside,
    Mounts,
    NameInside,
)
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Failed, VirtError

UUID, IDENT = "2ff4c3c5-8a3b-4f9d-9b5e-cc7cf3cbb8f2", "20261125T030000Z-00000001"
DISKS = tuple(BackupDisk(target, 1024, "", "qcow2", sha256="a") for target in ("vda", "vdb"))
POINT = BackupPoint(IDENT, "g", UUID, 1_795_575_600, "h", DISKS)
ROOT: Mounts = (("/", "/dev/vg/root"), ("/srv", "/dev/sdb"))
SYSTEM = Content((("/dev/vg/root", ROOT),), (("/dev/sdb", "xfs"), ("/dev/vg/root", "ext4"), ("/dev/vg/swap", "swap")))
MIB = 1024**2
NEW = Destination("absent", "directory", 1024 * MIB)


@dataclasses.dataclass
class Host:
    """A `FilesHost` that knows all its answers."""

    has: Content = SYSTEM
    reader: bool = True
    to: Destination = NEW
    damaged: str = ""
    paths: t.Mapping[str, Inside] = dataclasses.field(
        default_factory=lambda: {
            "/etc": Inside("directory", 3 * MIB),
            "/a": Inside("file", MIB),
            "/dev": Inside("other"),
        }
    )
    names: int = 1
    mounted: Mounts = ()
    opened: tuple[str, ...] = ()

    def facts(self, _path: str) -> RepositoryFacts:
        return RepositoryFacts(True, '{"version": 1, "id": "r"}')

    def repository(self, _path: str) -> Repository:
        return Repository("r", (POINT,))

    def sha256(self, path: str) -> str:
        return "b" if self.damaged and self.damaged in path else "a"

    def has_reader(self) -> bool:
        return self.reader

    def destination(self, _path: str) -> Destination:
        return self.to

    def content(self, disks: tuple[str, ...]) -> Content:
        self.opened = disks
        return self.has

    def unmounted(self, mounts: Mounts) -> tuple[str, ...]:
        self.mounted = mounts
        return ()

    def inside(self, path: str) -> Inside | None:
        return self.paths.get(path)

    def entries(self, _path: str) -> tuple[tuple[NameInside, ...], int]:
        return (NameInside("hosts", "file"),), self.names


def planned(host: Host, **options: t.Any) -> FilesPlan:
    """The plan."""
    given = {"guest": "g", "paths": ("/a",), "dest": "/d/x", **options}
    return plan_backup_files.plan(plan_backup_files.scene(FilesSpec("/r", **given), host))


def refused(host: Host, **options: t.Any) -> str:
    """Why not."""
    with pytest.raises(VirtError, match=r"^cannot ") as told:
        planned(host, **options)
    return str(told.value)


def test_paths_of_a_system_go_to_the_directory() -> None:
    host = Host()
    made = planned(host, paths=("/a", "/etc"), keep_owners=True)
    assert [str(step) for step in made.steps] == [f"restore /a, /etc of g from backup {IDENT} to /d/x (4 MiB)"]
    assert made.steps[0].keep_owners and made.notes == ()
    assert host.mounted == ROOT and host.opened == tuple(f"/r/{UUID}/{IDENT}/{disk}.qcow2" for disk in ("vda", "vdb"))


def test_a_directory_is_listed() -> None:
    host = Host(names=2)
    made = planned(host, paths=(), dest="", listed="/etc")
    assert made.steps == () and made.entries == (NameInside("hosts", "file"),)
    assert made.notes == ("/etc has 2 names, of which the first 1 are shown",)
    assert "/a is no directory there" in refused(host, paths=(), dest="", listed="/a")


def test_which_filesystem() -> None:
    two = Content((), (("/dev/sda1", "ext4"), ("/dev/sda2", "xfs"), ("/dev/sda3", "crypto_LUKS")))
    several = Content((("/dev/sda1", (("/", "/dev/sda1"),)), ("/dev/sda2", (("/", "/dev/sda2"),))), two.filesystems)
    for has, wanted, mounted in (
        (SYSTEM, "/dev/vg/root", ROOT),
        (SYSTEM, "/dev/sdb", (("/", "/dev/sdb"),)),
        (Content((), (("/dev/sda", "ext4"), ("/dev/sdb", "swap"))), None, (("/", "/dev/sda"),)),
        (two, "/dev/sda2", (("/", "/dev/sda2"),)),
        (several, "/dev/sda2", (("/", "/dev/sda2"),)),
    ):
        host = Host(has=has)
        planned(host, filesystem=wanted)
        assert host.mounted == mounted
    assert "it has several filesystems and no operating system; set filesystem to one of /dev/sda1, /dev/sda2" in (
        refused(Host(has=two))
    )
    assert "it has several operating systems; set filesystem to one of /dev/sda1, /dev/sda2" in refused(
        Host(has=several)
    )
    assert "there is no filesystem /dev/sda3; its disks have /dev/sda1 (ext4), " in (
        refused(Host(has=two), filesystem="/dev/sda3")
    )
    assert "there is no filesystem that can be read; its disks have none" in refused(Host(has=Content()))


def test_one_disk() -> None:
    host = Host(has=Content((), (("/dev/sda", "ext4"),)), damaged="vda")
    planned(host, disk="vdb")
    assert host.opened == (f"/r/{UUID}/{IDENT}/vdb.qcow2",)
    assert "it has no disk vdc; it has vda, vdb" in refused(host, disk="vdc")
    assert f"{IDENT}/vda.qcow2 is damaged" in refused(host)


def test_what_is_refused_before_the_disks_are_read() -> None:
    host = Host(reader=False, to=Destination("other", "open"))
    told = refused(host)
    for part in ("apt-get install python3-guestfs", "other users may write to /d", "/d/x is there already"):
        assert part in told
    assert host.opened == ()
    assert "there is no directory /d for /d/x; create it" in refused(Host(to=Destination("absent", "absent")))


def test_what_is_refused_inside() -> None:
    told = refused(Host(), paths=("/a", "/b\n", "/dev"))
    assert "it has no /b\\n; the option list" in told and "/dev is no file or directory there" in told
    full = Host(to=Destination("absent", "directory", 64 * MIB))
    assert "they take 1 MiB, and /d has 64 MiB free" in refused(full)


def test_what_an_interrupted_run_has_left_is_named() -> None:
    host = Host(to=Destination("empty", "directory", 1024 * MIB, ("/d/.x.1.part",)))
    assert "to delete it: rm -r /d/.x.1.part" in planned(host).notes[0]


def options(**more: t.Any) -> dict[str, t.Any]:
    names = ("point", "at", "paths", "dest", "list", "disk", "filesystem")
    return {"repository": "/r", "guest": "g", **dict.fromkeys(names), "keep_owners": False, **more}


def test_options() -> None:
    spec = plan_backup_files.checked(options(paths=["/etc//nginx/", "/etc", "/./a", "/etc2"], dest="/d/"))
    assert spec.paths == ("/a", "/etc", "/etc2") and spec.dest == "/d" and spec.listed is None
    assert plan_backup_files.checked(options(paths=["/etc", "/"], dest="/d")).paths == ("/",)
    assert plan_backup_files.checked(options(list="/")).listed == "/"
    for wrong, why in (
        (options(), "paths: use either"),
        (options(paths=["/a"], list="/", dest="/d"), "paths: use either"),
        (options(paths=["/a"]), "dest: paths and dest require each other"),
        (options(list="/", dest="/d"), "dest: paths and dest require each other"),
        (options(paths=["/a"], dest="/"), "dest: must be a directory"),
        (options(paths=["a"], dest="/d"), "paths: must be an absolute path inside the guest"),
        (options(paths=["/a/../b"], dest="/d"), "paths: must be an absolute path inside the guest"),
        (options(list="/a\0"), "list: must be an absolute path inside the guest"),
        (options(list="/", disk=""), "disk: must not be empty"),
        (options(list="/", point="p", at="2026-11-25"), "at: use point or at"),
        (options(list="/", at="noon"), "at: must be a time"),
        (options(list="/", repository="r"), "repository: must be an absolute path"),
    ):
        with pytest.raises(BadInput, match=re.escape(why)):
            plan_backup_files.checked(wrong)


Member = tuple[str, bytes, dict[str, t.Any]]


def archive(*members: Member) -> io.BytesIO:
    """An archive with these members: name, content, and attributes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as made:
        for name, content, more in members:
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), 1_000_000
            for key, value in more.items():
                setattr(member, key, value)
            made.addfile(member, io.BytesIO(content))
    out.seek(0)
    return out


def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> Member:
    return name, b"", {"type": kind, "linkname": to}


def extracted(path: Path, *members: Member, keep_owners: bool = False) -> Extraction:
    """What is extracted below `path`/dest/etc."""
    with files_extracted.new(str(path / "dest")) as part:
        made = Extraction(part, keep_owners=keep_owners)
        made.unpack("/etc", archive(("./", b"", {"type": tarfile.DIRTYPE, "mode": 0o755}), *members))
        made.finish()
    return made


def tree(path: Path) -> list[str]:
    """All names below a directory, as bytes that are not UTF-8 are escapes."""
    return sorted(str(one.relative_to(path)) for one in path.rglob("*"))


def test_files_keep_their_content_and_belong_to_root_alone(tmp_path: Path) -> None:
    made = extracted(
        tmp_path,
        ("./a", b"hosts", {"mode": 0o6755, "uid": 33, "gid": 33}),
        ("./sub/", b"", {"type": tarfile.DIRTYPE, "mode": 0o755}),
        ("./sub/b\n'\"", b"x", {}),
        ("./sub/-rf \udcff", b"", {}),
        ("./long/" + "n" * 200, b"y", {}),
        ("./holes", b"\0" * (3 * MIB) + b"end", {}),
        link("./sub/hard", "./a", tarfile.LNKTYPE),
        link("./sub/up", "../a"),
        link("./dangling", "nothing"),
    )
    assert (made.files, made.left_out) == (5, [])
    top = tmp_path / "dest/etc"
    assert (top / "a").read_bytes() == b"hosts" and (top / "sub/b\n'\"").read_bytes() == b"x"
    assert (top / "sub/up").read_bytes() == b"hosts" and (top / "sub/hard").samefile(top / "a")
    assert (top / "holes").read_bytes() == b"\0" * (3 * MIB) + b"end" and (top / "holes").stat().st_blocks < 2048
    assert (top / "a").stat().st_mode & 0o7777 == 0o600 and (top / "sub").stat().st_mode & 0o7777 == 0o700
    assert (top / "a").stat().st_mtime == 1_000_000 and (top / "a").stat().st_uid == os.getuid()
    assert tree(tmp_path)[:2] == ["dest", "dest/etc"] and (tmp_path / "dest").stat().st_mode & 0o7777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_owners_are_kept_when_told_but_no_special_bit(tmp_path: Path) -> None:
    extracted(tmp_path, ("./a", b"", {"mode": 0o6755, "uid": 33, "gid": 34}), keep_owners=True)
    found = (tmp_path / "dest/etc/a").stat()
    assert (found.st_mode & 0o7777, found.st_uid, found.st_gid) == (0o755, 33, 34)
    assert (tmp_path / "dest").stat().st_mode & 0o7777 == 0o700, "nobody else gets at them"


HOSTILE: list[tuple[list[Member], list[str]]] = [
    ([("../../out", b"x", {})], ["/etc/../../out"]),
    ([("/out", b"x", {})], ["/etc/out"]),
    ([("a/../../../out", b"x", {})], ["/etc/a/../../../out"]),
    ([link("./l", "/root")], ["/etc/l"]),
    ([link("./l", ""), link("./m", "n" * 5000)], ["/etc/l", "/etc/m"]),
    ([link("./l", "../../../root")], ["/etc/l"]),
    ([link("./l", "."), link("./m", "l/l/../../../x")], ["/etc/m"]),
    ([link("./a", ".."), link("./b", "a/.."), link("./c", "b/..")], ["/etc/b", "/etc/c"]),
    ([link("./l", ".."), ("./l/out", b"x", {})], ["/etc/l"]),
    ([("./f", b"x", {}), ("./f/below", b"x", {})], ["/etc/f/below"]),
    ([("./f", b"x", {}), ("./f", b"y", {})], ["/etc/f"]),
    ([("./f", b"x", {}), ("./f/", b"", {"type": tarfile.DIRTYPE})], ["/etc/f"]),
    ([("./f", b"x", {}), link("./f", "g")], ["/etc/f"]),
    ([link("./h", "../../../etc/passwd", tarfile.LNKTYPE)], ["/etc/h"]),
    ([link("./l", "/etc/passwd"), link("./h", "./l", tarfile.LNKTYPE)], ["/etc/h", "/etc/l"]),
    (
        [(f"./{kind!r}", b"", {"type": kind}) for kind in (tarfile.BLKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)],
        ["/etc/b"] * 3,
    ),
    ([("./" + "d/" * 2100 + "f", b"x", {})], ["/etc/d/d"]),
    ([("./" + "n" * 300, b"x", {})], ["/etc/nnn"]),
]


@pytest.mark.parametrize(("members", "left"), HOSTILE)
def test_nothing_leaves_the_directory(tmp_path: Path, members: list[Member], left: list[str]) -> None:
    below = tmp_path / "a/b"
    below.mkdir(parents=True)
    made = extracted(below, *members, ("./good", b"good", {}))
    names = sorted(name for name, _why in made.left_out)
    assert len(names) == len(left) and all(name.startswith(start) for name, start in zip(names, left, strict=True))
    assert (below / "dest/etc/good").read_bytes() == b"good"
    assert tree(tmp_path)[:3] == ["a", "a/b", "a/b/dest"] and all(
        one.startswith("a/b/dest/etc") for one in tree(tmp_path)[3:]
    )
    inside = os.path.realpath(below / "dest")
    assert all(os.path.realpath(one).startswith(inside) for one in below.rglob("*"))
    assert all(not one.is_block_device() and not one.is_fifo() for one in below.rglob("*"))


def test_a_file_without_room_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    member = tarfile.TarInfo("./huge")
    member.size = 2**60
    head = io.BytesIO(member.tobuf(tarfile.GNU_FORMAT) + b"\0" * 10240)
    with pytest.raises(Failed, match=r"huge.*; make room there"), files_extracted.new(str(tmp_path / "dest")) as part:
        Extraction(part, keep_owners=False).unpack("/", head)
    assert tree(tmp_path) == []


def test_the_place_of_the_files(tmp_path: Path) -> None:
    dest = tmp_path / "dest"
    assert files_extracted.look(str(dest))[:2] == ("absent", "directory")
    assert files_extracted.look(str(dest / "below"))[:2] == ("absent", "absent")
    dest.mkdir()
    (tmp_path / ".dest.abc.part").mkdir()
    found = files_extracted.look(str(dest))
    assert found[:2] == ("empty", "directory") and found.left == (str(tmp_path / ".dest.abc.part"),)
    (tmp_path / "link").symlink_to(dest)
    assert files_extracted.look(str(tmp_path / "link")).kind == "other"
    tmp_path.chmod(0o777)
    assert files_extracted.look(str(dest)).parent == "open"
    tmp_path.chmod(0o1777)
    assert files_extracted.look(str(dest)).parent == "directory"
    tmp_path.chmod(0o700)
    with pytest.raises(Failed, match="look at what is in it"), files_extracted.new(str(dest)):
        (dest / "meanwhile").write_text("of somebody")
    assert tree(dest) == ["meanwhile"]
