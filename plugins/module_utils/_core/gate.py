# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""THE GATE: the only code that knows check mode. Every write of the collection passes here."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.step import Step

S = t.TypeVar("S", bound=Step)
T = t.TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Looked:
    """The doer of a step that cannot be undone: it looks again, by identity, and acts under what the look holds.

    `look` raises where what is about to be destroyed is not what the plan meant, or somebody has come to need it.
    """

    look: t.Callable[..., contextlib.AbstractContextManager[object] | None]
    act: t.Callable[..., object]

    def __call__(self, *arguments: t.Any) -> object:
        """Act while the look holds; returns the result of the act."""
        with self.look(*arguments) or contextlib.nullcontext():
            return self.act(*arguments)


class Gate:
    """Passes steps to `do`, or only reports them in check mode.

    `meanwhile` is called before each step, after everything was planned: a test lets others act there.
    """

    def __init__(self, *, check_mode: bool, meanwhile: t.Callable[[Step], object] = lambda _step: None) -> None:
        self._check_mode = check_mode
        self._meanwhile = meanwhile
        self._before: list[str] = []  # steps that are done already

    def after(self, steps: t.Sequence[Step]) -> Gate:
        """The gate for what follows these steps: if that fails, its message lists them too."""
        following = copy.copy(self)
        following._before = [*self._before, *map(str, steps)]
        return following

    def hold(
        self, stack: contextlib.ExitStack, make: t.Callable[[], contextlib.AbstractContextManager[object]]
    ) -> None:
        """Hold what steps need, such as a lock, until `stack` ends. Check mode holds nothing."""
        if not self._check_mode:
            stack.enter_context(make())

    def rehearse(self, look: t.Callable[[], object]) -> None:
        """Run a look in check mode only, for what a real run finds out by acting."""
        if self._check_mode:
            look()

    def perform(self, do: t.Callable[[], T], *, otherwise: t.Callable[[], T]) -> T:
        """The result of `do`; in check mode that of `otherwise`."""
        return otherwise() if self._check_mode else do()

    def foretell(self, steps: t.Sequence[S]) -> t.Sequence[S]:
        """Steps that a later call plans and carries out: check mode makes no such call, and reports them now."""
        return steps if self._check_mode else ()

    def assumes(self, look: t.Callable[[], bool]) -> bool:
        """True if a plan may assume, in check mode only, what `look` returns: that others do first what this run waits
        for.

        A real run assumes nothing.
        """
        return self._check_mode and look()

    def run(self, steps: t.Sequence[S], do: t.Callable[[S], object]) -> list[object]:
        """Carry out the steps in order and return their results; in check mode nothing is done, and the list is empty.

        Raises Failed with the steps already done, so that the user knows the state.
        """
        if self._check_mode:
            return []
        done = [*self._before]
        results: list[object] = []
        for step in steps:
            try:
                self._meanwhile(step)
                results.append(do(step))
            except VirtError as error:
                if not done:
                    raise
                raise Failed(f"{error} (already done: {'; '.join(done)})", done) from error
            done.append(str(step))
        return results
