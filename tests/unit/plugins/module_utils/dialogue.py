"""A dialogue with a plan that asks."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.questions import OpenQuestion

F = t.TypeVar("F")

Dialogue = t.Sequence[tuple[OpenQuestion[t.Any], t.Any]]


def told(plan: t.Callable[[F], t.Any], facts: F, dialogue: Dialogue) -> F:
    """The facts after a dialogue; the plan must ask exactly these questions in this order."""
    for question, answer in dialogue:
        assert plan(facts) == question
        known: t.Any = facts
        facts = t.cast(F, dataclasses.replace(known, answers=known.answers.plus(question, answer)))
    return facts
