# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Answer the questions of a plan until it has none."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.questions import Answers, OpenQuestion

__all__ = ["Table", "answered"]

R = t.TypeVar("R")
W = t.TypeVar("W")

# How each question is answered, by the one who looks.
Table = t.Mapping[type[OpenQuestion[t.Any]], t.Callable[[W, t.Any], t.Any]]


def answered(plan: t.Callable[[Answers], R | OpenQuestion[t.Any]], table: Table[W], who: W) -> R:
    """What the plan decides once it knows enough."""
    answers = Answers()
    while isinstance(decided := plan(answers), OpenQuestion):
        answers = answers.plus(decided, table[type(decided)](who, decided))
    return decided
