# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""One family of exceptions: what the user must do about it, not where it came from."""

from __future__ import annotations

import typing as t

__all__ = [
    "BadInput",
    "Failed",
    "NotFound",
    "NotMade",
    "Refused",
    "Timeout",
    "Unreachable",
    "Unsupported",
    "Unverified",
]
__all__ += ["VirtError"]


class VirtError(Exception):
    """Anything the collection reports to its user: verb, object, reason, remedy."""

    facts: t.ClassVar[dict[str, t.Any]] = {}  # what a playbook may decide by, beside the message


class BadInput(VirtError):
    """The request itself is wrong; holds every problem found, not only the first."""

    def __init__(self, problems: str | t.Sequence[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("; ".join(self.problems))


class NotFound(VirtError):
    """A thing the request names does not exist."""


class Refused(VirtError):
    """The request can be understood, but carrying it out would harm; says what would allow it."""


class Unverified(Refused):
    """A file of an image's name may be something else."""

    facts: t.ClassVar[dict[str, t.Any]] = {"unverified_image": True}


class Unsupported(VirtError):
    """The host's libvirt or QEMU is too old or was built without it."""


class Timeout(VirtError):
    """Waited as long as allowed; says for what, and what was seen last."""


class Failed(VirtError):
    """A verb that should have worked did not; holds what was done before it."""

    def __init__(self, message: str, done: t.Sequence[str] = ()) -> None:
        self.done = list(done)
        super().__init__(message)


class NotMade(Failed):
    """A file could not be made, and what has its name now, if anything, is somebody else's."""


class Unreachable(Failed):
    """No connection to a host; `reason` says why without its URI, so that equal reasons are equal."""

    def __init__(self, uri: str, reason: str) -> None:
        self.reason = reason
        super().__init__(f"cannot connect to {uri}: {reason}")
