"""The playbooks that move disks between pools: judged by virsh, qemu-img, sha256sum and the files themselves."""

from __future__ import annotations

import functools
import os
import re
import signal
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES, Hypervisors, hypervisors

pytestmark = [pytest.mark.lab, pytest.mark.deep]

LAB = Hypervisors("movers")
on = functools.partial(LAB.on, "hyper1")
FAST = "/srv/fast"


@pytest.fixture(scope="module", autouse=True)
def hypervisor() -> Iterator[None]:
    """A hypervisor with a second pool and a third, small one."""
    with hypervisors("movers"):
        on("mkdir -p /srv/small && mount -t tmpfs -o size=16m none /srv/small")
        for name, path in (("default", IMAGES), ("fast", FAST), ("small", "/srv/small")):
            told("virt_pool", name=name, path=path)
        yield
        on("virsh -q pool-destroy small; virsh -q pool-undefine small; umount /srv/small")


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """What a test makes goes with it."""
    yield
    on(
        "pkill -9 -x virt_pool_drain; for g in $(virsh list --all --name); do virsh -q destroy $g; virsh -q undefine $g "
        f"--snapshots-metadata; done 2>/dev/null; find {IMAGES} {FAST} /srv/small -mindepth 1 -delete; for p in default fast small; "
        "do virsh -q pool-refresh $p; done"
    )


def told(module: str, *, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
    """What a module answers."""
    task = {f"corral.virt.{module}": options, "register": "told"}
    return t.cast("dict[str, t.Any]", LAB.tell(task, hosts="hyper1", check=check)["hyper1"])


def command(action: str, *flags: str, **arguments: str) -> list[str]:
    """How a user runs a playbook."""
    given = [word for name, value in arguments.items() for word in ("-e", f"{name}={value}")]
    return ["ansible-playbook", *LAB.ask_nobody, f"corral.virt.{action}", *flags, *given]


def do(action: str, *flags: str, ok: bool = True, **arguments: str) -> str:
    """What a playbook printed, in one line."""
    return re.sub(r"\s+", " ", LAB.run(*command(action, *flags, **arguments), ok=ok))


drain = functools.partial(do, "drain_pool", host="hyper1", pool="default", to="fast")


def guest(name: str, *disks: str, paused: bool, seeded: bool = False) -> None:
    """A guest with these disks, which have content."""
    sized = [{"name": disk, "size": "64MiB", "pool": "default"} for disk in disks]
    told(
        "virt_domain", name=name, vcpus=1, memory="64MiB", interfaces=[], disks=sized, **(seed("tim") if seeded else {})
    )
    for disk in disks:
        on(
            f"head -c 40M /dev/urandom > /root/data; qemu-io -f qcow2 -c 'write -q -s /root/data 1M 40M' {IMAGES}/{name}-{disk}.qcow2"
        )
    if paused:
        on(f"virsh -q start {name} --paused")


def seed(user: str) -> dict[str, t.Any]:
    """What cloud-init is told."""
    return {"cloud_init": {"user_data": {"users": [{"name": user}]}, "on_change": "next_boot"}}


def contents() -> dict[str, str]:
    """The digests of what guests see of their disks, by guest and target, as their definitions and they themselves say."""
    listed = "for g in $(virsh list --all --name); do virsh -q domblklist $g --details | sed s/^/$g/; done"
    found = {}
    for words in map(str.split, on(listed).splitlines()):
        if words[2] == "disk":
            form = "raw" if words[4].endswith(".iso") else "qcow2"
            digest = on(
                f"qemu-img convert -U -f {form} -O raw {words[4]} /root/raw && sha256sum < /root/raw; rm /root/raw"
            )
            found[f"{words[0].removesuffix('file')} {words[3]}"] = digest
    return found


def places() -> str:
    """The files in the pools, and what stored definitions name."""
    return on(
        f"ls {IMAGES} {FAST}; for g in $(virsh list --all --name); do virsh -q domblklist $g; virsh -q domblklist $g --inactive; done"
    )


def test_a_disk_of_a_running_guest_moves_and_its_description_moves_it_back() -> None:
    guest("g", "system", "data", paused=True)
    before, seen = contents(), places()
    move = functools.partial(do, "move_disk", guest="g", disk="data", pool="fast")
    assert "copy disk vdb of running g (" in move("--check") and places() == seen
    assert "cannot find gg: none of hyper1 has it; did you mean g on hyper1?" in move(ok=False, guest="gg")
    wrong = move(ok=False, disk="dta", pool="fst")
    assert "no such disk; did you mean data?" in wrong and "no pool fst here; did you mean fast?" in wrong
    assert "are free there; make room" in move(ok=False, pool="small") and places() == seen
    printed = move(bandwidth="8")
    assert re.search(r"hyper1: disk data of g: copy \d+ %, [\d.]+ of [\d.]+ MiB, [\d.]+ MiB/s", printed), printed
    said = rf"disk data of g is in pool fast \({FAST}/g-data.qcow2\), after [\d.]+ s; 40.[0-9] MiB copied, the old file"
    assert re.search(rf"{said} {IMAGES}/g-data.qcow2 is deleted", printed), printed
    assert contents() == before and on(f"ls {IMAGES} {FAST}").split() == [
        *(f"{FAST}:", "g-data.qcow2"),
        *(f"{IMAGES}:", "g-system.qcow2"),
    ]
    assert "disk data of g is already in pool fast" in move()
    described: dict[str, t.Any] = {
        "name": "g",
        "disks": [{"name": "data", "pool": "default"}, {"name": "system", "pool": "default"}],
    }
    kept = told("virt_domain", **described)
    assert not kept["changed"] and kept["misplaced_disks"] == [{"disk": "data", "pool": "default"}]
    assert "ansible-playbook corral.virt.move_disk -e guest=g -e disk=data -e pool=default" in kept["notes"][0]
    checked = told("virt_domain", check=True, move_disks=True, **described)
    done = told("virt_domain", move_disks=True, **described)
    assert (
        done["steps"] == checked["steps"] and done["changed"] and "switch disk vdb of running g" in str(done["steps"])
    )
    assert not told("virt_domain", move_disks=True, **described)["changed"]
    assert contents() == before and places() == seen


def test_a_pool_is_drained() -> None:
    guest("on", "system", "data", paused=True)
    guest("off", "system", paused=False, seeded=True)
    on(
        f"cd {IMAGES}; qemu-img create -q -f qcow2 base.qcow2 8M; qemu-img create -q -f qcow2 -b {IMAGES}/base.qcow2 -F qcow2 "
        f"{FAST}/over.qcow2; truncate -s 1M tools.iso theirs.img; virsh -q snapshot-create-as off s1; virsh -q attach-disk on "
        f"{IMAGES}/tools.iso sda --type cdrom --mode readonly --config --targetbus sata"
    )
    before, seen = contents(), places()
    assert "off: it has snapshots" in drain(ok=False) and "off: it has snapshots" in drain("--check", ok=False)
    assert "make room, or choose another pool" in drain(ok=False, to="small") and places() == seen
    on("virsh -q snapshot-delete off s1")
    planned = drain("--check")
    assert places() == seen and planned.count(" to pool fast ") == 4, planned
    done = drain()
    assert done.count(" is in pool fast ") == 4 and done.count("is deleted") == 4, done
    assert contents() == before and on(f"ls {IMAGES}").split() == ["base.qcow2", "theirs.img", "tools.iso"]
    for why in (
        f"{FAST}/over.qcow2 stands on it",
        "no guest of this host uses it",
        "drive sda of on has it; eject it first",
    ):
        assert why in planned and why in done
    again = drain()
    assert " to pool " not in again and "changed=0" in again and "stays: " in again
    files = ["off-seed.iso", "off-system.qcow2", "on-data.qcow2", "on-system.qcow2", "over.qcow2"]
    assert on(f"ls {FAST}").split() == files
    changed = told("virt_domain", name="off", **seed("ann"))
    assert (
        changed["changed"] and "ann" in on(f"grep -aow ann {FAST}/off-seed.iso") and on(f"ls {FAST}").split() == files
    )
    assert on(f"ls {IMAGES}").split() == ["base.qcow2", "theirs.img", "tools.iso"], (
        "the seed is where its guest reads it"
    )


def test_a_drain_that_is_killed_goes_on() -> None:
    guest("on", "system", paused=True)
    guest("off", "system", paused=False)
    before = contents()
    run = LAB.start(*command("drain_pool", host="hyper1", pool="default", to="fast", bandwidth="2"))
    until(lambda: "Copy" in on("virsh blockjob on vda --raw"), 60)
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    told_twice = drain(ok=False)
    assert "disks are left in pool default: cannot move a disk of on: another run moves one" in told_twice
    on("pkill -9 -x virt_pool_drain")
    until(lambda: "virt_pool_drain" not in on("ps -e -o comm="), 30)
    assert "go on copying disk vda of running on" in drain("--check")
    drain(bandwidth="1000")
    assert contents() == before and on(f"ls {IMAGES}") == ""
    assert on(f"ls {FAST}").split() == ["off-system.qcow2", "on-system.qcow2"]
    assert "nothing stays" in drain()
