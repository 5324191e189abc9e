"""What is said where the locks of an image cannot be read or taken."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._storage import files_disk


def keep_unwritten(path: str) -> bool:
    """Until the end of the test's look."""
    with contextlib.ExitStack() as stack:
        return files_disk.keep_unwritten(path, stack)


@pytest.mark.parametrize(("ask", "what"), [(files_disk.locked, "find out who has"), (keep_unwritten, "protect")])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOLCK])
def test_a_filesystem_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: t.Callable[[str], bool], what: str, code: int
) -> None:
    def fail(*_request: t.Any) -> t.NoReturn:
        raise OSError(code, os.strerror(code))

    image = tmp_path / "a disk"
    image.touch()
    monkeypatch.setattr(fcntl, "fcntl", fail)
    if code == errno.ENOLCK:
        assert ask(str(image)) is (ask is keep_unwritten), "it has no locks, and QEMU takes none there"
        return
    with pytest.raises(Failed, match=rf"^cannot {what} {image}.*Input/output error; .*`findmnt -T {tmp_path}`"):
        ask(str(image))
