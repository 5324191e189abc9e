"""Renew the pins of what the console takes of others: libraries.json (npm) and wheels.json (Python).

console_pins.py prints what is newer; console_pins.py --write also writes the new versions and checksums. The files that
are taken out of a package (`files`) stay as they are: look at the new packages, then run the tests of the console.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

__all__ = ["main", "newest_library", "newest_wheel"]

FILES = Path(__file__).parents[2] / "roles/console/files"
Pin = dict[str, t.Any]


def _printed(*command: str, folder: Path | None = None) -> str:
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def newest_library(pin: Pin, run: t.Callable[..., str] = _printed) -> Pin:
    """The pin of the newest version of a package of npm; the checksum is that of the package itself."""
    with tempfile.TemporaryDirectory() as folder:
        name = run("npm", "pack", "--silent", "--ignore-scripts", pin["package"], folder=Path(folder)).strip()
        version = name.removesuffix(".tgz").rpartition("-")[2]
        digest = hashlib.sha512((Path(folder) / name).read_bytes()).digest()
    return {**pin, "version": version, "integrity": "sha512-" + base64.b64encode(digest).decode()}


def newest_wheel(pin: Pin, run: t.Callable[..., str] = _printed) -> Pin:
    """The pin of the newest version of a package of Python that all Pythons of the pin can use."""
    command = [sys.executable, "-m", "pip", "--quiet", "download", "--no-deps", "--only-binary", ":all:"]
    found = []
    for python in pin["python"]:
        with tempfile.TemporaryDirectory() as folder:
            run(*command, "--python-version", python, pin["package"], folder=Path(folder))
            (path,) = Path(folder).iterdir()
            found.append((path.name, hashlib.sha256(path.read_bytes()).hexdigest()))
    oldest = min(found, key=lambda each: [int(part) for part in _version(each[0]).split(".")])
    return {**pin, "version": _version(oldest[0]), "file": oldest[0], "sha256": oldest[1]}


def _version(wheel: str) -> str:
    return wheel.split("-")[1]


KINDS = {"libraries.json": newest_library, "wheels.json": newest_wheel}


def main(words: t.Sequence[str] | None = None) -> int:
    """The exit code: 1 where something is newer and was not written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the new pins")
    given, newer = parser.parse_args(words), False
    for name, newest in KINDS.items():
        before = json.loads((FILES / name).read_text())
        after = [newest(pin) for pin in before]
        for old, new in zip(before, after, strict=True):
            if old != new:
                newer = True
                print(f"{name}: {old['package']} {old['version']} -> {new['version']}")
        if given.write and before != after:
            (FILES / name).write_text(json.dumps(after, indent=2) + "\n")
    return int(newer and not given.write)


if __name__ == "__main__":
    sys.exit(main())
