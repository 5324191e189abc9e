"""Storage pools: what is decided, and that libvirt's own test driver ends up there."""

from __future__ import annotations

import dataclasses
import os
import re
import typing as t
from pathlib import Path

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from lxml import etree

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._noun import (
    libvirt_api,
    run_noun,
    run_noun_info,
    run_noun_options,
)
from ansible_collections.corral.virt.plugins.module_utils._noun.fields_schema import Schema
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Found, Spec
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import Define, NounPlan, Start, Stop
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun_stages import Noun, plan
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    fields_pool,
    files_lvm,
    files_pool,
    plan_pool_space,
    run_pool_verbs,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.model_pool import (
    POOL_TYPES,
    PoolHost,
    PoolUser,
    RawPoolHost,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool import POOL, Refresh
from ansible_collections.corral.virt.plugins.module_utils._storage.run_pool_verbs import API
from ansible_collections.corral.virt.plugins.module_utils._system import command

XML = "<pool type='{}'><name>a</name><target><path>{}</path></target></pool>"


def found(*, active: bool, kind: str = "dir", path: str = "/srv/a") -> Found:
    """A pool as libvirt has it; it starts with the host when it runs."""
    xml = XML.format(kind, path)
    return Found("u", True, active, xml, xml if active else None)


HERE, OFF = found(active=True), found(active=False)


def params(
    path: str | None = None, state: str = "active", autostart: bool | None = None, **more: t.Any
) -> dict[str, t.Any]:
    """As Ansible hands them over."""
    given = {"name": "a", "path": path, "state": state, "autostart": autostart, **more}
    result = ArgumentSpecValidator(run_noun_options.argument_spec(POOL.schema)).validate(given)
    assert not result.error_messages, result.error_messages
    return dict(result.validated_parameters)


@pytest.mark.parametrize(
    ("wanted", "there", "steps"),
    [
        (params("/srv/a"), None, ["define pool a in /srv/a", "set autostart of pool a on", "start pool a"]),
        (params("/srv/a", "inactive"), None, ["define pool a in /srv/a"]),
        (params("/srv/a"), HERE, []),
        (params("/srv/a/"), HERE, []),
        (params(), HERE, []),
        (params(), OFF, ["start pool a"]),
        (params(autostart=True), OFF, ["set autostart of pool a on", "start pool a"]),
        (params(state="inactive"), HERE, ["stop pool a"]),
        (params(state="absent"), HERE, ["stop pool a", "undefine pool a"]),
        (params(state="absent"), None, []),
    ],
)
def test_steps(wanted: dict[str, t.Any], there: Found | None, steps: list[str]) -> None:
    planned = plan(POOL, run_noun.spec(POOL, wanted), there)
    assert [str(step) for step in planned.steps] == steps
    assert bool(planned.changes) == bool(steps)


def test_a_pool_is_wanted_active_unless_said_otherwise() -> None:
    spec = run_noun_options.argument_spec(POOL.schema)
    assert {key: value for key, value in params().items() if value not in (None, False)} == {
        "name": "a",
        "state": "active",
    }
    assert spec["state"]["choices"] == ["active", "inactive", "absent"]


def test_what_goes_is_told() -> None:
    planned = plan(POOL, run_noun.spec(POOL, params(state="absent")), HERE)
    assert sorted((change.where, change.before, change.after) for change in planned.changes) == [
        ("active", True, None),
        ("autostart", True, None),
        ("path", "/srv/a", None),
        ("type", "dir", None),
    ]


MOVED = (
    "cannot move pool a from /srv/a to /srv/b: the disks of guests would stay behind, and libvirt knows them by /srv/a; if "
    "one of the two is a link to the other, set path: /srv/a; if not, choose another name, or remove the pool first (state: "
    "absent keeps the files)"
)


@pytest.mark.parametrize(
    ("wanted", "there", "error", "reason"),
    [
        (params(), None, BadInput, "path of pool a: it is required for a new pool"),
        (params("srv/a"), None, BadInput, "path of pool a: must be an absolute path"),
        (params("/srv/b"), HERE, Refused, f"^{re.escape(MOVED)}$"),
        (params(type="logical"), HERE, Refused, "cannot change type: dir -> logical of pool a"),
    ],
)
def test_refusals(wanted: dict[str, t.Any], there: Found | None, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        plan(POOL, run_noun.spec(POOL, wanted), there)


def test_all_that_is_refused_is_told_at_once() -> None:
    host = PoolHost(others=lambda: {"b": {"type": "dir", "path": "/srv/b"}}, obstacle=lambda path: path)
    with pytest.raises(Refused, match=r"^cannot create pool a in /srv/b: .*; cannot start pool a in /srv/b: "):
        plan(POOL, run_noun.spec(POOL, params("/srv/b")), None, host)


def test_a_pool_goes_whatever_else_is_said_of_it() -> None:
    planned = plan(POOL, run_noun.spec(POOL, params("/srv/b", state="absent")), HERE)
    assert [str(step) for step in planned.steps] == ["stop pool a", "undefine pool a"]


def test_a_noun_may_have_a_name_and_a_table_alone() -> None:
    """Without options of every noun, without fields that no option has, and with nothing that what runs can be told."""
    schema = Schema(kind=POOL.schema.kind, table=POOL.schema.table, states=("active",))
    options = {"name", "state", "seen", "autostart", "type", "path", "source", "cow", "mode", "owner", "group", "label"}
    assert set(run_noun_options.argument_spec(schema)) == options
    bare = Noun(
        schema=schema, shape=POOL.shape, skeleton=POOL.skeleton, rules=(), made=POOL.made, shown=(), host=POOL.host
    )
    planned = plan(bare, Spec("a", "active", fields={"path": "/srv/b"}), HERE)
    assert list(planned.pending) == ["path: /srv/a -> /srv/b"]


@pytest.mark.parametrize("state", ["active", "inactive"])
def test_check_mode_says_what_a_real_run_does(state: str) -> None:
    wanted: dict[str, t.Any] = {**params("/srv/extra", state), "name": "extra"}
    with opened("test:///default") as connection:

        def run(*, check_mode: bool = False, **more: str) -> dict[str, t.Any]:
            return run_noun.converge(connection, POOL, API, {**wanted, **more}, Gate(check_mode=check_mode))

        predicted = run(check_mode=True)
        assert "extra" not in connection.listStoragePools() + connection.listDefinedStoragePools()
        assert run() == predicted
        again = run()
        assert (again["changed"], again["pool"]) == (False, predicted["pool"])
        assert again["pool"] == {
            "name": "extra",
            "type": "dir",
            "path": "/srv/extra",
            "active": state == "active",
            "autostart": state == "active",
        }
        gone = run(state="absent")
        assert (gone["changed"], gone["pool"]) == (True, None)


@pytest.mark.parametrize("state", ["inactive", "absent"])
def test_a_guest_that_comes_before_a_pool_stops_is_named(state: str) -> None:
    disk = "<disk type='file'><source file='/srv/extra/a'/><target dev='vda'/></disk>"
    comer = (
        "<domain type='test'><name>comer</name><memory>1024</memory><os><type>hvm</type></os>"
        f"<devices>{disk}</devices></domain>"
    )
    with opened("test:///default") as connection:

        def run(state: str) -> dict[str, t.Any]:
            gate = Gate(check_mode=False, meanwhile=lambda step: isinstance(step, Stop) and connection.defineXML(comer))
            return run_noun.converge(connection, POOL, API, {**params("/srv/extra", state), "name": "extra"}, gate)

        assert run("active")["notes"] == []
        assert run(state)["notes"] == ["guests have disks in the directory of pool extra, and keep them: comer"]
        connection.lookupByName("comer").undefine()
        run("absent")


def noted(host: PoolHost, there: Found | None, **wanted: t.Any) -> list[str]:
    """Notes of a plan."""
    return list(plan(POOL, run_noun.spec(POOL, params(**wanted)), there, host).notes)


def test_a_directory_is_of_one_pool() -> None:
    host = PoolHost(others=lambda: {"b": {"type": "dir", "path": "/srv/b"}})
    with pytest.raises(Refused, match="cannot create pool a in /srv/b/: it is the directory of pool b; use that pool"):
        noted(host, None, path="/srv/b/")
    assert not noted(host, None, path="/srv/b/a") and not noted(host, None, state="absent")


def test_a_directory_is_of_one_pool_by_whatever_path(tmp_path: Path) -> None:
    real, link, apart = tmp_path / "real", tmp_path / "link", tmp_path / "apart"
    real.mkdir()
    apart.mkdir()
    link.symlink_to(real)
    raw = RawPoolHost(lambda: [("b", XML.format("dir", real))], tuple, identity=files_pool.directory_id)
    with pytest.raises(
        Refused, match=f"in {link}: it is the directory of pool b, which calls it {real}; use that pool"
    ):
        noted(fields_pool.host(raw, "a", None), None, path=str(link))
    assert not noted(fields_pool.host(raw, "a", None), None, path=str(apart))
    assert files_pool.directory_id(f"{link}/new") == files_pool.directory_id(f"{real}/new"), "before it is made"


def test_guests_with_disks_in_a_pool_are_known_by_whatever_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    disk = f"<domain><devices><disk><source file='{tmp_path}/link/x'/></disk></devices></domain>"
    raw = RawPoolHost(tuple, lambda: [("one", (disk,))], identity=files_pool.directory_id)
    host = fields_pool.host(raw, "a", found(active=True, path=f"{tmp_path}/real"))
    assert host.users() == [PoolUser("one", by_pool=False)]


def test_a_directory_that_qemu_cannot_enter_is_told() -> None:
    host = PoolHost(closed=lambda _path: "libvirt-qemu:/root")
    told = (
        "guests cannot use disks of pool a in /root/vms: QEMU's user libvirt-qemu cannot enter /root; choose another "
        "path, or open it (`setfacl -m u:libvirt-qemu:x /root`)"
    )
    assert noted(host, None, path="/root/vms") == [told] == noted(host, None, path="/root/vms", state="inactive")
    assert not noted(host, HERE), "it runs"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
def test_which_directory_a_user_cannot_enter(tmp_path: Path) -> None:
    nobody, closed = (65534, 65534), tmp_path / "closed"
    (closed / "pool").mkdir(parents=True)
    for each in (closed / "pool", closed, tmp_path, *list(tmp_path.parents)[:-2]):
        each.chmod(0o755)
    assert files_pool.closed(str(closed / "pool" / "new"), nobody) is None
    (tmp_path / "link").symlink_to(closed / "pool")
    closed.chmod(0o700)
    for path in (closed / "pool" / "new", tmp_path / "link"):
        assert files_pool.closed(str(path), nobody) == f"nobody:{closed}"
    assert files_pool.closed(str(closed), (0, 0)) is None
    closed.chmod(0o710)
    os.chown(closed, 0, 65534)
    assert files_pool.closed(str(closed / "pool"), nobody) is None, "by its group"


def test_a_pool_that_does_not_start_is_not_left_behind(tmp_path: Path) -> None:
    (tmp_path / "node.xml").write_text("<node/>")
    refusing = dataclasses.replace(API, own={Start: lambda _pool, _step: fail("it does not start")})
    with opened(f"test://{tmp_path / 'node.xml'}") as connection:
        with pytest.raises(Failed, match=r"it does not start; it is as before \(undefine pool a\)"):
            run_noun.converge(connection, POOL, refusing, params("/srv/a"), Gate(check_mode=False))
        assert connection.listStoragePools() + connection.listDefinedStoragePools() == []


def fail(reason: str) -> None:
    """As a doer does."""
    raise Failed(reason)


@pytest.mark.parametrize("state", ["active", "inactive"])
def test_what_is_in_the_way_of_a_directory(state: str) -> None:
    host = PoolHost(obstacle=lambda path: f"{path}-link")
    assert not noted(host, HERE), "it runs"
    if state == "inactive":
        assert not noted(host, None, path="/srv/a", state=state)
        return
    with pytest.raises(
        Refused, match=r"cannot start pool a in /srv/a: /srv/a-link is not a directory.*; remove or repair it"
    ):
        noted(host, None, path="/srv/a", state=state)


@pytest.mark.parametrize(("state", "there", "told"), [("absent", HERE, 2), ("inactive", HERE, 2), ("active", HERE, 0)])
def test_guests_that_have_disks_in_it(state: str, there: Found, told: int) -> None:
    host = PoolHost(users=lambda: (PoolUser("web2", by_pool=False), PoolUser("web1", by_pool=True)))
    notes = noted(host, there, state=state)
    both = [
        "guests that name disks by pool a cannot start without it: web1",
        "guests have disks in the directory of pool a, and keep them: web2",
    ]
    assert notes == both[:told]
    assert not noted(host, None, state="absent")


def test_who_uses_a_pool() -> None:
    def guest(source: str) -> tuple[str, ...]:
        return (f"<domain><devices><disk><source {source}/></disk></devices></domain>",)

    guests = (
        ("one", guest("pool='a' volume='x'")),
        ("two", guest("file='/srv/a/x'")),
        ("three", guest("file='/srv/a/b/x'") + guest("pool='b' volume='x'") + guest("dev='/dev/sda'")),
    )
    others = (
        ("b", XML.format("dir", "/srv//b/")),
        ("c", XML.format("logical", "/dev/vg")),
        ("d", "<pool type='rbd'/>"),
    )
    raw = RawPoolHost(lambda: others, lambda: guests)
    host = fields_pool.host(raw, "a", HERE)
    assert [values["type"] for values in host.others().values()] == ["dir", "logical", "rbd"]
    assert host.users() == [PoolUser("one", by_pool=True), PoolUser("two", by_pool=False)]
    assert host.obstacle("/etc/passwd") is None
    assert fields_pool.host(raw, "a", None).users() == [PoolUser("one", by_pool=True)]


@pytest.mark.parametrize(
    ("there", "wanted", "asked"),
    [
        (HERE, {}, set()),
        (HERE, {"path": "/srv/a", "autostart": True}, set()),
        (OFF, {}, set()),
        (OFF, {"state": "inactive"}, set()),
        (None, {"state": "absent"}, set()),
        (None, {"path": "/srv/a"}, {"pools"}),
        (HERE, {"state": "inactive"}, {"guests"}),
        (OFF, {"state": "absent"}, {"guests"}),
    ],
)
def test_a_host_is_asked_only_for_what_decides(there: Found | None, wanted: dict[str, t.Any], asked: set[str]) -> None:
    seen: set[str] = set()

    def none(what: str) -> tuple[()]:
        seen.add(what)
        return ()

    raw = RawPoolHost(lambda: none("pools"), lambda: none("guests"))
    noted(fields_pool.host(raw, "a", there), there, **wanted)
    assert seen == asked


def test_the_first_part_of_a_path_that_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    (tmp_path / "link").symlink_to(tmp_path)
    for path, blocked in (
        ("", None),
        ("/new/deep", None),
        ("/link/new", None),
        ("/file", "/file"),
        ("/lost/a", "/lost"),
    ):
        assert files_pool.obstacle(f"{tmp_path}{path}") == (blocked and f"{tmp_path}{blocked}")


@pytest.mark.parametrize("check_mode", [True, False])
def test_what_libvirt_refuses_is_refused_before(
    check_mode: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run_pool_verbs, "has_files_here", lambda _uri: True)
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    with opened("test:///default") as connection:
        for path, reason in (
            ("/default-pool", "directory of pool default-pool"),
            (f"{tmp_path}/lost", "dangling link"),
        ):
            with pytest.raises(Refused, match=reason):
                run_noun.converge(connection, POOL, API, params(path), Gate(check_mode=check_mode))
        assert [pool.name() for pool in connection.listAllStoragePools()] == ["default-pool"]


NFS = {"hosts": [{"name": "nfs1"}], "dir": "/export"}
TARGET = "iqn.2024-01.org.example:one"
EVERY: dict[str, dict[str, t.Any]] = {
    "dir": {"path": "/srv/a", "cow": False, "mode": "0711", "owner": 0, "group": 0},
    "fs": {"path": "/srv/a", "source": {"devices": ["/dev/sdb1"], "format": "ext4"}},
    "netfs": {"path": "/srv/a", "source": {**NFS, "format": "nfs", "protocol": "4.2"}},
    "logical": {"source": {"name": "vg", "devices": ["/dev/sdb", "/dev/sdc"], "format": "lvm2"}},
    "disk": {"source": {"devices": ["/dev/sdb"], "format": "gpt"}},
    "iscsi": {
        "source": {
            "hosts": [{"name": "san", "port": 3260}],
            "devices": [TARGET],
            "auth": {"type": "chap", "username": "u", "secret_usage": "target1"},
        }
    },
    "iscsi-direct": {"source": {"hosts": [{"name": "san"}], "devices": [TARGET], "initiator": "iqn.2024-01.org:me"}},
    "scsi": {"source": {"adapter": {"type": "scsi_host", "name": "host1"}}},
    "mpath": {},
    "rbd": {
        "source": {
            "name": "vms",
            "hosts": [{"name": "mon1"}, {"name": "mon2", "port": 6789}],
            "auth": {"type": "ceph", "username": "admin", "secret": "2ff4c3c5-8a3b-4f9d-9b5e-cc7cf3cbb8f2"},
        }
    },
    "gluster": {"source": {"hosts": [{"name": "g1"}], "name": "volume", "dir": "/vms"}},
    "zfs": {"source": {"name": "tank/vms"}},
}
RNG = Path("/usr/share/libvirt/schemas/storagepool.rng")


def planned(there: Found | None = None, host: PoolHost | None = None, **given: t.Any) -> NounPlan:
    """The plan for the pool."""
    return plan(POOL, run_noun.spec(POOL, params(**given)), there, host)


def document(made: NounPlan) -> str:
    """What libvirt is told."""
    (xml,) = [step.xml for step in made.steps if isinstance(step, Define)]
    return xml


@pytest.mark.parametrize("kind", EVERY)
def test_a_pool_of_every_type_is_defined_and_comes_back(kind: str) -> None:
    assert set(EVERY) == set(POOL_TYPES)
    made = planned(type=kind, **EVERY[kind])
    xml = document(made)
    again = Found("2ff4c3c5-8a3b-4f9d-9b5e-cc7cf3cbb8f2", xml=xml)
    assert not planned(again, state="inactive", type=kind, **EVERY[kind]).steps
    given = run_noun_info.arguments(POOL.schema, "a", again)
    assert given["type"] == kind and not planned(again, **{**given, "state": "inactive", "autostart": None}).steps
    if RNG.exists():
        etree.RelaxNG(etree.parse(str(RNG))).assertValid(etree.fromstring(xml))


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("fs", ["path", "source.devices"]),
        ("netfs", ["path", "source.hosts", "source.dir"]),
        ("disk", ["source.devices"]),
        ("iscsi", ["source.hosts", "source.devices"]),
        ("iscsi-direct", ["source.hosts", "source.devices", "source.initiator"]),
        ("scsi", ["source.adapter"]),
        ("rbd", ["source.name"]),
        ("gluster", ["source.hosts", "source.name"]),
        ("zfs", ["source.name"]),
    ],
)
def test_what_a_type_needs_is_told_at_once(kind: str, told: list[str]) -> None:
    with pytest.raises(BadInput, match="required for a new pool of type") as error:
        planned(type=kind)
    assert [str(one).partition(" of ")[0].rpartition(": ")[2] for one in error.value.problems] == told


def test_what_a_type_does_not_have_is_refused() -> None:
    with pytest.raises(BadInput, match=r"source.hosts of pool a: it applies to type netfs, .*, not dir"):
        planned(path="/srv/a", source={"hosts": [{"name": "x"}]})
    with pytest.raises(BadInput, match=r"mode of pool a: must be octal digits in quotes"):
        planned(path="/srv/a", mode=711)
    with pytest.raises(BadInput, match=r"path of pool a: it applies to type"):
        planned(type="rbd", path="/srv/a", source={"name": "x"})


@pytest.mark.parametrize(
    ("kind", "ours", "theirs", "told"),
    [
        (
            "netfs",
            {},
            {"source": {**NFS, "dir": "/export/"}, "path": "/srv/b"},
            "of nfs1:/export: it is that of pool b",
        ),
        ("netfs", {}, {"source": {**NFS, "dir": "/other"}, "path": "/srv/b"}, None),
        ("netfs", {}, {"source": {**NFS, "dir": "/other"}, "path": "/srv/a/"}, "directory of pool b"),
        ("fs", {}, {"source": {"devices": ["/dev/sdb1"]}, "path": "/srv/b"}, "/dev/sdb1"),
        ("logical", {}, {}, "of volume group vg: it is that of pool b"),
        ("rbd", {}, {"source": {"name": "vms"}}, None),
        ("rbd", {}, {"source": {"name": "vms", "hosts": [{"name": "MON2"}]}}, "vms: it is that of pool b"),
        ("zfs", {}, {}, "dataset tank/vms"),
        ("scsi", {}, {}, "adapter host1"),
        ("mpath", {}, {}, "all multipath devices"),
    ],
)
def test_a_pool_is_of_nothing_that_another_is_of(
    kind: str, ours: dict[str, t.Any], theirs: dict[str, t.Any], told: str | None
) -> None:
    other = document(planned(type=kind, **{**EVERY[kind], **theirs}))
    raw = RawPoolHost(lambda: [("b", other)], tuple)
    try:
        planned(None, fields_pool.host(raw, "a", None), type=kind, **{**EVERY[kind], **ours})
    except Refused as refusal:
        assert told is not None and told in str(refusal)
    else:
        assert told is None


def test_one_target_is_of_one_pool_however_it_is_reached() -> None:
    other = document(planned(type="iscsi", **EVERY["iscsi"]))
    raw = RawPoolHost(lambda: [("b", other)], tuple)
    with pytest.raises(Refused, match=f"of san:{TARGET}: it is that of pool b"):
        planned(None, fields_pool.host(raw, "a", None), type="iscsi-direct", **EVERY["iscsi-direct"])


def test_what_a_pool_is_of_stays() -> None:
    there = Found("u", xml=document(planned(type="netfs", **EVERY["netfs"])))
    with pytest.raises(Refused, match=r"cannot change source.dir: /export -> /other of pool a: the disks of guests"):
        planned(there, source={**NFS, "dir": "/other"})
    made = planned(there, source={"protocol": "4.1"}, state="inactive")
    assert [str(step) for step in made.steps] == ["define pool a (source.protocol)"]


FS = {"type": "fs", **EVERY["fs"], "build": True}
EMPTY, FULL = PoolHost(content=lambda _device: None), PoolHost(content=lambda _device: "holds xfs")


def test_only_empty_devices_are_built_on() -> None:
    steps = [str(step) for step in planned(None, EMPTY, **FS).steps]
    assert steps[:2] == ["define pool a in /srv/a (fs /dev/sdb1)", "build pool a on /dev/sdb1"] and len(steps) == 4
    with pytest.raises(Refused, match="cannot build pool a: /dev/sdb1 holds xfs; to use what is there, omit build"):
        planned(None, FULL, **FS)
    with pytest.raises(Refused, match="its devices are on another machine"):
        planned(None, PoolHost(), **FS)
    defined = Found("u", xml=document(planned(None, EMPTY, **FS)))
    assert "build pool a on /dev/sdb1" in map(str, planned(defined, EMPTY, **FS).steps), "the run was interrupted"
    assert [str(step) for step in planned(defined, FULL, **FS).steps] == ["start pool a"]
    running = dataclasses.replace(defined, live_xml=defined.xml)
    assert not planned(running, EMPTY, **FS).steps
    with pytest.raises(BadInput, match=r"source\.format of pool a: build requires it"):
        planned(None, EMPTY, **{**FS, "source": {"devices": ["/dev/sdb1"]}})
    with pytest.raises(BadInput, match="it applies to type fs, disk or logical, not mpath"):
        planned(None, EMPTY, type="mpath", build=True)


def test_a_volume_group_is_made_where_none_has_the_name() -> None:
    vg: dict[str, t.Any] = {"type": "logical", **EVERY["logical"], "build": True}
    steps = [str(step) for step in planned(None, EMPTY, **vg).steps]
    assert "build pool a on /dev/sdb, /dev/sdc" in steps
    others = dataclasses.replace(EMPTY, has_group=lambda name: name == "vg")
    with pytest.raises(Refused, match="this host has a volume group vg on other devices; to use that, omit build"):
        planned(None, others, **vg)
    assert planned(None, others, **{**vg, "build": False}).steps, "it is used"
    unnamed = {**vg, "source": {"devices": ["/dev/sdb"]}}
    with pytest.raises(Refused, match="a volume group a on other devices"):
        planned(None, dataclasses.replace(EMPTY, has_group=lambda name: name == "a"), **unnamed)
    assert planned(None, dataclasses.replace(EMPTY, has_group=lambda _name: True), **FS).steps, "it has none"


def test_what_no_option_says_is_merged() -> None:
    options = '<pool xmlns:fs="http://libvirt.org/schemas/storagepool/fs/1.0"><fs:mount_opts><fs:option name="sync"/></fs:mount_opts></pool>'
    given = {"type": "netfs", **EVERY["netfs"], "label": "system_u:object_r:virt_image_t:s0", "xml": options}
    made = planned(**given, uuid="2ff4c3c5-8a3b-4f9d-9b5e-cc7cf3cbb8f2")
    xml = document(made)
    assert 'option name="sync"' in xml and "virt_image_t" in xml and "2ff4c3c5-8a3b" in xml
    there = Found("2ff4c3c5-8a3b-4f9d-9b5e-cc7cf3cbb8f2", xml=xml)
    assert not planned(there, **given, state="inactive").steps
    with pytest.raises(Refused, match="cannot change uuid of pool a"):
        planned(there, **given, uuid="9b5e2ff4-8a3b-4f9d-8a3b-cc7cf3cbb8f2")
    with pytest.raises(BadInput, match="xml of pool a"):
        planned(path="/srv/a", xml="<network/>")


def test_what_is_on_a_device(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert files_pool.content(str(tmp_path / "file")) == "is no block device"
    assert files_pool.content(str(tmp_path / "none")) == "does not exist"


@pytest.mark.parametrize(
    ("there", "state", "steps"),
    [
        (HERE, "active", ["refresh pool a"]),
        (OFF, "active", ["start pool a"]),
        (HERE, "inactive", ["stop pool a"]),
        (None, "active", ["define pool a in /srv/a", "set autostart of pool a on", "start pool a"]),
    ],
)
def test_a_pool_that_runs_is_refreshed(there: Found | None, state: str, steps: list[str]) -> None:
    made = planned(there, path="/srv/a", state=state, refresh=True)
    assert [str(step) for step in made.steps] == steps


def test_a_refresh_is_no_change() -> None:
    wanted = params("/default-pool", refresh=True) | {"name": "default-pool"}
    with opened("test:///default") as connection:
        for check_mode in (True, False):
            told = run_noun.converge(connection, POOL, API, wanted, Gate(check_mode=check_mode))
            assert not told["changed"] and not told["steps"]
        pool, spec = connection.storagePoolLookupByName("default-pool"), run_noun.spec(POOL, wanted)
        refresh = Refresh(POOL.schema.kind.ref("default-pool", uuid=pool.UUIDString()))
        do = libvirt_api.doer(connection, API, spec)
        do(refresh)
        pool.destroy()
        with pytest.raises(Failed, match="cannot refresh storage pool default-pool"):
            do(refresh)
        pool.create()  # libvirt keeps its test host while any connection of this process is open


GIB = 1024**3


@pytest.mark.parametrize(
    ("pool", "told"),
    [
        ({"type": "dir", "allocation_bytes": 91 * GIB}, [r"pool a is 91 % full \(9 GiB left\)"]),
        ({"type": "dir", "allocation_bytes": 90 * GIB}, []),
        ({"type": "rbd", "allocation_bytes": 99 * GIB}, ["pool a is 99 % full"]),
        ({"type": "iscsi-direct", "allocation_bytes": 100 * GIB}, []),
        ({"type": "dir", "allocation_bytes": None, "capacity_bytes": None}, []),
        ({"type": "netfs", "allocation_bytes": 0, "capacity_bytes": 0}, []),
        (
            {"type": "logical", "thin_pools": [{"name": "thin", "data_percent": 91.2, "metadata_percent": 95.0}]},
            ["its data is 91 % full.*--size .1g", "its metadata is 95 % full.*--poolmetadatasize .1g"],
        ),
        ({"type": "logical", "thin_pools": [{"name": "thin", "data_percent": None, "metadata_percent": 5.0}]}, []),
    ],
)
def test_what_is_nearly_full_is_told(pool: dict[str, t.Any], told: list[str]) -> None:
    sizes = {"capacity_bytes": 100 * GIB, "allocation_bytes": GIB, **pool}
    sizes["available_bytes"] = (sizes["capacity_bytes"] or 0) - (sizes["allocation_bytes"] or 0)
    found = list(plan_pool_space.warnings([{"name": "a", **sizes}]))
    assert len(found) == len(told) and all(map(re.search, told, found)), found


# As LVM 2.03.16 prints it.
LVS = """{"report": [{"lv": [
{"lv_name":"thin", "lv_size":"1073741824", "data_percent":"60.00", "metadata_percent":"10.84", "segtype":"thin-pool", "zero":"zero", "pool_lv":""},
{"lv_name":"a", "lv_size":"1073741824", "data_percent":"20.00", "metadata_percent":"", "segtype":"thin", "zero":"", "pool_lv":"thin"},
{"lv_name":"b", "lv_size":"2147483648", "data_percent":"20.00", "metadata_percent":"", "segtype":"thin", "zero":"", "pool_lv":"thin"},
{"lv_name":"c", "lv_size":"1073741824", "data_percent":"", "metadata_percent":"", "segtype":"linear", "zero":"", "pool_lv":""},
{"lv_name":"off", "lv_size":"1073741824", "data_percent":"", "metadata_percent":"", "segtype":"thin-pool", "zero":"", "pool_lv":""}
]}]}"""


def test_what_lvm_tells_of_thin_pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(command, "SYSTEM_PATH", "/nowhere")
    assert files_lvm.thin_pools("vg0") == [], "without LVM"
    lvs = tmp_path / "lvs"
    lvs.write_text(f"#!/bin/sh\n[ \"$9\" = -- ] || shift; cat <<'END'\n{LVS}\nEND\n".replace("cat", "/bin/cat"))
    lvs.chmod(0o755)
    thin = {"name": "thin", "size_bytes": GIB, "metadata_percent": 10.84, "zeroes": True}
    off = {"name": "off", "size_bytes": GIB, "metadata_percent": None, "zeroes": False}
    off |= {"virtual_bytes": 0, "data_percent": None}
    assert files_lvm.thin_pools("vg0") == [{**thin, "virtual_bytes": 3 * GIB, "data_percent": 60.0}, off]
    assert files_lvm.thin_pools("vg0", "b") == [{**thin, "virtual_bytes": GIB, "data_percent": 20.0}, off], "without b"
