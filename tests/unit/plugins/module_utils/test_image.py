"""Checksums as they are published, and what brings an image into a pool."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._model.image import Checksum, Image, Present, Source, checksum_in, parse_checksum
from ansible_collections.corral.virt.plugins.module_utils._plan import image as plans

HEX, LONG = "0123456789abcdef" * 4, "0123456789abcdef" * 8
URL = "https://example.org/images/debian-12.qcow2"
CHECKSUM = Checksum("sha256", HEX)
SOURCE = Source(URL, remote=True)
CONTENT = f"debian-12.{HEX[:12]}.qcow2"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"sha256:{HEX}", (CHECKSUM, None)),
        (f"sha256:{HEX.upper()}", (CHECKSUM, None)),
        (f"sha512:{LONG}", (Checksum("sha512", LONG), None)),
        ("sha512:https://example.org/SUMS", (None, ("sha512", "https://example.org/SUMS"))),
        ("https://example.org/SHA512SUMS", (None, ("sha512", "https://example.org/SHA512SUMS"))),
        ("http://example.org/sums.txt", (None, ("sha256", "http://example.org/sums.txt"))),
    ],
)
def test_checksums(text: str, expected: object) -> None:
    assert parse_checksum(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", HEX, f"md5:{HEX}", "sha256:", f"sha256:{HEX[1:]}", f"sha512:{HEX}", f"sha256:{HEX[:-1]}g", "sha256:ftp://x", f"SHA256:{HEX}"],
)
def test_checksums_that_are_none(text: str) -> None:
    with pytest.raises(BadInput, match=r"^checksum: "):
        parse_checksum(text)


SUMS = f"""
# a comment
{"f" * 64}  debian-12.qcow2.sig
{"e" * 40}  debian-12.qcow2
{HEX.upper()} *./debian-12.qcow2
{LONG}  debian-12.qcow2
SHA256 (bsd.qcow2) = {HEX}
SHA512 (bsd.qcow2) = {LONG}
{"d" * 64}  with spaces.qcow2
"""


@pytest.mark.parametrize(
    ("file", "algorithm", "expected"),
    [
        ("debian-12.qcow2", "sha256", HEX),
        ("debian-12.qcow2", "sha512", LONG),
        ("bsd.qcow2", "sha256", HEX),
        ("bsd.qcow2", "sha512", LONG),
        ("with spaces.qcow2", "sha256", "d" * 64),
        ("spaces.qcow2", "sha256", None),
        ("debian-12", "sha256", None),
    ],
)
def test_sums_files(file: str, algorithm: str, expected: str | None) -> None:
    assert checksum_in(SUMS, file, algorithm) == expected
    assert checksum_in(SUMS.replace("\n", "\r\n"), file, algorithm) == expected


@pytest.mark.parametrize(
    ("location", "file", "compression"),
    [
        (URL, "debian-12.qcow2", None),
        (URL + ".xz?a=b/c#d", "debian-12.qcow2.xz", "xz"),
        ("/srv/x.raw.gz", "x.raw.gz", "gz"),
        ("https://example.org/a/", "a", None),
    ],
)
def test_sources(location: str, file: str, compression: str | None) -> None:
    source = Source(location, remote=True)
    assert (source.file, source.compression) == (file, compression)


def image(checksum: Checksum | None = CHECKSUM, source: Source | None = SOURCE) -> Image:
    """Wanted."""
    return Image("debian-12.qcow2", "/pool", "qcow2", source, checksum)


@pytest.mark.parametrize(
    ("wanted", "found", "expected"),
    [
        (image(), Present(None, frozenset()), ["fetch image debian-12.qcow2 from " + URL, "point debian-12.qcow2 to " + CONTENT]),
        (image(), Present(CONTENT, frozenset([CONTENT])), []),
        (image(), Present(None, frozenset([CONTENT])), ["point debian-12.qcow2 to " + CONTENT]),
        (image(), Present("other", frozenset(["other"])), ["fetch image", "point debian-12.qcow2 to " + CONTENT]),
        (image(), Present(CONTENT, frozenset()), ["fetch image", "point"]),  # the name points into the void
        (image(None), Present(None, frozenset()), ["fetch image", "point debian-12.qcow2 to the fetched content"]),
        (image(None), Present("any", frozenset(["any"])), []),
    ],
)
def test_present(wanted: Image, found: Present, expected: list[str]) -> None:
    steps = [str(step) for step in plans.present(wanted, found)]
    assert len(steps) == len(expected) and all(step.startswith(start) for step, start in zip(steps, expected))


def test_what_is_not_verified_says_so() -> None:
    assert str(plans.Fetch(image(None))).endswith(", NOT verified")
    assert str(plans.Fetch(image())).endswith(f", verified by sha256 {HEX[:12]}")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Present(None, frozenset()), []),
        (Present(CONTENT, frozenset([CONTENT])), ["remove debian-12.qcow2", f"remove {CONTENT}"]),
        (Present(CONTENT, frozenset()), ["remove debian-12.qcow2"]),
    ],
)
def test_absent(found: Present, expected: list[str]) -> None:
    assert [str(step) for step in plans.absent(image(), found, users={})] == expected


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: plans.present(image(), Present(None, frozenset(["debian-12.qcow2"]), foreign=True)), "plain file .* move it away"),
        (lambda: plans.absent(image(), Present(None, frozenset(), foreign=True), users={}), "did not put /pool/debian-12.qcow2 there"),
        (
            lambda: plans.absent(image(), Present(CONTENT, frozenset([CONTENT])), users={CONTENT: "web1-system.qcow2"}),
            f"web1-system.qcow2 stands on {CONTENT}; remove or flatten it first",
        ),
    ],
)
def test_refused(ask: t.Callable[[], object], message: str) -> None:
    with pytest.raises(Refused, match=message):
        ask()


def test_an_image_must_come_from_somewhere() -> None:
    with pytest.raises(BadInput, match="say where it comes from with url or src"):
        plans.present(image(None, None), Present(None, frozenset()))


@pytest.mark.parametrize(("name", "expected"), [("debian", "debian.012345678901"), ("a.b.qcow2", "a.b.012345678901.qcow2")])
def test_content_names(name: str, expected: str) -> None:
    assert Image(name, "/pool", "qcow2").content_name("0123456789012345") == expected
