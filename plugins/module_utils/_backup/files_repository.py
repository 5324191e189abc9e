# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read and write a repository of backups: a directory of this machine.

QEMU's user passes through its folders, and lists none of them; only root reads what is in a finished point.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import stat
import typing as t
import uuid as uuids

from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import (
    MANIFEST,
    MARKER,
    PART,
    PIN,
    PROOF,
    VERSION,
    BackupPoint,
    BrokenPoint,
    Pin,
    Proof,
    Repository,
    RepositoryFacts,
    read_manifest,
    read_pin,
    read_proof,
    text_of,
)
from ansible_collections.corral.virt.plugins.module_utils._storage import files_qemu_img
from ansible_collections.corral.virt.plugins.module_utils._system import durable
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import explained

_PASS, _OWN, _WRITE_OTHERS = 0o711, 0o700, 0o022
_PIECE = 1024 * 1024
_REMOVED = ".removed"  # ending of a folder whose deletion has begun


def look(path: str) -> RepositoryFacts:
    """What is at the path; raises Failed."""
    with explained(f"look at repository {path}", path):
        try:
            names, content = os.listdir(path), None
        except (FileNotFoundError, NotADirectoryError):
            return RepositoryFacts(False)
        with contextlib.suppress(FileNotFoundError), open(os.path.join(path, MARKER), encoding="utf-8") as stream:
            content = stream.read()
        foreign = (name for name in names if name != "lost+found" and not name.startswith(MARKER + "."))
        others = () if content is not None else tuple(sorted(foreign))
        found = os.stat(path)
        closed, is_open = _closed(path), bool(found.st_mode & _WRITE_OTHERS)
        itself = closed == os.path.realpath(path)
        return RepositoryFacts(True, content, others, closed, found.st_dev, is_open, itself)


def _closed(path: str) -> str | None:
    way, here = [], os.path.realpath(path)
    while here != os.path.dirname(here):
        way.append(here)
        here = os.path.dirname(here)
    return next((one for one in reversed(way) if not os.stat(one).st_mode & stat.S_IXOTH), None)


@contextlib.contextmanager
def kept_mounted(path: str) -> t.Iterator[None]:
    """Nobody unmounts the filesystem of a directory meanwhile; nothing if there is none."""
    if not os.path.isdir(path):
        yield
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield
    finally:
        os.close(descriptor)


def create(path: str) -> None:
    """Mark a directory as a repository; a mark that another run has written meanwhile stays."""
    ident, marker = str(uuids.uuid4()), os.path.join(path, MARKER)
    with explained(f"create repository {path}", path):
        os.chmod(path, os.stat(path).st_mode | _PASS)
        own = f"{marker}.{ident}"
        write_text(own, json.dumps({"version": VERSION, "id": ident}) + "\n")
        with contextlib.suppress(FileExistsError):
            _name(own, marker)
        durable.remove(own)
        durable.fsync(path)


def _name(path: str, to: str) -> None:
    """Give a file another name, which no other has; raises FileExistsError."""
    try:
        os.link(path, to)
    except FileExistsError:
        raise
    except OSError:  # no second names there, as on CIFS
        os.rename(path, to)


def write_text(path: str, content: str) -> None:
    """Write a file that only root reads: all of it, or nothing."""
    with open(os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as out:
        out.write(content)
    durable.replace(path + ".new", path)


def read_text(path: str) -> str:
    """The content of a file of a point; raises Failed."""
    with explained(f"read {path}", path), open(path, encoding="utf-8") as stream:
        return stream.read()


def folder(repository: str, point: BackupPoint | BrokenPoint, *, part: bool = False) -> str:
    """The folder of a point."""
    return os.path.join(repository, point.uuid, point.id + (PART if part else ""))


def read(path: str, marker: str, guests: t.Collection[str] | None = None) -> Repository:
    """The repository, of the guests with these UUIDs, or of all; raises Failed."""
    points, broken, unfinished = list[BackupPoint](), list[BrokenPoint](), list[BackupPoint]()
    with explained(f"read repository {path}", path):
        for uuid in sorted(name for name in os.listdir(path) if _is_uuid(name)):
            if guests is not None and uuid not in guests:
                continue
            for name in sorted(os.listdir(os.path.join(path, uuid))):
                place = os.path.join(path, uuid, name)
                if name.endswith(_REMOVED) or not os.path.isdir(place):
                    continue
                found = _point(place, uuid, name)
                if isinstance(found, BrokenPoint):
                    broken.append(found)
                elif name.endswith(PART):
                    unfinished.append(found)
                else:
                    points.append(found)
        points.sort(key=lambda point: (point.created_s, point.id))
        proofs = {point.id: proof for point in points if (proof := _proof(folder(path, point)))}
        held: list[BackupPoint | BrokenPoint] = [*points, *broken]
        pins = {point.id: here for point in held if (here := tuple(_pins(folder(path, point))))}
    return Repository(json.loads(marker)["id"], tuple(points), tuple(broken), tuple(unfinished), proofs, pins)


def _pins(place: str) -> t.Iterator[Pin]:
    for name in sorted(os.listdir(place)):
        if name.startswith(PIN) and name.endswith(".json"):
            with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):
                with open(os.path.join(place, name), encoding="utf-8") as stream:
                    yield read_pin(stream.read(), name[len(PIN) : -len(".json")])


def lend(repository: str, points: t.Sequence[BackupPoint], pin: Pin) -> None:
    """Let a guest run on the first of these points, which stands on the others: QEMU's user may pass to their files."""
    place = folder(repository, points[0])
    with explained(f"note in {place} that {pin.guest} runs on it", place):
        write_text(_pin(place, pin.uuid), text_of(pin))
        durable.fsync(place)
        for point in points:
            os.chmod(folder(repository, point), _PASS)


def take_back(repository: str, points: t.Iterable[BackupPoint]) -> None:
    """Let only root read these points; libvirt has given their files to QEMU's user."""
    for point in points:
        place = folder(repository, point)
        with explained(f"close {place}", place):
            for disk in point.disks:
                os.chown(os.path.join(place, disk.file), 0, 0)
            os.chmod(place, _OWN)


def unpin(place: str, uuid: str) -> None:
    """Forget that a guest runs on the point in a folder."""
    with explained(f"note in {place} that no guest runs on it", place):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_pin(place, uuid))
            durable.fsync(place)


def _pin(place: str, uuid: str) -> str:
    return os.path.join(place, f"{PIN}{uuid}.json")


def _proof(place: str) -> Proof | None:
    with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):
        with open(os.path.join(place, PROOF), encoding="utf-8") as stream:
            return read_proof(stream.read())
    return None


def write_proof(repository: str, point: BackupPoint, proof: Proof) -> None:
    """Record in the folder of a point how its restore went; raises Failed if it was deleted meanwhile."""
    path = os.path.join(folder(repository, point), PROOF)
    with explained(f"record the proof of backup {point.id}", path):
        write_text(path, text_of(proof))


def _is_uuid(name: str) -> bool:
    try:
        return str(uuids.UUID(name)) == name
    except ValueError:
        return False


def _point(place: str, uuid: str, name: str) -> BackupPoint | BrokenPoint:
    try:
        with open(os.path.join(place, MANIFEST), encoding="utf-8") as stream:
            found = read_manifest(stream.read(), name)
    except (FileNotFoundError, UnicodeDecodeError):
        return BrokenPoint(name, uuid, "it has no manifest")
    if isinstance(found, str):
        return BrokenPoint(name, uuid, found)
    why = "" if name.endswith(PART) else _damage(place, found)
    return BrokenPoint(name, uuid, why, frozenset(found.parents)) if why else found


def _damage(place: str, point: BackupPoint) -> str:
    """Which disk of a point is missing or has another size; empty if none."""
    for disk in point.disks:
        try:
            size = os.stat(os.path.join(place, disk.file)).st_size
        except FileNotFoundError:
            return f"its file {disk.file} is missing"
        if size != disk.stored_bytes:
            return f"its file {disk.file} has {size} bytes instead of {disk.stored_bytes}"
    return ""


def begin(repository: str, point: BackupPoint, definition: t.Mapping[str, str]) -> str:
    """Create the folder of a point that is being made, with these texts in it; returns its path."""
    place = folder(repository, point, part=True)
    with explained(f"create {place}", place):
        os.makedirs(os.path.dirname(place), mode=_PASS, exist_ok=True)
        os.mkdir(place, _PASS)
        for path in (os.path.dirname(place), place):
            os.chmod(path, _PASS)
        for name, text in definition.items():
            write_text(os.path.join(place, name), text)
        write_text(os.path.join(place, MANIFEST), text_of(point))
        for path in (place, os.path.dirname(place), repository):
            durable.fsync(path)
    return place


def finish(
    repository: str, point: BackupPoint, flatten: t.Collection[str], told: t.Callable[[int, int], None]
) -> BackupPoint:
    """Chain the files of a point, or make those to `flatten` whole, write its manifest, and give its folder the final
    name; the point with sizes and checksums.
    """
    place = folder(repository, point, part=True)
    with explained(f"finish backup {point.id}", place):
        disks, done = [], 0
        total = sum(os.stat(os.path.join(place, disk.file)).st_size for disk in point.disks)
        for planned in point.disks:
            disk = planned
            path = os.path.join(place, disk.file)
            if disk.parent:
                files_qemu_img.repoint(path, os.path.join("..", disk.parent, disk.file), "qcow2")
            if disk.target in flatten:
                files_qemu_img.convert(path, path + ".whole", from_format="qcow2", to_format="qcow2")
                durable.replace(path + ".whole", path)
                disk = dataclasses.replace(disk, parent=None, reason="all, made whole in the repository")
            size = os.stat(path).st_size
            found = digest(path, lambda read, at=done: told(at + read, total))  # type: ignore[misc]
            done += size
            disks.append(dataclasses.replace(disk, stored_bytes=size, sha256=found))
            os.chown(path, 0, 0)
            os.chmod(path, 0o400)
            durable.fsync(path)
        names = sorted(set(os.listdir(place)) - {disk.file for disk in disks} - {MANIFEST})
        files = tuple((name, digest(os.path.join(place, name))) for name in names)
        whole = dataclasses.replace(point, disks=tuple(disks), files=files)
        write_text(os.path.join(place, MANIFEST), text_of(whole))
        os.chmod(place, _OWN)
        durable.replace(place, folder(repository, point))
    return whole


def digest(path: str, told: t.Callable[[int], None] | None = None) -> str:
    """The SHA-256 of a file."""
    found, read = hashlib.sha256(), 0
    with open(path, "rb") as stream:
        while piece := stream.read(_PIECE):
            found.update(piece)
            read += len(piece)
            if told:
                told(read)
    return found.hexdigest()


def discard(repository: str, uuid: str, ident: str) -> None:
    """Delete the folder of a point that was not finished."""
    _remove(os.path.join(repository, uuid, ident + PART))


def delete(repository: str, point: BackupPoint | BrokenPoint) -> None:
    """Delete a point: first its name, so that a half of it is never taken for the whole."""
    _remove(folder(repository, point))


def _remove(place: str) -> None:
    above = os.path.dirname(place)
    with explained(f"delete {place}", place):
        os.rename(place, place + _REMOVED)
        durable.fsync(above)
        for name in os.listdir(above):  # with those whose deletion was interrupted
            if name.endswith(_REMOVED):
                shutil.rmtree(os.path.join(above, name))
