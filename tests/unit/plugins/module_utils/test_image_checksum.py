"""Which checksum an image must have, what is read to learn it, and whether it proves anything."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Checksum, ImageSpec, Source, Sums
from ansible_collections.corral.virt.plugins.module_utils._image.plan_image_checks import (
    ChecksumHost,
    Downloaded,
    requested_checksum,
)
from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import Bounds
from ansible_collections.corral.virt.tests.unit.plugins.module_utils.dialogue import Dialogue, Questions, told

GOOD, BAD = Checksum("sha256", "a" * 64), Checksum("sha256", "b" * 64)
SOURCE = Source("url", "https://there/debian.qcow2")
LIST, SIGNATURE = "https://there/SHA256SUMS", "https://there/SHA256SUMS.gpg"
GOOD_LIST, BAD_LIST = (f"{one.hex}  debian.qcow2\n".encode() for one in (GOOD, BAD))


ASK = t.cast(ChecksumHost, Questions())


def spec(wanted: Checksum | Sums | None, **more: t.Any) -> ImageSpec:
    return ImageSpec("debian.qcow2", Bounds("debian.qcow2", 1), checksum=wanted, **{"source": SOURCE, **more})


def read(content: bytes, url: str = LIST, origin: str = "") -> tuple[t.Any, Downloaded]:
    return ASK.read(url), Downloaded(content, origin or url)


UNSECURE = LIST.replace("https", "http")


@pytest.mark.parametrize(
    ("wanted", "more", "dialogue", "expected"),
    [
        # A checksum of the user is nobody else's to decide.
        (None, {}, [], (None, "")),
        (GOOD, {}, [], (GOOD, "")),
        (GOOD, {"signature": SIGNATURE, "certified": False}, [], (GOOD, "")),
        # A list says nothing of an image that comes from nowhere, such as one that is removed.
        (Sums(None, LIST), {"source": None}, [], (None, "")),
        # A list proves what its way here proves.
        (Sums(None, LIST), {}, [read(GOOD_LIST)], (GOOD, "")),
        (Sums("sha256", LIST), {}, [read(GOOD_LIST)], (GOOD, "")),
        (
            Sums(None, LIST),
            {"certified": False},
            [read(GOOD_LIST)],
            (GOOD, "its list of checksums came from a server whose certificate was not checked"),
        ),
        (
            Sums(None, UNSECURE),
            {},
            [read(GOOD_LIST, UNSECURE)],
            (GOOD, "its list of checksums came over plain http"),
        ),
        (
            Sums(None, LIST),
            {},
            [read(GOOD_LIST, origin=UNSECURE)],
            (GOOD, "its list of checksums came over plain http"),
        ),
        # Of a signed list, what was signed counts, and not what was read; then the way does not matter.
        (
            Sums(None, UNSECURE),
            {"signature": SIGNATURE, "certified": False},
            [
                read(GOOD_LIST, UNSECURE),
                read(b"detached", SIGNATURE),
                (ASK.signed_part(GOOD_LIST, b"detached"), GOOD_LIST),
            ],
            (GOOD, ""),
        ),
        (
            Sums(None, LIST),
            {"signature": "inline"},
            [read(BAD_LIST + GOOD_LIST), (ASK.signed_part(BAD_LIST + GOOD_LIST, None), GOOD_LIST)],
            (GOOD, ""),
        ),
        # What is no text is none of the list's words.
        (Sums(None, LIST), {}, [read(b"\xff\n" + GOOD_LIST)], (GOOD, "")),
    ],
)
def test_which_checksum_counts(
    wanted: Checksum | Sums | None,
    more: dict[str, t.Any],
    dialogue: Dialogue,
    expected: tuple[Checksum | None, str],
) -> None:
    with told(dialogue) as host:
        assert requested_checksum(spec(wanted, **more), host) == expected


@pytest.mark.parametrize(
    ("more", "dialogue"),
    [
        ({}, [read(b"")]),
        ({}, [read(b"a" * 64 + b"  another.qcow2\n")]),
        ({"signature": "inline"}, [read(GOOD_LIST), (ASK.signed_part(GOOD_LIST, None), b"")]),
    ],
)
def test_a_list_without_the_file_is_refused(more: dict[str, t.Any], dialogue: Dialogue) -> None:
    refused = pytest.raises(Failed, match=r"contains no sha512, sha384 or sha256 of debian\.qcow2")
    with refused, told(dialogue) as host:
        requested_checksum(spec(Sums(None, LIST), **more), host)
