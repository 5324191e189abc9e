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

__all__ = ["COMPRESSIONS", "Checksum", "Image", "Manifest", "Present", "Source", "Sums", "checksum_in", "parse_checksum"]

COMPRESSIONS = ("gz", "xz", "bz2", "zst")
_LENGTHS = {"sha512": 128, "sha384": 96, "sha256": 64}  # hexadecimal digits; the strongest first
_URL = ("http://", "https://")


class Checksum(t.NamedTuple):
    """A digest of the source as it is published, before anything is unpacked or converted."""

    algorithm: str
    hex: str

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.hex}"


class Sums(t.NamedTuple):
    """A published list of digests; `algorithm` is None where any will do."""

    algorithm: str | None
    url: str


@dataclasses.dataclass(frozen=True)
class Source:
    """Where an image comes from: a `url`, a `file` of this host, or another hypervisor's `origin` (a libvirt URI)."""

    kind: str
    location: str

    @property
    def file(self) -> str:
        """Name of the file, without query."""
        return re.sub(r"[?#].*", "", self.location).rstrip("/").rsplit("/", 1)[-1]

    @property
    def compression(self) -> str | None:
        """gz, xz, bz2 or zst by the ending of the name."""
        ending = self.file.rsplit(".", 1)[-1].lower()
        return ending if ending in COMPRESSIONS and self.kind != "origin" else None


@dataclasses.dataclass(frozen=True)
class Image:
    """`name` points to an immutable file whose name holds the first twelve digits of the source's checksum."""

    name: str
    directory: str
    format: str
    source: Source | None = None
    checksum: Checksum | None = None
    current: bool = True  # the name points to it, once it is there

    def content_name(self, digest: str) -> str:
        """`debian-12.1a2b3c4d5e6f.qcow2` for `debian-12.qcow2`."""
        stem, dot, ending = self.name.rpartition(".")
        return f"{stem}.{digest[:12]}.{ending}" if dot else f"{self.name}.{digest[:12]}"

    def owns(self, file: str) -> bool:
        """Whether a file is a content of this image."""
        stem, dot, ending = self.name.rpartition(".")
        ours = rf"{re.escape(stem)}\.[0-9a-f]{{12}}\.{re.escape(ending)}" if dot else rf"{re.escape(self.name)}\.[0-9a-f]{{12}}"
        return re.fullmatch(ours, file) is not None


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a content file is: written beside it as JSON, before it is there itself."""

    content: str
    sha256: str  # of the content file, which differs from the source's where that was unpacked or converted
    bytes: int
    source: str  # as it is told to people
    checksum: str  # of the source, `sha256:<hex>`
    fetched: str  # RFC 3339, UTC


@dataclasses.dataclass(frozen=True)
class Present:
    """What is in the pool: where the name points (None: nowhere, or not completely), and which files there are."""

    target: str | None
    files: frozenset[str]
    foreign: bool = False  # the name is a plain file that somebody else put there


def parse_checksum(text: str) -> Checksum | Sums:
    """A digest, or the address of a list of them; raises BadInput."""
    if text.startswith(_URL):
        return Sums(None, text)
    algorithm, colon, rest = text.partition(":")
    if not colon or algorithm not in _LENGTHS:
        raise BadInput(
            f"checksum: cannot read {text!r}; write sha256:<hex>, sha512:<hex>, the URL of a SUMS file (with sha256: before it or not), "
            "or none to go without"
        )
    if rest.startswith(_URL):
        return Sums(algorithm, rest)
    if not re.fullmatch(rf"[0-9a-fA-F]{{{_LENGTHS[algorithm]}}}", rest):
        raise BadInput(f"checksum: a {algorithm} has {_LENGTHS[algorithm]} hexadecimal digits, this has {len(rest)} characters")
    return Checksum(algorithm, rest.lower())


def checksum_in(text: str, source: Source, sums: Sums) -> Checksum | None:
    """The strongest digest of the source's file that the list has.

    Lists are GNU style (`<hex>  name`, `<hex> *name`: Debian, Ubuntu, AlmaLinux, openSUSE), BSD style (`SHA256 (name) = <hex>`: Fedora,
    CentOS, Rocky) or a lone digest. One that belongs to this very URL (`<url>.sha256`) may name the build behind it (openSUSE).
    """
    found = list(_digests(text))
    ours = [checksum for file, checksum in found if file in (source.file, "")]
    if not ours and len(found) == 1 and sums.url.startswith(f"{source.location}."):
        ours = [found[0][1]]
    wanted = [checksum for checksum in ours if sums.algorithm in (None, checksum.algorithm)]
    return min(wanted, key=lambda checksum: list(_LENGTHS).index(checksum.algorithm), default=None)


def _digests(text: str) -> t.Iterator[tuple[str, Checksum]]:
    by_length = {length: algorithm for algorithm, length in _LENGTHS.items()}
    for line in text.splitlines():
        gnu = re.match(r"^([0-9a-fA-F]+)(?:\s+\*?(?:\./)?(\S.*?))?\s*$", line)
        bsd = re.match(r"^(\w+)\s*\((.+)\)\s*=\s*([0-9a-fA-F]+)\s*$", line)
        if gnu and len(gnu.group(1)) in by_length:
            yield gnu.group(2) or "", Checksum(by_length[len(gnu.group(1))], gnu.group(1).lower())
        elif bsd and _LENGTHS.get(bsd.group(1).lower()) == len(bsd.group(3)):
            yield bsd.group(2), Checksum(bsd.group(1).lower(), bsd.group(3).lower())
