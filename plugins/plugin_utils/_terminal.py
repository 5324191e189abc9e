# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What actions and callbacks of this collection print, and where: lines for people never stand between what a
program reads.
"""

from __future__ import annotations

import typing as t

from ansible import constants
from ansible.utils.color import stringc
from ansible.utils.display import Display

from ansible_collections.corral.virt.plugins.plugin_utils._foreign_text import printable

__all__ = ["ONLY_REPORTS", "SPEAKING", "is_report", "message", "only_reports", "paint", "say"]

ONLY_REPORTS = "corral.virt.report"  # the callback that has standard output for reports alone
SPEAKING = frozenset(
    {
        "virt_balance",
        "virt_daemon",
        "virt_domain",
        "virt_domains",
        "virt_from_salt",
        "virt_image",
        "virt_import",
        "virt_migrate",
        "virt_migrations",
        "virt_place",
        "virt_report",
        "virt_simulate",
        "virt_state",
    }
)
_OUTPUTS = ("stderr", "stdout", "module_stderr", "module_stdout")

paint: t.Callable[[str, str], str] = stringc  # in a colour on a terminal, as it is in a pipe: by Ansible's own rules


def only_reports() -> bool:
    """Whether standard output is for reports alone."""
    return bool(constants.config.get_config_value("DEFAULT_STDOUT_CALLBACK") == ONLY_REPORTS)


def say(text: str) -> None:
    """A line, now; to standard error where standard output is for reports alone."""
    Display().display(text, stderr=only_reports())


def is_report(action: str) -> bool:
    """Whether a task prints a report."""
    return action.rpartition(".")[2] == "virt_report"


def message(result: t.Mapping[str, t.Any]) -> str:
    """What a task has to say, once: its message, and what a command printed."""
    text = result.get("msg")
    lines = [str(line) for line in text] if isinstance(text, (list, tuple)) else [str(text or "no message")]
    lines += [line for output in _OUTPUTS for line in str(result.get(output) or "").splitlines() if line not in lines]
    return "\n  ".join(str(printable(line, keep="\n\t")) for line in lines)
