"""Files of the lab in the order in which two workers take them (--dist loadfile --no-loadscope-reorder)."""

from __future__ import annotations

import pytest

# What takes longest begins first: begun last, it would be alone at the end while the other worker has nothing to do.
LONGEST = (
    "migrate", "seeds", "migrate_options", "authority", "drain", "commands", "hardware", "images", "build_image", "clones", "certificates",
    "restart", "states", "upgrade", "readers", "host_network",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one file stay as they stand in it."""
    names = [f"test_{name}.py" for name in LONGEST]
    items.sort(key=lambda item: names.index(item.path.name) if item.path.name in names else len(names))
