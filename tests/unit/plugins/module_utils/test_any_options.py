"""Whatever is said together: it is refused, or libvirt takes what comes of it, keeps it, and nothing is left to do."""

from __future__ import annotations

import collections
import copy
import re
import typing as t

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._domain.fields_disk import DISKS
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import PLACES
from ansible_collections.corral.virt.plugins.module_utils._xml.kind import Kind
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Items, Many, Row, Table
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse
from ansible_collections.corral.virt.tests.unit.plugins.module_utils import option_samples
from ansible_collections.corral.virt.tests.unit.plugins.module_utils.examples import examples

Fields = t.Dict[str, t.Any]  # noqa: UP006  (Python 3.9)
ODD = [
    "",
    "..",
    "../../x",
    "<x/>",
    "a b",
    "a\nb",
    "\x00",
    "-1",
    -1,
    0,
    2**40,
    "x" * 300,
    "&lt;",
    True,
    "512MiB",
    "\u202e",
    "0x1",
    "1,1",
]


def values(kind: Kind, odd: bool) -> st.SearchStrategy[t.Any]:
    """Values of a kind, or what is most likely none."""
    if odd:
        return st.sampled_from(ODD)
    if kind.ends:
        low, high = kind.ends
        return st.integers(low, min(high, low + 9)) | st.sampled_from(option_samples.samples(kind))
    if kind.form:
        letters = st.characters(min_codepoint=32, max_codepoint=0x17F, exclude_categories=("Cc", "Zl", "Zp"))
        return st.sampled_from(option_samples.samples(kind)) | st.from_regex(
            re.compile(kind.form, re.ASCII), fullmatch=True, alphabet=letters
        )
    return st.sampled_from(option_samples.samples(kind))


def known(row: Items) -> list[Fields]:
    """The identities of entries that guests already have."""
    found = [
        row.identity(row.name(entry)) for xml in option_samples.bases().values() for entry in row.elements(parse(xml))
    ]
    return [identity for place, identity in enumerate(found) if identity not in found[:place]]


KNOWN = {field: known(row) for field, row in option_samples.TABLES[""].items() if isinstance(row, Items)}


@st.composite
def fields_of(draw: st.DrawFn, table: Table, where: str, most: int) -> Fields:
    """A few fields of a table."""
    names: list[str] = draw(st.lists(st.sampled_from(sorted(table)), max_size=most, unique=True)) if table else []
    return {name: draw(value_of(table[name], where + name)) for name in names}


def value_of(row: Row, place: str) -> st.SearchStrategy[t.Any]:
    """What can be said in one row."""
    if isinstance(row, Items):
        return st.lists(entry_of(row, place + "[]."), min_size=1, max_size=2)
    some = st.integers(0, 39).flatmap(lambda one: values(row.kind, odd=not one))
    return st.lists(some, max_size=3) if isinstance(row, Many) else some


def in_one_place(disk: Fields) -> Fields:
    """A disk whose bytes are in one place: the first that is said; on the network by one protocol."""
    table, result = DISKS.table, [field for field in disk if field.partition(".")[0] in PLACES]
    protocols = [
        set(table[field].valid_with.get("network.protocol", ())) for field in result if field.startswith("network.")
    ]
    one = {field for field in result if field.partition(".")[0] == result[0].partition(".")[0]}
    fits = not protocols or ("network.protocol" not in result and bool(set.intersection(*protocols)))
    return {
        field: value
        for field, value in disk.items()
        if field not in result or (field in one and (fits or field == result[0]))
    }


@st.composite
def entry_of(draw: st.DrawFn, row: Items, where: str) -> Fields:
    """An entry, mostly with what belongs together; of those that are there, or new."""
    entry: Fields = draw(fields_of({name: one for name, one in row.table.items() if name not in row.keys}, where, 3))
    there = KNOWN.get(where[:-3], [])
    if there:
        entry.update(draw(st.sampled_from([{}, *there])))
    if draw(st.integers(0, 9)):
        entry = option_samples.furnished(row.table, in_one_place(entry) if where == "disks[]." else entry, where, row)
    for key, kind in row.keys.items():
        entry.setdefault(key, draw(values(kind, odd=False)))
    return {**entry, "state": "absent"} if not draw(st.integers(0, 9)) else entry


@st.composite
def guests(draw: st.DrawFn) -> Fields:
    """Options of a guest: a few things of one or two groups."""
    table = option_samples.TABLES[""]
    groups = sorted({name.partition(".")[0] for name in table})
    fields: Fields = {}
    for group in draw(st.lists(st.sampled_from(groups), min_size=1, max_size=2, unique=True)):
        fields.update(
            draw(fields_of({name: one for name, one in table.items() if name.partition(".")[0] == group}, "", 4))
        )
    options = option_samples.saying(table, option_samples.whole_guest(fields) if draw(st.integers(0, 9)) else fields)
    if not draw(st.integers(0, 4)):
        display = option_samples.TABLES["graphics"]
        options["graphics"] = option_samples.saying(
            display, option_samples.furnished(display, draw(fields_of(display, "graphics.", 3)))
        )
    return options


def outcomes(options: Fields) -> t.Iterator[str]:
    """What comes of it on each base: taken or refused; all else is a failure."""
    try:
        guest = option_samples.understood(options)
    except BadInput as error:
        assert all(problem.isprintable() for problem in error.problems)
        yield from ["refused"] * len(option_samples.bases())
        return
    for base, xml in option_samples.bases().items():
        try:
            after = option_samples.grafted(guest, xml)
        except BadInput as error:
            assert all(problem.isprintable() for problem in error.problems)
            yield "refused"
            continue
        kept = option_samples.stored(after.xml)
        for outcome in (after.xml, kept):
            assert not option_samples.grafted(guest, outcome).changes, f"on {base} a second time changes something"
        yield "taken"


@pytest.mark.skipif(
    not option_samples.SCHEMA.exists(),
    reason=f"no {option_samples.SCHEMA}: install libvirt0 (Debian) or libvirt-libs (Fedora)",
)
def test_whatever_is_said() -> None:
    count: collections.Counter[str] = collections.Counter()

    @examples(150, suppress_health_check=list(HealthCheck))
    @given(guests())
    def run(options: Fields) -> None:
        if not option_samples.too_new(options):
            count.update(outcomes(copy.deepcopy(options)))

    run()
    assert count["taken"] > count["refused"], f"what is made up is mostly refused, so that little is tested: {count}"
