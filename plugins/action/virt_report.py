# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print a report over all hypervisors. Runs on the controller."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.corral.virt.plugins.plugin_utils import _report

display = Display()


class ActionModule(ActionBase):
    """Text on the terminal (and in the job's output), and as a result."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Build the text and print it."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        _checked, options = self.validate_argument_spec(
            {
                "kind": {"type": "str", "choices": list(_report.KINDS), "required": True},
                "results": {"type": "dict", "required": True},
                "group": {"type": "list", "elements": "str", "required": True},
                "guest": {"type": "list", "elements": "str"},
            }
        )
        hosts = {host: found for host, found in options["results"].items() if isinstance(found, dict) and not found.get("failed")}
        missing = [host for host in options["group"] if host not in hosts]
        text = _report.text(options["kind"], hosts, missing, options["guest"])
        if options["guest"] and not text:
            raise AnsibleError(f"cannot find guest {', '.join(options['guest'])}: no hypervisor of {', '.join(sorted(hosts))} has it")
        display.display(text)
        return {**result, "changed": False, "text": text, "missing": missing}
