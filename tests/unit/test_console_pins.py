"""Renewing the console's pins, with packages that a stand-in for npm and pip makes."""

from __future__ import annotations

import hashlib
import json
import typing as t
import zipfile
from pathlib import Path

import pytest

from ansible_collections.corral.virt.roles.console.files import pack_console
from ansible_collections.corral.virt.roles.console.files.wheels import Problem
from ansible_collections.corral.virt.tests.tools import console_pins

LIBRARY = {"package": "@some/thing", "version": "1.0.0", "integrity": "sha512-x", "files": {"a": "b"}}


def npm(*_command: str, folder: Path) -> str:
    (folder / "some-thing-2.1.0.tgz").write_bytes(b"new")
    return "some-thing-2.1.0.tgz\n"


def pip(*command: str, folder: Path) -> str:
    """A wheel for each Python and machine, with one that it requires; or a source package."""
    if "--no-binary" in command:
        (folder / "libvirt_python-12.8.0.tar.gz").write_bytes(b"source")
        return ""
    python = command[command.index("--python-version") + 1]
    machine = "aarch64" if "manylinux2014_aarch64" in command else "x86_64"
    short = python.replace(".", "")
    version = {"3.11": "2.9.1"}.get(python, "2.10.0")
    wheel(folder / f"some_thing-{version}-cp{short}-cp{short}-manylinux2014_{machine}.whl", "Requires-Dist: other")
    wheel(folder / "other-1.0-py3-none-any.whl", "Requires-Dist: newer; python_version >= '3.15'")
    return ""


def wheel(path: Path, *metadata: str) -> None:
    name, version = path.name.split("-")[:2]
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *metadata, ""]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(f"{name}-{version}.dist-info/METADATA"), "\n".join(lines))


def test_a_library_gets_its_newest_version_and_checksum() -> None:
    (found,) = console_pins.newest_libraries([LIBRARY], npm)
    assert (found["version"], found["files"]) == ("2.1.0", {"a": "b"}) and found["integrity"].startswith("sha512-")


def test_each_python_and_machine_gets_its_newest_wheels() -> None:
    found = {(pin["package"], pin["version"]): pin for pin in console_pins.newest_wheels([], pip)}
    assert found["some-thing", "2.9.1"]["python"] == ["3.11"]
    assert found["some-thing", "2.10.0"]["python"] == ["3.12", "3.13", "3.14"]
    assert len(found["some-thing", "2.10.0"]["files"]) == 6, "for two machines each"
    assert list(found["other", "1.0"]["files"]) == ["other-1.0-py3-none-any.whl"]
    assert found["libvirt-python", "12.8.0"]["files"] == {
        "libvirt_python-12.8.0.tar.gz": hashlib.sha256(b"source").hexdigest()
    }


def test_what_pip_forgot_for_another_python_is_noticed(tmp_path: Path) -> None:
    wheel(tmp_path / "thing-1.0-py3-none-any.whl", "Requires-Dist: newer; python_version >= '3.13'")
    console_pins._check_requirements([tmp_path / "thing-1.0-py3-none-any.whl"], "3.12")
    with pytest.raises(SystemExit, match=r"thing-1\.0.* requires newer.* with Python 3\.13: add it to WHEELS"):
        console_pins._check_requirements([tmp_path / "thing-1.0-py3-none-any.whl"], "3.13")


def test_pins_are_written_when_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console_pins, "FILES", tmp_path)
    newest: dict[str, t.Any] = {
        "libraries.json": lambda pins: [{**pin, "version": "9"} for pin in pins],
        "wheels.json": lambda pins: pins,
    }
    monkeypatch.setattr(console_pins, "KINDS", newest)
    for name, pin in (("libraries.json", LIBRARY), ("wheels.json", {**LIBRARY, "python": ["3.11"]})):
        (tmp_path / name).write_text(json.dumps([pin]))
    assert console_pins.main([]) == 1 and json.loads((tmp_path / "libraries.json").read_text()) == [LIBRARY]
    assert console_pins.main(["--write"]) == 0
    assert json.loads((tmp_path / "libraries.json").read_text())[0]["version"] == "9"
    assert capsys.readouterr().out == "libraries.json: @some/thing 1.0.0 -> 9\n" * 2


def test_a_project_is_packed_without_what_nobody_needs(tmp_path: Path) -> None:
    for name in ("ansible.cfg", "inventory/hosts.yml", ".git/config", "other/x", "inventory/__pycache__/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    packed = pack_console.project(tmp_path, ["ansible.cfg", "inventory", "missing"])
    assert packed == pack_console.project(tmp_path, ["ansible.cfg", "inventory"])
    for inside, there in (("hosts.yml", True), ("config", False), ("other", False), ("__pycache__", False)):
        assert (inside.encode() in packed) == there
    with pytest.raises(Problem, match="set console_project"):
        pack_console.project(tmp_path, ["missing"])
