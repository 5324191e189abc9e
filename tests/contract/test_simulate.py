"""The action virt_simulate through the playbook simulate: what it prints, returns and refuses."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.contract.play import defaults
from ansible_collections.corral.virt.tests.tools import payload, preloaded

pytestmark = pytest.mark.slow


def simulated(place: Path, **more: t.Any) -> str:
    """The output of the playbook for three hosts of 4 GiB, each with a guest of 1 GiB."""
    guests = [[{"name": f"web{n}", "vcpus": 1, "memory_mib": 1024}] for n in range(3)]
    hosts = [
        {"name": f"h{n}", "cpus": 8, "memory_mib": 4096 + 512, "domain": f"r{n // 2}", "guests": guests[n]}
        for n in range(3)
    ]
    (place / "cluster.yml").write_text(json.dumps({"hosts": hosts}))
    said = json.dumps({"cluster": str(place / "cluster.yml"), **more})
    command = ["ansible-playbook", "-i", "localhost,", str(payload.ROOT / "playbooks/simulate.yml"), "-e", said]
    done = preloaded.run(command, cwd=place, env=defaults(), timeout_s=120, given=None)
    return " ".join((done.stdout + done.stderr).split())


def test_what_if(tmp_path: Path) -> None:
    add = [{"name": "db", "count": 3, "vcpus": 1, "memory": "512MiB", "apart": "db"}]
    told = simulated(tmp_path, lose=["h0"], add=add, fill={"vcpus": 1, "memory": "1GiB"})
    assert "loss of h0: 1 of 1 guests find room elsewhere" in told
    assert "added: 2 of 3 guests are placed" in told
    assert "db-3: it needs 1 vcpus and 512 MiB, and no hypervisor fits: h1: has a guest of group db" in told
    assert "fill: 3 more guests fit; the next one does not: it needs 1 vcpus and 1 GiB" in told
    assert "h1 " in told and "HOST GUESTS VCPUS MEMORY MIB" in told


def test_a_failure_domain_is_lost_as_a_whole(tmp_path: Path) -> None:
    told = simulated(tmp_path, lose=["r0"])
    assert "loss of r0: 2 of 2 guests find room elsewhere" in told and "h2 3 3 on 8 cpus 3072 of 4096" in told


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lose": ["h9"]}, "lose: the cluster has no hypervisor or failure domain h9"),
        ({"cluster": "/not/there"}, "cluster: there is no file /not/there"),
        ({"add": [{"name": "web1", "vcpus": 1, "memory": 1}]}, "add: the cluster already has web1"),
        ({"add": [{"name": "a"}, {"name": "b", "count": 0}]}, "add: a requires vcpus and memory"),
        ({"add": [{"name": "a"}, {"name": "b", "count": 0}]}, "add: count of b must be a number above zero"),
        ({"fill": {"vcpus": 1}}, "fill: more requires vcpus and memory"),
    ],
)
def test_what_cannot_be_simulated(tmp_path: Path, options: dict[str, t.Any], words: str) -> None:
    assert words in simulated(tmp_path, **options)
