"""Documentation that is made from what it is about."""

from __future__ import annotations

import pytest

from ansible_collections.corral.virt.tests.tools import catalogue_table, live_table
from ansible_collections.corral.virt.tests.tools.guide_table import Table


@pytest.mark.parametrize("table", [live_table.TABLE, catalogue_table.TABLE], ids=lambda table: table.tool)
def test_a_table_is_as_what_it_is_made_from(table: Table) -> None:
    text = table.guide.read_text()
    assert table.text() in text, f"make it anew: PYTHONPATH=.cache python tests/tools/{table.tool}.py --write"
    assert table.written(text) == text
