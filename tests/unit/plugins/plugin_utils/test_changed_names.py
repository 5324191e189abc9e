"""Which guests are gone, and which have new names, after a playbook."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.filter.changed_names import FilterModule
from ansible_collections.corral.virt.plugins.plugin_utils._inventory.created_guests import new_names

DONE = {"results": [{"name": "web1"}]}
PURGED = {"name": "web1", "uuid": "aaaa", "state": "absent"}
RENAMED = {"name": "web1", "uuid": "aaaa", "state": "present", "renamed_from": "old1"}
CHANGED = {"name": "web1", "uuid": "aaaa", "state": "present"}


@pytest.mark.parametrize(
    ("item", "results", "namesakes", "absent", "renamed"),
    [
        (PURGED, {"h1": DONE}, [], ["web1"], {}),
        (RENAMED, {"h1": DONE}, [], [], {"old1": "web1"}),
        (RENAMED, {"h1": DONE}, ["old1"], [], {}),
        (CHANGED, {"h1": DONE}, [], [], {}),
        (PURGED, {"h1": {"results": [{"name": "web1", "failed": True}]}}, [], [], {}),
        (PURGED, {"h1": {"results": [{"name": "db1"}]}}, [], [], {}),
        (PURGED, {"h2": DONE}, [], [], {}),
        (PURGED, {"h1": {"skipped": True}}, [], [], {}),
        (PURGED, {"h1": {"results": [None, "web1", {}]}}, [], [], {}),
        (PURGED, {"h1": None}, [], [], {}),
    ],
    ids=[
        *("purged", "renamed", "renamed, and another one has the name", "changed", "failed"),
        *("another one", "another host", "skipped", "nonsense", "no answer"),
    ],
)
def test_a_host_says_which_of_its_guests_are_done(
    item: dict[str, t.Any], results: dict[str, t.Any], namesakes: list[str], absent: list[str], renamed: dict[str, str]
) -> None:
    chosen = {"domains": {"h1": [item]}, "namesakes": namesakes}
    assert new_names(chosen, results) == {"absent": absent, "renamed": renamed}


def test_a_guest_that_a_host_may_have_which_did_not_tell_keeps_its_key() -> None:
    chosen = {"domains": {"h1": [PURGED, {**RENAMED, "name": "new1"}]}, "namesakes": [], "unasked": ["h2"]}
    done = {"results": [{"name": "web1"}, {"name": "new1"}]}
    assert new_names(chosen, {"h1": done}) == {"absent": [], "renamed": {"old1": "new1"}}


def test_where_nothing_was_chosen_no_name_changes() -> None:
    assert new_names({"domains": {}, "namesakes": []}, {"h1": DONE}) == {"absent": [], "renamed": {}}
    assert FilterModule().filters() == {"changed_names": new_names}
