"""What the controller does to a guest's options before they travel."""

from __future__ import annotations

import json
import re
import typing as t

import pytest
import yaml

from ansible_collections.corral.virt.plugins.module_utils._seed import plan_seed
from ansible_collections.corral.virt.plugins.plugin_utils._guests import preparation
from ansible_collections.corral.virt.plugins.plugin_utils._guests.preparation import prepared, with_profiles

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
    assert plan_seed.seed(helped, guest="a") == plan_seed.seed(output, guest="a")


def test_user_data_as_text_is_not_touched() -> None:
    text = "#!/bin/sh\necho '{{ not: yaml'\n"
    assert prepared({"name": "a", "cloud_init": {"user_data": text}})["cloud_init"]["user_data"] == text


@pytest.mark.parametrize("key", ["meta_data", "network_config"])
def test_what_is_no_yaml_is_said(key: str) -> None:
    with pytest.raises(ValueError, match=rf"^cloud_init.{key} of a: cannot be read as YAML"):
        prepared({"name": "a", "cloud_init": {key: "a: [b"}})


def seeded(key: str, said: object) -> str:
    """The file of a seed, as cloud-init reads it."""
    helped = prepared({"name": "a", "cloud_init": {key: said}})["cloud_init"]
    files = plan_seed.files(plan_seed.seed(json.loads(json.dumps(helped)), guest="a"), guest="a", host_key=("E", "P"))
    return files[key.replace("_", "-")].encode().decode()


CONFIGS = (
    "#cloud-config\nwrite_files:\n- path: /opt/a.gz\n  content: !!binary |\n    H4sIAAA=\n",
    '#cloud-config\nwrite_files:\n- path: /etc/motd\n  content: "ready \U0001f642"\n',
    "#cloud-config\nports: {80: a, x: b}\nlevels: !!set {a, b}\nlimit: .inf\nsize: 1.0e+20\nday: 2027-01-31\n",
    " \n#Cloud-Config of web1\r\n# a comment\r\nruncmd: ['a']\r\n",
)


@pytest.mark.parametrize("text", CONFIGS)
def test_user_data_as_text_arrives_byte_for_byte(text: str) -> None:
    assert seeded("user_data", text) == text


@pytest.mark.parametrize("key", ["user_data", "vendor_data", "meta_data"])
@pytest.mark.parametrize(
    "value",
    [
        *(1e20, 1.5e-7, -2.0, 1.0, 10**30, "1.0e+20", "1e20", "0x10", "012", "52:54:00:12:34:56", "2027-01-31", "yes"),
        *("~", ".inf", "", "\U0001f642 \u20ac \u2028 \x85 \x7f \x9f \ufeff \uffff \x07", "\\ud83d\\ude42"),
        *(True, None, [{}], {"a": []}),
    ],
)
def test_what_yaml_reads_of_a_seed_is_what_was_given(key: str, value: object) -> None:
    found = yaml.safe_load(seeded(key, {"k": value}))["k"]
    assert (found, type(found)) == (value, type(value))


def test_numbers_as_keys_become_text() -> None:
    text = "version: 2\nethernets: {eth0: {}}\nvlans:\n  vl7: {id: 7, link: eth0}\n  100: {id: 100, link: eth0}\n"
    assert yaml.safe_load(seeded("network_config", text))["vlans"] == {
        "vl7": {"id": 7, "link": "eth0"},
        "100": {"id": 100, "link": "eth0"},
    }


@pytest.mark.parametrize(
    ("key", "said", "problem"),
    [
        ("user_data", {"a": [{"b": b"x"}]}, "cloud_init.user_data of a: a[0].b is binary (!!binary), which"),
        ("user_data", {"a": {"b", "c"}}, "cloud_init.user_data of a: a is a set (!!set), which"),
        (
            "vendor_data",
            "#cloud-config\na: !!binary AAAA",
            "cloud_init.vendor_data of a: a is binary (!!binary), which",
        ),
        ("meta_data", "a: 2027-01-31", "cloud_init.meta_data of a: a is date, which"),
        ("meta_data", "a: {b: .inf}", "cloud_init.meta_data of a: a.b is inf, which"),
        ("meta_data", "a: {yes: 1}", "cloud_init.meta_data of a: key True of a is bool, not text; quote it"),
        ("meta_data", "a: {1: 1, '1': 2}", "cloud_init.meta_data of a: key 1 of a is int, not text; quote it"),
        ("meta_data", {"a": "\ud83d"}, "cloud_init.meta_data of a: a has half of a surrogate pair"),
        ("user_data", "#cloud-config\na: '\udc80'", "cloud_init.user_data of a: "),
        ("user_data", "#cloud-config\na: [b", "cloud_init.user_data of a: cannot be read as YAML"),
    ],
)
def test_what_a_seed_cannot_keep_is_refused_with_its_place(key: str, said: object, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        prepared({"name": "a", "cloud_init": {key: said}})


def test_what_virt_customize_could_not_write_is_refused() -> None:
    seed = {"method": "virt_customize", "user_data": CONFIGS[0]}
    with pytest.raises(ValueError, match=r"write_files\[0\]\.content is binary"):
        prepared({"name": "a", "cloud_init": seed})


def test_a_seed_as_text_is_the_same_as_that_of_its_mapping() -> None:
    mapping = {"packages": ["vim"], "ssh_keys": {"rsa_private": "R"}}
    (text, same) = (
        plan_seed.seed(prepared({"name": "a", "cloud_init": {"user_data": said}})["cloud_init"], guest="a")
        for said in ("#cloud-config\n# ours\n" + yaml.safe_dump(mapping), mapping)
    )
    assert (text.digest, text.config, text.host_keys) == (same.digest, same.config, same.host_keys)


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


def test_a_snapshot_before_a_change_is_told_with_the_way_back() -> None:
    taken = {"results": [{"name": "web1", "snapshot": "before-x", "steps": ["take it"], "notes": ["no agent"]}]}
    made: dict[str, t.Any] = {"name": "web1", "changed": True, "steps": ["define web1"], "notes": []}
    preparation.add_snapshots(made, taken)
    assert made["steps"] == ["take it", "define web1"] and made["notes"] == ["no agent"]
    assert made["snapshot"] == "before-x" and "msg" not in made
    failed: dict[str, t.Any] = {"name": "web1", "failed": True, "msg": "no room"}
    other: dict[str, t.Any] = {"name": "web2", "changed": False, "steps": []}
    many: dict[str, t.Any] = {
        "results": [failed, other],
        "changed": False,
        "steps": [],
        "failed": True,
        "msg": "web1: no room",
    }
    preparation.add_snapshots(many, taken)
    back = "-e guest=web1 -e snapshot=before-x -e run=true -e confirm_snapshot=before-x"
    assert failed["msg"] == f"no room; to go back to before: ansible-playbook corral.virt.revert {back}"
    assert back in many["msg"] and many["changed"] and many["steps"] == ["take it"]
    assert "snapshot" not in other and not other["changed"]


def test_what_has_no_snapshot_before_it() -> None:
    guests: list[t.Any] = [
        {"name": "web1", "snapshot": "before", "state": "absent"},
        {"name": "web2", "snapshot": "before"},
        "x",
    ]
    assert preparation.snapshot_problems(guests[1:], in_background=False) == []
    [removed, background] = preparation.snapshot_problems(guests, in_background=True)
    assert "web1" in removed and "absent" in removed and "async" in background
    assert preparation.snapshot_name(0) == "before-19700101T000000Z"
