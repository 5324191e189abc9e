"""Each option by itself, with each kind of value: libvirt takes what comes of it and keeps it, or it is refused
before.
"""

from __future__ import annotations

import re
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.tests.unit.plugins.module_utils import option_samples

pytestmark = pytest.mark.skipif(
    not option_samples.SCHEMA.exists(),
    reason=f"no {option_samples.SCHEMA}: install libvirt0 (Debian) or libvirt-libs (Fedora)",
)

Fields = t.Mapping[str, t.Any]
EACH = {
    f"{table} {option}".strip(): (table, fields)
    for table, rows in option_samples.TABLES.items()
    for option, fields in option_samples.each(rows)
}


GROUPS = sorted({re.split(r"[.\[]", name)[0] for name in EACH})
# The cells of a guest must hold all of its vcpus and memory, which are more than an entry can bring along.
NEVER_ALONE = {"numa.cells[].cpus"}


def group(name: str) -> str:
    """The options that belong together with one."""
    return re.split(r"[.\[]", name)[0]


def converges(options: Fields, base: str) -> bool:
    """Whether the options are taken; what they lead to must be what libvirt keeps, and what they ask for."""
    try:
        guest = option_samples.understood(options)
        after = option_samples.grafted(guest, option_samples.bases()[base])
    except BadInput:
        return False
    assert not option_samples.grafted(guest, option_samples.stored(after.xml)).changes, (
        f"a second time changes something: {options} on {base}"
    )
    return True


@pytest.mark.parametrize(
    ("options", "place", "expected"),
    [
        ({"watchdog": {"model": "itco"}}, ("watchdog", "model"), ["itco"]),
        ({"watchdog": None}, ("watchdog", "model"), []),
        ({"watchdog": {"model": None}}, ("watchdog", "model"), []),
        ({"disks": [{"name": "a", "io": "x"}, {"name": "b"}, {"name": "c", "io": "y"}]}, ("disks", "io"), ["x", "y"]),
        ({"disks": [{"network": {"hosts": [{"name": "h"}]}}]}, ("disks", "network", "hosts", "name"), ["h"]),
        ({"tags": ["a", "b"]}, ("tags",), ["a", "b"]),
        ({"disks": []}, ("disks", "io"), []),
    ],
)
def test_what_is_said_at_a_place(options: dict[str, t.Any], place: tuple[str, ...], expected: list[t.Any]) -> None:
    assert option_samples.said_at(options, place) == expected


def sayings(name: str, *, alone: bool) -> list[Fields]:
    """Options of a guest with each value of one of them; with what that needs beside it, or alone."""
    table, fields = EACH[name]
    rows = option_samples.TABLES[table]
    full = (
        fields
        if alone
        else [option_samples.furnished(rows, one) if table else option_samples.whole_guest(one) for one in fields]
    )
    options = [option_samples.saying(rows, one) for one in full]
    return [{table: one} if table else one for one in options if not option_samples.too_new(one)]


@pytest.mark.parametrize("of", GROUPS)
def test_libvirt_keeps_what_is_said(of: str) -> None:
    nowhere = []
    for name in filter(lambda name: group(name) == of, EACH):
        known = sayings(name, alone=False)
        taken = [
            converges(one, base)
            for one in known
            for base in (("new", "bare", "desk") if one is known[-1] else ("new",))
        ]
        if known and not any(taken):
            nowhere.append(name)
    assert not nowhere, "what is said of these is taken nowhere"


@pytest.mark.parametrize("of", GROUPS)
def test_an_option_alone_is_taken_or_refused(of: str) -> None:
    """Without what it needs beside it, which may be there, or not; what needs nothing is taken."""
    refused = []
    for name in filter(lambda name: group(name) == of, EACH):
        alone = sayings(name, alone=True)
        taken = [converges(one, base) for one in alone[:1] for base in ("bare", "desk")]
        if alone and not any(taken) and alone == sayings(name, alone=False) and name not in NEVER_ALONE:
            refused += [] if any(converges(one, base) for one in alone[1:] for base in ("bare", "desk")) else [name]
    assert not refused, "these need nothing beside them, and are refused"
