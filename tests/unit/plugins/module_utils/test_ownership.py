"""Planned is not made: a file on the destination goes only when it is known to be the one that the move made there."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import Made
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_concurrent_changes import (
    check_size,
    foreign,
    sorted_out,
    stopped,
)
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity

PATH, SIZE, KIB = "/images/a b.qcow2", 8 * 1024**3, 1024
SEEN = {"capacity_bytes": SIZE, "physical_bytes": 196 * KIB, "allocation_bytes": 196 * KIB, "changed": "17.5"}


def never(_length: int) -> bool:
    """No content is what another file begins with."""
    return False


@pytest.mark.parametrize("phase", [Made.MAKING, Made.MADE, Made.COPYING, Made.OPEN])
def test_what_the_record_tells_is_read_again(phase: str) -> None:
    for changed, mark in (("", ""), ("17.5", ""), ("17.5", "0badc0de")):
        for origin in ("", "/old: images/a b.qcow2"):
            made = Made(phase, SIZE, changed, PATH, mark, origin)
            assert Made.parse(str(made)) == made and made.source_path == (origin or PATH)


def test_an_entry_of_a_version_without_marks_is_read() -> None:
    assert Made.parse(f"open {SIZE} 17.5 {PATH}") == Made(Made.OPEN, SIZE, "17.5", PATH)


@pytest.mark.parametrize(("mark", "why"), [("0badc0de", ""), ("", "it was replaced"), ("1badc0de", "it was replaced")])
def test_a_disk_that_qemu_writes_is_known_by_its_mark(mark: str, why: str) -> None:
    made = Made(Made.OPEN, SIZE, "17.5", PATH, "0badc0de")
    result = foreign(made, {**SEEN, "changed": "18.0"}, {}, begun=never, mark=lambda: mark)
    assert result == "" if not why else why in result


def test_what_an_earlier_version_had_planned_is_not_ours() -> None:
    assert "its size differs" in foreign(Made.parse("/images/a.qcow2"), SEEN, {}, begun=never, mark=str)


@pytest.mark.parametrize(
    ("phase", "more", "why"),
    [
        (Made.MAKING, {}, ""),
        (Made.MADE, {}, ""),
        (Made.OPEN, {}, "no mark"),
        (Made.OPEN, {"changed": "18.0", "allocation_bytes": SIZE}, "no mark"),
        (Made.MADE, {"changed": "18.0"}, "replaced or changed"),
        (Made.MAKING, {"allocation_bytes": 1024 * KIB}, ""),  # a new qcow2 file with its tables takes 200 KiB
        (Made.MAKING, {"allocation_bytes": 1024 * KIB + 1}, "contains data"),
        (Made.MAKING, {"capacity_bytes": 1}, "its size differs"),
        (Made.MADE, {"capacity_bytes": 1}, "its size differs"),
        (Made.OPEN, {"capacity_bytes": 1}, "its size differs"),
    ],
)
def test_a_file_of_somebody_else_is_not_taken_for_ours(phase: str, more: dict[str, t.Any], why: str) -> None:
    result = foreign(Made(phase, SIZE, "17.5", PATH), {**SEEN, **more}, {}, begun=never, mark=str)
    assert result == "" if not why else why in result
    assert foreign(Made(phase, SIZE, "17.5", PATH), SEEN, {PATH: "db1"}, begun=never, mark=str) == "guest db1 uses it"


LV, UUID = "/dev/vg0/web1-system", "jTo52t-yTZk-qfNz-eG8z-vPoK-30wZ-6mci62"


@pytest.mark.parametrize(
    ("phase", "recorded", "now", "why"),
    [
        (Made.MADE, UUID, UUID, ""),
        (Made.COPYING, UUID, UUID, ""),
        (Made.OPEN, UUID, UUID, ""),
        (Made.OPEN, UUID, UUID.swapcase(), "it was replaced"),
        (Made.MADE, UUID, "", "it was replaced"),
        # It was made, or somebody else has made it, and the run was killed before it knew.
        (Made.MAKING, "", UUID, "remove it there if nobody needs it (lvremove /dev/vg0/web1-system)"),
    ],
)
def test_a_logical_volume_is_known_by_its_uuid_alone(phase: str, recorded: str, now: str, why: str) -> None:
    made = Made(phase, SIZE, "", LV, recorded)
    result = foreign(made, {**SEEN, "changed": "other"}, {}, begun=never, mark=lambda: now)
    assert result == "" if not why else why in result
    assert foreign(made, SEEN, {LV: "db1"}, begun=never, mark=lambda: now) == "guest db1 uses it"
    assert Made.parse(str(made)) == made


def test_a_logical_volume_that_arrived_is_the_guests_own_by_its_uuid() -> None:
    made = Made(Made.OPEN, SIZE, "", LV, UUID)
    assert made.volume == FileIdentity(0, mark=f"LVM-{UUID.replace('-', '')}")
    with_group = FileIdentity(0, mark=f"LVM-{'g' * 32}{UUID.replace('-', '')}")
    assert made.volume.is_same(with_group) and with_group.is_same(made.volume)
    assert not with_group.is_same(FileIdentity(0, mark=f"LVM-{'g' * 32}{'v' * 32}"))
    assert Made(Made.MAKING, SIZE, "", LV).volume is None and Made(Made.OPEN, SIZE, "", PATH, "0bad").volume is None


def test_a_volume_of_another_size_is_refused_with_that() -> None:
    check_size({"capacity_bytes": SIZE}, LV, "lvm", wanted_bytes=SIZE)
    with pytest.raises(Failed, match=r"it has 8 GiB, and volumes of pool lvm .* 16 GiB; grow the disk to that size"):
        check_size({"capacity_bytes": 2 * SIZE}, LV, "lvm", wanted_bytes=SIZE)


@pytest.mark.parametrize(
    ("phase", "size", "begun", "why"),
    [
        (Made.COPYING, 65536, True, ""),
        (Made.COPYING, 1, True, ""),
        (Made.COPYING, SIZE, True, ""),
        (Made.COPYING, SIZE, False, "its content"),  # another file of the same size
        (Made.COPYING, 65536, False, "its content"),
        (Made.COPYING, 0, True, "its content"),  # every copy begins so, and every empty file
        (Made.COPYING, SIZE + 1, True, "its content"),
        (Made.OPEN, 65536, True, "its size differs"),
        (Made.MADE, 65536, True, "its size differs"),
        (Made.MAKING, 65536, True, "its size differs"),
    ],
)
def test_a_copy_that_broke_off_is_known_by_its_bytes(phase: str, size: int, begun: bool, why: str) -> None:
    seen, made = {**SEEN, "capacity_bytes": 2 * SIZE, "physical_bytes": size}, Made(phase, SIZE, "17.5", PATH)
    result = foreign(made, seen, {}, begun=lambda length: begun and length == size, mark=str)
    assert result == "" if not why else why in result
    assert foreign(made, seen, {PATH: "db1"}, begun=lambda _length: True, mark=str) == "guest db1 uses it"


def test_the_command_that_starts_a_pool_can_be_pasted() -> None:
    assert stopped("old disks").endswith("start it there with `virsh pool-start 'old disks'`")


OTHER = "/images/c.qcow2"
ENTRIES = [Made(Made.MADE, SIZE, "17.5", PATH), Made(Made.COPYING, SIZE, "", OTHER)]
WHOLE = {**SEEN, "physical_bytes": SIZE}
CUT_OFF = {**SEEN, "capacity_bytes": 2 * SIZE, "physical_bytes": 65536}


@pytest.mark.parametrize(
    ("seen", "users", "begun", "ours", "others"),
    [
        ({}, {}, True, set(), []),
        ({}, {PATH: "db1"}, True, set(), []),  # it is not there
        ({PATH: SEEN}, {}, False, {PATH}, []),
        ({PATH: SEEN, OTHER: WHOLE}, {}, True, {PATH, OTHER}, []),
        ({PATH: SEEN, OTHER: WHOLE}, {PATH: "db1"}, True, {OTHER}, [f"{PATH} stays on the destination: guest db1"]),
        ({OTHER: CUT_OFF}, {}, True, {OTHER}, []),
        ({OTHER: CUT_OFF}, {}, False, set(), [f"{OTHER} stays on the destination: its content"]),
        (
            {PATH: CUT_OFF, OTHER: CUT_OFF},
            {},
            False,
            set(),
            [f"{PATH} stays on the destination: its size", f"{OTHER} stays on the destination: its content"],
        ),
        ({PATH: SEEN, "/images/new.qcow2": SEEN}, {}, False, {PATH}, []),  # nobody recorded it
    ],
)
def test_what_is_there_is_sorted_out(
    seen: dict[str, t.Any], users: dict[str, str], begun: bool, ours: set[str], others: list[str]
) -> None:
    sizes = (65536, SIZE)
    result = sorted_out(
        ENTRIES, seen, users, begun=lambda path, size: begun and path == OTHER and size in sizes, mark=str
    )
    assert result[0] == ours
    assert len(result[1]) == len(others)
    assert [text[: len(start)] for text, start in zip(result[1], others)] == others
