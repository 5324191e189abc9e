"""Every row of every table: what is written comes back, silence stays silence."""

from __future__ import annotations

import typing as t

import pytest
from lxml import etree

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._domain import (
    fields_domain,
    fields_graphics,
    fields_interface,
    fields_record,
)
from ansible_collections.corral.virt.plugins.module_utils._network import fields_network
from ansible_collections.corral.virt.plugins.module_utils._storage import fields_pool
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity, OwnedVolume
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml import row
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Flag, Items, Many, Presence, Row, Table
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse, resolve, text

TABLES = {
    "network": fields_network.NETWORK,
    "pool": fields_pool.POOL,
    "domain": fields_domain.DOMAIN,
    "graphics": fields_graphics.GRAPHICS,
    "record": fields_record.RECORD,
}


def rows(table: Table, prefix: str) -> t.Iterator[tuple[str, Row]]:
    """Every row, those of lists' entries too."""
    for field, one in table.items():
        if isinstance(one, Items):
            yield from rows(one.table, f"{prefix}.{field}[]")
        else:
            yield f"{prefix}.{field}", one


ROWS = [found for name, table in TABLES.items() for found in rows(table, name)]
# Texts of a form: two that have it.
FORMS: dict[str, tuple[t.Any, t.Any]] = {
    "NvmeAddress": ("0000:06:00.0", "0001:1a:1f.7"),
    "PciAddress": ("0000:06:00.0", "0001:1a:1f.7"),
    "Place": ("0000:06:00.0", "0001:1a:1f.7"),
    "Resolution": ("1280x720", "800x600"),
    "source/@file": ("/a.qcow2", "/dev/sdb"),
    "source/@volume": ("default/a.qcow2", "fast/b"),
    "metadata/corral:guest/corral:volume": (
        (OwnedVolume("/a & b", "g", "h", FileIdentity(7, 5, "0badc0de")), OwnedVolume("/<c>", "g", "h")),
        (OwnedVolume("/d"),),
    ),
    "SourceRow": ("http://h/a.iso", "https://[::1]:8443/b?c=d"),
}


def document(one: Row) -> t.Any:
    """An element with nothing in it but what the row looks at besides its own place."""
    if type(one).__module__.endswith(".fields_remote"):
        remote = etree.Element("x", {"type": "network"})
        if "nvme.address" in one.valid_with or one.path == "source/address":
            return etree.Element("x", {"type": "nvme"})
        if one.path != "source/@protocol":
            etree.SubElement(remote, "source", {"protocol": next(iter(one.valid_with["network.protocol"]))})
        return remote
    [*kinds] = one.valid_with.get("type", ())
    return etree.Element("x", {"type": kinds[0]} if kinds else {})


def sample(one: Row) -> tuple[t.Any, t.Any]:
    """Two values it can have."""
    option = one.kind.option
    for form in (one.path, type(one).__name__):
        if form in FORMS:
            return FORMS[form]
    if isinstance(one, Flag) or option["type"] == "bool":
        return True, False
    if "choices" in option:
        first, second = option["choices"][0], option["choices"][0 if isinstance(one, Presence) else -1]
        return ((first, second), (second,)) if isinstance(one, Many) else (first, second)
    if option["type"] == "int" or one.kind is k.KIB:
        return ((1, 2), (3,)) if isinstance(one, Many) else (1, 2)
    if isinstance(one, Many):
        return ("a & b", "<c>"), ("d",)
    return "a & <b> \"'", "c"


@pytest.mark.parametrize("one", [one for _name, one in ROWS], ids=[name for name, _one in ROWS])
def test_what_is_written_comes_back(one: Row) -> None:
    root = document(one)
    nothing = etree.tostring(root)
    assert one.read(root) in (None, False, "none", "isolated")  # words for what has no element
    assert etree.tostring(root) == nothing, "reading writes"
    for value in sample(one):
        one.write(root, value)
        root = etree.fromstring(etree.tostring(root))
        assert one.read(root) == value
        before = etree.tostring(root)
        assert row.graft(root, {"x": one}, {"x": value}) == []
        assert etree.tostring(root) == before, "a second time changes something"


@pytest.mark.parametrize("one", [one for _name, one in ROWS], ids=[name for name, _one in ROWS])
def test_silence_is_kept(one: Row) -> None:
    root = etree.Element("x")
    # A flag and a mode always have a value; options take no empty text for them.
    silence: list[dict[str, t.Any]] = [{}, {"x": None}]
    for nothing in silence if isinstance(one, (Flag, fields_network.Mode)) else [*silence, {"x": ""}, {"x": ()}]:
        assert row.graft(root, {"x": one}, nothing) == []
        assert etree.tostring(root) == b"<x/>"


TEXTS = [
    one
    for _name, one in ROWS
    if one.__class__ is Row and (one.kind.option["type"] in ("str", "path") or one.kind is k.CPUSET)
]


# the others are then libvirt's to choose
@pytest.mark.parametrize("one", [one for one in TEXTS if not one.same("a", "")])
def test_an_empty_text_takes_away(one: Row) -> None:
    root = etree.Element("x")
    one.write(root, "a")
    [change] = row.graft(root, {"x": one}, {"x": ""})
    assert one.read(root) is None and change.after is None
    left = root.find("/".join(map(resolve, one.steps[0]))) if one.steps[0] else None
    assert left is None or left.attrib, "libvirt refuses an empty <emulatorpin/>"


def test_nought_seconds_take_a_period_away() -> None:
    root = etree.fromstring("<x><a><stats period='5'/></a></x>")
    assert row.graft(root, {"x": fields_domain.Period("a/stats/@period", k.INT)}, {"x": 0}) == [Change("x", 5, 0)]
    assert etree.tostring(root) == b"<x><a/></x>"


def test_what_else_an_element_holds_stays_when_a_value_is_taken_away() -> None:
    root = etree.fromstring("<x><a k='1' n='2'/><b k='1'><z/></b><c k='1'>text</c></x>")
    for path in ("a/@k", "b/@k", "c/@k"):
        row.graft(root, {"x": Row(path)}, {"x": ""})
    assert etree.tostring(root) == b'<x><a n="2"/><b><z/></b><c>text</c></x>'


def test_the_future_is_read_as_it_is() -> None:
    root = etree.fromstring("<x a='many' b='perhaps'/>")
    assert row.read(root, {"a": Row("./@a", k.INT), "b": Row("./@b", k.YESNO)}) == {"a": "many", "b": "perhaps"}


def test_secrets_are_hidden() -> None:
    root = etree.Element("x")
    table = {"password": fields_graphics.GRAPHICS["password"]}
    changes = [*row.graft(root, table, {"password": "one-secret"}), *row.graft(root, table, {"password": "two-secret"})]
    assert len(changes) == 2 and "secret" not in str([*map(str, changes), changes])


def test_a_new_element_comes_last_and_others_stay() -> None:
    root = etree.fromstring("<x><!-- note --><a k='1'><z/></a><b/></x>")
    Row("a/@n").write(root, "2")
    Row("c/d").write(root, "3")
    assert etree.tostring(root) == b'<x><!-- note --><a k="1" n="2"><z/></a><b/><c><d>3</d></c></x>'


LAN = "<interface type='network'><source network='{}'{}/></interface>"
VNC = "<graphics type='vnc' passwd='{}'{}/>"
CLOCK = "<domain><clock offset='{}'{}/></domain>"
FORMER: list[tuple[t.Any, str, dict[str, t.Any], str]] = [
    (fields_interface.INTERFACE, LAN.format("dmz", " portgroup='front'"), {"network": "lan"}, LAN.format("lan", "")),
    (
        fields_interface.INTERFACE,
        LAN.format("dmz", " portgroup='front'"),
        {"network": "lan", "portgroup": "front"},
        LAN.format("lan", " portgroup='front'"),
    ),
    (
        fields_graphics.GRAPHICS,
        VNC.format("old", " passwdValidTo='2010-04-09T15:51:00'"),
        {"password": "new"},
        VNC.format("new", ""),
    ),
    (
        fields_domain.DOMAIN,
        CLOCK.format("variable", " adjustment='123' basis='utc'"),
        {"clock.offset": "utc"},
        CLOCK.format("utc", ""),
    ),
]


@pytest.mark.parametrize(("table", "found", "wanted", "after"), FORMER)
def test_what_belongs_to_the_former_value_goes_with_it(
    table: t.Any, found: str, wanted: dict[str, t.Any], after: str
) -> None:
    """libvirt takes it for that of the new one."""
    element = parse(found)
    assert row.graft(element, table, wanted) and text(element) == text(parse(after))
    assert row.graft(element, table, wanted) == []
