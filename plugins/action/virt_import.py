# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write existing guests as variables on the controller, from the hosts' answers."""

from __future__ import annotations

import functools
import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems
from ansible_collections.corral.virt.plugins.plugin_utils._commands.controller_action import ControllerAction
from ansible_collections.corral.virt.plugins.plugin_utils._guests import import_files, variable_files
from ansible_collections.corral.virt.plugins.plugin_utils._report import terminal
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable

OPTIONS: dict[str, t.Any] = {
    "guests": {"type": "list", "elements": "dict", "required": True},
    "results": {"type": "dict", "required": True},
    "compared": {"type": "dict", "default": {}},
    "dest": {"type": "path", "required": True},
    "form": {"type": "str", "choices": ["list", "host_vars"], "default": "list"},
    "replace": {"type": "bool", "default": False},
}


class ActionModule(ControllerAction):
    """Writes files of the controller; contacts no host."""

    options = OPTIONS

    def answer(self, options: dict[str, t.Any], _variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Read all guests before the first file is written."""
        gate = Gate(check_mode=self._task.check_mode)
        guests, notes = _guests(options["guests"], options["results"], options["compared"])
        wanted = import_files.files(guests, os.path.abspath(options["dest"]), options["form"])
        diff = variable_files.write(wanted, replace=options["replace"], gate=gate)
        for note in notes:
            terminal.say(printable(note))
        return {"changed": bool(diff), "files": list(wanted), "notes": notes, "diff": diff}


def _guests(
    chosen: t.Sequence[t.Mapping[str, t.Any]], results: t.Mapping[str, t.Any], compared: t.Mapping[str, t.Any]
) -> tuple[list[import_files.Guest], list[str]]:
    """The guests' arguments, and notes on what remains to be done; raises BadInput with every problem."""
    problems, guests, notes = Problems(), [], []
    problems.found += import_files.twins(chosen)
    for one in chosen:
        if not (results.get(one["host"]) or {}).get("domains"):
            problems.found.append(f"cannot import {one['name']}: {one['host']} did not describe it, and says above why")
            continue
        answers = results[one["host"]]["domains"]
        answer = next((item for item in answers if isinstance(item, dict) and item.get("uuid") == one["uuid"]), {})
        found = problems.tried(functools.partial(import_files.guest, one["name"], answer))
        if found is not None:
            comparison = (compared.get(one["host"]) or {}) if compared else None
            problems.found += import_files.differences(one["name"], comparison)
        if found is not None:
            guests.append(found)
            notes += import_files.notes(one["name"], answer, found)
    problems.refuse()
    return guests, notes
