"""A volume that a QEMU process has open, as on another host that shares its filesystem, is neither resized nor copied.

Judged by the locks that QEMU takes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Spec
from ansible_collections.corral.virt.plugins.module_utils._storage import files_lvm
from ansible_collections.corral.virt.plugins.module_utils._system import command, locks
from ansible_collections.corral.virt.plugins.module_utils._volume import run_volume_users
from ansible_collections.corral.virt.plugins.module_utils._volume.model_volume import VOLUME_KIND
from ansible_collections.corral.virt.plugins.module_utils._volume.plan_volume import Resize
from ansible_collections.corral.virt.plugins.module_utils._volume.run_volume import API
from ansible_collections.corral.virt.plugins.module_utils._volume.run_volume_users import sharing, users

NODE = "<node><pool type='dir'><name>default</name><target><path>{}</path></target></pool></node>"
VOLUME = "<volume><name>a.raw</name><capacity>1048576</capacity></volume>"
OVERLAY = """<volume><name>over.qcow2</name><capacity>1048576</capacity><target><format type='qcow2'/></target>
<backingStore><path>{}</path><format type='raw'/></backingStore></volume>"""
READS, WRITES = 100, 101  # the bytes that QEMU locks
USER = "a QEMU process, perhaps on another host,"


@contextlib.contextmanager
def locked(path: Path, *at: int) -> t.Iterator[None]:
    """The file, as a QEMU process has it open."""
    with path.open("rb") as stream:
        for byte in at:
            fcntl.fcntl(stream, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, byte, 1, 0))
        yield


@pytest.fixture
def place(tmp_path: Path) -> t.Iterator[tuple[t.Any, Path]]:
    """A connection, and the file of a volume."""
    node = tmp_path / "node.xml"
    node.write_text(NODE.format(tmp_path))
    with opened(f"test://{node}") as connection:
        connection.storagePoolLookupByName("default").createXML(VOLUME)
        path = tmp_path / "a.raw"
        path.write_bytes(bytes(4096))
        yield connection, path


@pytest.mark.parametrize(
    ("at", "writer", "user"), [((), None, None), ((READS,), None, USER), ((READS, WRITES), USER, USER)]
)
def test_who_has_a_volume_open(place: tuple[t.Any, Path], at: tuple[int, ...], writer: object, user: object) -> None:
    connection, path = place
    host = API.host(connection, Spec("a.raw", "present", within="default"))
    with locked(path, *at):
        assert host.writer(str(path)) == writer
        assert host.user(str(path)) == host.taker(str(path)) == user


def test_what_is_opened_after_the_plan_keeps_its_size(place: tuple[t.Any, Path]) -> None:
    connection, path = place
    volume = connection.storageVolLookupByPath(str(path))
    step = Resize(VOLUME_KIND.ref("a.raw", "default"), 512, str(path))
    with locked(path, READS, WRITES), pytest.raises(Refused, match=r"cannot resize volume a.raw .* perhaps on another"):
        API.own[Resize](volume, step)


def test_a_host_tells_who_uses_files_and_which_volumes_others_may_use(
    place: tuple[t.Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, path = place
    connection.storagePoolLookupByName("default").createXML(OVERLAY.format(path))
    other = str(path.with_name("other"))
    assert users(connection, [str(path), other]) == {str(path): str(path.with_name("over.qcow2")), other: None}
    monkeypatch.setattr(locks, "shared_filesystem", lambda where: "nfs4" if where == str(path.parent) else None)
    shared = sharing(connection)
    assert shared(str(path)) == {"shared": "nfs4", "identity": str(path)}
    assert shared("/elsewhere/a.raw") == {"shared": None, "identity": "/elsewhere/a.raw"}


@pytest.mark.parametrize(
    ("asked", "mounted", "user"),
    [
        ("elsewhere/a.raw", True, "over.qcow2 at a.raw"),  # the same export, mounted at another path here
        ("elsewhere/a.raw", False, None),  # a local file that happens to have the name
        ("elsewhere/b.raw", True, None),
        ("c.raw", True, None),  # this host sees the file itself: another of its name is another file
    ],
)
def test_a_file_is_known_by_its_name_where_its_filesystem_is_mounted_elsewhere(
    place: tuple[t.Any, Path], monkeypatch: pytest.MonkeyPatch, asked: str, *, mounted: bool, user: str | None
) -> None:
    connection, path = place
    connection.storagePoolLookupByName("default").createXML(OVERLAY.format(path))
    path.with_name("c.raw").write_bytes(b"")
    monkeypatch.setattr(locks, "may_be_shared", lambda where: mounted and where == str(path.parent))
    asked = str(path.parent / asked)
    found = users(connection, [asked])[asked]
    assert found == (user and " at ".join(str(path.parent / name) for name in user.split(" at ")))


def test_a_file_that_is_not_mounted_now_is_known_by_its_name(place: tuple[t.Any, Path]) -> None:
    connection, path = place
    connection.storagePoolLookupByName("default").createXML(OVERLAY.format("/mnt/images/base.raw"))
    found = users(connection, ["/srv/images/base.raw"])
    assert found == {"/srv/images/base.raw": f"{path.with_name('over.qcow2')} at /mnt/images/base.raw"}


GROUP, VOLUME_UUID = "aaaaaa-bbbb-cccc-dddd-eeee-ffff-gggggg", "hhhhhh-iiii-jjjj-kkkk-llll-mmmm-nnnnnn"
LV = {"vg_uuid": GROUP, "lv_uuid": VOLUME_UUID, "lv_path": "/dev/vg/a", "lv_dm_path": "/dev/mapper/vg-a"}
LSBLK = "lvm\npart\ndisk {}\n"


@pytest.mark.parametrize(
    ("transport", "group"), [("sata", None), ("nvme", None), ("iscsi", "volume group vg"), ("", "volume group vg")]
)
def test_a_logical_volume_is_known_by_its_uuid_where_hosts_may_share_its_disks(
    place: tuple[t.Any, Path], monkeypatch: pytest.MonkeyPatch, transport: str, group: str | None
) -> None:
    connection, path = place
    connection.storagePoolLookupByName("default").createXML(OVERLAY.format("/dev/mapper/vg-a"))
    monkeypatch.setattr(files_lvm, "rows", lambda kind, *_rest: [LV] if kind == "lv" else [{"pv_name": "/dev/sdx1"}])
    monkeypatch.setattr(command, "answer", lambda *_words: LSBLK.format(transport))
    monkeypatch.setattr(run_volume_users, "has_files_here", lambda _uri: True)
    uuid = "LVM-" + (GROUP + VOLUME_UUID).replace("-", "")
    assert sharing(connection)("/dev/vg/a") == {"shared": group, "identity": uuid}
    other = uuid[:-1] + "x"
    assert users(connection, [uuid, other]) == {uuid: str(path.with_name("over.qcow2")), other: None}
