# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find everything that prevents the build of an image, before anything is touched.

Runs on the controller. The settings and the state of the host are a JSON document on standard input; each problem is a
line on standard output.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.output import printable

__all__ = ["Host", "Settings", "main", "problems"]

_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.(qcow2|raw)")
_RELEASE = re.compile(r"[a-z]+")
_SIZE = re.compile(r"[1-9][0-9]*[GT]iB")
_MIRROR = re.compile(r"https?://\S+")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")
# Options of one builder, which the other does not have.
_OWN = {
    "mmdebstrap": ("release", "mirror", "keyring", "packages", "customize"),
    "kiwi": ("description", "profiles"),
}
_OTHER = {"mmdebstrap": "kiwi", "kiwi": "mmdebstrap"}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Variables of the role, as the user wrote them."""

    builder: str
    image: t.Any
    dest: t.Any
    release: t.Any
    mirror: t.Any
    keyring: t.Any
    size: t.Any
    packages: t.Any
    customize: t.Any
    description: t.Any
    profiles: t.Any
    kiwi: t.Any
    install: bool


@dataclasses.dataclass(frozen=True)
class Host:
    """The build host, and the one file that the controller has for it."""

    user_uid: int
    os_family: str
    architecture: str
    missing: t.Sequence[str]  # programs
    packages: t.Sequence[str]  # of Debian, which have these programs
    dest: t.Mapping[str, t.Any]  # as module stat returns it
    customize: str  # absolute path on the controller
    customize_exists: bool
    kiwi_runs: bool
    descriptions: int  # files of kiwi's description


def problems(settings: Settings, host: Host) -> list[str]:
    """All of them, each with what to do."""
    of_builder = _of_kiwi if settings.builder == "kiwi" else _of_mmdebstrap
    return [
        *_of_user(host),
        *_of_image(settings.image),
        *_of_dest(settings.dest, host.dest),
        *_of_programs(settings, host),
        *_of_the_other_builder(settings),
        *of_builder(settings, host),
    ]


def _of_user(host: Host) -> t.Iterator[str]:
    if host.user_uid != 0:
        yield "mounting the image requires root: add --become"


def _of_image(image: t.Any) -> t.Iterator[str]:
    if not _is(_IMAGE, image):
        rule = "use letters, digits, dots and dashes, ending in .qcow2 or .raw"
        yield f"{json.dumps(image)} is not a name for an image: {rule}"


def _of_dest(dest: t.Any, there: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    if not str(dest).startswith("/"):
        yield f"{json.dumps(dest)} is not an absolute path: specify the absolute path of the directory"
    elif there["exists"] and not there["isdir"]:
        yield f"{dest} is not a directory: choose another"
    elif there.get("woth"):
        risk = f"every user can write to {dest} and so replace what root runs there"
        yield f"{risk}: choose another directory, or chmod o-w it"


def _of_programs(settings: Settings, host: Host) -> t.Iterator[str]:
    if host.missing and not (settings.install and host.os_family == "Debian"):
        remedy = f"on Debian: apt-get install {' '.join(host.packages)}"
        yield f"programs are missing ({', '.join(host.missing)}), {remedy}"


def _of_the_other_builder(settings: Settings) -> t.Iterator[str]:
    for option in _OWN[_OTHER[settings.builder]]:
        if getattr(settings, option):
            yield f"{option} does not apply to {settings.builder}: omit it, or choose the other builder"


def _of_mmdebstrap(settings: Settings, host: Host) -> t.Iterator[str]:
    if host.architecture != "x86_64":
        remedy = "build on an x86_64 host, or with builder=kiwi"
        yield f"it is {host.architecture}, but this boot loader is for x86_64: {remedy}"
    if not _is(_RELEASE, settings.release):
        yield f"{json.dumps(settings.release)} is not a release: set its code name, such as release=bookworm"
    if not _is(_SIZE, settings.size):
        yield f"size {json.dumps(settings.size)} is not valid: set at least 1GiB, such as size=4GiB"
    if settings.mirror and not _is(_MIRROR, settings.mirror):
        remedy = "set its URL, such as mirror=http://deb.debian.org/debian"
        yield f"{json.dumps(settings.mirror)} is not a mirror: {remedy}"
    yield from _of_packages(settings.packages)
    if settings.customize and not host.customize_exists:
        remedy = "set the path of a program there with customize=PATH"
        yield f"customize: {host.customize} does not exist on the controller: {remedy}"


def _of_packages(packages: t.Any) -> t.Iterator[str]:
    if packages and not isinstance(packages, list):
        yield f"packages {json.dumps(packages)} is not a list: set names, such as image_builder_packages: [vim, tmux]"
        return
    for package in packages or ():
        if not _is(_PACKAGE, package):
            yield f"{json.dumps(package)} is not a package name: set names only, such as packages=vim,tmux"


def _of_kiwi(settings: Settings, host: Host) -> t.Iterator[str]:
    if not host.kiwi_runs:
        remedy = (
            "install kiwi and what its builds need (on Debian: kiwi, kiwi-systemdeps), or set its path with kiwi=PATH"
        )
        yield f"{settings.kiwi} does not run: {remedy}"
    if not settings.description:
        yield "kiwi requires a description: set its directory on the host with description=DIR"
    elif not host.descriptions:
        lacks = f"{settings.description} contains no config.xml, config.kiwi or other .kiwi file on the host"
        yield f"{lacks}: specify the description's directory"


def _is(pattern: re.Pattern[str], value: t.Any) -> bool:
    return pattern.fullmatch(str(value)) is not None


def main() -> int:
    """The exit code: 2 where something is wrong."""
    given = json.load(sys.stdin)
    found = problems(Settings(**given["settings"]), Host(**given["host"]))
    for problem in found:
        print(printable(problem))  # noqa: T201
    return 2 if found else 0


if __name__ == "__main__":
    sys.exit(main())
