"""What virt-host-validate says of a host, as data."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from ansible_collections.corral.virt.plugins.module_utils._guest import run_describe_host
from ansible_collections.corral.virt.plugins.module_utils._system import command

RECORDED = """\
  QEMU: Checking for hardware virtualization                                 : PASS
  QEMU: Checking if device '/dev/vhost-net' exists                           : WARN (Load the 'vhost_net' module to improve performance of virtio networking)
  QEMU: Checking for device assignment IOMMU support                         : FAIL (No ACPI DMAR table found)
  QEMU: Checking for secure guest support                                    : NOTE (Unknown (yet))
virt-host-validate: unrelated words: PASS or not
"""


def test_findings_of_virt_host_validate_are_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "answer", lambda *_words: RECORDED)
    found = run_describe_host.validation()
    assert found and [(each["driver"], each["result"]) for each in found] == [
        ("qemu", "pass"), ("qemu", "warn"), ("qemu", "fail"), ("qemu", "note"),
    ]  # fmt: skip
    assert found[0]["check"] == "Checking for hardware virtualization" and found[0]["hint"] is None
    assert found[3]["hint"] == "Unknown (yet)" and str(found[1]["hint"]).startswith("Load the 'vhost_net' module")
    monkeypatch.setattr(command, "answer", lambda *_words: "")
    assert run_describe_host.validation() is None


@pytest.mark.skipif(not shutil.which("virt-host-validate"), reason="virt-host-validate is not installed")
def test_each_line_of_this_machine_is_found() -> None:
    told = subprocess.run(["virt-host-validate", "qemu"], check=False, capture_output=True, text=True).stdout
    assert len(run_describe_host.validation() or []) == len(told.splitlines()) > 0
