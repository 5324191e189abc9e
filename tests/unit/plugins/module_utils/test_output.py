"""What may be shown: URLs without secrets, text without what a terminal obeys, `xml` without passwords."""

from __future__ import annotations

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.output import (
    printable,
    secrets,
    some_of,
    without_secrets,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.fields_domain import SHAPE
from ansible_collections.corral.virt.plugins.module_utils._xml import overlay
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

URLS = {
    "https://mirror.example.org:8443/a.qcow2": "https://mirror.example.org:8443/a.qcow2",
    "https://user:S3CRET@h/a.qcow2": "https://h/a.qcow2",
    "https://S3CRET@h/a.qcow2": "https://h/a.qcow2",
    "https://user:S3CRET@S3CRET/S3CRET@h:80/a.qcow2": "https://h:80/a.qcow2",
    "HTTPS://h/a.qcow2?X-Amz-Signature=S3CRET&X-Amz-Date=1#S3CRET": "HTTPS://h/a.qcow2",
    "sha256:https://user:S3CRET@h/SUMS?S3CRET": "sha256:https://h/SUMS",
    "cannot reach http://u:S3CRET@h/a and http://h/b?S3CRET now": "cannot reach http://h/a and http://h/b now",
    "qemu+ssh://root:S3CRET@h/system": "qemu+ssh://h/system",
    "qemu+ssh://root@h/system?keyfile=/root/key": "qemu+ssh://root@h/system?keyfile=/root/key",
}


@pytest.mark.parametrize(("url", "shown"), URLS.items())
def test_no_secret_of_an_url_is_shown(url: str, shown: str) -> None:
    assert without_secrets(url) == shown
    hidden = url
    for secret in sorted(secrets({"options": [url, 1, None]}), key=len, reverse=True):
        hidden = hidden.replace(secret, "") if secret else hidden
    assert "S3CRET" not in hidden


def test_a_secret_is_hidden_also_where_it_stands_decoded() -> None:
    assert {"p@ss", "a b"} <= set(secrets("https://u:p%40ss@h/a?token=a%20b"))


def test_nothing_that_a_terminal_obeys_is_shown() -> None:
    for code in (*range(32), *range(0x7F, 0xA0), 0x2028, 0x202E, 0x2066, 0xDC80):
        assert printable(chr(code)).isprintable(), hex(code)
    assert printable("Fenêtre\xa0日本 \N{WOMAN}\u200d\N{ROCKET}") == "Fenêtre\xa0日本 \N{WOMAN}\u200d\N{ROCKET}"
    assert printable({"a\x1b": ["b\n\tc\x9b", ("d\x7f", 1, None, True)]}, keep="\n\t") == {
        r"a\x1b": ["b\n\tc\\x9b", [r"d\x7f", 1, None, True]]
    }


PIECES = {
    "<devices><graphics type='vnc' passwd='S3CRET' passwdValidTo='2030-01-01T00:00:00'/></devices>": "type=vnc passwd=(hidden)",
    "<devices><hostdev mode='subsystem'><auth><secret type='iscsi' usage='S3CRET'/></auth></hostdev></devices>": (
        "mode=subsystem"
    ),
    "<os><initenv name='DB_PASSWORD'>S3CRET</initenv></os>": "name=DB_PASSWORD",
    "<x><arg value='secret,id=a,data=S3CRET,format=raw'/></x>": "value=secret,id=a,data=(hidden),format=raw",
    "<x><env name='ACCESS_TOKEN' value='S3CRET'/></x>": "name=ACCESS_TOKEN value=(hidden)",
    "<x><entry name='opt/a'>io.systemd.credential:login=S3CRET</entry></x>": "name=opt/a",
    "<x><cookie name='session'>S3CRET</cookie></x>": "name=session",
    "<x><source protocol='https' query='S3CRET'/></x>": "protocol=https query=(hidden)",
    "<os><cmdline>console=ttyS0 password=S3CRET quiet</cmdline></os>": "console=ttyS0 password=(hidden) quiet",
}


@pytest.mark.parametrize(("piece", "shown"), PIECES.items())
def test_no_secret_of_xml_is_in_a_change(piece: str, shown: str) -> None:
    """Neither a new one nor the one that was there."""
    xml = f"<domain>{piece}</domain>"
    assert "S3CRET" in "".join(overlay.secrets(xml))
    root = parse("<domain><devices/><os><a/></os><x><a/></x></domain>")
    result = str(overlay.merge(root, xml, SHAPE))
    assert "S3CRET" not in result and shown in result
    assert overlay.merge(root, xml, SHAPE) == []
    parent = parse(xml)[0].tag
    if parent != "devices":
        result = str(overlay.merge(root, xml.replace("S3CRET", "an0ther"), SHAPE))
        assert result != "[]" and "S3CRET" not in result and "an0ther" not in result


def test_what_is_no_xml_holds_no_secret() -> None:
    assert list(overlay.secrets("<domain")) == []


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a, b"),
        (["a", "b", "c"], "a, b and 1 more"),
        (list("abcde"), "a, b and 3 more"),
    ],
)
def test_of_many_names_the_first_are_shown(names: list[str], shown: str) -> None:
    assert some_of(names, 2) == shown
