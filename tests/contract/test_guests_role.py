"""What the role guests believes of hypervisors, and what placement refuses, through Ansible."""

from __future__ import annotations

import itertools
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.contract.play import Play
from ansible_collections.corral.virt.tests.golden.case import HOST_URI
from ansible_collections.corral.virt.tests.tools import payload
from ansible_collections.corral.virt.tests.unit.plugins.plugin_utils.test_host_keys import key

pytestmark = pytest.mark.slow

ROLE = payload.ROOT / "roles/guests"
COMMON: dict[str, t.Any] = {
    "guests_seed": True,
    "guests_user": "",
    "guests_wait_for_ip": "none",
    "virt_images_catalogue": {},
    "__guests_keys_in": ["ssh-ed25519 AAAA me"],
}


def test_a_hypervisor_makes_the_controller_trust_no_keys_of_other_guests(tmp_path: Path) -> None:
    play = Play(tmp_path)
    results = [("web1", key()), ("db1", key()), ("firewall", key()), ("web2", f"{key()}\nfirewall {key()}")]
    made = {"results": [{"name": name, "ssh_host_key": text} for name, text in results]}
    placed = {"placements": {"web1": "h1", "web2": "h1", "db1": "h2"}}
    play.hosts(
        hyper={
            "h1": {"__guests_result": made},
            "h2": {"__guests_result": {"results": [{"name": "db1", "ssh_host_key": key("ssh-rsa")}]}},
        }
    )
    result = play.run(
        {"ansible.builtin.set_fact": {"told": {"keys": "{{ __guests_keys }}"}}},
        vars={"__guests_placed": placed},
        vars_files=[str(ROLE / "vars/main.yml")],
    )
    assert result["h1"]["keys"] == [
        {"name": "web1", "ssh_host_key": key()},
        {"name": "db1", "ssh_host_key": key("ssh-rsa")},
    ]
    assert "h1 reports a host key for db1, which was not placed there" in " ".join(play.stdout.split())


def test_each_hypervisor_reads_its_own_guests(tmp_path: Path) -> None:
    """With its own variables: what is plugged in where need not have the same name everywhere."""
    play = Play(tmp_path)
    there = [{"name": "web1", "tags": ["front"], "unfinished": False}]
    nic = {"name": "eth0", "bridge": "{{ front }}"}
    wanted: list[dict[str, t.Any]] = [
        {"name": "web1", "apart": "web", "interfaces": [nic]},
        {
            "name": "web2",
            "image": "a",
            "vcpus": "{{ 1 + 1 }}",
            "interfaces": [nic],
            "description": "{{ inventory_hostname }}",
        },
        {"name": "web3"},
    ]
    play.hosts(
        hyper={
            "h1": {"front": "br0", "virt_host": {"host": {"guests": there}}},
            "h2": {"front": "br1", "virt_host": {"host": {"guests": []}}},
            "h3": {"front": "br2", "virt_host": {"host": {"guests": []}}},
        }
    )
    told = play.run(
        {"ansible.builtin.set_fact": {"told": {"guests": "{{ __guests_here }}", "chosen": "{{ __guests_is_chosen }}"}}},
        vars={
            **COMMON,
            "virt_guests": wanted,
            "virt_guest_defaults": {"memory": "1GiB"},
            "__guests_placed": {"positions": {"h1": {"web1": 0}, "h2": {"web2": 1}}},
        },
        vars_files=[str(ROLE / "vars/main.yml")],
    )
    seed = {"cloud_init": {"user_data": {"ssh_authorized_keys": ["ssh-ed25519 AAAA me"]}}}
    (web1,), (web2,) = told["h1"]["guests"], told["h2"]["guests"]
    assert web1 == {
        "name": "web1", "memory": "1GiB", "tags": ["front", "apart-web"], "interfaces": [{"name": "eth0", "bridge": "br0"}],
    }  # fmt: skip
    assert web2 == {
        "name": "web2", "memory": "1GiB", "image": "a", "vcpus": 2, "description": "h2", **seed,
        "interfaces": [{"name": "eth0", "bridge": "br1"}],
    }  # fmt: skip
    assert [told[host]["chosen"] for host in ("h1", "h2", "h3")] == [True, True, False] and not told["h3"]["guests"]


@pytest.mark.parametrize("theirs", [["b", "a"], ["a"], ["a", "{{ inventory_hostname }}"]])
def test_no_hypervisor_creates_a_guest_that_was_placed_on_another(theirs: list[str], tmp_path: Path) -> None:
    """Each reads its own list by the positions of the first one's."""
    play = Play(tmp_path)
    empty: dict[str, t.Any] = {"host": {"guests": []}}
    lists = {host: [{"name": name} for name in names] for host, names in (("h1", ["a", "b"]), ("h2", theirs))}
    play.hosts(hyper={host: {"virt_guests": guests, "virt_host": empty} for host, guests in lists.items()})
    told = play.run(
        {"ansible.builtin.set_fact": {"told": {"guests": "{{ __guests_here }}"}}, "ignore_errors": True},
        vars={**COMMON, "virt_guest_defaults": {}, "__guests_placed": {"positions": {"h1": {"a": 0}, "h2": {"b": 1}}}},
        vars_files=[str(ROLE / "vars/main.yml")],
    )
    assert told == {"h1": {"guests": [{"name": "a"}]}, "h2": {}}


ONE, TWO = [{"name": "a"}], [{"name": "a"}, {"name": "b"}]


@pytest.mark.parametrize(
    ("first", "second", "common", "differing"),
    [
        ({"virt_guests": ONE}, {"virt_guests": ONE}, {}, ""),
        ({"virt_guests": ONE}, {"virt_guests": TWO}, {}, "virt_guests of h2"),
        ({"mine": ONE}, {"mine": TWO}, {"virt_guests": "{{ mine }}"}, "virt_guests of h2"),
        (
            {"mine": ONE},
            {"mine": TWO},
            {"virt_guests": "{{ groups.hyper | map('extract', hostvars, 'mine') | flatten }}"},
            "",
        ),
        ({}, {"guests_all_defined": False, "guests_user": "ops"}, {}, ""),
        ({"guests_cpu_overcommit": 2}, {}, {}, "guests_cpu_overcommit of h2"),
        ({}, {"virt_guests": [{"host": "h1"}]}, {}, "virt_guests of h2"),
    ],
)
def test_what_is_read_of_one_hypervisor_must_be_the_same_for_all(
    first: dict[str, t.Any], second: dict[str, t.Any], common: dict[str, t.Any], differing: str, tmp_path: Path
) -> None:
    play = Play(tmp_path)
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    play.hosts(hyper={name: {**defaults, **common, **own} for name, own in (("h1", first), ("h2", second))})
    tasks = yaml.safe_load((ROLE / "tasks/main.yml").read_text())
    before = itertools.takewhile(lambda task: task["name"] != "Read the hypervisor", tasks)
    own = (task for task in before if "ansible.builtin.import_tasks" not in task)
    told: dict[str, t.Any] = {"ansible.builtin.set_fact": {"told": {}}}
    play.run(*({**task, "ignore_errors": True} for task in own), told, vars_files=[str(ROLE / "vars/main.yml")])
    said = " ".join(play.stdout.split())
    assert (f"differ from those of h1: {differing}. Set them" if differing else "changed=0") in said
    assert ("ignored=1" in said) == bool(differing)


def test_a_key_that_would_be_made_is_shown_as_such(tmp_path: Path) -> None:
    """It is another one in each run; that the guest becomes known is said all the same."""
    play = Play(tmp_path)
    keys = {name: key(rest=b"\0\0\0 " + bytes([number]) * 32) for number, name in enumerate(("new", "there"), start=1)}
    made = {"results": [{"name": name, "ssh_host_key": text} for name, text in keys.items()]}
    there = {"virt_host": {"host": {"guests": [{"name": "there", "unfinished": False}]}}, "__guests_result": made}
    play.hosts(hyper={"h1": there, "h2": {"virt_host": {}}})
    [trust] = [
        task
        for task in yaml.safe_load((ROLE / "tasks/converge.yml").read_text())
        if "corral.virt.virt_known_hosts" in task
    ]
    known = {
        "guests_known_hosts": str(tmp_path / "known_hosts"),
        "__guests_placed": {"placements": dict.fromkeys(keys, "h1")},
    }
    more: dict[str, t.Any] = {"vars": known, "vars_files": [str(ROLE / "vars/main.yml")]}
    play.run(trust, options=["--check", "--diff"], **more)
    assert "+new ssh-ed25519 AAAA" in play.stdout and f"{'A' * 40}\n" in play.stdout and keys["new"] not in play.stdout
    assert f"+there {keys['there']}" in play.stdout and "changed: [h1" in play.stdout
    play.run(trust, **more)
    assert (tmp_path / "known_hosts").read_text().splitlines() == [f"{name} {keys[name]}" for name in keys]


def test_placement_refuses_names_of_other_hosts_and_memory_that_is_promised(tmp_path: Path) -> None:
    """A case on each host: a name of the firewall's, one that fits only beside a guest that stays off, a name of a
    listed guest.
    """
    play, info = Play(tmp_path), {**INFO, "guests": [{**OFF, "name": "off"}]}
    start = {"name": "off", "vcpus": 1, "memory": 6144, "state": "running"}
    cases: dict[str, list[dict[str, t.Any]]] = {
        "h1": [{"name": "FIREWALL", "vcpus": 1, "memory": 64}],
        "h2": [start, {"name": "new", "vcpus": 1, "memory": 4096}],
        "h3": [{**start, "state": "present"}, {"name": "new", "vcpus": 1, "memory": 4096}],
        "h4": [{"name": "web1", "vcpus": 1, "memory": 64}],
        "h5": [{"name": "new", "vcpus": 1}, {"name": "off"}],
        "h6": [{"name": "new", "vcpus": 1, "memory": 64, "disk_profile": "fast", "nic_profile": "dmz"}],
    }
    profiles = {
        "virt_disk_profiles": {"fast": [{"name": "system", "size": "1GiB", "pool": "nvme"}]},
        "virt_nic_profiles": {"dmz": [{"name": "eth0", "bridge": "br0"}]},
    }
    hosts = {host: {"wanted": guests, **profiles} for host, guests in cases.items()}
    play.hosts(hyper=hosts, net={"firewall": {}}, guests={"web1": {}})
    place = {"guests": "{{ wanted }}", "hosts": {"hyper1": {"host": info}}}
    result = play.run({"corral.virt.virt_place": place, "register": "told", "ignore_errors": True})
    assert result["h1"]["msg"].startswith(
        "cannot place FIREWALL: firewall is a host of this inventory outside the group guests; choose another"
    )
    assert (
        "cannot place new: it needs 1 vcpus and 4 GiB, and no hypervisor fits: hyper1: 1.5 GiB" in result["h2"]["msg"]
    )
    assert result["h3"]["placements"] == {"off": "hyper1", "new": "hyper1"}
    assert result["h4"]["placements"] == {"web1": "hyper1"}
    assert result["h5"]["msg"].startswith(
        "cannot place new: no hypervisor has it, and creating it requires memory, for example memory=2GiB"
    )
    assert "hyper1: has no active storage pool nvme" in result["h6"]["msg"], "what a profile needs, the guest needs"


@pytest.mark.parametrize("check", [True, False])
def test_pools_that_check_mode_promised_are_counted_in(check: bool, tmp_path: Path) -> None:
    """The role storage makes them before the guests, in the same run."""
    play = Play(tmp_path)
    results = [
        {"changed": True, "item": {"name": "new", "path": "/srv/new"}},
        {"changed": True, "item": {"name": "off", "state": "inactive"}},
        {"changed": False, "item": {"name": "default", "path": "/srv"}},
        {"skipped": True, "item": {"name": "none"}},
    ]
    there = [{"name": "default", "active": True}, {"name": "new", "active": False}]
    play.hosts(
        hyper={
            "h1": {"virt_pools_made": {"results": results}, "virt_host": {"host": {"pools": there, "guests": []}}},
            "h2": {"virt_host": {"host": {"pools": there[:1], "guests": []}}},
        }
    )
    [count, *_rest] = yaml.safe_load((ROLE / "tasks/converge.yml").read_text())
    images = [{"name": "a.qcow2"}, {"name": "b.qcow2", "pool": "new"}]
    guest = {"name": "web1", "image": "debian-13", "disks": [{"name": "system", "pool": "new"}]}
    role = {
        "virt_images_catalogue": {},
        "virt_guest_defaults": {},
        "__guests_placed": {"positions": {"h1": {"web1": 0}}},
    }
    result = play.run(
        count,
        {
            "ansible.builtin.set_fact": {
                "told": {"host": "{{ virt_host.host }}", "later": "{{ __guests_images_later }}"}
            }
        },
        vars={**role, "virt_images": images, "virt_guests": [guest]},
        vars_files=[str(ROLE / "vars/main.yml")],
        options=["--check"] if check else [],
    )
    active = [there[0], {"name": "new", "active": True}] if check else there
    later = ["b.qcow2", "debian-13.qcow2"] if check else []
    assert result["h1"] == {"host": {"pools": active, "guests": []}, "later": later}
    assert result["h2"] == {"host": {"pools": there[:1], "guests": []}, "later": []}


def test_a_hypervisor_creates_no_guest_that_it_has_no_room_for_any_more(tmp_path: Path) -> None:
    """Another controller may have placed guests there since."""
    play = Play(tmp_path)
    play.hosts(hyper={"h1": {}, "h2": {}})
    tasks = yaml.safe_load((ROLE / "tasks/converge.yml").read_text())
    [create] = [task for task in tasks if task["name"] == "Create the guests"]
    room = {"memory_mib": 4096, "vcpus": 4}
    told = play.run(
        {**create, "register": "told", "ignore_errors": True},
        vars={
            "__guests_placed": {"rooms": {"h1": room, "h2": {**room, "memory_mib": 63}}},
            "__guests_here": [
                {"name": "new", "vcpus": 1, "memory": "64MiB", "disks": [], "interfaces": [], "state": "running"}
            ],
            "__guests_is_chosen": True,
        },
        module_defaults={"group/corral.virt.virt": {"uri": HOST_URI}},
    )
    assert told["h1"]["changed"] and told["h2"]["failed"] and "room" in told["h2"]["msg"], play.stdout


OFF: dict[str, t.Any] = {
    "uuid": "aaaa", "state": "shutdown", "autostart": False, "vcpus": 1, "memory_mib": 6144, "bridges": [], "pools": [], "tags": [],
}  # fmt: skip
INFO: dict[str, t.Any] = {
    "cpus": 8, "memory_mib": 8192, "memory_reserved_mib": 512, "vcpus_used": 0, "memory_used_mib": 0, "bridges": None,
    "pools": [{"name": "default", "active": True}],
}  # fmt: skip
