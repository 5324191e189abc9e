"""A disk that is removed is never lost on the way: it has its name, or a note tells the next run what it was."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import sys
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_disk,
    files_removal_notes,
    files_removed_disks,
    plan_removed_disks,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.model_removed_disk import (
    DiskAside,
    Moment,
    RemovedDisk,
)
from ansible_collections.corral.virt.plugins.module_utils._system import boot, identity
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity

CONTENT = b"what the guest wrote"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a disk in a pool's directory."""
    pool = tmp_path / "pool"
    pool.mkdir()
    (pool / "web1-system.qcow2").write_bytes(CONTENT)
    return pool / "web1-system.qcow2"


def described(path: Path) -> t.Callable[[FileIdentity, int], RemovedDisk]:
    """The note on it."""

    def describe(found: FileIdentity, size_bytes: int) -> RemovedDisk:
        return RemovedDisk(
            path=str(path),
            guest="web1",
            guest_uuid="u",
            host_uuid="h",
            inode=found.inode,
            born_ns=found.born_ns,
            mark=found.mark,
            size_bytes=size_bytes,
            boot_id=boot.identity(),
            pid=os.getpid(),
            since="2026-01-01T00:00:00Z",
        )

    return describe


def old(path: Path) -> Path:
    """Another name beside it."""
    return path.with_name("old")


def begun(stack: contextlib.ExitStack, path: Path) -> files_removed_disks.Quarantine:
    """The disk, moved aside."""
    return files_removed_disks.begin(stack, str(path), described(path))


def files(path: Path) -> list[str]:
    """All files below its directory."""
    directory = path.parent
    return sorted(str(one.relative_to(directory)) for one in directory.rglob("*") if not one.is_dir())


def delete(path: Path) -> None:
    """A whole removal."""
    with contextlib.ExitStack() as stack:
        begun(stack, path).delete()


def give_back(path: Path) -> None:
    """One that finds out that the disk is needed."""
    with contextlib.ExitStack() as stack:
        assert begun(stack, path).give_back()


def killed_at(line: int, work: t.Callable[[], None]) -> bool:
    """Whether a process that does it was killed at its line of that number (counted as they come)."""
    child = os.fork()
    if child == 0:
        left = [line]

        def trace(frame: t.Any, event: str, _argument: object) -> t.Any:
            if not frame.f_code.co_filename.endswith(
                (
                    "_storage/files_removed_disks.py",
                    "_storage/files_removal_notes.py",
                    "_storage/files_disk.py",
                    "_system/private.py",
                )
            ):
                return None
            if event == "line":
                left[0] -= 1
                if not left[0]:
                    os._exit(9)
            return trace

        sys.settrace(trace)
        work()
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


RENAMED, LINKED, DELETED, GIVEN_BACK = False, True, False, True
KILLED = [  # each two of the three meet
    (delete, RENAMED, DELETED),
    (delete, LINKED, GIVEN_BACK),
    (give_back, RENAMED, GIVEN_BACK),
    (give_back, LINKED, DELETED),
]
OTHERS = [(work, by_link, not needed) for work, by_link, needed in KILLED]


@pytest.mark.parametrize(
    ("work", "by_link", "needed"), [*KILLED, *(pytest.param(*one, marks=pytest.mark.deep) for one in OTHERS)]
)
def test_a_run_killed_anywhere_leaves_the_disk_in_place_or_a_note_that_the_next_run_settles(
    path: Path, work: t.Callable[[Path], None], by_link: bool, needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_link:
        monkeypatch.setattr(files_disk, "_NO_RENAME", (*files_disk._NO_RENAME, errno.EPERM))
        monkeypatch.setattr(files_disk, "renamed", lambda *_names, **_inside: False)
    directory, seen = str(path.parent), set()
    for line in range(1, 1000):
        path.write_bytes(CONTENT)
        if not killed_at(line, lambda: work(path)):
            break
        entries = files_removal_notes.entries(directory)
        moved = [one for one in entries if one.moved]
        seen.add((path.exists(), bool(entries), bool(moved)))
        if not path.exists() and work is give_back:
            assert moved, "neither here nor there"
        for one in entries:
            assert one.note and not one.alive
            assert not one.moved or Path(one.place).read_bytes() == CONTENT
            with contextlib.ExitStack() as stack:
                found = files_removed_disks.resume(stack, *files_removal_notes.located(one.place))
                assert found
                if needed or found.returned or not one.moved:
                    assert found.give_back()
                else:
                    found.delete()
        assert not needed or not moved or path.read_bytes() == CONTENT
        path.write_bytes(CONTENT)
        delete(path)  # the next removal tidies up
        assert files(path) == [], f"line {line}"
    else:
        pytest.fail("it never ends")
    assert {(True, False, False), (True, True, False), (False, True, True)} <= seen


def test_a_removal_leaves_no_trace(path: Path) -> None:
    delete(path)
    assert list(path.parent.iterdir()) == []


def test_a_disk_whose_name_was_taken_meanwhile_is_kept_and_so_is_the_other(path: Path) -> None:
    with contextlib.ExitStack() as stack:
        quarantine = begun(stack, path)
        path.write_bytes(b"of somebody else")
        assert not quarantine.give_back()
    assert path.read_bytes() == b"of somebody else"
    [entry] = files_removal_notes.entries(str(path.parent))
    assert Path(entry.place).read_bytes() == CONTENT and entry.note and entry.note.path == str(path)


def test_a_run_that_is_alive_is_left_alone(path: Path) -> None:
    with contextlib.ExitStack() as stack:
        quarantine = begun(stack, path)
        directory = str(path.parent)
        [entry] = files_removal_notes.entries(directory)
        assert entry.alive
        with contextlib.ExitStack() as other:
            assert files_removed_disks.resume(other, *files_removal_notes.located(entry.place)) is None
        quarantine.delete()
    with contextlib.ExitStack() as other:
        assert files_removed_disks.resume(other, *files_removal_notes.located(entry.place)) is None


def test_a_file_that_gets_the_name_at_the_last_moment_is_seen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the note and the renaming."""
    renamed = files_disk.renamed

    def meanwhile(name: str, to: str, **inside: int) -> bool:
        if to.endswith(".disk"):
            path.rename(old(path))
            path.write_bytes(CONTENT)
        return renamed(name, to, **inside)

    monkeypatch.setattr(files_disk, "renamed", meanwhile)
    with contextlib.ExitStack() as stack:
        quarantine = begun(stack, path)
        assert not quarantine.note.identity.is_same(quarantine.identity())
        assert quarantine.give_back()


@pytest.mark.parametrize("kind", ["link", "directory", "pipe"])
def test_what_is_no_file_is_not_moved(path: Path, kind: str) -> None:
    path.rename(old(path))
    if kind == "link":
        path.symlink_to(old(path))
    elif kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    with contextlib.ExitStack() as stack, pytest.raises((Failed, Refused)):
        begun(stack, path)
    assert (path.is_symlink() or path.exists()) and files_removal_notes.entries(str(path.parent)) == []


def test_a_place_that_others_can_reach_is_not_used(path: Path) -> None:
    place = files_removal_notes.folder(str(path.parent))
    Path(place).mkdir(parents=True)
    Path(place).chmod(0o777)
    with contextlib.ExitStack() as stack, pytest.raises(Refused, match="cannot keep work files in"):
        begun(stack, path)
    assert path.read_bytes() == CONTENT


def test_a_damaged_note_names_no_other_directory(path: Path) -> None:
    """Whoever can write it, on shared storage, does not choose where a disk goes."""
    with contextlib.ExitStack() as stack:
        begun(stack, path)
    [entry] = files_removal_notes.entries(str(path.parent))
    note = Path(entry.place).with_suffix(".json")
    note.write_text(note.read_text().replace(str(path), "/etc/web1-system.qcow2"))
    with contextlib.ExitStack() as stack:
        found = files_removed_disks.resume(stack, *files_removal_notes.located(entry.place))
        assert found and found.give_back()
    assert path.read_bytes() == CONTENT
    note.parent.mkdir(parents=True)
    note.write_text("{")
    assert [one.note for one in files_removal_notes.entries(str(path.parent))] == [None]


def test_a_copy_is_another_file_and_so_is_one_with_the_same_inode(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for one in (first, second):
        with one.open("wb") as stream:
            identity.mark(stream.fileno())
    seen = identity.of_path(str(first))
    assert seen and seen == identity.of_path(str(first))
    first.rename(tmp_path / "moved")
    assert seen.is_same(t.cast(FileIdentity, identity.of_path(str(tmp_path / "moved"))))
    assert not seen.is_same(t.cast(FileIdentity, identity.of_path(str(second))))
    assert seen.born_ns is None or abs(seen.born_ns / 1e9 - time.time()) < 60
    assert not FileIdentity(1, 5, "x").is_same(FileIdentity(1, 6, "x"))
    assert not FileIdentity(1, None, "x").is_same(FileIdentity(1, None, "y"))
    assert FileIdentity(1, None, "x").is_same(FileIdentity(1, 6, None))


HOUR_S = 3600
# Removed 1,000 hours after the boot A, to be kept for a day.
KEPT = RemovedDisk(
    path="x",
    guest="x",
    guest_uuid="x",
    host_uuid="x",
    inode=1,
    born_ns=None,
    mark=None,
    size_bytes=1,
    boot_id="A",
    pid=1,
    since="2026-01-01T00:00:00Z",
    keep_until="2026-01-02T00:00:00Z",
    uptime_s=1000 * HOUR_S,
)
OLD = dataclasses.replace(KEPT, uptime_s=None)


@pytest.mark.parametrize(
    ("note", "utc", "boot", "uptime_h", "left_h"),
    [
        pytest.param(KEPT, "2026-01-01T01:00:00Z", "A", 1001, 23, id="an hour later"),
        pytest.param(KEPT, "2026-01-01T23:59:59Z", "A", 1024, 1 / HOUR_S, id="a second before"),
        pytest.param(KEPT, "2026-01-02T00:00:00Z", "A", 1024, 0, id="its time is over"),
        pytest.param(KEPT, "2027-02-05T00:00:00Z", "A", 1001, 23, id="the clock jumped ahead"),
        pytest.param(KEPT, "2027-02-05T00:00:00Z", "A", 1024, 0, id="and a day has passed"),
        pytest.param(KEPT, "2025-12-31T00:00:00Z", "A", 1001, 48, id="the clock jumped back"),
        pytest.param(KEPT, "2027-02-05T00:00:00Z", "B", 1, 23, id="rebooted, and the clock jumped ahead"),
        pytest.param(KEPT, "2026-01-01T20:00:00Z", "B", 1, 23, id="rebooted: the time begins again"),
        pytest.param(KEPT, "2026-01-03T00:00:00Z", "B", 24, 0, id="and is over"),
        pytest.param(KEPT, "2026-01-01T01:00:00Z", "B", 5000, 23, id="the clock jumped back in a later boot"),
        pytest.param(OLD, "2026-01-01T01:00:00Z", "A", 1001, 23, id="of an older version"),
        pytest.param(OLD, "2026-01-02T00:00:00Z", "B", 0, 0, id="of an older version, whose time is over"),
        pytest.param(
            dataclasses.replace(KEPT, keep_until=None), "2025-01-01T00:00:00Z", "A", 0, 0, id="not to be kept"
        ),
    ],
)
def test_a_clock_that_jumps_deletes_no_disk_that_is_kept(
    note: RemovedDisk, utc: str, boot: str, uptime_h: int, left_h: float
) -> None:
    now = Moment(utc, boot, uptime_h * HOUR_S)
    assert note.left_s(now) == round(left_h * HOUR_S)
    assert (
        note.is_due(now) == bool(plan_removed_disks.unfinished([DiskAside("x.disk", note)], "x", now)) == (left_h == 0)
    )


@pytest.mark.parametrize(
    ("utc", "boot", "told"),
    [
        ("2026-01-01T01:00:00Z", "A", "it is kept until 2026-01-02T00:00:00Z; "),
        ("2027-02-05T00:00:00Z", "A", "for 23 more h, as this host has counted only the time since it was removed; "),
        ("2027-02-05T00:00:00Z", "B", "for 23 more h, as this host has counted only the time since its last boot; "),
    ],
)
def test_it_is_told_for_how_long_a_disk_is_kept(utc: str, boot: str, told: str) -> None:
    now = Moment(utc, boot, {"A": 1001, "B": 1}[boot] * HOUR_S)
    assert told in plan_removed_disks.kept(DiskAside("x.disk", KEPT), "x", now)


@pytest.mark.parametrize(
    "damage",
    [{"since": "yesterday"}, {"since": None}, {"keep_until": "soon"}, {"keep_until": 5}, {"uptime_s": "1"}],
    ids=str,
)
def test_a_note_without_its_times_is_no_reason_to_delete(damage: dict[str, t.Any]) -> None:
    assert RemovedDisk.parse(KEPT.fields()) == KEPT
    assert RemovedDisk.parse({**KEPT.fields(), **damage}) is None


def test_a_note_of_an_older_version_is_read() -> None:
    told = KEPT.fields()
    del told["uptime_s"]
    assert RemovedDisk.parse(told) == OLD
