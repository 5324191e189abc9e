"""Playbook site is red when a guest that it waits for is not in the inventory."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, value

(CHECK,) = (
    task
    for play in yaml.safe_load((ROLES.parent / "playbooks/site.yml").read_text())
    for task in play.get("post_tasks", ())
)
MISSING = CHECK["vars"]["virt_missing"].strip().removeprefix("{{").removesuffix("}}")
FILES = [ROLES / "guests/vars/main.yml"]
SHOWN = {"web1": {"ansible_host": "192.0.2.1"}, "web2": {}}


@pytest.mark.parametrize(
    ("name", "waited", "missing"),
    [
        ("web1", "unknown", []),
        ("web2", "unknown", ["web2"]),
        ("web3", "any", ["web3"]),
        ("web3", "none", []),
        ("web3", None, []),
    ],
)
def test_a_guest_that_is_waited_for_is_to_be_in_the_inventory(
    tmp_path: Path, name: str, waited: str | None, missing: list[str]
) -> None:
    guest: dict[str, t.Any] = {"name": name, **({"wait_for_ip": waited} if waited else {})}
    inventory = json.dumps({"hyper": {"hosts": {"localhost": {}}}, "guests_running": {"hosts": SHOWN}})
    assert value(tmp_path, MISSING, FILES, {"__guests_by_host": {"localhost": [guest]}}, inventory=inventory) == missing
