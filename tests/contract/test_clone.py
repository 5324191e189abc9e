"""Disks made from images, in a directory pool of the test driver, by the real qemu-img; judged by qemu-img and cmp."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import (
    BadInput,
    Failed,
    NotFound,
    Refused,
    VirtError,
)
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._image import run_image
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_disk,
    files_image_lock,
    files_qemu_img,
    libvirt_storage,
    plan_clone_steps,
    run_clone,
    run_disks,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.model_clone import CloneSpec
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import SiteOf
from ansible_collections.corral.virt.plugins.module_utils._system import locks, work_directory

pytestmark = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="no qemu-img: install qemu-utils")
NODE = "<node><pool type='dir'><name>default</name><target><path>{}</path></target></pool></node>"
GUEST = """<domain type='test'><name>web1</name><memory>65536</memory><os><type>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{path}'/>{below}<target dev='vda' bus='virtio'/></disk>
</devices></domain>"""
BELOW = "<backingStore type='file'><format type='qcow2'/><source file='{}'/><backingStore/></backingStore>"
VOLUME = """<volume><name>{name}</name><capacity>{size}</capacity><target><path>{path}</path><format type='qcow2'/></target>
</volume>"""
MIB = 1024**2
OLD, NEW = "tiny.0123456789ab.qcow2", "tiny.ba9876543210.qcow2"


class Place(t.NamedTuple):
    """A pool in which `tiny.qcow2` points to OLD; NEW is there too, and differs."""

    connection: t.Any
    pool: Path

    def converge(
        self, *, check_mode: bool = False, meanwhile: t.Callable[[t.Any], object] = lambda _step: None, **output: t.Any
    ) -> dict[str, t.Any]:
        """As the module does; `meanwhile` is what others do before each step."""
        known = {**run_image.OPTIONS, **run_clone.OPTIONS}
        params = {**{name: option.get("default") for name, option in known.items()}, "name": "disk.qcow2", **output}
        return run_clone.converge(
            self.connection, params, Gate(check_mode=check_mode, meanwhile=meanwhile), lambda *_phase: None
        )

    def cycle(self, **output: t.Any) -> dict[str, t.Any]:
        """Check, do, check again, do again."""
        before = self.files()
        checked = self.converge(check_mode=True, **output)
        assert self.files() == before, "check mode wrote something"
        done = self.converge(**output)
        checked.pop("progress", None)
        assert done == checked and done["changed"]
        for check_mode in (True, False):
            again = self.converge(check_mode=check_mode, **output)
            assert (again["changed"], again["steps"], again["diff"]) == (False, [], {"before": {}, "after": {}})
        return done

    def files(self) -> dict[str, tuple[int, int]]:
        """What is in the pool, hidden files too: names, sizes, times of change."""
        return {path.name: (path.lstat().st_size, path.lstat().st_mtime_ns) for path in self.pool.iterdir()}

    def point(self, content: str) -> None:
        """Let the image's name point to another content."""
        (self.pool / "tiny.qcow2").unlink()
        (self.pool / "tiny.qcow2").symlink_to(content)

    def define(self, path: Path, *, below: str = "", running: bool = False) -> t.Any:
        """A guest with that disk."""
        guest = self.connection.defineXML(GUEST.format(path=path, below=below))
        if running:
            guest.create()
        return guest

    def write(self, name: str, pattern: int, where: str) -> None:
        """As a guest would."""
        qemu_io(self.pool / name, f"write -P {pattern} {where}")


def qemu_io(path: Path, command: str) -> None:
    subprocess.run(["qemu-io", "-c", command, str(path)], check=True, capture_output=True)


def seen(path: Path) -> dict[str, t.Any]:
    """What qemu-img says of an image that is whole."""
    subprocess.run(["qemu-img", "check", "-q", str(path)], check=path.suffix == ".qcow2", capture_output=True)
    return t.cast(
        "dict[str, t.Any]", json.loads(subprocess.check_output(["qemu-img", "info", "--output=json", str(path)]))
    )


def same(one: Path, other: Path) -> bool:
    """Whether two disks have the same content; what one is longer by must be empty."""
    return subprocess.run(["qemu-img", "compare", "-q", str(one), str(other)], check=False).returncode == 0


@pytest.fixture
def place(tmp_path: Path) -> t.Iterator[Place]:
    """Contents of 4 MiB with 1 MiB of data."""
    pool = tmp_path / "pool"
    pool.mkdir()
    for pattern, name in enumerate((OLD, NEW), start=1):
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(pool / name), "4M"], check=True)
        qemu_io(pool / name, f"write -P {pattern} 64k 1M")
        (pool / name).chmod(0o444)
        (pool / f".{name}.json").write_text("{}")
    (pool / "tiny.qcow2").symlink_to(OLD)
    (tmp_path / "node.xml").write_text(NODE.format(pool))
    with opened(f"test://{tmp_path / 'node.xml'}") as connection:
        yield Place(connection, pool)


def test_an_overlay_backing_file_the_content(place: Place) -> None:
    done = place.cycle(image="tiny.qcow2", size="1GiB")
    info = seen(place.pool / "disk.qcow2")
    assert (info["backing-filename"], info["backing-filename-format"]) == (str(place.pool / OLD), "qcow2")
    assert info["virtual-size"] == done["size_bytes"] == 1024**3
    assert done["steps"] == [f"create disk {place.pool}/disk.qcow2 (1 GiB, qcow2, on {place.pool / OLD})"]
    assert done["backing_file"] == str(place.pool / OLD)
    assert (place.pool / "disk.qcow2").stat().st_mode & 0o777 == 0o600
    place.point(NEW)
    assert not place.converge(image="tiny.qcow2", size="1GiB")["changed"], "an older content is the same image"


@pytest.mark.parametrize(("name", "size"), [("disk.qcow2", 4), ("disk.qcow2", 6), ("disk.raw", 4), ("disk.img", 6)])
def test_a_copy_backing_file_nothing(place: Place, name: str, size: int) -> None:
    done = place.cycle(name=name, image="tiny.qcow2", clone="copy", size=f"{size}MiB")
    info = seen(place.pool / name)
    assert info["format"] == ("qcow2" if name.endswith("qcow2") else "raw")
    assert (info["virtual-size"], info.get("backing-filename"), done["backing_file"]) == (size * MIB, None, None)
    assert same(place.pool / name, place.pool / OLD)
    assert info["actual-size"] < 2 * MIB, "holes stay holes"


def test_a_raw_copy_of_a_raw_image_is_sparse(place: Place) -> None:
    content = place.pool / "flat.0123456789ab.raw"
    subprocess.run(["qemu-img", "convert", "-O", "raw", str(place.pool / OLD), str(content)], check=True)
    place.cycle(name="disk.img", image=content.name, clone="copy")
    assert subprocess.run(["cmp", str(content), str(place.pool / "disk.img")], check=False).returncode == 0
    assert (place.pool / "disk.img").stat().st_blocks * 512 < 2 * MIB


def test_a_copy_of_an_overlay_holds_all_it_reads(place: Place) -> None:
    place.converge(name="mid.qcow2", image="tiny.qcow2")
    place.write("mid.qcow2", 7, "2M 64k")
    place.cycle(image="mid.qcow2", clone="copy")
    assert "backing-filename" not in seen(place.pool / "disk.qcow2")
    assert same(place.pool / "disk.qcow2", place.pool / "mid.qcow2")


def test_it_grows_and_shrinks_only_when_allowed(place: Place) -> None:
    place.cycle(image="tiny.qcow2")
    grown = place.cycle(size="8MiB")
    assert grown["diff"] == {"before": {"size": "4 MiB"}, "after": {"size": "8 MiB"}}
    assert seen(place.pool / "disk.qcow2")["virtual-size"] == 8 * MIB
    with pytest.raises(
        Refused, match="the data at its end would be lost; shrink its content first, then set allow_shrink: true"
    ):
        place.converge(size="2MiB")
    place.write("disk.qcow2", 9, "6M 64k")
    place.cycle(size="2MiB", allow_shrink=True)
    assert seen(place.pool / "disk.qcow2")["virtual-size"] == 2 * MIB
    place.cycle(size="8MiB")
    qemu_io(place.pool / "disk.qcow2", "read -P 0 2M 6M")  # what was cut off does not come back
    place.cycle(name="small.qcow2", image="tiny.qcow2", clone="copy", size="2MiB", allow_shrink=True)
    assert seen(place.pool / "small.qcow2")["virtual-size"] == 2 * MIB


def test_a_size_is_rounded_as_qemu_rounds_it(place: Place) -> None:
    place.cycle(image="tiny.qcow2", size="5000001B")
    assert seen(place.pool / "disk.qcow2")["virtual-size"] == 5000192


@pytest.mark.parametrize("size", [2, 4, 6])
def test_rebased_it_keeps_its_content(place: Place, size: int) -> None:
    disk, reference = place.pool / "disk.qcow2", place.pool.parent / "reference.raw"
    place.converge(image="tiny.qcow2", size=f"{size}MiB", allow_shrink=size < 4)
    place.write("disk.qcow2", 7, "1M 64k")
    subprocess.run(["qemu-img", "convert", "-O", "raw", str(disk), str(reference)], check=True)
    place.point(NEW)
    done = place.cycle(image="tiny.qcow2", state="rebased")
    assert done["diff"] == {
        "before": {"backing_file": str(place.pool / OLD)},
        "after": {"backing_file": str(place.pool / NEW)},
    }
    info = seen(disk)
    assert (info["backing-filename"], info["backing-filename-format"]) == (str(place.pool / NEW), "qcow2")
    assert same(disk, reference)
    place.cycle(state="flattened")
    (place.pool / OLD).unlink()
    (place.pool / NEW).unlink()
    assert "backing-filename" not in seen(disk)
    assert same(disk, reference)


def test_a_disk_that_backing_file_the_name_comes_to_stand_on_the_content(place: Place) -> None:
    """Others made it; where the name points to another content one day, it would hold another disk."""
    link = str(place.pool / "tiny.qcow2")
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-b", link, "-F", "qcow2", str(place.pool / "disk.qcow2")],
        check=True,
    )
    assert not place.converge(image="tiny.qcow2")["changed"]
    place.cycle(image="tiny.qcow2", state="rebased")
    assert seen(place.pool / "disk.qcow2")["backing-filename"] == str(place.pool / OLD)


def test_another_image_is_refused_with_the_remedy(place: Place) -> None:
    shutil.copy(place.pool / NEW, place.pool / "other.qcow2")
    place.converge(image="tiny.qcow2")
    with pytest.raises(
        Refused, match=r"it exists, and its backing file is .*tiny.0123456789ab.qcow2; .*state: rebased"
    ):
        place.converge(image="other.qcow2")
    place.cycle(image="other.qcow2", state="rebased")
    assert not place.converge(image="other.qcow2")["changed"]
    # whose format then is libvirt's word: what it stands on is no image from virt_image
    place.define(place.pool / "disk.qcow2")
    place.converge(state="flattened")
    assert not place.converge(image="tiny.qcow2")["changed"], "it stands on nothing that would contradict"


def test_definitions_forget_what_the_disk_stood_on(place: Place) -> None:
    """libvirt would give QEMU the old image under a disk that was made to stand on the new one."""
    disk = place.pool / "disk.qcow2"
    place.converge(image="tiny.qcow2")
    place.point(NEW)
    guest = place.define(disk, below=BELOW.format(place.pool / OLD))
    done = place.cycle(image="tiny.qcow2", state="rebased")
    assert done["steps"] == [
        f"define web1 (the backing file of {disk} is read from the disk)",
        f"rebase disk {disk} on {place.pool / NEW}",
    ]
    assert OLD not in guest.XMLDesc(2) and "<backingStore" not in guest.XMLDesc(2)


@pytest.mark.parametrize("others", ["undefine", "rename", "change", None])
@pytest.mark.parametrize("state", ["rebased", "flattened"])
def test_a_guest_is_not_defined_as_it_was_before_others_changed_it(
    place: Place, state: str, others: str | None
) -> None:
    """Reading the disks takes minutes: who purges the guest or moves it away meanwhile must not find it here again."""
    disk, image = place.pool / "disk.qcow2", dict[str, t.Any](image="tiny.qcow2" if state == "rebased" else None)
    place.converge(image="tiny.qcow2")
    if image["image"]:
        place.point(NEW)
    guest = place.define(disk, below=BELOW.format(place.pool / OLD))
    locked = []

    def meanwhile(step: object) -> None:
        locked.append(locks.held("web1"))
        if others == "undefine" and isinstance(step, plan_clone_steps.Forget):
            guest.undefine()
        elif others == "rename" and isinstance(step, plan_clone_steps.Forget):
            guest.rename("web2")
        elif others == "change" and isinstance(step, plan_clone_steps.Forget):
            place.connection.defineXML(
                guest.XMLDesc(2).replace("<memory unit='KiB'>65536", "<memory unit='KiB'>131072")
            )

    if others is None:
        assert place.converge(**image, state=state, meanwhile=meanwhile)["changed"] and locked == [True, True]
        return
    with pytest.raises(Refused, match=r"cannot define web1 without .* left as they are; run again"):
        place.converge(**image, state=state, meanwhile=meanwhile)
    found = [one.name() for one in place.connection.listAllDomains() if one.name() != "test"]
    assert found == {"undefine": [], "rename": ["web2"], "change": ["web1"]}[others]
    assert others != "change" or guest.maxMemory() == 131072
    assert seen(disk)["backing-filename"] == str(place.pool / OLD)


def test_the_disk_of_a_guest_that_another_run_works_on_stays(place: Place) -> None:
    place.converge(image="tiny.qcow2")
    disk = place.pool / "disk.qcow2"
    place.define(disk, below=BELOW.format(place.pool / OLD))
    with locks.locked("web1"), pytest.raises(Refused, match="another run works on the disks of web1, or migrates it"):
        place.converge(state="flattened")
    assert seen(disk)["backing-filename"] == str(place.pool / OLD)


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        (
            {"image": "nothing.qcow2"},
            NotFound,
            "there is no image nothing.qcow2 in pool default; import it with virt_image",
        ),
        ({"image": "tiny.qcow2", "image_pool": "fast"}, NotFound, "cannot find storage pool fast"),
        ({"size": "1GiB"}, NotFound, "there is no disk .*disk.qcow2; to create it, set image"),
        ({"state": "flattened"}, NotFound, "there is no disk"),
        ({"image": "tiny.qcow2", "size": "1MiB"}, BadInput, "smaller than image tiny.qcow2 .* allow_shrink: true"),
        ({"image": OLD, "name": "tiny.qcow2"}, Refused, "is an image: disks are created from it"),
        ({"state": "flattened", "name": "tiny.qcow2"}, Refused, "is an image: disks are created from it"),
        ({"image": "tiny.qcow2", "job_timeout": 0}, BadInput, "job_timeout: 0 must be at least 1 second"),
    ],
)
def test_what_is_refused_leaves_nothing(
    place: Place, said: dict[str, t.Any], kind: type[VirtError], message: str
) -> None:
    before = place.files()
    for check_mode in (True, False):
        with pytest.raises(kind, match=message):
            place.converge(check_mode=check_mode, **said)
    assert place.files() == before


CHANGES: dict[str, dict[str, t.Any]] = {
    "shrink": {"size": "2MiB", "allow_shrink": True},
    "rebase": {"image": NEW, "state": "rebased"},
    "flatten": {"state": "flattened"},
    "remove": {"state": "absent", "remove_storage": True},
    "grow": {"size": "8MiB"},
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_another_process_has_open_is_left_alone(place: Place, change: str) -> None:
    """qemu-io holds the lock that a guest's QEMU holds; libvirt knows nothing of it."""
    place.converge(image="tiny.qcow2")
    with subprocess.Popen(
        ["qemu-io", str(place.pool / "disk.qcow2")], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as stranger:
        while not files_disk.locked(str(place.pool / "disk.qcow2")):
            time.sleep(0.02)
        before = place.files()
        for check_mode in (True, False):
            with pytest.raises(Refused, match="a process that libvirt does not know has it open"):
                place.converge(check_mode=check_mode, **CHANGES[change])
        with pytest.raises(Failed, match="another process has it open: stop that process first"):
            files_qemu_img.resize(str(place.pool / "disk.qcow2"), "qcow2", 8 * MIB)
        assert place.files() == before
        stranger.communicate(b"quit\n")
    place.cycle(**CHANGES[change])


@pytest.mark.parametrize("change", ["shrink", "rebase", "remove"])
@pytest.mark.parametrize("where", ["disk", "base"])
def test_what_a_running_guest_has_is_left_alone(place: Place, change: str, where: str) -> None:
    disk, top = place.pool / "disk.qcow2", place.pool / "top.qcow2"
    place.converge(image="tiny.qcow2")
    place.converge(name="top.qcow2", image="disk.qcow2")
    below = BELOW.format(disk)
    guest = place.define(disk if where == "disk" else top, below="" if where == "disk" else below, running=True)
    before = place.files()
    with pytest.raises(Refused, match="guest web1"):
        place.converge(**CHANGES[change])
    with pytest.raises(Refused, match=r"guest web1 \(running\) uses it"):
        place.converge(name="more.qcow2", image="disk.qcow2", clone="copy")
    if where == "base":
        for one in ("grow", "flatten"):
            with pytest.raises(Refused, match=r"web1 runs with it as a backing file"):
                place.converge(**CHANGES[one])
    assert place.files() == before
    guest.destroy()


def test_a_saved_guest_finds_its_disk_as_it_was(place: Place) -> None:
    place.converge(image="tiny.qcow2")
    place.define(place.pool / "disk.qcow2", running=True).managedSave()
    for change in ("grow", "shrink", "rebase", "flatten"):
        with pytest.raises(Refused, match=r"guest web1 \(saved\) uses it; .*managedsave-remove"):
            place.converge(**CHANGES[change])


def test_a_guests_disk_is_copied_not_stood_on(place: Place) -> None:
    place.converge(image="tiny.qcow2")
    place.define(place.pool / "disk.qcow2")
    with pytest.raises(Refused, match="clone: copy while the guest is off"):
        place.converge(name="more.qcow2", image="disk.qcow2")
    place.cycle(name="more.qcow2", image="disk.qcow2", clone="copy")


def test_snapshots_inside_are_kept(place: Place) -> None:
    place.converge(image="tiny.qcow2")
    subprocess.run(["qemu-img", "snapshot", "-c", "before", str(place.pool / "disk.qcow2")], check=True)
    for change in ("shrink", "rebase", "flatten"):
        with pytest.raises(Refused, match="its internal snapshots would be damaged; delete them first"):
            place.converge(**CHANGES[change])


def test_what_a_guest_wrote_is_not_believed(place: Place) -> None:
    """A raw disk can hold what looks like a qcow2 with a secret of the host beneath."""
    shutil.copy(place.pool / NEW, place.pool / "disk.img")
    with pytest.raises(Refused, match=r"cannot convert disk disk.img to raw: it is qcow2"):
        place.converge(name="disk.img", size="1GiB")
    with pytest.raises(Refused, match=r"its name says raw, but its first bytes, .*, say qcow2"):
        place.converge(name="more.qcow2", image="disk.img")


def test_it_does_not_come_to_stand_on_itself(place: Place) -> None:
    place.converge(image="tiny.qcow2")
    place.converge(name="top.qcow2", image="disk.qcow2")
    with pytest.raises(
        Refused, match=r"top.qcow2: its backing file is .*disk.qcow2, which is not an image from virt_image"
    ):
        place.converge(image="top.qcow2", state="rebased")


def test_a_disk_goes_only_when_told_and_nobody_needs_it(place: Place) -> None:
    place.converge(image="tiny.qcow2")
    with pytest.raises(Refused, match="its data would be lost; set remove_storage: true"):
        place.converge(state="absent")
    guest = place.define(place.pool / "disk.qcow2")
    with pytest.raises(Refused, match="guest web1 uses it"):
        place.converge(**CHANGES["remove"])
    guest.undefine()
    pool = place.connection.storagePoolLookupByName("default")
    backing = f"<backingStore><path>{place.pool / 'disk.qcow2'}</path><format type='qcow2'/></backingStore>"
    overlay = pool.createXML(f"<volume><name>top.qcow2</name><capacity>1</capacity>{backing}</volume>")
    with pytest.raises(Refused, match=r"image .*top.qcow2 uses it"):
        place.converge(**CHANGES["remove"])
    with pytest.raises(Refused, match=r"top.qcow2 is backed by it; flatten that first"):
        place.converge(**CHANGES["shrink"])
    overlay.delete()
    place.cycle(**CHANGES["remove"])
    assert {name for name in place.files() if not name.startswith(".")} == {OLD, NEW, "tiny.qcow2"}


KILLED = """
import os, sys
from ansible_collections.corral.virt.plugins.module_utils._storage import files_disk
with files_disk.new(sys.argv[1]) as making:
    open(making, "wb").write(b"half")
    print("here", flush=True)
    sys.stdin.read()
"""


def test_a_killed_run_leaves_nothing_visible_and_the_next_cleans_up(place: Place) -> None:
    root = Path(__file__).parents[2] / ".cache"
    command = [sys.executable, "-c", KILLED, str(place.pool / "disk.qcow2")]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    for cleaner in ({"image": "tiny.qcow2"}, CHANGES["remove"]):
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as run:
            assert t.cast("t.IO[bytes]", run.stdout).readline() == b"here\n"
            run.send_signal(signal.SIGKILL)
        assert "disk.qcow2" not in place.files() and len(place.files()) == 6
        place.cycle(**cleaner)
        if cleaner == CHANGES["remove"]:
            assert {name for name in place.files() if not name.startswith(".")} == {OLD, NEW, "tiny.qcow2"}
        else:
            assert {name for name in place.files() if not name.startswith(".")} == {
                OLD,
                NEW,
                "tiny.qcow2",
                "disk.qcow2",
            }
            (place.pool / "disk.qcow2").unlink()


@pytest.mark.parametrize("without", ["nothing", "renameat2", "links"])
def test_a_disk_never_replaces_what_appears_in_the_meantime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: str
) -> None:
    """On a filesystem without renameat2's flag (NFS), and on one that also has no hard links."""

    def refused(*_names: object) -> t.NoReturn:
        raise OSError(errno.EPERM, "Operation not permitted")

    if without != "nothing":
        monkeypatch.setattr("ctypes.CDLL", lambda *_arguments, **_more: object())
    if without == "links":
        monkeypatch.setattr(os, "link", refused)
    made, taken = tmp_path / "made.qcow2", tmp_path / "taken.qcow2"
    with files_disk.new(str(made)) as unfinished:
        Path(unfinished).write_text("mine")
    assert made.read_text() == "mine" and made.stat().st_nlink == 1

    taken.write_text("theirs")
    if without != "links":  # it appears after each look
        monkeypatch.setattr(os.path, "lexists", lambda _path: False)
    with pytest.raises(Failed, match="a file with this name appeared in the meantime; inspect it"):
        with files_disk.new(str(taken)) as unfinished:
            Path(unfinished).write_text("mine")
    assert taken.read_text() == "theirs"
    assert sorted(tmp_path.iterdir()) == [made, taken]


def test_a_failed_copy_leaves_nothing(place: Place) -> None:
    (place.pool / OLD).chmod(0o644)
    # of its first data cluster (1), the table says a place where none can be
    with (place.pool / OLD).open("r+b") as content:
        table = 40  # in the header, the address of the first table; in that, of the second
        for _level in range(2):
            content.seek(table)
            table = int.from_bytes(content.read(8), "big") & ~(1 << 63)
        content.seek(table + 8)
        content.write((1 << 63 | 0x200).to_bytes(8, "big"))
    before = place.files()
    with pytest.raises(Failed, match=r"^cannot convert .*tiny.0123456789ab.qcow2 to"):
        place.converge(name="disk.raw", image="tiny.qcow2", clone="copy")
    assert place.files() == before


def test_progress_is_told(place: Place) -> None:
    phases: list[tuple[str, int, int]] = []
    known = {**run_image.OPTIONS, **run_clone.OPTIONS}
    params = {
        **{name: option.get("default") for name, option in known.items()},
        "name": "disk.raw",
        "image": "tiny.qcow2",
        "clone": "copy",
    }
    run_clone.converge(place.connection, params, Gate(check_mode=False), lambda *phase: phases.append(phase))
    assert phases[-1] == ("copying", 4 * MIB, 4 * MIB)


def test_the_link_to_what_is_below_is_cut_last(place: Place) -> None:
    """Whoever kills qemu-img at any write must find the content as it was: the header comes after all tables, and is
    waited for.
    """
    if shutil.which("strace") is None:
        pytest.skip("no strace: install it to see in which order qemu-img writes")
    place.converge(image="tiny.qcow2")
    trace = place.pool.parent / "trace"
    before = os.environ["PATH"]
    wrapper = place.pool.parent / "bin/qemu-img"
    wrapper.parent.mkdir()
    real = shutil.which("qemu-img")
    wrapper.write_text(f'#!/bin/sh\nexec strace -f -e trace=pwrite64,fdatasync,fsync -o {trace}.$$ {real} "$@"\n')
    wrapper.chmod(0o755)
    os.environ["PATH"] = f"{wrapper.parent}:{before}"
    try:
        place.converge(state="flattened")
    finally:
        os.environ["PATH"] = before
    lines = [line for one in trace.parent.glob("trace.*") for line in one.read_text().splitlines()]
    calls = [line for line in lines if "pwrite64(" in line or "sync(" in line]
    header = next(number for number, call in enumerate(calls) if '"QFI' in call)
    assert any("pwrite64" in call for call in calls[:header]) and "sync(" in calls[header - 1]
    assert not [call for call in calls[header + 1 :] if "pwrite64" in call]


def test_a_run_waits_for_another_one_that_is_at_work_on_the_disk(place: Place) -> None:
    """Also one that only asks: what it would say of half a work is of no use."""
    disk = CloneSpec(name="disk.qcow2", state="present", directory=str(place.pool), format="qcow2")
    answers: list[dict[str, t.Any]] = []

    def ask() -> None:
        with opened(place.connection.getURI()) as connection:
            answers.append(Place(connection, place.pool).converge(check_mode=True, image="tiny.qcow2"))

    asking = threading.Thread(target=ask)
    with work_directory.locked(disk):
        asking.start()
        asking.join(0.5)
        assert asking.is_alive() and not answers
        files_qemu_img.create_overlay(str(place.pool / "disk.qcow2"), str(place.pool / OLD), "qcow2", 4 * MIB)
    asking.join()
    assert answers[0]["changed"] is False
    assert not (place.pool / ".corral").exists(), "the place of work is gone"


@pytest.mark.parametrize("late", [False, True], ids=["before it looks", "before it acts"])
def test_what_becomes_of_the_image_while_a_run_waits_counts(
    place: Place, monkeypatch: pytest.MonkeyPatch, *, late: bool
) -> None:
    """The image was a disk of nobody when the run began; a guest runs on it when the run's turn comes."""
    shutil.copyfile(place.pool / OLD, place.pool / "other.qcow2")
    disk = CloneSpec(name="disk.qcow2", state="present", directory=str(place.pool), format="qcow2")
    if late:
        monkeypatch.setattr(work_directory, "wait", lambda _named: False)  # the other run began just after that
    told: list[str] = []

    def make() -> None:
        try:
            told.extend(place.converge(image="other.qcow2", clone="copy")["steps"])
        except Refused as refusal:
            told.append(str(refusal))

    making = threading.Thread(target=make)
    with work_directory.locked(disk):
        making.start()
        making.join(0.5)
        assert making.is_alive() and not told
        place.define(place.pool / "other.qcow2", running=True)
    making.join()
    assert len(told) == 1 and "cannot copy image other.qcow2 for disk.qcow2: guest web1 (running) uses it" in told[0]
    assert not (place.pool / "disk.qcow2").exists()


def test_an_image_that_changes_while_a_run_waits_is_looked_at_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a guest's disk is created from: the size is that of the content that is held."""
    (place.pool / NEW).chmod(0o644)
    subprocess.run(["qemu-img", "resize", "-q", str(place.pool / NEW), "8M"], check=True)
    hold = files_image_lock.hold

    def volume(_connection: t.Any, _pool: str, name: str) -> str:
        size = seen(place.pool / name)["virtual-size"]
        return VOLUME.format(name=name, path=place.pool / name, size=size)

    def waits(path: str, locks: contextlib.ExitStack) -> str:
        place.point(NEW)
        return hold(path, locks)

    monkeypatch.setattr(libvirt_storage, "volume_in", volume)
    monkeypatch.setattr(files_image_lock, "hold", waits)
    with contextlib.ExitStack() as locks:
        origin = run_disks._origin(place.connection, "default", SiteOf("default", "a.qcow2", "tiny.qcow2"), locks)
    assert origin and (origin.content, origin.capacity_bytes) == (str(place.pool / NEW), 8 * MIB)


def test_what_a_killed_run_noted_goes(place: Place) -> None:
    place.converge(image="tiny.qcow2")
    work = place.pool / ".corral/disk.qcow2"
    work.mkdir(parents=True)
    (work / "progress").write_text("{}")
    (work / "lock").touch()
    assert not place.converge(image="tiny.qcow2")["changed"]
    assert not (place.pool / ".corral").exists()


def test_where_progress_is_noted_is_told_before(place: Place) -> None:
    result = place.converge(check_mode=True, image="tiny.qcow2", clone="copy")
    assert result["progress"] == str(place.pool / ".corral/disk.qcow2/progress")
    assert "progress" not in place.converge(check_mode=True, image="tiny.qcow2"), "an overlay is made at once"
