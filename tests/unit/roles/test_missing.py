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
SHOWN = {
    "web1": {"ansible_host": "192.0.2.1"},
    "web2": {},
    "web4.shown": {"ansible_host": "192.0.2.4", "virt_name": "web4"},
    "web5.shown": {"ansible_host": "192.0.2.5", "virt_name": "web5"},
}


@pytest.mark.parametrize(
    ("name", "waited", "missing"),
    [
        ("web1", "unknown", []),
        ("web2", "unknown", ["web2"]),
        ("web3", "any", ["web3"]),
        ("web3", "none", []),
        ("web3", None, []),
        ("web4", "any", []),
        ("web5", "any", ["web5"]),
    ],
)
def test_a_guest_that_is_waited_for_is_to_be_in_the_inventory(
    tmp_path: Path, name: str, waited: str | None, missing: list[str]
) -> None:
    """It may be shown under another name; a namesake on another hypervisor is not it."""
    guest: dict[str, t.Any] = {"name": name, **({"wait_for_ip": waited} if waited else {})}
    on: dict[str, t.Any] = {
        "on_localhost": {"hosts": {"web4.shown": {}}},
        "on_other": {"hosts": {"web5.shown": {}}},
    }
    groups = {"hyper": {"hosts": {"localhost": {}}}, "guests_running": {"hosts": SHOWN}, **on}
    known = {
        "virt_guests": [guest],
        "virt_guest_defaults": {},
        "guests_seed": False,
        "guests_wait_for_ip": "unknown",
        "virt_host": {"host": {"guests": []}},
        "__guests_placed": {"positions": {"localhost": {name: 0}}},
    }
    assert value(tmp_path, MISSING, FILES, known, inventory=json.dumps(groups)) == missing
