# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a Salt tree, and nothing outside of it."""

from __future__ import annotations

import functools
import os
import stat
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_yaml import LARGEST_BYTES

_MOST_FILES = 5000
Unread = tuple[str, str]  # a path, and why it is not read


def content(path: str) -> bytes:
    """The content of one file, cut above the size limit; raises BadInput if it is no regular file."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise BadInput("it is not a file")
            return stream.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise BadInput(str(error.strerror)) from error


def files(root: str, endings: t.Sequence[str]) -> tuple[list[str], list[Unread]]:
    """Paths of the files with one of these endings, below the root, in order; and skipped ones, with the reason.

    A link is followed only to a file of the same tree.
    """
    if not os.path.isdir(root):
        raise BadInput(f"{root}: there is no such directory")
    real = os.path.realpath(root)
    found: list[str] = []
    unread: list[Unread] = []
    for folder, folders, names in os.walk(root, onerror=functools.partial(_denied, root, unread)):
        unread += [
            (os.path.relpath(os.path.join(folder, name), root), "a link to a directory is not followed")
            for name in sorted(folders)
            if os.path.islink(os.path.join(folder, name))
        ]
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted(names):
            path = os.path.join(folder, name)
            inside = os.path.relpath(path, root)
            if not name.endswith(tuple(endings)):
                continue
            if os.path.islink(path) and not os.path.realpath(path).startswith(real + os.sep):
                unread.append((inside, "it is a link that leads out of the tree"))
            else:
                found.append(inside)
            if len(found) > _MOST_FILES:
                raise BadInput(f"{root}: it has more than {_MOST_FILES} files")
    return found, unread


def _denied(root: str, unread: list[Unread], error: OSError) -> None:
    unread.append((os.path.relpath(str(error.filename), root), str(error.strerror)))
