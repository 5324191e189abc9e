"""Other users of the machine can neither stop a run nor have it write elsewhere."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import typing as t
from pathlib import Path

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.corral.virt.plugins.action.virt_image import ActionModule
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Image
from ansible_collections.corral.virt.plugins.module_utils._storage import files_image_lock
from ansible_collections.corral.virt.plugins.module_utils._system import locks, private, work_directory
from ansible_collections.corral.virt.plugins.module_utils._system.progress import ProgressWatch
from ansible_collections.corral.virt.tests.contract import two_hosts

NOBODY = 65534
UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> t.Iterator[Path]:
    """The private folder; who waits for a pipe is woken up."""
    monkeypatch.setattr(private, "place", lambda: str(tmp_path / "private"))

    def late(_number: int, _frame: object) -> None:
        raise TimeoutError("it waits for a pipe or a lock")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(10)
    yield tmp_path / "private"
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image("a.qcow2", str(tmp_path), "qcow2", None, None)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    path.symlink_to(path.parent / "victim")


BAIT: list[t.Callable[[Path], None]] = [fifo, link]


@pytest.mark.parametrize("bait", BAIT)
def test_a_pipe_or_link_as_lock_neither_stops_a_run_nor_empties_a_file(
    place: Path, bait: t.Callable[[Path], None]
) -> None:
    place.mkdir(mode=0o700)
    (place / "victim").write_text("root's")
    bait(place / "web1.lock")
    with pytest.raises(Refused, match=r"web1\.lock: it is not a regular file"), locks.locked("web1", "another run"):
        pass
    with pytest.raises(Refused, match=r"web1\.lock: it is not a regular file"):
        locks.held("web1")
    assert (place / "victim").read_text() == "root's"


@pytest.mark.parametrize("bait", BAIT)
def test_a_pipe_or_link_in_a_pool_neither_stops_a_run_nor_empties_a_file(
    tmp_path: Path, image: Image, bait: t.Callable[[Path], None]
) -> None:
    work = tmp_path / ".corral/a.qcow2"
    work.parent.mkdir(mode=0o700)
    work.mkdir(mode=0o700)
    (work / "victim").write_text("root's")
    bait(work / "lock")
    with pytest.raises(Refused, match="not a regular file"), work_directory.locked(image):
        pass
    with pytest.raises(Refused, match="not a regular file"):
        work_directory.wait(image)
    assert (work / "victim").read_text() == "root's"


def test_a_pipe_as_manifest_does_not_stop_a_run(tmp_path: Path) -> None:
    (tmp_path / "a.qcow2").touch()
    fifo(tmp_path / ".a.qcow2.json")
    with contextlib.ExitStack() as stack, pytest.raises(Failed, match=r"from being pruned: .* not a regular file"):
        files_image_lock.hold(str(tmp_path / "a.qcow2"), stack)


def of_another(path: Path) -> None:
    path.mkdir(mode=0o700)
    os.chown(path, NOBODY, NOBODY)


def open_to_all(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def open_to_a_group(path: Path) -> None:
    path.mkdir()
    path.chmod(0o770)


def elsewhere(path: Path) -> None:
    (path.parent / "elsewhere").mkdir(mode=0o700)
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.parametrize("prepared", [of_another, open_to_all, open_to_a_group, elsewhere])
def test_a_folder_that_others_prepared_is_refused(
    tmp_path: Path, place: Path, image: Image, prepared: t.Callable[[Path], None]
) -> None:
    if os.geteuid():
        pytest.skip("only root can give a directory away")
    prepared(place)
    with (
        pytest.raises(Refused, match=f"cannot keep work files in {place}: .*remove it"),
        locks.locked("web1", "another run"),
    ):
        pass
    prepared(tmp_path / ".corral") if prepared is not elsewhere else (tmp_path / ".corral").symlink_to(
        tmp_path / "elsewhere"
    )
    with (
        pytest.raises(Refused, match=r"cannot keep work files in .*\.corral: .*remove it"),
        work_directory.locked(image),
    ):
        pass


def test_the_folder_is_private_from_the_beginning(place: Path) -> None:
    with locks.locked("web1", "another run"):
        assert place.stat().st_mode & 0o777 == 0o700
        assert (place / "web1.lock").stat().st_mode & 0o777 == 0o600


def test_a_pool_that_is_gone_does_not_make_a_run_wait_for_ever(tmp_path: Path) -> None:
    with (
        pytest.raises(Failed, match="cannot write to the pool's directory"),
        work_directory.locked(Image("a.raw", str(tmp_path / "x"), "raw", None, None)),
    ):
        pass


def test_no_root_no_folder_of_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert private.place() == ("/run/corral" if os.geteuid() == 0 else private.place())
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert private.place() == "/run/user/1000/corral"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert private.place().endswith("/.cache/corral")


def test_a_note_that_an_earlier_run_left_is_not_meant_for_this_one(place: Path) -> None:
    place.mkdir()
    (place / "web1.abort").touch()
    watch = ProgressWatch("web1")
    assert not watch.interrupted()
    os.utime(place / "web1.abort", (1, 1))
    assert watch.interrupted(), "touched anew"


@pytest.mark.parametrize("how", ["refused", "checked"])
def test_a_refused_or_checked_run_leaves_the_notes_of_the_run_at_work(
    hosts: tuple[two_hosts.Host, two_hosts.Host], tmp_path: Path, how: str
) -> None:
    source, dest = hosts
    source.add("web1", UUID, "running")
    folder = tmp_path / "private"
    begun, over = threading.Event(), threading.Event()

    def at_work() -> None:
        with locks.locked("web1", "another run"):
            begun.set()
            over.wait(10)

    other = threading.Thread(target=at_work)
    other.start()
    assert begun.wait(10)
    for kind in ("abort", "progress"):
        (folder / f"web1.{kind}").touch()
    try:
        if how == "refused":
            assert "another run is migrating it" in two_hosts.converge(source, dest)
        else:
            two_hosts.checked(source, dest)
    finally:
        over.set()
        other.join()
    assert {path.suffix for path in folder.iterdir()} == {".abort", ".progress", ".lock"}


def test_the_holder_of_the_lock_removes_its_notes(hosts: tuple[two_hosts.Host, two_hosts.Host], tmp_path: Path) -> None:
    source, dest = hosts
    (tmp_path / "private").mkdir(mode=0o700)
    for kind in ("abort", "progress"):
        (tmp_path / f"private/web1.{kind}").touch()
    assert "neither on" in two_hosts.converge(source, dest)
    assert [path.name for path in (tmp_path / "private").iterdir()] == ["web1.lock"]


def nothing_prepared(_path: Path) -> None:
    """The usual case."""


@pytest.mark.parametrize("prepared", [of_another, open_to_all, elsewhere, nothing_prepared])
def test_nothing_is_uploaded_into_a_folder_that_others_prepared(
    tmp_path: Path, image: Image, prepared: t.Callable[[Path], None]
) -> None:
    """The action asks the module in check mode before it sends anything; that writes nothing, too."""
    if os.geteuid():
        pytest.skip("only root can give a directory away")
    prepared(tmp_path / ".corral")
    before = sorted(tmp_path.rglob("*"))
    if prepared is nothing_prepared:
        work_directory.check(image)
    else:
        with pytest.raises(Refused, match=r"cannot keep work files in .*\.corral: .*remove it"):
            work_directory.check(image)
    assert sorted(tmp_path.rglob("*")) == before


class Sender(ActionModule):
    """The action's half of an upload, with this machine as the host."""

    def __init__(self) -> None:
        """Without a play."""

    def _low_level_execute_command(
        self, command: str, in_data: bytes | None = None, **_more: object
    ) -> dict[str, t.Any]:
        done = subprocess.run(["sh", "-c", command], input=in_data, capture_output=True, check=False)
        return {"rc": done.returncode, "stdout": done.stdout.decode(), "stderr": done.stderr.decode()}


@pytest.mark.parametrize("bytes_there", [0, 3, 100])
def test_an_upload_goes_on_where_it_ended(tmp_path: Path, bytes_there: int) -> None:
    (tmp_path / "image").write_bytes(b"0123456789")
    part = tmp_path / "work/1.part"
    if bytes_there:
        part.parent.mkdir()
        part.write_bytes(b"0123456789"[:bytes_there].ljust(bytes_there, b"x"))
    Sender()._upload("hyper1", tmp_path / "image", {"path": str(part), "bytes": bytes_there, "max_bytes": 10})
    assert part.read_bytes() == b"0123456789"
    assert bytes_there or (part.stat().st_mode & 0o777, part.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_an_upload_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"guest's")
    (tmp_path / "victim").write_text("root's")
    (tmp_path / "work").mkdir()
    (tmp_path / "work/1.part").symlink_to(tmp_path / "victim")
    with pytest.raises(AnsibleActionFail, match=r"cannot send hyper1: .*"):
        Sender()._upload(
            "hyper1", tmp_path / "image", {"path": str(tmp_path / "work/1.part"), "bytes": 0, "max_bytes": 10}
        )
    assert (tmp_path / "victim").read_text() == "root's"
