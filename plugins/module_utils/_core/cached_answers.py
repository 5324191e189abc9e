# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a host: a plan asks by the methods of a protocol, and gets the same answer until the host forgets it."""

from __future__ import annotations

import functools
import typing as t

Q = t.TypeVar("Q", bound=t.Callable[..., t.Any])

_ANSWERS = "_answers"


def asked(question: Q) -> Q:
    """Cache a method's answers, by object and arguments; arguments and answers are values that nobody changes.

    An error is no answer. An object is asked by one thread at a time.
    """

    @functools.wraps(question)
    def answer(host: object, *arguments: t.Hashable) -> t.Any:
        key = (question, arguments)
        if key not in _answers(host):
            found = question(host, *arguments)
            _answers(host)[key] = found
        return _answers(host)[key]

    return t.cast(Q, answer)


if t.TYPE_CHECKING:
    asked_of = staticmethod
else:

    def asked_of(question):
        """`asked` for a function that needs no host: `kind = asked_of(files_disk.kind)` in the class of a host."""
        return asked(functools.wraps(question)(lambda _host, *arguments: question(*arguments)))


def forget(host: object) -> None:
    """Ask a host anew from now on: what it answered before a lock was taken may no longer be true under it."""
    _answers(host).clear()


def _answers(host: object) -> dict[tuple[t.Any, tuple[t.Hashable, ...]], t.Any]:
    answers: dict[tuple[t.Any, tuple[t.Hashable, ...]], t.Any] = vars(host).setdefault(_ANSWERS, {})
    return answers
