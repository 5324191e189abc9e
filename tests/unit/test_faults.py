"""What `make faults` judges by."""

from __future__ import annotations

import importlib
import itertools
import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.faults.boot_sector import SECTOR, boot_sector, count, sector
from ansible_collections.corral.virt.tests.faults.foreign import Foreign


def _disk(*numbers: int) -> bytes:
    return boot_sector(20) + b"".join(map(sector, numbers)) + bytes(3 * SECTOR)


def test_a_boot_sector_is_one() -> None:
    """Of the right size, with its mark, the same but for the rate."""
    slow, fast = boot_sector(1), boot_sector(2)
    assert len(slow) == SECTOR and slow.endswith(b"\x55\xaa")
    assert sum(one != other for one, other in itertools.zip_longest(slow, fast)) == 1


@pytest.mark.parametrize("written", [0, 1, 7])
def test_sectors_in_order_are_counted(written: int) -> None:
    assert count(_disk(*range(1, written + 1))) == written


@pytest.mark.parametrize("numbers", [(1, 3), (2,), (1, 2, 2), (2, 1)])
def test_a_gap_is_found(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="wrong or missing"):
        count(_disk(*numbers))


def test_a_flipped_bit_is_found() -> None:
    disk = bytearray(_disk(1, 2, 3))
    disk[2 * SECTOR + 77] ^= 1
    with pytest.raises(ValueError, match="the first is 2"):
        count(bytes(disk))


class _Here:
    """A host of the faults, in a directory, with guests that are only told of."""

    name = "hyper2"

    def __init__(self, root: Path) -> None:
        self.root = root
        self.told = {"domstate": "shut off (unknown)", "dumpxml": "<domain/>", "dominfo": "Autostart: disable"}

    def path(self, path: str) -> Path:
        """As we reach it."""
        return self.root / path.lstrip("/")

    def define(self, _xml: str) -> bool:
        """It is taken."""
        return True

    def find(self, _program: str, *, uuid: str) -> list[int]:
        """No guest runs."""
        return []

    def virsh(self, command: str, *, ok: bool = True) -> str:
        """What is told."""
        return self.told[command.split()[0]]


def _rewritten(path: Path) -> None:
    before = path.stat()
    path.write_bytes(bytes(before.st_size))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replaced(path: Path) -> None:
    path.with_suffix(".new").write_bytes(path.read_bytes())
    path.with_suffix(".new").rename(path)


@pytest.mark.parametrize("touched", [_rewritten, _replaced, Path.unlink, lambda path: path.chmod(0o400), None])
def test_what_becomes_of_files_of_others_is_seen(tmp_path: Path, touched: t.Callable[[Path], None] | None) -> None:
    others = Foreign(t.cast(t.Any, _Here(tmp_path)))
    others.file("/theirs.qcow2")
    if touched:
        touched(tmp_path / "theirs.qcow2")
    assert bool(others.changed()) == bool(touched)


@pytest.mark.parametrize("touched", ["domstate", "dumpxml", "dominfo", None])
def test_what_becomes_of_guests_of_others_is_seen(tmp_path: Path, touched: str | None) -> None:
    here = _Here(tmp_path)
    others = Foreign(t.cast(t.Any, here))
    others.guest("theirs", "/theirs.qcow2")
    here.told.update({touched: ""} if touched else {})
    assert bool(others.changed()) == bool(touched)


@pytest.mark.parametrize(
    ("used_ms", "came", "twice"),
    [(5, False, True), (5, True, True), (0, True, False), (0, False, False), (0.4, True, False)],
)
def test_a_guest_runs_twice_if_two_of_its_qemus_execute(
    monkeypatch: pytest.MonkeyPatch, used_ms: float, came: bool, twice: bool
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "lab"))
    cluster = importlib.import_module("ansible_collections.corral.virt.tests.faults.cluster")
    watch = cluster.Watch()
    for look in range(4):
        done_ns = {7: look * 5_000_000, 8: int(look * used_ms * 1_000_000)}
        monkeypatch.setattr(cluster, "cpu_time", done_ns.__getitem__)
        watch.judge("g1", [("hyper1", 7, False), ("hyper2", 8, came)], float(look))
    assert bool(watch.twice) is twice
    assert watch.most["g1"] == 2
    assert bool(watch.refused) is not came
