"""What placement and balance take alike."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import Guest, GuestCopy, Policy
from ansible_collections.corral.virt.plugins.plugin_utils._placement import reported_hosts


def test_every_number_that_must_be_above_zero_is_told() -> None:
    options = {"max_moves": 0, "tolerance": 0.5, "cpu_overcommit": 2.0, "memory_overcommit": -1.0}
    with pytest.raises(BadInput, match=r"^max_moves, memory_overcommit: must be above zero$"):
        reported_hosts.policy(options, "max_moves", "tolerance")
    assert reported_hosts.policy({**options, "memory_overcommit": 0.9}) == Policy(2.0, 0.9)


ARRIVED = {"name": "web1", "uuid": "aaaa", "state": "paused", "moving": "hyper2", "moving_from": "1111"}


def test_a_migration_that_was_interrupted_is_found_on_whichever_host() -> None:
    """Settled by the host that the guest comes from, towards the host where it is."""
    infos: dict[str, t.Any] = {
        "hyper1": {"uuid": "1111", "guests": [{"name": "web2", "uuid": "bbbb", "state": "running"}]},
        "hyper2": {"uuid": "2222", "guests": [ARRIVED]},
        "hyper3": {"uuid": "3333", "guests": [{**ARRIVED, "name": "web3", "uuid": "cccc", "moving_from": "gone"}]},
    }
    (found,) = reported_hosts.unsettled(infos)
    assert (found["name"], found["source"], found["dest"]) == ("web1", "hyper1", "hyper2")
    begun = {
        **infos,
        "hyper1": {"uuid": "1111", "guests": [{**ARRIVED, "state": "running"}]},
        "hyper2": {"uuid": "2222", "guests": []},
    }
    (found,) = reported_hosts.unsettled(begun)
    assert (found["source"], found["dest"]) == ("hyper1", "hyper2")


def found(name: str, state: str, *, autostart: bool = False) -> dict[str, t.Any]:
    """A guest of 2 vCPUs and 1024 MiB as virt_host_info tells it."""
    figures = {"vcpus": 2, "memory_mib": 1024, "bridges": [], "pools": [], "tags": []}
    return {"name": name, "uuid": name, "state": state, "autostart": autostart, **figures}


INFO: dict[str, t.Any] = {
    "cpus": 8, "memory_mib": 8192, "memory_reserved_mib": 512, "vcpus_used": 4, "memory_used_mib": 2048, "bridges": None, "pools": [],
    "guests": [found("on", "running"), found("paused", "paused"), found("boots", "shutdown", autostart=True), found("off", "shutdown")],
}  # fmt: skip


def test_a_guest_that_pacemaker_runs_knows_the_members_of_its_cluster() -> None:
    guests = [{**found("web1", "running"), "resource": "guest-web1"}, {**found("web2", "running"), "resource": ""}]
    reported = {
        "hyper1": {"host": {**INFO, "members": ["hyper1", "hyper2"], "guests": guests}},
        "hyper2": {"host": INFO},
    }
    infos = reported_hosts.usable(reported)
    members = {one["name"]: reported_hosts.guest(one).members for info in infos.values() for one in info["guests"]}
    assert members.pop("web1") == {"hyper1", "hyper2"} and not any(members.values())


def test_memory_of_a_guest_that_starts_with_its_host_is_not_promised_twice() -> None:
    host = reported_hosts.host("hyper1", INFO)
    assert (host.vcpus_used, host.memory_used_mib) == (6, 3072)


@pytest.mark.parametrize(("memory_mib", "used"), [(0, 4096), (512, 4096), (2048, 5120)])
def test_memory_of_a_guest_that_the_same_batch_starts_is_not_promised_twice(memory_mib: int, used: int) -> None:
    """The larger one of what it has and what it is to have."""
    host = reported_hosts.host("hyper1", INFO, started={"off": Guest("off", 1, memory_mib)})
    assert (host.vcpus_used, host.memory_used_mib) == (8, used)


def test_a_guest_that_runs_and_grows_counts_once() -> None:
    host = reported_hosts.host("hyper1", INFO, started={"on": Guest("on", 4, 3072)})
    assert (host.vcpus_used, host.memory_used_mib) == (8, 5120)


def test_every_guest_counts_when_that_is_asked_for() -> None:
    host = reported_hosts.host("hyper1", INFO, all_defined=True)
    assert (host.vcpus_used, host.memory_used_mib) == (8, 4096)


def test_a_host_has_the_copies_and_offers_that_it_reported() -> None:
    arriving = {**found("web1", "paused"), "moving": "h2", "moving_from": "1111", "tags": ["together-shop"]}
    arriving |= {"uuid": "aaaa", "pools": ["fast"], "bridges": ["br0"]}
    pools = [{"name": "fast", "active": True}, {"name": "off", "active": False}]
    info = {**INFO, "guests": [arriving], "pools": pools, "networks": [{"name": "lan"}], "machines": []}
    host = reported_hosts.host("h2", info)
    assert (host.name, host.cpus, host.pools, host.networks, host.machines) == (
        "h2",
        8,
        names("fast"),
        names("lan"),
        None,
    )
    assert host.guests == {"web1": GuestCopy("paused", "aaaa", "h2", "1111")}
    [guest] = host.residents
    assert (guest.uuid, guest.together, guest.pools, guest.bridges) == (
        "aaaa",
        names("shop"),
        names("fast"),
        names("br0"),
    )
    assert guest.memory_mib == 1024
    unknown = reported_hosts.host("h2", {**INFO, "pools": None})
    assert unknown.pools is None and unknown.disk_left_mib == {}


def test_what_ties_guests_to_their_host_is_known() -> None:
    """Devices that guests use are not free; those of a guest that is off and stays off are."""
    bound = {"networks": ["lan"], "machine": "pc-q35-7.2", "devices": ["pci 1", "usb 2"], "platform": ["tpm"]}
    tags = ["host_groups-ssd", "requires-qemu-8.2", "requires-kernel-6.1", "requires-", "requires-x"]
    on, off = {**found("on", "running"), **bound, "tags": tags}, {**found("off", "shutdown"), "devices": ["usb 2"]}
    versions = {"libvirt_version": "9.0.0", "hypervisor_version": "7.2.22", "kernel_version": None}
    info = {**INFO, **versions, "devices": ["pci 1", "pci 3", "usb 2", "usb 2"], "guests": [on, off]}
    counting = reported_hosts.Counting.of({"migration_groups": {"h1": "intel"}}, None)
    host = reported_hosts.host("h1", info, counting=counting)
    assert host.devices == {"pci 1": 0, "pci 3": 1, "usb 2": 1}
    assert (host.versions, host.migration_group) == ({"libvirt": "9.0.0", "qemu": "7.2.22"}, "intel")
    assert reported_hosts.host("h2", {**info, "devices": None}, counting=counting).migration_group == ""
    assert reported_hosts.host("h2", INFO).devices is None
    guest = reported_hosts.guest(on, counting, host_name="h1")
    assert (guest.networks, guest.machines, guest.groups) == (names("lan"), names("pc-q35-7.2"), names("ssd"))
    assert guest.platform == names("tpm")
    assert (guest.devices, guest.versions) == (("pci 1", "usb 2"), (("kernel", "6.1"), ("qemu", "8.2")))
    within = [
        reported_hosts.guest(one, counting, host_name=host).runs_within for one in (on, off) for host in ("h1", "h2")
    ]
    assert within == ["intel", "", None, None]
    assert (
        reported_hosts.guest(on, counting).runs_within is None
        and reported_hosts.guest(on, host_name="h1").runs_within is None
    )


def test_hosts_that_were_not_reached_are_left_out() -> None:
    results = {"b": {"host": INFO}, "a": {"host": INFO}, "c": {"unreachable": True}, "d": "x", "e": {"host": "x"}}
    assert list(reported_hosts.usable(results)) == ["a", "b"] and reported_hosts.usable(results)["a"] is INFO


def test_moves_that_were_begun_are_told_in_order_and_once() -> None:
    def here(name: str, **more: t.Any) -> dict[str, t.Any]:
        return {"name": name, "uuid": f"u-{name}", "state": "running", "moving": "h2", "moving_from": "1", **more}

    infos = {
        "h1": {"uuid": "1", "guests": [here("web2"), here("web1"), here("lost", moving="h9")]},
        "h2": {"uuid": "2", "guests": [here("web1", state="paused"), here("old", moving=None)]},
        "h0": {"uuid": "0", "guests": [here("db1", moving_from="0")]},
    }
    assert [(one["source"], one["name"], one["dest"]) for one in reported_hosts.unsettled(infos)] == [
        ("h0", "db1", "h2"),
        ("h1", "web1", "h2"),
        ("h1", "web2", "h2"),
    ]


@pytest.mark.parametrize(
    ("reserve", "of_h1", "of_h2"),
    [
        (None, 512, 512),
        ("1GiB", 1024, 1024),
        (0, 0, 0),
        ({"h1": "1GiB"}, 1024, 512),
        ({"h1": 0, "": "2GiB"}, 0, 2048),
        ("1535KiB", 1, 1),
    ],
)
def test_memory_that_is_kept_for_the_host(reserve: t.Any, of_h1: int, of_h2: int) -> None:
    counting = reported_hosts.Counting.of({"reserve": reserve}, None)
    assert (counting.reserved("h1", 512), counting.reserved("h2", 512)) == (of_h1, of_h2)


@pytest.mark.parametrize(("overcommit", "left"), [(None, {}), (1.0, {"fast": 1024.0}), (0.5, {"fast": 0.0})])
def test_room_that_is_left_in_pools(overcommit: float | None, left: dict[str, float]) -> None:
    gib = 1024**3
    pool = {"capacity_bytes": 2 * gib, "available_bytes": gib}
    pools = [{"name": "fast", "active": True, **pool}, {"name": "off", "active": False, **pool}]
    assert reported_hosts.Counting.of({"disk_overcommit": overcommit}, None).disk_left(pools) == left


THIN = {"name": "thin", "size_bytes": 1024**3, "virtual_bytes": 3 * 1024**3, "zeroes": True}


@pytest.mark.parametrize(
    ("thin", "left"),
    [
        ({}, {"lvm/thin": 1024.0}),
        ({"virtual_bytes": 5 * 1024**3}, {"lvm/thin": 0.0}),
        ({"data_percent": 91.0}, {}),
        ({"metadata_percent": 91.0}, {}),
        ({"data_percent": None}, {}),
        ({"zeroes": False}, {}),
    ],
)
def test_what_a_thin_pool_may_still_promise(thin: dict[str, t.Any], left: dict[str, float]) -> None:
    thins = [{**THIN, "data_percent": 50.0, "metadata_percent": 5.0, **thin}]
    host = reported_hosts.host(
        "h1", {**INFO, "pools": [{"name": "lvm", "type": "logical", "active": True, "thin_pools": thins}]}
    )
    assert (host.thin_pools, host.disk_left_mib) == (frozenset(left), left)


def test_thin_pools_that_nobody_could_ask_for_are_not_known() -> None:
    pools = [{"name": "lvm", "type": "logical", "active": True}]
    assert reported_hosts.host("h1", {**INFO, "pools": pools}).thin_pools is None
    assert reported_hosts.host("h1", {**INFO, "pools": [{**pools[0], "active": False}]}).thin_pools == frozenset()
    assert reported_hosts.host("h1", {**INFO, "pools": None}).thin_pools is None


def test_losses_are_a_part_of_the_policy() -> None:
    options = {"cpu_overcommit": 2.0, "memory_overcommit": 1.0}
    assert reported_hosts.policy(options).losses == 0
    assert reported_hosts.policy({**options, "rules": {"require_n_plus": 2}}).losses == 2
    assert reported_hosts.policy({**options, "max_moves": None}, "max_moves") == Policy(2.0, 1.0)
    counting = reported_hosts.Counting.of({}, {"ssd": ["h1"]})
    assert reported_hosts.host("h9", INFO, counting=counting).groups == frozenset()


def names(*words: str) -> frozenset[str]:
    """As hosts have them."""
    return frozenset(words)


def test_rules_of_a_cluster() -> None:
    """Reserve by host, overhead of each guest that holds memory, room in pools, groups and failure domains."""
    rules = {
        "reserve": {"h1": "2GiB"},
        "guest_overhead": "64MiB",
        "disk_overcommit": 1.5,
        "failure_domains": {"h1": "r1"},
    }
    counting = reported_hosts.Counting.of(rules, {"rack": ["h1"], "ssd": ["h1", "h2"]})
    gib = 1024**3
    info = {
        "cpus": 8,
        "memory_mib": 16384,
        "memory_reserved_mib": 512,
        "memory_used_mib": 1024,
        "vcpus_used": 2,
        "bridges": ["br0"],
        "networks": [{"name": "lan", "active": True}, {"name": "off", "active": False}],
        "machines": ["q35"],
        "domain_capabilities": {"cpu_models": ["EPYC"], "platform": ["efi"]},
        "pools": [
            {
                "name": "fast",
                "active": True,
                "capacity_bytes": 10 * gib,
                "available_bytes": 2 * gib,
                "filesystem": "2049",
            },
            {"name": "new", "active": True},
        ],
        "guests": [
            {
                "name": name,
                "uuid": name,
                "state": state,
                "vcpus": 2,
                "memory_mib": 1024,
                "bridges": [],
                "pools": [],
                "tags": ["apart-a", "together-c"],
                "apart": ["b"],  # of its `ha`
            }
            for name, state in (("on", "running"), ("off", "shutdown"))
        ],
    }
    host = reported_hosts.host("h1", info, counting=counting)
    assert (host.memory_mib, host.memory_used_mib, host.vcpus_used) == (16384 - 2048, 1024 + 64, 2)
    assert (host.apart, host.together) == (names("a", "b"), names("c"))
    assert (host.networks, host.machines, host.cpu_models) == (names("lan"), names("q35"), names("EPYC"))
    assert host.platform == names("efi") and reported_hosts.host("h1", INFO).platform is None
    assert (host.disk_left_mib, host.groups, host.domain) == ({"fast": 7 * 1024}, names("rack", "ssd"), "r1")
    assert (host.filesystem("fast"), host.filesystem("new")) == ("2049", "pool new")
    assert [(guest.name, guest.memory_mib) for guest in host.residents] == [("on", 1088)]
    assert host.residents[0].apart == names("a", "b")
    other = reported_hosts.host("h2", info, counting=counting)
    assert (other.memory_mib, other.domain, other.groups) == (16384 - 512, "", names("ssd"))
    plain = reported_hosts.host("h1", info)
    assert (plain.memory_used_mib, plain.disk_left_mib, plain.groups) == (1024, {}, None)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"disk_overcommit": 0.0}, "rules.disk_overcommit: must be above zero"),
        ({"require_n_plus": -1}, "rules.require_n_plus: must not be below zero"),
        ({"guest_overhead": "much"}, "rules.guest_overhead: cannot read 'much' as a size"),
        ({"reserve": {"h1": "much"}}, "rules.reserve of h1: cannot read 'much' as a size"),
    ],
)
def test_rules_that_mean_nothing(rules: dict[str, t.Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        reported_hosts.Counting.of(rules, None)
