# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Which files that disk images name are not there, as their first bytes tell: no image is opened with QEMU."""

from __future__ import annotations

import contextlib
import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import NamedBy
from ansible_collections.corral.virt.plugins.module_utils._guest.files_missing import missing_paths
from ansible_collections.corral.virt.plugins.module_utils._storage import files_header

__all__ = ["missing"]


def missing(images: t.Mapping[str, bool]) -> dict[str, NamedBy]:
    """Each with the qcow2 image that names it. `images` are paths, with whether what they stand on is looked for.

    Of images that may not be read nobody knows.
    """
    found: dict[str, NamedBy] = {}
    seen: set[str] = set()
    for path, stands in images.items():
        below: str | None = path
        while below and os.path.isabs(below) and below not in seen:
            seen.add(below)
            image, below = below, None
            with contextlib.suppress(VirtError):
                found.update({name: NamedBy(image, True) for name in missing_paths(files_header.data_files(image))})
                below = _below(image, found) if stands or image != path else None
    return found


def _below(image: str, found: dict[str, NamedBy]) -> str | None:
    """What an image stands on, where that may name files itself; libvirt takes the image at its word what it is."""
    names = files_header.bases(image)
    found.update({name: NamedBy(image, False) for name in missing_paths(names)})
    return names[0] if len(names) == 1 and files_header.backing_format(image) == "qcow2" else None
