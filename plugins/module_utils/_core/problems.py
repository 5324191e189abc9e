# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect all problems of a request, not only the first."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused, VirtError

WHERE_IT_IS = "`ansible-playbook corral.virt.list` shows which host has it"  # a guest that is not here

T = t.TypeVar("T")


class Problems:
    """The problems of one request."""

    def __init__(self, found: t.Iterable[str] = ()) -> None:
        self.found = list(found)

    def tried(self, make: t.Callable[[], T]) -> T | None:
        """The result of `make`; if it raises BadInput, its problems are added and None is returned."""
        try:
            return make()
        except BadInput as error:
            self.found += error.problems
            return None

    def read(self, what: str, make: t.Callable[[], T]) -> T | None:
        """The result of `make`; None if it raises ValueError, whose text becomes a problem of `what`."""
        try:
            return make()
        except ValueError as error:
            self.found.append(f"{what}: {error}")
            return None

    def refuse(self) -> None:
        """Raise BadInput if there are any problems."""
        if self.found:
            raise BadInput(self.found)


def refuse_all(problems: t.Sequence[VirtError]) -> None:
    """Raise the one problem, or an error with all of them."""
    if len(problems) == 1:
        raise problems[0]
    if any(isinstance(problem, BadInput) for problem in problems):
        raise BadInput([str(problem) for problem in problems])
    if problems:
        raise Refused("; ".join(map(str, problems)))


def contradictions(
    names: t.Sequence[str], at_once: int, originals: t.Mapping[str, str] | None = None
) -> t.Iterator[str]:
    """Problems of many guests in one call, beside those of each."""
    if at_once < 1:
        yield f"at_once: must be at least 1, not {at_once}"
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"domains: guest {name} is given twice"
    for name, original in (originals or {}).items():
        if original in names:
            yield (
                f"clone_of of {name}: this task also describes {original}; create the copy in a separate task, "
                "afterwards"
            )


def control_characters(values: t.Mapping[str, t.Any], what: str, *, allowed: str = "") -> list[str]:
    """A problem for every text that XML cannot hold or a terminal would obey."""
    return [found.replace(": ", f" of {what}: ", 1) for found in units.control_characters(values, allowed=allowed)]
