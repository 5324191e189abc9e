# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether a file may become an image, a base or the source of a copy, and which headers to trust. Pure. A guest
may have written a disk's first bytes.
"""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._core.output import printable, some_of
from ansible_collections.corral.virt.plugins.module_utils._core.units import format_of, is_content
from ansible_collections.corral.virt.plugins.module_utils._storage.model_header import Header, Member

STANDALONE = "use an image without backing file and data file"

_OURS = ("qcow2", "raw")
_ENDING_OF = {"vpc": "vhd"}
_DAMAGE = "decrypt it with qemu-img convert, or repair a copy with qemu-img check -r all, or fetch it again"
_UNPACK = "unpack it, and import the disk that it contains"
_NO_DISKS = {  # what it is, and what to do about it
    "tar": (
        "a tar archive",
        f"end the name of its source in .tar (packed: .tar.gz, .tar.xz, .tar.bz2, .tar.zst), or {_UNPACK}: tar xf",
    ),
    "gzip": ("packed with gzip", "end the name of its source in .gz (.tar.gz, .box), or unpack it: gunzip"),
    "xz": ("packed with xz", "end the name of its source in .xz, or unpack it: unxz"),
    "bzip2": ("packed with bzip2", "end the name of its source in .bz2, or unpack it: bunzip2"),
    "zstd": ("packed with zstd", "end the name of its source in .zst, or unpack it: unzstd"),
    "lz4": ("packed with lz4", f"{_UNPACK}: unlz4"),
    "zip": ("a ZIP archive", f"{_UNPACK}: unzip"),
    "7z": ("a 7z archive", f"{_UNPACK}: 7z x"),
    "rar": ("a RAR archive", f"{_UNPACK}: unrar x"),
    "text": ("text, such as a web page or an error of the server", "check the address of the image"),
    "luks": ("encrypted with LUKS", "decrypt it with qemu-img convert first"),
}
_NAMED = {"qcow2": "qcow2"}  # formats that a name promises; .img may be anything
_COMPRESSIONS = {"gzip": "gz", "xz": "xz", "bzip2": "bz2", "zstd": "zst", "tar": ""}  # by the first bytes
_MOST_LISTED = 10
_ENDINGS = {"vmdk": "vmdk", "vdi": "vdi", "vhdx": "vhdx", "vhd": "vpc", "vpc": "vpc"}


def base(verb: str, path: str, header: Header, *, managed: bool = False, raw: bool = False) -> str:
    """The format of a file that disks are created from, by its name and its first bytes; raises Refused.

    `managed`: True if virt_image imported all its backing files. `raw`: True if a guest is defined with it as a raw
    disk.
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
    if header.damage:
        raise Refused(f"cannot {verb} {path}: {header.damage}; {_DAMAGE}")
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
    """Why a published list of checksums proves nothing; empty if it does. `origin`: where redirects led to."""
    if signed:
        return ""
    if not (sums.startswith("https://") and origin.startswith("https://")):
        return "its list of checksums came over plain http"
    return "" if certified else "its list of checksums came from a server whose certificate was not checked"


def fetched(image: str, source: str, header: Header) -> str:
    """The format of what was fetched for an image; a foreign one must be in the source's name. Raises Refused."""
    if other := header.data_file or header.backing:
        raise Refused(f"refusing image {image}: it refers to another file ({other}); {STANDALONE}")
    if header.damage:
        raise Refused(f"refusing image {image}: {header.damage}; {_DAMAGE}")
    if header.content in _NO_DISKS:
        kind, remedy = _NO_DISKS[header.content]
        raise Refused(f"refusing image {image}: {source} is no disk, but {kind}; {remedy}")
    form = "vpc" if header.content == "vpc" else header.format
    if form not in (*_OURS, *_ENDINGS.values()):
        known = ", ".join(dict.fromkeys((*_OURS, *_ENDINGS.values())))
        raise Refused(f"refusing image {image}: its format {form} is not one of {known}; offer it as one of these")
    ending = source.rpartition(".")[2].lower()
    declared = _ENDINGS.get(ending)
    if form not in _OURS and form != declared:
        raise Refused(
            f"refusing image {image}: its {_place(header)} bytes say {form}, and the name of its source, {source}, "
            f"does not; end that name in .{_ENDING_OF.get(form, form)} if it is meant to be converted"
        )
    promised = declared or _NAMED.get(ending)
    if form == "raw" and promised and not source.lower().endswith("-flat.vmdk"):
        raise Refused(
            f"refusing image {image}: the name of its source, {source}, says {promised}, and its first bytes do not; "
            "check that it is whole, or end that name in .raw if it is a raw disk"
        )
    return form


def archive_compression(header: Header) -> str | None:
    """The compression of a file with an archive's name (empty: none); None if it is no archive.

    Old kinds of tar have no mark, so bytes that are nothing else may be one.
    """
    if header.format != "raw":
        return None
    return "" if header.content is None else _COMPRESSIONS.get(header.content)


def is_disk(member: Member) -> bool:
    """True if a file in an archive is a disk, by its name. Hidden files are notes of macOS about other files."""
    name = _file_name(member)
    ending = name.rpartition(".")[2].lower()
    return member.kind == "file" and not name.startswith(".") and ending in ("img", *_OURS, *_ENDINGS)


def only_disk(image: str, source: str, members: t.Sequence[Member]) -> str:
    """The name of the only disk in an archive, without its directory; raises Refused if it has other than one."""
    odd = [member for member in members if member.kind not in ("file", "directory")]
    disks = [member for member in members if is_disk(member)]
    if len(disks) == 1 and not odd:
        return _file_name(disks[0])
    reason = f"the {odd[0].kind} {printable(odd[0].name)}" if odd else f"{len(disks) or 'no'} disks"
    listed = some_of([printable(member.name) for member in members], _MOST_LISTED) or "nothing"
    raise Refused(
        f"refusing image {image}: {source} contains {reason}, and an archive must contain one disk (a file that ends "
        f"in .{', .'.join(('img', *_OURS, *_ENDINGS))}) beside other files and directories only; it contains {listed}; "
        f"{_UNPACK}: tar xf"
    )


def _file_name(member: Member) -> str:
    return member.name.rpartition("/")[2]


def _place(header: Header) -> str:
    """Which bytes show the format: first or last."""
    return "last" if header.content == "vpc" else "first"


def files_read(info: t.Mapping[str, t.Any]) -> list[str]:
    """Every file that QEMU would open for an image, from its `qemu-img info`: itself, its backing files, and parts."""
    data = info.get("format-specific", {}).get("data", {})
    spread = [*data.get("extents", ()), *(child["info"] for child in info.get("children", ()))]  # children: newer QEMUs
    named = [info.get(key) for key in ("backing-filename", "full-backing-filename", "filename")]
    return [*filter(None, [*named, data.get("data-file")]), *(file for part in spread for file in files_read(part))]


class DefinedFiles(t.NamedTuple):
    """Paths of files in one document, such as the definition of a guest; `user` names its owner."""

    user: str
    disks: t.Sequence[str]
    raw_disks: t.Collection[str]
    below: t.Collection[str]  # backing files of the disks
    others: t.Sequence[str]  # not of disks
    guest: str = ""  # UUID


class HeaderTrust(t.NamedTuple):
    """Volumes whose backing files are as libvirt reports them, and files whose first bytes are not read for that."""

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
    """Which headers to trust: a guest's raw disk may hold anything, though libvirt believes it of a volume.

    `without` are paths of volumes that do not count; `real` returns the one path of a file that has several.
    """
    raw = _only_raw(documents)
    ignored = {*map(real, without), *map(real, raw)}
    return HeaderTrust(
        [volume for volume in volumes if real(volume["path"]) not in ignored],
        raw | {volume["backing_path"] for volume in volumes if volume["backing_format"] == "raw"},
        {volume["path"] for volume in volumes},
    )


def _only_raw(documents: t.Sequence[DefinedFiles]) -> set[str]:
    """Disks that guests have as raw ones, and no guest has as anything else."""
    raw = {path for document in documents for path in document.raw_disks}
    return raw - {path for document in documents for path in document.disks if path not in document.raw_disks}
