# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write guests that exist as variables, on the controller: what the hosts answered in, files out."""

from __future__ import annotations

import functools
import os
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._files import configuration
from ansible_collections.corral.virt.plugins.module_utils._plan.host_steps import WriteFile
from ansible_collections.corral.virt.plugins.module_utils._plan.problems import Problems
from ansible_collections.corral.virt.plugins.module_utils._run import Gate
from ansible_collections.corral.virt.plugins.plugin_utils import _import, _terminal
from ansible_collections.corral.virt.plugins.plugin_utils._plain import printable

OPTIONS: dict[str, t.Any] = {
    "guests": {"type": "list", "elements": "dict", "required": True},
    "results": {"type": "dict", "required": True},
    "compared": {"type": "dict", "default": {}},
    "dest": {"type": "path", "required": True},
    "form": {"type": "str", "choices": ["list", "host_vars"], "default": "list"},
    "replace": {"type": "bool", "default": False},
}


class ActionModule(ActionBase):
    """Files of the controller; no host is touched."""

    _supports_check_mode = True
    _supports_diff = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """All guests are read before the first file is written."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        _checked, options = self.validate_argument_spec(OPTIONS)
        try:
            guests, notes = _guests(options["guests"], options["results"], options["compared"])
            wanted = _import.files(guests, os.path.abspath(options["dest"]), options["form"])
            _check_places(wanted)
            found = {path: configuration.read(path) for path in wanted}
            _check(wanted, found, replace=options["replace"])
            changed = [WriteFile(path, text) for path, text in wanted.items() if text != found[path]]
            Gate(check_mode=self._task.check_mode).run(changed, _write)
        except BadInput as error:
            raise AnsibleActionFail(printable("; ".join(error.problems))) from error
        except (VirtError, OSError) as error:
            raise AnsibleActionFail(printable(str(error))) from error
        for note in notes:
            _terminal.say(printable(note))
        diff = [
            {"before": found[step.path], "after": step.content, "before_header": step.path, "after_header": step.path}
            for step in changed
        ]
        return {**result, "changed": bool(changed), "files": list(wanted), "notes": notes, "diff": diff}


def _guests(
    chosen: t.Sequence[t.Mapping[str, t.Any]], results: t.Mapping[str, t.Any], compared: t.Mapping[str, t.Any]
) -> tuple[list[_import.Guest], list[str]]:
    """The guests' arguments, and what is yet to be done; raises BadInput with every problem."""
    problems, guests, notes = Problems(), [], []
    for one in chosen:
        if not (results.get(one["host"]) or {}).get("domains"):
            problems.found.append(f"cannot import {one['name']}: {one['host']} did not describe it, and says above why")
            continue
        answers = results[one["host"]]["domains"]
        told = next((item for item in answers if isinstance(item, dict) and item.get("uuid") == one["uuid"]), {})
        found = problems.tried(functools.partial(_import.guest, one["name"], told))
        problems.found += _import.differences(one["name"], compared.get(one["host"]) or {})
        if found is not None:
            guests.append(found)
            notes += _import.notes(one["name"], told, found)
    problems.refuse()
    return guests, notes


def _check_places(wanted: t.Iterable[str]) -> None:
    """Raises Refused where something is that is no file: it would be replaced by one, `/dev/null` for example."""
    for path in wanted:
        if os.path.lexists(path) and not os.path.isfile(path):
            what = "a directory; name a file in it" if os.path.isdir(path) else "not a file"
            raise Refused(f"cannot write {path}: it is {what}")


def _check(wanted: t.Mapping[str, str], found: t.Mapping[str, str], *, replace: bool) -> None:
    """Raises Refused where a file says something else already."""
    others = [path for path, text in found.items() if text not in ("", wanted[path])]
    if others and not replace:
        raise Refused(
            f"cannot write {', '.join(others)}: it exists and says something else; name another place, or replace it: "
            "-e replace=true"
        )


def _write(step: WriteFile) -> None:
    os.makedirs(os.path.dirname(step.path), exist_ok=True)
    configuration.write(step.path, step.content)
