"""Others who do the same work, from the package index, each kept apart from the project's own environment."""

from __future__ import annotations

import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from ansible_collections.corral.virt.tests.bench.place import CACHE, run, say

ANSIBLE = "ansible==14.5.0"  # brings community.libvirt 2.3.0
SALT = ("salt==3007.15", "libvirt-python==12.8.0")
PIP = (sys.executable, "-m", "pip", "-qq")


def community_libvirt() -> None:
    """Have the collection, for the project's own ansible-core to run: of the package only its files are taken."""
    collections = CACHE / "collections"
    if _there(collections, ANSIBLE):
        return
    with tempfile.TemporaryDirectory() as scratch:
        run(*PIP, "download", "--no-deps", "--ignore-requires-python", "--dest", scratch, ANSIBLE)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as package:
            wanted = [name for name in package.namelist() if name.startswith("ansible_collections/community/libvirt/")]
            package.extractall(collections, wanted)
    _made(collections, ANSIBLE)


def salt() -> Path:
    """Have Salt in an environment of its own; its `salt-call`."""
    venv = CACHE / "salt"
    recipe = " ".join(SALT)
    if not _there(venv, recipe):
        run(sys.executable, "-m", "venv", venv)
        run(*PIP, "--python", venv / "bin/python", "install", *SALT)
        _made(venv, recipe)
    return venv / "bin/salt-call"


def _there(directory: Path, recipe: str) -> bool:
    """Whether it was made whole by this recipe; what is not goes."""
    stamp = directory / "recipe"
    if stamp.exists() and stamp.read_text() == recipe:
        return True
    say(f"installing {recipe} into {directory}")
    shutil.rmtree(directory, ignore_errors=True)
    return False


def _made(directory: Path, recipe: str) -> None:
    (directory / "recipe").write_text(recipe)
