"""Pools and volumes: a guest created from an image on each kind of pool, a volume copied, a disk moved while its guest
runs, and thousands of volumes listed.

Beside qemu-img and virsh by hand.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.corral.virt.tests.bench.place import Failed, medians, on, run, undefine_all
from ansible_collections.corral.virt.tests.bench.row import Row

HOSTS = 1
CLOUD_IMAGE = False
ROLES: tuple[str, ...] = ("hypervisor", "storage")
DEFAULT = "/var/lib/libvirt/images"
POOLS = {"dir": "/srv/dir", "fs": "/srv/fs", "netfs": "/srv/netfs"}
CONTENT_MIB, VOLUMES, DIRECT = 600, 5000, 100000
HAND, COPY, VIRSH = "qemu-img create, virsh define", "qemu-img convert, sync", "virsh blockcopy --pivot"
# Beside what the same work takes by hand: Ansible's start, and a second.
FACTOR, MORE_S = 1.3, 1.0
MOVED, LISTED = 1.1, 20

HOW = f"""
Seconds are those of the whole command over one kept SSH connection, medians; a ping by Ansible is taken off where the note says so.
- create: a guest with an overlay on an image of the same pool; dir is a directory, fs an ext4 on a loop device, netfs GlusterFS by FUSE.
  The limit is {FACTOR} times the same by hand, Ansible's ping, and {MORE_S:g} s.
- copy: a qcow2 volume with {CONTENT_MIB} MiB of content becomes another one, on the disk at the end.
- move: {CONTENT_MIB} MiB, while the guest runs, to a pool that is another directory; bytes are those that the new file holds.
- list: {VOLUMES} volumes of a pool with all that libvirt knows of them, and a plan for one of them.
"""


def rows() -> t.Iterator[Row]:
    """Our figures beside everybody's."""
    print(HOW)
    ping_s = medians(lambda: run("ansible", "hyper1", "-m", "ansible.builtin.ping").seconds)[0]
    _pools()
    try:
        for pool, path in POOLS.items():
            yield _create(pool, path, ping_s)
        yield _copy(ping_s)
        yield from _move(ping_s)
        yield from _list(ping_s)
    finally:
        undefine_all()
        on("hyper1", "for p in fs netfs; do virsh -q pool-destroy $p; done; losetup -d /dev/bench-disk; true")


def _pools() -> None:
    on("hyper1", "DEBIAN_FRONTEND=noninteractive apt-get install -y -qq glusterfs-server > /dev/null")
    on(
        "hyper1",
        "truncate -s 4G /root/disk; for n in $(seq 100 140); do rm -f /dev/bench-disk; mknod /dev/bench-disk b 7 $n; "
        "losetup /dev/bench-disk /root/disk 2>/dev/null && break; done; losetup /dev/bench-disk; systemctl start glusterd "
        "&& mkdir -p /srv/brick && gluster --mode=script volume create vms hyper1:/srv/brick force && "
        "gluster volume start vms",
    )
    shared = {"hosts": [{"name": "hyper1"}], "dir": "/vms", "format": "glusterfs"}
    sources = {"fs": {"devices": ["/dev/bench-disk"], "format": "ext4"}, "netfs": shared}
    for pool, path in POOLS.items():
        more = {"source": sources[pool], "build": pool == "fs"} if pool in sources else {}
        _module("virt_pool", name=pool, type=pool, path=path, **more)
        on("hyper1", f"qemu-img create -q -f qcow2 {path}/base.qcow2 8G && virsh -q pool-refresh {pool}")


def _module(called: str, /, **options: t.Any) -> float:
    return run("ansible", "hyper1", "-m", f"corral.virt.{called}", "-a", json.dumps(options)).seconds


def _create(pool: str, path: str, ping_s: float) -> Row:
    disk = f"{path}/bench-system.qcow2"
    given = {"name": "system", "image": "base.qcow2", "pool": pool}
    guest = {"name": "bench", "vcpus": 1, "memory": 64, "interfaces": [], "state": "present", "disks": [given]}
    xml = (
        "<domain type='qemu'><name>bench</name><memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm"
        "</type></os><devices><disk type='file'><driver name='qemu' type='qcow2'/>"
        f"<source file='{disk}'/><target dev='vda' bus='virtio'/></disk></devices></domain>"
    )
    by_hand = f"qemu-img create -q -f qcow2 -F qcow2 -b {path}/base.qcow2 {disk} && virsh -q define /dev/stdin"

    def measured(make: t.Callable[[], float]) -> t.Callable[[], float]:
        def turn() -> float:
            undefine_all()
            on("hyper1", f"rm -f {disk}")
            seconds = make()
            backing = on(
                "hyper1", f"qemu-img info {disk} | sed -n 's/^backing file: //p'; virsh domblklist bench"
            ).output
            if not backing.startswith(f"{path}/base.qcow2") or disk not in backing:
                raise Failed(f"{disk} is no overlay of a guest: {backing}")
            return seconds

        return turn

    ours_s, hand_s = medians(
        measured(lambda: _module("virt_domain", **guest)), measured(lambda: on("hyper1", by_hand, given=xml).seconds)
    )
    limit_s = FACTOR * hand_s + ping_s + MORE_S
    return Row(f"create, {pool}", 1, ours_s, HAND, hand_s, "s", hand_s / limit_s, f"limit {limit_s:.2f} s")


def _copy(ping_s: float) -> Row:
    old, new = f"{DEFAULT}/source.qcow2", f"{DEFAULT}/copy.qcow2"
    on("hyper1", f"qemu-img create -q -f qcow2 {old} 2G; head -c {CONTENT_MIB}M /dev/urandom >/root/content")
    on(
        "hyper1",
        f"qemu-io -f qcow2 -c 'write -q -s /root/content 0 {CONTENT_MIB}M' {old} && virsh -q pool-refresh default",
    )

    def measured(make: t.Callable[[], float]) -> t.Callable[[], float]:
        def turn() -> float:
            on("hyper1", f"rm -f {new}; virsh -q pool-refresh default; sync")
            seconds = make()
            on("hyper1", f"qemu-img compare -q {old} {new}")
            return seconds

        return turn

    ours_s, hand_s = medians(
        measured(lambda: _module("virt_volume", name="copy.qcow2", pool="default", clone_of="source.qcow2") - ping_s),
        measured(lambda: on("hyper1", f"qemu-img convert -f qcow2 -O qcow2 {old} {new} && sync {new}").seconds),
    )
    limit_s = FACTOR * hand_s + MORE_S
    return Row("copy a volume", 1, ours_s, COPY, hand_s, "s", hand_s / limit_s, "without a ping")


def _move(ping_s: float) -> t.Iterator[Row]:
    old, new = f"{DEFAULT}/bench-system.qcow2", f"{POOLS['dir']}/bench-system.qcow2"
    undefine_all()
    on("hyper1", f"rm -f {new}")
    disks = [{"name": "system", "size": "2GiB"}]
    _module("virt_domain", name="bench", vcpus=1, memory=64, interfaces=[], state="present", disks=disks)
    on("hyper1", f"qemu-io -f qcow2 -c 'write -q -s /root/content 0 {CONTENT_MIB}M' {old} && virsh -q start bench")
    held: dict[str, list[int]] = {"ours": [], "theirs": []}

    def measured(who: str, move: t.Callable[[], float]) -> t.Callable[[], float]:
        def turn() -> float:
            on("hyper1", "sync")
            seconds = move()
            told = on("hyper1", f"virsh domblklist bench | grep -c {new}; stat -c %b {new}").output.split()
            if told[0] != "1":
                raise Failed(f"the guest has not its disk in {new}")
            held[who].append(int(told[1]) * 512)
            back = f"rm -f {old} && virsh -q blockcopy bench vda --dest {old} --transient-job --wait --pivot && rm -f {new}"
            on("hyper1", back)
            return seconds

        return turn

    ours_s, theirs_s = medians(
        measured("ours", lambda: _module("virt_disk_move", guest="bench", disk="system", pool="dir") - ping_s),
        measured(
            "theirs",
            lambda: on("hyper1", f"virsh -q blockcopy bench vda --dest {new} --transient-job --wait --pivot").seconds,
        ),
    )
    limit_s = MOVED * theirs_s + MORE_S
    yield Row("live move", 1, ours_s, VIRSH, theirs_s, "s", theirs_s / limit_s, "without a ping")
    ours_mb, theirs_mb = (max(each) / 1e6 for each in held.values())
    yield Row("live move, bytes", 1, ours_mb, VIRSH, theirs_mb, "MB", 1 / MOVED)
    on("hyper1", "virsh -q destroy bench")
    undefine_all()


def _list(ping_s: float) -> t.Iterator[Row]:
    """A directory with many volumes, and one with more than libvirt lists at all."""
    on("hyper1", f"mkdir -p /srv/many && cd /srv/many && for n in $(seq {VOLUMES}); do echo x > v$n; done")
    _module("virt_pool", name="many", path="/srv/many")
    by_hand = "for v in $(virsh vol-list many | awk '/^ v/ {print $1}'); do virsh vol-dumpxml $v --pool many; done | grep -c '<volume'"

    def theirs() -> float:
        ran = on("hyper1", by_hand)
        if int(ran.output) != VOLUMES:
            raise Failed(f"virsh has told {ran.output} volumes")
        return ran.seconds

    listed_s, planned_s, theirs_s = medians(
        lambda: _module("virt_volume_info", pool="many") - ping_s,
        lambda: _module("virt_volume", name="v1", pool="many") - ping_s,
        theirs,
    )
    peer = "virsh vol-dumpxml, shell loop"
    yield Row("list volumes", VOLUMES, listed_s, peer, theirs_s, "s", LISTED, "without a ping")
    yield Row("plan one of many volumes", VOLUMES, planned_s, peer, theirs_s, "s", LISTED, "without a ping")
