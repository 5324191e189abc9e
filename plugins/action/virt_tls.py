# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of `virt_tls`: options from Ansible, and host names from the inventory."""

from __future__ import annotations

import contextlib
import os
import typing as t
from pathlib import Path

from ansible import constants as C  # noqa: N812
from ansible.errors import AnsibleError
from ansible.utils.display import Display

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import OWNER, explained
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import check_names
from ansible_collections.corral.virt.plugins.module_utils._tls.run_tls_arguments import OPTIONS
from ansible_collections.corral.virt.plugins.plugin_utils._authority.certifier import Certifier
from ansible_collections.corral.virt.plugins.plugin_utils._authority.host_trust import HeldLists, planned_revocations
from ansible_collections.corral.virt.plugins.plugin_utils._controller import home_files
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable
from ansible_collections.corral.virt.plugins.plugin_utils._report.safe_results import UntrustedAction

Variables = dict[str, t.Any]


class ActionModule(UntrustedAction):
    """Runs on the controller, once per host, in parallel processes."""

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> dict[str, t.Any]:
        """Connect the controller's half with the host's."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        params = self._params(variables)
        gate, hosts = Gate(check_mode=self._task.check_mode), [*variables.get("groups", {}).get("all", [])]
        certifier = Certifier(
            params,
            gate,
            lambda options: self._call(options, variables),
            _inventory(variables),
            _inventories(params, variables, hosts),
            hosts,
            held=HeldLists(self, variables, params).survey,
            warn=lambda sentence: Display().warning(printable(sentence)),
            planned=lambda: planned_revocations(params),
            limited=bool(variables.get("ansible_limit")),
        )
        try:
            _place(params)
            with explained(f"use the CA in {params['ca_dir']}", denied=OWNER):
                if params["state"] == "revoked":
                    result.update(certifier.revoke())
                else:
                    result.update(certifier.certify(check=lambda: _refuse_others(params, variables)))
        except BadInput as error:
            result.update(failed=True, msg=str(error), problems=error.problems)
        except VirtError as error:
            result.update(failed=True, msg=str(error))
        return result

    def _params(self, task_vars: Variables) -> Variables:
        _unused, params = self.validate_argument_spec(OPTIONS)
        params["ca_dir"] = self._loader.path_dwim(params["ca_dir"])
        host = str(task_vars["inventory_hostname"])
        if params["name"] is None and params["state"] == "present":
            params["name"] = host
        if params["names"] is None:
            params["names"] = [host, str(task_vars.get("ansible_host") or host)]
        return t.cast(Variables, params)

    def _call(self, params: Variables, task_vars: Variables) -> Variables:
        options = {option: value for option, value in params.items() if value is not None}
        return t.cast(
            Variables,
            self._execute_module(module_name="corral.virt.virt_tls", module_args=options, task_vars=task_vars),
        )


def _place(params: Variables) -> None:
    """For a job without a home directory: with the CA's key in the options, use a temporary CA directory.

    The controller then gets no certificate, which would be lost. Raises Refused without any authority.
    """
    if not home_files.lacks(params["ca_dir"], home_files.CA_DIR):
        return
    if params["ca_key"] or params["qemu_ca_key"]:
        params.update(ca_dir=os.path.join(C.DEFAULT_LOCAL_TMP, "corral-ca"), controller=False)
    elif not (params["ca_certificate"] or params["qemu_ca_certificate"] or os.path.exists(params["ca_dir"])):
        raise Refused(
            f"cannot keep a certificate authority in {params['ca_dir']}: the home directory cannot be written; set "
            "ca_dir (pki_ca_dir of role pki, CORRAL_VIRT_CA_DIR) to the directory of the authority, or set its texts: "
            "ca_certificate, ca_key, qemu_ca_certificate and qemu_ca_key (pki_ca_certificate, ...)"
        )


def _inventory(variables: t.Mapping[str, t.Any]) -> str:
    """The machine and inventory file that a host comes from; empty if unknown. A path is unique on one machine only."""
    source = variables.get("inventory_file")
    machine = Path("/etc/machine-id")
    name = machine.read_text().strip() if machine.exists() else os.uname().nodename
    return f"{name}:{source}" if source else ""


def _inventories(params: Variables, variables: Variables, hosts: t.Collection[str]) -> set[str]:
    """Inventories of the hypervisors; only for a revocation, as reading all variables of hosts is slow."""
    names = params["hypervisors"] or () if params["state"] == "revoked" else ()
    return {_inventory(variables["hostvars"][name]) for name in names if name in hosts} - {""}


def _refuse_others(params: Variables, task_vars: Variables) -> None:
    """Raises BadInput for names of other hosts of the inventory, which this host could impersonate with them."""
    own = _names(task_vars["inventory_hostname"], task_vars)
    wanted = {*check_names(params["names"], what="names")} - own
    problems = [
        f"names of {params['name']}: {name} belongs to {other} in the inventory; omit it (pki_names, pki_extra_names "
        "of role pki)"
        for other, variables in (task_vars["hostvars"].items() if wanted else ())
        for name in sorted(wanted & _names(other, variables))
    ]
    if problems:
        raise BadInput(problems)


def _names(host: str, variables: t.Mapping[str, t.Any]) -> set[str]:
    """A host's name and address in the inventory, in the form of names in a certificate."""
    found: set[str] = set()
    with contextlib.suppress(BadInput):  # no name that a certificate could have
        found.update(check_names([host], what=host))
    with contextlib.suppress(BadInput, AnsibleError):  # where it is, only that host can tell
        found.update(check_names([str(variables.get("ansible_host") or host)], what=host))
    return found
