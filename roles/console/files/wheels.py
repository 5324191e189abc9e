# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Python packages of others, for a machine's Python and processor.

`wheels.json` pins all of them. On the machine, pip installs them from one archive, by their checksums.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools
import json
import shlex
import subprocess
import sys
import tarfile
import tempfile
import typing as t
from pathlib import Path

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

__all__ = ["Machine", "Problem", "platforms", "wheels"]

_PINS = Path(__file__).resolve().parent / "wheels.json"
_ANSIBLE = ("ansible-core", "ansible-runner")  # distributions have older ones
_BUILT = ("setuptools", "libvirt-python")
_GLIBC = range(28, 4, -1)  # 2.28 and what is older


class Problem(Exception):
    """What prevents it, and what to do."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """What decides which packages the console's machine gets."""

    python: str  # "3.11"
    processor: str  # "x86_64"
    distribution: bool = False  # it has all but Ansible
    built: bool = False  # its Python has no binding of libvirt: it is built there

    def pins(self) -> list[dict[str, t.Any]]:
        """Those that it uses, each with those of its files that fit."""
        wanted = [pin for pin in json.loads(_PINS.read_text()) if self._uses(pin)]
        for pin in wanted:
            fits = [name for name in pin["files"] if _fits(name, self.python, self.processor)]
            if not fits:
                raise Problem(f"there is no {pin['package']} for Python {self.python} on {self.processor}")
            pin["files"] = {name: pin["files"][name] for name in fits}
        return wanted

    def _uses(self, pin: t.Mapping[str, t.Any]) -> bool:
        group = self.built if pin["package"] in _BUILT else not self.distribution or pin["package"] in _ANSIBLE
        return group and self.python in pin["python"]


def wheels(directory: Path, machine: Machine, *, fetch: bool) -> bytes:
    """All pinned packages of Python for the machine, and lists of them for pip. Raises Problem."""
    pins = machine.pins()
    missing = [pin for pin in pins if not any((directory / name).exists() for name in pin["files"])]
    if missing and not fetch:
        names = ", ".join(next(iter(pin["files"])) for pin in missing)
        words = ("--dest", str(directory), *(f"{pin['package']}=={pin['version']}" for pin in missing))
        command = shlex.join(["pip", *_download(machine), *words])
        raise Problem(f"{directory} lacks {names}; make them elsewhere with: {command}")
    if missing:
        _fetch_wheels(directory, machine, missing)
    found = dict(file for pin in pins for file in _checked(directory, pin))
    built = [pin for pin in pins if any(name.endswith(".tar.gz") for name in pin["files"])]
    found["requirements.txt"] = _requirements([pin for pin in pins if pin not in built])
    found["built.txt"] = _requirements(built)
    return _tar_of(found)


def _checked(directory: Path, pin: t.Mapping[str, t.Any]) -> t.Iterator[tuple[str, bytes]]:
    """The file of a package; each that is there must be the pinned one."""
    for name, digest in pin["files"].items():
        path = directory / name
        if path.exists():
            content = path.read_bytes()
            if (there := hashlib.sha256(content).hexdigest()) != digest:
                raise Problem(
                    f"{path} is not {pin['package']} {pin['version']}: its checksum is {there}; remove the file"
                )
            yield name, content
            return


def _requirements(pins: t.Sequence[t.Mapping[str, t.Any]]) -> bytes:
    """As pip reads them: without the right checksum it installs nothing."""
    return "".join(
        f"{pin['package']}=={pin['version']}{''.join(f' --hash=sha256:{each}' for each in pin['files'].values())}\n"
        for pin in pins
    ).encode()


def _download(machine: Machine) -> list[str]:
    places = [word for name in platforms(machine.processor) for word in ("--platform", name)]
    return ["download", "--no-deps", "--implementation", "cp", "--python-version", machine.python, *places]


def _fetch_wheels(directory: Path, machine: Machine, pins: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    """With pip, from where it is configured to take packages."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        requirements = Path(folder, "requirements.txt")
        requirements.write_bytes(_requirements(pins))
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *_download(machine)]
        words = ["--require-hashes", "--requirement", str(requirements), "--dest", folder]
        done = subprocess.run([*pip, *words], check=False, capture_output=True, text=True)
        if done.returncode:
            names = ", ".join(f"{pin['package']}=={pin['version']}" for pin in pins)
            raise Problem(
                f"cannot fetch {names}: {done.stderr.strip()}; or set console_libraries to a directory with them"
            )
        requirements.unlink()
        for path in Path(folder).iterdir():
            path.replace(directory / path.name)


def _tar_of(files: t.Mapping[str, bytes]) -> bytes:
    """Files by name."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = 0o644, len(files[name])
            archive.addfile(entry, io.BytesIO(files[name]))
    return target.getvalue()


def platforms(machine: str) -> list[str]:
    """Of wheels, the newest first."""
    newer = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC]
    return [*newer, f"manylinux2014_{machine}", f"manylinux1_{machine}"]


def _fits(file: str, python: str, machine: str) -> bool:
    """Whether it can; a source package fits all."""
    return not file.endswith(".whl") or not _supported(python, machine).isdisjoint(parse_wheel_filename(file)[3])


def _supported(python: str, machine: str) -> set[Tag]:
    major, minor = map(int, python.split("."))
    names = platforms(machine)
    return set(
        itertools.chain(
            cpython_tags((major, minor), platforms=names),
            compatible_tags((major, minor), f"cp{major}{minor}", names),
        )
    )
