"""Snapshots of many running guests, taken and merged, beside `virsh` for each guest through Ansible.

The guests run without an operating system: one vCPU, 64 MiB, one disk of 1 GiB with 20 MiB in it.
"""

from __future__ import annotations

import itertools
import json
import statistics
import typing as t

from ansible_collections.corral.virt.tests.bench.place import BUILD, Failed, medians, on, run
from ansible_collections.corral.virt.tests.bench.row import Row

HOSTS = 2
CLOUD_IMAGE = False
ROLES: tuple[str, ...] = ("hypervisor", "storage")
GUESTS = 10  # of each host
IMAGES = "/var/lib/libvirt/images"
PEER, LOOPED = "ansible -m command, each guest", "command: virsh, looped"
FASTER = 3

HOW = f"""
{GUESTS * HOSTS} guests on {HOSTS} hosts, all running. Seconds are those of all commands over kept SSH connections, medians. Ours is one play for all
hosts, and so is the one that loops over virsh; the other peer is a command of Ansible for each guest, one after another.
- take: a snapshot of the disk of each, beside virsh snapshot-create-as --disk-only --atomic for each guest
- merge: the same snapshot deleted again, beside virsh blockcommit --active --pivot, snapshot-delete --metadata and rm for each
"""
DOMAIN = (
    "<domain type='qemu'><name>{0}</name><memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type></os>"
    "<devices><disk type='file'><driver name='qemu' type='qcow2'/><source file='{1}'/><target dev='vda' bus='virtio'/></disk>"
    "</devices></domain>"
)


def rows() -> t.Iterator[Row]:
    """Our figures beside virsh's."""
    print(HOW)
    names = [f"bench{number}" for number in range(1, GUESTS + 1)]
    _guests(names)
    tries = itertools.count(1)

    def ours() -> tuple[float, float]:
        name = f"ours{next(tries)}"
        took = _play({"corral.virt.virt_snapshot": {"guests": names, "name": name, "at_once": GUESTS}})
        _check(names, name, taken=True)
        merged = _play(
            {"corral.virt.virt_snapshot": {"guests": names, "name": name, "state": "absent", "at_once": GUESTS}}
        )
        _check(names, name, taken=False)
        return took, merged

    def theirs() -> tuple[float, float]:
        name = f"theirs{next(tries)}"
        took = _play(_virsh(names, f"virsh snapshot-create-as {{{{ item }}}} {name} --disk-only --atomic"))
        _check(names, name, taken=True)
        merged = _play(
            _virsh(names, "virsh blockcommit {{ item }} vda --active --wait --pivot"),
            _virsh(names, f"virsh snapshot-delete {{{{ item }}}} {name} --metadata"),
            _virsh(names, f"rm {IMAGES}/{{{{ item }}}}.{name}"),
        )
        _check(names, name, taken=False)
        return took, merged

    def each_guest() -> tuple[float, float]:
        name = f"each{next(tries)}"
        took = _each(names, f"virsh snapshot-create-as {{}} {name} --disk-only --atomic")
        _check(names, name, taken=True)
        merged = sum(
            _each(names, command)
            for command in (
                "virsh blockcommit {} vda --active --wait --pivot",
                f"virsh snapshot-delete {{}} {name} --metadata",
                f"rm {IMAGES}/{{}}.{name}",
            )
        )
        _check(names, name, taken=False)
        return took, merged

    merges: list[list[float]] = [[], [], []]

    def first(place: int, both: t.Callable[[], tuple[float, float]]) -> t.Callable[[], float]:
        def turn() -> float:
            took, merged = both()
            merges[place].append(merged)
            return took

        return turn

    took = medians(*(first(place, both) for place, both in enumerate((ours, theirs, each_guest))))
    merged = [statistics.median(each) for each in merges]
    for what, (ours_s, looped_s, each_s) in (("take", took), ("merge", merged)):
        yield Row(f"snapshots, {what}", GUESTS * HOSTS, ours_s, PEER, each_s, "s", FASTER)
        yield Row(f"snapshots, {what}", GUESTS * HOSTS, ours_s, LOOPED, looped_s, "s")


def _each(names: t.Sequence[str], command: str) -> float:
    """One command of Ansible for each guest of each host."""
    return sum(
        run("ansible", f"hyper{host}", "-m", "ansible.builtin.command", "-a", command.format(name)).seconds
        for host in range(1, HOSTS + 1)
        for name in names
    )


def _guests(names: t.Sequence[str]) -> None:
    for host in range(1, HOSTS + 1):
        for name in names:
            disk = f"{IMAGES}/{name}.qcow2"
            on(
                f"hyper{host}",
                f"qemu-img create -q -f qcow2 {disk} 1G && qemu-io -f qcow2 -c 'write -q -P 7 0 20M' {disk} && "
                f"virsh -q define /dev/stdin && virsh -q start {name}",
                given=DOMAIN.format(name, disk),
            )


def _virsh(names: t.Sequence[str], command: str) -> dict[str, t.Any]:
    return {"ansible.builtin.command": command, "loop": list(names)}


def _play(*tasks: dict[str, t.Any]) -> float:
    playbook = BUILD / "snapshots.json"
    playbook.write_text(json.dumps([{"hosts": "hyper", "gather_facts": False, "tasks": tasks}]))
    return run("ansible-playbook", playbook).seconds


def _check(names: t.Sequence[str], snapshot: str, *, taken: bool) -> None:
    for host in range(1, HOSTS + 1):
        command = f"for g in {' '.join(names)}; do virsh snapshot-list --name $g; virsh domblklist $g; done"
        told = on(f"hyper{host}", command).output.split()
        found = told.count(snapshot)
        disks = sum(word.endswith(".qcow2") and snapshot not in word for word in told)
        if taken and found != len(names):
            raise Failed(f"{found} of {len(names)} guests of hyper{host} have snapshot {snapshot}")
        if not taken and (found or disks != len(names)):
            raise Failed(f"snapshot {snapshot} of guests of hyper{host} is not merged")
