"""Snapshots that one libvirt forgets and another one has: on the test driver, with the note between them."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator
from pathlib import Path

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._migration import (
    files_migration,
    libvirt_migrate,
    plan_snapshot_migration,
    run_snapshots,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import Move
from ansible_collections.corral.virt.plugins.module_utils._migration.run_endpoints import Endpoints
from ansible_collections.corral.virt.tests.golden.case import HOST_URI

UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
DOMAIN = (
    f"<domain type='test'><name>web1</name><uuid>{UUID}</uuid><memory>65536</memory><os><type>hvm</type></os></domain>"
)
NAMES = ["s1", "with space", "-x"]


@pytest.fixture
def hosts() -> Iterator[tuple[t.Any, t.Any]]:
    """Two that have the guest; the first one also its snapshots, each on the one before, and the second is current."""
    with opened(HOST_URI) as source, opened(HOST_URI) as dest:
        guest = source.defineXML(DOMAIN)
        dest.defineXML(DOMAIN)
        made = [guest.snapshotCreateXML(f"<domainsnapshot><name>{name}</name></domainsnapshot>") for name in NAMES]
        guest.snapshotCreateXML(
            made[1].getXMLDesc(),
            libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_CURRENT,
        )
        yield source, dest


@pytest.fixture(autouse=True)
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where notes are."""
    monkeypatch.setattr(files_migration, "FOLDER", str(tmp_path / "notes"))
    return tmp_path / "notes"


def tree(connection: t.Any) -> list[tuple[str, str | None, bool]]:
    """Each snapshot, what it stands on, and whether it is the current one, as libvirt tells."""
    found = connection.lookupByName("web1").listAllSnapshots(libvirt.VIR_DOMAIN_SNAPSHOT_LIST_TOPOLOGICAL)
    parents = {one.getName(): parent(one) for one in found}
    return [(one.getName(), parents[one.getName()], bool(one.isCurrent())) for one in found]


def parent(one: t.Any) -> str | None:
    """The name of what a snapshot stands on."""
    try:
        return t.cast(str, one.getParent().getName())
    except libvirt.libvirtError:
        return None


def both(source: t.Any, dest: t.Any) -> tuple[Endpoints, Move]:
    """Both ends, and the move as a plan has it."""
    saved = run_snapshots.known(source, UUID, moving=False)
    names, seen = tuple(one.name for one in saved), plan_snapshot_migration.fingerprint(saved)
    ends = {"here": source, "there": dest}
    return Endpoints("here", "there", ends.__getitem__), Move(
        "web1", UUID, "hyper2", HOST_URI, snapshots=names, snapshots_seen=seen
    )


def test_they_are_the_same_on_the_other_host(hosts: tuple[t.Any, t.Any], notes: Path) -> None:
    source, dest = hosts
    before = tree(source)
    assert [current for _name, _parent, current in before] == [False, True, False]
    endpoints, move = both(source, dest)
    run_snapshots.carry(endpoints, move)
    assert tree(dest) == tree(source) == before
    [note] = notes.iterdir()
    assert note.stat().st_mode & 0o777 == 0o600 and notes.stat().st_mode & 0o777 == 0o700
    run_snapshots.check_as_planned(endpoints, move)


@pytest.mark.parametrize("kept", range(4))
def test_what_is_missing_is_put_back(hosts: tuple[t.Any, t.Any], kept: int) -> None:
    """As many are left as a run that was killed had not removed; children go first."""
    source, dest = hosts
    before = tree(source)
    endpoints, move = both(source, dest)
    run_snapshots.carry(endpoints, move)
    found = source.lookupByName("web1").listAllSnapshots(libvirt.VIR_DOMAIN_SNAPSHOT_LIST_TOPOLOGICAL)
    for one in reversed(found[kept:]):
        one.delete()  # this driver has no metadata beside
    assert len(tree(source)) == kept
    known = run_snapshots.known(source, UUID, moving=True)
    assert {(one.name, one.current) for one in known} == {(name, current) for name, _parent, current in before}
    for _time in range(2):
        run_snapshots.put_back(source, UUID)
        assert tree(source) == before
    files_migration.remove_note(UUID)
    files_migration.remove_note(UUID)
    run_snapshots.put_back(source, UUID)
    assert tree(source) == before


def test_a_new_snapshot_stops_it(hosts: tuple[t.Any, t.Any], notes: Path) -> None:
    source, dest = hosts
    endpoints, move = both(source, dest)
    source.lookupByName("web1").snapshotCreateXML("<domainsnapshot><name>new</name></domainsnapshot>")
    with pytest.raises(Failed, match="its snapshots were changed"):
        run_snapshots.carry(endpoints, move)
    assert tree(dest) == [] and not notes.exists()


@pytest.mark.parametrize("text", ["", "[", "[{}]", "{}x", '[{"name": "s1"}]'])
def test_a_damaged_note_is_told(hosts: tuple[t.Any, t.Any], notes: Path, text: str) -> None:
    notes.mkdir(mode=0o700)
    (notes / f"{UUID}.json").write_text(text)
    with pytest.raises(Failed, match=f"cannot read the snapshots in {notes}/{UUID}.json"):
        run_snapshots.put_back(hosts[0], UUID)


def test_other_guests_have_none(hosts: tuple[t.Any, t.Any]) -> None:
    assert libvirt_migrate.saved_snapshots(hosts[1].lookupByName("web1")) == ()
    run_snapshots.put_back(hosts[1], UUID)
    assert run_snapshots.known(hosts[1], UUID, moving=True) == ()
