"""A source that dies for good when its guest has arrived: the migration is ended where the guest is. Judged by virsh."""

from __future__ import annotations

import functools
import json
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import Hypervisors, hypervisors

pytestmark = [pytest.mark.lab, pytest.mark.deep]

LAB = Hypervisors("gone")
on1, on2 = (functools.partial(LAB.on, host) for host in ("hyper1", "hyper2"))
GUEST: dict[str, t.Any] = {
    "name": "web1",
    "vcpus": 1,
    "memory": "64MiB",
    "disks": [{"name": "system", "size": "64MiB"}],
}
# When QEMU has left, the run has looked at both hosts, and has not ended yet.
DIES = "while [ -e /run/libvirt/qemu/web1.pid ]; do :; done; pkill -KILL python3; systemctl poweroff -ff"
STORED = "virsh dumpxml --inactive web1; virsh dominfo web1 | grep Autostart"


@pytest.fixture(scope="module", autouse=True)
def hosts() -> Iterator[None]:
    """Two hypervisors."""
    with hypervisors("gone", hosts=2):
        yield


def end(*flags: str) -> tuple[str, int]:
    """End the migration, as the guide does; what is printed, and how much was changed."""
    gone = {
        "guest": "web1",
        "to": "hyper2",
        "state": "aborted",
        "gone": "hyper1",
        "confirm": "hyper1",
    }
    text = LAB.run("ansible-playbook", "corral.virt.migrate", "-e", json.dumps(gone), *flags)
    return text, text.count("changed=1")


def test_the_guest_runs_on_and_starts_anew() -> None:
    LAB.module("corral.virt.virt_domain", **GUEST, state="running", autostart=True)
    on1(f"nohup sh -c '{DIES}' >/dev/null 2>&1 &")
    LAB.module("corral.virt.virt_migrate", name="web1", dest="hyper2", ok=False)
    until(lambda: "web1" in on2("virsh list --all --name"), 30)
    assert "corral:moving " in on2(STORED)
    if "paused" in on2("virsh domstate web1"):  # the run was killed before it let the guest run
        words = "guest=web1 to=hyper2 state=aborted gone=hyper1 confirm=hyper1"
        refused = LAB.run("ansible-playbook", "corral.virt.migrate", "-e", words, ok=False)
        assert "nothing shows that all of it came here" in refused
        on2("virsh -q resume web1")
    before = on2(STORED)
    told, changes = end("--check")
    assert changes == 1 and "left on the host that it came from: /var/lib/libvirt/images/web1-system.qcow2" in told
    assert on2(STORED) == before
    told, changes = end()
    assert changes == 1 and "left on the host that it came from: /var/lib" in told
    stored = on2(STORED)
    assert "corral:moving" not in stored and ".arriving" not in stored and "enable" in stored
    assert end()[1] == 0
    assert on2("virsh -q destroy web1; virsh -q start web1; virsh domstate web1").strip() == "running"
    assert "No errors" in on2("virsh -q destroy web1; qemu-img check /var/lib/libvirt/images/web1-system.qcow2")
