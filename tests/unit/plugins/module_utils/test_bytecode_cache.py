"""Compiled code that a host keeps."""

from __future__ import annotations

import builtins
import importlib.util
import os
import sys
import traceback
import types
import typing as t
import zipfile
import zipimport
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core import bytecode_cache

PLACE = "ansible_collections/corral/virt/plugins/module_utils"
NAME = "ansible_collections.corral.virt.plugins.module_utils"


class Host:
    """Archives that Ansible sends, a new one in each run, and what is compiled."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.kept, self.compiled = folder, folder / "kept", [""]
        self.kept.mkdir()
        compiles = builtins.compile

        def noted(source: str, name: str, *words: t.Any, **more: t.Any) -> t.Any:
            self.compiled.append(name)
            return compiles(source, name, *words, **more)

        monkeypatch.setattr(builtins, "compile", noted)

    def load(self, source: str, *, name: str = "_thing", folder: str | None = "") -> types.ModuleType:
        """Import a file as a module does."""
        archive = self.folder / f"payload{len(list(self.folder.iterdir()))}.zip"
        with zipfile.ZipFile(archive, "w") as made:
            made.writestr(f"{PLACE}/{name}.py", source)
            made.writestr(f"{PLACE}/_folder/__init__.py", "")
        self.compiled.clear()
        finder = bytecode_cache.Finder(str(self.kept) if folder == "" else folder)
        spec = finder.find_spec(f"{NAME}.{name}", [str(self.folder), f"{archive}/{PLACE}"])
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_a_source_is_compiled_once(host: Host) -> None:
    assert host.load("A = 1\n").A == 1
    assert host.compiled == [f"{PLACE}/_thing.py"]
    assert host.load("A = 1\n").A == 1
    assert host.compiled == []


def test_another_source_is_compiled_anew(host: Host) -> None:
    host.load("A = 1\n")
    assert host.load("A = 2\n").A == 2
    assert [path.name for path in host.kept.iterdir()] == [f"{NAME}._thing"]


@pytest.mark.parametrize("harm", ["cut off", "empty", "changed", "of another Python"])
def test_what_is_kept_is_whole_or_not_used(host: Host, harm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host.load("A = 1\n")
    [kept] = host.kept.iterdir()
    content = kept.read_bytes()
    if harm == "of another Python":
        monkeypatch.setattr(importlib.util, "MAGIC_NUMBER", b"other")
    else:
        kept.write_bytes({"cut off": content[:-5], "empty": b"", "changed": content[:-1] + b"!"}[harm])
    assert host.load("A = 1\n").A == 1
    assert host.compiled


def test_a_file_that_cannot_be_kept_is_loaded(host: Host) -> None:
    host.kept.rmdir()
    assert host.load("A = 1\n").A == 1
    assert host.load("A = 1\n", folder=None).A == 1


def test_a_write_that_fails_leaves_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_names: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert host.load("A = 1\n").A == 1
    assert not list(host.kept.iterdir())


def test_a_folder_of_the_archive_is_a_package(host: Host) -> None:
    host.load("A = 1\n")
    archive = next(host.folder.glob("*.zip"))
    spec = bytecode_cache.Finder(None).find_spec(f"{NAME}._folder", [f"{archive}/{PLACE}"])
    assert spec
    assert spec.submodule_search_locations == [f"{archive}/{PLACE}/_folder"]


@pytest.mark.parametrize("name", ["json.tool", f"{NAME}._missing"])
def test_all_else_is_left_to_python(host: Host, name: str) -> None:
    host.load("A = 1\n")
    archive = next(host.folder.glob("*.zip"))
    assert bytecode_cache.Finder(None).find_spec(name, [f"{archive}/{PLACE}"]) is None
    assert bytecode_cache.Finder(None).find_spec(name, None) is None


def test_a_traceback_shows_the_source(host: Host) -> None:
    host.load("def wrong():\n    raise ValueError('wrong')  # here\n")
    module = host.load("def wrong():\n    raise ValueError('wrong')  # here\n")
    assert not host.compiled
    with pytest.raises(ValueError, match="wrong") as caught:
        module.wrong()
    assert "raise ValueError('wrong')  # here" in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("make", "kept"),
    [
        (lambda _path: None, True),
        (lambda path: path.mkdir(0o700), True),
        (lambda path: (path.mkdir(), path.chmod(0o777)), False),
        (lambda path: path.symlink_to("/tmp"), False),
        (lambda path: path.write_text(""), False),
    ],
    ids=["missing", "private", "open to others", "link", "file"],
)
def test_only_a_private_folder_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: t.Callable[[Path], object], kept: bool
) -> None:
    monkeypatch.setattr(bytecode_cache, "_PRIVATE", str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [])
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid)
    make(tmp_path / "compiled")
    bytecode_cache.keep()
    assert not sys.meta_path, "this file is from no archive"
    if os.getuid() == 0:
        with zipfile.ZipFile(tmp_path / "payload.zip", "w") as made:
            made.writestr("compiled.py", "")
        monkeypatch.setattr(bytecode_cache, "__loader__", zipimport.zipimporter(str(tmp_path / "payload.zip")))
        bytecode_cache.keep()
        [finder] = sys.meta_path
        assert vars(finder) == {"_folder": str(tmp_path / "compiled") if kept else None}
