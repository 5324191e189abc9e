#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Back guests up into a repository, and delete backups."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_backup
short_description: Back guests up, each time only what was changed
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Copies the disks of a guest, as they are in one moment, into a repository, while the guest goes on. One task can
    have many guests; one that fails does not stop the others.
  - Each run makes a point. The first holds all of each disk. From then on QEMU notes what the guest writes, in a bitmap
    of the qcow2 and a checkpoint of libvirt, and the next points hold only that.
  - When the changes are unknown, all of the disk is copied, and the result says why (RV(results[].disks)). This
    happens with raw disks, new disks, a changed size, a guest that is off, or when QEMU was killed.
  - A guest that is off, has all its disks in files, and was not written since its last point gets no new one. A
    device is always copied, as nothing tells what was written to it.
  - The agent of a running guest, if it has one, freezes the filesystems for the moment in which the backup begins. The
    host thaws them after 30 seconds if the run dies meanwhile.
  - A point has the guest's definition, UEFI variables, TPM state and cloud-init seed as well. It holds every secret of
    the guest. Only root can read it.
  - The repository is a directory of the host, on a local disk or a mounted share. Each point is a directory
    C(GUEST-UUID/POINT) with a qcow2 for each disk and a C(manifest.json), which is written last and has a SHA-256 of
    each file. C(qemu-img) reads each point without this collection.
  - An interrupted run leaves the older points as they are. The next run goes on with a copy that QEMU still makes, or
    removes what was copied, and gives the changes to the checkpoint before.
  - After a migration, libvirt of the new host gets the checkpoint from the repository, if it is mounted there too.
  - This module must run on the host of the guests.
options:
  guests:
    description: Names of the guests.
    type: list
    elements: str
    required: true
  repository:
    description:
      - Directory of the repository. It must exist, and be empty the first time. QEMU's user must be able to pass
        through the directories above it, and nobody but its owner may write to it.
      - If it is empty, or another repository, and this host has put the last backup of the guest there, its filesystem
        may not be mounted, and there is no backup. O(full=true) begins anew there.
      - Use a filesystem of another disk or host. A backup beside the guest's disk is lost with it.
    type: path
    required: true
  state:
    description: V(present) makes a point, V(absent) deletes O(point).
    type: str
    choices: [present, absent]
    default: present
  point:
    description: ID of the point to delete, with O(state=absent), also a damaged one. A point that others stand on is
      not deleted. If the guest is gone, the error names the directory of its points.
    type: str
  quiesce:
    description: V(auto) asks a connected agent to freeze the filesystems, and adds a note if there is none, or it does
      not answer within 5 seconds. V(required) makes no backup then. V(never) does not ask.
    type: str
    choices: [auto, required, never]
    default: auto
  increments:
    description: How many points with changes may stand on each other. The next one is made whole within the
      repository, without reading more of the guest, unless a file that it would be made of is damaged. V(0) makes
      each point whole.
    type: int
    default: 30
  full:
    description: Copy all of each disk, for instance after V(verify) of M(corral.virt.virt_backup_info) has found a
      damaged point, on which later ones would stand, or to begin anew in a repository that has lost its backups.
    type: bool
    default: false
  keep:
    description: Delete older points, and keep the newest of each period (UTC), for so many periods. The newest of all,
      and points that a kept or a damaged one stands on, are always kept. Points that cannot be restored, because one
      below is missing or damaged, take no period from those that can. Nothing is deleted, and a note says so, if a
      point is dated more than a day in the future, by a clock that was ahead. Points are deleted when the new one is
      made, or before, if it has no room beside them.
    type: dict
    suboptions:
      hourly: {description: For how many hours., type: int}
      daily: {description: For how many days., type: int}
      weekly: {description: For how many weeks., type: int}
      monthly: {description: For how many months., type: int}
      yearly: {description: For how many years., type: int}
  encrypted:
    description:
      - Make no backup unless the filesystem of O(repository) is encrypted now, on this host, by dm-crypt, such as LUKS;
        also below LVM, RAID, btrfs and image files. So nothing goes into the directory below a filesystem that is not
        mounted, and nothing to a disk that others can read.
      - Other encryption, such as that of a server or of ZFS, is not known, and counts as none.
    type: bool
    default: false
  bandwidth:
    description: Limit for copying each disk of a running guest, in MiB per second. V(0) is without limit.
    type: int
    default: 0
  job_timeout:
    description: How long copying the disks of a running guest may take, in seconds. Then it is aborted.
    type: int
    default: 7200
  at_once:
    description: Number of guests to process at the same time.
    type: int
    default: 2
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
seealso:
  - module: corral.virt.virt_backup_files
  - module: corral.virt.virt_backup_info
  - module: corral.virt.virt_restore
"""

EXAMPLES = r"""
- name: Back two guests up
  corral.virt.virt_backup:
    guests: [web1, db1]
    repository: /srv/backup

- name: Each night, for a week, a month and a year
  corral.virt.virt_backup:
    guests: [db1]
    repository: /srv/backup
    keep: {daily: 7, weekly: 4, monthly: 12}
    bandwidth: 100
    quiesce: required

- name: Delete a point
  corral.virt.virt_backup:
    guests: [db1]
    repository: /srv/backup
    state: absent
    point: 20261128T200501Z-1a2b3c4d
"""

RETURN = r"""
results:
  description: One entry for each guest, in the given order.
  returned: always
  type: list
  elements: dict
  contains:
    name: {description: Name of the guest., type: str, returned: always}
    changed: {description: Whether something was done., type: bool, returned: always}
    point: {description: ID of the new point., type: str, returned: if one was made}
    disks:
      description: The disks in the point.
      type: list
      elements: dict
      returned: success
      contains:
        target: {description: Target of the disk., type: str, returned: always}
        reason: {description: Why all of it was copied., type: str, returned: if all of it was copied}
        parent: {description: ID of the point below., type: str, returned: if only changes were copied}
        stored_bytes: {description: What its file takes., type: int, returned: always}
    stored_bytes:
      description: What the files of the disks take; in check mode, an estimate.
      type: int
      returned: success
    seconds: {description: How long it took., type: float, returned: not in check mode}
    frozen_s:
      description: For how many seconds the guest's filesystems were frozen.
      type: float
      returned: if the agent has frozen them
    steps:
      description: Steps that were done, or in check mode would be.
      type: list
      elements: str
      returned: always
    notes: {description: Additional notes., type: list, elements: str, returned: success}
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
from ansible_collections.corral.virt.plugins.module_utils._backup import run_backup
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._system.detached import detach

OPTIONS = {
    **URI_OPTION,
    "guests": {"type": "list", "elements": "str", "required": True},
    "repository": {"type": "path", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "point": {"type": "str"},
    "quiesce": {"type": "str", "choices": ["auto", "required", "never"], "default": "auto"},
    "increments": {"type": "int", "default": 30},
    "full": {"type": "bool", "default": False},
    "keep": {
        "type": "dict",
        "options": {period: {"type": "int"} for period in ("hourly", "daily", "weekly", "monthly", "yearly")},
    },
    "encrypted": {"type": "bool", "default": False},
    "bandwidth": {"type": "int", "default": 0},
    "job_timeout": {"type": "int", "default": 7200},
    "at_once": {"type": "int", "default": 2},
}


def main() -> None:
    """Entry point."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    result: dict[str, t.Any] = {"notes": []}
    with failures(module):
        detach("virt_backup")
        with opened(module.params["uri"]) as connection:
            result = run_backup.converge(connection, module.params, Gate(check_mode=module.check_mode))
    module.end(result)


if __name__ == "__main__":
    main()
