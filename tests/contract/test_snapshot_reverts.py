"""Guests that go back to a snapshot, on the test driver with files of its own: what fails, and what others do meanwhile."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import typing as t
from pathlib import Path

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._snapshot import (
    files_snapshot,
    libvirt_snapshot,
    run_snapshot,
)
from ansible_collections.corral.virt.plugins.module_utils._snapshot.plan_snapshot_steps import Redefine, Revert
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disposal import DeleteVolume
from ansible_collections.corral.virt.plugins.module_utils._system import private, timer

pytestmark = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="no qemu-img: install qemu-utils")
NODE = "<node><pool type='dir'><name>default</name><target><path>{}</path></target></pool></node>"
UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
OPTIONS: dict[str, t.Any] = {
    "guests": ["web1"], "name": "s", "state": "reverted", "description": None, "kind": "external", "memory": False,
    "quiesce": "auto", "directory": None, "keep": None, "run": True, "confirm": "s", "keep_reverted_h": 0,
    "bandwidth": 0, "job_timeout": 3600, "at_once": 1,
}  # fmt: skip


TAKEN: dict[str, t.Any] = {"run": None, "confirm": None}


def killed_at(kind: type) -> t.Callable[[t.Any], None]:
    """A run that dies before a step."""

    def meanwhile(step: object) -> None:
        if isinstance(step, kind):
            raise KeyboardInterrupt

    return meanwhile


def image(path: Path, base: Path | None = None) -> Path:
    """A disk, on another one."""
    below = ["-b", str(base), "-F", "qcow2"] if base else []
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *below, str(path), "1M"], check=True)
    return path


class Place:
    """A guest with two disks, each on two snapshots: `s`, and `n` which is newer."""

    def __init__(self, connection: t.Any, pool: Path) -> None:
        self.connection, self.pool = connection, pool
        self.armed: list[str] = []  # timers of systemd
        for disk in ("vda", "vdb"):
            image(self.on("s", disk), image(pool / f"{disk}.qcow2"))
            image(self.on("n", disk), self.on("s", disk))
        connection.storagePoolLookupByName("default").refresh()
        self.guest = connection.defineXML(self.document(*(self.on("n", disk) for disk in ("vda", "vdb"))))
        self.guest.create()
        for name, base, parent in (("s", None, ""), ("n", "s", "s")):
            self.snapshot(name, base, parent)

    def on(self, name: str, disk: str) -> Path:
        """What a disk writes to since a snapshot."""
        return self.pool / f"{disk}.{name}.qcow2"

    def document(self, *disks: Path) -> str:
        """The guest with these disks."""
        made = "".join(
            f"<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{path}'/>"
            f"<target dev='{path.name[:3]}' bus='virtio'/></disk>"
            for path in disks
        )
        return (
            f"<domain type='test'><name>web1</name><uuid>{UUID}</uuid><memory>65536</memory><os><type>hvm</type></os>"
            f"<devices>{made}</devices></domain>"
        )

    def snapshot(self, name: str, base: str | None, parent: str) -> None:
        """Let libvirt know it."""
        bases = [self.on(base, disk) if base else self.pool / f"{disk}.qcow2" for disk in ("vda", "vdb")]
        overlays = "".join(
            f"<disk name='{disk}' snapshot='external' type='file'><driver type='qcow2'/>"
            f"<source file='{self.on(name, disk)}'/></disk>"
            for disk in ("vda", "vdb")
        )
        above = f"<parent><name>{parent}</name></parent>" if parent else ""
        xml = (
            f"<domainsnapshot><name>{name}</name><state>disk-snapshot</state>{above}<creationTime>1700000000"
            f"</creationTime><memory snapshot='no'/><disks>{overlays}</disks>{self.document(*bases)}</domainsnapshot>"
        )
        flags = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_CURRENT
        self.guest.snapshotCreateXML(xml, flags)

    def converge(
        self, meanwhile: t.Callable[[t.Any], object] = lambda _step: None, **options: t.Any
    ) -> dict[str, t.Any]:
        """As the module does; the result of the guest."""
        result = run_snapshot.converge(
            self.connection, {**OPTIONS, **options}, Gate(check_mode=False, meanwhile=meanwhile)
        )
        (found,) = result["results"]
        if found.get("failed"):
            raise Failed(found["msg"])
        return t.cast("dict[str, t.Any]", found)

    def files(self) -> list[str]:
        """What is in the pool."""
        return sorted(path.name for path in self.pool.iterdir() if not path.name.startswith("."))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Place]:
    """The host, with a libvirt that goes back to any snapshot."""
    monkeypatch.setattr(private, "place", lambda: str(tmp_path / "private"))
    monkeypatch.setattr(libvirt_query, "libvirt_version", lambda _connection: 9_009_000)
    pool = tmp_path / "pool"
    pool.mkdir()
    (tmp_path / "node.xml").write_text(NODE.format(pool))
    with opened(f"test://{tmp_path / 'node.xml'}") as connection:
        made = Place(connection, pool)
        monkeypatch.setattr(timer, "arm", lambda unit, _delay_s, *_program: made.armed.append(unit))
        monkeypatch.setattr(timer, "disarm", lambda unit: made.armed.remove(unit) if unit in made.armed else None)
        yield made


def test_no_second_name_stays_of_a_revert_that_fails(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """By that name, the next run would take a disk of the guest for a leftover."""
    monkeypatch.setattr(secrets, "token_hex", lambda _bytes: "0a1b")
    taken = place.pool / "vdb.n.qcow2.reverted.0a1b"
    taken.touch()
    before = place.files()
    with pytest.raises(VirtError, match="File exists"):
        place.converge()
    assert place.files() == before and place.guest.isActive()


def test_a_second_name_that_a_killed_run_left_goes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _bytes: "0a1b")
    with pytest.raises(KeyboardInterrupt):
        place.converge(meanwhile=killed_at(Revert))
    second = place.pool / "vda.n.qcow2.reverted.0a1b"
    os.link(place.on("n", "vda"), second)
    assert (
        f"remove {second}, a second name of {place.on('n', 'vda')}" in place.converge(state="present", **TAKEN)["steps"]
    )
    assert not second.exists() and place.on("n", "vda").exists()


def test_a_disk_that_was_detached_is_kept_from_libvirt(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It removes what all disks of the current snapshot have written, whether or not the guest still has them."""
    place.guest.destroy()
    place.connection.defineXML(place.document(place.on("n", "vda")))
    place.guest.create()

    def revert(_connection: object, _step: Revert) -> None:
        for disk in ("vda", "vdb"):
            place.on("n", disk).unlink()

    monkeypatch.setattr(libvirt_snapshot, "revert", revert)
    content = place.on("n", "vdb").read_bytes()
    done = place.converge()
    assert [note for note in done["notes"] if f"{place.on('n', 'vdb')}, which it wrote to since, is kept" in note]
    assert place.on("n", "vdb").read_bytes() == content and "vda.n.qcow2" not in place.files()
    assert not [name for name in place.files() if ".reverted." in name]


@pytest.mark.parametrize("removed", [False, True])
def test_a_disk_that_was_detached_survives_a_run_that_dies(
    place: Place, monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    """Before or after libvirt has removed the file: the next run finds its second name on record."""
    place.guest.destroy()
    place.connection.defineXML(place.document(place.on("n", "vda")))
    place.guest.create()

    def dies(_connection: object, _step: Revert) -> None:
        for disk in ("vda", "vdb") if removed else ():
            place.on("n", disk).unlink()
        raise KeyboardInterrupt

    content = place.on("n", "vdb").read_bytes()
    with monkeypatch.context() as killed:
        killed.setattr(libvirt_snapshot, "revert", dies)
        killed.setattr(files_snapshot, "unkeep", lambda _names: None)
        killed.setattr(files_snapshot, "give_back", lambda _names: None)
        with pytest.raises(KeyboardInterrupt):
            place.converge()
    assert place.on("n", "vdb").exists() is not removed
    assert [name for name in place.files() if name.startswith("vdb.n.qcow2.reverted.")]
    done = place.converge(state="present", **TAKEN)
    assert [step for step in done["steps"] if "vdb.n.qcow2" in step]
    assert place.on("n", "vdb").read_bytes() == content
    assert not [name for name in place.files() if name.startswith("vdb") and ".reverted." in name]
    again = place.converge(state="present", **TAKEN)
    assert not again["changed"]


def others_use(place: Place) -> None:
    """Another guest comes to use what is about to be removed."""
    other = place.document(place.on("n", "vda")).replace("web1", "web2").replace(UUID, UUID.replace("6", "7"))
    place.connection.defineXML(other)


@pytest.mark.parametrize("name", ["n", "s"])
@pytest.mark.parametrize("run", [False, True])
@pytest.mark.parametrize("others", [None, others_use])
def test_who_stays_off_is_not_started_while_files_are_removed(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str, run: bool, others: t.Callable[[Place], None] | None
) -> None:
    """That waits for others on the host, for longer than systemd waits before it starts the guest of a dead run."""
    armed: list[tuple[str, int]] = []

    def meanwhile(step: object) -> None:
        if isinstance(step, DeleteVolume):
            armed.append((step.path, len(place.armed)))
            assert bool(place.guest.isActive()) is run
            if others:
                others(place)

    def revert(_connection: object, step: Revert) -> None:
        place.guest.destroy()
        for disk in ("vda", "vdb"):
            place.on("n", disk).unlink()
        if step.running:
            place.guest.create()

    monkeypatch.setattr(libvirt_snapshot, "revert", revert)
    options = {"name": name, "confirm": name, "run": run}
    if others and name == "n":
        with pytest.raises(VirtError, match="guest web2 uses it by now"):
            place.converge(meanwhile, **options)
    else:
        place.converge(meanwhile, **options)
    assert armed and {timers for _path, timers in armed} == {0} and place.armed == []
    assert bool(place.guest.isActive()) is run


def test_a_guest_whose_revert_fails_half_way_runs_again(place: Place) -> None:
    """Also one that was to be off then: nobody has asked for this state."""

    def meanwhile(step: object) -> None:
        if isinstance(step, Redefine):
            assert not place.guest.isActive() and place.armed
            raise Failed("cannot go on; run again")

    with pytest.raises(VirtError, match="web1 runs again, on the content of snapshot n"):
        place.converge(meanwhile, name="n", confirm="n", run=False)
    assert place.guest.isActive() and place.armed == []
