# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for a guest by libvirt's events, with one deadline, instead of polling."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import threading
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.uri import has_files_here
from ansible_collections.corral.virt.plugins.module_utils._libvirt import states
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import (
    Connection,
    explained,
    libvirt,
    listen,
)
from ansible_collections.corral.virt.plugins.module_utils._libvirt.model_state import Doing
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import Seen
from ansible_collections.corral.virt.plugins.module_utils._xml import stdlib_reader

_LOOK_S = 0.5
_ASK_AGAIN_S = 10.0  # a guest that is still booting does not hear the first time
_CONSOLE_BYTES, _CONSOLE_LINES, _LINE_LENGTH = 8192, 5, 200
_TERMINAL = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|[^\[])")

_Counts = t.Callable[..., bool]  # gets what the event tells


def is_off(domain: t.Any) -> bool:
    """True if the guest is inactive; a transient one is then gone."""
    with contextlib.suppress(NotFound), explained("inspect guest", domain.name()):
        return not domain.isActive()
    return True


def is_persistent(domain: t.Any) -> bool:
    """True if the guest stays when it is off; False also if it is gone already."""
    with contextlib.suppress(NotFound), explained("inspect guest", domain.name()):
        return bool(domain.isPersistent())
    return False


def has_left(domain: t.Any, *, persistent: bool) -> bool:
    """True if the guest was migrated from this host: it is off here, and may run elsewhere.

    A `persistent` guest that is gone counts: a migration may undefine it. A transient one is gone when it is off.
    """
    with contextlib.suppress(NotFound), explained("inspect guest", domain.name()):
        return bool(domain.state() == [libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED])
    return persistent


def ask(connection: Connection, domain: t.Any, verb: str, way: str = "ACPI_POWER_BTN") -> None:
    """Ask the guest to `shutdown` or `reboot`; an inactive guest is no error."""
    # Other drivers know one way only.
    flags = getattr(libvirt, f"VIR_DOMAIN_{verb.upper()}_{way}") if connection.getType() == "QEMU" else 0
    try:
        (domain.reboot if verb == "reboot" else domain.shutdownFlags)(flags)
    except libvirt.libvirtError:
        if not is_off(domain):
            raise


GivesUp = t.Callable[[float, Doing, Doing, "str | None"], bool]


def obeyed(
    connection: Connection, domain: t.Any, verb: str, *, timeout_s: float, gives_up: GivesUp = lambda *_seen: False
) -> bool:
    """Ask as `ask` does, repeatedly and then by the agent; True if the guest obeys in time.

    `gives_up` ends the wait early; it gets the elapsed seconds, the guest's activity at the first request and now, and
    its agent's state. A guest that was to reboot may be off then: its on_reboot can mean that.
    """
    kinds: dict[str, _Counts] = {"LIFECYCLE": _stopped}
    if verb == "reboot":
        kinds["REBOOT"] = lambda: True
    began, before = time.monotonic(), _did(connection, domain)
    again_s, deadline = min(_ASK_AGAIN_S, timeout_s / 3), began + timeout_s
    agent = None
    with _events(connection, domain, kinds) as happened:
        while True:
            ask(connection, domain, verb)
            if verb == "reboot" and connection.getType() != "QEMU":
                return True  # only QEMU tells when it happens
            if happened(min(again_s, deadline - time.monotonic()), lambda: is_off(domain)):
                return True
            if time.monotonic() >= deadline:
                return False
            its_agent = _live(domain).agent
            if gives_up(time.monotonic() - began, before, _did(connection, domain), its_agent):
                return is_off(domain)
            if not (agent and agent.is_alive()) and its_agent == "connected":
                agent = _aside(lambda: ask(connection, domain, verb, "GUEST_AGENT"))


def _stopped(event: int, detail: int) -> bool:
    """True for the event of a guest that powered off; one that was migrated has stopped on this host only."""
    return bool(event == libvirt.VIR_DOMAIN_EVENT_STOPPED and detail != libvirt.VIR_DOMAIN_EVENT_STOPPED_MIGRATED)


@contextlib.contextmanager
def removal(connection: Connection, domain: t.Any, *, alias: str) -> t.Iterator[t.Callable[[int], bool]]:
    """Inside, request the removal of the device with that alias; then call the yielded function with seconds.

    It returns True if the guest released this device; events of other devices do not count.
    """
    with _events(connection, domain, {"DEVICE_REMOVED": lambda gone: bool(gone == alias)}) as happened:
        yield lambda timeout_s: happened(timeout_s, lambda: False)


@contextlib.contextmanager
def balloon(connection: Connection, domain: t.Any, *, kib: int) -> t.Iterator[t.Callable[[int], bool]]:
    """Inside, set a guest's memory; the yielded function waits that many seconds, and returns True if it has it."""
    with _events(connection, domain, {"BALLOON_CHANGE": lambda actual: bool(actual == kib)}) as happened:
        yield lambda timeout_s: happened(timeout_s, lambda: domain.info()[2] == kib)


@contextlib.contextmanager
def _events(
    connection: Connection, domain: t.Any, kinds: t.Mapping[str, _Counts]
) -> t.Iterator[t.Callable[[float, t.Callable[[], bool]], bool]]:
    """Subscribe to kinds of events.

    Yields a function that waits for a matching event (or a condition) with a timeout.
    """
    happened: list[object] = []
    news: queue.SimpleQueue[None] = queue.SimpleQueue()

    def on_event(_connection: object, _domain: object, *what: t.Any) -> None:
        """Record a matching event; called in the thread of libvirt's loop."""
        *told, counts = what
        if counts(*told):
            happened.append(told)
        news.put(None)

    def wait_for(timeout_s: float, already: t.Callable[[], bool]) -> bool:
        deadline = time.monotonic() + timeout_s
        while not happened and not already():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            with contextlib.suppress(queue.Empty):
                news.get(timeout=min(_LOOK_S, left_s))
        return True

    callbacks = []
    listen()
    try:
        with explained("watch guest", domain.name()):
            for kind, counts in kinds.items():
                event = getattr(libvirt, f"VIR_DOMAIN_EVENT_ID_{kind}")
                callbacks.append(connection.domainEventRegisterAny(domain, event, on_event, counts))
        yield wait_for
    finally:
        for callback in callbacks:
            connection.domainEventDeregisterAny(callback)


def _aside(call: t.Callable[[], object]) -> threading.Thread:
    """Start a call in a thread that nobody waits for, as a silent agent blocks it for minutes; ignores errors."""

    def run() -> None:
        with contextlib.suppress(libvirt.libvirtError):
            call()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def observe(connection: Connection, guest: str, uuid: str) -> Seen:
    """Observations of a guest from outside, at little cost, which explain why it did not do what it should."""
    try:
        with explained("inspect guest", guest):
            domain = connection.lookupByUUIDString(uuid)
            live = _live(domain)
            code, reason = domain.state()
    except NotFound:
        return Seen(state="absent")
    except VirtError as error:  # the connection was lost, or the driver is busy: nothing is known of the guest
        return Seen(unseen=str(error))
    stopped = (code, reason) == (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR)
    state = "paused by an I/O error" if stopped else states.word(code)
    return _observed(connection, domain, live, state)


def _observed(connection: Connection, domain: t.Any, live: stdlib_reader.Brief, state: str) -> Seen:
    leases = {}
    did = _did(connection, domain)
    for network in live.networks:
        with contextlib.suppress(libvirt.libvirtError):
            leases[network] = len(connection.networkLookupByName(network).DHCPLeases())
    return Seen(
        state=state,
        acpi=live.acpi,
        cpu_s=did.cpu_s,
        disk_reads=did.disk_reads,
        packets_sent=did.packets_sent,
        agent=live.agent,
        leases=leases,
        console=_console(live.consoles) if has_files_here(connection.getURI()) else (),
    )


def _did(connection: Connection, domain: t.Any) -> Doing:
    return states.doing(connection, [domain]).get(domain.UUIDString(), Doing())


def _live(domain: t.Any) -> stdlib_reader.Brief:
    with explained("inspect guest", domain.name()):
        return stdlib_reader.guest(domain.XMLDesc())


def _console(files: t.Iterable[str]) -> tuple[str, ...]:
    """The last lines of the first console that is logged to a local file, without terminal control sequences."""
    for path in files:
        with contextlib.suppress(OSError):
            if os.path.isfile(path):
                with open(path, "rb") as log:
                    log.seek(max(0, os.path.getsize(path) - _CONSOLE_BYTES))
                    text = _TERMINAL.sub("", log.read(_CONSOLE_BYTES).decode(errors="replace"))
                lines = ("".join(filter(str.isprintable, line)).strip()[:_LINE_LENGTH] for line in text.splitlines())
                return tuple(filter(None, lines))[-_CONSOLE_LINES:]
    return ()
