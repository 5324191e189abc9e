"""Nothing that anybody else needs is deleted, and nobody's disk becomes a base."""

from __future__ import annotations

import shlex
import subprocess
import typing as t
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._domain import xml_host
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Volume
from ansible_collections.corral.virt.plugins.module_utils._guest import run_guest, run_guest_options
from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage
from ansible_collections.corral.virt.tests.contract import world

DISK = "/var/lib/libvirt/images/box1-system.qcow2"
BOX: dict[str, t.Any] = {"vcpus": 1, "memory": 256, "interfaces": [], "state": "present"}


def converge(connection: t.Any, **options: t.Any) -> dict[str, t.Any]:
    return run_guest.converge(connection, run_guest_options.wanted({**BOX, **options}), Gate(check_mode=False))


def gone(connection: t.Any, *, check_mode: bool = False) -> dict[str, t.Any]:
    return run_guest.converge(
        connection,
        run_guest_options.wanted({"name": "box1", "state": "absent", "remove_storage": True}),
        Gate(check_mode=check_mode),
    )


def test_own_disk_goes(connection: t.Any) -> None:
    converge(connection, name="box1", disks=[{"name": "system", "size": 1}])
    gone(connection)
    assert libvirt_storage.volume_at(connection, DISK) is None


@pytest.mark.parametrize("check_mode", [True, False])
@pytest.mark.parametrize("pool", ["inactive", "undefined"])
def test_a_disk_that_nobody_can_delete_keeps_its_guest(
    connection: t.Any, tmp_path: Path, pool: str, check_mode: bool
) -> None:
    connection.storagePoolDefineXML(
        f"<pool type='dir'><name>data</name><target><path>{tmp_path}</path></target></pool>"
    ).create()
    converge(connection, name="box1", disks=[{"name": "system", "size": 1, "pool": "data"}])
    (tmp_path / "box1-system.qcow2").write_text("")  # the test driver makes no files
    connection.storagePoolLookupByName("data").destroy()
    if pool == "undefined":
        connection.storagePoolLookupByName("data").undefine()
    before = world.snapshot(connection)
    why = {
        "inactive": rf"storage pool data of disk {tmp_path}/box1-system.qcow2 is not active \(start it: virsh .*data\)",
        "undefined": rf"disk {tmp_path}/box1-system.qcow2 is in no storage pool",
    }
    with pytest.raises(Refused, match=why[pool]):
        gone(connection, check_mode=check_mode)
    assert world.snapshot(connection) == before
    with pytest.raises(NotFound, match="no active storage pool has its directory; start that pool"):
        libvirt_storage.delete(connection, f"{tmp_path}/box1-system.qcow2")
    if pool == "undefined":
        (tmp_path / "box1-system.qcow2").unlink()
        assert gone(connection, check_mode=check_mode)["steps"] == ["undefine box1"]


def test_a_disk_that_is_gone_already_is_no_error(connection: t.Any) -> None:
    converge(connection, name="box1", disks=[{"name": "system", "size": 1}])
    connection.storageVolLookupByPath(DISK).delete()
    gone(connection)
    assert [one.name() for one in connection.listAllDomains()] == []


def test_a_disk_that_was_kept_goes_by_the_command_that_its_note_has(connection: t.Any) -> None:
    """With the guest went what was known of its disks, so remove_storage cannot be said later."""
    converge(connection, name="box1", disks=[{"name": "system", "size": 1}])
    [note] = converge(connection, name="box1", state="absent")["notes"]
    assert note.startswith(f"kept disk {DISK} of box1; to delete it: ")
    program, _connect, uri, verb, path = shlex.split(note.rpartition(": ")[2])
    assert (program, uri, verb) == ("virsh", connection.getURI(), "vol-delete")
    connection.storageVolLookupByPath(path).delete()
    assert libvirt_storage.volume_at(connection, DISK) is None


def test_a_kept_disk_that_somebody_uses_has_no_such_command(connection: t.Any) -> None:
    converge(connection, name="box1", disks=[{"name": "system", "size": 1}])
    converge(connection, name="box2", disks=[{"name": "system", "source": DISK}])
    assert converge(connection, name="box1", state="absent")["notes"] == [
        f"kept disk {DISK} of box1: guest box2 uses it"
    ]


def test_disk_of_a_guest_is_no_image(connection: t.Any) -> None:
    converge(connection, name="box1", disks=[{"name": "system", "size": 1}])
    with pytest.raises(Refused, match="it is a disk of guest box1"):
        converge(connection, name="box2", image="box1-system.qcow2")


def test_disk_that_an_image_backing_file_stays(connection: t.Any) -> None:
    converge(connection, name="box1", disks=[{"name": "system", "size": 1}])
    overlay = Volume(
        "default",
        "other.qcow2",
        "/var/lib/libvirt/images/other.qcow2",
        1024**3,
        backing_path=DISK,
        backing_format="qcow2",
    )
    libvirt_storage.create(connection, "default", xml_host.new_volume(overlay), name=overlay.name)
    result = gone(connection)
    assert libvirt_storage.volume_at(connection, DISK) is not None
    assert "other.qcow2 uses it" in " ".join(result["notes"])


@pytest.mark.parametrize(
    "disk", [{"shareable": True}, {"readonly": True}, {}], ids=["shareable", "read-only", "used by another"]
)
def test_disk_that_others_use_stays(connection: t.Any, disk: dict[str, t.Any]) -> None:
    converge(connection, name="box1", disks=[{"name": "system", "size": 1, **disk}])
    if not disk:
        converge(connection, name="box2", disks=[{"name": "system", "source": DISK}])
    result = gone(connection)
    assert libvirt_storage.volume_at(connection, DISK) is not None
    assert f"kept disk {DISK}" in " ".join(result["notes"])


@pytest.mark.parametrize("mark", ["shareable", "readonly"])
def test_a_disk_that_others_use_stays_when_its_definition_names_the_volume(connection: t.Any, mark: str) -> None:
    """Somebody has changed it since the guest was made."""
    converge(connection, name="box1", disks=[{"name": "system", "size": 1}])
    pool, name = "default", DISK.rpartition("/")[2]
    root = ElementTree.fromstring(connection.lookupByName("box1").XMLDesc(2))
    [device] = root.iterfind(f"devices/disk/source[@file='{DISK}']/..")
    device.set("type", "volume")
    for source in device.findall("source"):
        device.remove(source)
    ElementTree.SubElement(device, "source", pool=pool, volume=name)
    ElementTree.SubElement(device, mark)
    connection.defineXML(ElementTree.tostring(root, encoding="unicode"))
    result = gone(connection)
    assert libvirt_storage.volume_at(connection, DISK) is not None
    assert f"kept disk {DISK}" in " ".join(result["notes"])


def pool_at(connection: t.Any, name: str, path: Path) -> t.Any:
    path.mkdir(exist_ok=True)
    return connection.storagePoolDefineXML(
        f"<pool type='dir'><name>{name}</name><target><path>{path}</path></target></pool>"
    )


def overlay(path: Path, base: Path) -> Path:
    subprocess.run(["qemu-img", "create", "-qu", "-f", "qcow2", "-b", base, "-F", "qcow2", path, "1M"], check=True)
    return path


@pytest.mark.parametrize("active", [True, False], ids=["running", "off"])
@pytest.mark.parametrize(
    "how", ["volume", "volume of an inactive pool", "volume of no pool", "link", "overlay", "overlay of a volume"]
)
def test_a_disk_stays_in_whatever_words_another_guest_names_it(
    connection: t.Any, tmp_path: Path, how: str, active: bool
) -> None:
    pool_at(connection, "data", tmp_path / "data").create()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "data")
    pool_at(connection, "again", link)  # libvirt knows no second pool of the same path
    converge(connection, name="box1", disks=[{"name": "system", "size": 1, "pool": "data"}])
    path = tmp_path / "data/box1-system.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, "1M"], check=True)
    disks: dict[str, dict[str, t.Any]] = {
        "volume": {"volume": f"data/{path.name}"},
        "volume of an inactive pool": {"volume": f"again/{path.name}"},
        "volume of no pool": {"volume": f"gone/{path.name}"},
        "link": {"source": str(link / path.name)},
        "overlay": {"source": str(overlay(tmp_path / "over.qcow2", link / path.name))},
    }
    if how in disks:
        disk = f"<source file='{disks[how]['source']}'/>" if "source" in disks[how] else None
        if disk is None:
            pool, _slash, volume = disks[how]["volume"].partition("/")
            disk = f"<source pool='{pool}' volume='{volume}'/>"
        kind = "file" if "source" in disks[how] else "volume"
        other = connection.defineXML(
            f"<domain type='test'><name>box2</name><memory>1024</memory><os><type>hvm</type></os><devices>"
            f"<disk type='{kind}' device='disk'><driver name='qemu' type='qcow2'/>{disk}<target dev='vda'/></disk>"
            "</devices></domain>"
        )
        if active:
            other.create()
        user = "guest box2"
    else:
        between = overlay(tmp_path / "between.qcow2", path)
        volume = Volume(
            "data", "v.qcow2", f"{tmp_path}/data/v.qcow2", 1024**2, backing_path=str(between), backing_format="qcow2"
        )
        libvirt_storage.create(connection, "data", xml_host.new_volume(volume), name=volume.name)
        user = f"{tmp_path}/data/v.qcow2"
    result = gone(connection)
    assert f"kept disk {path} of box1: {user} uses it" in result["notes"]
    assert libvirt_storage.volume_at(connection, str(path)) is not None


def test_what_a_killed_removal_left_is_named_and_kept(connection: t.Any) -> None:
    """The guest is gone, one of its disks is not; the disk of a guest with a longer name is another's."""
    converge(connection, name="box1", disks=[{"name": "system", "size": 1}])
    converge(connection, name="box1-b", disks=[{"name": "system", "size": 1}])
    connection.lookupByName("box1").undefine()
    result = gone(connection)
    there = "may be left over from box1: no guest uses it; inspect it"
    assert result["notes"] == [
        f"disk {DISK} {there}; to delete it: virsh --connect {connection.getURI()} vol-delete {DISK}"
    ]
    assert not result["changed"] and libvirt_storage.volume_at(connection, DISK) is not None


def test_a_saved_guest_is_said_to_wake_as_it_was(connection: t.Any) -> None:
    converge(connection, name="box1", disks=[], state="running")
    connection.lookupByName("box1").managedSave(0)
    result = run_guest.converge(
        connection, run_guest_options.wanted({"name": "box1", "memory": 512}), Gate(check_mode=False)
    )
    assert result["changed"] and "virsh managedsave-remove box1" in " ".join(result["notes"])
    assert not run_guest.converge(
        connection, run_guest_options.wanted({"name": "box1", "memory": 512}), Gate(check_mode=False)
    )["notes"]
