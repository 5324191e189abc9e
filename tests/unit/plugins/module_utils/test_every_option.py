"""Each option by itself, with each kind of value: libvirt takes what comes of it and keeps it, or it is refused before."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.tests.unit.plugins.module_utils import said

pytestmark = pytest.mark.skipif(not said.SCHEMA.exists(), reason=f"no {said.SCHEMA}: install libvirt0 (Debian) or libvirt-libs (Fedora)")

Fields = t.Mapping[str, t.Any]
EACH = {f"{table} {option}".strip(): (table, fields) for table, rows in said.TABLES.items() for option, fields in said.each(rows)}


def converges(options: Fields, base: str) -> bool:
    """Whether the options are taken; what they lead to must be what libvirt keeps, and what they ask for."""
    try:
        guest = said.understood(options)
        after = said.grafted(guest, said.bases()[base])
    except BadInput:
        return False
    assert not said.grafted(guest, said.stored(after.xml)).changes, "a second time changes something"
    return True


@pytest.mark.parametrize("name", EACH)
def test_libvirt_keeps_what_is_said(name: str) -> None:
    table, fields = EACH[name]
    rows = said.TABLES[table]
    options = [said.saying(rows, said.furnished(rows, one) if table else said.whole_guest(one)) for one in fields]
    known = [{table: one} if table else one for one in options if not said.too_new(one)]
    taken = [converges(one, base) for one in known for base in (("new", "bare", "desk") if one is known[-1] else ("new",))]
    assert not known or any(taken), "what is said of it is taken nowhere"


@pytest.mark.parametrize("name", EACH)
def test_an_option_alone_is_taken_or_refused(name: str) -> None:
    """Without what it needs beside it, which may be there, or not."""
    table, fields = EACH[name]
    alone = said.saying(said.TABLES[table], fields[0])
    for base in ("bare", "desk") if not said.too_new(alone) else ():
        converges({table: alone} if table else alone, base)
