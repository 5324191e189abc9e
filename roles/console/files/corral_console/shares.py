# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Places that users share, such as open pages: so many in all, and so many of one user."""

from __future__ import annotations

import dataclasses

__all__ = ["Full", "Share", "Shares"]


class Full(Exception):
    """Why there is no place."""


@dataclasses.dataclass(eq=False)
class Share:
    """One place. When it is given up, whoever has it ends soon."""

    user: str
    given_up: bool = False


class Shares:
    """Not for use by several threads."""

    def __init__(self, *, most: int, of_one: int) -> None:
        self.most, self.of_one = most, of_one
        self._held: list[Share] = []  # the oldest first

    def __len__(self) -> int:
        return len(self._held)

    def take(self, user: str, *, anew: bool = False) -> Share:
        """A place. Where none is left, the user who has the most gives one up, but not for one who has as many.

        `anew`: for another place than they may have, users give up their own oldest one. Raises Full.
        """
        own = self._of(user)
        if len(own) >= self.of_one:
            if not anew:
                raise Full(f"{len(own)} of yours are open; close one")
            self._give_up(own[0])
        elif len(self._held) >= self.most:
            most = max((self._of(each.user) for each in self._held), key=len)
            if len(most) <= len(own) + 1:
                raise Full("all are taken; try again later")
            self._give_up(most[0])
        share = Share(user)
        self._held.append(share)
        return share

    def leave(self, share: Share) -> None:
        """The place is free; more than once is no error."""
        if share in self._held:
            self._held.remove(share)

    def _give_up(self, share: Share) -> None:
        share.given_up = True
        self._held.remove(share)

    def _of(self, user: str) -> list[Share]:
        return [each for each in self._held if each.user == user]
