"""Checksums as they are published, names of contents, and what steps are called."""

from __future__ import annotations

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._image import plan_image
from ansible_collections.corral.virt.plugins.module_utils._image.model_checksum_list import checksum_in
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import (
    Checksum,
    Image,
    Source,
    Sums,
    parse_checksum,
)

HEX, LONG = "0123456789abcdef" * 4, "0123456789abcdef" * 8
URL = "https://example.org/images/debian-12.qcow2"
CHECKSUM = Checksum("sha256", HEX)
SOURCE = Source("url", URL)
CONTENT, OLD = f"debian-12.{HEX[:12]}.qcow2", f"debian-12.{'a' * 12}.qcow2"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"sha256:{HEX}", CHECKSUM),
        (f"sha256:{HEX.upper()}", CHECKSUM),
        (f"sha512:{LONG}", Checksum("sha512", LONG)),
        (f"sha384:{LONG[:96]}", Checksum("sha384", LONG[:96])),
        ("sha512:https://example.org/SUMS", Sums("sha512", "https://example.org/SUMS")),
        ("https://example.org/SHA512SUMS", Sums(None, "https://example.org/SHA512SUMS")),
    ],
)
def test_checksums(text: str, expected: object) -> None:
    assert parse_checksum(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        HEX,
        f"md5:{HEX}",
        "sha256:",
        f"sha256:{HEX[1:]}",
        f"sha512:{HEX}",
        f"sha256:{HEX[:-1]}g",
        "sha256:ftp://x",
        f"SHA256:{HEX}",
    ],
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
        ("debian-12.qcow2", None, LONG),
        ("bsd.qcow2", "sha256", HEX),
        ("bsd.qcow2", "sha512", LONG),
        ("with spaces.qcow2", "sha256", "d" * 64),
        ("with spaces.qcow2", "sha512", None),
        ("spaces.qcow2", None, None),
        ("debian-12", None, None),
    ],
)
def test_sums_files(file: str, algorithm: str | None, expected: str | None) -> None:
    for text in (SUMS, SUMS.replace("\n", "\r\n")):
        found = checksum_in(
            text, Source("url", f"https://example.org/{file}"), Sums(algorithm, "https://example.org/SUMS")
        )
        assert (found.hex if found else None) == expected


@pytest.mark.parametrize("text", [HEX, f"{HEX}\n", f"{HEX}  debian-12-Build7.1.qcow2\n"])
def test_a_list_of_one_belongs_to_the_url_it_is_named_after(text: str) -> None:
    assert checksum_in(text, SOURCE, Sums(None, f"{URL}.sha256")) == CHECKSUM
    elsewhere = checksum_in(text, SOURCE, Sums(None, "https://example.org/images/SHA256SUMS"))
    assert elsewhere == (None if " " in text else CHECKSUM), "of another file, as far as one can tell"


@pytest.mark.parametrize(
    ("location", "file", "compression", "archive"),
    [
        (URL, "debian-12.qcow2", None, False),
        (URL + ".xz?a=b/c#d", "debian-12.qcow2.xz", "xz", False),
        (URL + ".zst", "debian-12.qcow2.zst", "zst", False),
        ("/srv/x.raw.gz", "x.raw.gz", "gz", False),
        ("https://example.org/a/", "a", None, False),
        ("https://example.org/a.tar.xz?b", "a.tar.xz", "xz", True),
        ("/srv/A.TAR.GZ", "A.TAR.GZ", "gz", True),
        ("/srv/a.tgz", "a.tgz", None, True),
        ("/srv/web.box", "web.box", None, True),
        ("/srv/tar", "tar", None, False),
        ("/srv/tar.xz", "tar.xz", "xz", False),
    ],
)
def test_sources(location: str, file: str, compression: str | None, *, archive: bool) -> None:
    source = Source("url", location)
    assert (source.file, source.compression, source.is_archive) == (file, compression, archive)
    assert not Source("origin", location).is_archive, "it is a content of a pool"


def image(checksum: Checksum | None = CHECKSUM, source: Source | None = SOURCE) -> Image:
    """Wanted."""
    return Image("debian-12.qcow2", "/pool", "qcow2", source, checksum)


def test_what_is_not_verified_says_so() -> None:
    assert str(plan_image.Fetch(image(None))).endswith(", NOT verified")
    assert str(plan_image.Fetch(image())) == f"fetch image debian-12.qcow2, verified by sha256 {HEX[:12]}"


def test_a_step_names_the_file() -> None:
    assert str(plan_image.Symlink(image(), CONTENT)) == f"point debian-12.qcow2 to {CONTENT}"
    assert str(plan_image.Symlink(image(), None)) == "point debian-12.qcow2 to the fetched content"
    assert str(plan_image.Remove(image(), OLD)) == f"remove {OLD}"


@pytest.mark.parametrize(
    ("name", "expected"), [("debian", "debian.012345678901"), ("a.b.qcow2", "a.b.012345678901.qcow2")]
)
def test_content_names(name: str, expected: str) -> None:
    assert Image(name, "/pool", "qcow2").content_name("0123456789012345") == expected


@pytest.mark.parametrize(
    ("name", "file", "expected"),
    [
        ("a.qcow2", "a.0123456789ab.qcow2", True),
        ("a.qcow2", "a.b.0123456789ab.qcow2", False),
        ("a.b.qcow2", "a.b.0123456789ab.qcow2", True),
        ("a", "a.0123456789ab", True),
        ("a", "a.0123456789ab.qcow2", False),
        ("a.qcow2", "axqcow2", False),
        ("a.qcow2", "a.0123456789AB.qcow2", False),
    ],
)
def test_whose_content_it_is(name: str, file: str, expected: bool) -> None:
    assert Image(name, "/pool", "qcow2").owns(file) == expected
