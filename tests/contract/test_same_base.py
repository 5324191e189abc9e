"""A base image is what it was verified to be, or it is not stood on: whatever its name and its time say."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._files import image as files
from ansible_collections.corral.virt.plugins.module_utils._files import workplace
from ansible_collections.corral.virt.plugins.module_utils._front import travel
from ansible_collections.corral.virt.plugins.module_utils._libvirt import storage, transfer
from ansible_collections.corral.virt.plugins.module_utils._model.image import Image, Manifest
from ansible_collections.corral.virt.plugins.module_utils._model.move import Pool

CONTENT, DATA = "debian-12.1a2b3c4d5e6f.qcow2", b"the content" * 1000
BESIDE = f".{CONTENT}.json"


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """A pool with a content that virt_image brought there."""
    image = Image("debian-12.qcow2", str(tmp_path), "qcow2")
    with workplace.locked(image):
        new = Path(workplace.path(image, "new"))
        new.write_bytes(DATA)
        told = Manifest(
            CONTENT,
            hashlib.sha256(DATA).hexdigest(),
            len(DATA),
            "there",
            f"sha256:{'0' * 64}",
            "2026-01-01T00:00:00+00:00",
        )
        files.publish(str(new), image, told)
    return tmp_path


def manifest(pool: Path) -> Manifest:
    return files.read_manifest((pool / BESIDE).read_text(), CONTENT)


def changed(pool: Path, *, back: bool = False) -> None:
    """Its bytes are others (or as they were), its size and its time are as before."""
    path = pool / CONTENT
    before = path.stat()
    path.chmod(0o644)
    path.write_bytes(DATA if back else DATA[:-1] + b"!")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(pool: Path) -> None:
    """As `cp -p` to another name and `mv` do it."""
    shutil.copy2(pool / CONTENT, pool / "other")
    (pool / "other").rename(pool / CONTENT)


def earlier(pool: Path) -> None:
    """The manifest is one that an earlier version wrote."""
    told = {
        key: value for key, value in dataclasses.asdict(manifest(pool)).items() if key not in ("inode", "changed_ns")
    }
    (pool / BESIDE).write_text(json.dumps(told))


def timeless(pool: Path) -> None:
    """The manifest holds no time."""
    (pool / BESIDE).write_text(json.dumps({**dataclasses.asdict(manifest(pool)), "fetched": "now"}))


def verify(pool: Path, offered: Manifest | None = None, *, write: bool = True) -> bool:
    known = files.verify(str(pool), CONTENT, offered)
    if known and write and not files.verified(str(pool), CONTENT):
        files.vouch(str(pool), known)
    return known is not None


def test_what_was_verified_is_not_read_again(pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "digest_of", None)
    assert verify(pool) and manifest(pool).inode == (pool / CONTENT).stat().st_ino


def test_a_manifest_that_is_no_text_is_none(pool: Path) -> None:
    (pool / BESIDE).chmod(0o644)
    (pool / BESIDE).write_bytes(b"\xff")
    assert files.manifest_of(str(pool), CONTENT) is None


def test_a_change_that_keeps_the_time_is_seen(pool: Path) -> None:
    changed(pool)
    assert not verify(pool)


def test_what_is_written_while_it_is_read_is_not_vouched_for(pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(pool)
    read = files.digest_of

    def late(path: str, *more: t.Any) -> str:
        told = read(path, *more)
        changed(pool)
        return told

    with monkeypatch.context() as patched:
        patched.setattr(files, "digest_of", late)
        assert verify(pool), "it was so when it was read"
    assert not files.verified(str(pool), CONTENT) and not verify(pool)


def test_without_a_manifest_nobody_knows(pool: Path) -> None:
    told = manifest(pool)
    (pool / BESIDE).unlink()
    assert not verify(pool)
    assert verify(pool, told), "another hypervisor tells what it must be"
    assert verify(pool)


@pytest.mark.parametrize("happens", [replaced, earlier, lambda pool: changed(pool, back=True)])
def test_what_is_the_same_after_all_is_said_so(pool: Path, happens: t.Callable[[Path], None]) -> None:
    happens(pool)
    before = (pool / BESIDE).read_text()
    assert verify(pool, write=False) and (pool / BESIDE).read_text() == before
    assert verify(pool)
    now = (pool / CONTENT).stat()
    assert manifest(pool).is_of(size=now.st_size, changed_ns=now.st_ctime_ns, inode=now.st_ino)


@pytest.mark.parametrize(
    ("happens", "verdict"),
    [
        (lambda _pool: None, "same"),
        (changed, "altered"),
        (replaced, "same"),
        (earlier, "same"),
        (timeless, "altered"),
        (lambda pool: (pool / BESIDE).unlink(), "unknown"),
    ],
)
def test_a_base_of_the_destination_is_stood_on_only_when_it_is_the_same(
    pool: Path, happens: t.Callable[[Path], None], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Judged from the source, through libvirt."""
    told = dataclasses.replace(manifest(pool), fetched="2126-01-01T00:00:00+00:00")
    (pool / BESIDE).write_text(json.dumps(dataclasses.asdict(told)))
    happens(pool)
    path = pool / CONTENT

    def volume(_connection: t.Any, _path: str) -> str:
        now = path.stat()
        second, rest = divmod(now.st_ctime_ns, 10**9)
        times = f"<timestamps><mtime>{now.st_mtime}</mtime><ctime>{second}.{rest:09}</ctime></timestamps>"
        return f"<volume><physical>{now.st_size}</physical><target><path>{path}</path>{times}</target></volume>"

    monkeypatch.setattr(storage, "refresh", lambda _connection, _pool: None)
    monkeypatch.setattr(
        storage, "read", lambda _connection, _pool, name: (pool / name).read_bytes() if (pool / name).exists() else None
    )
    monkeypatch.setattr(storage, "volume_at", volume)
    monkeypatch.setattr(
        transfer, "digest", lambda _connection, _pool, name: hashlib.sha256((pool / name).read_bytes()).hexdigest()
    )

    class Ends:
        """The destination."""

        class dest:  # noqa: N801
            """Its connection."""

            @staticmethod
            def getURI() -> str:  # noqa: N802  as libvirt names it
                return str(pool)

    look = travel._Look(t.cast(t.Any, Ends), {str(pool): Pool("default", str(pool), 1)}, (), assumed=False)
    assert look._verdict(str(path)) == verdict
