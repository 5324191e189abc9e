"""Twice as many entries are twice the work: of options, grafting, checking and import."""

from __future__ import annotations

import sys
import typing as t

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._domain import (
    fields_disk,
    fields_domain,
    xml_new,
    xml_validate,
)
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_arguments import imported
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_options import GUEST_OPTIONS, wanted
from ansible_collections.corral.virt.plugins.module_utils._network import fields_network, xml_network
from ansible_collections.corral.virt.plugins.module_utils._noun import xml_document
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse, text

Entry = t.Mapping[str, t.Any]
ENTRIES: dict[str, t.Callable[[int], Entry]] = {
    "disks": lambda number: {"name": f"d{number}", "source": f"/dev/d{number}", "bus": ("scsi", "virtio")[number % 2]},
    "interfaces": lambda number: {"name": f"n{number}", "bridge": "br0", "boot_order": number + 1},
    "hostdevs": lambda number: {"name": f"h{number}", "address": f"0000:{number:02x}:00.0"},
    "channels": lambda number: {"name": f"org.example.{number}"},
    "filesystems": lambda number: {"name": f"f{number}", "source": f"/srv/{number}", "driver": "path"},
    "controllers": lambda number: {"type": "scsi", "index": number, "model": "virtio-scsi"},
}


class Steps:
    """How many lines of the collection, and calls of others, run: work that no clock measures."""

    def __init__(self, work: t.Callable[[], None]) -> None:
        self.count = 0
        before = sys.getprofile(), sys.gettrace()
        sys.setprofile(self._called)
        sys.settrace(self._traced)
        try:
            work()
        finally:
            sys.setprofile(before[0])
            sys.settrace(before[1])

    def _called(self, _frame: t.Any, event: str, _argument: t.Any) -> None:
        self.count += event == "c_call"

    def _traced(self, frame: t.Any, event: str, _argument: t.Any) -> t.Any:
        self.count += event == "line"
        return self._traced if "/_xml/" in frame.f_code.co_filename or "/_front/" in frame.f_code.co_filename else None


def whole_path(option: str, count: int) -> None:
    """From options to a new guest, to the same guest again, and back to options."""
    output = {"name": "g", "vcpus": 2, "memory": 2048, option: [ENTRIES[option](number) for number in range(count)]}
    spec = wanted(ArgumentSpecValidator(GUEST_OPTIONS).validate(output).validated_parameters)
    uuid = "6695eb01-f6a4-8304-79aa-97f2502e193f"
    bare = xml_new.domain(name="g", uuid=uuid, virt_type="kvm", arch="x86_64", machine="pc")
    made = fields_domain.graft(bare, spec)
    assert len(made.devices) >= count
    assert xml_validate.problems(bare, spec, made) == []
    assert not fields_domain.graft(made.xml, spec).changes
    assert len(imported(made.xml, autostart=False).arguments[option]) >= count


TOLD_IN_XML: dict[str, t.Callable[[int], str]] = {
    "equal devices": lambda _number: "<redirdev bus='usb' type='spicevmc'/>",
    "devices without an identity": lambda number: f"<shmem name='s{number}'><size unit='M'>4</size></shmem>",
    "devices that differ far inside": lambda number: (
        "<hostdev mode='subsystem' type='mdev' model='vfio-pci'><source>"
        f"<address uuid='6695eb01-f6a4-8304-79aa-{number:012x}'/></source></hostdev>"
    ),
    "disks of a kind of their own": lambda number: (
        f"<disk type='vhostuser' device='disk'><driver name='qemu' type='raw'/><source type='unix' path='/{number}'/>"
        f"<target dev='sd{number}' bus='virtio'/></disk>"
    ),
}


def imported_xml(kind: str, count: int) -> None:
    """An import that options cannot tell, and its application to the guest itself."""
    os = "<os><type>hvm</type></os>"
    root = parse(f"<domain type='kvm'><name>g</name><memory>1</memory><vcpu>1</vcpu>{os}<devices/></domain>")
    root.find("devices").extend(parse(TOLD_IN_XML[kind](number)) for number in range(count))
    result = imported(text(root), autostart=False).arguments
    spec = wanted(ArgumentSpecValidator(GUEST_OPTIONS).validate(result).validated_parameters)
    assert len(parse(result["xml"]).findall("devices/*")) == count
    assert not fields_domain.graft(text(root), spec).changes


def least(option: str, count: int) -> None:
    """The least options of a guest that exists."""
    output = {"name": "g", "vcpus": 2, "memory": 2048, option: [ENTRIES[option](number) for number in range(count)]}
    spec = wanted(ArgumentSpecValidator(GUEST_OPTIONS).validate(output).validated_parameters)
    uuid = "6695eb01-f6a4-8304-79aa-97f2502e193f"
    bare = xml_new.domain(name="g", uuid=uuid, virt_type="kvm", arch="x86_64", machine="pc")
    result = imported(fields_domain.graft(bare, spec).xml, autostart=False, least=True).arguments[option]
    assert len(result) == count and set(result[0]) <= set(ENTRIES[option](0))


def hosts(count: int) -> None:
    """A network with many hosts, edited."""
    entries = [Item(f"10.0.{number >> 8}.{number & 255}", fields={"name": f"h{number}"}) for number in range(count)]
    fields = {"ips": (Item("10.0.0.1", fields={"prefix": 16, "dhcp.hosts": tuple(entries)}),)}
    bare = "<network><name>n</name><ip address='10.0.0.1' prefix='16'/></network>"
    edited = xml_document.edit(bare, fields, table=fields_network.NETWORK, shape=xml_network.SHAPE)
    assert len(edited.entries) > count


WORK: dict[str, t.Callable[[int], None]] = {
    **{option: lambda count, option=option: whole_path(option, count) for option in ENTRIES},  # type: ignore[misc]
    **{kind: lambda count, kind=kind: imported_xml(kind, count) for kind in TOLD_IN_XML},  # type: ignore[misc]
    "the least options": lambda count: least("filesystems", count),
    "dhcp.hosts": hosts,
}


@pytest.mark.parametrize("name", WORK)
def test_work_grows_as_the_number_of_entries(name: str) -> None:
    WORK[name](2)  # what is made once
    few, some, many = (Steps(lambda count=count: WORK[name](count)).count for count in (8, 18, 28))  # type: ignore[misc]
    assert many - some <= (some - few) * 1.05


@pytest.mark.parametrize(
    ("taken", "target"),
    [([], "vda"), (["vda", "vdc"], "vdb"), ([f"vd{chr(97 + one)}" for one in range(26)], "vdaa")],
)
def test_a_disk_gets_the_first_target_that_is_free(taken: list[str], target: str) -> None:
    disks = "".join(f"<disk><target dev='{one}'/></disk>" for one in taken)
    root = parse(f"<domain><devices>{disks}</devices></domain>")
    fields_disk.DISKS.graft(root, [Item("new", fields={"source": "/dev/x"})], "disks")
    assert root.findall("devices/disk/target")[-1].get("dev") == target


def test_a_thousand_disks_have_a_thousand_targets() -> None:
    root = parse("<domain><devices/></domain>")
    fields_disk.DISKS.graft(root, [Item(f"d{number}") for number in range(1000)], "disks")
    targets = [one.get("dev") for one in root.findall("devices/disk/target")]
    assert len(set(targets)) == 1000 and (targets[701], targets[702], targets[-1]) == ("vdzz", "vdaaa", "vdall")


def test_a_target_that_comes_free_is_given_again() -> None:
    root = parse("<domain><devices/></domain>")
    fields_disk.DISKS.graft(root, [Item(name) for name in "ab"], "disks")
    fields_disk.DISKS.graft(root, [Item("c"), Item("a", state="absent"), Item("d"), Item("e")], "disks")
    assert [one.get("dev") for one in root.findall("devices/disk/target")] == ["vdb", "vdc", "vda", "vdd"]
