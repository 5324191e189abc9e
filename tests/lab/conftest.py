"""Which worker takes which files of the lab, and in which order (--dist loadscope --no-loadscope-reorder)."""

from __future__ import annotations

import typing as t
from pathlib import PurePath

import pytest
from xdist.scheduler import LoadScopeScheduling

# Files of a line have the same kind of hosts: one worker takes them all, so that these are made once, from a template
# of them.
# What takes longest begins first: begun last, it would be alone at the end while the other worker has nothing to do.
GROUPS = (
    ("seeds", "inventory", "clones", "readers", "network"),
    ("authority", "images", "console"),
    ("migrate",),
    ("hardware", "states"),
    ("commands", "upgrade"),
    ("drain", "restart"),
    ("build_image",),
    ("migrate_options",),
    ("host_network",),
    ("certificates",),
)
PLACES = {f"test_{name}.py": (number, place) for number, group in enumerate(GROUPS) for place, name in enumerate(group)}
LAST = (len(GROUPS), 0)


class OneWorkerForAGroup(LoadScopeScheduling):
    """Whichever worker is free takes the next group."""

    def _split_scope(self, nodeid: str) -> str:
        file = PurePath(nodeid.partition("::")[0]).name
        return f"group {PLACES[file][0]}" if file in PLACES else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: t.Any) -> OneWorkerForAGroup:
    """In place of one worker for each file."""
    return OneWorkerForAGroup(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one file stay as they stand in it."""
    items.sort(key=lambda item: PLACES.get(item.path.name, LAST))
