"""The prerequisites of a guest, and how a start is refused that it would refuse on each run."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import (
    Missing,
    NamedBy,
    Offer,
    Prerequisites,
    Qcow2,
    Uplink,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_prerequisites import prerequisites, uplink
from ansible_collections.corral.virt.plugins.module_utils._guest import files_prerequisites, plan_start
from ansible_collections.corral.virt.plugins.module_utils._power import plan_power_steps
from ansible_collections.corral.virt.plugins.module_utils._system import command, interfaces
from ansible_collections.corral.virt.plugins.module_utils._xml import stdlib_reader

GUEST = """<domain><os><kernel>/k</kernel><initrd>/i</initrd><loader>/l</loader><nvram template='/t'>/v</nvram></os>
<metadata><x:disk xmlns:x='urn:x'><source file='/not/a/disk'/></x:disk></metadata><devices>
<disk><source file='/a'/><backingStore><source file='/below'/></backingStore></disk>
<disk><source dev='/dev/b'/></disk><disk><source pool='p' volume='n'/></disk><disk device='cdrom'/>
<disk><source file='/maybe' startupPolicy='optional'/></disk><disk type='network'><source protocol='rbd'/></disk>
<filesystem><source dir='/d'/></filesystem><memory model='nvdimm'><source><path>/dimm</path></source></memory>
<interface type='network'><source network='lan'/><virtualport type='openvswitch'/></interface>
<interface type='bridge'><source bridge='br0'/></interface><interface type='direct'><source dev='eth7'/></interface>
<interface type='bridge'><source bridge='ovs0'/><virtualport type='openvswitch'/></interface>
<interface type='hostdev'><source><address type='pci' domain='0' bus='6' slot='0' function='1'/></source>
<rom file='/rom'/></interface></devices></domain>"""


def test_prerequisites_of_a_guest() -> None:
    assert prerequisites(GUEST) == Prerequisites(
        networks=frozenset({"lan"}),
        links=frozenset({"br0", "eth7"}),
        lower=frozenset({"eth7"}),
        switches=frozenset({"ovs0"}),
        devices=frozenset({"pci 0000:06:00.1"}),
        files=frozenset({"/k", "/i", "/l", "/a", "/below", "/dev/b", "/d", "/rom"}),
        contents=frozenset({"/d"}),
        loaders=frozenset({"/l"}),
        volumes=frozenset({("p", "n")}),
        templates={"/t": "/v"},
    )


def test_needs_of_a_device() -> None:
    assert prerequisites("<disk><source file='/a'/></disk>") == Prerequisites(files=frozenset({"/a"}))
    assert prerequisites("<interface type='network'><source network='n'/></interface>").networks == {"n"}
    assert prerequisites("<graphics type='vnc'/>") == Prerequisites()
    usb = "<hostdev type='usb'><source><vendor id='0x1'/><product id='0x2'/></source></hostdev>"
    assert prerequisites(usb).devices == {"usb 0x1:0x2"}
    assert not prerequisites(usb.replace("<source>", "<source startupPolicy='optional'>")).devices
    pci = "<hostdev type='pci'><source><address domain='0' bus='{}' slot='0x1f' function='0'/></source></hostdev>"
    assert prerequisites(pci.format("0x6")).devices == {"pci 0000:06:1f.0"}
    assert not prerequisites(pci.format("06")).devices, "an octal number"


@pytest.mark.parametrize(("policy", "needed"), [("mandatory", (1, 1)), ("requisite", (1, 0)), ("optional", (0, 0))])
def test_what_a_guest_starts_without(policy: str, needed: tuple[int, int]) -> None:
    disk = f"<disk><driver type='qcow2'/><source file='/a' startupPolicy='{policy}'/></disk>"
    for restored in (False, True):
        needs = prerequisites(f"<domain><devices>{disk}</devices></domain>", restored=restored)
        assert (len(needs.files), len(needs.images), needs.restored) == (*[needed[restored]] * 2, restored)


CHANNEL = "<serial type='{}'>{}</serial>"
SHARED = "<filesystem type='mount'><driver type='virtiofs'/>{}<source dir='/d'/></filesystem>"


@pytest.mark.parametrize(
    ("os", "devices", "expected"),
    [
        ("<acpi><table type='slic'>/acpi</table></acpi><shim>/s</shim><dtb>/dtb</dtb>", "", {"/acpi", "/s", "/dtb"}),
        ("<loader type='rom'>/bios</loader>", "", {"/bios"}),
        ("", "<emulator>/usr/bin/qemu</emulator>", {"/usr/bin/qemu"}),
        ("", "<hostdev><rom file='/rom'/></hostdev>", {"/rom"}),
        ("", SHARED.format("<binary path='/b'/>"), {"/d", "/b"}),
        ("", "<filesystem><driver type='virtiofs'/><source socket='/run/s'/></filesystem>", {"/run/s"}),
        ("", CHANNEL.format("pty", "<source path='/dev/pts/1'/><log file='/logs/a.log'/>"), {"/logs"}),
        ("", CHANNEL.format("file", "<source path='/logs/a.txt'/>"), {"/logs"}),
        ("", CHANNEL.format("dev", "<source path='/dev/ttyS1'/>"), {"/dev/ttyS1"}),
        ("", CHANNEL.format("unix", "<source mode='bind' path='/run/x/a'/>"), {"/run/x"}),
        ("", CHANNEL.format("unix", "<source mode='connect' path='/run/x/a'/>"), {"/run/x/a"}),
        ("", CHANNEL.format("unix", "<source mode='bind' path='/var/lib/libvirt/qemu/channel/1/a'/>"), set()),
        ("", CHANNEL.format("tcp", "<source mode='connect' host='h' service='1'/>"), set()),
        ("", "<interface type='vhostuser'><source type='unix' path='/ovs/v' mode='client'/></interface>", {"/ovs/v"}),
        ("", "<interface type='vhostuser'><source type='unix' path='/ovs/v' mode='server'/></interface>", {"/ovs"}),
        ("", "<tpm><backend type='passthrough'><device path='/dev/tpm0'/></backend></tpm>", {"/dev/tpm0"}),
        ("", "<rng><backend model='random'>/dev/hwrng</backend></rng>", {"/dev/hwrng"}),
        ("", "<input type='evdev'><source dev='/dev/input/event1'/></input>", {"/dev/input/event1"}),
        (
            "",
            "<graphics type='egl-headless'><gl rendernode='/dev/dri/renderD128'/></graphics>",
            {"/dev/dri/renderD128"},
        ),
        ("", "<graphics type='vnc'><listen type='socket' socket='/srv/vnc/a'/></graphics>", {"/srv/vnc"}),
    ],
)
def test_a_guest_does_not_go_where_it_cannot_open_what_it_names(os: str, devices: str, expected: set[str]) -> None:
    """Each place of a definition that names a file, a device or a socket, or a directory in which one is made."""
    xml = f"<domain><os><type>hvm</type>{os}</os><devices>{devices}</devices></domain>"
    needs = prerequisites(xml)
    assert needs.paths == expected
    assert needs.special == {path for path in needs.files if path.startswith(("/dev", "/run", "/ovs"))}


def test_a_guest_does_not_go_where_its_fw_cfg_files_are_missing() -> None:
    fwcfg = "<sysinfo type='fwcfg'><entry name='opt/a' file='/fw'/><entry name='opt/b'>text</entry></sysinfo>"
    assert prerequisites(f"<domain>{fwcfg}</domain>").files == {"/fw"}


def test_programs_and_secrets_of_a_guest() -> None:
    needs = prerequisites(f"<domain><devices>{SHARED.format('')}</devices></domain>")
    assert needs.helpers == {"virtiofsd"}
    assert needs.contents == {"/d"}
    assert not prerequisites(SHARED.format("<binary path='/b'/>")).helpers
    xml = (
        "<domain type='kvm'><os firmware='efi'><type arch='x86_64' machine='q35'>hvm</type>{}</os><devices>"
        "<tpm><backend type='emulator'><encryption secret='t'/></backend></tpm>"
        "<disk><source file='/a'><encryption><secret type='passphrase' uuid='u'/></encryption></source></disk>"
        "<disk><source protocol='rbd'><auth><secret type='ceph' usage='ceph pool'/></auth></source></disk></devices></domain>"
    )
    offers = {Offer("efi", "kvm", "x86_64", "q35"), Offer("swtpm", "kvm", "x86_64", "q35")}
    assert prerequisites(xml.format("")).offers == offers
    assert {one.what for one in prerequisites(xml.format("<loader>/l</loader>")).offers} == {"swtpm"}
    travelling = prerequisites(xml.format(""), disks=False)
    assert travelling.secrets == {"t", "u", "ceph pool"}
    assert not travelling.files


@pytest.mark.parametrize(
    ("capabilities", "what", "offered"),
    [
        ("<os><enum name='firmware'><value>bios</value></enum></os>", "efi", False),
        ("<os><enum name='firmware'><value>efi</value></enum></os>", "efi", True),
        ("<os/>", "efi", True),
        ("<devices><tpm><enum name='backendModel'><value>passthrough</value></enum></tpm></devices>", "swtpm", False),
        ("<devices><tpm><enum name='backendModel'><value>emulator</value></enum></tpm></devices>", "swtpm", True),
        ("", "swtpm", True),
    ],
)
def test_what_libvirt_can_give_guests(capabilities: str, what: str, *, offered: bool) -> None:
    assert stdlib_reader.offers(f"<domainCapabilities>{capabilities}</domainCapabilities>", what) == offered


def test_what_another_host_lacks_is_told_of_that_host() -> None:
    lacked = Missing(
        networks={"lan": False, "dmz": True},
        links=frozenset({"br0", "ovs0"}),
        paths=frozenset({"/k", "/l", "/d", "/logs"}),
    )
    needs = plan_start.combined([prerequisites(GUEST), Prerequisites(directories=frozenset({"/logs"}))])
    assert plan_start.problems(needs, lacked, "hyper2") == [
        ("network dmz is not active on hyper2", "start it with virt_network (state: active) or `virsh net-start dmz`"),
        ("hyper2 has no network lan", "create the network with virt_network, or choose another"),
        (
            "hyper2 has no network device br0",
            "create the bridge with role corral.virt.bridge, or choose another for the interface",
        ),
        (
            "hyper2 has no network device ovs0",
            "create the bridge of Open vSwitch (`ovs-vsctl add-br ovs0`), or choose another for the interface",
        ),
        (
            "/d does not exist on hyper2",
            "create the directory and copy what it holds, or mount it from storage that both hosts have",
        ),
        ("/k does not exist on hyper2", "put it there, or take it out of the guest's definition"),
        (
            "/l does not exist on hyper2",
            "install the package that has this firmware, or copy the file from a host that has it",
        ),
        (
            "directory /logs, for logs or sockets of the guest, does not exist on hyper2",
            "create it (`mkdir -p /logs`), or choose another in the guest's definition",
        ),
    ]


IMAGE = "<disk><driver type='qcow2'/>{}{}</disk>"
FILE = "<source file='{}'/>"
BELOW = "<backingStore><format type='{}'/><source file='/b'/>{}</backingStore>"


@pytest.mark.parametrize(
    ("disk", "images"),
    [
        (IMAGE.format(FILE.format("/a"), ""), {Qcow2("/a")}),
        (IMAGE.format(FILE.format("/a"), "<backingStore/>"), {Qcow2("/a", is_alone=True)}),
        (IMAGE.format(FILE.format("/a"), BELOW.format("qcow2", "")), {Qcow2("/a", is_alone=True), Qcow2("/b")}),
        (IMAGE.format(FILE.format("/a"), BELOW.format("raw", "")), {Qcow2("/a", is_alone=True)}),
        (IMAGE.format("<source pool='p' volume='n'/>", ""), {Qcow2(("p", "n"))}),
        (IMAGE.format("<source dev='/dev/b'/>", ""), set()),
        (IMAGE.format("<source file='/a'><dataStore><source file='/d'/></dataStore></source>", ""), set()),
        ("<disk><driver type='raw'/><source file='/a'/></disk>", set()),
        ("<disk><source file='/a'/></disk>", set()),
    ],
)
def test_which_images_are_asked_what_they_name(disk: str, images: set[Qcow2]) -> None:
    needs = prerequisites(disk)
    assert needs.images == images
    assert {image.place for image in images if isinstance(image.place, str)} <= needs.files
    assert ("/d" in needs.files) == ("dataStore" in disk)


@pytest.mark.parametrize(
    ("kind", "filtered"), [("network", 1), ("bridge", 1), ("ethernet", 1), ("user", 0), ("direct", 0)]
)
def test_which_filters_are_looked_for(kind: str, filtered: int) -> None:
    nic = f"<interface type='{kind}'><source network='lan'/><filterref filter='f'/></interface>"
    assert len(prerequisites(nic).filters) == filtered


def test_networks_of_open_vswitch_have_devices_that_the_kernel_does_not_know() -> None:
    nic = "<interface type='network'><source network='lan'/></interface>"
    assert prerequisites(nic).plugged == {"lan"} == prerequisites(nic).networks
    assert not prerequisites(nic.replace("/></", "/><virtualport type='openvswitch'/></")).plugged


NETWORK = "<network><name>lan</name>{}</network>"
OVS = "<virtualport type='openvswitch'/>"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("<bridge name='b'/>", Uplink("b", is_own=True)),
        ("<forward/><bridge name='b'/>", Uplink("b", is_own=True)),
        ("<forward mode='open'/><bridge name='b'/>", Uplink("b", is_own=True)),
        ("<forward mode='bridge'/><bridge name='b'/>", Uplink("b")),
        (f"<forward mode='bridge'/><bridge name='b'/>{OVS}", Uplink()),
        (f"<forward mode='bridge'/><bridge name='b'/><portgroup>{OVS}</portgroup>", Uplink()),
        ("<forward mode='vepa' dev='x'><interface dev='x'/></forward>", Uplink(interfaces=("x",))),
        ("<forward mode='bridge'><interface dev='x'/><interface dev='y'/></forward>", Uplink(interfaces=("x", "y"))),
        ("<forward mode='passthrough'><pf dev='z'/><interface dev='x'/></forward>", Uplink()),
        ("<forward mode='hostdev'><interface dev='x'/></forward>", Uplink()),
        ("<forward dev='x' mode='nat'><interface dev='x'/></forward><bridge name='b'/>", Uplink("b", is_own=True)),
    ],
)
def test_what_guests_of_a_network_are_plugged_into(content: str, expected: Uplink) -> None:
    assert uplink(NETWORK.format(content)) == expected


@pytest.mark.parametrize(
    ("nvram", "variables"),
    [
        ("<nvram template='/t'/>", ""),
        ("<nvram template='/t'>/v</nvram>", "/v"),
        ("<nvram template='/t' type='file'><source file='/w'/></nvram>", "/w"),
    ],
)
def test_where_variables_are(nvram: str, variables: str) -> None:
    assert prerequisites(f"<domain><os>{nvram}</os></domain>").templates == {"/t": variables}


def test_no_guest_starts_on_a_host_in_maintenance_and_one_that_runs_there_can_be_changed() -> None:
    missing, told = (
        Missing(maintenance="new fan"),
        r"^cannot start web1: this host is in maintenance \(new fan\) .*undrain",
    )
    with pytest.raises(Refused, match=told):
        plan_start.check("start", "web1", Prerequisites(), missing)
    plan_start.check("change", "web1", Prerequisites(), missing)
    with pytest.raises(Refused, match=told):
        plan_start.check_steps("web1", [plan_power_steps.Start("web1")], lambda: (Prerequisites(), missing))
    plan_start.check_steps(
        "web1", [plan_power_steps.Resume("web1"), plan_power_steps.Reset("web1")], lambda: (Prerequisites(), missing)
    )


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        (Missing(networks={"a lan": True}), "network a lan is not active; start it .* `virsh net-start 'a lan'`"),
        (Missing(networks={"lan": False}), "this host has no network lan; create the network with virt_network"),
        (Missing(links=frozenset({"br0"})), "this host has no network device br0; create the bridge with role"),
        (
            Missing(links=frozenset({"eth7"})),
            "this host has no network device eth7; connect or create it .*choose anoth",
        ),
        (
            Missing(uplinks={"a lan": Uplink("b")}, links=frozenset({"b"})),
            "network a lan has no bridge b on this host; create the bridge with role .* or name another in network a lan",
        ),
        (
            Missing(uplinks={"a lan": Uplink("b", is_own=True)}, links=frozenset({"b"})),
            (
                "network a lan has no bridge b on this host; restart the network .*`virsh net-destroy 'a lan'` and "
                "`virsh net-start 'a lan'` .*output of `virsh net-dumpxml 'a lan'` before"
            ),
        ),
        (
            Missing(uplinks={"lan": Uplink(interfaces=("x", "y"))}, links=frozenset({"x", "y"})),
            "network lan has no network device x or y on this host; connect or create one, or name one",
        ),
        (Missing(filters=frozenset({"f"})), "this host has no network filter f; define it .*nwfilter-define"),
        (
            Missing(named={"/b": NamedBy("/a image", is_data=False)}),
            "backing file /b of image /a image does not exist; .*`qemu-img rebase -u -F FORMAT -b PATH '/a image'`",
        ),
        (
            Missing(named={"/b": NamedBy("/a", is_data=True)}),
            "data file /b of image /a does not exist; put it there, or restore both from a backup$",
        ),
        (
            Missing(devices=frozenset({"usb 1.2"})),
            "this host has no device usb 1.2; plug in, .*--cap usb_device` lists",
        ),
        (Missing(devices=frozenset({"pci 0000:06:00.0"})), "this host has no device pci .*--cap pci` lists"),
        (Missing(devices=frozenset({"mdev a"})), "this host has no device mdev a; .*--cap mdev` lists"),
        (Missing(paths=frozenset({"/a"})), "/a does not exist; put it there"),
        (Missing(paths=frozenset({"/t", "/v"})), "/t does not exist; install the package that has this firmware"),
        (Missing(secrets=frozenset({"s"})), "libvirt has no secret s; define it and set its value"),
        (Missing(helpers=frozenset({"virtiofsd"})), "this host has no virtiofsd; install package virtiofsd"),
        (
            Missing(offers=frozenset({Offer("swtpm", "kvm", "x86_64", "q35")})),
            "this host has no swtpm, which emulates a TPM; install pack",
        ),
        (
            Missing(offers=frozenset({Offer("efi", "kvm", "x86_64", "q35")})),
            "this host has no efi firmware for machine type q35; install it .*ovmf",
        ),
        (Missing(volumes={("p", "n"): "gone"}), r"volume n of pool p is not found \(gone\); create .*pool-refresh p`"),
        (
            Missing(networks={"l": True}, paths=frozenset({"/a", "/dev/b"})),
            "network l is not active, and /a does not exist, and /dev/b does not exist; start it .*; put it there.*",
        ),
    ],
)
def test_all_that_is_missing_is_told(missing: Missing, text: str) -> None:
    with pytest.raises(NotFound, match=f"^cannot start web1: {text}"):
        plan_start.check("start", "web1", prerequisites(GUEST), missing)


def test_what_a_saved_state_needs_is_not_in_the_definition() -> None:
    lacked, needs = Missing(paths=frozenset({"/a"})), Prerequisites(files=frozenset({"/a"}), restored=True)
    edited = "`virsh managedsave-edit 'a guest'` changes .*, `virsh managedsave-remove 'a guest'` discards it"
    with pytest.raises(NotFound, match=f"^cannot start a guest from its managed save image: /a does .*; {edited}"):
        plan_start.check("start", "a guest", needs, lacked)
    plan_start.check("start", "a guest", needs, Missing())


def test_a_disk_that_an_interrupted_run_was_making() -> None:
    missing = Missing(paths=frozenset({"/a.making"}))
    with pytest.raises(NotFound, match="an interrupted run left /a incomplete; list its disks again"):
        plan_start.check("start", "web1", Prerequisites(files=missing.paths), missing)


def test_variables_that_are_there_need_no_template() -> None:
    plan_start.check("start", "web1", prerequisites(GUEST), Missing(paths=frozenset({"/t"})))
    plan_start.check("start", "web1", prerequisites(GUEST), Missing(paths=frozenset({"/v"})))


def test_what_is_made_before_is_not_needed() -> None:
    images = {path: Qcow2(path) for path in ("/a", "/b")}
    both = [
        Prerequisites(files=frozenset(images), images=frozenset(images.values())),
        Prerequisites(networks=frozenset({"n"})),
    ]
    left = Prerequisites(files=frozenset({"/b"}), images=frozenset({images["/b"]}), networks=frozenset({"n"}))
    assert plan_start.combined(both, made=["/a"]) == left


@pytest.mark.parametrize(
    ("fields", "moves"),
    [
        ("link", False),
        ("link, filterref.name", False),
        ("filterref.parameters[IP], bandwidth.inbound.average", False),
        ("filterref.parameters[a b]", False),
        ("link, bridge", True),
        ("network", True),
        ("type", True),
    ],
)
def test_an_interface_stays_where_it_is(fields: str, *, moves: bool) -> None:
    one = frozenset({"x"})
    needs = Prerequisites(networks=one, plugged=one, filters=one, links=one, lower=one)
    assert plan_start.of_update(needs, fields) == (needs if moves else Prerequisites(networks=one, filters=one))


def test_needs_of_several_are_all_of_them() -> None:
    two = [Prerequisites(templates={"/t": "/v"}), Prerequisites(templates={"/u": "/w"}, restored=True)]
    assert plan_start.combined(two) == Prerequisites(templates={"/t": "/v", "/u": "/w"}, restored=True)


def test_a_network_with_one_device_left_may_take_that() -> None:
    lacked = Missing(uplinks={"lan": Uplink(interfaces=("x", "y")), "dmz": Uplink()}, links=frozenset({"x"}))
    plan_start.check("start", "web1", Prerequisites(), lacked)


def test_a_transient_network_starts_with_the_host_when_it_is_defined() -> None:
    lacked = Missing(no_autostart=frozenset({"a lan"}), transient=frozenset({"a lan"}))
    [note] = plan_start.autostart_notes("web1", lacked)
    assert "network a lan, which it needs, does not; it is transient: define it with virt_network" in note
    assert "`virsh net-dumpxml 'a lan' > 'a lan.xml'`, `virsh net-define 'a lan.xml'`, and `virsh net-autos" in note


def test_only_a_start_is_looked_at() -> None:
    missing = Missing(paths=frozenset({"/a"}))
    plan_start.check_steps("web1", [plan_power_steps.Resume("web1")], lambda: pytest.fail("asked"))
    with pytest.raises(NotFound, match="/a does not exist"):
        plan_start.check_steps(
            "web1", [plan_power_steps.Start("web1")], lambda: (Prerequisites(files=frozenset({"/a"})), missing)
        )


def test_what_is_missing(tmp_path: Path) -> None:
    there, link = tmp_path / "there", tmp_path / "link"
    there.touch()
    link.symlink_to(tmp_path / "nowhere")
    paths = [str(there), str(link), f"{there}/below", f"{tmp_path}/gone", "relative"]
    assert files_prerequisites.missing_paths(paths) == set(paths[1:4])
    assert files_prerequisites.missing_links(["lo", "no-such-link"]) == {"no-such-link"}


def test_a_network_device_may_have_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def index(name: str) -> int:
        if name != "enp3s0":
            raise OSError("no interface with this name")
        return 2

    monkeypatch.setattr(socket, "if_nametoindex", index)
    assert files_prerequisites.missing_links(["enp3s0", "no-such-link"]) == {"no-such-link"}


def test_a_bridge_may_have_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = '[{"ifname": "br0", "altnames": ["outer", "wan"]}, {"ifname": "eth0", "altnames": ["enp3s0"]}, {}]'
    monkeypatch.setattr(command, "answer", lambda *_command: listed)
    assert interfaces.other_names({"br0", "lo"}) == {"outer", "wan"}
    assert {"lo"} <= set(interfaces.names())
    monkeypatch.setattr(command, "answer", lambda *_command: "")
    assert interfaces.other_names({"br0"}) == set()


UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
OTHER = "0695eb01-f6a4-8304-79aa-97f2502e193f"


def test_which_devices_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [
        "pci 0000:06:00.0",
        "pci 0000:07:00.0",
        f"mdev {UUID.upper()}",
        f"mdev {OTHER}",
        "usb 0x1d6b:0x0002",
        "usb 0x1:0x2",
    ]
    names += ["usb 1.2", "usb 1.3", "usb a:b", "mdev a"]
    monkeypatch.setattr(files_prerequisites, "_BUSES", str(tmp_path / "bus"))
    assert files_prerequisites.missing_devices(names) == set(), "nobody sees any"
    for place in ("pci/devices/0000:06:00.0", f"mdev/devices/{UUID}", "usb/devices/usb1", "usb/devices/1-0:1.0"):
        (tmp_path / "bus" / place).mkdir(parents=True)
    for part, text in (("idVendor", "1d6b"), ("idProduct", "0002"), ("busnum", "1"), ("devnum", "2")):
        (tmp_path / "bus/usb/devices/usb1" / part).write_text(f"{text}\n")
    assert files_prerequisites.missing_devices(names) == {"pci 0000:07:00.0", f"mdev {OTHER}", "usb 0x1:0x2", "usb 1.3"}
