# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A disk image: as requested, and as it is in a pool."""

from __future__ import annotations

import dataclasses
import datetime
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.defaults import POOL
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._core.output import without_secrets
from ansible_collections.corral.virt.plugins.module_utils._core.units import is_content
from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import Bounds

COMPRESSIONS = ("gz", "xz", "bz2", "zst")
_ARCHIVES = ("tar", "tgz", "txz", "tbz", "tbz2", "tzst", "box", "ova")  # all are written by tar
LENGTHS = {"sha512": 128, "sha384": 96, "sha256": 64}  # hexadecimal digits; the strongest first


class Checksum(t.NamedTuple):
    """A published digest of the source, before unpacking or conversion."""

    algorithm: str
    hex: str

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.hex}"


class Sums(t.NamedTuple):
    """A published list of digests; `algorithm` is None if any will do."""

    algorithm: str | None
    url: str


@dataclasses.dataclass(frozen=True)
class Source:
    """Where an image comes from: a `url`, a local `file`, an `upload`, or another host's `origin` (a libvirt URI)."""

    kind: str
    location: str

    @property
    def file(self) -> str:
        """The file's name, without query."""
        return re.sub(r"[?#].*", "", self.location).rstrip("/").rsplit("/", 1)[-1]

    @property
    def shown(self) -> str:
        """The location without secrets."""
        return without_secrets(self.location)

    @property
    def compression(self) -> str | None:
        """gz, xz, bz2 or zst from the name's suffix; None for others and for an origin."""
        ending = self.file.rsplit(".", 1)[-1].lower()
        return ending if ending in COMPRESSIONS and self.kind != "origin" else None

    @property
    def is_archive(self) -> bool:
        """True if the name is that of a tar archive, compressed or not."""
        name = self.file.rpartition(".")[0] if self.compression else self.file
        stem, _dot, ending = name.rpartition(".")
        return bool(stem) and ending.lower() in _ARCHIVES and self.kind != "origin"


@dataclasses.dataclass(frozen=True)
class ImageSpec:
    """The options of one image."""

    name: str
    bounds: Bounds
    pool: str = POOL
    state: str = "present"
    format: str = "qcow2"
    source: Source | None = None
    checksum: Checksum | Sums | None = None
    current: bool = True
    prune: bool = False
    used_elsewhere: t.Mapping[str, str] | None = None  # users on other hosts, by content; None: nobody has asked them
    update: bool = True  # one that exists is replaced where the checksum selects another content
    retries: int = 0
    signature: str | None = None
    keyring: str | None = dataclasses.field(default=None, repr=False)
    certified: bool = True  # certificates of servers are checked
    origin_pool: str = "default"


@dataclasses.dataclass(frozen=True)
class Image:
    """`name` points to an immutable file whose name holds the first twelve digits of the source's checksum."""

    name: str
    directory: str
    format: str
    source: Source | None = None
    checksum: Checksum | None = None
    current: bool = True  # the name points to it, once it is there
    doubt: str = ""  # why nobody can rely on the checksum
    kept: bool = False  # what the name points to stays, whoever brought it

    @property
    def verified(self) -> bool:
        """True if the checksum proves that a content is the requested one."""
        return self.checksum is not None and not self.doubt

    def content_name(self, digest: str) -> str:
        """The content's name: `debian-12.1a2b3c4d5e6f.qcow2` for `debian-12.qcow2`."""
        stem, dot, ending = self.name.rpartition(".")
        return f"{stem}.{digest[:12]}.{ending}" if dot else f"{self.name}.{digest[:12]}"

    def owns(self, file: str) -> bool:
        """True if a file's name is that of a content of this image."""
        stem, dot, ending = self.name.rpartition(".")
        ours = (
            rf"{re.escape(stem)}\.[0-9a-f]{{12}}\.{re.escape(ending)}"
            if dot
            else rf"{re.escape(self.name)}\.[0-9a-f]{{12}}"
        )
        return re.fullmatch(ours, file) is not None


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Describes a content file: JSON beside it, written before the file gets its name."""

    content: str
    sha256: str  # of the content file, which differs from the source's where that was unpacked or converted
    bytes: int
    source: str  # as it is told to people
    checksum: str  # of the source, `sha256:<hex>`
    fetched: str  # RFC 3339, UTC
    verified: bool = False  # nobody on the way can have written `checksum`, and it was compared here
    as_published: bool = True  # the content is what `checksum` is of: neither unpacked nor converted
    # Of the file as it was verified: a copy with the old times (cp -p, rsync -a, a backup) has others. 0: an earlier
    # version wrote this.
    inode: int = 0
    changed_ns: int = 0

    @property
    def fetched_s(self) -> float:
        """`fetched` in seconds since the epoch; 0 if it is no valid time."""
        try:
            return datetime.datetime.fromisoformat(self.fetched).timestamp()
        except ValueError:
            return 0.0

    @property
    def of_bytes(self) -> Checksum:
        """A digest of the content file itself."""
        return t.cast(Checksum, parse_checksum(self.checksum)) if self.as_published else Checksum("sha256", self.sha256)

    def check(self) -> None:
        """Raises ValueError or BadInput if a field is invalid: the file may be anybody's."""
        numbers, texts = (
            (self.bytes, self.inode, self.changed_ns),
            (self.content, self.sha256, self.source, self.checksum, self.fetched),
        )
        kinds = all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in numbers)
        kinds = kinds and all(isinstance(one, str) for one in texts)
        if (
            not kinds
            or not is_content(self.content)
            or not isinstance(parse_checksum(f"sha256:{self.sha256}"), Checksum)
        ):
            raise ValueError("it has unexpected content")
        if not isinstance(parse_checksum(self.checksum), Checksum):
            raise ValueError("its checksum is not a digest")

    def is_of(self, *, size: int, changed_ns: int, inode: int | None = None) -> bool:
        """True if a file is the very one that was verified; `inode` is None if unknown."""
        same = (self.bytes, self.changed_ns) == (size, changed_ns)
        return bool(self.changed_ns) and same and inode in (None, self.inode)


@dataclasses.dataclass(frozen=True)
class Present:
    """The image's files in the pool: the name's target (None if missing or incomplete), and all files."""

    target: str | None
    files: frozenset[str]
    foreign: bool = False  # the name is a plain file that somebody else put there
    strangers: frozenset[str] = frozenset()  # files with the name of a content, which no manifest calls one


def is_url(text: str) -> bool:
    """True if images and lists of checksums can be fetched from this address."""
    return text.startswith(("http://", "https://"))


def parse_checksum(text: str) -> Checksum | Sums:
    """A digest, or the address of a list of them; raises BadInput."""
    if is_url(text):
        return Sums(None, text)
    algorithm, colon, rest = text.partition(":")
    if not colon or algorithm not in LENGTHS:
        raise BadInput(
            f"checksum: cannot read {text!r}; write sha256:<hex>, sha512:<hex>, the URL of a SUMS file (with or "
            "without sha256: before it), or none to skip verification"
        )
    if is_url(rest):
        return Sums(algorithm, rest)
    if not re.fullmatch(rf"[0-9a-fA-F]{{{LENGTHS[algorithm]}}}", rest):
        raise BadInput(
            f"checksum: a {algorithm} has {LENGTHS[algorithm]} hexadecimal digits, not {len(rest)} characters"
        )
    return Checksum(algorithm, rest.lower())
