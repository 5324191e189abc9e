"""Pools that libvirt does not list, and directories that do not answer."""

from __future__ import annotations

import os
import types
import typing as t
from pathlib import Path

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._storage import files_header, libvirt_storage
from ansible_collections.corral.virt.plugins.module_utils._system import stale_mounts

LISTED = 16384


def volume(path: Path) -> t.Any:
    """A volume of libvirt."""
    xml = f"<volume><name>{path.name}</name></volume>"
    return types.SimpleNamespace(name=lambda: path.name, path=lambda: str(path), XMLDesc=lambda: xml)


def pool_of(directory: Path, count: int, looked_up: list[str]) -> t.Any:
    """A pool of this machine that has so many volumes, as no libvirt of a test has. It does not know `gone`."""

    def every() -> list[t.Any]:
        if count > LISTED:
            raise libvirt.libvirtError("Too many storage_vols")
        return [volume(path) for path in sorted(directory.iterdir())]

    def one(name: str) -> t.Any:
        looked_up.append(name)
        if name == "gone":
            error = libvirt.libvirtError("no such volume")
            error.err = (libvirt.VIR_ERR_NO_STORAGE_VOL, 0, "", 0, "", "", "", 0, 0)
            raise error
        return volume(directory / name)

    pool = types.SimpleNamespace(
        name=lambda: "many",
        isActive=lambda: True,
        refresh=lambda: None,
        numOfVolumes=lambda: count,
        listAllVolumes=every,
        storageVolLookupByName=one,
        XMLDesc=lambda: f"<pool type='dir'><target><path>{directory}</path></target></pool>",
    )
    connection = types.SimpleNamespace(
        getURI=lambda: "qemu:///system",
        listAllStoragePools=lambda *_flags: [pool],
        storagePoolLookupByName=lambda _name: pool,
    )
    pool.connect = lambda: connection
    return pool


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Three files, of which one is an image."""
    for name in ("raw", "gone"):
        (tmp_path / name).touch()
    (tmp_path / "over").write_bytes(b"QFI\xfb")
    return tmp_path


@pytest.mark.parametrize("count", [3, LISTED, LISTED + 1])
def test_all_volumes_are_found(files: Path, count: int) -> None:
    looked_up = list[str]()
    pool = pool_of(files, count, looked_up)
    connection, too_many = pool.connect(), count > LISTED
    known = {"raw", "over"} if too_many else {"raw", "over", "gone"}
    assert {name for name, _volume in libvirt_storage.listed(pool)} == known
    assert {Path(path).name for path in libvirt_storage.paths(connection)} == {"raw", "over", "gone"}
    looked_up.clear()
    documents = libvirt_storage.all_volumes(connection, files_header.is_image)
    assert len(documents) == (1 if too_many else 3)
    assert looked_up == (["over"] if too_many else []), "only what may name other files is asked about"
    assert [name for name, _volume in libvirt_storage.listed(pool, name="raw")] == ["raw"]
    assert libvirt_storage.listed(pool, name="gone") == []


def test_a_directory_that_does_not_answer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stale_mounts.answers(str(tmp_path)) and stale_mounts.answers(str(tmp_path / "nothing"))
    (tmp_path / "link").symlink_to("/proc")
    assert stale_mounts.filesystem(str(tmp_path / "link")) == str(Path("/proc").stat().st_dev)
    assert stale_mounts.filesystem(str(tmp_path / "nothing")) is None
    libvirt_storage.check_answers("p", str(tmp_path))
    (tmp_path / "stat").write_text("#!/bin/sh\nexec sleep 20\n")
    (tmp_path / "stat").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert not stale_mounts.answers("/srv", 0.2) and stale_mounts.filesystem("/srv", 0.2) is None
    monkeypatch.setattr(libvirt_storage, "answers", lambda path: stale_mounts.answers(path, 0.2))
    with pytest.raises(Failed, match=r"umount --force --lazy '/srv/a b'; virsh pool-destroy p"):
        libvirt_storage.check_answers("p", "/srv/a b")
