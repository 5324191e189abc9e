"""What gets its name at the end: a power cut leaves what was there before, or all of the new file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, NotMade
from ansible_collections.corral.virt.plugins.module_utils._seed import files_seed
from ansible_collections.corral.virt.plugins.module_utils._system import private
from ansible_collections.corral.virt.roles.console.files.corral_console import durable as console


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What reaches the disk, and what is renamed, in order."""
    seen: list[tuple[str, str]] = []
    fsync, replace, rename = os.fsync, os.replace, os.rename

    def synced(descriptor: int) -> None:
        seen.append(("fsync", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        fsync(descriptor)

    def renamed(path: str, to: str) -> None:
        seen.append(("rename", Path(to).name))
        (replace if os.path.lexists(to) else rename)(path, to)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    monkeypatch.setattr(os, "rename", renamed)
    return seen


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the files are."""
    folder = tmp_path / "pool"
    folder.mkdir()
    return folder


@pytest.fixture
def _customizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `virt-customize` that has nothing to do."""
    program = tmp_path / "bin/virt-customize"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(private, "folder", lambda: str(tmp_path))


@pytest.mark.usefixtures("_customizer")
@pytest.mark.parametrize("replace", [True, False])
def test_a_customized_disk_is_on_disk_before_it_has_its_name(
    folder: Path, calls: list[tuple[str, str]], *, replace: bool
) -> None:
    (folder / "unseeded").write_text("whole")
    files_seed.customize(str(folder / "unseeded"), [], to=str(folder / "disk"), replace=replace)
    named = [("rename", "disk")] if replace else []  # where nothing is replaced, by renameat2
    assert calls == [("fsync", "unseeded"), *named, ("fsync", "pool")]
    assert (folder / "disk").read_text() == "whole"


@pytest.mark.usefixtures("_customizer")
def test_a_customized_disk_replaces_only_what_it_may(folder: Path) -> None:
    (folder / "unseeded").write_text("whole")
    (folder / "disk").write_text("somebody's")
    with pytest.raises(NotMade, match=r"cannot customize disk .*/disk: a file with this name appeared in the meantime"):
        files_seed.customize(str(folder / "unseeded"), [], to=str(folder / "disk"))
    assert (folder / "disk").read_text() == "somebody's"
    files_seed.customize(str(folder / "unseeded"), [], to=str(folder / "disk"), replace=True)
    assert (folder / "disk").read_text() == "whole"


@pytest.mark.usefixtures("_customizer")
def test_a_disk_that_cannot_get_its_name_is_told(folder: Path) -> None:
    with pytest.raises(Failed, match=r"cannot customize disk .*/disk: No such file or directory; .* run again"):
        files_seed.customize(str(folder / "unseeded"), [], to=str(folder / "disk"))


@pytest.mark.parametrize("lasting", [True, False])
def test_a_file_of_the_console_lasts_where_it_must(
    folder: Path, calls: list[tuple[str, str]], *, lasting: bool
) -> None:
    console.replace(folder / "request.json", b"{}", lasting=lasting)
    expected = [("fsync", "request.json.new"), ("rename", "request.json"), ("fsync", "pool")]
    assert calls == [call for call in expected if lasting or call[0] == "rename"]
