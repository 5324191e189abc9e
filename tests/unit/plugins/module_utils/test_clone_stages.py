"""What is asked about a disk and its image, in which order, and what is known then: without a pool or a guest."""

from __future__ import annotations

import dataclasses
import hashlib
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_clone
from ansible_collections.corral.virt.plugins.module_utils._storage.model_clone import (
    BaseImage,
    CloneSpec,
    FoundDisk,
    Use,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.model_header import Header
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_clone import CloneHost, DiskInfo
from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import FreeSpace
from ansible_collections.corral.virt.tests.unit.plugins.module_utils.dialogue import Dialogue, Questions, told

ASK = t.cast(CloneHost, Questions())
DISK, BASE, CONTENT = "/p/a.qcow2", "/p/b.qcow2", "/p/b.0123456789ab.qcow2"
HIDDEN = "/p/.a"
QCOW2, RAW = Header("qcow2"), Header("raw")
ON_CONTENT = Header("qcow2", CONTENT)
PLAIN = DiskInfo(9, None, snapshots=False)
USE = Use("web1", "1", "off")


def described(path: str, chain: t.Sequence[str] = (), header: Header = QCOW2, raw: t.Collection[str] = ()) -> Dialogue:
    """What is asked of each image, where all below it is from virt_image."""
    managed = [(ASK.is_managed(each), True) for each in chain]
    return [(ASK.chain(path), (path, *chain)), *managed, (ASK.header(path), header), (ASK.raw_disks(), raw)]


@pytest.mark.parametrize(
    ("path", "dialogue", "expected"),
    [
        (
            BASE,
            [*described(BASE), (ASK.uses(BASE), (USE,)), (ASK.info(BASE, "qcow2"), PLAIN), (ASK.is_open(BASE), True)],
            BaseImage("b", BASE, "qcow2", 9, (BASE,), (USE,), locked=True),
        ),
        (
            BASE,
            [
                *described(BASE, [CONTENT], ON_CONTENT),
                (ASK.uses(BASE), ()),
                (ASK.info(BASE, "qcow2"), PLAIN),
                (ASK.is_open(BASE), False),
            ],
            BaseImage("b", BASE, "qcow2", 9, (BASE, CONTENT)),
        ),
        # A content is nobody's disk.
        (
            CONTENT,
            [*described(CONTENT), (ASK.info(CONTENT, "qcow2"), PLAIN)],
            BaseImage("b", CONTENT, "qcow2", 9, (CONTENT,)),
        ),
        (
            BASE,
            described(BASE, header=RAW),
            "^cannot create a disk from /p/b.qcow2: its name says qcow2, but its first bytes",
        ),
        (BASE, described(BASE, raw=[BASE]), "a guest uses it as a raw disk"),
        (BASE, described(BASE, header=ON_CONTENT), "which is not an image from virt_image"),
        (
            BASE,
            [
                (ASK.chain(BASE), (BASE, "/x", "/y")),
                (ASK.is_managed("/x"), False),
                *described(BASE, header=ON_CONTENT)[1:],
            ],
            "which is not an image from virt_image",
        ),
        (
            BASE,
            [
                (ASK.chain(BASE), (BASE, "/x", "/y")),
                (ASK.is_managed("/x"), True),
                (ASK.is_managed("/y"), False),
                *described(BASE, header=ON_CONTENT)[1:],
            ],
            "which is not an image from virt_image",
        ),
    ],
)
def test_what_a_disk_is_made_from(path: str, dialogue: Dialogue, expected: BaseImage | str) -> None:
    with told(dialogue) as host:
        if isinstance(expected, BaseImage):
            assert plan_clone.base("b", path, host) == expected
            return
        with pytest.raises(Refused, match=expected):
            plan_clone.base("b", path, host)


ALONE = BaseImage("b", BASE, "qcow2", 9, (BASE,))
CHAINED = BaseImage("b", BASE, "qcow2", 9, (BASE, CONTENT))
FREE, ROOM = FreeSpace(100, 50, 0), (ASK.room("/p", 0), FreeSpace(100, 50, 0))


def spec(**more: t.Any) -> CloneSpec:
    return CloneSpec(
        **{"name": "a.qcow2", "state": "present", "directory": "/p", "format": "qcow2", "reserve_bytes": 0, **more}
    )


def found(wanted: CloneSpec, dialogue: Dialogue) -> FoundDisk:
    """What is known of the disk after a dialogue."""
    with told(dialogue) as host:
        return plan_clone.found(wanted, HIDDEN, host)


def named(kind: str, left: str = "nothing") -> Dialogue:
    """What is under the name and under the hidden one."""
    return [(ASK.kind(DISK), kind), (ASK.kind(HIDDEN), left), ROOM]


@pytest.mark.parametrize(
    ("wanted", "dialogue", "expected"),
    [
        (spec(), named("nothing"), FoundDisk("nothing")),
        (spec(), named("link"), FoundDisk("link")),
        (spec(), named("other", "file"), FoundDisk("other", left=HIDDEN)),
        (spec(), named("nothing", "link"), FoundDisk("nothing")),
        (spec(base=ALONE), named("nothing"), FoundDisk("nothing")),
        (spec(base=CHAINED), named("nothing"), FoundDisk("nothing")),
        (spec(base=ALONE, copy=True), named("nothing"), FoundDisk("nothing")),
        (spec(copy=True), named("nothing"), FoundDisk("nothing")),
        (
            spec(base=CHAINED, copy=True),
            [*named("nothing"), (ASK.allocated_bytes(BASE), 20), (ASK.allocated_bytes(CONTENT), 30)],
            FoundDisk("nothing"),
        ),
        (
            spec(base=CHAINED, copy=True),
            [*named("nothing"), (ASK.allocated_bytes(BASE), 20), (ASK.allocated_bytes(CONTENT), 31)],
            FoundDisk("nothing", lacks_room=FREE.problem(51, "/p")),
        ),
        (
            spec(base=ALONE, copy=True, format="raw"),
            [*named("nothing"), (ASK.allocated_bytes(BASE), 51)],
            FoundDisk("nothing", lacks_room=FREE.problem(51, "/p")),
        ),
    ],
)
def test_a_name_without_a_disk(wanted: CloneSpec, dialogue: Dialogue, expected: FoundDisk) -> None:
    assert found(wanted, dialogue) == expected


def opened(header: Header = QCOW2, raw: t.Collection[str] = (), uses: tuple[Use, ...] = (USE,)) -> Dialogue:
    """What each disk is asked for."""
    return [*named("file"), (ASK.header(DISK), header), (ASK.raw_disks(), raw), (ASK.uses(DISK), uses)]


INFO = (ASK.info(DISK, "qcow2"), DiskInfo(9, CONTENT, snapshots=True))
CLOSED, OVERLAYS = (ASK.is_open(DISK), False), (ASK.overlays(DISK), ("/p/c",))


def disk(**more: t.Any) -> FoundDisk:
    return FoundDisk(
        **{
            "kind": "file",
            "format": "qcow2",
            "size_bytes": 9,
            "backing": CONTENT,
            "snapshots": True,
            "uses": (USE,),
            **more,
        }
    )


@pytest.mark.parametrize(
    ("wanted", "dialogue", "expected"),
    [
        (spec(), [*opened(), INFO, CLOSED], disk()),
        (spec(), [*opened(), INFO, (ASK.is_open(DISK), True)], disk(locked=True)),
        (spec(state="rebased"), [*opened(), INFO, CLOSED], disk()),
        (spec(allow_shrink=True), [*opened(), INFO, OVERLAYS, CLOSED], disk(overlays=("/p/c",))),
        (spec(state="absent"), [*opened(), INFO, OVERLAYS, CLOSED], disk(overlays=("/p/c",))),
        # Another format than the wanted one is refused, with who has it: qemu-img is not asked.
        (
            spec(),
            [*opened(RAW), OVERLAYS],
            FoundDisk("file", format="raw", uses=(USE,), overlays=("/p/c",)),
        ),
        (
            spec(),
            [*opened(raw=[DISK]), OVERLAYS],
            FoundDisk("file", format="raw", uses=(USE,), overlays=("/p/c",)),
        ),
        (
            spec(format="raw"),
            [*opened(raw=[DISK], uses=()), (ASK.info(DISK, "raw"), PLAIN), CLOSED],
            FoundDisk("file", format="raw", size_bytes=9),
        ),
        (
            spec(state="absent"),
            [*opened(RAW), (ASK.info(DISK, "raw"), PLAIN), OVERLAYS, CLOSED],
            FoundDisk("file", format="raw", size_bytes=9, uses=(USE,), overlays=("/p/c",)),
        ),
        # Room is measured only for what is to be flattened.
        (
            spec(state="flattened"),
            [*opened(), INFO, CLOSED, (ASK.flat_bytes(DISK), 80), (ASK.allocated_bytes(DISK), 30)],
            disk(),
        ),
        (
            spec(state="flattened"),
            [*opened(), INFO, CLOSED, (ASK.flat_bytes(DISK), 81), (ASK.allocated_bytes(DISK), 30)],
            disk(lacks_room=FREE.problem(51, "/p")),
        ),
        (
            spec(state="flattened"),
            [*opened(), (ASK.info(DISK, "qcow2"), PLAIN), CLOSED],
            disk(backing=None, snapshots=False),
        ),
    ],
)
def test_a_disk(wanted: CloneSpec, dialogue: Dialogue, expected: FoundDisk) -> None:
    assert found(wanted, dialogue) == expected


NO_ROOM, TOO_FULL = FreeSpace(100, 0, 0), FreeSpace(100, 0, 1)


@pytest.mark.parametrize(
    ("wanted", "dialogue", "expected"),
    [
        (spec(), named("nothing"), FoundDisk("nothing")),
        (spec(base=ALONE, copy=True), named("nothing"), FoundDisk("nothing")),
        (spec(), [*opened(), INFO, CLOSED], disk()),
        (spec(state="rebased"), [*opened(), INFO, CLOSED], disk()),
    ],
)
def test_what_takes_no_room_needs_none(wanted: CloneSpec, dialogue: Dialogue, expected: FoundDisk) -> None:
    dialogue = [(question, NO_ROOM) if question == ROOM[0] else (question, answer) for question, answer in dialogue]
    assert found(wanted, dialogue) == expected


@pytest.mark.parametrize(("wanted", "rest"), [(spec(), [INFO, CLOSED]), (spec(format="raw"), [OVERLAYS])])
def test_what_a_run_left_is_told_beside_a_disk(wanted: CloneSpec, rest: Dialogue) -> None:
    dialogue = [*named("file", "file"), *opened()[3:], *rest]
    assert found(wanted, dialogue).left == HIDDEN


def test_a_disk_that_takes_less_flat_needs_no_room() -> None:
    dialogue = [*opened(), INFO, CLOSED, (ASK.flat_bytes(DISK), 5), (ASK.allocated_bytes(DISK), 30)]
    dialogue[2] = (ROOM[0], TOO_FULL)
    assert found(spec(state="flattened"), dialogue).lacks_room == TOO_FULL.problem(0, "/p") != ""


@pytest.mark.parametrize(
    ("header", "below", "unknown"),
    [
        (
            ON_CONTENT,
            [(ASK.chain(DISK), (DISK, CONTENT)), (ASK.is_managed(CONTENT), True), (ASK.header(CONTENT), QCOW2)],
            "",
        ),
        (ON_CONTENT, [(ASK.chain(DISK), (DISK, CONTENT)), (ASK.is_managed(CONTENT), False)], CONTENT),
        (
            Header("qcow2", CONTENT, "/d"),
            [(ASK.chain(DISK), (DISK, CONTENT)), (ASK.is_managed(CONTENT), True)],
            "/d",
        ),
        (
            ON_CONTENT,
            [
                (ASK.chain(DISK), (DISK, CONTENT)),
                (ASK.is_managed(CONTENT), True),
                (ASK.header(CONTENT), Header("qcow2", "nbd:there")),
            ],
            "nbd:there",
        ),
        (QCOW2, [(ASK.chain(DISK), (DISK,))], ""),
        (Header("qcow2", "json:{}"), [(ASK.chain(DISK), (DISK,))], "json:{}"),
    ],
)
def test_what_a_disk_of_nobody_stands_on(header: Header, below: Dialogue, unknown: str) -> None:
    """Its own first bytes say it, which a guest may have written: nothing is measured there."""
    measured: Dialogue = [] if unknown else [(ASK.flat_bytes(DISK), 0), (ASK.allocated_bytes(DISK), 0)]
    dialogue = [*opened(header, uses=()), *below, INFO, CLOSED, *measured]
    assert found(spec(state="flattened"), dialogue) == disk(uses=(), unknown_base=unknown)


@pytest.mark.parametrize(
    ("origin", "form", "shares"), [(ALONE, "qcow2", True), (ALONE, "raw", False), (CHAINED, "qcow2", False)]
)
def test_what_a_copy_may_share(origin: BaseImage, form: str, shares: bool) -> None:
    assert plan_clone.may_share(origin, form) is shares


@pytest.mark.parametrize(
    ("state", "targets", "is_stored", "kept", "expected"),
    [
        ("running", ["vda"], True, [], [Use("web1", "1", "running", "vda", "<x/>")]),
        ("running", ["vda", None], False, [], [Use("web1", "1", "running", each, "<x/>") for each in ("vda", None)]),
        ("running", [], True, ["managed_save"], [Use("web1", "1", "off", None, "<x/>")]),
        ("shutdown", [], True, [], [Use("web1", "1", "off", None, "<x/>")]),
        ("shutdown", [], True, ["snapshots"], [Use("web1", "1", "off", None, "<x/>")]),
        ("shutdown", [], True, ["managed_save"], [Use("web1", "1", "saved", None, "<x/>")]),
        ("shutdown", [], False, ["managed_save"], []),
    ],
)
def test_how_a_guest_has_a_file(
    state: str, targets: list[str | None], is_stored: bool, kept: list[str], expected: list[Use]
) -> None:
    live = "<domain/>" if state == "running" else None
    guest = FoundGuest("web1", "1", state, True, False, "<domain/>", live)
    used = plan_clone.uses(guest, targets, is_stored=is_stored, managed_state=lambda: kept, forget_xml="<x/>")
    seen = hashlib.sha256(b"<domain/>").hexdigest()
    assert used == [dataclasses.replace(use, seen=seen) for use in expected]
