"""What both hosts are asked about a disk that moves, in which order, and what the base there is worth."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Manifest
from ansible_collections.corral.virt.plugins.module_utils._migration import plan_disk_move_stages
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import Pool
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_disk_move_stages import (
    DiskHosts,
    DiskMoveFacts,
    ImportedImage,
    SeenDisk,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migrating_disk import (
    MigratingDisk,
    VolumeFile,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_same_storage import Device, PoolSource
from ansible_collections.corral.virt.tests.unit.plugins.module_utils.dialogue import Dialogue, Questions, told

ASK = t.cast(DiskHosts, Questions())
PATH, NAME = "/images/a.qcow2", "debian-12.1a2b3c4d5e6f.qcow2"
BASE = f"/bases/{NAME}"
IMAGES, BASES = Pool("images", "/images", 1), Pool("bases", "/bases", 1)
POOLS = {"/images": IMAGES, "/bases": BASES}
FILE, BLOCK = VolumeFile("qcow2", 800, 50), VolumeFile("raw", 800, 800)
OVER = dataclasses.replace(FILE, backing_path=BASE, backing_format="qcow2", physical_bytes=70)
ON = VolumeFile("qcow2", 300, 40)


def disk(mode: str = "auto", **more: t.Any) -> MigratingDisk:
    return MigratingDisk("vda", more.pop("path", PATH), mode, **more)


def facts(mode: str = "auto", **more: t.Any) -> DiskMoveFacts:
    own = ("path", "assumed", "volume", "network", "servers", "device", "moves")
    known = {key: more.pop(key) for key in own if key in more}
    if "asked_into" in more:
        known["into"] = more.pop("asked_into")
    return DiskMoveFacts(disk(mode, **known), **{"raw": False, "pools": POOLS, "ours": (), "active": False, **more})


def seen(looked: DiskMoveFacts, dialogue: Dialogue) -> SeenDisk:
    """What is known of the disk after a dialogue."""
    with told(dialogue) as hosts:
        return plan_disk_move_stages.disk(looked, hosts)


SHARED, ALONE = (ASK.shared_filesystem(PATH), "nfs4"), (ASK.shared_filesystem(PATH), None)
FREE, TAKEN = (ASK.is_taken_there("images", "a.qcow2"), False), (ASK.is_taken_there("images", "a.qcow2"), True)
THERE = ASK.shared_file_there("images", PATH)
ALIKE = [(ASK.file("source", PATH), FILE), (THERE, FILE)]
NAMED = [(ASK.volume_path_here("p", "v"), PATH), (ASK.volume_path_there("p", "v"), PATH)]
HERE = ASK.file("source", PATH)
OURS, BESIDE = ASK.beside_disks("source", PATH), ASK.beside_disks("dest", PATH)
GROUP, RENAMED = Pool("lvm", "/dev/vg", 1, logical=True), Pool("lvm", "/dev/other", 1, logical=True)
DEVICE, LV = "/dev/vg/a", Device(8, (), "logical", "-".join(["a" * 16, "a" * 16]))
SERVED = [(ASK.volume_path_here("p", "v"), "p/v"), (ASK.volume_path_there("p", "v"), "p/v")]
CEPH = PoolSource("rbd", ("mon1",), "vms")
WHOLE, DIVIDED = (ASK.data_files_here(PATH), ()), (ASK.data_files_here(PATH), ("/images/a.raw",))


@pytest.mark.parametrize(
    ("looked", "dialogue", "expected"),
    [
        # One that stays where it is.
        (facts(), [SHARED, WHOLE, *ALIKE], disk(shared_on="nfs4")),
        (facts(raw=True), [SHARED, *ALIKE], disk(shared_on="nfs4")),
        (facts("shared"), [SHARED, WHOLE, *ALIKE], disk("shared", shared_on="nfs4")),
        # No pool of the destination has its directory.
        (facts(pools={}), [SHARED, WHOLE, (HERE, FILE), (BESIDE, (True, FILE))], disk(shared_on="nfs4")),
        (
            facts(pools={}),
            [SHARED, WHOLE, (HERE, FILE), (BESIDE, (True, None))],
            disk(shared_on="nfs4", elsewhere="the destination does not have it"),
        ),
        (
            facts(pools={}),
            [SHARED, WHOLE, (HERE, FILE), (BESIDE, (False, None))],
            disk(shared_on="nfs4", elsewhere="libvirt of the destination cannot list its directory"),
        ),
        (
            facts("shared", pools={}),
            [SHARED, WHOLE, (HERE, FILE), (BESIDE, (False, None))],
            disk("shared", shared_on="nfs4"),
        ),
        # The destination has something else there.
        (
            facts(),
            [SHARED, WHOLE, (HERE, FILE), (THERE, None)],
            disk(shared_on="nfs4", elsewhere="pool images of the destination does not have it"),
        ),
        (
            facts(),
            [SHARED, WHOLE, (HERE, FILE), (THERE, ON)],
            disk(shared_on="nfs4", elsewhere="pool images of the destination has another file there"),
        ),
        # Nor has one of the source.
        (facts(), [SHARED, WHOLE, (HERE, None), (OURS, (True, FILE)), (THERE, FILE)], disk(shared_on="nfs4")),
        (
            facts(),
            [SHARED, WHOLE, (HERE, None), (OURS, (True, FILE)), (THERE, ON)],
            disk(shared_on="nfs4", elsewhere="pool images of the destination has another file there"),
        ),
        (
            facts(),
            [SHARED, WHOLE, (HERE, None), (OURS, (False, None)), (THERE, ON)],
            disk(shared_on="nfs4", elsewhere="libvirt of the source cannot list its directory"),
        ),
        # Its data is in another file.
        (
            facts(),
            [SHARED, DIVIDED, (ASK.shared_filesystem("/images/a.raw"), "nfs4"), *ALIKE],
            disk(shared_on="nfs4"),
        ),
        (
            facts(),
            [SHARED, DIVIDED, (ASK.shared_filesystem("/images/a.raw"), None), *ALIKE],
            disk(shared_on="nfs4", data_files=("/images/a.raw",)),
        ),
        (facts(), [SHARED, (ASK.data_files_here(PATH), ("a data file",)), *ALIKE], disk(shared_on="nfs4")),
        (
            facts("shared"),
            [ALONE, (ASK.relabelling(), ("a", "b")), *ALIKE],
            disk("shared", vouched=True, relabelled="a and b"),
        ),
        (facts("shared"), [ALONE, (ASK.relabelling(), ()), *ALIKE], disk("shared", vouched=True, relabelled="")),
        (
            facts(path=DEVICE),
            [(ASK.device("source", DEVICE), LV), (ASK.device("dest", DEVICE), LV)],
            disk(path=DEVICE, device=True, shared_on=f"LVM volume {'a' * 32}"),
        ),
        (
            facts(path="/srv/link", device=True),
            [
                (ASK.device("source", "/srv/link"), LV),
                (ASK.device("dest", "/srv/link"), None),
                (ASK.is_logical_here("/srv/link"), False),
            ],
            disk(
                path="/srv/link",
                device=True,
                elsewhere="libvirt of the destination does not know it, so it cannot be compared",
            ),
        ),
        (
            facts("shared", path=DEVICE),
            [(ASK.device("source", DEVICE), None), (ASK.device("dest", DEVICE), None)],
            disk("shared", path=DEVICE, device=True),
        ),
        (
            facts("full", path=DEVICE),
            [(ASK.is_logical_here(DEVICE), False)],
            disk("full", path=DEVICE, device=True),
        ),
        # A logical volume that only the source has, in the destination's pool of its path, or of its pool's name.
        (
            facts(path=DEVICE, pools={GROUP.path: GROUP}, ours=[DEVICE]),
            [
                (ASK.device("source", DEVICE), LV),
                (ASK.device("dest", DEVICE), None),
                (ASK.is_logical_here(DEVICE), True),
                (ASK.is_taken_there("lvm", DEVICE.rpartition("/")[2]), True),
                (ASK.file("source", DEVICE), BLOCK),
            ],
            disk(
                path=DEVICE,
                device=True,
                elsewhere="libvirt of the destination does not know it, so it cannot be compared",
                pool=GROUP,
                file=BLOCK,
                taken=True,
                ours=True,
            ),
        ),
        (
            facts("full", path=DEVICE, pools={"/images": IMAGES, RENAMED.path: RENAMED}),
            [
                (ASK.is_logical_here(DEVICE), True),
                (ASK.pool_name_here(DEVICE), "lvm"),
                (ASK.is_taken_there("lvm", DEVICE.rpartition("/")[2]), False),
                (ASK.file("source", DEVICE), BLOCK),
            ],
            disk("full", path=DEVICE, device=True, pool=RENAMED, file=BLOCK),
        ),
        (
            facts("full", path=DEVICE),
            [(ASK.is_logical_here(DEVICE), True), (ASK.pool_name_here(DEVICE), "images")],
            disk("full", path=DEVICE, device=True),
        ),
        (
            facts(path=DEVICE, moves=True, asked_into="nowhere"),
            [(ASK.is_logical_here(DEVICE), True)],
            disk(path=DEVICE, device=True, moves=True, into="nowhere", lost=True),
        ),
        # One that was asked into another pool.
        (
            facts(into=BASES, asked_into="bases"),
            [ALONE, (ASK.is_taken_there("bases", "a.qcow2"), False), (HERE, FILE), WHOLE],
            disk(into="bases", pool=BASES, file=FILE),
        ),
        (
            facts(into=BASES, asked_into="bases", ours=["/bases/a.qcow2"]),
            [ALONE, (ASK.is_taken_there("bases", "a.qcow2"), True), (HERE, FILE), WHOLE],
            disk(into="bases", pool=BASES, file=FILE, taken=True, ours=True),
        ),
        (facts(into=BASES, asked_into="bases"), [SHARED, WHOLE, *ALIKE], disk(into="bases", shared_on="nfs4")),
        (
            facts(into=BASES, asked_into="bases", moves=True),
            [SHARED, (ASK.is_taken_there("bases", "a.qcow2"), False), (HERE, FILE), WHOLE],
            disk(into="bases", moves=True, shared_on="nfs4", pool=BASES, file=FILE),
        ),
        (facts(asked_into="nowhere"), [ALONE], disk(into="nowhere", lost=True)),
        (
            facts(into=BASES, asked_into="bases", pools={}),
            [
                ALONE,
                (ASK.is_taken_there("bases", "a.qcow2"), False),
                (HERE, OVER),
                WHOLE,
                (ASK.base_name_here(PATH), NAME),
                (ASK.file("source", BASE), None),
                (ASK.file("dest", BASE), ON),
            ],
            disk(into="bases", pool=BASES, file=OVER, base_name=NAME, base_there=ON, base_unknown=True),
        ),
        (
            facts(path=DEVICE, moves=True),
            [(ASK.is_logical_here(DEVICE), False)],
            disk(path=DEVICE, device=True, moves=True),
        ),
        (facts(network="nbd", moves=True), [], disk(network="nbd", moves=True)),
        (
            facts(),
            [ALONE, FREE, (HERE, FILE), DIVIDED],
            disk(pool=IMAGES, file=FILE, data_files=("/images/a.raw",)),
        ),
        # One that its definition names by pool and volume.
        (
            facts(volume=("p", "v")),
            [
                (ASK.volume_path_here("p", "v"), PATH),
                (ASK.volume_path_there("p", "v"), PATH),
                ALONE,
                FREE,
                (HERE, FILE),
                WHOLE,
            ],
            disk(volume=("p", "v"), volume_there=PATH, pool=IMAGES, file=FILE),
        ),
        (
            facts(volume=("p", "v")),
            [*NAMED, SHARED, WHOLE, *ALIKE],
            disk(volume=("p", "v"), volume_there=PATH, shared_on="nfs4"),
        ),
        (
            facts(volume=("p", "v")),
            [*NAMED, SHARED, WHOLE, (HERE, FILE), (THERE, None)],
            disk(
                volume=("p", "v"),
                volume_there=PATH,
                shared_on="nfs4",
                elsewhere="pool images of the destination does not have it",
            ),
        ),
        (
            facts(volume=("p", "v"), path=""),
            [(ASK.volume_path_here("p", "v"), None)],
            disk(volume=("p", "v"), path=""),
        ),
        (
            facts(volume=("p", "v"), path=""),
            [*SERVED, (ASK.pool("source", "p"), CEPH), (ASK.pool("dest", "p"), CEPH)],
            disk(volume=("p", "v"), path="p/v", volume_there="p/v", network="pool p"),
        ),
        (
            facts("shared", volume=("p", "v"), path=""),
            [*SERVED, (ASK.pool("source", "p"), CEPH), (ASK.pool("dest", "p"), None)],
            disk(
                "shared",
                volume=("p", "v"),
                path="p/v",
                volume_there="p/v",
                network="pool p",
                elsewhere="the destination has no such pool",
            ),
        ),
        (
            facts(volume=("p", "v"), path=""),
            [SERVED[0], (ASK.volume_path_there("p", "v"), None)],
            disk(volume=("p", "v"), path="p/v", network="pool p"),
        ),
        # One on the network.
        (facts("full", path="p/v", network="rbd"), [], disk("full", path="p/v", network="rbd")),
        (facts("shared", network="nbd"), [], disk("shared", network="nbd")),
        (facts(network="nbd", servers=("h",)), [], disk(network="nbd", servers=("h",))),
        (
            facts(network="nbd", servers=("::1",)),
            [],
            disk(network="nbd", servers=("::1",), elsewhere="::1 is another server on each host"),
        ),
        (
            facts(network="rbd"),
            [(ASK.cluster("source"), "1"), (ASK.cluster("dest"), "1")],
            disk(network="rbd"),
        ),
        (
            facts(network="rbd"),
            [(ASK.cluster("source"), "1"), (ASK.cluster("dest"), "2")],
            disk(network="rbd", elsewhere="the Ceph cluster is 1 here and 2 on the destination"),
        ),
        # The destination has no such directory.
        (facts(pools={}), [ALONE], disk()),
        (facts("full", pools={}), [SHARED], disk("full", shared_on="nfs4")),
        # One that is copied.
        (facts(), [ALONE, FREE, (HERE, FILE), WHOLE], disk(pool=IMAGES, file=FILE)),
        (facts(ours=[PATH]), [ALONE, TAKEN, (HERE, FILE), WHOLE], disk(pool=IMAGES, file=FILE, taken=True, ours=True)),
        (facts("delta"), [SHARED, FREE, (HERE, FILE), WHOLE], disk("delta", shared_on="nfs4", pool=IMAGES, file=FILE)),
        (facts(), [ALONE, FREE, (HERE, None), (ASK.new_file_here(PATH), FILE), WHOLE], disk(pool=IMAGES, file=FILE)),
        (facts(), [ALONE, FREE, (HERE, None), (ASK.new_file_here(PATH), None)], disk(pool=IMAGES)),
        (
            facts(raw=True),
            [ALONE, FREE, (HERE, OVER)],
            disk(pool=IMAGES, file=VolumeFile("raw", 70, 50, physical_bytes=70)),
        ),
        (
            facts(path="/images/../images/a.qcow2"),
            [
                (ASK.shared_filesystem("/images/../images/a.qcow2"), None),
                FREE,
                (ASK.file("source", "/images/../images/a.qcow2"), FILE),
                (ASK.data_files_here("/images/../images/a.qcow2"), ()),
            ],
            disk(path="/images/../images/a.qcow2", pool=IMAGES, file=FILE),
        ),
    ],
)
def test_what_is_looked_at(looked: DiskMoveFacts, dialogue: Dialogue, expected: MigratingDisk) -> None:
    assert seen(looked, dialogue) == SeenDisk(expected)


OTHER = "/images/b.qcow2"
WRITTEN = {"type": "file", "target": "vda", "source": PATH}
VOLUME = {"type": "volume", "pool": "p", "volume": "v"}


@pytest.mark.parametrize(
    ("disks", "dialogue", "expected"),
    [
        ([], [], ()),
        ([{**WRITTEN, "readonly": True}, {**WRITTEN, "shareable": True}, {**WRITTEN, "source": "/dev/vg/a"}], [], ()),
        ([{"type": "network", "source": "/p/v"}, {"type": "network"}], [], ()),
        ([VOLUME], [(ASK.volume_path_here("p", "v"), None)], ()),
        ([VOLUME], [(ASK.volume_path_here("p", "v"), "p/v")], ()),
        ([VOLUME], [(ASK.volume_path_here("p", "v"), PATH), SHARED, (ASK.relabelling(), ("a",))], (PATH,)),
        ([WRITTEN], [ALONE], ()),
        ([WRITTEN], [SHARED, (ASK.relabelling(), ())], ()),
        ([WRITTEN], [SHARED, (ASK.relabelling(), ("a",))], (PATH,)),
        (
            [WRITTEN, {**WRITTEN, "source": OTHER}],
            [ALONE, (ASK.shared_filesystem(OTHER), "nfs"), (ASK.relabelling(), ("a",))],
            (OTHER,),
        ),
    ],
)
def test_what_libvirt_takes_back(disks: list[dict[str, t.Any]], dialogue: Dialogue, expected: tuple[str, ...]) -> None:
    with told(dialogue) as hosts:
        assert plan_disk_move_stages.taken_back(disks, hosts) == expected


@pytest.mark.parametrize(
    ("there", "known", "same"),
    [
        ({}, {}, "off running"),
        ({"format": "raw"}, {}, ""),
        ({"capacity_bytes": 801}, {"fixed": True}, ""),
        ({"backing_path": "/b"}, {}, ""),
        ({"allocation_bytes": 51}, {}, "off running"),
        ({"physical_bytes": 71}, {}, "running"),
    ],
)
def test_which_file_of_the_destination_may_be_a_shared_disk(
    there: dict[str, t.Any], known: dict[str, t.Any], same: str
) -> None:
    here = dataclasses.replace(FILE, physical_bytes=70, modified_s=100.0, changed_ns=5)
    asked: Dialogue = [SHARED, WHOLE, (HERE, here), (THERE, dataclasses.replace(here, **there))]
    for state in ("off", "running"):
        looked = DiskMoveFacts(disk(**known), raw=False, pools=POOLS, ours=(), active=state == "running")
        still = "changed_ns" in there and not known and state == "running"
        asked = [*asked, *((ASK.changed_ns(PATH, look), (5, 7)) for look in range(7 if still else 0))]
        assert (seen(looked, asked).disk.elsewhere is None) == (state in same.split())


@pytest.mark.parametrize(
    ("later", "same"),
    [
        ([(7, 7)], True),  # the guest has written meanwhile, and both tell it
        ([(6, 8)], True),  # it writes all the time
        ([(9, 7), (9, 9)], True),  # the destination tells late
        ([(5, 7), (6, 7), *[(6, 7)] * 4, (9, 7)], False),  # a copy, whose time stands still
        ([*[(5, 8)] * 7], False),  # somebody writes to another file
    ],
)
def test_looks_at_a_file_that_a_guest_writes_to(later: list[tuple[int, int]], same: bool) -> None:
    here, there = (dataclasses.replace(FILE, changed_ns=changed) for changed in (5, 7))
    looks = [(ASK.changed_ns(PATH, number), times) for number, times in enumerate(later)]
    found = seen(facts(active=True), [SHARED, WHOLE, (HERE, here), (THERE, there), *looks]).disk
    assert found.elsewhere == (None if same else "pool images of the destination has another file there")


STORE = "/var/lib/libvirt/qemu/nvram/web1_VARS.fd"
LOCAL = (ASK.shared_filesystem(STORE), None)
STORE_HERE, STORE_THERE = ASK.beside_disks("source", STORE), ASK.beside_disks("dest", STORE)
VARIABLES = VolumeFile("raw", 540672, 540672, physical_bytes=540672, modified_s=1000.0)
OLD, SAME, NEW = (dataclasses.replace(VARIABLES, modified_s=time, changed_ns=7) for time in (900.0, 1000.0, 1100.0))


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ([LOCAL, (STORE_THERE, (True, None))], ""),
        ([(ASK.shared_filesystem(STORE), "nfs4")], "it is on shared storage (nfs4)"),
        # A filesystem that is not known to be shared: the destination sees the file before the guest comes.
        ([LOCAL, (STORE_THERE, (True, SAME)), (STORE_HERE, (True, VARIABLES))], "which may be the same one"),
        ([LOCAL, (STORE_THERE, (True, NEW)), (STORE_HERE, (True, VARIABLES))], "which may be the same one"),
        # What an earlier move left there is older.
        ([LOCAL, (STORE_THERE, (True, OLD)), (STORE_HERE, (True, VARIABLES))], ""),
        ([LOCAL, (STORE_THERE, (True, SAME)), (STORE_HERE, (True, None))], "which may be the same one"),
        ([LOCAL, (STORE_THERE, (True, SAME)), (STORE_HERE, (False, None))], "which may be the same one"),
        ([LOCAL, (STORE_THERE, (False, None))], "libvirt cannot tell whether the destination has the same file"),
    ],
)
def test_variables_that_the_destination_may_use_stay_on_the_source(asked: Dialogue, kept: str) -> None:
    with told(asked) as hosts:
        found = plan_disk_move_stages.why_kept(STORE, hosts)
    assert kept in found and bool(found) == bool(kept)


def test_files_whose_time_nobody_tells_may_be_one() -> None:
    here, there = VolumeFile("raw", 1, 1), VolumeFile("raw", 1, 1)
    asked: Dialogue = [SHARED, (HERE, here), (THERE, there)]
    assert seen(facts(raw=True), asked).disk.elsewhere is None
    assert here.changed_ns == 0


def test_a_raw_disk_is_as_long_as_its_file() -> None:
    assert plan_disk_move_stages.as_defined(None, raw=True) is None
    assert plan_disk_move_stages.as_defined(OVER, raw=False) == OVER
    assert plan_disk_move_stages.as_defined(FILE, raw=True) == dataclasses.replace(FILE, format="raw"), (
        "as far as it is known"
    )


MANIFEST = Manifest(NAME, "1" * 64, 40, "there", f"sha256:{'0' * 64}", "1970-01-01T00:01:40+00:00", changed_ns=7)
IMPORTED = ImportedImage(MANIFEST, modified_s=100, changed_ns=7, physical_bytes=40, identity=("this",), verified=False)


def imported(**more: t.Any) -> ImportedImage:
    return dataclasses.replace(IMPORTED, **more)


IMPORT, DIGEST = ASK.import_there("bases", BASE), ASK.digest_there("bases", NAME)


@pytest.mark.parametrize(
    ("assumed", "asked", "verdict"),
    [
        (False, [(IMPORT, None)], "unknown"),
        (False, [(IMPORT, IMPORTED)], "same"),
        (False, [(IMPORT, imported(modified_s=102))], "same"),
        (False, [(IMPORT, imported(modified_s=102.5))], "altered"),
        (False, [(IMPORT, imported(modified_s=102.5, verified=True))], "altered"),
        (True, [(IMPORT, imported(modified_s=102.5))], "altered"),
        (False, [(IMPORT, imported(changed_ns=8)), (DIGEST, "1" * 64)], "same"),
        (False, [(IMPORT, imported(changed_ns=8)), (DIGEST, "2" * 64)], "altered"),
        (False, [(IMPORT, imported(physical_bytes=41)), (DIGEST, "2" * 64)], "altered"),
        (False, [(IMPORT, imported(changed_ns=8, verified=True))], "same"),
        (True, [(IMPORT, imported(changed_ns=8))], "unknown"),
        (True, [(IMPORT, imported(changed_ns=8, verified=True))], "same"),
        (True, [(IMPORT, IMPORTED)], "same"),
    ],
)
def test_what_a_base_there_is_worth(assumed: bool, asked: Dialogue, verdict: str) -> None:
    dialogue: Dialogue = [
        ALONE,
        FREE,
        (HERE, OVER),
        WHOLE,
        *asked,
        (ASK.file("source", BASE), ON),
        (ASK.file("dest", BASE), None),
    ]
    expected = disk(
        pool=IMAGES,
        file=OVER,
        base=ON,
        assumed=assumed,
        base_altered=verdict == "altered",
        base_unknown=verdict == "unknown",
    )
    assert seen(facts(assumed=assumed), dialogue) == SeenDisk(expected, (("this",),) if verdict == "same" else ())


def test_a_base_that_is_in_no_pool_there_is_not_known() -> None:
    dialogue: Dialogue = [
        ALONE,
        FREE,
        (HERE, OVER),
        WHOLE,
        (ASK.file("source", BASE), None),
        (ASK.file("dest", BASE), ON),
    ]
    expected = disk(pool=IMAGES, file=OVER, base_there=ON, base_unknown=True)
    assert seen(facts(pools={"/images": IMAGES}), dialogue) == SeenDisk(expected)


# What was the disk before an external snapshot ----------------------------------------------------------------------

SNAPSHOT, BEFORE = "/images/a.s1", "/images/a.s0"


def on(path: str | None, form: str | None = "qcow2", **more: t.Any) -> VolumeFile:
    """A file that stands on another."""
    return VolumeFile("qcow2", 800, 50, path, form if path else None, **more)


def asked_for(file: VolumeFile) -> list[tuple[t.Any, t.Any]]:
    """The first questions, of a disk on something that is no image, and that the destination lacks."""
    below = t.cast(str, file.backing_path)
    first: list[tuple[t.Any, t.Any]] = [ALONE, FREE, (HERE, file), WHOLE]
    return [
        *first,
        (ASK.import_there("images", below), None),
        (ASK.file("source", below), ON),
        (ASK.file("dest", below), None),
    ]


def member(path: str, *, taken: bool = False) -> list[tuple[t.Any, t.Any]]:
    """What is asked of a file of the chain; what it is was asked before."""
    return [(ASK.is_taken_there("images", path.rpartition("/")[2]), taken), (ASK.data_files_here(path), ())]


def chained(looked: DiskMoveFacts, dialogue: Dialogue) -> MigratingDisk:
    """What is known of the disk after these answers."""
    return seen(looked, dialogue).disk


def test_a_file_that_only_the_source_has_is_copied_with_the_disk() -> None:
    found = chained(facts(), [*asked_for(on(SNAPSHOT)), *member(SNAPSHOT)])
    assert [(one.path, one.pool, one.ours) for one in found.chain] == [(SNAPSHOT, IMAGES, False)]
    assert found.image_below is None


def test_files_are_copied_down_to_an_image_that_the_destination_has() -> None:
    asked: list[tuple[t.Any, t.Any]] = [ALONE, FREE, (HERE, on(SNAPSHOT)), WHOLE]
    asked += [
        (ASK.import_there("images", SNAPSHOT), None),
        (ASK.file("source", SNAPSHOT), on(BASE)),
        (ASK.file("dest", SNAPSHOT), None),
    ]
    asked += member(SNAPSHOT)
    found = chained(facts(), [*asked, (IMPORT, IMPORTED)])
    assert [one.path for one in found.chain] == [SNAPSHOT] and found.image_below is None
    lacking = chained(facts(), [*asked, (IMPORT, None)])
    assert lacking.chain == () and lacking.image_below == BASE
    brought = chained(facts(assumed=True), [*asked, (IMPORT, None)])
    assert [one.path for one in brought.chain] == [SNAPSHOT] and brought.image_below == BASE


@pytest.mark.parametrize(
    ("looked", "file", "more"),
    [
        (facts(), on(SNAPSHOT, None), []),  # nobody knows as what it is read
        (facts("delta"), on("/elsewhere/a"), None),  # no pool of the destination
        (facts(), on(SNAPSHOT), [(ASK.is_taken_there("images", "a.s1"), True)]),
        (
            facts(),
            on(SNAPSHOT),
            [(ASK.is_taken_there("images", "a.s1"), False), (ASK.data_files_here(SNAPSHOT), ("/d",))],
        ),
    ],
)
def test_a_chain_that_cannot_be_copied_is_not(looked: DiskMoveFacts, file: VolumeFile, more: Dialogue | None) -> None:
    asked = asked_for(file)
    if more is None:
        below = t.cast(str, file.backing_path)
        asked = [ALONE, FREE, (HERE, file), WHOLE, (ASK.file("source", below), ON), (ASK.file("dest", below), None)]
    elif file.backing_format is None:
        more = member(SNAPSHOT)
    assert chained(looked, [*asked, *(more or [])]).chain == ()


def test_what_an_earlier_run_copied_is_made_anew() -> None:
    asked = [*asked_for(on(SNAPSHOT, "raw")), (ASK.is_taken_there("images", "a.s1"), True)]
    [one] = chained(facts(ours=[SNAPSHOT]), asked).chain
    assert one.ours and one.file.format == "raw" and one.file.backing_path is None


def test_nothing_is_copied_with_a_disk_that_is_flattened() -> None:
    assert chained(facts("full"), asked_for(on(SNAPSHOT))).chain == ()
