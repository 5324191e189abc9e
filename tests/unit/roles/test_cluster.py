"""What the role cluster refuses, and what its program makes of Pacemaker's configuration."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import itertools
import json
import os
import re
import subprocess
import sys
import typing as t
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.tools import preloaded
from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, home, value, values

ROLE = ROLES / "cluster"
FILES = [ROLE / "defaults/main.yml", ROLE / "vars/main.yml"]
IPMI = {"agent": "fence_ipmilan", "options": {"ip": "192.0.2.1", "password": "sesame"}}
FILES_OF_SAN = {"volume": "vms", "path": "/srv/vms"}
SAN: dict[str, t.Any] = {"name": "san", "filesystems": [FILES_OF_SAN]}
LEAVES = {"cluster_state": "absent"}
GUEST = {"name": "web1", "uuid": "2f1c8a5e-0000-4000-8000-000000000001", "store": "/srv/vms"}


def program() -> t.Any:
    """The host's program, as a module."""
    loader = importlib.machinery.SourceFileLoader("corral_cluster", str(ROLE / "files/corral-cluster"))
    spec = importlib.util.spec_from_loader("corral_cluster", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


PROGRAM = program()


def problems(folder: Path, *changes: dict[str, t.Any], **known: t.Any) -> list[str]:
    """What is wrong with three hosts, of which the first ones have other variables."""
    hosts: dict[str, dict[str, t.Any]] = {
        f"hyper{number}": {
            "ansible_host": f"192.0.2.{number}",
            "cluster_fencing": {**IPMI, "options": {"ip": f"192.0.2.10{number}", "password": "sesame"}},
            "hypervisor_keeps_definitions": True,
        }
        for number in (1, 2, 3)
    }
    for one, change in zip(hosts.values(), changes, strict=False):
        one.update(change)
    inventory = json.dumps({"all": {"children": {"hyper": {"hosts": hosts}}}})
    more = ["-e", json.dumps(known)]
    found = value(folder, "__cluster_problems", FILES, {}, host="hyper1", inventory=inventory, arguments=more)
    return t.cast("list[str]", found)


# What the looks find on hosts: on a bare one, and on one with a cluster of this role, which runs or does not.
BARE: dict[str, t.Any] = {"__cluster_ours": {"rc": 2}, "__cluster_active": {"stdout_lines": ["inactive"] * 3}}
OFF: dict[str, t.Any] = {**BARE, "__cluster_ours": {"rc": 0}}
DOWN: dict[str, t.Any] = {}  # it did not answer


def on(listed: str, up: str, votes: int = 0) -> dict[str, t.Any]:
    """A running member: which hosts its Corosync lists and sees, and how many votes there are."""
    says = f"Nodes:            {len(up)}\nQuorate:          Yes\n\nTotal votes:      {votes or len(up)}\n"
    says += f"Quorum:           {len(listed) // 2 + 1}  \n"
    says += "".join(f"nodelist.node.{at}.name (str) = @{name}\n" for at, name in enumerate(listed))
    return {
        "__cluster_ours": {"rc": 0},
        "__cluster_active": {"stdout_lines": ["active"] * 3},
        "__cluster_partition": {"stdout": " ".join(f"@{name}" for name in up)},
        "__cluster_votes": {"stdout": says},
    }


class Case(t.NamedTuple):
    """Hosts of one cluster with their variables, those that are left (or else all that did answer), and a variable of all."""

    hosts: dict[str, dict[str, t.Any]]
    left: str = ""
    device: str = ""


def found_problems(folder: Path, *cases: Case) -> list[list[str]]:
    """What is wrong with each of these clusters, in one run: a host is called @ and its name, @ being its cluster."""
    variables: dict[str, t.Any] = {}
    for file in FILES:
        variables |= yaml.safe_load(file.read_text())
    hosts: dict[str, t.Any] = {}
    firsts: list[str] = []
    for at, case in enumerate(cases):
        left = [*case.left] or [name for name, one in case.hosts.items() if "__cluster_ours" in one]
        common = {"cluster_hosts": [f"@{name}" for name in case.hosts], "cluster_quorum_device": case.device}
        common["__cluster_there"] = [f"@{name}" for name in left]
        text = json.dumps({f"@{name}": {**common, **one} for name, one in case.hosts.items()})
        hosts |= json.loads(text.replace("@", f"x{at}"))
        firsts.append(f"x{at}{left[0]}")
    inventory = json.dumps({"all": {"hosts": hosts, "vars": variables}})
    found = values(folder, "__cluster_found_problems", [], {}, inventory, ["--limit", ",".join(firsts)])
    return [[one.replace(f"x{at}", "") for one in found[first]] for at, first in enumerate(firsts)]


OF_AB, OF_ABC, NOT_C = on("ab", "ab"), on("abc", "abc"), on("abc", "ab")
LOST: dict[str, tuple[Case, str]] = {
    "one of a new cluster is down": (Case({"a": BARE, "b": BARE, "c": DOWN}), "c"),
    "one of a new cluster fails": (Case({"a": BARE, "b": BARE, "c": BARE}, "ab"), "c"),
    "a new member fails": (Case({"a": OF_AB, "b": OF_AB, "c": BARE}, "ab"), "c"),
    "a new member is down": (Case({"a": OF_AB, "b": OF_AB, "c": DOWN}), "c"),
    "a member was down before": (Case({"a": NOT_C, "b": NOT_C, "c": DOWN}), ""),
    "a member that is off fails": (Case({"a": NOT_C, "b": NOT_C, "c": OFF}, "ab"), "c"),
    "a member runs and is not reached": (Case({"a": OF_ABC, "b": OF_ABC, "c": DOWN}), "c"),
    "a member that runs fails": (Case({"a": OF_ABC, "b": OF_ABC, "c": OF_ABC}, "bc"), "a"),
    "one fails while it leaves": (Case({"a": OF_ABC, "b": OF_ABC, "c": {**OF_ABC, **LEAVES}}, "ab"), "c"),
    "one that leaves is down": (Case({"a": NOT_C, "b": NOT_C, "c": LEAVES}), "c"),
    "one that leaves has left out the role": (Case({"a": NOT_C, "b": NOT_C, "c": LEAVES}, "abc"), "c"),
    "one leaves": (Case({"a": OF_ABC, "b": OF_ABC, "c": {**OF_ABC, **LEAVES}}), ""),
}


def test_a_host_that_is_lost_stops_all_but_one_that_was_down_before(tmp_path: Path) -> None:
    found = found_problems(tmp_path, *(case for case, _ in LOST.values()))
    lost = " cannot be reached, or has failed in this run"
    told = [[one.partition(lost)[0] for one in problems] for problems in found]
    assert dict(zip(LOST, told, strict=True)) == {name: [*who] for name, (_, who) in LOST.items()}


def test_no_more_hosts_are_added_than_members_with_the_quorum_can_outvote(tmp_path: Path) -> None:
    """As votequorum counts: the new ones count at once, and vote when they have joined."""
    works = [("ab", "ab", "abc", 0), ("ab", "ab", "abcd", 1), ("ab", "a", "ac", 0), ("abc", "abc", "abcd", 0)]
    works += [("abc", "abc", "abcde", 0), ("abcd", "abcd", "abcdefgh", 1), ("abcd", "abcd", "abcde", 0)]
    fails = [("ab", "ab", "abcd", 0), ("ab", "a", "abc", 0), ("abc", "abc", "abcdef", 0), ("abc", "ab", "abcd", 0)]
    cases = []
    for listed, running, members, device in works + fails:
        runs = on(listed, running, len(running) + device)
        hosts = {name: runs if name in running else DOWN if name in listed else BARE for name in members}
        cases.append(Case(hosts, device="witness" * device))
    found = found_problems(tmp_path, *cases)
    new = [", ".join(name for name in members if name not in listed) for listed, _, members, _ in fails]
    assert [[one.partition(", the cluster")[0] for one in each] for each in found] == [
        *([] for _ in works),
        *([f"with {names}"] for names in new),
    ]


def test_a_cluster_without_the_quorum_may_get_it_by_any_number_of_hosts(tmp_path: Path) -> None:
    runs = on("abc", "a")
    runs["__cluster_votes"]["stdout"] = runs["__cluster_votes"]["stdout"].replace("Yes", "No")
    assert found_problems(tmp_path, Case({"a": runs, "b": DOWN, "c": DOWN, "d": BARE, "e": BARE})) == [[]]


def test_a_host_does_not_leave_while_the_others_need_its_vote(tmp_path: Path) -> None:
    works = [("abc", "abc", 0), ("abcd", "abcd", 0), ("abcd", "abc", 1), ("abc", "ab", 0)]
    fails = [("abc", "ac", 0), ("abcd", "abc", 0)]
    cases = []
    for listed, running, device in works + fails:
        runs = on(listed, running, len(running) + device)
        hosts = {name: runs if name in running else DOWN for name in listed}
        cases.append(Case({**hosts, "c": {**(hosts["c"] or OFF), **LEAVES}}))
    told = [[one.partition(", the others")[0] for one in each] for each in found_problems(tmp_path, *cases)]
    assert told == [*([] for _ in works), *(["without c"] for _ in fails)]


def test_who_joins_brings_no_resources_of_another_cluster(tmp_path: Path) -> None:
    hosts = [{"a": OF_AB, "b": OF_AB, "c": {**BARE, "__cluster_older": {"rc": code}}} for code in (0, 1)]
    ((told,), none) = found_problems(tmp_path, *map(Case, hosts))
    assert told.startswith("c has the resources of another cluster") and told.endswith("rm -r /var/lib/pacemaker/cib")
    assert none == []


def test_the_first_that_is_left_has_the_key(tmp_path: Path) -> None:
    key = {"__cluster_key": {"stat": {"exists": True, "checksum": "1"}}}
    inventory = json.dumps({"all": {"children": {"hyper": {"hosts": {"a": {}, "b": key, "c": key}}}}})
    for there, first in (("abc", "b"), ("ac", "c"), ("a", "a")):
        more = ["-e", json.dumps({"__cluster_there": [*there]})]
        assert value(tmp_path, "__cluster_first", FILES, {}, host="a", inventory=inventory, arguments=more) == first


def tasks(name: str) -> list[dict[str, t.Any]]:
    """The tasks of a file, also those in blocks."""
    found = yaml.safe_load((ROLE / f"tasks/{name}.yml").read_text())
    for each in found:
        found += each.get("block", [])
    return t.cast("list[dict[str, t.Any]]", found)


def test_one_of_those_that_are_left_says_what_all_refuse(tmp_path: Path) -> None:
    """Also if it has failed before others are asked, as with more hosts than Ansible asks at once."""
    names = [f"hyper{at}" for at in range(1, 9)]
    refuse = {
        "ansible.builtin.import_tasks": str(ROLE / "tasks/refuse.yml"),
        "vars": {"__cluster_refused": ["this and that"]},
    }
    fail = {"ansible.builtin.fail": {"msg": "lost"}, "when": "inventory_hostname == 'hyper1'"}
    play = {"hosts": "all", "gather_facts": False, "vars_files": [str(file) for file in FILES], "tasks": [fail, refuse]}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    hosts = {name: {} if name == "hyper2" else {"cluster_fencing": IPMI} for name in names}
    (tmp_path / "hosts.yml").write_text(json.dumps({"all": {"children": {"hyper": {"hosts": hosts}}}}))
    command = ["ansible-playbook", "-i", "hosts.yml", "--forks", "2", "play.yml"]
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "ANSIBLE_CONFIG": str(home() / "ansible.cfg")}
    environment["HOME"] = str(home())
    done = preloaded.run(command, cwd=tmp_path, env=environment, timeout_s=60, given=None)
    says = {text: done.stdout.count(f'"msg": "{text}') for text in ("cannot make the cluster", "see what hyper3 says")}
    assert [*says.values()] == [1, len(names) - 2], done.stdout


def test_nothing_is_changed_that_stays_before_it_is_sure_that_no_host_was_lost() -> None:
    order = [
        each.get(f"ansible.builtin.{how}_tasks")
        for each in tasks("main")
        for how in ("import", "include")
        if f"ansible.builtin.{how}_tasks" in each
    ]
    (block,) = yaml.safe_load((ROLE / "tasks/main.yml").read_text())
    names = [each["name"] for each in block["block"]]
    assert {*order} >= {"keys.yml", "leave.yml", "refuse.yml", "membership.yml"}
    assert names[-3:] == ["Leave the cluster", "Check that no host was lost", "Be a member"]
    text = (ROLE / "tasks/membership.yml").read_text()
    assert "authkey" not in text and tasks("membership")[0]["name"] == "Configure Corosync"
    assert tasks("leave")[0]["ansible.builtin.import_tasks"] == "refuse.yml"


def test_no_secret_is_written_that_was_not_read() -> None:
    given = [
        each["ansible.builtin.command"].get("stdin", "")
        for name in ("keys", "quorum_device")
        for each in tasks(name)
        if "ansible.builtin.command" in each
    ]
    assert sum("hostvars[__cluster_first]" in each for each in given) == 2 and "default(" not in "".join(given)


def test_each_cluster_has_the_authority_of_its_own_quorum_device() -> None:
    found = tasks("quorum_device")
    assert not [each["name"] for each in found if "run_once" in each]
    elsewhere = [each for each in found if "delegate_to" in each]
    assert [each["name"] for each in elsewhere if "throttle" not in each] == ["Read the certificate of its CA"]
    assert "__cluster_first" not in str(*[each["when"] for each in elsewhere if "throttle" not in each])


def test_who_leaves_forgets_the_resources_when_pacemaker_has_stopped(tmp_path: Path) -> None:
    stop, remove = (
        next(each for each in tasks("leave") if each["name"].startswith(word)) for word in ("Stop Pace", "Remove")
    )
    assert tasks("leave").index(stop) < tasks("leave").index(remove) and stop["loop"][0] == "pacemaker"
    paths = value(tmp_path, remove["loop"].strip().removeprefix("{{").removesuffix("}}"), FILES, {})
    assert paths[-1] == "/etc/corosync/corosync.conf"
    assert {"/var/lib/pacemaker/cib", "/var/lib/pacemaker/pengine"} < {*paths}


BAD: dict[str, dict[str, t.Any]] = {
    "variables": {
        "cluster_name": "a\n}",
        "cluster_properties": {"stonith-enabled": False},
        "cluster_guests": [GUEST, {**GUEST, "store": "vms"}],
        "cluster_hosts": ["hyper1", "hyper2", "hyper3", "hyper9"],
        "hosts": [
            {"cluster_fencing": {}},
            {"cluster_fencing": {"agent": "fence_dummy"}, "cluster_links": ["192.0.2.1"]},
            {"cluster_fencing": {**IPMI, "options": {"ip": "a\nb"}}, "cluster_links": ["192.0.2.3", "198.51.100.3"]},
        ],
        "told": [
            "hyper9 of cluster_hosts is not in the inventory",
            "cluster_name a",
            "hyper1: set its cluster_fencing",
            "same address 192.0.2.1",
            "hyper2: fence_dummy fences nothing",
            "hyper3 has 2 cluster_links, and hyper1 has 1",
            "hyper3: options of its cluster_fencing",
            "stonith-enabled is always true",
            "cluster_guests: web1",
        ],
    },
    "members": {
        "cluster_properties": {"no-quorum-policy": "ignore"},
        "hosts": [{"cluster_fencing": {"agent": "sh"}, "cluster_links": []}, LEAVES, LEAVES],
        "told": ["needs two members", "hyper1: set its cluster_links", "sh is no fence agent", "is not ignore"],
    },
    "definitions": {
        "hosts": [{"hypervisor_keeps_definitions": "no"}],
        "told": ["hyper1: set hypervisor_keeps_definitions"],
    },
    "watchdog": {
        "cluster_properties": {"stonith-watchdog-timeout": "10s"},
        "hosts": [{"cluster_watchdog": "/dev/watchdog"}, {"cluster_watchdog": "watchdog"}],
        "told": [
            "hyper1, hyper2 would have a cluster_watchdog, and hyper3 none",
            "hyper2: cluster_watchdog watchdog is no path of a device",
            "stonith-watchdog-timeout is set by cluster_watchdog",
        ],
    },
    "watchdog of two": {
        "cluster_watchdog": "/dev/watchdog",
        "hosts": [{}, {}, LEAVES],
        "told": ["of two members without a cluster_quorum_device"],
    },
    "volume groups": {
        "cluster_volume_groups": [
            SAN,
            SAN,
            {"name": "b c"},
            {"name": "d", "filesystems": [{**FILES_OF_SAN, "path": "/"}]},
        ],
        "hosts": [],
        "told": [
            "san is listed twice",
            "san/vms or its path /srv/vms is listed twice",
            "b c is listed twice, or",
            "d/vms needs a name",
        ],
    },
    "other volume groups": {
        "hosts": [{"cluster_volume_groups": []}, {"cluster_volume_groups": [SAN]}],
        "told": [f"hyper{number} and hyper1 have different cluster_volume_groups" for number in (2, 3)],
    },
    "no common options": {
        "hosts": [
            {"cluster_hosts": ["hyper1", "hyper2", "hyper3"], "cluster_token_ms": 3000},  # as where it is not set
            {"cluster_hosts": ["hyper1", "hyper2", "hyper3"], "cluster_name": "b", "cluster_guests": []},
            {"cluster_token_ms": 20, "cluster_quorum_device": "b", "cluster_properties": {"cluster-delay": "1s"}},
        ],
        "told": [
            *(f"hyper2 and hyper1 have different {name}:" for name in ("cluster_name", "cluster_guests")),
            *(
                f"hyper3 and hyper1 have different {name}:"
                for name in ("cluster_hosts", "cluster_token_ms", "cluster_quorum_device", "cluster_properties")
            ),
        ],
    },
    "one device": {
        "cluster_fencing": {
            "agent": "fence_apc",
            "options": {"ip": "192.0.2.1", "pcmk_delay_base": "{{ inventory_hostname }}"},
        },
        "hosts": [{}, {}, LEAVES],
        "told": ["hyper2 and hyper1 have the same device in cluster_fencing, which switches only one of them off"],
    },
    "no device": {
        "hosts": [{"cluster_fencing": {}}] * 2,
        "told": [f"hyper{at}: set its cluster_fencing" for at in (1, 2)],
    },
    "numbers": {
        "cluster_token_ms": 20,
        "cluster_fencing_test_every": "often",
        "cluster_properties": {"a b": 1, "cluster-delay": "1\n2"},
        "cluster_guests": [{**GUEST, "stop_timeout": 30}],
        "hosts": [
            {},
            {"cluster_links": ["300.0.2.2"]},
        ],
        "told": [
            "hyper2: set its cluster_links to a list of its addresses, not to 300.0.2.2",
            "cluster_properties: a b must be the name",
            "cluster_properties: cluster-delay must be",
            "cluster_token_ms 20 is too short",
            "cluster_fencing_test_every often is no time span",
            "cluster_guests: web1 has a stop_timeout",
        ],
    },
    "none": {"hosts": [], "cluster_fencing_test_every": "1h 30min", "told": []},
}


@pytest.mark.parametrize("case", BAD)
def test_all_that_is_wrong_is_told_at_once(tmp_path: Path, case: str) -> None:
    known = dict(BAD[case])
    changes, told = known.pop("hosts"), known.pop("told")
    found = problems(tmp_path, *changes, **known)
    assert len(found) == len(told), found
    assert all(part in one for part, one in zip(told, found, strict=True)), found
    assert "sesame" not in str(found)


@pytest.mark.parametrize(
    ("device", "told"),
    [
        ("hyper9", "is not in the inventory"),
        ("hyper2", "is a host of the cluster"),
        ("localhost", "is for two members"),
    ],
)
def test_a_quorum_device_is_another_host_and_votes_where_members_may_be_half(
    tmp_path: Path, device: str, told: str
) -> None:
    (found,) = problems(tmp_path, cluster_quorum_device=device)
    assert found.startswith("cluster_quorum_device") and told in found


@pytest.mark.parametrize("found", ["missing", "other", "soft", "used", ""])
def test_a_watchdog_is_one_that_resets_a_host_whose_kernel_hangs(tmp_path: Path, found: str) -> None:
    hosts = {
        name: {
            **BARE,
            "cluster_watchdog": "/dev/watchdog",
            "__cluster_watchdog_is": {"stdout": found if name == "b" else ""},
        }
        for name in "ab"
    }
    (told,) = found_problems(tmp_path, Case(hosts))
    assert [one.partition(" is ")[0] for one in told] == (["b: cluster_watchdog /dev/watchdog"] if found else [])


@pytest.mark.parametrize(
    ("runs", "options"),
    [("35 35", {"stonith-watchdog-timeout": "70s", "stonith-timeout": "90s"}), ("35 ", {}), ("35 5", {})],
)
def test_a_watchdog_counts_when_sbd_runs_on_all_members(tmp_path: Path, runs: str, options: dict[str, str]) -> None:
    hosts = {
        name: {"cluster_watchdog": "/dev/watchdog", "__cluster_sbd": {"stdout": seconds}}
        for name, seconds in zip("ab", runs.split(" "), strict=True)
    }
    inventory = json.dumps({"all": {"children": {"hyper": {"hosts": hosts}}}})
    assert value(tmp_path, "__cluster_options", FILES, {}, host="a", inventory=inventory) == options


@pytest.mark.parametrize(
    ("version", "there", "packages"),
    [
        ("12", "", {"fence-agents"}),
        ("13", "", {"fence-agents-ipmilan", "fence-agents-apc-snmp", "fence-virt"}),
        ("13", "fence_apc_snmp fence_idrac fence_x", {"fence-agents-ipmilan", "fence-virt"}),
    ],
)
def test_fence_agents_come_with_what_they_need(tmp_path: Path, version: str, there: str, packages: set[str]) -> None:
    agents = ("fence_ilo4", "fence_apc_snmp", "fence_xvm")
    hosts = {f"hyper{at}": {"cluster_fencing": {"agent": agent}} for at, agent in enumerate(agents)}
    inventory = json.dumps({"all": {"children": {"hyper": {"hosts": hosts}}}})
    facts = {"distribution": "Debian", "distribution_major_version": version}
    known = {"ansible_facts": facts, "__cluster_agents_there": {"stdout": there}}
    more = ["-e", json.dumps(known)]
    found = value(tmp_path, "__cluster_packages", FILES, {}, host="hyper1", inventory=inventory, arguments=more)
    assert {*found} - {"corosync", "pacemaker", "pacemaker-cli-utils", "resource-agents"} == packages


def test_a_firewall_is_open_for_as_many_links_as_a_member_has(tmp_path: Path) -> None:
    hosts: dict[str, dict[str, t.Any]] = {
        "none": {},
        "one": {"cluster_fencing": IPMI},
        "two": {"cluster_fencing": IPMI, "cluster_links": ["a", "b"]},
        "left": {"cluster_fencing": IPMI, "cluster_state": "absent"},
        "locks": {"cluster_fencing": IPMI, "cluster_volume_groups": []},
    }
    variables = yaml.safe_load((ROLES / "firewall/vars/main.yml").read_text())
    inventory = json.dumps({"all": {"hosts": hosts, "vars": {"ports": variables["__firewall_cluster"]}}})
    told = "dict(groups.all | zip(groups.all | map('extract', hostvars, 'ports')))"
    assert value(tmp_path, told, [], {}, host="one", inventory=inventory) == {
        "none": [],
        "one": ["5405/udp"],
        "two": ["5405-5406/udp"],
        "left": [],
        "locks": ["5405/udp", "21064/tcp"],
    }


@pytest.mark.parametrize(
    ("code", "up", "ok"), [(0, True, True), (2, False, True), (2, True, False), (1, True, False), (124, False, False)]
)
def test_a_device_counts_that_answers_and_calls_no_living_node_off(code: int, up: bool, ok: bool) -> None:
    assert PROGRAM.verdict(code=code, text="why", up=up)["ok"] is ok


def test_a_device_is_asked_without_its_password_on_a_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = tmp_path / "fence_any"
    agent.write_text("#!/bin/sh\ncat >$0.stdin; echo $# >$0.count; echo wrong sesame >&2; exit 1\n")
    agent.chmod(0o755)
    monkeypatch.setattr(PROGRAM, "AGENTS", tmp_path)
    monkeypatch.setattr(PROGRAM, "SETTINGS", tmp_path / "settings")
    monkeypatch.setattr(PROGRAM, "RESULTS", tmp_path / "made/results")
    device = {"agent": "fence_any", "options": {"password": "sesame", "pcmk_delay_base": "5s"}}
    (tmp_path / "settings").write_text(json.dumps({"node": "a", "fencing": {"a": device, "b": device}}))
    assert PROGRAM.main(["test", "a", "b"]) == 1
    assert (tmp_path / "fence_any.stdin").read_text() == "password=sesame\naction=status\n"
    assert (tmp_path / "fence_any.count").read_text() == "0\n"
    assert json.loads((tmp_path / "made/results").read_text())["devices"] == {
        "b": {"ok": False, "says": "", "why": "wrong ***"}
    }


def test_no_option_of_a_device_is_told_unless_it_is_public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent repeats what it does not know, and its text is in logs and on pages."""
    agent = tmp_path / "fence_any"
    agent.write_text("#!/bin/sh\nhead -c 600 /dev/zero | tr '\\0' x >&2; cat >&2; exit 1\n")
    agent.chmod(0o755)
    monkeypatch.setattr(PROGRAM, "AGENTS", tmp_path)
    secrets = {"snmp_priv_pass": "hunter2", "community": "hunter2-and more", "hexadecimal_kg": "  a0  b1", "lanplus": 1}
    public = {"ip": "10.0.0.9", "username": "admin", "plug": "web", "power_timeout": 20}
    told = PROGRAM.ask({"agent": "fence_any", "options": {**secrets, **public, "pass": "x" * 300}}, up=True)["why"]
    assert told.endswith(
        "snmp_priv_pass=*** community=*** hexadecimal_kg=*** lanplus=1 ip=10.0.0.9 username=admin plug=web "
        "power_timeout=20 pass=*** action=status"
    )


def applied(cib: ET.Element, settings: dict[str, t.Any]) -> list[str]:
    """Do to a document what cibadmin would do to Pacemaker's; the lines that say it."""
    lines = []
    for line, command, given in PROGRAM.changes(cib, settings):
        lines.append(line)
        if command[:2] == ["crm_resource", "--wait"]:
            continue
        if command[0] == "crm_resource":
            (status,) = cib.iterfind("status")
            for old in [each for each in status if each.get("id") == command[3]]:
                status.remove(old)
            continue
        if command[0] == "crm_attribute":
            options = cib.find("configuration/crm_config/cluster_property_set")
            assert options is not None
            for old in [each for each in options if each.get("name") == command[6]]:
                options.remove(old)
            ET.SubElement(options, "nvpair", id=command[6], name=command[6], value=command[8])
            continue
        section = cib.find(f"configuration/{command[2]}")
        assert section is not None
        element = ET.fromstring(given)
        for old in [each for each in section if each.get("id") == element.get("id")]:
            section.remove(old)
        if command[3] != "--delete":
            section.append(element)
    return lines


EMPTY = (
    "<cib><configuration><crm_config><cluster_property_set id='cib-bootstrap-options'/></crm_config><nodes/>"
    "<resources/><constraints/></configuration><status/></cib>"
)


NOTHING: dict[str, t.Any] = {"properties": {}, "devices": True}


def kept(store: Path, name: str, ha: str) -> dict[str, str]:
    """A guest whose definition corral-keep keeps, as an item of cluster_guests."""
    uuid = f"2f1c8a5e-0000-4000-8000-{int(name, 36):012d}"
    folder = store / ".corral/guests" / uuid
    folder.mkdir(parents=True, exist_ok=True)
    guest = f"<corral:guest xmlns:corral='urn:corral:virt:guest:1'>{ha}</corral:guest>"
    (folder / "owner").write_text(json.dumps({"host": "a", "uuid": "A", "since": "", "why": "saved"}))
    (folder / "domain.xml").write_text(f"<domain><name>{name}</name><metadata>{guest}</metadata></domain>")
    return {"name": name, "uuid": uuid, "store": str(store)}


@pytest.mark.parametrize("listed", [True, False])
def test_a_guest_whose_disk_has_moved_goes_on_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    """A resource that gets another option is started anew; its old directory leads to the new one."""
    cib, old, new = ET.fromstring(EMPTY), tmp_path / "a", tmp_path / "b"
    before = kept(old, "web1", "<corral:ha/>")
    applied(cib, {**NOTHING, "fencing": {}, "guests": [before]})
    after = kept(new, "web1", "<corral:ha priority='7'/>")
    owner = {"host": "", "uuid": "", "since": "", "why": f"moved to {new}"}
    (old / ".corral/guests" / before["uuid"] / "owner").write_text(json.dumps(owner))
    monkeypatch.setattr(PROGRAM, "KEPT", tmp_path / "none")
    for guests in ([before], [after]) if listed else (None,):
        applied(cib, {**NOTHING, "fencing": {}, "guests": guests})
        values = {one.get("name"): one.get("value") for one in cib.iterfind(".//primitive/*/nvpair")}
        assert (values["store"], values["priority"]) == (str(old), "7"), "what is kept now counts"
    group = {
        "name": "san",
        "filesystems": [{"volume": name, "path": str(path)} for name, path in (("a", old), ("b", new))],
    }
    rules = [rule for _section, rule in PROGRAM.stored({"resource": "guest-web1"}, {str(old), f"{new}/vms"}, [group])]
    assert {rule.get("first") for rule in rules} > {"corral-storage-fs.san.a-clone", "corral-storage-fs.san.b-clone"}
    left = kept(tmp_path / "c", "web1", "<corral:ha/>")
    assert PROGRAM.named(left["store"], next(cib.iterfind(".//primitive")), left["uuid"]) == left["store"]


def test_what_the_definition_says_becomes_rules(tmp_path: Path) -> None:
    cib = ET.fromstring(EMPTY)
    apart, shop = "<corral:apart>web</corral:apart>", "<corral:colocate>shop</corral:colocate>"
    guests = [
        kept(tmp_path, "web1", f"<corral:ha mode='restart' priority='7' max-restarts='2'>{apart}{shop}</corral:ha>"),
        kept(
            tmp_path,
            "web2",
            f"<corral:ha>{apart}<corral:prefer>b</corral:prefer><corral:prefer>x</corral:prefer></corral:ha>",
        ),
        {**kept(tmp_path, "db1", f"<corral:ha priority='9'>{shop}</corral:ha>"), "priority": 3},
    ]
    settings = {**NOTHING, "fencing": {"a": IPMI, "b": IPMI}, "guests": guests}
    applied(cib, settings)
    meta = {
        name: {each.get("name"): each.get("value") for each in cib.iterfind(f".//*[@id='guest-{name}-meta']/nvpair")}
        for name in ("web1", "web2", "db1")
    }
    assert {name: (one["priority"], one["migration-threshold"]) for name, one in meta.items()} == {
        "web1": ("7", "3"),
        "web2": ("0", "INFINITY"),
        "db1": ("3", "INFINITY"),
    }
    found = [dict(each.attrib) for each in cib.iterfind("configuration/constraints/*")]
    rules = [each for each in found if each.pop("id").startswith("corral-rule-")]
    assert rules == [
        {"rsc": "guest-web2", "node": "b", "score": "50"},
        {"rsc": "guest-web1", "with-rsc": "guest-db1", "score": "100"},
        {"rsc": "guest-web2", "with-rsc": "guest-web1", "score": "-INFINITY"},
    ]
    assert applied(cib, settings) == []
    kept(tmp_path, "web2", "<corral:ha/>")
    assert applied(cib, settings) == [
        "delete corral-rule-guest-web2.on.b",
        "delete corral-rule-guest-web2.without.guest-web1",
    ]


def test_shared_volume_groups_come_up_in_order_and_go_in_order(tmp_path: Path) -> None:
    cib = ET.fromstring(EMPTY)
    inside = kept(tmp_path / "vms", "web1", "<corral:ha/>")
    guests = [inside, kept(tmp_path / "vms2", "web2", "<corral:ha/>")]
    san: dict[str, t.Any] = {"name": "san", "filesystems": [{"volume": "vms", "path": str(tmp_path / "vms")}]}
    settings = {
        **NOTHING,
        "fencing": {},
        "guests": guests,
        "volume_groups": [san],
        "options": {"no-quorum-policy": "freeze"},
    }
    applied(cib, settings)
    chain = ["dlm", "lvmlockd", "vg.san", "fs.san.vms"]
    names = [f"corral-storage-{one}-clone" for one in chain]
    assert [each.get("id") for each in cib.iterfind(".//clone")] == names
    orders = [(each.get("first"), each.get("then")) for each in cib.iterfind(".//rsc_order")]
    assert orders == [*itertools.pairwise(names), (names[-1], "guest-web1")]
    beside = [(each.get("with-rsc"), each.get("rsc")) for each in cib.iterfind(".//rsc_colocation")]
    assert beside == orders
    assert [each.get("on-fail") for each in cib.iterfind(".//clone//op[@name='monitor']")] == ["fence"] * 4
    assert [each.get("value") for each in cib.iterfind(".//crm_config//*[@name='no-quorum-policy']")] == ["freeze"]
    assert applied(cib, settings) == []
    assert applied(cib, {**settings, "devices": False, "options": {}}) == [], "as corral-keep does it"
    for change in ([], [{**san, "filesystems": [{**san["filesystems"][0], "options": "ro"}]}]):
        with pytest.raises(
            PROGRAM.Problem, match=r"web1 would stop when .*/vms of cluster_volume_groups is removed or changed"
        ):
            PROGRAM.changes(cib, {**settings, "volume_groups": change})
    lines = applied(cib, {**settings, "volume_groups": None, "guests": guests[1:], "options": {}})
    stops = [line for line in lines if line.startswith("stop ")]
    assert stops == [f"stop {name}" for name in names]
    assert lines.index("delete corral-storage-fs.san.vms.after") > lines.index(f"wait for {', '.join(names)}")
    assert {each.get("id") for each in cib.iterfind("configuration/*/*")} == {"cib-bootstrap-options", "guest-web2"}


def test_what_the_user_sets_goes_before_what_follows_from_other_options() -> None:
    cib = ET.fromstring(EMPTY)
    settings = {
        **NOTHING,
        "fencing": {},
        "guests": [],
        "options": {"no-quorum-policy": "freeze", "stonith-timeout": "90s"},
    }
    assert applied(cib, settings) == ["create corral-options"]
    user = {**settings, "properties": {"no-quorum-policy": "freeze"}, "options": {"no-quorum-policy": "freeze"}}
    ((line, command, _), _) = PROGRAM.changes(cib, user)
    assert line == "set no-quorum-policy to freeze" and "cib-bootstrap-options" in command
    applied(cib, user)
    assert [each.get("value") for each in cib.iterfind(".//*[@id='corral-options']/nvpair")] == ["freeze"]
    assert applied(cib, {**user, "options": {}}) == ["delete corral-options"]


def test_a_guest_that_leaves_is_let_go_with_what_names_it(tmp_path: Path) -> None:
    cib = ET.fromstring(EMPTY)
    guests = [kept(tmp_path, "web1", "<corral:ha/>"), kept(tmp_path, "web2", "<corral:ha/>")]
    settings = {**NOTHING, "fencing": {"a": IPMI}, "guests": guests}
    applied(cib, settings)
    constraints, status = cib.find("configuration/constraints"), cib.find("status")
    assert constraints is not None and status is not None
    ET.SubElement(constraints, "rsc_order", {"id": "mine", "first": "guest-web1", "then": "guest-web2"})
    ET.SubElement(status, "lrm_resource", {"id": "guest-web1", "provider": "corral"})
    ET.SubElement(status, "lrm_resource", {"id": "theirs", "provider": "heartbeat"})
    settings["guests"] = guests[1:]
    assert applied(cib, settings) == ["delete mine", "delete guest-web1", "forget guest-web1"]
    assert [each.get("id") for each in status] == ["theirs"]
    assert applied(cib, settings) == []


def test_a_guest_that_is_removed_is_forgotten_with_what_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the end of its hold: not after an hour, nor by the next run of the role."""
    cib = ET.fromstring(EMPTY)
    words = "<corral:ha><corral:apart>web</corral:apart></corral:ha>"
    guests = [kept(tmp_path, name, words) for name in ("web1", "web2")]
    applied(cib, {**NOTHING, "fencing": {"a": IPMI}, "guests": guests})
    done: list[str] = []

    def run(*command: str, given: str | None = None, **_how: object) -> subprocess.CompletedProcess[str]:
        done.append(f"{' '.join(command[3:4] if '--delete' in command else command)} {given or ''}".strip())
        return subprocess.CompletedProcess(command, 0, ET.tostring(cib, encoding="unicode"), "")

    monkeypatch.setattr(PROGRAM, "run", run)
    reads, writes = os.pipe()
    os.write(writes, b"Removed\n")
    with os.fdopen(reads) as given:
        monkeypatch.setattr("sys.stdin", given)
        assert PROGRAM.main(["hold", guests[0]["uuid"]]) == 0
    os.close(writes)
    rule = '<rsc_colocation id="corral-rule-guest-web2.without.guest-web1"/>'
    assert done[-5:] == [
        "cibadmin --query",
        f"--delete {rule}",
        '--delete <primitive id="guest-web1"/>',
        "crm_resource --refresh --resource guest-web1",
        "systemctl start --no-block corral-keep.service",
    ]


def test_a_hold_outlives_a_write_that_fails_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As when the member that decides has died; its first write must succeed, as nobody has been told of a hold."""
    cib = ET.fromstring(EMPTY)
    guest = kept(tmp_path, "web1", "<corral:ha/>")
    applied(cib, {**NOTHING, "fencing": {"a": IPMI}, "guests": [guest]})
    writes: list[str] = []
    fails = {2, 4, 6}

    def run(*command: str, given: str | None = None, **_how: object) -> subprocess.CompletedProcess[str]:
        if "--query" in command:
            return subprocess.CompletedProcess(command, 0, ET.tostring(cib, encoding="unicode"), "")
        writes.append(command[0] if not given else next(iter(re.findall("-held|Stopped", given)), ""))
        code = 124 if len(writes) in fails else 0
        return subprocess.CompletedProcess(command, code, "", "Timer expired" if code else "")

    looks = iter([False, True])
    monkeypatch.setattr(PROGRAM, "run", run)
    monkeypatch.setattr(PROGRAM.time, "sleep", lambda _s: None)
    monkeypatch.setattr(PROGRAM.select, "select", lambda *_: (["line"] if next(looks) else [], [], []))
    monkeypatch.setattr("sys.stdin", io.StringIO("Stopped\n"))
    assert PROGRAM.main(["hold", guest["uuid"]]) == 0 and capsys.readouterr().out == "held\n"
    assert writes == ["-held", "-held", "-held", "Stopped", "Stopped", "crm_resource", "crm_resource", "-held"]
    writes.clear()
    fails.add(1)
    assert PROGRAM.main(["hold", guest["uuid"]]) == 1 and not capsys.readouterr().out and writes == ["-held"]


def test_guests_are_shown_with_whether_the_role_lists_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cib = ET.fromstring(EMPTY)
    guests = [kept(tmp_path, name, "<corral:ha/>") for name in ("web1", "web2")]
    applied(cib, {**NOTHING, "fencing": {"a": IPMI}, "guests": guests})
    (tmp_path / "cib").write_text(ET.tostring(cib, encoding="unicode"))
    monkeypatch.setattr(PROGRAM, "CIB", tmp_path / "cib")
    monkeypatch.setattr(PROGRAM, "SETTINGS", tmp_path / "settings")
    shown: list[list[bool]] = []
    for listed in (None, guests[:1]):
        (tmp_path / "settings").write_text(json.dumps({"guests": listed}))
        PROGRAM.main(["guests"])
        shown.append([json.loads(line)["listed"] for line in capsys.readouterr().out.splitlines()])
    assert shown == [[False, False], [True, False]]


def test_a_renamed_guest_keeps_its_resource(tmp_path: Path) -> None:
    cib = ET.fromstring(EMPTY)
    old = kept(tmp_path, "web1", "<corral:ha><corral:prefer>a</corral:prefer></corral:ha>")
    applied(cib, {**NOTHING, "fencing": {"a": IPMI}, "guests": [old]})
    lines = applied(cib, {**NOTHING, "fencing": {"a": IPMI}, "guests": [{**old, "name": "shop"}]})
    assert lines == []
    assert [each.get("rsc") for each in cib.iterfind(".//rsc_location[@node='a']")] == ["corral-fence-a", "guest-web1"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This node's notes of corral-keep, with web1, which runs, web2, which is off, and web3, which another host owns."""
    (tmp_path / "web1.pid").touch()
    notes: dict[str, t.Any] = {"uuid": "A", "guests": {}}
    for name in ("web1", "web2", "web3"):
        item = kept(tmp_path, name, "<corral:ha><corral:prefer>a</corral:prefer></corral:ha>")
        notes["guests"][item["uuid"]] = {"name": name, "directory": str(tmp_path), "ran": True}
    (tmp_path / ".corral/guests" / item["uuid"] / "owner").write_text(
        '{"host": "b", "uuid": "B", "since": "", "why": ""}'
    )
    (tmp_path / "keep.json").write_text(json.dumps(notes))
    monkeypatch.setattr(PROGRAM, "KEPT", tmp_path / "keep.json")
    monkeypatch.setattr(PROGRAM, "RUNNING", tmp_path)
    return tmp_path


SYNC = {**NOTHING, "devices": False, "fencing": {"a": IPMI}, "guests": None}


def test_protected_guests_become_resources_when_they_run(here: Path) -> None:
    cib = ET.fromstring(EMPTY)
    assert applied(cib, SYNC) == ["create guest-web1", "create corral-rule-guest-web1.on.a"]
    (here / "web2.pid").touch()
    assert applied(cib, SYNC) == ["create guest-web2", "create corral-rule-guest-web2.on.a"]
    (here / "web1.pid").unlink()
    assert applied(cib, SYNC) == []


def test_what_is_protected_no_more_leaves_and_what_cannot_be_read_stays(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cib = ET.fromstring(EMPTY)
    (here / "web2.pid").touch()
    applied(cib, SYNC)
    (here / "keep.json").unlink()
    away = here / ".corral"
    away.rename(here / "unmounted")
    assert applied(cib, SYNC) == []
    (here / "unmounted").rename(away)
    kept(here, "web1", "")
    assert applied(cib, SYNC) == ["delete corral-rule-guest-web1.on.a", "delete guest-web1"]
    gone = {"host": "", "uuid": "", "since": "", "why": "no longer defined on a"}
    (Path(next(away.glob("guests/*" + f"{int('web2', 36):012d}"))) / "owner").write_text(json.dumps(gone))
    located = subprocess.CompletedProcess([], 0, "resource guest-web2 is running on: b\n", "")
    monkeypatch.setattr(PROGRAM, "run", lambda *_command: located)
    assert applied(cib, SYNC) == [], "it has migrated"
    located.stdout = "resource guest-web2 is NOT running\n"
    assert applied(cib, SYNC) == ["delete corral-rule-guest-web2.on.a", "delete guest-web2"]


def test_guests_of_one_name_are_two(tmp_path: Path) -> None:
    cib = ET.fromstring(EMPTY)
    one, other = kept(tmp_path, "web1", "<corral:ha/>"), kept(tmp_path, "web2", "<corral:ha/>")
    applied(cib, {**NOTHING, "fencing": {}, "guests": [one, {**other, "name": "web1"}, {**other, "name": "web1"}]})
    assert [each.get("id") for each in cib.iterfind(".//primitive")] == ["guest-web1", f"guest-{other['uuid']}"]


@pytest.mark.parametrize(
    "names", [*itertools.permutations(["app", "app-monitor", "app-held-until", "app-meta-target-role"])]
)
def test_guests_called_like_a_part_of_a_resource_are_resources(tmp_path: Path, names: tuple[str, ...]) -> None:
    cib = ET.fromstring(EMPTY)
    guests: list[dict[str, t.Any]] = []
    for at, name in enumerate(names):
        guests.append({**kept(tmp_path, f"web{at}", "<corral:ha/>"), "name": name})
        settings = {**NOTHING, "fencing": {}, "guests": guests}
        assert len(applied(cib, settings)) == 1 and applied(cib, settings) == []
    assert {*PROGRAM.guests_of(cib)} == {one["uuid"] for one in guests}
    every = [each.get("id") for each in cib.iterfind("configuration//*[@id]")]
    assert len(every) == len({*every})
    called = {each.get("id") for each in PROGRAM.guests_of(cib).values()}
    assert ("guest-app" in called) is (names[0] == "app") and len(called) == len(names)
    held = [each.get("id") for name in called for each in PROGRAM.held(name, PROGRAM.datetime.datetime.now()).iter()]
    assert not {*held} & {*every}


def test_a_part_of_a_resource_is_not_what_is_called_like_it() -> None:
    cib = ET.fromstring(
        EMPTY.replace(
            "<resources/>",
            "<resources><primitive id='x'><meta_attributes id='corral-options'/></primitive></resources>",
        )
    )
    settings = {**NOTHING, "fencing": {}, "guests": [], "options": {"stonith-timeout": "90s"}}
    ((_, command, given),) = PROGRAM.changes(cib, settings)
    assert "--create" in command and "cluster_property_set" in given


def test_a_guest_that_members_cannot_start_is_refused(tmp_path: Path) -> None:
    guests = [
        GUEST,
        kept(tmp_path, "web2", ""),
        {**GUEST, "name": "web3"},
        kept(tmp_path, "web4", "<corral:ha priority='x'/>"),
    ]
    with pytest.raises(PROGRAM.Problem) as told:
        PROGRAM.changes(ET.fromstring(EMPTY), {**NOTHING, "fencing": {}, "guests": guests})
    lines = str(told.value).splitlines()
    assert [line.partition(" (")[0] for line in lines] == [
        "cannot read the definition of web1, from which members start it",
        "web2 is not protected: set its ha.mode by virt_domain",
        "cannot read the definition of web3, from which members start it",
        "web4 is not protected: set its ha.mode by virt_domain",
    ]


def test_who_has_left_is_neither_a_member_nor_a_remote_node(tmp_path: Path) -> None:
    nodes = (
        '<nodes><node id="1" uname="hyper1"/><node id="4" uname="gone">\n<nvpair name="standby"/></node>'
        '<node id="r" uname="far" type="remote"/><node uname="old" type="member" id="5"/><node id="6" uname="joined"/></nodes>'
    )
    known = {"__cluster_listed": {"stdout": nodes}, "__cluster_joined": {"stdout": "hyper1 joined"}}
    inventory = json.dumps({"all": {"children": {"hyper": {"hosts": {"hyper1": {}}}}}})
    more = ["-e", json.dumps(known)]
    found = value(tmp_path, "__cluster_left", FILES, {}, host="hyper1", inventory=inventory, arguments=more)
    assert sorted(found) == ["gone", "old"]


def test_pacemaker_has_what_is_wanted_and_keeps_what_others_set(tmp_path: Path) -> None:
    cib = ET.fromstring(EMPTY)
    guests = [kept(tmp_path, "web1", "<corral:ha/>")]
    settings = {
        **NOTHING,
        "properties": {"stonith-enabled": "true"},
        "fencing": {"a": IPMI, "b": IPMI},
        "guests": guests,
    }
    made = [f"create corral-fence-{node}{end}" for node in "ab" for end in ("", "-elsewhere")]
    assert applied(cib, settings) == ["set stonith-enabled to true", *made, "create guest-web1"]
    assert applied(cib, settings) == []
    meta = cib.find(".//primitive[@id='guest-web1']/meta_attributes")
    assert meta is not None
    ET.SubElement(meta, "nvpair", id="x", name="target-role", value="Stopped")
    resources = cib.find("configuration/resources")
    assert resources is not None
    ET.SubElement(resources, "primitive", {"id": "fence-mine", "class": "stonith", "type": "fence_apc"})
    assert applied(cib, settings) == []
    other = {**IPMI, "options": {"ip": "192.0.2.9"}}
    assert applied(cib, {**settings, "fencing": {"a": other}}) == [
        "change corral-fence-a",
        "delete corral-fence-b-elsewhere",
        "delete corral-fence-b",
    ]
    options = {
        each.get("name"): each.get("value")
        for each in cib.iterfind(".//primitive[@id='corral-fence-a']/instance_attributes/nvpair")
    }
    assert options == {"pcmk_host_list": "a", "pcmk_host_check": "static-list", "ip": "192.0.2.9"}
    assert [each.get("id") for each in cib.iterfind(".//primitive")] == ["guest-web1", "fence-mine", "corral-fence-a"]


def test_no_line_shows_a_password() -> None:
    settings = {**NOTHING, "fencing": {"a": IPMI}, "guests": []}
    for line, command, given in PROGRAM.changes(ET.fromstring(EMPTY), settings):
        assert "sesame" not in line + " ".join(command)
        assert "sesame" in given or "elsewhere" in line


def test_the_agent_never_undefines_a_guest() -> None:
    text = (ROLE / "files/guest").read_text()
    assert not re.search(r"undefine\b(?!s a guest|d\.)", text.replace("never undefined", ""))
    subprocess.run(["sh", "-n", ROLE / "files/guest"], check=True)


OCF = """OCF_SUCCESS=0 OCF_ERR_GENERIC=1 OCF_NOT_RUNNING=7 OCF_ERR_CONFIGURED=6
ocf_exit_reason() { echo "$1" >&2; }
ocf_log() { :; }
check_binary() { :; }
"""
DEAF = "error: Guest agent is not responding: Guest agent not available for now"
GONE = "error: Guest agent is not responding: QEMU guest agent is not connected"
BUSY = "error: Timed out during operation: cannot acquire state change lock"


@pytest.mark.parametrize(
    ("answers", "codes"),
    [
        (["yes", DEAF, DEAF, DEAF], [0, 0, 0, 1]),
        ([DEAF] * 4, [0] * 4),
        (["yes", DEAF, DEAF, "yes", DEAF, DEAF], [0] * 6),
        (["yes", DEAF, DEAF, GONE, DEAF, DEAF, DEAF], [0] * 7),
        (["yes", *[BUSY] * 4], [0] * 5),
        (["yes", DEAF, "other", DEAF, DEAF, DEAF], [0] * 6),
        (["yes", "paused", "paused", "paused"], [0] * 4),
    ],
    ids=["hangs", "has no agent", "is slow", "reboots", "is frozen", "was started anew", "is paused"],
)
def test_a_guest_hangs_whose_agent_is_connected_and_answers_no_more(
    tmp_path: Path, answers: list[str], codes: list[int]
) -> None:
    (tmp_path / "ocf-shellfuncs").write_text(OCF)
    qemu = [sys.executable, "-c", "import time; time.sleep(99)", "-uuid", GUEST["uuid"], "-S"]
    processes = [subprocess.Popen(qemu)]
    virsh = 'case "$2" in domstate) cat state;; *) cat answer; grep -q yes answer;; esac'
    (tmp_path / "virsh").write_text(f"#!/bin/sh\ncd {tmp_path}\n{virsh}\n")
    (tmp_path / "virsh").chmod(0o755)
    agent = (ROLE / "files/guest").read_text().replace("/run/corral-cluster", str(tmp_path / "run"))
    known = {"OCF_RESKEY_uuid": GUEST["uuid"], "OCF_RESKEY_store": "/srv", "OCF_CHECK_LEVEL": "10"}
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "OCF_FUNCTIONS_DIR": str(tmp_path), **known}
    found = []
    try:
        for answer in answers:
            (tmp_path / "state").write_text("paused" if answer == "paused" else "running")
            (tmp_path / "answer").write_text(DEAF if answer in ("paused", "other") else answer)
            if answer == "other":
                processes[0].kill()
                processes[0].wait()
                processes.append(subprocess.Popen(qemu))
            found.append(
                subprocess.run(["sh", "-c", agent, "guest", "monitor"], check=False, env=environment).returncode
            )
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert found == codes


def node_with(place: Path, programs: dict[str, str]) -> None:
    """Programs of a node in the place of its own, which keep their notes there, and a guest that nobody owns."""
    for name, text in programs.items():
        (place / name).write_text(f"#!/bin/sh\ncd {place}\n{text}\n")
        (place / name).chmod(0o755)
    store = place / f".corral/guests/{GUEST['uuid']}"
    store.mkdir(parents=True)
    (store / "owner").write_text("{}")


HOOK = "cannot start guest web1 here: hyper1 is in maintenance (drained) and takes no guests"


@pytest.mark.parametrize(
    ("action", "refused", "code", "says"),
    [
        ("start", "", 0, ""),
        ("start", f"error: Hook script execution failed: status 1: corral.virt: {HOOK}", 1, HOOK),
        ("start", "error: no such disk", 1, f"cannot start guest {GUEST['uuid']}: error: no such disk"),
        ("migrate_from", "", 0, ""),
    ],
    ids=["starts", "refused by the hook", "fails", "arrives"],
)
def test_a_guest_that_comes_to_a_member_is_noted_at_once_or_says_first_why_not(
    tmp_path: Path, action: str, refused: str, code: int, says: str
) -> None:
    """Within the next minute it may leave again; and crm_mon shows the first words."""
    programs = {
        "virsh": '[ "$2" != start ] || { [ -s refused ] && cat refused && exit 1; echo running >state; }; cat state',
        "crm_node": "echo hyper1",
        "cibadmin": "true",
        "corral-keep": "true",
        "systemctl": 'echo "$*" >>noted',
    }
    (tmp_path / "ocf-shellfuncs").write_text(OCF)
    (tmp_path / "refused").write_text(refused)
    (tmp_path / "state").write_text("shut off" if action == "start" else "running")
    node_with(tmp_path, programs)
    known = {"OCF_RESKEY_uuid": GUEST["uuid"], "OCF_RESKEY_store": str(tmp_path)}
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "OCF_FUNCTIONS_DIR": str(tmp_path), **known}
    agent = ["sh", str(ROLE / "files/guest"), action]
    done = subprocess.run(agent, check=False, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (code, says)
    noted = (tmp_path / "noted").read_text() if (tmp_path / "noted").exists() else ""
    assert noted == ("" if code else "start --no-block corral-keep.service\n")


KNOWN = "list*) echo $OCF_RESKEY_uuid;;"


@pytest.mark.parametrize(
    ("there", "nodes", "says"),
    [
        (f"{KNOWN} *) echo shut off;;", "hyper1 hyper2", ""),
        ("list*) echo 11111111-7d0b-4a55-9a1c-3f5b0c7e9d42;;", "hyper1 hyper2", ""),
        (f"{KNOWN} *) echo paused;;", "hyper1 hyper2", f"guest {GUEST['uuid']} is paused on hyper2"),
        (
            f"{KNOWN} *) echo 'error: Disconnected, error: failed to get domain'; exit 1;;",
            "hyper1 hyper2",
            f"guest {GUEST['uuid']} may run on hyper2, which says: error: Disconnected, error: failed to get domain",
        ),
        ("*) exit 124;;", "hyper1 hyper2", f"guest {GUEST['uuid']} may run on hyper2, which says: nothing"),
        (f"{KNOWN} *) echo shut off;;", "", "cannot read who is in the cluster"),
    ],
    ids=["off", "unknown", "paused", "ends", "hangs", "no nodes"],
)
def test_a_member_that_does_not_say_that_a_guest_is_off_may_run_it(
    tmp_path: Path, there: str, nodes: str, says: str
) -> None:
    programs = {
        "virsh": f'shift; [ "$1" = --connect ] && {{ shift 2; case "$*" in {there} esac; exit; }}; '
        'case "$1" in start) echo running >state;; esac; cat state',
        "crm_node": f'case "$1" in --name) echo hyper1;; *) echo {nodes};; esac',
        "cibadmin": "true",
        "corral-keep": "true",
        "systemctl": "true",
    }
    (tmp_path / "ocf-shellfuncs").write_text(OCF)
    (tmp_path / "state").write_text("shut off")
    node_with(tmp_path, programs)
    known = {
        "OCF_RESKEY_uuid": GUEST["uuid"],
        "OCF_RESKEY_store": str(tmp_path),
        "OCF_RESKEY_CRM_meta_timeout": "90000",
    }
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "OCF_FUNCTIONS_DIR": str(tmp_path), **known}
    agent = ["sh", str(ROLE / "files/guest"), "start"]
    done = subprocess.run(agent, check=False, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (int(bool(says)), says)
    assert (tmp_path / "state").read_text().strip() == ("shut off" if says else "running")


def test_a_hold_lives_while_its_holder_does_and_a_device_is_asked_again_soon(tmp_path: Path) -> None:
    assert PROGRAM.HELD_S > 2 * PROGRAM.RENEWED_S, "one renewal may be late"
    cib = ET.fromstring(EMPTY)
    applied(cib, {**NOTHING, "fencing": {"a": IPMI}, "guests": [kept(tmp_path, "web1", "<corral:ha/>")]})
    timeouts = {
        str(each.get("id")): int(str(option.get("value")).rstrip("s"))
        for each in cib.iterfind(".//primitive")
        for option in each.iterfind("meta_attributes/nvpair[@name='failure-timeout']")
    }
    assert timeouts["corral-fence-a"] < timeouts["guest-web1"]


def test_a_guest_is_asked_by_its_agent_if_that_is_wanted(tmp_path: Path) -> None:
    """By an operation of its own: a resource whose options change is started anew."""
    cib = ET.fromstring(EMPTY)
    guest = kept(tmp_path, "web1", "<corral:ha monitor-agent='no'/>")
    settings = {**NOTHING, "fencing": {}, "guests": [guest]}
    applied(cib, settings)
    before = [ET.tostring(each) for each in cib.iterfind(".//primitive/instance_attributes")]
    levels = ".//op[@name='monitor']//nvpair[@name='OCF_CHECK_LEVEL']"
    assert cib.find(levels) is None
    kept(tmp_path, "web1", "<corral:ha monitor-agent='yes'/>")
    assert applied(cib, settings) == ["change guest-web1"] and applied(cib, settings) == []
    assert [each.get("value") for each in cib.iterfind(levels)] == ["10"]
    assert [ET.tostring(each) for each in cib.iterfind(".//primitive/instance_attributes")] == before
    intervals = [each.get("interval") for each in cib.iterfind(".//op[@name='monitor']")]
    assert len(intervals) == len(set(intervals)) == 2


def test_tasks_that_have_secrets_do_not_show_them() -> None:
    tasks = [task for path in (ROLE / "tasks").glob("*.yml") for task in yaml.safe_load(path.read_text())]
    secret = [task for task in tasks if re.search("__cluster_(settings|wanted|secret)", json.dumps(task))]
    assert len(secret) == 4
    assert all(task["no_log"] for task in secret)
