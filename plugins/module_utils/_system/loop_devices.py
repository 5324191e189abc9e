# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Loop devices of this machine."""

from __future__ import annotations

import contextlib
import glob
import typing as t

__all__ = ["backing_files"]

_PLACE = "/sys/block/loop*/loop/backing_file"


def backing_files(place: str = _PLACE) -> t.Iterator[tuple[str, str]]:
    """Each device with its backing file, as losetup(8) lists them."""
    for path in sorted(glob.glob(place)):
        with contextlib.suppress(OSError, UnicodeDecodeError), open(path) as told:  # it is detached at this moment
            yield f"/dev/{path.split('/')[-3]}", told.read().removesuffix("\n")
