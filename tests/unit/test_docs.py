"""Documentation is as what it is about."""

from __future__ import annotations

import pytest
import yaml

from ansible_collections.corral.virt.tests.tools import arguments_table, catalogue_table, commands_table, live_table, payload
from ansible_collections.corral.virt.tests.tools.guide_table import Table


@pytest.mark.parametrize(
    "table", [live_table.TABLE, catalogue_table.TABLE, commands_table.TABLE, arguments_table.TABLE], ids=lambda table: table.tool
)
def test_a_table_is_as_what_it_is_made_from(table: Table) -> None:
    text = table.guide.read_text()
    assert table.text() in text, f"make it anew: PYTHONPATH=.cache python tests/tools/{table.tool}.py --write"
    assert table.written(text) == text


def test_defaults_of_the_group_reach_all_that_take_a_uri() -> None:
    """And nobody else: who does not know it refuses it."""
    taking = {path.stem for path in payload.modules() if "URI_OPTION" in path.read_text()}
    groups = yaml.safe_load((payload.ROOT / "meta/runtime.yml").read_text())["action_groups"]
    assert set(groups["virt"]) == taking
