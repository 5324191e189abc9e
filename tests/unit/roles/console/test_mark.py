"""Whether a host is in maintenance, and when its certificates end, as its relay tells."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.roles.console.files import console_relay
from ansible_collections.corral.virt.roles.console.files.corral_console import mark
from ansible_collections.corral.virt.roles.console.files.corral_console.__main__ import OneLine


def says(text: str) -> list[str]:
    return [sys.executable, "-c", f"import sys; print({text!r}, end='')"]


def test_a_mark_is_its_reason() -> None:
    text = 'ok\n{"maintenance": {"reason": "new fan", "since": "x"}, "certificates": {}}'
    nothing: dict[str, t.Any] = {"certificates": {}, "fencing": None, "protected": {}}  # an earlier relay tells no more
    assert mark.read(says(text)) == {"maintenance": "new fan", **nothing}
    assert mark.read(says('ok\n{"maintenance": null, "certificates": {}}'))["maintenance"] is None


def test_only_certificates_that_are_known_are_told() -> None:
    text = 'ok\n{"maintenance": null, "certificates": {"QEMU client": 5, "<b>": 1, "QEMU server": null}}'
    assert mark.read(says(text))["certificates"] == {"QEMU server": None, "QEMU client": 5}


@pytest.mark.parametrize("text", ["", "error: no", "ok\n", "ok\n[]", 'ok\n{"maintenance": null}'])
def test_anything_else_is_not_known(text: str) -> None:
    with pytest.raises(mark.Unknown):
        mark.read(says(text))
    with pytest.raises(mark.Unknown):
        mark.read(["/does/not/exist"])


def test_what_a_host_says_begins_no_line_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    """Such as one of the audit."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine("%(message)s"))
    forged = 'no\n{"audit": "login", "user": "alice"}\x1b[2J'
    handler.handle(logging.makeLogRecord({"msg": "cannot read a host: %s", "args": (forged,)}))
    assert capsys.readouterr().err == 'cannot read a host: no\\x0a{"audit": "login", "user": "alice"}\\x1b[2J\n'


@pytest.mark.parametrize("where", ["stdout", "stderr"])
def test_a_relay_that_writes_without_end_is_not_read_to_the_end(where: str) -> None:
    endless = f"import sys\nwhile True: sys.{where}.write('x' * 100000)"
    started = time.monotonic()
    with pytest.raises(mark.Unknown) as found:
        mark.read([sys.executable, "-c", endless if where == "stdout" else f"import os; os.close(1)\n{endless}"])
    assert len(str(found.value)) <= 1000 and time.monotonic() - started < 15


@pytest.mark.parametrize("value", ["-1", "1e400", '"soon"', "[]", "999999999999999", "1.5"])
def test_the_end_of_a_certificate_is_a_time(value: str) -> None:
    with pytest.raises(mark.Unknown):
        mark.read(says(f'ok\n{{"maintenance": null, "certificates": {{"QEMU client": {value}}}}}'))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a host."""
    for name in ("MARK", "PROTECTED", "FENCING"):
        monkeypatch.setattr(console_relay, name, tmp_path / name.lower())
    places = {name: tmp_path / f"{name}.pem" for name in console_relay.CERTIFICATES}
    monkeypatch.setattr(console_relay, "CERTIFICATES", places)
    return tmp_path


def told(capfdbinary: pytest.CaptureFixture[bytes]) -> dict[str, t.Any]:
    """What the relay says, without a ticket, and the web process understands."""
    console_relay.connect(mark.REQUEST)
    return mark.read(says(capfdbinary.readouterr().out.decode()))


def test_the_relay_tells_it_without_a_ticket(host: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert told(capfdbinary) == {"maintenance": None, "certificates": {}, "fencing": None, "protected": {}}
    (host / "mark").write_text('{"reason": "x"}')
    assert told(capfdbinary)["maintenance"] == "x"


def test_the_relay_tells_what_protects_guests(host: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Not which members there are: who views a host may not view them."""
    assert host / "protected" == console_relay.PROTECTED
    devices = {"hyper2": {"ok": True, "says": "on", "why": ""}, "hyper3": {"ok": False, "says": "", "why": "silent"}}
    (host / "fencing").write_text(json.dumps({"node": "hyper1", "tested": "2026-11-30T07:00:00Z", "devices": devices}))
    (host / "protected").write_text(json.dumps({"u": {"problem": "its disk is on ext4", "resource": ""}}))
    found = told(capfdbinary)
    assert found["fencing"] == {"tested": "2026-11-30T07:00:00Z", "ok": 1, "of": 2}
    unknown = {"directory": "", "owner": "", "resource": "", "history": []}
    assert found["protected"] == {"u": {**unknown, "problem": "its disk is on ext4"}}


@pytest.mark.parametrize("what", ["protected", "fencing"])
@pytest.mark.parametrize("text", ["[1]", '"x"', '{"u": 5}', '{"devices": []}', '{"u": {"history": [1]}}'])
def test_what_is_no_protection_is_not_known(what: str, text: str) -> None:
    with pytest.raises(mark.Unknown):
        mark.read(says(f'ok\n{{"maintenance": null, "certificates": {{}}, "{what}": {text}}}'))


def test_the_relay_tells_when_certificates_end(host: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=x", "-days", "3"]
    subprocess.run([*command, "-keyout", "/dev/null", "-out", str(host / "QEMU server.pem")], check=True)
    (host / "QEMU client.pem").write_text("none")
    found = told(capfdbinary)["certificates"]
    assert abs(found["QEMU server"] - time.time() - 3 * 86400) < 60
    assert found == {"QEMU server": found["QEMU server"], "QEMU client": None}
