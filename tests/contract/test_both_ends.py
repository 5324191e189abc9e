"""What is seen of one guest on two hosts, and what the source remembers of it."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record, libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._migration import (
    files_migration,
    libvirt_migrate,
    run_disk_moves,
    run_migration_files,
    run_reconcile,
    run_send_guest,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import LeftDisk, Move, Observation
from ansible_collections.corral.virt.plugins.module_utils._migration.run_endpoints import Endpoints
from ansible_collections.corral.virt.plugins.module_utils._storage.run_disposal import Disposal
from ansible_collections.corral.virt.plugins.module_utils._system import durable, identity
from ansible_collections.corral.virt.plugins.module_utils._system.progress import Progress
from ansible_collections.corral.virt.tests.contract.two_hosts import NAMESPACE, Host, converge, ends

UUID, OTHER = "6695eb01-f6a4-8304-79aa-97f2502e193f", "7795eb01-f6a4-8304-79aa-97f2502e193f"
LET_RUN_S = 1_700_000_000


# States of the guest on the source and on the destination, what the source remembers; what is seen.
SEEN: list[tuple[str, str, dict[str, t.Any], Observation]] = [
    ("running", "", {}, Observation("running", "absent")),
    ("", "running", {}, Observation("absent", "running")),
    ("", "", {}, Observation("absent", "absent")),
    ("running", "paused", {}, Observation("running", "paused")),
    ("running", "incoming", {}, Observation("running", "incoming")),
    ("postcopy", "postcopy", {}, Observation("postcopy", "postcopy")),
    ("postcopy", "in part", {}, Observation("postcopy", "running")),
    ("postcopy", "in part, broken", {}, Observation("postcopy", "running")),
    ("postcopy", "complete", {}, Observation("postcopy", "running", complete=True)),
    ("paused", "complete", {}, Observation("paused", "running", was_paused=True)),
    ("migrated", "running", {}, Observation("migrated", "running")),
    ("crashed", "", {}, Observation("crashed", "absent")),
    # Only the source knows who suspended it.
    ("paused", "paused", {}, Observation("paused", "paused", was_paused=True)),
    ("paused", "", {"moving_suspends": "yes"}, Observation("paused", "absent")),
    ("incoming", "incoming", {}, Observation("paused", "incoming")),
    ("stands still", "", {}, Observation("paused", "absent")),
    # Only the destination's copy waits to be let start.
    ("shutdown", "reserved", {}, Observation("shutdown", "reserved")),
    ("reserved", "shutdown", {}, Observation("shutdown", "shutdown")),
]


@pytest.mark.parametrize(("here", "there", "memory", "seen"), SEEN)
def test_each_end_is_seen_as_it_is(
    hosts: tuple[Host, Host], here: str, there: str, memory: dict[str, t.Any], seen: Observation
) -> None:
    for host, state in ((hosts[0], here), (hosts[1], there)):
        if state:
            host.add("web1", UUID, state, **(memory if host is hosts[0] else {}))
        else:
            host.add("web1", OTHER, "running")  # another guest of its name
    assert run_reconcile.observe(ends(*hosts), UUID, was_paused=False) == seen


@pytest.mark.parametrize("state", ["running", "incoming"])
def test_a_guest_that_was_paused_before_the_move_stays_so(hosts: tuple[Host, Host], state: str) -> None:
    hosts[0].add("web1", UUID, state)
    seen = run_reconcile.observe(ends(*hosts), UUID, was_paused=True, again=True)
    here = "paused" if state == "incoming" else state
    assert seen == Observation(here, "absent", was_paused=True, again=True)


def test_a_host_that_cannot_be_reached_is_not_asked(hosts: tuple[Host, Host]) -> None:
    source, dest = hosts
    source.add("web1", UUID, "paused")
    dest.add("web1", UUID, "running")

    def unreached(uri: str) -> t.Any:
        if uri == lost:
            raise Failed("cannot connect")
        return {"here": source, "there": dest}[uri]

    lost = "there"
    assert run_reconcile.observe(Endpoints("here", "there", unreached), UUID, was_paused=False) == Observation(
        "paused", "unreachable", was_paused=True
    )
    lost = "here"
    assert run_reconcile.observe(Endpoints("here", "there", unreached), UUID, was_paused=False) == Observation(
        "unreachable", "running"
    )


@pytest.mark.parametrize(
    ("here", "there", "active"), [("running", "incoming", True), ("running", "", True), ("", "incoming", False)]
)
def test_only_a_job_of_the_source_counts(
    hosts: tuple[Host, Host], here: str, there: str, active: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        libvirt_migrate, "_active", lambda domain: domain.UUIDString() == UUID
    )  # the test driver has no jobs
    for host, state in ((hosts[0], here), (hosts[1], there)):
        if state:
            host.add("web1", UUID, state)
    assert run_reconcile.observe(ends(*hosts), UUID, was_paused=False).job_active is active


def test_no_migration_begins_where_that_of_a_killed_run_has_just_ended(
    hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It would be one without its disks, and without a look at the destination."""
    answers = iter([True])  # it ends between two questions
    monkeypatch.setattr(libvirt_migrate, "_active", lambda _domain: next(answers, False))

    def begun(*_arguments: object) -> t.Any:
        raise AssertionError("a second migration")

    monkeypatch.setattr(libvirt_migrate, "_Begun", begun)
    hosts[0].add("web1", UUID, "running", moving="hyper2")
    move = Move("web1", UUID, "hyper2", "there")
    tell = Progress(str(tmp_path / "progress"))
    assert run_send_guest.resolve(ends(*hosts), move, tell, lambda: False) == []
    assert next(answers, "used") == "used"


@pytest.mark.parametrize("action", ["clean_dest", "clean_source", "withdraw"])
def test_a_dead_copy_keeps_what_is_shared(
    hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """The TPM state of the guest that runs on the other host."""
    source, dest = hosts
    source.add("web1", UUID, "paused" if action == "clean_source" else "running", moving="hyper2")
    dest.add("web1", UUID, "running" if action == "clean_source" else "reserved")
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(libvirt_migrate, "discard", lambda _end, *told: asked.append(told))
    monkeypatch.setattr(files_migration, "shared_by", lambda path: "nfs4" if path.startswith("/var/lib/") else None)
    move = Move("web1", UUID, "hyper2", "there")
    if action == "withdraw":
        run_reconcile.try_withdraw(ends(*hosts), move)
    else:
        run_reconcile._act(ends(*hosts), move, action)
    assert asked == [(UUID, ("keep_tpm",))]


@pytest.mark.parametrize(("taken", "expected"), [(("/srv/web1.qcow2",), True), ((), False)])
def test_disks_that_the_end_of_the_copy_takes_are_looked_for(
    hosts: tuple[Host, Host], taken: tuple[str, ...], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, dest = hosts
    source.add("web1", UUID, "paused", moving_suspends="yes")
    dest.add("web1", UUID, "running")
    both = ends(source, dest)

    def asked(endpoints: Endpoints, guest: FoundGuest) -> tuple[str, ...]:
        assert (endpoints, guest.uuid) == (both, UUID)
        return taken

    monkeypatch.setattr(run_disk_moves, "taken_back", asked)
    assert run_reconcile.observe(both, UUID, was_paused=False).takes_back is expected
    assert run_reconcile.observe(both, UUID, was_paused=True).takes_back is expected


def test_a_guest_that_leaves_while_it_is_looked_at(hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state was seen, the rest is gone: nobody suspended it, and no disk is taken from where it is."""
    source, dest = hosts
    source.add("web1", UUID, "paused")
    dest.add("web1", UUID, "running")
    monkeypatch.setattr(run_disk_moves, "taken_back", lambda *_asked: ("/srv/web1.qcow2",))
    monkeypatch.setattr(libvirt_query, "find_by_uuid", lambda *_asked: None)
    assert run_reconcile.observe(ends(source, dest), UUID, was_paused=False) == Observation("paused", "running")


LET_RUN = {"moving_let_run": f"{LET_RUN_S}.000"}


@pytest.mark.parametrize(
    ("here", "there", "memory", "written_s", "superseded"),
    [
        ("shutdown", "running", LET_RUN, LET_RUN_S - 1, True),
        ("crashed", "running", LET_RUN, LET_RUN_S - 1, True),
        ("shutdown", "running", LET_RUN, LET_RUN_S + 1, False),
        ("shutdown", "running", LET_RUN, None, True),  # no disk of it was copied
        ("shutdown", "running", {}, LET_RUN_S - 1, False),
        ("shutdown", "running", {}, 1, False),
        ("shutdown", "running", {}, None, False),
        ("shutdown", "paused", LET_RUN, LET_RUN_S - 1, False),
        ("running", "running", LET_RUN, LET_RUN_S - 1, False),
        ("paused", "running", LET_RUN, LET_RUN_S - 1, False),
        ("", "running", LET_RUN, LET_RUN_S - 1, False),
    ],
)
def test_what_the_source_has_is_old_when_the_guest_was_let_run_elsewhere(
    hosts: tuple[Host, Host],
    tmp_path: Path,
    here: str,
    there: str,
    memory: dict[str, t.Any],
    written_s: int | None,
    superseded: bool,
) -> None:
    disk = tmp_path / "web1.qcow2"
    known = {"moving": "hyper2", **memory}
    if written_s is not None:
        disk.write_bytes(b"")
        os.utime(disk, (written_s, written_s))
        known["moving_made"] = (f"open 1 - {disk}",)
    if here:
        hosts[0].add("web1", UUID, here)
    hosts[1].add("web1", UUID, there, **known)
    assert run_reconcile.observe(ends(*hosts), UUID, was_paused=False).superseded is superseded


def test_what_a_guest_runs_with_is_what_is_remembered_of_it(hosts: tuple[Host, Host]) -> None:
    """A migration brings the record of the running guest; the definition there may be an old one."""
    source, _dest = hosts
    for host in hosts:
        host.add("web1", UUID, "paused" if host is source else "running")
        domain = host.lookupByUUIDString(UUID).domain
        memory = {"moving_suspends": "yes", "moving_let_run": f"{LET_RUN_S}.000"}
        text = fields_record.update(domain.XMLDesc(), memory)
        domain.setMetadata(
            libvirt.VIR_DOMAIN_METADATA_ELEMENT, text, "corral", NAMESPACE, libvirt.VIR_DOMAIN_AFFECT_LIVE
        )
    assert run_reconcile.observe(ends(*hosts), UUID, was_paused=False) == Observation("paused", "running")
    source.lookupByUUIDString(UUID).domain.destroy()
    assert run_reconcile.observe(ends(*hosts), UUID, was_paused=False) == Observation(
        "shutdown", "running", superseded=True
    )


@pytest.mark.parametrize("state", ["running", "shutdown"])
@pytest.mark.parametrize("autostart", [True, False])
def test_a_guest_that_stays_starts_by_itself_as_before(
    hosts: tuple[Host, Host], state: str, autostart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(durable, "fsync", synced.append)
    source, dest = hosts
    memory: dict[str, t.Any] = {"moving": "hyper2", "moving_goes": ("/a",)}
    source.add("web1", UUID, state, **memory, **({"moving_autostart": "yes"} if autostart else {}))
    domain = source.lookupByUUIDString(UUID)
    domain.setAutostart(autostart)
    run_reconcile.disable_autostart(source, UUID)
    assert not domain.autostart() and synced == ["/etc/libvirt/qemu", "/etc/libvirt/qemu/autostart"]
    assert run_reconcile.clean_up(ends(source, dest), UUID) == []
    assert bool(domain.autostart()) is autostart
    assert not {"moving", "moving_goes", "moving_made"} & {*fields_record.read(domain.XMLDesc())}


@pytest.mark.parametrize("pool", ["active", "active, without it", "inactive", "undefined", "undefined, without it"])
def test_a_disk_on_the_source_that_cannot_be_deleted_stays_recorded(
    hosts: tuple[Host, Host], tmp_path: Path, pool: str
) -> None:
    """Of a run that ended when the guest had arrived: the next one deletes it, or says why it cannot."""
    source, dest = hosts
    disk = tmp_path / "web1.qcow2"
    stored = source.connection.storagePoolDefineXML(
        f"<pool type='dir'><name>data</name><target><path>{tmp_path}</path></target></pool>"
    )
    stored.create()
    if "without it" not in pool:
        disk.write_bytes(b"")
        stored.createXML("<volume><name>web1.qcow2</name><capacity>1</capacity></volume>")
    dest.add("web1", UUID, "running", moving="hyper2", moving_from="1111", moving_goes=(str(disk),))
    if not pool.startswith("active"):
        stored.destroy()
    if pool.startswith("undefined"):
        stored.undefine()
    told = converge(source, dest)
    recorded = fields_record.read(dest.lookupByUUIDString(UUID).XMLDesc())
    if pool in ("inactive", "undefined"):
        assert told.startswith(f"cannot delete disk {disk}: no active storage pool has its directory; start that pool")
        assert recorded["moving_goes"] == (str(disk),)
        return
    assert told == "" and "moving_goes" not in recorded
    assert not disk.exists()


@pytest.mark.parametrize("met", ["as planned", "another file", "another guest", "moved aside"])
def test_variables_on_the_source_go_only_if_they_are_what_was_planned_and_nobody_names_them(
    hosts: tuple[Host, Host], tmp_path: Path, met: str
) -> None:
    """They are in no pool; one that a killed run was removing is not either."""
    source, dest = hosts
    store, variables = tmp_path / "nvram/web1_VARS.fd", b"variables"
    store.parent.mkdir()
    store.write_bytes(variables)
    known = identity.of_path(str(store))
    assert known is not None
    its = f"<loader readonly='yes' type='pflash'>/usr/share/OVMF.fd</loader><nvram>{store}</nvram>"
    left = (str(LeftDisk(str(store), known)),)
    dest.add("web1", UUID, "running", of_os=its, moving="hyper2", moving_from="1111", moving_goes=left)
    if met == "another file":
        store.rename(tmp_path / "kept")
        store.write_bytes(variables)
    if met == "another guest":
        source.add("web2", OTHER, "shutdown", of_os=its)
    if met == "moved aside":
        with pytest.raises(KeyboardInterrupt), Disposal(source, str(store), "web1", UUID, known, pooled=False).look():
            raise KeyboardInterrupt
        assert not store.exists()
    told = converge(source, dest)
    if met == "another file":
        assert "another file than the one that was created for web1 has this name" in told
    else:
        assert told == "" and "moving_goes" not in fields_record.read(dest.lookupByUUIDString(UUID).XMLDesc())
    assert list(store.parent.iterdir()) == ([store] if met.startswith("another") else [])


@pytest.mark.parametrize("check_mode", [True, False])
def test_a_guest_that_arrives_while_it_is_looked_for(
    hosts: tuple[Host, Host], check_mode: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier run was killed, and libvirt ends its migration between two questions of this one."""
    source, dest = hosts
    source.add("web1", UUID, "running", moving="hyper2", moving_from="1111")
    state_there = libvirt_migrate.state_there

    def arriving(connection: t.Any, uuid: str, **more: t.Any) -> str:
        if source.look(UUID):
            domain = source.lookupByUUIDString(UUID)
            domain.destroy()
            domain.undefine()
            dest.add("web1", UUID, "paused", moving="hyper2", moving_from="1111")
        return state_there(connection, uuid, **more)

    monkeypatch.setattr(libvirt_migrate, "state_there", arriving)
    assert converge(source, dest, check_mode=check_mode) == ""
    assert dest.lookupByUUIDString(UUID).isActive() and source.look(UUID) is None
    assert (dest.lookupByUUIDString(UUID).state()[0] == libvirt.VIR_DOMAIN_RUNNING) is not check_mode


def test_a_guest_with_another_name_on_the_source(hosts: tuple[Host, Host]) -> None:
    """Somebody renamed what a migration had left there."""
    source, dest = hosts
    source.add("old-web1", UUID, "shutdown")
    dest.add("web1", UUID, "running", moving="hyper2", moving_from="1111")
    before = source.look(UUID), dest.look(UUID)
    assert "it cannot be determined which is newer" in converge(source, dest)
    assert (source.look(UUID), dest.look(UUID)) == before


def test_why_something_was_not_cleaned_up_is_told(hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch) -> None:
    hosts[0].add("web1", UUID, "running")

    def fail(*_told: object) -> t.NoReturn:
        raise Failed("the host is gone")

    monkeypatch.setattr(run_migration_files, "clear", fail)
    assert run_reconcile.try_clean_up(ends(*hosts), UUID) == [
        "what it left was not cleaned up: the host is gone; run again",
    ]
