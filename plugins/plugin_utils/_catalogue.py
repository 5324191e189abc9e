# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue of official cloud images: where each is, what verifies it, and whom it lets in."""

from __future__ import annotations

import functools
import os
import typing as t

import yaml

__all__ = ["FILE", "entries", "names", "resolve"]

FILE = os.path.join(os.path.dirname(__file__), "catalogue.yml")
SPELLINGS = {"amd64": "x86_64", "arm64": "aarch64"}


@functools.cache
def entries() -> dict[str, dict[str, t.Any]]:
    """The catalogue as its file has it."""
    with open(FILE, encoding="utf-8") as stream:
        return t.cast("dict[str, dict[str, t.Any]]", yaml.safe_load(stream))


def names() -> list[str]:
    """Names of the images, in the catalogue's order."""
    return list(entries())


def resolve(name: str, arch: str = "x86_64") -> dict[str, t.Any]:
    """The image's `url`, `checksum`, `signature` (or None) and `user`.

    ValueError for a name or an architecture that it does not have.
    """
    if name not in entries():
        raise ValueError(
            f"the catalogue has no image {name!r}: use one of {', '.join(names())}, or set url and checksum"
        )
    entry = entries()[name]
    word = entry["arch"].get(SPELLINGS.get(arch, arch))
    if word is None:
        raise ValueError(
            f"the catalogue has {name} for {', '.join(entry['arch'])}, not for {arch}: set url and checksum"
        )
    url = entry["url"].format(arch=word)
    place = {"arch": word, "file": url.rpartition("/")[2]}
    signature = entry.get("signature")
    return {
        "url": url,
        "checksum": f"{entry['algorithm']}:{entry['sums'].format(**place)}",
        "signature": signature and signature.format(**place),
        "user": entry["user"],
    }
