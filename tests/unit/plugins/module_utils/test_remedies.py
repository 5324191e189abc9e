"""What an error of the system advises fits its number, its file and its user; nobody tells root to become root."""

from __future__ import annotations

import ast
import errno
import os
import typing as t
from pathlib import Path

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._core.output import agree
from ansible_collections.corral.virt.plugins.module_utils._libvirt import connection
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import explained, remedy, remedy_of
from ansible_collections.corral.virt.tests.tools import payload

ROOT, USER = True, False
FILE = "/pool/a b.raw"

# number, root, what is advised, what is not
TABLE: list[tuple[int | None, bool, str, str]] = [
    (errno.EACCES, USER, "run as root (become: true)", "lsattr"),
    (errno.EPERM, USER, "run as root (become: true)", "lsattr"),
    (errno.EACCES, ROOT, "`lsattr -d '/pool/a b.raw' /pool`", "become"),
    (errno.EPERM, ROOT, "root_squash", "become"),
    (errno.ENOENT, ROOT, "check the path", "df"),
    (errno.ENOENT, USER, "check the path", "become"),
    (errno.ENOSPC, ROOT, "`df -h /pool`", "become"),
    (errno.ENOSPC, USER, "`df -i /pool`", "become"),
    (errno.EDQUOT, ROOT, "`quota -v`", "df"),
    (errno.EROFS, ROOT, "`findmnt -T /pool`", "become"),
    (errno.EROFS, USER, "mount its filesystem for writing", "become"),
    (errno.EIO, ROOT, "`journalctl -k` shows the kernel's errors", "df"),
    (errno.ENOTDIR, USER, "`namei -l '/pool/a b.raw'`", "become"),
    (errno.ESTALE, ROOT, "mount its filesystem again", "become"),
    (errno.ENAMETOOLONG, ROOT, "use a shorter name", "df"),
    (errno.ETIMEDOUT, ROOT, "check the server or device behind its filesystem", "become"),
    (errno.EOPNOTSUPP, ROOT, "use a filesystem that supports this", "become"),
    (errno.EBADF, ROOT, "see its filesystem (`findmnt -T /pool`)", "become"),
    (None, USER, "see its filesystem", "become"),
]


@pytest.mark.parametrize(("number", "root", "advised", "other"), TABLE)
def test_the_remedy_fits_the_error_and_the_user(number: int | None, root: bool, advised: str, other: str) -> None:
    found = remedy_of(number, FILE, root=root)
    assert advised in found and other not in found


def test_a_missing_directory_is_created_not_measured() -> None:
    assert remedy_of(errno.ENOENT, FILE, root=True, missing=True) == "create /pool, or mount its filesystem"
    assert remedy(FileNotFoundError(errno.ENOENT, "x", "/nowhere/a")) == "create /nowhere, or mount its filesystem"
    assert remedy(FileNotFoundError(errno.ENOENT, "x", "/a")) == "check the path"


def test_another_advice_is_for_a_user_only() -> None:
    assert remedy_of(errno.EACCES, FILE, root=False, denied="ask its owner") == "ask its owner"
    assert "ask" not in remedy_of(errno.EACCES, FILE, root=True, denied="ask its owner")
    assert "ask" not in remedy_of(errno.EROFS, FILE, root=False, denied="ask its owner")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file", "/a"), r"^cannot do it: No such file: /a; check the path$"),
        (OSError(errno.ENOSPC, "No space left"), r"^cannot do it: No space left; make room there \(`df -h \.`"),
        (OSError(errno.EIO, "I/O error", 7), r"^cannot do it: I/O error; check its disk"),
        (OSError(errno.EIO, "I/O error", b"/a"), r"^cannot do it: I/O error: /a; "),
        (OSError("no number"), "^cannot do it: no number; see its filesystem"),
    ],
)
def test_an_error_is_told_with_its_file_where_it_names_one(error: OSError, text: str) -> None:
    with pytest.raises(Failed, match=text), explained("do it"):
        raise error


def said(tree: ast.AST) -> t.Iterator[str]:
    """Sentences with the text of a system's error whose remedy is the same for all errors."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and "strerror" in ast.unparse(node):
            text = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
            yield from (text for word in ("as root", "become", "`df", "make room") if word in text)


@pytest.mark.parametrize("code", ["f'{e.strerror}; run as root'", "f'cannot: {e.strerror}; `df {p}` shows it'"])
def test_a_remedy_for_all_errors_is_seen(code: str) -> None:
    assert [*said(ast.parse(code))]


def test_no_sentence_has_one_remedy_for_all_errors() -> None:
    places = [payload.ROOT / "plugins", payload.ROOT / "roles/console/files"]
    files = [path for place in places for path in place.rglob("*.py")]
    found = {str(path): [*said(ast.parse(path.read_text()))] for path in files}
    assert len(found) > 100
    assert {path: texts for path, texts in found.items() if texts} == {}, "use `_system/os_errors.py`"


def test_a_verb_agrees_with_its_names() -> None:
    assert [agree(count, "is", "are") for count in (1, 2, 0)] == ["is", "are", "are"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_user_is_told_to_become_root(tmp_path: Path) -> None:
    (tmp_path / "secret").touch(mode=0)
    with pytest.raises(Failed, match=r"run as root \(become: true\)"), explained("read it"):
        (tmp_path / "secret").read_text()


@pytest.mark.parametrize(
    "text", ["resource busy: Lockspace resource '347c' is locked", 'Failed to get "write" lock\nIs another process']
)
def test_a_disk_in_use_names_the_command_that_asks_all_hosts(text: str) -> None:
    with pytest.raises(Failed, match=r"; run ansible-playbook corral\.virt\.query to find .* on another host"):
        with connection.explained("start guest", "web"):
            raise libvirt.libvirtError(text)
    with pytest.raises(Failed, match=r"look there$"), connection.explained("start guest", "web", "look there"):
        raise libvirt.libvirtError(text)
