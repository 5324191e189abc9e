"""A host is asked once for each fact, until it forgets."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.cached_answers import asked, asked_of, forget
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed


@dataclasses.dataclass(frozen=True)
class Host:
    """A host that notes what it is asked; frozen, as a runner's may be."""

    answer: t.Any = True
    heard: list[tuple[str, ...]] = dataclasses.field(default_factory=list, compare=False)

    @asked
    def size(self, path: str) -> t.Any:
        """An answer by one argument."""
        self.heard.append(("size", path))
        return self.answer

    @asked
    def owner(self, path: str) -> t.Any:
        """Another question with the same argument."""
        self.heard.append(("owner", path))
        return self.answer

    @asked
    def fails(self) -> t.Any:
        """A question that may fail."""
        self.heard.append(("fails",))
        if len(self.heard) == 1:
            raise Failed("not now")
        return self.answer

    @asked
    def both(self) -> t.Any:
        """A question that asks another one."""
        self.heard.append(("both",))
        return self.size("a")


@pytest.mark.parametrize("answer", [True, False, None, "", 0, ()])
def test_a_question_is_asked_until_it_has_an_answer(answer: t.Any) -> None:
    host = Host(answer)
    assert [host.size("a"), host.size("a")] == [answer, answer]
    assert host.heard == [("size", "a")], "an answer that says no is one"


def test_an_answer_is_of_one_question_and_of_one_host() -> None:
    host, other = Host(), Host(False)
    assert [host.size("a"), host.size("b"), host.owner("a"), other.size("a")] == [True, True, True, False]
    assert (host.heard, other.heard) == ([("size", "a"), ("size", "b"), ("owner", "a")], [("size", "a")])


def test_an_error_is_no_answer() -> None:
    host = Host()
    with pytest.raises(Failed, match="not now"):
        host.fails()
    assert host.fails() is True and host.fails() is True
    assert host.heard == [("fails",), ("fails",)]


def test_a_question_may_ask_another_one() -> None:
    host = Host()
    assert host.both() is True and host.size("a") is True
    assert host.heard == [("both",), ("size", "a")]


def test_what_is_forgotten_is_asked_anew() -> None:
    host, other = Host(), Host()
    forget(host)
    for one in (host, other):
        assert one.size("a") is True
    forget(host)
    for one in (host, other):
        assert one.size("a") is True
    assert (host.heard, other.heard) == ([("size", "a")] * 2, [("size", "a")])


def test_a_question_keeps_its_name() -> None:
    assert (Host.size.__name__, Host.size.__doc__) == ("size", "An answer by one argument.")


def test_an_answer_that_needs_no_host_is_of_one_host_and_of_one_function() -> None:
    class Other:
        """A host whose answers are functions of one name; each answer is a new object."""

        first = asked_of(lambda path: [path, 1])
        second = asked_of(lambda path: [path, 2])

    host, other = Other(), Other()
    assert (host.first("a"), host.second("a")) == (["a", 1], ["a", 2])
    assert host.first("a") is host.first("a") and host.first("a") is not other.first("a")
