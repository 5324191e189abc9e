"""Which files a guest's disks are and stand on, as its document tells it."""

from __future__ import annotations

import typing as t
from posixpath import normpath

import pytest

from ansible_collections.corral.virt.plugins.module_utils._domain import xml_sources
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_sources import Link

VDA, BELOW = "<source file='/a'/><target dev='vda'/>", "<backingStore><source file='/b'/>{}</backingStore>"
DEEP = BELOW.format(BELOW.format("").replace("'/b'", "'/c'"))
VOLUMES = {("fast", "data.qcow2"): "/fast/data.qcow2"}


def domain(*disks: str) -> str:
    """A document with these disks."""
    return f"<domain><devices>{''.join(disks)}</devices></domain>"


def located(pool: str, volume: str) -> str | None:
    """As libvirt would say it."""
    return VOLUMES.get((pool, volume))


@pytest.mark.parametrize(
    ("disk", "links"),
    [
        (f"<disk>{VDA}</disk>", [Link("/a", "vda")]),
        (f"<disk device='disk'>{VDA}</disk>", [Link("/a", "vda")]),
        (f"<disk device='cdrom'>{VDA}</disk>", [Link("/a", None)]),
        (f"<disk>{VDA}<readonly/></disk>", [Link("/a", None)]),
        (f"<disk>{VDA}<shareable/></disk>", [Link("/a", None)]),
        ("<disk><source dev='/dev/sdb'/><target dev='vda'/></disk>", [Link("/dev/sdb", "vda")]),
        ("<disk><source file='/x/../a'/><target dev='vda'/></disk>", [Link("/a", "vda")]),
        (
            "<disk><source pool='fast' volume='data.qcow2'/><target dev='vda'/></disk>",
            [Link("/fast/data.qcow2", "vda")],
        ),
        ("<disk><source pool='fast' volume='gone.qcow2'/><target dev='vda'/></disk>", []),
        ("<disk><source protocol='nbd' name='x'/><target dev='vda'/></disk>", []),
        ("<disk device='cdrom'><target dev='sda'/></disk>", []),
    ],
)
def test_a_disk_is_one_guests_alone_when_nothing_else_is_said(disk: str, links: list[Link]) -> None:
    assert xml_sources.links(domain(disk), located, normpath) == links


@pytest.mark.parametrize(
    ("disk", "links"),
    [
        (f"<disk>{VDA}{BELOW.format('')}</disk>", [Link("/a", "vda"), Link("/b", None)]),
        (f"<disk>{VDA}{BELOW.format('<backingStore/>')}</disk>", [Link("/a", "vda"), Link("/b", None)]),
        (
            f"<disk>{VDA}{DEEP}</disk>",
            [Link("/a", "vda"), Link("/b", None), Link("/c", None)],
        ),
        (
            f"<disk><target dev='vda'/>{BELOW.format('')}</disk>",
            [Link("/b", None)],
        ),
        (
            (
                f"<disk>{VDA}<backingStore><source pool='fast' volume='data.qcow2'/><backingStore/>"
                "</backingStore></disk>"
            ),
            [Link("/a", "vda"), Link("/fast/data.qcow2", None)],
        ),
    ],
)
def test_nobody_alone_writes_what_a_disk_backing_file(disk: str, links: list[Link]) -> None:
    assert xml_sources.links(domain(disk), located, normpath) == links


@pytest.mark.parametrize(
    ("mirror", "links"),
    [
        ("<source file='/x/../m'/>", [Link("/a", None), Link("/m", None)]),
        ("<source pool='fast' volume='data.qcow2'/>", [Link("/a", None), Link("/fast/data.qcow2", None)]),
        ("<source protocol='nbd' name='x'/>", [Link("/a", None)]),
        ("", [Link("/a", None)]),
    ],
)
def test_a_disk_that_is_being_copied_is_written_in_two_places(mirror: str, links: list[Link]) -> None:
    assert xml_sources.links(domain(f"<disk>{VDA}<mirror>{mirror}</mirror></disk>"), located, normpath) == links


def test_all_disks_are_listed() -> None:
    assert xml_sources.links(
        domain(f"<disk>{VDA}</disk>", "<disk><source file='/b'/><target dev='vdb'/></disk>"), located, normpath
    ) == [
        Link("/a", "vda"),
        Link("/b", "vdb"),
    ]


@pytest.mark.parametrize(
    ("disk", "paths"),
    [
        ("<disk><driver type='raw'/><source file='/a'/></disk>", {"/a"}),
        ("<disk><driver type='raw'/><source dev='/dev/sdb'/></disk>", {"/dev/sdb"}),
        ("<disk><driver type='raw'/><source pool='fast' volume='data.qcow2'/></disk>", {"/fast/data.qcow2"}),
        ("<disk><driver type='raw'/><source pool='fast' volume='gone.qcow2'/></disk>", set()),
        ("<disk><driver type='raw'/><source protocol='nbd' name='x'/></disk>", set()),
        ("<disk device='cdrom'><driver type='raw'/></disk>", set()),
        ("<disk><driver type='qcow2'/><source file='/a'/></disk>", set()),
        ("<disk><source file='/a'/></disk>", set()),
    ],
)
def test_first_bytes_of_a_raw_disk_are_its_guests(disk: str, paths: set[str]) -> None:
    assert xml_sources.raw_sources(domain(disk, "<disk><driver type='raw'/><source file='/z'/></disk>"), located) == {
        *paths,
        "/z",
    }


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/a", []),
        ("/b", ["/b"]),
        ("/fast/data.qcow2", ["/b", "/c"]),
        ("/c", None),  # it stands on nothing
        ("/elsewhere", None),
    ],
)
def test_what_a_disk_backing_file_is_forgotten(path: str, kept: t.Sequence[str] | None) -> None:
    xml = domain(
        f"<disk>{VDA}{DEEP}</disk>",
        "<disk><source pool='fast' volume='data.qcow2'/><target dev='vdb'/><backingStore/></disk>",
    )
    found = xml_sources.without_below(xml, path, located, normpath)
    links = None if found is None else [link.path for link in xml_sources.links(found, located, normpath)]
    assert links == (None if kept is None else ["/a", *kept, "/fast/data.qcow2"])


def test_an_empty_end_of_a_chain_is_forgotten_too() -> None:
    xml = domain(
        f"<disk>{VDA}<backingStore/></disk>", "<disk><source file='/b'/><target dev='vdb'/><backingStore/></disk>"
    )
    found = xml_sources.without_below(xml, "/a", located, normpath)
    assert found and found.count("<backingStore") == 1
