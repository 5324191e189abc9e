"""Files of the lab in the order in which two workers take them (--dist loadgroup --no-loadscope-reorder)."""

from __future__ import annotations

import pytest

# Files of a line have the same kind of hosts: one worker takes them all, so that these are made once, from a template of them.
# What takes longest begins first: begun last, it would be alone at the end while the other worker has nothing to do.
GROUPS = (
    ("seeds", "hardware", "clones", "states", "readers", "network"),
    ("authority", "images", "commands", "upgrade"),
    ("migrate",),
    ("drain", "restart"),
    ("migrate_options",),
    ("build_image",),
    ("certificates",),
    ("host_network",),
)
PLACES = {f"test_{name}.py": (number, place) for number, group in enumerate(GROUPS) for place, name in enumerate(group)}


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one file stay as they stand in it."""
    items.sort(key=lambda item: PLACES.get(item.path.name, (len(GROUPS), 0)))
    for item in items:
        number, _place = PLACES.get(item.path.name, (None, 0))
        item.add_marker(pytest.mark.xdist_group(item.path.stem if number is None else f"group{number}"))
