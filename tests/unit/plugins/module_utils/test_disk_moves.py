"""How each disk of a guest travels, and what is refused."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._model.move import Pool
from ansible_collections.corral.virt.plugins.module_utils._plan.disk_moves import (
    MigratingDisk,
    VolumeFile,
    as_requested,
    plan_move,
    plan_moves,
    relabelling,
    unknown_disks,
)

IMAGES = "/var/lib/libvirt/images"
NAMED, OTHER = f"{IMAGES}/debian-12.1a2b3c4d5e6f.qcow2", f"{IMAGES}/golden.qcow2"
MIB = 1024 * 1024


def disk(base: str | None = NAMED, mode: str = "auto", **more: t.Any) -> MigratingDisk:
    whole = VolumeFile(base, "qcow2", 3072 * MIB, 400 * MIB) if base else None
    result = MigratingDisk(
        "vda",
        f"{IMAGES}/web1.qcow2",
        mode,
        pool=Pool("default", IMAGES, 10**12),
        file=VolumeFile(f"{IMAGES}/web1.qcow2", "qcow2", 8192 * MIB, 50 * MIB, base, "qcow2" if base else None),
        base=whole,
        base_there=whole,
    )
    return dataclasses.replace(result, **more)


def test_on_the_same_base_only_its_own_clusters_travel() -> None:
    move = plan_move(disk(), active=True)
    assert (move.how, move.bytes_to_move, move.flatten) == ("delta", 50 * MIB, False)
    assert move.volume and move.volume.backing_path == NAMED and move.volume.capacity_bytes == 8192 * MIB


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"base_there": None}, "is not on the destination"),
        ({"base_altered": True}, "was written to"),
        ({"base_there": VolumeFile(NAMED, "qcow2", 4096 * MIB, 1)}, "has another size"),
    ],
)
def test_without_it_all_of_it_travels_and_the_reason_is_told(told: dict[str, t.Any], why: str) -> None:
    move = plan_move(disk(**told), active=True)
    assert (move.how, move.bytes_to_move, move.flatten) == ("full", 450 * MIB, True)
    assert why in move.why and move.volume and move.volume.backing_path is None
    with pytest.raises(Refused, match=why):
        plan_move(disk(mode="delta", **told), active=True)
    with pytest.raises(Refused, match="flattened"):
        plan_move(disk(**told), active=False)


def test_one_disk_that_travels_whole_takes_the_others_along() -> None:
    """libvirt has one flag for all of them; what is off the running guest's way does not mind."""
    whole, other = disk(mode="full"), disk(path=f"{IMAGES}/web1-data.qcow2", target="vdb")
    moves, problems = plan_moves([whole, other, disk(None, target="vdc"), disk(fixed=True, target="vdd")], active=True)
    assert [(move.how, move.flatten) for move in moves] == [
        ("full", True),
        ("full", True),
        ("full", False),
        ("copy", False),
    ]
    assert "vda is copied in full" in moves[1].why and moves[1].volume and moves[1].volume.backing_path is None
    assert moves[1].bytes_to_move == moves[1].room_bytes == 450 * MIB and not problems
    moves, problems = plan_moves([whole, dataclasses.replace(other, mode="delta")], active=True)
    assert (
        "disk vdb: vda is copied in full" in problems[0] and "use storage: full for it, or delta for vda" in problems[0]
    )
    assert [move.how for move in plan_moves([other, disk(None, target="vdc")], active=True)[0]] == ["delta", "full"]


def test_only_an_image_that_is_missing_is_worth_bringing() -> None:
    assert plan_move(disk(base_there=None), active=True).base == NAMED
    assert plan_move(disk(base_there=None, mode="full"), active=True).base is None
    assert plan_move(disk(base_altered=True), active=True).base is None


@pytest.mark.parametrize(("active", "how"), [(True, "delta"), (False, "copy")])
def test_an_image_that_will_be_brought_counts_as_there(active: bool, how: str) -> None:
    move = plan_move(disk(base_there=None, assumed=True), active=active)
    assert (move.how, move.base, move.bytes_to_move, move.flatten) == (how, NAMED, 50 * MIB, False)
    assert move.volume and move.volume.backing_path == NAMED
    with pytest.raises(Refused, match="is not on the destination"):
        plan_move(disk(OTHER, base_there=None, assumed=True), active=False)
    assert plan_move(disk(base=OTHER, base_there=None), active=True).base is None


def test_the_same_name_is_the_same_content_only_where_the_name_says_so() -> None:
    assert plan_move(disk(base=OTHER), active=True).how == "full"
    assert plan_move(disk(base=OTHER, mode="delta"), active=True).how == "delta"  # the user vouches for it


def test_shared_storage_is_left_alone() -> None:
    move = plan_move(disk(shared_on="nfs4", pool=None, file=None), active=True)
    assert (move.how, move.volume, move.bytes_to_move) == ("shared", None, 0)
    assert plan_move(disk(mode="shared"), active=True).how == "shared"
    assert plan_move(disk(mode="full", shared_on="nfs4"), active=True).how == "full"


def test_what_nobody_writes_to_is_carried() -> None:
    assert plan_move(disk(base=None, fixed=True), active=True).how == "copy"
    off = plan_move(disk(), active=False)
    assert (off.how, off.bytes_to_move) == ("copy", 50 * MIB)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"pool": None}, "no active storage pool"),
        ({"taken": True}, "no migration of this guest created it"),
        ({"shareable": True}, "shareable"),
        ({"file": None}, "no active storage pool of the source"),
    ],
)
def test_refused(told: dict[str, t.Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        plan_move(disk(**told), active=True)


def test_what_an_earlier_run_left_is_made_anew() -> None:
    assert plan_move(disk(taken=True, ours=True), active=True).replace


def test_an_overlay_is_never_put_on_a_base_that_nobody_knows() -> None:
    """Whether there is no manifest, or its file is not the one that was verified."""
    move = plan_move(disk(base_unknown=True), active=True)
    assert (move.how, move.flatten, move.base) == ("full", True, NAMED), "the playbook has it verified, and asks again"
    assert "is not known to be the same" in move.why and move.volume and move.volume.backing_path is None
    with pytest.raises(Refused, match="is not known to be the same"):
        plan_move(disk(base_unknown=True), active=False)
    assert plan_move(disk(base_unknown=True, assumed=True), active=True).how == "delta", (
        "it is verified before the guest moves"
    )
    assert plan_move(disk(base_unknown=True, mode="delta"), active=True).how == "delta", "the user vouches for it"


def vouched(**more: t.Any) -> MigratingDisk:
    """A file that only the user calls shared."""
    return disk(mode="shared", **{"vouched": True, "cache": "none", **more})


def test_a_disk_that_only_the_user_calls_shared_moves_when_nothing_can_happen_to_it() -> None:
    moves, problems = plan_moves([vouched(), disk(fixed=True, target="sda", base=None)], active=True)
    assert not problems and [(move.how, move.vouched) for move in moves] == [("shared", True), ("copy", False)]


@pytest.mark.parametrize("cache", [None, "writeback", "unsafe"])
def test_a_cache_that_is_not_safe_is_refused_for_all_disks_that_libvirt_no_longer_checks(cache: str | None) -> None:
    _moves, problems = plan_moves([vouched(cache=cache)], active=True)
    assert "disk vda: " in problems[0] and "set cache: none" in problems[0]
    _moves, problems = plan_moves([vouched(), disk(shared_on="nfs4", cache=cache, target="vdb")], active=True)
    assert "disk vdb: " in problems[0]
    assert not plan_moves([disk(shared_on="nfs4", cache=cache)], active=True)[1], "libvirt checks it"
    assert not plan_moves([vouched(cache=cache)], active=False)[1]


def test_a_file_that_the_source_would_take_back_is_refused() -> None:
    taken = vouched(relabelled="change its owner (dynamic_ownership)")
    with pytest.raises(Refused, match=r"would change its owner .* shared_filesystems"):
        plan_move(taken, active=True)
    assert plan_move(taken, active=False).how == "shared"
    assert plan_move(dataclasses.replace(taken, fixed=True), active=True).how == "shared"


VDA: dict[str, t.Any] = {"target": "vda", "name": "system", "source": "/a"}


@pytest.mark.parametrize(
    ("disk_storage", "mode", "unknown"),
    [
        ({}, "auto", set()),
        ({"vda": "shared"}, "shared", set()),
        ({"system": "full"}, "full", set()),
        ({"system": "full", "vda": "delta"}, "delta", set()),
        ({"vdb": "full", "seed": "full"}, "auto", {"vdb", "seed"}),
    ],
)
def test_a_disk_travels_as_it_was_asked_for(disk_storage: dict[str, str], mode: str, unknown: set[str]) -> None:
    items = [VDA, {"target": "sda", "name": "seed"}]
    params = {"storage": "auto", "disk_storage": disk_storage}
    [disk] = as_requested(items, params, assumed=True)
    assert disk == MigratingDisk("vda", "/a", mode, assumed=True)
    assert unknown_disks(items, params) == unknown


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"readonly": True}, {"fixed": True}),
        ({"shareable": True}, {"shareable": True}),
        ({"cache": "none"}, {"cache": "none"}),
    ],
)
def test_what_a_definition_says_of_a_disk(more: dict[str, t.Any], expected: dict[str, t.Any]) -> None:
    params = {"storage": "full", "disk_storage": {}}
    assert as_requested([{**VDA, **more}], params, assumed=False) == [MigratingDisk("vda", "/a", "full", **expected)]


@pytest.mark.parametrize(
    ("owner", "selinux", "verbs"),
    [(False, False, []), (True, False, ["owner"]), (False, True, ["SELinux"]), (True, True, ["owner", "SELinux"])],
)
def test_what_a_libvirt_does_to_disks(owner: bool, selinux: bool, verbs: list[str]) -> None:
    found = relabelling(owner=owner, selinux=selinux)
    assert len(found) == len(verbs)
    assert all(verb in text for verb, text in zip(verbs, found))
