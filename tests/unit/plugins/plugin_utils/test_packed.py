"""Which packs of modules a run takes from an earlier one, and which it keeps."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import typing as t
from pathlib import Path

import pytest
from ansible import constants
from ansible.plugins.loader import module_utils_loader

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._system import durable, private
from ansible_collections.corral.virt.plugins.plugin_utils._controller import packed_modules

SOURCE, MODULE = "plugins/module_utils/_core/units.py", "corral.virt.virt_pool"
Do = t.Callable[[], object]


def nothing() -> None:
    """What happens meanwhile."""


class Runs:
    """Runs of Ansible, each with a directory of its own, that pack modules of a small collection."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.collection, self.private, self.own, self.core = (
            place / name for name in ("virt", "private", "own", "core")
        )
        self.monkeypatch, self._numbers, self._place = monkeypatch, itertools.count(), place
        own = ("meta/runtime.yml", "plugins/modules/virt_pool.py", SOURCE)
        of_core = ("basic.py", "config/ansible_builtin_runtime.yml", "executor/module_common.py")
        for path in (*map(self.collection.joinpath, own), *map(self.core.joinpath, of_core)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("first\n")
        monkeypatch.setattr(packed_modules, "_COLLECTION", str(self.collection))
        monkeypatch.setattr(packed_modules, "_CORE", str(self.core))
        monkeypatch.setattr(packed_modules, "core_path", [str(self.core)])
        monkeypatch.setattr(private, "place", lambda: str(self.private))
        monkeypatch.setattr(module_utils_loader, "_get_paths", self._paths)

    def _paths(self, subdirs: bool) -> list[str]:
        assert not subdirs
        return [str(self.own), str(self.core)]

    def begin(self) -> Path:
        """A new run; where its core keeps packed modules."""
        run = self._place / f"run{next(self._numbers)}"
        self.monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(run))
        return run / "ansiballz_cache"

    def packs(self, module: str = MODULE, *, before: Do = nothing, meanwhile: Do = nothing) -> bool:
        """Whether a new run packs a module; core reads its sources between `before` and `meanwhile`."""
        self.begin()
        return self.core_packs(module, before=before, meanwhile=meanwhile)

    def core_packs(self, module: str = MODULE, *, before: Do = nothing, meanwhile: Do = nothing) -> bool:
        """Whether one process of this run packs a module, as core does."""
        packed = Path(packed_modules._in_this_run(module))
        with packed_modules.kept(module):
            before()
            if packed.exists():
                assert packed.read_text() == (self.collection / SOURCE).read_text()
                return False
            packed.parent.mkdir(parents=True, exist_ok=True)
            packed.with_name(f"{packed.name}.lock").touch()
            packed.write_text((self.collection / SOURCE).read_text())
            meanwhile()
        return True

    def kept(self) -> list[Path]:
        """What is kept."""
        return sorted((self.private / "packed").glob("*"))

    def change(self, text: str = "other\n", name: str = SOURCE) -> None:
        """Another source, of the same size if nothing is said."""
        (self.collection / name).write_text(text)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """None has run yet."""
    return Runs(tmp_path, monkeypatch)


def test_a_module_is_packed_once(runs: Runs) -> None:
    assert runs.packs()
    assert not runs.packs()
    assert runs.packs("corral.virt.virt_domain")
    assert not runs.packs()
    assert [path.name.rpartition("-")[0] for path in runs.kept()] == ["virt_domain", "virt_pool"]
    assert {path.stat().st_mode & 0o777 for path in runs.kept()} == {0o600}


@pytest.mark.parametrize(
    "name",
    [
        "virt/meta/runtime.yml",
        "virt/plugins/modules/virt_pool.py",
        "virt/plugins/modules/new.py",
        f"virt/{SOURCE}",
        "core/basic.py",
        "core/config/ansible_builtin_runtime.yml",
        "core/executor/module_common.py",
    ],
)
def test_what_changed_is_packed_again(name: str, runs: Runs) -> None:
    runs.packs()
    (runs.collection.parent / name).write_text("other\n")  # of the same size
    assert runs.packs()
    assert not runs.packs()


def test_a_file_with_another_name_is_another_source(runs: Runs) -> None:
    runs.packs()
    (runs.collection / SOURCE).rename(runs.collection / "plugins/module_utils/_unity.py")
    runs.change("first\n", "plugins/module_utils/_units.pyc")
    runs.monkeypatch.setattr(sys.modules[__name__], "SOURCE", "plugins/module_utils/_unity.py")
    assert runs.packs()


def test_what_is_no_source_counts_for_nothing(runs: Runs) -> None:
    runs.packs()
    runs.change(name="plugins/module_utils/README.md")
    assert not runs.packs()


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        (packed_modules, "__version__", "2.99.0"),
        (sys, "version", "3.99"),
        (constants, "DEFAULT_MODULE_COMPRESSION", "ZIP_STORED"),
    ],
)
def test_other_programs_pack_again(where: object, name: str, value: str, runs: Runs) -> None:
    runs.packs()
    runs.monkeypatch.setattr(where, name, value)
    assert runs.packs()
    assert not runs.packs()


def test_a_pack_whose_sources_change_meanwhile_is_not_kept(runs: Runs) -> None:
    runs.packs(meanwhile=runs.change)
    runs.change("first\n")
    assert runs.packs()


def test_sources_that_change_before_core_reads_them(runs: Runs) -> None:
    runs.packs(before=runs.change)
    assert runs.packs()
    runs.change("first\n")
    assert runs.packs()


def test_only_the_first_process_of_a_run_keeps_a_pack(runs: Runs) -> None:
    """Another one gets what the first has read, whatever the sources are by then."""
    runs.begin()

    def second() -> None:
        runs.change()
        assert not runs.core_packs(before=lambda: runs.change("first\n"))
        runs.change()

    assert runs.core_packs(meanwhile=second)
    assert not runs.kept()


@pytest.mark.parametrize("left", ["", ".lock"])
def test_a_pack_that_somebody_else_begins_is_not_kept(left: str, runs: Runs) -> None:
    """Between the look at the sources and the claim, too."""
    runs.begin()
    packed = Path(packed_modules._in_this_run(MODULE))
    digest = packed_modules._digest

    def slow(name: str) -> str:
        packed.parent.mkdir(parents=True, exist_ok=True)
        packed.with_name(packed.name + left).write_text("older\n")
        return digest(name)

    runs.monkeypatch.setattr(packed_modules, "_digest", slow)
    with packed_modules.kept(MODULE):
        packed.write_text("older\n")
    assert not runs.kept()


def test_a_run_that_has_it_looks_at_no_source(runs: Runs) -> None:
    runs.packs()
    runs.monkeypatch.setattr(packed_modules, "_sources", None)
    assert not runs.core_packs()


@pytest.mark.parametrize("module", ["ansible.builtin.ping", "virt_pool", "ansible.legacy.async_wrapper"])
def test_modules_of_others_are_not_kept(module: str, runs: Runs) -> None:
    assert runs.packs(module)
    assert runs.packs(module)


def test_module_utils_of_the_user_may_be_packed(runs: Runs) -> None:
    runs.own.touch()  # core does not look there
    runs.packs()
    assert not runs.packs()
    runs.own.unlink()
    runs.own.mkdir()
    assert not runs.packs()
    (runs.own / "basic.py").touch()
    assert runs.packs()
    assert runs.packs()


def link(runs: Runs) -> None:
    """A folder elsewhere, which core reads."""
    (runs.collection / "plugins/module_utils/_xml").symlink_to(runs.collection.parent)


def pipe(runs: Runs) -> None:
    """Nobody will ever write to it."""
    os.mkfifo(runs.collection / "plugins/module_utils/pipe.py")


def shared(runs: Runs) -> None:
    """Others write there."""
    (runs.private / "packed").mkdir(parents=True)
    runs.private.chmod(0o700)
    (runs.private / "packed").chmod(0o777)


def refused(runs: Runs) -> None:
    """Somebody else's folder."""

    def refuse() -> str:
        raise Refused("it belongs to somebody else")

    runs.monkeypatch.setattr(private, "folder", refuse)


def nobody(runs: Runs) -> None:
    """A user without an account."""

    def fail() -> str:
        raise KeyError("no account")

    runs.monkeypatch.setattr(private, "place", fail)


def full(runs: Runs) -> None:
    """No room for what is kept."""

    def fail(_path: object) -> None:
        raise OSError(28, "No space left on device")

    runs.monkeypatch.setattr(durable, "fsync", fail)


@pytest.mark.parametrize("hindrance", [link, pipe, shared, refused, nobody, full])
def test_where_nothing_can_be_kept_each_run_packs(hindrance: t.Callable[[Runs], None], runs: Runs) -> None:
    hindrance(runs)
    assert runs.packs()
    assert runs.packs()
    if hindrance is not shared:
        assert not runs.kept()


def test_names_need_not_be_utf_8(runs: Runs) -> None:
    Path(os.fsdecode(bytes(runs.collection / "plugins/module_utils") + b"/a\xff.py")).touch()
    assert runs.packs()
    assert not runs.packs()


@pytest.mark.parametrize("damaged", [b"", b"\0" * 40, b"\0" * 10])
def test_a_damaged_pack_is_made_again(damaged: bytes, runs: Runs) -> None:
    runs.packs()
    runs.kept()[0].write_bytes(damaged)
    assert runs.packs()
    assert not runs.packs()


def test_a_pack_of_somebody_else_is_not_used(runs: Runs) -> None:
    runs.packs()
    user = os.geteuid()
    runs.monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    runs.monkeypatch.setattr(private, "check", lambda _path, **_more: None)
    assert runs.packs()


def test_a_link_is_not_followed(runs: Runs) -> None:
    runs.packs()
    (pack,) = runs.kept()
    pack.rename(runs.collection.parent / "elsewhere")
    pack.symlink_to(runs.collection.parent / "elsewhere")
    assert runs.packs()
    assert not runs.packs()


def test_the_packs_used_last_are_kept(runs: Runs) -> None:
    for age_s, text in enumerate("123", start=1):
        there = set(runs.kept())
        runs.change(text)
        runs.packs()
        (new,) = set(runs.kept()) - there
        os.utime(new, (age_s, age_s))
    for text, packs in (("1", False), ("4", True), ("1", False), ("3", False), ("2", True)):
        runs.change(text)
        assert runs.packs() == packs, text


def test_what_is_no_pack_is_in_nobodys_way(runs: Runs) -> None:
    for number in range(4):
        (runs.private / "packed" / f"virt_pool-{number}").mkdir(parents=True)
    runs.private.chmod(0o700)
    (runs.private / "packed").chmod(0o700)
    assert runs.packs()
    assert not runs.packs()
    shutil.rmtree(runs.private)
    assert runs.packs()
