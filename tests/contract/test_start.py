"""A start that libvirt would refuse on each run is refused in check mode as well, by whatever module."""

from __future__ import annotations

import contextlib
import functools
import typing as t
from pathlib import Path

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._files import missing
from ansible_collections.corral.virt.plugins.module_utils._front import guest as guests
from ansible_collections.corral.virt.plugins.module_utils._front import power, prerequisites
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._libvirt.prerequisites import (
    inactive_networks,
    networks_without_autostart,
)
from ansible_collections.corral.virt.plugins.module_utils._model.domain import GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._model.item import Item
from ansible_collections.corral.virt.plugins.module_utils._run import Gate

DISK = "<disk type='file'><source file='{file}'/><target dev='vda' bus='virtio'/></disk>"
VOLUME = "<disk type='volume'><source pool='images' volume='nope'/><target dev='vdb' bus='virtio'/></disk>"
NIC = "<interface type='network'><source network='{network}'/><mac address='52:54:00:00:00:01'/></interface>"
POOL = "<pool type='dir'><name>images</name><target><path>/images</path></target></pool>"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[t.Callable[[str], t.Any]]:
    """Makes a host with a guest that is off; files are looked for as they are on a system's libvirt."""
    monkeypatch.setattr(prerequisites, "has_files_here", lambda _uri: True)
    monkeypatch.setattr(missing, "_HOOKS", str(tmp_path / "hooks"))
    with contextlib.ExitStack() as connections:
        yield functools.partial(_host, connections, tmp_path)


def _host(connections: contextlib.ExitStack, place: Path, devices: str) -> t.Any:
    guest = f"<domain type='test'><name>web1</name><memory>65536</memory><os><type>hvm</type></os><devices>{devices}"
    text = f"<node><network><name>lan</name><bridge name='virbr7'/></network>{POOL}{guest}</devices></domain></node>"
    (place / "node.xml").write_text(text)
    connection = connections.enter_context(opened(f"test://{place}/node.xml", events=True))
    connection.lookupByName("web1").destroy()
    return connection


@pytest.mark.parametrize("check_mode", [True, False])
@pytest.mark.parametrize("converge", [guests.converge, power.converge], ids=["virt_domain", "virt_state"])
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


@pytest.mark.parametrize("converge", [guests.converge, power.converge], ids=["virt_domain", "virt_state"])
def test_what_is_there_starts(host: t.Callable[[str], t.Any], tmp_path: Path, converge: t.Any) -> None:
    (tmp_path / "a.img").touch()
    connection = host(DISK.format(file=tmp_path / "a.img") + NIC.format(network="lan"))
    converge(connection, GuestSpec("web1", state="running"), Gate(check_mode=False))
    assert connection.lookupByName("web1").isActive()


@pytest.mark.parametrize("converge", [guests.converge, power.converge], ids=["virt_domain", "virt_state"])
def test_a_saved_guest_goes_on_with_what_it_had(
    host: t.Callable[[str], t.Any], monkeypatch: pytest.MonkeyPatch, converge: t.Any
) -> None:
    connection = host(DISK.format(file="/nope/a.img"))
    monkeypatch.setattr(libvirt.virDomain, "hasManagedSaveImage", lambda *_flags: 1)
    converge(connection, GuestSpec("web1", state="running"), Gate(check_mode=False))
    assert connection.lookupByName("web1").isActive()


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
        guests.converge(connection, wanted, Gate(check_mode=check_mode))
    assert domain.XMLDesc() == before


def test_a_guest_that_stays_off_may_wait_for_what_comes(host: t.Callable[[str], t.Any]) -> None:
    connection = host(DISK.format(file="/nope/a.img"))
    change = functools.partial(guests.converge, connection, gate=Gate(check_mode=False))
    assert change(wanted=GuestSpec("web1", fields={"title": "Web"}))["changed"]


@pytest.mark.parametrize("check_mode", [True, False])
def test_a_network_that_does_not_start_with_the_host_is_told(host: t.Callable[[str], t.Any], check_mode: bool) -> None:
    connection = host(NIC.format(network="lan"))
    change = functools.partial(guests.converge, connection, gate=Gate(check_mode=check_mode))
    wanted = GuestSpec("web1", autostart=True)
    [note] = change(wanted=wanted)["notes"]
    assert "web1 starts with the host, and network lan, which it needs, does not; set autostart: true" in note
    assert change(wanted=wanted)["notes"] == ([note] if check_mode else []), "only who asks for it is told"
    connection.lookupByName("web1").setAutostart(0)
    connection.networkLookupByName("lan").setAutostart(1)
    assert not change(wanted=wanted)["notes"]


@pytest.mark.parametrize(("mode", "starts"), [(0o755, True), (0o644, False)])
@pytest.mark.parametrize("script", ["qemu", "qemu.d/10-disks"])
@pytest.mark.parametrize("converge", [guests.converge, power.converge], ids=["virt_domain", "virt_state"])
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
