"""Whether anything confines guests is read from libvirt's capabilities, told, and missed loudly.

The kernel of the machine that runs these tests may have neither AppArmor nor SELinux, so the documents are recorded: what libvirt shows
of its host on Ubuntu and on Enterprise Linux, and (tests/golden/capabilities.xml) on a Debian 12 without either.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._xml import caps
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

CASES = [(UBUNTU, ["apparmor", "dac"], False), (EL9, ["selinux", "dac"], False), (BARE, ["dac"], True)]


@pytest.mark.parametrize(("capabilities", "drivers", "unconfined"), CASES)
def test_a_host_that_confines_no_guest_is_told(tmp_path: Path, capabilities: str, drivers: list[str], unconfined: bool) -> None:
    found = caps.host(capabilities)["security_drivers"]
    assert found == drivers
    known = {"__hypervisor_host": {"host": {"security_drivers": found}}}
    assert value(tmp_path, "__hypervisor_unconfined", [ROLES / "hypervisor/vars/main.yml"], known) is unconfined


@pytest.mark.parametrize(
    ("family", "said", "packages"),
    [("Debian", {}, ["apparmor"]), ("RedHat", {}, []), ("Debian", {"hypervisor_security_packages": []}, [])],
)
def test_the_driver_of_the_distribution_is_installed(tmp_path: Path, family: str, said: dict[str, list[str]], packages: list[str]) -> None:
    known = {"ansible_facts": {"os_family": family, "architecture": "x86_64"}, **said}
    assert value(tmp_path, "__hypervisor_security_packages", [ROLES / "hypervisor/vars/main.yml"], known) == packages
