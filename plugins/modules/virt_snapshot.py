#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take, delete and revert to snapshots of guests."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_snapshot
short_description: Take, delete and revert to snapshots of guests
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Takes a snapshot of all disks of a guest at one moment, deletes it by merging, or goes back to it. One task can have
    many guests; one that fails does not stop the others.
  - Take a snapshot in the hour before an upgrade. It is no backup, as it is stored beside the disk that it protects.
  - An external snapshot is the default. The present file of each disk becomes the backing file of a new overlay, to
    which the guest writes. It works with qcow2 and raw disks and with block devices, while the guest runs or is off. An
    existing snapshot is not taken again.
  - The agent of a running guest, if it has one, freezes the filesystems for that moment. The host thaws them after
    30 seconds if the run dies meanwhile.
  - UEFI variables and TPM state are copied beside the disks, as libvirt stores neither. They are restored with the
    disks.
  - Deleting a snapshot merges what the guest has written since into the backing file, while the guest runs or is off.
    The guest sees no difference. A merge that has begun can only be finished. The next run finishes an interrupted one.
  - V(reverted) throws away what the guest has written since, so it requires O(confirm). These files are kept for
    O(keep_reverted_h) in a directory beside them. What it has written to a disk that was detached since stays where it
    is, and a note names the file. The guest's definition goes back, too, except for its name and the
    collection's record. A running guest is switched off for it, and started again with O(run). Each run of the task
    reverts.
  - Reverting to the newest snapshot of disks works with every libvirt. Reverting to one with memory, or to one that has
    newer ones, requires libvirt 9.9.
  - Snapshots that others have made with C(virsh) or virt-manager can be deleted and reverted to by name, and are never
    deleted otherwise.
  - This module must run on the host of the guests.
options:
  guests:
    description: Names of the guests.
    type: list
    elements: str
    required: true
  name:
    description:
      - Name of the snapshot. A new one has letters, digits, dots, underscores and hyphens, at most 63.
      - Without it, each run with V(present) takes a new snapshot that is named by the time (UTC), such as
        V(corral-20261128T150102Z). Only such snapshots are counted by O(keep).
    type: str
  state:
    description: V(present) takes the snapshot, V(absent) deletes it, V(reverted) goes back to it.
    type: str
    choices: [present, absent, reverted]
    default: present
  description:
    description: Text that libvirt stores with a new snapshot.
    type: str
  kind:
    description:
      - V(external) lets the guest write to new files.
      - V(internal) stores the snapshot inside the disks, which must be qcow2. It is refused beside external snapshots,
        and for guests with UEFI, TPM, checkpoints or bitmaps of backups, as going back would leave them shut off or
        without their variables.
    type: str
    choices: [external, internal]
    default: external
  memory:
    description: Also store the memory of a running guest, in a file of that size. After a revert, the guest goes on
      where it was. A running guest requires this option for O(kind=internal).
    type: bool
    default: false
  quiesce:
    description: V(auto) asks a connected agent to freeze the filesystems, and adds a note if there is none, or it does
      not answer within 5 seconds. V(required) takes no snapshot then. V(never) does not ask.
    type: str
    choices: [auto, required, never]
    default: auto
  directory:
    description: Directory for the new files. By default, each is created beside its disk. A block device requires it.
    type: path
  keep:
    description: Delete older snapshots that were named by their time, and keep the newest of each period (UTC), for so
      many periods. The newest of all, and the one that this run takes, are always kept.
    type: dict
    suboptions:
      hourly: {description: For how many hours., type: int}
      daily: {description: For how many days., type: int}
      weekly: {description: For how many weeks., type: int}
      monthly: {description: For how many months., type: int}
  run:
    description: Whether the guest runs after O(state=reverted), which requires this option.
    type: bool
  confirm:
    description: The name of the snapshot again, to confirm that O(state=reverted) throws away what the guest has
      written since. Without it, the error lists these files.
    type: str
  keep_reverted_h:
    description: How many hours the files that O(state=reverted) throws away are kept, in C(.corral/.removed) beside
      them. V(0) deletes them at once. They can be read until the snapshot is deleted.
    type: int
    default: 168
  bandwidth:
    description: Limit for merging a disk of a running guest, in MiB per second. V(0) is without limit.
    type: int
    default: 0
  job_timeout:
    description: How long the merge of each disk of a running guest may take, in seconds. Then it is stopped, and a
      later run can finish it.
    type: int
    default: 3600
  at_once:
    description: Number of guests to process at the same time.
    type: int
    default: 4
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
seealso:
  - module: corral.virt.virt_snapshot_info
  - module: corral.virt.virt_domain
"""

EXAMPLES = r"""
- name: Take a snapshot of two guests before an upgrade
  corral.virt.virt_snapshot:
    guests: [web1, db1]
    name: before-upgrade

- name: Go back to it
  corral.virt.virt_snapshot:
    guests: [web1]
    name: before-upgrade
    state: reverted
    run: true
    confirm: before-upgrade

- name: Delete it when the upgrade has worked
  corral.virt.virt_snapshot:
    guests: [web1, db1]
    name: before-upgrade
    state: absent
    bandwidth: 100

- name: Each hour, for a day and a week
  corral.virt.virt_snapshot:
    guests: [db1]
    keep: {hourly: 24, daily: 7}
"""

RETURN = r"""
results:
  description: One entry for each guest, in the given order.
  returned: always
  type: list
  elements: dict
  contains:
    name: {description: Name of the guest., type: str, returned: always}
    snapshot: {description: Name of the snapshot., type: str, returned: always}
    changed: {description: Whether something was done., type: bool, returned: always}
    steps:
      description: Steps that were done, or in check mode would be.
      type: list
      elements: str
      returned: always
    notes: {description: Additional notes., type: list, elements: str, returned: success}
    frozen_s:
      description: For how many seconds the guest's filesystems were frozen.
      type: float
      returned: if the agent has frozen them
    thrown_away:
      description: Files with what the guest had written since, with O(state=reverted).
      type: list
      elements: dict
      returned: success
      contains:
        path: {description: Path of the file., type: str, returned: always}
        size_bytes: {description: What it takes., type: int, returned: always}
    kept:
      description: Those of them that are kept for a while, by their old paths.
      type: list
      elements: str
      returned: success
    pruned: {description: Snapshots that O(keep) has deleted., type: list, elements: str, returned: success}
    failed: {description: Present if the guest failed., type: bool, returned: failure}
    msg: {description: Why it failed., type: str, returned: failure}
steps:
  description: Steps that were done for all guests, in order.
  returned: always
  type: list
  elements: str
notes: {description: Notes on all guests; also shown as warnings., returned: always, type: list, elements: str}
"""

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._snapshot import run_snapshot
from ansible_collections.corral.virt.plugins.module_utils._system.detached import detach

OPTIONS = {
    **URI_OPTION,
    "guests": {"type": "list", "elements": "str", "required": True},
    "name": {"type": "str"},
    "state": {"type": "str", "choices": ["present", "absent", "reverted"], "default": "present"},
    "description": {"type": "str"},
    "kind": {"type": "str", "choices": ["external", "internal"], "default": "external"},
    "memory": {"type": "bool", "default": False},
    "quiesce": {"type": "str", "choices": ["auto", "required", "never"], "default": "auto"},
    "directory": {"type": "path"},
    "keep": {
        "type": "dict",
        "options": {period: {"type": "int"} for period in ("hourly", "daily", "weekly", "monthly")},
    },
    "run": {"type": "bool"},
    "confirm": {"type": "str"},
    "keep_reverted_h": {"type": "int", "default": 168},
    "bandwidth": {"type": "int", "default": 0},
    "job_timeout": {"type": "int", "default": 3600},
    "at_once": {"type": "int", "default": 4},
}


def main() -> None:
    """Entry point."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    result: dict[str, t.Any] = {"notes": []}
    with failures(module):
        detach("virt_snapshot")
        with opened(module.params["uri"], events=True) as connection:
            result = run_snapshot.converge(connection, module.params, Gate(check_mode=module.check_mode))
    module.end(result)


if __name__ == "__main__":
    main()
