# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How `virt_tls` converges a host, from its options to a result."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import changes
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._core.step import Step
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import explained
from ansible_collections.corral.virt.plugins.module_utils._tls import files_daemon, files_tls, plan_tls
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import FoundTls, TlsSpec
from ansible_collections.corral.virt.plugins.module_utils._tls.plan_tls import (
    Install,
    Load,
    Remember,
    Request,
    SetMode,
    SetTrust,
)
from ansible_collections.corral.virt.plugins.module_utils._tls.run_tls_options import install, trusts, wanted

Clock = t.Callable[[], datetime.datetime]


def now() -> datetime.datetime:
    """This host's current time, in UTC."""
    return datetime.datetime.now(datetime.timezone.utc)


def converge(params: t.Mapping[str, t.Any], gate: Gate, clock: Clock = now) -> dict[str, t.Any]:
    """Read facts, plan, run the steps, and return the result."""
    plan_tls.check_state(params["state"])
    host = _Host(params, clock)
    before = host.found()
    plan = plan_tls.plan(host.goals, before, params["certificates"] or {}, now=clock())
    reading = _reading(params, host, before, plan.steps)
    steps = [*plan.steps, *reading.now, *gate.foretell(reading.later)]
    answers = gate.run(steps, host.do)
    after, changed = host.found(), [str(step) for step in steps if step.changes]
    return {
        "changed": bool(changed),
        "diff": changes.diff(plan.changes),
        "steps": changed,
        "renewed": plan_tls.renewed(steps),
        "requests": plan_tls.requests(steps, answers),
        "certificates": {
            name: {purpose: one.result() for purpose, one in state.certificates.items()}
            for name, state in after.items()
            if state.certificates
        },
        "trusts": {name: sorted(state.trusts) for name, state in after.items()},
        "held": {name: list(state.held) for name, state in after.items()},
        "crl": plan_tls.unknown_crls(host.goals, after),
    }


class _Host:
    """The certificates of one host: their state, and their steps."""

    def __init__(self, params: t.Mapping[str, t.Any], clock: Clock) -> None:
        self.root, self.clock = params["pki_dir"], clock
        self.goals = wanted(params, trusts(params), group=files_tls.group)

    def found(self) -> dict[str, FoundTls]:
        """The state of the files by identity."""
        return {name: self._read(goal) for name, goal in self.goals.items()}

    def _read(self, goal: TlsSpec) -> FoundTls:
        with explained(f"read the {goal.identity.name} certificates"):
            return files_tls.read(goal.identity, self.root, trust=goal.trust)

    def request(self, step: Request) -> str:
        """Create a key, and return the request for its certificates (PEM)."""
        goal = self.goals[step.identity.name]
        return files_tls.request(step.identity, self.root, subject=goal.subject, names=goal.names)

    def do(self, step: Step) -> str | None:
        """Perform a step; a request returns PEM."""
        with explained(str(step)):
            return t.cast("str | None", _DOERS[type(step)](self, step))


_DOERS: dict[type[Step], t.Callable[[_Host, t.Any], object]] = {
    Request: _Host.request,
    Remember: lambda host, _step: files_daemon.remember(host.root, host.goals["libvirt"].trust),
    Install: lambda host, step: install(step.wanted, host.root, certificate=step.certificate, now=host.clock()),
    SetTrust: lambda host, step: install(step.wanted, host.root),
    SetMode: lambda host, step: files_tls.set_mode(
        f"{host.root}/{step.place.path}", owner=step.owner, group_name=step.group, mode=step.mode
    ),
    Load: lambda host, step: files_daemon.load(step.daemon, host.root, host.goals["libvirt"].trust),
}


def _reading(
    params: t.Mapping[str, t.Any], host: _Host, found: t.Mapping[str, FoundTls], steps: t.Sequence[Step]
) -> plan_tls.Reading:
    """Steps that reload the daemon's files."""
    if not plan_tls.is_read(host.goals, host.root):
        return plan_tls.Reading()  # nor is a daemon asked
    return plan_tls.reading(
        steps,
        files_daemon.serving(params["daemon"]),
        has_files=bool(found["libvirt"].files),
        is_loaded=files_daemon.is_loaded(host.root),
    )
