"""Repositories of backups on LUKS: judged by cryptsetup, lsblk, findmnt, blkid, and grep on the raw devices.

The host has a Linux of its own, as device-mapper does not come into containers.
"""

from __future__ import annotations

import functools
import json
import re
import sys
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import HERE, Hypervisors

pytestmark = [pytest.mark.lab, pytest.mark.deep]

LAB = Hypervisors("vaults")
on = functools.partial(LAB.on, "hyper1")
PACKAGES = (
    "cryptsetup-bin",
    "e2fsprogs", "libvirt-clients", "libvirt-daemon-system", "lvm2", "python3-libvirt", "python3-lxml", "qemu-system-x86",
    "qemu-utils", "xfsprogs",
)  # fmt: skip
UP = ("up", "--name", LAB.name, "--hosts", "1", "--no-image", "--uml", "--packages", ",".join(PACKAGES))
SECRET = "one long passphrase of the tests"
MARK = "corral-marker-4711"
REPOSITORY, MAPPED, UNIT = "/srv/backup", "/dev/mapper/corral-srv-backup", "srv-backup.mount"
DEVICE = {"path": REPOSITORY, "src": "/dev/loop0", "fstype": "ext4", "build": True, "passphrase": SECRET}
IMAGE = {**DEVICE, "src": "/srv/nas/vault.img", "size": "400MiB"}
GUEST = (
    f"<domain type='qemu'><name>g</name><description>{MARK}</description><memory unit='MiB'>32</memory><os>"
    "<type arch='x86_64' machine='q35'>hvm</type></os><devices><disk type='file' device='disk'>"
    "<driver name='qemu' type='qcow2'/><source file='/root/disk'/><target dev='vda' bus='virtio'/></disk></devices></domain>"
)
FINISHED = [f"make mount point {REPOSITORY}", f"mount /dev/loop0 at {REPOSITORY}"]
ENCRYPTS, MAKES = "encrypt /dev/loop0 (LUKS2)", f"make filesystem ext4 on {MAPPED}"
OPENS = f"open /dev/loop0 as {MAPPED}"
# Of cryptsetup and mkfs.ext4: ends with its caller right after it has done a part of its work.
KILLS = """#!/bin/sh
real=/usr/sbin/$(basename $0)
case "$*" in
  *luksFormat*{early}*)
    exec 3<&0
    "$real" "$@" <&3 & until blkid -p /dev/loop0 | grep -q crypto_LUKS; do :; done
    kill -9 $! $PPID;;
  {late}) "$real" "$@"; kill -9 $PPID;;
  *) exec "$real" "$@";;
esac
"""


@pytest.fixture(scope="module", autouse=True)
def host() -> Iterator[None]:
    """A host with a guest that is off."""
    lab_py = (sys.executable, HERE / "lab.py")
    if not LAB.kept:
        LAB.run(*lab_py, "down", "--name", LAB.name)
        LAB.run(*lab_py, *UP, timeout_s=900)
    LAB.run(sys.executable, HERE / "demo.py", "config", "--name", LAB.name)
    on(
        f"qemu-img create -q -f qcow2 /root/disk 16M; echo {MARK} >/root/mark; truncate -s 64k /root/mark; "
        "qemu-io -c 'write -q -s /root/mark 0 64k' /root/disk; virsh -q undefine g 2>/dev/null; virsh -q define /dev/stdin",
        given=GUEST,
    )
    try:
        yield
    finally:
        if not LAB.kept:
            LAB.run(*lab_py, "down", "--name", LAB.name)


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    """An empty device, and nothing left of the test before."""
    on(
        "rm -f /root/raw /usr/local/bin/cryptsetup /usr/local/bin/mkfs.ext4; truncate -s 400M /root/raw; losetup /dev/loop0 /root/raw"
    )
    yield
    mount({"path": REPOSITORY, "state": "absent"})
    on("losetup -D; rm -rf /root/raw /srv/nas; find /srv/backup -mindepth 1 -delete 2>/dev/null; true")


def mount(*mounts: t.Any, check: bool = False) -> dict[str, t.Any]:
    """What virt_mounts answers."""
    task = {"corral.virt.virt_mounts": {"mounts": list(mounts)}, "register": "told"}
    return t.cast("dict[str, t.Any]", LAB.tell(task, hosts="hyper1", check=check)["hyper1"])


def refused(**more: t.Any) -> str:
    """Why it is not mounted; nothing has changed."""
    look = "sha256sum /root/raw; lsblk -rno NAME,TYPE,MOUNTPOINT; ls /srv /srv/* /etc/systemd/system"
    before = on(look)
    told = LAB.module("virt_mounts", ok=False, mounts=[{**DEVICE, **more}])
    assert on(look) == before
    return told


def role(*flags: str, mounts: t.Sequence[t.Any] = (IMAGE,), ok: bool = True) -> str:
    """What the role prints."""
    return LAB.play(
        flags=flags, ok=ok, roles=["corral.virt.storage"], vars={"storage_mounts": [*mounts], "storage_pools": []}
    )


def backup(**more: t.Any) -> dict[str, t.Any]:
    """What virt_backup answers of the guest."""
    options = {"guests": ["g"], "repository": REPOSITORY, "encrypted": True, **more}
    told = LAB.tell({"corral.virt.virt_backup": options, "register": "told"}, hosts="hyper1")
    return t.cast("dict[str, t.Any]", told["hyper1"]["results"][0])


def no_backup() -> str:
    """Why there is none."""
    return LAB.module("virt_backup", ok=False, guests=["g"], repository=REPOSITORY, encrypted=True)


def is_open(below: str = "loop0") -> None:
    """It is mounted, from LUKS, and not at the start of the host."""
    told = on(f"findmnt -rno SOURCE,FSTYPE {REPOSITORY}; cryptsetup status {MAPPED}; lsblk -rno TYPE -s {MAPPED}")
    assert told.startswith(f"{MAPPED} ext4") and "LUKS2" in told and below in told and "crypt\nloop" in told, told
    assert "disabled" in on(f"systemctl is-enabled {UNIT}; true")


def test_a_device_is_encrypted_and_nothing_on_it_can_be_read() -> None:
    look = "sha256sum </root/raw; lsblk; ls /srv /etc/systemd/system"
    done, *_again = LAB.four_steps("virt_mounts", {"mounts": [DEVICE]}, look)
    assert done["steps"] == [ENCRYPTS, OPENS, MAKES, FINISHED[0], f"write /etc/systemd/system/{UNIT}", FINISHED[1]]
    assert done["diff"]["after"][f"mounts[{REPOSITORY}].open"] is True and SECRET not in json.dumps(done)
    is_open()
    point = backup()
    assert point["changed"] and on(f"grep -rc {MARK} {REPOSITORY}/*/*/domain.xml") == "1"
    on("sync; echo 3 >/proc/sys/vm/drop_caches")
    assert on(f"grep -c {MARK} /root/raw; grep -c {MARK} {MAPPED}; true").split()[0] == "0"
    assert int(on(f"grep -ac {MARK} {MAPPED}; true")) > 0
    found = f"grep -rlF '{SECRET}' /etc /root /tmp /var /run /home 2>/dev/null; dmesg | grep -cF '{SECRET}'; true"
    assert on(found) == "0"
    closing = LAB.four_steps("virt_mounts", {"mounts": [{"path": REPOSITORY, "state": "closed"}]}, look)[0]
    assert closing["steps"] == [f"unmount {REPOSITORY}", f"close {MAPPED}"]
    assert on(f"lsblk -no TYPE {MAPPED}", ok=False) and "Operation not permitted" in on(
        f"touch {REPOSITORY}/x", ok=False
    )
    assert "is not encrypted: it lies on ext4 of" in no_backup() and on(f"ls -A {REPOSITORY}") == ""
    assert mount(DEVICE)["steps"] == [OPENS, *FINISHED]
    assert not backup()["changed"], "the guest was off"
    on(f"exec 9<{REPOSITORY}/corral-backup.json; sleep 30 >/dev/null 2>&1 </dev/null & sleep 0.2")
    assert "busy" in LAB.module("virt_mounts", ok=False, mounts=[{"path": REPOSITORY, "state": "closed"}])
    is_open()
    on("pkill -x sleep; sleep 0.2")


def test_an_image_is_opened_again_after_a_power_cut_and_by_the_role_only() -> None:
    on("mkdir -p /srv/nas; apt-get -qq update; dpkg --purge cryptsetup-bin; ! command -v cryptsetup")
    assert "changed=" in role("--check") and on("ls /srv/nas; command -v cryptsetup; true") == ""
    printed = role("-vvv", "--diff")
    assert SECRET not in printed and on("stat -c %s:%a /srv/nas/vault.img") == f"{400 * 1024**2}:600"
    for flags in ((), ("--check",)):
        assert "changed=0" in role(*flags)
    is_open("/srv/nas/vault.img")
    first = backup(full=True)["point"]  # an earlier test may have backed it up to another filesystem here
    on("sync; losetup -d /dev/loop0; true")
    on("(sleep 1; systemctl poweroff -ff) >/dev/null 2>&1 &")
    alive = f"timeout 3 ssh -F {LAB.folder}/ssh_config hyper1 true && echo yes || true"
    until(lambda: "yes" not in LAB.run("sh", "-c", alive), 60)
    LAB.run(sys.executable, HERE / "lab.py", *UP, timeout_s=900)
    assert on(f"findmnt {REPOSITORY}; ls /dev/mapper") == "control"
    assert "not encrypted" in no_backup() and on(f"ls -A {REPOSITORY}") == ""
    assert "Operation not permitted" in LAB.module("virt_backup", ok=False, guests=["g"], repository=REPOSITORY)
    wrong = re.sub(r"\s+", " ", role("--check", mounts=[{**IMAGE, "passphrase": "another one"}], ok=False))
    assert "the passphrase is not that of this LUKS device" in wrong and "another one" not in wrong
    role()
    is_open("/srv/nas/vault.img")
    assert on(f"ls -d {REPOSITORY}/*/*Z-*").endswith(f"/{first}")
    on("qemu-io -c 'write -q -P 7 1M 1M' /root/disk")
    assert backup()["changed"]


def test_only_an_empty_device_is_encrypted() -> None:
    for make, kind in (("mkfs.xfs -q", "xfs"), ("mkswap -q", "swap"), ("pvcreate -qq", "LVM2_member")):
        on(f"wipefs -qa /dev/loop0; {make} /dev/loop0 >/dev/null 2>&1")
        assert f"cannot make a filesystem on /dev/loop0: it holds {kind}" in refused()
    on("wipefs -qa /dev/loop0; mkdir -p /srv/nas; echo mine >/srv/nas/vault.img")
    assert "it is a file without LUKS" in refused(**IMAGE) and on("cat /srv/nas/vault.img") == "mine"
    on("rm /srv/nas/vault.img")
    assert "/srv/nas has" in (told := refused(**{**IMAGE, "size": "100GiB"})) and "make room" in told
    assert on("ls -A /srv/nas") == ""
    on("dmsetup create theirs --table '0 2048 linear /dev/loop0 0'")
    assert "/dev/mapper/theirs has it" in refused()
    on(f"dmsetup remove theirs; printf %s '{SECRET}' | cryptsetup luksFormat -q --key-file=- /dev/loop0")
    assert "the passphrase is not that of this LUKS device" in refused(passphrase="b")
    on(f"printf %s '{SECRET}' | cryptsetup open --key-file=- /dev/loop0 theirs")
    assert "/dev/mapper/theirs has it; end that (cryptsetup close" in refused()
    on("mkfs.ext4 -q /dev/mapper/theirs; cryptsetup close theirs")
    assert mount({**DEVICE, "build": False})["steps"][0] == OPENS, "somebody else made it"
    is_open()


def test_volumes_on_an_encrypted_device_are_encrypted_and_others_are_not() -> None:
    on(
        f"mkdir -p {REPOSITORY}; printf %s '{SECRET}' | cryptsetup luksFormat -q --key-file=- /dev/loop0; "
        f"printf %s '{SECRET}' | cryptsetup open --key-file=- /dev/loop0 below; vgcreate -qq safe /dev/mapper/below; "
        "lvcreate -qqy -n backup -L 200M safe; mkfs.ext4 -q /dev/safe/backup; truncate -s 200M /root/clear; "
        "losetup /dev/loop1 /root/clear; vgcreate -qq clear /dev/loop1; lvcreate -qqy -n backup -L 100M clear; "
        "mkfs.ext4 -q /dev/clear/backup"
    )
    on(f"mount /dev/clear/backup {REPOSITORY}")
    assert "it lies on ext4 of /dev/mapper/clear-backup" in no_backup() and on(f"ls {REPOSITORY}") == "lost+found"
    on(f"umount {REPOSITORY}; mount /dev/safe/backup {REPOSITORY}")
    assert backup(full=True)["changed"]  # another filesystem than that of the tests before
    on(f"umount {REPOSITORY}; vgremove -qqff safe clear; cryptsetup close below; losetup -d /dev/loop1; rm /root/clear")


@pytest.mark.parametrize(
    ("program", "early", "late", "goes_on"),
    [
        ("cryptsetup", "", "none", [ENCRYPTS, OPENS, MAKES]),
        ("cryptsetup", "none", "*luksFormat*", [OPENS, MAKES]),
        ("cryptsetup", "none", "*open*corral-srv*", [MAKES]),
        ("mkfs.ext4", "none", "*", [MAKES]),
        ("cryptsetup", "none", "*config*", []),
    ],
)
def test_a_run_that_is_killed_is_finished_by_the_next(program: str, early: str, late: str, goes_on: list[str]) -> None:
    on(f"cat >/usr/local/bin/{program}; chmod +x /usr/local/bin/{program}", given=KILLS.format(early=early, late=late))
    LAB.module("virt_mounts", ok=False, mounts=[DEVICE])
    on(f"rm /usr/local/bin/{program}; until ! pgrep -x cryptsetup; do sleep 0.1; done")
    assert on(f"findmnt {REPOSITORY}; true") == ""
    written = f"write /etc/systemd/system/{UNIT}"
    steps = mount(DEVICE, check=True)["steps"]
    assert steps == mount(DEVICE)["steps"] and [one for one in steps if one != written] == [*goes_on, *FINISHED]
    is_open()
    assert backup(full=True)["changed"]  # the filesystem is new, and without the backups of the tests before
