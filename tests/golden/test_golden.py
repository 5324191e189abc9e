"""Found and wanted in; the document, its changes and the steps out: compared with what was read and agreed to once."""

from __future__ import annotations

import collections
import dataclasses
import functools
import typing as t
from pathlib import Path

import libvirt
import pytest
import yaml
from lxml import etree

from ansible_collections.corral.virt.plugins.module_utils._domain import fields_domain, fields_graphics, fields_record
from ansible_collections.corral.virt.plugins.module_utils._xml import row
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse
from ansible_collections.corral.virt.tests.golden.case import (
    CASES,
    GOLDEN,
    Case,
    Outcome,
    host,
    look_alike,
    normal,
    options,
    play,
)

SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")  # Debian: libvirt0; Fedora: libvirt-libs
DUMPS = [path for path in sorted(GOLDEN.glob("found/*.xml")) if "live" not in path.stem]
RECORDS = sorted((Case(path.parent.name) for path in GOLDEN.glob("*/record.yml")), key=lambda case: case.name)


def name_of(case: Case) -> str:
    """How a case is called in test names."""
    return case.name


def skip_newer(case: str) -> None:
    """Skip the check of a case by libvirt's schema where that is too old for it."""
    if case == "newer_libvirt" and libvirt.getVersion() < 10_001_000:
        pytest.skip("this libvirt does not know it yet")


@functools.cache
def schema() -> t.Any:
    """libvirt's own grammar of a domain."""
    return etree.RelaxNG(etree.parse(str(SCHEMA)))


def write(path: Path, content: str | None) -> None:
    """Content of an expected file; None and nothing to say leave no file."""
    if content:
        path.write_text(content)
    else:
        path.unlink(missing_ok=True)


class _Indented(yaml.SafeDumper):
    """Lists indented, as yamllint wants them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def yaml_text(value: object) -> str | None:
    """As a golden file holds it."""
    return "---\n" + yaml.dump(value, Dumper=_Indented, width=120, allow_unicode=True) if value else None


def compare(case: Case, outcome: Outcome, regenerate: bool) -> None:
    """With what is expected; or make that what is expected from now on."""
    if regenerate:
        write(case.file("after.xml"), outcome.after)
        write(case.file("changes.yml"), yaml_text(outcome.changes))
        write(case.file("steps.yml"), yaml_text(outcome.steps))
    assert outcome.after == case.text("after.xml")
    assert outcome.changes == case.data("changes.yml")
    assert outcome.steps == case.data("steps.yml")


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_golden(case: Case, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    guests = {case.found.name: case.found} if case.found else {}
    with host(monkeypatch, guests, case.data("found.yml").get("keeps", ())) as connection:
        outcome = play(connection, case.wanted, case.found)
        compare(case, outcome, pytestconfig.getoption("--regenerate"))
        if outcome.after is None or case.wanted.apply == "live":
            return
        # Once more, on what it led to: off, then running.
        wanted = dataclasses.replace(case.wanted, state="present", wait_for_ip=None)
        autostart = bool(wanted.autostart if wanted.autostart is not None else case.found and case.found.autostart)
        for live in (None, outcome.after):
            after = look_alike(outcome.after, live, state="running" if live else "shutdown", autostart=autostart)
            guests[after.name] = after
            again = play(connection, wanted, after)
            assert not again.changes.get("before") and not again.changes.get("after")
            assert not again.steps.get("steps") and not again.steps.get("pending")


@pytest.mark.skipif(not SCHEMA.exists(), reason=f"no {SCHEMA}: install libvirt0 (Debian) or libvirt-libs (Fedora)")
@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*/after.xml")), ids=lambda path: path.parent.name)
def test_libvirt_accepts_the_result(path: Path) -> None:
    skip_newer(path.parent.name)
    root = etree.parse(str(path))
    assert schema().validate(root), str(schema().error_log)


@pytest.mark.parametrize("case", RECORDS, ids=name_of)
def test_record(case: Case, pytestconfig: pytest.Config) -> None:
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in case.data("record.yml").items()}
    found = t.cast(str, case.text("found.xml"))
    root = parse(found)
    row.graft(root, fields_record.RECORD, fields)
    after = normal(etree.tostring(root, encoding="unicode"))
    if pytestconfig.getoption("--regenerate"):
        case.file("after.xml").write_text(after)
    assert after == case.text("after.xml")
    known = {key: value for key, value in fields_record.read(after).items() if key in fields}
    assert known == {key: value for key, value in fields.items() if value not in ("", ())}
    # libvirt takes our element without its namespace, and puts that on itself.
    assert "urn:corral" not in fields_record.update(found, fields)
    assert fields_record.update(after, fields) == fields_record.update(found, fields)


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_silence_keeps_everything(path: Path) -> None:
    """A dump of a real guest comes back as it was when nothing is asked for, and the same is said of it each time."""
    xml = path.read_text()
    grafted = fields_domain.graft(xml, options({"name": "any"}))
    assert not grafted.changes
    assert etree.canonicalize(grafted.xml, strip_text=True) == etree.canonicalize(xml, strip_text=True)
    assert normal(normal(xml)) == normal(xml)


@pytest.mark.parametrize(
    "case", [case for case in CASES if "desk.xml" in str(case.file("found.xml").resolve())], ids=name_of
)
def test_strangers_survive(case: Case) -> None:
    """What others made and we do not know stays, byte for byte: passthrough, QEMU's own arguments, metadata,
    addresses.
    """
    found, after = case.text("found.xml"), case.text("after.xml")
    if after is None:
        return
    for path in (
        "/domain/*[namespace-uri()='http://libvirt.org/schemas/domain/qemu/1.0']",
        "/domain/metadata/*[namespace-uri()!='urn:corral:virt:guest:1']",
        "/domain/*[self::memoryBacking or self::features or self::clock or self::pm]",
        "//hostdev | //filesystem | //controller | //redirdev | //filterref | //iotune | //sound | //memballoon",
        "//address[@type='pci' or @type='usb' or @type='drive']",
    ):
        assert texts(found, path) == texts(after, path) != [], path


def texts(xml: str | None, path: str) -> list[str]:
    """Canonical text of every element at a path, in order."""
    found = t.cast("list[t.Any]", parse(t.cast(str, xml)).xpath(path))
    return [
        etree.canonicalize(etree.tostring(element, with_tail=False, encoding="unicode"), strip_text=True)
        for element in found
    ]


def values(element: t.Any, table: row.Table, where: str = "") -> t.Iterator[tuple[str, str]]:
    """Each value in a document, with the field it is of; those of lists' entries too."""
    for field, one in table.items():
        if isinstance(one, row.Items):
            for entry in one.elements(element):
                yield where + field + "[]", one.name(entry)
                yield from values(entry, one.table, f"{where}{field}[].")
        elif one.read(element) is not None:
            yield where + field, str(one.read(element))


def seen(xml: str | None, table: row.Table) -> collections.Counter[tuple[str, str]]:
    """How often each field has each value in a document."""
    if xml is None:
        return collections.Counter()
    root = fields_domain.spelt_out(parse(xml))
    elements = root.findall("devices/graphics") if table is fields_graphics.GRAPHICS else [root]
    return collections.Counter(found for element in elements for found in values(element, table))


def fields(table: row.Table, where: str = "") -> t.Iterator[str]:
    """Every field of a table and of its lists' entries."""
    for field, one in table.items():
        if isinstance(one, row.Items):
            yield where + field + "[]"
            yield from fields(one.table, f"{where}{field}[].")
        else:
            yield where + field


@functools.cache
def written(table: str) -> set[str]:
    """Every row that some case gives another value."""
    cases = [case for case in [*CASES, *RECORDS] if case.text("after.xml")]
    changed = [
        seen(case.text("after.xml"), TABLES[table]) - seen(case.text("found.xml"), TABLES[table]) for case in cases
    ]
    return {field for each in changed for field, _value in each}


TABLES: dict[str, row.Table] = {
    "DOMAIN": fields_domain.DOMAIN,
    "GRAPHICS": fields_graphics.GRAPHICS,
    "RECORD": fields_record.RECORD,
}


@pytest.mark.parametrize("table", TABLES)
def test_every_row_is_exercised(table: str) -> None:
    """A new row needs a case: make one, or let one say it."""
    missing = sorted(set(fields(TABLES[table])) - written(table))
    assert not missing, (
        f"no golden case writes {', '.join(missing)} of {table}; add it to a wanted.yml, then: make golden CASE=name "
        "REGENERATE=1"
    )
