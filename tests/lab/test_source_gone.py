"""A source that dies for good when its guest has arrived, and a destination that dies before: the migration is ended where
the guest is. Judged by virsh.
"""

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
on1, on2, on3 = (functools.partial(LAB.on, host) for host in ("hyper1", "hyper2", "hyper3"))
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
    """Three hypervisors, of which one survives."""
    with hypervisors("gone", hosts=3):
        yield


def end(*flags: str, to: str = "hyper2", gone: str = "hyper1") -> tuple[str, int]:
    """End the migration, as the guide does; what is printed, and how much was changed."""
    words = {"guest": "web1", "to": to, "state": "aborted", "gone": gone, "confirm": gone}
    text = LAB.run("ansible-playbook", "corral.virt.migrate", "-e", json.dumps(words), *flags)
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


def test_a_guest_whose_destination_dies_stays_and_can_migrate_again() -> None:
    """hyper3 dies as soon as the disk is made there. hyper1 is dead already."""
    on3(
        "nohup sh -c 'until [ -e /var/lib/libvirt/images/web1-system.qcow2 ]; do :; done; systemctl poweroff -ff' >/dev/null 2>&1 &"
    )
    on2("virsh -q start web1")
    task = {"corral.virt.virt_migrate": {"name": "web1", "dest": "hyper3"}}
    LAB.play(task, hosts="hyper2", ok=False)
    stored = on2(STORED)
    assert "corral:moving " in stored, stored
    assert "running" in on2("virsh domstate web1")
    told, changes = end("--check", to="hyper3", gone="hyper1,hyper3")
    assert changes == 1 and "forget the migration of web1 to hyper3, which is gone" in told and on2(STORED) == stored
    assert end(to="hyper3", gone="hyper1,hyper3")[1] == 1
    stored = on2(STORED)
    assert "corral:moving" not in stored and "enable" in stored and "running" in on2("virsh domstate web1")
    assert end(to="hyper3", gone="hyper1,hyper3")[1] == 0
    wrong = {"corral.virt.virt_migrate": {"name": "web1", "dest": "hyper3", "dest_gone": True}}
    assert "dest_gone: valid only with state: aborted" in LAB.play(wrong, hosts="hyper2", ok=False)
