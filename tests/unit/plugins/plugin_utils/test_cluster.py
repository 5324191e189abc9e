"""A cluster as a text: what query writes, what people write, and what is wrong with it."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.plugin_utils._placement import cluster_file, reported_hosts
from ansible_collections.corral.virt.plugins.plugin_utils._report import report_data

WRITTEN = """
hosts:
  - name: h1
    cpus: 8
    memory_mib: 16384
    bridges: [br0]
    platform: [efi]
    groups: [ssd]
    guests:
      - {name: web1, vcpus: 2, memory_mib: 2048, tags: [apart-web], platform: [efi]}
      - {name: idle, vcpus: 2, memory_mib: 1024, state: shutdown}
  - {name: h2, cpus: 8, memory_mib: 16384, maintenance: new fan}
"""


def test_a_text_written_by_hand() -> None:
    hosts = cluster_file.parsed(WRITTEN, "c.yml")
    infos = cluster_file.infos(hosts)
    first, second = (reported_hosts.host(name, info) for name, info in infos.items())
    assert (first.memory_mib, first.memory_used_mib, first.vcpus_used) == (16384 - 512, 2048, 2)
    assert (first.apart, first.bridges, first.pools) == (frozenset({"web"}), frozenset({"br0"}), None)
    assert (first.platform, second.platform, first.residents[0].platform) == (
        frozenset({"efi"}),
        None,
        frozenset({"efi"}),
    )
    assert [guest.name for guest in first.residents] == ["web1"] and set(first.guests) == {"web1", "idle"}
    assert second.maintenance == "new fan" and cluster_file.groups(hosts) == {"ssd": ["h1"]}


def test_what_the_playbook_query_writes() -> None:
    """A host that was not reached is left out; a guest counts with the memory that it may use."""
    guest = {
        "name": "web1",
        "uuid": "u1",
        "state": "running",
        "vcpus": {"current": 2},
        "memory": {"current_mib": 512, "maximum_mib": 1024},
        "disks": [],
        "interfaces": [{"type": "bridge", "bridge": "br0"}, {"type": "network", "network": "lan"}],
        "graphics": [],
        "tags": ["apart-web"],
        "autostart": True,
    }
    told = {"h1": {"host": {"cpus": 8, "memory_mib": 4096}, "domains": [guest]}}
    text = json.dumps(report_data.data("query", told, ["h2"], None))
    [(name, info)] = cluster_file.infos(cluster_file.parsed(text, "c.json")).items()
    [resident] = reported_hosts.host(name, info).residents
    assert (name, resident.memory_mib, resident.vcpus, resident.uuid) == ("h1", 1024, 2, "u1")
    assert (resident.bridges, resident.apart) == (frozenset({"br0"}), frozenset({"web"}))
    assert info["guests"][0]["autostart"] is True


def test_what_a_text_says_beyond_what_it_must() -> None:
    nics = [{"type": "bridge"}, {"type": "bridge", "source": "br1"}, {"type": "network", "source": "lan"}]
    guest = {"name": "web1", "vcpus": 1, "memory_mib": 512, "interfaces": nics}
    hosts = [{**HOST, "memory_reserved_mib": 100, "guests": [guest, {**guest, "name": "web2", "uuid": "u2"}]}]
    info = cluster_file.infos(cluster_file.parsed("  " + json.dumps({"hosts": hosts}), "c"))["h1"]
    assert info["memory_reserved_mib"] == 100 and (info["vcpus_used"], info["memory_used_mib"]) == (2, 1024)
    assert [(one["uuid"], one["bridges"]) for one in info["guests"]] == [("web1", ["br1"]), ("u2", ["br1"])]


HOST: dict[str, t.Any] = {"name": "h1", "cpus": 8, "memory_mib": 1024}


@pytest.mark.parametrize(
    ("content", "problems"),
    [
        ("{", ["c: is neither JSON nor YAML"]),
        ("a: [", ["c: is neither JSON nor YAML"]),
        ("[]", ["c: has no list hosts; write it with: ansible-playbook corral.virt.query -e format=json -e out=c"]),
        ('{"hosts": []}', ["c: has no list hosts"]),
        ({"hosts": ["h1"]}, ["c: hosts[0] is not a dictionary"]),
        (
            {"hosts": [{"name": "", "cpus": True, "memory_mib": "1GiB"}]},
            [
                "c: hosts[0].name must be a text",
                "c: hosts[0].cpus must be a number above zero",
                "c: hosts[0].memory_mib must be a number above zero",
            ],
        ),
        ({"hosts": [HOST, HOST]}, ["c: host h1 is given twice"]),
        ({"hosts": [{**HOST, "guests": 3}]}, ["c: hosts[0].guests is not a list"]),
        (
            {"hosts": [{**HOST, "guests": [1, {"name": "a", "vcpus": 1, "memory_mib": 1, "state": "on"}]}]},
            [
                "c: hosts[0].guests[0] is not a dictionary",
                "c: hosts[0].guests[1].state is on; it must be one of running",
            ],
        ),
        (
            {"hosts": [{**HOST, "guests": [{"vcpus": 0, "memory_mib": "1GiB"}]}]},
            [
                "c: hosts[0].guests[0].name must be a text",
                "c: hosts[0].guests[0].vcpus must be a number above zero",
                "c: hosts[0].guests[0].memory_mib must be a number above zero",
            ],
        ),
        ({"hosts": {"h1": HOST}}, ["c: has no list hosts"]),
        (
            {"hosts": [{}, "h1"]},
            ["c: hosts[0].name", "c: hosts[0].cpus", "c: hosts[0].memory_mib", "c: hosts[1] is not"],
        ),
    ],
)
def test_every_problem_is_told(content: t.Any, problems: list[str]) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    with pytest.raises(BadInput, match="c: ") as refused:
        cluster_file.parsed(text, "c")
    assert len(refused.value.problems) == len(problems)
    assert all(found.startswith(wanted) for found, wanted in zip(refused.value.problems, problems, strict=True))


def test_yaml_makes_no_objects() -> None:
    with pytest.raises(BadInput, match="neither JSON nor YAML"):
        cluster_file.parsed("hosts: !!python/object/apply:os.getcwd []", "c")
