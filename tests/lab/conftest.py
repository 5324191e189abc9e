"""Which worker takes which files of the lab, and in which order (--dist loadscope --no-loadscope-reorder)."""

from __future__ import annotations

import typing as t
from pathlib import PurePath

import pytest
from xdist.scheduler import LoadScopeScheduling

# Files of a line have the same kinds of hosts, those of one kind side by side: one worker takes them all, so that these
# are made once, from a template of them. In make test, the first three lines take about the same time.
GROUPS = (
    (
        "hardware",
        "storage_role",
        "pools",
        "states",
        "seeds",
        "readers",
        "network",
        "disk_moves",
        "disposal",
        "images_by_name",
        "snapshots",
        "volumes",
    ),
    ("console_actions", "console", "commands", "images", "restore", "tuning"),
    ("migrate", "backups", "drain", "maintenance", "migrate_options", "host_network", "readme"),
    ("build_image",),
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
