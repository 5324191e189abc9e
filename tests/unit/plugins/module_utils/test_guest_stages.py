"""A guest's stages ask its host only what they need: each question is a round trip, for every guest of a call."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.units import derived_mac
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record, xml_host
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import (
    DisplayDefaults,
    FoundGuest,
    OwnedDisk,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import (
    Missing,
    Offer,
    Prerequisites,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import Snapshot, SnapshotDisk
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest, plan_guest_steps
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_changes import GuestPlan
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_host_questions import Capacity
from ansible_collections.corral.virt.plugins.module_utils._storage.model_header import Header
from ansible_collections.corral.virt.plugins.module_utils._storage.model_removed_disk import DiskAside
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import (
    Answer,
    DiskOrigin,
    Question,
    SeedSite,
    Site,
    SiteOf,
    Size,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import make, parse, text
from ansible_collections.corral.virt.tests.golden.case import options

GOLDEN = Path(__file__).parents[3] / "golden"
UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
OTHER = "22222222-f6a4-8304-79aa-97f2502e193f"
ALWAYS = {"find", "disks", "seed", "displays"}  # nothing is asked of disks and seeds that no question is about


class Host:
    """One that notes what it is asked."""

    uri = "qemu:///system"

    def __init__(
        self, *guests: FoundGuest, kept: t.Sequence[str] = (), lost: t.Collection[str] = (), **more: t.Any
    ) -> None:
        self.known, self.kept, self.lost = {one.name: one for one in guests}, kept, lost
        self.more = more  # what it answers to other questions
        self.asked: set[str] = set()
        self.needed: list[Prerequisites] = []

    def find(self, name: str) -> FoundGuest | None:
        self.asked.add("find")
        return self.known.get(name)

    def managed_state(self, uuid: str) -> t.Sequence[str]:
        self.asked.add("managed_state")
        return self.kept if uuid == UUID else ()

    def snapshots(self, _uuid: str) -> t.Sequence[Snapshot]:
        self.asked.add("snapshots")
        return t.cast("t.Sequence[Snapshot]", self.more.get("snapshots", ()))

    def saved_xml(self, uuid: str) -> str | None:
        return t.cast("str | None", self.more.get("saved")) if uuid == UUID else None

    def new_uuid(self) -> str:
        self.asked.add("new_uuid")
        return UUID

    def capabilities(self) -> dict[str, t.Any]:
        self.asked.add("capabilities")
        return xml_host.host((GOLDEN / "capabilities.xml").read_text())

    def links(self) -> tuple[set[str] | None, set[str]]:
        self.asked.add("links")
        return {"br0"}, {"default"}

    def missing(self, needed: Prerequisites) -> Missing:
        self.asked.add("missing")
        self.needed.append(needed)
        return t.cast(Missing, self.more.get("missing", Missing(no_autostart=needed.networks)))

    def libvirt_version(self) -> int:
        self.asked.add("libvirt_version")
        return t.cast(int, self.more.get("libvirt_version", 99_000_000))

    def filters(self) -> list[str] | None:
        self.asked.add("filters")
        return ["<filter name='clean-traffic'><rule action='drop' direction='out'><mac/></rule></filter>"]

    def capacity(self, uuid: str) -> Capacity | None:
        return t.cast("Capacity | None", self.more.get("capacity")) if uuid == UUID else None

    def bridge_calls(self) -> dict[str, bool] | None:
        self.asked.add("bridge_calls")
        return {}

    def shared_filesystems(self, paths: t.Collection[str]) -> dict[str, str | None] | None:
        self.asked.add("shared_filesystems")
        kinds = t.cast("dict[str, str] | None", self.more.get("shared_filesystems", {}))
        return None if kinds is None else {path: kinds.get(path) for path in paths}

    def displays(self) -> DisplayDefaults:
        self.asked.add("displays")
        return DisplayDefaults()

    def disks(self, questions: t.Mapping[str, Question]) -> dict[str, Answer]:
        self.asked |= {"disks", *(f"disk {name}" for name in questions)}
        pool = PoolDirectory("default", "dir", "/var/lib/libvirt/images", here=True)
        origin = self.more.get("origin")
        site = Site(pool, origin=origin)
        return {name: site if isinstance(one, SiteOf) else Size(8 * 1024**3) for name, one in questions.items()}

    def seed(self, guest: str, question: object) -> SeedSite | None:
        self.asked |= {"seed"} if question is None else {"seed", "a seed's place"}
        pool = PoolDirectory("default", "dir", "/var/lib/libvirt/images", here=True)
        site = SeedSite(("PRIVATE", f"PUBLIC {guest}"), pool, exists=False, uri=self.uri, here=True)
        return None if question is None else site

    def located(self, pool: str, volume: str) -> str | None:
        self.asked.add("located")
        return f"/{pool}/{volume}"

    def volumes(self) -> list[str]:
        self.asked.add("volumes")
        return ["/var/lib/libvirt/images/web9-system.qcow2"]

    def users(self, _paths: t.Collection[str], *, but: str = "") -> dict[str, str]:
        self.asked.add("users")
        return {}

    def host_uuid(self) -> str:
        return "2baa1b06-db13-410e-952c-5cdfa5800c47"

    def identities(self, paths: t.Collection[str]) -> dict[str, FileIdentity | None]:
        if paths:
            self.asked.add("identities")
        return {}

    def own_chains(self, _found: FoundGuest) -> list[list[str]]:
        self.asked.add("own_chains")
        return []

    def unfinished_removals(self) -> list[DiskAside]:
        self.asked.add("unfinished_removals")
        return []

    def owned_disks(self, paths: t.Collection[str]) -> dict[str, OwnedDisk]:
        if paths:
            self.asked.add("owned_disks")
        return {path: OwnedDisk(volume=path not in self.lost, pool="data", active=False) for path in paths}


def there(**more: t.Any) -> FoundGuest:
    xml = (GOLDEN / "found/web1.xml").read_text()
    output: dict[str, t.Any] = {"state": "shutdown", "persistent": True, "autostart": False, "xml": xml, **more}
    return FoundGuest("web1", UUID, **output)


def planned(host: Host, **output: t.Any) -> GuestPlan:
    return plan_guest.plan(options({"name": "web1", **output}), host)


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


WEB1, DATA = (f"/var/lib/libvirt/images/web1-{name}.qcow2" for name in ("system", "data"))
PROTECTED: dict[str, t.Any] = {"ha": {"mode": "restart"}}


@pytest.mark.parametrize(
    ("found", "said", "kinds", "why"),
    [
        (there(), {}, {WEB1: "nfs4", DATA: "nfs4"}, ""),
        (there(), {}, None, ""),
        (there(), {}, {WEB1: "nfs4"}, f"{DATA} is on a filesystem of this host alone; move it to"),
        (there(), {"autostart": True}, {WEB1: "nfs4", DATA: "nfs4"}, "starts with its host.*set autostart: false"),
        (there(autostart=True), {}, {WEB1: "nfs4", DATA: "nfs4"}, "starts with its host.*set autostart: false"),
        (there(autostart=True), {"autostart": False}, {WEB1: "nfs4", DATA: "nfs4"}, ""),
    ],
)
def test_a_guest_is_protected_only_where_another_host_could_run_it(
    found: FoundGuest, said: dict[str, t.Any], kinds: dict[str, str] | None, why: str
) -> None:
    host = Host(found, shared_filesystems=kinds)
    if why:
        with pytest.raises(BadInput, match=why):
            planned(host, **PROTECTED, **said)
    else:
        assert planned(host, **PROTECTED, **said).steps


def test_snapshots_of_a_guest_whose_disks_change() -> None:
    kept = SnapshotDisk("vda", "external", overlay="/s1", base="/web1")
    host = Host(there(), kept=["snapshots"], snapshots=[Snapshot("s1", disks=(kept,))])
    notes = planned(host, disks=[{"name": "more"}]).notes
    assert [note for note in notes if note.startswith("snapshot s1 of web1 was taken without it: ")]
    assert "snapshots" in host.asked
    host = Host(there(), kept=["snapshots"])
    planned(host, title="Another")
    assert "snapshots" not in host.asked


def test_a_new_guest() -> None:
    host = Host()
    plan = planned(host, vcpus=1, memory="512MiB", state="running")
    assert host.asked - ALWAYS == {"capabilities", "links", "new_uuid", "disk system", "missing"}
    assert [type(step) for step in plan.steps] == [
        plan_guest_steps.Define,
        plan_guest_steps.CreateVolume,
        plan_guest_steps.Define,
        plan_guest_steps.Start,
    ]
    assert plan.uuid == UUID


@pytest.mark.parametrize("state", ["running", "present"])
def test_what_is_missing_is_asked_once(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host, nic = Host(there()), {"name": "eth0", "type": "network", "network": "default"}
    plan = planned(host, state=state, autostart=True, interfaces=[nic])
    assert [needed.networks for needed in host.needed] == [{"default"}]
    assert [note for note in plan.notes if "network default, which it needs, does not" in note]
    monkeypatch.setattr(plan_guest, "prerequisites", lambda _xml: pytest.fail("read in vain"))
    assert not planned(Host(there(autostart=True)), autostart=True).steps


@pytest.mark.parametrize(("state", "verb"), [("running", "start"), ("present", "define")])
def test_a_guest_with_a_tpm_is_not_planned_where_nothing_emulates_one(state: str, verb: str) -> None:
    lacks = Offer("swtpm", "kvm", "x86_64", "q35")
    reason = "this host has no swtpm, which emulates a TPM; install packages swtpm and swtpm-tools on it"
    host = Host(missing=Missing(offers=frozenset({lacks})))
    with pytest.raises(NotFound, match=f"^cannot {verb} web1: {reason}, or remove the TPM"):
        planned(host, vcpus=1, memory="512MiB", state=state, tpm={"model": "tpm-crb", "version": "2.0"})
    assert "swtpm" in {offer.what for needed in host.needed for offer in needed.offers}
    for tpm in ({"model": "none"}, {"model": "tpm-crb", "type": "passthrough", "path": "/dev/tpm0"}):
        host = Host()
        planned(host, vcpus=1, memory="512MiB", state=state, tpm=tpm)
        assert "swtpm" not in {offer.what for needed in host.needed for offer in needed.offers}


def test_an_interface_on_open_vswitch_moves_to_another_bridge_of_it() -> None:
    moved = {"interfaces": [{"name": "eth0", "bridge": "ovs1"}]}
    with pytest.raises(NotFound, match=r"^cannot change web1: this host has no bridge ovs1"):
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
    plan = plan_guest.plan(options({"name": "web9", "state": "absent", "remove_storage": True}), host)
    assert host.asked == {"find", "volumes", "users", "unfinished_removals"} and not plan.steps
    assert "web9-system.qcow2 may be left over" in plan.notes[0]
    host = Host()
    assert plan_guest.plan(options({"name": "web9", "state": "absent"}), host) == GuestPlan() and host.asked == {"find"}


def test_only_disks_that_are_to_be_removed_are_asked_about() -> None:
    disk = "/var/lib/libvirt/images/web1-system.qcow2"
    xml = (GOLDEN / "absent_with_storage/found.xml").read_text()
    there = FoundGuest("web1", UUID, "shutdown", persistent=True, autostart=False, xml=xml)
    host = Host(there, lost=[disk])
    plan = plan_guest.plan(options({"name": "web1", "state": "absent"}), host)
    assert "owned_disks" not in host.asked and f"kept disk {disk}" in plan.notes[0]
    with pytest.raises(Refused, match=f"storage pool data of disk {disk} is not active"):
        plan_guest.plan(options({"name": "web1", "state": "absent", "remove_storage": True}), host)
    plan = plan_guest.plan(options({"name": "web1", "state": "absent", "remove_storage": True}), Host(there))
    [step] = [step for step in plan.steps if isinstance(step, plan_guest_steps.DeleteVolume)]
    assert (step.path, step.others) == (disk, (disk,)) and step.expected and step.expected.inode == 131075


@pytest.mark.parametrize(
    ("kinds", "stays"), [({}, None), ({"web1": "nfs4"}, "nfs4"), (None, "a filesystem of another machine")]
)
def test_a_disk_on_a_filesystem_of_other_hosts_is_kept_where_asked_for(kinds: object, stays: str | None) -> None:
    disk = "/var/lib/libvirt/images/web1-system.qcow2"
    xml = (GOLDEN / "absent_with_storage/found.xml").read_text()
    there = FoundGuest("web1", UUID, "shutdown", persistent=True, autostart=False, xml=xml)
    wish = {"name": "web1", "state": "absent", "remove_storage": True}
    kinds = {disk: "nfs4"} if kinds else kinds
    plan = plan_guest.plan(options({**wish, "keep_shared": True}), Host(there, shared_filesystems=kinds))
    assert any(isinstance(step, plan_guest_steps.DeleteVolume) for step in plan.steps) == (stays is None)
    assert [*plan.notes] == [] if stays is None else f"kept disk {disk} of web1: it is on {stays}, " in plan.notes[0]
    host = Host(there)
    plan_guest.plan(options(wish), host)
    assert "shared_filesystems" not in host.asked


@pytest.mark.parametrize("remove", [True, False])
def test_a_disk_that_an_interrupted_run_was_seeding_goes_with_its_guest(*, remove: bool) -> None:
    disk = "/var/lib/libvirt/images/web1-system.qcow2"
    xml = (GOLDEN / "absent_with_storage/found.xml").read_text()
    xml = xml.replace("</corral:guest>", f"<corral:making>{disk}</corral:making></corral:guest>")
    there = FoundGuest("web1", UUID, "shutdown", persistent=True, autostart=False, xml=xml)
    plan = plan_guest.plan(options({"name": "web1", "state": "absent", "remove_storage": remove}), Host(there))
    told = plan.steps if remove else plan.notes
    assert f"{disk}.unseeded" in str(told[-1]) and len(plan.notes) == (0 if remove else 2)


def test_a_guest_under_another_name_is_the_same() -> None:
    host = Host(there())
    plan = plan_guest.plan(options({"name": "db1", "renamed_from": "web1"}), host)
    assert plan.steps == (plan_guest_steps.Rename("web1", "db1"),) and plan.uuid == UUID
    assert [str(change) for change in plan.changes] == ["name: web1 -> db1"]
    with pytest.raises(NotFound, match="there is no guest web7 here"):
        plan_guest.plan(options({"name": "db1", "renamed_from": "web7"}), host)


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
    return [step.xml for step in planned(Host(running), **said).steps if isinstance(step, plan_guest_steps.Attach)]


def test_a_running_guest_gets_a_device_as_it_is_defined() -> None:
    """An earlier run defined it, for the next boot say; a task that only names it does not describe it."""
    defined = there().xml.replace("<model type='virtio'/>\n      <alias", "<model type='e1000e'/>\n      <alias")
    live = without_devices(defined, "data", "eth0")
    devices = attached(defined, live, disks=[{"name": "data"}], interfaces=[{"name": "eth0"}])
    places = ("alias", "source", "mac", "model", "target", "driver")
    assert len(devices) == 2
    for device, name in zip(map(parse, devices), ("data", "eth0")):
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


def recorded(said: str, **more: t.Any) -> FoundGuest:
    """The guest, of which the collection keeps that."""
    return there(xml=there().xml.replace("<corral:tag>", f"{said}<corral:tag>", 1), **more)


def running(found: FoundGuest) -> FoundGuest:
    return dataclasses.replace(found, state="running", live_xml=found.xml)


MOVING = recorded("<corral:moving>h2</corral:moving>")
NEW = {"vcpus": 3, "memory": "2GiB", "state": "running"}
FILTERED = {"interfaces": [{"name": "eth0", "filterref": {"name": "clean-traffic"}}]}
NO_FILTER, NO_BRIDGE = Missing(filters=frozenset({"f"})), Missing(links=frozenset({"br0"}))
IMAGE = "/var/lib/libvirt/images/web1-system.qcow2"
SMALL = Capacity(memory_mib=1024, vcpus=4)
NARROW = Capacity(memory_mib=4096, vcpus=2)


@pytest.mark.parametrize(
    ("host", "said", "error", "why"),
    [
        (Host(MOVING), {"state": "running"}, Refused, "cannot bring web1 to state running: its migration is in"),
        (Host(), {"state": "reset"}, NotFound, "cannot reset web1: there is no such guest here"),
        (Host(MOVING), {"name": "db1", "renamed_from": "web1"}, Refused, "to db1: its migration is in progress"),
        (
            Host(there(), kept=["snapshots"], snapshots=[Snapshot("s1")]),
            {"name": "db1", "renamed_from": "web1"},
            Refused,
            "to db1: libvirt keeps its snapshot s1 under its name",
        ),
        (
            Host(there(), dataclasses.replace(there(), name="db1", uuid="u2")),
            {"name": "db1", "renamed_from": "web1"},
            Refused,
            r"another guest has this name \(UUID u2\)",
        ),
        (Host(), {**NEW, "name": "a b"}, BadInput, "^name: 'a b'"),
        (Host(there()), {"name": "a b", "renamed_from": "web1"}, BadInput, "^name: 'a b'"),
        (Host(capacity=SMALL), NEW, Refused, r"cannot start web1: .* memory: 0 of 1024 .* it needs 2048\)"),
        (Host(capacity=NARROW), NEW, Refused, r"cannot start web1: .*\(vcpus: 0 of 2 .* needs 3\)"),
        (Host(missing=NO_FILTER), NEW, NotFound, "^cannot start web1: .* filter f"),
        (
            Host(running(there()), missing=NO_FILTER),
            FILTERED,
            NotFound,
            "^cannot change web1: .* filter f",
        ),
        (
            Host(there(), kept=["managed_save"], saved=there().xml, missing=NO_FILTER),
            {"state": "running"},
            NotFound,
            "^cannot start web1 from its managed save image: ",
        ),
        (Host(there(), saved=there().xml, missing=NO_FILTER), {"state": "running"}, NotFound, "^cannot start web1: "),
        (
            Host(running(there()), kept=["managed_save"], saved=there().xml, missing=NO_FILTER),
            {"clock": {"offset": "localtime"}, "allow_restart": True},
            NotFound,
            "^cannot start web1: ",
        ),
        (
            Host(),
            {**NEW, "interfaces": [{"name": "eth0", "bridge": "br7"}]},
            NotFound,
            "^cannot create web1: this host has no bridge br7",
        ),
        (Host(there()), {"boot": {"cmdline": "quiet"}}, BadInput, "cmdline"),
        (
            Host(there(), libvirt_version=8_001_999),
            {"memory": {"allocation": "immediate", "allocation_threads": 4}},
            BadInput,
            "^memory.allocation_threads of web1: it requires libvirt 8.2, and this host has 8.1.999; upgrade",
        ),
        (
            Host(there()),
            {"interfaces": [{"name": "eth0", "filterref": {"name": "f"}}]},
            BadInput,
            "filterref of interface eth0 of web1: this host has no network filter f",
        ),
    ],
)
def test_what_is_refused(host: Host, said: dict[str, t.Any], error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        planned(host, **said)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (Host(dataclasses.replace(there(), name="a b")), {"name": "a b"}),
        (Host(capacity=SMALL), {**NEW, "state": "present"}),
        (Host(there(), capacity=Capacity(1, 1)), {"state": "running"}),
        (Host(running(there()), missing=NO_BRIDGE), FILTERED),
        (Host(there(), kept=["managed_save"], saved="<domain/>", missing=NO_BRIDGE), {"state": "running"}),
        (Host(missing=Missing(paths=frozenset({IMAGE}))), NEW),
        (Host(capacity=NARROW), {**NEW, "vcpus": {"current": 2, "maximum": 4}}),
        (Host(dataclasses.replace(there(), name="db1")), {"name": "db1", "renamed_from": "web1"}),
        (
            Host(there(), libvirt_version=8_002_000),
            {"memory": {"allocation": "immediate", "allocation_threads": 4}},
        ),
        (Host(libvirt_version=6_000_000), NEW),
    ],
)
def test_what_is_not_refused(host: Host, said: dict[str, t.Any]) -> None:
    assert planned(host, **said).uuid == UUID


def test_the_version_of_libvirt_is_asked_for_recent_fields_alone() -> None:
    host = Host(there())
    planned(host, vcpus=2)
    assert "libvirt_version" not in host.asked
    planned(host, cpu={"maxphysaddr": {"mode": "emulate", "bits": 40}})
    assert "libvirt_version" in host.asked


def test_a_filter_that_nobody_speaks_of_is_not_asked_about() -> None:
    xml = there().xml.replace("<model type='virtio'/>", "<model type='virtio'/><filterref filter='f'/>", 1)
    host, nic = Host(there(xml=xml)), {"name": "eth0", "mtu": 1400}
    assert planned(host, interfaces=[nic]).steps and "filters" not in host.asked
    with pytest.raises(BadInput, match="this host has no network filter f"):
        planned(host, interfaces=[{**nic, "filterref": {"name": "f"}}])


def test_a_renamed_guest_is_changed_under_its_new_name() -> None:
    plan = planned(Host(there()), name="db1", renamed_from="web1", title="Another")
    [renamed, defined] = plan.steps
    assert isinstance(defined, plan_guest_steps.Define) and isinstance(renamed, plan_guest_steps.Rename)
    assert parse(defined.xml).findtext("name") == "db1" and defined.guest == "db1"


def test_what_is_made_is_claimed_beside_what_the_guest_has() -> None:
    new = [{"name": name, "size": "1GiB"} for name in ("more", "last")]
    plan = planned(Host(there()), disks=[{"name": "data", "size": "9GiB"}, *new])
    assert any(isinstance(step, plan_guest_steps.GrowDisk) for step in plan.steps)
    claims = [step.claim for step in plan.steps if isinstance(step, plan_guest_steps.CreateVolume)]
    marks = [f">/var/lib/libvirt/images/web1-{name}.qcow2</volume>" for name in ("system", "more", "last")]
    found = [
        ([mark in one.without_file for mark in marks], [mark in one.with_file for mark in marks])
        for one in claims
        if one
    ]
    assert found == [([True, False, False], [True, True, False]), ([True, True, False], [True, True, True])]
    new_entry = rf'<volume guest="{UUID}" host="2baa1b06-db13-410e-952c-5cdfa5800c47" seal="\w+">'
    assert all(claim and len(re.findall(new_entry, claim.with_file)) == at for at, claim in enumerate(claims, 1))


def test_what_an_interrupted_run_left_is_claimed_already() -> None:
    left = "/var/lib/libvirt/images/web1-data.qcow2"
    said = f"<corral:making>{left}</corral:making><corral:volume>{left}</corral:volume>"
    xml = recorded(said).xml.replace(left + "'", left + ".making'")
    plan = planned(Host(there(xml=xml)), disks=[{"name": "data", "size": "1GiB"}, {"name": "more", "size": "1GiB"}])
    made = [
        (step.volume.name, step.replace, bool(step.claim))
        for step in plan.steps
        if isinstance(step, plan_guest_steps.CreateVolume)
    ]
    assert made == [("web1-data.qcow2", True, False), ("web1-more.qcow2", False, True)]


def test_what_a_guest_needs_of_its_host_when_that_starts() -> None:
    nic = {"name": "eth0", "type": "network", "network": "default"}
    assert not planned(Host(there(autostart=True)), autostart=False, interfaces=[nic]).notes
    host = Host(there())
    assert planned(host, autostart=True).steps and "missing" not in host.asked
    [note] = planned(Host(there()), autostart=True, interfaces=[nic]).notes
    assert note.startswith("web1 starts with the host, and network default")
    host = Host(there(), kept=["managed_save"], saved="<domain/>")
    notes = planned(host, state="running", autostart=True, interfaces=[nic]).notes
    assert [one for one in notes if one.startswith("web1 starts with the host, and network default")]


def test_what_is_odd_already_is_told_and_not_refused() -> None:
    xml = there().xml.replace("</emulator>", "</emulator><graphics type='vnc' port='5901' listen='0.0.0.0'/>")
    [note] = planned(Host(there(xml=xml)), title="Another").notes
    assert note.startswith("vnc of web1 on 0.0.0.0 has neither password nor TLS")
    assert not planned(Host(running(there()), kept=["managed_save"]), title="Another").notes


def test_a_new_interface_gets_an_address_of_its_own() -> None:
    root = made_of(planned(Host(there()), interfaces=[{"name": "eth9", "bridge": "br0"}]))
    assert root.findall("devices/interface/mac")[-1].get("address") == derived_mac(UUID, "eth9")


SEED = "<corral:seed sha256='0123456789abcdef' instance-id='i'/><corral:ssh-host-key>KEY</corral:ssh-host-key>"
SEED_DISK = "<disk type='file'><source file='/s.iso'/><target dev='vdz'/><alias name='ua-seed'/></disk>"


def seeded() -> FoundGuest:
    xml = recorded(SEED).xml.replace("</emulator>", f"</emulator>{SEED_DISK}")
    return there(xml=xml)


def test_a_seed_is_told_with_its_host_key() -> None:
    assert planned(Host(there())).ssh_host_key is None
    assert planned(Host(seeded())).ssh_host_key == "KEY"
    assert planned(Host(), **NEW, cloud_init={}).ssh_host_key == "PUBLIC web1"
    anew = {"cloud_init": {"user_data": {"a": 1}, "on_change": "next_boot"}}
    plan = planned(Host(running(seeded())), **anew)
    assert plan.ssh_host_key == "PUBLIC web1" and "cloud_init: the new seed is read at the next boot" in plan.pending
    assert [change.before for change in plan.changes if change.where == "cloud_init"] == ["0123456789ab"]


KNOWN = "<corral:address>192.0.2.1</corral:address>"
SEEN = "<s:guest xmlns:s='urn:corral:virt:seen:1'><s:at>52:54:00:00:00:01 192.0.2.1 lease 1</s:at></s:guest>"


@pytest.mark.parametrize(
    ("said", "beside", "more", "waits"),
    [
        ("", "", {}, True),
        (KNOWN, "", {}, False),
        (KNOWN, "", {"cloud_init": {"on_change": "ignore"}}, True),
        ("", SEEN, {}, False),
        ("", SEEN, {"state": "rebooted"}, False),
    ],
)
def test_an_address_that_is_known_is_not_waited_for(
    said: str, beside: str, more: dict[str, t.Any], waits: bool
) -> None:
    xml = recorded(SEED + said).xml.replace("<metadata>", f"<metadata>{beside}")
    plan = planned(Host(running(there(xml=xml))), **{"state": "running", "wait_for_ip": "unknown", **more})
    assert bool(plan.wait) == waits
    assert beside == "" or planned(Host(there(xml=xml)), state="running", wait_for_ip="unknown").wait, "it starts now"


@pytest.mark.parametrize(("said", "asked"), [("", True), ("<corral:balloon kib='262144'/>", False)])
def test_a_balloon_that_did_not_follow_is_not_asked_again(said: str, asked: bool) -> None:
    xml = recorded(said).xml.replace("524288</currentMemory>", "{}</currentMemory>")
    found = there(xml=xml.format(262144), live_xml=xml.format(524288), state="running")
    plan = planned(Host(found), memory={"current": "256MiB"})
    told = [step.record for step in plan.steps if isinstance(step, plan_guest_steps.SetMemory)]
    assert len(told) == asked and all("262144" in one for one in told)


def made_of(plan: GuestPlan) -> t.Any:
    """The definition that is stored at last."""
    return parse([step.xml for step in plan.steps if isinstance(step, plan_guest_steps.Define)][-1])


def test_a_new_guest_has_what_is_said_instead_of_what_others_have() -> None:
    root = made_of(planned(Host(), **NEW))
    assert len(root.findall("devices/controller[@model='pcie-root-port']")) > 1
    assert (root.findtext("name"), root.findtext("uuid")) == ("web1", UUID)
    assert root.find("devices/interface/mac").get("address") == derived_mac(UUID, "eth0")
    assert planned(Host(), **NEW, uuid=OTHER).uuid == OTHER
    ports = [{"type": "pci", "index": 0, "model": "pcie-root"}]
    assert not made_of(planned(Host(), **NEW, controllers=ports)).findall("devices/controller[@model='pcie-root-port']")
    xml = "<domain><devices><rng model='virtio'><backend model='random'>/dev/random</backend></rng></devices></domain>"
    assert len(made_of(planned(Host(), **NEW, xml=xml)).findall("devices/rng")) == 1
    assert not made_of(planned(Host(), **NEW, rng={"model": "none"})).findall("devices/rng")


def test_a_clone_is_recorded_as_one_until_its_disks_are_copied() -> None:
    """And shares no file with its original."""
    origin = DiskOrigin(
        IMAGE,
        IMAGE,
        "qcow2",
        8 * 1024**3,
        Header("qcow2"),
        managed=False,
        guest="web1",
        uri=Host.uri,
        here=True,
        written=False,
    )
    plan = planned(Host(there(), origin=origin), name="web3", clone_of="web1", uuid=OTHER)
    first, last = (step.xml for step in plan.steps if isinstance(step, plan_guest_steps.Define))
    begun, whole = fields_record.read(first), fields_record.read(last)
    assert plan.uuid == OTHER == parse(last).findtext("uuid") and (begun["copy_of"], whole["copy_of"]) == (UUID, UUID)
    images = {f"/var/lib/libvirt/images/web3-{name}.qcow2" for name in ("system", "data")}
    assert (
        images == set(begun["copying"]) and not whole.get("copying") and all(f"{one}.making" in first for one in images)
    )
    half = FoundGuest("web3", OTHER, "shutdown", persistent=True, autostart=False, xml=first)
    plan = planned(Host(there(), half, origin=origin), name="web3", clone_of="web1")
    assert [step.volume.path for step in plan.steps if isinstance(step, plan_guest_steps.CreateVolume)] == sorted(
        images
    )[::-1]
    assert not fields_record.read(text(made_of(plan))).get("copying")
    with pytest.raises(Refused, match="set clone_of again to finish it"):
        planned(Host(there(), half), name="web3")
    assert planned(Host(there(), origin=origin), name="web3", clone_of="web1").uuid == UUID
    found = there(
        xml=there().xml.replace("</emulator>", "</emulator><serial type='file'><source path='/log'/></serial>")
    )
    with pytest.raises(Refused, match="cannot create web3 as a copy of web1: devices of both would use /log"):
        planned(Host(found, origin=origin), name="web3", clone_of="web1")
