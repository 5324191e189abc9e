# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Questions of a plan: facts that cost a query, asked one at a time and only if they decide something. Pure."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

__all__ = ["Answers", "OpenQuestion", "Table", "answered", "asks"]


A = t.TypeVar("A")
F = t.TypeVar("F")
R = t.TypeVar("R")


class OpenQuestion(t.Generic[A]):
    """A fact that a plan must know next. A question is a frozen value, and `A` is the type of its answer."""


@dataclasses.dataclass(frozen=True)
class Answers:
    """The answers so far; they do not change while a plan is made."""

    known: t.Mapping[OpenQuestion[t.Any], t.Any] = dataclasses.field(default_factory=dict)

    def of(self, question: OpenQuestion[A]) -> A:
        """The answer to a question. If there is none yet, the plan stops here and returns the question."""
        if question not in self.known:
            raise _UnansweredError(question)
        return t.cast(A, self.known[question])

    def plus(self, question: OpenQuestion[A], answer: A) -> Answers:
        """The answers with one more."""
        return Answers({**self.known, question: answer})


class _UnansweredError(Exception):
    """Raised for a question without an answer, which is its one argument."""


def asks(decide: t.Callable[[F], R]) -> t.Callable[[F], R | OpenQuestion[t.Any]]:
    """Make a function of facts, which hold `Answers`, return the next open question instead of stopping."""

    @functools.wraps(decide)
    def decided(facts: F) -> R | OpenQuestion[t.Any]:
        try:
            return decide(facts)
        except _UnansweredError as unanswered:
            return t.cast("OpenQuestion[t.Any]", unanswered.args[0])

    return decided


# Answer the questions of a plan until it has none.

W = t.TypeVar("W")

# How each question is answered, by the one who looks.
Table = t.Mapping[type[OpenQuestion[t.Any]], t.Callable[[W, t.Any], t.Any]]


def answered(plan: t.Callable[[Answers], R | OpenQuestion[t.Any]], table: Table[W], who: W) -> R:
    """The decision of a plan, after answering its questions one by one."""
    answers = Answers()
    while isinstance(decided := plan(answers), OpenQuestion):
        answers = answers.plus(decided, table[type(decided)](who, decided))
    return decided
