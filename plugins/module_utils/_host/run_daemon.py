# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of `virt_daemon`, and how it converges."""

from __future__ import annotations

import contextlib
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import changes as _changes
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._host import (
    files_daemon,
    files_start_block,
    files_systemd,
    libvirt_daemon,
    plan_daemon,
)
from ansible_collections.corral.virt.plugins.module_utils._host.model_daemon import (
    RESTART_TIMEOUT_S,
    UNITS,
    DaemonFacts,
    Daemons,
    DaemonSpec,
)
from ansible_collections.corral.virt.plugins.module_utils._host.model_unit import Unit
from ansible_collections.corral.virt.plugins.module_utils._host.plan_daemon import (
    EnableSockets,
    MakeLeases,
    RestartDaemons,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import HostStep, WriteFile
from ansible_collections.corral.virt.plugins.module_utils._system import configuration

OPTIONS: dict[str, t.Any] = {
    "block": {"type": "str", "default": "virt_daemon"},
    "daemon_settings": {"type": "dict"},
    "machine_uuid": {"type": "bool", "default": False},
    "qemu_settings": {"type": "dict"},
    "leases": {"type": "path"},
    "clients": {"type": "list", "elements": "str"},
    "purge_clients": {"type": "bool", "default": True},
    "sockets": {"type": "bool", "default": False},
    "tls_port": {"type": "bool", "default": False},
    "modular": {"type": "bool", "default": False},
    "promised": {"type": "list", "elements": "path", "default": []},
    "restart_timeout": {"type": "int", "default": RESTART_TIMEOUT_S},
}
_POLL_S = 0.5


def converge(params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    """Read facts, plan, run the steps, and return the result."""
    wanted = plan_daemon.spec(params)
    units = files_systemd.units(UNITS)
    there = plan_daemon.daemons(units, modular=wanted.modular)
    steps, restart, changes = plan_daemon.decide(wanted, there, _facts(there, units, wanted))
    jobs = libvirt_daemon.jobs() if restart and restart.breaks_jobs else []
    host = _Host(params["restart_timeout"])
    gate.run([*steps, *([restart] if restart else [])], lambda step: _DOERS[type(step)](host, step))
    done = [str(step) for step in steps] + ([str(restart)] if restart and not host.busy else [])
    installed = plan_daemon.installed(units)
    return {
        "changed": bool(done),
        "diff": _changes.diff(changes),
        "steps": done,
        "restart": restart.what if restart else None,
        "jobs": gate.perform(lambda: host.busy, otherwise=lambda: jobs),
        "installed": installed,
        "server": there.server,
        "hook": files_start_block.hooked(),
        # of a daemon that has read its files
        "security_drivers": gate.perform(
            lambda: libvirt_daemon.security_drivers() if installed and not host.busy else None,
            otherwise=lambda: libvirt_daemon.security_drivers() if installed and not restart else None,
        ),
        **(
            {"unleased": plan_daemon.unleased(libvirt_daemon.disks(), files_daemon.held_leases(wanted.leases))}
            if wanted.leases and installed and not host.busy
            else {}
        ),
        **({"failed": True, "msg": plan_daemon.late(restart, host.busy)} if restart and host.busy else {}),
    }


class _Host:
    """How long a restart waits for jobs, and those that prevented it."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.busy: list[str] = []  # jobs that a restart would have broken, so that it was not made


_DOERS: dict[type[HostStep], t.Callable[[_Host, t.Any], object]] = {
    WriteFile: lambda _host, step: configuration.write(step.path, step.content, mode=step.mode),
    MakeLeases: lambda _host, step: files_daemon.make_leases(step.path),
    EnableSockets: lambda _host, step: files_systemd.enable(step.units),
    RestartDaemons: lambda host, step: host.busy.extend(_restart(step, host.timeout_s)),
}


def _facts(there: Daemons, units: t.Mapping[str, Unit], wanted: DaemonSpec) -> DaemonFacts:
    times = {path: files_systemd.changed(path) for files in there.reads.values() for path in files}
    return DaemonFacts(
        units=units,
        texts={path: configuration.read(path) for path in there.files},
        changed={path: time_s for path, time_s in times.items() if time_s is not None},
        leases=files_daemon.leases(wanted.leases) if wanted.leases else None,
        only_machine_uuid=wanted.machine_uuid and files_daemon.has_only_machine_uuid(),
    )


def _restart(step: RestartDaemons, timeout_s: float) -> list[str]:
    """Restart while no guest has a job; returns the jobs that prevented it until the timeout."""
    end = time.monotonic() + timeout_s
    while True:
        with contextlib.ExitStack() as locks:
            jobs = libvirt_daemon.jobs() if step.breaks_jobs else []
            following = plan_daemon.ahead(step, jobs, locked=False, left_s=end - time.monotonic())
            if following == "lock":
                jobs = plan_daemon.work(
                    files_daemon.held_by_others(libvirt_daemon.guests(), locks), libvirt_daemon.jobs()
                )
                following = plan_daemon.ahead(step, jobs, locked=True, left_s=end - time.monotonic())
            if following == "restart":
                for each in step.due:
                    files_systemd.restart(each)
        if following != "wait":
            return jobs
        time.sleep(_POLL_S)
