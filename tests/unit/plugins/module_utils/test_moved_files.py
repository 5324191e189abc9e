"""Files that a move fills on another host, and those that it holds here: known again whatever is renamed over them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record
from ansible_collections.corral.virt.plugins.module_utils._host import files_start_block
from ansible_collections.corral.virt.plugins.module_utils._migration.run_copy_offline import Hold
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_disk,
    files_header,
    libvirt_storage,
    libvirt_transfer,
)
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity, OwnedVolume

HEAD = 4096
GUEST, OTHER, HERE, THERE = "guest-1", "guest-2", "host-1", "host-2"
NEVER = FileIdentity(7)


def run(*command: str | Path) -> str:
    """A command's output."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def image(path: Path, *options: str) -> Path:
    """A qcow2 of 1 MiB."""
    run("qemu-img", "create", "-q", "-f", "qcow2", *options, path, "1M")
    return path


# The mark in the header of a qcow2 ----------------------------------------------------------------------------------


def marked(path: Path, text: str) -> None:
    """Give it one, as a move does on the other host."""
    with path.open("r+b") as stream:
        new = files_header.marked(stream.read(HEAD), text)
        stream.seek(0)
        stream.write(new)


@pytest.mark.parametrize("based", [False, True])
def test_a_mark_changes_nothing_that_qemu_reads(tmp_path: Path, based: bool) -> None:
    base = image(tmp_path / "base.qcow2")
    path = image(tmp_path / "a.qcow2", *(("-b", str(base), "-F", "qcow2") if based else ()))
    before = run("qemu-img", "info", "--output=json", path)
    marked(path, "0badc0de0badc0de")
    assert run("qemu-img", "info", "--output=json", path) == before
    run("qemu-img", "check", "-q", path)
    assert files_header.mark(path.read_bytes()[:HEAD]) == "0badc0de0badc0de"
    assert files_header.bases(str(path)) == ([str(base)] if based else [])
    assert files_header.backing_format(str(path)) == ("qcow2" if based else None)


def test_qemu_keeps_a_mark_when_it_writes_the_header_anew(tmp_path: Path) -> None:
    path = image(tmp_path / "a.qcow2")
    marked(path, "0badc0de")
    run("qemu-img", "amend", "-f", "qcow2", "-o", "lazy_refcounts=on", path)
    run("qemu-img", "bitmap", "--add", path, "b1")
    run("qemu-io", "-c", "write -q -P 1 0 64k", path)
    assert files_header.mark(path.read_bytes()[:HEAD]) == "0badc0de"


def test_a_copy_of_another_image_has_no_mark_of_this_one(tmp_path: Path) -> None:
    assert files_header.mark(image(tmp_path / "a.qcow2").read_bytes()[:HEAD]) == ""
    assert files_header.mark(b"") == files_header.mark(bytes(HEAD)) == ""


@pytest.mark.parametrize("head", [b"", bytes(HEAD), b"QFI\xfb" + bytes(HEAD), b"\1" * HEAD])
def test_only_a_new_qcow2_is_marked(head: bytes) -> None:
    with pytest.raises(Failed, match="cannot mark the new image"):
        files_header.marked(head, "0badc0de")


def test_no_header_without_room_is_marked(tmp_path: Path) -> None:
    head = bytearray(image(tmp_path / "a.qcow2").read_bytes()[:HEAD])
    head[-1] = 1
    with pytest.raises(Failed, match="with room in its header"):
        files_header.marked(bytes(head), "0badc0de")


# The copy of a volume -----------------------------------------------------------------------------------------------


class Stream:
    """Into or out of a file that is open, whatever becomes of its name."""

    def __init__(self) -> None:
        self.file: t.IO[bytes] | None = None
        self.left = 0

    def opened(self, path: Path, mode: str, offset: int = 0, length: int = 0) -> None:
        """As libvirt's daemon opens a volume."""
        self.file = path.open(mode)
        size = path.stat().st_size
        self.left = min(length or size, max(size - offset, 0))
        self.file.seek(offset)
        if mode == "r+b":
            self.file.truncate()

    def recvFlags(self, size: int, _flags: int) -> bytes:  # noqa: N802 - libvirt's name
        """The next piece; no file of these tests tells its holes."""
        assert self.file
        piece = self.file.read(min(size, self.left))
        self.left -= len(piece)
        return piece

    def send(self, data: bytes) -> int:
        """Written at once."""
        assert self.file
        self.file.write(data)
        self.file.flush()
        return len(data)

    def sendHole(self, size: int) -> None:  # noqa: N802 - libvirt's name
        """Nothing for so many bytes."""
        assert self.file
        self.file.truncate(self.file.seek(size, os.SEEK_CUR))

    def finish(self) -> None:
        """It is complete."""

    abort = finish


@dataclasses.dataclass
class Connection:
    """A host whose volumes are files of one directory."""

    directory: Path
    path: Path | None = None

    def newStream(self) -> Stream:  # noqa: N802 - libvirt's name
        """A new one."""
        return Stream()

    def storageVolLookupByPath(self, path: str) -> Connection:  # noqa: N802 - libvirt's name
        """The volume."""
        return dataclasses.replace(self, path=Path(path))

    def storagePoolLookupByName(self, _name: str) -> Connection:  # noqa: N802 - libvirt's name
        """The one pool."""
        return self

    def isActive(self) -> bool:  # noqa: N802 - libvirt's name
        """It is."""
        return True

    def storageVolLookupByName(self, name: str) -> Connection:  # noqa: N802 - libvirt's name
        """The volume."""
        return dataclasses.replace(self, path=self.directory / name)

    def download(self, stream: Stream, offset: int, length: int, _flags: int) -> None:
        """Read from it."""
        stream.opened(t.cast(Path, self.path), "rb", offset, length)

    def upload(self, stream: Stream, offset: int, length: int, _flags: int) -> None:
        """Write to it."""
        assert (offset, length) == (0, 0)
        stream.opened(t.cast(Path, self.path), "r+b")


@pytest.fixture
def read_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read by name, as another connection would."""

    def read(dest: Connection, _pool: str, name: str, offset: int, length: int) -> bytes:
        with (dest.directory / name).open("rb") as stream:
            stream.seek(offset)
            return stream.read(length)

    monkeypatch.setattr(libvirt_transfer, "read_part", read)
    monkeypatch.setattr(libvirt_transfer, "_ARRIVES_S", 0)


PIECE = libvirt_storage.CHUNK
CONTENTS = {
    "one piece": b"a" * 100,
    "many pieces": b"".join(bytes([number]) * PIECE for number in range(1, 5)) + b"end",
    "zeros at the end": b"a" * PIECE + bytes(3 * PIECE),
    "zeros between": b"a" * PIECE + bytes(2 * PIECE) + b"b" * 10,
    "nothing but zeros": bytes(2 * PIECE),
    "nothing": b"",
}


def copied(tmp_path: Path, content: bytes, meanwhile: t.Callable[[int], object]) -> tuple[bool, Path]:
    """Copy a volume; whether its name still is its file's, and where it is."""
    source, dest = tmp_path / "source", tmp_path / "dest"
    for directory in (source, dest):
        directory.mkdir()
    (source / "a").write_bytes(content)
    (dest / "a").write_bytes(b"")
    done: list[int] = []

    def tell(size: int) -> None:
        done.append(size)
        meanwhile(size)

    ends = t.cast(t.Any, Connection(source)), t.cast(t.Any, Connection(dest))
    in_place = libvirt_transfer.copy(ends[0], str(source / "a"), ends[1], "images", "a", tell)
    assert done == sorted(done) and (not content or done[-1] == len(content))
    return in_place, dest / "a"


@pytest.mark.usefixtures("read_part")
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_a_copy_is_complete_and_has_its_name(tmp_path: Path, content: bytes) -> None:
    in_place, there = copied(tmp_path, content, lambda _size: None)
    assert in_place and there.read_bytes() == content


@pytest.mark.usefixtures("read_part")
@pytest.mark.parametrize("name", ["one piece", "many pieces", "zeros at the end", "zeros between"])
@pytest.mark.parametrize("foreign", [b"somebody else's", b"", None], ids=["another", "empty", "an older copy"])
def test_a_file_that_takes_the_name_meanwhile_is_noticed(tmp_path: Path, name: str, foreign: bytes | None) -> None:
    content = CONTENTS[name]
    theirs = content if foreign is None else foreign

    def replace(_size: int) -> None:
        other = tmp_path / "other"
        other.write_bytes(theirs)
        other.replace(tmp_path / "dest/a")

    in_place, there = copied(tmp_path, content, replace)
    assert not in_place and there.read_bytes() == theirs


# The hold of a guest that is off ------------------------------------------------------------------------------------


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Guests with an entry for the hook."""
    found: list[str] = []

    @contextlib.contextmanager
    def entered(uuid: str, _reason: str) -> t.Iterator[None]:
        found.append(uuid)
        try:
            yield
        finally:
            found.remove(uuid)

    monkeypatch.setattr(files_start_block, "held", entered)
    monkeypatch.setattr(files_start_block, "hooked", lambda: False)
    return found


def writes(path: Path) -> bool:
    """Whether QEMU may write to the image."""
    return subprocess.run(["qemu-io", "-c", "write -q 0 512", path], check=False, capture_output=True).returncode == 0


def hold(*paths: Path | str, uri: str = "qemu:///system") -> Hold:
    """Of a guest with these disks."""
    return Hold(uri, "web1", GUEST, [str(path) for path in paths], "it is being migrated")


def test_no_qemu_process_writes_to_a_disk_that_is_held(tmp_path: Path, entries: list[str]) -> None:
    one, two = image(tmp_path / "a.qcow2"), image(tmp_path / "b.qcow2")
    with hold(one, two, "nbd:x", tmp_path / "gone") as mine:
        assert mine.complete and entries == [GUEST]
        assert not writes(one) and not writes(two)
        mine.free(str(one))
        assert writes(one) and not writes(two)
    assert writes(two) and entries == []


def test_a_disk_that_somebody_writes_to_is_not_held(tmp_path: Path, entries: list[str]) -> None:
    path = image(tmp_path / "a.qcow2")
    with subprocess.Popen(["qemu-io", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdin
        writer.stdin.write(b"write -q 0 512\nflush\n")
        writer.stdin.flush()
        while not files_disk.locked(str(path)):
            pass
        with pytest.raises(Failed, match=f"a process has {path} open for writing"), hold(path):
            pass
        writer.stdin.close()
    assert entries == []


@pytest.mark.parametrize(
    ("hooked", "lock", "uri", "complete"),
    [
        (False, "held", "qemu:///system", True),
        (False, "none", "qemu:///system", False),
        (True, "none", "qemu:///system", True),
        (True, "none", "qemu:///session", False),  # the hook is the system's
        (False, "held", "qemu:///session", True),
        (True, "none", "qemu+tls://hyper1/system", False),
    ],
)
@pytest.mark.usefixtures("entries")
def test_what_neither_locks_nor_the_hook_hold_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hooked: bool, lock: str, uri: str, complete: bool
) -> None:
    path = image(tmp_path / "a.qcow2")
    monkeypatch.setattr(files_start_block, "hooked", lambda: hooked)
    monkeypatch.setattr(files_disk, "locked_against_writers", lambda _path, _stack: lock)
    with hold(path, uri=uri) as mine:
        assert mine.complete is complete


@pytest.mark.usefixtures("entries")
def test_a_guest_without_files_is_held_by_the_hook_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for hooked in (False, True):
        monkeypatch.setattr(files_start_block, "hooked", lambda hooked=hooked: hooked)
        with hold() as mine:
            assert mine.complete is hooked


# Whose disks are they ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "there"),
    [
        (OwnedVolume("/a", GUEST, HERE, NEVER), OwnedVolume("/a", GUEST, THERE)),
        (OwnedVolume("/left", GUEST, HERE, NEVER), None),  # the guest does not have it
        (OwnedVolume("/a", OTHER, HERE, NEVER), OwnedVolume("/a", OTHER, HERE, NEVER)),  # of a copied definition
        (OwnedVolume("/a", GUEST, THERE, NEVER), OwnedVolume("/a", GUEST, THERE, NEVER)),
        (OwnedVolume("/a"), OwnedVolume("/a")),  # of an older version
    ],
)
def test_only_what_was_a_guests_own_is_its_own_where_it_arrives(entry: OwnedVolume, there: OwnedVolume | None) -> None:
    found = fields_record.arrived([entry], ["/a"], guest=GUEST, source=HERE, host=THERE, moved={})
    assert found == ((there,) if there else ())


def test_a_disk_in_another_pool_is_still_the_guests_own() -> None:
    own, other = OwnedVolume("/a", GUEST, HERE, NEVER), OwnedVolume("/a", OTHER, HERE, NEVER)
    found = fields_record.arrived([own, other], ["/b"], guest=GUEST, source=HERE, host=THERE, moved={"/a": "/b"})
    assert found == (OwnedVolume("/b", GUEST, THERE), other)
    volume = FileIdentity(0, mark="LVM-" + "v" * 32)
    moved = fields_record.arrived(
        [own],
        ["/dev/b"],
        guest=GUEST,
        source=HERE,
        host=THERE,
        moved={"/a": "/dev/b"},
        volumes_there={"/dev/b": volume},
    )
    assert moved == (OwnedVolume("/dev/b", GUEST, THERE, volume),)
    gone = fields_record.arrived([own], ["/a"], guest=GUEST, source=HERE, host=THERE, moved={"/a": "/b"})
    assert gone == (), "it does not have the copy"
