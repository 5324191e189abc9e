"""Asking many at once: who fails or hangs does so alone."""

from __future__ import annotations

import threading
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._address.libvirt_agents import Agents
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, NotFound, Timeout
from ansible_collections.corral.virt.plugins.module_utils._domain.model_address import AddressClaim
from ansible_collections.corral.virt.plugins.module_utils._libvirt import states as guest_states
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.plugin_utils._inventory import hypervisors

MAC = "52:54:00:00:00:01"
DOMAIN = """<domain><name>web1</name><uuid>1</uuid><metadata>
<c:guest xmlns:c="urn:corral:virt:guest:1">{given}</c:guest><corral-seen:guest xmlns:corral-seen="urn:corral:virt:seen:1">{seen}
</corral-seen:guest></metadata><devices><interface type='bridge'><mac address='52:54:00:00:00:01'/></interface>
<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0' state='{agent}'/></channel></devices></domain>"""
SOURCES = ["record", "lease", "seen", "arp", "agent"]


def test_each_for_itself() -> None:
    never = threading.Event()

    def fail(_heard: t.Callable[[], None]) -> str:
        raise Failed("closed")

    def hang(_heard: t.Callable[[], None]) -> str:
        return str(never.wait())

    questions: dict[str, t.Callable[[t.Callable[[], None]], str]] = {
        "hung1": hang,
        "hung2": hang,
        "bad": fail,
        "good": lambda _heard: "yes",
    }
    answers, failures = hypervisors.ask(questions, concurrency=2, timeout_s=1)
    never.set()
    assert answers == {"good": "yes"}
    assert {name: type(error) for name, error in failures.items()} == {
        "hung1": Timeout,
        "hung2": Timeout,
        "bad": Failed,
    }


def test_all_at_once() -> None:
    together = threading.Barrier(20, timeout=300)
    questions = {str(number): lambda _heard: together.wait() for number in range(20)}
    answers, _failures = hypervisors.ask(questions, concurrency=20, timeout_s=60)
    assert len(answers) == 20


def test_who_goes_on_replying_is_not_given_up() -> None:
    def slow(heard: t.Callable[[], None]) -> str:
        for _reply in range(4):
            time.sleep(0.5)
            heard()
        return "all"

    answers, failures = hypervisors.ask({"slow": slow}, concurrency=1, timeout_s=1.5)
    assert (answers, failures) == ({"slow": "all"}, {})


@pytest.mark.parametrize(
    ("now", "talks", "given_up"),
    [
        (10.9, 10, set()),
        (11.0, 10, {"waits", "talks"}),
        (11.0, 10.6, set()),
        (13.9, 13.5, set()),
        (13.9, 13.4, {"waits"}),
        (14.0, 13.6, {"waits"}),
    ],
    ids=["in time", "all silent", "one talks", "busy for long", "no longer busy", "busy for too long"],
)
def test_nobody_is_given_up_because_this_process_is_slow(now: float, talks: float, given_up: set[str]) -> None:
    """While others reply, who waits for its turn is not silent; one that hangs is given up all the same."""
    assert (
        hypervisors.silent({"waits", "talks"}, {"waits": 10, "talks": talks, "ended": 3}, now, timeout_s=1) == given_up
    )


def test_reasons() -> None:
    assert hypervisors.reason(Failed("closed")) == "closed"
    assert hypervisors.reason(ValueError("bad port")) == "ValueError: bad port"


def reply(
    *, given: str = "", seen: str = "", channel: str = "connected", state: str = "running", **asked: str
) -> hypervisors.Reply:
    """What libvirt answers about a guest; in `asked`, an address by source."""
    given = f"<c:address>{given}</c:address>" if given else ""
    seen = f"<corral-seen:at>{seen}</corral-seen:at>" if seen else ""
    claims = {source: [AddressClaim(MAC, address, source)] for source, address in asked.items()}
    return hypervisors.Reply("web1", "1", state, DOMAIN.format(given=given, seen=seen, agent=channel), claims)


SEEN = f"{MAC} 192.0.2.7 dhcp 100"


@pytest.mark.parametrize(
    ("answer", "worth"),
    [
        pytest.param(reply(), {}, id="nothing"),
        pytest.param(reply(seen=SEEN), {"192.0.2.7": [2, 100]}, id="seen"),
        pytest.param(reply(seen=SEEN, given="192.0.2.8"), {"192.0.2.8": [9, 0]}, id="given first"),
        pytest.param(reply(seen=SEEN, lease="192.0.2.8"), {"192.0.2.8": [3, 10**11]}, id="then leased"),
        pytest.param(reply(seen=SEEN, agent="192.0.2.8"), {"192.0.2.7": [2, 100]}, id="the agent last"),
        pytest.param(reply(seen=SEEN, state="shutdown"), {}, id="what is off is nowhere"),
        pytest.param(
            reply(given="192.0.2.8", state="shutdown"), {"192.0.2.8": [9, 0]}, id="but keeps what it was given"
        ),
        pytest.param(reply(seen=SEEN.replace("01 ", "02 ")), {}, id="seen at an interface that it has no more"),
        pytest.param(reply(seen="x"), {}, id="a record that is none"),
        pytest.param(reply(seen=SEEN.replace("192.0.2.7", "127.0.0.1")), {}, id="a record of what is no address"),
    ],
)
def test_which_source_is_believed(answer: hypervisors.Reply, worth: dict[str, list[int]]) -> None:
    found = hypervisors.facts(answer, SOURCES)
    assert (found["addresses"], found["worth"]) == (list(worth), worth)


def test_what_an_agent_says_of_other_interfaces_leads_nowhere() -> None:
    answer = reply()
    answer.asked["agent"] = [
        AddressClaim("02:42:00:00:00:01", "172.17.0.1", "agent"),
        AddressClaim(MAC, "192.0.2.7", "agent"),
    ]
    assert hypervisors.facts(answer, SOURCES)["addresses"] == ["192.0.2.7"]


@pytest.mark.parametrize(
    ("answer", "sources", "asked"),
    [
        (reply(), SOURCES, True),
        (reply(channel="disconnected"), SOURCES, False),
        (reply(state="shutdown"), SOURCES, False),
        (reply(seen=SEEN), SOURCES, False),
        (reply(given="192.0.2.8"), SOURCES, False),
        (reply(lease="192.0.2.8"), SOURCES, False),
        (reply(), SOURCES[:-1], False),
        (reply(seen=SEEN, lease="192.0.2.8"), ["agent", "lease", "seen"], True),
        (reply(seen=SEEN), ["lease", "agent"], True),
    ],
)
def test_only_agents_are_asked_that_may_know_more(answer: hypervisors.Reply, sources: list[str], asked: bool) -> None:
    assert hypervisors._is_unknown(answer, sources) == asked


def test_agents_that_never_answer_cost_one_budget_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    class Half(Agents):
        """Every other one is silent."""

        def ask(self, uuid: str) -> None:
            self._open.add(uuid)
            if int(uuid) % 2:
                self._answers.put((uuid, [AddressClaim(MAC, f"192.0.2.{uuid}", "agent")]))

    monkeypatch.setattr(hypervisors, "Agents", Half)
    monkeypatch.setattr(hypervisors, "_AGENTS_S", 0.5)
    replies = [hypervisors.Reply("web", str(number), "running", "", {}) for number in range(100)]
    heard: list[None] = []
    begun_s = time.monotonic()
    hypervisors._ask_agents("test:///default", replies, lambda: heard.append(None))
    assert time.monotonic() - begun_s < 2
    assert len(heard) > 2, "the hypervisor is not given up meanwhile"
    assert [reply.uuid for reply in replies if reply.asked] == [str(number) for number in range(1, 100, 2)]


def test_who_may_not_write_asks_no_agent() -> None:
    begun_s = time.monotonic()
    hypervisors._ask_agents("test:///nowhere.xml", [hypervisors.Reply("web1", "1", "running", "", {})], lambda: None)
    assert time.monotonic() - begun_s < 2


def test_a_guest_that_goes_between_the_list_and_its_document_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = "<domain type='test'><name>{0}</name><memory>1024</memory><os><type>hvm</type></os></domain>"
    host = tmp_path / "host.xml"
    host.write_text(f"<node>{''.join(map(domain.format, ('stays', 'goes', 'last')))}</node>")
    listed = guest_states.of_all

    def gone(connection: t.Any) -> t.Any:
        found = listed(connection)
        leaving = connection.lookupByName("goes")
        leaving.destroy()
        leaving.undefine()
        return found

    monkeypatch.setattr(guest_states, "of_all", gone)
    monkeypatch.setattr(hypervisors, "reached", lambda uri, **_options: opened(uri))  # one that may write
    replies = hypervisors.guests(f"test://{host}", SOURCES, lambda: None, timeout_s=5, own=[])
    assert {reply.name for reply in replies} == {"stays", "last"}


class Far:
    """Guests behind a slow line, as libvirt's binding has them."""

    def __init__(self, delay_s: float, *, wrong: str = "") -> None:
        self.delay_s, self.wrong = delay_s, wrong
        self.asked, self.most, self._now, self._lock = 0, 0, 0, threading.Lock()

    def reply(self, item: t.Any, state: str, _sources: t.Sequence[str], _heard: t.Callable[[], None]) -> t.Any:
        with self._lock:
            self.asked, self._now = self.asked + 1, self._now + 1
            self.most = max(self.most, self._now)
        time.sleep(self.delay_s)
        with self._lock:
            self._now -= 1
        if item in ("gone", self.wrong):
            raise NotFound(item) if item == "gone" else Failed(item)
        return item, state


def test_over_a_slow_line_several_guests_are_asked_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    states = [(str(number), "running") for number in range(10)]
    states[3] = ("gone", "running")
    kept = [each for each in states if each[0] != "gone"]
    for slow_s, most in ((0.01, 5), (10, 1)):
        far = Far(0.02)
        monkeypatch.setattr(hypervisors, "_reply", far.reply)
        monkeypatch.setattr(hypervisors, "_SLOW_S", slow_s)
        found: list[t.Any] = [*hypervisors._replies(states, [], lambda: None)]
        assert found == kept
        assert (far.most, far.asked) == (most, 10)
    assert hypervisors._replies([], [], lambda: None) == []


@pytest.mark.parametrize("wrong", ["0", "7"])
def test_what_fails_ends_the_others(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    far = Far(0.02, wrong=wrong)
    monkeypatch.setattr(hypervisors, "_reply", far.reply)
    with pytest.raises(Failed, match=wrong):
        hypervisors._replies([(str(number), "running") for number in range(50)], [], lambda: None)
    assert far.asked < 20
