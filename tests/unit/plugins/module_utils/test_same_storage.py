"""What proves that both hosts have one disk, and what proves nothing."""

from __future__ import annotations

import pytest

from ansible_collections.corral.virt.plugins.module_utils._domain import xml_host
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_same_storage import (
    Device,
    PoolSource,
    cluster,
    identified,
    other_cluster,
    other_device,
    other_pool,
    own_server,
)

NAA = "6001405" + "a" * 25
LV, VG = "b" * 32, "c" * 32
BY_ID, BY_PATH = "/dev/disk/by-id", "/dev/disk/by-path"


@pytest.mark.parametrize(
    ("link", "found"),
    [
        (f"{BY_ID}/wwn-0x{NAA}", {"WWN": NAA}),
        (f"{BY_ID}/scsi-3{NAA}", {"WWN": NAA}),
        (f"{BY_ID}/dm-uuid-mpath-3{NAA}", {"WWN": NAA}),
        (f"{BY_ID}/wwn-0x5000c500a1b2c3d4", {"WWN": "5000c500a1b2c3d4"}),
        (f"{BY_ID}/dm-uuid-LVM-{VG}{LV}", {"LVM group": VG, "LVM volume": LV}),
        (f"{BY_ID}/nvme-eui.0025388b91d0a1b2", {"NVMe namespace": "eui.0025388b91d0a1b2"}),
        (
            f"{BY_PATH}/ip-10.0.0.1:3260-iscsi-iqn.2024-01.org.example:one-lun-1",
            {"iSCSI LUN": "iqn.2024-01.org.example:one-lun-1"},
        ),
        # Each host has its own server there.
        (f"{BY_PATH}/ip-127.0.0.1:3260-iscsi-iqn.2024-01.org.example:one-lun-1", {}),
        (f"{BY_PATH}/ip-[::1]:3260-iscsi-iqn.2024-01.org.example:one-lun-1", {}),
        # Many servers assign the same numbers: NAA 3, T10, company 0, serial numbers of emulated disks; a partition is no disk.
        (f"{BY_ID}/scsi-360000000000000000e00000000010001", {}),
        (f"{BY_ID}/wwn-0x3{NAA[1:]}", {}),
        (f"{BY_ID}/scsi-1IET_00010001", {}),
        (f"{BY_ID}/ata-QEMU_HARDDISK_QM00001", {}),
        (f"{BY_ID}/virtio-data", {}),
        (f"{BY_ID}/wwn-0x{NAA}-part1", {}),
        (f"{BY_PATH}/pci-0000:00:1f.2-ata-1", {}),
        ("/dev/sda", {}),
        ("/dev/mapper/vg-a", {}),
    ],
)
def test_a_name_of_udev(link: str, found: dict[str, str]) -> None:
    assert identified(Device(1, (link,))) == found


@pytest.mark.parametrize(
    ("pool_type", "key", "found"),
    [
        ("logical", "aaaaaa-bbbb-cccc-dddd-eeee-ffff-gggggg", {"LVM volume": "aaaaaabbbbccccddddeeeeffffgggggg"}),
        ("logical", "/dev/vg/a", {}),
        *((kind, f"3{NAA}", {"WWN": NAA}) for kind in ("iscsi", "scsi", "mpath")),
        ("scsi", "1IET_00010001", {}),
        ("iscsi", "/dev/disk/by-path/ip-10.0.0.1:3260-iscsi-iqn.x:y-lun-1", {}),  # libvirt has no better one
        ("disk", f"3{NAA}", {}),
        ("zfs", "tank/a", {}),
        ("dir", "/images/a", {}),
    ],
)
def test_a_volume_of_a_pool(pool_type: str, key: str, found: dict[str, str]) -> None:
    assert identified(Device(1, (), pool_type, key)) == found


def lv(letter: str, **more: int) -> Device:
    """A logical volume in a pool."""
    return Device(more.get("size_bytes", 8), ("/dev/vg/a",), "logical", f"{letter * 16}-{letter * 16}")


@pytest.mark.parametrize(
    ("here", "there", "proof", "why", "declared"),
    [
        (lv("a"), lv("a"), f"LVM volume {'a' * 32}", "", ""),
        (lv("a"), lv("b"), "", f"it is LVM volume {'a' * 32} here and {'b' * 32} on the destination", None),
        (lv("a"), lv("a", size_bytes=9), "", "it has 8 bytes here and 9 on the destination", None),
        (None, lv("a"), "", "libvirt of the source does not know it, so it cannot be compared", ""),
        (lv("a"), None, "", "libvirt of the destination does not know it, so it cannot be compared", ""),
        (Device(8, ("/dev/sda",)), Device(8, ("/dev/sda",)), "", "nothing identifies it on both hosts (nothing here and nothing there)", ""),
        (lv("a"), Device(8, ("/dev/sda",)), "", "nothing identifies it on both hosts (LVM volume here and nothing there)", ""),
        # A copy of a volume group by its storage keeps the volumes' UUIDs; who imports it gives the group another one.
        (
            Device(8, (f"{BY_ID}/dm-uuid-LVM-{VG}{LV}",)),
            Device(8, (f"{BY_ID}/dm-uuid-LVM-{'d' * 32}{LV}",)),
            "",
            f"it is LVM group {VG} here and {'d' * 32} on the destination",
            None,
        ),
        (Device(8, (f"{BY_ID}/wwn-0x{NAA}",)), Device(8, (), "mpath", f"3{NAA}"), f"WWN {NAA}", "", ""),
    ],
)  # fmt: skip
def test_one_device_on_both_hosts(
    here: Device | None, there: Device | None, proof: str, why: str, declared: str | None
) -> None:
    assert other_device(here, there, declared=False) == (proof, why)
    assert other_device(here, there, declared=True) == (proof, why if declared is None else declared)


@pytest.mark.parametrize(
    ("servers", "why"),
    [
        (["mon1"], ""),
        (["10.0.0.1", "mon2.example.com", "2001:db8::1"], ""),
        *(
            ([server], f"{server} is another server on each host")
            for server in (
                "localhost",
                "localhost.localdomain",
                "127.0.0.1",
                "127.1.2.3",
                "::1",
                "0.0.0.0",
                "/run/nbd.sock",
            )
        ),
        (["mon1", "localhost"], "localhost is another server on each host"),
        (["localhosts"], ""),
        ([], "its definition names no server"),
    ],
)
def test_a_server_of_both_hosts(servers: list[str], why: str) -> None:
    assert own_server(servers) == why


CEPH = PoolSource("rbd", ("mon1", "mon2"), "vms")


@pytest.mark.parametrize(
    ("here", "there", "why", "declared"),
    [
        (CEPH, CEPH, "", ""),
        (CEPH, PoolSource("rbd", ("mon2", "mon3"), "vms"), "", ""),
        (CEPH, PoolSource("rbd", ("mon9",), "vms"), "the pool is rbd mon1,mon2 vms here and rbd mon9 vms on the destination", ""),
        (CEPH, PoolSource("rbd", ("mon1",), "other"), "the pool is rbd mon1,mon2 vms here and rbd mon1 other on the destination", None),
        (CEPH, PoolSource("gluster", ("mon1",), "vms"), "the pool is rbd mon1,mon2 vms here and gluster mon1 vms on the destination", None),
        (CEPH, None, "the destination has no such pool", None),
        (None, CEPH, "the source has no such pool", None),
        (*[PoolSource("iscsi-direct", ("127.0.0.1",), "iqn.x:one")] * 2, "127.0.0.1 is another server on each host", ""),
        (*[PoolSource("rbd", (), "vms")] * 2, "its definition names no server", ""),
    ],
)  # fmt: skip
def test_one_network_pool_of_both_hosts(
    here: PoolSource | None, there: PoolSource | None, why: str, declared: str | None
) -> None:
    assert other_pool(here, there, declared=False) == why
    assert other_pool(here, there, declared=True) == (why if declared is None else declared)


FSID = "1b2c3d4e-0000-4000-8000-00000000000A"


def test_a_ceph_cluster_is_its_fsid() -> None:
    assert cluster(f"[global]\n  fsid = {FSID}\nmon_host = 10.0.0.1\n".encode()) == FSID.lower()
    for text in (None, b"", b"[global]\nmon_host = 10.0.0.1\n", f"# fsid = {FSID}\n".encode(), b"\xff\xfe"):
        assert cluster(text) is None
    assert other_cluster("1", "1") == "" and "is 1 here and 2" in other_cluster("1", "2")
    assert "ceph.conf of the source has no fsid" in other_cluster(None, "1")
    assert "ceph.conf of the destination has no fsid" in other_cluster("1", None)


NODE = f"""<device><name>block_sda</name><devnode type='dev'>/dev/sda</devnode>
<devnode type='link'>{BY_ID}/wwn-0x{NAA}</devnode>
<capability type='storage'><block>/dev/sda</block><size>8</size></capability></device>"""
CD = "<device><name>block_sr0</name><capability type='storage'><block>/dev/sr0</block></capability></device>"
VOLUME = "<volume type='block'><key>aa-bb</key><capacity>9</capacity></volume>"
POOL = "<pool type='logical'/>"


def test_what_libvirt_tells_of_a_device() -> None:
    links = (f"{BY_ID}/wwn-0x{NAA}", "/dev/sda")
    for path in ("/dev/sda", f"{BY_ID}/wwn-0x{NAA}"):
        assert xml_host.device(path, [CD, NODE], None, None) == {"size_bytes": 8, "links": links}
    assert xml_host.device("/dev/sdb", [CD, NODE], None, None) is None
    assert xml_host.device("/dev/sr0", [CD, NODE], None, None) == {"size_bytes": 0, "links": ("/dev/sr0",)}
    assert xml_host.device("/dev/vg/a", [NODE], VOLUME, POOL) == {
        "size_bytes": 9,
        "links": ("/dev/vg/a",),
        "pool_type": "logical",
        "key": "aa-bb",
    }
    assert xml_host.device("/dev/sda", [NODE], VOLUME, POOL) == {
        "size_bytes": 8,
        "links": links,
        "pool_type": "logical",
        "key": "aa-bb",
    }


def test_a_logical_volume_has_the_number_of_its_disk() -> None:
    """A copy of the disk has the UUIDs of its volumes."""
    extents = "<source><device path='/dev/sda'><extent start='0' end='8'/></device>{}</source>"
    volume = "<volume><key>aa-bb</key><capacity>8</capacity>{}</volume>"
    one = xml_host.device("/dev/vg/a", [CD, NODE], volume.format(extents.format("")), POOL)
    assert one is not None and identified(Device(**one)) == {"LVM volume": "aabb", "WWN": NAA}
    striped = volume.format(extents.format("<device path='/dev/sdb'/>"))
    two = xml_host.device("/dev/vg/a", [CD, NODE], striped, POOL)
    assert two is not None and identified(Device(**two)) == {"LVM volume": "aabb"}


@pytest.mark.parametrize(
    ("source", "servers", "name"),
    [
        ("<host name='a'/><host name='b'/><name>vms</name>", ("a", "b"), "vms"),
        ("<host name='a'/><dir path='/images'/><name>vol</name>", ("a",), "vol /images"),
        ("<host name='a'/><device path='iqn.x:one'/>", ("a",), "iqn.x:one"),
        ("<name>vg</name>", (), "vg"),
    ],
)
def test_what_libvirt_tells_of_a_pool(source: str, servers: tuple[str, ...], name: str) -> None:
    found = xml_host.pool_source(f"<pool type='rbd'><source>{source}</source></pool>")
    assert found == {"type": "rbd", "servers": servers, "name": name}
