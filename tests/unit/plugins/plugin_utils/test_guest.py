"""What the controller does to a guest's options before they travel."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._plan import seed as seeds
from ansible_collections.corral.virt.plugins.plugin_utils._guest import prepared

NETWORK = "version: 2\nethernets: {eth0: {addresses: [192.0.2.7/24]}}\n"


@pytest.mark.parametrize("options", [{"name": "a"}, {"name": "a", "cloud_init": None}, {"cloud_init": "{{ x }}"}, {"cloud_init": {}}])
def test_what_needs_nothing_stays(options: dict[str, t.Any]) -> None:
    assert prepared(options) == options


def test_documents_become_texts() -> None:
    said = {"name": "a", "vcpus": 1, "cloud_init": {"user_data": {"b": 1, "a": 2}, "meta_data": {"k": "v"}, "network_config": NETWORK}}
    before = json.dumps(said)
    options = prepared(said)
    assert json.dumps(said) == before, "the caller's own data is changed"
    seed = options["cloud_init"]
    assert seed["user_data"] == '#cloud-config\n{"a": 2, "b": 1}\n'
    assert json.loads(seed["meta_data"]) == {"k": "v"}
    assert json.loads(seed["network_config"])["ethernets"]["eth0"] == {"addresses": ["192.0.2.7/24"]}


def test_a_seed_is_the_same_whether_the_controller_helped_or_not() -> None:
    said: dict[str, t.Any] = {"user_data": {"a": 1}, "meta_data": {"k": "v"}, "network_config": {"version": 2}}
    helped = prepared({"name": "a", "cloud_init": said})["cloud_init"]
    assert seeds.seed(helped, guest="a") == seeds.seed(said, guest="a")


def test_user_data_as_text_is_not_touched() -> None:
    text = "#!/bin/sh\necho '{{ not: yaml'\n"
    assert prepared({"name": "a", "cloud_init": {"user_data": text}})["cloud_init"]["user_data"] == text


@pytest.mark.parametrize("key", ["meta_data", "network_config"])
def test_what_is_no_yaml_is_said(key: str) -> None:
    with pytest.raises(ValueError, match=rf"^cloud_init.{key} of a: cannot be read as YAML"):
        prepared({"name": "a", "cloud_init": {key: "a: [b"}})
