# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images as files of a pool's directory. A power cut leaves the old state or the new one.

debian-12.qcow2 -> debian-12.1a2b3c4d5e6f.qcow2          the stable name
debian-12.1a2b3c4d5e6f.qcow2                              a content, read-only, never rewritten
.debian-12.qcow2.json -> .debian-12.1a2b3c4d5e6f.qcow2.json
.debian-12.1a2b3c4d5e6f.qcow2.json                        its manifest
.corral/debian-12.qcow2/                                  unfinished downloads, and a lock
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Image, Manifest, Present
from ansible_collections.corral.virt.plugins.module_utils._storage.files_image_lock import manifest_name
from ansible_collections.corral.virt.plugins.module_utils._system import private, work_directory
from ansible_collections.corral.virt.plugins.module_utils._system.durable import fsync, remove
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import explained

CHUNK = 1024 * 1024


def look(image: Image) -> Present:
    """The image's files in the pool; reads only."""
    path = os.path.join(image.directory, image.name)
    with explained(f"read the pool's directory {image.directory}", path):
        files = frozenset(os.listdir(image.directory))
    strangers = frozenset(file for file in files if image.owns(file) and manifest_name(file) not in files)
    if not os.path.islink(path):
        return Present(target=None, files=files, foreign=image.name in files, strangers=strangers)
    target = os.readlink(path)
    manifest = os.path.join(image.directory, manifest_name(image.name))
    complete = target in files and os.path.islink(manifest) and os.readlink(manifest) == manifest_name(target)
    return Present(target=target if complete else None, files=files, strangers=strangers)


def names(directory: str) -> list[str]:
    """The stable names in a pool's directory."""
    with explained(f"read the pool's directory {directory}"):
        files = frozenset(os.listdir(directory))
    return sorted(
        name for name in files if manifest_name(name) in files and os.path.islink(os.path.join(directory, name))
    )


def read_manifest(text: str, what: str) -> Manifest:
    """The manifest from its text; raises Failed."""
    try:
        known = {field.name for field in dataclasses.fields(Manifest)}
        # a newer version may tell more
        found = Manifest(**{key: value for key, value in json.loads(text).items() if key in known})
        found.check()
        return found
    except (ValueError, TypeError, AttributeError, BadInput) as error:
        raise Failed(
            f"cannot read the manifest of {what}: {error}; import the image again under another name"
        ) from error


def digest_of(path: str, algorithm: str, tell: t.Callable[[int], object]) -> str:
    """The hexadecimal digest of a whole file."""
    digest = hashlib.new(algorithm)
    with open(path, "rb") as stream:
        for chunk in iter(lambda: stream.read(CHUNK), b""):
            digest.update(chunk)
            tell(stream.tell())
    return digest.hexdigest()


def publish(path: str, image: Image, manifest: Manifest) -> None:
    """Give the finished file its content's name, read-only: overlays will be based on it.

    The manifest is written first.
    """
    os.chmod(path, 0o444)
    fsync(path)
    beside = os.path.join(image.directory, manifest_name(manifest.content))
    aside = work_directory.path(image, "manifest")
    with open(aside, "w") as out:
        json.dump(dataclasses.asdict(manifest), out, sort_keys=True)
        out.flush()
        os.fsync(out.fileno())
    os.rename(aside, beside)
    os.rename(path, os.path.join(image.directory, manifest.content))
    # A rename changes the file's time.
    vouch(image.directory, _of_file(manifest, os.stat(os.path.join(image.directory, manifest.content))))
    fsync(image.directory)


def verified(directory: str, content: str) -> bool:
    """True if the manifest of a content says that this very file was verified."""
    manifest, now = manifest_of(directory, content), os.stat(os.path.join(directory, content))
    return bool(manifest and manifest.is_of(size=now.st_size, changed_ns=now.st_ctime_ns, inode=now.st_ino))


def verify(directory: str, content: str, offered: Manifest | None) -> Manifest | None:
    """The manifest of a content if the file matches it (or else `offered`); None if not, or without either.

    The file is read only if it is not the very one that was verified. The manifest records the file's state before it
    is read: if somebody writes to it meanwhile, it no longer matches.
    """
    manifest = manifest_of(directory, content) or offered
    if manifest is None or verified(directory, content):
        return manifest
    path = os.path.join(directory, content)
    before = os.stat(path)
    same = before.st_size == manifest.bytes and digest_of(path, "sha256", lambda _done: None) == manifest.sha256
    return _of_file(manifest, before) if same else None


def _of_file(manifest: Manifest, file: os.stat_result) -> Manifest:
    """The manifest with the inode and change time of this file."""
    return dataclasses.replace(manifest, inode=file.st_ino, changed_ns=file.st_ctime_ns)


def manifest_of(directory: str, content: str) -> Manifest | None:
    """The manifest beside a content; None if there is none that can be read."""
    try:
        with open(
            private.opened(os.path.join(directory, manifest_name(content)), os.O_RDONLY), errors="replace"
        ) as stream:
            return read_manifest(stream.read(), content)
    except (FileNotFoundError, Failed, Refused):
        return None


def vouch(directory: str, manifest: Manifest) -> None:
    """Write the manifest of a verified file in place, as others may hold it locked."""
    text = json.dumps(dataclasses.asdict(manifest), sort_keys=True)
    beside = private.opened(os.path.join(directory, manifest_name(manifest.content)), os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(beside, text.encode(), 0)
        os.ftruncate(beside, len(text.encode()))
        os.fsync(beside)
    finally:
        os.close(beside)


def point(image: Image, content: str) -> None:
    """Switch the stable name to a content file; the manifest's link first, so that a name is never without one.

    Raises FileExistsError if something gets the name at this very moment.
    """
    _link(image, manifest_name(image.name), manifest_name(content))
    if os.path.islink(os.path.join(image.directory, image.name)):
        _link(image, image.name, content)
    else:
        os.symlink(content, os.path.join(image.directory, image.name))  # which replaces nothing
    fsync(image.directory)


def _link(image: Image, name: str, target: str) -> None:
    temporary = work_directory.path(image, "link")
    remove(temporary)
    os.symlink(target, temporary)
    os.rename(temporary, os.path.join(image.directory, name))
