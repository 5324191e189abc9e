"""What becomes of each disk of a guest, as tables: what there is and what is asked; steps, places and refusals out."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, NotFound, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Disk, GuestSpec, Volume
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_disk, plan_guest_steps
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_pool_files
from ansible_collections.corral.virt.plugins.module_utils._storage.model_header import Header
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import (
    NOBODY,
    Answer,
    DiskDevice,
    DiskOrigin,
    Known,
    Site,
    SiteOf,
    Size,
    SizeOf,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import OwnedVolume

GIB = 1024**3
IMAGES = PoolDirectory("default", "dir", "/images", here=True)
SYSTEM, DATA = "/images/web1-system.qcow2", "/images/web1-data.qcow2"
ISO = "/images/web1-seed.iso"
IN_A_POOL = "start the pool that has it (`virsh pool-list --all`), or create one for its directory with virt_pool"
ORIGIN = DiskOrigin(
    "/images/debian.qcow2",
    "/images/debian.0123456789ab.qcow2",
    "qcow2",
    3 * GIB,
    Header("qcow2"),
    managed=False,
    guest=None,
    uri="qemu:///system",
    here=True,
    written=False,
)


# who uses files on the host
USERS = {"/taken/web1-data.qcow2": "guest web2"}


def xml_of(volume: Volume) -> str:
    """As `host_xml.new_volume` does it, shorter."""
    return f"<volume name='{volume.name}'/>"


def wanted(*disks: Disk, **more: t.Any) -> GuestSpec:
    """A guest with these disks."""
    return GuestSpec("web1", **more).with_fields(disks=disks or None)


def own(*paths: str) -> tuple[OwnedVolume, ...]:
    """Entries of the guest's record."""
    return tuple(map(NOBODY.made, paths))


def known(devices: t.Mapping[str, str] | None = None, **more: t.Any) -> Known:
    """Of a guest that has disks at these paths."""
    return Known({name: DiskDevice(path, "vdb") for name, path in (devices or {}).items()}, **more)


VOLUME = Known({"data": DiskDevice("", "vdb", ("fast", "a"))})


def planned(item: Disk, of: Known, answer: Answer | None = None) -> plan_disk.DiskPlan:
    """The plan for that one disk."""
    return plan_disk.plan(wanted(item), of, {item.name: answer} if answer else {}, xml_of, USERS.get)


def told(item: Disk, of: Known, answer: Answer | None = None) -> str:
    """Its steps, or why there are none."""
    try:
        plan = planned(item, of, answer)
    except VirtError as error:
        return f"{type(error).__name__}: {error}"
    [placed] = plan.disks or ()
    replaced = ["replacing" for step in plan.steps if getattr(step, "replace", False)]
    place = f"at {placed.fields.get('source')}"
    return "; ".join([*map(str, plan.steps), *replaced, *map(str, plan.changes), place, *plan.notes])


# What there is, what the disk has and shall have -> what becomes of it.
CASES = [
    *((plan_disk.GIVEN, asked, None, "keep") for asked in (None, 1)),
    (plan_disk.DEFINED, 2, 2, "keep"),
    (plan_disk.DEFINED, 3, 2, "grow"),
    (plan_disk.DEFINED, 1, 2, "shrinks"),
    (plan_disk.DEFINED, 1, None, "unreadable"),
    *((plan_disk.BEGUN, asked, has, "remake") for asked in (None, 1, 2, 3) for has in (None, 2)),
    (plan_disk.OURS, None, 2, "adopt"),
    (plan_disk.OURS, 2, 2, "adopt"),
    (plan_disk.OURS, 3, 2, "adopt and grow"),
    (plan_disk.OURS, 1, 2, "shrinks"),
    *((plan_disk.FOREIGN, asked, 2, "taken") for asked in (None, 1, 2, 3)),
    *((plan_disk.NOTHING, asked, None, "make") for asked in (None, 1)),
]


@pytest.mark.parametrize(("there", "asked", "has", "case"), CASES)
def test_a_disk_is_one_case(there: str, asked: int | None, has: int | None, case: str) -> None:
    assert plan_disk.case_of(there, asked, has) == case


def test_every_case_is_reached_by_what_is_asked_and_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other one: what `questions` asks decides which there are."""
    reached: set[tuple[str, str]] = set()
    case_of, size = plan_disk.case_of, plan_disk._size

    def noted(there: str, asked: int | None, has: int | None) -> str:
        reached.add((there, size(asked, has)))
        return case_of(there, asked, has)

    monkeypatch.setattr(plan_disk, "case_of", noted)
    sizes = (None, GIB, 2 * GIB, 3 * GIB)
    hosts = (
        known(),
        known({"data": DATA}),
        known({"data": ""}),
        known(owned=own(DATA)),
        known(owned=own(DATA), making=(DATA,)),
        known({"data": DATA}, making=(DATA,), running=frozenset({DATA})),
    )
    makes: tuple[dict[str, t.Any], ...] = (
        {},
        {"state": "absent"},
        {"fields": {"source": "/srv/a"}},
        {"fields": {"device": "cdrom"}},
    )
    for of, asked, how, has in itertools.product(hosts, (None, 2 * GIB), makes, sizes):
        item = Disk("data", size_bytes=asked, **how)
        answers: dict[type, Answer] = {SizeOf: Size(has), SiteOf: Site(IMAGES, has)}
        with contextlib.suppress(VirtError):
            question = plan_disk.questions(wanted(item), of).get("data")
            planned(item, of, answers.get(type(question)))
    assert reached == {(there, asked) for there, cases in plan_disk._CASES.items() for asked in cases}


DATA_2G = Disk("data", size_bytes=2 * GIB)
REMADE = f"create disk {DATA} (2 GiB, qcow2); replacing; at {DATA}"
IGNORED = "size of disk data of web1 is ignored: the disk is not in a storage pool; omit size, and resize the disk where it is stored"
OUTCOMES: list[tuple[str, Disk, Known, Answer | None, str]] = [
    ("it goes", Disk("data", state="absent", size_bytes=GIB), known({"data": DATA}), None, "at None"),
    ("named", Disk("data", fields={"source": "/srv/a"}), known(), None, "at /srv/a"),
    ("volume", Disk("data", fields={"volume": "a/b"}), known({"data": DATA}), None, "at None"),
    ("url", Disk("data", fields={"url": "http://a/b"}), known(), None, "at None"),
    ("drive", Disk("data", fields={"device": "cdrom"}), known(), None, "at None"),
    ("drive, sized", Disk("data", fields={"device": "cdrom"}, size_bytes=GIB), known(), None, f"at None; {IGNORED}"),
    ("elsewhere", DATA_2G, known({"data": ""}), None, f"at None; {IGNORED}"),
    ("elsewhere, silent", Disk("data"), known({"data": ""}), None, "at None"),
    ("volume, same", DATA_2G, VOLUME, Size(2 * GIB, "/srv/a"), "at None"),
    (
        "volume, grows",
        DATA_2G,
        VOLUME,
        Size(GIB, "/srv/a"),
        "grow disk /srv/a to 2 GiB; disks[data].size: 1 GiB -> 2 GiB; at None",
    ),
    (
        "volume, grows live",
        DATA_2G,
        dataclasses.replace(VOLUME, active=True),
        Size(GIB, "/srv/a"),
        "grow disk /srv/a to 2 GiB while it runs; disks[data].size: 1 GiB -> 2 GiB; at None",
    ),
    (
        "volume, missing",
        DATA_2G,
        VOLUME,
        Size(None),
        f"NotFound: cannot read the size of disk data of web1: fast/a is in no active storage pool; {IN_A_POOL}",
    ),
    ("block device, same", DATA_2G, known({"data": "/dev/vg/a"}), Size(2 * GIB), "at None"),
    (
        "block device",
        DATA_2G,
        known({"data": "/dev/vg/a"}),
        Size(GIB),
        (
            "Refused: cannot grow disk data of web1 from 1 GiB to 2 GiB: it is a block device; grow /dev/vg/a "
            "(for example with lvextend), `virsh pool-refresh` its pool, and run again"
        ),
    ),
    (
        "block device, live",  # grown before, so QEMU has only to look
        DATA_2G,
        known({"data": "/dev/vg/a"}, active=True),
        Size(GIB),
        "grow disk /dev/vg/a to 2 GiB while it runs; disks[data].size: 1 GiB -> 2 GiB; at None",
    ),
    ("same", DATA_2G, known({"data": DATA}), Size(2 * GIB), "at None"),
    (
        "grows",
        DATA_2G,
        known({"data": DATA}),
        Size(GIB),
        f"grow disk {DATA} to 2 GiB; disks[data].size: 1 GiB -> 2 GiB; at None",
    ),
    (
        "grows live",
        DATA_2G,
        known({"data": DATA}, active=True),
        Size(GIB),
        f"grow disk {DATA} to 2 GiB while it runs; disks[data].size: 1 GiB -> 2 GiB; at None",
    ),
    (
        "shrinks",
        DATA_2G,
        known({"data": DATA}),
        Size(3 * GIB),
        (
            "Refused: cannot shrink disk data of web1 from 3 GiB to 2 GiB: data would be lost; shrink its content, "
            "shut the guest down, and use virt_image with allow_shrink: true"
        ),
    ),
    (
        "unreadable",
        DATA_2G,
        known({"data": DATA}),
        Size(None),
        f"NotFound: cannot read the size of disk data of web1: {DATA} is in no active storage pool; {IN_A_POOL}",
    ),
    ("new", DATA_2G, known(), Site(IMAGES), f"create disk {DATA} (2 GiB, qcow2); at {DATA}"),
    ("new, default size", Disk("data"), Known(), Site(IMAGES), f"create disk {DATA} (8 GiB, qcow2); at {DATA}"),
    (
        "raw",
        Disk("data", fields={"format": "raw"}),
        Known(),
        Site(IMAGES),
        "create disk /images/web1-data.img (8 GiB, raw); at /images/web1-data.img",
    ),
    ("begun", DATA_2G, known({"data": DATA}, owned=own(DATA), making=(DATA,)), Site(IMAGES, GIB), REMADE),
    ("begun, no file", DATA_2G, known(owned=own(DATA), making=(DATA,)), Site(IMAGES), REMADE),
    (
        "to be made, not begun",
        DATA_2G,
        known({"data": DATA}, making=(DATA,)),
        Site(IMAGES),
        f"create disk {DATA} (2 GiB, qcow2); at {DATA}",
    ),
    (
        "to be made, not begun, and something is there",
        DATA_2G,
        known({"data": DATA}, making=(DATA,)),
        Site(IMAGES, GIB),
        (
            f"Refused: cannot create disk data of web1: {DATA} exists already; another run may be creating it, or another "
            f"host may use it. If neither, remove it, or use it as it is with disks[].source: {DATA}"
        ),
    ),
    ("ours", Disk("data"), known(owned=own(DATA)), Site(IMAGES, GIB), f"at {DATA}"),
    (
        "ours, grows",
        DATA_2G,
        known(owned=own(DATA), active=True),
        Site(IMAGES, GIB),
        f"grow disk {DATA} to 2 GiB; disks[data].size: 1 GiB -> 2 GiB; at {DATA}",
    ),
    ("ours, begun", DATA_2G, known(owned=own(DATA), making=(DATA,)), Site(IMAGES, 3 * GIB), REMADE),
    (
        "foreign, of another guest",
        DATA_2G,
        Known(),
        Site(PoolDirectory("taken", "dir", "/taken", here=True), GIB),
        (
            "Refused: cannot create disk data of web1: /taken/web1-data.qcow2 exists already, and guest web2 uses it; "
            "choose another name for the guest or the disk, or another pool"
        ),
    ),
    (
        "foreign",
        DATA_2G,
        known(owned=own(SYSTEM)),
        Site(IMAGES, GIB),
        (
            f"Refused: cannot create disk data of web1: {DATA} exists already; another run may be creating it, or another "
            f"host may use it. If neither, remove it, or use it as it is with disks[].source: {DATA}"
        ),
    ),
]


@pytest.mark.parametrize(
    ("item", "of", "answer", "expected"), [case[1:] for case in OUTCOMES], ids=[case[0] for case in OUTCOMES]
)
def test_what_is_done_about_a_disk(item: Disk, of: Known, answer: Answer | None, expected: str) -> None:
    assert told(item, of, answer) == expected


def test_a_disk_that_is_made_has_the_format_of_its_file() -> None:
    for item, of, site in (
        (Disk("data"), Known(), Site(IMAGES)),
        (Disk("data"), known(owned=own(DATA)), Site(IMAGES, GIB)),
    ):
        [placed] = planned(item, of, site).disks or ()
        assert placed.fields == {"source": DATA, "format": "qcow2"}


QUESTIONS: list[tuple[Disk, Known, object]] = [
    (Disk("data", state="absent", size_bytes=GIB), known({"data": DATA}), None),
    (Disk("data", fields={"source": "/srv/a"}), known(), None),
    (Disk("data", fields={"volume": "a/b"}), known(), SizeOf("", ("a", "b"), opened=False)),
    (Disk("data", fields={"volume": "a/b", "format": "raw"}), known(), None),
    (Disk("data", fields={"volume": "fast/a"}), VOLUME, None),
    (Disk("data", fields={"url": "http://a/b"}), known(), None),
    (Disk("data", fields={"device": "floppy"}), known(), None),
    (Disk("data", fields={"device": "disk"}), known({"data": DATA}), None),
    (DATA_2G, known({"data": ""}), None),
    (DATA_2G, VOLUME, SizeOf("", ("fast", "a"))),
    (Disk("data"), VOLUME, None),
    (DATA_2G, known({"data": DATA}), SizeOf(DATA)),
    (DATA_2G, known({"data": DATA}, making=(DATA,)), SiteOf("default", "web1-data.qcow2")),
    (DATA_2G, known({"data": DATA}, making=(DATA,), running=frozenset([DATA])), SizeOf(DATA)),
    (
        Disk("data", pool="fast", image="debian.qcow2", fields={"format": "raw"}),
        Known(),
        SiteOf("fast", "web1-data.img", "debian.qcow2"),
    ),
]


@pytest.mark.parametrize(("item", "of", "question"), QUESTIONS)
def test_no_more_is_asked_than_is_needed(item: Disk, of: Known, question: object) -> None:
    assert plan_disk.questions(wanted(item), of).get("data") == question


def test_a_volume_is_looked_for_when_libvirt_opens_it() -> None:
    """It does so through the pool, which must be active: when the guest starts, or gets the volume while it runs."""
    item, has_it = Disk("data", fields={"volume": "fast/a"}), dataclasses.replace(VOLUME, active=True)
    asked = {"data": SizeOf("", ("fast", "a"))}
    for of, more, questions in (
        (Known(), {"state": "running"}, asked),
        (VOLUME, {"state": "running"}, asked),
        (known({"data": DATA}, active=True), {}, asked),
        (known(active=True), {}, asked),
        (known(active=True), {"apply": "next_boot"}, {"data": SizeOf("", ("fast", "a"), opened=False)}),
        (has_it, {"state": "running"}, {}),
        (VOLUME, {}, {}),
    ):
        assert plan_disk.questions(wanted(item, **more), of) == questions, (of, more)
    absent = dataclasses.replace(item, state="absent")
    assert plan_disk.questions(wanted(absent), has_it) == {}
    [kept] = (
        plan_disk.plan(wanted(item), known({"data": DATA}, active=True), {"data": Size(GIB)}, xml_of, USERS.get).disks
        or ()
    )
    assert kept == item


@pytest.mark.parametrize(
    ("of", "kind", "fields", "form"),
    [
        (known(), "logical", {}, "raw"),
        (known(), "iscsi-direct", {}, "raw"),
        (known(), "dir", {}, None),
        (known(), None, {}, None),
        (known(), "logical", {"format": "qcow2"}, "qcow2"),
        (VOLUME, "logical", {}, None),
    ],
)
def test_a_volume_that_is_a_device_is_raw(
    of: Known, kind: str | None, fields: dict[str, str], form: str | None
) -> None:
    item = Disk("data", fields={"volume": "fast/a", **fields})
    for size in (Size(None, pool_type=kind), Size(GIB, "/dev/a", kind)):
        [disk] = planned(item, of, size).disks or ()
        assert disk.fields.get("format") == form


def test_disks_that_nobody_speaks_of_stay() -> None:
    assert plan_disk.questions(wanted(), known({"data": DATA})) == {}
    assert plan_disk.plan(wanted(state="running"), known({"data": DATA}), {}, xml_of, USERS.get) == plan_disk.DiskPlan()


ORIGINS: list[tuple[str, dict[str, t.Any], dict[str, t.Any], str]] = [
    ("overlay", {}, {}, f"create disk {SYSTEM} (8 GiB, qcow2, on {ORIGIN.content}); at {SYSTEM}"),
    ("copy", {"clone": "copy"}, {}, f"create disk {SYSTEM} (8 GiB, qcow2, copy of {ORIGIN.path}); at {SYSTEM}"),
    (
        "large",
        {},
        {"capacity_bytes": 9 * GIB},
        f"create disk {SYSTEM} (9 GiB, qcow2, on {ORIGIN.content}); at {SYSTEM}",
    ),
    ("as large", {"size_bytes": 3 * GIB}, {}, f"create disk {SYSTEM} (3 GiB, qcow2, on {ORIGIN.content}); at {SYSTEM}"),
    ("larger", {"size_bytes": 4 * GIB}, {}, f"create disk {SYSTEM} (4 GiB, qcow2, on {ORIGIN.content}); at {SYSTEM}"),
    (
        "smaller",
        {"size_bytes": GIB},
        {},
        "BadInput: disk system of web1: size 1 GiB is smaller than its image debian.qcow2 (3 GiB)",
    ),
    (
        "raw on qcow2",
        {"fields": {"format": "raw"}},
        {},
        "BadInput: disk system of web1: only qcow2 can have a backing file; set clone: copy, or format: qcow2",
    ),
    (
        "raw copy",
        {"fields": {"format": "raw"}, "clone": "copy"},
        {},
        f"create disk /images/web1-system.img (8 GiB, raw, copy of {ORIGIN.path}); at /images/web1-system.img",
    ),
    (
        "of a guest",
        {},
        {"guest": "web2"},
        "Refused: cannot create web1 on image debian.qcow2: it is a disk of guest web2; use an image from virt_image",
    ),
    (
        "behind a connection",
        {},
        {"here": False, "uri": "qemu+ssh://a/system"},
        (
            "Refused: cannot create web1 on image debian.qcow2 over qemu+ssh://a/system: from here the content behind "
            "that name cannot be determined; name the content (as virt_image returns it), set clone: copy, or run the "
            "module on the hypervisor"
        ),
    ),
    (
        "copy behind one",
        {"clone": "copy"},
        {"here": False},
        f"create disk {SYSTEM} (8 GiB, qcow2, copy of {ORIGIN.path}); at {SYSTEM}",
    ),
    (
        "content behind one",
        {"image": "debian.0123456789ab.qcow2"},
        {"here": False},
        f"create disk {SYSTEM} (8 GiB, qcow2, on {ORIGIN.content}); at {SYSTEM}",
    ),
    (
        "other bytes",
        {},
        {"header": Header("raw")},
        (
            "Refused: cannot create web1 from image /images/debian.0123456789ab.qcow2: its name says qcow2, but "
            "its first bytes, which a guest may have written, say raw; rename it to match its format if you know where "
            "it comes from, or import it again with virt_image"
        ),
    ),
    (
        "on an unknown",
        {},
        {"header": Header("qcow2", "/etc/shadow")},
        (
            "Refused: cannot create web1 from image /images/debian.0123456789ab.qcow2: its backing file is "
            "/etc/shadow, which is not an image from virt_image; flatten it (virt_image state: flattened), or import "
            "its backing file with virt_image"
        ),
    ),
    (
        "on contents",
        {},
        {"header": Header("qcow2", "below.0123456789ab.qcow2"), "managed": True},
        f"create disk {SYSTEM} (8 GiB, qcow2, on {ORIGIN.content}); at {SYSTEM}",
    ),
    (
        "another word of libvirt",
        {},
        {"format": "raw"},
        (
            "Refused: cannot create web1 from image /images/debian.0123456789ab.qcow2: libvirt detects it as raw; "
            "refresh pool default and check it"
        ),
    ),
]


@pytest.mark.parametrize(
    ("item", "origin", "expected"), [case[1:] for case in ORIGINS], ids=[case[0] for case in ORIGINS]
)
def test_what_a_disk_is_made_from(item: dict[str, t.Any], origin: dict[str, t.Any], expected: str) -> None:
    made = Disk("system", **{"image": "debian.qcow2", **item})
    assert told(made, Known(), Site(IMAGES, origin=dataclasses.replace(ORIGIN, **origin))) == expected


def test_an_overlay_names_the_format_of_what_it_backing_file() -> None:
    site = Site(IMAGES, origin=dataclasses.replace(ORIGIN, content="/images/b.img", format="raw", header=Header("raw")))
    volume = plan_disk.new_volume_of("web1", Disk("system", image="b.img"), site)
    assert (volume.backing_path, volume.backing_format, volume.copy_of) == ("/images/b.img", "raw", None)
    copy = plan_disk.new_volume_of("web1", Disk("system", image="b.img", clone="copy"), site)
    assert (copy.backing_path, copy.backing_format, copy.copy_of) == (None, None, ORIGIN.path)


def test_a_file_is_named_only_after_a_guest_whose_name_is_one() -> None:
    named = "a new file for disk system is named after its guest: 'a/b' is not a valid name"
    with pytest.raises(BadInput, match=named):
        plan_disk.file_name("a/b", Disk("system"))


def test_steps_hold_all_that_their_doers_need() -> None:
    [made] = planned(
        Disk("data", pool="fast"), Known(), Site(PoolDirectory("fast", "netfs", "/images", here=True))
    ).steps
    assert made == plan_guest_steps.CreateVolume(
        "web1", Volume("fast", "web1-data.qcow2", DATA, 8 * GIB), "<volume name='web1-data.qcow2'/>"
    )
    [grown] = planned(DATA_2G, known({"data": DATA}, active=True), Size(GIB)).steps
    assert grown == plan_guest_steps.GrowRunningDisk("web1", DATA, 2 * GIB, "vdb")


def test_an_image_that_is_missing_is_told_with_its_pool() -> None:
    with pytest.raises(NotFound, match=r"there is no image debian\.qcow2 in pool default; import it with virt_image"):
        planned(Disk("system", image="debian.qcow2"), Known(), Site(IMAGES))


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        (PoolDirectory("a", "dir", None, here=False), "cannot create web1-data.qcow2 in pool a: it is of type dir"),
        (PoolDirectory("a", "rbd", None), "cannot be created on a pool of type rbd; create an image there (rbd create"),
        (PoolDirectory("a", "zfs", "/dev/zvol/a"), "on a pool of type zfs; create a volume there (virsh vol-create-as"),
        (PoolDirectory("a", "disk", "/dev"), "on a pool of type disk; create a volume there (virsh vol-create-as"),
        (
            PoolDirectory("a", "iscsi-direct", None),
            "its volumes are what the storage offers: set one as disks[].volume",
        ),
    ],
)
def test_where_no_disk_is_created(pool: PoolDirectory, expected: str) -> None:
    with pytest.raises(Refused, match=re.escape(expected)):
        planned(Disk("data"), Known(), Site(pool))


PLACES = [
    ("dir", True, True),
    ("fs", True, True),
    ("netfs", True, True),
    ("gluster", True, False),
    ("dir", False, False),
]


@pytest.mark.parametrize(("kind", "here", "serves"), PLACES)
def test_which_pool_is_a_directory_of_this_machine(kind: str, here: bool, serves: bool) -> None:
    pool = PoolDirectory("default", kind, "/images", here=here)
    if serves:
        assert plan_pool_files.directory(pool, "images") == "/images"
    else:
        reason = "this user sees no directory /images" if kind == "dir" else "its type is gluster, .* use a dir, fs"
        with pytest.raises(Refused, match=f"cannot keep images in pool default: {reason}"):
            plan_pool_files.directory(pool, "images")


@pytest.mark.parametrize("kind", ["dir", "fs", "netfs", "gluster"])
def test_which_pools_keep_files(kind: str) -> None:
    assert plan_pool_files.file_in(PoolDirectory("default", kind, "/images", here=False), "a.img") == "/images/a.img"


def test_several_disks_are_one_plan() -> None:
    wish = wanted(
        Disk("system", size_bytes=GIB), Disk("data", size_bytes=2 * GIB), Disk("iso", fields={"device": "cdrom"})
    )
    of = known({"data": DATA}, making=(SYSTEM, "/images/gone.qcow2", "/images/web1-seed.iso"))
    plan = plan_disk.plan(wish, of, {"system": Site(IMAGES), "data": Size(GIB)}, xml_of, USERS.get)
    assert [str(step).split(" (", maxsplit=1)[0] for step in plan.steps] == [
        f"create disk {SYSTEM}",
        f"grow disk {DATA} to 2 GiB",
    ]
    assert [item.name for item in plan.disks or ()] == ["system", "data", "iso"]
    assert plan.making == (SYSTEM,) and plan.left == ("/images/gone.qcow2",)
    assert [item.fields.get("source") for item in plan.unfinished()] == [SYSTEM + ".making", None, None]
    assert plan.remember(of) == {"making": ("/images/gone.qcow2",), "volumes": own(SYSTEM)}


def test_only_news_is_remembered() -> None:
    assert plan_disk.DiskPlan().remember(known(owned=own(DATA))) == {}
    assert plan_disk.DiskPlan(making=(SYSTEM, DATA)).remember(known(owned=own(DATA))) == {"volumes": own(DATA, SYSTEM)}
    assert plan_disk.DiskPlan(making=(DATA,)).remember(known(owned=own(DATA), making=(DATA,))) == {"making": ()}


def test_a_seed_is_no_disk_that_keeps_a_guest_from_starting() -> None:
    seed = Disk("seed", fields={"source": "/images/web1-seed.iso"})
    assert plan_disk.DiskPlan(disks=(seed,), making=("/images/web1-seed.iso",)).unfinished() == (seed,)
    assert plan_disk.DiskPlan().unfinished() == ()


def test_what_is_known_comes_from_definition_and_record() -> None:
    volume = {"pool": "fast", "volume": "a", "target": "vdb"}
    read = {"vda": {"source": SYSTEM + ".making", "target": "vda"}, "cd": {}, "data": volume}
    record = {"making": (SYSTEM, ISO), "volumes": own(SYSTEM), "seed": "a1b2"}
    of = Known.of(read, record, running=[SYSTEM], active=True)
    assert of.devices == {
        "vda": DiskDevice(SYSTEM, "vda"),
        "cd": DiskDevice("", ""),
        "data": DiskDevice("", "vdb", ("fast", "a")),
    }
    assert of.active and of.volumes == (SYSTEM,) and of.unfinished == (ISO,) and of.seed == "a1b2"
    assert Known.of({}, {}, running=[], active=False) == Known()
    assert Known.of(read, {"making": (SYSTEM,)}, running=[], active=False).unfinished == (SYSTEM,)
    assert Known.of(read, {"making": (ISO,)}, running=[ISO], active=True).unfinished


SIZES = {"vcpus.current": 1, "memory.current_kib": 1024}
RESUMED: list[tuple[dict[str, t.Any], Known, bool]] = [
    (SIZES, known({"system": SYSTEM}, making=(SYSTEM,)), True),
    ({}, known({"system": SYSTEM}, making=(SYSTEM,)), False),
    ({"vcpus.current": 1}, known({"system": SYSTEM}, making=(SYSTEM,)), False),
    (SIZES, known({"system": SYSTEM}), False),
    (SIZES, known({"data": SYSTEM}, making=(SYSTEM,)), False),
    (SIZES, Known(), False),
]


@pytest.mark.parametrize(("fields", "of", "again"), RESUMED)
def test_who_was_made_without_disks_is_finished_without(fields: dict[str, t.Any], of: Known, again: bool) -> None:
    found = plan_disk.resumed(GuestSpec("web1", fields=fields), of).disks
    assert found == ((Disk("system"),) if again else None)


def test_an_image_is_description_enough() -> None:
    of = known({"system": SYSTEM}, making=(SYSTEM,))
    assert plan_disk.resumed(GuestSpec("web1", image="debian.qcow2"), of).disks == (
        Disk("system", image="debian.qcow2"),
    )
    given = wanted(Disk("data"), image="debian.qcow2")
    assert plan_disk.resumed(given, of) is given


STARTS = [
    ("running", True),
    ("paused", True),
    ("rebooted", True),
    ("present", False),
    ("shutdown", False),
    ("destroyed", False),
]


@pytest.mark.parametrize(("state", "refused"), STARTS)
def test_what_is_incomplete_is_not_started(state: str, refused: bool) -> None:
    wish, of = wanted(state=state), known(making=(SYSTEM, DATA))
    if refused:
        expected = re.escape(
            f"cannot start web1: an interrupted run left {SYSTEM}, {DATA} incomplete; list its disks again"
        )
        with pytest.raises(Refused, match=expected):
            plan_disk.plan(wish, of, {}, xml_of, USERS.get)
    else:
        assert plan_disk.plan(wish, of, {}, xml_of, USERS.get).left == (SYSTEM, DATA)
    running = dataclasses.replace(of, active=True)
    assert plan_disk.plan(wish, running, {}, xml_of, USERS.get).left == (SYSTEM, DATA)
    assert plan_disk.plan(wish, known(), {}, xml_of, USERS.get).left == ()


def test_refusals_say_which_kind_they_are() -> None:
    with pytest.raises(BadInput, match="smaller than its image"):
        planned(Disk("system", image="a.qcow2", size_bytes=1), Known(), Site(IMAGES, origin=ORIGIN))


def test_before_the_steps_only_what_they_replace_is_ours() -> None:
    """One of the guest's images that is gone is made anew: until then, what has its name is somebody else's."""
    made = [
        plan_guest_steps.CreateVolume("web1", Volume("default", path[8:], path, GIB, "qcow2"), "", replace)
        for path, replace in ((DATA, False), (SYSTEM, True), (SYSTEM + ".unseeded", True))
    ]
    plan = plan_disk.DiskPlan(steps=tuple(made), making=(DATA, SYSTEM))
    assert plan.begun(known(owned=own(DATA, "/images/old.qcow2"))) == {
        "making": (DATA, SYSTEM),
        "volumes": own("/images/old.qcow2", SYSTEM),
    }


@pytest.mark.parametrize(
    ("options", "known", "item", "expected"),
    [
        ({"state": "running"}, {}, {}, ("data", "a/b")),
        ({"state": "present"}, {}, {}, None),  # it is off, and stays so
        ({"state": "present"}, {"active": True}, {}, ("data", "a/b")),
        ({"state": "present", "apply": "next_boot"}, {"active": True}, {}, None),
        ({"state": "present"}, {"active": True}, {"state": "absent"}, None),
        ({"state": "running"}, {}, {"state": "absent"}, None),
        ({"state": "running"}, {}, {"fields": {}}, None),
        ({"state": "present"}, {"active": True, "volume": ("data", "a/b")}, {}, None),  # it has it
        ({"state": "present"}, {"active": True, "volume": ("data", "b")}, {}, ("data", "a/b")),
        ({"state": "running"}, {"volume": ("data", "a/b")}, {}, ("data", "a/b")),
    ],
)
def test_volumes_that_libvirt_opens_now(
    options: dict[str, t.Any], known: dict[str, t.Any], item: dict[str, t.Any], expected: tuple[str, str] | None
) -> None:
    devices = {"data": DiskDevice("", "vdb", known["volume"])} if "volume" in known else {}
    asked = Disk(**{"name": "data", "fields": {"volume": "data/a/b"}, **item})
    assert (
        plan_disk._opened_volume(
            GuestSpec("web1", **options), asked, Known(devices=devices, active=known.get("active", False))
        )
        == expected
    )
