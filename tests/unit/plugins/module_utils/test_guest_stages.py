"""A guest's stages ask its host only what they need: each question is a round trip, for every guest of a call."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._model.display import DisplayDefaults
from ansible_collections.corral.virt.plugins.module_utils._model.domain import FoundGuest, OwnedDisk
from ansible_collections.corral.virt.plugins.module_utils._model.prerequisites import Missing, Prerequisites
from ansible_collections.corral.virt.plugins.module_utils._noun import guest
from ansible_collections.corral.virt.plugins.module_utils._plan import steps
from ansible_collections.corral.virt.plugins.module_utils._plan.capacity import Capacity
from ansible_collections.corral.virt.plugins.module_utils._plan.disk_facts import (
    Answer,
    Question,
    SeedSite,
    Site,
    SiteOf,
    Size,
)
from ansible_collections.corral.virt.plugins.module_utils._plan.domain import GuestPlan
from ansible_collections.corral.virt.plugins.module_utils._plan.pool_files import PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._xml import host_xml
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import make, parse, text
from ansible_collections.corral.virt.tests.golden.case import options

GOLDEN = Path(__file__).parents[3] / "golden"
UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
ALWAYS = {"find", "disks", "seed", "displays"}  # nothing is asked of disks and seeds that no question is about


class Host:
    """One that notes what it is asked."""

    uri = "qemu:///system"

    def __init__(self, *guests: FoundGuest, kept: t.Sequence[str] = (), lost: t.Collection[str] = ()) -> None:
        self.known, self.kept, self.lost = {one.name: one for one in guests}, kept, lost
        self.asked: set[str] = set()
        self.needed: list[Prerequisites] = []

    def find(self, name: str) -> FoundGuest | None:
        self.asked.add("find")
        return self.known.get(name)

    def managed_state(self, _uuid: str) -> t.Sequence[str]:
        self.asked.add("managed_state")
        return self.kept

    def saved_xml(self, _uuid: str) -> str | None:
        return None

    def new_uuid(self) -> str:
        self.asked.add("new_uuid")
        return UUID

    def capabilities(self) -> dict[str, t.Any]:
        self.asked.add("capabilities")
        return host_xml.host((GOLDEN / "capabilities.xml").read_text())

    def links(self) -> tuple[set[str] | None, set[str]]:
        self.asked.add("links")
        return {"br0"}, {"default"}

    def missing(self, needed: Prerequisites) -> Missing:
        self.asked.add("missing")
        self.needed.append(needed)
        return Missing(no_autostart=needed.networks)

    def filters(self) -> list[str] | None:
        self.asked.add("filters")
        return ["<filter name='clean-traffic'><rule action='drop' direction='out'><mac/></rule></filter>"]

    def capacity(self, uuid: str) -> Capacity | None:
        return None

    def bridge_calls(self) -> dict[str, bool] | None:
        self.asked.add("bridge_calls")
        return {}

    def displays(self) -> DisplayDefaults:
        self.asked.add("displays")
        return DisplayDefaults()

    def disks(self, questions: t.Mapping[str, Question]) -> dict[str, Answer]:
        self.asked |= {"disks", *(f"disk {name}" for name in questions)}
        pool = PoolDirectory("default", "dir", "/var/lib/libvirt/images", here=True)
        return {name: Site(pool) if isinstance(one, SiteOf) else Size(8 * 1024**3) for name, one in questions.items()}

    def seed(self, _guest: str, question: object) -> SeedSite | None:
        self.asked |= {"seed"} if question is None else {"seed", "a seed's place"}
        return None

    def located(self, pool: str, volume: str) -> str | None:
        self.asked.add("located")
        return f"/{pool}/{volume}"

    def volumes(self) -> list[str]:
        self.asked.add("volumes")
        return ["/var/lib/libvirt/images/web9-system.qcow2"]

    def users(self, _paths: t.Collection[str], *, but: str = "") -> dict[str, str]:
        self.asked.add("users")
        return {}

    def owned_disks(self, paths: t.Collection[str]) -> dict[str, OwnedDisk]:
        if paths:
            self.asked.add("owned_disks")
        return {path: OwnedDisk(volume=path not in self.lost, pool="data", active=False) for path in paths}


def there(**more: t.Any) -> FoundGuest:
    xml = (GOLDEN / "found/web1.xml").read_text()
    output: dict[str, t.Any] = {"state": "shutdown", "persistent": True, "autostart": False, "xml": xml, **more}
    return FoundGuest("web1", UUID, **output)


def planned(host: Host, **output: t.Any) -> GuestPlan:
    return guest.plan(options({"name": "web1", **output}), host)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ({}, set()),
        ({"title": "Web", "interfaces": [{"name": "eth0", "bridge": "br0"}]}, set()),
        ({"disks": [{"name": "system", "size": "8GiB"}]}, {"disk system"}),
        ({"disks": [{"name": "more"}]}, {"disk more", "managed_state"}),
        ({"title": "Another"}, {"managed_state"}),
        ({"interfaces": [{"name": "eth0", "network": "default", "type": "network"}]}, {"links", "managed_state"}),
        (
            {"interfaces": [{"name": "eth0", "filterref": {"name": "clean-traffic"}}]},
            {"filters", "bridge_calls", "managed_state"},
        ),
        ({"state": "absent"}, {"managed_state", "users"}),
    ],
)
def test_a_guest_that_is_there(said: dict[str, t.Any], asked: set[str]) -> None:
    host = Host(there())
    planned(host, **said)
    assert host.asked - ALWAYS == asked


def test_a_new_guest() -> None:
    host = Host()
    plan = planned(host, vcpus=1, memory="512MiB", state="running")
    assert host.asked - ALWAYS == {"capabilities", "links", "new_uuid", "disk system", "missing"}
    assert [type(step) for step in plan.steps] == [steps.Define, steps.CreateVolume, steps.Define, steps.Start]
    assert plan.uuid == UUID


@pytest.mark.parametrize("state", ["running", "present"])
def test_what_is_missing_is_asked_once(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host, nic = Host(there()), {"name": "eth0", "type": "network", "network": "default"}
    plan = planned(host, state=state, autostart=True, interfaces=[nic])
    assert [needed.networks for needed in host.needed] == [{"default"}]
    assert [note for note in plan.notes if "network default, which it needs, does not" in note]
    monkeypatch.setattr(guest, "prerequisites", lambda _xml: pytest.fail("read in vain"))
    assert not planned(Host(there(autostart=True)), autostart=True).steps


def test_an_interface_on_open_vswitch_moves_to_another_bridge_of_it() -> None:
    moved = {"interfaces": [{"name": "eth0", "bridge": "ovs1"}]}
    with pytest.raises(NotFound, match="this host has no bridge ovs1"):
        planned(Host(there()), **moved)
    root = parse(there().xml)
    make(root.find("devices/interface"), "virtualport", type="openvswitch")
    assert planned(Host(there(xml=text(root))), **moved).steps
    with pytest.raises(NotFound, match="this host has no network gone"):
        planned(Host(there(xml=text(root))), interfaces=[{"name": "eth0", "type": "network", "network": "gone"}])


def test_what_is_missing_is_told_before_the_host_is_asked() -> None:
    host = Host()
    with pytest.raises(BadInput, match="creating it requires vcpus and memory"):
        planned(host)
    assert host.asked == {"find"}


def test_one_that_is_gone_may_have_left_files() -> None:
    host = Host()
    plan = guest.plan(options({"name": "web9", "state": "absent", "remove_storage": True}), host)
    assert host.asked == {"find", "volumes", "users"} and not plan.steps
    assert "web9-system.qcow2 may be left over" in plan.notes[0]
    host = Host()
    assert guest.plan(options({"name": "web9", "state": "absent"}), host) == GuestPlan() and host.asked == {"find"}


def test_only_disks_that_are_to_be_removed_are_asked_about() -> None:
    disk = "/var/lib/libvirt/images/web1-system.qcow2"
    xml = (GOLDEN / "absent_with_storage/found.xml").read_text()
    there = FoundGuest("web1", UUID, "shutdown", persistent=True, autostart=False, xml=xml)
    host = Host(there, lost=[disk])
    plan = guest.plan(options({"name": "web1", "state": "absent"}), host)
    assert "owned_disks" not in host.asked and f"kept disk {disk}" in plan.notes[0]
    with pytest.raises(Refused, match=f"storage pool data of disk {disk} is not active"):
        guest.plan(options({"name": "web1", "state": "absent", "remove_storage": True}), host)
    plan = guest.plan(options({"name": "web1", "state": "absent", "remove_storage": True}), Host(there))
    assert plan.steps[-1] == steps.DeleteVolume("web1", disk)


@pytest.mark.parametrize("remove", [True, False])
def test_a_disk_that_an_interrupted_run_was_seeding_goes_with_its_guest(*, remove: bool) -> None:
    disk = "/var/lib/libvirt/images/web1-system.qcow2"
    xml = (GOLDEN / "absent_with_storage/found.xml").read_text()
    xml = xml.replace("</corral:guest>", f"<corral:making>{disk}</corral:making></corral:guest>")
    there = FoundGuest("web1", UUID, "shutdown", persistent=True, autostart=False, xml=xml)
    plan = guest.plan(options({"name": "web1", "state": "absent", "remove_storage": remove}), Host(there))
    told = plan.steps if remove else plan.notes
    assert f"{disk}.unseeded" in str(told[-1]) and len(plan.notes) == (0 if remove else 2)


def test_a_guest_under_another_name_is_the_same() -> None:
    host = Host(there())
    plan = guest.plan(options({"name": "db1", "renamed_from": "web1"}), host)
    assert plan.steps == (steps.Rename("web1", "db1"),) and plan.uuid == UUID
    assert [str(change) for change in plan.changes] == ["name: web1 -> db1"]
    with pytest.raises(NotFound, match="there is no guest web7 here"):
        guest.plan(options({"name": "db1", "renamed_from": "web7"}), host)


def test_a_plan_is_not_changed_by_what_is_done_with_it() -> None:
    plan = planned(Host(there()), title="Another")
    with pytest.raises(AttributeError):
        plan.steps = ()  # type: ignore[misc]
    assert isinstance(plan.steps, tuple) and isinstance(plan.notes, tuple)


def test_what_was_saved_with_the_former_definition_is_told() -> None:
    plan = planned(Host(there(), kept=["managed_save"]), title="Another")
    assert "virsh managedsave-remove web1" in plan.notes[-1]
    assert not planned(Host(there(), kept=["snapshots"]), title="Another").notes


def without_devices(xml: str, *names: str) -> t.Any:
    """The document without the devices that have these names."""
    root = parse(xml)
    for name in names:
        (device,) = root.xpath(f"devices/*[alias/@name='ua-{name}']")
        device.getparent().remove(device)
    return root


def attached(defined: str, live: t.Any, **said: t.Any) -> list[str]:
    """The devices that a running guest gets."""
    running = there(state="running", live_xml=text(live), xml=defined)
    return [step.xml for step in planned(Host(running), **said).steps if isinstance(step, steps.Attach)]


def test_a_running_guest_gets_a_device_as_it_is_defined() -> None:
    """An earlier run defined it, for the next boot say; a task that only names it does not describe it."""
    defined = there().xml.replace("<model type='virtio'/>\n      <alias", "<model type='e1000e'/>\n      <alias")
    live = without_devices(defined, "data", "eth0")
    devices = attached(defined, live, disks=[{"name": "data"}], interfaces=[{"name": "eth0"}])
    places = ("alias", "source", "mac", "model", "target", "driver")
    for device, name in zip(map(parse, devices), ("data", "eth0"), strict=True):
        (expected,) = parse(defined).xpath(f"devices/*[alias/@name='ua-{name}']")
        assert device.find("address") is None
        assert [text(found) for found in device if found.tag in places] == [
            text(found) for found in expected if found.tag in places
        ]


def test_its_target_is_a_free_one() -> None:
    """Somebody else gave the running guest a disk in the meantime."""
    defined = there().xml
    live = without_devices(defined.replace("ua-data", "ua-other"), "eth0")
    (device,) = attached(defined, live, disks=[{"name": "data"}])
    assert parse(device).find("target").get("dev") == "vdc"
