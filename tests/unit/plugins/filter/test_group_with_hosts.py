"""A play is for a group that has hosts."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.corral.virt.plugins.filter.group_with_hosts import group_with_hosts

GROUPS: dict[str, list[str]] = {"all": ["h1", "h2"], "ungrouped": ["h2"], "hyper": ["h1"], "empty": []}


def test_a_group_with_hosts_is_taken() -> None:
    assert group_with_hosts("hyper", GROUPS) == "hyper"
    assert group_with_hosts("all", GROUPS, "h1") == ["h2"]
    assert group_with_hosts("all", GROUPS, ["h1", "h9"]) == ["h2"]
    with pytest.raises(AnsibleFilterError, match="gone: it names all hosts of the group hyper"):
        group_with_hosts("hyper", GROUPS, "h1,h2")


@pytest.mark.parametrize(
    ("name", "groups", "said"),
    [
        ("hypr", GROUPS, "virt_group: the inventory has no hosts in the group hypr; did you mean hyper?"),
        ("empty", GROUPS, "virt_group: the inventory has no hosts in the group empty; groups with hosts are: hyper"),
        (
            "h1",
            {"all": ["h1"], "ungrouped": ["h1"]},
            "virt_group: the inventory has no hosts in the group h1; groups with hosts are: none",
        ),
        (["hyper"], GROUPS, "virt_group: the inventory has no hosts in the group ['hyper']; did you mean hyper?"),
        (
            "a\x1b[2J",
            GROUPS,
            r"virt_group: the inventory has no hosts in the group a\x1b[2J; groups with hosts are: hyper",
        ),
        (
            "hyper",
            {"all": [], "ungrouped": []},
            "the inventory has no hosts; specify another: -i INVENTORY, or inventory in ansible.cfg",
        ),
    ],
)
def test_another_is_refused(name: t.Any, groups: dict[str, list[str]], said: str) -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        group_with_hosts(name, groups)
    assert str(caught.value) == said
