# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packed modules, kept between runs: packing one is the longest work of the controller in a short task.

ansible-core packs a module with all that it imports, once in a run, into a directory of that run. Where it finds a pack
there, it packs nothing.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import shutil
import sys
import typing as t

from ansible import constants
from ansible.module_utils import __path__ as core_path
from ansible.plugins.loader import module_utils_loader
from ansible.release import __version__

from ansible_collections.corral.virt.plugins.module_utils._errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._files import durable, private

__all__ = ["kept"]

_NAMESPACE = "corral.virt."
_COLLECTION = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@contextlib.contextmanager
def kept(module: str) -> t.Iterator[None]:
    """Within this, ansible-core packs a module of this collection only if nothing of what it reads has changed since an
    earlier run packed it.

    A pack that cannot be kept is made again in the next run; that is all that goes wrong, so no error is shown.
    """
    packed = _in_this_run(module)
    place = None if os.path.exists(packed) else _place(module, packed)
    if place:
        _copy(place, packed)
    with _without_collector():
        yield
    # asked again: its sources may have changed while it was packed
    if place and not os.path.exists(place) and place == _place(module, packed) and _copy(packed, place, durably=True):
        with contextlib.suppress(OSError):
            _remove_others(place)


def _in_this_run(module: str) -> str:
    """Where ansible-core keeps a packed module during a run (executor/module_common.py)."""
    return os.path.join(
        constants.DEFAULT_LOCAL_TMP,
        "ansiballz_cache",
        f"ansible_collections.corral.virt.plugins.modules.{_leaf(module)}-{constants.DEFAULT_MODULE_COMPRESSION}-none",
    )


def _leaf(module: str) -> str:
    return module.removeprefix(_NAMESPACE)


def _place(module: str, packed: str) -> str | None:
    """Where it is kept between runs: a folder of this user that nobody else can write, for it becomes code on hosts.

    None: there is no such folder, not even an account with a home; it is not a module of this collection; or the user's
    own module_utils may be packed.
    """
    own = [path for path in module_utils_loader._get_paths(subdirs=False) if path not in core_path]
    try:
        if _leaf(module) == module or any(os.path.isdir(path) and os.listdir(path) for path in own):
            return None
        folder = os.path.join(private.folder(), "packed")
        private.make(folder)
        return os.path.join(folder, f"{_leaf(module)}-{_digest(os.path.basename(packed))}")
    except (OSError, VirtError, KeyError):
        return None


def _digest(packed: str) -> str:
    """Of all that may go into a pack, and of the programs that read it."""
    digest = hashlib.sha256("\0".join((packed, sys.version, __version__)).encode())
    for path in _sources():
        with open(path, "rb") as file:
            digest.update(path.encode() + b"\0" + hashlib.sha256(file.read()).digest())
    return digest.hexdigest()


def _sources() -> t.Iterator[str]:
    yield os.path.join(_COLLECTION, "meta", "runtime.yml")
    for folder in (*core_path, *(os.path.join(_COLLECTION, "plugins", name) for name in ("module_utils", "modules"))):
        for parent, folders, names in os.walk(folder):
            folders.sort()
            yield from (os.path.join(parent, name) for name in sorted(names) if name.endswith(".py"))


def _copy(path: str, to: str, *, durably: bool = False) -> bool:
    """Whether a file was copied, whole."""
    part = f"{to}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copyfile(path, part)
        (durable.replace if durably else os.replace)(part, to)
    except OSError:
        with contextlib.suppress(OSError):
            durable.remove(part)
        return False
    return True


def _remove_others(place: str) -> None:
    """Remove what earlier versions of the module left; another run may do so, too."""
    folder, name = os.path.split(place)
    for other in os.listdir(folder):
        if other != name and other.rpartition("-")[0] == name.rpartition("-")[0]:
            durable.remove(os.path.join(folder, other))


@contextlib.contextmanager
def _without_collector() -> t.Iterator[None]:
    """Without Python's collector of garbage: it takes a third of the time of packing, and syntax trees need none."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
