# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a disk image, or an archive with one, says about itself."""

from __future__ import annotations

import typing as t


class Header(t.NamedTuple):
    """What the first bytes of a file say, whoever wrote them."""

    format: str  # raw where they say nothing
    backing: str | None = None  # what a qcow2 stands on, as it names it
    data_file: str | None = None  # other files that hold its data
    content: str | None = None  # of raw bytes that are no plain disk: `tar`, `gzip`, `text`, …; `vpc` by its last bytes
    damage: str | None = None  # why a qcow2 cannot be read


class Member(t.NamedTuple):
    """An entry in an archive, as the archive describes it, whoever wrote that."""

    name: str
    kind: str  # file, directory, symbolic link, hard link, or special file
    size_bytes: int
