"""Hypervisors on Ubuntu; judged by virsh and ss.

Ubuntu comes from the mirror of this machine's own apt sources, or from the one that CORRAL_LAB_UBUNTU names.
"""

from __future__ import annotations

import os
import re
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.lab.hypervisors import ROLES, Hypervisors, hypervisors

pytestmark = [pytest.mark.lab, pytest.mark.deep]

MIRROR = os.environ.get("CORRAL_LAB_UBUNTU")
KEYRING = Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")
GUEST: dict[str, t.Any] = {
    "name": "web1",
    "vcpus": 1,
    "memory": "64MiB",
    "disks": [{"name": "system", "size": "64MiB"}],
    "interfaces": [{"name": "lan", "bridge": "br0"}],
    "cloud_init": {"user_data": {"hostname": "web1"}},
    "state": "running",
}


@pytest.fixture(params=["jammy", "noble"])
def ubuntu(request: pytest.FixtureRequest) -> Iterator[Hypervisors]:
    """A host with that release."""
    if not KEYRING.exists() or not (MIRROR or "ubuntu" in Path("/etc/os-release").read_text().lower()):
        pytest.skip("no keyring and mirror of Ubuntu: install ubuntu-keyring, and set CORRAL_LAB_UBUNTU")
    mirror = ("--mirror", MIRROR) if MIRROR else ()
    with hypervisors("ubuntu", more=("--release", request.param, *mirror)) as lab:
        yield lab


def test_ubuntu(ubuntu: Hypervisors) -> None:
    """A second run changes nothing, check mode says so, and a guest starts, is found over TLS, and goes."""
    assert "ID=ubuntu" in ubuntu.on("hyper1", "cat /etc/os-release").split()
    roles = [f"corral.virt.{role}" for role in ROLES]
    for flags in (["--check"], []):
        output = ubuntu.play(hosts="hyper1", flags=flags, roles=roles, gather_facts=True)
        assert re.search(r"hyper1 +: ok=\d+ +changed=0 .* failed=0", output), output[-3000:]
    assert "libvirtd" in ubuntu.on("hyper1", "ss -Hlnpt 'sport = :16514'")
    done, *_again = ubuntu.four_steps("virt_domain", GUEST, "virsh list --all; ls -l /var/lib/libvirt/images")
    assert "start web1" in done["steps"]
    assert ubuntu.on("hyper1", "virsh -c qemu+tls://hyper1/system list --name").strip() == "web1"
    host = ubuntu.tell({"corral.virt.virt_host_info": {"validate": True}, "register": "told"})["hyper1"]["host"]
    assert {each["driver"] for each in host["validation"]} == {"qemu"}
    assert ("pass", None) in {(each["result"], each["hint"]) for each in host["validation"]}
    ubuntu.module("corral.virt.virt_domain", name="web1", state="absent", force=True)
    assert ubuntu.on("hyper1", "virsh list --all --name") == ""
