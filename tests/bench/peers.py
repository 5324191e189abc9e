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
GANETI = ("ganeti-htools-3.0", "libpcre3")  # Debian 12
ORTOOLS = "ortools==9.14.6206"
COLLECTIONS = CACHE / "collections"
PIP = (sys.executable, "-m", "pip", "-qq")


def collection(name: str) -> None:
    """Have a collection of others, `community.general`, for the project's own ansible-core to run, in COLLECTIONS.

    Of the package that brings it, only its files are taken.
    """
    folder = f"ansible_collections/{name.replace('.', '/')}"
    if _there(COLLECTIONS / folder, ANSIBLE):
        return
    with tempfile.TemporaryDirectory() as scratch:
        run(*PIP, "download", "--no-deps", "--ignore-requires-python", "--dest", scratch, ANSIBLE)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as package:
            package.extractall(COLLECTIONS, [path for path in package.namelist() if path.startswith(f"{folder}/")])
    _made(COLLECTIONS / folder, ANSIBLE)


def python_package(recipe: str) -> Path:
    """Have a Python package in a folder of its own; that folder."""
    place = CACHE / f"python-{recipe}"
    if not _there(place, recipe):
        run(*PIP, "install", "--no-deps", "--target", place, recipe)
        _made(place, recipe)
    return place


def salt() -> Path:
    """Have Salt in an environment of its own; its `salt-call`."""
    venv = CACHE / "salt"
    recipe = " ".join(SALT)
    if not _there(venv, recipe):
        run(sys.executable, "-m", "venv", venv)
        run(*PIP, "--python", venv / "bin/python", "install", *SALT)
        _made(venv, recipe)
    return venv / "bin/salt-call"


def debian(*packages: str) -> Path:
    """Have packages of Debian unpacked and not installed; the folder."""
    place = CACHE / f"debian-{packages[0]}"
    if not _there(place, " ".join(packages)):
        place.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as scratch:
            run("sh", "-c", f"cd {scratch} && apt-get -qq download {' '.join(packages)}")
            for package in Path(scratch).glob("*.deb"):
                run("dpkg", "-x", package, place)
        _made(place, " ".join(packages))
    return place


def ganeti(tool: str) -> tuple[str, ...]:
    """Have a tool of Debian's Ganeti, hbal or hail; the command."""
    place = debian(*GANETI)
    libraries = ":".join(sorted({str(path.parent) for path in place.rglob("*.so.*")}))
    [program] = place.glob("usr/lib/ganeti/*/usr/bin/htools")
    return ("env", f"LD_LIBRARY_PATH={libraries}", f"HTOOLS={tool}", str(program))


def ortools() -> Path:
    """Have the solver in an environment of its own; its Python."""
    venv = CACHE / "ortools"
    if not _there(venv, ORTOOLS):
        run(sys.executable, "-m", "venv", venv)
        run(*PIP, "--python", venv / "bin/python", "install", ORTOOLS)
        _made(venv, ORTOOLS)
    return venv / "bin/python"


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
