"""Which files become images, bases or sources of copies: by name and first bytes, which a guest may have written."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_image_trust
from ansible_collections.corral.virt.plugins.module_utils._storage.model_header import Header, Member

NO_OTHER = "use an image without backing file and data file"
QCOW2, RAW = Header("qcow2"), Header("raw")
CONTENT = f"/p/debian.{'0' * 12}"


@pytest.mark.parametrize(
    ("path", "header", "more", "wanted"),
    [
        ("/p/a.qcow2", QCOW2, {}, "qcow2"),
        ("/p/a.raw", RAW, {}, "raw"),
        ("/p/a.img", RAW, {"raw": True}, "raw"),
        ("/p/a.qcow2", Header("qcow2", backing="/p/b"), {"managed": True}, "qcow2"),
        ("/p/a", QCOW2, {}, "cannot use /p/a: its name does not show its format"),
        ("/p/a.qcow2", RAW, {}, "its name says qcow2, but its first bytes"),
        ("/p/a.raw", QCOW2, {}, "its name says raw, but its first bytes"),
        ("/p/a.vmdk", Header("vmdk"), {}, "cannot use /p/a.vmdk"),
        ("/p/a.qcow2", QCOW2, {"raw": True}, "as a raw disk"),
        ("/p/a.qcow2", Header("qcow2", data_file="/etc/shadow"), {"managed": True}, "another file"),
        (
            "/p/a.qcow2",
            Header("qcow2", backing="/p/b"),
            {},
            "backing file is /p/b, which is not an image from virt_image",
        ),
    ],
)
def test_what_disks_are_made_from(path: str, header: Header, more: dict[str, t.Any], wanted: str) -> None:
    if " " not in wanted:
        assert plan_image_trust.base("use", path, header, **more) == wanted
        return
    with pytest.raises(Refused, match=wanted):
        plan_image_trust.base("use", path, header, **more)


def test_a_content_without_an_ending_is_what_its_first_bytes_say() -> None:
    """virt_image published it."""
    for header in (QCOW2, RAW):
        assert plan_image_trust.base("use", CONTENT, header) == header.format
    with pytest.raises(Refused, match="its name says vmdk"):
        plan_image_trust.base("use", CONTENT, Header("vmdk"))


@pytest.mark.parametrize(
    ("source", "form", "taken"),
    [
        *((f"a.{ending}", form, True) for ending, form in (("vmdk", "vmdk"), ("vdi", "vdi"), ("VHDX", "vhdx"))),
        ("a.vhd", "vpc", True),
        ("a.1.vmdk", "vmdk", True),
        ("a.vpc", "vpc", True),
        ("a.qcow2", "qcow2", True),
        ("a.img", "raw", True),
        ("a.vmdk", "qcow2", True),
        ("a.qcow2", "vmdk", False),
        ("a.vdi", "vmdk", False),
        ("a", "vhdx", False),
        ("a.luks", "luks", False),
    ],
)
def test_foreign_formats_are_fetched_where_the_name_says_so(source: str, form: str, taken: bool) -> None:
    if taken:
        assert plan_image_trust.fetched("debian-12", source, Header(form)) == form
        return
    with pytest.raises(Refused, match=f"refusing image debian-12: .*{form}"):
        plan_image_trust.fetched("debian-12", source, Header(form))


@pytest.mark.parametrize(
    ("source", "header", "reason"),
    [
        ("a.img", Header("raw", content="tar"), "a tar archive; end the name of its source in .tar .* tar xf$"),
        ("web", Header("raw", content="gzip"), "web is no disk, but packed with gzip"),
        ("a.img.lz4", Header("raw", content="lz4"), "unpack it, and import the disk that it contains: unlz4"),
        ("a.zip", Header("raw", content="zip"), "a ZIP archive"),
        ("a.img", Header("raw", content="text"), "text, such as a web page"),
        ("a.img", Header("raw", content="luks"), "encrypted with LUKS"),
        ("a.img", Header("raw", content="vpc"), "its last bytes say vpc, .* end that name in .vhd"),
        ("a.qcow2", RAW, "says qcow2, and its first bytes do not"),
        ("a.vmdk", RAW, "says vmdk, and its first bytes do not"),
        ("a.vhd", RAW, "says vpc, and its first bytes do not"),
        ("a.qcow2", Header("qcow2", damage="it is encrypted"), "it is encrypted; decrypt it"),
    ],
)
def test_what_is_no_disk_is_not_taken_for_a_raw_one(source: str, header: Header, reason: str) -> None:
    with pytest.raises(Refused, match=f"refusing image debian-12: .*{reason}"):
        plan_image_trust.fetched("debian-12", source, header)


def test_raw_disks_by_their_name_or_their_last_bytes() -> None:
    assert plan_image_trust.fetched("a", "a.vhd", Header("raw", content="vpc")) == "vpc"
    assert plan_image_trust.fetched("a", "a-flat.vmdk", RAW) == "raw"
    assert plan_image_trust.base("use", "/p/a.raw", Header("raw", content="tar")) == "raw", (
        "a guest may write what it likes"
    )
    with pytest.raises(Refused, match=r"cannot use /p/a\.qcow2: it is encrypted"):
        plan_image_trust.base("use", "/p/a.qcow2", Header("qcow2", damage="it is encrypted"))


@pytest.mark.parametrize(
    ("header", "compression"),
    [
        (Header("raw", content="tar"), ""),
        (RAW, ""),
        (Header("raw", content="gzip"), "gz"),
        (Header("raw", content="zstd"), "zst"),
        (Header("raw", content="text"), None),
        (Header("raw", content="zip"), None),
        (Header("qcow2"), None),
    ],
)
def test_what_has_the_name_of_an_archive_is_one_by_its_first_bytes(header: Header, compression: str | None) -> None:
    assert plan_image_trust.archive_compression(header) == compression


@pytest.mark.parametrize(
    ("name", "kind", "disk"),
    [
        ("disk.raw", "file", True),
        ("a/box.IMG", "file", True),
        ("a.vmdk", "file", True),
        ("._disk.raw", "file", False),
        ("a/._disk.raw", "file", False),
        ("metadata.json", "file", False),
        ("raw", "file", True),
        ("disk.raw/", "directory", False),
        ("disk.raw", "symbolic link", False),
        ("box.ovf", "file", False),
    ],
)
def test_disks_in_an_archive(name: str, kind: str, *, disk: bool) -> None:
    assert plan_image_trust.is_disk(Member(name, kind, 1)) == disk


def test_only_one_disk_is_taken_from_an_archive() -> None:
    disk, other = Member("x/disk.raw", "file", 1), Member("b.qcow2", "file", 1)
    folder, notes, link = Member("x", "directory", 0), Member("a.txt", "file", 1), Member("l", "symbolic link", 0)
    assert plan_image_trust.only_disk("a", "a.tar", [folder, notes, disk]) == "disk.raw"
    for members, reason in (
        ([disk, other], "a.tar contains 2 disks, .* it contains x/disk.raw, b.qcow2; unpack it, .*: tar xf$"),
        ([notes], "a.tar contains no disks, .* it contains a.txt; "),
        ([disk, link], "a.tar contains the symbolic link l, .* it contains x/disk.raw, l; "),
        ([], "it contains nothing; "),
    ):
        with pytest.raises(Refused, match=f"refusing image a: .*{reason}"):
            plan_image_trust.only_disk("a", "a.tar", members)


def test_an_image_that_refers_to_another_file_is_not_fetched() -> None:
    for header in (Header("qcow2", backing="/etc/a"), Header("qcow2", data_file="/etc/a")):
        with pytest.raises(
            Refused, match=rf"refusing image debian-12: it refers to another file \(/etc/a\); {NO_OTHER}"
        ):
            plan_image_trust.fetched("debian-12", "a.qcow2", header)


@pytest.mark.parametrize(
    ("sums", "origin", "signed", "certified", "doubt"),
    [
        ("http://x", "http://x", True, False, ""),
        ("https://x", "https://y", False, True, ""),
        ("http://x", "https://y", False, True, "plain http"),
        ("https://x", "http://y", False, True, "plain http"),
        ("https://x", "https://y", False, False, "certificate"),
    ],
)
def test_when_a_list_of_checksums_proves_something(
    sums: str, origin: str, signed: bool, certified: bool, doubt: str
) -> None:
    result = plan_image_trust.doubt(sums, origin, signed=signed, certified=certified)
    assert doubt in result and bool(result) == bool(doubt)


@pytest.mark.parametrize(
    ("info", "files"),
    [
        ({}, []),
        ({"filename": "/a"}, ["/a"]),
        (
            {"filename": "/a", "backing-filename": "b", "full-backing-filename": "/b"},
            ["b", "/b", "/a"],
        ),
        ({"filename": "/a", "format-specific": {"data": {"data-file": "/d"}}}, ["/a", "/d"]),
        (
            {"filename": "/a", "format-specific": {"data": {"extents": [{"filename": "/e"}, {"filename": "/f"}]}}},
            ["/a", "/e", "/f"],
        ),
        (
            {"filename": "/a", "children": [{"info": {"filename": "/c", "children": [{"info": {"filename": "/d"}}]}}]},
            ["/a", "/c", "/d"],
        ),
    ],
)
def test_every_file_of_an_image_is_known(info: dict[str, t.Any], files: list[str]) -> None:
    assert plan_image_trust.files_read(info) == files
