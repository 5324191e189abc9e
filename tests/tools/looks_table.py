"""The table of what cannot be undone, for the guide of the internals: steps, each with its look, and acts that are no
steps.

`--write` puts it there.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import textwrap

from ansible_collections.corral.virt.plugins.module_utils._core.step import Look, Step
from ansible_collections.corral.virt.tests.tools import payload
from ansible_collections.corral.virt.tests.tools.guide_table import GUIDES, Table

__all__ = ["TABLE"]

_WIDTH = 116
_NO_STEP = "no step"

# Acts that are no steps of a plan: of the controller, of roles, of the console.
OTHERS = (
    (
        "Replace a host's TLS files (lists of revoked certificates, CAs, certificates)",
        "revoked serials and CAs (SHA-256) in place, against the new ones; the lists of all hosts before that",
        "a lock on the directory of the set",
        "the files; which serials or CAs the new ones lack",
    ),
    (
        "Remove the former TLS set, and the key of a request",
        "the set that ``current`` names, after the exchange; the bytes of the key",
        "the same",
        "what is in use; another run's key",
    ),
    (
        "Revoke a certificate",
        "who is gone, and each serial, at the moment that it is recorded",
        "a lock on the CA directory, from the decision to the last record",
        "the date of what is revoked already",
    ),
    (
        "Delete an issued certificate or a host's entry from the CA directory",
        "the serial, after its revocation was recorded; other valid certificates of that host",
        "the same",
        "what is still valid",
    ),
    (
        "Close connections of revoked clients",
        "the subject of each connection (libvirt tells no serial, so one with a new certificate of that name closes, too)",
        "",
        "",
    ),
    (
        "Upgrade packages of a hypervisor; shut guests down for it (``force``)",
        "the mark of this run, by its ID; every guest that is not off, by UUID",
        "the mark: with the hook of role ``hypervisor``, libvirt starts and receives no guest there",
        "the host, in maintenance; the guests, with their states",
    ),
    (
        "Reboot a hypervisor",
        "the same, as the last task before it; afterwards the UUID of the host and its boot ID",
        "the same",
        "the same",
    ),
    (
        "Remove the mark of a host",
        "the mark, by its ID; an upgrade only removes the mark of an upgrade",
        "nothing",
        "a mark of somebody else, with its reason",
    ),
    (
        "Restart the libvirt daemon",
        "its jobs, twice; whether the files that it reads at its start are newer",
        "the locks of all guests",
        "the daemon; its jobs",
    ),
    (
        "Remove the entry by which a run holds a guest",
        "that the entry is not locked by another run",
        "the lock on the entry",
        "entries of other runs",
    ),
    (
        "Shrink, rebase or flatten a disk",
        "that no QEMU process has it open, by the locks that ``qemu-img`` itself takes",
        "the lock of the disk's name; QEMU's write lock while ``qemu-img`` works",
        "the disk as it is",
    ),
    (
        "Remove jobs of the web console that have ended",
        "their number, above the limit",
        "nothing",
        "jobs that have not ended",
    ),
)


def rows() -> list[tuple[str, ...]]:
    """Steps by name, then the other acts."""
    found = [
        (
            f"``{step.__name__}``: {(step.__doc__ or '').strip().splitlines()[0]}",
            look.at,
            _by(look),
            look.holds,
            look.leaves,
        )
        for step in _steps()
        if (look := step.look)
    ]
    return [*sorted(found), *((act, at, _NO_STEP, *rest) for act, at, *rest in OTHERS)]


def _by(look: Look) -> str:
    return ", ".join(f"``{field}``" for field in look.by)


def _steps() -> list[type[Step]]:
    for path in sorted((payload.ROOT / "plugins").rglob("*.py")):
        if {"module_utils", "plugin_utils"} & {*path.parts} and path.name != "__init__.py":
            importlib.import_module(payload.NAMESPACE + ".".join(path.relative_to(payload.ROOT).with_suffix("").parts))
    found, waiting = [], [Step]
    while waiting:
        waiting += (below := waiting.pop().__subclasses__())
        found += [step for step in below if step.__module__.startswith(payload.NAMESPACE)]
    return found


_CODE = re.compile(r"(?<![`:])`([^`]+)`(?!`)")  # docstrings write `name`, reStructuredText ``name``


@dataclasses.dataclass(frozen=True)
class _ListTable(Table):
    """With a line for each cell, as the cells are sentences."""

    def text(self) -> str:
        """Directive, head and rows."""
        lines = [".. list-table::", "  :header-rows: 1", ""]
        for row in (self.head, *self.rows()):
            for number, cell in enumerate(row):
                first = "  * - " if number == 0 else "    - "
                lines += textwrap.wrap(
                    _CODE.sub(r"``\1``", cell) or "nothing",
                    _WIDTH,
                    initial_indent=first,
                    subsequent_indent="      ",
                    break_long_words=False,
                )
        return "\n".join(lines) + "\n"


TABLE = _ListTable(
    "looks_table",
    GUIDES / "guide_internals.rst",
    (
        "Act",
        "Looked at again, right before",
        "By, in the step",
        "Held from the look to the act",
        "Left, and said, where it differs",
    ),
    rows,
)

if __name__ == "__main__":
    TABLE.main()
