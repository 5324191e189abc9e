# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The first bytes of an image, read without QEMU: which opens every file that an image names before it tells what it
is.
"""

from __future__ import annotations

import json
import os
import re
import struct
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._files import private
from ansible_collections.corral.virt.plugins.module_utils._model.header import Header

__all__ = ["backing_format", "bases", "chain", "data_files", "other_files", "read"]

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
_EXTERNAL_DATA = 1 << 2  # incompatible feature of a qcow2
_NAME_OF_DATA, _FORMAT_BELOW = 0x44415441, 0xE2792ACA  # header extensions of a qcow2
_EXTENT = re.compile(rb'^\s*(?:RW|RDONLY|NOACCESS)\s+\d+\s+\w+\s+"([^"\n]+)"', re.MULTILINE)
_FILENAME = re.compile(r'"(?:[\w.]+\.)?filename"\s*:\s*("(?:[^"\\]|\\.)+")')
_DEPTH = 64


def read(path: str) -> Header:
    """What a regular file is by its first bytes; raises Failed, or Refused for anything but a regular file."""
    try:
        descriptor = private.opened(path, os.O_RDONLY)
        try:
            return _header(descriptor, os.pread(descriptor, _LENGTH, 0))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Failed(f"cannot read image {path}: {error.strerror}; run as a user who can read its pool") from error


def _header(descriptor: int, head: bytes) -> Header:
    form = next((name for at, magic, name in _MAGICS if head[at : at + len(magic)] == magic), "raw")
    if form == "vmdk" and head.startswith(b"#"):
        extents = [found.decode(errors="replace") for found in _EXTENT.findall(head)]
        return Header(form, None, ", ".join(extents) or "its extents")
    return _qcow2(descriptor, head) if form == "qcow2" else Header(form)


def _qcow2(descriptor: int, head: bytes) -> Header:
    """`docs/interop/qcow2.txt` of QEMU."""
    head = head.ljust(104, b"\0")
    version, at, length = struct.unpack_from(">IQI", head, 4)
    if version == 1:
        return Header("qcow")
    features = struct.unpack_from(">Q", head, 72)[0] if version > 2 else 0
    name = os.pread(descriptor, min(length, _NAME_LENGTH), min(at, 2**62)).decode(errors="replace") if at else ""
    backing = (name or "a file") if at else None
    data_file = "a data file" if features & _EXTERNAL_DATA else None
    return Header("qcow2", backing, data_file)


def bases(path: str) -> list[str]:
    """What a regular file says it stands on, in its own words, each as an absolute path.

    A relative name is beside the name by which QEMU opens the file, which can be a link.
    """
    if not os.path.isfile(path):
        return []
    below = (read(os.path.realpath(path)).backing or "").removeprefix("file:")
    if below.startswith("json:"):
        return [_plain(name) for name in _FILENAME.findall(below)]
    is_name = below and "\0" not in below and not re.match(r"\w+:", below)
    return [os.path.join(os.path.dirname(path), below)] if is_name else []


def data_files(path: str) -> list[str]:
    """Where a qcow2 says that its data is, beside it or absolute; nothing of other or unreadable files."""
    head = _head(path)
    features = struct.unpack_from(">Q", head, 72)[0] if _version(head) > 2 else 0
    names = _extensions(head, _NAME_OF_DATA) if features & _EXTERNAL_DATA else ()
    return [os.path.join(os.path.dirname(path), name.removeprefix("file:")) for name in names if "\0" not in name]


def other_files(path: str) -> list[str]:
    """What else holds the content of an image: paths as a qcow2 names them, or words; nothing of an unreadable one."""
    named = data_files(path)
    if named or not os.path.isfile(path):
        return named
    try:
        other = read(os.path.realpath(path)).data_file
    except Failed:
        return []
    return [other] if other else []


def backing_format(path: str) -> str | None:
    """As what a qcow2 says that what it stands on is read; None where it says nothing, or is none, or is unreadable."""
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


def _version(head: bytes) -> int:
    """Of a qcow2; 0 of anything else."""
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
    """A file and the files that it stands on, as they name each other; ends at what is no regular file here."""
    found: list[str] = []
    while len(found) < _DEPTH and os.path.isfile(path) and os.path.realpath(path) not in found:
        found.append(os.path.realpath(path))
        below = [] if (read(found[-1]).backing or "").startswith("json:") else bases(path)
        if not below:
            break
        [path] = below
    return found


def _plain(text: str) -> str:
    """A string of JSON; QEMU refuses one that is none."""
    try:
        return t.cast(str, json.loads(text))
    except ValueError:
        return text.strip('"')
