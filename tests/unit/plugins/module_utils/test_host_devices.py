"""Devices of hosts and guests have the same names."""

from __future__ import annotations

from xml.etree import ElementTree

from ansible_collections.corral.virt.plugins.module_utils._domain import xml_host_devices

BOUND = """<domain><os firmware="efi"><type arch="x86_64" machine="pc-q35-7.2">hvm</type>
  <firmware><feature enabled="yes" name="secure-boot"/></firmware></os><devices>
  <tpm model="tpm-crb"><backend type="emulator" version="2.0"/></tpm>
  <hostdev type="pci"><source><address domain="0x0000" bus="0x06" slot="0x1f" function="0x7"/></source></hostdev>
  <hostdev type="usb"><source><vendor id="0x1d6b"/><product id="0x0002"/></source></hostdev>
  <hostdev type="usb"><source><vendor id="0x1d6b"/><product id="0x0003"/><address bus="1" device="12"/></source></hostdev>
  <hostdev type="mdev" model="vfio-pci"><source><address uuid="4b20d080-1b54-4048-85b3-a6a62d165c01"/></source></hostdev>
  <hostdev type="scsi"><source><adapter name="scsi_host0"/><address bus="0" target="0" unit="0"/></source></hostdev>
  <interface type="hostdev"><source><address type="pci" domain="0" bus="0x07" slot="0" function="1"/></source></interface>
  <interface type="network"><source network="lan"/></interface>
  <disk type="nvme"><source namespace="1"><address domain="1" bus="0" slot="0" function="0"/></source></disk>
  <disk type="file"><source file="/x"/><address type="pci" bus="9" slot="0" function="0"/></disk>
</devices></domain>"""


def test_what_ties_a_guest_to_hosts() -> None:
    root = ElementTree.fromstring(BOUND)
    assert xml_host_devices.bound(root) == {
        "arch": "x86_64",
        "machine": "pc-q35-7.2",
        "devices": [
            "mdev 4b20d080-1b54-4048-85b3-a6a62d165c01",
            "pci 0000:06:1f.7",
            "pci 0000:07:00.1",
            "pci 0001:00:00.0",
            "usb 0x1d6b:0x0002",
            "usb 0x1d6b:0x0003",
            "usb 1.12",
        ],
        "platform": ["efi", "secure_boot", "tpm"],
    }
    bare = ElementTree.fromstring("<domain><devices/></domain>")
    assert xml_host_devices.bound(bare) == {"arch": None, "machine": None, "devices": [], "platform": []}


def test_devices_of_a_host_have_the_names_that_guests_call_them_by() -> None:
    usb = """<device><capability type="usb_device"><bus>1</bus><device>12</device><product id="0x0003">a hub</product>
    <vendor id="0x1d6b"/></capability></device>"""
    listed = [("usb_1_4", usb), ("usb_1_5", "<device/>"), ("pci_0000_06_1f_7", ""), ("pci_x", ""), ("net_eth0", "")]
    listed += [("mdev_4b20d080_1b54_4048_85b3_a6a62d165c01_0000_00_02_0", ""), ("mdev_4b20d080", "")]
    assert xml_host_devices.offered(listed) == [
        "mdev 4b20d080-1b54-4048-85b3-a6a62d165c01",
        "pci 0000:06:1f.7",
        "usb 0x1d6b:0x0003",
        "usb 1.12",
    ]
    assert xml_host_devices.offered(None) is None and xml_host_devices.offered([]) == []
