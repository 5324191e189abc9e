"""Each verb does what its step says, to a real libvirt, and says in our words why it could not."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import types
import typing as t

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import (
    Failed,
    NotFound,
    Refused,
    Timeout,
    Unsupported,
    VirtError,
)
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._domain import (
    fields_record,
    libvirt_query,
    xml_host,
    xml_new,
    xml_summary,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Volume
from ansible_collections.corral.virt.plugins.module_utils._guest import (
    libvirt_domain,
    plan_guest_steps,
    run_definition,
    run_guest,
    run_guest_options,
    run_guest_steps,
)
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition as stored
from ansible_collections.corral.virt.plugins.module_utils._libvirt import states
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._migration import files_migration, libvirt_migrate
from ansible_collections.corral.virt.plugins.module_utils._power import libvirt_power, libvirt_wait
from ansible_collections.corral.virt.plugins.module_utils._snapshot import libvirt_snapshot
from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_blockjob, libvirt_storage
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity, OwnedVolume

POOL = "/var/lib/libvirt/images"
UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
NO_SUCH = "nobody"


def definition(name: str = "web1", *, vcpus: int = 4, memory_kib: int = 1048576) -> str:
    """A guest for the test driver."""
    xml = xml_new.domain(name=name, uuid=UUID, virt_type="test", arch="i686", machine="")
    return xml.replace("<vcpu>0", f'<vcpu current="1">{vcpus}').replace(">0</memory>", f">{memory_kib}</memory>")


@pytest.fixture
def guest(connection: t.Any) -> t.Any:
    """A defined guest, shut off."""
    do(connection, plan_guest_steps.Define("web1", definition()))
    return connection.lookupByName("web1")


def do(connection: t.Any, *todo: plan_guest_steps.GuestStep) -> None:
    """One after the other."""
    for step in todo:
        if isinstance(step, (plan_guest_steps.Define, plan_guest_steps.Undefine)):
            there = libvirt_query.stored(connection, UUID)
            seen = fields_record.fingerprint(there.xml) if there else ""
            known = dataclasses.replace(step, uuid=UUID, seen=seen)
            run_definition.do(run_definition.Definition(connection, UUID, there and there.xml), known)
        elif isinstance(step, plan_guest_steps.CreateVolume):
            libvirt_domain.create_volume(connection, step)
        elif isinstance(step, plan_guest_steps.DeleteVolume):
            run_guest_steps.do(connection, UUID, step)
        else:
            libvirt_domain.do(connection, UUID, step)


def test_define_keeps_identity(connection: t.Any, guest: t.Any) -> None:
    do(connection, plan_guest_steps.Define("web1", definition(vcpus=8)))
    assert [item.UUIDString() for item in connection.listAllDomains()] == [UUID]
    assert guest.vcpusFlags(libvirt.VIR_DOMAIN_AFFECT_CONFIG | libvirt.VIR_DOMAIN_VCPU_MAXIMUM) == 8


def test_states(connection: t.Any, guest: t.Any) -> None:
    seen = [states.of(guest)]
    for step in (
        plan_guest_steps.Start("web1"),
        plan_guest_steps.Suspend("web1"),
        plan_guest_steps.Resume("web1"),
        plan_guest_steps.Reset("web1"),
        plan_guest_steps.Reboot("web1", timeout_s=5),
        plan_guest_steps.Destroy("web1"),
        plan_guest_steps.Start("web1"),
        plan_guest_steps.Shutdown("web1", timeout_s=5),
    ):
        do(connection, step)
        seen.append(states.of(guest))
    assert seen == ["shutdown", "running", "paused", "running", "running", "running", "shutdown", "running", "shutdown"]


def test_shutdown_of_what_is_off_is_done(connection: t.Any, guest: t.Any) -> None:
    do(connection, plan_guest_steps.Shutdown("web1", timeout_s=5))
    assert not guest.isActive()


class Deaf:
    """A guest that hears nothing, or only the second time: the test driver's always do."""

    def __init__(self, guest: t.Any, *, hears_again: bool = False) -> None:
        self.guest, self.asked, self.hears_again = guest, 0, hears_again

    def shutdownFlags(self, flags: int) -> None:  # noqa: N802
        """Counts how often it was asked."""
        self.asked += 1
        if self.hears_again and self.asked > 1:
            self.guest.shutdownFlags(flags)

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self.guest, name)


@pytest.mark.parametrize("force", [False, True])
def test_shutdown_of_a_deaf_guest(
    connection: t.Any, guest: t.Any, force: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(connection, plan_guest_steps.Start("web1"))
    ports_filtered = Deaf(guest)
    monkeypatch.setattr(connection, "lookupByUUIDString", lambda _uuid: ports_filtered)
    step = plan_guest_steps.Shutdown("web1", timeout_s=1, force=force)
    if force:
        do(connection, step)
    else:
        with pytest.raises(
            Timeout,
            match=r"cannot shut down web1: it did not do so within 1 s \(guest agent: not .*\); set force: true",
        ):
            do(connection, step)
    assert bool(guest.isActive()) is not force


def test_a_guest_that_does_not_hear_is_asked_again(
    connection: t.Any, guest: t.Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(connection, plan_guest_steps.Start("web1"))
    ports_filtered = Deaf(guest, hears_again=True)
    monkeypatch.setattr(connection, "lookupByUUIDString", lambda _uuid: ports_filtered)
    monkeypatch.setattr(libvirt_wait, "_ASK_AGAIN_S", 0.01)
    do(connection, plan_guest_steps.Shutdown("web1", timeout_s=60))
    assert (ports_filtered.asked, guest.isActive()) == (2, 0)


@pytest.mark.parametrize(
    "step",
    [
        plan_guest_steps.Shutdown("web1", timeout_s=60, wait=False),
        plan_guest_steps.Reboot("web1", timeout_s=60, wait=False),
    ],
)
def test_only_asked(
    connection: t.Any, guest: t.Any, step: plan_guest_steps.Shutdown, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(connection, plan_guest_steps.Start("web1"))
    ports_filtered = Deaf(guest)
    monkeypatch.setattr(connection, "lookupByUUIDString", lambda _uuid: ports_filtered)
    do(connection, step)
    assert ports_filtered.asked == int(not isinstance(step, plan_guest_steps.Reboot))
    assert guest.isActive()


def test_what_has_arrived_is_resumed_by_whoever_comes_first(connection: t.Any, guest: t.Any) -> None:
    """libvirt, started again, lets a guest run by itself; what is off cannot be resumed by anybody."""
    do(connection, plan_guest_steps.Start("web1"), plan_guest_steps.Suspend("web1"))
    for _turn in range(2):
        libvirt_migrate.resume(connection, guest.UUIDString())
        assert states.of(guest) == "running"
    do(connection, plan_guest_steps.Destroy("web1"))
    with pytest.raises(Failed, match=r"^cannot resume web1"):
        libvirt_migrate.resume(connection, guest.UUIDString())


def test_autostart(connection: t.Any, guest: t.Any) -> None:
    for on in (True, False):
        do(connection, plan_guest_steps.SetAutostart("web1", on))
        assert libvirt_query.found(guest).autostart is on


def test_live_figures(connection: t.Any, guest: t.Any) -> None:
    do(
        connection,
        plan_guest_steps.Start("web1"),
        plan_guest_steps.SetVcpus("web1", 3),
        plan_guest_steps.SetMemory("web1", 524288),
    )
    assert guest.vcpusFlags(libvirt.VIR_DOMAIN_AFFECT_LIVE) == 3
    assert guest.info()[2] == 524288
    assert guest.vcpusFlags(libvirt.VIR_DOMAIN_AFFECT_CONFIG) == 1  # what is stored is the definition's business


def test_metadata(connection: t.Any, guest: t.Any) -> None:
    do(connection, plan_guest_steps.Start("web1"))
    mark = fields_record.update(
        definition(), {"volumes": (OwnedVolume("/a", UUID, "h", FileIdentity(5, 6, "m")),), "seed": "0a"}
    )
    do(connection, plan_guest_steps.SetMetadata("web1", "A & <b>", "two\nlines", mark))
    live = t.cast(str, libvirt_query.found(guest).live_xml)
    assert guest.metadata(libvirt.VIR_DOMAIN_METADATA_TITLE, None) == "A & <b>"
    assert guest.metadata(libvirt.VIR_DOMAIN_METADATA_DESCRIPTION, None) == "two\nlines"
    assert fields_record.read(live) == {
        "volumes": (OwnedVolume("/a", UUID, "h", FileIdentity(5, 6, "m")),),
        "seed": "0a",
    }
    do(connection, plan_guest_steps.SetMetadata("web1", None, None, ""))  # silence
    assert libvirt_query.found(guest).live_xml == live
    do(connection, plan_guest_steps.SetMetadata("web1", "", "", mark))  # an empty text takes it away
    assert "<title>" not in guest.XMLDesc() and "<description>" not in guest.XMLDesc()


def test_undefine(connection: t.Any, guest: t.Any) -> None:
    do(connection, plan_guest_steps.Undefine("web1", ("managed_save", "snapshots")))
    assert libvirt_query.find(connection, "web1") is None


@pytest.mark.parametrize(
    "step", [plan_guest_steps.Define("web1", definition(vcpus=8)), plan_guest_steps.Undefine("web1")]
)
@pytest.mark.parametrize(
    ("seen", "why"),
    [(definition(vcpus=2), "somebody has changed its definition"), (None, "a guest with its UUID was defined")],
)
def test_a_definition_is_compared_with_what_the_plan_saw(
    connection: t.Any, guest: t.Any, step: t.Any, seen: str | None, why: str
) -> None:
    """Also by a later run, which has read it anew."""
    before = guest.XMLDesc(2)
    planned = dataclasses.replace(step, uuid=UUID, seen=fields_record.fingerprint(seen) if seen else "")
    with pytest.raises(Refused, match=rf"^cannot {step.verb} web1: {why}"):
        run_definition.do(run_definition.Definition(connection, UUID, before), planned)
    assert guest.XMLDesc(2) == before


def test_what_a_run_has_defined_itself_is_no_change_of_others(connection: t.Any, guest: t.Any) -> None:
    before = guest.XMLDesc(2)
    found = run_definition.Definition(connection, UUID, before)
    for vcpus in (8, 2):
        step = plan_guest_steps.Define(
            "web1", definition(vcpus=vcpus), uuid=UUID, seen=fields_record.fingerprint(before)
        )
        run_definition.do(found, step)
    assert guest.vcpusFlags(libvirt.VIR_DOMAIN_AFFECT_CONFIG | libvirt.VIR_DOMAIN_VCPU_MAXIMUM) == 2


class Moved:
    """A guest that is off, of a libvirt that refuses to forget it."""

    def __init__(self, version: int, *, active: bool = False) -> None:
        self.version, self.active = version, active
        self.asked: list[int] = []

    def name(self) -> str:
        return "web1"

    def isActive(self) -> bool:  # noqa: N802  as libvirt names it
        return self.active

    def connect(self) -> t.Any:
        return types.SimpleNamespace(getLibVersion=lambda: self.version)

    def undefineFlags(self, flags: int) -> None:  # noqa: N802  as libvirt names it
        self.asked.append(flags)
        raise libvirt.libvirtError("it has snapshots")


def test_a_moved_guest_is_not_forgotten_with_less_than_asked_for() -> None:
    """Asked again without TPM state, libvirt might forget the guest, and keep that."""
    nvram, tpm = libvirt.VIR_DOMAIN_UNDEFINE_NVRAM, libvirt.VIR_DOMAIN_UNDEFINE_TPM
    for version, flags in ((8_008_999, nvram), (8_009_000, nvram | tpm)):
        old = Moved(version)
        with pytest.raises(Failed, match=r"^cannot undefine web1: it has snapshots"):
            stored.undefine_moved(old, keeps_state=False)
        assert old.asked == [flags]
    running = Moved(8_009_000, active=True)
    with pytest.raises(Failed, match=r"^cannot undefine web1: it was started in the meantime; run again"):
        stored.undefine_moved(running, keeps_state=False)
    assert not running.asked
    keep = libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM
    kept = Moved(8_009_000)
    with pytest.raises(Failed, match="it has snapshots"):
        stored.undefine_moved(kept, keeps_state=True)
    assert kept.asked == [keep]


class Dead(Moved):
    """The copy of a migration that failed."""

    def state(self) -> list[int]:
        """It is off."""
        return [libvirt.VIR_DOMAIN_SHUTOFF, 0]

    def rename(self, _name: str, _flags: int) -> None:
        """Somebody has the name."""
        raise libvirt.libvirtError("it exists")


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("version", [8_008_999, 8_009_000])
def test_a_dead_copy_does_not_take_the_tpm_state_of_the_guest_that_runs(
    version: int, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where both hosts have swtpm's directory on shared storage."""
    monkeypatch.setattr(
        files_migration,
        "shared_by",
        lambda path: "nfs4" if shared and path == f"/var/lib/libvirt/swtpm/{UUID}" else None,
    )
    kept = files_migration.shared_state(UUID)
    tpm = libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM if shared and version >= 8_009_000 else 0
    monkeypatch.delattr(libvirt, "VIR_DOMAIN_UNDEFINE_KEEP_TPM")  # this host's libvirt may be older than the other's
    dead = Dead(version)
    with pytest.raises(libvirt.libvirtError):
        libvirt_migrate._remove(dead, kept)
    nvram = libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM
    assert dead.asked == [nvram | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA | tpm]
    there = types.SimpleNamespace(getURI=lambda: "there", defineXML=lambda _xml: dead)
    with pytest.raises(Failed, match="cannot reserve web1 on there: "):
        stored.reserve(there, "web1", "<domain/>", kept)
    assert dead.asked[1:] == [nvram | tpm]


def test_volumes(connection: t.Any) -> None:
    volume = Volume("default", "a.qcow2", f"{POOL}/a.qcow2", 1024**3, "qcow2", f"{POOL}/debian-12.qcow2", "qcow2")
    do(connection, plan_guest_steps.CreateVolume("web1", volume, xml_host.new_volume(volume)))
    found = xml_host.volume(t.cast(str, libvirt_storage.volume_at(connection, volume.path)))
    assert (found["capacity_bytes"], found["backing_path"], found["backing_format"]) == (
        1024**3,
        volume.backing_path,
        "qcow2",
    )
    with pytest.raises(Failed, match=r"^cannot create volume a.qcow2 in pool default: .*already exists"):
        do(connection, plan_guest_steps.CreateVolume("web1", volume, xml_host.new_volume(volume)))
    do(connection, plan_guest_steps.CreateVolume("web1", volume, xml_host.new_volume(volume), replace=True))
    do(
        connection,
        plan_guest_steps.DeleteVolume("web1", volume.path),
        plan_guest_steps.DeleteVolume("web1", volume.path),
    )  # gone is gone
    assert libvirt_storage.volume_at(connection, volume.path) is None
    assert libvirt_storage.volume_in(connection, "default", "a.qcow2") is None


def test_a_disk_named_by_pool_and_volume_grows_like_a_file(connection: t.Any) -> None:
    pool = connection.storagePoolLookupByName("default")
    pool.createXML("<volume><name>a.qcow2</name><capacity>1073741824</capacity></volume>")
    box = {"name": "box1", "vcpus": 1, "memory": 256, "interfaces": [], "state": "present"}
    told = []
    for entry in ({"volume": "default/a.qcow2"}, {"size": 1}, {"size": 2}):
        wanted = run_guest_options.wanted({**box, "disks": [{"name": "data", **entry}]})
        grows = entry == {"size": 2}  # which the test driver cannot do
        told.append(run_guest.converge(connection, wanted, Gate(check_mode=grows))["steps"])
    assert told[1:] == [[], [f"grow disk {POOL}/a.qcow2 to 2 GiB"]]
    with pytest.raises(Refused, match=r"cannot shrink disk data of box1 from 1 GiB to 512 MiB"):
        run_guest.converge(
            connection,
            run_guest_options.wanted({**box, "disks": [{"name": "data", "size": "512MiB"}]}),
            Gate(check_mode=True),
        )


def test_every_step_has_a_verb() -> None:
    """Those of the front take several rooms: they look again before they act."""
    kinds = {
        kind
        for kind in vars(plan_guest_steps).values()
        if isinstance(kind, type) and issubclass(kind, plan_guest_steps.GuestStep)
    }
    fronts = {*run_guest_steps._DOERS, *run_definition._DOERS, *run_guest_steps._MAKERS, *run_guest_steps._GROWERS}
    assert kinds - {plan_guest_steps.GuestStep, *fronts} == set({**libvirt_domain._ON_HOST, **libvirt_domain._ON_GUEST})


@pytest.mark.parametrize(
    "step",
    [
        plan_guest_steps.Start(NO_SUCH),
        plan_guest_steps.Shutdown(NO_SUCH, timeout_s=1),
        plan_guest_steps.Destroy(NO_SUCH),
        plan_guest_steps.Suspend(NO_SUCH),
        plan_guest_steps.Resume(NO_SUCH),
        plan_guest_steps.Reset(NO_SUCH),
        plan_guest_steps.Reboot(NO_SUCH, timeout_s=1),
        plan_guest_steps.Undefine(NO_SUCH),
        plan_guest_steps.SetVcpus(NO_SUCH, 1),
        plan_guest_steps.SetMemory(NO_SUCH, 1),
        plan_guest_steps.SetMetadata(NO_SUCH, "a"),
        plan_guest_steps.SetAutostart(NO_SUCH, True),
        plan_guest_steps.Attach(NO_SUCH, "disks[a]", "<disk/>"),
        plan_guest_steps.Detach(NO_SUCH, "disks[a]", "<disk/>"),
        plan_guest_steps.RecordAddresses(NO_SUCH, (), ""),
    ],
    ids=lambda step: type(step).__name__,
)
def test_no_such_guest(connection: t.Any, step: plan_guest_steps.GuestStep) -> None:
    with pytest.raises(NotFound, match=r"cannot [a-z ]+ .*nobody.*: .*(not found|no domain)"):
        do(connection, step)


@pytest.mark.parametrize(
    ("kind", "message", "todo"),
    [
        (Failed, r"^cannot start web1: .*already", [plan_guest_steps.Start("web1"), plan_guest_steps.Start("web1")]),
        (Failed, r"^cannot resume web1: .*not", [plan_guest_steps.Resume("web1")]),
        (Failed, r"^cannot suspend web1: .*not running", [plan_guest_steps.Suspend("web1")]),
        (
            Failed,
            r"^cannot set vcpus of web1: ",
            [plan_guest_steps.Start("web1"), plan_guest_steps.SetVcpus("web1", 99)],
        ),
        (Failed, r"^cannot set memory of web1: ", [plan_guest_steps.SetMemory("web1", 1024)]),
        (Failed, r"^cannot define web2: .*uuid", [plan_guest_steps.Define("web2", definition("web2"))]),
        (Failed, r"^cannot define web1: .*Start Tag", [plan_guest_steps.Define("web1", "<domain")]),
        (
            Unsupported,
            r"^cannot attach disks\[a\] to web1: ",
            [plan_guest_steps.Start("web1"), plan_guest_steps.Attach("web1", "disks[a]", "<disk/>")],
        ),
        (NotFound, r"^cannot grow disk /nowhere: ", [plan_guest_steps.GrowDisk("web1", "/nowhere", 1)]),
    ],
)
def test_refusals_of_libvirt(
    connection: t.Any, guest: t.Any, kind: type[VirtError], message: str, todo: list[plan_guest_steps.GuestStep]
) -> None:
    with pytest.raises(kind, match=message):
        do(connection, *todo)


@pytest.mark.parametrize(
    "step", [plan_guest_steps.Destroy("web1"), plan_guest_steps.Shutdown("web1", 1, force=True)], ids=str
)
def test_a_guest_that_powers_off_meanwhile_is_off(
    connection: t.Any, guest: t.Any, step: plan_guest_steps.GuestStep
) -> None:
    """Between the look at it and the step."""
    assert not guest.isActive()
    do(connection, step)
    assert not guest.isActive()


@pytest.mark.parametrize(
    "step",
    [
        plan_guest_steps.Undefine("web1", ()),
        plan_guest_steps.SetAutostart("web1", on=True),
        plan_guest_steps.Start("web1"),
    ],
    ids=str,
)
def test_a_guest_that_has_taken_the_name_meanwhile_is_left_alone(
    connection: t.Any, guest: t.Any, step: plan_guest_steps.GuestStep
) -> None:
    guest.undefine()
    other = connection.defineXML(definition().replace(UUID, UUID.replace("1", "2")))
    with pytest.raises(NotFound, match=rf"^cannot find guest web1 \({UUID}\): "):
        do(connection, step)
    assert not other.isActive() and not other.autostart() and connection.lookupByName("web1").UUID() == other.UUID()


def test_its_disks_are_left_alone_too(connection: t.Any, guest: t.Any) -> None:
    guest.undefine()
    other = connection.createXML(definition().replace(UUID, UUID.replace("1", "2")))
    with pytest.raises(NotFound, match=UUID):
        libvirt_blockjob.grow(libvirt_query.by_uuid(connection, UUID), "vda", 1)
    with pytest.raises(NotFound, match=UUID):
        libvirt_blockjob.pull(
            connection, UUID, "vda", timeout_s=1, progress=lambda _now, _end: None, armed=contextlib.nullcontext
        )
    with pytest.raises(NotFound, match=UUID):
        libvirt_query.managed_state(connection, UUID)
    assert other.isActive()


def test_an_error_is_not_taken_for_nothing(connection: t.Any, guest: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What libvirt keeps of a guest, and whether it migrates, is unknown where libvirt does not answer."""

    def fails(*_arguments: object) -> t.Any:
        guest.resume()  # a real error of libvirt: it is off

    monkeypatch.setattr(type(guest), "snapshotNum", fails)
    with pytest.raises(Failed, match=r"^cannot find the snapshots of guest web1: "):
        libvirt_query.managed_state(connection, UUID)
    away = types.SimpleNamespace(lookupByUUIDString=fails)
    with pytest.raises(Failed, match=rf"^cannot find the job of guest {UUID}: "):
        libvirt_migrate.job_active(away, UUID)
    assert libvirt_migrate.job_active(connection, UUID.replace("1", "2")) is False
    assert libvirt_migrate.job_active(None, UUID) is False


def test_a_guest_that_powers_off_when_its_time_is_over_is_off(
    connection: t.Any, guest: t.Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the last answer that it runs and the plug."""
    guest.create()

    def disobeys(*_asked: object, **_more: object) -> bool:
        guest.destroy()
        return False

    monkeypatch.setattr(libvirt_wait, "obeyed", disobeys)
    do(connection, plan_guest_steps.Shutdown("web1", 1, force=True))
    assert not guest.isActive()


class Away:
    """A guest that somebody migrates while it is waited for: it runs elsewhere, and is off here or gone."""

    def __init__(self, guest: t.Any, *, undefined: bool) -> None:
        self.guest, self.undefined, self.left = guest, undefined, False

    def leave(self, *_asked: object, **_more: object) -> bool:
        """It has gone when it was to obey."""
        self.left = True
        if self.undefined:
            self.guest.undefine()
        return True

    def isActive(self) -> bool:  # noqa: N802  as libvirt names it
        return not self.left

    def state(self) -> list[int]:
        """As libvirt leaves it."""
        if not self.left:
            return [libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED]
        self.guest.info()  # libvirt's own error if there is no such guest
        return [libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED]

    def create(self) -> None:
        """It must not be called."""
        raise AssertionError("a second copy")

    def destroy(self) -> None:
        """It is off."""
        self.leave()
        self.guest.resume()

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self.guest, name)


@pytest.mark.parametrize("undefined", [False, True], ids=["defined", "undefined"])
@pytest.mark.parametrize(
    ("step", "verb"),
    [
        (plan_guest_steps.Reboot("web1", timeout_s=1), "reboot"),
        (plan_guest_steps.Shutdown("web1", timeout_s=1), "shut down"),
        (plan_guest_steps.Destroy("web1"), "destroy"),
    ],
    ids=["reboot", "shutdown", "destroy"],
)
def test_a_guest_that_is_migrated_meanwhile_is_not_off(
    guest: t.Any, monkeypatch: pytest.MonkeyPatch, step: plan_guest_steps.GuestStep, verb: str, undefined: bool
) -> None:
    """What follows would start a second copy of it, or delete the disks that it uses."""
    away = Away(guest, undefined=undefined)
    monkeypatch.setattr(libvirt_wait, "obeyed", away.leave)
    with pytest.raises(Failed, match=rf"^cannot {verb} web1: it was migrated to another host .*; .*virt\.list"):
        libvirt_power.DOERS[type(step)](away, step)


def test_a_migration_is_no_shutdown() -> None:
    """Both stop the guest here."""
    event = libvirt.VIR_DOMAIN_EVENT_STOPPED
    assert libvirt_wait._stopped(event, libvirt.VIR_DOMAIN_EVENT_STOPPED_SHUTDOWN)
    assert not libvirt_wait._stopped(event, libvirt.VIR_DOMAIN_EVENT_STOPPED_MIGRATED)
    assert not libvirt_wait._stopped(libvirt.VIR_DOMAIN_EVENT_SHUTDOWN, 0)


@pytest.mark.parametrize("suspends", [True, False])
def test_a_paused_guest_that_does_not_power_off_is_paused_again(
    connection: t.Any, guest: t.Any, monkeypatch: pytest.MonkeyPatch, suspends: bool
) -> None:
    """It was only woken to hear that it shall."""
    guest.create()
    monkeypatch.setattr(libvirt_wait, "obeyed", lambda *_asked, **_more: False)
    with pytest.raises(Timeout, match="did not do so within 1 s") as failed:
        do(connection, plan_guest_steps.Shutdown("web1", 1, suspends=suspends))
    assert ("and is paused again" in str(failed.value)) is suspends
    assert (guest.state()[0] == libvirt.VIR_DOMAIN_PAUSED) is suspends


class Unplugging:
    """A connection that takes those who listen, and a guest that lets go of other devices first."""

    def __init__(self, gone: t.Sequence[str]) -> None:
        self.gone = gone
        self.heard: t.Callable[[str], None] = lambda _alias: None

    def connect(self) -> Unplugging:
        """Of the guest."""
        return self

    def name(self) -> str:
        """Of the guest."""
        return "web1"

    def domainEventRegisterAny(self, _domain: object, _kind: int, hear: t.Any, counts: object) -> int:  # noqa: N802
        """As virConnect does."""
        self.heard = lambda alias: hear(self, self, alias, counts)
        return 1

    def domainEventDeregisterAny(self, _number: int) -> None:  # noqa: N802
        """As virConnect does."""

    def detachDeviceFlags(self, _xml: str, _flags: int) -> None:  # noqa: N802
        """As virDomain does."""
        for alias in self.gone:
            self.heard(alias)

    def lookupByUUIDString(self, _uuid: str) -> Unplugging:  # noqa: N802
        """As virConnect does."""
        return self


def test_only_the_device_that_was_to_go_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libvirt_domain, "_DETACH_S", 0.01)
    step = plan_guest_steps.Detach("web1", "disks[data]", "<disk><alias name='ua-data'/></disk>")
    libvirt_domain.do(Unplugging(["ua-other", "ua-data"]), UUID, step)
    for gone in ([], ["ua-other"]):
        with pytest.raises(Timeout, match=r"cannot detach disks\[data\] from web1: the guest did not release it"):
            libvirt_domain.do(Unplugging(gone), UUID, step)


@pytest.mark.parametrize("error", ["busy", "gone"])
def test_a_guest_that_cannot_be_looked_at_is_not_called_off(
    connection: t.Any, guest: t.Any, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(connection, plan_guest_steps.Start("web1"))
    if error == "gone":
        guest.destroy()
        guest.undefine()
        assert libvirt_wait.observe(connection, "web1", UUID).state == "absent"
        return

    def busy(_uuid: str) -> t.NoReturn:
        raise libvirt.libvirtError("cannot acquire state change lock")

    monkeypatch.setattr(connection, "lookupByUUIDString", busy)
    seen = libvirt_wait.observe(connection, "web1", UUID)
    assert seen.unseen.startswith("cannot inspect guest web1: cannot acquire state change lock")


def test_no_such_pool(connection: t.Any) -> None:
    for call in (libvirt_storage.pool_xml, libvirt_storage.refresh):
        with pytest.raises(NotFound, match=r"pool fast: "):
            call(connection, "fast")
    with pytest.raises(NotFound, match=r"cannot find storage pool fast: .*; create it, or choose another"):
        libvirt_storage.volume_in(connection, "fast", "a")


def questions_to(connection: t.Any, pool: str) -> dict[str, t.Callable[[], object]]:
    """All that is asked of a pool, and done in it."""
    volume = Volume(pool, "a", f"{POOL}/a", 1024**2, "raw")
    return {
        "its document": lambda: libvirt_storage.pool_xml(connection, pool),
        "its content again": lambda: libvirt_storage.refresh(connection, pool),
        "a volume": lambda: libvirt_storage.volume_in(connection, pool, "a"),
        "a small file": lambda: libvirt_storage.read(connection, pool, "a"),
        "a large file": lambda: libvirt_storage.receive(
            connection, pool, "a", 0, lambda _piece: None, lambda _size: None
        ),
        "a new volume": lambda: libvirt_storage.create(connection, pool, xml_host.new_volume(volume), name="a"),
        "another volume": lambda: libvirt_storage.create(
            connection, pool, xml_host.new_volume(volume), name="a", replace=True
        ),
        "to write": lambda: libvirt_storage.write(connection, pool, "a", b""),
    }


def test_a_pool_that_is_not_active_is_to_be_started(connection: t.Any) -> None:
    connection.storagePoolLookupByName("default").destroy()
    start = f"virsh --connect {connection.getURI()} pool-start default"
    message = f"cannot use storage pool default: it is not active; start it with virt_pool (state: active) or `{start}`"
    exactly = f"^{re.escape(message)}$"
    for what, ask in questions_to(connection, "default").items():
        with pytest.raises(Failed, match=exactly):
            assert ask() is None, what


@pytest.mark.parametrize(
    "disk", [{"volume": "default/a.qcow2"}, {"size": 1}, {"image": "debian-12.qcow2"}], ids=["volume", "new", "image"]
)
def test_a_disk_in_a_pool_that_is_not_active(connection: t.Any, disk: dict[str, t.Any]) -> None:
    """Refused before anything is done, in check mode too."""
    connection.storagePoolLookupByName("default").destroy()
    box = {"name": "box1", "vcpus": 1, "memory": 256, "interfaces": [], "disks": [{"name": "data", **disk}]}
    box["state"] = "running"
    with pytest.raises(Failed, match=r"^cannot use storage pool default: it is not active; start it") as told:
        run_guest.converge(connection, run_guest_options.wanted(box), Gate(check_mode=True))
    assert str(told.value).count("not active") == 1


def test_no_such_daemon() -> None:
    with pytest.raises(Failed, match=r"^cannot connect to test:///nowhere.xml: .*; is the libvirt daemon"):
        with opened("test:///nowhere.xml"):
            pass


def test_seen_addresses_are_recorded_and_forgotten_apart_from_all_else(connection: t.Any, guest: t.Any) -> None:
    guest.setMetadata(
        libvirt.VIR_DOMAIN_METADATA_ELEMENT,
        "<guest><making>/a</making></guest>",
        "corral",
        "urn:corral:virt:guest:1",
        2,
    )
    do(connection, plan_guest_steps.Start("web1"))
    entry = "52:54:00:00:00:01 192.0.2.7 dhcp 1700000000"
    do(connection, plan_guest_steps.RecordAddresses("web1", ("192.0.2.7",), xml_summary.sightings([entry])))
    for flag in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
        assert fields_record.read(guest.XMLDesc(flag))["seen"] == (entry,)
    do(connection, plan_guest_steps.RecordAddresses("web1", (), xml_summary.sightings([])))
    assert fields_record.read(guest.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)) == {"making": ("/a",)}
    assert "seen" not in guest.XMLDesc()


class Agent:
    """A guest with an agent, which the test driver does not have: libvirt's calls in their order."""

    def __init__(self, *, silent: bool = False) -> None:
        self.calls: list[str] = []
        self.silent, self.limit_s = silent, libvirt.VIR_DOMAIN_AGENT_RESPONSE_TIMEOUT_BLOCK

    def name(self) -> str:
        """Of the guest."""
        return "web1"

    def agentSetResponseTimeout(self, seconds: int) -> None:  # noqa: N802
        """Counts for all later calls, whoever makes them."""
        self.limit_s = seconds

    def fsFreeze(self) -> None:  # noqa: N802
        """Tells within which time it must answer."""
        self.calls.append(f"freeze {self.limit_s}")
        if self.silent:
            raise libvirt.libvirtError("agent is not responding")

    def fsThaw(self) -> None:  # noqa: N802
        """As above."""
        self.calls.append(f"thaw {self.limit_s}")


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("required", [False, True])
def test_an_agent_that_was_asked_has_no_limit_afterwards(silent: bool, required: bool) -> None:
    """libvirt keeps the limit of one caller for all others, as long as the guest runs."""
    agent, limits = Agent(silent=silent), []
    failure = pytest.raises(Failed, match="was not taken") if silent and required else contextlib.nullcontext()
    with failure, contextlib.ExitStack() as frozen:
        libvirt_snapshot.freeze(agent, "snapshot s of web1", frozen, lambda: None, required=required)
        limits.append(agent.limit_s)
    assert agent.calls == (["freeze 5"] if silent else ["freeze 5", "thaw 60"])
    assert {agent.limit_s, *limits} == {libvirt.VIR_DOMAIN_AGENT_RESPONSE_TIMEOUT_BLOCK}
