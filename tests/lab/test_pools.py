"""Storage pools of the types that the lab's hosts can have: judged by virsh, mount, blkid and the devices themselves."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.lab.hypervisors import Hypervisors, hypervisors

pytestmark = pytest.mark.lab

LAB = Hypervisors("pools")
on = functools.partial(LAB.on, "hyper1")
SERVERS = "glusterfs-server tgt"
TARGET = "iqn.2024-01.org.example:one"
DEVICES = [f"/dev/disk-{letter}" for letter in "abc"]
# Loop devices are the machine's: each of ours is the first that nobody has, by a name of its own.
ATTACH = (
    "truncate -s 200M /root/image-{0}; for n in $(seq 40 99); do rm -f /dev/try; mknod /dev/try b 7 $n; "
    "losetup /dev/try /root/image-{0} 2>/dev/null && mknod {1} b 7 $n && break; done; losetup {1}"
)
FS = {"name": "fs", "type": "fs", "path": "/srv/fs", "source": {"devices": DEVICES[:1], "format": "ext4"}}
GLUSTER: dict[str, t.Any] = {
    "name": "shared",
    "type": "netfs",
    "path": "/srv/shared",
    "source": {"hosts": [{"name": "hyper1"}], "dir": "/vms", "format": "glusterfs"},
}
ISCSI = {
    "name": "san",
    "type": "iscsi-direct",
    "source": {"hosts": [{"name": "127.0.0.1"}], "devices": [TARGET], "initiator": "iqn.2024-01.org.example:me"},
}


@pytest.fixture(scope="module", autouse=True)
def hypervisor() -> Iterator[None]:
    """A hypervisor with devices, a Gluster volume and an iSCSI target."""
    with hypervisors("pools"):
        on(f"DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends {SERVERS} >/dev/null")
        for number, device in enumerate(DEVICES):
            on(ATTACH.format(number, device))
        on(
            "systemctl start glusterd && mkdir -p /srv/brick && gluster --mode=script volume create vms hyper1:/srv/brick "
            "force && gluster volume start vms"
        )
        on(
            f"systemctl start tgt && truncate -s 64M /root/lun && tgtadm --lld iscsi --op new --mode target --tid 1 -T "
            f"{TARGET} && tgtadm --lld iscsi --op new --mode logicalunit --tid 1 --lun 1 -b /root/lun && tgtadm --lld "
            "iscsi --op bind --mode target --tid 1 -I ALL"
        )
        made_by_the_role()
        try:
            yield
        finally:
            on(f"umount /srv/fs /srv/shared; for d in {' '.join(DEVICES)}; do losetup -d $d; done; true")


def made_by_the_role() -> None:
    """The role installs what the pools need, and makes them; again, and in check mode, it changes nothing."""
    assert "restart libvirtd" in refused(**ISCSI)
    default = {"name": "default", "path": "/var/lib/libvirt/images"}
    pools = {"storage_pools": [default, GLUSTER, {**ISCSI, "autostart": False}, {"name": "old", "state": "absent"}]}

    def played(*flags: str) -> str:
        return LAB.play(flags=flags, roles=["corral.virt.storage"], vars=pools, gather_facts=False)

    played("--check")
    assert "changed: [hyper1] => (item=san)" in played()
    assert "san" in on("virsh pool-list --name") and "fuse.glusterfs" in on("cat /proc/mounts")
    for flags in ((), ("--check",)):
        assert "changed=0" in played(*flags)
    on("for p in shared san; do virsh -q pool-destroy $p; virsh -q pool-undefine $p; done")


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """What a test makes goes with it."""
    yield
    on(
        "for p in $(virsh pool-list --all --name | grep -vx default); do virsh -q pool-destroy $p; virsh -q pool-undefine $p; "
        f"done 2>/dev/null; wipefs -qa {' '.join(DEVICES)}; rm -rf /srv/dir"
    )


def told(module: str, *, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
    """What a module answers."""
    task = {f"corral.virt.{module}": options, "register": "told"}
    return t.cast("dict[str, t.Any]", LAB.tell(task, hosts="hyper1", check=check)["hyper1"])


def refused(**options: t.Any) -> str:
    """Why virt_pool refuses."""
    return LAB.module("virt_pool", ok=False, **options)


DIGESTS = f"for d in {' '.join(DEVICES)}; do grep -q ^$d /proc/mounts || sha256sum $d; done"
STATE = f"virsh pool-list --all; grep /srv /proc/mounts; {DIGESTS}; ls /srv"


def state() -> str:
    """All that a pool changes on the host."""
    return on(STATE)


def four_steps(**options: t.Any) -> list[str]:
    """Check, do, check again, do again; the steps."""
    return t.cast("list[str]", LAB.four_steps("virt_pool", options, STATE)[0]["steps"])


@pytest.mark.parametrize(
    ("options", "where", "files"),
    [
        pytest.param({**FS, "build": True}, f"in /srv/fs (fs {DEVICES[0]})", True, id="fs"),
        pytest.param(GLUSTER, "in /srv/shared (netfs hyper1:/vms)", True, id="netfs", marks=pytest.mark.deep),
        pytest.param(ISCSI, f"(iscsi-direct 127.0.0.1:{TARGET})", False, id="iscsi-direct", marks=pytest.mark.deep),
    ],
)
def test_a_pool_comes_stops_starts_and_goes(options: dict[str, t.Any], where: str, files: bool) -> None:
    name, kind = options["name"], options.get("type", "dir")
    build = [f"build pool {name} on {DEVICES[0]}"] if "build" in options else []
    assert four_steps(**options) == [
        f"define pool {name} {where}",
        *build,
        f"set autostart of pool {name} on",
        f"start pool {name}",
    ]
    mounted = {"fs": f"{DEVICES[0]} /srv/fs ext4", "netfs": "hyper1:/vms /srv/shared fuse.glusterfs"}.get(kind)
    assert mounted is None or mounted in on("cat /proc/mounts")
    (found,) = told("virt_pool_info", name=name, arguments=True)["pools"]
    assert found["type"] == kind and found["capacity_bytes"] > 0 and found["active"]
    assert not told("virt_pool", **found["arguments"])["changed"]
    if files:
        volume = {"name": "v", "pool": name, "capacity": "8MiB"}
        assert told("virt_volume", **volume)["changed"] and not told("virt_volume", **volume)["changed"]
        assert told("virt_volume", **{**volume, "capacity": "16MiB"})["changed"]
        assert on(f"qemu-img info {options['path']}/v | grep -c '16 MiB'") == "1"
        listed = told("virt_volume_info", pool=name)["volumes"]
        assert [one["name"] for one in listed if one["name"] != "lost+found"] == ["v"]
    else:
        assert "unit:0:0:1" in on(f"virsh vol-list {name}")
        said = LAB.module("virt_volume", ok=False, name="v", pool=name, capacity="8MiB")
        assert f"the pool is of type {kind}, where this module cannot do that" in said
    assert told("virt_pool", name=name, state="inactive")["steps"] == [f"stop pool {name}"]
    assert mounted is None or mounted not in on("cat /proc/mounts")
    assert told("virt_pool", name=name)["steps"] == [f"start pool {name}"]
    assert four_steps(name=name, state="absent") == [f"stop pool {name}", f"undefine pool {name}"]
    assert not files or kind == "fs" or on(f"ls {'/srv/brick' if kind == 'netfs' else options['path']}") == "v"


@pytest.mark.parametrize(
    "options", [pytest.param({**FS, "build": True}, id="fs", marks=pytest.mark.deep), pytest.param(GLUSTER, id="netfs")]
)
def test_guests_have_their_disks_in_it(options: dict[str, t.Any]) -> None:
    pool, path = options["name"], options["path"]
    told("virt_pool", **options)
    guest: dict[str, t.Any] = {
        "name": "pg",
        "vcpus": 1,
        "memory": "64MiB",
        "state": "present",
        "interfaces": [],
        "disks": [{"name": "system", "size": "8MiB", "pool": pool}],
    }
    copy: dict[str, t.Any] = {
        "name": "pc",
        "state": "present",
        "clone_of": "pg",
        "disks": [{"name": "system", "pool": pool}],
    }
    for one in (guest, copy):
        assert told("virt_domain", **one)["changed"] and not told("virt_domain", **one)["changed"]
    on(f"qemu-img compare {path}/pg-system.qcow2 {path}/pc-system.qcow2")
    assert told("virt_domain", name="pg", disks=[{"name": "system", "size": "16MiB"}])["changed"]
    assert "virtual size: 16 MiB" in on(f"qemu-img info {path}/pg-system.qcow2")
    on("virsh -q start pg")
    assert told("virt_domain", name="pg", disks=[{"name": "system", "size": "24MiB"}])["changed"]
    assert "24.000 MiB" in on("virsh domblkinfo pg vda --human")
    on("virsh -q destroy pg")
    for name in ("pg", "pc"):
        assert told("virt_domain", name=name, state="absent", remove_storage=True)["changed"]
    assert "system" not in on(f"ls {path}")


@pytest.mark.deep
def test_what_is_on_a_device_stays() -> None:
    on(f"mkfs.ext4 -q {DEVICES[1]} && mkfs.xfs -q -f {DEVICES[2]} 2>/dev/null || mkswap {DEVICES[2]}")
    before = state()
    for device, content in ((DEVICES[1], "holds ext4"), (DEVICES[2], "holds "), ("/root", "is no block device")):
        source = {"devices": [device], "format": "ext4"}
        for kind in ("fs", "disk", "logical"):
            options: dict[str, t.Any] = {
                **FS,
                "type": kind,
                "source": {**source, "format": {"disk": "gpt", "logical": "lvm2"}.get(kind, "ext4")},
            }
            if kind != "fs":
                del options["path"]
            assert f"{device} {content}" in refused(**options, build=True)
            assert f"{device} {content}" in LAB.module("virt_pool", "--check", ok=False, **options, build=True)
    assert state() == before
    used = {**FS, "source": {"devices": [DEVICES[1]], "format": "ext4"}}
    assert four_steps(**used)[-1] == "start pool fs"  # without build, it is used as it is


@pytest.mark.deep
def test_one_thing_is_of_one_pool() -> None:
    four_steps(**FS, build=True)
    four_steps(**GLUSTER)
    four_steps(**ISCSI)
    on(f"ln -sfn {DEVICES[0]} /dev/one; mkdir -p /srv/other")
    other = {**FS, "name": "b", "path": "/srv/other", "source": {"devices": ["/dev/one"]}}
    assert f"it is that of pool fs, which calls it {DEVICES[0]}" in refused(**other)
    assert "it is the directory of pool shared" in refused(name="b", path="/srv/shared")
    assert "it is that of pool shared" in refused(**{**GLUSTER, "name": "b", "path": "/srv/other"})
    assert "it is that of pool san" in refused(**{**ISCSI, "name": "b"})
    assert "the disks of guests would stay behind" in refused(**{**FS, "source": {"devices": [DEVICES[2]]}})


@pytest.mark.deep
def test_a_server_that_is_not_there_leaves_nothing_behind() -> None:
    before = state()
    lost = {**GLUSTER, "source": {**t.cast("dict[str, t.Any]", GLUSTER["source"]), "dir": "/none"}}
    assert "it is as before (undefine pool shared)" in refused(**lost)
    assert "it is as before" in refused(
        **{
            **ISCSI,
            "source": {**t.cast("dict[str, t.Any]", ISCSI["source"]), "devices": ["iqn.2024-01.org.example:none"]},
        }
    )
    assert state().replace("shared\n", "") == before.replace("shared\n", "")  # libvirt makes the mount point


@pytest.mark.deep
def test_a_share_that_does_not_answer_holds_nobody_up() -> None:
    """Its client stands still; guests and volumes elsewhere go on, and what must know all users says why it cannot."""
    told("virt_pool", **GLUSTER)
    guest: dict[str, t.Any] = {"vcpus": 1, "memory": "64MiB", "interfaces": [], "state": "present"}
    told("virt_domain", name="g", **guest, disks=[{"name": "system", "size": "64MiB", "pool": "shared"}])
    told("virt_domain", name="h", **guest, disks=[{"name": "system", "size": "64MiB"}])
    client = on("pgrep -f 'glusterfs.* /srv/shared$'")
    gone: dict[str, t.Any] = {"state": "absent", "remove_storage": True}
    on(f"kill -STOP {client}")
    try:
        assert {"default", "shared"} <= {one["name"] for one in told("virt_pool_info")["pools"]}
        assert told("virt_volume", name="v", pool="default", capacity="1MiB")["changed"]
        assert told("virt_domain", name="i", **guest, disks=[{"name": "system", "size": "64MiB"}])["changed"]
        for name in ("g", "h"):
            output = LAB.module("virt_domain", ok=False, name=name, **gone)
            assert "/srv/shared has not answered within 30 s" in output and "umount --force" in output
    finally:
        on(f"kill -CONT {client}")
    assert sorted(on("virsh list --all --name").split()) == ["g", "h", "i"]
    for name in ("g", "h", "i"):
        assert len(told("virt_domain", name=name, **gone)["steps"]) == 2
    assert on("ls /srv/shared /var/lib/libvirt/images | grep qcow2 || true") == ""
    told("virt_volume", name="v", pool="default", state="absent")
