"""What a guest needs of its host, by its options."""

from __future__ import annotations

import re
import typing as t

import pytest
import yaml

from ansible_collections.corral.virt.plugins.doc_fragments import domain
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.plugin_utils._guests import host_requirements


@pytest.mark.parametrize(
    ("options", "platform"),
    [
        ({}, ""),
        ({"firmware": "bios", "tpm": None}, ""),
        ({"firmware": "efi"}, "efi"),
        ({"firmware": "efi", "secure_boot": True}, "efi secure_boot"),
        ({"firmware": "efi", "secure_boot": "false"}, "efi"),
        ({"firmware": "efi", "arch": "aarch64"}, ""),  # hosts tell what their own architecture has
        ({"firmware": "efi", "secure_boot": True, "loader": {"path": "/usr/share/OVMF/OVMF_CODE.fd"}}, ""),
        ({"tpm": {"model": "tpm-crb"}}, "tpm"),
        ({"tpm": {"model": "none"}}, ""),
        ({"tpm": {"model": "tpm-tis", "type": "passthrough", "path": "/dev/tpm0"}}, ""),
        # What its system gets by itself.
        ({"osinfo": "win2k22"}, ""),
        ({"osinfo": "debian11"}, ""),
        ({"osinfo": "win11"}, "efi secure_boot tpm"),
        ({"osinfo": "http://microsoft.com/win/2k25"}, "efi secure_boot tpm"),
        ({"osinfo": "win11", "firmware": "bios"}, ""),
        ({"osinfo": "win11", "secure_boot": False, "tpm": {"model": "none"}}, "efi"),
    ],
)
def test_what_its_firmware_and_tpm_need_of_a_host(options: dict[str, t.Any], platform: str) -> None:
    assert sorted(host_requirements.of({"name": "web1", **options}).platform) == platform.split()


@pytest.mark.parametrize(
    ("options", "devices"),
    [
        ({}, ()),
        ({"hostdevs": None, "disks": [{"name": "a"}], "interfaces": [{"name": "eth0"}]}, ()),
        ({"hostdevs": [{"name": "gpu", "address": "0000:06:00.0"}]}, ("pci 0000:06:00.0",)),
        ({"hostdevs": [{"name": "x", "vendor": "0x1d6b", "product": "0x0002"}]}, ("usb 0x1d6b:0x0002",)),
        ({"hostdevs": [{"name": "x", "bus": 1, "device": 4}]}, ("usb 1.4",)),
        ({"hostdevs": [{"name": "gpu"}]}, ()),
        ({"hostdevs": [{"name": "gpu", "address": "0000:06:00.0", "state": "absent"}]}, ()),
        ({"hostdevs": [{"name": "x", "bus": 1, "device": 4, "startup_policy": "optional"}]}, ()),
        ({"hostdevs": [{"name": "x", "bus": 1, "device": 4, "startup_policy": "requisite"}]}, ("usb 1.4",)),
        ({"interfaces": [{"name": "eth0", "address": "0000:07:00.1"}]}, ("pci 0000:07:00.1",)),
        ({"networks": [{"name": "eth0", "address": "0000:07:00.1"}]}, ("pci 0000:07:00.1",)),
        ({"disks": [{"name": "a", "nvme": {"address": "0000:01:00.0", "namespace": 1}}]}, ("pci 0000:01:00.0",)),
        (
            {
                "xml": "<domain><devices><hostdev mode='subsystem' type='mdev'><source><address uuid='u-1'/></source>"
                "</hostdev></devices></domain>",
                "hostdevs": [{"name": "gpu", "address": "0000:06:00.0"}],
            },
            ("mdev u-1", "pci 0000:06:00.0"),
        ),
    ],
)
def test_devices_that_options_name(options: dict[str, t.Any], devices: tuple[str, ...]) -> None:
    assert host_requirements.of({"name": "web1", **options}).devices == devices


@pytest.mark.parametrize(
    ("options", "bridges"),
    [
        ({}, {"br0"}),
        ({"interfaces": []}, set()),
        ({"networks": []}, set()),
        ({"interfaces": [], "networks": [{"name": "eth0", "bridge": "br1"}]}, set()),
        ({"interfaces": [{"name": "eth0", "bridge": "br1"}, {"name": "eth1", "bridge": "br2"}]}, {"br1", "br2"}),
        ({"interfaces": [{"name": "eth0", "bridge": "br1", "state": "absent"}]}, set()),
    ],
)
def test_bridges_that_options_name(options: dict[str, t.Any], bridges: set[str]) -> None:
    assert host_requirements.of({"name": "web1", **options}).bridges == bridges


def test_a_disk_that_goes_needs_no_room() -> None:
    gone = {"name": "old", "size": "9TiB", "pool": "slow", "state": "absent"}
    guest = host_requirements.of({"name": "web1", "disks": [gone, {"name": "new", "size": "1GiB", "pool": "fast"}]})
    assert guest.pools == {"fast"} and guest.disks == (("fast", 1024),) and not guest.thin_pools
    thin = {"size": "1GiB", "pool": "fast", "thin_pool": "thin"}
    guest = host_requirements.of({"name": "web1", "disks": [{"name": "a", **thin}, {"name": "b", **thin}]})
    assert guest.pools == {"fast"} and guest.thin_pools == {"fast/thin"} and guest.disks == (("fast/thin", 2048),)


@pytest.mark.parametrize(
    ("options", "versions"),
    [
        ({}, ()),
        ({"requires": None}, ()),
        ({"requires": {"qemu": 8.2, "kernel": "6"}}, (("kernel", "6"), ("qemu", "8.2"))),
        ({"vcpus": {"maximum": 4, "topology": {"dies": 1}}}, (("libvirt", "6.1"),)),
        ({"vcpus": {"maximum": 4, "topology": {"cores": 1}}}, ()),
        (
            {"interfaces": [{"name": "a", "isolated": True}], "memory": {"allocation_threads": 2}},
            (("libvirt", "6.1"), ("libvirt", "8.2")),
        ),
        ({"networks": [{"name": "a", "isolated": True}]}, (("libvirt", "6.1"),)),
        ({"networks": [{"name": "a", "isolated": False}, {"name": "b", "isolated": None}]}, (("libvirt", "6.1"),)),
        ({"firmware": "efi", "secure_boot": True}, (("libvirt", "7.2"),)),
        ({"firmware": "efi", "secure_boot": False}, ()),
        ({"filesystems": [{"name": "a", "binary": ""}], "sound": {"model": ["virtio"]}}, ()),
        ({"watchdog": {"model": "itco"}, "requires": {"libvirt": "10.0"}}, (("libvirt", "10.0"), ("libvirt", "9.1"))),
        ({"watchdog": {"model": "i6300esb"}}, ()),
        ({"disks": [{"name": "a", "io": "native"}, {"name": "b", "io": "io_uring"}]}, (("libvirt", "6.3"),)),
        ({"disks": [{"name": "a", "io": "native"}], "features": {"hyperv": None}}, ()),
    ],
)
def test_versions_that_options_require(options: dict[str, t.Any], versions: tuple[tuple[str, str], ...]) -> None:
    assert host_requirements.of({"name": "web1", **options}).versions == versions


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"requires": ["qemu>=8"]}, "requires of web1: must be a dictionary such as {qemu: '8.2'}"),
        ({"requires": {"xen": "4"}}, "requires of web1: xen: 4 is not a version of kernel, libvirt, qemu"),
        ({"requires": {"qemu": ">=8"}}, "requires of web1: qemu: >=8 is not a version of kernel, libvirt, qemu"),
        ({"requires": {"qemu": "new", "xen": 4}}, "requires of web1: qemu: new .*; requires of web1: xen: 4 "),
        ({"xml": "<domain>"}, "xml of web1: no element found"),
    ],
)
def test_what_is_no_version_is_refused(options: dict[str, t.Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        host_requirements.of({"name": "web1", **options})


def test_values_of_a_recent_libvirt_are_those_whose_texts_say_so() -> None:
    texts = yaml.safe_load(domain._TEXTS)
    told = {path: re.findall(r"V\((\w+)\) requires libvirt (\d+)\.(\d+)", str(text)) for path, text in texts.items()}
    assert {
        path: [(value, str(major), str(minor))] for path, value, (major, minor) in host_requirements.RECENT_VALUES
    } == {path: found for path, found in told.items() if found}


def test_words_of_a_protected_guest_keep_it_apart_as_its_own_do() -> None:
    """Pacemaker has no two guests of one such word on a host."""
    for ha, words in (
        ({"apart": ["web", "db"]}, {"own", "web", "db"}),
        ({"apart": "web"}, {"own", "web"}),
        ("no", {"own"}),
    ):
        assert host_requirements.of({"name": "web1", "apart": "own", "ha": ha}).apart == words


def test_a_uuid_chooses_among_the_guests_of_its_name() -> None:
    """A UUID that none of them has is for the host to refuse: no second guest of the name is placed for it."""
    one, other = "6695eb01-f6a4-8304-79aa-97f2502e193f", "00000000-0000-4000-8000-000000000001"
    item = {"name": "web1", "uuid": one.upper()}
    assert host_requirements.of(item, namesakes={one, other}).uuid == one
    assert [host_requirements.of(item, namesakes=there).uuid for there in ({other}, ())] == [None, None]
    with pytest.raises(BadInput, match="uuid of web1: 'x' is not a UUID"):
        host_requirements.of({"name": "web1", "uuid": "x"})
