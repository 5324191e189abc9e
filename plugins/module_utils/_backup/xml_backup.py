# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the documents that begin a backup and its checkpoint, and read those of libvirt."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain import fields_disk
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_sources import Located, path_of
from ansible_collections.corral.virt.plugins.module_utils._xml.names import BACKUP_OF
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import drop, make, parse, text


def backup(files: t.Mapping[str, str], since: t.Mapping[str, str], targets: t.Iterable[str]) -> str:
    """The document that begins a backup of the disks with `files`, by target; `since` names the checkpoint of those of
    which only the changes are copied.
    """
    root = parse("<domainbackup mode='push'/>")
    disks = make(root, "disks")
    for target in targets:
        if target not in files:
            make(disks, "disk", name=target, backup="no")
            continue
        disk = make(disks, "disk", name=target, backup="yes", type="file", backupmode="full")
        if target in since:
            disk.attrib.update({"backupmode": "incremental", "incremental": since[target]})
        make(disk, "driver", type="qcow2")
        make(disk, "target", file=files[target])
    return text(root)


def checkpoint(name: str, repository: str, with_bitmaps: t.Collection[str], targets: t.Iterable[str]) -> str:
    """The document of a checkpoint that belongs to a repository."""
    root = parse("<domaincheckpoint/>")
    make(root, "name").text = name
    make(root, "description").text = BACKUP_OF + repository
    disks = make(root, "disks")
    for target in targets:
        make(disks, "disk", name=target, checkpoint="bitmap" if target in with_bitmaps else "no")
    return text(root)


def repository_of(checkpoint_xml: str) -> str | None:
    """The ID of the repository that a checkpoint belongs to; None for somebody else's."""
    about = parse(checkpoint_xml).findtext("description") or ""
    return about[len(BACKUP_OF) :] if about.startswith(BACKUP_OF) else None


def sizes(checkpoint_xml: str) -> dict[str, int]:
    """The bytes that were written since a checkpoint, by target; a disk whose bitmap is missing or broken is left
    out.
    """
    disks = parse(checkpoint_xml).iterfind("disks/disk[@size]")
    return {disk.get("name"): int(disk.get("size")) for disk in disks}


def with_definition(checkpoint_xml: str, definition: str) -> str:
    """The document of a checkpoint with the guest's present definition, as another libvirt may not take that of then;
    without the checkpoint below, which was deleted when the point was complete.
    """
    root = parse(checkpoint_xml)
    drop([*root.findall("domain"), *root.findall("parent")])
    root.append(parse(definition))
    return text(root)


def is_whole(checkpoint_xml: str) -> bool:
    """True if all bitmaps of a checkpoint can be used, as `sizes` tells."""
    noted = [disk.get("name") for disk in parse(checkpoint_xml).iterfind("disks/disk[@checkpoint='bitmap']")]
    return set(noted) <= set(sizes(checkpoint_xml))


def job_targets(backup_xml: str) -> tuple[str, ...]:
    """The files that a running backup writes."""
    return tuple(one.get("file") for one in parse(backup_xml).iterfind("disks/disk/target[@file]"))


def seed(xml: str, located: Located) -> str | None:
    """The file with what cloud-init reads."""
    for disk in parse(xml).iterfind("devices/disk"):
        source = disk.find("source")
        if fields_disk.name_of(disk) == "seed" and source is not None:
            return path_of(source, located)
    return None
