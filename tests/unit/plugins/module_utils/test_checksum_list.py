"""Lists of checksums as vendors and tools publish them: the digest of the very file, by the algorithm it is of."""

from __future__ import annotations

import json
import re

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._image import plan_image_checks
from ansible_collections.corral.virt.plugins.module_utils._image.model_checksum_list import checksum_in, decoded
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Checksum, Source, Sums

A, B, LONG, OTHER = "a" * 64, "b" * 64, "c" * 128, "d" * 128
URL = "https://example.org/amd64/img.qcow2"
SOURCE, SUMS = Source("url", URL), "https://example.org/amd64/CHECKSUMS"
SHA256, SHA512 = Checksum("sha256", A), Checksum("sha512", LONG)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("algorithm", ["sha512", None])
@pytest.mark.parametrize(
    "other", ["BLAKE2B HASH", "SHA3-512", "sha3_512sums:", "Whirlpool", "[b2sum]", "SHA3", "Streebog-512"]
)
def test_a_digest_below_the_heading_of_another_algorithm_is_not_sha512(
    other: str, algorithm: str | None, order: int
) -> None:
    sections = [f"# {other}\n{OTHER}  img.qcow2\n", f"# SHA512 HASH\n{LONG}  img.qcow2\n"]
    text = "".join(sections[::order])
    assert checksum_in(text, SOURCE, Sums(algorithm, f"{URL}.DIGESTS")) == SHA512


@pytest.mark.parametrize(
    ("text", "url"),
    [
        (f"{LONG}  img.qcow2", "https://example.org/B2SUMS"),
        (LONG, f"{URL}.sha3-512"),
        (f"{A}  img.qcow2", "https://example.org/amd64/SHA3-256SUMS"),
        (f"SHA512/256 (img.qcow2) = {A}", SUMS),
        (f"SHA2-512/256(img.qcow2)= {A}", SUMS),
        (f"BLAKE2b (img.qcow2) = {LONG}", SUMS),
        (f"SHA3-256(img.qcow2)= {A}", SUMS),
        (f"SM3 (img.qcow2) = {A}", SUMS),
        (f"SHA512 (img.qcow2) = {A}", SUMS),
    ],
)
def test_another_algorithm_by_the_name_of_the_list_or_line(text: str, url: str) -> None:
    assert checksum_in(text, SOURCE, Sums(None, url)) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"SHA2-256(img.qcow2)= {A}", SHA256),
        (f"SHA2-512(./img.qcow2)= {LONG}", SHA512),
        (f"SHA-256 (img.qcow2) = {A}", SHA256),
        (f"SHA256:\n {A} 12345 img.qcow2\n {B} 12 other", SHA256),
        (f"{A}  ./img.qcow2", SHA256),
        (f"SHA256          {A.upper()}       C:\\amd64\\img.qcow2", SHA256),
        (f"DIST img.qcow2 8 BLAKE2B {OTHER} SHA512 {LONG}", SHA512),
        (f"# SHA384 is not here\n{A}  img.qcow2", SHA256),
        (f"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA3-512\n\n{LONG}  img.qcow2", SHA512),
        (f"{A}  amd64/img.qcow2\n{B}  arm64/img.qcow2", SHA256),
        (f"{B}  arm64/img.qcow2\n{A}  ../amd64/img.qcow2", SHA256),
        (f"{A}  img.qcow2\n{B}  old/img.qcow2", SHA256),
        (f"{A}  build/7/img.qcow2", SHA256),
        (f"{A}  {URL}", SHA256),
        (f"{A}  arm64/img.qcow2\n{B}  s390x/img.qcow2", None),
        (f"{A}  img.qcow2\n{B}  img.qcow2", None),
    ],
)
def test_styles_of_lists(text: str, expected: Checksum | None) -> None:
    assert checksum_in(text, SOURCE, Sums(None, SUMS)) == expected


def test_a_directory_counts_relative_to_the_list() -> None:
    text = f"{A}  amd64/img.qcow2\n{B}  img.qcow2\n"
    assert checksum_in(text, SOURCE, Sums(None, "https://example.org/SUMS")) == SHA256


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_byte_order_mark_is_no_part_of_the_first_digest(encoding: str, newline: str) -> None:
    content = f"{A}  img.qcow2{newline}".encode(encoding)
    assert checksum_in(decoded(content), SOURCE, Sums(None, SUMS)) == SHA256


def test_json_of_coreos_and_simplestreams() -> None:
    disk = {"location": URL, "signature": f"{URL}.sig", "sha256": A, "uncompressed-sha256": B}
    coreos = {"architectures": {"x86_64": {"artifacts": {"qemu": {"formats": {"qcow2": {"disk": disk}}}}}}}
    assert checksum_in(json.dumps(coreos), SOURCE, Sums(None, "https://example.org/stable.json")) == SHA256
    streams = {"items": {"disk1.img": {"path": "amd64/img.qcow2", "sha256": A, "md5": "e" * 32, "size": 8}}}
    assert checksum_in(json.dumps([streams]), SOURCE, Sums(None, "https://example.org/s.json")) == SHA256
    assert checksum_in("{}", SOURCE, Sums(None, "https://example.org/s.json")) is None


METALINK_4 = f"""<?xml version="1.0" encoding="UTF-8"?>
<metalink xmlns="urn:ietf:params:xml:ns:metalink">
  <file name="other.qcow2"><hash type="sha-256">{B}</hash></file>
  <file name="img.qcow2">
    <size>8</size>
    <hash type="md5">{"e" * 32}</hash>
    <hash type="sha-256">
      {A.upper()}
    </hash>
    <pieces length="4" type="sha-256"><hash>{B}</hash><hash type="sha-256">{B}</hash></pieces>
    <url>https://mirror.example.net/img.qcow2</url>
  </file>
</metalink>
"""
METALINK_3 = f"""<?xml version="1.0" encoding="utf-8"?>
<metalink version="3.0" xmlns="http://www.metalinker.org/" xmlns:mm0="http://fedorahosted.org/mirrormanager">
  <files><file name="img.qcow2">
    <verification><hash type="sha256">{A}</hash></verification>
    <mm0:alternates><mm0:alternate><verification><hash type="sha512">{OTHER}</hash></verification></mm0:alternate></mm0:alternates>
  </file></files>
</metalink>
"""


@pytest.mark.parametrize("text", [METALINK_4, METALINK_3, METALINK_4.replace("<", "<m:").replace("<m:/", "</m:")])
def test_a_metalink_tells_the_digest_of_the_whole_file(text: str) -> None:
    """Those of pieces, of other files and of earlier versions are not its digest."""
    text = text.replace("<m:?xml", "<?xml").replace("xmlns=", "xmlns:m=") if "<m:" in text else text
    assert checksum_in(text, SOURCE, Sums(None, f"{URL}.meta4")) == SHA256


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            '<?xml version="1.0"?>\n<metalink version="3.0">',
            "is a metalink that is not well-formed, or has a DTD, not a",
        ),
        (
            f'<!DOCTYPE metalink [<!ENTITY a "{A}">]><metalink><file name="img.qcow2"><hash type="sha-256">&a;</hash></file></metalink>',
            "is a metalink that is not well-formed, or has a DTD, not a list of checksums; set checksum to",
        ),
        (
            "<metalink><file name='img.qcow2'><hash type='sha-1'>00</hash></file></metalink>",
            "of img.qcow2, only sha-1;",
        ),
        (
            f"<metalink><file name='x'><hash type='sha-256'>{A}</hash></file></metalink>",
            "or sha256 of img.qcow2; check that it is the right list",
        ),
        ("\n<!DOCTYPE html><html>", "is an HTML page, not a list"),
        ("<?xml version='1.0'?><Error/>", "is an XML document, not a list"),
        (f"# BLAKE2B\n{LONG}  img.qcow2", "contains no sha512, sha384 or sha256 of img.qcow2, only blake2b;"),
        (f"{A}  x/img.qcow2\n{B}  y/img.qcow2", "contains several img.qcow2 that differ;"),
    ],
)
def test_the_refusal_names_what_the_list_is(text: str, reason: str) -> None:
    with pytest.raises(Failed, match=re.escape(reason)):
        plan_image_checks.listed(text, Sums(None, SUMS), SOURCE)


def test_the_refusal_names_the_algorithm_that_was_asked_for() -> None:
    with pytest.raises(Failed, match=r"contains no sha512 of img\.qcow2"):
        plan_image_checks.listed(f"{A}  img.qcow2", Sums("sha512", SUMS), SOURCE)
