"""What rebalancing knows of guests that cannot move."""

from __future__ import annotations

from pathlib import Path

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
