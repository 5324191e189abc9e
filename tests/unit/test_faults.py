"""What `make faults` judges by."""

from __future__ import annotations

import itertools

import pytest

from ansible_collections.corral.virt.tests.faults.boot_sector import SECTOR, boot_sector, count, sector


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
