"""Whether a host is in maintenance, as its relay tells."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ansible_collections.corral.virt.roles.console.files import console_relay
from ansible_collections.corral.virt.roles.console.files.corral_console import mark


def says(text: str) -> list[str]:
    return [sys.executable, "-c", f"import sys; print({text!r}, end='')"]


def test_a_mark_is_its_reason() -> None:
    assert mark.read(says('ok\n{"reason": "new fan", "since": "x"}')) == "new fan"
    assert mark.read(says("ok\nnull")) is None


@pytest.mark.parametrize("text", ["", "error: no", "ok\n", "ok\n[]", 'ok\n{"since": 1}'])
def test_anything_else_is_not_known(text: str) -> None:
    with pytest.raises(mark.Unknown):
        mark.read(says(text))
    with pytest.raises(mark.Unknown):
        mark.read(["/does/not/exist"])


def test_the_relay_tells_it_without_a_ticket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(console_relay, "MARK", tmp_path / "mark")
    console_relay.connect(mark.REQUEST)
    (tmp_path / "mark").write_text('{"reason": "x"}')
    console_relay.connect(mark.REQUEST)
    assert capfdbinary.readouterr().out == b'ok\nnullok\n{"reason": "x"}'
