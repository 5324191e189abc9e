# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packed modules, kept between runs: packing is the controller's longest work in a short task.

ansible-core packs a module with all that it imports once in a run, into a file of that run; if that file exists, it
packs nothing. The file's name is internal to core (executor/module_common.py): if core changes it, nothing is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
import typing as t

import ansible
from ansible import constants
from ansible.module_utils import __path__ as core_path
from ansible.plugins.loader import module_utils_loader
from ansible.release import __version__

from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._system import durable, private

_NAMESPACE = "corral.virt."
_COLLECTION = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
_CORE = os.path.dirname(ansible.__file__)
_VERSIONS = 3  # of each module: of two checkouts, and one to change


@contextlib.contextmanager
def kept(module: str) -> t.Iterator[None]:
    """Inside, ansible-core packs a module of this collection only if its sources have changed since the last pack.

    A pack that cannot be kept is made again in the next run, so no error is shown.
    """
    packed = _in_this_run(module)
    key = _key(module, packed) if _is_first(module, packed) else None
    # Of several processes, the one whose key is older than all that core reads in this run. What it finds in the end
    # was made from the sources of that key, if they are still the same.
    if key is None or not _claims(packed):
        yield
        return
    if _takes(key, packed):
        yield
        return
    yield
    if os.path.exists(packed) and _key(module, packed) == key:
        _keeps(key, packed)


def _in_this_run(module: str) -> str:
    """The path at which ansible-core looks for a packed module during a run."""
    return os.path.join(
        constants.DEFAULT_LOCAL_TMP,
        "ansiballz_cache",
        f"ansible_collections.corral.virt.plugins.modules.{_leaf(module)}-{constants.DEFAULT_MODULE_COMPRESSION}-none",
    )


def _leaf(module: str) -> str:
    return module.removeprefix(_NAMESPACE)


def _is_first(module: str, packed: str) -> bool:
    """True if it is a module of this collection that no process of this run packs or has packed."""
    return _leaf(module) != module and not any(map(os.path.exists, (packed, f"{packed}.lock", f"{packed}.claimed")))


def _claims(packed: str) -> bool:
    """True if this process is the only one of this run that may take or keep a pack."""
    try:
        os.makedirs(os.path.dirname(packed), exist_ok=True)
        os.close(os.open(f"{packed}.claimed", os.O_CREAT | os.O_EXCL))
    except OSError:
        return False
    return not any(map(os.path.exists, (packed, f"{packed}.lock")))


def _key(module: str, packed: str) -> str | None:
    """The path for a pack of the current sources, in a folder that only this user can write to: a pack is code.

    None if there is no such folder, or if the user's own module_utils may be packed.
    """
    own = [path for path in module_utils_loader._get_paths(subdirs=False) if path not in core_path]
    try:
        if any(os.path.isdir(path) and os.listdir(path) for path in own):
            return None
        folder = os.path.join(private.folder(), "packed")
        private.make(folder)
        return os.path.join(folder, f"{_leaf(module)}-{_digest(os.path.basename(packed))}")
    except (OSError, VirtError, KeyError):
        return None


def _digest(packed: str) -> str:
    """A digest of all that may go into a pack, and of the programs that make and read it."""
    digest = hashlib.sha256("\0".join((packed, sys.version, __version__)).encode())
    for path in _sources():
        digest.update(os.fsencode(path) + b"\0" + hashlib.sha256(_read(path)).digest())
    return digest.hexdigest()


def _sources() -> t.Iterator[str]:
    yield os.path.join(_COLLECTION, "meta", "runtime.yml")
    yield os.path.join(_CORE, "config", "ansible_builtin_runtime.yml")
    yield os.path.join(_CORE, "executor", "module_common.py")
    for folder in (*core_path, *(os.path.join(_COLLECTION, "plugins", name) for name in ("module_utils", "modules"))):
        for parent, folders, names in os.walk(folder):
            if any(os.path.islink(os.path.join(parent, name)) for name in folders):
                raise OSError(f"{parent} contains links to folders, which core follows and this does not")
            folders.sort()
            yield from (os.path.join(parent, name) for name in sorted(names) if name.endswith(".py"))


def _read(path: str) -> bytes:
    if not os.path.isfile(path):  # a pipe, say
        raise OSError(f"{path} is not a file")
    with open(path, "rb") as file:
        return file.read()


def _takes(path: str, packed: str) -> bool:
    """True if a complete pack of this user exists; it is then used in this run."""
    try:
        with open(private.opened(path, os.O_RDONLY), "rb") as file:
            owner, digest, content = os.fstat(file.fileno()).st_uid, file.read(32), file.read()
        if owner != os.geteuid() or hashlib.sha256(content).digest() != digest:
            return False
        with open(f"{packed}.claimed", "wb") as file:
            file.write(content)
        os.replace(f"{packed}.claimed", packed)
        os.utime(path)
    except (OSError, VirtError):
        return False
    return True


def _keeps(path: str, packed: str) -> None:
    """Keep the pack of this run, and remove all but the module's most recent packs."""
    folder, prefix = os.path.dirname(path), os.path.basename(path).rpartition("-")[0]
    with contextlib.suppress(OSError):
        content = _read(packed)
        descriptor, part = tempfile.mkstemp(prefix=f"{prefix}-", dir=folder)
        try:
            with open(descriptor, "wb") as file:
                file.write(hashlib.sha256(content).digest() + content)
            durable.replace(part, path)
        except OSError:
            durable.remove(part)
            raise
        others = [os.path.join(folder, name) for name in os.listdir(folder) if name.rpartition("-")[0] == prefix]
        for other in sorted(others, key=os.path.getmtime)[:-_VERSIONS]:
            durable.remove(other)
