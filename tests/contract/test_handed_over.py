"""The end of a guest's process, and whose decision it was: with real processes, and a log as libvirt writes it."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._guest import files_qemu

WHY = "2026-01-01 00:00:00.000+0000: shutting down, reason={}\n"


@pytest.fixture
def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """Its process; it was moved away from here once before."""
    monkeypatch.setattr(files_qemu, "PID_FILE", f"{tmp_path}/{{}}.pid")
    monkeypatch.setattr(files_qemu, "_LOG", f"{tmp_path}/{{}}.log")
    with subprocess.Popen(["sleep", "600"]) as process:
        (tmp_path / "web1.pid").write_text(f"{process.pid}\n")
        (tmp_path / "web1.log").write_text(WHY.format("migrated"))
        yield process
        process.kill()


@pytest.mark.parametrize(("reason", "away"), [("migrated", True), ("crashed", False), ("", False)])
def test_what_libvirt_wrote_decides(guest: subprocess.Popen[bytes], tmp_path: Path, reason: str, away: bool) -> None:
    def end() -> None:
        with (tmp_path / "web1.log").open("a") as log:
            log.write(WHY.format(reason) if reason else "")
        guest.terminate()
        guest.wait()

    threading.Timer(0.5, end).start()
    assert files_qemu.handed_over("web1", lambda: False) is away


def test_a_guest_that_lives_is_not_handed_over(guest: subprocess.Popen[bytes]) -> None:
    asked = iter([False, False, True])
    assert files_qemu.handed_over("web1", lambda: next(asked)) is False
    assert guest.poll() is None and next(asked, None) is None, "it asked until it was over"


@pytest.mark.parametrize("lacks", ["web1.pid", "web1.log"])
def test_nobody_knows(guest: subprocess.Popen[bytes], tmp_path: Path, lacks: str) -> None:
    (tmp_path / lacks).unlink()
    guest.terminate()
    assert files_qemu.handed_over("web1", lambda: False) is False


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, (True, [])),
        ('#dynamic_ownership = 0\n#shared_filesystems = [ "/a" ]\n', (True, [])),
        ('dynamic_ownership = 0\nshared_filesystems = [\n  "/srv/a",\n  "/srv/b"\n]\n', (False, ["/srv/a", "/srv/b"])),
    ],
)
def test_what_libvirt_does_to_files_is_read_where_it_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, told: tuple[bool, list[str]]
) -> None:
    monkeypatch.setattr(files_qemu, "_CONF", f"{tmp_path}/qemu.conf")
    if text is not None:
        (tmp_path / "qemu.conf").write_text(text)
    assert files_qemu.settings() == told
