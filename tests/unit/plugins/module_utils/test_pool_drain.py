"""Which disks leave a pool, where they go, what stays, and what is refused before anything moves."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, VirtError
from ansible_collections.corral.virt.plugins.module_utils._disk_move import (
    plan_disk_move,
    plan_pool_drain,
    run_pool_drain,
    xml_disk_move,
)
from ansible_collections.corral.virt.plugins.module_utils._disk_move.plan_disk_move import Mark
from ansible_collections.corral.virt.plugins.module_utils._disk_move.plan_disk_place import DiskFile
from ansible_collections.corral.virt.plugins.module_utils._disk_move.plan_pool_drain import DrainPlan, DrainSpec
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import ThinPool, VolumeGroup
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity, OwnedVolume

HOST = "9b5e2ff4-8a3b-4f9d-8a3b-cc7cf3cbb8f2"
MIB = 1024**2
SPEC = DrainSpec("old", ("fast", "large"))
KNOWN = FileIdentity(7, 9)


def uuid(guest: str) -> str:
    """Of a guest."""
    return f"2ff4c3c5-8a3b-4f9d-9b5e-{guest:0>12}"


def document(guest: str, disks: t.Mapping[str, str], *, owned: bool = True) -> str:
    """A guest with these disks: paths by name; what follows a blank in one is its device, or `readonly`."""
    text = ""
    for number, (name, given) in enumerate(disks.items()):
        path, _blank, how = given.partition(" ")
        flag, device = (f"<{how}/>", "disk") if how in ("readonly", "shareable") else ("", how or "disk")
        source = f"<source file='{path}'/>" if path else ""
        text += (
            f"<disk type='file' device='{device}'><driver name='qemu' type='qcow2'/>{source}<target "
            f"dev='vd{'abcdefg'[number]}' bus='virtio'/>{flag}<alias name='ua-{name}'/></disk>"
        )
    xml = f"<domain type='kvm'><name>{guest}</name><uuid>{uuid(guest)}</uuid><metadata/><devices>{text}</devices></domain>"
    paths = [path.partition(" ")[0] for name, path in disks.items() if name == "seed" or "readonly" not in path]
    entries = [OwnedVolume(path, uuid(guest), HOST, KNOWN) for path in paths if path]
    first, path = next(iter(disks.items()))
    return xml_disk_move.moved(xml, first, path.partition(" ")[0], "qcow2", entries) if owned else xml


@dataclasses.dataclass
class Host:
    """A `DrainHost` that knows all its answers. Its files are as large as `sizes` tells (MiB), or 10 MiB."""

    documents: t.Mapping[str, str]
    live: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    sizes: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    free: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    same: t.Collection[str] = ()  # pools of one filesystem
    keeps: t.Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    users: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    there: t.Collection[str] = ()
    marks: t.Mapping[str, str] = dataclasses.field(default_factory=dict)

    def guests(self) -> tuple[FoundGuest, ...]:
        return tuple(
            FoundGuest(
                name, uuid(name), "running" if name in self.live else "off", True, False, xml, self.live.get(name)
            )
            for name, xml in self.documents.items()
        )

    def guest(self, name: str) -> FoundGuest | None:
        return next((one for one in self.guests() if one.name == name), None)

    def files(self, _pool: str) -> dict[str, int]:
        return {path: self.sizes.get(path, 10) * MIB for path in self.there if path.startswith("/old/")}

    def which(self, path: str) -> t.Hashable:
        real = path.replace("/linked/", "/old/").replace("/dev/mapper/vg0-", "/dev/vg0/")
        return real if real in self.there else None

    def storage(self, pool: PoolDirectory) -> t.Hashable:
        return "one" if pool.name in self.same else pool.name

    def pools(self) -> tuple[str, ...]:
        return ("old", "fast", "large", "twin", "lvm")

    def pool(self, name: str) -> PoolDirectory:
        if name == "lvm":
            return PoolDirectory(name, "logical", "/dev/vg0", group="vg0")
        return PoolDirectory(name, "dir", "/old" if name == "twin" else f"/{name}", here=True)

    def free_bytes(self, pool: PoolDirectory) -> int:
        return self.free.get(pool.name, 1000) * MIB

    def group(self, pool: str) -> VolumeGroup | None:
        return VolumeGroup("vg0", 4 * MIB, self.free.get("lvm", 1000) * MIB) if pool == "lvm" else None

    def thin_pool(self, _pool: str, _name: str, _but: str) -> ThinPool | None:
        return None

    def thin_pool_of(self, _path: str) -> str | None:
        return None

    def pool_of(self, path: str) -> str | None:
        return "lvm" if path.startswith("/dev/") else None

    def content_bytes(self, path: str, _form: str) -> int:
        return self.sizes.get(path, 10) * MIB + MIB

    def located(self, pool: str, volume: str) -> str | None:
        return f"/{pool}/{volume}"

    def kept(self, uuid: str) -> tuple[str, ...]:
        return self.keeps.get(uuid, ())

    def only_backups(self, _uuid: str) -> bool:
        return False

    def job(self, _uuid: str, _target: str) -> str | None:
        return None

    def user(self, path: str, but: str) -> str | None:
        return self.users.get(path) if not but or not self.users.get(path, "").startswith("guest") else None

    def file(self, path: str, _form: str) -> DiskFile | None:
        return DiskFile(self.sizes.get(path, 10) * MIB, 64 * MIB, "qcow2", None, None, None, False, KNOWN)

    def exists(self, path: str) -> bool:
        return path in self.there or path.startswith("/old/")

    def taken_bytes(self, _path: str) -> int:
        return MIB

    def mark(self, pool: str, name: str) -> tuple[str, FileIdentity | None] | None:
        text = self.marks.get(f"/{pool}/{name}")
        return (text, FileIdentity(3, 3)) if text else None

    def host_uuid(self) -> str:
        return HOST


def moves(found: DrainPlan) -> list[str]:
    """Where disks go."""
    return [f"{one.guest} {one.disk} {one.pool}" for one in found.moves]


def refused(host: Host, spec: DrainSpec = SPEC) -> str:
    """Why nothing moves."""
    with pytest.raises(VirtError, match=r"cannot|to: ") as error:
        plan_pool_drain.plan(spec, host)
    return str(error.value)


WEB = {"system": "/old/web-system.qcow2", "data": "/old/web-data.qcow2"}
DB = {"system": "/old/db-system.qcow2", "far": "/else/db-far.qcow2"}
TWO = {"web": document("web", WEB), "db": document("db", DB)}


def test_all_disks_of_the_pool_move_the_largest_first() -> None:
    host = Host(TWO, live={"web": TWO["web"]}, sizes={WEB["data"]: 50})
    assert moves(plan_pool_drain.plan(SPEC, host)) == ["web data fast", "db system fast", "web system fast"]
    assert moves(plan_pool_drain.plan(SPEC, Host({}))) == []


@pytest.mark.parametrize(
    ("free", "same", "told"),
    [
        ({"fast": 60}, (), ["web data fast", "db system fast", "web system large"]),
        ({"fast": 49}, (), ["web data large", "db system fast", "web system fast"]),
        (
            {"fast": 60, "large": 60},
            ("fast", "large"),
            "it takes 10 MiB, and 0 MiB are free there beside the other disks",
        ),
        ({"fast": 50, "large": 0}, ("old", "fast"), ["web data fast", "db system fast", "web system fast"]),
        ({"fast": 5, "large": 9}, (), "to pool large: it takes 50 MiB, and 9 MiB are free there; make room"),
    ],
)
def test_each_disk_goes_to_the_first_pool_with_room(
    free: dict[str, int], same: tuple[str, ...], told: list[str] | str
) -> None:
    host = Host(TWO, sizes={WEB["data"]: 50}, free=free, same=same)
    if isinstance(told, str):
        assert told in refused(host)
    else:
        assert moves(plan_pool_drain.plan(SPEC, host)) == told


def test_all_that_cannot_move_is_told_before_anything_moves() -> None:
    shared = document("db", {"system": "/old/db-system.qcow2 shareable"})
    host = Host({**TWO, "db": shared}, keeps={uuid("web"): ("snapshots",)})
    told = refused(host)
    for part in (
        "disk data of web: it has snapshots",
        "disk system of web: it has",
        "disk system of db: only disks that",
    ):
        assert part in told
    found = plan_pool_drain.plan(dataclasses.replace(SPEC, movable_only=True), host)
    assert moves(found) == [] and len(found.refused) == 3
    one = dataclasses.replace(host, documents={**TWO, "app": document("app", {"root": "/old/app.qcow2"})})
    found = plan_pool_drain.plan(dataclasses.replace(SPEC, movable_only=True), one)
    assert moves(found) == ["app root fast", "db system fast"] and len(found.refused) == 2
    assert plan_pool_drain.unmoved(["x"], found.refused, "old").startswith("disks are left in pool old: x; cannot move")
    assert plan_pool_drain.unmoved([], (), "old") == ""


def test_a_disk_that_is_named_by_another_path_does_not_stay_without_a_word() -> None:
    """Through a directory that is a link, for example."""
    disks = {"system": "/linked/web.qcow2", "cd": "/linked/tools.iso cdrom", "far": "/linked/far.qcow2"}
    host = Host({"web": document("web", disks)}, there=("/old/web.qcow2", "/old/tools.iso"))
    told = refused(host)
    assert told == (
        "cannot move disk system of web: its definition names /old/web.qcow2 of pool old by another path, "
        "/linked/web.qcow2; write /old/web.qcow2 there while the guest is off (`virsh edit web`), and run again"
    )
    found = plan_pool_drain.plan(dataclasses.replace(SPEC, movable_only=True), host)
    assert moves(found) == [] and plan_pool_drain.unmoved([], found.refused, "old").endswith(told)


def test_a_path_tells_which_file_it_is(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool" / "a").touch()
    (tmp_path / "linked").symlink_to("pool")
    host = run_pool_drain._Host(None)
    assert host.which(f"{tmp_path}/pool/a") == host.which(f"{tmp_path}/linked/a") is not None
    assert host.which(f"{tmp_path}/pool/b") is None
    assert host.which("/dev/null") != host.which("/dev/zero")


def test_what_stays_is_told_with_its_reason() -> None:
    disks = {**WEB, "cd": "/old/tools.iso cdrom", "doc": "/old/doc.iso readonly", "empty": " cdrom"}
    paths = [*WEB.values(), "/old/tools.iso", "/old/doc.iso", "/old/base.qcow2", "/old/part.raw", "/old/none.img"]
    users = dict.fromkeys(paths[:4], "guest web") | {
        "/old/base.qcow2": "/fast/x.qcow2",
        "/old/part.raw": "/dev/loop0",
    }
    host = Host({"web": document("web", disks)}, there=paths, users=users)
    assert [(one.path, one.why) for one in plan_pool_drain.plan(SPEC, host).left] == [
        ("/old/base.qcow2", "/fast/x.qcow2 stands on it"),
        ("/old/doc.iso", "web reads it as disk doc, and it was not made for that guest alone"),
        (
            "/old/none.img",
            "no guest of this host uses it; if nobody else needs it, `virsh vol-delete --pool old none.img`",
        ),
        ("/old/part.raw", "/dev/loop0 uses it"),
        ("/old/tools.iso", "drive cd of web has it; eject it first"),
    ]


def test_a_seed_moves_with_its_guest() -> None:
    host = Host({"web": document("web", {**WEB, "seed": "/old/web-seed.iso readonly"})}, sizes={"/old/web-seed.iso": 1})
    assert moves(plan_pool_drain.plan(SPEC, host)) == ["web data fast", "web system fast", "web seed fast"]


def test_a_volume_group_has_room_for_whole_disks_and_none_for_seeds() -> None:
    host = Host({"web": document("web", {**WEB, "seed": "/old/web-seed.iso readonly"})}, free={"lvm": 130})
    spec = DrainSpec("old", ("lvm", "large"))
    assert moves(plan_pool_drain.plan(spec, host)) == ["web data lvm", "web seed large", "web system lvm"]
    tight = dataclasses.replace(host, free={"lvm": 64})
    assert moves(plan_pool_drain.plan(spec, tight)) == ["web data lvm", "web seed large", "web system large"]
    assert "disk seed of web to pool lvm: a disk that is only read" in refused(host, DrainSpec("old", ("lvm",)))


def test_two_disks_whose_names_differ_in_their_ending_do_not_go_to_one_place() -> None:
    host = Host({"web": document("web", {"a": "/old/web.qcow2", "b": "/old/web.img"})})
    told = refused(host, DrainSpec("old", ("lvm",)))
    assert "cannot move disk b of web: /dev/vg0/web is where disk a of web goes; rename one of the two files" in told


def test_a_move_onto_a_logical_volume_goes_on() -> None:
    mark = Mark("data", uuid("web"), WEB["data"], True, KNOWN).text()
    spec = DrainSpec("old", ("fast", "lvm"))
    begun = Host(TWO, there=("/dev/vg0/web-data", WEB["data"]), marks={"/lvm/web-data": mark})
    assert moves(plan_pool_drain.plan(spec, begun))[1] == "web data lvm"


def test_a_file_that_is_kept_stays_as_one_that_nobody_uses() -> None:
    kept = Host(
        {"web": document("web", WEB, owned=False)},
        there=[*WEB.values()],
        users=dict.fromkeys(WEB.values(), "guest web"),
    )
    found = plan_pool_drain.plan(SPEC, kept)
    assert [one.goes for one in found.moves] == [False, False]
    assert [one.why[:13] for one in found.left] == ["no guest of t"] * 2


def test_a_run_that_was_interrupted_goes_on() -> None:
    mark = Mark("data", uuid("web"), WEB["data"], True, KNOWN).text()
    begun = Host(TWO, there=("/large/web-data.qcow2", WEB["data"]), marks={"/large/web-data.qcow2": mark})
    assert moves(plan_pool_drain.plan(SPEC, begun)) == ["db system fast", "web data large", "web system fast"]
    switched = document("web", {**WEB, "data": "/large/web-data.qcow2"})
    done = dataclasses.replace(begun, documents={"web": switched})
    assert moves(plan_pool_drain.plan(SPEC, done)) == ["web system fast", "web data large"]
    other = Mark("data", uuid("web"), "/else/web-data.qcow2", True, KNOWN).text()
    foreign = dataclasses.replace(done, marks={"/large/web-data.qcow2": other})
    assert moves(plan_pool_drain.plan(SPEC, foreign)) == ["web system fast"], "a move out of another pool"


def test_a_disk_that_only_the_running_guest_has_is_told() -> None:
    host = Host({"db": document("db", DB)}, live={"db": document("db", {**DB, "hot": "/old/hot.qcow2"})})
    assert "disk hot of db: only the running guest has it; store it" in refused(host)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (
            DrainSpec("odl", ("fats", "nix")),
            "no pool odl here; did you mean old?; cannot drain pool odl: there is no pool",
        ),
        (DrainSpec("old", ("nix",)), "there is no pool nix here; choose one of old, fast, large, twin, lvm"),
        (DrainSpec("old", ("twin",)), "to: twin is the same directory as old (/old); name another pool"),
    ],
)
def test_wrong_pools_are_told(spec: DrainSpec, told: str) -> None:
    assert told in refused(Host(TWO), spec)


def test_bad_values_are_told_at_once() -> None:
    good = {"pool": "old", "to": ["fast"], "movable_only": False, "bandwidth": 0, "job_timeout": 1}
    assert plan_pool_drain.checked(good) == DrainSpec("old", ("fast",))
    with pytest.raises(BadInput, match="to: ") as error:
        plan_pool_drain.checked({**good, "to": ["old", "a", "a"], "bandwidth": -1, "job_timeout": 0})
    assert [problem.partition(";")[0] for problem in error.value.problems] == [
        "to: names a more than once",
        "to: old is the pool that is to be drained",
        "bandwidth: must be from 0 to 2147483647, not -1",
        "job_timeout: must be from 1 to 2147483647, not 0",
    ]
    with pytest.raises(BadInput, match="pool: must not be empty"):
        plan_pool_drain.checked({**good, "pool": "", "to": []})


def test_the_most_similar_name_is_offered() -> None:
    for name, told in (("fst", "did you mean fast?"), ("zzz", "choose one of fast, large")):
        assert plan_disk_move.nearest(name, ("fast", "large"), "create one") == told
    assert plan_disk_move.nearest("x", (), "create one") == "create one"
