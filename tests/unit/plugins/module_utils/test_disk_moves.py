"""How each disk of a guest travels, and what is refused."""

from __future__ import annotations

import dataclasses
import re
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    DiskMove,
    MigrationHost,
    Pool,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_disk_moves import (
    plan_move,
    plan_moves,
    relabelling,
    ways,
    wrong_pools,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migrating_disk import (
    MigratingDisk,
    VolumeFile,
    as_requested,
    unknown_disks,
)

IMAGES = "/var/lib/libvirt/images"
NAMED, OTHER = f"{IMAGES}/debian-12.1a2b3c4d5e6f.qcow2", f"{IMAGES}/golden.qcow2"
MIB = 1024 * 1024


def disk(base: str | None = NAMED, mode: str = "auto", **more: t.Any) -> MigratingDisk:
    whole = VolumeFile("qcow2", 3072 * MIB, 400 * MIB) if base else None
    result = MigratingDisk(
        "vda",
        f"{IMAGES}/web1.qcow2",
        mode,
        pool=Pool("default", IMAGES, 10**12),
        file=VolumeFile("qcow2", 8192 * MIB, 50 * MIB, base, "qcow2" if base else None),
        base=whole,
        base_there=whole,
    )
    return dataclasses.replace(result, **more)


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


def test_a_file_that_the_source_would_take_back_is_refused() -> None:
    taken = vouched(relabelled="change its owner (dynamic_ownership)")
    with pytest.raises(Refused, match=r"would change its owner .* shared_filesystems"):
        plan_move(taken, active=True)
    assert plan_move(taken, active=False).how == "shared"
    assert plan_move(dataclasses.replace(taken, fixed=True), active=True).how == "shared"


NO_OPTIONS: dict[str, t.Any] = {"storage": "auto", "disk_storage": {}, "pool": None, "disk_pool": {}}
VDA: dict[str, t.Any] = {"type": "file", "target": "vda", "name": "system", "source": "/a"}


@pytest.mark.parametrize(
    ("disk_storage", "mode", "unknown"),
    [
        ({}, "auto", []),
        ({"vda": "shared"}, "shared", []),
        ({"system": "full"}, "full", []),
        ({"system": "full", "vda": "delta"}, "delta", []),
        ({"vdb": "full", "seed": "full"}, "auto", ["seed", "vdb; did you mean vda?"]),
    ],
)
def test_a_disk_travels_as_it_was_asked_for(disk_storage: dict[str, str], mode: str, unknown: list[str]) -> None:
    items = [VDA, {"type": "nvme", "target": "sda", "name": "seed"}]
    params = {**NO_OPTIONS, "disk_storage": disk_storage}
    [disk] = as_requested(items, params, assumed=True)
    assert disk == MigratingDisk("vda", "/a", mode, assumed=True)
    assert unknown_disks(items, params) == [f"disk_storage: the guest has no disk {key}" for key in unknown]
    pools = {**NO_OPTIONS, "disk_pool": dict.fromkeys(disk_storage, "fast")}
    assert unknown_disks(items, pools) == [f"disk_pool: the guest has no disk {key}" for key in unknown]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"readonly": True}, {"fixed": True}),
        ({"shareable": True}, {"shareable": True}),
        ({"cache": "none"}, {"cache": "none"}),
        ({"type": "block"}, {"device": True}),
        ({"servers": ["mon1", "/run/nbd"]}, {"servers": ("mon1", "/run/nbd")}),
        ({"type": "network", "source": "pool/a", "protocol": "rbd"}, {"path": "pool/a", "network": "rbd"}),
        ({"type": "network", "source": None, "protocol": "nbd"}, {"path": "", "network": "nbd"}),
        ({"type": "volume", "source": None, "pool": "p", "volume": "v"}, {"path": "", "volume": ("p", "v")}),
        ({"type": "file", "pool": "p", "volume": "v"}, {}),
    ],
)
def test_what_a_definition_says_of_a_disk(more: dict[str, t.Any], expected: dict[str, t.Any]) -> None:
    params = {**NO_OPTIONS, "storage": "full"}
    wanted = MigratingDisk(**{"target": "vda", "path": "/a", "mode": "full", **expected})
    assert as_requested([{**VDA, **more}], params, assumed=False) == [wanted]


@pytest.mark.parametrize("kind", ["dir", "nvme", "vhostuser", "vhostvdpa"])
def test_a_disk_that_is_a_device_of_its_host_does_not_travel(kind: str) -> None:
    """The guest is tied to the host by it."""
    assert as_requested([{**VDA, "type": kind}], NO_OPTIONS, assumed=False) == []


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("mode", ["auto", "shared"])
def test_a_disk_on_the_network_stays_where_it_is(mode: str, active: bool) -> None:
    known = MigratingDisk("vda", "pool/a", mode, network="rbd")
    assert plan_move(known, active=active) == DiskMove("vda", "pool/a", "shared", "on the network (rbd)")


@pytest.mark.parametrize("mode", ["delta", "full"])
def test_a_disk_on_the_network_is_not_copied(mode: str) -> None:
    refused = re.escape("disk vda: it is on the network (rbd), and is not copied; set disk_storage: {vda: shared}")
    with pytest.raises(Refused, match=f"^{refused}$"):
        plan_move(MigratingDisk("vda", "pool/a", mode, network="rbd"), active=True)


def test_a_running_guest_takes_along_a_volume_only_in_full() -> None:
    """And all its other disks with it."""
    named = disk(volume=("p", "v"), target="vdb", path=f"{IMAGES}/b.qcow2")
    named = dataclasses.replace(named, volume_there=named.path)
    moves, problems = plan_moves([disk(), named], active=True)
    assert not problems
    assert [(move.target, move.how, move.flatten, move.volume and move.volume.backing_path) for move in moves] == [
        ("vda", "full", True, None),
        ("vdb", "full", True, None),
    ]
    with pytest.raises(Refused, match=r"^disk vdb: it is named by pool and volume, .* only in full; use storage: full"):
        plan_move(dataclasses.replace(named, mode="delta"), active=True)
    alone = dataclasses.replace(disk(base=None, volume=("p", "v"), mode="delta"), volume_there=disk().path)
    assert plan_move(alone, active=True).how == "full"
    assert plan_move(dataclasses.replace(named, mode="delta"), active=False).how == "copy"
    brought = plan_move(dataclasses.replace(named, base_there=None), active=True)
    assert (brought.base, brought.flatten) == (None, True), "it stands on no image there"
    assert brought.why == "it is named by pool and volume, and libvirt copies such a disk only in full"


def test_a_disk_on_the_network_may_be_cached_beside_one_that_only_the_user_calls_shared() -> None:
    """libvirt does not look at its cache either."""
    served = MigratingDisk("vdb", "pool/a", "shared", network="rbd")
    assert plan_moves([vouched(), served], active=True)[1] == []


@pytest.mark.parametrize("active", [True, False])
def test_shared_storage_that_the_destination_does_not_have_is_refused(active: bool) -> None:
    known = disk(shared_on="nfs4", elsewhere="pool default of the destination is on another filesystem")
    refused = re.escape(
        f"disk vda: {known.path} is on nfs4, and pool default of the destination is on another filesystem; mount the same "
        "storage on the destination, or set disk_storage: {vda: full} (or shared, if it is the same file)"
    )
    with pytest.raises(Refused, match=f"^{refused}$"):
        plan_move(known, active=active)


@pytest.mark.parametrize("active", [True, False])
def test_a_disk_on_shared_storage_whose_data_is_not_there_is_refused(active: bool) -> None:
    with pytest.raises(Refused, match=r"^disk vda: its data is in /a.raw, which .* or put both on shared storage$"):
        plan_move(disk(shared_on="nfs4", data_files=("/a.raw",)), active=active)


def test_a_file_that_would_be_copied_for_two_disks_is_refused() -> None:
    twice = [disk(), disk(target="vdb", fixed=True), disk(target="vdc", path=f"{IMAGES}/c.qcow2")]
    expected = f"disks vda and vdb are one file, {disk().path}, and would be copied twice; detach one of them"
    assert ways(twice, active=False)[1] == [expected]
    on_nfs = [dataclasses.replace(each, shared_on="nfs4") for each in twice]
    assert {move.how for move in ways(on_nfs, active=False)[0]} == {"shared"}


@pytest.mark.parametrize(
    ("active", "fixed", "refused"), [(True, False, False), (True, True, True), (False, False, True)]
)
def test_a_disk_with_its_data_elsewhere_is_copied_only_by_a_running_guest(
    active: bool, fixed: bool, refused: bool
) -> None:
    """What QEMU sends is what the guest reads; a copy of the file has none of it."""
    known = disk(base=None, data_files=("/a.raw",), fixed=fixed)
    if not refused:
        assert plan_move(known, active=active).how == "full"
        return
    with pytest.raises(
        Refused, match=r"^disk vda: its data is in /a.raw, which is not copied with it; make it one file"
    ):
        plan_move(known, active=active)


IS_VOLUME = "disk vda: volume v of pool p is {} on the source, and {} on the destination; {} there"
MISSING, ELSEWHERE = "create and start the pool", "make its directory the same"


@pytest.mark.parametrize("mode", ["auto", "shared", "full"])
@pytest.mark.parametrize(
    ("known", "refused"),
    [
        ({"path": ""}, "disk vda: the source has no volume v in an active pool p; look for it"),
        ({"path": "/a/v"}, IS_VOLUME.format("/a/v", "is missing", MISSING)),
        ({"path": "/a/v", "volume_there": "/b/v"}, IS_VOLUME.format("/a/v", "would be /b/v", ELSEWHERE)),
        ({"path": "p/v", "network": "pool p"}, IS_VOLUME.format("p/v", "is missing", MISSING)),
    ],
)
def test_a_volume_that_is_another_file_on_the_destination_is_refused(
    mode: str, known: dict[str, t.Any], refused: str
) -> None:
    with pytest.raises(Refused, match=f"^{refused}"):
        plan_move(MigratingDisk(**{"target": "vda", "mode": mode, "volume": ("p", "v"), **known}), active=False)


def test_a_volume_that_is_the_same_file_on_the_destination_is_a_file() -> None:
    known = disk(base=None)
    named = dataclasses.replace(known, volume=("p", "v"), volume_there=known.path)
    assert plan_move(named, active=False) == plan_move(known, active=False)
    for more in ({"fixed": True}, {"shared_on": "nfs4"}):
        same, by_path = (dataclasses.replace(each, **t.cast(t.Any, more)) for each in (named, known))
        assert plan_move(same, active=True) == plan_move(by_path, active=True)
    move = plan_move(named, active=True)
    assert (move.how, move.flatten, move.base, move.bytes_to_move) == ("full", True, None, 50 * MIB)
    with pytest.raises(Refused, match="would be"):
        plan_move(dataclasses.replace(named, volume_there=f"{known.path}2"), active=True)
    served = MigratingDisk("vda", "p/v", "auto", volume=("p", "v"), volume_there="p/v", network="pool p")
    assert plan_move(served, active=True).why == "on the network (pool p)"


@pytest.mark.parametrize(
    ("owner", "selinux", "verbs"),
    [(False, False, []), (True, False, ["owner"]), (False, True, ["SELinux"]), (True, True, ["owner", "SELinux"])],
)
def test_what_a_libvirt_does_to_disks(owner: bool, selinux: bool, verbs: list[str]) -> None:
    found = relabelling(owner=owner, selinux=selinux)
    assert len(found) == len(verbs)
    assert all(verb in text for verb, text in zip(verbs, found))


# Pools of the destination ------------------------------------------------------------------------------------------

FAST = Pool("fast", "/srv/fast", 10**12)


@pytest.mark.parametrize(
    ("item", "params", "into", "moves"),
    [
        (VDA, {}, None, False),
        (VDA, {"pool": "fast"}, "fast", False),
        (VDA, {"pool": "fast", "disk_pool": {"vda": "slow"}}, "slow", True),
        (VDA, {"disk_pool": {"system": "slow"}}, "slow", True),
        (VDA, {"disk_pool": {"data": "slow"}}, None, False),
        ({**VDA, "type": "volume", "pool": "p", "volume": "v"}, {"pool": "fast"}, None, False),
        ({**VDA, "type": "volume", "pool": "p", "volume": "v"}, {"disk_pool": {"vda": "fast"}}, "fast", True),
    ],
)
def test_which_pool_a_disk_was_asked_into(
    item: dict[str, t.Any], params: dict[str, t.Any], into: str | None, moves: bool
) -> None:
    [known] = as_requested([item], {**NO_OPTIONS, **params}, assumed=False)
    assert (known.into, known.moves) == (into, moves)


@pytest.mark.parametrize("active", [True, False])
def test_a_disk_goes_into_another_pool(active: bool) -> None:
    move = plan_move(disk(pool=FAST, into="fast"), active=active)
    assert move.path == f"{IMAGES}/web1.qcow2" and move.dest_path == "/srv/fast/web1.qcow2"
    assert move.volume and (move.volume.pool, move.volume.backing_path) == ("fast", NAMED)
    same = plan_move(disk(path=f"{IMAGES}/../images/web1.qcow2"), active=active)
    assert same.dest_path == same.path, "its own directory, however it is written"


def test_a_disk_on_shared_storage_is_copied_only_where_that_was_asked_for_this_disk() -> None:
    known = disk(shared_on="nfs4", into="fast", pool=FAST)
    assert plan_move(known, active=True).how == "shared"
    assert plan_move(dataclasses.replace(known, moves=True), active=True).dest_path == "/srv/fast/web1.qcow2"


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"network": "rbd"}, "it is on the network"),
        ({"device": True, "pool": None}, "it is a block device, and no logical volume"),
        ({"mode": "shared"}, "its storage is declared as shared"),
        ({"volume": ("p", "web1.qcow2"), "volume_there": f"{IMAGES}/web1.qcow2"}, "it is named by pool and volume"),
    ],
)
def test_a_disk_that_is_no_copied_file_goes_into_no_pool(told: dict[str, t.Any], why: str) -> None:
    with pytest.raises(Refused, match=f"disk vda: {why}.* into pool fast; omit disk_pool"):
        plan_move(disk(into="fast", moves=True, **told), active=True)


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        (NAMED, False),
        ("golden.qcow2", True),
        ("../golden.qcow2", True),
        ("json:{}", False),
        ("nbd://h/x", False),
        (None, False),
    ],
)
def test_a_copied_file_names_the_same_base_from_its_new_place(name: str | None, refused: bool) -> None:
    known = disk(pool=FAST, into="fast", base_name=name)
    assert plan_move(known, active=True).how == "delta", "its overlay is made anew"
    if refused:
        with pytest.raises(Refused, match=r"as seen from .* in pool fast; name it absolutely"):
            plan_move(known, active=False)
    else:
        assert plan_move(known, active=False).how == "copy"


def test_two_disks_go_to_two_files() -> None:
    one, other = disk(into="fast", pool=FAST), disk(into="fast", pool=FAST, target="vdb", path="/srv/old/web1.qcow2")
    expected = "disks vda and vdb would both be copied to /srv/fast/web1.qcow2; choose another pool for one of them"
    (problem,) = ways([one, other], active=True)[1]
    assert problem.startswith(expected)
    twins = [disk(into="fast", pool=FAST), disk(target="vdb")]
    assert ways(twins, active=True)[1] == [
        f"disks vda and vdb are one file, {IMAGES}/web1.qcow2, and would be copied twice; detach one of them"
    ]


def test_what_is_wrong_with_pools_is_told_once_for_all_disks() -> None:
    reasons = {
        "vg": "is of type rbd, which takes no copies of disks; choose a dir, fs, netfs or logical pool",
        "old": "is not active",
    }
    host = MigrationHost("h", "2", "x86_64", 1, 1, 1, "", (), (), {}, pools=(FAST,), unusable_pools=reasons)
    assert wrong_pools(host, "hyper2", [None, "fast"]) == []
    wrong = wrong_pools(host, "hyper2", ["fsat", "vg", "old", "fsat", None, "nowhere"])
    assert wrong == [
        "hyper2 has no storage pool fsat; did you mean fast?",
        "hyper2 has no storage pool nowhere",
        "storage pool old of hyper2 is not active",
        f"storage pool vg of hyper2 {reasons['vg']}",
    ]
    lost = [disk(into="fsat", pool=None, lost=True, target=target) for target in ("vda", "vdb")]
    assert ways(lost, active=True, wrong=wrong[:1]) == ([], wrong[:1])


# What both hosts have ----------------------------------------------------------------------------------------------


def test_a_block_device_that_both_hosts_have_stays() -> None:
    move = plan_move(disk(path="/dev/vg/a", device=True, shared_on="LVM volume x", pool=None), active=True)
    assert (move.how, move.volume, move.why) == ("shared", None, "on both hosts (LVM volume x)")
    declared = plan_move(disk(path="/dev/vg/a", device=True, mode="shared", pool=None), active=True)
    assert declared.why == "on storage declared as shared" and not declared.vouched


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ({"elsewhere": "it is WWN 1 here and WWN 2 on the destination"}, "it is WWN 1 here"),
        ({"elsewhere": "it is another", "mode": "shared"}, "it is another"),
        ({"mode": "full"}, "a copy was requested"),
        ({"mode": "delta"}, "a copy was requested"),
    ],
)
def test_a_block_device_of_one_host_is_refused(known: dict[str, t.Any], why: str) -> None:
    with pytest.raises(Refused, match=f"block device /dev/vg/a is not copied, and {why}.*virt_pool of type logical"):
        plan_move(disk(path="/dev/vg/a", device=True, pool=None, **known), active=True)


def test_a_disk_on_the_network_that_may_be_another_is_refused() -> None:
    known = MigratingDisk("vda", "a", "auto", network="nbd", elsewhere="localhost is another server on each host")
    with pytest.raises(Refused, match=r"localhost is another server .* set disk_storage: \{vda: shared\} if both"):
        plan_move(known, active=True)
    named = dataclasses.replace(known, volume=("p", "v"), volume_there="a")
    with pytest.raises(Refused, match=r"localhost is another server .* set disk_storage"):
        plan_move(named, active=True)
