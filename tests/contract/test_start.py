"""A start that libvirt would refuse on each run is refused in check mode as well, by whatever module."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import types
import typing as t
from pathlib import Path

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import NamedBy
from ansible_collections.corral.virt.plugins.module_utils._guest import (
    files_prerequisites,
    run_guest,
    run_power,
    run_prerequisites,
)
from ansible_collections.corral.virt.plugins.module_utils._guest.libvirt_prerequisites import (
    inactive_networks,
    networks_without_autostart,
    transient_networks,
)
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._storage import files_header
from ansible_collections.corral.virt.plugins.module_utils._system import interfaces, private
from ansible_collections.corral.virt.tests.golden.case import options

DISK = "<disk type='file'><source file='{file}'/><target dev='vda' bus='virtio'/></disk>"
VOLUME = "<disk type='volume'><source pool='images' volume='nope'/><target dev='vdb' bus='virtio'/></disk>"
NIC = "<interface type='network'><source network='{network}'/><mac address='52:54:00:00:00:01'/></interface>"
POOL = "<pool type='dir'><name>images</name><target><path>/images</path></target></pool>"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[t.Callable[[str], t.Any]]:
    """Makes a host with a guest that is off; files are looked for as they are on a system's libvirt."""
    monkeypatch.setattr(run_prerequisites, "has_files_here", lambda _uri: True)
    monkeypatch.setattr(files_prerequisites, "_HOOKS", str(tmp_path / "hooks"))
    with contextlib.ExitStack() as connections:
        yield functools.partial(_host, connections, tmp_path)


def _host(connections: contextlib.ExitStack, place: Path, devices: str) -> t.Any:
    guest = f"<domain type='test'><name>web1</name><memory>65536</memory><os><type>hvm</type></os><devices>{devices}"
    text = f"<node><network><name>lan</name><bridge name='lo'/></network>{POOL}{guest}</devices></domain></node>"
    (place / "node.xml").write_text(text)
    connection = connections.enter_context(opened(f"test://{place}/node.xml", events=True))
    connection.lookupByName("web1").destroy()
    return connection


@pytest.mark.parametrize("check_mode", [True, False])
@pytest.mark.parametrize("converge", [run_guest.converge, run_power.converge], ids=["virt_domain", "virt_state"])
@pytest.mark.parametrize("state", ["running", "paused", "rebooted"])
def test_every_reason_is_told_before_anything_is_touched(
    host: t.Callable[[str], t.Any], converge: t.Any, state: str, check_mode: bool
) -> None:
    connection = host(DISK.format(file="/nope/a.img") + VOLUME + NIC.format(network="lan") + NIC.format(network="dmz"))
    connection.networkLookupByName("lan").destroy()
    with pytest.raises(NotFound, match="cannot start web1: ") as error:
        converge(connection, GuestSpec("web1", state=state), Gate(check_mode=check_mode))
    for reason in (
        "this host has no network dmz",
        "network lan is not active",
        "`virsh net-start lan`",
        "/nope/a.img does not exist",
        "volume nope of pool images is not found",
    ):
        assert reason in str(error.value)
    assert not connection.lookupByName("web1").isActive()


@pytest.mark.parametrize("converge", [run_guest.converge, run_power.converge], ids=["virt_domain", "virt_state"])
def test_what_is_there_starts(host: t.Callable[[str], t.Any], tmp_path: Path, converge: t.Any) -> None:
    (tmp_path / "a.img").touch()
    connection = host(DISK.format(file=tmp_path / "a.img") + NIC.format(network="lan"))
    converge(connection, GuestSpec("web1", state="running"), Gate(check_mode=False))
    assert connection.lookupByName("web1").isActive()


BOTH = pytest.mark.parametrize("converge", [run_guest.converge, run_power.converge], ids=["virt_domain", "virt_state"])


def test_what_images_stand_on_is_looked_for(host: t.Callable[[str], t.Any], tmp_path: Path) -> None:
    image = tmp_path / "a.qcow2"
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-u", "-b", "gone", "-F", "raw", image, "1M"], check=True
    )
    driver = f"<disk type='file'><driver name='qemu' type='qcow2'/><source file='{image}'/>"
    connection = host(f"{driver}<target dev='vda' bus='virtio'/></disk>")
    start = functools.partial(run_power.converge, connection, GuestSpec("web1", state="running"))
    with pytest.raises(
        NotFound, match=f"cannot start web1: backing file {tmp_path}/gone of image {image} does not exist"
    ):
        start(Gate(check_mode=True))
    (tmp_path / "gone").touch()
    assert start(Gate(check_mode=False))["changed"]


def test_what_images_in_pools_stand_on_is_looked_for(
    host: t.Callable[[str], t.Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "a.qcow2"
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-u", "-b", "gone", "-F", "raw", image, "1M"], check=True
    )
    monkeypatch.setattr(libvirt.virStorageVol, "path", lambda _volume: str(image))
    connection = host(VOLUME.replace("<source", "<driver name='qemu' type='qcow2'/><source"))
    volume = "<volume><name>nope</name><capacity>1048576</capacity></volume>"
    connection.storagePoolLookupByName("images").createXML(volume)
    with pytest.raises(
        NotFound, match=f"cannot start web1: backing file {tmp_path}/gone of image {image} does not exist"
    ):
        run_power.converge(connection, GuestSpec("web1", state="running"), Gate(check_mode=True))


def test_the_bridge_of_a_network_that_is_active_can_be_missing(host: t.Callable[[str], t.Any], tmp_path: Path) -> None:
    connection = host(NIC.format(network="outer"))
    bridge = "<network><name>outer</name><forward mode='bridge'/><bridge name='no-bridge'/></network>"
    connection.networkCreateXML(bridge)
    start = functools.partial(run_power.converge, connection, GuestSpec("web1", state="running"))
    with pytest.raises(NotFound, match="cannot start web1: network outer has no bridge no-bridge on this host; create"):
        start(Gate(check_mode=True))
    hook = tmp_path / "hooks/network"
    hook.parent.mkdir()
    hook.touch(0o755)
    assert start(Gate(check_mode=False))["changed"]


def nwfilter(name: str, *references: str) -> types.SimpleNamespace:
    """A network filter, which libvirt's test driver does not know."""
    document = f"<filter>{''.join(f'<filterref filter={one!r}/>' for one in references)}</filter>"
    return types.SimpleNamespace(name=lambda: name, XMLDesc=lambda: document)


@BOTH
@pytest.mark.parametrize(("wanted", "lacks"), [("good", ""), ("nope", "nope"), ("outer", "gone"), ("loop", "")])
def test_filters_are_looked_for_however_far(
    host: t.Callable[[str], t.Any], monkeypatch: pytest.MonkeyPatch, converge: t.Any, wanted: str, lacks: str
) -> None:
    there = [nwfilter("good"), nwfilter("outer", "inner", "good"), nwfilter("inner", "gone"), nwfilter("loop", "loop")]
    calls: list[object] = []

    def listed(*given: object) -> list[types.SimpleNamespace]:
        calls.append(given)
        return there

    monkeypatch.setattr(libvirt.virConnect, "listAllNWFilters", listed)
    nics = [NIC.format(network="lan").replace("/></", f"/><filterref filter='{name}'/></") for name in (wanted, "good")]
    connection = host("".join(nics))
    outcome = pytest.raises(NotFound, match=f"cannot start web1: this host has no network filter {lacks}; define it")
    for times in (1, 2 if lacks else 1):
        with outcome if lacks else contextlib.nullcontext():
            converge(connection, GuestSpec("web1", state="running"), Gate(check_mode=True))
        assert len(calls) == times, "one call for all guests; a filter that was missing may come"


@BOTH
def test_a_host_without_network_filters_is_asked_no_more(host: t.Callable[[str], t.Any], converge: t.Any) -> None:
    connection = host(NIC.format(network="lan").replace("/></", "/><filterref filter='f'/></"))
    assert converge(connection, GuestSpec("web1", state="running"), Gate(check_mode=True))["changed"]


@BOTH
def test_devices_that_the_host_does_not_have(host: t.Callable[[str], t.Any], tmp_path: Path, converge: t.Any) -> None:
    usb = "<vendor id='0xffff'/><product id='0xfffe'/>"
    connection = host(f"<hostdev mode='subsystem' type='usb'><source>{usb}</source></hostdev>")
    with pytest.raises(NotFound, match="cannot start web1: this host has no device usb 0xffff:0xfffe; plug in"):
        converge(connection, GuestSpec("web1", state="running"), Gate(check_mode=True))


@BOTH
def test_a_saved_guest_goes_on_with_what_it_had(
    host: t.Callable[[str], t.Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, converge: t.Any
) -> None:
    connection = host(DISK.format(file="/nope/a.img"))
    (tmp_path / "b.img").touch()
    saved = DISK.format(file=tmp_path / "b.img") + DISK.format(file=tmp_path / "c.img")
    needed = saved.replace("c.img'", "c.img' startupPolicy='requisite'")
    _saved(monkeypatch, f"<domain><devices>{needed}</devices></domain>")
    start = functools.partial(converge, connection, GuestSpec("web1", state="running"))
    assert start(Gate(check_mode=True))["changed"]
    _saved(monkeypatch, f"<domain><devices>{saved}</devices></domain>")
    for check_mode in (True, False):
        with pytest.raises(NotFound, match=r"cannot start web1 from its managed save image: \S+/c\.img does not"):
            start(Gate(check_mode=check_mode))
    hook = tmp_path / "hooks/qemu"
    hook.parent.mkdir()
    hook.touch(0o755)
    assert start(Gate(check_mode=True))["changed"], "it may change what is saved"


@BOTH
def test_a_saved_state_that_nobody_can_read(
    host: t.Callable[[str], t.Any], monkeypatch: pytest.MonkeyPatch, converge: t.Any
) -> None:
    connection = host(DISK.format(file="/nope/a.img"))
    _saved(monkeypatch, None)
    converge(connection, GuestSpec("web1", state="running"), Gate(check_mode=False))
    assert connection.lookupByName("web1").isActive()


def _saved(monkeypatch: pytest.MonkeyPatch, xml: str | None) -> None:
    def read(_domain: object, _flags: int = 0) -> str:
        if xml is None:
            raise libvirt.libvirtError("damaged")
        return xml

    monkeypatch.setattr(libvirt.virDomain, "hasManagedSaveImage", lambda *_flags: 1)
    monkeypatch.setattr(libvirt.virDomain, "managedSaveGetXMLDesc", read)


@pytest.mark.parametrize("check_mode", [True, False])
def test_a_running_guest_gets_nothing_that_is_not_there(host: t.Callable[[str], t.Any], check_mode: bool) -> None:
    connection = host("")
    domain = connection.lookupByName("web1")
    domain.create()
    connection.networkLookupByName("lan").destroy()
    before = domain.XMLDesc()
    nic = Item("eth1", fields={"type": "network", "network": "lan"})
    wanted = GuestSpec("web1", state="running", fields={"interfaces": (nic,)})
    with pytest.raises(NotFound, match=r"cannot change web1: network lan is not active; .*virsh net-start lan"):
        run_guest.converge(connection, wanted, Gate(check_mode=check_mode))
    assert domain.XMLDesc() == before


def test_a_guest_that_stays_off_may_wait_for_what_comes(host: t.Callable[[str], t.Any]) -> None:
    connection = host(DISK.format(file="/nope/a.img"))
    change = functools.partial(run_guest.converge, connection, gate=Gate(check_mode=False))
    assert change(wanted=GuestSpec("web1", fields={"title": "Web"}))["changed"]


@pytest.mark.parametrize("check_mode", [True, False])
@pytest.mark.parametrize("running", [True, False])
def test_files_that_the_next_start_would_not_find_are_told(
    host: t.Callable[[str], t.Any], tmp_path: Path, check_mode: bool, running: bool
) -> None:
    connection = host(DISK.format(file="/nope/a.img"))
    if running:
        connection.lookupByName("web1").create()
    drive = {"name": "cd", "device": "cdrom", "source": "/nope/a.iso"}
    more = {"name": "more", "source": "/nope/b.img"}
    fails = "the next start of web1 fails while /nope/"
    told = (
        f"{fails}a.iso does not exist; put it there, or take it out of the drive with playbook eject",
        f"{fails}b.img does not exist; put it there, or take it out of the guest's definition",
    )

    def change(**fields: t.Any) -> list[str]:
        wanted = options({"name": "web1", "apply": "next_boot", **fields})
        return t.cast("list[str]", run_guest.converge(connection, wanted, Gate(check_mode=check_mode))["notes"])

    assert tuple(change(disks=[drive, more])) == told
    assert change(disks=[drive, more]) == (list(told) if check_mode else []), "only what a change adds is told"
    assert change(title="Web") == []
    (tmp_path / "c.iso").touch()
    assert change(disks=[{**drive, "source": str(tmp_path / "c.iso")}]) == []


def test_the_next_start_of_a_saved_guest_is_that_of_its_image(host: t.Callable[[str], t.Any]) -> None:
    """It goes on with the definition in its managed save image, whatever is stored."""
    connection = host(DISK.format(file="/nope/a.img"))
    domain = connection.lookupByName("web1")
    domain.create()
    domain.managedSave(0)
    drive = {"name": "cd", "device": "cdrom", "source": "/nope/a.iso"}
    wanted = options({"name": "web1", "apply": "next_boot", "disks": [drive]})
    told = run_guest.converge(connection, wanted, Gate(check_mode=True))["notes"]
    assert not [note for note in told if "the next start" in note]


def test_a_start_without_its_medium_names_eject(host: t.Callable[[str], t.Any]) -> None:
    drive = "<disk type='{type}' device='cdrom'><source {source}/><target dev='{to}' bus='sata'/></disk>"
    connection = host(
        drive.format(type="file", source="file='/nope/a.iso'", to="sda")
        + drive.format(type="volume", source="pool='images' volume='nope'", to="sdb")
    )
    with pytest.raises(
        NotFound,
        match=r"put it there, or take it out of the drive with playbook eject; create the .*, or take it out of the drive",
    ):
        run_guest.converge(connection, GuestSpec("web1", state="running"), Gate(check_mode=True))


@pytest.mark.parametrize("check_mode", [True, False])
def test_a_network_that_does_not_start_with_the_host_is_told(host: t.Callable[[str], t.Any], check_mode: bool) -> None:
    connection = host(NIC.format(network="lan"))
    change = functools.partial(run_guest.converge, connection, gate=Gate(check_mode=check_mode))
    wanted = GuestSpec("web1", autostart=True)
    [note] = change(wanted=wanted)["notes"]
    assert "web1 starts with the host, and network lan, which it needs, does not; set autostart: true" in note
    assert change(wanted=wanted)["notes"] == ([note] if check_mode else []), "only who asks for it is told"
    connection.lookupByName("web1").setAutostart(0)
    connection.networkLookupByName("lan").setAutostart(1)
    assert not change(wanted=wanted)["notes"]


def test_a_transient_network_must_be_defined(host: t.Callable[[str], t.Any]) -> None:
    connection = host(NIC.format(network="guests"))
    connection.networkCreateXML("<network><name>guests</name><bridge name='lo'/></network>")
    [note] = run_guest.converge(connection, GuestSpec("web1", autostart=True), Gate(check_mode=True))["notes"]
    assert "network guests, which it needs, does not; it is transient: define it with virt_network" in note
    assert transient_networks(connection, ["lan", "guests"]) == {"guests"}


@pytest.mark.parametrize(("mode", "starts"), [(0o755, True), (0o644, False)])
@pytest.mark.parametrize("script", ["qemu", "qemu.d/10-disks"])
@pytest.mark.parametrize("converge", [run_guest.converge, run_power.converge], ids=["virt_domain", "virt_state"])
def test_a_hook_may_set_up_files_before_a_guest_starts(
    host: t.Callable[[str], t.Any], tmp_path: Path, converge: t.Any, script: str, mode: int, starts: bool
) -> None:
    hook = tmp_path / "hooks" / script
    hook.parent.mkdir(parents=True)
    hook.touch(mode)
    connection = host(DISK.format(file="/nope/a.img"))
    with contextlib.nullcontext() if starts else pytest.raises(NotFound, match=r"/nope/a\.img does not exist"):
        converge(connection, GuestSpec("web1", state="running"), Gate(check_mode=False))
    assert bool(connection.lookupByName("web1").isActive()) is starts


def test_networks_are_asked_for_in_few_calls(host: t.Callable[[str], t.Any], monkeypatch: pytest.MonkeyPatch) -> None:
    connection = host(NIC.format(network="lan"))
    for question in ("isActive", "autostart"):
        monkeypatch.setattr(libvirt.virNetwork, question, lambda _network: pytest.fail("a call for each network"))
    assert inactive_networks(connection, ["lan", "dmz"]) == {"dmz": False}
    assert networks_without_autostart(connection, ["lan", "dmz"]) == {"lan"}
    connection.networkLookupByName("lan").destroy()
    assert inactive_networks(connection, ["lan"]) == {"lan": True}


def test_a_new_interface_is_on_a_bridge_by_its_other_name(
    host: t.Callable[[str], t.Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = host("")
    monkeypatch.setattr(libvirt_query, "links", lambda _connection: ({"br0"}, set()))
    monkeypatch.setattr(interfaces, "other_names", lambda names: {"outer"} if "br0" in names else set())
    change = functools.partial(run_guest.converge, connection, gate=Gate(check_mode=True))
    for bridge, known in (("br0", True), ("outer", True), ("inner", False)):
        nic = Item("eth0", fields={"type": "bridge", "bridge": bridge})
        with contextlib.nullcontext() if known else pytest.raises(NotFound, match="this host has no bridge inner"):
            assert change(wanted=GuestSpec("web1", fields={"interfaces": (nic,)}))["changed"]


def image(path: Path, *more: str) -> str:
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-u", *more, path, "1M"], check=True)
    return str(path)


def test_what_images_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = str(tmp_path / "gone.img")
    low = image(tmp_path / "low", "-b", "gone.img", "-F", "raw")
    image(tmp_path / "middle", "-b", low, "-F", "qcow2")
    tops = [image(tmp_path / f"top{number}", "-b", "middle", "-F", "qcow2") for number in range(3)]
    assert files_prerequisites.missing_named(dict.fromkeys(tops, True)) == {gone: NamedBy(low, is_data=False)}
    assert (
        files_prerequisites.missing_named(
            {tops[0]: False, f"{tmp_path}/none": True, str(tmp_path): True, "relative": True}
        )
        == {}
    )
    (tmp_path / "raw-below").write_bytes(Path(low).read_bytes())
    assert files_prerequisites.missing_named({image(tmp_path / "c", "-b", "raw-below", "-F", "raw"): True}) == {}, (
        "a guest wrote it"
    )
    assert files_header.backing_format(tops[0]) == "qcow2" and files_header.backing_format(gone) is None
    monkeypatch.setattr(private, "opened", lambda *_given: pytest.fail("read"))
    assert files_prerequisites.missing_named({}) == {}


def test_images_that_many_stand_on_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    low = image(tmp_path / "low")
    tops = [image(tmp_path / f"top{number}", "-b", low, "-F", "qcow2") for number in range(3)]
    bases, asked = files_header.bases, list[str]()

    def counted(path: str) -> list[str]:
        asked.append(path)
        return bases(path)

    monkeypatch.setattr(files_header, "bases", counted)
    assert files_prerequisites.missing_named(dict.fromkeys(tops, True)) == {}
    assert sorted(asked) == sorted([low, *tops])


def test_images_that_stand_on_themselves(tmp_path: Path) -> None:
    one, other = (image(tmp_path / name, "-b", base, "-F", "qcow2") for name, base in (("a", "b"), ("b", "a")))
    assert files_prerequisites.missing_named({one: True, other: True}) == {}


def test_where_the_content_of_an_image_is(tmp_path: Path) -> None:
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-o", "data_file=d.raw", "a", "1M"], cwd=tmp_path, check=True
    )
    top = image(tmp_path / "top", "-b", "a", "-F", "qcow2")
    assert files_prerequisites.missing_named({top: True}) == {}
    (tmp_path / "d.raw").unlink()
    lost = {f"{tmp_path}/d.raw": NamedBy(f"{tmp_path}/a", is_data=True)}
    assert (
        files_prerequisites.missing_named({top: True})
        == lost
        == files_prerequisites.missing_named({f"{tmp_path}/a": False})
    )


def test_images_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = image(tmp_path / "top", "-b", "gone", "-F", "qcow2")
    assert files_prerequisites.missing_named({top: True})

    def opened(*_given: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(private, "opened", opened)
    assert files_prerequisites.missing_named({top: True}) == {}
