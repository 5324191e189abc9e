"""The mark of a host in maintenance, as the role writes it and as others may have left it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._host import files_maintenance


def test_no_mark(tmp_path: Path) -> None:
    assert files_maintenance.read(str(tmp_path / "none.json")) is None


@pytest.mark.parametrize("had", [{}, {"bridges": ["br0"], "pools": ["default"]}])
def test_a_mark(tmp_path: Path, had: dict[str, list[str]]) -> None:
    path = tmp_path / "mark.json"
    output = {"reason": "new fan", "since": "2026-11-21T16:00:00Z"}
    path.write_text(json.dumps({**output, **had, "more": 1}))
    more = {"by": "", "boot": "", "id": output["since"], "bridges": [], "pools": [], "stopped": []}
    assert files_maintenance.read(str(path)) == {**output, **more, **had}


@pytest.mark.parametrize(
    "text", ["", "half {", "[]", "{}", "[" * 10_000, "\x00", '{"reason": "", "since": "", "pools": 1}']
)
def test_a_mark_that_nobody_can_read_still_counts(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mark.json"
    path.write_text(text)
    found = files_maintenance.read(str(path))
    assert found and "fix or remove it" in found["reason"]
