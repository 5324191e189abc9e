"""Work that goes on beside a `with` block, in a thread, until the block ends."""

from __future__ import annotations

import abc
import threading
import typing as t

__all__ = ["Beside"]


class Beside(threading.Thread, abc.ABC):
    """`run` returns when it is done, or soon after the event `over` is set."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()

    @abc.abstractmethod
    def run(self) -> None:
        """The work."""

    def __enter__(self) -> t.Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()
