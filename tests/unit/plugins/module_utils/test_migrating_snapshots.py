"""Snapshots of a guest that migrates: which files go with them, what speaks against it, and what is put back."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Volume
from ansible_collections.corral.virt.plugins.module_utils._migration import plan_migrate, plan_snapshot_migration
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    COPY,
    DELTA,
    FULL,
    SHARED,
    DiskMove,
    MigratingGuest,
    Move,
    Pool,
    SavedSnapshot,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migrating_disk import (
    ChainFile,
    MigratingDisk,
    VolumeFile,
)
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse, text

DISK = """<disk type='file' device='{device}'><driver name='qemu' type='{format}'/><source file='{path}'/>
<target dev='{target}' bus='virtio'/>{more}</disk>"""
DOMAIN = "<domain type='qemu'><name>web1</name><devices>{}</devices></domain>"


def disk(path: str, target: str = "vda", *, kind: str = "qcow2", device: str = "disk", more: str = "") -> str:
    """A disk of a definition."""
    return DISK.format(path=path, target=target, format=kind, device=device, more=more)


def saved(
    name: str, *, overlay: str = "", inside: bool = False, memory: str = "", then: str = "", more: str = ""
) -> SavedSnapshot:
    """A snapshot with an overlay, or inside the disk."""
    kind = "internal" if inside else "external"
    source = f"<driver type='qcow2'/><source file='{overlay}'/>" if overlay else ""
    disks = f"<disks><disk name='vda' snapshot='{kind}'>{source}</disk></disks>" if inside or overlay else ""
    held = f"<memory snapshot='external' file='{memory}'/>" if memory else ""
    xml = f"<domainsnapshot><name>{name}</name>{more}{held}{disks}{DOMAIN.format(then)}</domainsnapshot>"
    return SavedSnapshot(name, xml, current=False)


def nowhere(_pool: str, _volume: str) -> str | None:
    """No volume is known."""
    return None


CHAIN = [
    saved("s1", overlay="/i/s1", then=disk("/i/base", kind="raw")),
    saved("s2", overlay="/i/s2", memory="/m/s2", then=disk("/i/s1")),
    saved("b1", overlay="/i/b1", then=disk("/i/s1") + disk("/iso/cd", "sda", device="cdrom", more="<readonly/>")),
]


@pytest.mark.parametrize(
    ("top", "files"),
    [
        ("/i/s2", {"/i/s1": "vda of snapshot s1", "/i/base": "vda of snapshot s1", "/m/s2": "memory of snapshot s2"}),
        ("/i/b1", {"/i/s2": "vda of snapshot s2"}),
    ],
)
def test_each_file_that_a_snapshot_names_goes_once(top: str, files: dict[str, str]) -> None:
    found = plan_snapshot_migration.disks(CHAIN, [MigratingDisk("vda", top, "auto")], "auto", nowhere)
    paths = {one.disk.path: one for one in found}
    assert len(paths) == len(found) == 5 and top not in paths
    assert {path: paths[path].disk.target for path in files} == files
    assert all(one.disk.fixed and one.disk.mode == "auto" for one in found)
    assert {path for path, one in paths.items() if one.raw} == {"/i/base", "/m/s2"}
    assert {path for path, one in paths.items() if not one.own} == {"/iso/cd"}


def test_what_the_user_calls_shared_is_so_below_and_in_memory() -> None:
    disks = [MigratingDisk("vda", "/i/s2", "shared")]
    found = plan_snapshot_migration.disks(CHAIN, disks, "auto", nowhere)
    modes = {one.disk.path: one.disk.mode for one in found}
    assert modes["/i/base"] == modes["/i/b1"] == "shared" and modes["/m/s2"] == "auto"
    assert {one.disk.mode for one in plan_snapshot_migration.disks(CHAIN, disks, "shared", nowhere)} == {"shared"}
    assert {one.disk.mode for one in plan_snapshot_migration.disks(CHAIN, [], "full", nowhere)} == {"auto"}, (
        "never flattened"
    )


def test_a_file_below_another_is_copied_with_that_one() -> None:
    below = ChainFile("/i/base", VolumeFile("raw", 1, 1), Pool("i", "/i", 1), ours=False)
    top, base = MigratingDisk("vda", "/i/s1", "auto", chain=(below,)), MigratingDisk("x", "/i/base", "auto", fixed=True)
    assert plan_snapshot_migration.each_once([top, base]) == [top]
    assert plan_snapshot_migration.each_once([dataclasses.replace(top, chain=()), base])[1] == base


def move(*disks: DiskMove, active: bool = True) -> Move:
    """To hyper2."""
    return Move("web1", "u", "hyper2", "qemu:///", active=active, disks=disks)


def refused(found: Move, *snapshots: SavedSnapshot) -> str:
    """All that speaks against it."""
    guest = MigratingGuest("web1", "u", "running", 1, "q35", "kvm", snapshots=plan_snapshot_migration.parsed(snapshots))
    return "; ".join(plan_snapshot_migration.problems(found, guest))


INSIDE, AROUND = saved("in", inside=True), saved("s1", overlay="/i/s1")
OTHER = Volume("other", "s1", "/other/s1", 1, "qcow2")


@pytest.mark.parametrize(
    ("disks", "snapshots", "words"),
    [
        ([DiskMove("vda", "/i/a", SHARED, "")], [INSIDE, AROUND], ""),
        ([DiskMove("vda", "/i/a", COPY, "")], [INSIDE, AROUND], ""),
        ([DiskMove("vda", "/i/a", DELTA, "")], [AROUND], ""),
        ([DiskMove("vda", "/i/a", FULL, "")], [AROUND], ""),
        ([DiskMove("vda", "/i/a", FULL, "")], [INSIDE, AROUND], "snapshot in would be lost"),
        ([DiskMove("vda", "/i/a", DELTA, "")], [INSIDE], "migrate the guest while it is off"),
        ([DiskMove("vdb", "/i/a", FULL, "")], [INSIDE], ""),
        ([DiskMove("vda", "/i/a", FULL, "", flatten=True)], [AROUND], "vda would be copied without backing files"),
        ([DiskMove("vda", "/i/a", COPY, "", volume=OTHER)], [AROUND], "omit pool and disk_pool"),
        ([DiskMove("vda", "/i/a", FULL, "", volume=OTHER, flatten=True)], [], ""),
        (
            [],
            [saved("s1", overlay="/i/s1", more="<disks><disk><snapshotDeleteInProgress/></disk></disks>")],
            "interrupted when it deleted snapshot s1",
        ),
    ],
)
def test_what_would_lose_a_snapshot_is_refused(
    disks: list[DiskMove], snapshots: list[SavedSnapshot], words: str
) -> None:
    said = refused(move(*disks), *snapshots)
    assert words in said and bool(said) == bool(words)
    if words:
        assert "virsh snapshot-delete web1" in said and "corral.virt.delete_snapshot -e guest=web1 -e snapshot=" in said


def test_many_are_named_by_the_first() -> None:
    many = [saved(f"s{number}", inside=True) for number in range(9)]
    assert "snapshots s0, s1, s2, s3, s4 and 4 more would be lost" in refused(
        move(DiskMove("vda", "/a", FULL, "")), *many
    )


@pytest.mark.parametrize("active", [True, False])
def test_they_are_there_before_the_source_forgets_them(active: bool) -> None:
    found = dataclasses.replace(move(active=active), snapshots=("s1", "s2"))
    kinds = [type(step).__name__ for step in plan_migrate.steps(found)]
    leaves = "Migrate" if active else "UndefineOnSource"
    at = [kinds.index(kind) for kind in ("Reserve", "CarrySnapshots", "ForgetSnapshots", leaves, "DefineOnDest")]
    assert at == sorted(at)
    assert "CarrySnapshots" not in [type(step).__name__ for step in plan_migrate.steps(move(active=active))]


def test_a_note_and_what_is_left_make_all() -> None:
    first, second, third = (SavedSnapshot(name, f"<{name}/>", current=name == "c") for name in "abc")
    all_three = (first, second, third)
    assert plan_snapshot_migration.all_of(all_three, ()) == all_three
    assert plan_snapshot_migration.all_of((), all_three) == all_three
    # libvirt makes the parent of a removed one the current one
    assert set(plan_snapshot_migration.all_of(all_three, (first, second._replace(current=True)))) == set(all_three)
    assert plan_snapshot_migration.missing(all_three, (first,)) == (second, third)


def test_a_look_tells_any_change() -> None:
    seen = plan_snapshot_migration.fingerprint(CHAIN)
    planned = dataclasses.replace(move(), snapshots_seen=seen)
    plan_snapshot_migration.check_as_planned(planned, CHAIN)
    plan_snapshot_migration.check_backups(move(), ())
    with pytest.raises(Failed, match="its checkpoints were changed since this run has read them"):
        plan_snapshot_migration.check_backups(move(), ["corral-1"])
    plan_snapshot_migration.check_as_planned(move(), [])
    others: list[t.Sequence[SavedSnapshot]] = [CHAIN[:-1], CHAIN[::-1], [*CHAIN[:-1], CHAIN[-1]._replace(current=True)]]
    for other in (*others, []):
        with pytest.raises(Failed, match="changed since this run has read them"):
            plan_snapshot_migration.check_as_planned(planned, other)


def test_what_libvirt_took_is_compared() -> None:
    plan_snapshot_migration.check_defined("web1", "hyper2", CHAIN, CHAIN)
    later = saved("s1", overlay="/i/s1", then=disk("/i/base", kind="raw", more="<alias name='new'/>"))
    plan_snapshot_migration.check_defined("web1", "hyper2", CHAIN[:1], [later])
    for other in ([], [saved("s1", overlay="/i/other")], [CHAIN[0]._replace(current=True)]):
        with pytest.raises(Failed, match="cannot define snapshot s1 of web1 on hyper2"):
            plan_snapshot_migration.check_defined("web1", "hyper2", CHAIN[:1], other)


def test_an_older_libvirt_gets_nothing_that_a_newer_one_has_added() -> None:
    """What somebody asked for stays: without it, the guest of then would be another one."""
    added, asked = "<watchdog model='itco' action='reset'/>", "<watchdog model='itco' action='poweroff'/>"
    chosen = (
        "<os firmware='efi'><firmware><feature enabled='yes' name='secure-boot'/></firmware><loader>/f</loader></os>"
    )
    then = f"<domain>{chosen}<devices>{added}{asked}</devices></domain>"
    document = f"<domainsnapshot>{then}{then.replace('domain>', 'inactiveDomain>')}</domainsnapshot>"
    one = SavedSnapshot("s", document, current=True)
    (older,) = plan_snapshot_migration.readable([one], 9_000_000, written_by=11_003_000)
    bare = document.replace(added, "").replace(chosen, "<os><loader>/f</loader></os>")
    assert older.current and text(parse(older.xml)) == text(parse(bare))
    for version in (11_003_000, 12_000_000):
        assert plan_snapshot_migration.readable([one], version, written_by=11_003_000) == [one]
    chooses = one._replace(xml="<domainsnapshot><domain><os firmware='efi'/></domain></domainsnapshot>")
    (older,) = plan_snapshot_migration.readable([chooses], 9_000_000, written_by=11_003_000)
    assert "firmware" in older.xml
