# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What actions and callbacks of this collection print, and where: lines for people never stand between what a
program reads.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import typing as t

from ansible import constants
from ansible.utils.color import stringc
from ansible.utils.display import Display

from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable

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


class _Outliving:
    """An output whose reader may end first, as `head` does: what is printed after that goes nowhere.

    Ansible's thread that prints for its workers ends with the first error of an output, and the run waits for that
    thread for ever.
    """

    def __init__(self, stream: t.TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Print, if anybody reads."""
        try:
            return self._stream.write(text)
        except (BrokenPipeError, ConnectionResetError):
            self._leave()
            return len(text)

    def flush(self) -> None:
        """Print what is held back, if anybody reads."""
        try:
            self._stream.flush()
        except (BrokenPipeError, ConnectionResetError):
            self._leave()

    def _leave(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        self._stream.flush()


def _outlive_readers() -> None:
    """For pipes and sockets (of sshd) of this process, which prints for all workers."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        with contextlib.suppress(OSError, ValueError, AttributeError):  # there is none, or it has no descriptor
            mode = os.fstat(stream.fileno()).st_mode
            if stream is getattr(sys, f"__{name}__") and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
                setattr(sys, name, _Outliving(stream))


_outlive_readers()  # Ansible imports the actions before it makes workers
