"""Documentation that is made from what it is about."""

from __future__ import annotations

from ansible_collections.corral.virt.tests.tools import catalogue_table, live_table


def test_the_table_of_live_changes_is_as_the_policy_decides() -> None:
    text = live_table.GUIDE.read_text()
    assert live_table.table() in text, "make it anew: python tests/tools/live_table.py --write"
    assert live_table.written(text) == text


def test_the_table_of_images_is_as_the_catalogue() -> None:
    text = catalogue_table.GUIDE.read_text()
    assert catalogue_table.table() in text, "make it anew: python tests/tools/catalogue_table.py --write"
    assert catalogue_table.written(text) == text
