"""A copy of a guest: what it has of its original, what it has not, and what cannot be copied."""

from __future__ import annotations

import dataclasses
import email
import json
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._domain import xml_cloned
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import (
    Disk,
    FoundGuest,
    GuestSpec,
    Original,
    OriginalDisk,
    Seed,
)
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_cloning, plan_disk
from ansible_collections.corral.virt.plugins.module_utils._seed import plan_seed
from ansible_collections.corral.virt.plugins.module_utils._storage.model_header import Header
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import DiskOrigin, Site, SiteOf
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse
from ansible_collections.corral.virt.tests.golden.case import options

UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
OFF = FoundGuest("web1", "u1", "shutdown", persistent=True, autostart=True, xml="<domain/>")
COPY = GuestSpec("web3", clone_of="web1")
GIB = 1024**3
XML = """<domain type='kvm'><name>web1</name><uuid>11111111-f6a4-8304-79aa-97f2502e193f</uuid>
<hwuuid>11111111-f6a4-8304-79aa-97f2502e193f</hwuuid>
<genid>43dc0cf8-809b-4adb-9bea-a9abb5f3d90e</genid><title>Web</title>
<metadata xmlns:corral='urn:corral:virt:guest:1'><corral:guest><corral:tag>front</corral:tag>
<corral:tag>apart-web</corral:tag><corral:seed sha256='a' instance-id='b'/>
<corral:volume>/p/web1-system.qcow2</corral:volume></corral:guest><other:owner xmlns:other='urn:other'/>
<libosinfo:libosinfo xmlns:libosinfo='http://libosinfo.org/xmlns/libvirt/domain/1.0'/></metadata>
<sysinfo type='smbios'><system><entry name='uuid'>11111111-f6a4-8304-79aa-97f2502e193f</entry>
<entry name='family'>x</entry></system></sysinfo>
<os><loader type='pflash' readonly='no'>/v/web1-code.fd</loader><nvram template='/t' type='file'>/v/web1.fd<source file='/v/web1.fd'/></nvram></os><devices>
<disk><source file='/p/web1-system.qcow2'/><target dev='vda'/><alias name='ua-system'/></disk>
<disk><source file='/p/web1-seed.iso'/><target dev='vdb'/><alias name='ua-seed'/></disk>
<interface type='bridge'><mac address='52:54:00:00:00:01'/><source bridge='br0'/><target dev='vnet7'/><alias name='ua-eth0'/>
<virtualport type='openvswitch'><parameters interfaceid='9c6e5ef2-2c2b-4b5c-8a0b-4a5f3a8b6a01' profileid='p'/></virtualport>
<filterref filter='clean-traffic'><parameter name='IP' value='10.0.0.9'/><parameter name='CTRL' value='x'/></filterref></interface>
<interface type='vhostuser'><mac address='52:54:00:00:00:03'/><source type='unix' path='/run/switch' mode='client'/></interface>
<interface type='network'><mac address='52:54:00:00:00:02'/></interface>
<serial type='file'><source path='/log/web1'/><log file='/log/web1.log'/></serial>
<channel type='unix'><source mode='bind' path='/var/lib/libvirt/qemu/channel/target/web1.agent'/></channel>
<channel type='unix'><source mode='bind' path='/srv/web1.sock'/></channel>
<channel type='unix'><source mode='connect' path='/srv/all.sock'/></channel>
<serial type='tcp'><source mode='bind' host='127.0.0.1' service='4555'/></serial>
<memory model='nvdimm'><source><path>/srv/nvdimm</path></source></memory><pstore backend='acpi-erst'><path>/v/web1.raw</path></pstore>
<graphics type='vnc' port='5905' autoport='no' websocket='5705' socket='/srv/vnc'><listen type='socket' socket='/srv/vnc'/></graphics>
<graphics type='spice' autoport='yes'/><vsock><cid auto='no' address='7'/></vsock></devices></domain>"""


@pytest.fixture(scope="module")
def root() -> t.Any:
    """The definition of a copy of the above."""
    return parse(xml_cloned.document(XML, name="web3", uuid=UUID))


def test_a_copy_is_a_guest_of_its_own(root: t.Any) -> None:
    assert (root.findtext("name"), root.findtext("uuid"), root.findtext("title")) == ("web3", UUID, "Web")
    assert not root.findtext("genid") and root.find("genid") is not None
    assert [entry.get("name") for entry in root.findall("sysinfo/system/entry")] == ["family"]
    [nvram] = root.findall("os/nvram")
    assert dict(nvram.attrib) == {"template": "/t"} and not nvram.text and not len(nvram)
    macs = [mac.get("address") for mac in root.findall("devices/interface/mac")]
    assert len(set(macs)) == 3 and all(mac.startswith("52:54:00:") and mac[:-1] != "52:54:00:00:00:0" for mac in macs)
    assert root.find("devices/interface/target") is None and root.find("hwuuid") is None
    assert root.find("devices/pstore/path") is None
    assert [one.get("name") for one in root.findall("devices/interface/filterref/parameter")] == ["CTRL"]
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
    mine = {
        "/log/web1",
        "/log/web1.log",
        "/srv/web1.sock",
        "/run/switch",
        "port 4555",
        "/srv/nvdimm",
        "/v/web1-code.fd",
    }
    assert xml_cloned.own_files(XML) >= mine and "/srv/all.sock" not in xml_cloned.own_files(XML)
    after = xml_cloned.own_files(xml_cloned.document(XML, name="web3", uuid=UUID))
    assert after == mine, "what libvirt named after the guest, it names anew"
    with pytest.raises(
        Refused, match=r"a copy of web1: devices of both would use /log/web1, .*/srv/web1\.sock.*; set others for web3"
    ):
        plan_cloning.check_files(COPY, xml_cloned.own_files(XML), after)
    plan_cloning.check_files(COPY, xml_cloned.own_files(XML), {"/log/web3"})


@pytest.mark.parametrize(
    ("original", "more", "said"),
    [
        (None, {}, "there is no guest web1 here; a copy is created on the host that has the guest"),
        (
            dataclasses.replace(OFF, state="running", live_xml="<domain/>"),
            {},
            "web1 is running, and would write to its disks .* shut it down first",
        ),
        (
            OFF,
            {"recorded": {"moving": "h2"}},
            "the migration of web1 is in progress or .* finish it with virt_migrate .playbook migrate.$",
        ),
        (OFF, {"recorded": {"making": ["/a"]}}, "an interrupted run left /a incomplete"),
        (OFF, {"recorded": {"seed": "x"}}, "cloud-init is disabled in web1"),
        (OFF, {"managed_state": ["managed_save"]}, "web1 has a managed save, .*virsh managedsave-remove web1"),
    ],
)
def test_what_is_not_copied(original: FoundGuest | None, more: dict[str, t.Any], said: str) -> None:
    with pytest.raises(VirtError, match=f"^cannot create web3 as a copy of web1: {said}"):
        plan_cloning.checked(COPY, original, **{"managed_state": (), "recorded": {}, "seed": False, **more})


def test_snapshots_of_the_original_stay_with_it() -> None:
    assert (
        plan_cloning.checked(COPY, OFF, managed_state=["snapshots", "nvram"], recorded={"seed": "x"}, seed=True) is OFF
    )


SYSTEM = OriginalDisk("system", "vda", "/p/web1-system.qcow2", "qcow2", shared=False)


def read(xml: str) -> OriginalDisk:
    """The one disk of a definition."""
    [found] = xml_cloned.disks(f"<domain><devices>{xml}</devices></domain>")
    return found


@pytest.mark.parametrize(
    ("xml", "wanted"),
    [
        (
            "<disk type='file'><driver type='qcow2'/><source file='/p/a'/><target dev='vda'/></disk>",
            ("qcow2", False, ""),
        ),
        ("<disk type='file'><source file='/p/a'/><target dev='vda'/></disk>", ("raw", False, "")),
        ("<disk type='file'><source file='/p/a'/><target dev='vda'/><readonly/></disk>", ("raw", True, "")),
        ("<disk type='file'><source file='/p/a'/><target dev='vda'/><shareable/></disk>", ("raw", True, "")),
        (
            "<disk type='file' device='cdrom'><target dev='sda'/></disk>",
            ("raw", True, "it is neither a file nor a block device"),
        ),
        (
            "<disk type='file' device='floppy'><source file='/p/a'/><target dev='fda'/></disk>",
            ("raw", True, "it is neither a file nor a block device"),
        ),
        ("<disk type='block'><source dev='/dev/vg/a'/><target dev='vda'/></disk>", ("raw", False, "")),
        (
            "<disk type='file' device='lun'><source file='/p/a'/><target dev='sda'/></disk>",
            ("raw", False, "it is neither a file nor a block device"),
        ),
        (
            "<disk type='volume'><source pool='a' volume='b'/><target dev='vda'/></disk>",
            ("raw", False, "it is neither a file nor a block device"),
        ),
        (
            "<disk type='network'><source protocol='nfs' name='/p/a'/><target dev='vda'/></disk>",
            ("raw", False, "it is neither a file nor a block device"),
        ),
        (
            "<disk type='file'><source file='/p/a'><encryption format='luks'/></source><target dev='vda'/></disk>",
            ("raw", False, "it is encrypted"),
        ),
        (
            "<disk type='file'><source file='/p/a'><slices/></source><target dev='vda'/></disk>",
            ("raw", False, "it is only a part of its file"),
        ),
    ],
)
def test_what_a_disk_of_the_original_is(xml: str, wanted: tuple[str, bool, str]) -> None:
    found = read(xml)
    assert (found.format, found.shared, found.obstacle) == wanted


def test_the_seed_of_the_original_is_none_of_its_disks() -> None:
    assert [one.name for one in xml_cloned.disks(XML)] == ["system"]


def test_which_disks_a_copy_gets_its_own_of() -> None:
    data = dataclasses.replace(SYSTEM, name="data", target="vdb", path="/p/b.img", format="raw")
    media = dataclasses.replace(
        SYSTEM, name="cd", target="sda", shared=True, obstacle="it is neither a file nor a block device"
    )
    system, more = plan_cloning.described(COPY, [SYSTEM, data, media]).disks or ()
    assert system == Disk("system", fields={"format": "qcow2"}, copy_of=Original("web1", SYSTEM.path, "qcow2"))
    assert more == Disk("data", fields={"format": "raw"}, copy_of=Original("web1", data.path, "raw"))


def test_a_disk_that_cannot_be_copied_must_be_spoken_of() -> None:
    found = dataclasses.replace(SYSTEM, obstacle="it is encrypted")
    with pytest.raises(
        BadInput, match="cannot copy disk system of web1 for web3: it is encrypted; list a disk of that name for web3"
    ):
        plan_cloning.described(COPY, [found])
    for name in ("system", "vda"):
        for item in (Disk(name, state="absent"), Disk(name, image="a.qcow2")):
            assert plan_cloning.described(COPY.with_fields(disks=(item,)), [found]).disks == (item,)
        for way in ("source", "volume", "url"):
            item = Disk(name, fields={way: "x"})
            assert plan_cloning.described(COPY.with_fields(disks=(item,)), [found]).disks == (item,)


def test_what_is_said_of_a_disk_holds_for_its_copy() -> None:
    """By its name, or where the guest has it."""
    more = Disk("more", size_bytes=GIB)
    for name in ("system", "vda"):
        output = Disk(name, fields={"format": "raw", "cache": "none"}, size_bytes=9 * GIB, pool="fast")
        first, last = plan_cloning.described(COPY.with_fields(disks=(more, output)), [SYSTEM]).disks or ()
        assert last == more and first == dataclasses.replace(output, copy_of=Original("web1", SYSTEM.path, "qcow2"))
        assert plan_disk.new_site("web3", first) == SiteOf("fast", f"web3-{name}.img", copy_of=SYSTEM.path)
    [silent] = plan_cloning.described(COPY, [SYSTEM]).disks or ()
    assert plan_disk.new_site("web3", silent) == SiteOf(None, "web3-system.qcow2", copy_of=SYSTEM.path)


HALF = {"copy_of": "u1", "copying": ("/p/web3-data.qcow2",)}
DATA = dataclasses.replace(SYSTEM, name="data", path="/p/web1-data.qcow2")
BEGUN = {"system": "/p/web3-system.qcow2", "data": "/p/web3-data.qcow2", "vdb": "/p/web3-data.qcow2"}


def test_an_interrupted_copy_goes_on_with_what_is_missing() -> None:
    wanted = plan_cloning.resumed(COPY, OFF, [SYSTEM, DATA], HALF, BEGUN)
    assert [disk.name for disk in wanted.disks or ()] == ["data"]


@pytest.mark.parametrize(
    ("original", "disks", "said"),
    [
        (
            dataclasses.replace(OFF, uuid="u2"),
            [SYSTEM, DATA],
            "copied the guest with UUID u1, and web1 has UUID u2; remove",
        ),
        (OFF, [SYSTEM], "/p/web3-data.qcow2 is incomplete, and web1 no longer has the disk .*; remove web3"),
    ],
)
def test_half_a_copy_of_one_guest_is_not_completed_with_another(
    original: FoundGuest, disks: list[OriginalDisk], said: str
) -> None:
    with pytest.raises(Refused, match=f"cannot finish web3.*{said}"):
        plan_cloning.resumed(COPY, original, disks, HALF, BEGUN)
    with pytest.raises(
        Refused, match=r"cannot change web3: an interrupted run was creating it as a copy.*set clone_of"
    ):
        plan_cloning.refuse_half(COPY)


POOL = PoolDirectory("default", "dir", "/p", here=True)
ORIGIN = DiskOrigin(
    "/p/web1-system.qcow2",
    "/p/web1-system.qcow2",
    "qcow2",
    8 * GIB,
    Header("qcow2"),
    managed=False,
    guest="web1",
    uri="qemu:///system",
    here=True,
    written=False,
)


@pytest.mark.parametrize(("size", "wanted"), [(None, 8 * GIB), (8 * GIB, 8 * GIB), (9 * GIB, 9 * GIB)])
def test_a_copied_disk_backing_file_nothing_and_may_be_larger(size: int | None, wanted: int) -> None:
    item = Disk("system", fields={"format": "qcow2"}, size_bytes=size, copy_of=Original("web1", ORIGIN.path, "qcow2"))
    volume = plan_disk.new_volume_of("web3", item, Site(POOL, origin=ORIGIN))
    assert (volume.path, volume.capacity_bytes, volume.copy_of, volume.backing_path) == (
        "/p/web3-system.qcow2",
        wanted,
        ORIGIN.path,
        None,
    )


@pytest.mark.parametrize(
    ("item", "origin", "said"),
    [
        (
            {"size_bytes": GIB},
            ORIGIN,
            "disk system of web3: size 1 GiB is smaller than disk system of web1 \\(8 GiB\\)",
        ),
        ({}, None, "cannot copy disk system of web1 for web3: /p/web1-system.qcow2 does not exist"),
        (
            {},
            dataclasses.replace(ORIGIN, here=False, uri="qemu+ssh://h/system"),
            "cannot copy disk system of web1 for web3 over qemu.ssh://h/system: from here",
        ),
        ({}, dataclasses.replace(ORIGIN, header=Header("raw")), "web1 uses it as qcow2, and its first bytes say raw"),
        (
            {},
            dataclasses.replace(ORIGIN, written=True),
            "a QEMU process, perhaps on another host, writes to /p/web1-system.qcow2",
        ),
        ({}, dataclasses.replace(ORIGIN, written=True, path="/p/a b"), "`fuser -v '/p/a b'` shows which"),
        ({}, dataclasses.replace(ORIGIN, format="raw"), "web1 uses it as qcow2, and its first bytes say raw"),
    ],
)
def test_disks_that_are_not_copied(item: dict[str, t.Any], origin: DiskOrigin | None, said: str) -> None:
    wanted = Disk("system", fields={"format": "qcow2"}, copy_of=Original("web1", ORIGIN.path, "qcow2"), **item)
    with pytest.raises(VirtError, match=said):
        plan_disk.new_volume_of("web3", wanted, Site(POOL, origin=origin))


def test_what_a_guest_wrote_into_a_raw_disk_is_not_believed() -> None:
    wanted = Disk("system", fields={"format": "raw"}, copy_of=Original("web1", ORIGIN.path, "raw"))
    with pytest.raises(Refused, match="web1 uses it as raw, and its first bytes say qcow2"):
        plan_disk.new_volume_of("web3", wanted, Site(POOL, origin=ORIGIN))


def seed_of(
    said: dict[str, t.Any] | None, macs: t.Sequence[str] = ("52:54:00:00:00:09",), uuid: str = UUID, **more: t.Any
) -> Seed:
    """What is told to a copy."""
    spec = COPY if said is None else dataclasses.replace(COPY, seed=plan_seed.seed(said, guest="web3"))
    seed = plan_cloning.seeded(spec, uuid=uuid, macs=macs, **more).seed
    assert seed is not None
    return seed


def seeded(said: dict[str, t.Any] | None, macs: t.Sequence[str] = ("52:54:00:00:00:09",)) -> dict[str, str]:
    """The files of a copy's seed."""
    return plan_seed.files(seed_of(said, macs), guest="web3", host_key=("PRIVATE", "PUBLIC"))


def parts_of(files: dict[str, str]) -> list[email.message.Message]:
    """Of the vendor data."""
    return t.cast("list[email.message.Message]", email.message_from_string(files["vendor-data"]).get_payload())


def test_a_copy_is_told_who_it_is() -> None:
    files = seeded(None)
    assert json.loads(files["meta-data"])["local-hostname"] == "web3"
    nic = {"match": {"macaddress": "52:54:00:00:00:09"}, "dhcp4": True, "dhcp-identifier": "mac"}
    assert json.loads(files["network-config"]) == {"version": 2, "ethernets": {"nic0": nic}}
    assert seed_of(None).network_config == json.dumps({"ethernets": {"nic0": dict(sorted(nic.items()))}, "version": 2})
    config, hook = parts_of(files)
    assert [part.get_content_type() for part in (config, hook)] == ["text/cloud-config", "text/cloud-boothook"]
    assert f"cloud-init-per once machine-id-of-{UUID} " in str(hook.get_payload())
    assert '"PRIVATE"' in str(config.get_payload())


def test_a_copy_is_a_new_instance_whatever_its_disk_has_seen() -> None:
    """Another copy of the same name, told the same, may have been its original."""
    ids = {plan_seed.instance_id(seed_of({}, uuid=uuid), "web3") for uuid in (UUID, "another")}
    assert len(ids | {plan_seed.instance_id(plan_seed.seed({}, guest="web3"), "web3")}) == 3
    own = {"meta_data": {"instance-id": "i-7"}}
    with pytest.raises(BadInput, match="web1 has the instance-id i-7, so cloud-init would do nothing"):
        seed_of(own, original={"instance_id": "i-7"})
    for original in ({"instance_id": "i-8"}, {}, None):
        assert plan_seed.instance_id(seed_of(own, original=original), "web3") == "i-7"
    assert seed_of({}, original={"seed": "x"}).meta_data == {}, "a guest without an instance-id of its own"


def test_what_keeps_the_seed_out_is_refused() -> None:
    output = {"user_data": {"vendor_data": {"enabled": False}, "ssh_keys": {"rsa_private": "x"}}}
    with pytest.raises(BadInput, match=r"vendor_data\.enabled: false disables what gives a copy its own machine ID"):
        seed_of(output)


def test_what_the_user_says_of_the_network_goes_before() -> None:
    output = {"network_config": {"config": "disabled"}}
    assert json.loads(seeded(output)["network-config"]) == {"config": "disabled"}
    assert "network-config" not in seeded({}, macs=())


def test_all_that_is_told_to_a_copy_reaches_it() -> None:
    script, own_key = "#!/bin/sh\ntrue\n", {"ssh_keys": {"rsa_private": "x"}}
    cases: list[tuple[dict[str, t.Any], list[str]]] = [
        ({"vendor_data": script}, ["text/plain", "text/cloud-config", "text/cloud-boothook"]),
        ({"vendor_data": {"packages": ["vim"]}}, ["text/cloud-config", "text/cloud-boothook"]),
        ({"vendor_data": script, "user_data": own_key}, ["text/plain", "text/cloud-boothook"]),
        ({"vendor_data": {"a": 1}, "user_data": own_key}, ["text/plain", "text/cloud-boothook"]),
    ]
    for output, kinds in cases:
        assert [part.get_content_type() for part in parts_of(seeded(output))] == kinds, output
    assert seeded({"user_data": own_key})["vendor-data"].startswith("#cloud-boothook\n")


def test_the_same_seed_is_told_to_be_the_same_later() -> None:
    """Whether or not `clone_of` is still said."""
    assert seed_of({}).digest == plan_seed.seed({}, guest="web3").digest


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"name": "web1"}, "clone_of of web1: a guest cannot be a copy of itself"),
        ({"image": "a.qcow2"}, "clone_of of web3: clone_of and image are mutually exclusive; omit one of them"),
        ({"renamed_from": "web2"}, "clone_of and renamed_from are mutually exclusive"),
        ({"virt_type": "kvm"}, "clone_of and virt_type are mutually exclusive"),
        ({"state": "absent"}, "clone_of and state: absent are mutually exclusive"),
        ({"clone_of": "a/b"}, "clone_of of web3: 'a/b' is not a valid name"),
    ],
)
def test_what_cannot_be_meant(said: dict[str, t.Any], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        options({"name": "web3", "clone_of": "web1", **said})
