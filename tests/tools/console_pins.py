"""Renew the pins of what the console takes of others: libraries.json (npm) and wheels.json (Python).

console_pins.py prints what is newer; console_pins.py --write also writes the new versions and checksums. The files that
are taken out of a package of npm (`files`) stay as they are: look at the new packages, then run the tests of the console.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.metadata
import json
import subprocess
import sys
import tempfile
import typing as t
import zipfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

from ansible_collections.corral.virt.roles.console.files import wheels

__all__ = ["main", "newest_libraries", "newest_wheels"]

FILES = Path(__file__).parents[2] / "roles/console/files"
Pin = dict[str, t.Any]
# The Pythons of the distributions that the role knows, from 3.11 on, and the machines that its wheels are for.
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
WHEELS = (
    "ansible-core",
    "ansible-runner",
    "argon2-cffi",
    "cryptography",
    "jinja2",
    "jsonschema",
    "lxml",
    "pyotp",
    "pyyaml",
    "setuptools",
    "starlette",
    "uvicorn",
    "websockets",
)
_DOWNLOAD = (sys.executable, "-m", "pip", "-qq", "download")
SOURCES = ("libvirt-python",)  # built on the machine, with setuptools, where its Python has no binding of libvirt


def _printed(*command: str, folder: Path | None = None) -> str:
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def newest_libraries(before: t.Sequence[Pin], run: t.Callable[..., str] = _printed) -> list[Pin]:
    """The pins of the newest versions of packages of npm."""
    return [_newest_library(pin, run) for pin in before]


def _newest_library(pin: Pin, run: t.Callable[..., str]) -> Pin:
    """The checksum is that of the package itself."""
    with tempfile.TemporaryDirectory() as folder:
        name = run("npm", "pack", "--silent", "--ignore-scripts", pin["package"], folder=Path(folder)).strip()
        version = name.removesuffix(".tgz").rpartition("-")[2]
        digest = hashlib.sha512((Path(folder) / name).read_bytes()).digest()
    return {**pin, "version": version, "integrity": "sha512-" + base64.b64encode(digest).decode()}


def newest_wheels(before: t.Sequence[Pin], run: t.Callable[..., str] = _printed) -> list[Pin]:
    """Pins of the newest versions of WHEELS and all that they require, for each Python and machine; with SOURCES."""
    found: dict[tuple[str, str], Pin] = {}
    for python in PYTHONS:
        for machine in MACHINES:
            with tempfile.TemporaryDirectory() as folder:
                _add(found, _wheels(Path(folder), python, machine, run), python)
    with tempfile.TemporaryDirectory() as folder:
        run(*_DOWNLOAD, "--no-deps", "--no-binary", ":all:", *SOURCES, folder=Path(folder))
        for python in PYTHONS:
            _add(found, list(Path(folder).iterdir()), python)
    return sorted(found.values(), key=lambda pin: (pin["package"], pin["python"]))


def _wheels(folder: Path, python: str, machine: str, run: t.Callable[..., str]) -> list[Path]:
    platforms = [word for name in wheels.platforms(machine) for word in ("--platform", name)]
    flags = ("--only-binary", ":all:", "--implementation", "cp", "--python-version", python)
    run(*_DOWNLOAD, *flags, *platforms, *WHEELS, folder=folder)
    found = sorted(folder.iterdir())
    _check_requirements(found, python)
    return found


def _check_requirements(found: t.Sequence[Path], python: str) -> None:
    """pip takes the markers of requirements for those of the Python that it runs with."""
    names = {parse_wheel_filename(path.name)[0] for path in found}
    place = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    for path in found:
        (metadata,) = (each for each in zipfile.Path(path).iterdir() if each.name.endswith(".dist-info"))
        for text in importlib.metadata.PathDistribution(metadata).requires or ():
            required = Requirement(text)
            needed = not required.marker or required.marker.evaluate({**place})
            if needed and canonicalize_name(required.name) not in names:
                raise SystemExit(f"{path.name} requires {text} with Python {python}: add it to WHEELS")


def _add(found: dict[tuple[str, str], Pin], files: t.Iterable[Path], python: str) -> None:
    for path in files:
        is_wheel = path.suffix == ".whl"
        name, version = parse_wheel_filename(path.name)[:2] if is_wheel else parse_sdist_filename(path.name)
        empty: Pin = {"package": name, "version": str(version), "python": [], "files": {}}
        pin = found.setdefault((name, str(version)), empty)
        pin["python"] += [python] if python not in pin["python"] else []
        pin["files"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()


KINDS: dict[str, t.Callable[[t.Sequence[Pin]], list[Pin]]] = {
    "libraries.json": newest_libraries,
    "wheels.json": newest_wheels,
}


def _news(before: t.Sequence[Pin], after: t.Sequence[Pin]) -> list[str]:
    """A line for each package that is newer, new or gone."""
    versions = [
        {(pin["package"], tuple(pin.get("python", ()))): pin["version"] for pin in pins} for pins in (before, after)
    ]
    changed = [key for key in {**versions[0], **versions[1]} if versions[0].get(key) != versions[1].get(key)]
    return [f"{key[0]} {versions[0].get(key, 'none')} -> {versions[1].get(key, 'none')}" for key in changed]


def main(words: t.Sequence[str] | None = None) -> int:
    """The exit code: 1 where something is newer and was not written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the new pins")
    given, newer = parser.parse_args(words), False
    for name, newest in KINDS.items():
        before = json.loads((FILES / name).read_text())
        after = newest(before)
        for line in _news(before, after):
            print(f"{name}: {line}")
        newer = newer or before != after
        if given.write and before != after:
            (FILES / name).write_text(json.dumps(after, indent=2) + "\n")
    return int(newer and not given.write)


if __name__ == "__main__":
    sys.exit(main())
