# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One thread for each host: it keeps a connection, reads again what an event names, and puts it into the store."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import random
import re
import threading
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, NotFound, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_here
from ansible_collections.corral.virt.plugins.module_utils._domain import (
    libvirt_query,
    xml_backup_record,
    xml_host,
    xml_summary,
)
from ansible_collections.corral.virt.plugins.module_utils._guest import run_describe
from ansible_collections.corral.virt.plugins.module_utils._libvirt import events, states, statistics
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import ACTIVE
from ansible_collections.corral.virt.plugins.module_utils._xml import stdlib_reader
from ansible_collections.corral.virt.plugins.module_utils._xml.names import BACKED

from . import mark
from .history import History
from .samples import Samples
from .store import Store, Value

__all__ = ["Watcher", "backoff_s"]

POLL_S = 2.0
_POOLS_S = 30.0
_MARK_S = 120.0
_MOVING_S = 0.5  # while a guest migrates
_SNAPSHOT_TURNS = 30  # libvirt has no event of snapshots: each guest is asked in one of so many rounds
_TURNS = 10  # a migration that the collection did not begin is noticed in one of so many rounds
_SETTLE_S = 0.05  # one command often makes several events
_LONGEST_S = 60.0
_TURN_S, _SILENT_S = 10.0, 60.0
# Of what hosts say, which all pages get: libvirt lets texts of 4 MiB pass.
_LONGEST_NAME, _LONGEST_TEXT, _MOST_TAGS, _MOST_DISKS = 255, 1000, 100, 100
_LOG = logging.getLogger(__name__)


_CHANGED = re.compile(r"The fingerprint for the (\S+) key sent by the remote host is\s+(\S+?)\.?\s")
_AGAIN = "run the playbook console_server again"


def _refusal(name: str, told: str) -> str:
    """Why SSH refuses a host, or the host refuses the console, and the remedy; empty where it is something else.

    What ssh says of it is for the owner of a file that the role writes.
    """
    if "Host key verification failed" in told:
        changed = _CHANGED.search(told)
        if not changed:
            return f"cannot connect to {name}: its SSH host key is not known; {_AGAIN}"
        return (
            f"cannot connect to {name}: its SSH host key is not the one that Ansible saw, but {changed[1]} {changed[2]}"
            f"; if the host was installed again, {_AGAIN}, else find out who answers in its place"
        )
    if "Permission denied (" in told:
        return (
            f"cannot connect to {name}: it does not accept the console's SSH key, as if it, the console or another "
            f"console was installed since; {_AGAIN}"
        )
    return ""


def backoff_s(failures: int, chance: float) -> float:
    """Seconds until the next attempt: doubled each time, up to a minute, and spread among hosts."""
    return min(2.0 ** min(failures, 10), _LONGEST_S) * (0.75 + chance / 4)


@dataclasses.dataclass
class _Previous:
    """What a share of processor time is a difference to."""

    at: float
    host: tuple[int, int] | None
    guests: dict[str, int]


class Watcher:
    """Follows one host until it is stopped. Connections are read-only."""

    def __init__(
        self,
        name: str,
        uri: str,
        store: Store,
        *,
        history: History | None = None,
        relay: t.Sequence[str] = (),
        poll_s: float = POLL_S,
    ) -> None:
        self.name = name
        self._uri, self._store, self._history, self._relay, self._poll_s = uri, store, history, relay, poll_s
        self._marks: Mark | None = None
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._changed: set[str] = set()
        self._cards: dict[str, dict[str, t.Any]] = {}
        self._listed: set[str] = set()  # keys of the guests that were there the last time
        self._jobs: dict[str, tuple[str, ...]] = {}  # guests that migrate, with the targets of their disks
        self._turn = 0
        self._connection: t.Any = None
        self._read_at = 0.0  # when the host answered last
        self._calls = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"watch {name}", daemon=True)
        self._set_host("connecting")

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self, timeout_s: float = 5) -> None:
        """End; a call of libvirt that hangs is left behind."""
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def guest(self, uuid: str) -> dict[str, t.Any]:
        """All that is known of a guest, asked now. Raises NotFound, or Failed while the host is unreachable."""
        with self._asking() as connection:
            item = libvirt_query.by_uuid(connection, uuid)
            disks, kept = statistics.stats_of_disks(connection, item), self._marks.protected if self._marks else {}
            found = run_describe.describe_guest(item, disks, addresses="lease", kept=kept)
            return {**found, "snapshots": [name for name, _xml in libvirt_query.snapshots(item)]}

    def host(self) -> dict[str, t.Any]:
        """All that is known of the host, asked now. Raises Failed while it is unreachable."""
        with self._asking() as connection:
            capabilities = xml_host.host(libvirt_query.capabilities(connection))
            pools = [_described(each, xml_host.pool) for each in libvirt_query.pools(connection)]
            networks = [_described(each, xml_host.network) for each in statistics.networks(connection)]
            # Not what else is known of the processor: libvirt tells that only over a connection that may write.
            return {**libvirt_query.node(connection), **capabilities, "pools": pools, "networks": networks}

    def volumes(self) -> list[tuple[str, str, list[dict[str, t.Any]]]]:
        """Host, pool and volumes of each active pool, asked now. Raises NotFound while the host is unreachable."""
        with self._asking() as connection:
            return [(self.name, pool, found) for pool, found in statistics.volumes(connection)]

    def look_at_mark(self) -> None:
        """Read at once whether the host is in maintenance: it may have changed."""
        if self._marks:
            self._marks.due_at = 0.0

    def look(self) -> None:
        """Notice a host that keeps the connection and answers nothing, which keeps the thread waiting."""
        if self._connection is not None and time.monotonic() - self._read_at > _SILENT_S:
            self._set_host("unreachable", reason=f"libvirt there has not answered for {_SILENT_S:.0f} s")

    @contextlib.contextmanager
    def _asking(self) -> t.Iterator[t.Any]:
        """The connection, for one question at a time: of a host that hangs, only the first one waits on and on."""
        if not self._calls.acquire(timeout=_TURN_S):
            raise Failed(f"cannot read {self.name}: it does not answer an earlier question; try again later")
        try:
            if self._connection is None:
                raise NotFound(f"cannot read {self.name}: it is unreachable; try again when it is connected")
            yield self._connection
        finally:
            self._calls.release()

    def _run(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            try:
                watched = not is_here(self._uri)
                with opened(self._uri, readonly=True, events=True, watched=watched) as connection:
                    failures = 0
                    self._follow(connection)
            except VirtError as error:
                self._set_host("unreachable", reason=_refusal(self.name, str(error)) or str(error))
            except Exception as error:  # noqa: BLE001 (else a thread would end, and its host would look as it was)
                _LOG.exception("cannot follow %s", self.name)
                self._set_host("unreachable", reason=f"internal error: {type(error).__name__}; see the server's log")
            finally:
                self._connection = None
            self._stopped.wait(backoff_s(failures, random.random()))  # noqa: S311 (not for secrets)
            failures += 1

    def _follow(self, connection: t.Any) -> None:
        self._cards.clear()
        self._jobs.clear()
        node = {**libvirt_query.node(connection), "arch": xml_host.host(libvirt_query.capabilities(connection))["arch"]}
        previous, samples, pools_at = _Previous(0, None, {}), Samples(self.name, self._store), -_POOLS_S
        self._marks = Mark(self._relay)
        with events.subscribed(connection, self._on_event):
            self._connection, self._read_at = connection, time.monotonic()
            while not self._stopped.is_set():
                self._wake.clear()
                if time.monotonic() - pools_at >= _POOLS_S:
                    node["pools"], pools_at = _pools(connection), time.monotonic()
                node.update(self._marks.known())
                previous = self._read(connection, node, previous)
                if self._history and samples.due():
                    self._history.add(samples.take(connection))
                if self._wake.wait(min(_MOVING_S, self._poll_s) if self._jobs else self._poll_s):
                    self._stopped.wait(_SETTLE_S)

    def _on_event(self, uuid: str) -> None:
        self._changed.add(uuid)
        self._wake.set()

    def _read(self, connection: t.Any, node: t.Mapping[str, t.Any], previous: _Previous) -> _Previous:
        changed, self._changed = self._changed, set()
        found = events.figures(connection)
        cpu, memory = events.host_cpu_ns(connection), events.host_memory_kib(connection)
        present = _Previous(time.monotonic(), cpu, {one.uuid: one.cpu_ns for one in found if one.cpu_ns is not None})
        changes: dict[str, Value | None] = {}
        self._turn += 1
        for index, one in enumerate(found):
            key = f"guest/{self.name}/{one.uuid}"
            try:
                changes[key] = {**self._guest(one, changed, index), **self._migration(one, index)}
            except NotFound:
                changes[key] = None
        gone = self._listed - changes.keys()
        self._listed = set(changes)
        changes.update(dict.fromkeys(gone))
        for uuid in self._cards.keys() - {one.uuid for one in found}:
            del self._cards[uuid]
        changes[f"figures/{self.name}"] = {
            "cpu": _host_share(previous, cpu),
            "memory": None if memory is None else _percent(*memory),
            "guests": {one.uuid: [_share(previous, present, one), _memory(one)] for one in found if _runs(one)},
        }
        self._store.update(changes)
        self._read_at = time.monotonic()
        self._set_host("connected", **node)
        return present

    def _guest(self, one: events.Figures, changed: t.Container[str], index: int) -> Value:
        if one.uuid in changed or one.uuid not in self._cards:
            card = events.card(one.domain)
            record = card.pop("record")
            card.update(
                name=card["name"][:_LONGEST_NAME],
                title=card["title"][:_LONGEST_TEXT],
                tags=[tag[:_LONGEST_NAME] for tag in stdlib_reader.tags(record)[:_MOST_TAGS]],
                moving=stdlib_reader.moving(record, one.uuid),
                snapshots=_snapshots(one),
                backup=_backup(one, record),
            )
            self._cards[one.uuid] = card
        elif (index + self._turn) % _SNAPSHOT_TURNS == 0:
            self._cards[one.uuid]["snapshots"] = _snapshots(one)
        found = {"host": self.name, "uuid": one.uuid, "state": one.state, **self._cards[one.uuid]}
        if one.vcpus:  # changes while the guest runs
            found["vcpus"] = one.vcpus
        if one.memory_kib:
            found["memory_mib"] = one.memory_kib // 1024
        return found

    def _migration(self, one: events.Figures, index: int) -> dict[str, t.Any]:
        """How far the guest's migration is; of one that does not migrate nothing."""
        known = one.uuid in self._jobs
        if not _runs(one) or not (known or self._cards[one.uuid]["moving"] or (index + self._turn) % _TURNS == 0):
            self._jobs.pop(one.uuid, None)
            return {}
        progress = events.job(one.domain, self._jobs.get(one.uuid, ()))
        if progress is None:
            self._jobs.pop(one.uuid, None)
            return {}
        if not known:
            self._jobs[one.uuid] = events.targets(one.domain)[:_MOST_DISKS]
        return {"migration": progress}

    def _set_host(self, state: str, *, reason: str = "", **node: t.Any) -> None:
        key = f"host/{self.name}"
        known = self._store.get(key) or {}
        since = known["since"] if known.get("state") == state else int(time.time())
        # What is known of an unreachable host, and of its guests, stays: as it was seen last.
        present = {"name": self.name, "state": state, "since": since, "reason": reason[:_LONGEST_TEXT]}
        self._store.update({key: {**known, **node, **present}})


def _described(found: dict[str, t.Any], read: t.Callable[[str], dict[str, t.Any]]) -> dict[str, t.Any]:
    """With what its document tells, in place of the document."""
    xml = found.pop("xml")
    return {**found, **read(xml)}


def _pools(connection: t.Any) -> list[dict[str, t.Any]]:
    names = ("name", "active", "path", "capacity_bytes", "allocation_bytes")
    described = [_described(each, xml_host.pool) for each in libvirt_query.pools(connection)]
    return [{name: _short(pool[name]) for name in names} for pool in described]


def _short(value: t.Any) -> t.Any:
    return value[:_LONGEST_TEXT] if isinstance(value, str) else value


class Mark:
    """What `mark.read` tells of the host, read in a thread of its own: ssh takes its time."""

    def __init__(self, relay: t.Sequence[str]) -> None:
        self._relay = relay
        self._known: dict[str, t.Any] = {}
        self.protected: dict[str, t.Any] = {}  # guests, which not all who view the host may view
        self._reads: threading.Thread | None = None
        self.due_at = 0.0

    def known(self) -> dict[str, t.Any]:
        """Of the host itself; nothing while it is not known."""
        if self._relay and time.monotonic() >= self.due_at and not (self._reads and self._reads.is_alive()):
            self.due_at = time.monotonic() + _MARK_S
            self._reads = threading.Thread(target=self._read, daemon=True)
            self._reads.start()
        return self._known

    def _read(self) -> None:
        try:
            known = mark.read(self._relay)
            self.protected = known.pop("protected")
            self._known = known
        except mark.Unknown as error:
            _LOG.warning("cannot read maintenance, certificates and protection of a host: %s", error)


def _backup(one: events.Figures, record: str | None) -> dict[str, int | None]:
    """When the guest was backed up and proven last, and how old that may be by its tags; not the ages, as above."""
    noted, due = (
        xml_backup_record.read(states.record(one.domain, BACKED), one.uuid),
        xml_backup_record.due(stdlib_reader.tags(record)),
    )
    return {"at_s": noted.at_s, "proven_s": noted.proven_s, "every_s": due[0], "proven_every_s": due[1]}


def _snapshots(one: events.Figures) -> dict[str, int | None]:
    """Not the age of the oldest, which would be news all the time."""
    count, roots = statistics.snapshots(one.domain)
    return {"count": count, "oldest_s": xml_summary.oldest_s(roots)}


def _runs(one: events.Figures) -> bool:
    return one.state in ACTIVE


def _percent(part: float, whole: float) -> int:
    """A whole number: what changes by less is no news."""
    return max(0, min(100, round(100 * part / whole))) if whole > 0 else 0


def _host_share(previous: _Previous, cpu: tuple[int, int] | None) -> int | None:
    if cpu is None or previous.host is None:
        return None
    return _percent(cpu[0] - previous.host[0], cpu[1] - previous.host[1])


def _share(previous: _Previous, present: _Previous, one: events.Figures) -> int | None:
    """Of all processors of the guest."""
    if one.cpu_ns is None or one.uuid not in previous.guests:
        return None
    return _percent(one.cpu_ns - previous.guests[one.uuid], (present.at - previous.at) * 1e9 * max(1, one.vcpus))


def _memory(one: events.Figures) -> int | None:
    return None if one.memory_used_kib is None else _percent(one.memory_used_kib, one.memory_kib)
