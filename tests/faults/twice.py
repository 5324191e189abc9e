"""Watch all the time that no two hosts execute the guest."""

from __future__ import annotations

import threading
import time

from ansible_collections.corral.virt.tests.faults.hosts import Host
from ansible_collections.corral.virt.tests.faults.scene import Scene

__all__ = ["Twice"]

_EVERY_S = 0.05


class Twice(threading.Thread):
    """For the length of a `with` block; `seen` says where it ran at once."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(daemon=True)
        self._guest = scene.guest.name
        self._hosts = [Host(host.lab, host.name, host.address) for host in (scene.source, scene.dest, scene.third)]
        self._ends = threading.Event()
        self.seen: list[str] = []

    def __enter__(self) -> Twice:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self.join()

    def run(self) -> None:
        """Until the block ends."""
        while not self._ends.is_set():
            running = [host.name for host in self._hosts if self._runs(host)]
            # Between two looks it may have moved: it runs twice only where the first still says so.
            if len(running) > 1 and all(self._runs(host) for host in self._hosts if host.name in running):
                self.seen = running
            time.sleep(_EVERY_S)

    def _runs(self, host: Host) -> bool:
        return host.look(self._guest)[0] == "running"
