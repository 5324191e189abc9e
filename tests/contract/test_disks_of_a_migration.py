"""Which disks of a migrated guest are deleted on the source, and which files on the destination may be replaced."""

from __future__ import annotations

import dataclasses
import typing as t
import uuid
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.plugins.module_utils._errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._front import travel
from ansible_collections.corral.virt.plugins.module_utils._libvirt import look, storage
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._model.domain import Volume
from ansible_collections.corral.virt.plugins.module_utils._model.move import DiskMove, Host, Made, Pool
from ansible_collections.corral.virt.plugins.module_utils._xml import caps
from ansible_collections.corral.virt.tests.golden.case import HOST_URI

IMAGES = "/var/lib/libvirt/images"
DEST = Host(
    "hyper2",
    "2222",
    "x86_64",
    9_000_000,
    7_002_022,
    4000,
    "<cpu/>",
    (),
    ("kvm",),
    {},
    pools=(Pool("default", IMAGES, 10**12),),
)
PARAMS: dict[str, t.Any] = {"name": "box", "dest": "hyper2", "storage": "auto", "disk_storage": {}}
SYSTEM, DATA, SEED = f"{IMAGES}/box-system.qcow2", f"{IMAGES}/box-data.qcow2", f"{IMAGES}/box-seed.iso"
NAMED = "debian-12.1a2b3c4d5e6f.qcow2"


class World(t.NamedTuple):
    """Both hosts, each with a pool that holds no disk of the guest yet."""

    source: t.Any
    dest: t.Any

    def guest(self, name: str = "box", *, active: bool = True, record: str = "", disks: str) -> t.Any:
        """Define a guest with those disks on the source."""
        xml = (
            f"<domain type='test'><name>{name}</name><uuid>{uuid.uuid5(uuid.NAMESPACE_DNS, name)}</uuid>"
            f"<memory>1024</memory><os><type>hvm</type></os>"
            "<metadata><c:guest "
            f"xmlns:c='urn:corral:virt:guest:1'>{record}</c:guest></metadata><devices>{disks}</devices></domain>"
        )
        guest = self.source.defineXML(xml)
        if active:
            guest.create()
        return guest

    def disks(self, **params: t.Any) -> dict[str, DiskMove]:
        """How the guest's disks are copied, by target."""
        assumed = params.pop("assumed", False)
        found = look.find(self.source, "box")
        assert found is not None
        moves = travel.disks(t.cast(t.Any, self), {**PARAMS, **params}, found, DEST, assumed=assumed)
        return {move.target: move for move in moves}


@pytest.fixture
def world() -> Iterator[World]:
    """Two hosts; the source has volumes for box."""
    with opened(HOST_URI) as source, opened(HOST_URI) as dest:
        for path in (SYSTEM, DATA, SEED):
            volume(source, path)
        yield World(source, dest)


def volume(connection: t.Any, path: str, on: str | None = None, capacity_bytes: int = 1024**3) -> None:
    """A volume in the pool."""
    name = path.rpartition("/")[2]
    made = Volume("default", name, path, capacity_bytes, backing_path=on, backing_format="qcow2" if on else None)
    storage.create(connection, "default", caps.new_volume(made), name=name)


def disk(path: str, target: str = "vda", more: str = "", device: str = "disk") -> str:
    """One disk of a definition."""
    bus = "sata" if device == "cdrom" else "virtio"
    form = "qcow2" if path.endswith("qcow2") else "raw"
    source = f"<driver name='qemu' type='{form}'/><source file='{path}'/>"
    return f"<disk type='file' device='{device}'>{source}{more}<target dev='{target}' bus='{bus}'/></disk>"


def owned(*paths: str) -> str:
    """A record that says which volumes were made for the guest."""
    return "".join(f"<c:volume>{path}</c:volume>" for path in paths)


READONLY = "<readonly/>"
# Disks of the guest, its record, another guest's disks, an overlay's base; targets whose file is deleted on the source.
GOES: dict[str, tuple[str, str, str, str | None, set[str]]] = {
    "copied disks go": (disk(SYSTEM) + disk(DATA, "vdb"), "", "", None, {"vda", "vdb"}),
    "one that an image stands on stays": (disk(SYSTEM) + disk(DATA, "vdb"), "", "", DATA, {"vda"}),
    "one that another guest has stays": (disk(SYSTEM) + disk(DATA, "vdb"), "", disk(SYSTEM), None, {"vdb"}),
    "one below another guest's disk stays": (
        disk(SYSTEM),
        "",
        disk(
            "/elsewhere/x.qcow2",
            more=f"<backingStore type='file'><format type='qcow2'/><source file='{SYSTEM}'/></backingStore>",
        ),
        None,
        set(),
    ),
    "a CD-ROM that was not made for it stays": (
        disk(SYSTEM) + disk(SEED, "sda", READONLY, "cdrom"),
        "",
        "",
        None,
        {"vda"},
    ),
    "a CD-ROM that was made for it goes": (
        disk(SYSTEM) + disk(SEED, "sda", READONLY, "cdrom"),
        owned(SEED),
        "",
        None,
        {"vda", "sda"},
    ),
    "a read-only disk that was not made for it stays": (
        disk(SYSTEM) + disk(DATA, "vdb", READONLY),
        owned(SYSTEM),
        "",
        None,
        {"vda"},
    ),
    "a read-only disk that was made for it goes": (disk(DATA, "vdb", READONLY), owned(DATA), "", None, {"vdb"}),
    "one made for it that another guest has stays": (
        disk(SEED, "sda", READONLY, "cdrom"),
        owned(SEED),
        disk(SEED),
        None,
        set(),
    ),
}


@pytest.mark.parametrize("case", GOES)
@pytest.mark.parametrize("active", [True, False], ids=["running", "off"])
def test_what_is_deleted_on_the_source(world: World, case: str, active: bool) -> None:
    disks, record, others, overlay_on, expected = GOES[case]
    world.guest(disks=disks, record=record, active=active)
    if others:
        world.guest("other", disks=others, active=False)
    if overlay_on:
        volume(world.source, f"{IMAGES}/overlay.qcow2", overlay_on)
    moves = world.disks()
    assert {target for target, move in moves.items() if move.goes} == expected
    carried = {target for target, move in moves.items() if move.how == "carry"}
    fixed = {target for target in moves if target == "sda" or ("read-only disk" in case and target == "vdb")}
    assert carried == (fixed if active else set(moves))


def test_a_shared_disk_stays(world: World) -> None:
    world.guest(disks=disk(SYSTEM) + disk(DATA, "vdb"), active=False)
    cases: list[tuple[dict[str, t.Any], dict[str, tuple[str, bool]]]] = [
        ({"storage": "shared"}, {"vda": ("shared", False), "vdb": ("shared", False)}),
        ({"disk_storage": {"vdb": "shared"}}, {"vda": ("carry", True), "vdb": ("shared", False)}),
        ({"storage": "shared", "disk_storage": {"vda": "full"}}, {"vda": ("carry", True), "vdb": ("shared", False)}),
    ]
    for params, expected in cases:
        assert {target: (move.how, move.goes) for target, move in world.disks(**params).items()} == expected


def test_only_what_a_run_to_this_host_made_is_replaced(world: World) -> None:
    volume(world.dest, SYSTEM)
    there = caps.volume(world.dest.storageVolLookupByPath(SYSTEM).XMLDesc())
    entry = Made(Made.MADE, there["capacity_bytes"], there["changed"], SYSTEM)
    moving, made = "<c:moving from='1111'>{}</c:moving>", "<c:moving-made>{}</c:moving-made>"
    for record, replace in [
        (moving.format("hyper2") + made.format(entry), True),
        (moving.format("hyper2") + made.format(dataclasses.replace(entry, size_bytes=entry.size_bytes + 1)), False),
        (moving.format("hyper2") + made.format(SYSTEM), False),  # as earlier versions wrote it: only planned
        (moving.format("hyper3") + made.format(entry), False),
        (moving.format("hyper2"), False),
        ("", False),
    ]:
        world.guest(disks=disk(SYSTEM), record=record, active=False)
        if replace:
            assert world.disks()["vda"].replace
        else:
            with pytest.raises(Refused, match="no migration of this guest created it"):
                world.disks()


def test_all_disks_that_cannot_be_copied_are_named(world: World) -> None:
    disks = disk(SYSTEM) + disk("/nowhere/a.qcow2", "vdb")
    world.guest(disks=disks)
    world.guest(disks=disks + disk(DATA, "vdc"), active=False)  # the definition alone; it runs with the others
    with pytest.raises(Refused, match="no disk vdx") as refused:
        world.disks(disk_storage={"vdx": "full"})
    text = str(refused.value)
    assert f"disk {DATA} is pending until the next boot" in text and "no active storage pool at /nowhere" in text


def test_a_base_is_looked_for_on_both_hosts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    base = f"{IMAGES}/{NAMED}"
    for connection in (world.source, world.dest):
        volume(connection, base)
    volume(world.source, f"{IMAGES}/over.qcow2", base)
    world.guest(disks=disk(f"{IMAGES}/over.qcow2"))
    move = world.disks()["vda"]
    assert (move.how, move.flatten, move.base) == ("full", True, base), (
        "without a manifest it is not known to be the same"
    )
    monkeypatch.setattr(travel._Look, "_verdict", lambda _self, _base: "same")
    move = world.disks()["vda"]
    assert (move.how, move.volume and move.volume.backing_path, move.goes) == ("delta", base, True)
    world.dest.storageVolLookupByPath(base).delete()
    move = world.disks()["vda"]
    assert (move.how, move.flatten, move.base) == ("full", True, base)
    move = world.disks(assumed=True)["vda"]
    assert (move.how, move.base) == ("delta", base)
    volume(world.dest, base, capacity_bytes=1024**2)
    assert "another size" in world.disks()["vda"].why


def test_unused_knows_who_needs_a_file(world: World) -> None:
    volume(world.source, f"{IMAGES}/overlay.qcow2", DATA)
    box = world.guest(disks=disk(SYSTEM)).UUIDString()
    assert travel.unused(world.source, [SYSTEM, DATA, SEED], box) == {SYSTEM, SEED}
    assert travel.unused(world.source, [SYSTEM, DATA, SEED], "") == {SEED}
    assert travel.unused(world.source, [], "") == set()
    assert travel.unused(world.source, ["/elsewhere/a.qcow2"], "") == {"/elsewhere/a.qcow2"}
