"""Files of variables: all are written, or none."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._system import configuration
from ansible_collections.corral.virt.plugins.plugin_utils._guests import variable_files

GATE = Gate(check_mode=False)


def test_check_mode_shows_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a/b.yml"
    [diff] = variable_files.write({str(path): "x: 1\n"}, replace=False, gate=Gate(check_mode=True))
    assert diff == {"before": "", "after": "x: 1\n", "before_header": str(path), "after_header": str(path)}
    assert not path.parent.exists()


def test_what_is_the_same_is_no_change(tmp_path: Path) -> None:
    path = tmp_path / "b.yml"
    assert variable_files.write({str(path): "x: 1\n"}, replace=False, gate=GATE)
    assert variable_files.write({str(path): "x: 1\n"}, replace=False, gate=GATE) == []


def test_another_content_stays_unless_it_is_replaced(tmp_path: Path) -> None:
    old, new = tmp_path / "old.yml", tmp_path / "new.yml"
    old.write_text("mine\n")
    wanted = {str(new): "x: 1\n", str(old): "x: 2\n"}
    with pytest.raises(Refused, match="it exists with other content"):
        variable_files.write(wanted, replace=False, gate=GATE)
    assert old.read_text() == "mine\n" and not new.exists()
    assert len(variable_files.write(wanted, replace=True, gate=GATE)) == 2
    assert old.read_text() == "x: 2\n"


def test_when_one_cannot_be_written_the_others_are_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, last = (tmp_path / name for name in ("old.yml", "new.yml", "last.yml"))
    old.write_text("mine\n")
    write = configuration.write

    def full(path: str, text: str, **options: t.Any) -> None:
        if path == str(last):
            raise Failed("no space left on device")
        write(path, text, **options)

    monkeypatch.setattr(configuration, "write", full)
    with pytest.raises(Failed, match="no space left"):
        variable_files.write({str(old): "x\n", str(new): "y\n", str(last): "z\n"}, replace=True, gate=GATE)
    assert old.read_text() == "mine\n" and not new.exists() and not last.exists()


def test_a_directory_or_a_device_is_not_replaced(tmp_path: Path) -> None:
    for place, why in ((str(tmp_path), "a directory; name a file in it"), ("/dev/null", "not a file")):
        with pytest.raises(Refused, match=why):
            variable_files.write({place: "x"}, replace=True, gate=GATE)
