"""What cloud-init is told."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._plan import seed as seeds

V2 = {"version": 2, "ethernets": {"eth0": {"addresses": ["192.0.2.7/24", {"2001:db8::7/64": {"label": "x"}}]}}, "bonds": None}
V1 = {"version": 1, "config": [{"type": "physical", "subnets": [{"type": "static", "address": "192.0.2.8/24"}, {"type": "dhcp"}]}]}


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ('#cloud-config\n{"b": 1, "a": 2}\n', '#cloud-config\n{"a": 2, "b": 1}\n'),
        ("#!/bin/sh\ntrue\n", "#!/bin/sh\ntrue\n"),
        ({"b": 1, "a": [True, None]}, '#cloud-config\n{"a": [true, null], "b": 1}\n'),
        (None, "#cloud-config\n{}\n"),
        ("", "#cloud-config\n{}\n"),
    ],
)
def test_user_data(said: object, text: str) -> None:
    assert seeds.seed({"user_data": said}, guest="web1").user_data == text


@pytest.mark.parametrize("network", [V2, {"network": V2}, json.dumps(V2), json.dumps({"network": V2})])
def test_network_config_in_every_form(network: object) -> None:
    seed = seeds.seed({"network_config": network}, guest="web1")
    assert json.loads(t.cast(str, seed.network_config)) == V2
    assert seed.addresses == ("192.0.2.7", "2001:db8::7")
    assert seed.digest == seeds.seed({"network_config": V2}, guest="web1").digest


def test_addresses_of_version_1() -> None:
    assert seeds.seed({"network_config": V1}, guest="web1").addresses == ("192.0.2.8",)


def test_every_problem_at_once() -> None:
    with pytest.raises(BadInput) as caught:
        seeds.seed({"user_data": "hostname: a", "meta_data": "not: json", "network_config": [1]}, guest="web1")
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "cloud_init.user_data of web1",
        "cloud_init.meta_data of web1",
        "cloud_init.network_config of web1",
    ]


def test_the_digest_tells_changes_apart() -> None:
    spoken: list[dict[str, t.Any]] = [
        {},
        {"user_data": {"a": 1}},
        {"user_data": {"a": 2}},
        {"meta_data": {"a": 1}},
        {"network_config": V2},
    ]
    assert len({seeds.seed(one, guest="web1").digest for one in spoken}) == len(spoken)
    assert seeds.seed({"meta_data": {"b": 1, "a": 2}}, guest="x").digest == seeds.seed({"meta_data": {"a": 2, "b": 1}}, guest="x").digest


def test_on_change_is_not_content() -> None:
    assert seeds.seed({"on_change": "refuse"}, guest="x").digest == seeds.seed({}, guest="x").digest


def test_files() -> None:
    seed = seeds.seed({"user_data": "#!/bin/sh\n", "meta_data": {"local-hostname": "other", "k": "v"}, "network_config": V2}, guest="web1")
    files = seeds.files(seed, guest="web1", host_key=("PRIVATE", "PUBLIC"))
    assert sorted(files) == ["meta-data", "network-config", "user-data", "vendor-data"]
    assert json.loads(files["meta-data"]) == {"instance-id": f"web1-{seed.digest[:12]}", "k": "v", "local-hostname": "other"}
    assert files["user-data"] == "#!/bin/sh\n"
    vendor = json.loads(files["vendor-data"].partition("\n")[2])
    assert vendor == {"ssh_deletekeys": True, "ssh_keys": {"ed25519_private": "PRIVATE", "ed25519_public": "PUBLIC"}}
    assert "network-config" not in seeds.files(seeds.seed({}, guest="web1"), guest="web1", host_key=("a", "b"))


def test_an_instance_id_can_be_given() -> None:
    assert seeds.instance_id(seeds.seed({"meta_data": {"instance-id": "mine"}}, guest="web1"), "web1") == "mine"


def test_user_data_is_not_shown() -> None:
    assert "secret" not in repr(seeds.seed({"user_data": {"password": "secret"}}, guest="web1"))
