# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of every plan, whatever its noun."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change


@dataclasses.dataclass(frozen=True)
class Look:
    """How a step that cannot be undone looks again right before it acts; listed in the internals guide."""

    at: str  # what is compared with the plan, by identity
    holds: str  # what nobody can change from the look to the act; empty: nothing
    leaves: str  # what stays, and what is said, where the look differs from the plan
    by: tuple[str, ...] = ()  # fields of the step that hold the identity that is compared; `move.uuid` is one within


@dataclasses.dataclass(frozen=True)
class Step:
    """One change of the world, in one verb, on one object; its text is for humans."""

    template: t.ClassVar[str] = ""  # its text: `{0.path}` is its field or property; or a class has its own `__str__`
    changes: t.ClassVar[bool] = True  # False for waiting: it leaves the world as it is
    # Of a step that destroys something: its doer must be a `Looked` (a test); None where it can be undone.
    look: t.ClassVar[Look | None] = None

    def __str__(self) -> str:
        return self.template.format(self)

    @property
    def verb(self) -> str:
        """The name of the step in lower case."""
        return type(self).__name__.lower()


S = t.TypeVar("S", bound=Step)


@dataclasses.dataclass(frozen=True)
class Plan(t.Generic[S]):
    """Steps in order, their changes, what is pending, and notes."""

    steps: tuple[S, ...] = ()
    changes: tuple[Change, ...] = ()
    pending: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seen: str = ""  # the digest of the facts that it was made from (`_core/digest.py`); empty: nobody has told
