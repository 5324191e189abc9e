"""Nobody is told that a host is empty while a guest of it waits elsewhere for the end of its migration."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, value

ARRIVED = {"name": "web1", "uuid": "aaaa", "state": "paused", "moving": "hyper2", "moving_from": "1111"}
STAYING = {"name": "web2", "uuid": "bbbb", "state": "running", "moving": None, "moving_from": None}


def lines(tmp_path: Path, guests: dict[str, list[dict[str, t.Any]]], *, host: str, drained: str | None) -> list[str]:
    """What is told of migrations that are not settled."""
    uuids = {"hyper1": "1111", "hyper2": "2222", "hyper3": "3333"}
    hosts = {
        name: {"virt_host": {"host": {"uuid": uuid}}, "__maintenance_seen": {"host": {"guests": guests.get(name, [])}}}
        for name, uuid in uuids.items()
    }
    inventory = json.dumps({"hyper": {"hosts": hosts}})
    known = {"maintenance_host": drained} if drained else {}
    found = value(
        tmp_path, "__maintenance_open", [ROLES / "maintenance/vars/main.yml"], known, host=host, inventory=inventory
    )
    return t.cast("list[str]", found)


TOLD = (
    "web1: migrating to hyper2, now paused on hyper2; run the same command again, or finish it (playbook migrate -e "
    "guest=web1 -e to=hyper2)"
)


@pytest.mark.parametrize(
    ("host", "drained", "told"),
    [("hyper1", "hyper1", [TOLD]), ("hyper3", "hyper3", []), ("hyper2", None, [TOLD]), ("hyper1", None, [])],
)
def test_no_success_over_a_migration_that_is_not_settled(
    tmp_path: Path, host: str, drained: str | None, told: list[str]
) -> None:
    assert lines(tmp_path, {"hyper2": [ARRIVED, STAYING], "hyper1": [STAYING]}, host=host, drained=drained) == told


def test_the_role_fails_while_a_guest_stays_or_a_migration_is_open(tmp_path: Path) -> None:
    (condition,) = (
        task["ansible.builtin.assert"]["that"]
        for task in yaml.safe_load((ROLES / "maintenance/tasks/move.yml").read_text())
        if "ansible.builtin.assert" in task
    )
    cases: list[tuple[list[str], list[str], bool]] = [([], [], True), (["web1: stays"], [], False), ([], [TOLD], False)]
    for left, still_open, passes in cases:
        known = {"__maintenance_left": left, "__maintenance_open": still_open}
        assert value(tmp_path, f"({condition})", [], known) is passes
