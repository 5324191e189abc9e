# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Output of this collection's actions and callbacks: lines for people never mix with output for programs."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import typing as t

from ansible import constants
from ansible.utils.color import stringc
from ansible.utils.display import Display

from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable

ONLY_REPORTS = "corral.virt.report"  # the callback that has standard output for reports alone
SPEAKING = frozenset(
    {
        "virt_backup",
        "virt_balance",
        "virt_daemon",
        "virt_disk_move",
        "virt_domain",
        "virt_domains",
        "virt_from_salt",
        "virt_image",
        "virt_import",
        "virt_migrate",
        "virt_migrations",
        "virt_place",
        "virt_pool_drain",
        "virt_prove",
        "virt_report",
        "virt_simulate",
        "virt_snapshot",
        "virt_state",
    }
)
_OUTPUTS = ("stderr", "stdout", "module_stderr", "module_stdout")

paint: t.Callable[[str, str], str] = stringc  # in a colour on a terminal, as it is in a pipe: by Ansible's own rules


def only_reports() -> bool:
    """True if standard output is for reports alone."""
    return bool(constants.config.get_config_value("DEFAULT_STDOUT_CALLBACK") == ONLY_REPORTS)


def say(text: str) -> None:
    """Print a line at once; to standard error if standard output is for reports alone."""
    Display().display(text, stderr=only_reports())


def is_report(action: str) -> bool:
    """True if a task prints a report."""
    return action.rpartition(".")[2] == "virt_report"


def message(result: t.Mapping[str, t.Any]) -> str:
    """A task's message, and the output of its commands, each line once."""
    text = result.get("msg")
    lines = [str(line) for line in text] if isinstance(text, (list, tuple)) else [str(text or "no message")]
    lines += [line for output in _OUTPUTS for line in str(result.get(output) or "").splitlines() if line not in lines]
    return "\n  ".join(str(printable(line, keep="\n\t")) for line in lines)


class _Outliving:
    """An output whose reader may end first, as `head` does, or whose disk may be full: later output is discarded.

    Ansible's thread that prints for its workers ends with the first error of an output, and the run waits for that
    thread for ever.
    """

    def __init__(self, stream: t.TextIO) -> None:
        self._stream = stream
        self.lost: OSError | None = None  # why nobody can have what was printed
        self.has_ended = False

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Print the text; discard it if that fails."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._leave(error)
            return len(text)

    def flush(self) -> None:
        """Flush the output. After the end of the run, raise _OutputLost if output was lost."""
        try:
            self._stream.flush()
        except OSError as error:
            self._leave(error)
        if self.has_ended and self.lost:
            raise _OutputLost

    def _leave(self, error: OSError) -> None:
        if not isinstance(error, (BrokenPipeError, ConnectionResetError)):  # by a reader that needs no more
            self.lost = error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        self._stream.flush()


class _OutputLost(OSError):
    """Makes Python exit with 120, its code for an output that it cannot flush; other cleanup at exit still runs."""


def _outlive_outputs() -> None:
    """Wrap this process's outputs, which it prints for all workers; not a terminal, which ends the run with itself."""
    for name in _OWN_OUTPUTS:
        stream = getattr(sys, name)
        with contextlib.suppress(OSError, ValueError, AttributeError):  # there is none, or it has no descriptor
            if stream is getattr(sys, f"__{name}__") and not os.isatty(stream.fileno()):
                setattr(sys, name, _Outliving(stream))
    atexit.register(_tell_lost_outputs)


_OWN_OUTPUTS = {"stdout": "standard output", "stderr": "standard error"}


def _tell_lost_outputs() -> None:
    """At exit, report incomplete output; the run would count as successful otherwise."""
    for name, text in _OWN_OUTPUTS.items():
        stream = getattr(sys, name)
        if not isinstance(stream, _Outliving):
            continue
        stream.flush()
        stream.has_ended = True
        if stream.lost:
            sys.unraisablehook = _without_lost_outputs
            sys.stderr.write(
                f"[ERROR]: {text} is incomplete: {stream.lost.strerror}. The run was not stopped; look at what it did "
                "(ansible-playbook corral.virt.list), and write its output elsewhere\n"
            )


def _without_lost_outputs(problem: sys.UnraisableHookArgs) -> None:
    """Suppress Python's message about _OutputLost; show other unraisable errors."""
    if not isinstance(problem.exc_value, _OutputLost):
        sys.__unraisablehook__(problem)


_outlive_outputs()  # Ansible imports the actions before it makes workers
