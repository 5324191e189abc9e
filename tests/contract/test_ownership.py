"""Which disks go with a guest: those that its record names as this guest's, on this host, and as this very file."""

from __future__ import annotations

import dataclasses
import subprocess
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record
from ansible_collections.corral.virt.plugins.module_utils._guest import run_guest, run_guest_options
from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage
from ansible_collections.corral.virt.plugins.module_utils._system import identity
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity, OwnedVolume
from ansible_collections.corral.virt.plugins.module_utils._xml.names import PREFIXES

BOX: dict[str, t.Any] = {"vcpus": 1, "memory": 256, "interfaces": [], "state": "present"}
GONE: dict[str, t.Any] = {"state": "absent", "remove_storage": True}
OTHER = "11111111-f6a4-8304-79aa-97f2502e193f"


def converge(connection: t.Any, name: str = "box1", *, check_mode: bool = False, **options: t.Any) -> dict[str, t.Any]:
    """One guest."""
    return run_guest.converge(
        connection, run_guest_options.wanted({"name": name, **BOX, **options}), Gate(check_mode=check_mode)
    )


@pytest.fixture
def disk(connection: t.Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the guest box1, made by us; the test driver makes no files, so they are made beside it."""
    made = libvirt_storage.create

    def create(*arguments: t.Any, name: str, **more: t.Any) -> None:
        made(*arguments, name=name, **more)
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", tmp_path / name, "1M"], check=True)

    monkeypatch.setattr(libvirt_storage, "create", create)
    connection.storagePoolDefineXML(
        f"<pool type='dir'><name>data</name><target><path>{tmp_path}</path></target></pool>"
    ).create()
    converge(connection, disks=[{"name": "system", "size": 1, "pool": "data"}])
    return tmp_path / "box1-system.qcow2"


def entries(connection: t.Any, name: str = "box1") -> list[OwnedVolume]:
    """Of the guest's record."""
    return list(fields_record.read(connection.lookupByName(name).XMLDesc(2))["volumes"])


def with_entry(connection: t.Any, **fields: t.Any) -> OwnedVolume:
    """The record has another entry, such as a version before or a run on another host wrote it."""
    [entry] = entries(connection)
    other = dataclasses.replace(entry, **fields)
    there = connection.lookupByName("box1")
    there.setMetadata(2, fields_record.update(there.XMLDesc(2), {"volumes": (other,)}), "corral", PREFIXES["corral"], 2)
    assert entries(connection) == [other]
    return other


def test_what_is_made_is_recorded_as_the_file_that_it_is(connection: t.Any, disk: Path) -> None:
    [entry] = entries(connection)
    assert entry.guest == connection.lookupByName("box1").UUIDString() and entry.path == str(disk)
    assert entry.identity == identity.of_path(str(disk)) and entry.identity and entry.identity.mark
    assert converge(connection)["changed"] is False
    converge(connection, **GONE)
    assert not disk.exists()


@pytest.mark.parametrize("once", [True, False], ids=["its UUID", "every such text"])
def test_a_copy_of_the_definition_does_not_take_the_originals_disk(connection: t.Any, disk: Path, once: bool) -> None:
    """`virsh dumpxml box1 | sed ... | virsh define`, and then the original is gone for a moment."""
    original = connection.lookupByName("box1")
    xml = original.XMLDesc(2)
    connection.defineXML(xml.replace(original.UUIDString(), OTHER, 1).replace(">box1<", ">copy<", 1))
    original.undefine()
    [note] = converge(connection, "copy", **GONE)["notes"]
    assert (
        disk.exists() and f"created for the guest with UUID {original.UUIDString()}; this definition is a copy" in note
    )


def test_the_same_definition_on_another_host_does_not_take_the_disk(connection: t.Any, disk: Path) -> None:
    """It is on shared storage, say, and the guest runs on the first host."""
    with_entry(connection, host=OTHER)
    assert converge(connection)["changed"] is False
    [note] = converge(connection, **GONE)["notes"]
    assert disk.exists() and f"on the host with UUID {OTHER}" in note and "vol-delete" not in note


def test_a_file_that_has_the_name_of_a_disk_by_now_stays(connection: t.Any, disk: Path) -> None:
    disk.rename(disk.with_suffix(".old"))
    disk.write_text("somebody else's")
    [note] = converge(connection, **GONE)["notes"]
    assert disk.read_text() == "somebody else's" and "another file than the one that was created for box1" in note
    assert f"vol-delete {disk}" in note


def test_a_disk_that_was_taken_from_the_guest_stays(connection: t.Any, disk: Path) -> None:
    converge(connection, disks=[{"name": "system", "state": "absent"}])
    [note] = converge(connection, **GONE)["notes"]
    assert disk.exists() and "box1 does not have it any more" in note


def test_another_file_is_not_given_to_the_guest_as_the_disk_that_it_had(connection: t.Any, disk: Path) -> None:
    converge(connection, disks=[{"name": "system", "state": "absent"}])
    disk.unlink()
    disk.write_text("somebody else's")
    with pytest.raises(Exception, match="exists already"):
        converge(connection, disks=[{"name": "system", "size": 1, "pool": "data"}])


def test_the_disk_and_the_seed_of_a_guest_that_was_renamed_are_not_called_leftovers(
    connection: t.Any, disk: Path
) -> None:
    """Its files keep their names, which a new guest of the former name would give to its own."""
    system: dict[str, t.Any] = {"name": "system", "size": 1, "pool": "data"}
    other = {**system, "name": "other"}
    seed = disk.with_name("box1-seed.iso")  # the test driver writes none
    xml = f"<volume><name>{seed.name}</name><capacity>1</capacity></volume>"
    connection.storagePoolLookupByName("data").createXML(xml)
    converge(connection, disks=[system, {"name": "cidata", "source": str(seed), "format": "raw"}])
    original = connection.lookupByName("box1")
    xml = original.XMLDesc(2)
    original.undefine()
    connection.defineXML(xml.replace(">box1<", ">web2<", 1))
    for check_mode in (True, False):
        with pytest.raises(Exception, match=f"{disk} exists already, and guest web2 uses it; choose another name"):
            converge(connection, disks=[system], check_mode=check_mode)
        with pytest.raises(Exception, match=f"{seed} exists already, and guest web2 uses it; choose another name"):
            converge(connection, disks=[other], cloud_init={"user_data": {}}, check_mode=check_mode)
    assert disk.exists()


BARE: dict[str, t.Any] = {"guest": None, "host": "", "identity": None}


def test_an_entry_of_an_older_version_does_not_count_until_a_run_has_completed_it(
    connection: t.Any, disk: Path
) -> None:
    with_entry(connection, **BARE)
    foretold = converge(connection, check_mode=True, **GONE)
    assert foretold["steps"] == ["undefine box1"] and "is of an older version" in foretold["notes"][0]
    assert "-m corral.virt.virt_domain -a name=box1" in foretold["notes"][0]
    assert converge(connection, check_mode=True)["steps"] == ["define box1 (its record)"]
    assert converge(connection)["steps"] == ["define box1 (its record)"]
    assert converge(connection)["changed"] is False
    [entry] = entries(connection)
    assert entry.identity == identity.of_path(str(disk))
    converge(connection, **GONE)
    assert not disk.exists()


def test_a_disk_that_another_guest_uses_is_not_adopted(connection: t.Any, disk: Path) -> None:
    with_entry(connection, **BARE)
    converge(connection, "box2", disks=[{"name": "system", "source": str(disk)}])
    assert converge(connection)["changed"] is False
    assert entries(connection) == [OwnedVolume(str(disk))]


def test_a_guest_that_came_with_a_migration_is_not_changed_by_the_next_run(connection: t.Any, disk: Path) -> None:
    [entry] = entries(connection)
    guest = t.cast(str, entry.guest)
    [there] = fields_record.arrived([entry], [str(disk)], guest=guest, source=entry.host, host=entry.host, moved={})
    assert there.identity is None
    assert with_entry(connection, identity=None) == there
    assert converge(connection)["changed"] is False
    assert entries(connection) == [there]


def test_an_entry_that_a_migration_wrote_counts_by_guest_and_host(connection: t.Any, disk: Path) -> None:
    with_entry(connection, identity=None)
    converge(connection, **GONE)
    assert not disk.exists()


def test_a_file_that_a_run_replaces_is_recorded_anew(connection: t.Any, disk: Path) -> None:
    """A run that was interrupted left a part; the next one makes the disk again."""
    before = entries(connection)[0].identity
    xml = connection.lookupByName("box1").XMLDesc(2)
    xml = xml.replace("<corral:volume", f"<corral:making>{disk}</corral:making><corral:volume", 1)
    connection.defineXML(xml.replace(f"file='{disk}'", f"file='{disk}.making'"))
    disk.rename(disk.with_suffix(".old"))
    converge(connection, disks=[{"name": "system", "size": 1, "pool": "data"}])
    [entry] = entries(connection)
    assert entry.identity == identity.of_path(str(disk)) and entry.identity != before


def test_a_filesystem_that_tells_only_inodes_is_not_believed(
    connection: t.Any, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An inode is used again."""
    with_entry(connection, **BARE)
    monkeypatch.setattr(identity, "of", lambda _descriptor: FileIdentity(5))
    converge(connection)
    [entry] = entries(connection)
    assert entry.guest and entry.identity is None
    assert converge(connection)["changed"] is False
