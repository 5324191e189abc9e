"""Every row of every table: what is written comes back, silence stays silence."""

from __future__ import annotations

import typing as t

import pytest
from lxml import etree

from ansible_collections.corral.virt.plugins.module_utils._xml import disk, domain, graphics, interface, record, row
from ansible_collections.corral.virt.plugins.module_utils._xml.row import INT, ONOFF, YESNO, Flag, Many, Row

TABLES = {
    "domain": domain.DOMAIN,
    "disk": disk.DISK,
    "interface": interface.INTERFACE,
    "graphics": graphics.GRAPHICS,
    "record": record.RECORD,
}
ROWS = [(f"{table}.{field}", one) for table, rows in TABLES.items() for field, one in rows.items()]


def sample(one: Row) -> tuple[t.Any, t.Any]:
    """Two values it can have."""
    if isinstance(one, Flag) or one.codec in (YESNO, ONOFF):
        return True, False
    if isinstance(one, Many):
        return ("a & b", "<c>"), ("d",)
    return (1, 2) if one.codec is INT else ("a & <b> \"'", "c")


@pytest.mark.parametrize("one", [one for _name, one in ROWS], ids=[name for name, _one in ROWS])
def test_what_is_written_comes_back(one: Row) -> None:
    root = etree.Element("x")
    nothing = etree.tostring(root)
    assert one.read(root) in (None, False)
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
    for nothing in ({}, {"x": None}, {"x": ""}, {"x": ()}):
        if not isinstance(one, Flag):
            assert row.graft(root, {"x": one}, nothing) == []
            assert etree.tostring(root) == b"<x/>"


@pytest.mark.parametrize("one", [one for _name, one in ROWS if not isinstance(one, (Flag, row.Many)) and one.codec is row.TEXT])
def test_an_empty_text_takes_away(one: Row) -> None:
    root = etree.Element("x")
    one.write(root, "a")
    [change] = row.graft(root, {"x": one}, {"x": ""})
    assert one.read(root) is None and change.after == ("(hidden)" if one.secret else "")


def test_the_future_is_read_as_it_is() -> None:
    root = etree.fromstring("<x a='many' b='perhaps'/>")
    assert row.read(root, {"a": Row("./@a", INT), "b": Row("./@b", YESNO)}) == {"a": "many", "b": "perhaps"}


def test_secrets_are_hidden() -> None:
    root = etree.Element("x")
    table = {"password": graphics.GRAPHICS["password"]}
    changes = [*row.graft(root, table, {"password": "one-secret"}), *row.graft(root, table, {"password": "two-secret"})]
    assert len(changes) == 2 and "secret" not in str([*map(str, changes), changes])


def test_a_new_element_comes_last_and_others_stay() -> None:
    root = etree.fromstring("<x><!-- note --><a k='1'><z/></a><b/></x>")
    Row("a/@n").write(root, "2")
    Row("c/d").write(root, "3")
    assert etree.tostring(root) == b'<x><!-- note --><a k="1" n="2"><z/></a><b/><c><d>3</d></c></x>'
