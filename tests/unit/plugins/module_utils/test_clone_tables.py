"""Disks, the images below them, and who uses them, as tables: what is done, and what is refused because data would
be lost.
"""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, NotFound, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._storage.model_clone import (
    BaseImage,
    CloneSpec,
    FoundDisk,
    Use,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_clone import plan
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_clone_steps import CloneStep, Copy, Grow, Shrink

GIB = 1024**3
BASE = "/images/debian.1a2b3c4d5e6f.qcow2"
DISK = "/images/disk.qcow2"
RUNS = Use("web1", "u1", "running", "vda")
BELOW = Use("web2", "u2", "running")  # beneath another image, or read-only
SAVED, OFF = Use("web1", "u1", "saved"), Use("web1", "u1", "off")
DEFINED = Use("web1", "u1", "off", forget_xml="<domain/>")


def image(**more: t.Any) -> BaseImage:
    """An image of 2 GiB."""
    known: dict[str, t.Any] = {
        "name": "debian.qcow2",
        "path": BASE,
        "format": "qcow2",
        "size_bytes": 2 * GIB,
        "chain": (BASE,),
    }
    return BaseImage(**{**known, **more})


def wanted(state: str, **more: t.Any) -> CloneSpec:
    """A disk in a state."""
    return CloneSpec("disk.qcow2", state, "/images", more.pop("format", "qcow2"), **more)


def here(**more: t.Any) -> FoundDisk:
    """A qcow2 disk of 4 GiB that stands alone."""
    known: dict[str, t.Any] = {"kind": "file", "format": "qcow2", "size_bytes": 4 * GIB}
    return FoundDisk(**{**known, **more})


NOTHING = FoundDisk("nothing")


def shown(step: CloneStep) -> str:
    """A step in one line: its name, and what it works with."""
    keys = ("size_bytes", "guest", "uuid", "target", "timeout_s", "format")
    values = [
        f"{getattr(step, key) // GIB}G" if key == "size_bytes" else str(getattr(step, key))
        for key in keys
        if hasattr(step, key)
    ]
    base = [step.base.path] if hasattr(step, "base") else []
    return " ".join([type(step).__name__, *([] if step.path == DISK else [step.path]), *values, *base])


def outcome(wish: CloneSpec, found: FoundDisk) -> str:
    """Steps, and what the disk is afterwards; or the kind of refusal."""
    try:
        result = plan(wish, found)
    except VirtError as error:
        return type(error).__name__
    assert bool(result.steps) == bool(result.changes)
    size = "" if result.size_bytes is None else f" = {result.size_bytes // GIB}G"
    return "; ".join(map(shown, result.steps)) + size + (f" on {result.backing_file}" if result.backing_file else "")


ANY = image()
HINDERED: list[dict[str, t.Any]] = [{"uses": (BELOW,)}, {"uses": (SAVED,)}, {"locked": True}, {"snapshots": True}]
HINDERED += [{"lacks_room": "no room"}, {"unknown_base": "/etc/shadow"}]
COPY: dict[str, t.Any] = {"base": ANY, "copy": True}
GONE: dict[str, t.Any] = {"remove_storage": True}
CASES: list[tuple[CloneSpec, FoundDisk, str]] = [
    # to be made
    (wanted("present", base=ANY), NOTHING, f"Overlay 2G qcow2 {BASE} = 2G on {BASE}"),
    (wanted("present", **COPY), NOTHING, f"Copy 2G qcow2 {BASE} = 2G"),
    (wanted("present", base=ANY, size_bytes=3 * GIB), NOTHING, f"Overlay 3G qcow2 {BASE} = 3G on {BASE}"),
    (wanted("present", base=ANY, size_bytes=2 * GIB), NOTHING, f"Overlay 2G qcow2 {BASE} = 2G on {BASE}"),
    (wanted("present", base=ANY, size_bytes=GIB), NOTHING, "BadInput"),
    (
        wanted("present", base=ANY, size_bytes=GIB, allow_shrink=True),
        NOTHING,
        f"Overlay 1G qcow2 {BASE} = 1G on {BASE}",
    ),
    (wanted("present"), NOTHING, "NotFound"),
    (wanted("rebased", base=ANY), NOTHING, "NotFound"),
    (wanted("flattened", base=ANY), NOTHING, "NotFound"),
    (wanted("flattened"), NOTHING, "NotFound"),
    # somebody has the image: an overlay breaks when it is written, a copy is torn while it is written
    (wanted("present", base=image(uses=(OFF,))), NOTHING, "Refused"),
    (wanted("present", base=image(uses=(RUNS,))), NOTHING, "Refused"),
    (wanted("present", base=image(uses=(OFF,)), copy=True), NOTHING, f"Copy 2G qcow2 {BASE} = 2G"),
    (wanted("present", base=image(uses=(RUNS,)), copy=True), NOTHING, "Refused"),
    (wanted("present", base=image(uses=(SAVED,)), copy=True), NOTHING, "Refused"),
    (wanted("present", base=image(uses=(OFF, RUNS)), copy=True), NOTHING, "Refused"),
    (wanted("present", base=image(locked=True), copy=True), NOTHING, "Refused"),
    (wanted("present", base=image(locked=True)), NOTHING, f"Overlay 2G qcow2 {BASE} = 2G on {BASE}"),
    # no disk of ours
    *(
        (wanted(state, base=ANY, **GONE), FoundDisk(kind), "Refused")
        for state in ("present", "absent")
        for kind in ("link", "other")
    ),
    # there
    (wanted("present"), here(), " = 4G"),
    (wanted("present", format="raw"), here(), "Refused"),
    (wanted("present", base=ANY), here(backing=BASE), f" = 4G on {BASE}"),
    (
        wanted("present", base=ANY),
        here(backing="/images/debian.ffffffffffff.qcow2"),
        " = 4G on /images/debian.ffffffffffff.qcow2",
    ),
    (wanted("present", base=image(path="/b.qcow2")), here(backing="/b.qcow2"), " = 4G on /b.qcow2"),
    (
        wanted("present", base=image(path="/b")),
        here(backing="/elsewhere/debian.qcow2"),
        " = 4G on /elsewhere/debian.qcow2",
    ),
    (wanted("present", base=ANY), here(backing="/images/other.qcow2"), "Refused"),
    (wanted("present", base=ANY), here(), " = 4G"),
    (wanted("present", size_bytes=4 * GIB), here(uses=(SAVED,)), " = 4G"),
    # grown
    (wanted("present", size_bytes=5 * GIB), here(), "Grow 5G qcow2 = 5G"),
    (wanted("present", size_bytes=5 * GIB), here(uses=(OFF,)), "Grow 5G qcow2 = 5G"),
    (wanted("present", size_bytes=5 * GIB), here(uses=(RUNS,)), "GrowLive 5G web1 u1 vda = 5G"),
    (wanted("present", size_bytes=5 * GIB), here(uses=(OFF, RUNS)), "GrowLive 5G web1 u1 vda = 5G"),
    (wanted("present", size_bytes=5 * GIB), here(uses=(BELOW,)), "Refused"),
    (wanted("present", size_bytes=5 * GIB), here(uses=(RUNS, Use("web3", "u3", "running", "vda"))), "Refused"),
    (wanted("present", size_bytes=5 * GIB), here(uses=(RUNS, Use("web1", "u1", "running"))), "Refused"),
    (wanted("present", size_bytes=5 * GIB), here(uses=(SAVED,)), "Refused"),
    (wanted("present", size_bytes=5 * GIB), here(locked=True), "Refused"),
    (wanted("present", size_bytes=5 * GIB), here(locked=True, uses=(RUNS,)), "GrowLive 5G web1 u1 vda = 5G"),
    # shrunk
    (wanted("present", size_bytes=3 * GIB), here(), "Refused"),
    (wanted("present", size_bytes=3 * GIB, allow_shrink=True), here(), "Shrink 3G qcow2 = 3G"),
    (wanted("present", size_bytes=3 * GIB, allow_shrink=True), here(uses=(OFF,)), "Shrink 3G qcow2 = 3G"),
    *(
        (wanted("present", size_bytes=3 * GIB, allow_shrink=True), here(**more), "Refused")
        for more in (
            {"uses": (RUNS,)},
            {"uses": (SAVED,)},
            {"locked": True},
            {"snapshots": True},
            {"overlays": ("/images/o",)},
        )
    ),
    # rebased
    (wanted("rebased", base=ANY), here(backing="/old"), f"RebaseDisk {BASE} = 4G on {BASE}"),
    (wanted("rebased", base=ANY), here(), f"RebaseDisk {BASE} = 4G on {BASE}"),
    (wanted("rebased", base=ANY), here(backing=BASE, uses=(RUNS,)), f" = 4G on {BASE}"),
    (
        wanted("rebased", base=ANY),
        here(backing="/old", uses=(DEFINED, OFF)),
        f"Forget web1 u1; RebaseDisk {BASE} = 4G on {BASE}",
    ),
    (wanted("rebased", base=ANY, format="raw"), here(format="raw", backing="/old"), "Refused"),
    (wanted("rebased", base=image(chain=(BASE, DISK))), here(backing="/old"), "Refused"),
    (wanted("rebased", base=image(uses=(OFF,))), here(backing="/old"), "Refused"),
    *(
        (wanted("rebased", base=ANY), here(backing="/old", **more), "Refused")
        for more in (
            {"uses": (RUNS,)},
            {"uses": (SAVED,)},
            {"uses": (OFF, SAVED)},
            {"locked": True},
            {"snapshots": True},
        )
    ),
    # flattened
    (wanted("flattened"), here(), " = 4G"),
    (wanted("flattened"), here(uses=(SAVED,), snapshots=True, lacks_room="no room"), " = 4G"),
    (wanted("flattened"), here(backing=BASE), "Flatten = 4G"),
    (wanted("flattened", timeout_s=60), here(backing=BASE, uses=(RUNS,)), "Pull web1 u1 vda 60 = 4G"),
    (wanted("flattened", timeout_s=60), here(backing=BASE, uses=(RUNS,), locked=True), "Pull web1 u1 vda 60 = 4G"),
    (wanted("flattened"), here(backing=BASE, uses=(DEFINED,)), "Forget web1 u1; Flatten = 4G"),
    *((wanted("flattened"), here(backing=BASE, **more), "Refused") for more in HINDERED),
    (wanted("flattened"), here(backing=BASE, uses=(RUNS,), snapshots=True), "Refused"),
    # removed
    (wanted("absent"), NOTHING, ""),
    (wanted("absent", **GONE), NOTHING, ""),
    (wanted("absent"), FoundDisk("nothing", left="/images/.left"), "Remove /images/.left"),
    (wanted("absent"), here(), "Refused"),
    (wanted("absent", **GONE), here(), "Remove"),
    (wanted("absent", **GONE), here(left="/images/.left"), "Remove; Remove /images/.left"),
    *(
        (wanted("absent", **GONE), here(**more), "Refused")
        for more in (
            {"uses": (OFF,)},
            {"uses": (RUNS,)},
            {"uses": (SAVED,)},
            {"overlays": ("/images/o",)},
            {"locked": True},
        )
    ),
    (wanted("absent", **GONE), FoundDisk("nothing", uses=(OFF,), left="/images/.left"), "Refused"),
    (wanted("absent", format="raw", **GONE), here(), "Remove"),
]


def test_a_disk_is_changed_only_as_the_table_says() -> None:
    wrong = [
        (wish, found, outcome(wish, found), expected)
        for wish, found, expected in CASES
        if outcome(wish, found) != expected
    ]
    assert not wrong


def reason(wish: CloneSpec, found: FoundDisk) -> str:
    """Why it is refused."""
    try:
        plan(wish, found)
    except (BadInput, NotFound, Refused) as error:
        return str(error)
    return ""


REASONS: list[tuple[CloneSpec, FoundDisk, list[str]]] = [
    (
        wanted("present", base=image(uses=(OFF,))),
        NOTHING,
        ["cannot use", "debian.qcow2", "web1 (off)", "clone: copy"],
    ),
    (
        wanted("present", base=image(uses=(RUNS,)), copy=True),
        NOTHING,
        ["cannot copy", "web1 (running)", "shut the guest down"],
    ),
    (wanted("present", base=image(locked=True), copy=True), NOTHING, ["cannot copy", f"fuser -v {BASE}"]),
    (wanted("present", base=ANY), FoundDisk("link"), ["an image"]),
    (wanted("present", base=ANY), FoundDisk("other"), ["not a file"]),
    (wanted("present", base=ANY), here(backing="/images/o.qcow2"), ["/images/o.qcow2", "state: rebased"]),
    (wanted("present", format="raw"), here(), ["to raw", "format: qcow2"]),
    (wanted("present", base=ANY, size_bytes=GIB), NOTHING, ["1 GiB", "2 GiB", "allow_shrink"]),
    (wanted("present", size_bytes=3 * GIB), here(), ["from 4 GiB to 3 GiB", "allow_shrink"]),
    (
        wanted("present", size_bytes=5 * GIB),
        here(uses=(BELOW,)),
        ["grow disk disk.qcow2", "web2", "as a backing file"],
    ),
    (wanted("present", size_bytes=5 * GIB), here(uses=(SAVED,)), ["web1 (saved)", "managedsave-remove"]),
    (wanted("present", size_bytes=3 * GIB, allow_shrink=True), here(uses=(RUNS,)), ["web1 (running)", "shrink"]),
    (wanted("present", size_bytes=3 * GIB, allow_shrink=True), here(snapshots=True), ["shrink", "snapshots"]),
    (wanted("present", size_bytes=3 * GIB, allow_shrink=True), here(overlays=("/o1", "/o2")), ["/o1, /o2", "flatten"]),
    (wanted("rebased", base=ANY, format="raw"), here(format="raw"), ["rebase", "raw"]),
    (wanted("rebased", base=image(chain=(DISK,))), here(), ["rebase", "disk.qcow2 itself"]),
    (wanted("flattened"), here(backing=BASE, lacks_room="no room in /images"), ["flatten", "no room in /images"]),
    (wanted("flattened"), here(backing=BASE, snapshots=True), ["flatten", "snapshots"]),
    (wanted("absent"), here(), ["remove disk disk.qcow2", "remove_storage: true"]),
    (wanted("absent", **GONE), here(uses=(OFF,), overlays=("/o",)), ["guest web1, image /o"]),
    (wanted("absent", **GONE), here(locked=True), [f"fuser -v {DISK}", "remove disk"]),
    (CloneSpec("disk.qcow2", "absent", "/a b", "qcow2", **GONE), here(locked=True), ["`fuser -v '/a b/disk.qcow2'`"]),
    (wanted("flattened"), NOTHING, [DISK, "state: present"]),
]


def test_a_refusal_names_object_reason_and_remedy() -> None:
    wrong = [
        (reason(wish, found), words)
        for wish, found, words in REASONS
        if not all(word in reason(wish, found) for word in words)
    ]
    assert not wrong


HELD: dict[str, dict[str, t.Any]] = {
    "guest web1 (saved) uses it": {"uses": (SAVED,)},
    "a process that libvirt does not know has it open": {"locked": True},
    "no guest on this host uses it": {"unknown_base": "/etc/shadow"},
    "web2 runs with it as a backing file": {"uses": (BELOW,)},
    "its internal snapshots would be damaged": {"snapshots": True},
}
WORK = {
    "grow disk disk.qcow2": (wanted("present", size_bytes=5 * GIB), [*HELD][:4]),
    "shrink disk disk.qcow2 from 4 GiB to 3 GiB": (
        wanted("present", size_bytes=3 * GIB, allow_shrink=True),
        [*HELD][:3] + [*HELD][4:],
    ),
    "rebase disk disk.qcow2": (wanted("rebased", base=ANY), [*HELD][:3] + [*HELD][4:]),
    "flatten disk disk.qcow2": (wanted("flattened"), [*HELD]),
}


@pytest.mark.parametrize(("verb", "why"), [(verb, why) for verb, (_wish, reasons) in WORK.items() for why in reasons])
def test_who_holds_a_disk_is_told_with_what_it_prevents(verb: str, why: str) -> None:
    assert reason(WORK[verb][0], here(backing="/old", **HELD[why])).startswith(f"cannot {verb}: {why}")


def test_no_definition_of_a_guest_is_shown() -> None:
    """It may hold a password."""
    made = plan(wanted("flattened"), here(backing=BASE, uses=(DEFINED,)))
    assert "Forget" in repr(made) and "<domain" not in repr(made)


def test_changes_tell_before_and_after() -> None:
    cases = [
        (
            plan(wanted("present", base=ANY), NOTHING),
            [("disk", None, DISK), ("size", None, "2 GiB"), ("backing_file", None, BASE)],
        ),
        (
            plan(wanted("present", **COPY), NOTHING),
            [("disk", None, DISK), ("size", None, "2 GiB"), ("backing_file", None, None)],
        ),
        (plan(wanted("present", size_bytes=5 * GIB), here()), [("size", "4 GiB", "5 GiB")]),
        (plan(wanted("rebased", base=ANY), here(backing="/old")), [("backing_file", "/old", BASE)]),
        (plan(wanted("flattened"), here(backing=BASE)), [("backing_file", BASE, None)]),
        (plan(wanted("absent", **GONE), here(left="/l")), [("disk", DISK, None), ("disk", "/l", None)]),
    ]
    found = [[(change.where, change.before, change.after) for change in result.changes] for result, _expected in cases]
    assert found == [expected for _result, expected in cases]


def test_steps_say_what_they_do() -> None:
    cases = {
        f"create disk {DISK} (2 GiB, qcow2, on {BASE})": (wanted("present", base=ANY), NOTHING),
        f"create disk {DISK} (2 GiB, qcow2, copy of {BASE})": (wanted("present", **COPY), NOTHING),
        f"grow disk {DISK} to 5 GiB": (wanted("present", size_bytes=5 * GIB), here()),
        f"grow disk {DISK} to 5 GiB while web1 runs": (wanted("present", size_bytes=5 * GIB), here(uses=(RUNS,))),
        f"shrink disk {DISK} to 3 GiB": (wanted("present", size_bytes=3 * GIB, allow_shrink=True), here()),
        f"rebase disk {DISK} on {BASE}": (wanted("rebased", base=ANY), here()),
        f"flatten disk {DISK}": (wanted("flattened"), here(backing=BASE)),
        f"flatten disk {DISK} while web1 runs": (wanted("flattened"), here(backing=BASE, uses=(RUNS,))),
        f"remove {DISK}": (wanted("absent", **GONE), here()),
    }
    assert [str(plan(*case).steps[0]) for case in cases.values()] == list(cases)
    doing = [plan(*case).steps[0].doing for case in cases.values()]
    assert doing == ["", "copying", "", "", "", "rebasing", "flattening", "flattening", ""]
    forgets = plan(wanted("rebased", base=ANY), here(uses=(DEFINED,))).steps[0]
    assert "define web1" in str(forgets) and getattr(forgets, "xml", None) == "<domain/>"


@pytest.mark.parametrize(
    ("size", "resize"),
    [
        (2 * GIB, None),
        (2 * GIB + 1, Grow("/images/.part", 2 * GIB + 1, "qcow2")),
        (2 * GIB - 1, Shrink("/images/.part", 2 * GIB - 1, "qcow2")),
    ],
)
def test_a_copy_gets_the_size_of_the_disk(size: int, resize: Grow | None) -> None:
    assert Copy(DISK, size, image(format="raw"), "qcow2").resize("/images/.part") == resize
