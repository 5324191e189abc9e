"""Files of the host's configuration: replaced at once, and readable by nobody new meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._system import command, configuration


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Permissions of each file when its first byte is on disk."""
    noted: list[int] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        if not Path(f"/proc/self/fd/{descriptor}").is_dir():
            noted.append(os.fstat(descriptor).st_mode & 0o777)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return noted


def test_nobody_else_reads_a_file_while_it_is_written(tmp_path: Path, modes: list[int]) -> None:
    """A file keeps its permissions; a link that lies where the new one is written is not followed."""
    path, victim = tmp_path / "rules.v4", tmp_path / "victim"
    path.write_text("old")
    path.chmod(0o640)
    victim.write_text("kept")
    (tmp_path / "rules.v4.corral-new").symlink_to(victim)
    configuration.write(str(path), "new")
    configuration.write(str(tmp_path / "fresh/firewall.nft"), "new")
    assert (modes, mode(path), path.read_text()) == ([0o640, 0o644], 0o640, "new")
    assert victim.read_text() == "kept"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["fresh", "rules.v4", "victim"]


def test_a_private_file_is_private_whatever_it_was(tmp_path: Path, modes: list[int]) -> None:
    path = tmp_path / "50-wifi.yaml"
    path.write_text("old")
    path.chmod(0o644)
    configuration.write(str(path), "password: secret", mode=0o600)
    configuration.write(str(tmp_path / "new"), "password: secret", mode=0o600)
    assert (modes, mode(path), path.read_text()) == ([0o600, 0o600], 0o600, "password: secret")


def test_a_link_leads_to_the_file_that_is_replaced(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    configuration.write(str(link), "new")
    assert link.is_symlink() and real.read_text() == "new"


@pytest.mark.parametrize("target", ["/dev/null", "nowhere"])
def test_a_link_to_no_file_is_replaced_itself(target: str, tmp_path: Path) -> None:
    """As systemd masks a file."""
    link = tmp_path / "link"
    link.symlink_to(target)
    configuration.write(str(link), "new")
    assert not link.is_symlink() and (link.read_text(), mode(link)) == ("new", 0o644)


def test_what_is_not_accepted_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "rules"
    path.write_text("old")

    def refuse(aside: str) -> None:
        assert Path(aside).read_text() == "new"
        raise Failed("no")

    with pytest.raises(Failed, match=r"^no$"):
        configuration.write(str(path), "new", check=refuse)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_strangers_bytes_stay(tmp_path: Path) -> None:
    path = tmp_path / "interfaces"
    path.write_bytes(b"# caf\xe9\n")
    configuration.write(str(path), configuration.read(str(path)) + "more\n")
    assert path.read_bytes() == b"# caf\xe9\nmore\n"


def test_what_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    assert configuration.read(str(tmp_path / "none")) == ""
    with pytest.raises(Failed, match=f"cannot read {tmp_path}: Is a directory"):
        configuration.read(str(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(Failed, match=r"cannot write .*/file/below: "):
        configuration.write(str(tmp_path / "file/below"), "")


def test_a_program_answers_or_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert command.run("sh", "-c", "cat; printf $LC_ALL", stdin="a ") == "a C"
    for words, reason in (
        (("sh", "-c", "echo out; echo err >&2; exit 3"), "failed: err$"),
        (("sh", "-c", "echo out; exit 3"), "failed: out$"),
        (("sh", "-c", "exit 3"), "failed: it exited with 3"),
        (("corral-none",), "failed: program corral-none is not installed; install it"),
    ):
        with pytest.raises(Failed, match=reason):
            command.run(*words)
    assert command.answer("sh", "-c", "echo no; exit 3") == "no\n"
    assert command.answer("corral-none") == ""
    monkeypatch.setattr(command, "TIMEOUT_S", 0.1)
    with pytest.raises(Failed, match="it did not end within"):
        command.run("sleep", "5")
    assert command.answer("sleep", "5") == ""


def test_programs_of_the_system_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert command.run("sh", "-c", "echo $PATH").strip() == "/nowhere:/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.mark.parametrize(("printed", "expected"), [("active\n", True), ("inactive\n", False), ("", False)])
def test_a_unit_is_active(printed: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "enabled\n" if printed == "active\n" else printed
    answers = {"is-active": printed, "is-enabled": words}
    monkeypatch.setattr(command, "answer", lambda _program, verb, _unit: answers[verb])
    assert command.active("x") is command.enabled("x") is expected
