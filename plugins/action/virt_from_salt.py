# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Convert Salt Virt's files to an inventory on the controller.

No host is contacted, and nothing in Salt's files is executed.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.plugin_utils._commands.controller_action import ControllerAction
from ansible_collections.corral.virt.plugins.plugin_utils._guests import variable_files
from ansible_collections.corral.virt.plugins.plugin_utils._guests.variable_files import untagged
from ansible_collections.corral.virt.plugins.plugin_utils._report import terminal
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable
from ansible_collections.corral.virt.plugins.plugin_utils._salt import salt_inventory, salt_sources

OPTIONS: dict[str, t.Any] = {
    "salt_root": {"type": "list", "elements": "path", "default": []},
    "pillar": {"type": "list", "elements": "path", "default": []},
    "minion": {"type": "path"},
    "rendered": {"type": "list", "elements": "path", "default": []},
    "hypervisors": {"type": "list", "elements": "str", "default": []},
    "out": {"type": "path", "required": True},
    "replace": {"type": "bool", "default": False},
}


class ActionModule(ControllerAction):
    """Reads and writes files of the controller; contacts no host."""

    options = OPTIONS

    def answer(self, options: dict[str, t.Any], _variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Read all files before the first one is written."""
        out = os.path.abspath(options["out"])
        gate = Gate(check_mode=self._task.check_mode)
        found = _converted(untagged(options))
        files = {os.path.join(out, name): text for name, text in found.files.items()}
        diff = variable_files.write(files, replace=options["replace"], gate=gate)
        notes = [printable(str(note)) for note in found.notes]
        for note in notes:
            terminal.say(note)
        return {
            "changed": bool(diff),
            "files": list(files),
            "guests": found.guests,
            "notes": notes,
            "diff": diff,
        }


def _converted(options: t.Mapping[str, t.Any]) -> salt_inventory.Converted:
    trees = salt_sources.Trees(options["salt_root"], options["pillar"], options["hypervisors"])
    sources = trees.read()
    for path in options["rendered"]:
        sources += trees.rendered(path)
    if options["minion"]:
        sources += trees.minion(options["minion"])
    if not trees.asked and not sources:
        raise BadInput("nothing to convert: name salt_root, pillar, minion or rendered")
    return salt_inventory.convert(sources, trees.notes, options["hypervisors"], trees.names(), trees.image)
