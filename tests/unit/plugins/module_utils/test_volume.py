"""What is planned of a volume, whatever the host; the documents are valid for libvirt."""

from __future__ import annotations

import contextlib
import dataclasses
import types
import typing as t
from pathlib import Path

import libvirt
import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from lxml import etree

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, NotFound, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._noun import run_noun, run_noun_options
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Found, Spec
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import Create, Define, NounPlan
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun_stages import plan
from ansible_collections.corral.virt.plugins.module_utils._storage import files_logical, libvirt_storage
from ansible_collections.corral.virt.plugins.module_utils._storage.model_pool import DIRECTORIES, POOL_TYPES
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity
from ansible_collections.corral.virt.plugins.module_utils._volume import plan_volume, run_volume
from ansible_collections.corral.virt.plugins.module_utils._volume.model_volume import (
    POOLS,
    CloneSource,
    SourceFile,
)
from ansible_collections.corral.virt.plugins.module_utils._volume.plan_volume import (
    VOLUME,
    Delete,
    PoolSight,
    check_new,
    check_same,
    check_source,
)

SCHEMA = Path("/usr/share/libvirt/schemas/storagevol.rng")
XML = """<volume type='file'><name>a</name><key>/p/a</key><capacity unit='bytes'>1073741824</capacity>
<target><path>/p/a</path><format type='qcow2'/></target></volume>"""
UUID = "2ff4c3c5-8a3b-4f9d-9b5e-cc7cf3cbb8f2"
SOURCE = SourceFile(1024**3, 1024**3, "raw", 1024**2)
ORIGINAL = CloneSource("/p/original", 1024)


@dataclasses.dataclass(frozen=True)
class Host:
    """A `VolumeHost` that knows all its answers."""

    type: str = "dir"
    free_bytes: int = 10 * 1024**3
    extent_bytes: int = 4 * 1024**2
    file: SourceFile = SOURCE
    there: CloneSource | None = ORIGINAL
    taken_by: str | None = None
    used_by: str | None = None
    written_by: str | None = None
    left: str | None = None
    saved: bool = False
    aside: tuple[tuple[str, FileIdentity], ...] = ()

    def pool(self) -> PoolSight:
        return PoolSight(self.type, self.free_bytes, self.extent_bytes)

    def source(self, _path: str) -> SourceFile:
        return self.file

    def original(self, _pool: str, _name: str) -> CloneSource | None:
        return self.there

    def user(self, _path: str) -> str | None:
        return self.used_by

    def taker(self, _path: str) -> str | None:
        return self.taken_by

    def writer(self, _path: str) -> str | None:
        return self.written_by

    def identity(self, _path: str) -> tuple[str | None, FileIdentity | None]:
        return "/p/a", FileIdentity(7)

    def unfinished(self) -> str | None:
        return self.left

    def removals(self) -> tuple[tuple[str, FileIdentity], ...]:
        return self.aside

    def content(self, spec: Spec) -> str:
        return str(spec.own.get("source"))

    def is_saved(self, _path: str) -> bool:
        return self.saved


def planned(there: bool | str = False, host: Host | None = None, **options: t.Any) -> NounPlan:
    """The plan for volume `a` of pool `default`."""
    given = {"name": "a", "pool": "default", **options}
    result = ArgumentSpecValidator(run_noun_options.argument_spec(VOLUME.schema)).validate(given)
    assert not result.error_messages, result.error_messages
    xml = there if isinstance(there, str) else XML
    found = Found(None, xml=xml, digest="d") if there else None
    return plan(VOLUME, run_noun.spec(VOLUME, result.validated_parameters), found, host or Host())


@pytest.mark.parametrize(
    ("there", "host", "options", "steps"),
    [
        (False, {}, {"state": "absent"}, []),
        (
            False,
            {"aside": (("/p/.corral/.removed/a.1.disk", FileIdentity(7)),)},
            {"state": "absent"},
            ["finish the removal of volume a of pool default (/p/.corral/.removed/a.1.disk)"],
        ),
        (False, {}, {"capacity": "1GiB"}, ["create volume a of pool default (qcow2, 1GiB)"]),
        (
            False,
            {},
            {"capacity": "1GiB", "encryption": "luks", "secret": UUID},
            ["create volume a of pool default (raw, luks, 1GiB)"],
        ),
        (
            False,
            {},
            {"backing": {"path": "/p/b", "format": "raw"}},
            ["create volume a of pool default (qcow2)"],
        ),
        (
            False,
            {},
            {"clone_of": "b", "clone_pool": "fast"},
            ["create volume a of pool default (qcow2) as a copy of volume b of pool fast"],
        ),
        (
            False,
            {},
            {"source": "/s"},
            ["create volume a of pool default (raw)", "upload /s into volume a of pool default"],
        ),
        (
            False,
            {},
            {"source": "/s", "capacity": "2GiB"},
            [
                "create volume a of pool default (raw, 2GiB)",
                "upload /s into volume a of pool default",
                "resize volume a of pool default to 2GiB",
            ],
        ),
        (True, {}, {}, []),
        (True, {}, {"capacity": "1GiB", "format": "qcow2", "mode": "0600", "owner": 1}, []),
        (True, {}, {"source": "/s"}, []),
        (True, {}, {"clone_of": "b"}, []),
        (True, {"left": "/s"}, {"source": "/s"}, ["upload /s into volume a of pool default"]),
        (True, {}, {"capacity": "2GiB"}, ["resize volume a of pool default to 2GiB"]),
        (True, {"used_by": "guest g"}, {"capacity": "2GiB"}, ["resize volume a of pool default to 2GiB"]),
        (True, {}, {"capacity": "512MiB", "shrink": True}, ["resize volume a of pool default to 512MiB"]),
        (True, {}, {"dest": "/d"}, ["download volume a of pool default to /d"]),
        (True, {"saved": True}, {"dest": "/d"}, []),
        (True, {"saved": True, "written_by": "guest g (running)"}, {"dest": "/d"}, []),
        (True, {}, {"state": "absent"}, ["delete volume a of pool default"]),
        (True, {"left": "/s"}, {"state": "absent", "wipe": True}, ["wipe and delete volume a of pool default"]),
        (False, {}, {"state": "absent"}, []),
    ],
)
def test_the_steps(there: bool, host: dict[str, t.Any], options: dict[str, t.Any], steps: list[str]) -> None:
    assert [str(step) for step in planned(there, Host(**host), **options).steps] == steps


@pytest.mark.parametrize(
    ("there", "host", "options", "error", "text"),
    [
        (False, {}, {}, BadInput, "a new volume requires it"),
        (False, {}, {"capacity": "1GiB", "encryption": "luks"}, BadInput, "secret of volume a"),
        (False, {}, {"backing": {"path": "/p/b"}}, BadInput, "backing.format of volume a of pool default"),
        (False, {"type": "disk"}, {"capacity": "1GiB"}, Refused, "the pool is of type disk"),
        (True, {}, {"capacity": "512MiB"}, Refused, "from 1GiB to 512MiB: what is behind its new end is lost"),
        (True, {}, {"format": "raw"}, Refused, r"\(format: qcow2 -> raw\): it keeps what it was created with"),
        (True, {}, {"backing": {"path": "/p/b", "format": "raw"}}, Refused, "backing.path"),
        (True, {"taken_by": "/p/over"}, {"capacity": "2GiB"}, Refused, "/p/over uses it"),
        (True, {"used_by": "guest g"}, {"state": "absent"}, Refused, "guest g uses it; remove or detach"),
        (True, {"used_by": "/dev/loop0"}, {"state": "absent"}, Refused, "/dev/loop0 uses it"),
        (False, {"there": None}, {"clone_of": "b"}, NotFound, "volume b of pool default: there is none"),
        (
            False,
            {"there": CloneSource("/p/b", 9, encrypted=True)},
            {"clone_of": "b"},
            Refused,
            "write its copy unencrypted",
        ),
        (False, {"there": CloneSource("/p/b", 4096)}, {"clone_of": "b", "capacity": 2}, Refused, "larger than 2MiB"),
        (True, {"left": "/s", "used_by": "guest g"}, {"source": "/s"}, Refused, "cannot fill volume a"),
        (True, {"left": "a copy of volume b"}, {"clone_of": "b"}, Refused, "was filling it with a copy"),
        (False, {"written_by": "guest g (running)"}, {"clone_of": "b"}, Refused, "cannot clone volume b"),
        (
            False,
            {"written_by": "guest g (running)"},
            {"backing": {"path": "/p/b", "format": "raw"}},
            Refused,
            "cannot back volume a of pool default with /p/b",
        ),
        (False, {"free_bytes": 1024**3 - 1}, {"source": "/s"}, Refused, "it takes 1 GiB, and the pool has"),
        (False, {"file": SourceFile(9, 9, "qcow2", 9)}, {"source": "/s", "format": "raw"}, Refused, "qcow2, not raw"),
        (False, {"file": SourceFile(9, 9, "qcow2", 9, "/etc/shadow")}, {"source": "/s"}, Refused, "names /etc/shadow"),
        (False, {}, {"source": "/s", "capacity": "512MiB"}, Refused, "what is behind its new end is lost"),
        (True, {"left": "/s"}, {}, Refused, "was filling it with /s"),
        (True, {"left": "/s"}, {"source": "/other"}, Refused, "was filling it with /s"),
        (True, {"left": "/s"}, {"capacity": "2GiB"}, Refused, "was filling it with /s"),
        (True, {"written_by": "guest g (running)"}, {"dest": "/d"}, Refused, "cannot download volume a"),
    ],
)
def test_refusals(
    there: bool, host: dict[str, t.Any], options: dict[str, t.Any], error: type[VirtError], text: str
) -> None:
    with pytest.raises(error, match=text):
        planned(there, Host(**host), **options)


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        ({"source": "/s", "clone_of": "b"}, 1),
        ({"clone_of": "b", "backing": {"path": "/p/b", "format": "raw"}}, 1),
        ({"clone_pool": "fast", "capacity": 1}, 1),
        ({"encryption": "luks", "source": "/s", "secret": UUID}, 1),
        ({"preallocate": True}, 2),
        ({"preallocate": True, "capacity": 1, "format": "qcow2"}, 1),
        ({"mode": 416, "capacity": 1}, 1),
        ({"source": "s", "dest": "d"}, 2),
        ({"wipe": True, "capacity": 1}, 1),
        ({"secret": "x", "capacity": 1}, 1),
        ({"wipe": True, "secret": "x", "source": "/s", "clone_of": "b", "name": "a/b", "clone_pool": "p"}, 4),
    ],
)
def test_all_problems_are_told_at_once(options: dict[str, t.Any], problems: int) -> None:
    with pytest.raises(BadInput, match=" of volume ") as caught:
        planned(**options)
    assert len(caught.value.problems) == problems


@pytest.mark.parametrize("name", ["a b", "-rf", "ü", "'\"", "a" * 237])
def test_names_of_files(name: str) -> None:
    assert planned(name=name, capacity=1).steps[0].ref.name == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\nb", "\x1b", "a" * 238, ".corral", "a.corral-unfinished"])
def test_other_names(name: str) -> None:
    with pytest.raises(BadInput, match="name: "):
        planned(name=name, capacity=1)


def test_a_plan_that_was_reviewed_is_carried_out_and_no_other() -> None:
    seen = planned(True, capacity="2GiB").seen
    assert planned(True, capacity="2GiB", seen=seen).steps
    for there, capacity in ((True, "3GiB"), (False, "2GiB"), (XML.replace("qcow2", "raw"), "1GiB")):
        with pytest.raises(Refused, match="cannot carry out what was planned"):
            planned(there, capacity=capacity, seen=seen)


def test_what_is_deleted_is_known_by_more_than_its_name() -> None:
    (step,) = planned(True, state="absent").steps
    assert isinstance(step, Delete) and (step.key, step.identity) == ("/p/a", FileIdentity(7))
    check_same("a", "resize", None, None)
    check_same("a", "resize", FileIdentity(7), FileIdentity(7))
    for found in (None, FileIdentity(8)):
        with pytest.raises(Refused, match="another file has its name"):
            check_same("a", "resize", FileIdentity(7), found)


def test_what_comes_meanwhile_is_not_written_into() -> None:
    check_new("volume a", None)
    with pytest.raises(Refused, match="somebody has made one"):
        check_new("volume a", "<volume/>")


def test_a_file_that_changes_while_it_is_uploaded_is_told() -> None:
    check_source("/s", "/s (1 bytes)", "/s (1 bytes)")
    with pytest.raises(Refused, match="it has changed during the upload"):
        check_source("/s", "/s (1 bytes)", "/s (2 bytes)")


def test_a_cd_is_raw() -> None:
    assert not planned(XML.replace("qcow2", "iso"), format="raw").steps


@pytest.mark.skipif(not SCHEMA.exists(), reason=f"no {SCHEMA}")
@pytest.mark.parametrize(
    "options",
    [
        {"capacity": "1GiB"},
        {"capacity": "1GiB", "format": "raw", "preallocate": True},
        {"capacity": "1GiB", "encryption": "luks", "secret": UUID},
        {"capacity": "1GiB", "format": "qcow2", "encryption": "luks", "secret": UUID},
        {"backing": {"path": "/p/b", "format": "qcow2"}},
        {"backing": {"path": "/p/b", "format": "qcow2"}, "encryption": "luks", "secret": UUID},
        {"source": "/s", "mode": "0600", "owner": 1, "group": 2, "label": "x"},
        {"clone_of": "b", "format": "vmdk"},
    ],
)
def test_libvirt_accepts_the_document(options: dict[str, t.Any]) -> None:
    step = planned(**options).steps[0]
    assert isinstance(step, Define)
    root = etree.fromstring(step.xml)
    assert (root.findtext("target/compat") == "1.1") == bool(root.xpath("target/format[@type='qcow2']"))
    schema = etree.RelaxNG(etree.parse(str(SCHEMA)))
    assert schema.validate(etree.fromstring(step.xml)), f"{schema.error_log}\n{step.xml}"


RAW = {"capacity": "1GiB", "format": "raw", "preallocate": True}


def test_every_type_of_pools_tells_what_its_volumes_can() -> None:
    assert set(POOLS) == set(POOL_TYPES)
    assert {kind for kind, able in POOLS.items() if "resize" in able.verbs} == set(DIRECTORIES)


@pytest.mark.parametrize("kind", [kind for kind, able in POOLS.items() if "create" not in able.verbs])
@pytest.mark.parametrize(
    ("there", "options", "verb"),
    [(False, RAW, "create"), (True, {"state": "absent"}, "delete"), (True, {"capacity": "2GiB"}, "resize")],
)
def test_what_a_pool_cannot_is_refused(kind: str, there: bool, options: dict[str, t.Any], verb: str) -> None:
    with pytest.raises(Refused, match=rf"cannot {verb} volume a of pool default: the pool is of type {kind}, where"):
        planned(there, Host(type=kind), **options)
    assert not planned(True, Host(type=kind)).steps, "what is there already is as wanted"
    assert not planned(False, Host(type=kind), state="absent").steps


LV = """<volume type='block'><name>a</name><key>K</key><capacity unit='bytes'>{}</capacity>
<target><path>/dev/vg/a</path></target></volume>"""


def test_a_logical_volume_is_whole_or_not_made() -> None:
    vg = Host(type="logical")
    (step,) = planned(False, vg, **RAW).steps
    assert isinstance(step, Create)
    root = etree.fromstring(step.xml)
    sizes = [root.xpath(f"concat({tag}, ' ', {tag}/@unit)") for tag in ("capacity", "allocation")]
    assert sizes == ["1048576 KiB", "1048576 KiB"], "libvirt makes a snapshot of one with less allocated"
    for options in (
        {"capacity": "1GiB"},
        {"capacity": "1GiB", "format": "raw"},
        {"capacity": "1GiB", "format": "qcow2"},
    ):
        with pytest.raises(BadInput, match="preallocate of volume a of pool default: a pool of type logical requires"):
            planned(False, vg, **options)
    for options, verb in (({"source": "/s"}, "upload"), ({"clone_of": "b"}, "clone")):
        with pytest.raises(Refused, match=f"cannot {verb} volume a .*of type logical"):
            planned(False, vg, format="raw", **options)
    for size in (1024**3, 1024**3 + 4095 * 1024):
        assert not planned(LV.format(size), vg, **RAW).steps, "rounded up to an extent"
    assert [str(one) for one in planned(LV.format(1024**3), vg, state="absent").steps] == [
        "delete volume a of pool default"
    ]
    with pytest.raises(Refused, match=r"cannot resize volume a .*; lvextend"):
        planned(LV.format(1024**3), vg, **{**RAW, "capacity": "2GiB"})


def test_a_logical_volume_is_rounded_up_to_an_extent_of_its_group() -> None:
    vg = Host(type="logical", extent_bytes=32 * 1024**2)
    assert not planned(LV.format(128 * 1024**2), vg, **{**RAW, "capacity": "100MiB"}).steps
    with pytest.raises(Refused, match=r"cannot resize volume a .*; lvextend"):
        planned(LV.format(128 * 1024**2), vg, **{**RAW, "capacity": "96MiB"})


@pytest.mark.parametrize(
    ("group", "uri", "expected"),
    [
        ({"name": "vg0", "extent_bytes": 2**25, "free_bytes": 0}, "qemu:///system", 2**25),
        (None, "qemu:///system", 2**22),
        ({"name": "vg0", "extent_bytes": 2**25, "free_bytes": 0}, "qemu+tls://hyper2/system", 2**22),
    ],
    ids=["known", "nobody may ask", "elsewhere"],
)
def test_the_extent_of_a_pool_is_that_of_its_group(
    monkeypatch: pytest.MonkeyPatch, group: dict[str, t.Any] | None, uri: str, expected: int
) -> None:
    xml = "<pool type='logical'><name>default</name><source><name>vg0</name></source></pool>"
    pool = types.SimpleNamespace(info=lambda: (2, 9, 4, 5))
    monkeypatch.setattr(libvirt_storage, "pool_xml", lambda _connection, _name: xml)
    monkeypatch.setattr(libvirt_storage, "active", lambda _connection, _name: pool)
    monkeypatch.setattr(files_logical, "group", lambda name: group if name == "vg0" else None)
    found = run_volume._Host(types.SimpleNamespace(getURI=lambda: uri), Spec("a", "present", within="default")).pool()
    assert found == PoolSight("logical", 5, expected)


@pytest.mark.parametrize(
    ("which", "allocated", "is_it"), [("7 1", 4096, True), ("7 2", 0, False), ("", 0, True), ("", 4096, False)]
)
def test_a_mark_is_about_the_volume_that_it_names_or_an_empty_one(which: str, allocated: int, is_it: bool) -> None:
    assert plan_volume.is_marked(which, "7 1", allocated) is is_it


class Clock:
    """A pool whose qemu-img finds no time on the processor's clock a number of times."""

    def __init__(self, failures: int, message: str = "qemu-img: /a: Unable to get accurate CPU usage") -> None:
        self.failures, self.message, self.calls = failures, message, 0

    def createXML(self, xml: str) -> str:  # noqa: N802
        self.calls += 1
        if self.calls <= self.failures:
            raise libvirt.libvirtError(self.message)
        return xml


@pytest.mark.parametrize(
    ("pool", "calls", "made"),
    [(Clock(0), 1, True), (Clock(3), 4, True), (Clock(99), 8, False), (Clock(1, "No space left on device"), 1, False)],
)
def test_qemu_img_that_finds_no_time_on_the_clock_is_asked_again(pool: Clock, calls: int, made: bool) -> None:
    with contextlib.nullcontext() if made else pytest.raises(libvirt.libvirtError, match=pool.message):
        assert libvirt_storage._made(pool, "<volume/>", None) == "<volume/>"
    assert pool.calls == calls
