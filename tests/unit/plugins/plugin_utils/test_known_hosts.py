"""Which lines of a known_hosts file change for a guest; ssh-keygen, where it is, is the judge of what they mean."""

from __future__ import annotations

import shutil
import subprocess
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils._inventory.known_hosts import KeyedNames, edited

A, B, RSA = "ssh-ed25519 AAAA", "ssh-ed25519 BBBB", "ssh-rsa CCCC"
# Of the name web1.
HASHED = "|1|c2FsdHNhbHRzYWx0c2FsdHNhbHQ=|auZxSkHKkwkEF/6WAlRAwhwHkwg="
OTHERS = (
    f"# web1 {A}\n\n@cert-authority web1 {A}\n@revoked web1 {B}\ndb1 {A} a comment\n*.example.org "
    f"{A}\nweb1\n|1|x|y {A}\n"
)

CASES: list[tuple[str, str, dict[str, t.Any], str]] = [
    ("new", "", {"keys": {"web1": A}}, f"web1 {A}\n"),
    ("beside others", OTHERS, {"keys": {"web1": A}}, f"{OTHERS}web1 {A}\n"),
    ("there", f"web1 {A} its comment\n", {"keys": {"web1": A}}, f"web1 {A} its comment\n"),
    ("there with others", f"web1,192.0.2.1 {A}\n", {"keys": {"web1": A}}, f"web1,192.0.2.1 {A}\n"),
    ("there twice", f"web1 {A}\nweb1 {A}\nweb1 {B}\n", {"keys": {"web1": A}}, f"web1 {A}\nweb1 {A}\n"),
    ("in other letters", f"WEB1 {A}\n", {"keys": {"web1": A}}, f"WEB1 {A}\n"),
    ("replaced", f"web1 {A}\ndb1 {A}\n", {"keys": {"web1": B}}, f"db1 {A}\nweb1 {B}\n"),
    ("replaced with others", f"web1,192.0.2.1 {A} c\n", {"keys": {"web1": B}}, f"192.0.2.1 {A}\nweb1 {B}\n"),
    ("another kind", f"web1 {RSA}\n", {"keys": {"web1": A}}, f"web1 {RSA}\nweb1 {A}\n"),
    ("two", f"web1 {A}\n", {"keys": {"web1": B, "web2": A}}, f"web1 {B}\nweb2 {A}\n"),
    ("without a last line end", f"db1 {A}", {"keys": {"web1": B}}, f"db1 {A}\nweb1 {B}\n"),
    ("gone", f"web1 {A}\nweb1 {RSA}\n{OTHERS}", {"absent": ["web1"]}, OTHERS),
    ("gone with others", f"web1,192.0.2.1 {A}\n", {"absent": ["web1"]}, f"192.0.2.1 {A}\n"),
    ("gone, hashed", f"{HASHED} {A}\n{OTHERS}", {"absent": ["web1"]}, OTHERS),
    ("nobody gone", OTHERS, {"absent": ["web2", "example.org"]}, OTHERS),
    ("renamed", f"web1 {A}\nweb1 {RSA}\n{OTHERS}", {"renamed": {"web1": "web2"}}, f"web2 {A}\nweb2 {RSA}\n{OTHERS}"),
    ("renamed with others", f"web1,192.0.2.1 {A}\n", {"renamed": {"web1": "web2"}}, f"web2,192.0.2.1 {A}\n"),
    ("renamed, hashed", f"{HASHED} {A}\n", {"renamed": {"web1": "web2"}}, f"web2 {A}\n"),
    ("renamed to one that was", f"web2 {B}\nweb1 {A}\n", {"renamed": {"web1": "web2"}}, f"web2 {A}\n"),
    ("renamed without a key", f"web2 {B}\n", {"renamed": {"web1": "web2"}}, f"web2 {B}\n"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "wanted", "after"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_lines(before: str, wanted: dict[str, t.Any], after: str) -> None:
    every = {"keys": {}, "absent": [], "renamed": {}, **wanted}
    assert edited(before, **every) == after
    assert edited(after, **every) == after


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs ssh-keygen")
def test_a_hashed_name_is_the_one_that_ssh_means(tmp_path: Path) -> None:
    path, key = tmp_path / "known_hosts", tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key], check=True)
    public = key.with_suffix(".pub").read_text().strip()
    path.write_text(f"web1 {public}\ndb1 {public}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", path], check=True, capture_output=True)
    path.write_text(edited(path.read_text(), keys={}, absent=["web1"], renamed={}))

    def known(name: str) -> bool:
        return subprocess.run(["ssh-keygen", "-F", name, "-f", path], check=False, capture_output=True).returncode == 0

    assert not known("web1") and known("db1")


def test_whom_a_text_names() -> None:
    names = KeyedNames(f"{OTHERS}{HASHED} {A}\nDB2,192.0.2.2 {B}\n")
    assert [name in names for name in ("db1", "web1", "WEB1", "db2", "192.0.2.2")] == [True] * 5
    assert "web1" not in KeyedNames(OTHERS)  # a comment and lines of other meaning name nobody
    assert "db3" not in names and "" not in KeyedNames("")
