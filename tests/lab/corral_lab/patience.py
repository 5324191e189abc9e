"""How long a test waits: by what this machine gives, as a busy one needs many times as long for the same.

A second counts only as far as nobody waited for a processor in it (the kernel's pressure stall information).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

_MOST = 20  # times its seconds, however busy the machine is
_PRESSURE = Path("/proc/pressure/cpu")


class Patience:
    """A wait of so many seconds of a machine that has time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._begun_s, self._stalled_s = time.monotonic(), _stalled_s()

    @property
    def left_s(self) -> float:
        """Seconds that it has at least; 0 or less when it is over."""
        elapsed_s = time.monotonic() - self._begun_s
        stalled_s = max(0.0, _stalled_s() - self._stalled_s)  # a file that cannot be read for once says nothing
        return self.seconds - max(elapsed_s - stalled_s, elapsed_s / _MOST)

    @property
    def is_over(self) -> bool:
        return self.left_s <= 0


def until(condition: Callable[[], object], timeout_s: float = 60, every_s: float = 0.02) -> None:
    """Wait until it holds; raises AssertionError where that does not come about."""
    patience = Patience(timeout_s)
    while not condition():
        assert not patience.is_over, f"it did not come about in {timeout_s} s of a machine that has time"
        time.sleep(every_s)


def stretched(seconds: float) -> float:
    """What takes so long on a machine that has time, now."""
    return seconds * min(_MOST, 1 + 2 * os.getloadavg()[0] / (os.cpu_count() or 1))


def _stalled_s() -> float:
    """Seconds since the boot in which something waited for a processor; 0 where the kernel does not tell."""
    try:
        some = _PRESSURE.read_text().split("\n")[0]
    except OSError:
        return 0.0
    return int(some.rpartition("total=")[2]) / 1e6
