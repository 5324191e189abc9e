# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemon that serves TLS: whether it listens, whether it has read the current files, and how to reload them.

It reads them when it starts and on `virt-admin server-update-tls`, and does not report which ones it has. So the
last ones that it read are recorded beside them: `{"set": ..., "refuses": [serials]}`. If a run is killed before
that, the next one reloads them once more.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import typing as t
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._core.defaults import LIBVIRT_TLS
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._system.command import SYSTEM_PATH, active
from ansible_collections.corral.virt.plugins.module_utils._tls import files_tls
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import IDENTITIES, Trust

DAEMONS = ("libvirtd", "virtproxyd")
_LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp, proc(5)
_COMMAND_S = 30


def serving(named: str | None) -> str | None:
    """The daemon that listens for TLS here; None if there is none: one that starts later reads the files then."""
    lines = [line.split() for path in ("tcp", "tcp6") for line in _lines(f"/proc/net/{path}")]
    if not any(words[3:4] == [_LISTEN] and words[1].endswith(f":{LIBVIRT_TLS:04X}") for words in lines):
        return None
    there = [name for name in DAEMONS if active(f"{name}-tls.socket")]  # not where an old daemon listens by itself
    there += [
        name
        for name in DAEMONS
        if Path(f"/run/libvirt/{'libvirt' if name == 'libvirtd' else name}-admin-sock").exists()
    ]
    return named or next(iter(there), None)


def is_loaded(root: str) -> bool:
    """True if every running daemon must have read the current set."""
    return _remembered(root).get("set") == files_tls.current(IDENTITIES["libvirt"], root)


def load(daemon: str, root: str, trust: Trust) -> None:
    """Reload the daemon's files, disconnect clients that were revoked since the last reload, and record both."""
    _admin(daemon, "server-update-tls", daemon)
    new = {
        serial: subject
        for serial, subject in trust.revoked.items()
        if serial not in _remembered(root).get("refuses", [])
    }
    # A connection that is open goes on, whatever is read.
    for client in _clients(daemon) if new else []:
        if _subject(daemon, client) in {*new.values()} - {""}:
            with contextlib.suppress(Failed):  # it has just gone by itself
                _admin(daemon, "client-disconnect", daemon, client)
    remember(root, trust)


def remember(root: str, trust: Trust) -> None:
    """Record that no daemon runs with another set."""
    identity = IDENTITIES["libvirt"]
    loaded = {"set": files_tls.current(identity, root), "refuses": sorted(trust.revoked)}
    files_tls.write(Path(root, identity.store, files_tls.LOADED), json.dumps(loaded).encode(), mode=0o644)


def _remembered(root: str) -> dict[str, t.Any]:
    try:
        found = json.loads(Path(root, IDENTITIES["libvirt"].store, files_tls.LOADED).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _clients(daemon: str) -> list[str]:
    return re.findall(r"^\s*(\d+)\s+tls\s", _admin(daemon, "client-list", daemon), re.MULTILINE)


def _subject(daemon: str, client: str) -> str:
    """The subject of the certificate that a client has shown; empty if the client is gone."""
    try:
        found = re.search(
            r"^tls_x509_dname\s*:\s*(.*?)\s*$", _admin(daemon, "client-info", daemon, client), re.MULTILINE
        )
    except Failed:
        return ""
    return found[1] if found else ""


def _admin(daemon: str, *words: str) -> str:
    command = ["virt-admin", "-c", f"{daemon}:///system", *words]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env=_ENVIRONMENT,
        )
        reason = (
            ""
            if done.returncode == 0
            else "; ".join(done.stderr.split("\n")).strip("; ") or f"exit code {done.returncode}"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    if reason:
        raise Failed(
            f"cannot let {daemon} read its certificates: {' '.join(command)}: {reason}; fix that, and run again"
        )
    return done.stdout


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


_ENVIRONMENT = {"PATH": SYSTEM_PATH, "LC_ALL": "C"}
