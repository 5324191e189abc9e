"""The log of a job, read in parts while it grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.corral.virt.roles.console.files.corral_console import jobs


def told(job: jobs.Job, since: int = 0) -> list[str]:
    """All that can be read from there on."""
    found = job.log(since)
    return [*found["lines"], *told(job, found["next"])] if found["lines"] else []


def test_a_line_is_told_once_and_when_it_is_whole(tmp_path: Path) -> None:
    job, log = jobs.Job(tmp_path, {}, state="running"), tmp_path / "log"
    assert job.log(0) == {"lines": [], "next": 0, "ended": False}
    log.write_text("one\ntw")
    assert job.log(0) == {"lines": ["one"], "next": 4, "ended": False}
    assert job.log(4) == {"lines": [], "next": 4, "ended": False}
    log.write_text("one\ntwö\nthree")
    assert job.log(4) == {"lines": ["twö"], "next": 9, "ended": False}
    job.state = "failed"
    assert job.log(9) == {"lines": ["three"], "next": 14, "ended": True}, "nobody will end the last line"
    assert job.log(14) == {"lines": [], "next": 14, "ended": True}
    assert job.log(99)["lines"] == []


@pytest.mark.parametrize("state", ["running", "succeeded"])
def test_a_long_log_is_told_in_parts(state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_LOG_BYTES", 10)
    lines = [f"line {number}" for number in range(20)]
    (tmp_path / "log").write_text("\n".join([*lines, "x" * 25, ""]))
    found = told(jobs.Job(tmp_path, {}, state=state))
    assert found[:20] == lines and "".join(found[20:]) == "x" * 25
