# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a refusal names the snapshots of a guest, and what removes them. Pure."""

from __future__ import annotations

import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.output import agree, some_of

_MOST = 5


def named(names: t.Sequence[str]) -> str:
    """The snapshots by name, not more than a few."""
    return f"{agree(len(names), 'snapshot', 'snapshots')} {some_of(names, _MOST)}"


def remedy(guest: str, names: t.Sequence[str]) -> str:
    """The commands that merge or delete snapshots."""
    first = shlex.join(["virsh", "snapshot-delete", guest, names[0]])
    playbook = shlex.join(["ansible-playbook", "corral.virt.delete_snapshot", "-e", f"guest={guest}"])
    return (
        f"delete {agree(len(names), 'it', 'them')} (`{playbook} {shlex.join(['-e', f'snapshot={names[0]}'])}`, or "
        f"`{first}`{agree(len(names), '', ', and so on')})"
    )
