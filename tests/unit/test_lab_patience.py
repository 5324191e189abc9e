"""How long tests wait, where the kernel does not tell how busy the machine is."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.lab.corral_lab import patience


def test_a_wait_does_not_end_because_the_pressure_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pressure = tmp_path / "cpu"
    pressure.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=2000000000\n")
    monkeypatch.setattr(patience, "_PRESSURE", pressure)
    wait, over = patience.Patience(60), patience.Patience(0)
    pressure.unlink()
    assert 59 < wait.left_s <= 60 and not wait.is_over and over.is_over
