# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Free space in a pool, its reserve, and the size limit of images."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_of, bytes_text

MAX_SIZE = "256GiB"
_LEAST_BYTES, _SHARE = 1024**3, 20  # a twentieth: 5 %


class FreeSpace(t.NamedTuple):
    """A filesystem or pool. `reserve_bytes` is the user's; None: the larger of 1 GiB and 5 %."""

    total_bytes: int
    free_bytes: int
    reserve_bytes: int | None = None

    @property
    def kept_bytes(self) -> int:
        """Bytes that must stay free."""
        return max(_LEAST_BYTES, self.total_bytes // _SHARE) if self.reserve_bytes is None else self.reserve_bytes

    def lacks(self, needed_bytes: int) -> int:
        """How many bytes are missing for `needed_bytes` more."""
        return max(0, needed_bytes + self.kept_bytes - self.free_bytes)

    def problem(self, needed_bytes: int, place: str) -> str:
        """Why there is no room for `needed_bytes` more; empty if there is."""
        if not self.lacks(needed_bytes):
            return ""
        need = f"{bytes_text(needed_bytes)} more is needed, " if needed_bytes else ""
        return (
            f"{place} has {bytes_text(self.free_bytes)} free, {need}and {bytes_text(self.kept_bytes)} must stay free "
            "(reserve); make room there, or set a smaller reserve"
        )

    def check(self, verb: str, needed_bytes: int, place: str) -> None:
        """Raises Refused if there is no room for `needed_bytes` more."""
        if problem := self.problem(needed_bytes, place):
            raise Refused(f"cannot {verb}: {problem}")


class Bounds(t.NamedTuple):
    """Limits of an image that is imported: its size in any form, and the reserve of its pool."""

    image: str
    max_bytes: int
    reserve_bytes: int | None = None

    def problem(self, size_bytes: int) -> str:
        """Why the image may not have this size; empty if it may."""
        if size_bytes <= self.max_bytes:
            return ""
        return f"it is larger than max_size, {bytes_text(self.max_bytes)}; if that is intended, set a larger max_size"

    def most_bytes(self, place: FreeSpace, *, taken_bytes: int) -> int:
        """The largest size that the image can have there, given the bytes that it already occupies."""
        return max(0, min(place.free_bytes - place.kept_bytes + taken_bytes, self.max_bytes))

    def check(self, size_bytes: int) -> None:
        """Raises Refused if the size is too large."""
        self.refuse(self.problem(size_bytes))

    def refuse(self, problem: str) -> None:
        """Raises Refused if there is a problem."""
        if problem:
            raise Refused(f"refusing image {self.image}: {problem}")


def reserve_of(option: str | None) -> int | None:
    """Bytes of the option `reserve`, which may be 0; a bare number is in GiB. Raises BadInput."""
    if option is None or option.strip() == "0":
        return None if option is None else 0
    try:
        return bytes_of(option, bare="G", what="reserve")
    except BadInput as error:
        raise BadInput([f"{problem}; 0 reserves nothing" for problem in error.problems]) from error
