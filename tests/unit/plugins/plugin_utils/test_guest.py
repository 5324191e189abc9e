"""What the controller does to a guest's options before they travel."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._plan import seed as seeds
from ansible_collections.corral.virt.plugins.plugin_utils._guest import prepared, with_profiles

NETWORK = "version: 2\nethernets: {eth0: {addresses: [192.0.2.7/24]}}\n"


@pytest.mark.parametrize(
    "options", [{"name": "a"}, {"name": "a", "cloud_init": None}, {"cloud_init": "{{ x }}"}, {"cloud_init": {}}]
)
def test_what_needs_nothing_stays(options: dict[str, t.Any]) -> None:
    assert prepared(options) == options


def test_documents_become_texts() -> None:
    output = {
        "name": "a",
        "vcpus": 1,
        "cloud_init": {"user_data": {"b": 1, "a": 2}, "meta_data": {"k": "v"}, "network_config": NETWORK},
    }
    before = json.dumps(output)
    options = prepared(output)
    assert json.dumps(output) == before, "the caller's own data is changed"
    seed = options["cloud_init"]
    assert seed["user_data"] == '#cloud-config\n{"a": 2, "b": 1}\n'
    assert json.loads(seed["meta_data"]) == {"k": "v"}
    assert json.loads(seed["network_config"])["ethernets"]["eth0"] == {"addresses": ["192.0.2.7/24"]}


def test_a_seed_is_the_same_whether_the_controller_helped_or_not() -> None:
    output: dict[str, t.Any] = {"user_data": {"a": 1}, "meta_data": {"k": "v"}, "network_config": {"version": 2}}
    helped = prepared({"name": "a", "cloud_init": output})["cloud_init"]
    assert seeds.seed(helped, guest="a") == seeds.seed(output, guest="a")


def test_user_data_as_text_is_not_touched() -> None:
    text = "#!/bin/sh\necho '{{ not: yaml'\n"
    assert prepared({"name": "a", "cloud_init": {"user_data": text}})["cloud_init"]["user_data"] == text


@pytest.mark.parametrize("key", ["meta_data", "network_config"])
def test_what_is_no_yaml_is_said(key: str) -> None:
    with pytest.raises(ValueError, match=rf"^cloud_init.{key} of a: cannot be read as YAML"):
        prepared({"name": "a", "cloud_init": {key: "a: [b"}})


PROFILES: dict[str, t.Any] = {
    "virt_nic_profiles": {"office": [{"name": "eth0", "bridge": "br0", "mtu": 1400}]},
    "virt_disk_profiles": {
        "database": [{"name": "system", "size": 8}, {"name": "data", "size": 20, "cache": "none"}],
        "broken": [{"size": 1}],
    },
}


def test_items_of_a_guest_go_before_those_of_its_profile() -> None:
    guest = {
        "name": "web1",
        "disk_profile": "database",
        "nic_profile": "office",
        "disks": [{"name": "data", "size": 50}, {"name": "logs", "size": 1}],
        "networks": [{"name": "eth0", "model": "e1000"}],
    }
    assert with_profiles(guest, PROFILES) == {
        "name": "web1",
        "disks": [
            {"name": "system", "size": 8},
            {"name": "data", "size": 50, "cache": "none"},
            {"name": "logs", "size": 1},
        ],
        "interfaces": [{"name": "eth0", "bridge": "br0", "mtu": 1400, "model": "e1000"}],
    }
    assert PROFILES["virt_disk_profiles"]["database"][1]["size"] == 20, "the profile itself stays as it is"


@pytest.mark.parametrize(
    ("guest", "messages"),
    [
        (
            {"nic_profile": "home"},
            ["nic_profile of web1: virt_nic_profiles has no profile 'home'; known: office"],
        ),
        ({"disk_profile": "x"}, ["virt_disk_profiles has no profile 'x'; known: broken, database"]),
        ({"disk_profile": "broken"}, ["virt_disk_profiles[broken]: item 1 has no name"]),
        ({"disk_profile": "database", "disks": [{"name": "a"}, {"size": 1}]}, ["disks of web1: item 2 has no name"]),
        ({"nic_profile": "home", "disk_profile": "broken"}, ["no profile 'home'", "item 1 has no name"]),
    ],
)
def test_a_wrong_profile_is_refused_with_all_that_is_wrong(guest: dict[str, t.Any], messages: list[str]) -> None:
    with pytest.raises(ValueError, match=r"web1|virt_") as caught:
        with_profiles({"name": "web1", **guest}, PROFILES)
    for message in messages:
        assert message in str(caught.value)


def test_no_profiles_at_all() -> None:
    assert with_profiles({"name": "web1", "disks": []}, {}) == {"name": "web1", "disks": []}
    with pytest.raises(ValueError, match="known: none"):
        with_profiles({"name": "web1", "nic_profile": "a"}, {"virt_nic_profiles": None})
