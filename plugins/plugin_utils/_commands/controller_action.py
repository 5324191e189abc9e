# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Actions of the controller alone, and their options."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable


def taken(action: t.Any, spec: t.Mapping[str, t.Any], large: str) -> dict[str, t.Any]:
    """The options, checked. A `large` one is neither checked inside nor copied.

    Copying what a hundred hosts report of 5,000 guests takes seconds.
    """
    task = action._task
    given = task.args
    value = given.get(large)
    if not isinstance(value, dict):
        return t.cast("dict[str, t.Any]", action.validate_argument_spec(spec)[1])
    task.args = {**given, large: {}}
    try:
        _checked, options = action.validate_argument_spec(spec)
    finally:
        task.args = given
    return {**options, large: value}


class ControllerAction(ActionBase):
    """An action that connects to no host."""

    _requires_connection = False
    options: t.Mapping[str, t.Any]
    large = ""  # the option that is neither checked inside nor copied

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Answer with what the options ask for."""
        result = super().run(tmp, task_vars)
        try:
            return {**result, **self.answer(taken(self, self.options, self.large), task_vars or {})}
        except (VirtError, OSError) as error:
            raise AnsibleActionFail(printable(str(error), keep="\n\t")) from error

    def answer(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """The result; errors are those of the collection or of the system."""
        raise NotImplementedError
