"""Which files become images, bases or sources of copies: by name and first bytes, which a guest may have written."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._model.header import Header
from ansible_collections.corral.virt.plugins.module_utils._plan import inspect

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
        assert inspect.base("use", path, header, **more) == wanted
        return
    with pytest.raises(Refused, match=wanted):
        inspect.base("use", path, header, **more)


def test_a_content_without_an_ending_is_what_its_first_bytes_say() -> None:
    """virt_image published it."""
    for header in (QCOW2, RAW):
        assert inspect.base("use", CONTENT, header) == header.format
    with pytest.raises(Refused, match="its name says vmdk"):
        inspect.base("use", CONTENT, Header("vmdk"))


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
        assert inspect.fetched("debian-12", source, Header(form)) == form
        return
    with pytest.raises(Refused, match=f"refusing image debian-12: .*{form}"):
        inspect.fetched("debian-12", source, Header(form))


def test_an_image_that_refers_to_another_file_is_not_fetched() -> None:
    for header in (Header("qcow2", backing="/etc/a"), Header("qcow2", data_file="/etc/a")):
        with pytest.raises(
            Refused, match=rf"refusing image debian-12: it refers to another file \(/etc/a\); {NO_OTHER}"
        ):
            inspect.fetched("debian-12", "a.qcow2", header)


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
    result = inspect.doubt(sums, origin, signed=signed, certified=certified)
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
    assert inspect.files_read(info) == files
