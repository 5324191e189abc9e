# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep SSH host keys of guests in a file of the controller, as the user who runs Ansible, without `become`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import WriteFile
from ansible_collections.corral.virt.plugins.module_utils._system import configuration
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import remedy
from ansible_collections.corral.virt.plugins.plugin_utils._commands.controller_action import ControllerAction
from ansible_collections.corral.virt.plugins.plugin_utils._controller import home_files
from ansible_collections.corral.virt.plugins.plugin_utils._inventory import known_hosts

OPTIONS: dict[str, t.Any] = {
    "path": {"type": "path", "required": True},
    "keys": {"type": "dict", "default": {}, "no_log": False},
    "absent": {"type": "list", "elements": "str", "default": []},
    "renamed": {"type": "dict", "default": {}},
}


_DENIED = "set guests_known_hosts to a file that you own"
_NOT_KEPT = (
    "the guests' host keys are not kept: {} cannot be written. The inventory plugin takes them from the hypervisors; "
    "to keep them, set guests_known_hosts (CORRAL_VIRT_KNOWN_HOSTS) to a file that you own"
)


class ActionModule(ControllerAction):
    """Edits one file of the controller; contacts no host."""

    options = OPTIONS

    def answer(self, options: dict[str, t.Any], _variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Edit the file once for all guests."""
        path = os.path.abspath(options.pop("path"))
        options = _kept(options)
        _check(options)
        if home_files.lacks(path, home_files.KNOWN_HOSTS):
            return {"changed": False, "msg": _NOT_KEPT.format(path)}
        before, after = _written(path, options, Gate(check_mode=self._task.check_mode))
        shown = {"before": before, "after": after, "before_header": path, "after_header": path}
        return {"changed": before != after, "diff": shown}


def _written(path: str, wanted: t.Mapping[str, t.Any], gate: Gate) -> tuple[str, str]:
    """The file's text before and after; other runs on this machine wait."""
    with contextlib.ExitStack() as stack:
        gate.hold(stack, lambda: _locked(path))
        before = configuration.read(path, denied=_DENIED)
        after = known_hosts.edited(before, **wanted)
        if before != after:
            gate.run(
                [WriteFile(path, after)], lambda step: configuration.write(step.path, step.content, denied=_DENIED)
            )
    return before, after


@contextlib.contextmanager
def _locked(path: str) -> t.Iterator[None]:
    """One run at a time in the file's folder, which is created; raises BadInput if that fails."""
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise BadInput(
            f"cannot keep host keys in {path}: {error.strerror}; {remedy(error, folder, denied=_DENIED)}"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _kept(options: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The options without removed guests whose names are no valid names, such as `*`, and so in no line of ours."""
    renamed = {old: new for old, new in options["renamed"].items() if _is_name(old)}
    return {**options, "absent": [name for name in options["absent"] if _is_name(name)], "renamed": renamed}


def _is_name(name: str) -> bool:
    with contextlib.suppress(BadInput):
        return bool(units.check_name(name, what="name"))
    return False


def _check(options: t.Mapping[str, t.Any]) -> None:
    """Raises BadInput for names and keys that would change the meaning of a line."""
    problems = []
    for name in (*options["keys"], *options["absent"], *options["renamed"], *options["renamed"].values()):
        try:
            units.check_name(name, what="name")
        except BadInput as error:
            problems += error.problems
    problems += [
        f"keys: the key of {name} is not a public SSH key"
        for name, key in options["keys"].items()
        if not known_hosts.is_key(key)
    ]
    if problems:
        raise BadInput(problems)
