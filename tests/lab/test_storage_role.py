"""Role storage: mounts, filesystems on empty devices, and the check that guests can write; judged by the kernel's table,
systemctl, virsh and sha256sum.
"""

from __future__ import annotations

import functools
import re
import shlex
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import Hypervisors, hypervisors

pytestmark = pytest.mark.lab

LAB = Hypervisors("stores")
on = functools.partial(LAB.on, "hyper1")
DEVICES = ("/dev/corral-a", "/dev/corral-b")
# Loop devices are the machine's: each of ours is the first that nobody has. tmpfiles makes its name again at each start.
ATTACH = (
    "truncate -s 400M /root/image-{0}; for n in $(seq 60 99); do rm -f /dev/try; mknod /dev/try b 7 $n; "
    "losetup /dev/try /root/image-{0} 2>/dev/null && break; done; mknod {1} b 7 $n; "
    "echo b {1} 0660 root disk - 7:$n >>/etc/tmpfiles.d/corral.conf; losetup {1}"
)
SHARED = {"path": "/srv/vm-pool", "src": "hyper1:/vms", "fstype": "glusterfs"}
FAST = {"path": "/srv/fast disk", "src": DEVICES[0], "fstype": "ext4", "build": True, "options": ["noatime"]}
UNITS = {"/srv/vm-pool": r"srv-vm\x2dpool.mount", "/srv/fast disk": r"srv-fast\x20disk.mount"}
POOLS = [{"name": "shared", "path": "/srv/vm-pool"}, {"name": "fast", "path": "/srv/fast disk/images"}]


@pytest.fixture(scope="module", autouse=True)
def hypervisor() -> Iterator[None]:
    """A hypervisor with two devices and a Gluster volume."""
    with hypervisors("stores"):
        for number, device in enumerate(DEVICES):
            on(ATTACH.format(number, device))
        on(
            "systemctl -q enable --now glusterd && mkdir -p /srv/brick && gluster --mode=script volume create vms "
            "hyper1:/srv/brick force && gluster volume start vms"
        )
        try:
            yield
        finally:
            on(f"umount '/srv/fast disk' /srv/vm-pool; for d in {' '.join(DEVICES)}; do losetup -d $d; done; true")


def role(*flags: str, ok: bool = True, mounts: t.Sequence[t.Any] = (), pools: t.Sequence[t.Any] = ()) -> str:
    """What the role prints, in one line where it fails."""
    known = {"storage_mounts": list(mounts), "storage_pools": list(pools)}
    text = LAB.play(flags=flags, ok=ok, roles=["corral.virt.storage"], vars=known, gather_facts=False)
    return text if ok else re.sub(r"\s+", " ", text)


def mount(*mounts: t.Any, check: bool = False) -> dict[str, t.Any]:
    """What virt_mounts answers."""
    task = {"corral.virt.virt_mounts": {"mounts": list(mounts)}, "register": "told"}
    return t.cast("dict[str, t.Any]", LAB.tell(task, hosts="hyper1", check=check)["hyper1"])


def refused(*mounts: t.Any) -> str:
    """Why virt_mounts refuses; it has changed nothing."""
    before = state()
    output = LAB.module("virt_mounts", ok=False, mounts=list(mounts))
    assert state() == before
    return output


def state() -> str:
    """All that mounts change on the host."""
    return on(
        f"grep -E ' /srv/' /proc/mounts; ls -lR /etc/systemd/system | grep mount; find /srv -maxdepth 1; "
        f"sha256sum {DEVICES[1]}; virsh pool-list --all"
    )


def is_mounted(path: str) -> bool:
    """Whether the kernel has something there."""
    return on(f"findmnt -rn --mountpoint '{path}' || true") != ""


def gone(*mounts: t.Any) -> None:
    """What a test has mounted."""
    on("for p in shared fast; do virsh -q pool-destroy $p; virsh -q pool-undefine $p; done 2>/dev/null; true")
    mount(*({"path": one["path"], "state": "absent"} for one in mounts))


def test_mounts_and_pools_come_stay_over_a_restart_and_go() -> None:
    before = state()
    checked = mount(SHARED, FAST, check=True)
    assert role("--check", mounts=[SHARED, FAST], pools=POOLS).count("changed=2") == 1
    assert state() == before
    assert checked["steps"] == [
        *("make mount point /srv/vm-pool", rf"write /etc/systemd/system/{UNITS['/srv/vm-pool']}"),
        *(rf"enable {UNITS['/srv/vm-pool']}", "mount hyper1:/vms at /srv/vm-pool"),
        *(f"make filesystem ext4 on {DEVICES[0]}", "make mount point /srv/fast disk"),
        *(rf"write /etc/systemd/system/{UNITS['/srv/fast disk']}", rf"enable {UNITS['/srv/fast disk']}"),
        f"mount {DEVICES[0]} at /srv/fast disk",
    ]
    assert "changed=2" in role(mounts=[SHARED, FAST], pools=POOLS)
    for flags in ((), ("--check",)):
        assert "changed=0" in role(*flags, mounts=[SHARED, FAST], pools=POOLS)
    mounted()
    assert on("ls -A /srv/vm-pool '/srv/fast disk/images' | grep corral-probe || true") == ""
    on("echo kept >/srv/vm-pool/file; echo kept >'/srv/fast disk/images/file'; sync")
    restart()
    mounted()
    assert on("cat /srv/vm-pool/file '/srv/fast disk/images/file'").split() == ["kept", "kept"]
    assert "changed=0" in role(mounts=[SHARED, FAST], pools=POOLS)
    assert "pool shared" in refused({"path": "/srv/vm-pool", "state": "absent"})
    gone(SHARED, FAST)
    assert not is_mounted("/srv/vm-pool") and on("ls /etc/systemd/system | grep ^srv- || true") == ""
    on("touch /srv/vm-pool/here && rm /srv/vm-pool/here")
    assert not mount({"path": "/srv/vm-pool", "state": "absent"})["changed"]


def mounted() -> None:
    """Both mounts are what was asked for, with the pools on them."""
    told = on("cat /proc/mounts")
    assert "hyper1:/vms /srv/vm-pool fuse.glusterfs rw" in told
    assert re.search(r"^\S+ /srv/fast\\040disk ext4 rw,noatime", told, re.MULTILINE)
    assert {"shared", "fast"} <= set(on("virsh pool-list --name").split())
    assert on(f"systemctl is-enabled {shlex.join(UNITS.values())}").split() == ["enabled", "enabled"]
    on(f"systemd-analyze verify {shlex.join(f'/etc/systemd/system/{unit}' for unit in UNITS.values())}")


def restart() -> None:
    """Of the host, as systemd does it."""
    started = on("ps -o lstart= -p 1")
    on("(sleep 1; systemctl reboot) >/dev/null 2>&1 &")

    asked = (
        f"timeout 10 ssh -F {LAB.folder}/ssh_config hyper1 'ps -o lstart= -p 1; systemctl is-system-running' || true"
    )

    def is_back() -> bool:
        told = LAB.run("sh", "-c", asked)
        return started not in told and told.split()[-1:] in (["running"], ["degraded"])

    until(is_back, timeout_s=120, every_s=1)


@pytest.mark.deep
def test_a_mount_that_fails_leaves_nothing_to_write_into() -> None:
    mount(SHARED)
    on(f"systemctl stop '{UNITS['/srv/vm-pool']}'")
    assert "Operation not permitted" in on("touch /srv/vm-pool/lost", ok=False)
    on("gluster --mode=script volume stop vms")
    try:
        output = LAB.module("virt_mounts", ok=False, mounts=[SHARED])
        assert "systemctl start" in output and "Mount" in output
    finally:
        on("gluster volume start vms")
    assert mount(SHARED)["steps"] == ["make mount point /srv/vm-pool", "mount hyper1:/vms at /srv/vm-pool"]
    unit = UNITS["/srv/vm-pool"]  # what a run leaves that was killed between its steps
    on(f"systemctl -q disable '{unit}'")
    assert mount(SHARED)["steps"] == [f"enable {unit}"]
    on(f"systemctl stop '{unit}'")
    assert mount({"path": "/srv/vm-pool", "state": "absent"})["steps"] == [f"remove /etc/systemd/system/{unit}"]
    on("rmdir /srv/vm-pool")
    mount(SHARED)
    gone(SHARED)


def test_a_share_that_cannot_be_mounted_is_red_and_can_be_given_up() -> None:
    """The kernel of the lab has no NFS: the unit is judged by systemd, and the failure by its text."""
    share = {"path": "/srv/nfs", "src": "hyper1:/export", "fstype": "nfs4", "options": ["hard", "vers=4.2"]}
    output = role(ok=False, mounts=[share])
    assert "srv-nfs.mount failed" in output and "mount.nfs4" in output and "already done: make mount point" in output
    assert "install ok" in on("dpkg-query -W -f '${Status}' nfs-common") and not is_mounted("/srv/nfs")
    on("systemd-analyze verify /etc/systemd/system/srv-nfs.mount")
    assert "remote-fs.target" in on("systemctl show -p Before srv-nfs.mount") and "libvirtd.service" in on(
        "systemctl show -p Before srv-nfs.mount"
    )
    assert "changed=1" in role(mounts=[{"path": "/srv/nfs", "state": "absent"}])
    assert on("ls /etc/systemd/system | grep srv-nfs || true; rmdir /srv/nfs") == ""


@pytest.mark.deep
def test_nothing_is_hidden_replaced_or_taken_from_others() -> None:
    on("mkdir -p /srv/full && echo mine >/srv/full/file")
    assert "the directory is not empty (file)" in refused({**SHARED, "path": "/srv/full"})
    assert on("cat /srv/full/file") == "mine"
    mount(SHARED)
    assert "hyper1:/vms (fuse.glusterfs) is mounted there" in refused({**SHARED, "src": "hyper2:/other"})
    on("echo ballast | tee -a /srv/vm-pool/open; (exec 9</srv/vm-pool/open; exec sleep 60) >/dev/null 2>&1 & sleep 0.5")
    output = LAB.module("virt_mounts", ok=False, mounts=[{"path": "/srv/vm-pool", "state": "absent"}])
    assert "busy" in output and is_mounted("/srv/vm-pool")
    on("fuser -k /srv/vm-pool/open; sleep 0.5; rm /srv/vm-pool/open")
    gone(SHARED)
    on("mount -t tmpfs theirs /srv/vm-pool")
    assert "theirs is mounted there, and not by a unit of ours" in refused({"path": "/srv/vm-pool", "state": "absent"})
    on("umount /srv/vm-pool; echo 'hyper1:/vms /srv/vm-pool glusterfs defaults 0 0' >>/etc/fstab")
    assert "line" in (told := refused(SHARED)) and "of /etc/fstab mounts it" in told
    on("sed -i /vm-pool/d /etc/fstab; systemctl daemon-reload")
    on(f"printf '[Mount]\\nWhat=x\\nWhere=/srv/vm-pool\\n' >'/etc/systemd/system/{UNITS['/srv/vm-pool']}'")
    for one in (SHARED, {"path": "/srv/vm-pool", "state": "absent"}):
        assert "defines it, and is not ours" in refused(one)
    on(f"rm '/etc/systemd/system/{UNITS['/srv/vm-pool']}'; systemctl daemon-reload; rm -r /srv/full")


def test_a_device_with_anything_on_it_is_never_built_on() -> None:
    device = {**FAST, "path": "/srv/other", "src": DEVICES[1]}
    assert "build: true makes a filesystem" in refused({**device, "build": False})
    table = r"printf '\0\0\002\0\203\377\377\377\0\010\0\0\0\010\0\0' | dd of={0} bs=1 seek=446 && printf '\125\252' | dd of={0} bs=1 seek=510"
    for content, told in (("mkfs.xfs -q {0}", "xfs"), ("mkswap -q {0}", "swap"), (table, "dos")):
        on(f"wipefs -qa {DEVICES[1]}; ({content.format(DEVICES[1])}) 2>/dev/null")
        assert f"holds {told}" in refused(device)
    on(f"wipefs -qa {DEVICES[1]}")


@pytest.mark.deep
def test_a_server_that_does_not_answer_is_given_up() -> None:
    mount(SHARED)
    client = "$(pgrep -f 'glusterfs.* /srv/vm-pool$')"
    on(f"kill -STOP {client}")
    try:
        output = LAB.module("virt_writable", ok=False, paths=["/srv/vm-pool"])
    finally:
        on(f"kill -CONT {client}")
    assert "/srv/vm-pool: hyper1:/vms did not answer within 30 s" in output
    assert "/srv/vm-pool" in LAB.module("virt_writable", paths=["/srv/vm-pool"])
    until(lambda: on("ls -A /srv/vm-pool | grep corral-probe || true") == "")
    gone(SHARED)


@pytest.mark.deep
def test_a_pool_that_guests_cannot_write_is_red() -> None:
    image = {"path": "/srv/ro", "src": DEVICES[1], "fstype": "ext4", "build": True}
    pool = {"name": "fast", "path": "/srv/ro"}
    role(mounts=[image], pools=[pool])
    on("mount -o remount,ro /srv/ro")
    assert "guests cannot use disks in /srv/ro: it is read-only; mount it without the option ro" in role(
        ok=False, mounts=[image], pools=[pool]
    )
    assert "changed=0" in role("--check", mounts=[image], pools=[pool])
    assert "changed=0" in role(mounts=[image], pools=[{**pool, "probe": False}])
    on("mount -o remount,rw /srv/ro; chmod 0700 /srv/ro")
    assert "libvirt-qemu cannot enter /srv/ro (`chmod o+x /srv/ro`)" in role(ok=False, mounts=[image], pools=[pool])
    on("chmod 0711 /srv/ro")
    assert "changed=0" in role(mounts=[image], pools=[pool])
    gone(image)
    on(f"wipefs -qa {DEVICES[1]}")
