# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether a directory is a repository of backups. Pure."""

from __future__ import annotations

import json
import os.path
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import MARKER, VERSION, RepositoryFacts
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused


def path_problems(path: str) -> t.Iterator[str]:
    """The problems of the path that is given for a repository."""
    if not path.startswith("/"):
        yield (
            f"repository: must be an absolute path, not {path!r}; the playbooks take it from the variable "
            "virt_backup_repository, too"
        )


def checked_repository(
    path: str, facts: RepositoryFacts, cannot: str, *, new: bool = False, empty: bool = False
) -> bool:
    """True if the directory is empty, and may be (`empty`) or is made a repository (`new`); raises Refused if it is
    none.
    """
    if not facts.is_directory:
        raise Refused(
            f"{cannot}: there is no directory {path}; create it, or mount the filesystem that holds it: backups never "
            "go to a directory that this module has made"
        )
    if facts.marker is None:
        if facts.others or not (new or empty):
            more = f" and has other files ({', '.join(facts.others[:3])})" if facts.others else ""
            raise Refused(
                f"{cannot}: {path} is no repository of backups: it has no {MARKER}{more}; mount the filesystem that "
                "holds the repository, or use an empty directory"
            )
    elif not _is_ours(facts.marker):
        raise Refused(
            f"{cannot}: {os.path.join(path, MARKER)} was not written by this version of the collection; use the "
            "version that has written it"
        )
    if new and facts.is_open:
        raise Refused(
            f"{cannot}: other users may write to {path}, and could put links to files of this host there; let only its "
            f"owner do so ({shlex.join(['chmod', 'go-w', path])})"
        )
    if new and facts.closed and not (facts.marker is None and facts.closed == os.path.realpath(path)):
        raise Refused(
            f"{cannot}: QEMU's user cannot pass through {facts.closed} to {path}; let it "
            f"({shlex.join(['chmod', 'o+x', facts.closed])}), which lets nobody list or read what is there"
        )
    return facts.marker is None


def _is_ours(marker: str) -> bool:
    try:
        told = json.loads(marker)
        return bool(told["version"] == VERSION and told["id"])
    except (ValueError, TypeError, KeyError):
        return False
