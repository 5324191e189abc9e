# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the files that the console's machine gets.

`console.pyz` is the web process, `libraries.zip` the scripts of others, `collection.tar` this collection for the policy
process, `project.tar` the site's Ansible project, and `wheels.tar` Ansible and all other Python packages that the
machine's distribution does not have.

Runs on the controller. The same inputs make the same bytes, so that a run without news copies nothing. Packages of npm
and of Python are taken from a directory; what is missing there is fetched with the npm client and with pip if that may
be. Each must have the checksum that `libraries.json` or `wheels.json` pins.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import typing as t
import zipfile
from pathlib import Path

from .wheels import Machine, Problem, wheels

__all__ = ["collection", "libraries", "main", "program", "project"]

_HERE = Path(__file__).resolve().parent
_COLLECTION = _HERE.parents[2]
_INSIDE = "ansible_collections/corral/virt"
_START = b"import sys\n\nfrom corral_console.__main__ import main\n\nsys.exit(main())\n"
_DATE = (1980, 1, 1, 0, 0, 0)
_SHIPPED = ("galaxy.yml", "meta", "playbooks", "plugins", "roles")
_CHECKSUM, _KEPT_S = re.compile("[0-9a-f]{64}"), 7 * 86400
_LEFT_OUT = {"__pycache__", ".git", ".venv", ".cache", "molecule"}


def program() -> bytes:
    """The console, and those parts of the collection that modules send to hosts too, as a Python zip application."""
    found = {"__main__.py": _START}
    for root, below in (
        (_HERE / "corral_console", "corral_console"),
        (_COLLECTION / "plugins/module_utils", f"{_INSIDE}/plugins/module_utils"),
    ):
        for path in root.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                found[f"{below}/{path.relative_to(root).as_posix()}"] = path.read_bytes()
    for name in list(found):
        for parent in Path(name).parents[:-1]:  # a zip file has no namespace packages
            if not parent.as_posix().startswith("corral_console/static"):
                found.setdefault(f"{parent.as_posix()}/__init__.py", b"")
    return _zip(found)


def libraries(directory: Path, *, fetch: bool) -> bytes:
    """The files of all pinned packages. Raises Problem."""
    found: dict[str, bytes] = {}
    problems = []
    for pin in json.loads((_HERE / "libraries.json").read_text()):
        try:
            found.update(_files(pin, _package(pin, directory, fetch=fetch)))
        except Problem as problem:
            problems.append(str(problem))
    if problems:
        raise Problem("\n".join(problems))
    return _zip(found)


def _package(pin: t.Mapping[str, t.Any], directory: Path, *, fetch: bool) -> bytes:
    name = f"{pin['package'].removeprefix('@').replace('/', '-')}-{pin['version']}.tgz"
    path = directory / name
    if not path.exists():
        if not fetch:
            raise Problem(f"{path} is missing; make it elsewhere with: npm pack {pin['package']}@{pin['version']}")
        directory.mkdir(parents=True, exist_ok=True)
        _fetch(pin, directory)
    content = path.read_bytes()
    digest = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
    if digest != pin["integrity"]:
        raise Problem(f"{path} is not {pin['package']} {pin['version']}: its checksum is {digest}; remove the file")
    return content


def _fetch(pin: t.Mapping[str, t.Any], directory: Path) -> None:
    command = ["npm", "pack", "--silent", "--ignore-scripts", f"{pin['package']}@{pin['version']}"]
    with tempfile.TemporaryDirectory(dir=directory) as folder:  # another run finds all of a file, or none
        try:
            done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
        except FileNotFoundError:
            raise Problem(
                f"cannot fetch {pin['package']}: there is no npm here; install it, or set console_libraries to a "
                "directory with its packages"
            ) from None
        if done.returncode:
            raise Problem(f"cannot fetch {pin['package']}: {' '.join(command)}: {done.stderr.strip()}")
        for path in Path(folder).iterdir():
            path.replace(directory / path.name)


def _files(pin: t.Mapping[str, t.Any], content: bytes) -> t.Iterator[tuple[str, bytes]]:
    """Those that `files` names: a file, or all below a directory. A package's own paths never lead out of ours."""
    taken: set[str] = set()
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        for member in archive:
            inside = posixpath.normpath(member.name).partition("/")[2]
            for source, target in pin["files"].items():
                if member.isfile() and (inside == source or (source.endswith("/") and inside.startswith(source))):
                    file = archive.extractfile(member)
                    assert file is not None  # noqa: S101 (it is a file)
                    taken.add(source)
                    yield f"{pin['directory']}/{target}{inside.removeprefix(source)}", file.read()
    if missing := sorted(pin["files"].keys() - taken):
        raise Problem(f"{pin['package']} {pin['version']} has no {', '.join(missing)}")


def collection() -> bytes:
    """What playbooks of this collection need of it, as it is here."""
    return _tar(_COLLECTION, _SHIPPED, mode=0o755)


def project(directory: Path, names: t.Sequence[str]) -> bytes:
    """Those of the files and directories that are there. Raises Problem."""
    found = [name for name in names if (directory / name).exists()]
    if not found:
        raise Problem(f"{directory} has none of {', '.join(names)}; set console_project to your Ansible project")
    return _tar(directory, found, mode=0o750)


def _tar(root: Path, names: t.Sequence[str], *, mode: int) -> bytes:
    """Regular files and directories, by name; of links, what they lead to."""
    paths = [root / name for name in names]
    paths += [path for each in paths if each.is_dir() for path in each.rglob("*")]
    wanted = [path for path in sorted(paths) if not _LEFT_OUT & set(path.relative_to(root).parts)]
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in wanted:
            entry = tarfile.TarInfo(path.relative_to(root).as_posix())
            entry.mode = mode if path.is_dir() or path.stat().st_mode & 0o100 else mode & ~0o111
            content = path.read_bytes() if path.is_file() else b""
            entry.size = len(content)
            if path.is_dir():
                entry.type = tarfile.DIRTYPE
            if path.is_dir() or path.is_file():
                archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def _zip(files: t.Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    return target.getvalue()


def _kept(target: Path, name: str, content: bytes) -> str:
    """Write a file below the directory of its checksum, which is returned: runs for other machines may be at work."""
    digest = hashlib.sha256(content).hexdigest()
    path = target / digest / name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists() or path.read_bytes() != content:
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(path)
    os.utime(path.parent)
    return digest


def _forget_old(target: Path) -> None:
    """Remove what no run has used for a week."""
    for path in target.iterdir():
        if _CHECKSUM.fullmatch(path.name) and time.time() - path.stat().st_mtime > _KEPT_S:
            shutil.rmtree(path, ignore_errors=True)  # another run may do so, too


def main(words: t.Sequence[str] | None = None) -> int:
    """Write the files, each below its checksum, and print the checksums; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("packages", type=Path, help="directory with packages as npm pack makes them")
    parser.add_argument(
        "--fetch", action=argparse.BooleanOptionalAction, default=False, help="fetch what is missing there"
    )
    parser.add_argument("--project", type=Path, required=True, help="directory of the site's Ansible project")
    parser.add_argument("--project-file", action="append", default=[], help="file or directory in it; can be repeated")
    parser.add_argument("--python", required=True, help="version of the machine's Python, such as 3.11")
    parser.add_argument("--processor", required=True, help="of the machine, such as x86_64")
    parser.add_argument("--distribution", action="store_true", help="it has all Python packages but Ansible")
    parser.add_argument("--built", action="store_true", help="the binding of libvirt is built there")
    given = parser.parse_args(words)
    machine = Machine(given.python, given.processor, given.distribution, given.built)
    try:
        made = {
            "console.pyz": program(),
            "libraries.zip": libraries(given.packages, fetch=given.fetch),
            "collection.tar": collection(),
            "project.tar": project(given.project, given.project_file),
            "wheels.tar": wheels(given.packages, machine, fetch=given.fetch),
        }
    except Problem as problem:
        print(problem, file=sys.stderr)  # noqa: T201
        return 2
    print(json.dumps({name: _kept(given.target, name, content) for name, content in made.items()}))  # noqa: T201
    _forget_old(given.target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
