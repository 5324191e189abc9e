"""Guests with disks on storage of every kind that the lab can have move between two hosts: what both have stays, what one
has is copied, also into another pool. Judged by virsh, qemu-img, sha256sum and the files themselves.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import subprocess
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES, Hypervisors, hypervisors

pytestmark = [pytest.mark.lab, pytest.mark.deep]

LAB = Hypervisors("sharing")
HOSTS = ("hyper1", "hyper2")
on1, on2 = (functools.partial(LAB.on, host) for host in HOSTS)
PORTS = ["16514/tcp", "3260/tcp", "24007-24008/tcp", "49152-60999/tcp"]
SHARED = "/srv/shared"
DEVICE = "/dev/both"  # loop devices are the machine's: all of its hosts have the same one
TARGETS = ("iqn.2024-01.org.example:one", "iqn.2024-01.org.example:two")
OLD, FAST, NEW = f"{IMAGES}/g-system.qcow2", "/srv/fast", "/srv/fast/g-system.qcow2"
LOOP = (
    "truncate -s {1} {0}; for n in $(seq 60 119); do rm -f /dev/try; mknod /dev/try b 7 $n; "
    "losetup /dev/try {0} 2>/dev/null && break; done; rm /dev/try; echo $n"
)


@pytest.fixture(scope="module", autouse=True)
def sharing() -> Iterator[None]:
    """Two hypervisors: a Gluster volume on both, and another beside it; a filesystem of its own on hyper2."""
    with hypervisors("sharing", hosts=2):
        LAB.play(
            {"ansible.builtin.include_role": {"name": "corral.virt.firewall"}, "vars": {"firewall_ports": PORTS}},
            hosts="hyper",
        )
        on1("systemctl enable --now glusterd")
        for volume in ("vms", "other"):
            create = f"gluster --mode=script volume create {volume} hyper1:/srv/brick-{volume} force"
            on1(f"mkdir -p /srv/brick-{volume}; gluster volume info {volume} >/dev/null 2>&1 || {create}")
            on1(f"gluster volume start {volume}; true")
        for host in HOSTS:
            LAB.on(host, f"mkdir -p {SHARED}; {pool('shared', 'netfs', source('vms'), SHARED)}")
        fast, both = on2(LOOP.format("/root/fast", "3G")), on1(LOOP.format("/root/both", "64M"))
        on2(f"rm -f /dev/fast; mknod /dev/fast b 7 {fast}; mkfs.ext4 -q /dev/fast; mkdir -p {FAST}")
        on2(pool("fast", "fs", "--source-dev /dev/fast --source-format ext4", FAST))
        for host in HOSTS:
            LAB.on(host, f"rm -f {DEVICE}; mknod {DEVICE} b 7 {both}")
        try:
            yield
        finally:
            on1(f"virsh -q pool-destroy shared; virsh -q pool-undefine shared; losetup -d {DEVICE}; true")
            on2(
                "for p in shared fast; do virsh -q pool-destroy $p; virsh -q pool-undefine $p; done; losetup -d /dev/fast; true"
            )


def source(volume: str) -> str:
    """Options of virsh for a Gluster volume."""
    return f"--source-host hyper1 --source-path /{volume} --source-format glusterfs"


def pool(name: str, kind: str, options: str, target: str) -> str:
    """A command that makes a pool."""
    return f"virsh -q pool-define-as {name} {kind} {options} --target {target} && virsh -q pool-start {name}"


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """What a test makes goes with it."""
    yield
    for host in HOSTS:
        LAB.on(
            host,
            "for g in $(virsh list --all --name); do virsh -q destroy $g; virsh -q undefine $g; done 2>/dev/null; "
            f"find {IMAGES} {SHARED} {FAST} -mindepth 1 -not -path '*/lost+found*' -delete 2>/dev/null; "
            "for p in $(virsh pool-list --name); do virsh -q pool-refresh $p; done; true",
        )


def made(where: str = "default", state: str = "running") -> str:
    """A guest on hyper1 with content in its disk; the digest of that."""
    guest: dict[str, t.Any] = {
        "name": "g",
        "vcpus": 1,
        "memory": "64MiB",
        "interfaces": [],
        "disks": [{"name": "system", "size": "64MiB", "pool": where}],
    }
    told("hyper1", "virt_domain", state="shutdown", **guest)
    path = OLD if where == "default" else f"{SHARED}/g-system.qcow2"
    on1(f"head -c 20M /dev/urandom > /root/data; qemu-io -f qcow2 -c 'write -q -s /root/data 1M 20M' {path}")
    if state == "running":
        on1("virsh -q start g")
    return content("hyper1", path)


def content(host: str, path: str) -> str:
    """The digest of what a guest sees of an image."""
    return LAB.on(host, f"qemu-img convert -U -f qcow2 -O raw {path} /root/raw && sha256sum < /root/raw; rm /root/raw")


def told(host: str, module: str, *, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
    """What a module answers."""
    task = {f"corral.virt.{module}": options, "register": "told"}
    return t.cast("dict[str, t.Any]", LAB.tell(task, hosts=host, check=check)[host])


STATE = (
    "virsh list --all; for g in $(virsh list --all --name); do virsh domblklist $g; done; "
    f"ls {IMAGES} {SHARED} {FAST} 2>&1; true"
)


def state() -> list[str]:
    """All that a migration changes on both hosts."""
    return [LAB.on(host, STATE) for host in HOSTS]


def moved(to: str, **options: t.Any) -> dict[str, t.Any]:
    """Check, do, check again, do again; the result."""
    here = HOSTS[to == "hyper1"]
    done, *_again = LAB.four_steps(
        "virt_migrate", {"name": "g", "dest": to, **options}, STATE, host=here, looks_at=HOSTS
    )
    assert not LAB.on(here, "virsh list --all --name")
    return done


def refused(**options: t.Any) -> str:
    """Why it does not move to hyper2; nothing has changed."""
    before = state()
    said = LAB.module("virt_migrate", ok=False, name="g", dest="hyper2", **options)
    assert state() == before
    return said


def disk(host: str, *flags: str) -> str:
    """What the guest has, by its definition, or as it runs."""
    return LAB.on(host, f"virsh domblklist g {' '.join(flags)} | awk '/vda/ {{print $2}}'")


def listed(host: str, directory: str) -> str:
    """The files of a directory."""
    return LAB.on(host, f"ls -I lost+found {directory}")


@pytest.mark.parametrize("state", ["running", pytest.param("off", marks=pytest.mark.deep)])
def test_a_disk_goes_into_another_pool_and_back(state: str) -> None:
    before = made(state=state)
    on2("virsh -q pool-define-as old dir --target /srv/old")
    said = refused(pool="fsat", disk_pool={"system": "old", "sytem": "fast"})
    assert "disk_pool: the guest has no disk sytem; did you mean system?" in said
    assert "hyper2 has no storage pool fsat; did you mean fast?" in said and "pool old of hyper2 is not active" in said
    on2("virsh -q pool-undefine old")
    said = refused(pool="fast", reserve="3GiB", disk_storage={"sytem": "full"})
    assert "pool fast of hyper2 has" in said and "disk_storage: the guest has no disk sytem" in said

    done = moved("hyper2", disk_pool={"system": "fast"})
    assert done["disks"][0]["dest_path"] == NEW == disk("hyper2") == disk("hyper2", "--inactive")
    assert content("hyper2", NEW) == before and listed("hyper1", IMAGES) == listed("hyper2", IMAGES) == ""
    assert listed("hyper2", FAST) == "g-system.qcow2"
    assert on2("virsh domstate g") == ("running" if state == "running" else "shut off")

    said = re.sub(r"\s+", " ", LAB.run(*command("hyper2", dest="hyper1"), ok=False))
    assert f"the destination has no active storage pool at {FAST}" in said
    moved("hyper1", pool="default")
    assert disk("hyper1") == OLD and content("hyper1", OLD) == before and listed("hyper2", FAST) == ""
    on1("virsh -q destroy g; true")
    told("hyper1", "virt_domain", name="g", state="absent", remove_storage=True)
    assert listed("hyper1", IMAGES) == "", "it is the guest's own, as before"


def command(host: str, **options: t.Any) -> list[str]:
    """Migrate from a host."""
    return ["ansible", host, *LAB.ask_nobody, "-m", "virt_migrate", "-a", json.dumps({"name": "g", **options})]


def test_a_run_that_was_killed_with_a_disk_in_another_pool_is_finished_by_the_next() -> None:
    before = made()
    options: dict[str, t.Any] = {"disk_pool": {"system": "fast"}}
    running = LAB.start(*command("hyper1", dest="hyper2", bandwidth=4, **options))
    until(lambda: "g-system.qcow2" in listed("hyper2", FAST) and "Unbounded" in on1("virsh domjobinfo g; true"))
    on1("kill -9 $(pgrep -x virt_migrate)")
    running.wait()
    assert told("hyper1", "virt_migrate", name="g", dest="hyper2", **options)["changed"]
    assert disk("hyper2") == disk("hyper2", "--inactive") == NEW and content("hyper2", NEW) == before
    assert listed("hyper1", IMAGES) == "" and not on1("virsh list --all --name")
    assert on2("virsh domstate g") == "running"


@pytest.mark.parametrize("state", ["off", pytest.param("running", marks=pytest.mark.deep)])
def test_a_disk_on_a_filesystem_of_both_hosts_stays_and_no_copy_is_taken_for_it(state: str) -> None:
    before, path = made("shared", state), f"{SHARED}/g-system.qcow2"
    inode = on1(f"stat -c %i {path}")
    for to in ("hyper2", "hyper1"):
        [its] = moved(to)["disks"]
        assert (its["how"], its["why"], its["bytes_to_move"]) == ("shared", "on fuse.glusterfs", 0)
    assert on1(f"stat -c %i {path}") == inode and content("hyper1", path) == before
    # Another export under the same path, with a copy that has the same name, size, content and time.
    on1("mkdir -p /mnt/other && mount -t glusterfs hyper1:/other /mnt/other")
    on1(f"cp -a {path} /mnt/other/ && umount /mnt/other")
    on2("virsh -q pool-destroy shared; virsh -q pool-undefine shared")
    on2(pool("shared", "netfs", source("other"), SHARED))
    try:
        assert on1(f"stat -c '%s %Y' {path}") == on2(f"stat -c '%s %Y' {path}")
        assert "is on fuse.glusterfs, and pool shared of the destination has another file there" in refused()
        assert f"{path} already exists on the destination" in refused(storage="full")
        on2("virsh -q pool-destroy shared; virsh -q pool-undefine shared")
        assert "is on fuse.glusterfs, and the destination does not have it" in refused()
        [its] = moved("hyper2", disk_pool={"vda": "default"})["disks"]  # copied, as that was asked for
        assert its["dest_path"] == OLD == disk("hyper2") and content("hyper2", OLD) == before
        assert on1(f"stat -c %i {path}") == inode, "guests of other hosts may stand on it"
    finally:
        on2(
            f"virsh -q destroy g; virsh -q pool-destroy shared; virsh -q pool-undefine shared; {pool('shared', 'netfs', source('vms'), SHARED)}"
        )


DISK = "<disk type='{}' device='disk'><driver name='qemu' type='raw' cache='none'/>{}<target dev='vda' bus='virtio'/></disk>"
DEFINITION = """<domain type='qemu'><name>g</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os><cpu mode='custom'><model>qemu64</model></cpu>
<devices>{}</devices></domain>"""


def defined(kind: str, source: str) -> None:
    """A guest on hyper1 with such a disk."""
    on1("cat > /root/g.xml; virsh -q define /root/g.xml", given=DEFINITION.format(DISK.format(kind, source)))


OVERLAY = f"""<domain type='qemu'><name>o</name><memory unit='MiB'>64</memory><os><type arch='x86_64'>hvm</type></os>
<devices><disk type='file'><driver name='qemu' type='qcow2'/><source file='{IMAGES}/o.qcow2'/><target dev='vda' bus='virtio'/>
</disk></devices></domain>"""


@contextlib.contextmanager
def mounted_elsewhere() -> Iterator[None]:
    """hyper2 has no pool on the Gluster volume, and mounts it at another path."""
    on2(
        "virsh -q pool-destroy shared; virsh -q pool-undefine shared; mkdir -p /mnt/else; mount -t glusterfs hyper1:/vms /mnt/else"
    )
    try:
        yield
    finally:
        on2(f"umount /mnt/else 2>/dev/null; {pool('shared', 'netfs', source('vms'), SHARED)}")


def stands_on(name: str) -> None:
    """A guest of hyper2 that is off stands on this file of the volume."""
    on2(f"qemu-img create -q -f qcow2 -b /mnt/else/{name} -F qcow2 {IMAGES}/o.qcow2")
    on2("cat > /root/o.xml; virsh -q define /root/o.xml", given=OVERLAY)


def test_a_volume_stays_on_which_a_guest_of_another_host_stands_that_has_it_mounted_elsewhere() -> None:
    made("shared", "off")
    on1("virsh -q undefine g")
    words = ("-e", "host=hyper1", "-e", "pool=shared", "-e", "volume=g-system.qcow2")
    delete = ("ansible-playbook", "corral.virt.delete_volume", *LAB.ask_nobody, *words)
    with mounted_elsewhere():
        stands_on("g-system.qcow2")
        for unmount in ("true", "umount /mnt/else"):  # its guest is off: nothing keeps it mounted
            on2(unmount)
            printed = re.sub(r"\s+", " ", LAB.run(*delete, ok=False))
            assert "hyper2: guest o at /mnt/else/g-system.qcow2 uses it; remove or detach it there first" in printed
            assert listed("hyper1", SHARED) == "g-system.qcow2"
        on2(f"virsh -q undefine o; rm {IMAGES}/o.qcow2; virsh -q pool-refresh default")
        LAB.run(*delete)
        assert listed("hyper1", SHARED) == ""


def test_an_image_stays_on_which_a_guest_of_another_host_stands_that_has_it_mounted_elsewhere(tmp_path: Path) -> None:
    image = tmp_path / "i.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "8M"], check=True)
    told("hyper1", "virt_image", name="i.qcow2", src=str(image), pool="shared")
    prune = (
        "ansible-playbook",
        "corral.virt.images",
        *LAB.ask_nobody,
        "-e",
        "do=prune",
        "-e",
        "unused=true",
        "-e",
        "pool=shared",
    )
    before = listed("hyper1", SHARED)
    with mounted_elsewhere():
        stands_on(on1(f"readlink {SHARED}/i.qcow2"))
        LAB.run(*prune)
        assert listed("hyper1", SHARED) == before
        on2(f"virsh -q undefine o; rm {IMAGES}/o.qcow2; virsh -q pool-refresh default")
        LAB.run(*prune)
        assert listed("hyper1", SHARED) == ""


def test_a_block_device_moves_only_where_both_hosts_are_known_to_have_it() -> None:
    defined("block", f"<source dev='{DEVICE}'/>")
    on1(f"head -c 64M /dev/urandom > {DEVICE}; sync")
    before = on1(f"sha256sum < {DEVICE}")
    for options in ({}, {"storage": "full"}):
        said = refused(**options)
        assert f"disk vda: block device {DEVICE} is not copied, and" in said and "disk_storage: {vda: shared}" in said
    assert "it is a block device, and no logical volume, and is not copied into pool fast" in refused(
        disk_pool={"vda": "fast"}
    )
    for to, power in (("hyper2", "start"), ("hyper1", "destroy")):
        LAB.on(HOSTS[to == "hyper1"], f"virsh -q {power} g")
        [its] = moved(to, disk_storage={"vda": "shared"})["disks"]
        assert (its["how"], its["why"]) == ("shared", "on storage declared as shared")
        assert disk(to, "--inactive") == DEVICE and LAB.on(to, f"sha256sum < {DEVICE}") == before


@pytest.mark.deep
def test_a_lun_of_a_pool_moves_where_the_pools_are_one_target() -> None:
    on1(
        "DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends tgt >/dev/null; systemctl start tgt"
    )
    for number, target in enumerate(TARGETS, 1):
        on1(
            f"truncate -s 64M /root/lun{number}; tgtadm --lld iscsi --op new --mode target --tid {number} -T {target} && "
            f"tgtadm --lld iscsi --op new --mode logicalunit --tid {number} --lun 1 -b /root/lun{number} && tgtadm --lld "
            f"iscsi --op bind --mode target --tid {number} -I ALL"
        )
    for host in HOSTS:
        LAB.on(
            host,
            "DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends qemu-block-extra "
            "libvirt-daemon-driver-storage-iscsi-direct >/dev/null; systemctl restart libvirtd",
        )
    san(on1, TARGETS[0], "hyper1")
    defined("volume", "<source pool='san' volume='unit:0:0:1'/>")
    on1("head -c 64M /dev/urandom > /root/lun1; virsh -q start g")
    before = on1("sha256sum < /root/lun1")
    assert "is missing on the destination" in refused()
    for target, server in ((TARGETS[1], "hyper1"), (TARGETS[0], "127.0.0.1")):
        san(on2, target, server)
        assert "on the destination" in refused() or "another server" in refused()
        on2("virsh -q pool-destroy san; virsh -q pool-undefine san; true")
    san(on2, TARGETS[0], "hyper1")
    for to in ("hyper2", "hyper1"):
        [its] = moved(to)["disks"]
        assert (its["how"], its["why"]) == ("shared", "on the network (pool san)")
    assert on1("sha256sum < /root/lun1") == before
    for host in HOSTS:
        LAB.on(host, "virsh -q pool-destroy san; virsh -q pool-undefine san")


def san(on: t.Callable[[str], str], target: str, server: str) -> None:
    """A pool of an iSCSI target, which QEMU opens itself."""
    initiator = "--source-initiator iqn.2024-01.org.example:me"
    on(
        f"virsh -q pool-define-as san iscsi-direct --source-host {server} --source-dev {target} {initiator} && "
        "virsh -q pool-start san; true"
    )
