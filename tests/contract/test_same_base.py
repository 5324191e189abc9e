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

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._image import files_image
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Image, Manifest
from ansible_collections.corral.virt.plugins.module_utils._migration import run_disk_moves
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import Pool
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_disk_move_stages import DiskMoveFacts
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migrating_disk import (
    MigratingDisk,
    VolumeFile,
)
from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage, libvirt_transfer
from ansible_collections.corral.virt.plugins.module_utils._system import work_directory

CONTENT, DATA = "debian-12.1a2b3c4d5e6f.qcow2", b"the content" * 1000
BESIDE = f".{CONTENT}.json"


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """A pool with a content that virt_image brought there."""
    image = Image("debian-12.qcow2", str(tmp_path), "qcow2")
    with work_directory.locked(image):
        new = Path(work_directory.path(image, "new"))
        new.write_bytes(DATA)
        result = Manifest(
            CONTENT,
            hashlib.sha256(DATA).hexdigest(),
            len(DATA),
            "there",
            f"sha256:{'0' * 64}",
            "2026-01-01T00:00:00+00:00",
        )
        files_image.publish(str(new), image, result)
    return tmp_path


def manifest(pool: Path) -> Manifest:
    return files_image.read_manifest((pool / BESIDE).read_text(), CONTENT)


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
    result = {
        key: value for key, value in dataclasses.asdict(manifest(pool)).items() if key not in ("inode", "changed_ns")
    }
    (pool / BESIDE).write_text(json.dumps(result))


def timeless(pool: Path) -> None:
    """The manifest holds no time."""
    (pool / BESIDE).write_text(json.dumps({**dataclasses.asdict(manifest(pool)), "fetched": "now"}))


def verify(pool: Path, offered: Manifest | None = None, *, write: bool = True) -> bool:
    known = files_image.verify(str(pool), CONTENT, offered)
    if known and write and not files_image.verified(str(pool), CONTENT):
        files_image.vouch(str(pool), known)
    return known is not None


def test_what_was_verified_is_not_read_again(pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_image, "digest_of", None)
    assert verify(pool) and manifest(pool).inode == (pool / CONTENT).stat().st_ino


def test_a_manifest_that_is_no_text_is_none(pool: Path) -> None:
    (pool / BESIDE).chmod(0o644)
    (pool / BESIDE).write_bytes(b"\xff")
    assert files_image.manifest_of(str(pool), CONTENT) is None


def test_a_change_that_keeps_the_time_is_seen(pool: Path) -> None:
    changed(pool)
    assert not verify(pool)


def test_what_is_written_while_it_is_read_is_not_vouched_for(pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(pool)
    read = files_image.digest_of

    def late(path: str, *more: t.Any) -> str:
        result = read(path, *more)
        changed(pool)
        return result

    with monkeypatch.context() as patched:
        patched.setattr(files_image, "digest_of", late)
        assert verify(pool), "it was so when it was read"
    assert not files_image.verified(str(pool), CONTENT) and not verify(pool)


def test_without_a_manifest_nobody_knows(pool: Path) -> None:
    result = manifest(pool)
    (pool / BESIDE).unlink()
    assert not verify(pool)
    assert verify(pool, result), "another hypervisor tells what it must be"
    assert verify(pool)


@pytest.mark.parametrize("happens", [replaced, earlier, lambda pool: changed(pool, back=True)])
def test_what_is_the_same_after_all_is_said_so(pool: Path, happens: t.Callable[[Path], None]) -> None:
    happens(pool)
    before = (pool / BESIDE).read_text()
    assert verify(pool, write=False) and (pool / BESIDE).read_text() == before
    assert verify(pool)
    now = (pool / CONTENT).stat()
    assert manifest(pool).is_of(size=now.st_size, changed_ns=now.st_ctime_ns, inode=now.st_ino)


def judged(
    pool: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    base: str = "",
    assumed: bool = False,
    fetched: str = "2126-01-01T00:00:00+00:00",
    happens: t.Callable[[Path], None] = lambda _pool: None,
) -> t.Callable[[], str]:
    """What judges the base of a disk from the source, through libvirt."""
    result = dataclasses.replace(manifest(pool), fetched=fetched)
    (pool / BESIDE).write_text(json.dumps(dataclasses.asdict(result)))
    happens(pool)

    class Endpoints:
        """The destination."""

        verified, source = VERIFIED, None

        class dest:  # noqa: N801
            """Its connection."""

            @staticmethod
            def getURI() -> str:  # noqa: N802  as libvirt names it
                return str(pool)

    def volume(connection: t.Any, path: str) -> str | None:
        assert connection is Endpoints.dest
        if not Path(path).exists():
            return None
        now = Path(path).stat()
        second, rest = divmod(now.st_ctime_ns, 10**9)
        times = f"<timestamps><mtime>{now.st_mtime}</mtime><ctime>{second}.{rest:09}</ctime></timestamps>"
        return f"<volume><physical>{now.st_size}</physical><target><path>{path}</path>{times}</target></volume>"

    def file(connection: t.Any, name: str, of: str) -> Path:
        assert (connection, name) == (Endpoints.dest, "default")
        return pool / of

    def refresh(connection: t.Any, name: str) -> None:
        REFRESHED.append(file(connection, name, ""))

    def read(connection: t.Any, name: str, of: str) -> bytes | None:
        path = file(connection, name, of)
        return path.read_bytes() if path.exists() else None

    def digest(connection: t.Any, name: str, of: str) -> str:
        DIGESTS.append(of)
        return hashlib.sha256(file(connection, name, of).read_bytes()).hexdigest()

    REFRESHED.clear()
    DIGESTS.clear()
    monkeypatch.setattr(libvirt_storage, "refresh", refresh)
    monkeypatch.setattr(libvirt_storage, "read", read)
    monkeypatch.setattr(libvirt_storage, "volume_at", volume)
    monkeypatch.setattr(libvirt_transfer, "digest", digest)
    monkeypatch.setattr(libvirt_storage, "volume_in", lambda *_told: None)
    path = str(pool / "a.qcow2")
    over = VolumeFile("qcow2", 1, 1, backing_path=base or str(pool / CONTENT))
    monkeypatch.setattr(run_disk_moves, "_file", lambda _connection, of: over if of == path else None)
    hosts, pools = run_disk_moves._Hosts(t.cast(t.Any, Endpoints)), {str(pool): Pool("default", str(pool), 1)}

    def verdict() -> str:
        disk = MigratingDisk("vda", path, "delta", assumed=assumed)
        seen = hosts.disk(DiskMoveFacts(disk, raw=False, pools=pools, ours=(), active=True))
        return {(True, False): "altered", (False, True): "unknown"}.get((seen.base_altered, seen.base_unknown), "same")

    return verdict


REFRESHED: list[Path] = []
DIGESTS: list[str] = []  # of what was read as a whole
VERIFIED: set[tuple[t.Any, ...]] = set()  # of one run


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
    look = judged(pool, monkeypatch, happens=happens)
    assert look() == verdict
    assert len(REFRESHED) == 1, "what came there behind libvirt's back counts"


@pytest.mark.parametrize(
    ("happens", "digests"), [(lambda _pool: None, []), (replaced, [CONTENT]), (earlier, [CONTENT])]
)
def test_a_base_of_the_destination_is_read_once_at_most(
    pool: Path, happens: t.Callable[[Path], None], digests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _disk in range(2):
        look = judged(pool, monkeypatch, happens=happens if not _disk else lambda _pool: None)
        assert [look() for _again in range(2)] == ["same", "same"]
        assert len(REFRESHED) == 1 and digests == DIGESTS
        digests = []


@pytest.mark.parametrize(
    ("happens", "verdict"), [(lambda _pool: None, "same"), (replaced, "unknown"), (earlier, "unknown")]
)
def test_nothing_is_read_before_images_are_brought(
    pool: Path, happens: t.Callable[[Path], None], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = judged(pool, monkeypatch, happens=happens, assumed=True)
    assert (look(), DIGESTS) == (verdict, [])


def test_a_base_that_is_in_no_pool_of_the_destination_is_not_known(pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = judged(pool, monkeypatch, base=f"/elsewhere/{CONTENT}")
    assert look() == "unknown"


def test_a_base_that_is_gone_while_its_manifest_is_there_is_not_known(
    pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = judged(pool, monkeypatch, happens=lambda pool: (pool / CONTENT).unlink())
    assert look() == "unknown"


@pytest.mark.parametrize(("later_s", "verdict"), [(0, "same"), (2, "same"), (2.5, "altered"), (60, "altered")])
def test_a_base_that_was_written_after_it_was_brought_is_altered(
    pool: Path, later_s: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = 1_700_000_000 + later_s
    look = judged(
        pool,
        monkeypatch,
        fetched="2023-11-14T22:13:20+00:00",
        happens=lambda pool: os.utime(pool / CONTENT, (at, at)),
    )
    assert look() == verdict


def test_a_manifest_that_is_no_text_names_its_image(pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = judged(pool, monkeypatch, happens=lambda pool: _written(pool / BESIDE, b"\xff"))
    with pytest.raises(
        Failed, match=rf"^cannot read the manifest of {pool / CONTENT}: .*; import the image again under another"
    ):
        look()


def _written(path: Path, content: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(content)
