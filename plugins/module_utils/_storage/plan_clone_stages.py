# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what must be known about a disk and its image, and what the answers of `CloneHost` mean. Pure.

No question is asked whose answer decides nothing.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.units import is_content
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_image_trust
from ansible_collections.corral.virt.plugins.module_utils._storage.model_clone import (
    BaseImage,
    CloneSpec,
    FoundDisk,
    Use,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.model_header import Header
from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import FreeSpace


@dataclasses.dataclass(frozen=True)
class DiskInfo:
    """The report of qemu-img on an image."""

    size_bytes: int
    backing: str | None  # the file it stands on, which may itself be a link
    snapshots: bool


class CloneHost(t.Protocol):
    """The host of a disk and of the image that it is created from."""

    def kind(self, path: str) -> str:
        """What is at the path: `nothing`, a `file`, a `link` or something `other`."""

    def header(self, path: str) -> Header:
        """What the first bytes of the file say."""

    def chain(self, path: str) -> tuple[str, ...]:
        """The file and its backing files, by their first bytes."""

    def is_managed(self, path: str) -> bool:
        """True if virt_image imported the file."""

    def uses(self, path: str) -> tuple[Use, ...]:
        """How guests of this host use the file."""

    def overlays(self, path: str) -> tuple[str, ...]:
        """The images of active pools that are backed by the file."""

    def is_open(self, path: str) -> bool:
        """True if a process has the file open."""

    def allocated_bytes(self, path: str) -> int:
        """The bytes that the file takes."""

    def flat_bytes(self, path: str) -> int:
        """The bytes that the image takes with all that it reads from its backing files."""

    def info(self, path: str, form: str) -> DiskInfo:
        """What qemu-img reports on the image, which has this format."""

    def raw_disks(self) -> t.Collection[str]:
        """The files that guests of this host have as raw disks, whose first bytes they write."""

    def room(self, directory: str, reserve_bytes: int | None) -> FreeSpace:
        """The room in the filesystem of a directory."""


def base(name: str, path: str, host: CloneHost) -> BaseImage:
    """The image that a disk is created from, by its name and the content behind it; raises Refused.

    Users of a content do not matter: it is nobody's disk.
    """
    fixed = is_content(path)
    chain = host.chain(path)
    managed = bool(chain[1:]) and _strange(chain, host) is None
    header = host.header(path)
    raw = path in host.raw_disks()
    form = plan_image_trust.base("create a disk from", path, header, managed=managed, raw=raw)
    uses = () if fixed else host.uses(path)
    size_bytes = host.info(path, form).size_bytes
    return BaseImage(name, path, form, size_bytes, chain, uses, locked=not fixed and host.is_open(path))


def _strange(chain: t.Sequence[str], host: CloneHost) -> str | None:
    """The first backing file that virt_image did not import; None if it imported all."""
    return next((path for path in chain[1:] if not host.is_managed(path)), None)


def uses(
    guest: FoundGuest,
    targets: t.Sequence[str | None],
    *,
    is_stored: bool,
    managed_state: t.Callable[[], t.Collection[str]],
    forget_xml: str | None,
) -> list[Use]:
    """How a guest uses a file: as it runs (`targets`, one for each of its disks), else as it is stored.

    A guest that is off and has a managed save still uses what it ran with.
    """
    if targets:
        return [Use(guest.name, guest.uuid, "running", target, forget_xml) for target in targets]
    if not is_stored:
        return []
    saved = not guest.active and "managed_save" in managed_state()
    return [Use(guest.name, guest.uuid, "saved" if saved else "off", None, forget_xml)]


def found(wanted: CloneSpec, hidden: str, host: CloneHost) -> FoundDisk:
    """What is at the disk's path, as far as the wanted state needs it; `hidden` is the path at which it is created."""
    path = wanted.path
    kind = host.kind(path)
    left = hidden if host.kind(hidden) == "file" else None
    room = host.room(wanted.directory, wanted.reserve_bytes)
    if kind != "file":
        return FoundDisk(kind, left=left, lacks_room=room.problem(_new_bytes(wanted, host), wanted.directory))
    form = _format(path, host)
    uses = host.uses(path)
    if wanted.state != "absent" and form != wanted.format:
        return FoundDisk(kind, format=form, uses=uses, overlays=host.overlays(path), left=left)
    unknown = "" if uses or form == "raw" else _unknown_base(path, host)
    info = host.info(path, form)
    overlays: tuple[str, ...] = ()
    if wanted.state == "absent" or wanted.allow_shrink:
        overlays = host.overlays(path)
    flattens = wanted.state == "flattened" and info.backing and not unknown
    return FoundDisk(
        kind,
        format=form,
        size_bytes=info.size_bytes,
        backing=info.backing,
        unknown_base=unknown,
        snapshots=info.snapshots,
        uses=uses,
        overlays=overlays,
        locked=host.is_open(path),
        lacks_room=room.problem(_below_bytes(path, host) if flattens else 0, wanted.directory),
        left=left,
    )


def _new_bytes(wanted: CloneSpec, host: CloneHost) -> int:
    """The bytes that a new disk takes at once: for a copy all of its image, unless the filesystem may share blocks."""
    if wanted.base is None or not wanted.copy or may_share(wanted.base, wanted.format):
        return 0
    return sum(host.allocated_bytes(path) for path in wanted.base.chain)


def _below_bytes(path: str, host: CloneHost) -> int:
    """The additional bytes that a disk takes after it is flattened."""
    return max(0, host.flat_bytes(path) - host.allocated_bytes(path))


def may_share(base: BaseImage, form: str) -> bool:
    """True if a copy may share blocks with its image; whether the filesystem can is only known after a try."""
    return base.format == form and len(base.chain) == 1


def _format(path: str, host: CloneHost) -> str:
    """The format of a disk; raw if a guest has it as raw, as it then wrote the first bytes."""
    header = host.header(path)
    return "raw" if path in host.raw_disks() else header.format


def _unknown_base(path: str, host: CloneHost) -> str:
    """The backing or data file that a disk no guest has names itself, unless virt_image imported all backing files.

    Empty if there is none.
    """
    chain = host.chain(path)
    return _strange(chain, host) or host.header(path).data_file or host.header(chain[-1]).backing or ""
