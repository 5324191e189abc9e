# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loop devices of this machine."""

from __future__ import annotations

import contextlib
import glob
import typing as t

_PLACE = "/sys/block/loop*/loop/backing_file"


def backing_files(place: str = _PLACE) -> t.Iterator[tuple[str, str]]:
    """Each device with its backing file, as losetup(8) lists them."""
    for path in sorted(glob.glob(place)):
        with contextlib.suppress(OSError, UnicodeDecodeError), open(path) as told:  # it is detached at this moment
            yield f"/dev/{path.split('/')[-3]}", told.read().removesuffix("\n")
