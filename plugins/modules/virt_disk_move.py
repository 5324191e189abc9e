#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Move a disk of a guest to another storage pool."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_disk_move
short_description: Move a disk of a guest to another storage pool, or into another format
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Moves a disk of a guest to another pool of its host, or into another format, while the guest runs or while it is
    off. The pools are directories and volume groups.
  - QEMU copies the disk of a running guest and writes to both places until the guest uses the copy alone. The disk of
    a guest that is off is copied and compared. Nobody can start the guest from a file meanwhile. QEMU locks no devices,
    so the hook of the role P(corral.virt.hypervisor#role) refuses the start of a guest whose disk is one; without that
    hook, a start during the copy ends the move, and the guest keeps its disk.
  - A qcow2 file that stands on an image stays on it if it remains a qcow2 file; only what the guest has written moves.
    As raw or on a logical volume, it gets all that the guest sees of it, and no longer needs the image; the step and
    the room that it needs say so.
  - A logical volume is raw, has all its space from the start, and is rounded up to whole extents. It is tagged with its
    guest from its first moment on.
  - The old file or volume is deleted only when the guest's definition names the new one, and only if the collection
    made it for this guest and nobody else uses it. Otherwise it is kept, with a note.
  - If a run is interrupted, the guest keeps its old disk. The next run goes on with a copy that QEMU still makes,
    begins anew over the part that was left, or finishes what remains after the switch.
  - One line shows how far the copy is. The module goes on if the connection to the host breaks, or the controller dies;
    a second run is refused until it has ended.
  - Guests with snapshots, checkpoints or a saved state, encrypted disks, and disks on which another block job works are
    refused. A LUKS disk in a V(raw) file moves to another pool of files while its guest is off. Another block device
    than a logical volume can be moved from; it is kept.
  - This module must run on the host of the guest. The pool must be of type V(dir), V(fs), V(netfs) or V(logical).
options:
  guest:
    description: Name of the guest.
    type: str
    required: true
  disk:
    description: The disk, by its name as in O(corral.virt.virt_domain#module:disks[].name), or by its target such as
      V(vda).
    type: str
    required: true
  pool:
    description: The pool that the disk moves to. If it is there already, in the format that is asked for, nothing is
      done.
    type: str
    required: true
  format:
    description: The format that the disk has afterwards. By default it keeps its format, except on a logical volume,
      which is always V(raw). In the pool that the disk is in, a new file is made beside the old one. The file's ending
      follows, for example from V(db1-data.qcow2) to V(db1-data.img).
    type: str
    choices: [qcow2, raw]
  thin_pool:
    description:
      - Thin pool in the volume group of O(pool), such as V(thin). The disk becomes a thin volume of it.
      - If the disk is in that volume group already, but not in this thin pool, a new volume is made beside the old one,
        named after both, for example V(db1-data.thin). Without O(thin_pool), a disk of that volume group stays what it
        is, and a disk from elsewhere becomes a volume with all its space.
      - Refused if the thin pool is not active, does not zero what it gives out, is more than 90 % full (data or
        metadata), has no room for what is copied, or if all its volumes together would have more than four times its
        size. QEMU writes all of a running guest's disk, zeros too; of a guest that is off, zeros are left out.
    type: str
  bandwidth:
    description: The most that QEMU copies of a running guest's disk, in MiB per second. V(0) is without limit.
    type: int
    default: 0
  job_timeout:
    description: How long the copy of a running guest's disk may take, in seconds. After that it is ended, and the disk
      stays where it was.
    type: int
    default: 3600
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
seealso:
  - module: corral.virt.virt_domain
  - module: corral.virt.virt_migrate
    description: Moves a guest with its disks to another host.
  - module: corral.virt.virt_pool
"""

EXAMPLES = r"""
- name: Move the data disk of db1 to the fast pool
  corral.virt.virt_disk_move:
    guest: db1
    disk: data
    pool: fast
    bandwidth: 200

- name: Move its system disk onto a logical volume
  corral.virt.virt_disk_move:
    guest: db1
    disk: system
    pool: lvm

- name: Let its data disk take room of a thin pool as it writes
  corral.virt.virt_disk_move:
    guest: db1
    disk: data
    pool: lvm
    thin_pool: thin

- name: Make its scratch disk raw, in the pool that it is in
  corral.virt.virt_disk_move:
    guest: db1
    disk: scratch
    pool: default
    format: raw
"""

RETURN = r"""
name: {description: Name of the guest., returned: success, type: str}
disk: {description: Name of the disk., returned: success, type: str}
pool: {description: The pool that the disk is in., returned: success, type: str}
source: {description: "Where the disk is, or in check mode would be.", returned: success, type: str}
format: {description: "The format that it has, or in check mode would have.", returned: success, type: str}
moved_from: {description: Where the disk was., returned: success, type: str}
old_file:
  description: V(deleted) or V(kept), or in check mode what it would be. Empty if nothing was done.
  returned: success
  type: str
size_bytes: {description: "Bytes that were copied, or in check mode would be.", returned: success, type: int}
seconds: {description: How long it took., returned: if something was done, type: float}
steps:
  description: Steps that were done, or in check mode would be done.
  returned: success
  type: list
  elements: str
notes: {description: Additional notes; also shown as warnings., returned: success, type: list, elements: str}
"""

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._disk_move import run_disk_move
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._system.detached import detach

OPTIONS = {
    **URI_OPTION,
    "guest": {"type": "str", "required": True},
    "disk": {"type": "str", "required": True},
    "pool": {"type": "str", "required": True},
    "format": {"type": "str", "choices": ["qcow2", "raw"]},
    "thin_pool": {"type": "str"},
    "bandwidth": {"type": "int", "default": 0},
    "job_timeout": {"type": "int", "default": 3600},
}


def main() -> None:
    """Entry point."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    result: dict[str, t.Any] = {"notes": []}
    with failures(module):
        detach("virt_disk_move")
        with opened(module.params["uri"], events=True) as connection:
            result = run_disk_move.converge(connection, module.params, Gate(check_mode=module.check_mode))
    module.end(result)


if __name__ == "__main__":
    main()
