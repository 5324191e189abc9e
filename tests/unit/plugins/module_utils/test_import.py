"""A guest that others made, as arguments: said to it they change nothing, and where it is not, they make it again."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from lxml import etree

from ansible_collections.corral.virt.plugins.module_utils._domain import fields_domain, libvirt_query, xml_new
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_import, run_guest_arguments
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_guest_options import completed, suited
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_import import Import, OptionCheck, less
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_arguments import imported
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_options import GUEST_OPTIONS, wanted
from ansible_collections.corral.virt.plugins.module_utils._xml import overlay
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse
from ansible_collections.corral.virt.plugins.modules import virt_domain_info

CHECK = OptionCheck(run_guest_arguments._accepts, run_guest_arguments._spec)
UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
MAC = "52:54:00:00:00:01"
QEMU = "xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'"


def document(devices: str = "", beside: str = "", os: str = "", *, name: str = "web1", more: str = "") -> str:
    """A definition as libvirt prints it."""
    return (
        f"<domain type='kvm' {more}><name>{name}</name><uuid>{UUID}</uuid><memory unit='KiB'>524288</memory>"
        "<currentMemory unit='KiB'>524288</currentMemory><vcpu placement='static'>2</vcpu>"
        f"<os{' firmware=' + repr('efi') if 'firmware' in os else ''}><type arch='x86_64' machine='pc-q35-7.2'>hvm</type>"
        f"{os}</os>{beside}<clock offset='utc'/><devices>{devices}</devices></domain>"
    )


def made(said: t.Mapping[str, t.Any]) -> t.Any:
    """What the arguments make where no guest is."""
    result = ArgumentSpecValidator(GUEST_OPTIONS).validate(dict(said))
    assert not result.error_messages
    kinds = {"virt_type": said["virt_type"], "arch": "x86_64", "machine": said["machine"]}
    ports = not any(one["type"] == "pci" for one in said.get("controllers", ()))
    bare = xml_new.domain(name=said["name"], uuid=UUID, without=xml_new.brought(said.get("xml")), ports=ports, **kinds)
    return parse(
        fields_domain.graft(
            bare, completed(suited(wanted(result.validated_parameters), xml_new.said(said.get("xml"))), {})
        ).xml
    )


def changes(xml: str, said: t.Mapping[str, t.Any]) -> list[str]:
    """What the arguments change of the guest itself."""
    result = ArgumentSpecValidator(GUEST_OPTIONS).validate(dict(said))
    return [str(change) for change in fields_domain.graft(xml, wanted(result.validated_parameters)).changes]


DISK = "<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/a.qcow2'/><target dev='vda' bus='virtio'/>"
NIC = f"<interface type='bridge'><mac address='{MAC}'/><source bridge='br0'/><model type='virtio'/>"
RNG = "<rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>"
SLOW = RNG.replace("<backend", "<rate bytes='1'/><backend")
SPICE = "<graphics type='spice' autoport='yes'><listen type='address' address='127.0.0.1'/>"
KEPT: dict[str, tuple[str, str, str]] = {  # devices, what is beside them, and what is in <os>
    "a disk with what no option says": (
        f"{DISK}<source><slices/></source></disk>".replace("<source><slices/></source>", "<throttlefilters/>"),
        "",
        "",
    ),
    "a disk of rbd": (
        (
            "<disk type='network' device='disk'><driver name='qemu' type='raw'/><auth username='libvirt'>"
            f"<secret type='ceph' uuid='{UUID}'/></auth><source protocol='rbd' name='pool/image'>"
            "<host name='mon1' port='6789'/><host name='mon2' port='6789'/></source><target dev='vda' bus='virtio'/></disk>"
        ),
        "",
        "",
    ),
    "a disk of a kind of its own": (
        (
            "<disk type='vhostuser' device='disk'><driver name='qemu' type='raw'/><source type='unix' path='/tmp/vhost.sock'>"
            "<reconnect enabled='yes' timeout='10'/></source><target dev='vda' bus='virtio'/></disk>"
        ),
        "",
        "",
    ),
    "a disk without snapshots": (DISK.replace("device='disk'", "device='disk' snapshot='no'") + "</disk>", "", ""),
    "an interface of the host's own kind": (
        (
            f"<interface type='vhostuser'><mac address='{MAC}'/><source type='unix' path='/tmp/v.sock' mode='client'/>"
            "<model type='virtio'/></interface>"
        ),
        "",
        "",
    ),
    "an interface with options of its driver": (f"{NIC}<driver name='vhost' iommu='on' ats='on'/></interface>", "", ""),
    "a PCI device": (
        (
            "<hostdev mode='subsystem' type='pci' managed='yes'><driver name='vfio'/><source><address domain='0x0000' bus='0x06' "
            "slot='0x00' function='0x0'/></source></hostdev>"
        ),
        "",
        "",
    ),
    "a mediated device": (
        (
            "<hostdev mode='subsystem' type='mdev' managed='no' model='vfio-pci' display='off'><source>"
            f"<address uuid='{UUID}'/></source></hostdev>"
        ),
        "",
        "",
    ),
    "USB redirection, twice the same": (
        f"{SPICE}</graphics><redirdev bus='usb' type='spicevmc'/><redirdev bus='usb' type='spicevmc'/>",
        "",
        "",
    ),
    "USB controllers of one number": (
        (
            "<controller type='usb' index='0' model='ich9-ehci1'/><controller type='usb' index='0' model='ich9-uhci1'>"
            "<master startport='0'/></controller><controller type='usb' index='0' model='ich9-uhci2'>"
            "<master startport='2'/></controller>"
        ),
        "",
        "",
    ),
    "interfaces of one MAC address": (
        f"{NIC}</interface>{NIC.replace('br0', 'br1')}</interface>{NIC}</interface>",
        "",
        "",
    ),
    "equal random sources, as a new guest has one": (RNG + RNG, "", ""),
    "screens, of which one says less": (
        "<video><model type='virtio' heads='1' primary='yes'/></video><video><model type='virtio' heads='1'/></video>",
        "",
        "",
    ),
    "a channel without a name": (
        "<channel type='unix'><target type='virtio' name='a.b'/></channel><channel type='pty'><target type='virtio'/></channel>",
        "",
        "",
    ),
    "a channel without a name, like others with one": (
        "".join(
            f"<channel type='unix'><target type='virtio'{name}/></channel>"
            for name in (" name='org.qemu.guest_agent.0'", "", " name='b'", " name='c'")
        ),
        "",
        "",
    ),
    "a channel whose socket has options": (
        (
            "<channel type='unix'><source mode='connect' path='/run/libvirt/qemu/a'><reconnect enabled='yes' timeout='5'/>"
            "</source><target type='virtio' name='a.b'/></channel>"
        ),
        "",
        "",
    ),
    "disks at places that their targets do not tell": (
        "".join(
            DISK.replace("vda' bus='virtio", f"hd{letter}' bus='ide").replace("/a", f"/{letter}")
            + f"<address type='drive' controller='0' bus='{number}' target='0' unit='0'/></disk>"
            for number, letter in ((2, "b"), (3, "c"))
        ),
        "",
        "",
    ),
    "root ports of an older kind": (
        (
            "<controller type='pci' index='0' model='pcie-root'/>"
            "<controller type='pci' index='1' model='pcie-root-port'><model name='ioh3420'/></controller>"
        ),
        "",
        "",
    ),
    "a disk of iSCSI without a server": (
        (
            "<disk type='network' device='disk'><driver name='qemu' type='raw'/>"
            "<source protocol='iscsi' name='iqn.x:y/1'/>"
            f"<target dev='vdb' bus='virtio'/></disk>{DISK}</disk>"
        ),
        "",
        "",
    ),
    "a command line without a kernel": ("", "", "<cmdline>a b</cmdline>"),
    "a loader that keeps nothing": ("", "", "<loader stateless='yes'/><firmware/>"),
    "variables of the firmware on another machine": (
        "",
        "",
        (
            "<firmware/><nvram type='network'><source protocol='nbd' name='vars'>"
            "<host name='h.example.org' port='6000'/></source></nvram>"
        ),
    ),
    "what the machine says of itself in two ways": (
        "",
        (
            "<sysinfo type='smbios'><bios><entry name='vendor'>Acme</entry></bios></sysinfo>"
            "<sysinfo type='fwcfg'><entry name='opt/com.example/name'>x</entry></sysinfo>"
        ),
        "<smbios mode='sysinfo'/>",
    ),
    "a disk on one of two different controllers": (
        (
            "<controller type='scsi' index='0' model='lsilogic'/><controller type='scsi' index='1' model='virtio-scsi'/>"
            + DISK.replace("dev='vda' bus='virtio'", "dev='sda' bus='scsi'")
            + "<address type='drive' controller='1' bus='0' target='0' unit='0'/></disk>"
        ),
        "",
        "",
    ),
    "two displays": (
        (
            f"{SPICE}<image compression='off'/></graphics><graphics type='vnc' socket='/tmp/vnc.sock'><listen type='socket' "
            "socket='/tmp/vnc.sock'/></graphics>"
        ),
        "",
        "",
    ),
    "two screens": (
        (
            "<video><model type='qxl' ram='65536' vram='65536' vgamem='16384' heads='1' primary='yes'/></video>"
            "<video><model type='virtio' heads='1'/></video>"
        ),
        "",
        "",
    ),
    "sound and where it goes": (
        "<sound model='ich9'><codec type='duplex'/></sound><audio id='2' type='file' path='/a.wav'/>",
        "",
        "",
    ),
    "shared memory, evdev, a random source": (
        (
            "<shmem name='s' role='peer'><model type='ivshmem-plain'/><size unit='M'>4</size></shmem>"
            "<input type='evdev'><source dev='/dev/input/event1' grab='all'/></input>"
            "<rng model='virtio'><rate bytes='1024' period='1000'/><backend model='egd' type='udp'><source mode='bind' "
            "service='1234'/></backend></rng>"
        ),
        "",
        "",
    ),
    "plugged memory": (
        "<memory model='dimm'><target><size unit='KiB'>524288</size><node>0</node></target></memory>",
        "<cpu mode='host-model'><numa><cell id='0' cpus='0-1' memory='524288' unit='KiB'/></numa></cpu>",
        "",
    ),
    "a folder by 9p": (
        "<filesystem type='mount' accessmode='mapped'><source dir='/srv'/><target dir='/a/tag'/></filesystem>",
        "",
        "",
    ),
    "no more than it has": ("", "", ""),
    "what the machine says of itself": (
        "",
        "<sysinfo type='smbios'><system><entry name='manufacturer'>Acme</entry></system></sysinfo>",
        "<smbios mode='sysinfo'/>",
    ),
    "what other programs keep with it": (
        "",
        (
            "<metadata><o:libosinfo xmlns:o='http://libosinfo.org/xmlns/libvirt/domain/1.0'><o:os id='http://debian.org/debian/12'/>"
            "</o:libosinfo></metadata>"
        ),
        "",
    ),
    "arguments for QEMU": (
        "",
        f"<qemu:commandline {QEMU}><qemu:arg value='-s'/><qemu:arg value='-S'/></qemu:commandline>",
        "",
    ),
    "a loader by hand": (
        "",
        "",
        "<loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE.fd</loader><nvram>/var/lib/libvirt/web1_VARS.fd</nvram>",
    ),
    "firmware that knows no keys": (
        "",
        "",
        "<firmware><feature enabled='no' name='enrolled-keys'/><feature enabled='yes' name='secure-boot'/></firmware>",
    ),
    "a channel to a pipe": (
        "<channel type='pipe'><source path='/var/lib/libvirt/qemu/channels/a'/><target type='virtio' name='a'/></channel>",
        "",
        "",
    ),
    "the socket of a channel, where a program looks for it": (
        (
            "<channel type='unix'><source mode='bind' path='/var/lib/libvirt/qemu/channels/1.agent'/>"
            "<target type='virtio' name='org.example.agent'/></channel>"
        ),
        "",
        "",
    ),
    "scheduling of processors": (
        "",
        "<cputune><vcpusched vcpus='0' scheduler='fifo' priority='1'/></cputune><resource><partition>/m</partition></resource>",
        "",
    ),
    "a clock of its own": ("", "<features><acpi/><ioapic driver='kvm'/><msrs unknown='ignore'/></features>", ""),
}


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize("case", KEPT)
def test_all_of_a_guest_comes_back(case: str, least: bool) -> None:
    xml = document(*KEPT[case])
    result = imported(xml, autostart=False, least=least)
    assert result.not_imported == []
    again = made(result.arguments)
    for section in ("devices", "."):
        there = overlay.Children(again.find(section) if section != "." else again)
        parts = overlay.told_apart_first(parse(xml).find(section))
        elements = [one for one in parts if one.tag not in ("devices", "uuid", "vcpu")]
        for element in elements:
            for chosen in element.xpath("self::video/model/@primary"):
                chosen.getparent().attrib.pop("primary")
            assert there.has(element) or (one_video(again) and element.tag == "video"), etree.tostring(element)
    assert changes(xml, result.arguments) == []


EXTERNAL = (
    "<tpm model='tpm-tis'><backend type='external'><source type='unix' mode='connect' path='/s'/></backend></tpm>"
)
WINDOWS = (
    "<metadata><o:libosinfo xmlns:o='http://libosinfo.org/xmlns/libvirt/domain/1.0'>"
    "<o:os id='http://microsoft.com/win/11'/></o:libosinfo></metadata>"
)
LOADER = "<loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE.fd</loader>"
VARIABLES = "<nvram>/var/lib/libvirt/web1_VARS.fd</nvram>"
KEYS = "<input type='keyboard' bus='ps2'/>"


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize(
    ("inputs", "beside", "os"),
    [
        (KEYS, "", ""),
        ("", "<features><acpi/></features>", LOADER),
        (KEYS, "<features><acpi/><hyperv/></features>", LOADER + VARIABLES),
        ("<input type='tablet' bus='usb'/>" + KEYS, "", VARIABLES + "<!-- firmware -->"),
    ],
)
def test_a_windows_gets_no_devices_of_a_new_one_when_it_is_made_again(
    inputs: str, beside: str, os: str, least: bool
) -> None:
    """It has its drivers, and would not boot from another bus."""
    xml = document(f"{DISK}</disk>{NIC}</interface>{inputs}", WINDOWS + beside, os)
    result = imported(xml, autostart=False, least=least)
    again = made(result.arguments)
    assert again.xpath("devices/disk/target/@bus") == again.xpath("devices/interface/model/@type") == ["virtio"]
    assert again.xpath("devices/input/@type[. = 'tablet']") == (["tablet"] if "tablet" in inputs else [])
    assert again.xpath("devices/tpm | os/firmware | features/hyperv/relaxed") == []
    assert again.xpath("os/@firmware") == parse(xml).xpath("os/@firmware")
    assert (result.not_imported, changes(xml, result.arguments)) == ([], [])


@pytest.mark.parametrize("least", [False, True])
def test_a_windows_keeps_a_tpm_that_no_option_has(least: bool) -> None:
    xml = document(f"{DISK}</disk>{EXTERNAL}", WINDOWS, VARIABLES + "<!-- firmware -->")
    result = imported(xml, autostart=False, least=least)
    assert result.not_imported == []
    again = made(result.arguments).find("devices")
    assert overlay.Children(again).has(parse(EXTERNAL)) and len(again.findall("tpm")) == 1


def test_the_least_of_a_windows_leaves_out_what_a_new_one_has() -> None:
    disk = f"{DISK}</disk>".replace("vda", "sda").replace("virtio", "sata")
    nic = f"{NIC}</interface>".replace("virtio", "e1000e")
    xml = document(disk + nic + "<input type='tablet' bus='usb'/>", WINDOWS, VARIABLES + "<!-- firmware -->")
    least = imported(xml, autostart=False, least=True).arguments
    assert "model" not in least["interfaces"][0]
    assert not least.keys() & {"inputs", "secure_boot"}


@pytest.mark.parametrize("keys", ["yes", "no"])
def test_keys_of_firmware_in_libvirts_words_are_said_once_and_for_all(keys: str) -> None:
    said = {
        **imported(document(os="<!-- firmware -->"), autostart=False).arguments,
        "secure_boot": True,
        "xml": f"<domain><os><firmware><feature enabled='{keys}' name='enrolled-keys'/></firmware></os></domain>",
    }
    again = made(said)
    found = {one.get("name"): one.get("enabled") for one in again.findall("os/firmware/feature")}
    assert found == {"enrolled-keys": keys, "secure-boot": "yes"}
    assert changes(etree.tostring(again, encoding="unicode"), said) == []


def one_video(root: t.Any) -> bool:
    """Whether libvirt knows by itself which screen is the first."""
    return len(root.findall("devices/video")) == 1


@pytest.mark.parametrize("name", ["Windows 10", "_x", "büro", "a&b", "-v", "{{ x }}", "x" * 200])
def test_a_name_is_kept_as_it_is(name: str) -> None:
    xml = document(name=name.replace("&", "&amp;"))
    result = imported(xml, autostart=True)
    assert result.arguments["name"] == name and result.arguments["autostart"] is True and len(result.arguments) > 5
    assert changes(xml, result.arguments) == []


WITHHELD = {
    "a display with a password": (
        "<graphics type='vnc' port='-1' autoport='yes' passwd='S3CRET'><listen type='address' address='127.0.0.1'/></graphics>",
        ["/domain/devices/graphics"],
        "it has a password, and would be open without it",
    ),
    "a display that others reach": (
        "<graphics type='vnc' port='-1' autoport='yes'><listen type='address' address='0.0.0.0'/></graphics>",
        ["/domain/devices/graphics"],
        "others than its host may reach it",
    ),
    "what hangs on such a display": (
        (
            "<graphics type='spice' autoport='yes' passwd='S3CRET'/><redirdev bus='usb' type='spicevmc'/>"
            "<channel type='spicevmc'><target type='virtio' name='com.redhat.spice.0'/></channel>"
        ),
        ["/domain/devices/graphics", "/domain/devices/redirdev", "/domain/devices/channel"],
        "it needs a display by SPICE",
    ),
    "a disk behind a token": (
        (
            "<disk type='network' device='cdrom'><driver name='qemu' type='raw'/><source protocol='https' name='a.iso' "
            "query='token=S3CRET'><host name='h' port='443'/></source><target dev='sda' bus='sata'/><readonly/></disk>"
        ),
        ["/domain/devices/disk"],
        "it holds a secret",
    ),
}


@pytest.mark.parametrize("case", WITHHELD)
def test_what_needs_a_secret_is_not_made_without_it(case: str) -> None:
    devices, paths, why = WITHHELD[case]
    result = imported(document(devices), autostart=False)
    assert [one["path"] for one in result.not_imported] == paths and result.not_imported[-1]["why"] == why
    assert "S3CRET" not in repr(result) and "graphics" not in result.arguments
    again = made(result.arguments)
    assert not [one for path in paths for one in again.findall(path.removeprefix("/domain/"))]


def test_the_arguments_of_a_display_wait_for_its_password() -> None:
    devices = WITHHELD["a display with a password"][0]
    assert imported(document(devices), autostart=False).withheld == {"graphics": {"type": "vnc", "listen": "127.0.0.1"}}
    assert imported(document(SPICE + "</graphics>"), autostart=False).withheld == {}


def least(xml: str) -> dict[str, t.Any]:
    """The shortest arguments, as a file has them."""
    return t.cast(
        "dict[str, t.Any]", yaml.safe_load(yaml.safe_dump(imported(xml, autostart=False, least=True).arguments))
    )


def test_the_least_is_what_an_admin_would_write() -> None:
    """Of a guest as this collection makes it, nothing is told that it has anyway."""
    output = {
        "name": "web1",
        "vcpus": 2,
        "memory": "512MiB",
        "machine": "pc-q35-7.2",
        "virt_type": "kvm",
        "disks": [{"name": "system", "source": "/a.qcow2"}],
        "interfaces": [{"name": "eth0", "bridge": "br0", "mac": MAC}],
    }
    assert least(etree.tostring(made(output), encoding="unicode")) == output


HOST = "<host name='h.example.org' port='{}'/>"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("protocol='nbd' name='a'>" + HOST.format(10809), {"url": "nbd://h.example.org/a"}),
        ("protocol='nbd'>" + HOST.format(10810), {"url": "nbd://h.example.org:10810/"}),
        ("protocol='iscsi' name='iqn.x:y/1'>" + HOST.format(3260), {"url": "iscsi://h.example.org/iqn.x:y/1"}),
        (
            "protocol='nbd' name='a' tls='yes'>" + HOST.format(10809),
            {
                "network": {
                    "protocol": "nbd",
                    "name": "a",
                    "hosts": [{"name": "h.example.org", "port": 10809}],
                    "tls": True,
                }
            },
        ),
        (
            "protocol='nbd'><host transport='unix' socket='/run/nbd.sock'/>",
            {"network": {"protocol": "nbd", "socket": "/run/nbd.sock"}},
        ),
        (
            "protocol='iscsi' name='iqn.x:y/1'><host name='h'/><initiator><iqn name='iqn.x:z'/></initiator>",
            {
                "network": {
                    "protocol": "iscsi",
                    "name": "iqn.x:y/1",
                    "hosts": [{"name": "h"}],
                    "initiator": "iqn.x:z",
                }
            },
        ),
        ("protocol='rbd' name='pool/a'>", {"network": {"protocol": "rbd", "name": "pool/a"}}),
    ],
)
def test_a_disk_on_the_network_is_told_by_its_url_where_that_is_enough(source: str, told: dict[str, t.Any]) -> None:
    xml = document(
        "<disk type='network' device='disk'><driver name='qemu' type='raw'/>"
        f"<source {source}</source><target dev='vda' bus='virtio'/></disk>"
    )
    [disk] = least(xml)["disks"]
    assert {
        key: value for key, value in disk.items() if key not in ("name", "device", "format", "target", "bus")
    } == told
    assert changes(xml, least(xml)) == []


def test_servers_that_share_a_name_are_told_in_libvirts_words() -> None:
    xml = document(
        "<disk type='network' device='disk'><driver name='qemu' type='raw'/><source protocol='rbd' name='pool/a'>"
        "<host name='h' port='3300'/><host name='h' port='6789'/></source><target dev='vda' bus='virtio'/></disk>"
    )
    output = least(xml)
    assert changes(xml, output) == []
    assert [host.get("port") for host in made(output).findall("devices/disk/source/host")] == ["3300", "6789"]


def test_what_a_new_guest_would_have_and_this_one_has_not_is_said() -> None:
    output = least(document())
    assert output["rng"] == {"model": "none"} and output["features"] == {"acpi": False, "apic": False}
    assert output["channels"] == [{"name": "org.qemu.guest_agent.0", "state": "absent"}]
    assert output["serials"] == [{"port": 0, "state": "absent"}] and output["disks"] == output["interfaces"] == []


def test_the_uuid_is_told_on_request() -> None:
    result: Import = imported(document(), autostart=False, uuid=True)
    assert result.arguments["uuid"] == UUID and "uuid" not in imported(document(), autostart=False).arguments


def test_the_firmware_that_libvirt_chose_is_chosen_again() -> None:
    """Its loader may be another file elsewhere; the variables of the guest are its own."""
    os = (
        "<firmware><feature enabled='yes' name='secure-boot'/></firmware><loader readonly='yes' secure='yes' "
        "type='pflash'>/usr/share/OVMF/OVMF_CODE.secboot.fd</loader><nvram template='/usr/share/OVMF/V.fd'>/v.fd</nvram>"
    )
    output = imported(document(os=os), autostart=False).arguments
    assert (output["firmware"], output["nvram"]) == ("efi", {"path": "/v.fd"}) and "loader" not in output


def test_where_the_guest_sees_its_interface_is_kept() -> None:
    """Systems name it after that."""
    xml = document(f"{NIC}<address type='pci' domain='0x0000' bus='0x01' slot='0x00' function='0x0'/></interface>")
    [nic] = least(xml)["interfaces"]
    assert nic["guest_address"] == "0000:01:00.0"
    [place] = made(imported(xml, autostart=False).arguments).findall("devices/interface/address")
    assert dict(place.attrib) == {"type": "pci", "domain": "0x0000", "bus": "0x01", "slot": "0x00", "function": "0x0"}


@pytest.mark.parametrize("beside", ["", "<entry name='manufacturer'>x</entry>"])
def test_a_new_guest_need_not_have_the_uuid_of_the_old_one(beside: str) -> None:
    sysinfo = f"<sysinfo type='smbios'><system>{beside}<entry name='uuid'>{UUID}</entry></system></sysinfo>"
    result = imported(document(beside=sysinfo, os="<smbios mode='sysinfo'/>"), autostart=False)
    assert (
        result.not_imported == [] and UUID not in result.arguments["xml"] and "<system/>" not in result.arguments["xml"]
    )


@pytest.mark.parametrize(
    ("there", "xml", "due"),
    [
        (f"{NIC}</interface>", f"{NIC}</interface>{NIC}</interface>", 1),
        (f"{NIC}</interface>", f"{NIC}</interface>{NIC.replace('br0', 'br1')}</interface>", 1),
        ("", f"{NIC.replace('00:01', 'AA:01')}</interface>", 1),
        (
            "<filesystem><source dir='/a'/><target dir='t'/></filesystem>",
            "<filesystem><target dir='T'/></filesystem>",
            1,
        ),
        (SLOW, RNG + SLOW, 1),
    ],
)
def test_a_piece_is_added_beside_its_like_once(there: str, xml: str, due: int) -> None:
    piece = f"<domain><devices>{xml}</devices></domain>"
    root = parse(document(there))
    assert len(overlay.merge(root, piece, fields_domain.SHAPE)) == due
    for mac in root.findall("devices/interface/mac"):
        mac.set("address", mac.get("address").lower())
    assert overlay.merge(root, piece, fields_domain.SHAPE) == []
    assert len(root.findall("devices/*")) == len(parse(document(there)).findall("devices/*")) + due


@pytest.mark.parametrize("name", ["opt/com.example/password", "opt/x/tokens", "opt/io.systemd.credentials/a"])
def test_a_secret_may_stand_in_a_path(name: str) -> None:
    entries = f"<entry name='{name}'>geheim</entry><entry name='opt/com.example/passage'>x</entry>"
    result = imported(document(beside=f"<sysinfo type='fwcfg'>{entries}</sysinfo>"), autostart=False)
    assert result.not_imported == [{"path": "/domain/sysinfo/entry[1]", "why": "it holds a secret"}]
    assert "geheim" not in str(result) and "passage" in result.arguments["xml"]


def test_no_half_of_an_argument_is_left() -> None:
    """What follows would be taken for the other half."""
    arguments = "".join(f"<qemu:arg value='{one}'/>" for one in ("-object", "secret,id=a,data=geheim", "-S"))
    arguments += "<qemu:env name='API_TOKEN' value='geheim'/>"
    result = imported(document(beside=f"<qemu:commandline {QEMU}>{arguments}</qemu:commandline>"), autostart=False)
    assert result.not_imported == [{"path": "/domain/commandline", "why": "it holds a secret"}]
    assert "geheim" not in str(result) and "qemu" not in result.arguments.get("xml", "")


@pytest.mark.parametrize(
    ("place", "left"),
    [
        ("disks[a.b].network.hosts", {"disks": [{"name": "c"}], "boot": {"cmdline": "x", "menu": {"enabled": True}}}),
        ("boot.cmdline", {"disks": [{"name": "a.b"}, {"name": "c"}], "boot": {"menu": {"enabled": True}}}),
        ("boot.menu.enabled", {"disks": [{"name": "a.b"}, {"name": "c"}], "boot": {"cmdline": "x", "menu": {}}}),
        ("boot", {"disks": [{"name": "a.b"}, {"name": "c"}]}),
    ],
)
def test_what_is_refused_is_taken_away_alone(place: str, left: dict[str, t.Any]) -> None:
    output = {"disks": [{"name": "a.b"}, {"name": "c"}], "boot": {"cmdline": "x", "menu": {"enabled": True}}}
    assert less(output, place) == left


@pytest.mark.parametrize(
    ("given", "place", "left"),
    [
        ({"disks": [{"name": "a"}]}, "disks", {}),
        ({"disks": None}, "disks[a]", {}),
        ({"tags": ["a", "b"]}, "tags[a]", {}),
        (
            {"cpu": {"features": [{"name": "a"}, {"name": "b"}]}},
            "cpu.features[a].policy",
            {"cpu": {"features": [{"name": "b"}]}},
        ),
        ({"cpu": "x"}, "cpu.mode", {}),
    ],
)
def test_where_no_entry_can_be_taken_away_the_option_is(
    given: dict[str, t.Any], place: str, left: dict[str, t.Any]
) -> None:
    assert less(given, place) == left


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize("option", ["title", "memory", "disks", "interfaces"])
def test_an_option_that_is_refused_is_left_out_alone(option: str, least: bool) -> None:
    """What it would say is told in libvirt's own words."""
    xml = document(f"{DISK}</disk>{NIC}</interface>", "<title>x</title>")
    plain = imported(xml, autostart=True, least=least)
    check = dataclasses.replace(CHECK, accepts=lambda given: option not in given and given["name"] == "web1")
    result = plan_import.imported(xml, check, autostart=True, least=least)
    assert set(plain.arguments) - set(result.arguments) - {"controllers"} == {option}
    assert set(result.arguments) - set(plain.arguments) == {"xml"} and not result.not_imported


EMPTY: dict[str, t.Any] = {  # of a guest that has nothing of what a new one has
    "name": "web1",
    "machine": "pc-q35-7.2",
    "virt_type": "kvm",
    "vcpus": {"maximum": 2, "current": 2, "placement": "static"},
    "memory": {"maximum": "512MiB", "current": "512MiB"},
    "autostart": False,
    "clock": {"offset": "utc", "timers": [{"name": name, "state": "absent"} for name in ("rtc", "pit", "hpet")]},
    "features": {"acpi": False, "apic": False},
    "rng": {"model": "none"},
    "controllers": [{"type": "pci", "index": str(number), "state": "absent"} for number in range(17)],
    "serials": [{"port": 0, "state": "absent"}],
    "channels": [{"name": "org.qemu.guest_agent.0", "state": "absent"}],
    "disks": [],
    "interfaces": [],
    "consoles": [],
}
ROOT, NOTHING = (
    {"type": "pci", "index": "0", "model": "pcie-root"},
    "<disk type='file'{}><target dev='{}' bus='{}'/></disk>",
)
CHANNEL = "<channel type='{}'><target type='virtio'{}/></channel>"
OTHER_NIC = f"{NIC.replace(':01', ':02')}</interface>"
IMAGE = {"name": "vda", "device": "disk", "format": "qcow2", "source": "/a.qcow2", "bus": "virtio", "target": "vda"}
ONE_NIC = {"name": f"{MAC[:-1]}2", "type": "bridge", "mac": f"{MAC[:-1]}2", "bridge": "br0", "model": "virtio"}
VNC = "<graphics type='vnc' autoport='yes'><listen type='address' address='127.0.0.1'/></graphics>"
SPICE_ON = {"type": "spice", "tls": False, "listen": "127.0.0.1"}


@pytest.mark.parametrize(
    ("devices", "beside", "options", "rest"),
    [
        ("", "", {}, []),
        ("", "<features><acpi/></features>", {"features": {"acpi": True, "apic": False}}, []),
        ("<controller type='pci' index='0' model='pcie-root'/>", "", {"controllers": [ROOT]}, []),
        (
            "<controller type='usb' index='0' model='qemu-xhci'/>",
            "",
            {"controllers": [{"type": "usb", "index": "0", "model": "qemu-xhci"}, *EMPTY["controllers"]]},
            [],
        ),
        (
            "<serial type='pty'><target port='0'/></serial><console type='pty'><target type='serial' port='0'/></console>",
            "",
            {"serials": [{"port": 0, "type": "pty"}]},
            [],
        ),
        (
            CHANNEL.format("unix", " name='a.b'") + CHANNEL.format("pty", ""),
            "",
            {"channels": [{"name": "a.b", "type": "unix"}, *EMPTY["channels"]]},
            ["channel"],
        ),
        (
            CHANNEL.format("unix", " name='None'"),
            "",
            {"channels": [{"name": "None", "type": "unix"}, *EMPTY["channels"]]},
            [],
        ),
        # of which no option says where the bytes are
        (
            f"{DISK}</disk>" + NOTHING.format("", "vdb", "virtio") + NOTHING.format(" device='lun'", "sdb", "scsi"),
            "",
            {"disks": [IMAGE]},
            ["disk", "disk"],
        ),
        (
            NOTHING.format(" device='cdrom'", "sda", "sata"),
            "",
            {"disks": [{"name": "sda", "device": "cdrom", "bus": "sata", "target": "sda"}]},
            [],
        ),
        # that cannot be told apart
        (
            f"{NIC}</interface>{NIC.replace('br0', 'br1')}</interface>{OTHER_NIC}",
            "",
            {"interfaces": [ONE_NIC]},
            ["interface", "interface"],
        ),
        (RNG + RNG, "", {"rng": None}, ["rng", "rng"]),
        (f"{SPICE}<image compression='off'/></graphics>", "", {"graphics": SPICE_ON}, ["graphics"]),
        (f"{VNC}{VNC}", "", {}, ["graphics", "graphics"]),
    ],
)
def test_what_options_say_and_what_libvirts_words(
    devices: str, beside: str, options: dict[str, t.Any], rest: list[str]
) -> None:
    result = imported(document(devices, beside), autostart=False)
    told = {key: value for key, value in {**EMPTY, **options}.items() if value is not None}
    xml = result.arguments.pop("xml", "<domain><devices/></domain>")
    assert result.arguments == told and not result.not_imported
    assert [one.tag for one in parse(xml).find("devices")] == rest


def test_how_a_guest_runs_is_told_and_what_that_brings_is_not() -> None:
    xml = document(beside="<cpu mode='maximum'/>").replace("type='kvm'", "type='qemu'")
    assert imported(xml, autostart=False).arguments["cpu"] == {"mode": "maximum"}
    assert "cpu" not in least(xml) and least(xml)["virt_type"] == "qemu"
    assert "uuid" not in plan_import.imported(xml, CHECK, autostart=False).arguments
    assert "cpu" in plan_import.imported(xml, CHECK, autostart=False).arguments


def test_the_seed_disk_is_none_of_its_disks() -> None:
    seed = DISK.replace("/a.qcow2", "/seed.iso").replace("vda", "vdb") + "<alias name='ua-seed'/></disk>"
    result = imported(document(f"{DISK}</disk>{seed}"), autostart=False)
    assert [one["source"] for one in result.arguments["disks"]] == ["/a.qcow2"]
    assert "/seed.iso" in result.arguments["xml"]


def test_a_guest_that_cannot_be_described_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libvirt_query, "by_uuid", lambda _connection, uuid: uuid)
    texts = {"1": "<domain", "2": document()}
    monkeypatch.setattr(libvirt_query, "definition", lambda uuid, secrets: texts[uuid] if secrets else "")
    monkeypatch.setattr(libvirt_query, "snapshots", lambda _domain: [("s1", "<domainsnapshot/>")])
    params = {"arguments": "true", "uuid": False}
    broken, whole = (
        virt_domain_info.described(None, {"uuid": uuid, "autostart": False}, params) for uuid in ("1", "2")
    )
    assert broken["arguments"] is None and broken["not_imported"][0]["path"] == "/domain"
    assert "cannot parse" in broken["not_imported"][0]["why"] and whole["arguments"]["name"] == "web1"
    assert whole["not_imported"][-1]["path"] == "/domainsnapshot" and "s1" in whole["not_imported"][-1]["why"]


@pytest.mark.parametrize(
    "xml",
    [
        "<domain type='kvm'><name>a</name><memory>1</memory><vcpu>1</vcpu><os><type>hvm</type></os></domain>",
        "<domain><name>a</name><memory>1</memory><vcpu>1</vcpu><os/><devices/></domain>",
        document("<disk type='file'><source file='/a'/><address type='drive' controller='0'/></disk>"),
    ],
)
def test_the_least_of_a_definition_is_enough(xml: str) -> None:
    """As programs write it, before libvirt has added to it."""
    assert imported(xml, autostart=False).arguments["name"] in ("a", "web1")
