"""Which packs of modules a run takes from an earlier one, and which it keeps."""

from __future__ import annotations

import itertools
import os
import typing as t
from pathlib import Path

import pytest
from ansible import constants
from ansible.plugins.loader import module_utils_loader

from ansible_collections.corral.virt.plugins.module_utils._errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._files import private
from ansible_collections.corral.virt.plugins.plugin_utils import _packed

SOURCE = "plugins/module_utils/_units.py"


class Runs:
    """Runs of Ansible, each with a directory of its own, that pack modules of a small collection."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.collection, self.private, self.own = place / "collection", place / "private", place / "own"
        self._monkeypatch, self._numbers, self._place = monkeypatch, itertools.count(), place
        for name in ("meta/runtime.yml", "plugins/modules/virt_pool.py", SOURCE):
            (self.collection / name).parent.mkdir(parents=True, exist_ok=True)
            (self.collection / name).write_text("first\n")
        monkeypatch.setattr(_packed, "_COLLECTION", str(self.collection))
        monkeypatch.setattr(private, "place", lambda: str(self.private))
        core = module_utils_loader._get_paths(subdirs=False)
        monkeypatch.setattr(module_utils_loader, "_get_paths", lambda **_which: [str(self.own), *core])

    def packs(self, module: str = "corral.virt.virt_pool", meanwhile: t.Callable[[], object] = lambda: None) -> bool:
        """Whether a new run packs a module, for which it reads the sources before `meanwhile`."""
        run = self._place / f"run{next(self._numbers)}"
        self._monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(run))
        name = f"ansible_collections.corral.virt.plugins.modules.{module.rpartition('.')[2]}-ZIP_DEFLATED-none"
        packed, content = run / "ansiballz_cache" / name, (self.collection / SOURCE).read_text()
        with _packed.kept(module):
            found = packed.exists()
            if found:
                assert packed.read_text() == content
            else:
                packed.parent.mkdir(parents=True, exist_ok=True)
                packed.write_text(content)
            meanwhile()
        return not found

    def kept(self) -> list[str]:
        """Names of what is kept, without their digests."""
        return sorted(path.name.rpartition("-")[0] for path in (self.private / "packed").glob("*"))


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """None has run yet."""
    return Runs(tmp_path, monkeypatch)


def test_a_module_is_packed_once(runs: Runs) -> None:
    assert runs.packs()
    assert not runs.packs()
    assert runs.packs("corral.virt.virt_domain")
    assert not runs.packs()
    assert runs.kept() == ["virt_domain", "virt_pool"]


@pytest.mark.parametrize("name", ["meta/runtime.yml", "plugins/modules/virt_pool.py", SOURCE, "plugins/modules/new.py"])
def test_what_changed_is_packed_again(name: str, runs: Runs) -> None:
    runs.packs()
    (runs.collection / name).write_text("other\n")  # of the same size
    assert runs.packs()
    assert not runs.packs()
    assert runs.kept() == ["virt_pool"]


def test_another_ansible_packs_again(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.packs()
    monkeypatch.setattr(_packed, "__version__", "2.99.0")
    assert runs.packs()


def test_another_compression_packs_again(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.packs()
    monkeypatch.setattr(constants, "DEFAULT_MODULE_COMPRESSION", "ZIP_STORED")
    assert runs.packs()


def test_a_pack_whose_sources_change_meanwhile_is_not_kept(runs: Runs) -> None:
    runs.packs(meanwhile=lambda: (runs.collection / SOURCE).write_text("other\n"))
    (runs.collection / SOURCE).write_text("first\n")
    assert runs.packs()


def test_a_run_that_has_it_asks_nobody(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = Path(_packed._in_this_run("corral.virt.virt_pool"))
    monkeypatch.setattr(os.path, "exists", lambda path: path == str(packed))
    monkeypatch.setattr(_packed, "_place", None)
    with _packed.kept("corral.virt.virt_pool"):
        pass


@pytest.mark.parametrize("module", ["ansible.builtin.ping", "virt_pool", "ansible.legacy.async_wrapper"])
def test_modules_of_others_are_not_kept(module: str, runs: Runs) -> None:
    assert runs.packs(module)
    assert runs.packs(module)


def test_module_utils_of_the_user_may_be_packed(runs: Runs) -> None:
    runs.own.mkdir()
    runs.packs()
    assert not runs.packs()
    (runs.own / "basic.py").touch()
    assert runs.packs()
    assert runs.packs()


def test_a_folder_that_others_reach_keeps_nothing(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.packs()

    def refuse(path: str, **_more: object) -> None:
        raise Refused(f"{path} belongs to somebody else")

    monkeypatch.setattr(private, "make", refuse)
    assert runs.packs()


@pytest.mark.parametrize("error", [KeyError("no account"), OSError("read-only")])
def test_a_user_without_a_place_packs_each_time(error: Exception, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise error

    monkeypatch.setattr(private, "folder", fail)
    assert runs.packs()
    assert runs.packs()


def test_a_disk_that_is_full_keeps_nothing(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_path: str, to: str) -> None:
        Path(to).write_text("half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(_packed.shutil, "copyfile", fail)
        assert runs.packs()
        assert not runs.kept()
    assert runs.packs()
    assert not runs.packs()
    assert runs.kept() == ["virt_pool"]


def test_what_is_no_pack_stays(runs: Runs) -> None:
    runs.packs()
    (runs.private / "packed/virt_pool-folder").mkdir()
    (runs.collection / SOURCE).write_text("other\n")
    assert runs.packs()
    assert not runs.packs()


def test_module_utils_of_the_user_that_are_no_folder_are_not_packed(runs: Runs) -> None:
    runs.own.touch()
    runs.packs()
    assert not runs.packs()
