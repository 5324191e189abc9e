"""Watch a guest from outside: a session in it counts on, and every number's arrival is timed."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import threading
import time
import typing as t

_EVERY_S = 0.1
_BEGINS_S = 1200  # on a machine that does much else; it ends sooner if the session does
_COUNT = f"i=0; while :; do i=$((i+1)); echo $i; sleep {_EVERY_S}; done"


@dataclasses.dataclass(frozen=True)
class Seen:
    """What arrived: how many numbers, whether each came once and in order, and the longest silence in seconds."""

    count: int
    in_order: bool
    longest_gap_s: float


class Counter:
    """An SSH session that counts in the guest while something happens to it."""

    def __init__(self, ssh: t.Sequence[str]) -> None:
        self._ssh = [*ssh, _COUNT]
        self._arrivals: list[tuple[float, int]] = []

    def __enter__(self) -> Counter:
        # Pipes of its own: ssh makes what it inherits non-blocking, which Ansible refuses to share.
        self._process = subprocess.Popen(
            self._ssh, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        deadline = time.monotonic() + _BEGINS_S
        while len(self._arrivals) < 5:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                output = self._process.stderr.read() if self._process.stderr else ""
                raise RuntimeError(
                    f"the session in the guest did not count: {' '.join(self._ssh[:-1])}: {output.strip()}"
                )
            time.sleep(_EVERY_S)
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(2)  # a gap at the very end counts too
        self._ended_early = self._process.poll() is not None
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._arrivals.append((time.monotonic(), int(line)))

    def seen(self) -> Seen:
        """The verdict, after the session was ended."""
        times = [when for when, _number in self._arrivals]
        numbers = [number for _when, number in self._arrivals]
        gaps = [after - before for before, after in itertools.pairwise(times)]
        in_order = not self._ended_early and numbers == list(range(1, len(numbers) + 1))
        return Seen(len(numbers), in_order, max(gaps, default=0.0))
