"""What a user is advised fits what is wrong with the host's filesystem, met for real."""

from __future__ import annotations

import os
import subprocess
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._image import files_image, run_image
from ansible_collections.corral.virt.plugins.module_utils._image.files_fetch import Part
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Image
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._storage import files_disk
from ansible_collections.corral.virt.plugins.module_utils._system import configuration

NODE = "<node><pool type='dir'><name>default</name><target><path>{}</path></target></pool></node>"


def imported(root: Path, pool: Path) -> dict[str, t.Any]:
    """A disk of 3 MiB in a pool."""
    (root / "node.xml").write_text(NODE.format(pool))
    (root / "disk.raw").write_bytes(os.urandom(3 * 1024**2))
    params = {name: option.get("default") for name, option in run_image.OPTIONS.items()}
    params.update(name="new.raw", src=str(root / "disk.raw"), remote_src=True, checksum="none", reserve="0")
    world = run_image.World(t.cast(t.Any, None), t.cast(t.Any, None))
    with opened(f"test://{root / 'node.xml'}") as connection:
        return run_image.converge(connection, params, Gate(check_mode=False), world)


def run(*command: str | Path) -> None:
    """A command that only root can run, or only on some filesystems: else the test is skipped."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{command[0]}: {done.stderr.strip()}")


@pytest.fixture
def mounted(tmp_path: Path) -> t.Iterator[Path]:
    """A filesystem of 2 MiB, of its own."""
    place = tmp_path / "mounted"
    place.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_pool_without_its_directory_is_not_measured(tmp_path: Path) -> None:
    pool = tmp_path / "gone"
    with pytest.raises(
        Refused, match=rf"no directory {pool} .*; create it or mount its filesystem \(virt_pool "
    ) as told:
        imported(tmp_path, pool)
    wanted = Image("new.raw", str(pool), "raw")
    for attempt in (lambda: files_image.look(wanted), lambda: files_image.names(str(pool))):
        with pytest.raises(Failed, match=r"No such file or directory.*; (create|check)") as caught:
            attempt()
        assert "`df" not in str(caught.value) and "as root" not in str(caught.value)
    assert "`df" not in str(told.value)


def test_a_full_filesystem_is_told_with_what_shows_its_room(mounted: Path) -> None:
    def fetched() -> None:
        with Part(str(mounted / "a.part")) as part:
            part.write(os.urandom(3 * 1024**2))
            part.finish()

    def created() -> None:
        with files_disk.new(str(mounted / "a.qcow2")) as path:
            Path(path).write_bytes(os.urandom(3 * 1024**2))

    for attempt in (fetched, created, lambda: configuration.write(str(mounted / "a.conf"), "x" * 3 * 1024**2)):
        with pytest.raises(Failed, match=r"No space left on device.*; make room there \(`df -h \S+/mounted`") as caught:
            attempt()
        assert "become" not in str(caught.value)


def test_a_filesystem_that_is_mounted_read_only_is_told(tmp_path: Path, mounted: Path) -> None:
    run("mount", "-o", "remount,ro", mounted)
    for attempt in (
        lambda: imported(tmp_path, mounted),
        lambda: configuration.write(str(mounted / "a.conf"), "x"),
    ):
        with pytest.raises(Failed, match=r"Read-only file system; mount its filesystem for writing \(`findmnt -T "):
            attempt()


def test_root_is_not_told_to_become_root(tmp_path: Path) -> None:
    place = tmp_path / "immutable"
    place.mkdir()
    run("chattr", "+i", place)

    def created() -> None:
        with files_disk.new(str(place / "a.qcow2")) as path:
            Path(path).touch()

    try:
        for attempt in (
            lambda: imported(tmp_path, place),
            lambda: configuration.write(str(place / "a.conf"), "x"),
            created,
        ):
            with pytest.raises(Failed, match=rf"root is denied, too: .*`lsattr -d \S+ {place}`") as caught:
                attempt()
            assert "become" not in str(caught.value)
    finally:
        subprocess.run(["chattr", "-i", place], check=True)
