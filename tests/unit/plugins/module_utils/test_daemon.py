"""What a daemon is told when files of its identity change, and whose connections end."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._tls import files_daemon
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import Trust

# As virt-admin 9.0 and 11.3 print it.
LIST = """ Id   Transport   Connected since
--------------------------------------------
 81   unix        2026-11-22 20:08:20+0000
 83   tls         2026-11-22 20:08:28+0000
 84   tls         2026-11-22 20:08:29+0000
 85   tls         2026-11-22 20:08:30+0000

"""
INFO = """id             : {0}
connection_time: 2026-11-22 20:08:28+0000
transport      : tls
readonly       : no
sock_addr      : [::ffff:10.86.4.11]:42126
tls_x509_dname : O=corral.virt,OU=libvirt,CN={1}

"""
HOLDERS = {"83": "hyper1", "84": "hyper3"}
GONE = {"e3": "O=corral.virt,OU=libvirt,CN=hyper3"}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What virt-admin was told; client 85 goes before it is looked at."""
    commands: list[str] = []

    def admin(_daemon: str, *words: str) -> str:
        commands.append(" ".join(words))
        if words[0] == "client-info" and words[2] not in HOLDERS:
            raise Failed("client not found")
        return {"client-list": LIST, "client-info": INFO.format(words[-1], HOLDERS.get(words[-1]))}.get(words[0], "")

    monkeypatch.setattr(files_daemon, "_admin", admin)
    return commands


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A set is in place."""
    (tmp_path / "libvirt/corral").mkdir(parents=True)
    (tmp_path / "libvirt/corral/current").symlink_to("5f")
    return str(tmp_path)


def changes(commands: t.Iterable[str]) -> list[str]:
    return [command for command in commands if not command.startswith(("client-list", "client-info"))]


def test_it_reads_its_files_and_parts_with_whom_was_revoked_since(told: list[str], root: str) -> None:
    files_daemon.remember(root, Trust(revoked={"e1": "O=corral.virt,OU=libvirt,CN=hyper1"}))
    files_daemon.load("libvirtd", root, Trust(revoked={"e1": "O=corral.virt,OU=libvirt,CN=hyper1", **GONE}))
    assert changes(told) == ["server-update-tls libvirtd", "client-disconnect libvirtd 84"], (
        "hyper1 has come back with another certificate"
    )
    assert files_daemon.is_loaded(root)
    told.clear()
    files_daemon.load("libvirtd", root, Trust(revoked=GONE))
    assert told == ["server-update-tls libvirtd"], "nobody was revoked since"


def test_what_is_not_written_down_is_read_again(told: list[str], root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not files_daemon.is_loaded(root)
    with monkeypatch.context() as killed:
        killed.setattr(files_daemon, "remember", lambda *_words: None)
        files_daemon.load("libvirtd", root, Trust(revoked=GONE))
    assert not files_daemon.is_loaded(root)
    files_daemon.load("libvirtd", root, Trust(revoked=GONE))
    assert changes(told) == ["server-update-tls libvirtd", "client-disconnect libvirtd 84"] * 2
    (Path(root) / "libvirt/corral/loaded").write_text("damaged")
    assert not files_daemon.is_loaded(root)
    (Path(root) / "libvirt/corral/loaded").write_text(json.dumps({"set": "60"}))
    assert not files_daemon.is_loaded(root)


def test_a_daemon_that_cannot_is_named_with_the_command() -> None:
    told = (
        r"cannot let no-such-daemon read its certificates: virt-admin -c no-such-daemon:///system [^\n]*[^;]; fix that"
    )
    with pytest.raises(Failed, match=told):
        files_daemon.load("no-such-daemon", "/nowhere", Trust())


def test_only_who_listens_has_read_something(monkeypatch: pytest.MonkeyPatch) -> None:
    listens = (
        "   1: 00000000:408A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0"
    )
    monkeypatch.setattr(files_daemon, "_lines", lambda path: [listens] if path.endswith("tcp") else [])
    assert files_daemon.serving("virtproxyd") is None
    monkeypatch.setattr(
        files_daemon, "_lines", lambda path: [listens.replace("408A", "4082")] if path.endswith("tcp6") else []
    )
    assert files_daemon.serving("virtproxyd") == "virtproxyd"
    monkeypatch.setattr(files_daemon, "_lines", lambda _path: [listens.replace("408A", "4082").replace(" 0A ", " 01 ")])
    assert files_daemon.serving("virtproxyd") is None, "that is a connection to another host"
