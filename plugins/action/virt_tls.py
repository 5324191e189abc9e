# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of `virt_tls`: keep the CA, sign what hosts ask for, certify the controller itself."""

from __future__ import annotations

import contextlib
import datetime
import typing as t

from ansible.errors import AnsibleActionFail, AnsibleError

from ansible_collections.corral.virt.plugins.module_utils import _changes
from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, VirtError
from ansible_collections.corral.virt.plugins.module_utils._files import tls as files
from ansible_collections.corral.virt.plugins.module_utils._front.tls import OPTIONS, wanted
from ansible_collections.corral.virt.plugins.module_utils._model.tls import CONTROLLER, Wanted, check_names
from ansible_collections.corral.virt.plugins.module_utils._plan.tls import Request, SetMode, decide
from ansible_collections.corral.virt.plugins.module_utils._run import Gate
from ansible_collections.corral.virt.plugins.plugin_utils._ca import Authority, MakeAuthority
from ansible_collections.corral.virt.plugins.plugin_utils._untrusted import UntrustedAction

Variables = dict[str, t.Any]


class ActionModule(UntrustedAction):
    """Runs on the controller, once per host, in parallel processes."""

    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> dict[str, t.Any]:
        """Two calls of the module where something is to be signed, one where not."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        params = self._params(task_vars or {})
        try:
            with files.said(f"use the CA in {params['ca_dir']}"):
                result.update(self._certify(params, task_vars or {}))
        except BadInput as error:
            result.update(failed=True, msg=str(error), problems=error.problems)
        except VirtError as error:
            result.update(failed=True, msg=str(error))
        return result

    def _params(self, task_vars: Variables) -> Variables:
        _unused, params = self.validate_argument_spec(OPTIONS)
        params["ca_dir"] = self._loader.path_dwim(params["ca_dir"])
        host = str(task_vars["inventory_hostname"])
        params["name"] = params["name"] or host
        if params["names"] is None:
            params["names"] = [host, str(task_vars.get("ansible_host") or host)]
        for option in ("certificates", "ca_key"):
            if params[option] and not params["ca_certificate"]:
                raise AnsibleActionFail(f"{option}: say with ca_certificate which CA it is")
        return t.cast(Variables, params)

    def _certify(self, params: Variables, task_vars: Variables) -> Variables:
        goals = {goal.identity.name: goal for goal in wanted(params, group=lambda name: name)}
        key = params.pop("ca_key")
        if params["ca_certificate"] and not key:
            return self._call(params, task_vars)
        gate = Gate(check_mode=self._task.check_mode)
        authority = Authority(params["ca_dir"], given=(params["ca_certificate"], key) if key else None)
        known = authority.certificate()
        result = self._call({**params, "ca_certificate": known or ""}, task_vars)
        if result.get("failed"):
            return result
        if result["renewed"]:
            _refuse_others(params, task_vars)
        # Only now: a host that belongs to another authority is refused before there is one here.
        making = [] if known else [MakeAuthority(params["ca_dir"])]
        gate.run(making, lambda _step: authority.make())
        requests = result.pop("requests", {})
        if requests:
            signed = {name: authority.sign(csr, goals[name], days=params["days"]) for name, csr in requests.items()}
            installed = self._call({**params, "ca_certificate": authority.certificate(), "certificates": signed}, task_vars)
            if installed.get("failed"):
                return installed
            result["certificates"] = installed["certificates"]
        if params["controller"]:
            self._certify_controller(authority, params, gate, result)
        result["steps"] = [*map(str, making), *result.get("steps", [])]
        return result

    def _certify_controller(self, authority: Authority, params: Variables, gate: Gate, result: Variables) -> None:
        """The same files, plan and steps as on a host, below the CA's directory."""
        root, certificate = params["ca_dir"], authority.certificate()
        owner, group = files.me()
        days = datetime.timedelta(days=params["renew_before"])
        goal = Wanted(
            CONTROLLER, "controller", ("controller",), days, owner=owner, group=group, force=params["force"], replace_authority=True
        )

        def do(step: Request | SetMode) -> None:
            if isinstance(step, SetMode):
                files.set_mode(f"{root}/{step.place.path}", owner=step.owner, group_name=step.group, mode=step.mode)
                return
            csr = files.request(CONTROLLER, root, subject=goal.subject)
            signed = authority.sign(csr, goal, days=params["days"])
            files.install(goal, root, certificate=signed, authority=certificate or "")

        def found() -> t.Any:
            return files.read(CONTROLLER, root, authority=certificate)

        plan = decide(goal, found(), now=datetime.datetime.now(datetime.UTC))
        if plan.steps and certificate:
            # Another process may do the same just now: look again when it is our turn.
            with authority.locked():
                plan = decide(goal, found(), now=datetime.datetime.now(datetime.UTC))
                gate.run(plan.steps, do)
        shown = found().certificate
        result["changed"] = result.get("changed", False) or bool(plan.steps)
        result["steps"] = [*result["steps"], *map(str, plan.steps)]
        result["certificates"].update({"controller": shown.result()} if shown else {})
        for side, fields in _changes.diff(plan.changes).items():
            result["diff"][side].update(fields)

    def _call(self, params: Variables, task_vars: Variables) -> Variables:
        return t.cast(Variables, self._execute_module(module_name="corral.virt.virt_tls", module_args=params, task_vars=task_vars))


def _refuse_others(params: Variables, task_vars: Variables) -> None:
    """A certificate with the name of another host of the inventory would let this one play it. Raises BadInput with each."""
    own = _names(task_vars["inventory_hostname"], task_vars)
    wanted = {*check_names(params["names"], what="names")} - own
    problems = [
        f"names of {params['name']}: {name} is {other} in the inventory; leave it out (pki_names, pki_extra_names of role pki)"
        for other, variables in (task_vars["hostvars"].items() if wanted else ())
        for name in sorted(wanted & _names(other, variables))
    ]
    if problems:
        raise BadInput(problems)


def _names(host: str, variables: t.Mapping[str, t.Any]) -> set[str]:
    """What the inventory says of a host, in the form of names in a certificate."""
    found: set[str] = set()
    with contextlib.suppress(BadInput):  # no name that a certificate could have
        found.update(check_names([host], what=host))
    with contextlib.suppress(BadInput, AnsibleError):  # where it is, only that host can tell
        found.update(check_names([str(variables.get("ansible_host") or host)], what=host))
    return found
