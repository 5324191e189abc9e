# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One family of exceptions, by what the user must do, not by where they come from."""

from __future__ import annotations

import typing as t


class VirtError(Exception):
    """Anything the collection reports to its user: verb, object, reason, remedy."""

    facts: t.ClassVar[dict[str, t.Any]] = {}  # what a playbook may decide by, beside the message


class BadInput(VirtError):
    """The request itself is wrong; holds every problem found, not only the first."""

    def __init__(self, problems: str | t.Sequence[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("; ".join(self.problems))


class NotFound(VirtError):
    """An object that the request names does not exist."""


class Refused(VirtError):
    """The request is clear, but would do harm; says what would allow it."""


class Unverified(Refused):
    """An image's file cannot be verified, and may be another."""

    facts: t.ClassVar[dict[str, t.Any]] = {"unverified_image": True}


class Unsupported(VirtError):
    """The host's libvirt or QEMU is too old, or was built without the feature."""


class NotOffered(Unsupported):
    """The driver of libvirt that a connection leads to has no such function."""


class Timeout(VirtError):
    """A wait that took as long as allowed; says for what, and what was seen last."""


class Failed(VirtError):
    """An action that should have worked failed; `done` lists the steps before it."""

    def __init__(self, message: str, done: t.Sequence[str] = ()) -> None:
        self.done = list(done)
        super().__init__(message)


class NotMade(Failed):
    """A file could not be made; a file that has its name now is somebody else's."""


class Unreachable(Failed):
    """A host cannot be reached; `reason` says why without its URI, so that equal reasons are equal."""

    def __init__(self, uri: str, reason: str) -> None:
        self.reason = reason
        super().__init__(f"cannot connect to {uri}: {reason}")
