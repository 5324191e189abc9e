# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print a report over all hypervisors, or write it into a file. Runs on the controller."""

from __future__ import annotations

import json
import os
import tempfile
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.corral.virt.plugins.module_utils._files import durable
from ansible_collections.corral.virt.plugins.plugin_utils import _report, _report_data, _table, _terminal


class ActionModule(ActionBase):
    """Text on the terminal (and in the job's output), and as a result."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Build the report; print it, or write it."""
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        _checked, options = self.validate_argument_spec(
            {
                "kind": {"type": "str", "choices": list(_report.KINDS), "required": True},
                "results": {"type": "dict", "required": True},
                "group": {"type": "list", "elements": "str", "required": True},
                "guest": {"type": "list", "elements": "str"},
                "format": {"type": "str", "choices": ["seed", "table", "json"], "default": "seed"},
                "out": {"type": "str"},
            }
        )
        kind, form = options["kind"], options["format"]
        if form != "seed" and kind not in _report_data.KINDS:
            raise AnsibleActionFail(f"format: {kind} is text only; leave it out, or choose one of {', '.join(_report_data.KINDS)}")
        hosts = {host: found for host, found in options["results"].items() if isinstance(found, dict) and not found.get("failed")}
        missing = [host for host in options["group"] if host not in hosts]
        text, shown = _built(kind, form, hosts, missing, options["guest"])
        if options["guest"] and not text:
            raise AnsibleActionFail(f"cannot find guest {', '.join(options['guest'])}: no hypervisor of {', '.join(sorted(hosts))} has it")
        result.update(changed=False, text=text, missing=missing)
        if options["out"]:
            result["out"] = os.path.abspath(os.path.expanduser(options["out"]))
            checking = bool(self._task.check_mode)
            _write(result["out"], f"{text}\n", checking=checking)
            _terminal.say(f"the report {'would be' if checking else 'is'} in {result['out']}")
        elif not _terminal.only_reports():  # whose callback prints it
            _terminal.say(shown)
        return result


def _built(
    kind: str, form: str, hosts: t.Mapping[str, t.Mapping[str, t.Any]], missing: t.Sequence[str], guests: t.Collection[str] | None
) -> tuple[str, str]:
    """The report, and how a terminal shows it; empty when none of the guests is there."""
    if form == "seed":
        text = _report.text(kind, hosts, missing, guests)
        return text, text
    report = _report_data.data(kind, hosts, missing, guests)
    if guests and not any(host.get("guests") for host in report["hosts"]):
        return "", ""
    if form == "json":
        text = json.dumps(report, indent=2)
        return text, text
    return _table.text(report), _table.text(report, _terminal.paint)


def _write(path: str, content: str, *, checking: bool) -> None:
    """Replace the file as a whole, so that nobody reads half of it."""
    folder = os.path.dirname(path)
    if os.path.isdir(path):
        raise AnsibleActionFail(f"out: cannot write the report to {path}: it is a directory; name a file in it")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise AnsibleActionFail(f"out: cannot write the report to {path}: {folder} is no directory that you can write to")
    if checking:
        return
    descriptor, temporary = tempfile.mkstemp(prefix=".corral-", dir=folder)
    try:
        with open(descriptor, "w", encoding="utf-8") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        durable.remove(temporary)
        raise AnsibleActionFail(f"out: cannot write the report to {path}: {error.strerror}") from error
    durable.settle(folder)


def _umask() -> int:
    """What new files of the user lack; asking is setting."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
