# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Published lists of checksums, as vendors and tools write them.

GNU style (`<hex>  name`, `<hex> *name`: Debian, Ubuntu, AlmaLinux, openSUSE), BSD and OpenSSL style (`SHA256 (name) =
<hex>`, `SHA2-256(name)= <hex>`: Fedora, CentOS, Rocky), sections below a heading that names the algorithm (Gentoo's
DIGESTS, Debian's Release with sizes), PowerShell's Get-FileHash, JSON (Fedora CoreOS, simplestreams), metalinks (RFC
5854, and version 3 of before it), or a lone digest.
"""

from __future__ import annotations

import codecs
import json
import posixpath
import re
import typing as t
import urllib.parse
from xml.parsers import expat

from ansible_collections.corral.virt.plugins.module_utils._image.model_image import LENGTHS, Checksum, Source, Sums

_OURS = re.compile(r"(?<![a-z0-9])sha-?(?:2-)?(256|384|512)(?![0-9]|[/_-](?:224|256)(?![0-9]))", re.IGNORECASE)
# Their digests are as long as those of SHA-2.
_OTHERS = re.compile(
    r"(?<![a-z0-9])(blake-?[23]\w*|b[23]sums?|sha-?3(?!84)(?:[_-]?\d{3})?|sha-?(?:2-)?512[/_-](?:224|256)|keccak\w*|shake\d*"
    r"|sm3|skein\w*|whirlpool|streebog\w*|gost\w*)",
    re.IGNORECASE,
)
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_GNU = re.compile(r"\\?([0-9a-fA-F]{64,})(?:\s+\*?(\S.*))?")
_BSD = re.compile(r"([\w/-]+)\s*\((.+)\)\s*=\s*([0-9a-fA-F]+)")
_POWERSHELL = re.compile(r"(SHA\d+)\s+([0-9a-fA-F]{64,})\s+(\S.*)")
# Where a metalink has digests of whole files; others are of pieces, or of earlier versions.
_METALINK_HASHES = (("metalink", "file", "hash"), ("metalink", "files", "file", "verification", "hash"))
_FILE_KEYS = ("location", "link", "url", "path", "name")


class _ListedDigest(t.NamedTuple):
    """One entry of a list; the name of an algorithm outside SHA-2 is the list's own."""

    file: str
    algorithm: str
    hex: str


def decoded(content: bytes) -> str:
    """The text of a list, decoded by its byte order mark."""
    for bom, encoding in _BOMS:
        if content.startswith(bom):
            return content[len(bom) :].decode(encoding, errors="replace")
    return content.decode(errors="replace")


def document_kind(text: str) -> str | None:
    """The kind of a document that is no list; None if it may be one."""
    start = text.lstrip()[:1000].lower()
    if not start.startswith("<"):
        return None
    if "<metalink" in start:
        return None if _of_metalink(text) is not None else "a metalink that is not well-formed, or has a DTD"
    return "an HTML page" if re.match(r"<(!doctype html|html|head|body)", start) else "an XML document"


def checksum_in(text: str, source: Source, sums: Sums) -> Checksum | None:
    """The strongest digest of the source's file in the list; None if there is none, or if several differ."""
    usable = [entry for entry in _about(text, source, sums) if entry.algorithm in LENGTHS]
    for algorithm in LENGTHS:
        found = [entry.hex for entry in usable if entry.algorithm == algorithm and sums.algorithm in (None, algorithm)]
        if found:
            return Checksum(algorithm, found[0]) if len({*found}) == 1 else None
    return None


def algorithms_in(text: str, source: Source, sums: Sums) -> list[str]:
    """The algorithms of the list's digests of the source's file, by the list's names."""
    return sorted({entry.algorithm for entry in _about(text, source, sums)})


def _about(text: str, source: Source, sums: Sums) -> list[_ListedDigest]:
    """The entries of the source's file.

    A list may name files in directories: relative to itself, or to a common parent. A list of this very URL
    (`<url>.sha256`) may name the build behind it (openSUSE).
    """
    found = _of_metalink(text)
    if found is None:
        found = [*(_of_json(text) or _of_lines(text, _of_name(sums, source)))]
    named = [entry for entry in found if entry.file.rpartition("/")[2] in (source.file, "")]
    place = re.sub(r"[?#].*", "", source.location)
    for fits in (
        lambda entry: urllib.parse.urljoin(sums.url, entry.file) == place,
        lambda entry: f"/{place}".endswith(f"/{entry.file}") and "/" in entry.file,
        lambda entry: "/" not in entry.file,
    ):
        if ours := [entry for entry in named if fits(entry)]:
            return ours
    is_ours_alone = len({*found}) == 1 and sums.url.startswith(f"{source.location}.")
    return found if is_ours_alone and not named else named


def _of_lines(text: str, algorithm: str | None) -> t.Iterator[_ListedDigest]:
    """Each digest with its algorithm: from its line, the heading above it, the list's name, or its length."""
    for line in map(str.strip, text.splitlines()):
        if line == "-----BEGIN PGP SIGNATURE-----":
            return
        entries = [*_of_line(line, algorithm)]
        yield from entries
        if not entries and not line.startswith("Hash:"):  # of the signature
            algorithm = _heading(line) or algorithm


def _of_line(line: str, algorithm: str | None) -> t.Iterator[_ListedDigest]:
    if bsd := _BSD.fullmatch(line):
        yield from _labelled(bsd.group(2), bsd.group(1), bsd.group(3))
    elif powershell := _POWERSHELL.fullmatch(line):
        yield from _labelled(powershell.group(3), powershell.group(1), powershell.group(2))
    elif line.startswith("DIST "):  # of Gentoo's Manifest
        _kind, file, _size, *pairs = [*line.split(), ""]
        for label, digits in zip(pairs[::2], pairs[1::2]):
            yield from _labelled(file, label, digits)
    elif gnu := _GNU.fullmatch(line):
        by_length = {length: name for name, length in LENGTHS.items()}.get(len(gnu.group(1)))
        if by_length:
            other = algorithm if algorithm not in LENGTHS else None
            digest = (other or by_length, gnu.group(1).lower())
            name = gnu.group(2) or ""
            yield _ListedDigest(_path(name), *digest)
            if sized := re.fullmatch(r"\d+\s+(\S.*)", name):
                yield _ListedDigest(_path(sized.group(1)), *digest)


def _labelled(file: str, label: str, digits: str) -> t.Iterator[_ListedDigest]:
    ours = _OURS.fullmatch(label)
    if not ours:
        yield _ListedDigest(_path(file), label.lower(), digits.lower())
    elif LENGTHS[f"sha{ours.group(1)}"] == len(digits):
        yield _ListedDigest(_path(file), f"sha{ours.group(1)}", digits.lower())


def _path(name: str) -> str:
    """A file's normalised path in a list."""
    name = name.strip().replace("\\", "/")
    return posixpath.normpath(name) if name and "://" not in name else name


def _heading(line: str) -> str | None:
    """The algorithm that a heading names for the lines below it; None if it names none.

    If there are several, one outside SHA-2 wins: their lengths do not tell them apart.
    """
    if other := _OTHERS.search(line):
        return other.group(0).lower()
    ours = _OURS.search(line)
    return f"sha{ours.group(1)}" if ours else None


def _of_name(sums: Sums, source: Source) -> str | None:
    """The algorithm in a list's name (`B2SUMS`, `<file>.sha3-512`)."""
    name = urllib.parse.urlsplit(sums.url).path.rpartition("/")[2]
    return _heading(name[len(source.file) :] if name.startswith(source.file) else name)


def _of_json(text: str) -> list[_ListedDigest]:
    """The digests of all objects with a file in a JSON document; empty for any other document."""
    if not text.lstrip().startswith(("{", "[")):
        return []
    try:
        nodes = [json.loads(text)]
    except (ValueError, RecursionError):
        return []
    found: list[_ListedDigest] = []
    while nodes:
        node = nodes.pop()
        if isinstance(node, list):
            nodes += node
        elif isinstance(node, dict):
            nodes += node.values()
            found += _of_object(node)
    return found


def _of_object(node: t.Mapping[str, t.Any]) -> t.Iterator[_ListedDigest]:
    file = next((node[key] for key in _FILE_KEYS if isinstance(node.get(key), str)), None)
    for algorithm, length in LENGTHS.items() if file else ():
        digits = node.get(algorithm)
        if file and isinstance(digits, str) and re.fullmatch(rf"[0-9a-fA-F]{{{length}}}", digits):
            yield _ListedDigest(_path(file), algorithm, digits.lower())


class _NoMetalink(Exception):
    """The document is no metalink, or has a DTD."""


class _Metalink:
    """Parser handlers that collect the digests of a metalink. Entity declarations are refused."""

    def __init__(self) -> None:
        self.found: list[_ListedDigest] = []
        self._path: list[str] = []
        self._file = self._type = self._digits = ""

    def start(self, tag: str, attributes: t.Mapping[str, str]) -> None:
        self._path.append(tag.rpartition(":")[2])
        if self._path[0] != "metalink":
            raise _NoMetalink
        if self._path[-1] == "file":
            self._file = attributes.get("name", "")
        self._type, self._digits = attributes.get("type", ""), ""

    def data(self, text: str) -> None:
        self._digits += text

    def end(self, _tag: str) -> None:
        if tuple(self._path) in _METALINK_HASHES and self._file:
            self.found += _labelled(self._file, self._type, self._digits.strip())
        self._path.pop()

    def doctype(self, *_declared: object) -> None:
        raise _NoMetalink


def _of_metalink(text: str) -> list[_ListedDigest] | None:
    """The digests of the files of a metalink; None if the text is none."""
    if not text.lstrip().startswith("<"):
        return None
    metalink, parser = _Metalink(), expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = metalink.start, metalink.end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = metalink.data, metalink.doctype
    try:
        parser.Parse(text.strip(), True)
    except (expat.ExpatError, _NoMetalink):
        return None
    return metalink.found
