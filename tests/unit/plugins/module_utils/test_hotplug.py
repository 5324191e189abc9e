"""What a running guest can get is predicted as libvirt decides it: seen with QEMU 7.2 in the lab, device by device."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._domain import xml_hotplug
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import (
    EXPRESS,
    PCI,
    Buses,
    FoundGuest,
    Grafted,
    GuestSpec,
    Plug,
)
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_changes, plan_guest_steps, plan_live

GUEST = "<domain type='kvm'><os><type machine='{}'>hvm</type></os><devices>{}</devices></domain>"
ROOT = "<controller type='pci' index='0' model='{}'/>"
PORT = "<controller type='pci' index='{0}' model='pcie-root-port'><target chassis='{0}'{1}/>{2}</controller>"
AT = "<address type='pci' domain='0x0000' bus='0x{:02x}' slot='0x{:02x}' function='0x{}'/>"
CARD = "<interface type='user'>{}</interface>"


def q35(*devices: str) -> Buses:
    """The buses of a guest with two ports, and these devices."""
    ports = (PORT.format(1, "", AT.format(0, 1, 0)), PORT.format(2, "", AT.format(0, 1, 1)))
    found = xml_hotplug.buses(GUEST.format("pc-q35-7.2", "".join((ROOT.format("pcie-root"), *ports, *devices))))
    assert found is not None
    return found


def free(buses: Buses) -> list[tuple[int, int]]:
    """Slots that nobody has."""
    return [slot for slot in buses.slots if not buses.used[slot]]


def test_the_ports_of_a_q35_machine() -> None:
    assert q35().slots == {(1, 0): EXPRESS, (2, 0): EXPRESS}
    assert q35().express and not q35().scsi
    assert free(q35(CARD.format(AT.format(1, 0, 0)))) == [(2, 0)]
    assert free(q35(PORT.format(3, " hotplug='off'", ""))) == [(1, 0), (2, 0)]
    assert free(q35(PORT.format(3, " hotplug='on'", ""))) == [(1, 0), (2, 0), (3, 0)]
    source = "<source><address type='pci' domain='0x0000' bus='0x01' slot='0x00' function='0x0'/></source>"
    assert free(q35(CARD.format(source + AT.format(2, 0, 0)))) == [(1, 0)]
    assert q35("<controller type='scsi' index='0'/>").scsi


def test_a_bridge_of_conventional_slots() -> None:
    bridge = f"<controller type='pci' index='3' model='pcie-to-pci-bridge'>{AT.format(1, 0, 0)}</controller>"
    buses = q35(bridge, CARD.format(AT.format(3, 2, 0)))
    assert [kind for slot, kind in buses.slots.items() if slot[0] == 3] == [PCI] * 31
    assert free(buses) == [(2, 0), (3, 1), *((3, slot) for slot in range(3, 32))]


@pytest.mark.parametrize("machine", ["pc", "pc-i440fx-7.2"])
def test_the_slots_of_a_pc(machine: str) -> None:
    """The first one is that of a bridge without an element."""
    buses = xml_hotplug.buses(GUEST.format(machine, ROOT.format("pci-root") + CARD.format(AT.format(0, 31, 0))))
    assert buses is not None and not buses.express
    assert free(buses) == [(0, slot) for slot in range(2, 31)]


def test_a_machine_with_another_bridge_has_all_slots() -> None:
    buses = xml_hotplug.buses(GUEST.format("pseries-7.2", ROOT.format("pci-root")))
    assert buses is not None and free(buses) == [(0, slot) for slot in range(1, 32)]


@pytest.mark.parametrize(
    "devices", ["", ROOT.format("pci-root") + CARD.format("<address type='ccw' cssid='0xfe' ssid='0x0' devno='0x1'/>")]
)
def test_nothing_is_known_of_devices_elsewhere(devices: str) -> None:
    assert xml_hotplug.buses(GUEST.format("s390-ccw-virtio-7.2", devices)) is None


DISK = "<disk type='file' device='{}'>{}<target dev='x' bus='{}'/></disk>"
SOURCE = "<source file='/a'/>"


@pytest.mark.parametrize(
    ("xml", "plug"),
    [
        (DISK.format("disk", SOURCE, "virtio"), Plug("disk", "virtio", drive="disk")),
        ("<disk type='file'><source file='/a'/><target bus='usb'/></disk>", Plug("disk", "usb", drive="disk")),
        (DISK.format("cdrom", "", "sata"), Plug("disk", "sata", drive="cdrom", empty=True)),
        (DISK.format("cdrom", "<source index='2'/>", "usb"), Plug("disk", "usb", drive="cdrom", empty=True)),
        (CARD.format("<model type='e1000'/>"), Plug("interface", "user", "e1000")),
        (CARD.format(AT.format(18, 1, 0)), Plug("interface", "user", slot=(18, 1))),
        (CARD.format("<address type='pci'/>"), Plug("interface", "user")),
        ("<controller type='scsi' index='0' model='virtio-scsi'/>", Plug("controller", "scsi", "virtio-scsi")),
        ("<hostdev mode='subsystem' type='pci'/>", Plug("hostdev", "pci")),
    ],
)
def test_a_device_as_it_is_read(xml: str, plug: Plug) -> None:
    assert xml_hotplug.plug(xml) == plug


NO_EXPRESS = "the running guest has no free PCI Express slot"
NO_PCI = "the running guest has no free PCI slot"
NEITHER = "the running guest has no free PCI Express or PCI slot"
FULL = Buses({(1, 0): EXPRESS}, {(1, 0): 1}, express=True, scsi=True)
WITH_BRIDGE = Buses({(1, 0): EXPRESS, (2, 1): PCI}, {(1, 0): 1}, express=True, scsi=True)
FULL_PC = Buses({(0, 2): PCI}, {(0, 2): 1}, scsi=True)


@pytest.mark.parametrize(
    ("plug", "q35", "with_bridge", "pc"),
    [
        (Plug("disk", "virtio"), NO_EXPRESS, NO_EXPRESS, NO_PCI),
        (Plug("disk", "virtio", "virtio-transitional"), NO_PCI, "", NO_PCI),
        (Plug("disk", "scsi"), "", "", ""),
        (Plug("disk", "usb"), "", "", ""),
        (Plug("interface", "bridge", "virtio"), NO_EXPRESS, NO_EXPRESS, NO_PCI),
        (Plug("interface", "bridge", "e1000e"), NO_EXPRESS, NO_EXPRESS, NO_PCI),
        (Plug("interface", "bridge", "e1000"), NO_PCI, "", NO_PCI),
        (Plug("interface", "bridge", "vmxnet3"), NO_PCI, "", NO_PCI),
        (Plug("interface", "bridge", "virtio-non-transitional"), NO_EXPRESS, NO_EXPRESS, NO_PCI),
        (Plug("interface", "bridge", "igb"), NO_EXPRESS, NO_EXPRESS, NO_PCI),
        (Plug("interface", "bridge", "virtio-transitional"), NO_PCI, "", NO_PCI),
        (Plug("interface", "bridge", "rtl8139"), NO_PCI, "", NO_PCI),
        (Plug("interface", "bridge", "ne2k_pci"), NO_PCI, "", NO_PCI),
        (Plug("interface", "bridge", "pcnet"), NO_PCI, "", NO_PCI),
        (Plug("interface", "bridge", "usb-net"), "", "", ""),
        (Plug("interface", "bridge"), NEITHER, "", NO_PCI),
        (Plug("interface", "hostdev"), NO_EXPRESS, NO_EXPRESS, NO_PCI),
        (Plug("hostdev", "pci"), NEITHER, "", NO_PCI),
        (Plug("hostdev", "mdev"), NO_EXPRESS, NO_EXPRESS, NO_PCI),
        (Plug("hostdev", "scsi_host"), NO_EXPRESS, NO_EXPRESS, NO_PCI),
        (Plug("hostdev", "usb"), "", "", ""),
        (Plug("controller", "scsi", "virtio-scsi"), NO_EXPRESS, NO_EXPRESS, NO_PCI),
        (Plug("controller", "scsi", "virtio-non-transitional"), NO_EXPRESS, NO_EXPRESS, NO_PCI),
        (Plug("controller", "scsi"), NEITHER, "", NO_PCI),
        (Plug("controller", "scsi", "lsilogic"), NO_PCI, "", NO_PCI),
    ],
)
def test_a_device_needs_a_slot_of_its_kind(plug: Plug, q35: str, with_bridge: str, pc: str) -> None:
    for buses, reason in ((FULL, q35), (WITH_BRIDGE, with_bridge), (FULL_PC, pc), (None, "")):
        assert plan_live.hotplug_obstacles([("one", True)], {"one": plug}, buses).get("one", "") == reason


@pytest.mark.parametrize(
    ("plug", "plugged", "unplugged"),
    [
        (Plug("disk", "sata", drive="disk"), "a disk on bus sata", "a disk on bus sata"),
        (Plug("disk", "ide", drive="cdrom"), "a disk on bus ide", "a disk on bus ide"),
        (Plug("disk", "fdc", drive="floppy"), "a floppy drive", "a floppy drive"),
        (Plug("disk", "fdc", drive="disk"), "a disk on bus fdc", "a disk on bus fdc"),
        (Plug("disk", "sd", drive="disk"), "a disk on bus sd", "a disk on bus sd"),
        (Plug("disk", "usb", drive="disk", empty=True), "", ""),
        (Plug("disk", "usb", drive="cdrom"), "", ""),
        (Plug("disk", "usb", drive="cdrom", empty=True), "an empty drive", ""),
        (Plug("controller", "sata"), "a controller of type sata", "a controller of type sata"),
        (Plug("controller", "usb", "qemu-xhci"), "a controller of type usb", "a controller of type usb"),
        (Plug("controller", "pci", "pcie-root-port"), "a controller of type pci", "a controller of type pci"),
        (Plug("controller", "scsi", "virtio-scsi"), "", ""),
    ],
)
def test_what_comes_and_goes_only_with_a_boot(plug: Plug, plugged: str, unplugged: str) -> None:
    for comes, what in ((True, plugged), (False, unplugged)):
        reason = f"{what} cannot be {'attached to' if comes else 'detached from'} a running guest" if what else ""
        assert plan_live.hotplug_obstacles([("one", comes)], {"one": plug}, None).get("one", "") == reason


def test_each_device_takes_a_slot_and_leaves_it() -> None:
    card = Plug("interface", "bridge", "virtio")
    there = Plug("interface", "bridge", "virtio", slot=(1, 0))
    plugs = {"a": card, "b": card, "c": card, "there": there}
    buses = Buses({(1, 0): EXPRESS, (2, 0): EXPRESS}, {(1, 0): 1}, express=True)
    assert plan_live.hotplug_obstacles([("a", True), ("b", True)], plugs, buses) == {"b": NO_EXPRESS}
    assert plan_live.hotplug_obstacles([("there", False), ("a", True), ("b", True), ("c", True)], plugs, buses) == {
        "c": NO_EXPRESS
    }


@pytest.mark.parametrize(
    ("slot", "reason"),
    [
        ((2, 0), ""),
        ((1, 0), "the running guest has no free slot 0 on PCI bus 1 that takes devices"),
        ((7, 0), "the running guest has no free slot 0 on PCI bus 7 that takes devices"),
        ((0, 9), "the running guest has no free slot 9 on PCI bus 0 that takes devices"),
    ],
)
def test_a_slot_that_is_named(slot: tuple[int, int], reason: str) -> None:
    buses = Buses({(1, 0): EXPRESS, (2, 0): EXPRESS}, {(1, 0): 1}, express=True)
    card = Plug("interface", "bridge", "virtio", slot=slot)
    assert plan_live.hotplug_obstacles([("one", True)], {"one": card}, buses).get("one", "") == reason
    assert plan_live.hotplug_obstacles([("one", True)], {"one": card}, None) == {}


def test_a_scsi_disk_needs_its_controller() -> None:
    wanted, none = [("scsi", True), ("disk", True)], {"disk": "the running guest has no SCSI controller"}
    plugs = {"scsi": Plug("controller", "scsi", "virtio-scsi"), "disk": Plug("disk", "scsi", drive="disk")}
    one = Buses({(1, 0): EXPRESS}, {}, express=True)
    assert plan_live.hotplug_obstacles(wanted, plugs, one) == {}
    assert plan_live.hotplug_obstacles(wanted[1:], plugs, one) == none
    full = Buses({(1, 0): EXPRESS}, {(1, 0): 1}, express=True)
    assert plan_live.hotplug_obstacles(wanted, plugs, full) == {"scsi": NO_EXPRESS, "disk": NO_EXPRESS}


def test_a_disk_goes_before_its_controller_and_comes_after_it() -> None:
    changes = (
        Change("controllers[scsi-0]", "virtio-scsi", None),
        Change("controllers[scsi-1]", None, "virtio-scsi"),
        Change("disks[old]", "/a", None),
        Change("disks[new]", None, "/b"),
    )
    grafted = Grafted("", changes, {change.where: "<device/>" for change in changes})
    made, _pending = plan_live.live_steps(plan_live.Now(GuestSpec("web1"), grafted, grafted, {}), record_changed=False)
    assert [(type(step), t.cast(t.Any, step).what) for step in made] == [
        (plan_guest_steps.Detach, "disks[old]"),
        (plan_guest_steps.Detach, "controllers[scsi-0]"),
        (plan_guest_steps.Attach, "controllers[scsi-1]"),
        (plan_guest_steps.Attach, "disks[new]"),
    ]


def planned(**options: t.Any) -> plan_changes.GuestPlan:
    """A running guest that is to get two cards, and has no slot."""
    wanted = GuestSpec("web1", **options)
    cards = [f"interfaces[eth{number}]" for number in (1, 2)]
    changes = tuple(Change(card, None, "br0") for card in cards)
    grafted = Grafted("<domain/>", changes, dict.fromkeys(cards, "<interface/>"))
    plugs = dict.fromkeys(cards, Plug("interface", "bridge", "virtio"))
    found = FoundGuest("web1", "u", "running", True, False, "<domain/>", "<domain/>")
    now = plan_live.Now(wanted, grafted, grafted, {}, plugs=plugs, buses=FULL)
    return plan_changes.plan(wanted, found, grafted, now)


def test_what_has_no_slot_waits_and_the_reason_is_told_once() -> None:
    answer = planned()
    assert [type(step) for step in answer.steps] == [plan_guest_steps.Define] and len(answer.pending) == 2
    remedy = "the change takes effect at its next start (shut it down and start it, or set allow_restart: true)"
    assert answer.notes == (f"interfaces[eth1], interfaces[eth2] of web1: {NO_EXPRESS}; {remedy}",)


def test_who_asks_for_the_next_boot_is_told_no_reason() -> None:
    answer = planned(apply="next_boot")
    assert answer.notes == () and len(answer.pending) == 2


def test_who_asks_for_now_is_refused_with_the_reason() -> None:
    with pytest.raises(Refused, match=rf"interfaces\[eth1\].* while it runs: {NO_EXPRESS}; use apply: both"):
        planned(apply="live")


def test_a_restart_brings_what_has_no_slot() -> None:
    answer = planned(allow_restart=True)
    assert [type(step) for step in answer.steps] == [
        plan_guest_steps.Define,
        plan_guest_steps.Shutdown,
        plan_guest_steps.Start,
    ]
    assert not answer.pending and not answer.notes


STICK, KEY = Plug("disk", "usb", drive="disk"), Plug("hostdev", "usb")
HUB = "<hub type='usb'><address type='usb' bus='0' port='1'/></hub>"


@pytest.mark.parametrize(
    ("devices", "free", "none"),
    [
        ("", 0, True),
        ("<controller type='usb' model='none'/>", 0, True),
        ("<controller type='usb' model='qemu-xhci'/>", 4, False),
        ("<controller type='usb' model='qemu-xhci' ports='15'/>" + HUB, 22, False),
        ("<controller type='usb' model='piix3-uhci'/><input><address type='usb' bus='0' port='1'/></input>", 1, False),
        ("<controller type='usb' model='ich9-ehci1'/><controller type='usb' model='ich9-uhci1'/>", 6, False),
        ("<controller type='usb' model='pci-ohci'/>" + "<disk><address type='usb'/></disk>" * 4, 0, False),
        ("<controller type='usb' model='of-tomorrow'/>", None, False),
        ("<controller type='usb'/>", None, False),
    ],
)
def test_the_ports_of_usb(devices: str, free: int | None, *, none: bool) -> None:
    found = q35(devices)
    assert (found.usb, found.no_usb) == (free, none)


@pytest.mark.parametrize("plug", [STICK, KEY])
def test_a_usb_device_needs_a_port(plug: Plug) -> None:
    def reasons(buses: Buses, *wanted: bool) -> list[tuple[str, str]]:
        names = [(f"{number}", plugged) for number, plugged in enumerate(wanted)]
        return list(plan_live.hotplug_obstacles(names, dict.fromkeys(dict(names), plug), buses).items())

    two, full, unknown = (Buses({}, {}, usb=free) for free in (2, 0, None))
    none = Buses({}, {}, usb=0, no_usb=True)
    assert not reasons(two, True, True) and not reasons(unknown, True, True, True)
    assert reasons(two, True, True, True) == [("2", "the running guest has no free USB port")]
    assert not reasons(full, False, True)
    assert reasons(none, True) == [("0", "the running guest has no USB controller")]
    assert not plan_live.hotplug_obstacles([("c", False)], {"c": Plug("interface", "usb")}, none)


SCSI, CARD_OF_USB = Plug("controller", "scsi", "virtio-scsi"), Plug("interface", "usb", "usb-net")
NO_SCSI, NO_PORT = "the running guest has no SCSI controller", "the running guest has no free USB port"


@pytest.mark.parametrize(
    ("buses", "wanted", "reasons"),
    [
        # A card that gets a slot is no controller; a controller that gets none takes nothing from one that is there.
        (Buses({(1, 0): EXPRESS}, {}, express=True), ["+card", "+disk"], {"disk": NO_SCSI}),
        (Buses({}, {}, express=True, scsi=True), ["+scsi", "+disk"], {"scsi": NO_EXPRESS}),
        # Of two devices in a slot one stays.
        (Buses({(1, 0): EXPRESS}, {(1, 0): 2}, express=True), ["-there", "+card"], {"card": NO_EXPRESS}),
        (Buses({(1, 0): EXPRESS}, {(1, 0): 1}, express=True), ["-there", "+card"], {}),
        # What leaves a USB port gives back one; nothing else does, and nobody counts ports that are not known.
        (Buses({}, {}, usb=2), ["-stick", "+a", "+b", "+c", "+d"], {"d": NO_PORT}),
        (Buses({(1, 0): EXPRESS}, {(1, 0): 1}, usb=0), ["-there", "+a"], {"a": NO_PORT}),
        (Buses({}, {}, usb=None), ["-stick", "+a"], {}),
        (Buses({}, {}, usb=0), ["+usb card"], {}),
        (Buses({}, {}, express=True), ["+another"], {}),
    ],
)
def test_what_each_device_leaves_to_the_next(buses: Buses, wanted: list[str], reasons: dict[str, str]) -> None:
    plugs = {
        **dict.fromkeys(("stick", "a", "b", "c", "d"), STICK),
        "card": Plug("interface", "bridge", "virtio"),
        "there": Plug("interface", "bridge", "virtio", slot=(1, 0)),
        "scsi": SCSI,
        "disk": Plug("disk", "scsi", drive="disk"),
        "usb card": CARD_OF_USB,
        "another": Plug("hostdev", "scsi"),
    }
    found = plan_live.hotplug_obstacles([(name[1:], name[0] == "+") for name in wanted], plugs, buses)
    assert found == reasons
