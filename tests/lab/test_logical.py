"""Disks of guests on logical volumes: judged by lvs, qemu-img, virsh, and the bytes themselves.

The hosts have a Linux of their own, as device-mapper does not come into containers. Their guests are a boot sector.
"""

from __future__ import annotations

import functools
import json
import sys
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.lab.hypervisors import HERE, IMAGES, Hypervisors

pytestmark = [pytest.mark.lab, pytest.mark.deep]

LAB = Hypervisors("logical")
on, there = functools.partial(LAB.on, "hyper1"), functools.partial(LAB.on, "hyper2")
PACKAGES = (  # with what the role installs: these hosts may know no mirror
    "apparmor", "dnsmasq-base", "libvirt-clients", "libvirt-daemon-system", "lvm2", "ovmf", "parted",
    "python3-cryptography", "python3-libvirt", "python3-lxml", "python3-pycdlib", "qemu-system-x86", "qemu-utils",
)  # fmt: skip
MIB = 1024**2
IMAGE_MIB = 30
SYSTEM = {"name": "system", "pool": "lvm", "image": "tiny.qcow2", "image_pool": "default", "size": "34MiB"}
GUEST: dict[str, t.Any] = {"vcpus": 1, "memory": "64MiB", "interfaces": []}
# 1: hlt; jmp 1b. What follows is no zeros, and what was on the disks of the group before is none either.
PREPARE = f"""set -e
mkdir -p {IMAGES}
truncate -s 600M /root/group
dd if=/dev/urandom of=/root/group bs=1M seek=1 count=300 conv=notrunc status=none
loop=$(losetup -f --show /root/group)
vgcreate --quiet --yes vg0 $loop
truncate -s 200M /root/group1
dd if=/dev/urandom of=/root/group1 bs=1M seek=1 count=100 conv=notrunc status=none
vgcreate --quiet --yes --physicalextentsize 8M vg1 $(losetup -f --show /root/group1)
lvcreate --quiet --yes --name foreign --size 8M vg0
lvcreate --quiet --yes --type thin-pool --name thin --size 48M vg0
head -c 8M /dev/urandom >/dev/vg0/foreign
{{ printf '\\364\\353\\375'; head -c 507 /dev/zero; printf '\\125\\252'; head -c 20M /dev/urandom; }} >/root/tiny
truncate -s {IMAGE_MIB}M /root/tiny
qemu-img convert -f raw -O qcow2 /root/tiny {IMAGES}/tiny.qcow2
"""


FOREIGN = "lvs --noheadings -o lv_uuid,lv_size,lv_tags vg0/foreign; sha256sum /dev/vg0/foreign"
CLEAN = (
    "for g in $(virsh list --all --name); do virsh -q destroy $g; virsh -q undefine $g; done 2>/dev/null; "
    "for v in $(lvs --noheadings -o lv_full_name); do [ $v = vg0/foreign ] || [ $v = vg0/thin ] || lvremove -qqf $v; done; "
    f"find {IMAGES} -mindepth 1 -not -name 'tiny*' -delete; rm -f /usr/local/bin/qemu-img; "
    "for p in $(virsh pool-list --name); do virsh -q pool-refresh $p; done"
)


@pytest.fixture(scope="module", autouse=True)
def host() -> Iterator[None]:
    """A host with a volume group that has somebody's volume, and an image."""
    lab_py = (sys.executable, HERE / "lab.py")
    if not LAB.kept:
        LAB.run(*lab_py, "down", "--name", LAB.name)
        LAB.run(
            *lab_py, "up", "--name", LAB.name, "--hosts", "2", "--no-image", "--uml", "--packages", ",".join(PACKAGES)
        )
    LAB.run(sys.executable, HERE / "demo.py", "config", "--name", LAB.name)
    try:
        if not on("vgs --noheadings"):
            on(PREPARE)
            there(PREPARE)
            book = LAB.folder / "hypervisors.json"
            roles = ["corral.virt.hypervisor", "corral.virt.pki"]  # they migrate over TLS
            book.write_text(json.dumps([{"hosts": "hyper", "gather_subset": ["!all", "network"], "roles": roles}]))
            LAB.run("ansible-playbook", book)
        told("virt_pool", hosts="hyper", name="default", path=IMAGES, state="active")
        told("virt_pool", hosts="hyper", name="lvm", type="logical", source={"name": "vg0"}, state="active")
        told("virt_pool", hosts="hyper", name="large", type="logical", source={"name": "vg1"}, state="active")
        yield
    finally:
        if not LAB.kept:
            LAB.run(*lab_py, "down", "--name", LAB.name)


@pytest.fixture(autouse=True)
def foreign_stays() -> Iterator[None]:
    """Somebody else's volume is never touched; what a test makes goes with it."""
    before = [run(FOREIGN) for run in (on, there)]
    yield
    assert [run(FOREIGN) for run in (on, there)] == before
    on(CLEAN)
    there(CLEAN)


def told(module: str, *, check: bool = False, hosts: str = "hyper1", **options: t.Any) -> dict[str, t.Any]:
    """What a module answers, on one of the hosts."""
    task = {f"corral.virt.{module}": options, "register": "told"}
    return t.cast("dict[str, t.Any]", next(iter(LAB.tell(task, hosts=hosts, check=check).values())))


def refused(**options: t.Any) -> str:
    """Why virt_domain refuses."""
    return LAB.module("corral.virt.virt_domain", ok=False, **options)


def four_steps(module: str = "virt_domain", **options: t.Any) -> list[str]:
    """Check, do, check again, do again; the steps."""
    before = on(f"lvs --noheadings -o+tags; virsh list --all; ls {IMAGES}")
    checked = told(module, check=True, **options)
    assert checked["changed"] and on(f"lvs --noheadings -o+tags; virsh list --all; ls {IMAGES}") == before
    done = told(module, **options)
    assert done["steps"] == checked["steps"] and done["changed"]
    for check in (True, False):
        again = told(module, check=check, **options)
        assert not again["changed"] and not again["notes"], again
    return t.cast("list[str]", done["steps"])


def volumes() -> dict[str, str]:
    """The volumes of the group and their UUIDs."""
    found = on("lvs --noheadings -o lv_name,lv_uuid --select lv_name!=thin vg0")
    return dict(line.split() for line in found.splitlines())


def size_mib(volume: str) -> int:
    """The size of a volume."""
    return int(on(f"blockdev --getsize64 /dev/vg0/{volume}")) // MIB


def is_zero(volume: str, from_mib: int) -> bool:
    """True if a volume reads as zeros from there on."""
    return not on(f"tail -c +$(({from_mib} * 1048576 + 1)) /dev/vg0/{volume} | tr -d '\\0' | head -c 1 | od -An -tx1")


def has_image(volume: str) -> bool:
    """True if a volume begins with the image, and has zeros behind it."""
    same = "identical" in on(f"qemu-img compare -U -f raw -F raw /root/tiny /dev/vg0/{volume}")
    return same and is_zero(volume, IMAGE_MIB)


def test_a_guest_from_an_image_grows_while_it_runs_and_while_it_is_off() -> None:
    disk = "/dev/vg0/web1-system"
    assert four_steps(name="web1", disks=[SYSTEM], state="running", **GUEST) == [
        "define web1 (disks to be created)",
        f"create disk {disk} (36 MiB, logical volume in pool lvm), and copy {IMAGES}/tiny.qcow2 (30 MiB) onto it",
        "define web1 (complete)",
        "start web1",
    ]
    assert size_mib("web1-system") == 36 and has_image("web1-system")
    assert int(on("virsh domblkstat web1 vda | awk '/rd_bytes/ {print $3}'")) >= 512, "it boots from it"
    device = on("virsh dumpxml web1 --inactive | grep -A2 '<disk'")
    assert "type='block'" in device and "type='raw'" in device and disk in device

    assert four_steps(name="web1", disks=[{"name": "system", "size": "40MiB"}]) == [
        f"grow logical volume {disk} to 40 MiB",
        f"grow disk {disk} to 40 MiB while it runs",
    ]
    assert "41943040" in on("virsh domblkinfo web1 vda | grep Capacity") and has_image("web1-system")
    # As if a run had been killed then: what the volume got is still what was there before.
    on("lvchange -qq --addtag corral.unready.from.41943040 vg0/web1-system && lvextend -qq -L 44M vg0/web1-system")
    assert not is_zero("web1-system", 40)
    assert four_steps(name="web1", disks=[{"name": "system", "size": "44MiB"}]) == [
        f"grow logical volume {disk} to 44 MiB",
        f"grow disk {disk} to 44 MiB while it runs",
    ]
    assert is_zero("web1-system", 40) and "unready" not in on("lvs -o lv_tags vg0/web1-system")
    on("virsh destroy web1")
    grown = four_steps(
        name="web1", disks=[{"name": "system", "size": "45MiB"}, {"name": "data", "pool": "lvm", "size": 0.01}]
    )
    assert grown[1:3] == [
        f"grow logical volume {disk} to 48 MiB",
        "create disk /dev/vg0/web1-data (12 MiB, logical volume in pool lvm)",
    ]
    assert is_zero("web1-system", 44) and is_zero("web1-data", 0)
    assert "from 48 MiB to 40 MiB: data would be lost" in refused(
        name="web1", disks=[{"name": "system", "size": "40MiB"}]
    )
    assert "free of" in refused(name="web1", disks=[{"name": "data", "size": "1GiB"}])


def test_a_clone_is_a_copy_and_keeps_its_hands_off_others() -> None:
    told("virt_domain", name="web1", disks=[SYSTEM], state="running", **GUEST)
    assert "clone" in refused(name="web2", clone_of="web1"), "it runs"
    on("virsh destroy web1; lvcreate -qqy --name web2-system --size 4M vg0")
    before = volumes()["web2-system"]
    assert "/dev/vg0/web2-system exists already" in refused(name="web2", clone_of="web1")
    assert volumes()["web2-system"] == before
    on("lvremove -qqf vg0/web2-system")
    four_steps(name="web2", clone_of="web1")
    assert has_image("web2-system") and on("cmp /dev/vg0/web1-system /dev/vg0/web2-system") == ""
    four_steps(name="web3", clone_of="web1", disks=[{"name": "system", "pool": "default", "format": "raw"}])
    assert on(f"cmp /dev/vg0/web1-system {IMAGES}/web3-system.img") == ""
    on(f"rm {IMAGES}/web3-system.img")


def test_a_killed_copy_is_never_taken_for_a_disk() -> None:
    on(
        'printf \'#!/bin/sh\\n[ $1 = convert ] || exec /usr/bin/qemu-img "$@"\\nfor to; do :; done\\n'
        "head -c 9M /dev/urandom >$to; exec tail -f /dev/null\\n' >/usr/local/bin/qemu-img; chmod +x /usr/local/bin/qemu-img"
    )
    options = json.dumps({"name": "web1", "disks": [SYSTEM], "state": "running", **GUEST})
    running = LAB.start("ansible", "hyper1", *LAB.ask_nobody, "-m", "corral.virt.virt_domain", "-a", options)
    on("until pid=$(pgrep -x tail); do :; done; kill -KILL $(ps -o ppid= -p $pid)")
    running.wait(60)
    on("rm /usr/local/bin/qemu-img; ! pgrep -x tail")
    half = volumes()["web1-system"]
    assert not has_image_now() and "No such file" in on("virsh start web1", ok=False)
    on("lvrename -qq vg0/web1-system vg0/half; lvcreate -qqy --name web1-system --size 4M vg0")
    others = volumes()["web1-system"]
    assert "/dev/vg0/web1-system exists already" in refused(name="web1", disks=[SYSTEM], **GUEST)
    gone = told("virt_domain", check=True, name="web1", state="absent", remove_storage=True)
    assert "does not have the tag corral.guest." in " ".join(gone["notes"]) and gone["steps"] == ["undefine web1"]
    assert volumes()["web1-system"] == others
    on("lvremove -qqf vg0/web1-system; lvrename -qq vg0/half vg0/web1-system")
    four_steps(name="web1", disks=[SYSTEM], state="running", **GUEST)
    assert has_image("web1-system") and volumes()["web1-system"] != half


def has_image_now() -> bool:
    """True if the volume of web1 has the image's first bytes."""
    return on("cmp -n 512 /root/tiny /dev/vg0/web1-system; true") == ""


def test_only_the_guests_own_volumes_go_with_it() -> None:
    disks = [SYSTEM, *({"name": name, "pool": "lvm", "size": "8MiB"} for name in ("data", "held", "other"))]
    told("virt_domain", name="web1", disks=[*disks, {"name": "shared", "volume": "lvm/foreign"}], **GUEST)
    on(
        "lvcreate -qqys --name snap --size 4M vg0/web1-data; "
        "lvremove -qqf vg0/web1-other; lvcreate -qqy --name web1-other --size 8M vg0; "
        "nohup sleep 300 </dev/vg0/web1-held >/dev/null 2>&1 & echo $! >/root/holder"
    )
    before = volumes()
    gone = told("virt_domain", name="web1", state="absent", remove_storage=True, keep_removed_h=24)
    assert gone["steps"] == ["undefine web1", "delete disk /dev/vg0/web1-system"]
    notes = sorted(note.removeprefix("kept disk /dev/vg0/web1-") for note in gone["notes"])
    assert [note.partition(" ")[0] for note in notes] == ["data", "held", "other"], notes
    assert "/dev/vg0/snap uses it" in notes[0] and "does not know" in notes[1] and "another file" in notes[2]
    assert volumes() == {name: uuid for name, uuid in before.items() if name != "web1-system"}
    on("kill $(cat /root/holder)")


def test_existing_volumes_of_any_pool_are_used_and_stay() -> None:
    on(
        "truncate -s 64M /root/disk; loop=$(losetup -fP --show /root/disk); parted -s $loop mklabel gpt mkpart a 1MiB 20MiB; "
        "virsh pool-define-as parts disk --source-dev $loop --source-format gpt --target /dev; virsh pool-start parts"
    )
    [part] = on("virsh vol-list parts | awk 'NR > 2 {print $1}'").splitlines()
    disks = [{"name": "part", "volume": f"parts/{part}"}, {"name": "lv", "volume": "lvm/foreign"}]
    four_steps(name="web1", disks=disks, state="running", **GUEST)
    assert "running" in on("virsh domstate web1")
    assert "parts" in refused(name="web2", disks=[{"name": "a", "pool": "parts", "size": "4MiB"}], **GUEST)
    assert on("virsh dumpxml web1 | grep -c \"type='raw'\"") == "2", "which nobody said"
    gone = told("virt_domain", name="web1", state="absent", remove_storage=True, force_off=True)
    assert gone["steps"] == ["destroy web1", "undefine web1"]
    assert part in on("virsh pool-refresh parts >/dev/null; virsh vol-list parts")
    on("virsh pool-destroy parts; virsh pool-undefine parts; losetup -d $(losetup -nO NAME -j /root/disk)")


def test_the_seed_is_a_file_of_the_default_pool() -> None:
    seed = {"user_data": "#cloud-config\n{}\n"}
    steps = four_steps(name="web1", disks=[SYSTEM], cloud_init=seed, **GUEST)
    assert f"write cloud-init seed {IMAGES}/web1-seed.iso" in steps
    changed = {"user_data": "#cloud-config\n{hostname: a}\n", "on_change": "next_boot"}
    assert four_steps(name="web1", disks=[SYSTEM], cloud_init=changed, **GUEST)
    told("virt_domain", name="web1", state="absent", remove_storage=True)
    assert on(f"ls {IMAGES}") == "tiny.qcow2" and list(volumes()) == ["foreign"]


FILE = {"name": "system", "image": "tiny.qcow2", "size": "34MiB"}


def move(**options: t.Any) -> list[str]:
    """Move the disk of web1, in four steps; the steps."""
    return four_steps("virt_disk_move", guest="web1", disk="system", **options)


def tags(volume: str) -> list[str]:
    """The tags of a volume."""
    return on(f"lvs --noheadings -o lv_tags {volume}").split(",")


def place() -> str:
    """The disk of web1, as the definition and the running guest say."""
    seen = {
        line.split()[1]
        for line in on("virsh -q domblklist web1; virsh -q domblklist web1 --inactive").splitlines()
        if line.strip()
    }
    (path,) = seen
    return path


@pytest.mark.parametrize("running", [False, True])
def test_a_disk_moves_onto_a_volume_of_another_group_and_back(running: bool) -> None:
    told("virt_domain", name="web1", disks=[FILE], state="running" if running else "present", **GUEST)
    uuid = on("virsh domuuid web1")
    grown, *steps = move(pool="lvm") if running else ["", *move(pool="lvm")]
    assert grown == (f"grow disk {IMAGES}/web1-system.qcow2 to 36 MiB while it runs" if running else "")
    assert steps[0] == "create disk /dev/vg0/web1-system (36 MiB, logical volume in pool lvm)"
    assert f"with what it reads of {IMAGES}/tiny" in steps[1] and "to /dev/vg0/web1-system as raw" in steps[1]
    assert f"delete disk {IMAGES}/web1-system.qcow2" in steps
    assert place() == "/dev/vg0/web1-system" and has_image("web1-system")
    assert tags("vg0/web1-system") == [f"corral.guest.{uuid}"] and on(f"ls {IMAGES} | grep -v tiny; true") == ""
    device = on("virsh dumpxml web1 --inactive | grep -A3 '<disk'")
    assert "type='block'" in device and "type='raw'" in device
    steps = move(pool="large")[2 * running :]
    assert steps[0] == "create disk /dev/vg1/web1-system (40 MiB, logical volume in pool large)"
    assert "delete disk /dev/vg0/web1-system" in steps and list(volumes()) == ["foreign"]
    assert place() == "/dev/vg1/web1-system"
    assert "identical" in on("qemu-img compare -U -f raw -F raw /root/tiny /dev/vg1/web1-system")
    assert on(f"tail -c +$(({IMAGE_MIB} * 1048576 + 1)) /dev/vg1/web1-system | tr -d '\\0' | wc -c") == "0"
    told("virt_disk_move", guest="web1", disk="system", pool="default", format="qcow2")
    file = f"{IMAGES}/web1-system.qcow2"
    assert place() == file and on("lvs --noheadings vg1") == ""
    assert "identical" in on(f"qemu-img compare -U -f raw -F qcow2 /root/tiny {file}")
    if not running:
        on("virsh -q start web1")
    on("virsh -q destroy web1")
    told("virt_domain", name="web1", state="absent", remove_storage=True)
    assert on(f"ls {IMAGES}") == "tiny.qcow2"


def killed(**options: t.Any) -> None:
    """A move of a running guest's disk, killed while QEMU copies."""
    options = {"guest": "web1", "disk": "system", "bandwidth": 1, **options}
    running = LAB.start(
        "ansible", "hyper1", *LAB.ask_nobody, "-m", "corral.virt.virt_disk_move", "-a", json.dumps(options)
    )
    on(
        "for i in $(seq 600); do virsh blockjob web1 vda --raw | grep -q Copy && break; sleep 0.1; done; sleep 1; "
        "pkill -9 -x virt_disk_move"
    )
    running.wait(120)


def test_a_killed_move_goes_on_and_takes_nobodys_volume() -> None:
    told("virt_domain", name="web1", disks=[FILE], state="running", **GUEST)
    killed(pool="lvm")
    assert place() == f"{IMAGES}/web1-system.qcow2" and "Copy" in on("virsh blockjob web1 vda --raw")
    assert [tag.partition(".")[2].partition(".")[0] for tag in tags("vg0/web1-system")] == ["guest", "moves"]
    told("virt_domain", name="web1", state="present")
    assert move(pool="lvm", bandwidth=1000)[0].startswith("go on copying disk vda of running web1")
    assert place() == "/dev/vg0/web1-system" and has_image("web1-system")
    killed(pool="large")
    on("virsh destroy web1")
    half = on("lvs --noheadings -o lv_uuid vg1/web1-system")
    assert move(pool="large")[0].endswith("(again: an interrupted run has left a part)")
    assert place() == "/dev/vg1/web1-system" and on("lvs --noheadings -o lv_uuid vg1/web1-system") != half
    assert "identical" in on("qemu-img compare -f raw -F raw /root/tiny /dev/vg1/web1-system")
    on("lvcreate -qqy --name web1-system --size 4M vg0")
    others = volumes()["web1-system"]
    why = LAB.module("corral.virt.virt_disk_move", ok=False, guest="web1", disk="system", pool="lvm")
    assert "/dev/vg0/web1-system exists, and is no part of this move" in why and volumes()["web1-system"] == others


def test_other_hosts_know_a_volume_by_its_uuid() -> None:
    """Also while it is not active. A volume of the same name in another group of the same name is another one."""
    four_steps(name="web1", **GUEST, disks=[SYSTEM], state="shutdown")
    [found] = told("virt_volume_info", pool="lvm", name="web1-system")["volumes"]
    uuid = on("dmsetup info -c --noheadings -o uuid /dev/vg0/web1-system").strip()
    assert (found["identity"], found["shared"]) == (uuid, "volume group vg0"), "a loop device may be on any storage"
    asked = told("virt_volume_info", users_of=[uuid])["users"]
    assert asked == {uuid: "guest web1"}
    there("lvcreate -qqy --name web1-system --size 36M vg0; virsh -q pool-refresh lvm")
    assert told("virt_volume_info", hosts="hyper2", users_of=[uuid])["users"] == {uuid: None}
    on("lvchange -qq -an vg0/web1-system")
    try:
        assert told("virt_volume_info", users_of=[uuid])["users"] == asked
    finally:
        on("lvchange -qq -ay vg0/web1-system")


def test_what_does_not_fit_a_group_is_refused() -> None:
    told("virt_domain", name="web1", disks=[{**FILE, "size": "800MiB"}], **GUEST)
    before = volumes()
    told_why = LAB.module(
        "corral.virt.virt_disk_move", ok=False, guest="web1", disk="system", pool="lvm", format="qcow2"
    )
    assert "a logical volume is always raw; omit format" in told_why
    assert "it takes 800 MiB, and" in LAB.module(
        "corral.virt.virt_disk_move", ok=False, guest="web1", disk="system", pool="lvm"
    )
    assert volumes() == before


def test_pools_are_drained_onto_volumes_and_from_them() -> None:
    disks = [FILE, {"name": "data", "size": "8MiB", "pool": "default"}]
    told(
        "virt_domain",
        name="web1",
        disks=disks,
        state="running",
        cloud_init={"user_data": "#cloud-config\n{}\n"},
        **GUEST,
    )
    drain = functools.partial(four_drains, "default")
    assert "a disk that is only read, as a seed" in LAB.module(
        "corral.virt.virt_pool_drain", ok=False, pool="default", to=["lvm"]
    )
    assert drain(to=["lvm"], movable_only=True) == ["web1-data", "web1-system"]
    assert has_image("web1-system") and is_zero("web1-data", 0)
    assert four_drains("lvm", to=["large"]) == ["web1-data", "web1-system"] and list(volumes()) == ["foreign"]
    assert four_drains("large", to=["default"]) == ["web1-data.img", "web1-system.img"]
    assert "identical" in on(f"qemu-img compare -U -f raw -F raw /root/tiny {IMAGES}/web1-system.img")


def four_drains(pool: str, *, movable_only: bool = False, **options: t.Any) -> list[str]:
    """Drain, seen in check mode first; the names of what is made."""
    drain = {"pool": pool, "movable_only": movable_only, **options}
    task: dict[str, t.Any] = {"corral.virt.virt_pool_drain": drain, "register": "told", "failed_when": False}
    checked, done = (LAB.tell(task, hosts="hyper1", check=check)["hyper1"] for check in (True, False))
    assert checked["steps"] == done["steps"] and done["changed"], (checked, done)
    return sorted(step.split()[2].rpartition("/")[2] for step in done["steps"] if step.startswith("create disk"))


def test_a_thin_volume_is_made_grown_copied_moved_and_removed() -> None:
    """Its pool has 48 MiB."""
    disk = {**SYSTEM, "thin_pool": "thin"}
    steps = four_steps(name="web1", disks=[disk], state="running", **GUEST)
    assert "/dev/vg0/web1-system (36 MiB, thin volume of vg0/thin in pool lvm), and copy" in steps[1]
    assert on("lvs --noheadings -o pool_lv vg0/web1-system") == "thin" and has_image("web1-system")
    assert float(on("lvs --noheadings -o data_percent vg0/thin")) < 50, "its holes take nothing"
    assert four_steps(name="web1", disks=[{**disk, "size": "44MiB"}]) == [
        "grow thin volume /dev/vg0/web1-system to 44 MiB",
        "grow disk /dev/vg0/web1-system to 44 MiB while it runs",
    ]
    assert is_zero("web1-system", IMAGE_MIB)
    why = refused(name="web2", disks=[{**disk, "size": "160MiB"}], **GUEST)
    assert "thin pool vg0/thin" in why and "more than 4 times its 48 MiB; extend it (lvextend --size +" in why
    assert "is not active" not in why and "that are copied; extend it" in why, "20 of 30 MiB are free"
    on("virsh destroy web1; lvextend -qq -L 96M vg0/thin")
    four_steps(name="web2", clone_of="web1")
    assert on("lvs --noheadings -o pool_lv vg0/web2-system") == "thin" and has_image("web2-system")
    told("virt_disk_move", guest="web1", disk="system", pool="default", format="qcow2")
    assert "identical" in on(f"qemu-img compare -f raw -F qcow2 /root/tiny {IMAGES}/web1-system.qcow2")
    assert list(volumes()) == ["foreign", "web2-system"]
    gone = told("virt_domain", name="web2", state="absent", remove_storage=True)
    assert "delete disk /dev/vg0/web2-system" in gone["steps"] and list(volumes()) == ["foreign"]


def larger_thin_pool() -> None:
    """A thin pool of 96 MiB, as a test before has it."""
    on("lvextend -qq -L 96M vg0/thin; lvs vg0/thin")


def thin_percent() -> float:
    """How full the thin pool is."""
    return float(on("lvs --noheadings -o data_percent vg0/thin"))


@pytest.mark.parametrize("running", [False, True])
def test_a_disk_moves_into_a_thin_pool_and_becomes_thin_in_its_group(running: bool) -> None:
    larger_thin_pool()
    told("virt_domain", name="web1", disks=[FILE], state="running" if running else "present", **GUEST)
    steps = move(pool="lvm", thin_pool="thin")[running:]
    assert steps[0] == "create disk /dev/vg0/web1-system (36 MiB, thin volume of vg0/thin in pool lvm)"
    assert f"delete disk {IMAGES}/web1-system.qcow2" in steps and place() == "/dev/vg0/web1-system"
    assert on("lvs --noheadings -o pool_lv vg0/web1-system") == "thin" and has_image("web1-system")
    assert running or thin_percent() < 30, "its holes take nothing"
    assert running == (thin_percent() > 37), "QEMU writes zeros"
    told("virt_disk_move", guest="web1", disk="system", pool="large")
    assert place() == "/dev/vg1/web1-system" and thin_percent() == 0
    disks = [{"name": "system", "pool": "lvm"}]
    assert not told("virt_domain", name="web1", disks=disks)["changed"], "it is only told"
    told("virt_domain", name="web1", disks=disks, move_disks=True)
    assert "linear" in on("lvs --noheadings -o segtype vg0/web1-system")
    steps = move(pool="lvm", thin_pool="thin")
    assert "delete disk /dev/vg0/web1-system" in steps and place() == "/dev/vg0/web1-system.thin"
    assert list(volumes()) == ["foreign", "web1-system.thin"] and has_image("web1-system.thin")
    assert not told("virt_disk_move", guest="web1", disk="system", pool="lvm")["changed"], "it is in that pool"
    told("virt_disk_move", guest="web1", disk="system", pool="large")
    disks[0]["thin_pool"] = "thin"
    four = told("virt_domain", name="web1", disks=disks, move_disks=True)["steps"]
    assert any("thin volume of vg0/thin" in step for step in four), four
    told("virt_domain", name="web1", state="absent", remove_storage=True, force_off=True)
    assert list(volumes()) == ["foreign"] and on("lvs --noheadings vg1") == ""


def test_a_killed_move_into_a_thin_pool_begins_again_in_the_room_of_its_part() -> None:
    larger_thin_pool()
    told("virt_domain", name="web1", disks=[FILE], state="running", **GUEST)
    killed(pool="lvm", thin_pool="thin")
    on("virsh destroy web1")
    half = volumes()["web1-system"]
    on("lvcreate -qqy -V 340M --thinpool vg0/thin --name big")
    assert move(pool="lvm", thin_pool="thin")[0].endswith("(again: an interrupted run has left a part)")
    assert volumes()["web1-system"] != half and has_image("web1-system"), "36 of 384 MiB, beside the 340"


def test_guests_on_volumes_are_imported_and_made_again_with_the_same_disks(tmp_path: Path) -> None:
    """One is ours, with a thick, a thin and somebody else's volume; the other was defined by hand."""
    disks = [SYSTEM, {"name": "thin", "pool": "lvm", "thin_pool": "thin", "size": "8MiB"}]
    told("virt_domain", name="web1", disks=[*disks, {"name": "other", "volume": "lvm/foreign"}], **GUEST)
    on("lvcreate -qqy -n hand -L 8M vg0; lvcreate -qqy -n hand-thin -V 8M --thinpool vg0/thin")
    devices = "".join(
        f"<disk type='block' device='disk'><driver name='qemu' type='raw'/><source dev='{path}'/><target dev='{target}' "
        "bus='virtio'/></disk>"
        for path, target in (("/dev/vg0/hand", "vda"), ("/dev/mapper/vg0-hand--thin", "vdb"))
    )
    xml = (
        "<domain type='qemu'><name>hand</name><memory unit='MiB'>64</memory><vcpu>1</vcpu><os><type arch='x86_64' "
        f"machine='q35'>hvm</type></os><cpu mode='maximum'/><devices>{devices}</devices></domain>"
    )
    on("virsh -q define /dev/stdin", given=xml)
    shown = "for g in web1 hand; do virsh domblklist $g --inactive --details; done; lvs --noheadings -o lv_name,lv_uuid,lv_tags"
    before, file = on(shown), tmp_path / "guests.yml"
    LAB.run(
        "ansible-playbook",
        "corral.virt.import",
        *LAB.ask_nobody,
        "-e",
        "guest=*",
        "-e",
        f"out={file}",
        "-e",
        "uuid=true",
    )
    guests = {one["name"]: one for one in yaml.safe_load(file.read_text())["virt_guests"]}
    sources = [one.get("source") for guest in ("hand", "web1") for one in guests[guest]["disks"]]
    assert sources == [
        *(f"/dev/{one}" for one in ("vg0/hand", "mapper/vg0-hand--thin", "vg0/web1-system", "vg0/web1-thin")),
        None,
    ]
    read = {"ansible.builtin.include_vars": str(file)}
    make: dict[str, t.Any] = {"corral.virt.virt_domains": {"domains": "{{ virt_guests }}"}, "register": "told"}
    assert not LAB.tell(read, make, hosts="hyper1")["hyper1"]["changed"] and on(shown) == before
    on("for g in web1 hand; do virsh -q undefine $g; done")
    assert LAB.tell(read, make, hosts="hyper1")["hyper1"]["changed"] and on(shown) == before
    on("virsh -q start hand && virsh -q start web1")
    for name in guests:
        gone = told("virt_domain", name=name, state="absent", remove_storage=True, force_off=True)
        assert gone["steps"] == [f"destroy {name}", f"undefine {name}"], "nobody has made them for this guest"
    assert {"hand", "hand-thin", "web1-system", "web1-thin"} <= volumes().keys()


# A boot sector that writes one sector after the other, each with its number, in a ring of 4,096 from the 2,048th on.
WRITER = (
    bytes.fromhex(
        "31c08ed88ed0bc007c66bb1000010066891e007e66bb0080000066891e047e6631db66891e0c7e66891e008066ff060080668b1e00806681e3"
        "ff0f00006681c30008000066891e087eb80043b280be007efbcd13ebd6"
    ).ljust(510, b"\0")
    + b"\x55\xaa"
)
RING, FIRST = 4096, 2048
DISK = "/dev/vg0/web1-system"
GROUP = "lvs --noheadings -o lv_name,lv_uuid,lv_size,lv_tags vg0"


def writer(state: str = "running", **disk: t.Any) -> str:
    """A guest that writes numbered sectors on a volume of random content; the digest of what it does not write."""
    told("virt_domain", name="web1", disks=[{"name": "system", "pool": "lvm", "size": "36MiB", **disk}], **GUEST)
    on(f"head -c 36M /dev/urandom >{DISK}; head -c 2M /dev/zero | dd of={DISK} seek=1 bs=1M conv=notrunc status=none")
    on(f'python3 -c \'open("{DISK}", "r+b").write(bytes.fromhex("{WRITER.hex()}"))\'; sync')
    if state == "running":
        on("virsh -q start web1; until virsh domblkstat web1 vda | grep -q 'wr_req [1-9]'; do sleep 1; done")
    return outside(on)


def outside(run: t.Callable[[str], str], disk: str = DISK) -> str:
    """The digest of what the guest does not write."""
    return run(f"{{ head -c 1M {disk}; tail -c +$((3 * 1048576 + 1)) {disk}; }} | sha256sum")


def numbers(run: t.Callable[[str], str], disk: str = DISK) -> int:
    """The last number that the guest wrote; none before it is missing."""
    read = f"dd if={disk} bs=512 skip={FIRST} count={RING} status=none | od -An -v -tx4 -w512 | cut -c2-9"
    text = run(f"virsh -q suspend web1; {read}; virsh -q resume web1")  # else it writes meanwhile
    found = [int(word, 16) for word in text.split()]
    last = max(found)
    assert found == [max(0, last - (last - at) % RING) for at in range(RING)]
    return last


def migrated(host: str = "hyper1", *, asked: bool = False, **more: t.Any) -> dict[str, t.Any]:
    """Migrate it from a host to the other one; if `asked`, check, do, check again, do again. The result."""
    look, dest = f"{GROUP}; virsh list --all; ls {IMAGES}", {"hyper1": "hyper2", "hyper2": "hyper1"}[host]
    call = functools.partial(told, "virt_migrate", hosts=host, name="web1", dest=dest, **more)
    if not asked:
        return call()
    before = [LAB.on(one, look) for one in (host, dest)]
    checked = call(check=True)
    assert checked["changed"] and [LAB.on(one, look) for one in (host, dest)] == before
    done = call()
    assert done["steps"] == checked["steps"] and done["changed"]
    assert not call(check=True)["changed"] and not call()["changed"]
    return done


def test_a_guest_migrates_with_its_volume_while_it_writes() -> None:
    before = writer()
    done = migrated(asked=True)
    assert f"create an empty {DISK} on hyper2" in done["steps"] and f"remove {DISK} from the source" in done["steps"]
    assert "web1" not in on(GROUP) and "running" in there("virsh domstate web1")
    reached = numbers(there)
    assert reached > 0 and outside(there) == before
    there("sleep 5")
    assert numbers(there) > reached, "it goes on"
    migrated("hyper2")
    assert "web1" not in there(GROUP) and numbers(on) > reached and outside(on) == before
    told("virt_domain", name="web1", state="absent", remove_storage=True, force_off=True)
    assert "web1" not in on(GROUP), "it is the guest's own, on every host"


def test_a_guest_that_is_off_migrates_with_its_volume_and_by_way_of_files() -> None:
    before = writer("off")
    whole = on(f"sha256sum <{DISK}")  # of what is stored there, the new volume must have nothing
    there("lvcreate -qqy --name old --size 36M vg0; head -c 36M /dev/urandom >/dev/vg0/old; lvremove -qqf vg0/old")
    migrated(asked=True)
    assert "web1" not in on(GROUP) and there(f"sha256sum <{DISK}") == whole
    migrated("hyper2", disk_pool={"system": "default"})
    file = f"{IMAGES}/web1-system.img"
    assert "web1" not in there(GROUP) and on(f"sha256sum <{file}") == whole
    on("virsh -q start web1; sleep 5")
    migrated(disk_pool={"system": "lvm"})
    assert on(f"ls {IMAGES}") == "tiny.qcow2" and numbers(there) > 0 and outside(there) == before
    assert "type='block'" in there("virsh dumpxml --inactive web1") and "running" in there("virsh domstate web1")
    migrated("hyper2", disk_pool={"system": "default"})
    assert numbers(functools.partial(on), file) > 0 and outside(on, file) == before and "web1" not in there(GROUP)


def test_a_thin_volume_arrives_thick() -> None:
    before = writer(thin_pool="thin")
    assert "thick" in migrated()["disks"][0]["why"]
    assert "web1" not in on(GROUP) and numbers(there) > 0 and outside(there) == before
    there("virsh -q destroy web1")
    migrated("hyper2")
    told("virt_domain", name="web1", state="absent", remove_storage=True)
    before = writer("off", thin_pool="thin")
    migrated()
    assert "web1" not in on(GROUP) and outside(there) == before


def test_volumes_of_others_stop_it_and_stay() -> None:
    before = writer()
    there("lvcreate -qqy --name web1-system --size 36M vg0")
    assert f"{DISK} already exists on the destination" in migration_refused()
    there("lvchange -qq -an vg0/web1-system; virsh -q pool-refresh lvm")  # which libvirt does not list
    others = there(GROUP)
    told_why = migration_refused()
    assert "already exists" in told_why and "web1-system" in told_why, told_why
    assert there(GROUP) == others and "running" in on("virsh domstate web1") and outside(on) == before
    there("virsh -q pool-start large 2>/dev/null; true")  # a daemon that starts again takes an empty group for inactive
    why = migration_refused(disk_pool={"system": "large"})  # its extents have 8 MiB
    assert "it has 36 MiB, and volumes of pool large" in why and "40 MiB" in why and there("lvs --noheadings vg1") == ""
    there("lvremove -qqf vg0/web1-system; lvcreate -qqy --name fills --extents 100%FREE vg0")
    assert "free" in migration_refused()
    there("lvremove -qqf vg0/fills; virsh -q pool-destroy lvm")
    try:
        assert "is not copied, and libvirt of the destination does not know it" in migration_refused()
    finally:
        there("virsh -q pool-start lvm")
    there("virsh -q pool-refresh lvm")
    on(
        "virsh -q destroy web1; virsh -q undefine web1; lvchange -qq --deltag $(lvs --noheadings -o lv_tags vg0/web1-system) vg0/web1-system"
    )
    told("virt_domain", name="web1", disks=[{"name": "system", "volume": "lvm/web1-system"}], **GUEST)
    done = migrated()
    assert f"lvremove {DISK}" in done["notes"][0] and f"remove {DISK} from the source" not in done["steps"]
    assert "web1-system" in on(GROUP), "nobody made it for the guest"


def migration_refused(**more: t.Any) -> str:
    """Why it does not migrate."""
    return LAB.module("virt_migrate", ok=False, name="web1", dest="hyper2", **more)


KILLER = """for i in $(seq 6000); do p=$(pgrep -x virt_migrate) && {met} && break; sleep 0.02; done
kill -9 $p && echo killed >/root/killed
"""
MOMENTS = {
    "making": "virsh dumpxml web1 | grep -q 'making.*web1-system'",
    "made": "virsh dumpxml web1 | grep -q 'made [0-9].*web1-system'",
    "copying": "virsh domjobinfo web1 | grep -q Unbounded",
    "off": "virsh dumpxml web1 | grep -q 'copying.*web1-system'",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_after_a_kill_the_next_run_ends_it(moment: str) -> None:
    before = writer("off" if moment == "off" else "running")
    on("cat >/root/killer; rm -f /root/killed", given=KILLER.format(met=MOMENTS[moment]))
    on("nohup sh /root/killer >/dev/null 2>&1 &")
    LAB.run("sh", "-c", """ansible hyper1 -m virt_migrate -a 'name=web1 dest=hyper2' || true""")
    assert on("sleep 0.5; cat /root/killed") == "killed"
    if moment == "making" and "web1-system" in there(GROUP):
        why = LAB.run("sh", "-c", "ansible hyper1 -m virt_migrate -a 'name=web1 dest=hyper2' 2>&1 || true")
        assert "lvremove" in why or "already exists" in why, why
        there("lvremove -qqf vg0/web1-system")
    told("virt_migrate", name="web1", dest="hyper2")
    assert "web1" not in on(GROUP) and outside(there) == before
    assert moment == "off" or numbers(there) > 0
