# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A disk image as it is wanted in a pool, and as it is there."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput

__all__ = ["COMPRESSIONS", "Checksum", "Image", "Present", "Source", "checksum_in", "parse_checksum"]

COMPRESSIONS = ("gz", "xz", "bz2")
_LENGTHS = {"sha256": 64, "sha512": 128}


class Checksum(t.NamedTuple):
    """A digest of the source as it is published, before anything is unpacked or converted."""

    algorithm: str
    hex: str


@dataclasses.dataclass(frozen=True)
class Source:
    """Where an image comes from: `url`, or `path` on this host."""

    location: str
    remote: bool

    @property
    def file(self) -> str:
        """Name of the file, without query."""
        return re.sub(r"[?#].*", "", self.location).rstrip("/").rsplit("/", 1)[-1]

    @property
    def compression(self) -> str | None:
        """gz, xz or bz2 by the ending of the name."""
        ending = self.file.rsplit(".", 1)[-1]
        return ending if ending in COMPRESSIONS else None


@dataclasses.dataclass(frozen=True)
class Image:
    """`name` points to an immutable file whose name holds the first twelve digits of the source's checksum."""

    name: str
    directory: str
    format: str
    source: Source | None = None
    checksum: Checksum | None = None

    def content_name(self, digest: str) -> str:
        """`debian-12.1a2b3c4d5e6f.qcow2` for `debian-12.qcow2`."""
        stem, dot, ending = self.name.rpartition(".")
        return f"{stem}.{digest[:12]}.{ending}" if dot else f"{self.name}.{digest[:12]}"


@dataclasses.dataclass(frozen=True)
class Present:
    """What is in the pool: where the name points (None: nowhere), and which content files there are."""

    target: str | None
    files: frozenset[str]
    foreign: bool = False  # the name is a plain file that somebody else put there


def parse_checksum(text: str) -> tuple[Checksum | None, tuple[str, str] | None]:
    """A digest, or (algorithm, URL of a SUMS file); raises BadInput."""
    algorithm, colon, rest = text.partition(":")
    if algorithm in ("http", "https"):
        kind = next((name for name in _LENGTHS if name in text.lower()), "sha256")
        return None, (kind, text)
    if not colon or algorithm not in _LENGTHS:
        raise BadInput(
            f"checksum: cannot read {text!r}; write sha256:<hex>, sha512:<hex>, sha256:<URL of a SHA256SUMS file>, or none to go without"
        )
    if rest.startswith(("http://", "https://")):
        return None, (algorithm, rest)
    if not re.fullmatch(rf"[0-9a-fA-F]{{{_LENGTHS[algorithm]}}}", rest):
        raise BadInput(f"checksum: a {algorithm} has {_LENGTHS[algorithm]} hexadecimal digits, this has {len(rest)} characters")
    return Checksum(algorithm, rest.lower()), None


def checksum_in(sums: str, file: str, algorithm: str) -> str | None:
    """The digest of `file` in a SUMS file, GNU (`<hex>  name`, `<hex> *name`) or BSD (`SHA256 (name) = <hex>`) style."""
    for line in sums.splitlines():
        gnu = re.match(r"^([0-9a-fA-F]+)\s+\*?(?:\./)?(.+?)\s*$", line)
        bsd = re.match(r"^(\w+)\s*\((.+)\)\s*=\s*([0-9a-fA-F]+)\s*$", line)
        if gnu and gnu.group(2) == file and len(gnu.group(1)) == _LENGTHS[algorithm]:
            return gnu.group(1).lower()
        if bsd and bsd.group(2) == file and bsd.group(1).lower() == algorithm:
            return bsd.group(3).lower()
    return None
