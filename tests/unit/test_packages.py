"""System packages are installed without a word, unless that fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.tools import packages


@pytest.mark.parametrize("code", [0, 100])
def test_what_apt_prints_is_news_only_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], code: int
) -> None:
    for name, lines in {
        "dpkg-query": "",
        "apt-get": f'echo "(Reading database ... 5%"; [ "$1" = update ] || exit {code}',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{lines}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert packages.main({"lab"}) == code
    out, err = capfd.readouterr()
    assert out.startswith("Installing packages: ") and out.count("\n") == 1
    assert ("Reading database" in err and "ended with 100" in err) == bool(code) and bool(err) == bool(code)
