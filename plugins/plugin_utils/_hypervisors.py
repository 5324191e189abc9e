# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask many hypervisors for their guests at once. One that is dead, or hangs, holds up nobody."""

from __future__ import annotations

import collections
import os
import queue
import socket
import threading
import time
import typing as t
import urllib.parse

from ansible_collections.corral.virt.plugins.module_utils._errors import Failed, NotFound, Timeout, Unsupported, VirtError
from ansible_collections.corral.virt.plugins.module_utils._libvirt import figures, look
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import libvirt, opened, said
from ansible_collections.corral.virt.plugins.module_utils._xml import domain, interface, record
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse
from ansible_collections.corral.virt.plugins.plugin_utils._inventory import endpoint

__all__ = ["ask", "check_libraries", "guests", "reason"]

Answer = t.TypeVar("Answer")


def check_libraries() -> None:
    """Raises Unsupported with what is to be installed on the controller."""
    if libvirt is None:
        raise Unsupported(
            "reading guests needs libvirt's Python binding beside ansible-core on this controller: pip install libvirt-python lxml, "
            "or the distribution's python3-libvirt and python3-lxml where its own ansible-core is used"
        )
    parse("<lxml/>")


def ask(
    questions: t.Mapping[str, t.Callable[[], Answer]], *, concurrency: int, timeout_s: float
) -> tuple[dict[str, Answer], dict[str, Exception]]:
    """What was answered, and why the others did not. A call that hangs is left behind: its thread keeps no process from ending."""
    waiting, deadlines = collections.deque(questions), dict[str, float]()
    replies: queue.SimpleQueue[tuple[str, Answer | None, Exception | None]] = queue.SimpleQueue()
    answers: dict[str, Answer] = {}
    failures: dict[str, Exception] = {}

    def reply(name: str) -> None:
        try:
            replies.put((name, questions[name](), None))
        except Exception as error:  # noqa: BLE001  whatever it is, it is this hypervisor's alone
            replies.put((name, None, error))

    while waiting or deadlines:
        while waiting and len(deadlines) < max(1, concurrency):
            name = waiting.popleft()
            deadlines[name] = time.monotonic() + timeout_s
            threading.Thread(target=reply, args=(name,), daemon=True).start()
        try:
            name, answer, error = replies.get(timeout=max(0.0, min(deadlines.values()) - time.monotonic()))
        except queue.Empty:
            late = [name for name, deadline in deadlines.items() if deadline <= time.monotonic()]
            failures.update({name: Timeout(f"no answer within {timeout_s:g} s") for name in late})
        else:
            late = [name]
            if name in deadlines and error is not None:
                failures[name] = error
            elif name in deadlines:
                answers[name] = t.cast(Answer, answer)
        for name in late:
            deadlines.pop(name, None)
    return answers, failures


def guests(uri: str, sources: t.Sequence[str], *, timeout_s: float) -> list[dict[str, t.Any]]:
    """Facts of all guests: one call for all, one document each, and addresses where the first source knows none."""
    _check_certificate(uri)
    _check_port(uri, timeout_s / 2)  # in time to be the reason that is told
    found = []
    # Only the agent is closed to those who may only read.
    with opened(uri, readonly="agent" not in sources) as connection:
        for item, state in figures.states(connection):
            try:
                found.append(_facts(item, state, sources))
            except NotFound:
                continue  # gone since
    return found


def reason(error: Exception) -> str:
    """Why, in libvirt's own words where they are its: without the host's name, so that equal reasons are equal."""
    said_by_libvirt = getattr(error.__cause__, "get_error_message", None)
    text = (said_by_libvirt() if said_by_libvirt else None) or str(error) or type(error).__name__
    return text if isinstance(error, VirtError) else f"{type(error).__name__}: {text}"


def _facts(item: t.Any, state: str, sources: t.Sequence[str]) -> dict[str, t.Any]:
    with said("read guest", item.name()):
        xml = item.XMLDesc()
    fields, memory = domain.read_fields(xml), record.read(xml)
    return {
        "name": item.name(),
        "uuid": item.UUIDString(),
        "state": state,
        "title": fields.get("title", ""),
        "tags": list(fields.get("tags", ())),
        "vcpus": fields.get("vcpus.current"),
        "memory_mib": fields.get("memory.current_kib", 0) // 1024,
        "macs": [nic["mac"] for nic in interface.read_all(parse(xml)) if nic.get("mac")],
        "addresses": _addresses(item, memory.get("addresses", ()), sources if state == "running" else ["record"]),
        "ssh_host_key": memory.get("ssh_host_key"),
    }


def _addresses(item: t.Any, recorded: t.Iterable[str], sources: t.Sequence[str]) -> list[str]:
    """What the first source that knows any says."""
    for source in sources:
        known = list(recorded) if source == "record" else look.addresses(item, source)
        if known:
            return known
    return []


def _check_certificate(uri: str) -> None:
    """Before the first run of the roles there is none: say just that, and not what TLS makes of it."""
    for directory in urllib.parse.parse_qs(urllib.parse.urlsplit(uri).query).get("pkipath", []):
        if not os.path.exists(f"{directory}/clientcert.pem"):
            raise Failed(f"this controller has no certificate in {directory} yet; the role corral.virt.pki makes it")


def _check_port(uri: str, timeout_s: float) -> None:
    """libvirt itself would wait for minutes."""
    place = endpoint(uri)
    if place is None:
        return
    try:
        socket.create_connection(place, timeout=timeout_s).close()
    except TimeoutError as error:
        raise Timeout(f"port {place[1]} does not answer") from error
    except OSError as error:
        raise Failed(f"port {place[1]}: {error.strerror or error}") from error
