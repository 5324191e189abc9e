"""The last play of site waits for the guests of this run, and for no others."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.contract.play import Play
from ansible_collections.corral.virt.tests.tools import payload

pytestmark = pytest.mark.slow

[*_before, WAIT] = yaml.safe_load((payload.ROOT / "playbooks/site.yml").read_text())
ADDRESS = {"ansible_host": "localhost"}


def test_it_waits_for_guests_that_were_placed(tmp_path: Path) -> None:
    play = Play(tmp_path)
    placed = {"__guests_placed": {"placements": dict.fromkeys(("web1", "web2", "moved", "static"), "h1")}}
    guests: dict[str, dict[str, t.Any]] = {
        "web1": {**ADDRESS, "virt_name": "web1", "virt_hypervisor": "h1"},
        "dumb": {"virt_name": "web1", "virt_hypervisor": "h1"},
        "web2.h1": {**ADDRESS, "virt_name": "web2", "virt_hypervisor": "h1"},
        "moved.h2": {**ADDRESS, "virt_name": "moved", "virt_hypervisor": "h2"},
        "theirs": {**ADDRESS, "virt_name": "theirs", "virt_hypervisor": "h1"},
        "lost": {**ADDRESS, "virt_name": "lost", "virt_hypervisor": "h9"},
        "static": ADDRESS,
        "other": ADDRESS,
    }
    play.hosts(hyper={"h1": placed, "h2": placed, "h3": {}}, guests_running=guests)
    (wait,) = WAIT["tasks"]
    told = play.run(
        {"ansible.builtin.set_fact": {"told": {"waited": True}}, **{key: wait[key] for key in ("vars", "when")}},
        hosts="guests_running",
    )
    assert {name for name, found in told.items() if found} == {"web1", "web2.h1", "static"}
