"""What a guest needs of the host that it runs on, and how its definition waits on another."""

from __future__ import annotations

import re
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._domain import xml_host_bindings

SILENT: dict[str, t.Any] = {
    "memory_mib": 2048,
    "machine": "",
    "virt_type": "kvm",
    "cpu_mode": "",
    "bridges": (),
    "devices": (),
}


def domain(inside: str = "", *, devices: str = "", machine: str = "") -> str:
    """A document with 2 GiB of memory."""
    return (
        f"<domain type='kvm'><name>web1</name><memory>2098175</memory>{inside}<os><type{machine}>hvm</type></os>"
        f"<devices>{devices}</devices></domain>"
    )


def tidy(xml: str) -> str:
    """One line, with quotes as here."""
    return "".join(map(str.strip, xml.splitlines())).replace('"', "'").replace("<devices></devices>", "<devices/>")


@pytest.mark.parametrize(
    ("xml", "needs"),
    [
        (domain(), {}),
        (domain("<currentMemory>1048576</currentMemory>"), {"memory_mib": 1024}),
        (domain(machine=" machine='pc-q35-7.2'"), {"machine": "pc-q35-7.2"}),
        (domain("<cpu mode='host-passthrough'/>"), {"cpu_mode": "host-passthrough"}),
        (domain("<cpu><model>Nehalem</model></cpu>"), {"cpu_mode": "custom"}),
        (domain().replace("'kvm'", "'qemu'"), {"virt_type": "qemu"}),
    ],
)
def test_memory_machine_and_processor_that_a_guest_needs(xml: str, needs: dict[str, t.Any]) -> None:
    assert xml_host_bindings.needs(xml) == {**SILENT, **needs}


@pytest.mark.parametrize(
    ("devices", "needs"),
    [
        ("<interface type='bridge'><source bridge='br1'/></interface>", {"bridges": ("br1",)}),
        ("<interface type='direct'><source dev='eth0'/></interface>", {}),
        ("<interface type='network'><source network='lan' bridge='virbr0'/></interface>", {}),
        ("<interface type='user'/><interface type='bridge'><source/></interface>", {}),
        ("<interface type='ethernet'><source dev='tap0'/></interface>", {}),
        (
            (
                "<interface type='bridge'><source bridge='br1'/></interface>"
                "<interface type='network'><source network='wan'/></interface>"
                "<interface type='bridge'><source bridge='br0'/></interface>"
                "<interface type='network'><source network='lan'/></interface>"
                "<interface type='bridge'><source bridge='br1'/></interface>"
            ),
            {"bridges": ("br0", "br1")},
        ),
    ],
)
def test_bridges_that_a_guest_is_plugged_into(devices: str, needs: dict[str, t.Any]) -> None:
    assert xml_host_bindings.needs(domain(devices=devices)) == {**SILENT, **needs}


@pytest.mark.parametrize(
    ("devices", "told"),
    [
        ("<hostdev type='pci'/>", ("a pci device",)),
        (
            "<interface type='hostdev'><mac address='52:54:00:12:34:56'/></interface>",
            ("the network device of 52:54:00:12:34:56",),
        ),
        ("<interface type='bridge'><mac address='52:54:00:12:34:56'/></interface>", ()),
        ("<filesystem><source dir='/srv/share'/></filesystem>", ("directory /srv/share",)),
        ("<filesystem><source file='/srv/image'/></filesystem>", ("directory ?",)),
        ("<shmem name='a'/>", ("shared memory",)),
        ("<disk device='floppy'><source file='/f'/></disk>", ("a floppy",)),
        ("<disk device='floppy'/>", ()),
        ("<disk device='floppy'><source index='2'/></disk>", ()),  # empty, of a running guest
        (
            (
                "<disk type='nvme' device='disk'><source type='pci' namespace='1'>"
                "<address domain='0x0000' bus='0x01' slot='0x00' function='0x0'/></source></disk>"
            ),
            ("the NVMe device 0000:01:00.0",),
        ),
        ("<disk type='nvme' device='disk'><source type='pci' namespace='1'/></disk>", ("an NVMe device",)),
        ("<disk type='dir' device='disk'><source dir='/srv/fat'/></disk>", ("directory /srv/fat",)),
        ("<disk type='vhostuser'><source type='unix' path='/run/blk'/></disk>", ()),
        (
            "<disk type='network'><source protocol='nbd'><host transport='unix' socket='/run/nbd'/></source></disk>",
            (),
        ),
        ("<disk type='vhostvdpa'><source dev='/dev/vhost-vdpa-0'/></disk>", ()),
        ("<disk type='network'><source protocol='rbd' name='p/i'><host name='mon1'/></source></disk>", ()),
        ("<disk type='volume'><source pool='p' volume='v'/></disk>", ()),
        ("<disk device='disk'><source file='/a'/></disk>", ()),
    ],
)
def test_devices_that_tie_a_guest_to_its_host(devices: str, told: tuple[str, ...]) -> None:
    assert xml_host_bindings.needs(domain(devices=devices)) == {**SILENT, "devices": told}


@pytest.mark.parametrize(
    ("inside", "cpu"),
    [
        ("", None),
        ("<cpu mode='host-passthrough'/>", None),
        ("<cpu mode='custom'><model>Nehalem</model></cpu>", "<cpu mode='custom'><model>Nehalem</model></cpu>"),
    ],
)
def test_the_processor_that_a_guest_was_given(inside: str, cpu: str | None) -> None:
    found, machine, virt_type = xml_host_bindings.cpu(domain(inside, machine=" machine='pc-q35-7.2'"))
    assert (found and tidy(found)) == cpu
    assert (machine, virt_type) == ("pc-q35-7.2", "kvm")


@pytest.mark.parametrize(
    ("xml", "files"),
    [
        (domain(), []),
        (domain().replace("<os>", "<os firmware='bios'>"), []),
        (domain().replace("<os>", "<os firmware='efi'>"), ["/var/lib/libvirt/qemu/nvram/web1_VARS.fd"]),
        (domain().replace("<os>", "<os firmware='efi'><nvram>/srv/web1.fd</nvram>"), ["/srv/web1.fd"]),
        (domain().replace("<os>", "<os><nvram>/srv/web1.fd</nvram>"), ["/srv/web1.fd"]),
        (
            domain().replace("<os>", "<os firmware='efi'><nvram/>"),
            ["/var/lib/libvirt/qemu/nvram/web1_VARS.fd"],
        ),
        (domain().replace("<os>", "<os><nvram/>"), []),
        (
            domain().replace("<os>", "<os firmware='efi'><nvram type='file'><source file='/srv/web1.fd'/></nvram>"),
            ["/srv/web1.fd"],
        ),
        (domain().replace("<os>", "<os firmware='efi'><nvram type='network'><source protocol='nbd'/></nvram>"), []),
    ],
)
def test_uefi_variables_are_the_only_file_beside_the_disks(xml: str, files: list[str]) -> None:
    assert xml_host_bindings.files(xml) == files


def with_disks(*found: str, kernel: str = "") -> str:
    """A document whose disks have these sources, and that boots this kernel."""
    document = domain(devices="".join(f"<disk><source {source}/></disk>" for source in found))
    return document.replace("</os>", f"<kernel>{kernel}</kernel></os>") if kernel else document


@pytest.mark.parametrize(
    ("found", "waiting"),
    [
        ([], []),
        (["file='/a.qcow2'"], ["file='/a.qcow2.arriving'"]),
        (["dev='/dev/sdb'"], ["dev='/dev/sdb.arriving'"]),
        (["protocol='nbd' name='x'"], ["protocol='nbd' name='x'"]),
        (
            ["pool='fast' volume='data'", "file='/a'", "protocol='nbd' name='x'", "file='/b'"],
            ["pool='fast' volume='data'", "file='/a.arriving'", "protocol='nbd' name='x'", "file='/b.arriving'"],
        ),
    ],
)
@pytest.mark.parametrize(("kernel", "no_kernel"), [("", "/.arriving"), ("/boot/vmlinuz", "/boot/vmlinuz.arriving")])
def test_a_definition_that_waits_cannot_be_started(
    found: list[str], waiting: list[str], kernel: str, no_kernel: str
) -> None:
    before, after = with_disks(*found, kernel=kernel), with_disks(*waiting, kernel=no_kernel)
    name = re.findall("<name>(.*)</name>", before)[0]
    assert tidy(xml_host_bindings.reserved(before, name)) == tidy(after)
    assert "<name>arriving-1</name>" in xml_host_bindings.reserved(before, "arriving-1")
    assert tidy(xml_host_bindings.released(after)) == tidy(xml_host_bindings.released(before)) == tidy(before)
    assert xml_host_bindings.is_reserved(after) and not xml_host_bindings.is_reserved(before)


@pytest.mark.parametrize(
    ("there", "nvram"),
    [
        ("/var/lib/libvirt/qemu/nvram/arriving-1_VARS.fd", "/var/lib/libvirt/qemu/nvram/web1_VARS.fd"),
        ("/srv/other_VARS.fd", "/srv/other_VARS.fd"),
    ],
)
def test_a_guest_gets_its_own_variables_where_libvirt_named_them_after_the_one_that_waits(
    there: str, nvram: str
) -> None:
    xml = f"<domain><name>web1</name><uuid>1</uuid><os><nvram>{there}</nvram></os><devices/></domain>"
    released = xml_host_bindings.released(xml)
    assert xml_host_bindings.files(released) == [nvram] and "arriving" not in released


def test_a_definition_with_an_empty_kernel_does_not_wait() -> None:
    xml = domain().replace("</os>", "<kernel/></os>")
    assert not xml_host_bindings.is_reserved(xml)
    assert tidy(xml_host_bindings.released(xml)) == xml.replace("<kernel/>", "<kernel></kernel>").replace(
        "<devices></devices>", "<devices/>"
    )


def test_a_disk_whose_name_ends_as_if_it_waited_does_not() -> None:
    assert not xml_host_bindings.is_reserved(with_disks("file='/a.arriving'"))


@pytest.mark.parametrize(
    ("xml", "paths"),
    [
        ("<domain><os/><devices/></domain>", []),
        ("<domain><devices><tpm><backend type='emulator'/></tpm></devices></domain>", []),
        (
            "<domain><devices><tpm><backend type='emulator'><source path='/t'/></backend></tpm></devices></domain>",
            ["/t"],
        ),
        ("<domain><devices><tpm><backend type='external'><source path='/t'/></backend></tpm></devices></domain>", []),
        ("<domain><devices><pstore backend='acpi-erst'><path>/p</path></pstore></devices></domain>", ["/p"]),
        ("<domain><os><varstore path='/v'/></os></domain>", ["/v"]),
        ("<domain><os><loader type='rom'>/f</loader></os></domain>", []),
        (
            "<domain><devices><memory model='virtio-pmem'><source><path>/m</path></source></memory></devices></domain>",
            ["/m"],
        ),
        ("<domain><devices><memory model='dimm'><source><path>/m</path></source></memory></devices></domain>", []),
        (
            "<domain><devices><memory model='nvdimm'><source><path>/m</path></source></memory></devices></domain>",
            ["/m"],
        ),
        (
            (
                "<domain><devices><memory model='nvdimm'><source><path>/m</path></source><target><readonly/></target>"
                "</memory></devices></domain>"
            ),
            [],
        ),
        ("<domain><os><loader type='pflash' readonly='yes'>/f</loader></os></domain>", []),
        ("<domain><os><loader type='pflash'>/f</loader></os></domain>", ["/f"]),
    ],
)
def test_what_a_guest_keeps_beside_its_disks(xml: str, paths: list[str]) -> None:
    assert xml_host_bindings.local_state(xml) == paths


def _disks(vda: str, kind: str = "qcow2", more: str = "") -> str:
    return (
        "<domain><name>a</name><os><type>hvm</type></os><devices><disk type='file' device='disk'>"
        f"<driver name='qemu' type='{kind}'/><source file='{vda}'/>{more}<target dev='vda'/></disk>"
        "<disk type='block' device='disk'><driver name='qemu' type='raw'/><source dev='/dev/sdx'/><target dev='vdb'/>"
        "</disk><disk type='file' device='cdrom'><target dev='sda'/></disk></devices></domain>"
    )


@pytest.mark.parametrize(
    ("live", "wanted"),
    [
        (_disks("/a.qcow2"), _disks("/a.qcow2")),
        (_disks("/a.s1"), _disks("/a.s1", more="<backingStore/>")),
        (_disks("/a.raw", "raw"), _disks("/a.raw", "raw")),
        ("<domain><devices/></domain>", _disks("/a.s1", more="<backingStore/>")),
        (_disks("/a.raw").replace("type='file'", "type='network'"), _disks("/a.s1", more="<backingStore/>")),
    ],
    ids=["merged", "as it came", "converted", "detached", "elsewhere"],
)
def test_a_guest_whose_owner_merged_a_snapshot_since_it_arrived_is_stored_with_what_it_writes_to(
    live: str, wanted: str
) -> None:
    waiting = xml_host_bindings.reserved(_disks("/a.s1", more="<backingStore/>"), "a")
    assert tidy(xml_host_bindings.released(waiting, live)) == tidy(wanted)


def test_no_other_path_changes_with_the_disks() -> None:
    disk = "<disk><source file='{}'/><backingStore><source file='/a/x'/></backingStore></disk>"
    other = "<disk><source dev='/dev/a'/></disk><disk/><interface><source bridge='/a/x'/></interface>"
    xml = f"<domain><devices>{disk.format('/a/x')}{disk.format('/a/y')}{other}</devices></domain>"
    assert xml_host_bindings.with_disks(xml, {}) == xml
    there = f"<domain><devices>{disk.format('/b/x')}{disk.format('/a/y')}{other}</devices></domain>"
    assert tidy(xml_host_bindings.with_disks(xml, {"/a/x": "/b/x"})) == tidy(there)


@pytest.mark.parametrize(
    ("path", "there"), [("/dev/vg/a", "/dev/other/a"), ("/dev/vg/a", "/srv/a.img"), ("/srv/a.img", "/dev/vg/a")]
)
def test_a_disk_becomes_a_file_or_a_block_device(path: str, there: str) -> None:
    forms = {
        True: "<disk type='block'><source dev='{}'/></disk>",
        False: "<disk type='file'><source file='{}'/></disk>",
    }
    before, after = (
        f"<domain><devices>{forms[one.startswith('/dev/')].format(one)}</devices></domain>" for one in (path, there)
    )
    assert tidy(xml_host_bindings.with_disks(before, {path: there})) == tidy(after)


UEFI = "<os><type arch='x86_64' machine='q35'>hvm</type><loader>{}</loader><nvram template='{}'>/v</nvram></os>"


def test_no_other_path_changes_with_the_firmware() -> None:
    xml = f"<domain>{UEFI.format('/a/code', '/a/vars')}</domain>"
    assert xml_host_bindings.firmware(xml) == ("/a/code", "/a/vars", "x86_64", "q35")
    assert xml_host_bindings.with_firmware(xml, {}) == xml
    there = xml_host_bindings.with_firmware(xml, {"/a/code": "/b/code", "/a/vars": "/b/vars", "/v": "/w"})
    assert tidy(there) == f"<domain>{UEFI.format('/b/code', '/b/vars')}</domain>"
    plain = "<domain><os><type>hvm</type></os></domain>"
    assert xml_host_bindings.firmware(plain) == ("", "", "", "")
    assert tidy(xml_host_bindings.with_firmware(plain, {"": "/b"})) == plain
