# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find everything that is wrong with the settings of the console, before anything is touched.

Runs on the controller. The settings are a JSON document on standard input; each problem is a line on standard output.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.output import printable

from .corral_console import offers, policy
from .corral_console.copies import SYSLOG

__all__ = ["Settings", "main", "problems"]

_OLDEST = (3, 11)
_VERSION = re.compile(r"(\d+)\.(\d+)", re.ASCII)
# They are words of a command, of ssh's configuration and of a URI.
_FILE = re.compile(r"(/(?!\.\.?/)[A-Za-z0-9._+-]+){2,}", re.ASCII)  # its directory is a word of a systemd unit
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Variables of the role, as the user wrote them, and the machine that it is for."""

    python: str  # version of the machine's Python, "0.0" where it has none
    system: t.Mapping[str, t.Any]  # what the role knows of its distribution; empty where it knows nothing
    python_packages: str
    hosts: t.Any
    inventory: t.Collection[str]  # names of all hosts
    policy: t.Any
    proxy: t.Any
    certificate: bool  # whether it is given
    key: bool  # the same
    audit_file: str = ""
    audit_syslog: str = ""


def problems(settings: Settings) -> list[str]:
    """All of them, each with what to do."""
    return [
        *_of_machine(settings),
        *_of_hosts(settings.hosts, settings.inventory),
        *_of_policy(settings.policy),
        *_of_proxy(settings.proxy),
        *_of_certificate(settings),
        *_of_copies(settings.audit_file, settings.audit_syslog),
    ]


def _of_machine(settings: Settings) -> t.Iterator[str]:
    version = _VERSION.fullmatch(settings.python)
    if version is None or tuple(map(int, version.groups())) < _OLDEST:
        systems = "Debian 12, Ubuntu 22.04, Enterprise Linux 9, openSUSE Leap 15.6, or newer"
        yield f"it needs {systems}; choose another machine"
    if settings.python_packages == "distribution" and settings.system and not settings.system["python_packages"]:
        yield "console_python_packages: the distribution has no such packages; use auto"


def _of_hosts(hosts: t.Any, inventory: t.Collection[str]) -> t.Iterator[str]:
    if not isinstance(hosts, list):
        yield "console_hosts must be a list of names"
        return
    if not hosts:
        yield "console_hosts is empty; list the hypervisors in the group hyper"
    known, names = set(inventory), list(map(str, hosts))
    if strangers := [name for name in names if name not in known]:
        remedy = "add them to the inventory, or remove them from console_hosts"
        yield f"console_hosts: not names of hosts in the inventory: {', '.join(strangers)}; {remedy}"
    if odd := [name for name in names if not _HOST.fullmatch(name)]:
        yield f"console_hosts: use letters, digits and . _ - in names: {', '.join(odd)}; rename these hosts"


def _of_policy(given: t.Any) -> t.Iterator[str]:
    try:
        policy.parsed(given, offers.names())
    except policy.BadPolicy as error:
        yield f"console_policy: {'; '.join(str(error).splitlines())}"


def _of_proxy(proxy: t.Any) -> t.Iterator[str]:
    if proxy and not (isinstance(proxy, dict) and proxy.get("user") and proxy.get("user_header")):
        yield "console_proxy needs user and user_header; set both, or remove console_proxy"


def _of_certificate(settings: Settings) -> t.Iterator[str]:
    if settings.certificate != settings.key:
        yield "give console_certificate and console_key together, or neither"


def _of_copies(file: str, syslog: str) -> t.Iterator[str]:
    if file and not _FILE.fullmatch(file):
        yield f"console_audit_file: {file} is no path of a file; use one such as /var/log/corral-console-jobs/audit.log"
    if syslog and not SYSLOG.fullmatch(syslog):
        yield f"console_audit_syslog: {syslog} is no syslog; use /dev/log, udp://HOST:514 or tcp://HOST:514"


def main() -> int:
    """The exit code: 2 where something is wrong."""
    found = problems(Settings(**json.load(sys.stdin)))
    for problem in found:
        print(printable(problem))  # noqa: T201
    return 2 if found else 0


if __name__ == "__main__":
    sys.exit(main())
