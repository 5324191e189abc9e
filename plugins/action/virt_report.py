# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print a report over all hypervisors, or write it into a file. Runs on the controller."""

from __future__ import annotations

import json
import os
import typing as t

from ansible.errors import AnsibleActionFail

from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import WriteFile
from ansible_collections.corral.virt.plugins.module_utils._system import configuration
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import OWNER
from ansible_collections.corral.virt.plugins.plugin_utils._commands import hosted_guests, selection
from ansible_collections.corral.virt.plugins.plugin_utils._commands.controller_action import ControllerAction
from ansible_collections.corral.virt.plugins.plugin_utils._report import report_data, report_text, tables, terminal
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable

_TABLES = tuple(kind for kind in report_data.KINDS if kind not in report_text.KINDS)  # without a text of Salt Virt's

OPTIONS: dict[str, t.Any] = {
    "kind": {"type": "str", "choices": [*report_text.KINDS, *_TABLES], "required": True},
    "results": {"type": "dict", "required": True},
    "group": {"type": "list", "elements": "str", "required": True},
    "guest": {"type": "list", "elements": "str"},
    "format": {"type": "str", "choices": ["seed", "table", "json"], "default": "seed"},
    "out": {"type": "str"},
}


class ActionModule(ControllerAction):
    """Shows text on the terminal (and in the job's output), and returns it."""

    options, large = OPTIONS, "results"

    def answer(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Build the report; print it, or write it."""
        kind = options["kind"]
        form = "table" if kind in _TABLES and options["format"] == "seed" else options["format"]
        if form != "seed" and kind not in report_data.KINDS:
            raise AnsibleActionFail(
                f"format: {kind} is text only; omit it, or choose one of {', '.join(report_data.KINDS)}"
            )
        hosts = {
            host: found
            for host, found in options["results"].items()
            if isinstance(found, dict) and not found.get("failed")
        }
        missing = [host for host in options["group"] if host not in hosts]
        hidden = [host for host in missing if host not in variables["ansible_play_hosts_all"]]
        if unknown := _unknown(options["guest"] or (), hosts, missing, hidden):
            raise AnsibleActionFail(unknown)
        text, shown = _built(kind, form, hosts, missing, hidden, options["guest"])
        result: dict[str, t.Any] = {"changed": False, "text": text, "missing": missing}
        if options["out"]:
            result["out"] = os.path.abspath(os.path.expanduser(options["out"]))
            gate = Gate(check_mode=self._task.check_mode)
            _write(result["out"], f"{text}\n", gate)
            verb = gate.perform(lambda: "is", otherwise=lambda: "would be")
            terminal.say(f"the report {verb} in {result['out']}")
        elif not terminal.only_reports():  # whose callback prints it
            terminal.say(shown)
        if odd := _unreadable(kind, hosts, options["guest"]):
            text = (
                f"the answer of {', '.join(odd)} cannot be read; inspect that host, or exclude it: --limit "
                f"'all:!{odd[0]}'"
            )
            result.update(failed=True, msg=printable(text))
        return result


def _unknown(
    guests: t.Sequence[str],
    hosts: t.Mapping[str, t.Mapping[str, t.Any]],
    missing: t.Sequence[str],
    hidden: t.Sequence[str],
) -> str:
    """The message that no host has some of these guests, with similar names; empty if all of them are found, or if a
    host that did not answer may have the rest.
    """
    names = {host: report_data.guests_of(found) for host, found in sorted(hosts.items())}
    absent = [guest for guest in guests if not any(guest in pair for found in names.values() for pair in found)]
    if missing and len(absent) < len(guests):
        return ""
    near = {host: _texts(found.get("similar")) for host, found in hosts.items()}
    there = [
        hosted_guests.HostedGuest(host, name, "", "")
        for host, found in names.items()
        for name in sorted({*(name for name, _uuid in found), *near[host]})
    ]
    asked = hosted_guests.Hosts("", tuple(names), tuple(one for one in missing if one not in hidden), tuple(hidden))
    return str(printable("; ".join(selection.unknown(name, there, asked) for name in absent)))


def _texts(found: object) -> list[str]:
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _unreadable(kind: str, hosts: t.Mapping[str, t.Mapping[str, t.Any]], guests: t.Collection[str] | None) -> list[str]:
    """Hosts whose answer is invalid, in any form of the report."""
    told = [form.unreadable for form in (report_text, report_data) if kind in form.KINDS]
    return sorted({host for unreadable in told for host in unreadable(kind, hosts, guests)})


def _built(
    kind: str,
    form: str,
    hosts: t.Mapping[str, t.Mapping[str, t.Any]],
    missing: t.Sequence[str],
    hidden: t.Sequence[str],
    guests: t.Collection[str] | None,
) -> tuple[str, str]:
    """The report, and its form for a terminal."""
    if form == "seed":
        text = report_text.text(kind, hosts, missing, guests, hidden)
        return text, text
    report = report_data.data(kind, hosts, missing, guests, hidden)
    if form == "json":
        text = json.dumps(report, indent=2)
        return text, text
    return tables.text(report), tables.text(report, terminal.paint)


def _write(path: str, content: str, gate: Gate) -> None:
    """Replace the file atomically."""
    folder = os.path.dirname(path)
    if os.path.lexists(path) and not os.path.isfile(path):
        what = (
            "a directory; name a file in it"
            if os.path.isdir(path)
            else f"not a file; to print it: ANSIBLE_STDOUT_CALLBACK={terminal.ONLY_REPORTS}"
        )
        raise AnsibleActionFail(f"out: cannot write the report to {path}: it is {what}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise AnsibleActionFail(
            f"out: cannot write the report to {path}: {folder} is not a directory that you can write to"
        )
    try:
        gate.run([WriteFile(path, content)], lambda step: configuration.write(step.path, step.content, denied=OWNER))
    except VirtError as error:
        raise AnsibleActionFail(f"out: {error}") from error
