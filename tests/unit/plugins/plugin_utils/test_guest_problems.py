"""What a host would refuse of a guest's options is known on the controller, before a host is asked."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils._guests import guest_problems

PROFILES: dict[str, t.Any] = {
    "virt_nic_profiles": {"lan": [{"name": "eth0", "bridge": "br0"}]},
    "virt_disk_profiles": {"two": [{"name": "system", "size": "1GiB"}]},
}


def problems(**options: t.Any) -> list[str]:
    """Of web1."""
    return guest_problems.problems({"name": "web1", **options}, PROFILES)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"name": "Windows 10"},
        {"vcpus": "2", "memory": "2GiB", "nic_profile": "lan", "disk_profile": "two"},
        {"cloud_init": {"user_data": {"users": []}}, "state": "running", "tags": ["a"]},
        {"networks": [{"name": "eth0", "bridge": "br0"}]},
    ],
    ids=str,
)
def test_nothing_is_wrong(options: dict[str, t.Any]) -> None:
    assert problems(**options) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"diskz": []}, ["diskz of web1: no such option; did you mean disks?"]),
        (
            {"disks": [{"name": "a", "sizee": 1}], "vcpus": "two"},
            [
                "disks.sizee of web1: no such option; did you mean size?",
                "vcpus of web1: must be a whole number or a dictionary, not 'two'",
            ],
        ),
        ({"vcpus": {"maximum": 0}}, ["vcpus.maximum of web1: must be a whole number from 1 to 4096, not 0"]),
        ({"nic_profile": "wan"}, ["nic_profile of web1: virt_nic_profiles has no profile 'wan'; known: lan"]),
        (
            {"name": None},
            ["name: '' is not a valid name; no guest has '/' or control characters in its name"],
        ),
    ],
    ids=str,
)
def test_all_that_is_wrong_is_said_at_once(options: dict[str, t.Any], told: list[str]) -> None:
    assert problems(**options) == told


def test_a_guest_without_a_name_is_told() -> None:
    assert guest_problems.problems({"vcpus": 1}, PROFILES) == [
        "a guest without a name: missing required arguments: name"
    ]


def test_a_type_that_does_not_fit_is_told_with_the_guest() -> None:
    [result] = problems(autostart="maybe")
    assert result.startswith("web1: argument 'autostart' is of type str and we were unable to convert to bool")


def test_no_secret_is_told() -> None:
    secret = "S3cretS3cret"
    xml = f"<domain><devices><graphics type='vnc' passwd='{secret}'/></devices><x y='{secret}'/></domain>"
    found = [
        *problems(xml=xml, vcpus=0),
        *problems(graphics={"type": "vnc", "password": secret * 9, "port": "x"}),
        *problems(cloud_init={"user_data": secret}),
        *problems(disks=[{"name": "a", "url": f"http://me:{secret}@h/{secret}?token={secret}&"}]),
    ]
    assert found and secret not in " ".join(found).replace(f"/{secret}", "")
