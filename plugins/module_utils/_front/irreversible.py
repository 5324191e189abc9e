# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Steps on a guest that cannot be undone: each looks again, by identity, right before it acts."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._front.disposal import Disposal, Finishing
from ansible_collections.corral.virt.plugins.module_utils._plan import steps
from ansible_collections.corral.virt.plugins.module_utils._run import Looked

__all__ = ["do"]


def do(connection: t.Any, uuid: str, step: steps.GuestStep) -> object:
    """Do one step on the guest with that UUID."""
    return _DOERS[type(step)](_subject(connection, uuid, step))


def _subject(connection: t.Any, uuid: str, step: steps.GuestStep) -> Disposal | Finishing:
    if isinstance(step, steps.FinishRemoval):
        return Finishing(connection, step.place)
    delete = t.cast(steps.DeleteVolume, step)
    return Disposal(
        connection,
        delete.path,
        delete.guest,
        uuid,
        expected=delete.expected,
        without=delete.others,
        left=delete.left,
        keep_h=delete.keep_h,
        key=delete.key,
    )


_DOERS: dict[type[steps.GuestStep], Looked] = {
    steps.DeleteVolume: Looked(Disposal.look, Disposal.act),
    steps.FinishRemoval: Looked(Finishing.look, Finishing.act),
}
