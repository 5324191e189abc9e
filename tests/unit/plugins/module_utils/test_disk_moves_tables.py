"""How disks are copied, as whole tables: which way each takes, on which base, and what replaces a file on the
destination.
"""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import DiskMove, Pool
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_disk_moves import (
    deletable,
    is_own_volume,
    plan_move,
    plan_moves,
    with_sources,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migrating_disk import (
    ChainFile,
    MigratingDisk,
    VolumeFile,
)
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity, OwnedVolume

IMAGES = "/images"
NAMED, OTHER = f"{IMAGES}/debian-12.1a2b3c4d5e6f.qcow2", f"{IMAGES}/golden.qcow2"
GROUP = Pool("lvm", "/dev/vg", 10**12, logical=True)
ALONE, ON_NAMED, ON_OTHER = None, NAMED, OTHER


def disk(on: str | None, mode: str = "auto", **more: t.Any) -> MigratingDisk:
    """A disk of 800 with 50 written, on a base of 300 with 40 written."""
    base = VolumeFile("qcow2", 300, 40) if on else None
    there = base if more.pop("there", True) else None
    file = VolumeFile("raw", 800, 50, on, "qcow2" if on else None)
    return dataclasses.replace(
        MigratingDisk(
            "vda", f"{IMAGES}/a.qcow2", mode, pool=Pool("fast", IMAGES, 10**12), file=file, base=base, base_there=there
        ),
        **more,
    )


def shape(move: DiskMove) -> str:
    """A decision in one line: how, bytes, base on the destination, `flat` when flattened, `bring` when an image is
    missing there.
    """
    below = move.volume.backing_path if move.volume else None
    words = [move.how, str(move.bytes_to_move), {None: "alone", NAMED: "named", OTHER: "other"}[below]]
    return " ".join([*words, *(["flat"] * move.flatten), *(["bring"] * bool(move.base)), *(["replace"] * move.replace)])


RESIZED = VolumeFile("qcow2", 301, 40)
# Base, mode, what else differs; the decision while the guest runs, and while it is off.
DECISIONS: list[tuple[str | None, str, dict[str, t.Any], str, str]] = [
    (ALONE, "auto", {}, "full 50 alone", "copy 50 alone"),
    (ALONE, "full", {}, "full 50 alone", "copy 50 alone"),
    (ALONE, "delta", {}, "full 50 alone", "copy 50 alone"),
    (ALONE, "auto", {"fixed": True}, "copy 50 alone", "copy 50 alone"),
    (ALONE, "auto", {"shared_on": "nfs4"}, "shared 0 alone", "shared 0 alone"),
    (ALONE, "shared", {}, "shared 0 alone", "shared 0 alone"),
    (ALONE, "full", {"shared_on": "nfs4"}, "full 50 alone", "copy 50 alone"),
    (ALONE, "auto", {"taken": True, "ours": True}, "full 50 alone replace", "copy 50 alone replace"),
    (ALONE, "auto", {"ours": True}, "full 50 alone", "copy 50 alone"),
    (ALONE, "auto", {"taken": True}, "refused", "refused"),
    (ALONE, "auto", {"shareable": True}, "refused", "refused"),
    (ALONE, "auto", {"pool": None}, "refused", "refused"),
    (ALONE, "auto", {"file": None}, "refused", "refused"),
    (ON_NAMED, "auto", {}, "delta 50 named", "copy 50 named"),
    (ON_NAMED, "delta", {}, "delta 50 named", "copy 50 named"),
    (ON_NAMED, "full", {}, "full 90 alone flat", "refused"),
    (ON_NAMED, "auto", {"fixed": True}, "copy 50 named", "copy 50 named"),
    (ON_NAMED, "auto", {"there": False}, "full 90 alone flat bring", "refused"),
    (ON_NAMED, "delta", {"there": False}, "refused", "refused"),
    (ON_NAMED, "full", {"there": False}, "full 90 alone flat", "refused"),
    (ON_NAMED, "auto", {"there": False, "fixed": True}, "refused", "refused"),
    (ON_NAMED, "auto", {"there": False, "assumed": True}, "delta 50 named bring", "copy 50 named bring"),
    (ON_NAMED, "full", {"there": False, "assumed": True}, "full 90 alone flat", "refused"),
    (ON_NAMED, "auto", {"assumed": True}, "delta 50 named", "copy 50 named"),
    (ON_NAMED, "auto", {"assumed": True, "base_altered": True}, "full 90 alone flat", "refused"),
    (ON_NAMED, "auto", {"base_altered": True}, "full 90 alone flat", "refused"),
    (ON_NAMED, "delta", {"base_altered": True}, "refused", "refused"),
    (ON_NAMED, "auto", {"base_there": RESIZED}, "full 90 alone flat", "refused"),
    (ON_NAMED, "delta", {"base_there": RESIZED}, "refused", "refused"),
    (ON_NAMED, "auto", {"base": None}, "full 50 alone flat", "refused"),
    (ON_OTHER, "auto", {}, "full 90 alone flat", "refused"),
    (ON_OTHER, "delta", {}, "delta 50 other", "copy 50 other"),
    (ON_OTHER, "auto", {"there": False}, "full 90 alone flat", "refused"),
    (ON_OTHER, "auto", {"there": False, "assumed": True}, "full 90 alone flat", "refused"),
]


def decided(one: MigratingDisk, *, active: bool) -> str:
    """The decision in one line."""
    try:
        return shape(plan_move(one, active=active))
    except Refused as error:
        assert "disk vda" in str(error)
        return "refused"


def test_each_disk_takes_the_way_the_table_says() -> None:
    wrong = []
    for on, mode, more, running, off in DECISIONS:
        found = tuple(decided(disk(on, mode, **more), active=active) for active in (True, False))
        if found != (running, off):
            wrong.append((on, mode, more, found))
    assert not wrong


# What the disk is, and where it goes; what is made there, how, and the room that it takes there.
WHOLE: list[tuple[dict[str, t.Any], bool, tuple[str, str, str, int | None]]] = [
    ({"path": "/dev/vg/a", "device": True, "pool": GROUP}, True, ("full", "a", "/dev/vg/a", 800)),
    ({"path": "/dev/vg/a", "device": True, "pool": GROUP}, False, ("copy", "a", "/dev/vg/a", 800)),
    ({"path": "/dev/vg/a", "device": True, "pool": GROUP, "fixed": True}, True, ("copy", "a", "/dev/vg/a", 800)),
    ({"path": "/dev/other/a", "device": True, "pool": GROUP}, True, ("full", "a", "/dev/vg/a", 800)),
    ({"path": "/dev/vg/a.b", "device": True}, True, ("full", "a.b.img", f"{IMAGES}/a.b.img", None)),
    ({"path": f"{IMAGES}/a.img", "pool": GROUP}, True, ("full", "a", "/dev/vg/a", 800)),
]


@pytest.mark.parametrize(("more", "active", "expected"), WHOLE)
def test_a_disk_is_copied_whole_from_and_to_a_logical_volume(
    more: dict[str, t.Any], active: bool, expected: tuple[str, str, str, int | None]
) -> None:
    move = plan_move(disk(ALONE, **more), active=active)
    made = move.volume
    assert made is not None and made.format == "raw" and made.pool == more.get("pool", Pool("fast", "", 0)).name
    assert (move.how, made.name, move.dest_path, made.allocation_bytes) == expected
    assert (move.bytes_to_move, move.room_bytes, made.capacity_bytes, move.flatten) == (800, 800, 800, False)
    assert ("thick" in move.why) == ("pool" in more)


def test_a_volume_that_its_definition_names_is_copied_without_what_is_there() -> None:
    known: dict[str, t.Any] = {
        "path": "/dev/vg/a",
        "device": True,
        "pool": GROUP,
        "volume": ("lvm", "a"),
        "volume_there": "/dev/vg/a",
    }
    assert plan_move(disk(ALONE, **known), active=True).flatten
    assert not plan_move(disk(ALONE, **known), active=False).flatten


def test_only_a_volume_that_was_made_for_the_guest_is_removed() -> None:
    path, found, other = "/dev/vg/a", FileIdentity(0, mark="LVM-" + "g" * 32 + "v" * 32), FileIdentity(0, mark="LVM-x")
    entry = OwnedVolume(path, "guest", "host", FileIdentity(0, mark="LVM-" + "v" * 32))
    for entries, tags, its in (
        ([entry], (), True),  # as another host's libvirt knows it, without the group
        ([dataclasses.replace(entry, identity=found)], (), True),
        ([], ("corral.guest.guest",), True),
        ([], ("corral.guest.other",), False),
        ([dataclasses.replace(entry, identity=other)], (), False),
        ([dataclasses.replace(entry, identity=None)], (), False),
        ([dataclasses.replace(entry, guest="other")], (), False),
        ([dataclasses.replace(entry, path="/dev/vg/b")], (), False),
    ):
        assert is_own_volume(path, entries, "guest", found, tags) is its
    assert not is_own_volume(path, [entry], "guest", None, ("corral.guest.guest",))
    move = plan_move(disk(ALONE, path=path, device=True, pool=GROUP), active=True)
    assert deletable([move], fixed=(), owned=()) == [] and deletable([move], fixed=(), owned=[path]) == [path]


def test_what_other_hosts_may_use_stays_on_the_source() -> None:
    one, two = plan_move(disk(ON_NAMED), active=True), plan_move(disk(ON_NAMED, path="/srv/b.qcow2"), active=True)
    moves = with_sources([one, two], {one.path, two.path}, {two.path: "nfs4"})
    assert [(move.delete_source, move.stays_on) for move in moves] == [(True, ""), (False, "nfs4")]
    used = with_sources([two], set(), {two.path: "nfs4"})
    assert [(move.delete_source, move.stays_on) for move in used] == [(False, "")], "it is not ours to delete anyway"


def test_what_is_made_on_the_destination() -> None:
    move = plan_move(disk(ON_NAMED), active=True)
    assert move.volume is not None
    made = move.volume
    assert (made.pool, made.name, made.path, made.capacity_bytes, made.format) == (
        "fast",
        "a.qcow2",
        f"{IMAGES}/a.qcow2",
        800,
        "raw",
    )
    assert (made.backing_path, made.backing_format, move.room_bytes, move.target, move.path) == (
        NAMED,
        "qcow2",
        50,
        "vda",
        made.path,
    )
    flat = plan_move(disk(ON_NAMED, "full"), active=True)
    assert flat.volume and (flat.volume.backing_format, flat.room_bytes, flat.volume.capacity_bytes) == (None, 90, 800)
    bare = plan_move(disk(ALONE), active=True)
    assert bare.volume and (bare.volume.backing_format, bare.room_bytes, bare.base) == (None, 50, None)
    assert plan_move(disk(ON_NAMED, there=False), active=True).base == NAMED


WRITTEN = "was written to on the destination after virt_image imported it: remove it there (virt_image)"
REASONS: list[tuple[MigratingDisk, bool, str]] = [
    (disk(ALONE, "shared"), True, "on storage declared as shared"),
    (disk(ALONE, shared_on="nfs4"), True, "on nfs4"),
    (disk(ALONE), True, "no backing file"),
    (disk(ALONE), False, "the guest is off"),
    (disk(ALONE, fixed=True), False, "nothing writes to it"),
    (disk(ON_NAMED), True, f"{NAMED} is there"),
    (disk(ON_NAMED, there=False, assumed=True), True, f"{NAMED} is imported"),
    (disk(ON_NAMED, "full"), True, "a full copy was requested"),
    (disk(ON_NAMED, there=False), True, f"its base {NAMED} is not on the destination"),
    (disk(ON_NAMED, base_altered=True), True, f"its base {NAMED} {WRITTEN}"),
    (disk(ON_NAMED, base_there=RESIZED), True, f"its base {NAMED} has another size on the destination"),
    (disk(ON_OTHER), True, f"its base {OTHER} is not known to be the same on the destination"),
]


@pytest.mark.parametrize(("one", "active", "why"), REASONS)
def test_the_reason_is_told(one: MigratingDisk, active: bool, why: str) -> None:
    assert plan_move(one, active=active).why == why


def test_a_disk_on_shared_storage_stays_where_it_is() -> None:
    shared = disk(ON_NAMED, shared_on="nfs4", pool=None, file=None)
    assert plan_move(shared, active=True) == DiskMove("vda", f"{IMAGES}/a.qcow2", "shared", "on nfs4")
    assert [plan_move(VOUCHED, active=active).vouched for active in (True, False)] == [True, False]


UNSAFE = "is not safe on storage that only the task declares as shared; set cache: none, and restart the guest"
VOUCHED = disk(ALONE, "shared", vouched=True, cache="none")
# Disks, whether the guest runs; what is refused.
CACHES: list[tuple[list[MigratingDisk], bool, list[str]]] = [
    ([VOUCHED], True, []),
    ([dataclasses.replace(VOUCHED, cache="directsync")], True, []),
    ([dataclasses.replace(VOUCHED, cache="writeback")], True, [f"disk vda: cache writeback {UNSAFE}"]),
    ([dataclasses.replace(VOUCHED, cache=None)], True, [f"disk vda: the default cache {UNSAFE}"]),
    ([dataclasses.replace(VOUCHED, cache=None)], False, []),
    ([dataclasses.replace(VOUCHED, cache=None, fixed=True)], True, []),
    # With one of them, libvirt checks none: of those that stay, each counts.
    (
        [VOUCHED, disk(ALONE, shared_on="nfs4", target="vdb", cache="unsafe")],
        True,
        [f"disk vdb: cache unsafe {UNSAFE}"],
    ),
    ([VOUCHED, disk(ALONE, shared_on="nfs4", target="vdb", cache="unsafe", fixed=True)], True, []),
    ([VOUCHED, disk(ALONE, target="vdb", cache="unsafe")], True, []),
    ([disk(ALONE, shared_on="nfs4", cache="unsafe")], True, []),
    (
        [disk(ALONE, pool=None), dataclasses.replace(VOUCHED, target="vdb", cache=None)],
        True,
        [
            "disk vda: the destination has no active storage pool at /images; start the pool of that directory there, or create one",
            f"disk vdb: the default cache {UNSAFE}",
        ],
    ),
]


@pytest.mark.parametrize(("disks", "active", "problems"), CACHES)
def test_the_cache_of_a_disk_that_only_the_user_calls_shared(
    disks: list[MigratingDisk], active: bool, problems: list[str]
) -> None:
    assert plan_moves(disks, active=active)[1] == problems


def test_a_disk_that_libvirt_would_take_back_is_refused() -> None:
    with pytest.raises(
        Refused,
        match=r"^disk vda: libvirt does not know that /images/a\.qcow2 is shared, and would change its owner when the "
        r"guest has left; add its directory to shared_filesystems in /etc/libvirt/qemu\.conf on both hosts, if libvirt "
        r"has that setting, or migrate the guest while it is off$",
    ):
        plan_move(dataclasses.replace(VOUCHED, relabelled="change its owner"), active=True)


def test_a_disk_that_is_flattened_with_another_stands_alone() -> None:
    moves, _problems = plan_moves([disk(ON_NAMED, "full"), disk(ON_NAMED, target="vdb")], active=True)
    volumes = [move.volume for move in moves]
    assert [(volume.backing_path, volume.backing_format) for volume in volumes if volume] == [(None, None)] * 2
    assert moves[1].why == "vda is copied in full, and libvirt copies all disks of a guest in the same way"
    assert moves[1].room_bytes == 90


def test_a_disk_that_cannot_be_copied_in_full_with_another_is_refused() -> None:
    _moves, problems = plan_moves([disk(ON_NAMED, "full"), disk(ON_NAMED, "delta", target="vdb")], active=True)
    assert problems == [
        (
            "disk vdb: vda is copied in full, and libvirt copies all disks of a guest in the same way; use storage: "
            "full for it, or delta for vda"
        )
    ]


def test_one_disk_copied_whole_makes_all_copied_whole() -> None:
    flat, based = disk(ON_NAMED, "full"), disk(ON_NAMED, target="vdb")
    cases: list[tuple[list[MigratingDisk], list[str], list[str]]] = [
        ([flat, based], ["full 90 alone flat", "full 90 alone flat"], []),
        ([based, flat], ["full 90 alone flat", "full 90 alone flat"], []),
        ([disk(ALONE), based], ["full 50 alone", "delta 50 named"], []),
        (
            [flat, disk(ALONE, target="vdb"), disk(ALONE, fixed=True, target="vdc")],
            ["full 90 alone flat", "full 50 alone", "copy 50 alone"],
            [],
        ),
        ([flat, disk(ON_NAMED, "delta", target="vdb")], ["full 90 alone flat", "delta 50 named"], ["vdb"]),
        ([flat, disk(ALONE, pool=None, target="vdb"), disk(ALONE, file=None, target="vdc")], ["full 90 alone flat"], ["vdb", "vdc"]),
        ([flat, disk(ALONE, "delta", target="vdb")], ["full 90 alone flat", "full 50 alone"], []),
        ([], [], []),
    ]  # fmt: skip
    wrong = []
    for disks, ways, refused in cases:
        moves, problems = plan_moves(disks, active=True)
        if [shape(move) for move in moves] != ways or [text.split()[1].rstrip(":") for text in problems] != refused:
            wrong.append((disks, moves, problems))
    assert not wrong


BARE = "import it there with virt_image, or flatten the disk (virt_image state: flattened)"
# A disk, whether its guest runs; why it cannot be copied.
REFUSALS: list[tuple[MigratingDisk, bool, str]] = [
    (
        disk(ALONE, taken=True),
        True,
        (
            "/images/a.qcow2 already exists on the destination, and no migration of this guest created it; if it is "
            "the same file, set disk_storage: {vda: shared}; if it is a leftover, inspect it and remove it there"
        ),
    ),
    (
        disk(ALONE, pool=None),
        True,
        "the destination has no active storage pool at /images; start the pool of that directory there, or create one",
    ),
    (
        disk(ALONE, path="/dev/vg/a", pool=GROUP, device=True, taken=True),
        True,
        (
            "/dev/vg/a already exists on the destination, and no migration of this guest created it; if it is the same "
            "file, set disk_storage: {vda: shared}; if it is a leftover, inspect it and remove it there"
        ),
    ),
    (
        disk(ALONE, pool=GROUP, file=VolumeFile("qcow2", 800, 50)),
        False,
        (
            "/images/a.qcow2 is qcow2, and a logical volume, as in pool lvm, is raw; choose another pool, or convert the "
            "disk first (playbook move_disk, with format: raw)"
        ),
    ),
    (
        disk(ALONE, file=None),
        True,
        "/images/a.qcow2 is in no active storage pool of the source; create a pool for its directory",
    ),
    (
        disk(ALONE, shareable=True),
        True,
        ("it is shareable, and a copy would no longer be the disk that others use; put it on shared storage"),
    ),
    (disk(ON_NAMED, there=False), False, f"its base {NAMED} is not on the destination; {BARE}"),
    (disk(ON_NAMED, base=None), False, f"its base {NAMED} is not on the destination; {BARE}"),
    (
        disk(ON_NAMED, "delta", there=False),
        True,
        f"its base {NAMED} is not on the destination; import it there with virt_image, or use storage: full",
    ),
    (
        disk(ON_NAMED, "delta", base_altered=True),
        True,
        f"its base {NAMED} {WRITTEN}; import it there with virt_image, or use storage: full",
    ),
    (disk(ON_NAMED, base_altered=True), False, f"its base {NAMED} {WRITTEN}; {BARE}"),
]


@pytest.mark.parametrize(("one", "active", "why"), REFUSALS)
def test_a_refusal_says_why(one: MigratingDisk, active: bool, why: str) -> None:
    with pytest.raises(Refused, match=r"^disk vda: ") as refused:
        plan_move(one, active=active)
    assert str(refused.value) == f"disk vda: {why}"


def chain(*paths: str, ours: bool = False) -> tuple[ChainFile, ...]:
    """Files below a disk that only the source has, the highest first."""
    pool = Pool("fast", IMAGES, 10**12)
    below = [*paths[1:], None]
    return tuple(
        ChainFile(path, VolumeFile("qcow2", 800, 30, base, "qcow2" if base else None), pool, ours)
        for path, base in zip(paths, below, strict=True)
    )


@pytest.mark.parametrize("active", [True, False])
def test_files_below_a_disk_are_copied_before_it_the_lowest_first(active: bool) -> None:
    above = disk(OTHER, there=False, chain=chain(OTHER, "/images/lowest"))
    moves, refused = plan_moves([above], active=active)
    assert refused == [] and [move.path for move in moves] == ["/images/lowest", OTHER, "/images/a.qcow2"]
    assert [move.how for move in moves] == ["copy", "copy", "delta" if active else "copy"]
    assert [move.volume and move.volume.backing_path for move in moves] == [None, "/images/lowest", OTHER]
    assert moves[0].why == "/images/a.qcow2 stands on it" and moves[0].bytes_to_move == 30


def test_a_file_below_two_disks_is_copied_once() -> None:
    both = [dataclasses.replace(disk(OTHER, there=False, chain=chain(OTHER)), target=each) for each in ("vda", "vdb")]
    both[1] = dataclasses.replace(both[1], path="/images/b.qcow2")
    moves, _refused = plan_moves(both, active=True)
    assert [move.path for move in moves] == [OTHER, "/images/a.qcow2", "/images/b.qcow2"]


def test_an_image_below_a_chain_is_brought_before() -> None:
    [low, move] = plan_moves([disk(OTHER, there=False, chain=chain(OTHER), image_below=NAMED)], active=True)[0]
    assert (low.base, move.base) == (None, NAMED)


def test_a_chain_is_not_copied_with_a_disk_that_stands_alone_there() -> None:
    above = disk(OTHER, there=False, chain=chain(OTHER))
    other = dataclasses.replace(disk(NAMED, "full"), target="vdb", path="/images/b.qcow2")
    moves, refused = plan_moves([above, other], active=True)
    assert refused == [] and [(move.path, move.flatten) for move in moves] == [
        ("/images/a.qcow2", True),
        ("/images/b.qcow2", True),
    ]
