"""Which disks of a migrated guest are deleted on the source, and which files on the destination may be replaced."""

from __future__ import annotations

import dataclasses
import json
import typing as t
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query, xml_host
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Volume
from ansible_collections.corral.virt.plugins.module_utils._guest import files_qemu
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._migration import (
    libvirt_migrate,
    plan_preflight,
    run_disk_moves,
    run_endpoints,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    DiskMove,
    Made,
    MigrationHost,
    Move,
    Pool,
)
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_header,
    libvirt_storage,
    libvirt_transfer,
)
from ansible_collections.corral.virt.plugins.module_utils._system import locks
from ansible_collections.corral.virt.tests.golden.case import HOST_URI

IMAGES = "/var/lib/libvirt/images"
DEST = MigrationHost(
    "hyper2",
    "2222",
    "x86_64",
    9_000_000,
    7_002_022,
    4000,
    "<cpu/>",
    (),
    ("test",),
    {},
    pools=(Pool("default", IMAGES, 10**12),),
)
PARAMS: dict[str, t.Any] = {
    "name": "box",
    "dest": "hyper2",
    "storage": "auto",
    "disk_storage": {},
    "pool": None,
    "disk_pool": {},
}
SYSTEM, DATA, SEED = f"{IMAGES}/box-system.qcow2", f"{IMAGES}/box-data.qcow2", f"{IMAGES}/box-seed.iso"
NAMED = "debian-12.1a2b3c4d5e6f.qcow2"


class World(t.NamedTuple):
    """Both hosts, each with a pool that holds no disk of the guest yet."""

    source: t.Any
    dest: t.Any
    verified: set[tuple[t.Any, ...]]

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

    def share(self, *paths: str) -> None:
        """Volumes that the destination sees as well."""
        for path in paths:
            volume(self.dest, path)

    def disks(self, **params: t.Any) -> dict[str, DiskMove]:
        """How the guest's disks are copied, by target."""
        assumed, dest = params.pop("assumed", False), params.pop("dest", DEST)
        found = libvirt_query.find(self.source, "box")
        assert found is not None
        options = {**PARAMS, **params}
        moves, refused = run_disk_moves.disks(t.cast(t.Any, self), options, found, dest, assumed=assumed)
        if refused:
            guest = run_endpoints.guest(self.source, dataclasses.replace(found, live_xml=None, state="shutdown"))
            move = Move("box", found.uuid, "hyper2", "", active=False, refused=tuple(refused))
            plan_preflight.check(move, guest, dataclasses.replace(DEST, uuid="1111"), dest)
        return {move.target: move for move in moves}


@pytest.fixture
def world() -> Iterator[World]:
    """Two hosts; the source has volumes for box."""
    with opened(HOST_URI) as source, opened(HOST_URI) as dest:
        for path in (SYSTEM, DATA, SEED):
            volume(source, path)
        yield World(source, dest, set())


def volume(connection: t.Any, path: str, on: str | None = None, capacity_bytes: int = 1024**3) -> None:
    """A volume in the pool."""
    name = path.rpartition("/")[2]
    made = Volume("default", name, path, capacity_bytes, backing_path=on, backing_format="qcow2" if on else None)
    libvirt_storage.create(connection, "default", xml_host.new_volume(made), name=name)


def disk(path: str, target: str = "vda", more: str = "", device: str = "disk", cache: str = "") -> str:
    """One disk of a definition."""
    bus = "sata" if device == "cdrom" else "virtio"
    form = "qcow2" if path.endswith("qcow2") else "raw"
    cached = f" cache='{cache}'" if cache else ""
    source = f"<driver name='qemu' type='{form}'{cached}/><source file='{path}'/>"
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
    "a CD-ROM is read-only without a word": (
        disk(SYSTEM) + disk(SEED, "sda", "", "cdrom"),
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
    assert {target for target, move in moves.items() if move.delete_source} == expected
    carried = {target for target, move in moves.items() if move.how == "copy"}
    fixed = {target for target in moves if target == "sda" or ("read-only disk" in case and target == "vdb")}
    assert carried == (fixed if active else set(moves))


def test_a_shared_disk_stays(world: World) -> None:
    world.guest(disks=disk(SYSTEM) + disk(DATA, "vdb", "<alias name='ua-data'/>"), active=False)
    world.share(DATA)
    cases: list[tuple[dict[str, t.Any], dict[str, tuple[str, bool]]]] = [
        ({"disk_storage": {"vdb": "shared"}}, {"vda": ("copy", True), "vdb": ("shared", False)}),
        ({"disk_storage": {"data": "shared"}}, {"vda": ("copy", True), "vdb": ("shared", False)}),
        ({"storage": "shared", "disk_storage": {"vda": "full"}}, {"vda": ("copy", True), "vdb": ("shared", False)}),
    ]
    for params, expected in cases:
        assert {target: (move.how, move.delete_source) for target, move in world.disks(**params).items()} == expected
    world.share(SYSTEM)
    assert {move.how for move in world.disks(storage="shared").values()} == {"shared"}


def test_only_what_a_run_to_this_host_made_is_replaced(world: World) -> None:
    volume(world.dest, SYSTEM)
    guest = world.guest(disks=disk(SYSTEM), active=False)
    world.dest.defineXML(guest.XMLDesc())  # what is left of the guest there is none of another guest's
    there = xml_host.volume(world.dest.storageVolLookupByPath(SYSTEM).XMLDesc())
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


def imported_there(monkeypatch: pytest.MonkeyPatch, digest: str) -> None:
    """An image of the destination with a manifest, and what its bytes are. The test driver has no streams."""
    result = {"content": NAMED, "source": "there", "sha256": "1" * 64, "bytes": 1, "checksum": f"sha256:{'0' * 64}"}
    text = json.dumps({**result, "fetched": "2026-01-01T00:00:00+00:00"}).encode()
    monkeypatch.setattr(libvirt_storage, "read", lambda *_told: text)
    monkeypatch.setattr(libvirt_transfer, "digest", lambda *_told: digest)


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
    imported_there(monkeypatch, "1" * 64)
    move = world.disks()["vda"]
    assert (move.how, move.volume and move.volume.backing_path, move.delete_source) == ("delta", base, True)
    world.dest.storageVolLookupByPath(base).delete()
    move = world.disks()["vda"]
    assert (move.how, move.flatten, move.base) == ("full", True, base)
    move = world.disks(assumed=True)["vda"]
    assert (move.how, move.base) == ("delta", base)
    volume(world.dest, base, capacity_bytes=1024**2)
    assert "another size" in world.disks()["vda"].why


@pytest.mark.parametrize(
    ("digest", "assumed", "expected"),
    [
        ("1" * 64, False, ("delta", f"{IMAGES}/{NAMED} is there", None)),
        (
            "2" * 64,
            False,
            (
                "full",
                (
                    f"its base {IMAGES}/{NAMED} was written to on the destination after virt_image imported it: remove "
                    "it there (virt_image)"
                ),
                None,
            ),
        ),
        # virt_image verifies it before anything moves.
        ("2" * 64, True, ("delta", f"{IMAGES}/{NAMED} is imported", f"{IMAGES}/{NAMED}")),
    ],
)
def test_a_base_that_nobody_verified_is_read_there(
    world: World, digest: str, assumed: bool, expected: tuple[str, str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = f"{IMAGES}/{NAMED}"
    for connection in (world.source, world.dest):
        volume(connection, base)
    volume(world.source, f"{IMAGES}/over.qcow2", base)
    imported_there(monkeypatch, digest)
    world.guest(disks=disk(f"{IMAGES}/over.qcow2"))
    move = world.disks(assumed=assumed)["vda"]
    assert (move.how, move.why, move.base) == expected


def test_unused_knows_who_needs_a_file(world: World) -> None:
    volume(world.source, f"{IMAGES}/overlay.qcow2", DATA)
    box = world.guest(disks=disk(SYSTEM)).UUIDString()
    assert run_disk_moves.unused(world.source, [SYSTEM, DATA, SEED], box) == {SYSTEM, SEED}
    assert run_disk_moves.unused(world.source, [SYSTEM, DATA, SEED], "") == {SEED}
    assert run_disk_moves.unused(None, [], "") == set(), "nobody is asked"
    assert run_disk_moves.unused(world.source, ["/elsewhere/a.qcow2"], "") == {"/elsewhere/a.qcow2"}


def configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    """What the source's qemu.conf says."""
    conf = tmp_path / "qemu.conf"
    conf.write_text(text)
    monkeypatch.setattr(files_qemu, "_CONF", str(conf))


# Directories that qemu.conf calls shared, the kind of filesystem; how the disk is copied, and why.
SHARED: list[tuple[str, str | None, tuple[str, str]]] = [
    ("", None, ("full", "no backing file")),
    (f'"{IMAGES}"', None, ("shared", f"on {IMAGES}, declared shared in qemu.conf")),
    (f'"/srv", "{IMAGES}/"', None, ("shared", f"on {IMAGES}/, declared shared in qemu.conf")),
    ('"/var/lib"', None, ("shared", "on /var/lib, declared shared in qemu.conf")),
    ('"/"', None, ("shared", "on /, declared shared in qemu.conf")),
    ('"/var/li"', None, ("full", "no backing file")),
    (f'"{SYSTEM}"', None, ("full", "no backing file")),
    (f'"{IMAGES}"', "nfs4", ("shared", "on nfs4")),
    ("", "nfs4", ("shared", "on nfs4")),
]


@pytest.mark.parametrize(("directories", "filesystem", "expected"), SHARED)
def test_a_disk_stays_on_storage_that_both_hosts_have(
    world: World,
    directories: str,
    filesystem: str | None,
    expected: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    configured(monkeypatch, tmp_path, f"shared_filesystems = [ {directories} ]\n" if directories else "")
    monkeypatch.setattr(locks, "shared_filesystem", {SYSTEM: filesystem}.get)
    world.guest(disks=disk(SYSTEM))
    if expected[0] == "shared":
        assert world.disks(storage="full")["vda"].how == "full"
        world.share(SYSTEM)
    move = world.disks()["vda"]
    assert (move.how, move.why) == expected


TAKEN_BACK = (
    f"cannot migrate box to hyper2: disk vda: libvirt does not know that {SYSTEM} is shared, and would {{}} when the "
    "guest has left; add its directory to shared_filesystems in /etc/libvirt/qemu.conf on both hosts, if libvirt has "
    "that setting, or migrate the guest while it is off"
)
OWNER, LABEL = "change its owner (dynamic_ownership)", "change its SELinux label"
CACHED = (
    "cannot migrate box to hyper2: disk vda: {} is not safe on storage that only the task declares as shared; set "
    "cache: none, and restart the guest"
)
# qemu.conf, the source's security drivers, the cache; why a running guest does not move.
VOUCHED: list[tuple[str, list[str], str, str]] = [
    ("dynamic_ownership = 0", [], "none", ""),
    ("dynamic_ownership = 0", ["apparmor"], "none", ""),
    ("", [], "none", TAKEN_BACK.format(OWNER)),
    ("dynamic_ownership = 0", ["selinux"], "none", TAKEN_BACK.format(LABEL)),
    ("", ["dac", "selinux"], "none", TAKEN_BACK.format(f"{OWNER} and {LABEL}")),
    ("dynamic_ownership = 0", [], "", CACHED.format("the default cache")),
]


@pytest.mark.parametrize(("conf", "drivers", "cache", "refused"), VOUCHED)
def test_a_disk_that_only_the_user_calls_shared(
    world: World,
    conf: str,
    drivers: list[str],
    cache: str,
    refused: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    configured(monkeypatch, tmp_path, conf)
    models = "".join(f"<secmodel><model>{driver}</model></secmodel>" for driver in drivers)
    capabilities = f"<capabilities><host><cpu><arch>x86_64</arch></cpu>{models}</host></capabilities>"
    monkeypatch.setattr(libvirt_query, "capabilities", {world.source: capabilities}.__getitem__)
    world.guest(disks=disk(SYSTEM, cache=cache))
    world.share(SYSTEM)
    if refused:
        with pytest.raises(Refused, match=r"^cannot migrate box to hyper2: ") as why:
            world.disks(storage="shared")
        assert str(why.value) == refused
    else:
        assert world.disks(storage="shared")["vda"] == DiskMove(
            "vda", SYSTEM, "shared", "on storage declared as shared", delete_source=False, vouched=True
        )
    configured(monkeypatch, tmp_path, f'{conf}\nshared_filesystems = [ "{IMAGES}" ]\n')
    move = world.disks(storage="shared")["vda"]
    assert (move.vouched, move.why) == (False, f"on {IMAGES}, declared shared in qemu.conf")


# qemu.conf, the source's security drivers; whether libvirt takes a disk on NFS back when it ends a copy of its guest.
TAKES: list[tuple[str, list[str], bool]] = [
    ("", [], True),
    ("dynamic_ownership = 0", ["apparmor"], False),
    ("dynamic_ownership = 0", ["selinux"], True),
]


@pytest.mark.parametrize(("conf", "drivers", "takes"), TAKES)
def test_a_disk_that_the_end_of_a_copy_takes_from_the_destination(
    world: World, conf: str, drivers: list[str], takes: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a shared disk that the guest writes to, and that nobody else has."""
    configured(monkeypatch, tmp_path, conf)
    models = "".join(f"<secmodel><model>{driver}</model></secmodel>" for driver in drivers)
    capabilities = f"<capabilities><host><cpu><arch>x86_64</arch></cpu>{models}</host></capabilities>"
    monkeypatch.setattr(libvirt_query, "capabilities", {world.source: capabilities}.__getitem__)
    monkeypatch.setattr(locks, "shared_filesystem", {SYSTEM: "nfs4", SEED: "nfs4"}.get)
    data = disk(DATA, "vdb") + disk(SEED, "sda", "<readonly/>", "cdrom")
    for system, more in ((SYSTEM, ""), (DATA, ""), (SYSTEM, "<shareable/>"), (SYSTEM, "<readonly/>")):
        world.guest(active=False, disks=disk(system, more=more) + (data if system != DATA else ""))
        found = libvirt_query.find(world.source, "box")
        assert found is not None
        expected = (SYSTEM,) if takes and system == SYSTEM and not more else ()
        assert run_disk_moves.taken_back(t.cast(t.Any, world), found) == expected
    world.guest(disks=named("default", "box-system.qcow2"))
    world.guest(disks=data, active=False)  # its definition, not what runs
    found = libvirt_query.find(world.source, "box")
    assert found is not None
    assert run_disk_moves.taken_back(t.cast(t.Any, world), found) == ((SYSTEM,) if takes else ())


def test_a_block_device_that_the_user_calls_shared_is_taken_for_it(world: World) -> None:
    """libvirt gives its owner back on each host alone."""
    world.guest(
        disks="<disk type='block' device='disk'><driver name='qemu' type='raw'/><source dev='/dev/san/box'/>"
        "<target dev='vda' bus='virtio'/></disk>"
    )
    assert world.disks(storage="shared")["vda"] == DiskMove(
        "vda", "/dev/san/box", "shared", "on storage declared as shared", delete_source=False
    )


def named(pool: str, name: str, target: str = "vda") -> str:
    """A disk whose definition names a volume."""
    return (
        f"<disk type='volume' device='disk'><driver name='qemu' type='qcow2'/><source pool='{pool}' volume='{name}'/>"
        f"<target dev='{target}' bus='virtio'/></disk>"
    )


def test_a_disk_that_is_named_by_its_volume_travels_as_its_file(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = world.guest(disks=disk(SYSTEM) + named("default", "box-data.qcow2", "vdb"), active=False)
    assert {target: (move.path, move.how, move.delete_source) for target, move in world.disks().items()} == {
        "vda": (SYSTEM, "copy", True),
        "vdb": (DATA, "copy", True),
    }
    guest.create()
    moves = world.disks()
    assert {target: (move.how, move.flatten) for target, move in moves.items()} == {
        "vda": ("full", False),
        "vdb": ("full", True),
    }
    monkeypatch.setattr(locks, "shared_filesystem", {SYSTEM: "nfs4", DATA: "nfs4"}.get)
    with pytest.raises(
        Refused, match=f"disk vdb: {DATA} is on nfs4, and pool default of the destination does not have"
    ):
        world.disks()
    volume(world.dest, DATA)
    refreshed: list[object] = []
    monkeypatch.setattr(libvirt_storage, "refresh", lambda connection, pool: refreshed.append((connection, pool)))
    world.share(SYSTEM)
    assert world.disks()["vdb"].why == "on nfs4"
    assert refreshed == [(world.dest, "default")], "else libvirt there does not know what this host made"


def test_a_volume_that_is_not_the_same_on_both_hosts_is_refused(world: World) -> None:
    """Its definition would name another disk there."""
    world.dest.storagePoolLookupByName("default").destroy()
    world.dest.storagePoolLookupByName("default").undefine()
    other = "<pool type='dir'><name>{}</name><target><path>{}</path></target></pool>"
    world.dest.storagePoolCreateXML(other.format("images", IMAGES))
    world.guest(disks=named("default", "box-data.qcow2"), active=False)
    dest = dataclasses.replace(DEST, pools=(Pool("images", IMAGES, 10**12), Pool("default", "/srv", 10**12)))
    with pytest.raises(Refused, match=rf"default is {DATA} on the source, and is missing on the dest"):
        world.disks(dest=dest)
    world.dest.storagePoolCreateXML(other.format("default", "/srv"))
    with pytest.raises(Refused, match=rf"default is {DATA} on the source, and would be /srv/box-data.qcow2 on the"):
        world.disks(dest=dest)


def test_a_pool_of_the_destination_that_is_not_active_is_told_with_all_the_rest(world: World) -> None:
    world.dest.storagePoolLookupByName("default").destroy()
    world.guest(disks=named("default", "box-data.qcow2"), active=False)
    with pytest.raises(
        Refused,
        match=r"the guest has no disk vdx; did you mean vda\?; disk vda: .* is missing on the destination; create and start",
    ):
        world.disks(disk_storage={"vdx": "full"}, dest=dataclasses.replace(DEST, pools=()))


def test_disks_that_only_the_definition_has_are_pending_however_it_names_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "shared_filesystem", {DATA: "nfs4"}.get)
    volume(world.dest, DATA)
    world.guest(disks=disk(SYSTEM) + named("default", "box-data.qcow2", "vdb"))
    assert set(world.disks()) == {"vda", "vdb"}
    world.guest(disks=disk(SYSTEM) + disk(DATA, "vdb"), active=False)  # the definition, which names the same files
    assert set(world.disks()) == {"vda", "vdb"}
    more = named("default", "box-seed.iso", "vdc")
    world.guest(disks=disk(SYSTEM) + disk(DATA, "vdb") + more, active=False)
    with pytest.raises(Refused, match=f"disk {SEED} is pending until the next boot"):
        world.disks()


ON_NETWORK = (
    "<disk type='network' device='disk'><driver name='qemu' type='raw' cache='none'/><source protocol='rbd' "
    "name='pool/box'><host name='mon1'/></source><target dev='vdb' bus='virtio'/></disk>"
)


@pytest.mark.parametrize("active", [True, False])
def test_a_disk_on_the_network_is_left_there(world: World, active: bool) -> None:
    world.guest(disks=disk(SYSTEM) + ON_NETWORK, active=active)
    moves = world.disks()
    assert (moves["vda"].delete_source, moves["vda"].how) == (True, "full" if active else "copy")
    assert moves["vdb"] == DiskMove("vdb", "pool/box", "shared", "on the network (rbd)", delete_source=False)
    with pytest.raises(Refused, match=r"disk vdb: it is on the network \(rbd\), and is not copied"):
        world.disks(storage="full")
    assert world.disks(storage="full", disk_storage={"vdb": "shared"})["vdb"].how == "shared"


def test_a_disk_whose_data_is_in_another_file_is_not_copied_as_a_file(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_header, "other_files", lambda path: ["/srv/system.raw"] if path == SYSTEM else [])
    guest = world.guest(disks=disk(SYSTEM) + disk(DATA, "vdb"), active=False)
    with pytest.raises(
        Refused, match=r"^cannot migrate box to hyper2: disk vda: its data is in /srv/system.raw, which"
    ):
        world.disks()
    guest.create()
    assert {move.how for move in world.disks().values()} == {"full"}


def test_what_a_guest_keeps_beside_its_disks_counts_where_only_this_host_has_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest = world.guest(disks=disk(SYSTEM), active=False)
    memory = "<memory model='nvdimm'><source><path>{}</path></source></memory>"
    xml = guest.XMLDesc().replace("<devices>", "<devices>" + memory.format("/own/m") + memory.format("/nfs/m"))
    found = libvirt_query.find(world.source, "box")
    assert found is not None
    monkeypatch.setattr(locks, "shared_filesystem", {"/nfs/m": "nfs4"}.get)
    assert run_endpoints.guest(world.source, dataclasses.replace(found, xml=xml)).local_state == (
        ("/own/m", None),
        ("/nfs/m", "nfs4"),
    )


@pytest.mark.parametrize("storage_of", [{}, {"storage": "shared"}])
@pytest.mark.parametrize("active", [True, False])
def test_shared_storage_that_is_not_mounted_on_the_destination_is_refused(
    world: World, storage_of: dict[str, str], active: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guest would get whatever has the path of its disk there, or nothing."""
    monkeypatch.setattr(locks, "shared_filesystem", lambda _path: "nfs4")
    world.guest(disks=disk(SYSTEM), active=active)
    with pytest.raises(Refused, match=f"{SYSTEM} is on nfs4, and pool default of the destination does not have it"):
        world.disks(**storage_of)
    volume(world.dest, SYSTEM)
    assert world.disks(**storage_of)["vda"].why == "on nfs4"
    world.dest.storageVolLookupByPath(SYSTEM).delete()
    volume(world.dest, SYSTEM, capacity_bytes=1024**2)
    with pytest.raises(Refused, match="pool default of the destination has another file there; mount the same"):
        world.disks(**storage_of)


def test_a_shared_file_grows_only_while_its_guest_runs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "shared_filesystem", lambda _path: "nfs4")
    volume_at = libvirt_storage.volume_at

    def told(connection: t.Any, path: str) -> str | None:
        xml, length = volume_at(connection, path), 2 if connection is world.dest else 1
        return xml and xml.replace("</capacity>", f"</capacity><physical>{length}</physical>", 1)

    monkeypatch.setattr(libvirt_storage, "volume_at", told)
    guest = world.guest(disks=disk(SYSTEM), active=False)
    world.share(SYSTEM)
    with pytest.raises(Refused, match="has another file there"):
        world.disks()
    guest.create()
    assert world.disks()["vda"].how == "shared"


def test_a_shared_file_that_is_listed_on_the_destination_and_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its libvirt has not looked since the filesystem was unmounted."""
    monkeypatch.setattr(locks, "shared_filesystem", lambda _path: "nfs4")
    volume_at = libvirt_storage.volume_at
    refreshed: list[object] = []

    def gone(connection: t.Any, path: str) -> str | None:
        if connection is world.dest and not refreshed:
            raise Failed("cannot open volume")
        return volume_at(connection, path)

    monkeypatch.setattr(libvirt_storage, "volume_at", gone)
    monkeypatch.setattr(libvirt_storage, "refresh", lambda *place: refreshed.append(place))
    world.guest(disks=disk(SYSTEM))
    with pytest.raises(Refused, match="pool default of the destination does not have it"):
        world.disks()
    assert refreshed == [(world.dest, "default")]


def test_a_file_that_two_drives_have_is_refused_where_it_would_be_copied(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    drives = disk(SEED, "sda", READONLY, "cdrom") + disk(SEED, "sdb", READONLY, "cdrom")
    world.guest(disks=disk(SYSTEM) + drives)
    with pytest.raises(Refused, match=rf"disks sda and sdb are one file, {SEED}, and would be copied twice"):
        world.disks()
    monkeypatch.setattr(locks, "shared_filesystem", {SEED: "nfs4"}.get)
    world.share(SEED)
    assert world.disks()["sdb"].how == "shared"


def test_a_read_only_volume_stays_on_the_source(world: World) -> None:
    """Somebody else may read it, too."""
    drive = named("default", "box-seed.iso", "sda").replace("</disk>", READONLY + "</disk>")
    world.guest(disks=disk(SYSTEM) + drive, active=False)
    moves = world.disks()
    assert {target: move.delete_source for target, move in moves.items()} == {"vda": True, "sda": False}


def test_what_came_to_the_destination_behind_libvirts_back_is_in_the_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refresh(connection: t.Any, pool: str) -> None:
        if connection is world.dest and pool == "default" and libvirt_storage.volume_at(connection, SYSTEM) is None:
            volume(connection, SYSTEM)

    monkeypatch.setattr(libvirt_storage, "refresh", refresh)
    world.guest(disks=disk(SYSTEM))
    with pytest.raises(Refused, match=f"{SYSTEM} already exists on the destination"):
        world.disks()


def test_a_disk_without_a_medium_is_none(world: World) -> None:
    world.guest(disks=disk(SYSTEM) + "<disk type='file' device='cdrom'><target dev='sda' bus='sata'/></disk>")
    assert list(world.disks()) == ["vda"]
    with pytest.raises(
        Refused, match=r"^cannot migrate box to hyper2: disk_storage: the guest has no disk sda; did you mean vda\?$"
    ):
        world.disks(disk_storage={"sda": "full"})


def test_a_file_that_came_behind_libvirts_back_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    late, refreshed = f"{IMAGES}/late.qcow2", []

    def refresh(connection: t.Any, pool: str) -> None:
        refreshed.append(("source" if connection is world.source else "dest", pool))
        if connection is world.source and libvirt_storage.volume_at(connection, late) is None:
            volume(connection, late)

    monkeypatch.setattr(libvirt_storage, "refresh", refresh)
    world.guest(disks=disk(late) + disk(SYSTEM, "vdb"))
    move = world.disks()["vda"]
    assert (move.how, move.volume and move.volume.capacity_bytes, move.delete_source) == ("full", 1024**3, True)
    assert refreshed.count(("dest", "default")) == 1 and {*refreshed} == {("dest", "default"), ("source", "default")}


@pytest.mark.parametrize("form", ["qcow2", "raw"])
def test_a_file_that_is_in_no_pool_of_the_source_is_refused(world: World, form: str) -> None:
    path = f"/srv/box.{form}"
    world.dest.storagePoolCreateXML("<pool type='dir'><name>srv</name><target><path>/srv</path></target></pool>")
    world.guest(disks=disk(path))
    host = dataclasses.replace(DEST, pools=(Pool("srv", "/srv", 10**12),))
    with pytest.raises(Refused, match=r"^cannot migrate box to hyper2: disk vda: ") as why:
        world.disks(dest=host)
    assert str(why.value).endswith(
        f"{path} is in no active storage pool of the source; create a pool for its directory"
    )


def test_a_raw_disk_is_as_long_as_its_file_and_stands_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its guest wrote where a header would be."""
    path, base = f"{IMAGES}/box.img", f"{IMAGES}/{NAMED}"
    document = (
        f"<volume><capacity>{10**15}</capacity><allocation>4096</allocation><physical>{{}}</physical>"
        f"<backingStore><path>{base}</path><format type='qcow2'/></backingStore>"
        f"<target><path>{path}</path><format type='qcow2'/></target></volume>"
    )
    world.guest(disks=disk(path))
    for result, length in ((8192, 8192), (0, 10**15)):
        documents = {path: document.format(result)}
        monkeypatch.setattr(libvirt_storage, "volume_at", lambda _connection, path, known=documents: known.get(path))
        move = world.disks()["vda"]
        assert (move.how, move.why, move.volume) == (
            "full",
            "no backing file",
            Volume("default", "box.img", path, length, "raw"),
        )


def test_a_disk_that_another_image_came_to_stand_on_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    over = f"{IMAGES}/over.qcow2"

    def refresh(connection: t.Any, pool: str) -> None:
        if connection is world.source and pool == "default" and libvirt_storage.volume_at(connection, over) is None:
            volume(connection, over, DATA)

    monkeypatch.setattr(libvirt_storage, "refresh", refresh)
    assert run_disk_moves.unused(world.source, [SYSTEM, DATA], "") == {SYSTEM}


def test_the_images_that_save_a_copy_are_those_with_a_manifest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    checksum, odd = f"sha256:{'0' * 64}", "alma-9.0123456789ab.qcow2"
    result = {"sha256": "1" * 64, "bytes": 1, "checksum": checksum, "fetched": "2026-01-01T00:00:00+00:00"}
    text = json.dumps({**result, "content": NAMED, "source": "there"}).encode()
    manifests = {
        f".{NAMED}.json": text,
        f".{odd}.json": text.replace(NAMED.encode(), odd.encode()).replace(b"there", b"caf\xe9"),
    }

    def read(connection: t.Any, pool: str, name: str) -> bytes | None:
        assert (connection, pool) == (world.source, "default")
        return manifests.get(name)

    monkeypatch.setattr(libvirt_storage, "read", read)  # the test driver has no streams
    bases = [f"{IMAGES}/{NAMED}", None, f"{IMAGES}/golden.qcow2", f"/elsewhere/{NAMED}", f"{IMAGES}/{NAMED}"]
    bases.append(f"{IMAGES}/{odd}")
    moves = [DiskMove(f"vd{number}", SYSTEM, "full", "", base=base) for number, base in enumerate(bases)]
    assert run_disk_moves.images(world.source, moves) == [
        {"name": "alma-9.qcow2", "pool": "default", "checksum": checksum, "content": odd},
        {"name": "debian-12.qcow2", "pool": "default", "checksum": checksum, "content": NAMED},
    ]
    manifests[f".{NAMED}.json"] = b"{"
    with pytest.raises(Failed, match=rf"^cannot read the manifest of {IMAGES}/{NAMED}: "):
        run_disk_moves.images(world.source, moves)


@pytest.mark.parametrize("mode", ["shared", "auto"])
def test_the_destination_does_not_read_its_pool_for_a_disk_that_stays_and_that_it_knows(
    world: World, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "shared_filesystem", lambda _path: "nfs4")

    def refresh(connection: t.Any, _pool: str) -> None:
        assert connection is world.source, "its filesystem is that of the source"

    monkeypatch.setattr(libvirt_storage, "refresh", refresh)
    world.guest(disks=disk(SYSTEM), active=False)
    world.share(SYSTEM)
    assert world.disks(storage=mode)["vda"].why == "on nfs4"


# Pools of the destination, and storage that is no file --------------------------------------------------------------

FAST = dataclasses.replace(DEST, pools=(*DEST.pools, Pool("fast", "/srv/fast", 10**12)))
_POOL = "<pool type='{}'><name>{}</name><source>{}</source><target><path>/srv/{}</path></target></pool>"


@pytest.mark.parametrize(
    ("params", "paths"),
    [
        ({"disk_pool": {"vdb": "fast"}}, {"vda": SYSTEM, "vdb": "/srv/fast/box-data.qcow2"}),
        ({"pool": "fast", "disk_pool": {"vda": "default"}}, {"vda": SYSTEM, "vdb": "/srv/fast/box-data.qcow2"}),
    ],
)
def test_copies_go_into_the_pool_that_was_asked_for(
    world: World, params: dict[str, t.Any], paths: dict[str, str]
) -> None:
    world.dest.storagePoolCreateXML(_POOL.format("dir", "fast", "", "fast"))
    world.guest(disks=disk(SYSTEM) + disk(DATA, "vdb"))
    moves = world.disks(dest=FAST, **params)
    assert {target: move.dest_path for target, move in moves.items()} == paths
    assert {move.path for move in moves.values()} == {SYSTEM, DATA}, "which are removed here"


def test_all_that_is_wrong_with_pools_is_told(world: World) -> None:
    world.guest(disks=disk(SYSTEM) + disk(DATA, "vdb"))
    with pytest.raises(Refused) as refused:  # noqa: PT011 (its whole text is compared)
        world.disks(dest=FAST, pool="fsat", disk_pool={"vdc": "fast", "vdb": "none"})
    assert str(refused.value) == (
        "cannot migrate box to hyper2: disk_pool: the guest has no disk vdc; did you mean vdb?; hyper2 has no storage pool "
        "fsat; did you mean fast?; hyper2 has no storage pool none"
    )


def test_which_pools_take_no_disks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"libvirt_version": 9000000, "qemu_version": 7002022, "memory_free_mib": 1}
    monkeypatch.setattr(libvirt_migrate, "endpoint_facts", lambda _connection: facts)  # not of the test driver
    groups = (("logical", "vg", "<name>vg</name>"), ("disk", "parts", "<device path='/dev/sdz'/>"))
    for kind, name, source in (("dir", "off", ""), *groups, ("netfs", "nfs", NFS)):
        made = world.dest.storagePoolDefineXML(_POOL.format(kind, name, source, name))
        if name != "off":
            made.create()
    host = run_endpoints.host(world.dest)
    assert {pool.name: pool.logical for pool in host.pools} == {"default": False, "nfs": False, "vg": True}
    assert host.unusable_pools == {
        "off": "is not active; start it there (virt_pool state: active)",
        "parts": "is of type disk, which takes no copies of disks; choose a dir, fs, netfs or logical pool",
    }


NFS = "<host name='nas'/><dir path='/export'/><format type='nfs'/>"
BLOCK = (
    "<disk type='block' device='disk'><driver name='qemu' type='raw' cache='none'/><source dev='/dev/vg/box'/>"
    "<target dev='vda' bus='virtio'/></disk>"
)
LUN = "<volume><name>box</name><capacity>1048576</capacity></volume>"


@pytest.mark.parametrize("declared", [True, False])
def test_a_block_device_that_libvirt_knows_on_both_hosts_is_compared(world: World, declared: bool) -> None:
    """The test driver makes up a key, which identifies nothing beyond a host."""
    params = {"disk_storage": {"vda": "shared"}} if declared else {}
    world.guest(disks=BLOCK, active=False)
    for connection, told in (
        (world.source, "libvirt of the destination does not know it"),
        (world.dest, "nothing identifies it"),
    ):
        pool = connection.storagePoolDefineXML(_POOL.format("logical", "vg", "<name>vg</name>", "vg"))
        pool.create()
        pool.createXML(LUN)
        if declared:
            assert world.disks(**params)["vda"].how == "shared"
        else:
            with pytest.raises(Refused, match=f"disk vda: block device /dev/vg/box is not copied, and {told}"):
                world.disks()
    world.dest.storageVolLookupByPath("/dev/vg/box").delete()
    world.dest.storagePoolLookupByName("vg").createXML(LUN.replace("1048576", "2097152"))
    with pytest.raises(Refused, match="it has 1048576 bytes here and 2097152 on the destination"):
        world.disks(**params)


RBD = "<host name='{}'/><name>{}</name>"


@pytest.mark.parametrize(
    ("there", "refused"),
    [
        (("mon1", "vms"), ""),
        (("mon2", "vms"), "the pool is rbd mon1 vms here and rbd mon2 vms on the destination"),
    ],
)
def test_pools_on_the_network_of_one_name_are_compared_by_their_source(
    world: World, monkeypatch: pytest.MonkeyPatch, there: tuple[str, str], refused: str
) -> None:
    monkeypatch.setattr(libvirt_storage, "path_in", lambda _connection, pool, name: f"{pool}/{name}")
    for connection, source in ((world.source, ("mon1", "vms")), (world.dest, there)):
        connection.storagePoolCreateXML(_POOL.format("rbd", "ceph", RBD.format(*source), "ceph"))
    world.guest(disks=named("ceph", "box"))
    if refused:
        with pytest.raises(Refused, match=refused):
            world.disks()
    else:
        assert world.disks()["vda"].why == "on the network (pool ceph)"
