"""What the role guests adds to guests: seeds, tags by which later runs know their groups, and that they are waited for."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.corral.virt.plugins.filter.seeded_guests import seeded_guests

SEED = {"ssh_authorized_keys": ["ssh-ed25519 AAAA me"]}


def here(
    *guests: dict[str, t.Any], there: dict[str, list[str]], seed: dict[str, t.Any] | None = None
) -> list[dict[str, t.Any]]:
    """Guests as their hypervisor gets them, which has those of `there`: name -> tags."""
    known = [{"name": name, "tags": tags, "unfinished": name == "half"} for name, tags in there.items()]
    return seeded_guests(guests, known, user_data=seed, wait_for_ip="unknown")


def test_apart_becomes_a_tag_and_takes_none_away() -> None:
    seen = here(
        {"name": "new", "apart": "web"},
        {"name": "tagged", "apart": 1, "tags": ["a", "apart-1"]},
        {"name": "kept", "apart": "web", "host": "h1", "tags": None},
        {"name": "cleared", "apart": "web", "tags": []},
        {"name": "alone", "vcpus": 1},
        there={"kept": ["by-hand", "apart-old"], "cleared": ["by-hand"], "alone": ["by-hand"]},
    )
    assert seen == [
        {"name": "new", "tags": ["apart-web"]},
        {"name": "tagged", "tags": ["a", "apart-1"]},
        {"name": "kept", "tags": ["by-hand", "apart-web"]},
        {"name": "cleared", "tags": ["apart-web"]},
        {"name": "alone", "vcpus": 1},
    ]


def test_guests_from_an_image_are_seeded_when_they_are_made() -> None:
    """What a guest says itself goes before, and one that is there is left as it is."""
    keys, own = {"user_data": SEED}, {"user_data": "#!/bin/sh\n"}
    network = {"network_config": {"version": 2}}
    seen = here(
        {"name": "new", "image": "a"},
        {"name": "disk", "disks": [{"name": "system", "image": "a"}]},
        {"name": "half", "image": "a"},
        {"name": "there", "image": "a"},
        {"name": "empty", "disks": [{"name": "system"}]},
        {"name": "null", "image": None, "disks": [{"name": "system", "image": None}]},
        {"name": "own", "image": "a", "cloud_init": own},
        {"name": "static", "image": "a", "cloud_init": network},
        {"name": "never", "image": "a", "cloud_init": None},
        there={"half": [], "there": []},
        seed=SEED,
    )
    assert {one["name"]: one.get("cloud_init") for one in seen} == {
        "new": keys, "disk": keys, "half": keys, "there": None, "empty": None, "null": None, "own": own, "static": {**network, **keys},
        "never": None,
    }  # fmt: skip


def test_seeded_guests_that_run_are_waited_for() -> None:
    """Those that can be reached and say nothing else of it."""
    run = {"image": "a", "state": "running"}
    seen = here(
        {**run, "name": "new"},
        {**run, "name": "there", "cloud_init": {"user_data": "#!/bin/sh\n"}},
        {**run, "name": "never", "wait_for_ip": "none"},
        {**run, "name": "lease", "wait_for_ip": "lease"},
        {**run, "name": "unseeded", "cloud_init": None},
        {**run, "name": "alone", "interfaces": []},
        {**run, "name": "lonely", "networks": []},
        {**run, "name": "wired", "networks": [{"name": "eth0"}]},
        {**run, "name": "hasty", "wait": False},
        {"name": "defined", "image": "a"},
        {"name": "off", "image": "a", "state": "shutdown"},
        there={"there": []},
        seed=SEED,
    )
    assert {one["name"]: one["wait_for_ip"] for one in seen if "wait_for_ip" in one} == {
        "new": "unknown", "there": "unknown", "never": "none", "lease": "lease", "wired": "unknown",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("state", "seeded", "waits"),
    [("shutdown", True, True), ("crashed", True, True), ("running", True, False), ("shutdown", False, False)],
)
def test_a_seeded_guest_that_was_off_is_waited_for_when_it_starts(state: str, *, seeded: bool, waits: bool) -> None:
    """It has its seed already, so nothing is said of one; nobody knows its address before."""
    known = [{"name": "web1", "tags": [], "unfinished": False, "state": state, "seeded": seeded}]
    wanted = {"name": "web1", "image": "a", "state": "running"}
    [sent] = seeded_guests([wanted], known, user_data=SEED, wait_for_ip="unknown")
    assert sent == ({**wanted, "wait_for_ip": "unknown"} if waits else wanted)
    [defined] = seeded_guests([{**wanted, "state": "present"}], known, user_data=SEED, wait_for_ip="unknown")
    assert "wait_for_ip" not in defined


def test_groups_become_tags_that_later_runs_know() -> None:
    """Those that were there go with a new word of their kind; who says nothing of tags keeps all others."""
    seen = here(
        {"name": "web1", "apart": "web"},
        {"name": "web2", "apart": ["web", 1], "together": "shop", "tags": ["x"]},
        {"name": "web3", "prefer": ["h1"]},
        {"name": "web4", "host_groups": ["ssd", "rack1"], "requires": {"qemu": "8.2", "kernel": 6}},
        {"name": "web5", "apart": 0},
        there={"web1": ["front", "apart-old", "together-shop"]},
    )
    assert seen == [
        {"name": "web1", "tags": ["front", "together-shop", "apart-web"]},
        {"name": "web2", "tags": ["x", "apart-web", "apart-1", "together-shop"]},
        {"name": "web3"},
        {"name": "web4", "tags": ["host_groups-ssd", "host_groups-rack1", "requires-qemu-8.2", "requires-kernel-6"]},
        {"name": "web5", "tags": ["apart-0"]},
    ]


def test_a_guest_that_is_not_meant_is_refused() -> None:
    guests = [{"name": "a"}, {"name": "b"}]
    assert seeded_guests(guests, [], names=["a", "b"]) == guests
    for names in (["b", "a"], ["a"], []):
        with pytest.raises(AnsibleFilterError, match="this hypervisor reads a, b instead; virt_guests must have"):
            seeded_guests(guests, [], names=names)


@pytest.mark.parametrize("tags", ["front,db", ["front", "db"]])
def test_tags_may_be_written_as_text(tags: str | list[str]) -> None:
    """As the module takes them."""
    assert here({"name": "web1", "apart": "web", "tags": tags}, there={}) == [
        {"name": "web1", "tags": ["front", "db", "apart-web"]}
    ]


@pytest.mark.parametrize("value", [None, "", [], {}])
def test_a_group_that_is_empty_is_none(value: object) -> None:
    guest = {"name": "web1", "apart": value, "requires": value, "host_groups": value}
    assert here(guest, there={"web1": ["apart-old"]}) == [{"name": "web1"}]
