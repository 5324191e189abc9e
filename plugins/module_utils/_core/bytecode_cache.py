# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compiled code of this collection, kept on the host until its next boot.

Ansible sends a module as an archive with all that it imports. In each run, Python compiles what it imports from there
(twice: `zipimport` does so for the name of the file alone): most of the time of a module with nothing to do.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import marshal
import os
import stat
import sys
import types
import typing as t
import zipimport

_COLLECTION = "ansible_collections.corral.virt.plugins."
_PRIVATE = "/run/corral"  # as in _system/private
_SEAL_BYTES = hashlib.sha256().digest_size


def keep() -> None:
    """Keep what is compiled from here on, and use what is kept, where this file came in an archive.

    Only root keeps it, in a folder that is root's alone.
    """
    if not isinstance(globals()["__loader__"], zipimport.zipimporter):
        return
    folder = os.path.join(_PRIVATE, "compiled")
    kept = os.geteuid() == 0 and all(map(_is_private, (_PRIVATE, folder)))
    sys.meta_path.insert(0, Finder(folder if kept else None))


def _is_private(folder: str) -> bool:
    """True if the folder, created if missing, is one that no other user can write to."""
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        status = os.lstat(folder)
    except OSError:  # no /run, no room
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


class Finder:
    """Finds the collection's files in archives; None for all else, which Python finds."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder

    def find_spec(
        self, name: str, path: t.Sequence[str] | None, _target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Called by Python for each import."""
        for place in path or () if name.startswith(_COLLECTION) else ():
            with contextlib.suppress(zipimport.ZipImportError):  # no archive, or not in it
                loader = _Loader(zipimport.zipimporter(place), self._folder)
                is_package = loader.is_package(name)
                spec = importlib.machinery.ModuleSpec(name, loader, is_package=is_package)
                if is_package:
                    spec.submodule_search_locations = [f"{place}/{name.rpartition('.')[2]}"]
                return spec
        return None


class _Loader(importlib.abc.InspectLoader):
    """Loads a file of an archive, compiled before if its source is the same."""

    def __init__(self, archive: zipimport.zipimporter, folder: str | None) -> None:
        self._archive, self._folder = archive, folder

    def is_package(self, fullname: str) -> bool:
        """True if the name is that of a package."""
        return self._archive.is_package(fullname)

    def get_source(self, fullname: str) -> str:
        """The source, also for tracebacks."""
        return self._archive.get_source(fullname) or ""

    def get_code(self, fullname: str) -> types.CodeType:
        """Compiled code; its file name is the same in each run."""
        source = self.get_source(fullname)
        made_from = importlib.util.MAGIC_NUMBER + bytes([sys.flags.optimize]) + source.encode()
        path = self._folder and os.path.join(self._folder, fullname)
        if path and (kept := _read(path, made_from)):
            return t.cast("types.CodeType", marshal.loads(kept))  # noqa: S302 (of root's own folder, and sealed)
        code = compile(source, f"{fullname.replace('.', '/')}.py", "exec", dont_inherit=True)
        if path:
            with contextlib.suppress(OSError):  # no room
                _write(path, made_from, marshal.dumps(code))
        return code


def _read(path: str, made_from: bytes) -> bytes | None:
    try:
        with open(path, "rb") as stream:
            seal, code = stream.read(_SEAL_BYTES), stream.read()
    except OSError:
        return None
    return code if seal == _seal(made_from, code) else None


def _seal(made_from: bytes, code: bytes) -> bytes:
    """What only this code of this source has: it may be of another version, or cut off."""
    return hashlib.sha256(hashlib.sha256(made_from).digest() + code).digest()


def _write(path: str, made_from: bytes, code: bytes) -> None:
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "wb") as stream:
            stream.write(_seal(made_from, code) + code)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
