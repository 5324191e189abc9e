# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Query many hypervisors for their guests at once. One that is dead, or hangs, delays no other.

Only libvirt's replies are awaited under the deadline; one thread parses them afterwards (`facts`).
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import queue
import re
import socket
import threading
import time
import typing as t
import urllib.parse

from ansible_collections.corral.virt.plugins.module_utils._address import libvirt_ip_addresses
from ansible_collections.corral.virt.plugins.module_utils._address.libvirt_agents import Agents
from ansible_collections.corral.virt.plugins.module_utils._core.errors import (
    Failed,
    NotFound,
    Timeout,
    Unreachable,
    Unsupported,
    VirtError,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.fields_domain import DOMAIN
from ansible_collections.corral.virt.plugins.module_utils._domain.fields_record import RECORD
from ansible_collections.corral.virt.plugins.module_utils._domain.model_address import AddressClaim, Sighting
from ansible_collections.corral.virt.plugins.module_utils._libvirt import states as guest_states
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._tls import files_credentials
from ansible_collections.corral.virt.plugins.module_utils._tls.run_connect import reached
from ansible_collections.corral.virt.plugins.module_utils._xml import row
from ansible_collections.corral.virt.plugins.module_utils._xml.names import AGENT_CHANNEL
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse
from ansible_collections.corral.virt.plugins.plugin_utils._inventory.inventory_guests import endpoint

Answer = t.TypeVar("Answer")
Heard = t.Callable[[], None]  # called with every reply of a hypervisor: it is alive

# Of the 226 fields of a guest those that an inventory shows.
_SHOWN = {
    **{
        field: DOMAIN[field]
        for field in (
            "title",
            "tags",
            "login_user",
            "vcpus.current",
            "vcpus.maximum",
            "memory.current_kib",
            "memory.maximum_kib",
        )
    },
    **{field: RECORD[field] for field in ("addresses", "seen", "ssh_host_key")},
}
_BUSY = 4  # times the timeout, while others reply
_LOOK_S = 0.05
# libvirtd works on so many calls of a client at once (max_client_requests). On a fast line threads only cost time.
_AT_ONCE, _SLOW_S = 5, 0.01
_AGENTS_S = 3.0  # for all guests of a hypervisor that are asked, together
_MARKS = {"record": ":address>", "seen": "corral-seen:at>"}  # in a document that holds our record of addresses
_AGENT = re.compile(rf"<target [^>]*name='{re.escape(AGENT_CHANNEL)}'[^>]*state='connected'")
# How much an address is worth against another guest's: a rank, and since when. What is asked now is newer than what was
# recorded.
_GIVEN, _NOW_S = 9, 10**11


@dataclasses.dataclass(frozen=True)
class Reply:
    """libvirt's reply about one guest; `asked` has the addresses by libvirt source."""

    name: str
    uuid: str
    state: str
    xml: str
    asked: dict[str, list[AddressClaim]]


def check_libraries() -> None:
    """Raises Unsupported, with what to install on the controller, if a library is missing."""
    if libvirt is None:
        raise Unsupported(
            "reading guests requires libvirt's Python binding beside ansible-core on this controller; pip install "
            "libvirt-python lxml, or the distribution's python3-libvirt and python3-lxml where its own ansible-core "
            "is used"
        )
    parse("<lxml/>")


def ask(
    questions: t.Mapping[str, t.Callable[[Heard], Answer]], *, concurrency: int, timeout_s: float
) -> tuple[dict[str, Answer], dict[str, Exception]]:
    """The answers, and the errors of the others. Each is given up after `timeout_s` of silence.

    While others reply, this process may be the slow part, so the silence may last longer then. A call that hangs is
    left behind: its thread does not keep the process from ending.
    """
    waiting, heard_at, running = collections.deque(questions), dict[str, float](), set[str]()
    replies: queue.SimpleQueue[tuple[str, Answer | None, Exception | None]] = queue.SimpleQueue()
    answers: dict[str, Answer] = {}
    failures: dict[str, Exception] = {}

    def heard(name: str) -> None:
        heard_at[name] = time.monotonic()

    def reply(name: str) -> None:
        try:
            replies.put((name, questions[name](functools.partial(heard, name)), None))
        except Exception as error:  # noqa: BLE001  whatever it is, it is this hypervisor's alone
            replies.put((name, None, error))

    while waiting or running:
        while waiting and len(running) < max(1, concurrency):
            name = waiting.popleft()
            heard(name)
            running.add(name)
            threading.Thread(target=reply, args=(name,), daemon=True).start()
        try:
            first = min(heard_at[name] for name in running) + timeout_s
            name, answer, error = replies.get(timeout=max(_LOOK_S, first - time.monotonic()))
        except queue.Empty:
            given_up = silent(running, heard_at, time.monotonic(), timeout_s)
            failures.update({name: Timeout(f"no answer within {timeout_s:g} s") for name in given_up})
            running -= given_up
            continue
        if name in running:
            (answers if error is None else failures)[name] = t.cast(t.Any, answer if error is None else error)
        running.discard(name)
    return answers, failures


def silent(running: t.Collection[str], heard_at: t.Mapping[str, float], now: float, timeout_s: float) -> set[str]:
    """Names of hypervisors that have been silent for too long."""
    busy = now - max(heard_at.values()) < timeout_s / 2
    return {name for name in running if now - heard_at[name] >= timeout_s * (_BUSY if busy else 1)}


def guests(uri: str, sources: t.Sequence[str], heard: Heard, *, timeout_s: float, own: list[str]) -> list[Reply]:
    """Replies about all guests: one call for all, one document each, and addresses if the first source has none.

    `own` is extended by the addresses of the hypervisor itself, also if it does not answer.
    """
    own += _resolved(uri)
    heard()
    _check_certificate(uri)
    _check_port(uri, timeout_s / 2)  # in time to be the reason that is told
    with reached(uri, readonly=True) as connection:
        found = _replies(list(guest_states.of_all(connection)), sources, heard)
    _ask_agents(uri, [reply for reply in found if _is_unknown(reply, sources)], heard)
    return found


def facts(reply: Reply, sources: t.Sequence[str]) -> dict[str, t.Any]:
    """A guest's facts for the inventory."""
    root = parse(reply.xml)
    fields = row.read(root, _SHOWN)
    macs = [mac.get("address") for mac in root.iterfind("devices/interface/mac")]
    known: dict[str, dict[str, tuple[int, int]]] = {
        source: {claim.address: (claim.rank, _NOW_S) for claim in claims if claim.mac in macs}
        for source, claims in reply.asked.items()
    }
    known["record"] = dict.fromkeys(fields.get("addresses", ()), (_GIVEN, 0))
    seen = filter(None, map(Sighting.parse, fields.get("seen", ())))
    known["seen"] = {entry.address: (entry.rank, entry.since) for entry in seen if entry.mac in macs}
    order = sources if reply.state == "running" else ["record"]  # nobody else knows one that is off
    addresses = next((known[source] for source in order if known.get(source)), {})
    return {
        "name": reply.name,
        "uuid": reply.uuid,
        "state": reply.state,
        "title": fields.get("title", ""),
        "tags": list(fields.get("tags", ())),
        "vcpus": fields.get("vcpus.current", fields.get("vcpus.maximum")),
        "memory_mib": fields.get("memory.current_kib", fields.get("memory.maximum_kib", 0)) // 1024,
        "macs": macs,
        "addresses": list(addresses),
        "worth": {address: list(worth) for address, worth in addresses.items()},
        "ssh_host_key": fields.get("ssh_host_key"),
        "login_user": fields.get("login_user"),
    }


def reason(error: Exception) -> str:
    """The reason of an error, in libvirt's own words if there are any; without the host's name, so equal ones match."""
    if isinstance(error, Unreachable):
        return error.reason
    libvirt_message = getattr(error.__cause__, "get_error_message", None)
    text = (libvirt_message() if libvirt_message else None) or str(error) or type(error).__name__
    return text if isinstance(error, VirtError) else f"{type(error).__name__}: {text}"


def _replies(states: t.Sequence[tuple[t.Any, str]], sources: t.Sequence[str], heard: Heard) -> list[Reply]:
    """Replies about guests that still exist, in their order. Over a slow line, several are queried at a time."""
    found: dict[int, Reply] = {}
    errors: list[Exception] = []
    waiting = collections.deque(enumerate(states))

    def work(at_most: int) -> None:
        for _number in range(at_most):
            try:
                place, (item, state) = waiting.popleft()
            except IndexError:
                return
            heard()
            try:
                found[place] = _reply(item, state, sources, heard)
            except NotFound:
                continue  # gone since
            except Exception as error:  # noqa: BLE001  raised below, in the caller's thread
                errors.append(error)
                waiting.clear()

    began = time.monotonic()
    work(1)
    count = _AT_ONCE if time.monotonic() - began > _SLOW_S else 1
    others = [threading.Thread(target=work, args=(len(states),), daemon=True) for _each in range(count - 1)]
    for each in others:
        each.start()
    work(len(states))
    for each in others:
        each.join()
    if errors:
        raise errors[0]
    return [found[place] for place in sorted(found)]


def _reply(item: t.Any, state: str, sources: t.Sequence[str], heard: Heard) -> Reply:
    with explained("read guest", item.name()):
        xml = item.XMLDesc()
    heard()
    asked: dict[str, list[AddressClaim]] = {}
    for source in sources if state == "running" else ():
        if source in libvirt_ip_addresses.LIBVIRT_SOURCES and source != "agent":
            asked[source] = libvirt_ip_addresses.claims(item, source)
            heard()
        if asked.get(source) or (source in _MARKS and _MARKS[source] in xml):
            break
    return Reply(item.name(), item.UUIDString(), state, xml, asked)


def _is_unknown(reply: Reply, sources: t.Sequence[str]) -> bool:
    """True if the guest's agent is connected, and no source before the agent has an address."""
    if reply.state != "running" or "agent" not in sources or not _AGENT.search(reply.xml):
        return False
    before = sources[: sources.index("agent")]
    return not any(reply.asked.get(source) or (source in _MARKS and _MARKS[source] in reply.xml) for source in before)


def _ask_agents(uri: str, replies: t.Sequence[Reply], heard: Heard) -> None:
    """Query the guest agents by a connection that may write, if this identity has one.

    All share one deadline; silent ones are left behind.
    """
    if not replies:
        return
    deadline = time.monotonic() + _AGENTS_S
    with contextlib.closing(Agents(uri)) as agents:
        for reply in replies:
            agents.ask(reply.uuid)
        by_uuid = {reply.uuid: reply for reply in replies}
        while agents.busy and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
            heard()
            for uuid, claims in agents.answers().items():
                by_uuid[uuid].asked["agent"] = claims


def _resolved(uri: str) -> list[str]:
    """IP addresses of the URI's host; empty if it cannot be resolved."""
    host = urllib.parse.urlsplit(uri).hostname
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(host, None)}) if host else []
    except (OSError, UnicodeError):
        return []  # connecting will say why


def _check_certificate(uri: str) -> None:
    """Raises Failed if the certificate of a `pkipath` is missing: clearer than TLS before the roles' first run."""
    own = files_credentials.of(uri) if "pkipath=" in uri else None  # without, libvirt itself may do without one
    missing = files_credentials.missing(own) if own else ""
    if missing:
        raise Failed(missing)


def _check_port(uri: str, timeout_s: float) -> None:
    """Raises Timeout or Failed if the port does not accept connections; libvirt itself would wait for minutes."""
    place = endpoint(uri)
    if place is None:
        return
    try:
        socket.create_connection(place, timeout=timeout_s).close()
    except TimeoutError as error:
        raise Timeout(f"port {place[1]} does not answer") from error
    except OSError as error:
        raise Failed(f"port {place[1]}: {error.strerror or error}") from error
