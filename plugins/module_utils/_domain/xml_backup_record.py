# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a guest was backed up and proven last, and how often that is due by its tags."""

from __future__ import annotations

import os.path
import re
import shlex
import typing as t
from xml.etree import ElementTree

from ansible_collections.corral.virt.plugins.module_utils._xml.names import BACKED, sealed

HELD = "it runs on a backup until that is copied"  # so it does not migrate, nor are its disks stored or moved
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION = re.compile(r"(\d+) ?([mhdw])")
_TAG = re.compile(r"(backup|proven)-(\d+[mhdw])")


class BackupNote(t.NamedTuple):
    """What is noted with a guest: its last point, until when that was as new as the guest, and its last proof; the
    folder of the point that disks stand on while that is copied, these, and those that did not pause it on errors; path
    and ID of the repository that has its last point, and the UUID of the host that put it there.
    """

    point: str | None = None
    at_s: int | None = None
    proven_s: int | None = None
    stands_on: str | None = None
    disks: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    repository: str | None = None
    repository_id: str | None = None
    host: str | None = None


def seconds(duration: str) -> int:
    """The seconds of a duration such as 24h; raises ValueError."""
    found = _DURATION.fullmatch(duration)
    if not found:
        raise ValueError(f"must be a number and one of m, h, d and w, such as 24h, not {duration!r}")
    return int(found.group(1)) * _UNITS[found.group(2)]


def due(tags: t.Iterable[str]) -> tuple[int | None, int | None]:
    """How old the last backup and the last proof may be, in seconds, by tags such as backup-24h and proven-7d."""
    found = {one.group(1): seconds(one.group(2)) for tag in tags if (one := _TAG.fullmatch(tag))}
    return found.get("backup"), found.get("proven")


def read(document: str | None, uuid: str) -> BackupNote:
    """The note in our element of a guest's metadata; None has none."""
    return _of(ElementTree.fromstring(document) if document else None, uuid)  # noqa: S314 (libvirt wrote it)


def within(root: t.Any) -> BackupNote:
    """The note in a definition."""
    return _of(root.find(f"metadata/{{{BACKED}}}guest"), root.findtext("uuid") or "")


def held(xml: str) -> str:
    """What to do about a guest that runs on a backup (`HELD`); empty if it does not."""
    root = ElementTree.fromstring(xml)  # noqa: S314 (libvirt wrote it)
    folder, name, uuid = within(root).stands_on, root.findtext("name") or "", root.findtext("uuid")
    if not folder:
        return ""
    place, point = os.path.split(folder)
    repository, whose = os.path.split(place)
    words = [f"repository={repository}", f"guest={whose}", f"point={point}"]
    words += [f"new_name={name}"] if whose != uuid else []
    command = ["ansible-playbook", "corral.virt.restore", *(part for word in words for part in ("-e", word))]
    return f"wait for the end of its restore, or go on with it ({shlex.join([*command, '-e', 'instant=true'])})"


def _of(element: t.Any, uuid: str) -> BackupNote:
    if element is None or element.get("seal") != sealed(uuid):  # none, or of the guest whose definition somebody copied
        return BackupNote()
    at_s, proven_s = (
        int(text) if text.isdecimal() else None for text in (element.get("at", ""), element.get("proven", ""))
    )
    disks, stops = (tuple(element.get(name, "").split()) for name in ("disks", "stops"))
    place = (element.get(name) for name in ("repository", "repository-id", "host"))
    return BackupNote(element.get("point"), at_s, proven_s, element.get("stands-on"), disks, stops, *place)


def document(note: BackupNote, uuid: str) -> str:
    """The element, as libvirt's metadata call takes it, sealed for the guest with this UUID."""
    element = ElementTree.Element("guest", seal=sealed(uuid))
    for name, value in (
        ("point", note.point),
        ("at", note.at_s),
        ("proven", note.proven_s),
        ("stands-on", note.stands_on),
        ("disks", " ".join(note.disks) or None),
        ("stops", " ".join(note.stops) or None),
        ("repository", note.repository),
        ("repository-id", note.repository_id),
        ("host", note.host),
    ):
        if value is not None:
            element.set(name, str(value))
    return ElementTree.tostring(element, encoding="unicode")
