# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first bytes of an image, read without QEMU, which opens every file that an image names."""

from __future__ import annotations

import json
import os
import re
import struct
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._storage.model_header import Header
from ansible_collections.corral.virt.plugins.module_utils._system import private
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import explained

_LENGTH, _NAME_LENGTH = 64 * 1024, 1023  # the latter: of the name of a backing file, as QEMU limits it
_MAGICS = (
    (0, b"QFI\xfb", "qcow2"),
    (0, b"QED\0", "qed"),
    (0, b"KDMV", "vmdk"),
    (0, b"COWD", "vmdk"),
    (0, b"# Disk DescriptorFile", "vmdk"),
    (0x40, b"\x7f\x10\xda\xbe", "vdi"),
    (0, b"vhdxfile", "vhdx"),
    (0, b"conectix", "vpc"),
    (0, b"WithoutFreeSpace", "parallels"),
    (0, b"WithouFreSpacExt", "parallels"),
    (0, b"Bochs Virtual HD Image", "bochs"),
    (0, b"#!/bin/sh\n#V2.0 Format\n", "cloop"),
)
# What raw bytes are that are no disk: a disk begins with boot code or a file system.
_CONTENTS = (
    (0, b"\x1f\x8b\x08", "gzip"),
    (0, b"\xfd7zXZ\0", "xz"),
    (0, b"BZh", "bzip2"),
    (0, b"\x28\xb5\x2f\xfd", "zstd"),
    (0, b"\x04\x22\x4d\x18", "lz4"),
    (0, b"\x02\x21\x4c\x18", "lz4"),
    (0, b"PK\x03\x04", "zip"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z"),
    (0, b"Rar!\x1a\x07", "rar"),
    (257, b"ustar", "tar"),
    (0, b"LUKS\xba\xbe", "luks"),
)
_FOOTER_LENGTH, _FOOTER = 512, b"conectix"  # of a VHD of fixed size, which has no other mark
_CORRUPT, _EXTERNAL_DATA = 1 << 1, 1 << 2  # incompatible features of a qcow2
_NAME_OF_DATA, _FORMAT_BELOW = 0x44415441, 0xE2792ACA  # header extensions of a qcow2
_MARK = 0x434F5252  # "CORR": ours
_EXTENT = re.compile(rb'^\s*(?:RW|RDONLY|NOACCESS)\s+\d+\s+\w+\s+"([^"\n]+)"', re.MULTILINE)
_FILENAME = re.compile(r'"(?:[\w.]+\.)?filename"\s*:\s*("(?:[^"\\]|\\.)+")')
_DEPTH = 64


def read(path: str) -> Header:
    """The header of a regular file; raises Failed, or Refused for anything but a regular file."""
    with explained(f"read image {path}", path):
        descriptor = private.opened(path, os.O_RDONLY)
        try:
            return _header(descriptor, os.pread(descriptor, _LENGTH, 0))
        finally:
            os.close(descriptor)


def _header(descriptor: int, head: bytes) -> Header:
    form = next((name for at, magic, name in _MAGICS if head[at : at + len(magic)] == magic), "raw")
    if form == "vmdk" and head.startswith(b"#"):
        extents = [found.decode(errors="replace") for found in _EXTENT.findall(head)]
        return Header(form, None, ", ".join(extents) or "its extents")
    if form == "raw":
        return Header(form, content=_content(descriptor, head))
    return _qcow2(descriptor, head) if form == "qcow2" else Header(form)


def _content(descriptor: int, head: bytes) -> str | None:
    """What raw bytes are if they are no plain disk, such as `tar` or `text`; None for a disk."""
    for at, magic, name in _CONTENTS:
        if head[at : at + len(magic)] == magic:
            return name
    end = os.fstat(descriptor).st_size - _FOOTER_LENGTH
    if end >= 0 and os.pread(descriptor, len(_FOOTER), end) == _FOOTER:
        return "vpc"
    return "text" if _is_text(head[:512]) else None


def _is_text(head: bytes) -> bool:
    """True for words in lines, as in a page, a pointer of Git LFS or an error in JSON. A disk's first sector has other
    bytes.
    """
    text = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="ignore")
    return bool(re.search(r"\w[ ,:]|<\w", text)) and all(char.isprintable() or char in "\t\r\n\f" for char in text)


def _qcow2(descriptor: int, head: bytes) -> Header:
    """The header of a qcow2, as QEMU's `docs/interop/qcow2.txt` describes it."""
    size, head = os.fstat(descriptor).st_size, head.ljust(104, b"\0")
    version, at, length = struct.unpack_from(">IQI", head, 4)
    if version == 1:
        return Header("qcow")
    features = struct.unpack_from(">Q", head, 72)[0] if version > 2 else 0
    name = os.pread(descriptor, min(length, _NAME_LENGTH), min(at, 2**62)).decode(errors="replace") if at else ""
    backing = (name or "a file") if at else None
    data_file = "a data file" if features & _EXTERNAL_DATA else None
    return Header("qcow2", backing, data_file, damage=_damage(head, features, size))


def _damage(head: bytes, features: int, size_bytes: int) -> str | None:
    crypt_method, l1_entries, l1_at, refcounts_at = struct.unpack_from(">IIQQ", head, 32)
    if crypt_method:
        return "it is encrypted"
    if features & _CORRUPT:
        return "it is marked as corrupt"
    return "it is truncated" if size_bytes < max(104, l1_at + l1_entries * 8, refcounts_at) else None


def is_image(path: str) -> bool:
    """True if a file is an image of a format that may name other files; False if it is raw, or unreadable."""
    head = _head(path)
    return any(head[at : at + len(magic)] == magic for at, magic, _name in _MAGICS)


def bases(path: str, opened_as: str | None = None) -> list[str]:
    """The backing files that a regular file names, each as an absolute path.

    A relative name is beside the name by which QEMU opens the file, which can be a link.
    """
    if not os.path.isfile(path):
        return []
    below = (read(os.path.realpath(path)).backing or "").removeprefix("file:")
    if below.startswith("json:"):
        return [_plain(name) for name in _FILENAME.findall(below)]
    is_name = below and "\0" not in below and not re.match(r"\w+:", below)
    return [os.path.join(os.path.dirname(opened_as or path), below)] if is_name else []


def data_files(path: str) -> list[str]:
    """The data files that a qcow2 names, relative to it or absolute; empty for other and unreadable files."""
    head = _head(path)
    features = struct.unpack_from(">Q", head, 72)[0] if _version(head) > 2 else 0
    names = _extensions(head, _NAME_OF_DATA) if features & _EXTERNAL_DATA else ()
    return [os.path.join(os.path.dirname(path), name.removeprefix("file:")) for name in names if "\0" not in name]


def other_files(path: str) -> list[str]:
    """Other files with the content of an image: paths in a qcow2, or words; empty for an unreadable image."""
    named = data_files(path)
    if named or not os.path.isfile(path):
        return named
    try:
        other = read(os.path.realpath(path)).data_file
    except Failed:
        return []
    return [other] if other else []


def backing_format(path: str) -> str | None:
    """The format that a qcow2 states for its backing file; None if it states none, or is no readable qcow2."""
    return "".join([*_extensions(_head(path), _FORMAT_BELOW)][:1]) or None


def _head(path: str) -> bytes:
    if not os.path.isfile(path):
        return b""
    try:
        descriptor = private.opened(os.path.realpath(path), os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.pread(descriptor, _LENGTH, 0)
    finally:
        os.close(descriptor)


def mark(head: bytes) -> str:
    """Our mark in the first bytes of a qcow2; empty if there is none."""
    return "".join([*_extensions(head, _MARK)][:1])


def marked(head: bytes, text: str) -> bytes:
    """The first bytes of a qcow2 with our mark: QEMU keeps header extensions that it does not know.

    Raises Failed if `head` is not from a qcow2 of version 3 with room for one more extension.
    """
    at, end = struct.unpack_from(">I", head.ljust(104, b"\0"), 100)[0], _end_of_extensions(head)
    more = struct.pack(">II", _MARK, len(text)) + text.encode().ljust((len(text) + 7) // 8 * 8, b"\0")
    name, _length = struct.unpack_from(">QI", head.ljust(104, b"\0"), 8)
    after = head[end:]
    if _version(head) < 3 or not end or (name and name < end) or after[-len(more) :].strip(b"\0"):
        raise Failed(
            "cannot mark the new image: it is not a qcow2 of version 3 with room in its header; look at it with "
            "`qemu-img check`"
        )
    found = bytearray(head[:at] + more + head[at:end] + after[: -len(more)])
    if name:
        struct.pack_into(">Q", found, 8, name + len(more))
    return bytes(found)


def _end_of_extensions(head: bytes) -> int:
    """Offset after the header extensions of a qcow2, including the end marker; 0 if they are not all in `head`."""
    at = struct.unpack_from(">I", head, 100)[0] if _version(head) > 2 else 0
    while at and at + 8 <= len(head):
        kind, length = struct.unpack_from(">II", head, at)
        at += 8 + (length + 7) // 8 * 8
        if kind == 0:
            return t.cast(int, at)
    return 0


def _version(head: bytes) -> int:
    """The version of a qcow2; 0 for anything else."""
    is_qcow2 = head.startswith(_MAGICS[0][1]) and len(head) >= 104
    return t.cast(int, struct.unpack_from(">I", head, 4)[0]) if is_qcow2 else 0


def _extensions(head: bytes, wanted: int) -> t.Iterator[str]:
    version = _version(head)
    at = struct.unpack_from(">I", head, 100)[0] if version > 2 else 72
    while version > 1 and at + 8 <= len(head):
        kind, length = struct.unpack_from(">II", head, at)
        if kind == wanted:
            yield head[at + 8 : at + 8 + length].decode(errors="replace")
        if kind == 0:
            return
        at += 8 + (length + 7) // 8 * 8


def chain(path: str) -> list[str]:
    """Real paths of a file and its backing files, as they name each other; ends at what is no regular file here."""
    found: list[str] = []
    while len(found) < _DEPTH and os.path.isfile(path) and os.path.realpath(path) not in found:
        found.append(os.path.realpath(path))
        below = [] if (read(found[-1]).backing or "").startswith("json:") else bases(path)
        if not below:
            break
        [path] = below
    return found


def _plain(text: str) -> str:
    """The value of a JSON string; QEMU refuses a text that is none."""
    try:
        return t.cast(str, json.loads(text))
    except ValueError:
        return text.strip('"')
