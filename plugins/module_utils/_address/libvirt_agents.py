# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Query guest agents for addresses on a separate connection, so that a silent agent delays nothing else."""

from __future__ import annotations

import contextlib
import queue
import threading
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._address import libvirt_ip_addresses
from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._domain.model_address import AddressClaim
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import explained, libvirt

_AT_ONCE = 4  # libvirt's daemon works on five calls of a client; the fifth closes the connection


class Agents:
    """Pending queries of agents, and their answers. This needs a connection that may write.

    Without one, no agent is queried.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._open: set[str] = set()
        self._answers: queue.SimpleQueue[tuple[str, list[AddressClaim]]] = queue.SimpleQueue()
        self._work: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._started = self._refused = False

    def ask(self, uuid: str) -> None:
        """Query a guest's agent, unless a query is pending."""
        if uuid in self._open:
            return
        self._open.add(uuid)
        self._work.put(uuid)
        if not self._started:
            self._started = True
            threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Stop querying. Pending queries are not awaited; the connection ends with the last of them."""
        for _worker in range(_AT_ONCE if self._started else 0):
            self._work.put(None)

    @property
    def busy(self) -> bool:
        """True if a query is pending."""
        return bool(self._open) and not self._refused

    def answers(self) -> dict[str, list[AddressClaim]]:
        """Answers since the last call, by UUID."""
        found: dict[str, list[AddressClaim]] = {}
        with contextlib.suppress(queue.Empty):
            while True:
                uuid, claims = self._answers.get_nowait()
                self._open.discard(uuid)
                found[uuid] = claims
        return found

    def _serve(self) -> None:
        """Start daemon threads: an agent that never answers blocks its thread."""
        try:
            with explained("connect to", self._uri):
                connection = libvirt.open(self._uri)
        except VirtError:
            self._refused = True  # who may not write asks nobody; the other sources go on
            return
        for _worker in range(_AT_ONCE):
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: t.Any) -> None:
        for uuid in iter(self._work.get, None):
            claims: list[AddressClaim] = []
            with contextlib.suppress(VirtError):
                claims = libvirt_ip_addresses.claims(libvirt_query.by_uuid(connection, uuid), "agent")
            self._answers.put((uuid, claims))
