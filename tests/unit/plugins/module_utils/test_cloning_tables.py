"""A copy of a guest: what it has of its original, what it has not, and what cannot be copied."""

from __future__ import annotations

import dataclasses
import email
import json
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._model.domain import Disk, FoundGuest, GuestSpec, Original
from ansible_collections.corral.virt.plugins.module_utils._model.header import Header
from ansible_collections.corral.virt.plugins.module_utils._plan import cloning, new_disk
from ansible_collections.corral.virt.plugins.module_utils._plan import seed as seeds
from ansible_collections.corral.virt.plugins.module_utils._plan.disk_facts import Origin, Site, SiteOf
from ansible_collections.corral.virt.plugins.module_utils._plan.pool_files import Pool
from ansible_collections.corral.virt.plugins.module_utils._xml import cloned
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse
from ansible_collections.corral.virt.tests.golden.case import options

UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
OFF = FoundGuest("web1", "u1", "shutdown", persistent=True, autostart=True, xml="<domain/>")
COPY = GuestSpec("web3", clone_of="web1")
GIB = 1024**3
XML = """<domain type='kvm'><name>web1</name><uuid>11111111-f6a4-8304-79aa-97f2502e193f</uuid>
<genid>43dc0cf8-809b-4adb-9bea-a9abb5f3d90e</genid><title>Web</title>
<metadata xmlns:corral='urn:corral:virt:guest:1'><corral:guest><corral:tag>front</corral:tag><corral:seed sha256='a' instance-id='b'/>
<corral:volume>/p/web1-system.qcow2</corral:volume></corral:guest><other:owner xmlns:other='urn:other'/>
<libosinfo:libosinfo xmlns:libosinfo='http://libosinfo.org/xmlns/libvirt/domain/1.0'/></metadata>
<sysinfo type='smbios'><system><entry name='uuid'>11111111-f6a4-8304-79aa-97f2502e193f</entry>
<entry name='family'>x</entry></system></sysinfo>
<os><nvram template='/t' type='file'>/v/web1.fd<source file='/v/web1.fd'/></nvram></os><devices>
<disk><source file='/p/web1-system.qcow2'/><target dev='vda'/><alias name='ua-system'/></disk>
<disk><source file='/p/web1-seed.iso'/><target dev='vdb'/><alias name='ua-seed'/></disk>
<interface type='bridge'><mac address='52:54:00:00:00:01'/><source bridge='br0'/><target dev='vnet7'/><alias name='ua-eth0'/>
<virtualport type='openvswitch'><parameters interfaceid='9c6e5ef2-2c2b-4b5c-8a0b-4a5f3a8b6a01' profileid='p'/></virtualport></interface>
<interface type='network'><mac address='52:54:00:00:00:02'/></interface>
<serial type='file'><source path='/log/web1'/><log file='/log/web1.log'/></serial>
<channel type='unix'><source mode='bind' path='/var/lib/libvirt/qemu/channel/target/web1.agent'/></channel>
<channel type='unix'><source mode='bind' path='/srv/web1.sock'/></channel>
<channel type='unix'><source mode='connect' path='/srv/all.sock'/></channel>
<graphics type='vnc' port='5905' autoport='no' websocket='5705' socket='/srv/vnc'><listen type='socket' socket='/srv/vnc'/></graphics>
<graphics type='spice' autoport='yes'/><vsock><cid auto='no' address='7'/></vsock></devices></domain>"""


@pytest.fixture(scope="module")
def root() -> t.Any:
    """The definition of a copy of the above."""
    return parse(cloned.document(XML, name="web3", uuid=UUID))


def test_a_copy_is_a_guest_of_its_own(root: t.Any) -> None:
    assert (root.findtext("name"), root.findtext("uuid"), root.findtext("title")) == ("web3", UUID, "Web")
    assert not root.findtext("genid") and root.find("genid") is not None
    assert [entry.get("name") for entry in root.findall("sysinfo/system/entry")] == ["family"]
    [nvram] = root.findall("os/nvram")
    assert dict(nvram.attrib) == {"template": "/t"} and not nvram.text and not len(nvram)
    macs = [mac.get("address") for mac in root.findall("devices/interface/mac")]
    assert len(set(macs)) == 2 and all(mac.startswith("52:54:00:") and mac[:-1] != "52:54:00:00:00:0" for mac in macs)
    assert root.find("devices/interface/target") is None
    assert dict(root.find("devices/interface/virtualport/parameters").attrib) == {"profileid": "p"}
    assert [one.get("name") for one in root.findall("devices/disk/alias")] == ["ua-system"], "a seed is for one guest"


def test_what_programs_keep_with_a_guest_is_of_that_guest(root: t.Any) -> None:
    assert sorted(one.tag.rpartition("}")[2] for one in root.findall("metadata/*")) == ["guest", "libosinfo"]
    assert [
        (one.tag.rpartition("}")[2], one.text) for one in root.findall("metadata/{urn:corral:virt:guest:1}guest/*")
    ] == [("tag", "front")]


def test_ports_are_chosen_anew(root: t.Any) -> None:
    vnc, spice = root.findall("devices/graphics")
    assert (
        dict(vnc.attrib) == {"type": "vnc", "autoport": "yes", "websocket": "-1"}
        and "socket" not in vnc.find("listen").attrib
    )
    assert dict(spice.attrib) == {"type": "spice", "autoport": "yes"}
    assert dict(root.find("devices/vsock/cid").attrib) == {"auto": "yes"}


def test_files_of_devices_are_one_guest_s() -> None:
    mine = {"/log/web1", "/log/web1.log", "/srv/web1.sock"}
    assert cloned.own_files(XML) >= mine and "/srv/all.sock" not in cloned.own_files(XML)
    after = cloned.own_files(cloned.document(XML, name="web3", uuid=UUID))
    assert after == mine, "what libvirt named after the guest, it names anew"
    with pytest.raises(
        Refused, match=r"a copy of web1: the devices of both would use /log/web1, .*/srv/web1\.sock; give those of web3"
    ):
        cloning.check_files(COPY, cloned.own_files(XML), after)
    cloning.check_files(COPY, cloned.own_files(XML), {"/log/web3"})


@pytest.mark.parametrize(
    ("original", "more", "said"),
    [
        (None, {}, "there is no guest web1 here; a copy is made on the host that has the guest"),
        (
            dataclasses.replace(OFF, state="running", live_xml="<domain/>"),
            {},
            "it is running, and writes to its disks .* shut it down first",
        ),
        (OFF, {"memory": {"moving": "h2"}}, "it is being moved"),
        (OFF, {"memory": {"making": ["/a"]}}, "an interrupted run left /a incomplete"),
        (OFF, {"keeps": ["managed_save"]}, "it was saved while it ran.*virsh managedsave-remove web1"),
    ],
)
def test_what_is_not_copied(original: FoundGuest | None, more: dict[str, t.Any], said: str) -> None:
    with pytest.raises(VirtError, match=f"^cannot make web3 as a copy of web1: {said}"):
        cloning.checked(COPY, original, **{"keeps": (), "memory": {}, **more})


def test_snapshots_of_the_original_stay_with_it() -> None:
    assert cloning.checked(COPY, OFF, keeps=["snapshots", "nvram"], memory={"seed": "x"}) is OFF


SYSTEM = {"name": "system", "source": "/p/web1-system.qcow2", "format": "qcow2"}


@pytest.mark.parametrize(
    ("disk", "copied"),
    [
        (SYSTEM, True),
        ({"name": "vdb", "source": "/p/b.img"}, True),
        ({**SYSTEM, "readonly": True}, False),
        ({**SYSTEM, "shareable": True}, False),
        ({"name": "cd", "device": "cdrom", "source": "/p/a.iso"}, False),
        ({"name": "fd", "device": "floppy"}, False),
        ({"name": "seed", "source": "/p/web1-seed.iso"}, False),
    ],
)
def test_which_disks_a_copy_gets_its_own_of(disk: dict[str, t.Any], copied: bool) -> None:
    disks = cloning.described(COPY, [disk], []).disks
    wanted = Disk(
        disk["name"],
        fields={"format": disk.get("format", "raw")},
        copy_of=Original("web1", disk.get("source", ""), disk.get("format", "raw")),
    )
    assert disks == ((wanted,) if copied else ())


@pytest.mark.parametrize(
    "disk",
    [
        {"name": "lv", "source": "/dev/vg/web1", "format": "raw"},
        {"name": "lun", "device": "lun", "source": "/dev/sdb"},
        {"name": "net", "source": "images/web1", "url": "nbd://host/images/web1"},
        {"name": "volume", "pool": "default", "volume": "a.qcow2"},
    ],
)
def test_a_disk_that_is_no_file_must_be_spoken_of(disk: dict[str, t.Any]) -> None:
    with pytest.raises(
        BadInput, match=f"cannot copy disk {disk['name']} of web1 for web3: it is no file; give web3 a disk"
    ):
        cloning.described(COPY, [disk], [])
    for item in (
        Disk(disk["name"], state="absent"),
        Disk(disk["name"], image="a.qcow2"),
        Disk(disk["name"], fields={"source": "/p/x"}),
    ):
        assert cloning.described(COPY.with_fields(disks=(item,)), [disk], []).disks == (item,)


def test_what_is_said_of_a_disk_holds_for_its_copy() -> None:
    more = Disk("more", size_bytes=GIB)
    asked = COPY.with_fields(
        disks=(more, Disk("system", fields={"format": "raw", "cache": "none"}, size_bytes=9 * GIB, pool="fast"))
    )
    first, last = cloning.described(asked, [SYSTEM], []).disks or ()
    assert last == more
    assert first == Disk(
        "system",
        fields={"format": "raw", "cache": "none"},
        size_bytes=9 * GIB,
        pool="fast",
        copy_of=Original("web1", SYSTEM["source"], "qcow2"),
    )
    assert new_disk.site("web3", first) == SiteOf("fast", "web3-system.img", copy_of=SYSTEM["source"])
    [silent] = cloning.described(COPY, [SYSTEM], []).disks or ()
    assert new_disk.site("web3", silent) == SiteOf(None, "web3-system.qcow2", copy_of=SYSTEM["source"])


POOL = Pool("default", "dir", "/p", here=True)
ORIGIN = Origin("/p/web1-system.qcow2", "/p/web1-system.qcow2", "qcow2", 8 * GIB, Header("qcow2"), guest="web1")


@pytest.mark.parametrize(("size", "wanted"), [(None, 8 * GIB), (8 * GIB, 8 * GIB), (9 * GIB, 9 * GIB)])
def test_a_copied_disk_stands_on_nothing_and_may_be_larger(size: int | None, wanted: int) -> None:
    item = Disk("system", fields={"format": "qcow2"}, size_bytes=size, copy_of=Original("web1", ORIGIN.path, "qcow2"))
    volume = new_disk.volume("web3", item, Site(POOL, origin=ORIGIN))
    assert (volume.path, volume.capacity_bytes, volume.copy_of, volume.backing_path) == (
        "/p/web3-system.qcow2",
        wanted,
        ORIGIN.path,
        None,
    )


@pytest.mark.parametrize(
    ("item", "origin", "said"),
    [
        ({"size_bytes": GIB}, ORIGIN, "size 1 GiB is smaller than disk system of web1"),
        ({}, None, "there is no /p/web1-system.qcow2"),
        (
            {},
            dataclasses.replace(ORIGIN, written=True),
            "a process that libvirt does not know writes to /p/web1-system.qcow2; see",
        ),
        ({}, dataclasses.replace(ORIGIN, format="raw"), "web1 has it as qcow2, and its first bytes say raw"),
    ],
)
def test_disks_that_are_not_copied(item: dict[str, t.Any], origin: Origin | None, said: str) -> None:
    wanted = Disk("system", fields={"format": "qcow2"}, copy_of=Original("web1", ORIGIN.path, "qcow2"), **item)
    with pytest.raises(VirtError, match=said):
        new_disk.volume("web3", wanted, Site(POOL, origin=origin))


def test_what_a_guest_wrote_into_a_raw_disk_is_not_believed() -> None:
    wanted = Disk("system", fields={"format": "raw"}, copy_of=Original("web1", ORIGIN.path, "raw"))
    with pytest.raises(Refused, match="web1 has it as raw, and its first bytes say qcow2"):
        new_disk.volume("web3", wanted, Site(POOL, origin=ORIGIN))


def seeded(said: dict[str, t.Any] | None, macs: t.Sequence[str] = ("52:54:00:00:00:09",)) -> dict[str, str]:
    """The files of a copy's seed."""
    spec = COPY if said is None else dataclasses.replace(COPY, seed=seeds.seed(said, guest="web3"))
    seed = cloning.described(spec, [], macs).seed
    assert seed is not None
    return seeds.files(seed, guest="web3", host_key=("PRIVATE", "PUBLIC"))


def test_a_copy_is_told_who_it_is() -> None:
    files = seeded(None)
    assert json.loads(files["meta-data"])["local-hostname"] == "web3"
    nic = {"match": {"macaddress": "52:54:00:00:00:09"}, "dhcp4": True, "dhcp-identifier": "mac"}
    assert json.loads(files["network-config"]) == {"version": 2, "ethernets": {"nic0": nic}}
    parts = t.cast("list[email.message.Message]", email.message_from_string(files["vendor-data"]).get_payload())
    assert [part.get_content_type() for part in parts] == ["text/cloud-config", "text/cloud-boothook"]
    assert "systemd-machine-id-setup" in str(parts[1].get_payload()) and '"PRIVATE"' in str(parts[0].get_payload())


def test_what_the_user_says_of_the_network_goes_before() -> None:
    assert json.loads(seeded({"network_config": {"config": "disabled"}})["network-config"]) == {"config": "disabled"}
    assert "network-config" not in seeded({}, macs=())


def test_all_that_is_told_to_a_copy_reaches_it() -> None:
    script = "#!/bin/sh\ntrue\n"
    for said, kinds in (
        ({"vendor_data": script}, ["text/plain", "text/cloud-config", "text/cloud-boothook"]),
        ({"vendor_data": {"packages": ["vim"]}}, ["text/cloud-config", "text/cloud-boothook"]),
        (
            {"vendor_data": script, "user_data": {"ssh_keys": {"rsa_private": "x"}}},
            ["text/plain", "text/cloud-boothook"],
        ),
        (
            {"vendor_data": {"a": 1}, "user_data": {"ssh_keys": {"rsa_private": "x"}}},
            ["text/plain", "text/cloud-boothook"],
        ),
    ):
        parts = t.cast(
            "list[email.message.Message]", email.message_from_string(seeded(said)["vendor-data"]).get_payload()
        )
        assert [part.get_content_type() for part in parts] == kinds, said
    only = seeded({"user_data": {"ssh_keys": {"rsa_private": "x"}}})["vendor-data"]
    assert only.startswith("#cloud-boothook\n")


def test_the_same_seed_is_told_to_be_the_same_later() -> None:
    """Whether or not `clone_of` is still said."""
    spec = dataclasses.replace(COPY, seed=seeds.seed({}, guest="web3"))
    assert cloning.described(spec, [], ["52:54:00:00:00:09"]).seed.digest == seeds.seed({}, guest="web3").digest  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"name": "web1"}, "clone_of of web1: a guest is no copy of itself"),
        (
            {"name": "web3", "image": "a.qcow2"},
            "clone_of of web3: the disks are copies of that guest's; leave out one of clone_of and image",
        ),
        ({"name": "web3", "renamed_from": "web2"}, "leave out one of clone_of and renamed_from"),
        ({"name": "web3", "state": "absent"}, "leave it out to remove web3"),
    ],
)
def test_what_cannot_be_meant(said: dict[str, t.Any], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        options({"clone_of": "web1", **said})
