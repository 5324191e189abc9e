"""When a job has no home directory to keep something in."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils._controller import home_files

DEFAULT = home_files.CA_DIR


def lacks(home: str | None, monkeypatch: pytest.MonkeyPatch, path: str = DEFAULT) -> bool:
    """Of that home, for a path as Ansible expands it."""
    if home is None:
        monkeypatch.delenv("HOME")
    else:
        monkeypatch.setenv("HOME", home)
    return home_files.lacks(str(Path(path).expanduser()), DEFAULT)


def test_a_home_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not lacks(str(tmp_path), monkeypatch)
    assert not lacks(str(tmp_path / "to be made"), monkeypatch)


@pytest.mark.parametrize("home", ["", "/dev/null"])
def test_none(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lacks(home, monkeypatch)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_one_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o500)
    assert lacks(str(tmp_path), monkeypatch)


def test_without_the_variable_the_account_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user has a number only."""

    def nobody(_uid: int) -> pwd.struct_passwd:
        raise KeyError(_uid)

    account = pwd.getpwuid(os.getuid())
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: pwd.struct_passwd([*account[:5], str(tmp_path), account[6]]))
    assert not lacks(None, monkeypatch)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.chdir(tmp_path)
    assert home_files.lacks(f"{tmp_path}/{DEFAULT}", DEFAULT)


def test_what_the_user_chose_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not lacks("/dev/null", monkeypatch, "~/clouds/blue/ca")
    assert not lacks("/dev/null", monkeypatch, "/nowhere/ca")
