"""What cannot be undone is looked at again, after all waiting: whose disk it is by then, and whose guest."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import threading
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Failed, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._core.step import Step
from ansible_collections.corral.virt.plugins.module_utils._guest import (
    run_definition,
    run_describe_host,
    run_guest,
    run_guest_options,
)
from ansible_collections.corral.virt.plugins.module_utils._power import libvirt_wait
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_removal_notes,
    files_removed_disks,
    libvirt_storage,
    run_disposal,
    run_file_users,
    run_removed_disks,
)
from ansible_collections.corral.virt.plugins.module_utils._system import locks, private

BOX: dict[str, t.Any] = {"vcpus": 1, "memory": 256, "interfaces": [], "state": "present"}
GONE: dict[str, t.Any] = {"state": "absent", "remove_storage": True}
OTHER = (
    "<domain type='test'><name>box2</name><memory>1024</memory><os><type>hvm</type></os><devices>"
    "<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{}'/><target dev='vda'/></disk>"
    "</devices></domain>"
)


def converge(
    connection: t.Any, meanwhile: t.Callable[[Step], object] = lambda _step: None, **options: t.Any
) -> dict[str, t.Any]:
    """One guest."""
    gate = Gate(check_mode=options.pop("check_mode", False), meanwhile=meanwhile)
    return run_guest.converge(connection, run_guest_options.wanted({"name": "box1", **BOX, **options}), gate)


@pytest.fixture
def pool(connection: t.Any, tmp_path: Path) -> Path:
    """Directory of a pool with files, which the test driver does not look at."""
    place = tmp_path / "data"
    place.mkdir()
    connection.storagePoolDefineXML(
        f"<pool type='dir'><name>data</name><target><path>{place}</path></target></pool>"
    ).create()
    return place


def image(path: Path, *base: str) -> Path:
    """A qcow2 file."""
    more = ["-b", base[0], "-F", "qcow2"] if base else []
    subprocess.run(["qemu-img", "create", "-qu", "-f", "qcow2", *more, path, "1M"], check=True)
    return path


@pytest.fixture
def disk(connection: t.Any, pool: Path) -> Path:
    """Of the guest box1, made by us; the test driver makes no files."""
    path = pool / "box1-system.qcow2"
    converge(connection, disks=[{"name": "system", "size": 1, "pool": "data"}])
    return image(path)


def at(verb: str, act: t.Callable[[], object]) -> t.Callable[[Step], None]:
    """Somebody acts right before the steps that begin with that verb."""

    def meanwhile(step: Step) -> None:
        if str(step).startswith(verb):
            act()

    return meanwhile


def aside(pool: Path) -> list[str]:
    """Files that were moved aside."""
    return sorted(one.name for one in Path(files_removal_notes.folder(str(pool))).glob("*"))


def test_a_disk_that_nobody_uses_goes_without_a_trace(connection: t.Any, pool: Path, disk: Path) -> None:
    result = converge(connection, **GONE)
    assert result["steps"] == ["undefine box1", f"delete disk {disk}"]
    assert not disk.exists() and list(pool.iterdir()) == []


@pytest.mark.parametrize("who", ["the disk itself", "an overlay", "a hard link", "a link", "a snapshot of the name"])
def test_a_disk_that_another_guest_takes_in_the_meantime_stays(
    connection: t.Any, pool: Path, disk: Path, tmp_path: Path, who: str
) -> None:
    """Between the plan and the deletion lies the wait for the guest's shutdown."""
    before = (disk.stat().st_ino, disk.read_bytes())

    def taken() -> None:
        path = disk
        if who == "an overlay":
            path = image(tmp_path / "over.qcow2", str(disk))
        elif who == "a hard link":
            path = tmp_path / "hard.qcow2"
            os.link(disk, path)
        elif who == "a link":
            path = tmp_path / "link.qcow2"
            path.symlink_to(disk)
        connection.defineXML(OTHER.format(path))

    with pytest.raises(
        Failed, match=rf"cannot delete disk {disk} of box1: guest box2 uses it by now; it is kept"
    ) as told:
        converge(connection, at("delete disk", taken), **GONE)
    assert "already done: undefine box1" in str(told.value) and f"vol-delete {disk}" in str(told.value)
    assert (disk.stat().st_ino, disk.read_bytes()) == before and aside(pool) == []


def test_all_disks_that_stay_are_named(connection: t.Any, pool: Path) -> None:
    converge(connection, disks=[{"name": name, "size": 1, "pool": "data"} for name in ("a", "b", "c")])
    first, second, third = (image(pool / f"box1-{name}.qcow2") for name in ("a", "b", "c"))
    with pytest.raises(Failed, match=f"cannot delete disk {second}") as told:
        converge(connection, at(f"delete disk {second}", lambda: connection.defineXML(OTHER.format(second))), **GONE)
    assert not first.exists() and second.exists() and third.exists()
    assert f"{third} is kept, too: virsh --connect {connection.getURI()} vol-delete {third}" in str(told.value)


def test_a_process_that_opens_the_disk_in_the_meantime_keeps_it(connection: t.Any, pool: Path, disk: Path) -> None:
    """qemu-nbd, say: libvirt does not know of it."""
    started: list[subprocess.Popen[bytes]] = []

    def opened() -> None:
        path = pool.parent / "nbd"
        started.append(subprocess.Popen(["qemu-nbd", "--persistent", "-k", path, "-f", "qcow2", disk]))
        with socket.socket(socket.AF_UNIX) as client:  # it listens before it opens the disk, and greets after
            while client.connect_ex(str(path)):  # its socket is there before it listens
                assert started[0].poll() is None
                time.sleep(0.01)
            assert client.recv(8) == b"NBDMAGIC"

    try:
        with pytest.raises(Failed, match=r"a process that libvirt does not know has it open by now \(see `fuser -v"):
            converge(connection, at("delete disk", opened), **GONE)
    finally:
        for one in started:
            one.kill()  # while its client leaves, it may miss that it is asked to end
            one.wait()
    assert disk.exists() and aside(pool) == []


def test_a_file_that_takes_the_name_while_the_disk_is_aside_is_not_overwritten(
    connection: t.Any, pool: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, inode = run_file_users.users, disk.stat().st_ino

    def taken(*arguments: t.Any, **more: t.Any) -> t.Any:
        if not disk.exists():
            disk.write_text("somebody else's")
            connection.defineXML(OTHER.format(disk))
        return users(*arguments, **more)

    monkeypatch.setattr(run_file_users, "users", taken)
    with pytest.raises(Failed, match=r"another file has its name by now; compare the two") as told:
        converge(connection, **GONE)
    [kept] = [name for name in aside(pool) if name.endswith(".disk")]
    place = Path(files_removal_notes.folder(str(pool))) / kept
    assert disk.read_text() == "somebody else's" and place.stat().st_ino == inode and str(place) in str(told.value)
    [shown] = run_describe_host.describe_host(connection)["removed_disks"]
    assert (shown["path"], shown["file"]) == (str(disk), str(place)) and "another file has its name" in shown["note"]
    assert converge(connection, **GONE)["changed"] is False, "it is no run's to decide"


def killed(connection: t.Any, disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the disk is after a run that was killed right before it deleted it."""
    with monkeypatch.context() as patched:
        patched.setattr(files_removed_disks.Quarantine, "delete", lambda _self: None)
        converge(connection, **GONE)
    [kept] = [name for name in aside(disk.parent) if name.endswith(".disk")]
    assert not disk.exists()
    return Path(files_removal_notes.folder(str(disk.parent))) / kept


@pytest.mark.parametrize("needed", [False, True])
def test_what_a_killed_run_had_moved_aside_is_settled_by_the_next(
    connection: t.Any, pool: Path, disk: Path, needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, content = killed(connection, disk, monkeypatch), disk.parent
    if needed:
        connection.defineXML(OTHER.format(disk))
    [shown] = run_describe_host.describe_host(connection)["removed_disks"]
    assert shown["guest"] == "box1" and f"mv -n {place} {disk}" in shown["note"]
    text = [f"{'give back' if needed else 'delete'} disk {disk}, which was moved to {place}"]
    assert converge(connection, check_mode=True, **GONE)["steps"] == text and place.exists()
    assert converge(connection, **GONE)["steps"] == text
    assert disk.exists() is needed and aside(pool) == [] and content.exists()
    assert converge(connection, **GONE)["changed"] is False
    assert run_describe_host.describe_host(connection)["removed_disks"] == []


def test_what_comes_to_be_needed_until_the_next_run_acts_is_given_back(
    connection: t.Any, pool: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(connection, disk, monkeypatch)
    converge(connection, at("delete disk", lambda: connection.defineXML(OTHER.format(disk))), **GONE)
    assert disk.exists() and aside(pool) == []


def test_a_note_that_tells_of_another_file_than_the_plan_saw_is_left_as_it_is(
    connection: t.Any, pool: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = killed(connection, disk, monkeypatch)
    note = place.with_suffix(".json")

    def another() -> None:
        note.write_text(json.dumps({**json.loads(note.read_text()), "inode": 7}))

    with pytest.raises(Refused, match=r"cannot finish the removal of .*: its note tells of another file since"):
        converge(connection, at("delete disk", another), **GONE)
    assert place.exists() and note.exists()


def test_a_file_that_takes_the_name_of_what_an_interrupted_run_left_is_not_replaced(
    connection: t.Any, pool: Path, disk: Path
) -> None:
    xml = connection.lookupByName("box1").XMLDesc(2)
    xml = xml.replace("<corral:volume", f"<corral:making>{disk}</corral:making><corral:volume", 1)
    connection.defineXML(xml.replace(f"file='{disk}'", f"file='{disk}.making'"))

    def swap() -> None:
        disk.rename(disk.with_suffix(".old"))
        disk.write_text("somebody else's")

    with pytest.raises(VirtError, match=r"cannot replace disk .* of box1: another file than the one"):
        converge(connection, at("create disk", swap), disks=[{"name": "system", "size": 1, "pool": "data"}])
    assert disk.read_text() == "somebody else's" and aside(pool) == []


def test_what_another_host_has_moved_aside_is_left_to_it(
    connection: t.Any, pool: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On shared storage: only there can be seen who uses it."""
    with monkeypatch.context() as patched:
        patched.setattr(run_disposal, "host_uuid", lambda _connection: "another")
        place = killed(connection, disk, monkeypatch)
    assert converge(connection, **GONE)["changed"] is False and place.exists()
    assert (
        "by host another, which finishes it" in run_describe_host.describe_host(connection)["removed_disks"][0]["note"]
    )


def test_a_disk_is_kept_as_long_as_it_was_told(
    connection: t.Any, pool: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inode = disk.stat().st_ino
    kept = {**GONE, "keep_removed_h": 24}
    foretold = converge(connection, check_mode=True, **kept)["steps"]
    assert converge(connection, **kept)["steps"] == foretold
    assert foretold[1] == f"delete disk {disk}, after 24 h in {pool}/.corral/.removed"
    assert not disk.exists() and converge(connection, **GONE)["changed"] is False
    [shown] = run_describe_host.describe_host(connection)["removed_disks"]
    assert Path(shown["file"]).stat().st_ino == inode and f"it is kept until {shown['keep_until']}" in shown["note"]
    now = run_removed_disks.now()
    jumped = now._replace(utc=now.later(400 * 24))
    monkeypatch.setattr(run_disposal, "now", lambda: jumped)
    assert converge(connection, **GONE)["changed"] is False and aside(pool) != [], "a clock that jumps ends nothing"
    monkeypatch.setattr(run_disposal, "now", lambda: jumped._replace(uptime_s=now.uptime_s + 25 * 3600))
    assert converge(connection, **GONE)["changed"] is True
    assert aside(pool) == [] and not disk.exists()


def test_a_disk_that_was_kept_comes_back_by_the_command_that_its_note_has(
    connection: t.Any, pool: Path, disk: Path
) -> None:
    inode = disk.stat().st_ino
    converge(connection, **GONE, keep_removed_h=1)
    [shown] = run_describe_host.describe_host(connection)["removed_disks"]
    subprocess.run(shown["note"].rpartition("to bring it back: ")[2].split(), check=True)
    assert disk.stat().st_ino == inode
    converge(connection, **GONE)
    assert disk.stat().st_ino == inode and aside(pool) == []


@pytest.mark.parametrize("relative", [True, False])
def test_a_disk_that_is_kept_uses_what_it_stands_on_until_its_time_is_over(
    connection: t.Any, pool: Path, disk: Path, monkeypatch: pytest.MonkeyPatch, *, relative: bool
) -> None:
    base, own = image(pool / "base.qcow2"), image(pool / "own.qcow2")
    disk.unlink()
    image(disk, "own.qcow2" if relative else str(own))
    image(own, str(base))
    converge(connection, **GONE, keep_removed_h=24)
    [place] = [one for one in aside(pool) if one.endswith(".disk")]
    user = f"removed disk {disk} of box1, kept as {pool}/.corral/.removed/{place},"
    users = run_file_users.users(connection)
    assert users.of(str(own)) == users.based_on(str(own)) == user and users.of(str(disk)) is None
    assert users.of(str(base)) is None, "its guest may have written the name: nothing is read that it leads to"
    [entry] = files_removal_notes.entries(str(pool))
    assert entry.note
    with_it = run_file_users.users(connection, removed_with=entry.note.guest_uuid)
    assert with_it.of(str(own)) is None, "for a disk that was removed with the same guest"
    now = run_removed_disks.now()
    later = now._replace(utc=now.later(25), uptime_s=now.uptime_s + 25 * 3600)
    monkeypatch.setattr(run_disposal, "now", lambda: later)
    assert converge(connection, **GONE)["changed"] is True
    assert run_file_users.users(connection).of(str(own)) is None


@pytest.mark.parametrize("hours", [-1, 8761])
def test_hours_that_cannot_be_kept_are_refused(hours: int) -> None:
    with pytest.raises(BadInput, match="keep_removed_h of box1: must be between 0 and 8760 hours"):
        run_guest_options.wanted({"name": "box1", **BOX, **GONE, "keep_removed_h": hours})
    with pytest.raises(BadInput, match="requires remove_storage: true"):
        run_guest_options.wanted({"name": "box1", **BOX, "keep_removed_h": 1})


def test_a_run_that_takes_a_disk_and_one_that_deletes_it_do_not_meet(
    connection: t.Any, pool: Path, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one has planned with the disk, and defines the guest in a moment: the other waits, and then sees it."""
    monkeypatch.setattr(private, "place", lambda: str(tmp_path / "private"))
    monkeypatch.setattr(run_disposal, "is_system", lambda _uri: True)
    taken = threading.Event()

    def take() -> None:
        with locks.flocked(locks.DISKS, fcntl.LOCK_SH):
            taken.set()
            time.sleep(0.5)
            connection.defineXML(OTHER.format(disk))

    taker = threading.Thread(target=take)
    taker.start()
    taken.wait()
    with pytest.raises(Failed, match="guest box2 uses it by now"):
        converge(connection, **GONE)
    taker.join()
    assert disk.exists()


def changed(connection: t.Any, how: str, disk: Path) -> t.Callable[[], None]:
    """Somebody changes the guest."""

    def change() -> None:
        there = connection.lookupByName("box1")
        xml = there.XMLDesc(2)
        if how == "an external snapshot":
            connection.defineXML(xml.replace(str(disk), f"{disk}.s1"))
        elif how == "a title":
            connection.defineXML(xml.replace("<memory", "<title>mine</title><memory"))
        elif how == "started":
            there.create()

    return change


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("an external snapshot", r"somebody has changed its definition \(devices/disk\)"),
        ("a title", r"somebody has changed its definition \(title\)"),
        ("started", "it was started"),
    ],
)
def test_a_guest_that_somebody_changed_in_the_meantime_is_not_removed(
    connection: t.Any, pool: Path, disk: Path, how: str, why: str
) -> None:
    with pytest.raises(Refused, match=rf"cannot undefine box1: {why} since this run has read it, so it is left"):
        converge(connection, at("undefine", changed(connection, how, disk)), **GONE)
    assert connection.lookupByName("box1") and disk.exists() and aside(pool) == []


def test_a_change_that_somebody_makes_in_the_meantime_is_not_overwritten(connection: t.Any, disk: Path) -> None:
    with pytest.raises(
        VirtError, match=r"cannot define box1: somebody has changed its definition \(title\) since this"
    ):
        converge(connection, at("define", changed(connection, "a title", disk)), description="ours")
    assert "<title>mine" in connection.lookupByName("box1").XMLDesc(2)


def test_a_guest_that_gets_the_uuid_in_the_meantime_is_not_overwritten(connection: t.Any) -> None:
    uuid = "6695eb01-f6a4-8304-79aa-97f2502e193f"
    theirs = OTHER.format("/nowhere").replace("<memory>", f"<uuid>{uuid}</uuid><memory>").replace("box2", "box1")
    with pytest.raises(Refused, match="cannot define box1: a guest with its UUID was defined since"):
        converge(connection, at("define", lambda: connection.defineXML(theirs)), uuid=uuid, disks=[])
    assert "/nowhere" in connection.lookupByName("box1").XMLDesc(2)


def test_a_guest_that_somebody_changed_is_not_switched_off(connection: t.Any, disk: Path) -> None:
    """By force, at the end of the wait for its shutdown."""
    converge(connection, state="running")
    there = connection.lookupByName("box1")

    def deaf() -> None:
        changed(connection, "a title", disk)()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_definition, "do", lambda *_arguments: pytest.fail("it is not removed"))
        patched.setattr(libvirt_wait, "obeyed", lambda *_arguments, **_more: deaf())
        with pytest.raises(Refused, match=r"cannot shut down box1: somebody has changed its definition \(title\)"):
            converge(connection, **GONE, force=True, wait_timeout=1)
    assert there.isActive()


def test_a_volume_that_was_made_anew_in_the_meantime_stays(
    connection: t.Any, pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a pool without a directory, a logical volume say: its key tells."""
    converge(connection, disks=[{"name": "system", "size": 1, "pool": "data"}])
    keys = iter(["first", "second"])
    monkeypatch.setattr(libvirt_storage, "volume_key", lambda *_arguments: next(keys))
    with pytest.raises(Failed, match="another file was given its name in the meantime; it is kept"):
        converge(connection, **GONE)
    assert libvirt_storage.volume_at(connection, str(pool / "box1-system.qcow2"))
