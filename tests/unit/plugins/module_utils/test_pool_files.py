"""Which pool a directory is."""

from __future__ import annotations

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import (
    PoolDirectory,
    directory,
    holder,
    no_disks,
)


def pool(name: str, path: str | None, *, active: bool = True) -> PoolDirectory:
    return PoolDirectory(name, "dir", path, active=active)


@pytest.mark.parametrize(
    ("pools", "name"),
    [
        ([], None),
        ([pool("default", "/images")], "default"),
        ([pool("default", "/images/")], "default"),
        ([pool("default", "/images/sub"), pool("lvm", None), pool("ceph", "")], None),
        ([pool("old", "/images", active=False)], "old"),
        # An active one tells what is there.
        ([pool("old", "/images", active=False), pool("new", "/images")], "new"),
        ([pool("new", "/images"), pool("old", "/images", active=False)], "new"),
        ([pool("older", "/images", active=False), pool("old", "/images", active=False)], "older"),
        ([pool("other", "/other"), pool("old", "/images", active=False)], "old"),
    ],
)
def test_which_pool_has_a_directory(pools: list[PoolDirectory], name: str | None) -> None:
    found = holder(pools, "/images")
    assert (found.name if found else None) == name


def test_what_nobody_says_of_a_pool() -> None:
    """It is active, and of another machine."""
    silent = PoolDirectory("new", "dir", "/images")
    assert holder([pool("old", "/images", active=False), silent], "/images") == silent
    with pytest.raises(Refused, match="cannot keep images in pool new"):
        directory(silent, "images")


@pytest.mark.parametrize("kind", ["dir", "fs", "netfs", "logical"])
def test_a_pool_that_takes_disks(kind: str) -> None:
    assert no_disks(kind, active=True) == "" and no_disks(kind, active=False).startswith("is not active")


@pytest.mark.parametrize("kind", ["rbd", "gluster", "iscsi", "zfs", "disk", "mpath"])
def test_a_pool_that_takes_no_disks(kind: str) -> None:
    why = f"is of type {kind}, which takes no copies of disks; choose a dir, fs, netfs or logical pool"
    assert no_disks(kind, active=True) == why
