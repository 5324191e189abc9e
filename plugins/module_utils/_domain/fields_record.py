# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's record of a guest, in libvirt's <metadata> under our namespace. It moves with the guest."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import (
    EDITED,
    FileIdentity,
    OwnedVolume,
)
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml import row
from ansible_collections.corral.virt.plugins.module_utils._xml.names import sealed
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Many, Row
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import (
    Element,
    canonical,
    child,
    drop,
    parse,
    resolve,
    text,
)

_OURS = ("corral:guest", "corral-seen:guest", "corral-backup:guest")


@dataclasses.dataclass(frozen=True)
class _Volumes(Many):
    """Entries of disks: the path as text, the rest as attributes."""

    def read(self, element: Element) -> tuple[OwnedVolume, ...] | None:
        """All entries; None if there are none."""
        return tuple(map(_volume, element.findall("/".join(map(resolve, self.steps[0]))))) or None

    def write(self, element: Element, value: t.Sequence[OwnedVolume]) -> None:
        """Replace all entries."""
        super().write(element, [one.path for one in value])
        for made, one in zip(element.findall("/".join(map(resolve, self.steps[0]))), value):
            _tell(made, one)


def _volume(element: Element) -> OwnedVolume:
    inode = _number(element.get("inode"))
    identity = None if inode is None else FileIdentity(inode, _number(element.get("born")), element.get("mark"))
    entry = OwnedVolume(element.text or "", element.get("guest"), element.get("host") or "", identity)
    edited = entry.guest is not None and element.get("seal") != entry.seal
    return dataclasses.replace(entry, guest=EDITED) if edited else entry


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _tell(element: Element, entry: OwnedVolume) -> None:
    found = entry.identity
    told = {
        "guest": entry.guest,
        "host": entry.host,
        "seal": entry.seal if entry.guest else None,
        **({"inode": found.inode, "born": found.born_ns, "mark": found.mark} if found else {}),
    }
    for name, value in told.items():
        if value not in (None, ""):
            element.set(name, str(value))


RECORD: row.Table = {
    "seed": Row("metadata/corral:guest/corral:seed/@sha256"),
    "instance_id": Row("metadata/corral:guest/corral:seed/@instance-id"),
    "ssh_host_key": Row("metadata/corral:guest/corral:ssh-host-key"),
    "addresses": Many("metadata/corral:guest/corral:address"),
    "volumes": _Volumes("metadata/corral:guest/corral:volume"),  # made by us, so ours to remove: `OwnedVolume`
    "balloon_kib": Row("metadata/corral:guest/corral:balloon/@kib", k.INT),  # asked of a guest that did not follow
    "copy_of": Row("metadata/corral:guest/corral:copy/@of"),  # UUID of the guest that it was made a copy of
    "copying": Many("metadata/corral:guest/corral:copying"),  # of the paths being made, those that are to be copies
    "making": Many("metadata/corral:guest/corral:making"),  # being made: not there, or not complete
    "snapshots": Many("metadata/corral:guest/corral:snapshot"),  # `SnapshotRecord`
    "moving": Row("metadata/corral:guest/corral:moving"),  # to which host
    "moving_from": Row("metadata/corral:guest/corral:moving/@from"),  # UUID of the host it comes from
    "moving_seal": Row("metadata/corral:guest/corral:moving/@seal"),  # of the guest's UUID: definitions are copied
    "moving_seen": Row("metadata/corral:guest/corral:moving/@seen"),  # `fingerprint` of what was planned with
    "moving_paused": Row("metadata/corral:guest/corral:moving/@paused"),  # it was paused before
    "moving_suspends": Row("metadata/corral:guest/corral:moving/@suspends"),  # the migration itself may suspend it
    "moving_autostart": Row("metadata/corral:guest/corral:moving/@autostart"),
    # when, by the source's clock: its copy had ended for good
    "moving_let_run": Row("metadata/corral:guest/corral:moving/@let-run"),
    "moving_made": Many("metadata/corral:guest/corral:moving-made"),  # what the move made there: `Made`
    "moving_goes": Many("metadata/corral:guest/corral:moving-goes"),  # what goes from the source when it has arrived
    "seen": Many("metadata/corral-seen:guest/corral-seen:at"),  # addresses at which it was seen: `Sighting`
}


def read(xml: str) -> dict[str, t.Any]:
    """The fields of the record in a definition."""
    return row.read(parse(xml), RECORD)


def of(guest: FoundGuest | None) -> dict[str, t.Any]:
    """The record of a guest, from its running XML if it runs; empty without a guest. The record of another guest's
    migration, from a copied definition, is left out.
    """
    return own(read(guest.live_xml or guest.xml), guest.uuid) if guest else {}


def own(recorded: dict[str, t.Any], uuid: str) -> dict[str, t.Any]:
    """A record without the migration of another guest than the one with this UUID."""
    if recorded.get("moving_seal") in (None, sealed(uuid)):  # earlier versions did not record it
        return recorded
    return {name: value for name, value in recorded.items() if not name.startswith("moving")}


def document(root: Element, tag: str = "corral:guest") -> str:
    """Our element, or the one with another tag, as libvirt's metadata call takes it: with its tags, without the
    namespace that libvirt adds itself.
    """
    mark = root.find("metadata/" + resolve(tag))
    if mark is None:
        return ""
    plain = copy.deepcopy(mark)
    for element in plain.iter():
        element.tag = element.tag.rpartition("}")[2]
    return text(plain, without_namespaces=True)


def fingerprint(xml: str) -> str:
    """The SHA-256 of a definition without our record, which changes during a migration.

    `xml` is the inactive document with its secrets, as `_domain.libvirt_query.found` reads it.
    """
    return hashlib.sha256(canonical(_without_ours(xml))).hexdigest()


def _without_ours(xml: str) -> Element:
    root = parse(xml)
    metadata = root.find("metadata")
    drop([] if metadata is None else [each for each in metadata if each.tag in map(resolve, _OURS)])
    if metadata is not None and not len(metadata):
        root.remove(metadata)
    return root


def differing(before: str, after: str) -> tuple[str, ...]:
    """The elements in which two definitions differ (`name`, `devices/disk`); no values."""
    first, second = (sorted(_parts(_without_ours(xml))) for xml in (before, after))
    gone, added = _lacking(first, other=second), _lacking(second, other=first)
    return tuple(sorted({name for name, _text in [*gone, *added]}))


def _parts(root: Element) -> t.Iterator[tuple[str, bytes]]:
    for element in root:
        if element.tag == "devices":
            yield from ((f"devices/{device.tag}", canonical(device).strip()) for device in element)
        else:
            yield element.tag, canonical(element).strip()


def _lacking(one: t.Sequence[tuple[str, bytes]], other: t.Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    left = [*other]
    found = []
    for part in one:
        if part in left:
            left.remove(part)
        else:
            found.append(part)
    return found


def identified(xml: str, made: t.Mapping[str, FileIdentity]) -> str:
    """The definition with the identities of files made for the guest (by path) in its record."""
    if not made:
        return xml
    root = parse(xml)
    entries = RECORD["volumes"].read(root) or ()
    told = [dataclasses.replace(one, identity=made.get(one.path, one.identity)) for one in entries]
    if told == list(entries):
        return xml
    RECORD["volumes"].write(root, told)
    return text(root)


def arrived(
    volumes: t.Iterable[OwnedVolume],
    named: t.Collection[str],
    *,
    guest: str,
    source: str,
    host: str,
    moved: t.Mapping[str, str],
    volumes_there: t.Mapping[str, FileIdentity] | None = None,
) -> tuple[OwnedVolume, ...]:
    """The disk entries of a guest that has migrated from `source` to `host` (UUIDs): its own ones that its definition
    names (paths) now belong to `host`, without file identities, which the source cannot know, but with those of logical
    volumes (`volumes_there`). `moved` maps paths on the source to others on `host`.

    Others stay as they are: a copied definition brings entries that are not its own.
    """
    own = [one for one in volumes if (one.guest, one.host) == (guest, source)]
    paths, known = {one: moved.get(one.path, one.path) for one in own}, volumes_there or {}
    there = {one: OwnedVolume(path, guest, host, known.get(path)) for one, path in paths.items()}
    return tuple(there.get(one, one) for one in volumes if one not in there or there[one].path in named)


def update(xml: str, fields: t.Mapping[str, t.Any]) -> str:
    """Our element after `fields` are written into it."""
    root = parse(xml)
    child(root, "metadata")
    row.graft(root, RECORD, fields)
    return document(root)
