# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a migration needs of a host: ports for QEMU, which storage others share, and a note with a guest's snapshots."""

from __future__ import annotations

import contextlib
import json
import os
import os.path
import re
import socket
import subprocess
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.defaults import (
    FIRST_MIGRATION,
    LAST_MIGRATION,
    MIGRATIONS,
)
from ansible_collections.corral.virt.plugins.module_utils._guest import files_qemu
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import SavedSnapshot
from ansible_collections.corral.virt.plugins.module_utils._system import durable, locks, private

_CONNECT_S, _COMMAND_S = 3, 10


def filtered_ports(host: str) -> str | None:
    """Why a firewall blocks migrations to the host, with the remedy; None if it does not. A port without a listener
    refuses the connection, and one that is filtered is silent.
    """
    try:
        socket.create_connection((host, FIRST_MIGRATION), timeout=_CONNECT_S).close()
    except ConnectionRefusedError:
        return None
    except OSError as error:
        reason = "no answer" if isinstance(error, socket.timeout) else error.strerror or str(error)
        remedy = f"open {MIGRATIONS} there, or use transport: tunnelled"
        return f"port {FIRST_MIGRATION} of {host} cannot be reached from here ({reason}): {remedy}"
    return None


def cut_connections(pid_file: str) -> None:
    """Let the kernel close a process's connections to migration ports: they fail now, not when TCP gives up.

    A QEMU that waits for a silent host while it drains a disk hears nobody, and libvirt keeps its migration job as
    long: neither `virDomainAbortJob` nor QMP `yank` gets through. A kernel without INET_DIAG_DESTROY closes nothing,
    and TCP gives up after minutes.
    """
    try:
        with open(pid_file) as file:
            mine = f"pid={int(file.read())},"
        for line in _ss(
            "-p", "state", "connected", "dport", ">=", f":{FIRST_MIGRATION}", "and", "dport", "<=", f":{LAST_MIGRATION}"
        ).splitlines():
            ends = re.findall(r"\S+:\d+(?= )", line)
            if mine in line and len(ends) == 2:
                _ss("-K", "src", ends[0], "dst", ends[1])
    except (OSError, ValueError, subprocess.SubprocessError):
        return  # it has ended, or there is no ss


def _ss(*words: str) -> str:
    return subprocess.run(
        ["ss", "-Htn", *words], capture_output=True, text=True, timeout=_COMMAND_S, check=False
    ).stdout


def shared_by(path: str) -> str | None:
    """The shared filesystem, or the directory that qemu.conf declares shared, that holds the path; None if neither
    does.
    """
    _owns, listed = files_qemu.settings()
    declared = next((f"{its}, declared shared in qemu.conf" for its in listed if _inside(path, its)), None)
    return locks.shared_filesystem(path) or declared


_TPM = "/var/lib/libvirt/swtpm"


def shared_state(uuid: str) -> tuple[str, ...]:
    """The kinds of state that the copies of a guest have in common, so that it stays when one of them is undefined.

    Where it is not shared, stale TPM state would block a later move of the guest while it is off.
    """
    return ("keep_tpm",) if shared_by(os.path.join(_TPM, uuid)) else ()


def _inside(path: str, directory: str) -> bool:
    path, directory = os.path.realpath(path), os.path.realpath(directory)
    return path != directory and os.path.commonpath((path, directory)) == directory


FOLDER = "/var/lib/libvirt/corral-snapshots"  # it survives a reboot


def note_path(uuid: str) -> str:
    """The path of a guest's note."""
    return os.path.join(FOLDER, f"{uuid}.json")


def write_note(uuid: str, snapshots: t.Iterable[SavedSnapshot]) -> None:
    """Write the note; it is on disk when this returns."""
    private.make(FOLDER)
    part = f"{note_path(uuid)}.part"
    with open(private.opened(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w", encoding="utf-8") as stream:
        json.dump([one._asdict() for one in snapshots], stream)
    durable.replace(part, note_path(uuid))
    durable.fsync(os.path.dirname(FOLDER))


def read_note(uuid: str) -> tuple[SavedSnapshot, ...]:
    """The snapshots in the note; none without one. Raises OSError, or ValueError if it is damaged."""
    with contextlib.suppress(FileNotFoundError):
        with open(private.opened(note_path(uuid), os.O_RDONLY), encoding="utf-8") as stream:
            try:
                return tuple(SavedSnapshot(**one) for one in json.load(stream))
            except TypeError as error:
                raise ValueError(str(error)) from error
    return ()


def remove_note(uuid: str) -> None:
    """Remove the note, if there is one."""
    durable.remove(note_path(uuid))
