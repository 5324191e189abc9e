# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a repository of backups, and check what is in it."""

from __future__ import annotations

import contextlib
import os
import time
import typing as t
from xml.etree import ElementTree

from ansible_collections.corral.virt.plugins.module_utils._backup import files_repository, plan_backup_info
from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import (
    DEFINITION,
    BackupPoint,
    Repository,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_repository import checked_repository
from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query, xml_backup_record, xml_summary
from ansible_collections.corral.virt.plugins.module_utils._libvirt import states
from ansible_collections.corral.virt.plugins.module_utils._xml import stdlib_reader
from ansible_collections.corral.virt.plugins.module_utils._xml.names import BACKED


def read(connection: t.Any, params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The guests with their points, and problems."""
    policy = plan_backup_info.checked(params)
    path, wanted = os.path.normpath(params["repository"]), params["guests"] or None
    facts = files_repository.look(path)
    is_empty = checked_repository(path, facts, "cannot read backups", empty=True)
    known = libvirt_query.of_all(connection, _known)
    whole = Repository("") if is_empty else files_repository.read(path, str(facts.marker))
    whole = plan_backup_info.until(whole, policy.at_s)
    missing = plan_backup_info.missing(wanted, whole, known)
    plan_backup_info.check_found([] if params["missing_ok"] else missing, path)
    if params["tag"] is not None:
        wanted = _tagged(path, plan_backup_info.chosen(whole, wanted), params["tag"])
    repository = plan_backup_info.chosen(whole, wanted, known)
    damage = _damage(path, repository, whole, verify=params["verify"])
    now_s = int(time.time())
    guests = plan_backup_info.described(repository, damage, now_s)
    if params["needs"]:
        guests = [{**guest, "needs": _needs(path, guest)} for guest in guests]
    problems = plan_backup_info.problems(repository, guests, known=known, now_s=now_s, policy=policy, wanted=wanted)
    return {"guests": guests, "problems": list(problems), "missing": missing}


def _known(domain: t.Any) -> plan_backup_info.KnownGuest:
    uuid, tags = domain.UUIDString(), stdlib_reader.tags(states.record(domain))
    return plan_backup_info.KnownGuest(
        domain.name(), uuid, tuple(tags), xml_backup_record.read(states.record(domain, BACKED), uuid)
    )


def _tagged(path: str, repository: Repository, tag: str) -> list[str]:
    """UUIDs of the guests whose definition has a tag in their last point; of a damaged one, in the one before."""
    tags: dict[str, list[str]] = {}
    for point in repository.points:  # oldest first
        with contextlib.suppress(VirtError, ElementTree.ParseError, ValueError):
            text = files_repository.read_text(os.path.join(files_repository.folder(path, point), DEFINITION))
            tags[point.uuid] = xml_summary.read(text)[0]["tags"]
    unknown = {point.uuid: point.guest for point in repository.points if point.uuid not in tags}
    plan_backup_info.check_tags(unknown.values(), path)
    return [uuid for uuid in tags if tag in tags[uuid]]


def _needs(path: str, guest: t.Mapping[str, t.Any]) -> dict[str, t.Any] | None:
    """What a guest needs of its host, from the definition in its last point; None if that cannot be read."""
    place = os.path.join(path, guest["uuid"], guest["last"], DEFINITION)
    with contextlib.suppress(VirtError, ElementTree.ParseError, ValueError):
        report = xml_summary.read(files_repository.read_text(place))[0]
        nics = [{key: nic[key] for key in ("bridge", "network") if nic.get(key)} for nic in report["interfaces"]]
        return {
            "vcpus": report["vcpus"]["maximum"],
            "memory_mib": report["memory"]["maximum_mib"],
            "interfaces": [nic for nic in nics if nic],
            "tags": report["tags"],
        }
    return None


def _damage(path: str, repository: Repository, whole: Repository, *, verify: bool) -> dict[str, list[str]]:
    """Why points cannot be restored, by ID: missing and damaged files, and those of points that they stand on."""
    damaged = {point.id: _damaged(path, point) for point in repository.points if verify}
    return plan_backup_info.inherited(whole.points, damaged)


def _damaged(path: str, point: BackupPoint) -> list[str]:
    place, found = files_repository.folder(path, point), list[str]()
    sums = {**{disk.file: disk.sha256 for disk in point.disks}, **dict(point.files)}
    for name, expected in sums.items():
        try:
            same = files_repository.digest(os.path.join(place, name)) == expected
        except OSError as error:
            found.append(f"its file {name} cannot be read: {error.strerror}")
            continue
        if not same:
            found.append(f"its file {name} is damaged: its SHA-256 is another one than in the manifest")
    return found
