# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide what tells the backing files of a disk: libvirt, its own first bytes, or nothing. Pure."""

from __future__ import annotations

import typing as t

__all__ = ["DefinedFiles", "HeaderTrust", "trust"]


class DefinedFiles(t.NamedTuple):
    """Paths of files in one document, such as the definition of a guest; `user` is whose it is."""

    user: str
    disks: t.Sequence[str] = ()
    raw_disks: t.Collection[str] = ()
    below: t.Collection[str] = ()  # backing files of the disks
    others: t.Sequence[str] = ()  # not of disks


class HeaderTrust(t.NamedTuple):
    """Volumes whose backing files are as libvirt tells; files whose first bytes are not read for that."""

    volumes: t.Sequence[t.Mapping[str, t.Any]]
    untrusted: t.AbstractSet[str]  # a guest may have written them
    known: t.AbstractSet[str]  # libvirt tells


def trust(
    volumes: t.Sequence[t.Mapping[str, t.Any]],
    documents: t.Sequence[DefinedFiles],
    *,
    without: t.Collection[str] = (),
    real: t.Callable[[str], str] = str,
) -> HeaderTrust:
    """What guests write into a raw disk tells nothing, though libvirt believes it of a volume.

    `without` are paths of volumes that do not count; `real` gives the one path of a file that has several.
    """
    raw = _only_raw(documents)
    ignored = {*map(real, without), *map(real, raw)}
    return HeaderTrust(
        [volume for volume in volumes if real(volume["path"]) not in ignored],
        raw | {volume["backing_path"] for volume in volumes if volume["backing_format"] == "raw"},
        {volume["path"] for volume in volumes},
    )


def _only_raw(documents: t.Sequence[DefinedFiles]) -> set[str]:
    """Disks that guests have as raw ones, and none of them as anything else."""
    raw = {path for document in documents for path in document.raw_disks}
    return raw - {path for document in documents for path in document.disks if path not in document.raw_disks}
