# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings that the role writes: a JSON file. All that is wrong with it is said at once."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from pathlib import Path

__all__ = ["BadConfig", "Config", "Host"]


class BadConfig(Exception):
    """What is wrong, a line each."""


@dataclasses.dataclass(frozen=True)
class Host:
    """A hypervisor: how it is read, and the command that opens a console there (none: no consoles)."""

    uri: str
    relay: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that differs from site to site."""

    names: tuple[str, ...]  # by which browsers call the server, with the port where it is not 443
    hosts: t.Mapping[str, Host]
    database: Path
    libraries: Path
    certificate: Path
    key: Path
    listen: str = ""  # all addresses
    port: int = 8443
    session_idle_s: int = 8 * 3600
    session_longest_s: int = 7 * 24 * 3600
    streams: int = 500
    consoles: int = 100

    @classmethod
    def load(cls, path: Path) -> Config:
        """Raises BadConfig."""
        try:
            given = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise BadConfig(f"cannot read {path}: {error}") from error
        if not isinstance(given, dict):
            raise BadConfig(f"{path}: must be an object")
        problems = list(_problems(given))
        if problems:
            raise BadConfig("\n".join(f"{path}: {problem}" for problem in problems))
        paths = {name: Path(given[name]) for name in _PATHS}
        hosts = {name: Host(each["uri"], tuple(each.get("relay", ()))) for name, each in given["hosts"].items()}
        return cls(**{**given, **paths, "names": tuple(given["names"]), "hosts": hosts})


_PATHS = ("database", "libraries", "certificate", "key")
_KINDS: dict[str, type] = {
    "names": list,
    "hosts": dict,
    "database": str,
    "libraries": str,
    "certificate": str,
    "key": str,
    "listen": str,
    "port": int,
    "session_idle_s": int,
    "session_longest_s": int,
    "streams": int,
    "consoles": int,
}
_REQUIRED = ("names", "hosts", *_PATHS)


def _problems(given: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    yield from (f"{name} is required" for name in _REQUIRED if not given.get(name))
    yield from (f"{name} is not a setting" for name in sorted(given.keys() - _KINDS.keys()))
    for name, kind in _KINDS.items():
        if name in given and (not isinstance(given[name], kind) or isinstance(given[name], bool)):
            yield f"{name} must be of type {kind.__name__}"
        elif kind is int and name in given and given[name] < 1:
            yield f"{name} must be at least 1"
    hosts = given.get("hosts")
    for name, each in hosts.items() if isinstance(hosts, dict) else ():
        if not isinstance(each, dict) or not isinstance(each.get("uri"), str):
            yield f"hosts: {name} has no uri"
