"""Watch all the time that no two hosts execute a guest."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.tests.faults.guest import Guest
from ansible_collections.corral.virt.tests.faults.hosts import Host
from ansible_collections.corral.virt.tests.tools.beside import Beside

__all__ = ["Twice"]

_EVERY_S = 0.05


class Twice(Beside):
    """`seen` says which guest ran where at once."""

    def __init__(self, guests: t.Iterable[Guest], hosts: t.Iterable[Host]) -> None:
        super().__init__()
        self._guests = {guest.uuid: guest.name for guest in guests}
        self._hosts = [host.apart() for host in hosts]
        self.seen: list[str] = []

    def run(self) -> None:
        """Until the block ends."""
        while not self.over.wait(_EVERY_S):
            for uuid, name in self._guests.items():
                running = [host for host in self._hosts if self._runs(host, uuid)]
                # Between two looks it may have moved: it runs twice only where the first still says so.
                if len(running) > 1 and all(self._runs(host, uuid) for host in running):
                    self.seen = [name, *(host.name for host in running)]

    def _runs(self, host: Host, uuid: str) -> bool:
        return host.look(uuid)[0] == "running"
