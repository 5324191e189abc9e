# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait until a login to a guest works, guided by its activity on its hypervisor, and not by time alone."""

from __future__ import annotations

import time
import typing as t

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.corral.virt.plugins.module_utils._libvirt.model_state import Doing
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import Patience
from ansible_collections.corral.virt.plugins.plugin_utils._commands import remote_modules
from ansible_collections.corral.virt.plugins.plugin_utils._commands.other_hosts import play_of
from ansible_collections.corral.virt.plugins.plugin_utils._report import terminal
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable
from ansible_collections.corral.virt.plugins.plugin_utils._report.safe_results import UntrustedAction

OPTIONS: dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "hypervisor": {"type": "str", "required": True},
    "timeout": {"type": "int", "default": 600},
    "uri": {"type": "str", "default": "qemu:///system"},
}
_AGAIN_S = 1  # between attempts to log in
_LOOK_S = 10  # between looks at the guest on its hypervisor
_SAY_S = 30  # between lines about it
_PAUSED_S = 60  # after which a guest that is paused goes on by nobody: a migration pauses it for less
_INFO = "corral.virt.virt_domain_info"

Answer = dict[str, t.Any]


class ActionModule(UntrustedAction, ActionBase):
    """Serves `virt_ready`."""

    def run(self, tmp: str | None = None, task_vars: Answer | None = None) -> Answer:
        """Try to log in until it works, or the guest shows that it will not."""
        result: Answer = super().run(tmp, task_vars)
        options: Answer = self.validate_argument_spec(OPTIONS)[1]
        variables = task_vars or {}
        if options["timeout"] < 1:
            raise AnsibleActionFail(f"timeout: must be at least 1 s, not {options['timeout']}")
        if options["hypervisor"] not in variables.get("hostvars", {}):
            raise AnsibleActionFail(f"hypervisor: {options['hypervisor']} is no host of this inventory")
        if self._task.check_mode:
            return {**result, "skipped": True}
        wait = _Wait(self, options, variables)
        while why := self._refusal(variables):
            if problem := wait.problem(why):
                return {**result, **wait.result(), "failed": True, "msg": problem}
            time.sleep(_AGAIN_S)
        return {**result, **wait.result()}

    def _refusal(self, variables: Answer) -> str:
        """Why no login is possible now; empty if it is."""
        if self._discovered_interpreter_key:
            variables["ansible_facts"].pop(self._discovered_interpreter_key, None)
        try:
            if hasattr(self._connection, "reset"):
                self._connection.reset()
            answer = self._execute_module("ansible.legacy.ping", module_args={}, task_vars=variables)
        except AnsibleError as error:
            return str(error)
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return "" if answer.get("ping") == "pong" else str(answer.get("msg") or "its answer was no answer")


class _Wait:
    """One wait, with observations of the guest on its hypervisor."""

    def __init__(self, action: ActionModule, options: Answer, variables: Answer) -> None:
        self._action, self._options, self._variables = action, options, variables
        self._patience = Patience(options["timeout"])
        self._begun_s = time.monotonic()
        self._looked_s = -float(_LOOK_S)
        self._say_s = float(_LOOK_S)
        self._observed: Answer = {}
        self._unseen = self._state = ""
        self._paused_since_s: float | None = None

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._begun_s

    def result(self) -> Answer:
        """The task's result."""
        found = {"observed": self._observed} if self._observed else {}
        return {"changed": False, "elapsed": int(self._elapsed_s), **found}

    def problem(self, why: str) -> str:
        """The error if the wait is over; empty while it lasts."""
        if self._elapsed_s - self._looked_s >= _LOOK_S:
            self._look()
            self._looked_s = self._elapsed_s
            if self._elapsed_s >= self._say_s:
                self._say_s += _SAY_S
                does = "is paused" if self._state == "paused" else f"boots: {self._doing}"
                shown = f"{self._guest} {does}; waiting to log in: {self._elapsed_s:.0f} s"
                terminal.say(str(printable(shown)))
        paused_s = 0 if self._paused_since_s is None else self._elapsed_s - self._paused_since_s
        may_boot = self._state in ("", "running", "paused") and paused_s < _PAUSED_S
        if may_boot and not self._patience.is_over(self._elapsed_s):
            return ""
        name, hypervisor = self._options["name"], self._options["hypervisor"]
        lines = " | ".join(self._observed.get("console") or ())
        facts = [
            (f"it is {'off' if self._state == 'shutdown' else self._state} there", self._state not in ("", "running")),
            (f"since its start: {self._doing}", self._state == "running"),
            (self._unseen, bool(self._unseen)),
            (f"last lines of its console: {lines}", bool(lines)),
            (f"SSH: {' '.join(why.split())}", True),
        ]
        told = "; ".join(fact for fact, holds in facts if holds)
        way = f"ansible-playbook corral.virt.{{}} -e guest={name}"
        log = f"/var/log/libvirt/qemu/{name}.log on {hypervisor}"
        remedy = {
            "shutdown": f"start it: {way.format('start')}",
            "paused": f"see why ({log}), and resume it: {way.format('resume')}",
        }.get(self._state, f"open its console: {way.format('console')}")
        return str(
            printable(f"cannot log in to {name} on {hypervisor} within {self._elapsed_s:.0f} s ({told}); {remedy}")
        )

    @property
    def _guest(self) -> str:
        return f"{self._options['name']} on {self._options['hypervisor']}"

    @property
    def _doing(self) -> str:
        return str(Doing(*(self._observed.get(key) for key in ("cpu_s", "disk_reads", "packets_sent"))))

    def _look(self) -> None:
        """Observe the guest on its hypervisor; one that does not answer does not end the wait."""
        try:
            answer = self._asked()
        except AnsibleError as error:
            answer = {"failed": True, "msg": str(error)}
        guests = answer.get("domains")
        if answer.get("failed") or not isinstance(guests, list):
            self._unseen = f"{self._options['hypervisor']} cannot tell: {answer.get('msg')}"
            return
        self._unseen = ""
        guest = next((one for one in guests if isinstance(one, dict)), {"state": "not"})
        self._state = str(guest.get("state"))
        if self._state != "paused":
            self._paused_since_s = None
        elif self._paused_since_s is None:
            self._paused_since_s = self._elapsed_s
        observed = guest.get("observed")
        self._observed = observed if isinstance(observed, dict) else {}
        cpu_s, reads = self._observed.get("cpu_s"), self._observed.get("disk_reads")
        if isinstance(cpu_s, (int, float)):
            self._patience.sees(self._elapsed_s, Doing(float(cpu_s), reads if isinstance(reads, int) else None))

    def _asked(self) -> Answer:
        """The guest's entry in its hypervisor's answer."""
        manager = self._variables["hostvars"]._variable_manager
        host = manager._inventory.get_host(self._options["hypervisor"])
        task = self._action._task
        variables = manager.get_vars(play=play_of(task), host=host, task=task)
        arguments = {"name": self._options["name"], "uri": self._options["uri"], "observe": True}
        return remote_modules.Elsewhere.of(self._action, variables).ask(_INFO, arguments, variables)
