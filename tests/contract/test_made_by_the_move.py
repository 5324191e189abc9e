"""A disk file on the destination that somebody else made is never deleted, whenever it came."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import os
import re
import types
import typing as t
from pathlib import Path

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._domain import (
    fields_record,
    libvirt_query,
    xml_host,
    xml_host_bindings,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest, Volume
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition
from ansible_collections.corral.virt.plugins.module_utils._migration import (
    libvirt_migrate,
    run_copy_offline,
    run_migrate,
    run_migration_files,
    run_reconcile,
    run_send_guest,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import DiskMove, Made, Move
from ansible_collections.corral.virt.plugins.module_utils._migration.run_endpoints import Endpoints
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    libvirt_storage,
    libvirt_transfer,
    run_directories,
)
from ansible_collections.corral.virt.plugins.module_utils._system.progress import ProgressWatch
from ansible_collections.corral.virt.plugins.module_utils._xml.names import CORRAL
from ansible_collections.corral.virt.tests.contract.two_hosts import Host, converge, options, two_hosts
from ansible_collections.corral.virt.tests.contract.two_hosts import ends as ends_of

UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
PATH = "/var/lib/libvirt/images/box1-system.qcow2"
VOLUME = Volume("default", "box1-system.qcow2", PATH, 8 * 1024**3, "qcow2")
DISK = DiskMove("vda", PATH, "full", "", VOLUME)
MOVE = Move("box1", UUID, "hyper2", "there", disks=(DISK,))


@pytest.fixture
def ends() -> t.Iterator[Endpoints]:
    """A guest that is about to move."""
    for source, dest in two_hosts():
        source.add("box1", UUID, "running")
        known: dict[str, Host] = {"here": source, "there": dest}
        both = Endpoints("here", "there", known.__getitem__)
        run_reconcile.begin(source, MOVE)
        yield both


def made(ends: Endpoints) -> tuple[str, ...]:
    """What the record says."""
    return t.cast(
        "tuple[str, ...]", fields_record.read(ends.source.lookupByUUIDString(UUID).XMLDesc()).get("moving_made") or ()
    )


def somebody_makes_it(ends: Endpoints, size_bytes: int = VOLUME.capacity_bytes) -> None:
    libvirt_storage.create(
        ends.dest,
        "default",
        xml_host.new_volume(Volume("default", VOLUME.name, PATH, size_bytes, "qcow2")),
        name=VOLUME.name,
    )


def test_a_file_that_came_after_the_plan_is_not_deleted(ends: Endpoints) -> None:
    somebody_makes_it(ends)
    with pytest.raises(Failed, match="already exists"):
        run_copy_offline.make(ends, UUID, DISK)
    run_reconcile.clean_up(ends, UUID)
    assert libvirt_storage.volume_at(ends.dest, PATH), "it is somebody else's"


def test_what_was_only_planned_is_not_recorded_as_made(ends: Endpoints) -> None:
    assert made(ends) == ()
    run_copy_offline.make(ends, UUID, DISK)
    assert [entry.split(" ", 3)[0] for entry in made(ends)] == ["made"] and made(ends)[0].endswith(PATH)


def test_what_was_made_goes_again(ends: Endpoints) -> None:
    run_copy_offline.make(ends, UUID, DISK)
    assert run_reconcile.clean_up(ends, UUID) == []
    assert libvirt_storage.volume_at(ends.dest, PATH) is None and made(ends) == ()


def test_what_a_daemon_made_before_it_was_killed_goes_again(ends: Endpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    dest, create = ends.dest, libvirt_storage.create

    def killed(*arguments: t.Any, **more: t.Any) -> None:
        create(*arguments, **more)
        alive = iter([False])
        monkeypatch.setattr(dest, "isAlive", lambda: next(alive, True), raising=False)
        raise Failed("cannot create volume: End of file while reading data")

    monkeypatch.setattr(libvirt_storage, "create", killed)
    with pytest.raises(Failed, match="End of file"):
        run_copy_offline.make(ends, UUID, DISK)
    assert libvirt_storage.volume_at(ends.dest, PATH)
    assert run_reconcile.clean_up(ends, UUID) == []
    assert libvirt_storage.volume_at(ends.dest, PATH) is None and made(ends) == ()


def test_a_file_that_replaced_what_was_made_is_not_deleted(ends: Endpoints) -> None:
    run_copy_offline.make(ends, UUID, DISK)
    libvirt_storage.delete(ends.dest, PATH)
    somebody_makes_it(ends, 4096)
    (left,) = run_reconcile.clean_up(ends, UUID)
    assert left == f"{PATH} stays on the destination: its size differs from what the migration created"
    assert libvirt_storage.volume_at(ends.dest, PATH)


COPY = "0badc0de-f6a4-8304-79aa-97f2502e193f"


def copied(ends: Endpoints) -> None:
    """Somebody copies the definition: dumpxml, another name and UUID, define."""
    xml = ends.source.lookupByUUIDString(UUID).XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    ends.source.defineXML(xml.replace(UUID, COPY).replace("<name>box1</name>", "<name>copy</name>"))


def test_what_was_made_for_a_guest_does_not_go_with_a_copy_of_its_definition(ends: Endpoints) -> None:
    run_copy_offline.make(ends, UUID, DISK)
    copied(ends)
    found = libvirt_query.found(ends.source.lookupByUUIDString(COPY))
    assert not {"moving", "moving_made"} & {*fields_record.of(found)}
    run_reconcile.clean_up(ends, COPY)
    assert libvirt_storage.volume_at(ends.dest, PATH), "it is the guest's"
    run_reconcile.begin(ends.source, dataclasses.replace(MOVE, guest="copy", uuid=COPY))
    run_reconcile.clean_up(ends, COPY)
    assert libvirt_storage.volume_at(ends.dest, PATH), "it is the guest's"


def test_a_disk_of_a_guest_whose_place_is_reserved_is_in_use(ends: Endpoints) -> None:
    run_copy_offline.make(ends, UUID, DISK)
    disk = f"<disk type='file'><source file='{PATH}'/><target dev='vda'/></disk>"
    xml = (
        f"<domain type='test'><name>box2</name><uuid>{COPY}</uuid><memory>1024</memory>"
        f"<os><type>hvm</type></os><devices>{disk}</devices></domain>"
    )
    ends.dest.defineXML(xml_host_bindings.reserved(xml, "arriving"))
    assert run_reconcile.try_clean_up(ends, UUID) == [f"{PATH} stays on the destination: guest arriving uses it"]
    assert libvirt_storage.volume_at(ends.dest, PATH)


def test_a_file_that_another_guest_uses_is_not_deleted(ends: Endpoints) -> None:
    run_copy_offline.make(ends, UUID, DISK)
    disk = f"<disk type='file'><source file='{PATH}'/><target dev='vda'/></disk>"
    ends.dest.defineXML(
        f"<domain type='test'><name>other</name><memory>1024</memory><os><type>hvm</type></os><devices>{disk}</devices></domain>"
    )
    assert run_reconcile.clean_up(ends, UUID) == [f"{PATH} stays on the destination: guest other uses it"]
    assert libvirt_storage.volume_at(ends.dest, PATH)


def error_of_libvirt(code: int, text: str, number: int = -1) -> libvirt.libvirtError:
    """As the binding raises it."""
    error = libvirt.libvirtError(text)
    error.err = (code, 18, text, 2, text, None, None, number, -1)
    return error


NO_VOLUME = error_of_libvirt(libvirt.VIR_ERR_NO_STORAGE_VOL, "no storage vol with matching path")
BUSY = error_of_libvirt(libvirt.VIR_ERR_RPC, "client socket is closed")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("busy", "cannot refresh storage pool default: client socket is closed"),
        ("inactive", "storage pool default of that directory is not active; start it there with `virsh pool-start"),
    ],
)
def test_what_nobody_can_look_for_stays_recorded(
    ends: Endpoints, monkeypatch: pytest.MonkeyPatch, kind: str, reason: str
) -> None:
    """And the run says why: else the file stays, and the next migration takes it for somebody else's."""
    run_copy_offline.make(ends, UUID, DISK)
    entered, pool = made(ends), ends.dest.connection.storagePoolLookupByName("default")
    with monkeypatch.context() as patch:
        if kind == "inactive":
            pool.destroy()
        else:
            patch.setattr(libvirt_storage, "_refresh", raising(BUSY))
        (told,) = run_reconcile.try_clean_up(ends, UUID)
    assert f"for files that the migration created there: {PATH}: {reason}" in told and told.endswith("; run again")
    recorded = fields_record.read(ends.source.lookupByUUIDString(UUID).XMLDesc())
    assert (recorded["moving"], made(ends)) == ("hyper2", entered)
    if kind == "inactive":
        return  # the test driver forgets the volumes of a pool that stops
    assert run_reconcile.try_clean_up(ends, UUID) == [] and made(ends) == ()
    assert libvirt_storage.volume_at(ends.dest, PATH) is None


def test_check_mode_of_an_abort_tells_what_nobody_can_look_for() -> None:
    """In a pool that is not active."""
    for source, dest in two_hosts():
        source.add("web1", UUID, "shutdown")
        both = ends_of(source, dest)
        run_reconcile.begin(source, dataclasses.replace(MOVE, guest="web1"))
        run_copy_offline.make(both, UUID, DISK)
        assert converge(source, dest, check_mode=True, state="aborted") == ""
        dest.connection.storagePoolLookupByName("default").destroy()
        told = converge(source, dest, check_mode=True, state="aborted")
        assert told.startswith(f"cannot look on the destination for files that the migration created there: {PATH}: ")
        assert converge(source, dest, state="aborted") == told


@pytest.mark.parametrize("check_mode", [True, False])
def test_an_abort_of_a_migration_to_another_host_is_refused(*, check_mode: bool) -> None:
    """Its run may be at work."""
    for source, dest in two_hosts():
        source.add("web1", UUID, "shutdown")
        run_reconcile.begin(source, dataclasses.replace(MOVE, guest="web1", dest="hyper3"))
        told = converge(source, dest, check_mode=check_mode, state="aborted")
        assert told.startswith("cannot abort the migration of web1 to hyper2: it is being migrated to hyper3, or was; ")
        assert fields_record.read(source.connection.lookupByUUIDString(UUID).XMLDesc())["moving"] == "hyper3"


def result_of_abort(both: Endpoints) -> dict[str, t.Any]:
    """What a run tells."""
    params = options(name="box1", state="aborted")
    return run_migrate.converge(both, params, Gate(check_mode=False), ProgressWatch("box1"))


def test_an_abort_tells_what_stays_behind(ends: Endpoints) -> None:
    run_copy_offline.make(ends, UUID, DISK)
    disk = f"<disk type='file'><source file='{PATH}'/><target dev='vda'/></disk>"
    ends.dest.defineXML(
        f"<domain type='test'><name>other</name><memory>1024</memory><os><type>hvm</type></os><devices>{disk}</devices></domain>"
    )
    told = result_of_abort(ends)
    assert told["changed"] and told["notes"] == [f"{PATH} stays on the destination: guest other uses it"]


def test_an_abort_that_comes_too_late_changes_nothing(ends: Endpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guest arrived while it was asked for."""
    domain = ends.source.connection.lookupByUUIDString(UUID)
    monkeypatch.setattr(libvirt_migrate, "job_active", lambda _source, _uuid: True)

    def arrives(_endpoints: Endpoints, _move: Move) -> None:
        domain.destroy()
        domain.undefine()

    monkeypatch.setattr(run_send_guest, "abort", arrives)
    told = result_of_abort(ends)
    assert (told["changed"], told["steps"]) == (False, []) and not told["diff"]["after"]
    assert told["notes"] == [
        "nothing was aborted: box1 had left for hyper2 before; a run with state: present tells where it is"
    ]


def raising(error: Exception) -> t.Callable[..., t.NoReturn]:
    """A function that only raises."""

    def fail(*_arguments: object, **_more: object) -> t.NoReturn:
        raise error

    return fail


@pytest.mark.parametrize(
    ("code", "number", "gone"),
    [
        (libvirt.VIR_ERR_SYSTEM_ERROR, errno.ENOENT, True),
        (libvirt.VIR_ERR_SYSTEM_ERROR, errno.EACCES, False),
        (libvirt.VIR_ERR_RPC, errno.ENOENT, False),
    ],
)
def test_files_go_with_their_directory_and_not_with_the_right_to_look(
    ends: Endpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, number: int, gone: bool
) -> None:
    entry = f"made 540672 1.0 {tmp_path}/box1_VARS.fd"
    run_migration_files.remember(ends.source.lookupByUUIDString(UUID), {"moving_made": (entry,)})
    error = error_of_libvirt(code, f"cannot open directory '{tmp_path}'", number)
    flags: list[int] = []

    def create(_xml: str, flag: int) -> t.NoReturn:
        flags.append(flag)
        raise error

    monkeypatch.setattr(ends.dest, "storagePoolCreateXML", create, raising=False)
    told = run_reconcile.try_clean_up(ends, UUID)
    assert flags == [0], "to look makes no directory"
    assert (told == [] and made(ends) == ()) if gone else (str(tmp_path) in told[0] and made(ends) == (entry,))


@pytest.mark.parametrize("kind", ["pool", "no pool"])
def test_a_look_makes_nothing_on_the_destination(
    ends: Endpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As in check mode: a file that is in no pool is not known."""
    monkeypatch.setattr(ends.dest, "storagePoolCreateXML", raising(AssertionError("made a pool")), raising=False)
    run_copy_offline.make(ends, UUID, DISK)
    entry = "" if kind == "pool" else f"made 540672 1.0 {tmp_path}/box1_VARS.fd"
    known, strange = run_migration_files.ours(ends.dest, UUID, {"moving_made": (*made(ends), *filter(None, [entry]))})
    assert (known, strange) == ({PATH}, [])


def test_a_file_that_vanishes_before_it_is_copied_is_told(
    ends: Endpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libvirt_transfer, "copy", raising(AssertionError("copied nothing")))
    pool = f"<pool type='dir'><name>nvram</name><target><path>{tmp_path}</path></target></pool>"
    for connection in (ends.source, ends.dest):
        connection.storagePoolCreateXML(pool)
    with pytest.raises(Failed, match=r"box1_VARS.fd: it is gone from its pool"):
        run_copy_offline.copy_file(ends, UUID, os.fspath(tmp_path / "box1_VARS.fd"))
    assert made(ends) == ()


class Killed(BaseException):
    """The module's end."""


@pytest.mark.parametrize("after", ["making", "created"])
def test_what_a_killed_run_left_is_known_and_made_anew(
    ends: Endpoints, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = libvirt_storage.create

    def die(*result: t.Any, **more: t.Any) -> None:
        if after == "created":
            create(*result, **more)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(libvirt_storage, "create", die)
        with pytest.raises(Killed):
            run_copy_offline.make(ends, UUID, DISK)
    assert [entry.split(" ", 3)[0] for entry in made(ends)] == ["making"]
    run_copy_offline.make(ends, UUID, DISK.__class__("vda", PATH, "full", "", VOLUME, replace=after == "created"))
    assert run_reconcile.clean_up(ends, UUID) == [] and libvirt_storage.volume_at(ends.dest, PATH) is None


def test_nothing_replaces_a_variable_store_of_another_guest(ends: Endpoints, tmp_path: Path) -> None:
    store = os.fspath(tmp_path / "box1_VARS.fd")
    ends.dest.defineXML(
        "<domain type='test'><name>other</name><memory>1024</memory><os><type>hvm</type><loader readonly='yes' "
        f"type='pflash'>/usr/share/OVMF.fd</loader><nvram>{store}</nvram></os></domain>"
    )
    with pytest.raises(Failed, match="guest other on the destination uses a file with this name"):
        run_copy_offline.copy_file(ends, UUID, store)


def with_variables(name: str, uuid: str, store: str) -> str:
    """A guest that boots by UEFI."""
    return (
        f"<domain type='test'><name>{name}</name><uuid>{uuid}</uuid><memory>1024</memory><os><type arch='i686'>hvm"
        f"</type><loader readonly='yes' type='pflash'>/usr/share/OVMF.fd</loader><nvram>{store}</nvram></os></domain>"
    )


def test_a_guest_that_runs_writes_into_no_variable_store_of_another_guest(hosts: tuple[Host, Host]) -> None:
    """QEMU on the destination opens the file by its path; the guest there may be off."""
    store, other = "/var/lib/libvirt/qemu/nvram/web1_VARS.fd", UUID.replace("6", "7")
    hosts[0].connection.defineXML(with_variables("web1", UUID, store)).create()
    assert store not in converge(*hosts, check_mode=True)
    hosts[1].connection.defineXML(with_variables("web9", other, store))
    problem = converge(*hosts, check_mode=True)
    assert problem.startswith("cannot migrate web1 to hyper2: ")
    assert re.search(f"guest web9 of hyper2 has its UEFI variables in {store}, too; give one of the guests", problem)


@pytest.mark.parametrize("shared", [True, False])
def test_a_guest_that_leaves_does_not_take_the_variable_store_of_another_guest(
    ends: Endpoints, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """Undefining would delete the file by its path, and a definition that was copied by hand names it, too."""
    store, leaves = "/var/lib/libvirt/qemu/nvram/web1_VARS.fd", UUID.replace("6", "8")
    ends.source.defineXML(with_variables("web1", leaves, store))
    if shared:
        ends.source.defineXML(with_variables("web9", UUID.replace("6", "7"), store))
    asked: list[list[str]] = []
    monkeypatch.setattr(definition, "undefine", lambda _domain, kinds: asked.append([*kinds]))
    run = run_migrate._Run(ends, options(), Gate(check_mode=False), ProgressWatch("web1"), contextlib.ExitStack())
    monkeypatch.setattr(run, "_is_held", lambda: True)
    run.undefine(Move("web1", leaves, "hyper2", "there"))
    assert asked == [["keep_nvram" if shared else "nvram", "tpm"]]
    note = f"the UEFI variables in {store} stay on the source: guest web9 uses them"
    assert run.notes == ([note] if shared else [])


def test_a_variable_store_that_nobody_uses_is_not_overwritten(
    ends: Endpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody kept it (virsh undefine --keep-nvram).

    What a run of ours left is replaced, and removed when the move fails.
    """
    monkeypatch.setattr(libvirt_transfer, "copy", lambda *_arguments: True)  # the test driver has no streams
    store = os.fspath(tmp_path / "box1_VARS.fd")
    pool = f"<pool type='dir'><name>nvram</name><target><path>{tmp_path}</path></target></pool>"
    volume = (
        "<volume><name>box1_VARS.fd</name><capacity>540672</capacity><target><format type='raw'/></target></volume>"
    )
    for connection in (ends.source, ends.dest):
        connection.storagePoolCreateXML(pool).createXML(volume)
    with pytest.raises(Failed, match="which no guest uses and no migration of this guest created; inspect it"):
        run_copy_offline.copy_file(ends, UUID, store)
    assert libvirt_storage.volume_at(ends.dest, store) and not made(ends)
    libvirt_storage.delete(ends.dest, store)
    for _run in range(2):
        run_copy_offline.copy_file(ends, UUID, store)
    assert [entry.rpartition(" ")[2] for entry in made(ends)] == [store]
    assert run_reconcile.clean_up(ends, UUID) == [] and libvirt_storage.volume_at(ends.dest, store) is None


@pytest.mark.parametrize(
    ("here", "there", "size", "pool", "same"),
    [
        (b"0123456789", b"01234", 5, "default", True),
        (b"0123456789", b"0123456789", 10, "default", True),
        (b"0123456789", b"01294", 5, "default", False),  # somebody else's of that size
        (b"0123", b"01234", 5, "default", False),  # longer than what is copied
        (None, b"01234", 5, "default", False),  # cannot be read here, so nobody can tell
        (b"0123456789", b"01234", 5, None, False),
    ],
)
def test_a_copy_that_broke_off_is_known_by_the_bytes_it_begins_with(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    here: bytes | None,
    there: bytes,
    size: int,
    pool: str | None,
    same: bool,
) -> None:
    path = tmp_path / "disk.qcow2"
    if here is not None:
        path.write_bytes(here)
    monkeypatch.setattr(
        run_directories, "pool_at", lambda _dest, directory: pool if directory == str(tmp_path) else "another"
    )
    asked: list[tuple[str, str]] = []

    def digest(_dest: t.Any, pool: str, name: str) -> str:
        asked.append((pool, name))
        return hashlib.sha256(there).hexdigest()

    monkeypatch.setattr(libvirt_transfer, "digest", digest)
    assert run_migration_files._begun(None, {str(path): str(path)}, str(path), size) is same
    assert asked == ([("default", "disk.qcow2")] if pool and here and len(here) >= size else []), (
        "what cannot be ours is not fetched"
    )


def arrived(ends: Endpoints, disk: str) -> FoundGuest:
    """It runs on the destination, with that disk; a file of the move was open there, by the name that is planned."""
    entry = Made(Made.OPEN, VOLUME.capacity_bytes, "", PATH, "0badc0de")
    recorded = f'<corral:guest xmlns:corral="{CORRAL}"><corral:moving-made>{entry}</corral:moving-made></corral:guest>'
    xml = (
        f"<domain type='test'><name>box1</name><uuid>{UUID}</uuid><metadata>{recorded}</metadata><os/><devices>"
        f"<disk type='file' device='disk'><source file='{disk}'/><target dev='vda'/></disk></devices></domain>"
    )
    return FoundGuest("box1", UUID, "running", persistent=True, autostart=False, xml=xml, live_xml=xml)


def test_a_disk_that_is_gone_from_under_a_guest_that_arrived_is_told(ends: Endpoints) -> None:
    with pytest.raises(Failed, match=PATH):
        run_migration_files.check_arrived(ends.dest, arrived(ends, PATH))


def test_a_file_that_the_owner_merged_since_the_guest_arrived_is_not_missed(ends: Endpoints) -> None:
    run_migration_files.check_arrived(ends.dest, arrived(ends, "/var/lib/libvirt/images/below.qcow2"))


def test_a_volume_that_its_owner_deletes_while_volumes_are_listed_is_passed_over(
    ends: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    somebody_makes_it(ends)
    gone = types.SimpleNamespace(name=lambda: "gone", XMLDesc=raising(NO_VOLUME), info=raising(NO_VOLUME))
    volumes = libvirt.virStoragePool.listAllVolumes
    monkeypatch.setattr(libvirt.virStoragePool, "listAllVolumes", lambda pool: [gone, *volumes(pool)])
    assert PATH in [xml_host.volume(xml)["path"] for xml in libvirt_storage.all_volumes(ends.dest)]
    assert VOLUME.name in [each.name() for pool in ends.dest.listAllStoragePools() for each in pool.listAllVolumes()]


def test_a_guest_is_stored_with_the_disk_that_its_owner_gave_it_since_it_arrived(ends: Endpoints) -> None:
    def definition(disk: str) -> str:
        return (
            f"<domain type='test'><name>box2</name><uuid>{COPY}</uuid><memory>1024</memory><os><type>hvm</type></os>"
            f"<devices><disk type='file'><driver name='qemu' type='qcow2'/><source file='{disk}'/><target dev='vda'/>"
            "</disk></devices></domain>"
        )

    ends.dest.createXML(definition("/images/box2.snapshot"))
    stored = ends.dest.defineXML(xml_host_bindings.reserved(definition("/images/box2.qcow2"), "box2"))
    run_copy_offline.release(ends.dest, COPY, "box2")
    assert "'/images/box2.snapshot'" in stored.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
