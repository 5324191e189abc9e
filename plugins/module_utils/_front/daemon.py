# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Options of `virt_daemon`, and its way from them to a result."""

from __future__ import annotations

import contextlib
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils import _changes
from ansible_collections.corral.virt.plugins.module_utils._files import configuration, other_runs, systemd
from ansible_collections.corral.virt.plugins.module_utils._libvirt import daemon
from ansible_collections.corral.virt.plugins.module_utils._model.daemon import (
    RESTART_TIMEOUT_S,
    UNITS,
    DaemonFacts,
    Daemons,
    Unit,
)
from ansible_collections.corral.virt.plugins.module_utils._plan import daemon as plan
from ansible_collections.corral.virt.plugins.module_utils._plan.daemon_steps import EnableSockets, RestartDaemons
from ansible_collections.corral.virt.plugins.module_utils._plan.host_steps import HostStep, WriteFile
from ansible_collections.corral.virt.plugins.module_utils._run import Gate

__all__ = ["OPTIONS", "converge"]

OPTIONS: dict[str, t.Any] = {
    "block": {"type": "str", "default": "virt_daemon"},
    "daemon_settings": {"type": "dict"},
    "qemu_settings": {"type": "dict"},
    "clients": {"type": "list", "elements": "str"},
    "purge_clients": {"type": "bool", "default": True},
    "sockets": {"type": "bool", "default": False},
    "tls_port": {"type": "bool", "default": False},
    "modular": {"type": "bool", "default": False},
    "promised": {"type": "list", "elements": "path", "default": []},
    "restart_timeout": {"type": "int", "default": RESTART_TIMEOUT_S},
}
_POLL_S = 0.5
_DOERS: dict[type[HostStep], t.Callable[[t.Any], None]] = {
    WriteFile: lambda step: configuration.write(step.path, step.content, mode=step.mode),
    EnableSockets: lambda step: systemd.enable(step.units),
}


def converge(params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    """Fetch, plan, pass through the gate, report."""
    wanted = plan.spec(params)
    units = systemd.units(UNITS)
    there = plan.daemons(units, modular=wanted.modular)
    steps, restart, changes = plan.decide(wanted, there, _facts(there, units))
    jobs = daemon.jobs() if restart and restart.breaks_jobs else []
    gate.run(steps, lambda step: _DOERS[type(step)](step))
    restarted = gate.run([restart] if restart else [], lambda step: _restart(step, params["restart_timeout"]))
    left = [job for busy in restarted for job in t.cast("list[str]", busy)]
    done = [str(step) for step in steps] + ([str(restart)] if restart and not left else [])
    # whether the daemon has read its files then
    has_read = gate.perform(lambda: not left, otherwise=lambda: restart is None)
    installed = plan.installed(units)
    return {
        "changed": bool(done),
        "diff": _changes.diff(changes),
        "steps": done,
        "restart": restart.what if restart else None,
        "jobs": gate.perform(lambda: left, otherwise=lambda: jobs),
        "installed": installed,
        "server": there.server,
        "security_drivers": daemon.security_drivers() if installed and has_read else None,
        **({"failed": True, "msg": plan.late(restart, left)} if restart and left else {}),
    }


def _facts(there: Daemons, units: t.Mapping[str, Unit]) -> DaemonFacts:
    times = {path: systemd.changed(path) for files in there.reads.values() for path in files}
    return DaemonFacts(
        units=units,
        texts={path: configuration.read(path) for path in there.files},
        changed={path: time_s for path, time_s in times.items() if time_s is not None},
    )


def _restart(step: RestartDaemons, timeout_s: float) -> list[str]:
    """Restart while no guest has a job; the jobs that go on after that time, where it did not come to that."""
    end = time.monotonic() + timeout_s
    while True:
        left = daemon.jobs() if step.breaks_jobs else []
        if not left:
            with contextlib.ExitStack() as locks:
                # virt_migrate holds the guest's lock on the source from its first step to its last, also while libvirt
                # has no job. With all of them held here, none begins until the daemon is back. Nothing locks the
                # destination, and other programs lock nothing: what they begin between the second look and the
                # restart, which are milliseconds apart, breaks.
                left = _work(locks) if step.breaks_jobs else []
                if not left:
                    for each in step.due:
                        systemd.start_again(each)
                    return []
        if time.monotonic() >= end:
            return left
        time.sleep(_POLL_S)


def _work(locks: contextlib.ExitStack) -> list[str]:
    migrating = other_runs.held_by_others(daemon.guests(), locks)
    return [*(f"{name}: a run of virt_migrate" for name in migrating), *daemon.jobs()]
