"""What cloud-init would only tell the log of a guest is told before the guest boots."""

from __future__ import annotations

import hashlib
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils._guests import cloud_config, guest_problems

SECRET = "geheim"
REMEDY = "If the guest's image takes this, set cloud_init.schema to ignore"


def warnings(user_data: object, **options: t.Any) -> list[str]:
    """Of web1."""
    found: list[str] = []
    cloud_config.check({"name": "web1", "cloud_init": {"user_data": user_data, **options}}, found.append)
    return found


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"ssh_authorised_keys": ["k"]}, "ssh_authorised_keys (did you mean ssh_authorized_keys?)"),
        ({"userz": []}, "userz (did you mean user or users?)"),
        ({"zzz": 1}, "zzz (no such key)"),
        ({"runcmd": "ls"}, "runcmd (must be a list)"),
        ({"runcmd": []}, "runcmd (must not be empty)"),
        ({"timezone": 5}, "timezone (must be text; quote it)"),
        ({"users": [{"name": "a", "sshkeys": 1}]}, "users[0].sshkeys (no such key)"),
        ({"users": 5}, "users (must be text, a list or a mapping)"),
        ({"growpart": {"mode": "on"}}, "growpart.mode (must be auto, growpart, gpart, off or false)"),
        (
            {"disk_setup": {"/dev/vdb": {"layout": "x"}}},
            "disk_setup./dev/vdb.layout (must be remove, true or false or a list)",
        ),
        ({"write_files": [{"content": "a"}]}, "write_files[0] without path"),
        (
            {"write_files": [{"path": "/a", "permissions": 644}], "userz": 1},
            "userz (did you mean user or users?); write_files[0].permissions (must be text; quote it)",
        ),
        (
            {f"zz{number}": 1 for number in range(10)},
            "; ".join(f"zz{number} (no such key)" for number in range(8)) + "; and 2 more",
        ),
    ],
    ids=str,
)
def test_what_cloud_init_does_not_take_is_told_with_its_place(config: dict[str, t.Any], told: str) -> None:
    assert warnings(config) == [f"cloud_init.user_data of web1: cloud-init 26.2 does not take {told}. {REMEDY}"]


@pytest.mark.parametrize(
    "config",
    [
        None,
        "",
        {},
        {"users": ["default", {"name": "a", "sudo": False, "lock-passwd": True, "uid": "1000"}], "apt_update": True},
        {"users": [{"name": "a", "shell": "/bin/bash", "sudo": "ALL=(ALL) NOPASSWD:ALL", "lock_passwd": True}]},
        {"ssh_keys": {"ed25519_private": "x"}, "chpasswd": {"list": "a:b"}, "vendor_data": {"enabled": False}},
        {"set_hostname": "a", "set_timezone": "UTC"},  # of Windows
        "#cloud-config\nwrite_files: [{path: /a, content: !!binary aGVsbG8=}]\n",
        "#cloud-config\nruncmd: [\n",  # what is no YAML is refused elsewhere
        "#!/bin/sh\nuserz: []\n",
        "## template: jinja\n#cloud-config\nuserz: []\n",
        "#cloud-config-archive\n- userz\n",
        {"disk_setup": {7: {"layout": True}}},
        7,
    ],
    ids=str,
)
def test_what_cloud_init_takes_or_others_read_is_no_warning(config: object) -> None:
    assert warnings(config) == []


def test_text_and_vendor_data_are_checked_as_well() -> None:
    text = "#cloud-config\nruncmd: ls\n"
    assert "user_data of web1: cloud-init 26.2 does not take runcmd (must" in warnings(text, vendor_data=text)[0]
    assert "vendor_data of web1: cloud-init 26.2 does not take runcmd (must" in warnings(text, vendor_data=text)[1]


@pytest.mark.parametrize(
    "config",
    [
        {"password": [SECRET], "chpasswd": {"users": [{"name": "a", "password": {"b": SECRET}}]}},
        {"users": [{"name": "a", "passwd": [SECRET]}], "ssh_keys": {"rsa_private": [SECRET]}},
        {"chef": {"validation_key": [SECRET]}, "write_files": [{"path": "/a", "content": [SECRET]}]},
        {"ssh_pwauth": SECRET, "growpart": {"mode": SECRET}, "locale": [SECRET], "final_message": {"a": SECRET}},
    ],
)
def test_no_value_is_told(config: dict[str, t.Any]) -> None:
    """It may be a secret."""
    [warning] = warnings(config)
    assert SECRET not in warning


def test_the_user_decides_what_follows() -> None:
    bad = {"runcmd": "ls"}
    assert warnings(bad, schema="warn") and not warnings(bad, schema="ignore")
    with pytest.raises(ValueError, match=r"^cloud_init.user_data of web1: .* runcmd \(must be a list\)$"):
        warnings(bad, schema="refuse")


def test_a_refusal_is_among_the_problems_of_a_guest() -> None:
    """The same is known before any host is asked."""
    guest = {"name": "web1", "cloud_init": {"user_data": {"runcmd": "ls"}, "schema": "refuse"}}
    [problem] = guest_problems.problems(guest, {})
    assert "runcmd (must be a list)" in problem


def test_the_seed_of_a_guest_that_goes_is_nobodys_concern() -> None:
    guest = {"name": "web1", "state": "absent", "cloud_init": {"user_data": {"runcmd": "ls"}}}
    cloud_config.check(guest, pytest.fail)


def test_without_the_library_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    cloud_config._validator.cache_clear()
    try:
        assert warnings({"runcmd": "ls"}, schema="refuse") == [cloud_config.UNCHECKED]
        assert warnings({}) == []
    finally:
        cloud_config._validator.cache_clear()


def test_the_schema_is_that_of_its_licence_file_byte_for_byte() -> None:
    content = Path(cloud_config.FILE).read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # as git names it in the release
    assert blob == "7796073c9281fffd669f5efa874aa1f55ee95fbb"
    text = Path(f"{cloud_config.FILE}.license").read_text()
    # REUSE-IgnoreStart
    assert f"cloud-init/{cloud_config.VERSION}/" in text and "SPDX-License-Identifier: Apache-2.0\n" in text
    # REUSE-IgnoreEnd
