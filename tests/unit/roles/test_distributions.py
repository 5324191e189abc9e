"""What the roles install on each distribution, by facts that were recorded there."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, value

HYPERVISOR = [ROLES / "hypervisor/vars/main.yml"]
STORAGE = [ROLES / "storage/vars/main.yml"]
DEFAULTS = {
    **yaml.safe_load((ROLES / "hypervisor/defaults/main.yml").read_text()),
    **yaml.safe_load((ROLES / "storage/defaults/main.yml").read_text()),
}
# As ansible.builtin.setup tells them.
FACTS: dict[str, dict[str, str]] = {
    "ubuntu": {"os_family": "Debian", "distribution": "Ubuntu", "distribution_major_version": "24"},
    "arm": {
        "os_family": "Debian",
        "distribution": "Debian",
        "distribution_major_version": "13",
        "architecture": "aarch64",
    },
    "el": {"os_family": "RedHat", "distribution": "AlmaLinux", "distribution_major_version": "9"},
    "fedora": {"os_family": "RedHat", "distribution": "Fedora", "distribution_major_version": "43"},
    "leap": {"os_family": "Suse", "distribution": "openSUSE Leap", "distribution_major_version": "16"},
    "el8": {"os_family": "RedHat", "distribution": "Rocky", "distribution_major_version": "8"},
}


def known(name: str) -> dict[str, t.Any]:
    return {**DEFAULTS, "ansible_facts": {"architecture": "x86_64", **FACTS[name]}}


@pytest.mark.parametrize(
    ("name", "some", "too_old"),
    [
        ("ubuntu", {"apparmor", "ovmf", "qemu-system-x86", "python3-pycdlib", "libvirt-daemon-system"}, False),
        ("arm", {"apparmor", "qemu-efi-aarch64", "qemu-system-arm"}, False),
        ("el", {"edk2-ovmf", "libvirt-daemon-kvm", "qemu-kvm", "xorriso"}, False),
        ("fedora", {"edk2-ovmf", "libvirt-daemon-kvm", "qemu-kvm", "xorriso"}, False),
        ("leap", {"qemu-ovmf-x86_64", "libvirt-daemon-qemu", "qemu-x86", "python3-libvirt-python", "xorriso"}, False),
        ("el8", {"libvirt-daemon-kvm"}, True),
    ],
)
def test_packages_have_the_names_of_the_distribution(tmp_path: Path, name: str, some: set[str], too_old: bool) -> None:
    expression = "[__hypervisor_all_packages, __hypervisor_too_old]"
    packages, refused = value(tmp_path, expression, HYPERVISOR, known(name))
    assert some <= set(packages) and refused is too_old
    # Enterprise Linux has it in EPEL only.
    assert ("python3-pycdlib" in packages) == (FACTS[name]["os_family"] == "Debian")
    told = value(tmp_path, "__hypervisor_all_packages", HYPERVISOR, {**known(name), "hypervisor_seed_packages": []})
    assert not {"xorriso", "python3-pycdlib"} & set(told)


@pytest.mark.parametrize(
    ("name", "packages"),
    [("ubuntu", ["lvm2", "nfs-common"]), ("el", ["lvm2", "nfs-utils"]), ("leap", ["lvm2", "nfs-client"])],
)
def test_clients_of_storage_have_the_names_of_the_distribution(tmp_path: Path, name: str, packages: list[str]) -> None:
    found = value(tmp_path, "__storage_packages", STORAGE, {**known(name), "storage_clients": ["nfs", "logical"]})
    assert [each for each in sorted(found) if not each.startswith("libvirt-")] == packages
