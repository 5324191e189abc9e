"""Disks of guests on logical volumes, as tables; identity, and what LVM's programs are asked."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import (
    BadInput,
    Failed,
    NotFound,
    NotMade,
    Refused,
)
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import (
    Disk,
    FoundGuest,
    GuestSpec,
    Original,
    OwnedDisk,
    Volume,
    owner_tag,
)
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_disk, plan_removal
from ansible_collections.corral.virt.plugins.module_utils._storage import files_logical, files_lvm, plan_pool_files
from ansible_collections.corral.virt.plugins.module_utils._storage.model_header import Header
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import (
    DiskDevice,
    DiskOrigin,
    Known,
    Owner,
    Site,
    SiteOf,
    Size,
    SizeOf,
    ThinPool,
    VolumeGroup,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_steps import (
    CreateLogicalVolume,
    GrowLogicalVolume,
    GrowRunningDisk,
    GrowThinVolume,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._system import identity
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity, OwnedVolume

MIB = 1024**2
GROUP = VolumeGroup("vg", 4 * MIB, 100 * MIB)
POOL = PoolDirectory("lvm", "logical", "/dev/vg", group="vg")
PATH, OWNER = "/dev/vg/web1-data", Owner("web1", "u1", "h1", frozenset({"/dev/vg/web1-data"}))
OURS = FileIdentity(0, mark=f"LVM-{'a' * 64}")
OTHER = FileIdentity(0, mark=f"LVM-{'b' * 64}")
HERE = Site(POOL, group=GROUP)
IMAGE = DiskOrigin(
    "/p/debian.qcow2",
    "/p/debian.0123456789ab.qcow2",
    "qcow2",
    30 * MIB,
    Header("qcow2"),
    managed=False,
    guest=None,
    uri="qemu:///system",
    here=True,
    written=False,
)


def planned(item: Disk, known: Known, answer: Site | Size) -> plan_disk.DiskPlan:
    """The plan for the one disk."""
    return plan_disk.plan(
        GuestSpec("web1").with_fields(disks=(item,)), known, {item.name: answer}, lambda _one: "", lambda _path: None
    )


def made(*, replace: bool = False, expected: FileIdentity | None = None) -> CreateLogicalVolume:
    """The step that makes the empty disk."""
    volume = Volume("lvm", "web1-data", PATH, 12 * MIB, "raw")
    return CreateLogicalVolume("web1", volume, "vg", replace=replace, expected=expected)


EMPTY = Disk("data", size_bytes=10 * MIB, pool="lvm")
BEGUN = Known({"data": DiskDevice(PATH, "vda")}, (OwnedVolume(PATH, "u1", "h1"),), (PATH,), owner=OWNER)


def test_a_new_disk_is_raw_in_whole_extents_and_has_no_ending() -> None:
    plan = planned(EMPTY, Known(owner=OWNER), HERE)
    assert plan.steps == (made(),) and plan.making == (PATH,)
    [disk] = plan.disks or ()
    assert (disk.fields["source"], disk.fields["format"]) == (PATH, "raw")


def test_an_image_of_another_pool_is_copied() -> None:
    item = Disk("data", pool="lvm", image="debian.qcow2", image_pool="default", size_bytes=31 * MIB)
    assert plan_disk.questions(GuestSpec("web1").with_fields(disks=(item,)), Known()) == {
        "data": SiteOf("lvm", "web1-data.qcow2", "debian.qcow2", image_pool="default")
    }
    [step] = planned(item, Known(), dataclasses.replace(HERE, origin=IMAGE, image_pool="default")).steps
    volume = Volume("lvm", "web1-data", PATH, 32 * MIB, "raw", copy_of=IMAGE.path)
    assert step == CreateLogicalVolume("web1", volume, "vg", "qcow2", 30 * MIB)


def test_a_copy_of_a_qcow2_disk_becomes_raw() -> None:
    item = Disk("data", pool="lvm", fields={"format": "qcow2"}, copy_of=Original("web0", IMAGE.path, "qcow2"))
    [step] = planned(item, Known(), dataclasses.replace(HERE, origin=IMAGE)).steps
    assert isinstance(step, CreateLogicalVolume) and (step.volume.format, step.copy_format) == ("raw", "qcow2")


def test_all_that_a_logical_volume_cannot_be_is_told_at_once() -> None:
    item = Disk("data", pool="lvm", image="debian.qcow2", clone="overlay", fields={"format": "qcow2"})
    with pytest.raises(BadInput, match="format of disk data of web1") as error:
        planned(item, Known(), HERE)
    assert [problem.partition(" of disk data of web1: ")[0] for problem in error.value.problems] == [
        "format",
        "clone",
        "image_pool",
    ]


def test_what_cannot_be_read_from_here_is_not_created() -> None:
    with pytest.raises(Refused, match="its volume group vg cannot be read from here; run the module on the hypervisor"):
        planned(EMPTY, Known(), Site(POOL))


def test_disks_that_do_not_fit_together_are_refused_before_one_is_made() -> None:
    items = tuple(Disk(name, size_bytes=60 * MIB, pool="lvm") for name in ("a", "b"))
    wanted = GuestSpec("web1").with_fields(disks=items)
    with pytest.raises(Refused, match=r"volume group vg has 100 MiB free of 120 MiB that they need; extend it"):
        plan_disk.plan(wanted, Known(), {"a": HERE, "b": HERE}, lambda _one: "", lambda _path: None)


SIZES: list[tuple[int, Size, str | None, list[object]]] = [
    (10, Size(12 * MIB, pool_name="lvm", group=GROUP), None, []),
    (
        13,
        Size(12 * MIB, pool_name="lvm", group=GROUP),
        None,
        [GrowLogicalVolume("web1", PATH, "lvm", 12 * MIB, 16 * MIB)],
    ),
    (
        16,
        Size(12 * MIB, pool_name="lvm", group=GROUP, seen_bytes=12 * MIB),
        "vda",
        [
            GrowLogicalVolume("web1", PATH, "lvm", 12 * MIB, 16 * MIB),
            GrowRunningDisk("web1", PATH, 16 * MIB, "vda"),
        ],
    ),
    (  # a run was killed in between
        16,
        Size(16 * MIB, pool_name="lvm", group=GROUP, seen_bytes=12 * MIB),
        "vda",
        [GrowRunningDisk("web1", PATH, 16 * MIB, "vda")],
    ),
]


@pytest.mark.parametrize(("asked_mib", "size", "target", "steps"), SIZES)
def test_a_disk_grows_by_extents(asked_mib: int, size: Size, target: str | None, steps: list[object]) -> None:
    known = Known({"data": DiskDevice(PATH, "vda")}, active=bool(target), owner=OWNER)
    item = Disk("data", size_bytes=asked_mib * MIB)
    seen_by = ("u1", "vda") if target else None
    assert plan_disk.questions(GuestSpec("web1").with_fields(disks=(item,)), known) == {
        "data": SizeOf(PATH, seen_by=seen_by)
    }
    plan = planned(item, known, size)
    assert list(plan.steps) == steps and not plan.notes


THIN = ThinPool("thin", "vg", 100 * MIB, 380 * MIB, data_percent=50.0, metadata_percent=5.0)
ITEM = dataclasses.replace(EMPTY, thin_pool="thin")


def test_a_disk_is_a_thin_volume_and_takes_no_room_of_its_group() -> None:
    assert plan_disk.questions(GuestSpec("web1").with_fields(disks=(ITEM,)), Known()) == {
        "data": SiteOf("lvm", "web1-data.qcow2", thin_pool="thin")
    }
    full = dataclasses.replace(GROUP, free_bytes=0)
    [step] = planned(ITEM, Known(owner=OWNER), dataclasses.replace(HERE, thin=THIN, group=full)).steps
    assert step == dataclasses.replace(made(), thin_pool="thin")
    assert str(step) == f"create disk {PATH} (12 MiB, thin volume of vg/thin in pool lvm)"
    known = Known({"data": DiskDevice(PATH, "vda")}, owner=OWNER)
    size = Size(12 * MIB, pool_name="lvm", group=full, thin=THIN)
    assert planned(Disk("data", size_bytes=20 * MIB), known, size).steps == (
        GrowThinVolume("web1", PATH, "lvm", 12 * MIB, 20 * MIB),
    )
    with pytest.raises(
        Refused, match=r"its volumes would have 404 MiB, more than 4 times its 100 MiB; extend it \(lvex"
    ):
        planned(Disk("data", size_bytes=36 * MIB), known, size)


@pytest.mark.parametrize(
    ("thin", "told"),
    [
        ({"data_percent": None}, "is not active; activate it (lvchange --activate y vg/thin)"),
        ({"zeroes": False}, "(lvchange --zero y vg/thin)"),
        ({"data_percent": 91.0}, "its data is 91 % full; extend it (lvextend --size +1g vg/thin)"),
        ({"metadata_percent": 91.0}, "metadata is 91 % full; extend it (lvextend --poolmetadatasize +1g vg/thin)"),
        ({"data_percent": 80.0}, "has 20 MiB free of 30 MiB that are copied; extend it (lvextend --size +10m vg/thin)"),
        ({"virtual_bytes": 380 * MIB}, "would have 412 MiB, more than 4 times its 100 MiB; extend it (lvextend --size +3m"),
    ],
)  # fmt: skip
def test_a_thin_pool_that_is_nearly_full_or_promises_too_much_gets_no_more(thin: dict[str, t.Any], told: str) -> None:
    item = Disk("data", pool="lvm", image="a.qcow2", image_pool="default", size_bytes=32 * MIB, thin_pool="thin")
    pool = dataclasses.replace(THIN, **{"virtual_bytes": 0, **thin})
    with pytest.raises(Refused, match=re.escape(told)):
        planned(item, Known(), dataclasses.replace(HERE, origin=IMAGE, image_pool="default", thin=pool))


def test_a_thin_pool_must_be_there() -> None:
    with pytest.raises(NotFound, match=r"volume group vg has no thin pool thin; create it \(lvcreate --type thin-pool"):
        planned(ITEM, Known(), HERE)
    with pytest.raises(BadInput, match="thin_pool of disk data of web1: pool default is of type dir"):
        planned(ITEM, Known(), Site(PoolDirectory("default", "dir", "/p", here=True)))


def test_the_content_of_a_disk_is_not_called_by_another_format() -> None:
    known = Known({"data": DiskDevice("/p/a.qcow2", "vda", format="qcow2")}, owner=OWNER)

    def steps(**fields: str) -> tuple[object, ...]:
        wanted = GuestSpec("web1").with_fields(disks=(Disk("data", fields=fields),))
        return plan_disk.plan(wanted, known, {}, lambda _one: "", lambda _path: None).steps

    assert not (steps(format="qcow2") or steps() or steps(source="/b", format="raw"))
    with pytest.raises(
        Refused, match=r"it is qcow2; omit format, or convert it: ansible-playbook corral.virt.move_disk"
    ):
        steps(format="raw")


RAW = {"data": DiskDevice("/p/a.img", "vda", format="raw")}
IN_POOL = {"data": DiskDevice("", "vda", ("fast", "a.img"), format="raw")}
DRIVE = {"cd": DiskDevice("/iso/a.iso", "sda", format="raw", kind="cdrom"), "nbd": DiskDevice("", "vdb", format="raw")}
QCOW2 = "it is raw; omit format, or convert it"


@pytest.mark.parametrize(
    ("devices", "name", "fields", "told"),
    [
        (RAW, "data", {"device": "cdrom", "format": "qcow2", "bus": "sata"}, "cannot make data of web1 a cdrom: it is a disk"),
        (RAW, "data", {"device": "cdrom", "source": "/iso/a.iso"}, "cannot make data of web1 a cdrom: it is a disk"),
        (RAW, "data", {"device": "lun", "format": "qcow2"}, QCOW2),
        (RAW, "data", {"source": "/p/a.img", "format": "qcow2"}, QCOW2),
        (RAW, "data", {"source": "/link/../p/a.img", "format": "qcow2"}, QCOW2),
        (RAW, "data", {"volume": "default/a.img", "format": "qcow2"}, QCOW2),
        (RAW, "data", {"volume": "default/b.qcow2", "format": "qcow2"}, ""),
        (IN_POOL, "data", {"volume": "fast/a.img", "format": "qcow2"}, QCOW2),
        (IN_POOL, "data", {"source": "/p/a.img", "format": "qcow2"}, QCOW2),
        (DRIVE, "cd", {"device": "disk", "source": "/p/b"}, "cannot make cd of web1 a disk: it is a cdrom"),
        (DRIVE, "cd", {"device": "floppy"}, ""),
        (DRIVE, "cd", {"device": "cdrom", "source": "/iso/b.qcow2", "format": "qcow2"}, ""),
        (DRIVE, "cd", {"source": "", "format": "qcow2"}, ""),
        (DRIVE, "nbd", {"url": "nbd://h/b", "network.protocol": "nbd", "format": "qcow2"}, QCOW2),
    ],
)  # fmt: skip
def test_nothing_else_that_is_said_lets_a_disk_be_read_as_what_it_is_not(
    devices: dict[str, DiskDevice], name: str, fields: dict[str, str], told: str
) -> None:
    """A guest writes the first bytes of its raw disk: read as qcow2, they name any file of the host."""
    wanted = GuestSpec("web1").with_fields(disks=(Disk(name, fields=fields),))
    known = Known(devices, owner=OWNER)
    with pytest.raises(Refused, match=told) if told else contextlib.nullcontext():
        plan_disk.plan(wanted, known, {}, lambda _one: "", lambda _path: None)


def test_a_disk_does_not_shrink() -> None:
    known = Known({"data": DiskDevice(PATH, "vda")}, owner=OWNER)
    with pytest.raises(Refused, match="from 12 MiB to 8 MiB: data would be lost; use 12 MiB or more"):
        planned(Disk("data", size_bytes=8 * MIB), known, Size(12 * MIB, pool_name="lvm", group=GROUP))


def test_only_what_has_our_tag_is_the_rest_of_an_interrupted_run() -> None:
    tag = owner_tag("u1")
    left = dataclasses.replace(HERE, size_bytes=12 * MIB, identity=OURS, tags=("x", tag))
    assert planned(EMPTY, BEGUN, left).steps == (made(replace=True, expected=OURS),)
    assert planned(EMPTY, BEGUN, HERE).steps == (made(replace=True),), "killed before it was made"
    for tags in ((), (owner_tag("u2"),)):
        with pytest.raises(Refused, match=f"{PATH} exists already"):
            planned(EMPTY, BEGUN, dataclasses.replace(left, identity=OTHER, tags=tags))


@pytest.mark.parametrize(
    ("entry", "disk", "kept"),
    [
        (OURS, OwnedDisk(volume=True, identity=OURS, tags=()), ""),
        (OURS, OwnedDisk(volume=True, identity=OTHER, tags=(owner_tag("u1"),)), "another file than the one"),
        (None, OwnedDisk(volume=True, identity=OURS, tags=(owner_tag("u1"),)), ""),
        (None, OwnedDisk(volume=True, identity=OURS, tags=()), "does not have the tag corral.guest.u1"),
        (OURS, OwnedDisk(volume=True, identity=OURS, tags=(), opened=True), "a process that libvirt does not know"),
    ],
)
def test_only_the_guests_own_volume_goes_with_it(entry: FileIdentity | None, disk: OwnedDisk, kept: str) -> None:
    found = FoundGuest("web1", "u1", "shutdown", persistent=True, autostart=False, xml="<domain/>")
    wanted = GuestSpec("web1", state="absent", remove_storage=True, keep_removed_h=24)
    owned = [OwnedVolume(PATH, "u1", "h1", entry)]
    plan = plan_removal.absent(wanted, found, managed_state=(), owned=owned, in_use={}, disks={PATH: disk}, owner=OWNER)
    told = [str(step) for step in plan.steps if PATH in str(step)]
    assert told == ([] if kept else [f"delete disk {PATH}"]), "it cannot be moved aside, so not kept either"
    assert [note for note in plan.notes if kept in note] if kept else not plan.notes


def test_the_identity_of_a_logical_volume_survives_the_record() -> None:
    entry = OwnedVolume(PATH, "u1", "h1", OURS)
    xml = "<domain><metadata/></domain>"
    element = fields_record.update(xml, {"volumes": (entry,)})
    kept = re.sub("^<guest", '<corral:guest xmlns:corral="urn:corral:virt:guest:1"', element)
    kept = (
        re.sub("<volume", "<corral:volume", kept)
        .replace("</volume", "</corral:volume")
        .replace("</guest", "</corral:guest")
    )
    assert fields_record.read(f"<domain><metadata>{kept}</metadata></domain>")["volumes"] == (entry,)


def test_other_devices_are_no_logical_volumes(tmp_path: Path) -> None:
    assert identity.logical_volume("/dev/null") is None and identity.logical_volume("/dev/nothing") is None
    assert identity.logical_volume(str(tmp_path)) is None
    assert identity.of_path("/dev/null") is None and identity.stamped("/dev/null") is None


def test_seeds_are_files() -> None:
    assert plan_pool_files.seed_pool(POOL) == "default"
    assert plan_pool_files.seed_pool(PoolDirectory("fast", "dir", "/fast")) == "fast"


# As LVM 2.03.16 prints it.
VGS = """
  {
      "report": [
          {
              "vg": [
                  {"vg_name":"vg0", "vg_extent_size":"4194304", "vg_free":"2034237440"}
              ]
          }
      ]
  }
"""
LVS = '{"report": [{"lv": [{"lv_tags":"a,corral.guest.u1", "lv_device_open":"open"}]}]}'


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[[str, str], None]:
    """Puts a shell script before the programs of this machine."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def put(name: str, script: str) -> None:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return put


def test_lvm_is_asked_for_group_tags_and_users(program: t.Callable[[str, str], None]) -> None:
    program("vgs", f"cat <<'END'\n{VGS}\nEND")
    program("lvs", f"echo '{LVS}'")
    program("udevadm", "exit 0")
    assert files_logical.group("vg0") == {"name": "vg0", "extent_bytes": 4 * MIB, "free_bytes": 2034237440}
    assert files_lvm.tags(PATH) == ("a", "corral.guest.u1")
    assert files_lvm.is_open(PATH) and not files_lvm.is_open("/p/a.qcow2")
    for name in ("vgs", "lvs"):
        program(name, "exit 5")
    assert files_logical.group("vg0") is None and files_lvm.tags(PATH) == () and not files_lvm.is_open(PATH)


def test_what_lvm_refuses_is_told_and_nothing_is_made(program: t.Callable[[str, str], None]) -> None:
    program("lvcreate", "echo 'already exists in volume group' >&2; exit 5")
    with pytest.raises(NotMade, match=r"already exists in volume group; inspect its volume group \(lvs vg\)"):
        files_logical.create(made(), "u1")
    program("lvchange", "echo 'in use' >&2; exit 5")
    with pytest.raises(Failed, match="in use"):
        files_logical.grow(GrowLogicalVolume("web1", PATH, "lvm", MIB, 2 * MIB))


@pytest.mark.parametrize("has_mib", [4, 8])
def test_what_a_volume_gets_counts_when_it_is_zeros(
    program: t.Callable[[str, str], None], tmp_path: Path, has_mib: int
) -> None:
    """A file stands for the volume; it was enlarged already where it has 8 MiB."""
    volume, tags, extended = tmp_path / "volume", tmp_path / "tags", tmp_path / "extended"
    volume.write_bytes(b"x" * has_mib * MIB)
    program("lvchange", f'case $* in *--addtag*) echo "$3" >{tags};; *) rm {tags};; esac')
    program("lvextend", f"touch {extended}; exit 5")
    row = '{"report": [{"lv": [{"lv_tags":"a,%s"}]}]}'
    program("lvs", f"printf '{row}' \"$(cat {tags} 2>/dev/null)\"")
    with pytest.raises(Failed, match="lvextend" if has_mib == 4 else "cannot write zeros"):
        files_logical.grow(GrowLogicalVolume("web1", str(volume), "lvm", 4 * MIB, 8 * MIB))
    assert extended.exists() == (has_mib == 4) and tags.read_text() == f"corral.unready.from.{4 * MIB}\n"
    assert files_logical.ready_bytes(str(volume)) == 4 * MIB
    tags.unlink()
    assert files_logical.ready_bytes(str(volume)) == has_mib * MIB
