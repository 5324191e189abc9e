"""A dialogue with a plan: the questions that it must ask its host, in their order, and the answers."""

from __future__ import annotations

import contextlib
import typing as t

Dialogue = t.Sequence[tuple[t.Any, t.Any]]


class Questions:
    """What a dialogue is written with: each method of the host's protocol returns the question that it asks."""

    def __getattr__(self, name: str) -> t.Callable[..., t.Any]:
        return lambda *arguments: (name, *arguments)


class _Host:
    """The host of a dialogue. A question that it has answered may be asked again."""

    def __init__(self, dialogue: Dialogue) -> None:
        self.left, self._answers = list(dialogue), dict[t.Any, t.Any]()

    def __getattr__(self, name: str) -> t.Callable[..., t.Any]:
        return lambda *arguments: self._answered((name, *arguments))

    def _answered(self, question: tuple[t.Any, ...]) -> t.Any:
        if question not in self._answers:
            assert question == (self.left[0][0] if self.left else None), "the plan asks what it need not know now"
            self._answers[question] = self.left.pop(0)[1]
        return self._answers[question]


@contextlib.contextmanager
def told(dialogue: Dialogue) -> t.Iterator[t.Any]:
    """The host of a dialogue; the plan must ask exactly these questions in this order."""
    host = _Host(dialogue)
    yield host
    assert host.left == [], "the plan does not ask what it must know"
