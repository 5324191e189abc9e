# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Steps on a guest that cannot be undone: each looks again, by identity, right before it acts."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.gate import Looked
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_steps
from ansible_collections.corral.virt.plugins.module_utils._storage.run_disposal import Disposal, Finishing

__all__ = ["do"]


def do(connection: t.Any, uuid: str, step: plan_guest_steps.GuestStep) -> object:
    """Do one step on the guest with that UUID."""
    return _DOERS[type(step)](_subject(connection, uuid, step))


def _subject(connection: t.Any, uuid: str, step: plan_guest_steps.GuestStep) -> Disposal | Finishing:
    if isinstance(step, plan_guest_steps.FinishRemoval):
        return Finishing(connection, step.place)
    delete = t.cast(plan_guest_steps.DeleteVolume, step)
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


_DOERS: dict[type[plan_guest_steps.GuestStep], Looked] = {
    plan_guest_steps.DeleteVolume: Looked(Disposal.look, Disposal.act),
    plan_guest_steps.FinishRemoval: Looked(Finishing.look, Finishing.act),
}
