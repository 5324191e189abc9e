# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings that the role writes: a JSON file for each process. All that is wrong with it is said at once."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from pathlib import Path

__all__ = ["BadConfig", "Config", "Host", "PolicyConfig"]


class BadConfig(Exception):
    """What is wrong, a line each."""


@dataclasses.dataclass(frozen=True)
class Host:
    """A hypervisor: how it is read, and the command that opens a console there (none: no consoles)."""

    uri: str
    relay: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Config:
    """Of the web process."""

    names: tuple[str, ...]  # by which browsers call the server, with the port where it is not 443
    hosts: t.Mapping[str, Host]
    policy_socket: Path
    libraries: Path
    certificate: Path
    key: Path
    state: Path  # directory for what it remembers
    listen: str = ""  # all addresses
    port: int = 8443
    streams: int = 500
    consoles: int = 100
    streams_of_a_user: int = 20
    consoles_of_a_user: int = 20
    address_header: str = ""  # in which a proxy on this machine tells the browser's address

    @classmethod
    def load(cls, path: Path) -> Config:
        """Raises BadConfig."""
        given = _load(path, cls, _problems_of_hosts)
        hosts = {name: Host(each["uri"], tuple(each.get("relay", ()))) for name, each in given["hosts"].items()}
        return cls(**{**given, "names": tuple(given["names"]), "hosts": hosts})


@dataclasses.dataclass(frozen=True)
class PolicyConfig:
    """Of the policy process."""

    directory: Path  # for the database, keys that it makes, and jobs
    policy: Path
    hosts: tuple[str, ...]  # names of the hypervisors
    web_user: str  # who may connect
    group: str  # of the hypervisors in the inventory
    project: Path  # where playbooks run: the site's ansible.cfg, inventory and variables
    ansible: Path  # directory with ansible-playbook
    variables: Path  # of this machine, which override the project's
    environment: t.Mapping[str, str] = dataclasses.field(default_factory=dict)  # of Ansible
    proxy: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    session_idle_s: int = 8 * 3600
    session_longest_s: int = 7 * 24 * 3600
    token_days: int = 90
    kept_days: int = 90
    kept_jobs: int = 1000
    at_once: int = 8
    previews_at_once: int = 4
    jobs_of_a_user: int = 100  # that have not ended; as many previews
    sessions_of_a_user: int = 20
    audit_file: str = ""  # where a copy of each line of the audit goes
    audit_syslog: str = ""

    @classmethod
    def load(cls, path: Path) -> PolicyConfig:
        """Raises BadConfig."""
        given = _load(path, cls, _problems_of_proxy)
        return cls(**{**given, "hosts": tuple(given["hosts"])})


_KINDS: dict[str, type] = {
    "str": str,
    "int": int,
    "Path": str,
    "tuple[str, ...]": list,
    "t.Mapping[str, Host]": dict,
    "t.Mapping[str, str]": dict,
}

Problems = t.Callable[[t.Mapping[str, t.Any]], t.Iterator[str]]


def _load(path: Path, kind: type, more: Problems) -> dict[str, t.Any]:
    """The settings of the fields of a class; paths are paths."""
    try:
        given = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadConfig(f"cannot read {path}: {error}") from error
    if not isinstance(given, dict):
        raise BadConfig(f"{path}: must be an object")
    fields = dataclasses.fields(kind)
    problems = [*_problems(given, fields), *more(given)]
    if problems:
        raise BadConfig("\n".join(f"{path}: {problem}" for problem in problems))
    paths = {field.name for field in fields if field.type == "Path"}
    return {name: Path(value) if name in paths else value for name, value in given.items()}


def _problems(given: t.Mapping[str, t.Any], fields: t.Sequence[dataclasses.Field[t.Any]]) -> t.Iterator[str]:
    kinds = {field.name: _KINDS[str(field.type)] for field in fields}
    missing = dataclasses.MISSING
    required = [field.name for field in fields if field.default is missing and field.default_factory is missing]
    yield from (f"{name} is required" for name in required if not given.get(name))
    yield from (f"{name} is not a setting" for name in sorted(given.keys() - kinds.keys()))
    for name, kind in kinds.items():
        if name in given and (not isinstance(given[name], kind) or isinstance(given[name], bool)):
            yield f"{name} must be of type {kind.__name__}"
        elif kind is int and name in given and given[name] < 1:
            yield f"{name} must be at least 1"


def _problems_of_hosts(given: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    hosts = given.get("hosts")
    for name, each in hosts.items() if isinstance(hosts, dict) else ():
        if not isinstance(each, dict) or not isinstance(each.get("uri"), str):
            yield f"hosts: {name} has no uri"


def _problems_of_proxy(given: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    proxy = given.get("proxy")
    if proxy and (not isinstance(proxy, dict) or not proxy.get("user") or not proxy.get("user_header")):
        yield "proxy: user and user_header are required"
