"""The roll-over of an authority, as tables: who signs, who is trusted, when the next CA is due."""

from __future__ import annotations

import datetime

import pytest

from ansible_collections.corral.virt.plugins.module_utils._tls.plan_authority import (
    Generation,
    Holder,
    due,
    lacking,
    signer,
    trusted,
)

NOW = datetime.datetime(2026, 11, 22, tzinfo=datetime.timezone.utc)
DAY = datetime.timedelta(days=1)
YEAR = 365 * DAY
G1, G2, G3 = (Generation(f"g{number}", NOW + number * 5 * YEAR) for number in (1, 2, 3))
ENDED = Generation("g0", NOW + DAY / 2)


def holder(name: str, trusts: str, uses: str) -> Holder:
    return Holder(name, frozenset(trusts.split()), frozenset(uses.split()))


@pytest.mark.parametrize(
    ("generations", "holders", "first", "others"),
    [
        ([G1], [], "g1", []),
        ([G1, G2], [], "g2", []),  # nobody has anything: the newest, and nothing else
        # h1 itself gets the new one together with its certificates
        ([G1, G2], [holder("h1", "g1", "g1")], "g2", ["g1"]),
        ([G1, G2], [holder("h2", "g1", "g1")], "g1", ["g2"]),
        ([G1, G2], [holder("h1", "g1 g2", "g1"), holder("h2", "g1", "g1")], "g1", ["g2"]),
        ([G1, G2], [holder("h1", "g1", "g1"), holder("h2", "g1 g2", "g1")], "g2", ["g1"]),
        ([G1, G2], [holder("h1", "g1 g2", "g2"), holder("h2", "g1 g2", "g2")], "g2", []),
        ([G1, G2, G3], [holder("h2", "g1 g2", "g1")], "g2", ["g1", "g3"]),  # two roll-overs at once
        ([G1, G2], [holder("h2", "strange", "strange")], "g1", ["g2"]),
        ([ENDED, G1], [holder("h2", "g0", "g0")], "g1", []),  # no list with a CA that has ended can be loaded
        ([ENDED], [holder("h2", "g0", "g0")], "g0", []),
        ([Generation("g0", NOW + DAY), G1], [holder("h2", "g0", "g0")], "g1", []),
        ([Generation("g0", NOW + 1.5 * DAY), G1], [holder("h2", "g0", "g0")], "g0", ["g1"]),
    ],
)
def test_who_signs_for_h1_and_whom_it_trusts(
    generations: list[Generation], holders: list[Holder], first: str, others: list[str]
) -> None:
    assert signer(generations, holders, name="h1", now=NOW).digest == first
    assert trusted(generations, holders, name="h1", now=NOW) == (first, *others)


def test_who_lacks_a_ca_is_named() -> None:
    holders = [holder("h3", "g1", "g1"), holder("h1", "g1", "g1"), holder("h2", "g1 g2", "g1")]
    assert lacking(G2, holders, name="h1") == ("h3",)
    assert lacking(G2, holders, name="") == ("h1", "h3")


@pytest.mark.parametrize(
    ("generations", "is_due"),
    [
        ([], True),
        ([G1], False),
        ([Generation("g", NOW + 2 * YEAR - DAY)], True),
        ([Generation("g", NOW + 2 * YEAR)], False),
        ([Generation("g", NOW + 9 * YEAR)], False),
        ([Generation("g", NOW + DAY), G2], False),
        ([Generation("g", NOW + 9 * YEAR, shared=True)], True),
        ([Generation("g", NOW + 9 * YEAR, shared=True), G1], False),
    ],
)
def test_when_the_next_one_is_due(generations: list[Generation], is_due: bool) -> None:
    assert due(generations, now=NOW, days=YEAR) is is_due


def test_a_ca_is_shared_only_where_that_is_known() -> None:
    assert not due([Generation("g", NOW + 9 * YEAR)], now=NOW, days=YEAR)
