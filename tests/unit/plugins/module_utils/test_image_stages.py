"""What a plan for an image asks, in which order, and what it decides from the answers: without a pool or a file."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._image import plan_image_checks, plan_image_stages
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import (
    Checksum,
    Image,
    Manifest,
    Present,
    Source,
)
from ansible_collections.corral.virt.plugins.module_utils._image.plan_image import Fetch, Remove, Symlink, Vouch
from ansible_collections.corral.virt.plugins.module_utils._image.plan_image_stages import (
    Bringing,
    ImageHost,
    Removing,
)
from ansible_collections.corral.virt.tests.unit.plugins.module_utils.dialogue import Dialogue, Questions, told

HEX = "ab" * 32
CHECKSUM = Checksum("sha256", HEX)
NAME = "debian-12.qcow2"
CONTENT, OLD = f"debian-12.{HEX[:12]}.qcow2", "debian-12.000000000000.qcow2"
PEER, WEB = Source("origin", "qemu+tls://hyper1/system"), Source("url", "https://there/debian-12.qcow2")
MANIFEST = Manifest(CONTENT, HEX, 1, "there", f"sha256:{HEX}", "")
NAMESAKE = dataclasses.replace(MANIFEST, checksum=f"sha256:{HEX[:12]}{'0' * 52}")


def image(**more: t.Any) -> Image:
    return Image(**{"name": NAME, "directory": "/p", "format": "qcow2", "source": WEB, "checksum": CHECKSUM, **more})


def present(*files: str, target: str | None = None, strangers: t.Collection[str] = ()) -> Present:
    return Present(target, frozenset(files), strangers=frozenset(strangers))


EMPTY, THERE = present(), present(CONTENT, target=CONTENT)
ASIDE = present(CONTENT, OLD, target=OLD)
STRANGER = present(CONTENT, strangers=[CONTENT])

ASK = t.cast(ImageHost, Questions())
LOOK, READ, OFFERED, RECORD = ASK.look(), ASK.manifest(CONTENT), ASK.offered(), ASK.is_recorded(CONTENT)
NAMED, INSIDE, COMPARE = ASK.user_of_name(f"/p/{NAME}"), ASK.users_inside("/p"), ASK.compared(CONTENT)
SHARED, OPENER = ASK.shared(), ASK.opener
UNASKED = "it is on nfs4, and guests of other hosts may use it; to ask all of them: ansible-playbook corral.virt.images"
DIGEST, REQUESTED = ASK.digest(CONTENT, "sha256"), ASK.compared_with_requested(CONTENT)

SILENT = image(checksum=None, source=PEER)
HEARD = image(source=PEER, doubt="only qemu+tls://hyper1/system vouches for it")
KEPT = image(current=False)
KEPT_OF_PEER = image(current=False, source=PEER)


@pytest.mark.parametrize(
    ("wanted", "dialogue", "steps"),
    [
        (image(), [(LOOK, EMPTY), (READ, None)], [Fetch(image()), Symlink(image(), CONTENT)]),
        (image(), [(LOOK, THERE), (READ, MANIFEST)], []),
        (
            image(),  # the name points into the void
            [(LOOK, present(target=CONTENT)), (READ, None), (NAMED, None)],
            [Fetch(image()), Symlink(image(), CONTENT)],
        ),
        (
            image(),
            [(LOOK, present("other", target="other")), (READ, None), (NAMED, None)],
            [Fetch(image()), Symlink(image(), CONTENT)],
        ),
        (image(), [(LOOK, present(CONTENT)), (READ, MANIFEST)], [Symlink(image(), CONTENT)]),
        (image(), [(LOOK, ASIDE), (READ, MANIFEST), (NAMED, None)], [Symlink(image(), CONTENT)]),
        (image(checksum=None), [(LOOK, THERE)], []),
        (
            image(checksum=None),
            [(LOOK, EMPTY)],
            [Fetch(image(checksum=None)), Symlink(image(checksum=None), None)],
        ),
        (SILENT, [(LOOK, THERE)], []),
        (SILENT, [(LOOK, EMPTY), (OFFERED, HEARD), (READ, None)], [Fetch(HEARD), Symlink(HEARD, CONTENT)]),
        (SILENT, [(LOOK, present(CONTENT)), (OFFERED, HEARD), (READ, MANIFEST)], [Symlink(HEARD, CONTENT)]),
        (
            image(source=PEER),
            [(LOOK, EMPTY), (READ, None), (OFFERED, image(source=PEER))],
            [Fetch(image(source=PEER)), Symlink(image(source=PEER), CONTENT)],
        ),
        (image(source=PEER), [(LOOK, THERE), (READ, MANIFEST)], []),
        (image(source=PEER), [(LOOK, present(CONTENT)), (READ, MANIFEST)], [Symlink(image(source=PEER), CONTENT)]),
        (KEPT, [(LOOK, EMPTY), (READ, None)], [Fetch(KEPT)]),
        (KEPT, [(LOOK, THERE), (READ, MANIFEST), (RECORD, True)], []),
    ],
)
def test_what_brings_an_image(wanted: Image, dialogue: Dialogue, steps: list[t.Any]) -> None:
    with told(dialogue) as host:
        decided = plan_image_stages.bringing(wanted, host)
    assert decided == Bringing(tuple(steps), dialogue[0][1].target)


VOUCH = (Vouch(image(), MANIFEST),)


@pytest.mark.parametrize(
    ("wanted", "dialogue", "expected"),
    [
        # A file that no manifest calls an image: its bytes decide.
        (
            image(),
            [(LOOK, STRANGER), (READ, None), (DIGEST, HEX), (REQUESTED, MANIFEST), (RECORD, False)],
            Bringing((Symlink(image(), CONTENT),), vouch=VOUCH),
        ),
        (
            image(),
            [(LOOK, STRANGER), (READ, None), (DIGEST, HEX), (REQUESTED, MANIFEST), (RECORD, True)],
            Bringing((Symlink(image(), CONTENT),)),
        ),
        (
            image(),
            [(LOOK, STRANGER), (READ, None), (DIGEST, HEX), (REQUESTED, None)],
            f"/p/{CONTENT} has other content",
        ),
        (image(), [(LOOK, STRANGER), (READ, None), (DIGEST, HEX[:-1])], f"/p/{CONTENT} has other content"),
        (
            image(source=None),
            [(LOOK, STRANGER), (READ, None), (DIGEST, HEX)],
            Bringing((Symlink(image(source=None), CONTENT),)),
        ),
        (image(source=None), [(LOOK, STRANGER), (READ, None), (DIGEST, "0")], f"/p/{CONTENT} has other content"),
        (
            dataclasses.replace(KEPT, source=None),
            [(LOOK, present(CONTENT, target=OLD, strangers=[CONTENT])), (READ, None), (DIGEST, HEX)],
            Bringing(before=OLD),
        ),
        # A content that disks of another hypervisor stand on: compared where it is not the very file.
        (
            KEPT,
            [(LOOK, ASIDE), (READ, MANIFEST), (RECORD, False), (COMPARE, MANIFEST)],
            Bringing((), OLD, (Vouch(KEPT, MANIFEST),), read_again=True),
        ),
        (
            KEPT,
            [(LOOK, ASIDE), (READ, MANIFEST), (RECORD, False), (COMPARE, None), (INSIDE, {OLD: "guest web1"})],
            Bringing((Fetch(KEPT),), OLD, read_again=True),
        ),
        (
            KEPT_OF_PEER,
            [(LOOK, ASIDE), (READ, MANIFEST), (RECORD, False), (COMPARE, None), (OFFERED, KEPT_OF_PEER), (INSIDE, {})],
            Bringing((Fetch(KEPT_OF_PEER),), OLD, read_again=True),
        ),
        (
            KEPT,
            [(LOOK, ASIDE), (READ, MANIFEST), (RECORD, False), (COMPARE, None), (INSIDE, {CONTENT: "guest web1"})],
            "guest web1 uses it",
        ),
        (
            dataclasses.replace(KEPT, source=None),
            [(LOOK, ASIDE), (READ, MANIFEST), (RECORD, False), (COMPARE, None), (INSIDE, {})],
            "set its source with url",
        ),
        # Refusals end the dialogue.
        (image(), [(LOOK, THERE), (READ, NAMESAKE)], "begins with the same digits"),
        (SILENT, [(LOOK, EMPTY), (OFFERED, HEARD), (READ, NAMESAKE)], "begins with the same digits"),
        (
            image(),
            [(LOOK, ASIDE), (READ, MANIFEST), (NAMED, "guest web1")],
            f"guest web1 is based on the name .*, not on {OLD}",
        ),
        (image(checksum=None), [(LOOK, Present(None, frozenset([NAME]), foreign=True))], "is a regular file"),
    ],
)
def test_what_is_compared(wanted: Image, dialogue: Dialogue, expected: Bringing | str) -> None:
    with told(dialogue) as host:
        if isinstance(expected, Bringing):
            assert plan_image_stages.bringing(wanted, host) == expected
            return
        with pytest.raises((BadInput, Refused), match=expected):
            plan_image_stages.bringing(wanted, host)


def test_the_name_of_what_goes_is_all_that_is_looked_for() -> None:
    with told([(LOOK, ASIDE)]) as host:
        assert plan_image_stages.bringing(image(), host, absent=True) == Bringing(before=OLD)


def gone(*files: str) -> tuple[Remove, ...]:
    return tuple(Remove(image(), file) for file in files)


@pytest.mark.parametrize(
    ("said", "dialogue", "expected"),
    [
        ({}, [], Removing()),
        ({"prune": True}, [(LOOK, THERE)], Removing()),
        (
            {"prune": True},
            [(LOOK, ASIDE), (ASK.claimed((CONTENT,)), ()), (INSIDE, {}), (OPENER(CONTENT), None), (SHARED, None)],
            Removing(gone(CONTENT)),
        ),
        (
            {"prune": True},
            [(LOOK, ASIDE), (ASK.claimed((CONTENT,)), ()), (INSIDE, {}), (OPENER(CONTENT), "a process")],
            Removing((), (f"kept {CONTENT}: a process uses it",)),
        ),
        (  # other hosts may have guests on it
            {"prune": True},
            [(LOOK, ASIDE), (ASK.claimed((CONTENT,)), ()), (INSIDE, {}), (OPENER(CONTENT), None), (SHARED, "nfs4")],
            Removing((), (f"kept {CONTENT}: {UNASKED} -e do=prune",)),
        ),
        (
            {"prune": True, "elsewhere": {CONTENT: "guest web1 on hyper2"}},
            [(LOOK, ASIDE), (ASK.claimed((CONTENT,)), ()), (INSIDE, {}), (OPENER(CONTENT), None), (SHARED, "nfs4")],
            Removing((), (f"kept {CONTENT}: guest web1 on hyper2 uses it",)),
        ),
        (
            {"prune": True, "elsewhere": {}},
            [(LOOK, ASIDE), (ASK.claimed((CONTENT,)), ()), (INSIDE, {}), (OPENER(CONTENT), None), (SHARED, "nfs4")],
            Removing(gone(CONTENT)),
        ),
        (  # of its own filesystem
            {"prune": True, "elsewhere": {CONTENT: "guest web1 on hyper2"}},
            [(LOOK, ASIDE), (ASK.claimed((CONTENT,)), ()), (INSIDE, {}), (OPENER(CONTENT), None), (SHARED, None)],
            Removing(gone(CONTENT)),
        ),
        (
            {"prune": True, "brought": (Symlink(image(), CONTENT),)},
            [
                (LOOK, ASIDE),
                (ASK.claimed((OLD,)), ()),
                (INSIDE, {CONTENT: "guest web1"}),
                (OPENER(OLD), None),
                (SHARED, None),
            ],
            Removing(gone(OLD)),
        ),
        (
            {"prune": True},
            [(LOOK, ASIDE), (ASK.claimed((CONTENT,)), ()), (INSIDE, {CONTENT: "guest web1"})],
            Removing((), (f"kept {CONTENT}: guest web1 uses it",)),
        ),
        (
            {"prune": True},
            [(LOOK, ASIDE), (ASK.claimed((CONTENT,)), (CONTENT,)), (INSIDE, {CONTENT: "guest web1"})],
            Removing((), (f"kept {CONTENT}: a disk that is being created uses it",)),
        ),
        (
            {"prune": True},
            [(LOOK, STRANGER)],
            Removing((), (f"kept {CONTENT}: no manifest says that this collection imported it",)),
        ),
        ({"absent": True}, [(LOOK, EMPTY)], Removing()),
        (
            {"absent": True},
            [
                (LOOK, present(NAME, CONTENT, target=CONTENT)),
                (ASK.claimed((CONTENT,)), ()),
                (INSIDE, {}),
                (OPENER(CONTENT), None),
                (SHARED, None),
            ],
            Removing(gone(NAME, CONTENT)),
        ),
        (
            {"absent": True},
            [(LOOK, THERE), (ASK.claimed((CONTENT,)), ()), (INSIDE, {}), (OPENER(CONTENT), None), (SHARED, "nfs4")],
            f"{UNASKED} -e do=prune -e unused=true, or set used_elsewhere: {{}}",
        ),
        (
            {"absent": True, "elsewhere": {CONTENT: "guest web1 on hyper2"}},
            [(LOOK, THERE), (ASK.claimed((CONTENT,)), ()), (INSIDE, {}), (OPENER(CONTENT), None), (SHARED, "nfs4")],
            f"guest web1 on hyper2 uses {CONTENT}",
        ),
        ({"absent": True, "prune": True}, [(LOOK, present(NAME))], Removing(gone(NAME))),
        (
            {"absent": True},
            [(LOOK, present(NAME, CONTENT, strangers=[CONTENT]))],
            Removing(gone(NAME), (f"kept {CONTENT}: no manifest says that this collection imported it",)),
        ),
        (
            {"absent": True},
            [
                (LOOK, present(OLD, CONTENT, "other.0123456789ab.qcow2")),
                (ASK.claimed((OLD, CONTENT)), ()),
                (INSIDE, {}),
                (OPENER(OLD), None),
                (OPENER(CONTENT), None),
                (SHARED, None),
            ],
            Removing(gone(OLD, CONTENT)),
        ),
        ({"absent": True}, [(LOOK, Present(None, frozenset(), foreign=True))], "as a disk, .* remove_storage: true"),
        (
            {"absent": True},
            [(LOOK, THERE), (ASK.claimed((CONTENT,)), (CONTENT,)), (INSIDE, {})],
            f"a disk that is being created uses {CONTENT}",
        ),
        (
            {"absent": True},
            [(LOOK, THERE), (ASK.claimed((CONTENT,)), ()), (INSIDE, {CONTENT: "guest web1"})],
            f"guest web1 uses {CONTENT}; remove or flatten that first",
        ),
    ],
)
def test_what_removes_an_image(said: dict[str, t.Any], dialogue: Dialogue, expected: Removing | str) -> None:
    with told(dialogue) as host:
        if isinstance(expected, Removing):
            assert plan_image_stages.removing(image(), host, **said) == expected
            return
        with pytest.raises(Refused, match=expected):
            plan_image_stages.removing(image(), host, **said)


def test_what_another_hypervisor_tells_of_an_image() -> None:
    assert plan_image_checks.offered(SILENT, PEER, MANIFEST) == HEARD
    assert plan_image_checks.offered(image(doubt="plain http"), PEER, NAMESAKE) == image(doubt="plain http")
