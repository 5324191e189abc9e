# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The resource that a guest is in Pacemaker (role `cluster`), and the hold on it while we act on the guest."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import Entrust, Resource
from ansible_collections.corral.virt.plugins.module_utils._system import command

MEMBER = "/etc/corosync/corosync.conf"
PROGRAM = "/usr/local/sbin/corral-cluster"  # the role installs it
_SETTLE_S = 60


def resource(uuid: str) -> Resource | None:
    """The resource of the guest; None on a host that is in no cluster, and for a guest that the cluster does not have.

    Raises Failed if Pacemaker's configuration cannot be read.
    """
    return _resources().get(uuid) if os.path.exists(MEMBER) and os.path.exists(PROGRAM) else None


@functools.lru_cache(maxsize=1)  # once for all guests of a call
def _resources() -> dict[str, Resource]:
    try:
        lines = command.run(PROGRAM, "guests").splitlines()
    except Failed as error:
        raise Failed(
            f"cannot tell which guests Pacemaker runs: {error}; `crm_verify --live-check` shows its configuration"
        ) from error
    return {one.uuid: one for one in (Resource(**json.loads(line)) for line in lines)}


def members() -> tuple[str, str]:
    """This host's name as a member, and what crm_mon says of all members, as XML; raises Failed if Pacemaker does not
    run.
    """
    return command.run("crm_node", "--name").strip(), command.run("crm_mon", "--one-shot", "--output-as=xml")


def settle() -> None:
    """Wait until Pacemaker does nothing of what it had begun; raises Failed after a minute."""
    command.run("crm_resource", "--wait", f"--timeout={_SETTLE_S}", timeout_s=_SETTLE_S + 10)


class PacemakerHold:
    """While it is entered, Pacemaker does nothing with a resource; then all members look where the guest runs.

    If this program is ended, the hold lasts for the seconds that `corral-cluster hold` says.
    """

    def __init__(self, held: Resource) -> None:
        self._held, self._role = held, ""
        self._program: subprocess.Popen[str] | None = None

    def entrust(self, step: Entrust) -> None:
        """Have Pacemaker keep the guest Started or Stopped from the end of the hold on, or forget it (Removed)."""
        self._role = step.role

    def __enter__(self) -> PacemakerHold:
        try:
            self._program = subprocess.Popen(
                [PROGRAM, "hold", self._held.uuid],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="surrogateescape",
                env={**os.environ, "LC_ALL": "C", "PATH": f"{os.environ.get('PATH', '')}:{command.SYSTEM_PATH}"},
                start_new_session=True,
            )
        except OSError as error:
            what = f"cannot keep Pacemaker from acting on {self._held.name}: {PROGRAM}: {error.strerror}"
            raise Failed(f"{what}; run the role corral.virt.cluster on this host") from error
        said = t.cast("t.IO[str]", self._program.stdout).readline()
        if said != "held\n":
            _out, why = self._program.communicate()
            raise Failed(
                f"cannot keep Pacemaker from acting on {self._held.name}: {why.strip() or 'corral-cluster was ended'}; "
                "start Pacemaker on this host (`systemctl status pacemaker`), and run again"
            )
        return self

    def __exit__(self, *failure: object) -> None:
        program = t.cast("subprocess.Popen[str]", self._program)
        _out, why = program.communicate(f"{self._role}\n")  # also when a later step has failed
        if program.returncode and not any(failure):
            raise Failed(
                f"cannot give {self._held.name} back to Pacemaker: {why.strip()}; "
                f"crm_resource --refresh --resource {self._held.name}"
            )
