"""Whether anything confines guests is read from libvirt's capabilities, told, and missed loudly.

The kernel of the machine that runs these tests may have neither AppArmor nor SELinux, so the documents are recorded:
what libvirt shows of its host on Ubuntu and on Enterprise Linux, and (tests/golden/capabilities.xml) on a Debian 12
without either.
"""

from __future__ import annotations

import contextlib
import types
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._host import libvirt_daemon
from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, value

DAC = "<secmodel><model>dac</model><doi>0</doi><baselabel type='kvm'>+107:+107</baselabel></secmodel>"
UBUNTU = f"<capabilities><host><secmodel><model>apparmor</model><doi>0</doi></secmodel>{DAC}</host></capabilities>"
EL9 = f"""<capabilities><host>
  <secmodel>
    <model>selinux</model>
    <doi>0</doi>
    <baselabel type='kvm'>system_u:system_r:svirt_t:s0</baselabel>
    <baselabel type='qemu'>system_u:system_r:svirt_tcg_t:s0</baselabel>
  </secmodel>
  {DAC}
</host></capabilities>"""
BARE = (Path(__file__).parents[2] / "golden/capabilities.xml").read_text()

VARS = [ROLES / "hypervisor/vars/main.yml"]
CASES = [(UBUNTU, ["apparmor"], False), (EL9, ["selinux"], False), (BARE, [], True), (None, None, False)]


@pytest.mark.parametrize(("capabilities", "drivers", "unconfined"), CASES)
def test_a_host_that_confines_no_guest_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capabilities: str | None,
    drivers: list[str] | None,
    unconfined: bool,
) -> None:
    connection = types.SimpleNamespace(getCapabilities=lambda: capabilities)
    monkeypatch.setattr(libvirt_daemon, "opened", lambda _uri, **_flags: contextlib.nullcontext(connection))
    if capabilities is None:  # nobody could ask yet
        monkeypatch.setattr(libvirt_daemon, "libvirt", None)
    found = libvirt_daemon.security_drivers()
    assert found == drivers
    assert (
        value(tmp_path, "__hypervisor_unconfined", VARS, {"__hypervisor_daemon": {"security_drivers": found}})
        is unconfined
    )


PARSER = ["/usr/sbin/apparmor_parser"]


@pytest.mark.parametrize(
    ("apt", "package", "security", "promised"),
    [
        ({"changed": True}, {"changed": False, "skipped": True}, ["apparmor"], PARSER),
        ({"changed": False}, {"changed": False, "skipped": True}, ["apparmor"], []),
        ({"changed": True}, {"changed": False, "skipped": True}, [], []),
        ({"changed": False, "skipped": True}, {"changed": True}, ["apparmor"], PARSER),
    ],
)
def test_check_mode_promises_what_the_packages_bring(
    tmp_path: Path, apt: dict[str, bool], package: dict[str, bool], security: list[str], promised: list[str]
) -> None:
    found = {
        "ansible_facts": {"os_family": "Debian", "architecture": "x86_64"},
        "__hypervisor_apt": apt,
        "__hypervisor_package": package,
    }
    known = {**found, "hypervisor_security_packages": security}
    assert value(tmp_path, "__hypervisor_promised", VARS, known, arguments=["--check"]) == promised
    assert value(tmp_path, "__hypervisor_promised", VARS, known) == []


@pytest.mark.parametrize(
    ("family", "said", "packages"),
    [("Debian", {}, ["apparmor"]), ("RedHat", {}, []), ("Debian", {"hypervisor_security_packages": []}, [])],
)
def test_the_driver_of_the_distribution_is_installed(
    tmp_path: Path, family: str, said: dict[str, list[str]], packages: list[str]
) -> None:
    known = {"ansible_facts": {"os_family": family, "architecture": "x86_64"}, **said}
    assert value(tmp_path, "__hypervisor_security_packages", VARS, known) == packages
