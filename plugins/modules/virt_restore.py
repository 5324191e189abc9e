#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restore a guest from a backup."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_restore
short_description: Restore a guest from a backup
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Restores a guest from a point that M(corral.virt.virt_backup) has made.
  - If the guest of the point is on this host (the same UUID), its disks are restored in place. It must be off. Its
    definition, UEFI variables and TPM state stay as they are now. The replaced disks are kept aside for
    O(keep_replaced_h) hours.
  - If it is not on this host, it is defined with the name, UUID, MAC addresses, UEFI variables, TPM state and
    cloud-init seed of then. Make sure that it is on no other host; the playbook C(restore) does.
  - With O(name), another guest is created as a copy is by O(ignore:clone_of) of M(corral.virt.virt_domain), with a new
    UUID and, without O(network), new MAC addresses.
  - Before anything is changed, the SHA-256 of each file that the point needs is checked. A damaged or missing one is
    named, with the newest point that is whole.
  - Each disk is written under another name, compared with the point, and only then put in place. An interrupted run
    leaves the guest on its present disks. The next run removes what the interrupted one has left, and restores all
    disks again.
  - Restored disks are qcow2 or raw files that stand on no other file. A disk that was a device becomes a file of
    O(pool).
  - With O(instant), the guest starts at once on the files of the repository, which are copied into its disks while it
    runs. This runs until all is copied. An interrupted run leaves the guest running, and the same task goes on.
  - A restore in place is an act. The same task restores again.
  - This module must run on the host to which the guest is restored. The repository must be mounted there, or a copy of
    it be there.
options:
  repository:
    description: Directory of the repository.
    type: path
    required: true
  guest:
    description: Name or UUID of the guest in the repository. A name that several guests had is refused.
    type: str
    required: true
  point:
    description: ID of the point. By default the newest one.
    type: str
  at:
    description: A time such as V(2026-11-25T03:00:00Z). The newest point that is not after it is restored. A time
      without an offset is UTC. Only one of O(point) and O(at) can be used.
    type: str
  name:
    description: Name of a new guest, which must be free.
    type: str
  disks:
    description: Targets of the disks to restore, in place only. By default all that are in the point.
    type: list
    elements: str
  pool:
    description: Directory pool for the disks of a guest that is not on this host. By default the pool of the directory
      in which each disk was, if it is on this host, else V(default).
    type: str
  network:
    description:
      - libvirt network for all interfaces of a guest that is not on this host, instead of what they were connected to.
      - With O(name), too, interfaces keep the MAC addresses of then, so that the system inside finds them; only those
        that were on this same network, or whose address a guest on it has, get new ones. The network must therefore be
        active and have a bridge of its own (isolated, C(nat), C(route) or C(open)).
    type: str
  run:
    description: Whether to start the restored guest.
    type: bool
    default: false
  confirm:
    description: The name of the guest again, required if disks are replaced.
    type: str
  keep_replaced_h:
    description: How long replaced disks are kept, in hours, in C(.corral/.removed) of their directory. V(0) deletes
      them.
    type: int
    default: 168
  instant:
    description:
      - Start the guest at once, on new qcow2 disks that stand on the files of the point, and copy these while it runs.
        Files of disks are checked by their SHA-256 only when it runs.
      - If the repository cannot be read meanwhile, the guest pauses. The same task resumes it, and goes on.
      - Until all is copied, the point stays in the repository, and the guest is not migrated, backed up, snapshotted,
        or moved to another pool.
      - Disks in place must be qcow2.
    type: bool
    default: false
  job_timeout:
    description: With O(instant), how long copying a disk may take, in seconds. Then it stops, the guest goes on, and
      the same task goes on with the copy.
    type: int
    default: 86400
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
seealso:
  - module: corral.virt.virt_backup
  - module: corral.virt.virt_backup_files
  - module: corral.virt.virt_backup_info
"""

EXAMPLES = r"""
- name: Restore the guest in place, as it was at night
  corral.virt.virt_restore:
    repository: /srv/backup
    guest: web1
    at: "2026-11-25T03:00:00Z"
    confirm: web1
    run: true

- name: Restore a point as another guest, beside the present one
  corral.virt.virt_restore:
    repository: /srv/backup
    guest: web1
    point: 20261128T200501Z-1a2b3c4d
    name: web1-then

- name: Restore a point on a network that leads nowhere
  corral.virt.virt_restore:
    repository: /srv/backup
    guest: web1
    name: web1-then
    network: isolated
    run: true

- name: Run at once on the backup, and copy it meanwhile
  corral.virt.virt_restore:
    repository: /srv/backup
    guest: web1
    confirm: web1
    instant: true

- name: Restore one disk
  corral.virt.virt_restore:
    repository: /srv/backup
    guest: db1
    disks: [vdb]
    confirm: db1
"""

RETURN = r"""
name: {description: Name of the restored guest., type: str, returned: success}
uuid: {description: Its UUID; in check mode that of a new guest is another one., type: str, returned: success}
point: {description: ID of the point., type: str, returned: success}
kept:
  description: Paths of the replaced disks, which are kept aside.
  type: list
  elements: str
  returned: success
needs:
  description: What the new disks need, by directory.
  type: list
  elements: dict
  returned: success
  contains:
    directory: {description: Where they are., type: str, returned: always}
    filesystem: {description: 'Its filesystem, the same for all directories on that.', type: int, returned: always}
    bytes: {description: Bytes that they take., type: int, returned: always}
    room_bytes: {description: Bytes that may be taken there., type: int, returned: always}
seconds: {description: How long it took., type: float, returned: not in check mode}
running_after_s:
  description: After how many seconds the guest ran.
  type: float
  returned: if this run has started it
steps:
  description: Steps that were done, or in check mode would be.
  type: list
  elements: str
  returned: always
notes: {description: Additional notes; also shown as warnings., type: list, elements: str, returned: success}
"""

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._backup import run_restore
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._system.detached import detach

OPTIONS = {
    **URI_OPTION,
    "repository": {"type": "path", "required": True},
    "guest": {"type": "str", "required": True},
    "point": {"type": "str"},
    "at": {"type": "str"},
    "name": {"type": "str"},
    "disks": {"type": "list", "elements": "str"},
    "pool": {"type": "str"},
    "network": {"type": "str"},
    "run": {"type": "bool", "default": False},
    "confirm": {"type": "str"},
    "keep_replaced_h": {"type": "int", "default": 168},
    "instant": {"type": "bool", "default": False},
    "job_timeout": {"type": "int", "default": 86400},
}


def main() -> None:
    """Entry point."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    result: dict[str, t.Any] = {"notes": []}
    with failures(module):
        detach("virt_restore")
        with opened(module.params["uri"], watched=module.params["instant"]) as connection:
            result = run_restore.converge(connection, module.params, Gate(check_mode=module.check_mode))
    module.end(result)


if __name__ == "__main__":
    main()
