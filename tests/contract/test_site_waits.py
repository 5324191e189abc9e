"""Playbooks site and create wait for the guests of this run, and for no others."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.contract.play import Play, defaults
from ansible_collections.corral.virt.tests.tools import payload, preloaded

pytestmark = pytest.mark.slow

[*_before, WAIT] = yaml.safe_load((payload.ROOT / "playbooks/site.yml").read_text())
[CREATE] = yaml.safe_load((payload.ROOT / "playbooks/create.yml").read_text())
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


@pytest.mark.parametrize(
    ("wish", "results", "options", "reached"),
    [
        ({"state": "running"}, [{"ssh_host_key": "ssh-ed25519 AAAA"}], [], True),
        ({"state": "running"}, [{"ssh_host_key": "ssh-ed25519 AAAA"}], ["--check"], False),
        ({"state": "present"}, [{"ssh_host_key": "ssh-ed25519 AAAA"}], [], False),
        ({"state": "running", "wait_for_ip": "none"}, [{"ssh_host_key": "ssh-ed25519 AAAA"}], [], False),
        ({"state": "running"}, [{"name": "web1"}], [], False),
    ],
)
def test_create_waits_for_a_guest_that_lets_somebody_in(
    wish: dict[str, t.Any], results: list[dict[str, t.Any]], options: list[str], reached: bool, tmp_path: Path
) -> None:
    """By the name that the inventory shows it under, which namesakes and its neighbours have not."""
    play = Play(tmp_path)
    guests: dict[str, dict[str, t.Any]] = {
        "db1": {**ADDRESS, "virt_name": "db1", "virt_hypervisor": "h-1"},
        "web1": {**ADDRESS, "virt_name": "web1", "virt_hypervisor": "h.1"},
        "web1.here": {**ADDRESS, "virt_name": "web1", "virt_hypervisor": "h-1"},
    }
    play.hosts(hyper={"h-1": {"__guests_result": {"results": results}}}, guests_running=guests, on_h_1=guests)
    *_before, check, reach = CREATE["tasks"]
    told = {"told": {"waited": "{{ __virt_created.shown }}"}}
    placed = {"guest": "web1", "__guests_placed": {"placements": {"web1": "h-1"}}}
    found = play.run(
        check,
        {"ansible.builtin.set_fact": told, "when": reach["when"], "delegate_to": reach["delegate_to"]},
        vars={**CREATE["vars"], "__virt_guest": {"name": "web1", **wish}, **placed},
        options=options,
    )
    assert found == {"h-1": {"waited": "web1.here"} if reached else {}}
    # ansible-core 2.20 leaves the address out.
    assert not reached or re.search(r"ok: \[h-1 -> web1\.here(\(localhost\))?\]", play.stdout), play.stdout


@pytest.mark.parametrize(
    ("placed", "known", "why"),
    [
        ({}, {"web1": ADDRESS}, "web1: no hypervisor fits"),
        ({"web1": "h1"}, {"web2": ADDRESS}, "web1 runs, but the inventory has no address for it"),
        ({"web1": "h1"}, {"web1": {}}, "web1 runs, but the inventory has no address for it"),
        ({"web1": "h1"}, {"web1": ADDRESS}, ""),
    ],
)
def test_create_is_red_without_a_guest_to_reach(
    placed: dict[str, str], known: dict[str, t.Any], why: str, tmp_path: Path
) -> None:
    play = Play(tmp_path)
    made = {"results": [{"ssh_host_key": "ssh-ed25519 AAAA"}]}
    play.hosts(hyper={"h1": {"__guests_result": made}}, guests_running=known)
    [check] = [task for task in CREATE["tasks"] if "ansible.builtin.assert" in task]
    answer = {"placements": placed, "explained": ["web1: no hypervisor fits"]}
    more = {"guest": "web1", "__virt_guest": {"name": "web1", "state": "running"}, "__guests_placed": answer}
    assert bool(play.ends(check, vars={**CREATE["vars"], **more})) == bool(why)
    assert why in " ".join(play.stdout.split())


def test_a_part_of_it_is_run_by_the_name_of_its_role(tmp_path: Path) -> None:
    assert all(each["tags"] == [each["role"].rpartition(".")[2]] for play in _before for each in play["roles"])
    guide = (payload.ROOT / "docs/docsite/rst/guide_hosts.rst").read_text()
    assert "$ ansible-playbook corral.virt.site --tags bridge,firewall\n" in guide
    for asked in (["bridge", "firewall"], ["guests"]):
        words = ["ansible-playbook", "-i", "h1,", "-e", "virt_group=all", "corral.virt.site", "--list-tasks"]
        words += ["--tags", ",".join(asked)]
        done = preloaded.run(words, cwd=tmp_path, env=defaults(), timeout_s=120, given=None)
        listed = re.findall(r"^ +corral\.virt\.(\w+) : (.*?)\t", done.stdout, re.MULTILINE)
        run = {role for role, task in listed if not task.startswith("Validating arguments")}
        assert run == set(asked) and "Check the arguments" in done.stdout, done.stdout + done.stderr
