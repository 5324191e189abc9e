"""Renewing the console's pins, with packages that a stand-in for npm and pip makes."""

from __future__ import annotations

import hashlib
import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.roles.console.files import pack_console
from ansible_collections.corral.virt.tests.tools import console_pins

LIBRARY = {"package": "@some/thing", "version": "1.0.0", "integrity": "sha512-x", "files": {"a": "b"}}
WHEEL = {"package": "some-thing", "version": "1.0", "file": "x", "sha256": "x", "python": ["3.11", "3.12"]}


def npm(*_command: str, folder: Path) -> str:
    (folder / "some-thing-2.1.0.tgz").write_bytes(b"new")
    return "some-thing-2.1.0.tgz\n"


def pip(*command: str, folder: Path) -> str:
    version = {"3.11": "2.9.1", "3.12": "2.10.0"}[command[command.index("--python-version") + 1]]
    (folder / f"some_thing-{version}-py3-none-any.whl").write_bytes(version.encode())
    return ""


def test_a_library_gets_its_newest_version_and_checksum() -> None:
    found = console_pins.newest_library(LIBRARY, npm)
    assert (found["version"], found["files"]) == ("2.1.0", {"a": "b"}) and found["integrity"].startswith("sha512-")


def test_a_wheel_is_one_that_all_its_pythons_can_use() -> None:
    found = console_pins.newest_wheel(WHEEL, pip)
    assert (found["version"], found["file"]) == ("2.9.1", "some_thing-2.9.1-py3-none-any.whl")
    assert found["sha256"] == hashlib.sha256(b"2.9.1").hexdigest()


def test_pins_are_written_when_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console_pins, "FILES", tmp_path)
    newest: dict[str, t.Any] = {"libraries.json": lambda pin: {**pin, "version": "9"}, "wheels.json": lambda pin: pin}
    monkeypatch.setattr(console_pins, "KINDS", newest)
    for name, pin in (("libraries.json", LIBRARY), ("wheels.json", WHEEL)):
        (tmp_path / name).write_text(json.dumps([pin]))
    assert console_pins.main([]) == 1 and json.loads((tmp_path / "libraries.json").read_text()) == [LIBRARY]
    assert console_pins.main(["--write"]) == 0
    assert json.loads((tmp_path / "libraries.json").read_text())[0]["version"] == "9"
    assert capsys.readouterr().out == "libraries.json: @some/thing 1.0.0 -> 9\n" * 2


def wheel(folder: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = {**WHEEL, "file": "thing.whl", "sha256": hashlib.sha256(b"right").hexdigest()}
    (folder / "thing.whl").write_bytes(content)
    monkeypatch.setattr(json, "loads", lambda _text: [pin])


def test_a_wheel_with_other_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(tmp_path, b"right", monkeypatch)
    assert b"thing.whl" in pack_console.wheels(tmp_path, fetch=False)
    wheel(tmp_path, b"wrong", monkeypatch)
    with pytest.raises(pack_console.Problem, match=r"is not some-thing==1\.0"):
        pack_console.wheels(tmp_path, fetch=True)
    (tmp_path / "thing.whl").unlink()
    with pytest.raises(pack_console.Problem, match=r"pip download .* some-thing==1\.0"):
        pack_console.wheels(tmp_path, fetch=False)


def test_a_project_is_packed_without_what_nobody_needs(tmp_path: Path) -> None:
    for name in ("ansible.cfg", "inventory/hosts.yml", ".git/config", "other/x", "inventory/__pycache__/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    packed = pack_console.project(tmp_path, ["ansible.cfg", "inventory", "missing"])
    assert packed == pack_console.project(tmp_path, ["ansible.cfg", "inventory"])
    for inside, there in (("hosts.yml", True), ("config", False), ("other", False), ("__pycache__", False)):
        assert (inside.encode() in packed) == there
    with pytest.raises(pack_console.Problem, match="set console_project"):
        pack_console.project(tmp_path, ["missing"])
