"""What follows for a guest from the name of its image."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils._images import image_names
from ansible_collections.corral.virt.plugins.plugin_utils._images.catalogue import Catalogue

Options = dict[str, t.Any]
OURS = Catalogue()
EVERY = sorted(OURS.entries)


@pytest.mark.parametrize("name", [name for name in EVERY if not OURS.is_iso(name)])
def test_a_name_is_enough_for_a_new_guest(name: str) -> None:
    found = image_names.described({"name": "web1", "image": name}, OURS)
    assert {"vcpus", "memory", "osinfo", "login_user"} <= found.keys()
    assert found["login_user"] == OURS.entries[name]["user"]


def test_what_the_guest_says_itself_stays() -> None:
    own: Options = {
        "name": "web1", "image": "debian-13", "vcpus": 4, "memory": "256MiB", "osinfo": "", "login_user": "me", "firmware": "bios",
    }  # fmt: skip
    assert image_names.described(own, OURS, arch="aarch64") == own


@pytest.mark.parametrize(
    ("guest", "user", "login"),
    [
        ({}, "", "debian"),
        ({}, "admin", "admin"),
        ({"cloud_init": {"user_data": {"ssh_authorized_keys": ["k"]}}}, "", "debian"),
        ({"cloud_init": {"user_data": {"users": ["default", {"name": "ops"}]}}}, "", "debian"),
        ({"cloud_init": {"user_data": {"users": [{"name": "ops"}]}}}, "", None),
        ({"cloud_init": {"user_data": "#!/bin/sh"}}, "", None),
    ],
)
def test_whom_the_guest_lets_in(guest: Options, user: str, login: str | None) -> None:
    found = image_names.described({"name": "web1", "image": "debian-13", **guest}, OURS, user=user)
    assert found.get("login_user") == login


def test_a_disk_that_the_image_does_not_fit_in_is_made_larger() -> None:
    assert "disks" not in image_names.described({"image": "debian-13"}, OURS)
    assert image_names.described({"image": "rocky-9"}, OURS)["disks"] == [{"name": "system", "size": "10GiB"}]
    assert "disks" not in image_names.described({"image": "rocky-9", "disk_profile": "large"}, OURS)


def test_firmware_is_set_where_an_image_boots_with_no_other() -> None:
    assert "firmware" not in image_names.described({"image": "debian-13"}, OURS, arch="x86_64")
    assert image_names.described({"image": "debian-13"}, OURS, arch="aarch64")["firmware"] == "efi"


def test_a_file_of_the_pool_has_nothing_to_say() -> None:
    guest = {"name": "web1", "image": "debian-13.qcow2"}
    assert image_names.described(guest, OURS) == guest == image_names.with_files(guest, OURS)


def test_the_host_hears_of_files_only() -> None:
    disks = [{"name": "system", "image": "fedora-43"}, {"name": "data", "size": "1GiB"}]
    found = image_names.with_files({"image": "debian-13", "disks": disks}, OURS)
    assert found["image"] == "debian-13.qcow2"
    assert found["disks"] == [{"name": "system", "image": "fedora-43.qcow2"}, {"name": "data", "size": "1GiB"}]
    drives = {"disks": [{"name": "cd", "volume": f"isos/{name}"} for name in ("virtio-win", "debian-13", "own.iso")]}
    assert [disk["volume"] for disk in image_names.with_files(drives, OURS)["disks"]] == [
        "isos/virtio-win.iso",
        "isos/debian-13",
        "isos/own.iso",
    ]


def test_images_come_into_the_pool_of_the_disk_and_once_each() -> None:
    cd: Options = {"name": "cd", "device": "cdrom"}
    installer: Options = {**cd, "volume": "isos/rocky-10-boot"}
    guests: list[Options] = [
        {"name": "a", "image": "debian-13"},
        {"name": "b", "image": "debian-13"},
        {"name": "c", "image": "debian-13", "disks": [cd, {"name": "system", "pool": "fast"}]},
        {"name": "d", "disks": [{"name": "system", "image": "rocky-9"}]},
        {"name": "there", "image": "fedora-43"},
        {"name": "gone", "image": "fedora-43", "state": "absent"},
        {"name": "own", "image": "own.qcow2"},
        {"name": "there", "disks": [installer, {**installer, "volume": "isos/own.iso"}, "strange"]},
        {"name": "gone", "disks": [{**installer, "volume": "more/rocky-10-boot", "state": "absent"}]},
    ]
    assert image_names.needed(guests, {"there"}, OURS) == [
        {"name": "debian-13.qcow2", "pool": "default", "catalogue": "debian-13"},
        {"name": "debian-13.qcow2", "pool": "fast", "catalogue": "debian-13"},
        {"name": "rocky-9.qcow2", "pool": "default", "catalogue": "rocky-9"},
        {"name": "rocky-10-boot.iso", "pool": "isos", "catalogue": "rocky-10-boot"},
    ]


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        ("debain-13", "image of web1: the catalogue has no image 'debain-13'; did you mean debian-13"),
        ("centos", "virt_images_catalogue"),
        (
            "rocky-10-boot",
            "is an ISO, and no disk; list a drive for it: disks: [{name: cd, device: cdrom, volume: default/rocky-10-boot}]",
        ),
        ("rocky-10-boot.iso", None),  # refused elsewhere, if there is no such file
        ("debian-13", None),
        ("golden", None),
        ("own.qcow2", None),
        ("https://a.org/x", None),  # refused elsewhere, with how to import it
    ],
)
def test_a_name_that_nobody_knows_is_refused_with_those_that_are_near(image: str, problem: str | None) -> None:
    found = image_names.problems({"name": "web1", "image": image}, OURS, lambda: {"golden"})
    assert [problem in one for one in found] == [True] if problem else not found


def test_a_list_of_images_takes_names_and_items() -> None:
    own = {"name": "own.qcow2", "src": "own.qcow2"}
    same_name = {"name": "debian-13", "url": "https://ci.example.org/x.qcow2", "format": "qcow2"}
    assert image_names.listed(["debian-13", {"name": "rocky-9", "prune": True}, own, same_name], OURS) == [
        {"name": "debian-13.qcow2", "catalogue": "debian-13"},
        {"name": "rocky-9.qcow2", "catalogue": "rocky-9", "prune": True},
        own,
        same_name,
    ]
    assert image_names.listed(["virtio-win"], OURS) == [{"name": "virtio-win.iso", "catalogue": "virtio-win"}]
    assert image_names.chosen(["virtio-win", "virtio-win.iso"], [], OURS, strict=True) == 2 * [
        {"name": "virtio-win.iso", "catalogue": "virtio-win"}
    ]
    with pytest.raises(ValueError, match="did you mean debian-13"):
        image_names.listed(["debain-13"], OURS)
