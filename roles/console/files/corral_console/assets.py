# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the page, in memory: what is served is what was there at the start, and no path leads out of it."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.resources
import importlib.resources.abc
import mimetypes
import typing as t
import zipfile
from pathlib import Path

__all__ = ["Asset", "load"]

_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@dataclasses.dataclass(frozen=True)
class Asset:
    """A file."""

    content: bytes
    media_type: str
    etag: str


def load(libraries: Path) -> dict[str, Asset]:
    """By path: our own files, and those of others below `lib/`, which are in a directory or a zip file."""
    own = importlib.resources.files(__package__) / "static"
    others = zipfile.Path(libraries) if zipfile.is_zipfile(libraries) else libraries
    return dict([*_found(own, ""), *_found(t.cast("importlib.resources.abc.Traversable", others), "lib/")])


def _found(root: importlib.resources.abc.Traversable, below: str) -> t.Iterator[tuple[str, Asset]]:
    for each in root.iterdir():
        if each.is_dir():
            yield from _found(each, f"{below}{each.name}/")
        else:
            content = each.read_bytes()
            suffix = Path(each.name).suffix
            media_type = _TYPES.get(suffix) or mimetypes.guess_type(each.name)[0] or "application/octet-stream"
            yield below + each.name, Asset(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
