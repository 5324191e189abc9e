# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide whether a file may become an image, a base or the source of a copy, and what tells its backing files: a guest
may have written its first bytes. Pure.
"""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._model.header import Header
from ansible_collections.corral.virt.plugins.module_utils._units import format_of, is_content

__all__ = ["STANDALONE", "DefinedFiles", "HeaderTrust", "base", "doubt", "fetched", "files_read", "trust"]

STANDALONE = "use an image without backing file and data file"

_OURS = ("qcow2", "raw")
_ENDINGS = {"vmdk": "vmdk", "vdi": "vdi", "vhdx": "vhdx", "vhd": "vpc", "vpc": "vpc"}


def base(verb: str, path: str, header: Header, *, managed: bool = False, raw: bool = False) -> str:
    """Format of a file that disks are made from: as its name and its first bytes say; raises Refused.

    `managed`: all that it stands on was brought by virt_image. `raw`: a guest is defined with it as a raw disk.
    """
    named = format_of(path)
    if named is None and is_content(path):
        named = header.format  # virt_image published it, under a name without ending
    if named is None:
        raise Refused(
            f"cannot {verb} {path}: its name does not show its format; rename it to end in .qcow2, .raw or .img"
        )
    if header.format != named or named not in _OURS:
        raise Refused(
            f"cannot {verb} {path}: its name says {named}, but its first bytes, which a guest may have written, say "
            f"{header.format}; rename it to match its format if you know where it comes from, or import it again with "
            "virt_image"
        )
    if raw and named != "raw":
        raise Refused(
            f"cannot {verb} {path}: a guest uses it as a raw disk, so its first bytes come from the guest; rename it "
            "to end in .raw"
        )
    if header.data_file:
        raise Refused(
            f"cannot {verb} {path}: it keeps its data in another file; convert it with qemu-img convert first"
        )
    if header.backing is not None and not managed:
        raise Refused(
            f"cannot {verb} {path}: its backing file is {header.backing}, which is not an image from virt_image; "
            "flatten it (virt_image state: flattened), or import its backing file with virt_image"
        )
    return named


def doubt(sums: str, origin: str, *, signed: bool, certified: bool) -> str:
    """Why a published list of checksums proves nothing; empty where it does. `origin`: where redirects led to."""
    if signed:
        return ""
    if not (sums.startswith("https://") and origin.startswith("https://")):
        return "its list of checksums came over plain http"
    return "" if certified else "its list of checksums came from a server whose certificate was not checked"


def fetched(image: str, source: str, header: Header) -> str:
    """Format of what was fetched for an image; a foreign one only where the source's name says it. Raises Refused."""
    if other := header.data_file or header.backing:
        raise Refused(f"refusing image {image}: it refers to another file ({other}); {STANDALONE}")
    if header.format not in (*_OURS, *_ENDINGS.values()):
        known = ", ".join(dict.fromkeys((*_OURS, *_ENDINGS.values())))
        raise Refused(
            f"refusing image {image}: its format {header.format} is not one of {known}; offer it as one of these"
        )
    declared = _ENDINGS.get(source.rpartition(".")[2].lower())
    if header.format not in _OURS and header.format != declared:
        raise Refused(
            f"refusing image {image}: its first bytes say {header.format}, and the name of its source, {source}, does "
            f"not; end that name in .{header.format} if it is meant to be converted"
        )
    return header.format


def files_read(info: t.Mapping[str, t.Any]) -> list[str]:
    """Every file that QEMU would open for the image that `qemu-img info` tells of: itself, what it stands on, and what
    its format spreads it over.
    """
    data = info.get("format-specific", {}).get("data", {})
    spread = [*data.get("extents", ()), *(child["info"] for child in info.get("children", ()))]  # children: newer QEMUs
    named = [info.get(key) for key in ("backing-filename", "full-backing-filename", "filename")]
    return [*filter(None, [*named, data.get("data-file")]), *(file for part in spread for file in files_read(part))]


class DefinedFiles(t.NamedTuple):
    """Paths of files in one document, such as the definition of a guest; `user` is whose it is."""

    user: str
    disks: t.Sequence[str]
    raw_disks: t.Collection[str]
    below: t.Collection[str]  # backing files of the disks
    others: t.Sequence[str]  # not of disks


class HeaderTrust(t.NamedTuple):
    """Volumes whose backing files are as libvirt tells; files whose first bytes are not read for that."""

    volumes: t.Sequence[t.Mapping[str, t.Any]]
    untrusted: t.AbstractSet[str]  # a guest may have written them
    known: t.AbstractSet[str]  # libvirt tells


def trust(
    volumes: t.Sequence[t.Mapping[str, t.Any]],
    documents: t.Sequence[DefinedFiles],
    *,
    without: t.Collection[str] = (),
    real: t.Callable[[str], str] = str,
) -> HeaderTrust:
    """What guests write into a raw disk tells nothing, though libvirt believes it of a volume.

    `without` are paths of volumes that do not count; `real` gives the one path of a file that has several.
    """
    raw = _only_raw(documents)
    ignored = {*map(real, without), *map(real, raw)}
    return HeaderTrust(
        [volume for volume in volumes if real(volume["path"]) not in ignored],
        raw | {volume["backing_path"] for volume in volumes if volume["backing_format"] == "raw"},
        {volume["path"] for volume in volumes},
    )


def _only_raw(documents: t.Sequence[DefinedFiles]) -> set[str]:
    """Disks that guests have as raw ones, and none of them as anything else."""
    raw = {path for document in documents for path in document.raw_disks}
    return raw - {path for document in documents for path in document.disks if path not in document.raw_disks}
