# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Contents of images: a run that creates a disk from one holds it, and nobody removes one that is held.

The lock is on the manifest beside the content. The content itself has QEMU's locks, and NFS makes one kind of both.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.units import is_content
from ansible_collections.corral.virt.plugins.module_utils._system import private
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import remedy


def manifest_name(file: str) -> str:
    """The name of the manifest of a content, or of the content behind an image name."""
    return f".{file}.json"


def is_managed(content: str) -> bool:
    """True if virt_image imported the content: it has a manifest, and the name of a content."""
    return is_content(content) and os.path.isfile(_manifest(content))


def hold(path: str, stack: contextlib.ExitStack) -> str:
    """The content behind an image name, held until the stack is closed or the process ends.

    A content without a manifest needs no lock: nobody prunes it.
    """
    while True:
        content = os.path.realpath(path)
        with contextlib.ExitStack() as locks:
            try:
                manifest = locks.enter_context(open(private.opened(_manifest(content), os.O_RDONLY), "rb"))
                fcntl.flock(manifest, fcntl.LOCK_SH)
            except FileNotFoundError:
                pass
            except OSError as error:
                raise Failed(
                    f"cannot keep image {content} from being pruned: {error.strerror}; {remedy(error, content)}"
                ) from error
            except Refused as error:
                raise Failed(f"cannot keep image {content} from being pruned: {error}; then run again") from error
            if os.path.realpath(path) == content:  # the name may have been pointed elsewhere while this waited
                stack.push(locks.pop_all())
                return content


def claim(contents: t.Iterable[str], stack: contextlib.ExitStack) -> set[str]:
    """Keep others from holding these contents until the stack is closed; returns those held by others now."""
    taken = set()
    for content in contents:
        with contextlib.suppress(FileNotFoundError):
            try:
                manifest = stack.enter_context(os.fdopen(private.opened(_manifest(content), os.O_RDWR), "r+b"))
                fcntl.flock(manifest, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                taken.add(content)
    return taken


def _manifest(content: str) -> str:
    directory, name = os.path.split(content)
    return os.path.join(directory, manifest_name(name))
