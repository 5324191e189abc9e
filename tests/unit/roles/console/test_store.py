"""What a reader of the store knows is what the store knows, however it comes and goes."""

from __future__ import annotations

import asyncio
import json
import threading
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.corral.virt.roles.console.files.corral_console import policy
from ansible_collections.corral.virt.roles.console.files.corral_console.policy import Who
from ansible_collections.corral.virt.roles.console.files.corral_console.store import Delta, Store
from ansible_collections.corral.virt.roles.console.files.corral_console.stream import Feed
from ansible_collections.corral.virt.roles.console.files.corral_console.view import View

CHANGES = st.lists(
    st.dictionaries(st.sampled_from("abcdef"), st.none() | st.integers(0, 2).map(lambda number: {"n": number})),
    max_size=20,
)


class Reader:
    """As the page does it."""

    def __init__(self) -> None:
        self.mark: str | None = None
        self.known: dict[str, t.Any] = {}

    def read(self, store: Store) -> Delta:
        delta = store.since(self.mark)
        if delta.reset:
            self.known.clear()
        for key in delta.gone:
            self.known.pop(key, None)
        self.known.update(delta.values)
        self.mark = delta.mark
        return delta


@given(CHANGES, st.sets(st.integers(0, 19)), st.integers(1, 4))
def test_a_reader_that_comes_now_and_then_knows_all(
    changes: list[dict[str, t.Any]], reads: set[int], remembered: int
) -> None:
    store, reader, wanted = Store(remembered=remembered), Reader(), {}
    for number, change in enumerate(changes):
        store.update(change)
        wanted.update(change)
        if number in reads:
            reader.read(store)
    reader.read(store)
    assert reader.known == {key: value for key, value in wanted.items() if value is not None} == store.below("")
    assert not reader.read(store)


def test_only_changes_are_sent() -> None:
    store, reader = Store(), Reader()
    store.update({"a": {"n": 1}, "b": {"n": 1}})
    assert reader.read(store).reset
    store.update({"a": {"n": 2}, "b": {"n": 1}, "c": None})
    delta = reader.read(store)
    assert (delta.reset, delta.values, delta.gone) == (False, {"a": {"n": 2}}, [])
    store.update({"b": None})
    assert reader.read(store).gone == ["b"]


def test_what_changes_nothing_wakes_nobody() -> None:
    store, calls = Store(), []
    store.subscribe(lambda: calls.append(1))
    for _each in range(3):
        store.update({"a": {"n": 1}})
    assert calls == [1]


def test_a_mark_that_is_not_ours_begins_anew() -> None:
    store = Store()
    store.update({"a": {"n": 1}})
    epoch = store.mark.partition(".")[0]
    for mark in (
        None,
        "",
        "x",
        "other.1",
        f"{epoch}.2",
        f"{epoch}.-1",
        f"{epoch}.٣",
        f"{epoch}.",
        f"{epoch}.{'9' * 5000}",
    ):
        assert store.since(mark).reset, mark
    assert not store.since(f"{epoch}.1").reset


def test_removals_that_are_forgotten_begin_anew() -> None:
    store, reader = Store(remembered=2), Reader()
    reader.read(store)
    for number in range(10):
        store.update({str(number): {"n": 1}})
        store.update({str(number): None})
    assert reader.read(store).reset and reader.known == {}


def test_writers_in_many_threads_lose_nothing() -> None:
    store = Store()

    def write(name: str) -> None:
        for number in range(200):
            store.update({f"{name}/{number}": {"n": number}})

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.below("")) == 800 and store.mark.endswith(".800")


def body(message: str) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads(message.partition("data: ")[2]))


async def always() -> bool:
    return True


def test_a_stream_sends_what_comes_and_goes_on_at_a_mark() -> None:
    async def follow() -> None:
        store = Store()
        store.update({"a": {"n": 1}})
        feed = Feed(store)
        stream = feed.read(None, None, always)
        assert (await anext(stream)).startswith("retry:")
        assert body(await anext(stream)) == {"reset": True, "values": {"a": {"n": 1}}, "gone": []}
        mark = store.mark
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        threading.Thread(target=store.update, args=({"b": {"n": 2}},)).start()
        message = await asyncio.wait_for(waiting, 5)
        assert message.startswith(f"id: {store.mark}-\n") and body(message)["values"] == {"b": {"n": 2}}
        later = feed.read(mark, None, always)
        await anext(later)
        assert body(await anext(later)) == {"reset": False, "values": {"b": {"n": 2}}, "gone": []}

    asyncio.run(follow())


def test_a_stream_ends_with_its_session_and_with_the_server() -> None:
    async def follow() -> None:
        store = Store()
        feed = Feed(store)
        alive = True

        async def still() -> bool:
            return alive

        streams = [feed.read(None, None, still), feed.read(None, None, always)]
        for stream in streams:
            await anext(stream), await anext(stream)
        waiting = [asyncio.ensure_future(anext(stream, None)) for stream in streams]
        await asyncio.sleep(0)
        alive = False
        feed.wake()
        assert await asyncio.wait_for(waiting[0], 5) is None
        feed.close()
        while (waiting[1].done() and waiting[1].result()) is not None:
            waiting[1] = asyncio.ensure_future(anext(streams[1], None))
            await asyncio.wait_for(asyncio.shield(waiting[1]), 5)

    asyncio.run(follow())


WEB: dict[str, t.Any] = {"name": "web1", "host": "hyper1", "uuid": "web1", "tags": []}
DB = {**WEB, "name": "db1", "uuid": "db1"}


def view(name: str, *rules: dict[str, t.Any]) -> View:
    return View(Who(name), policy.parsed([{"who": f"user:{name}", **rule} for rule in rules]))


def test_a_stream_does_not_tell_the_key_of_a_hidden_guest() -> None:
    """Neither when it changes nor when it goes: a key has its host and its UUID."""

    async def follow() -> None:
        store = Store()
        store.update({"guest/hyper1/web1": WEB, "guest/evil/db1": DB})
        stream = Feed(store).read(None, view("alice", {"may": "start", "guests": "web*"}), always)
        told = [await anext(stream), await anext(stream)]
        for state, change in {"paused": {**DB, "state": "paused"}, "shutdown": None}.items():
            store.update({"guest/evil/db1": change, "guest/hyper1/web1": {**WEB, "state": state}})
            told.append(await anext(stream))
        store.update({"guest/hyper1/web1": None})
        told.append(await anext(stream))
        assert body(told[-1])["gone"] == ["guest/hyper1/web1"] and "db1" not in "".join(told)

    asyncio.run(follow())


def test_a_stream_has_what_its_reader_may_see() -> None:
    async def follow() -> None:
        store = Store()
        store.update(
            {
                "guest/hyper1/web1": WEB,
                "guest/hyper1/db1": DB,
                "host/hyper1": {"name": "hyper1"},
                "figures/hyper1": {"guests": {"web1": [1, 2], "db1": [3, 4]}},
                "job/1": {"user": "bob", "guests": [{"uuid": "web1"}]},
                "job/2": {"user": "bob", "guests": [{"uuid": "web1"}, {"uuid": "db1"}]},
                "job/3": {"user": "alice", "guests": [{"uuid": "db1"}]},
                "job/4": {"user": "bob", "guests": []},
            }
        )
        feed, mine = Feed(store), view("alice", {"may": "start", "guests": "web*"})
        stream = feed.read(None, mine, always)
        await anext(stream)
        values = body(await anext(stream))["values"]
        assert sorted(values) == ["figures/hyper1", "guest/hyper1/web1", "host/hyper1", "job/1", "job/3"]
        assert values["figures/hyper1"]["guests"] == {"web1": [1, 2]}
        store.update({"guest/hyper1/web1": {**WEB, "name": "db2"}})
        message = await anext(stream)
        assert (body(message)["values"], body(message)["gone"]) == ({}, ["guest/hyper1/web1"]), "it may be no more"
        mark = message.splitlines()[0].removeprefix("id: ")
        for other in (view("alice", {"may": "*"}), view("alice", {"may": "view", "guests": "db*"})):
            later = feed.read(mark, other, always)
            await anext(later)
            assert body(await anext(later))["reset"], "who sees something else begins anew"

    asyncio.run(follow())


RACK = {**WEB, "uuid": "web2", "name": "web2", "host": "rack1-a", "tags": ["front"]}
SHOWN = {
    "guest/hyper1/web1": WEB,
    "guest/rack1-a/web2": RACK,
    "host/hyper1": {"name": "hyper1"},
    "host/rack1-a": {"name": "rack1-a"},
    "figures/hyper1": {"guests": {"web1": [1, 2]}},
    "figures/rack1-a": {"guests": {"web2": [1, 2]}},
    "job/1": {"user": "alice", "guests": []},
    "job/2": {"user": "bob", "guests": [{"uuid": "web2"}]},
    "job/3": {"user": "bob", "guests": [{"uuid": "web2"}, {"uuid": "gone"}]},
    "other/1": {"user": "alice", "guests": []},
}


@pytest.mark.parametrize(
    ("rules", "hidden"),
    [
        ([{"may": "view"}], set()),
        ([{"may": "audit"}, {"may": "start"}], set()),
        ([{"may": "view", "tags": "front"}], {"guest/hyper1/web1", "job/3", "other/1"}),
        (
            [{"may": "view", "hosts": "rack1-*"}],
            {"guest/hyper1/web1", "host/hyper1", "figures/hyper1", "job/3", "other/1"},
        ),
        ([{"may": "audit"}], set(SHOWN) - {"job/1"}),
    ],
)
def test_what_is_seen(rules: list[dict[str, t.Any]], hidden: set[str]) -> None:
    store = Store()
    store.update(SHOWN)
    mine = view("alice", *rules)
    assert {key for key, value in SHOWN.items() if mine.of(key, value, store) is None} == hidden
    figures = {"guests": {"web1": [1, 2], "gone": [3, 4]}}
    seen = view("alice", {"may": "view", "guests": "*"}).of("figures/hyper1", figures, store)
    assert seen == {"guests": {"web1": [1, 2]}}


def test_equal_views_are_shared() -> None:
    """A user's own jobs make a difference, where they do not see all."""
    everything, some = {"may": "*"}, {"may": "view", "guests": "web*"}
    assert view("alice", everything).key == view("bob", everything).key
    assert len({view("alice", some).key, view("bob", some).key, view("alice", everything).key}) == 3
    assert view("alice", some, {"may": "audit"}).key == view("alice", some).key


def test_who_may_only_read_the_audit_sees_nothing() -> None:
    store = Store()
    assert view("alice", {"may": ["audit", "users"]}).of("guest/hyper1/web1", WEB, store) is None
    assert view("alice", {"may": "view"}).of("guest/hyper1/web1", WEB, store) == WEB
    assert view("alice", {"may": "start", "hosts": "rack2-*"}).of("host/hyper1", {"name": "hyper1"}, store) is None
