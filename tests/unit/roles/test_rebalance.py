"""What rebalancing knows of guests that cannot move."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, value

INVENTORY = """
hyper:
  hosts:
    hyper1:
      __maintenance_told:
        results:
          - {name: web1, dest: hyper3, failed: true, msg: "cannot migrate web1 to hyper3: it has a pci device"}
          - {name: web2, dest: hyper3, changed: true}
    hyper2: {__maintenance_told: {skipped: true}}
    hyper3: {__maintenance_told: {msg: "there is no answer"}}
"""


def test_refused_guests_are_those_of_all_hosts_and_plans(tmp_path: Path) -> None:
    moves = [
        {"name": "web1", "source": "hyper1"},
        {"name": "web2", "source": "hyper1"},
        {"name": "web3", "source": "hyper3"},
    ]
    earlier = {"name": "web0", "source": "hyper2", "why": "it was saved"}
    known = {
        "__maintenance_planned": {"moves": moves},
        "__maintenance_refused": [[earlier], "{{ __maintenance_refusals }}"],
    }
    found = value(
        tmp_path,
        "__maintenance_fixed",
        [ROLES / "maintenance/vars/main.yml"],
        known,
        host="hyper2",
        inventory=INVENTORY,
    )
    assert found == [
        earlier,
        {"name": "web1", "source": "hyper1", "why": "cannot migrate web1 to hyper3: it has a pci device"},
    ]


@pytest.mark.parametrize(("cannot", "plans", "again"), [(False, 1, False), (True, 1, True), (True, 5, False)])
def test_guests_that_cannot_move_are_planned_around(tmp_path: Path, cannot: bool, plans: int, again: bool) -> None:
    """Five times at most; they are never moved."""
    tasks = ROLES / "maintenance/tasks"
    [first, *_between, last] = yaml.safe_load((tasks / "plan.yml").read_text())
    [move] = [
        each for each in yaml.safe_load((tasks / "rebalance.yml").read_text()) if each["name"] == "Move the guests"
    ]
    moves = [{"name": "web1", "source": "hyper1"}, {"name": "web2", "source": "hyper1"}]
    known: dict[str, t.Any] = {
        "__maintenance_planned": {"moves": moves if cannot else moves[1:]},
        "__maintenance_refused": [[{"name": "web1"}]] * plans,
        "maintenance_stay": ["db1"],
        "stay": first["corral.virt.virt_balance"]["stay"],
        **move["vars"],
    }
    inventory = INVENTORY if cannot else "hyper: {hosts: {hyper1: {__maintenance_told: {results: [{name: web2}]}}}}"
    expression = f"[({last['when']}), stay | unique, maintenance_moves]"
    found = value(
        tmp_path, expression, [ROLES / "maintenance/vars/main.yml"], known, host="hyper1", inventory=inventory
    )
    assert found == [again, ["db1", "web1"], moves[1:]]
