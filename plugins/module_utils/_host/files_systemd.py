# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd units of libvirt: their state and their restarts."""

from __future__ import annotations

import os
import stat
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._host.model_unit import DueRestart, Unit
from ansible_collections.corral.virt.plugins.module_utils._system.command import answer, run

_STOP_ATTEMPTS = 5
_LOG_LINES = 8
# for which `systemctl is-enabled` says yes
_ENABLED = ("enabled", "enabled-runtime", "static", "indirect", "alias", "generated")
_SHOWN = "Id,LoadState,UnitFileState,ActiveState,ExecMainStartTimestampMonotonic"


def units(names: t.Sequence[str]) -> dict[str, Unit]:
    """Units by name, from one call; a missing unit has the defaults."""
    shown = run("systemctl", "show", f"--property={_SHOWN}", "--", *names)
    blocks = [_properties(block) for block in shown.split("\n\n")]
    found = {values["Id"]: _unit(values) for values in blocks if "Id" in values}
    return {name: found.get(name, Unit()) for name in names}


def changed(path: str) -> float | None:
    """When a file's inode was changed, in seconds since the epoch; None if there is no file."""
    try:
        return os.stat(path).st_ctime
    except FileNotFoundError:
        return None


def enable(names: t.Sequence[str]) -> None:
    """Enable units from the next boot on."""
    run("systemctl", "enable", "--", *names)


def start(unit: str) -> None:
    """Start a unit; on failure, raises Failed with the end of the unit's log."""
    _start("start", unit)


def stop(unit: str) -> None:
    """Stop a unit; on failure, raises Failed with the end of the unit's log."""
    _start("stop", unit)


def restart(each: DueRestart) -> None:
    """Restart one daemon, and start the sockets that it lacks."""
    for path in each.files:
        if (changed(path) or 0) > time.time():  # the clock was set back: it would be due until then
            os.chmod(path, stat.S_IMODE(os.stat(path).st_mode))
    if each.active == "failed":
        run("systemctl", "reset-failed", "--", each.unit)
    for socket in each.sockets:
        _start_socket(socket, each.unit)
    if each.active != "inactive":  # else it starts when somebody connects
        _start("start" if each.sockets else "restart", each.unit)


def _properties(block: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in block.splitlines() if "=" in line)


def _unit(values: t.Mapping[str, str]) -> Unit:
    age_s = time.monotonic() - int(values.get("ExecMainStartTimestampMonotonic") or 0) / 1e6
    return Unit(
        exists=values.get("LoadState") != "not-found",
        enabled=values.get("UnitFileState") in _ENABLED,
        masked=values.get("LoadState") == "masked",
        active=values.get("ActiveState", "inactive"),
        started=time.time() - age_s,  # by the clock as it is now: somebody may have set it since
    )


def _start_socket(socket: str, unit: str) -> None:
    """Start a socket of a daemon; the daemon is stopped first, as it takes sockets only at its start."""
    for attempt in range(1, _STOP_ATTEMPTS + 1):
        run("systemctl", "stop", "--", unit)
        try:
            _start("start", socket)
            return
        except Failed:  # somebody connected in between, which starts the daemon
            if attempt == _STOP_ATTEMPTS:
                raise


def _start(verb: str, unit: str) -> None:
    """Start, stop or restart a unit; on failure, raises Failed with the end of the unit's log."""
    try:
        run("systemctl", verb, "--", unit)
    except Failed as error:
        log = answer("journalctl", "--no-pager", f"--lines={_LOG_LINES}", "--output=cat", f"--unit={unit}")
        raise Failed("".join([str(error), *(f"\n  {line}" for line in log.splitlines())])) from error
