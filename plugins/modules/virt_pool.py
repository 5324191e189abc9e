#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A storage pool."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_pool
short_description: Manage storage pools
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Turns directories, devices, volume groups and shares of other machines into libvirt storage pools, for the disks of
    guests and the images they are created from.
  - The module never moves a pool, and never removes what is in one. A pool is what O(type), O(path) and O(source) say
    when it is created; a change of these is refused, because the disks of guests would stay behind.
  - A new pool that is the same as another one (the same directory, export, device, volume group, target or Ceph pool)
    is refused.
  - If a new pool does not start, the module removes its definition again.
  - A note warns if QEMU's user cannot enter the directory or one above it, because guests cannot use disks there.
  - The guide of storage lists what can be done with pools of each type.
options:
  name:
    description: Name of the pool.
    type: str
    required: true
  uuid:
    description:
      - UUID for a new pool. By default libvirt gives it one.
      - An existing pool keeps its UUID; another one is refused.
    type: str
  type:
    description:
      - The type of the pool, as libvirt names it. An existing pool keeps its type; a new one is V(dir) by default.
      - V(dir) - a directory. It is created if it does not exist.
      - V(fs) - a filesystem on a device, which libvirt mounts at O(path).
      - V(netfs) - a share of another machine, which libvirt mounts at O(path). O(source.format) is V(nfs), V(glusterfs)
        or V(cifs).
      - V(logical) - an LVM volume group.
      - V(disk) - a disk whose partitions are the volumes.
      - V(iscsi) - an iSCSI target through the kernel. V(iscsi-direct) - the same through QEMU, without the kernel.
      - V(scsi), V(mpath) - the devices of a host adapter, and all multipath devices.
      - V(rbd), V(gluster), V(zfs) - a Ceph pool, a Gluster volume, a ZFS dataset. QEMU 9.2 and newer deprecate
        V(gluster).
    type: str
    choices: [dir, fs, netfs, logical, disk, iscsi, iscsi-direct, scsi, mpath, rbd, gluster, zfs]
  path:
    description:
      - The directory, or the mount point of O(type=fs) and O(type=netfs). It is created if it does not exist.
      - Where the devices of other local types appear; libvirt's default is right.
      - A directory has one pool. A path that leads to the directory of another pool over a symbolic link or a second
        mount is refused.
      - An existing pool keeps its path. If the path contains a symbolic link, write it as the pool's definition does,
        because libvirt knows the disks by that path.
      - Required for a new pool of type V(dir), V(fs) or V(netfs).
    type: path
  source:
    description:
      - Where the volumes come from, except for O(type=dir). Which suboptions a type needs or knows is checked.
    type: dict
    suboptions:
      hosts:
        description: The servers of V(netfs), V(iscsi), V(iscsi-direct), V(gluster), or the monitors of V(rbd).
        type: list
        elements: dict
        suboptions:
          name: {description: Host name or address., type: str, required: true}
          port: {description: Port; the protocol's own by default., type: int}
          state:
            description: V(absent) removes the entry. Entries that are not listed stay.
            type: str
            choices: [present, absent]
            default: present
      dir:
        description: The exported directory of V(netfs), or a directory inside the volume of V(gluster).
        type: str
      name:
        description: Volume group of V(logical) (by default O(name)), Ceph pool of V(rbd), volume of V(gluster), dataset
          of V(zfs).
        type: str
      devices:
        description:
          - Devices of V(fs), V(disk) (one) and V(logical). Use names below C(/dev/disk/by-id), which stay with the
            device.
          - The target's name (IQN) of V(iscsi) and V(iscsi-direct).
        type: list
        elements: str
      format:
        description: Filesystem of V(fs) and V(netfs), partition table of V(disk), or V(lvm2).
        type: str
      protocol:
        description: Version of the NFS protocol of V(netfs), such as V(4.2).
        type: str
      adapter:
        description: The host adapter of V(scsi).
        type: dict
        suboptions:
          type: {description: Type of the adapter., type: str, choices: [scsi_host, fc_host]}
          name: {description: "Name of a C(scsi_host), such as V(host1).", type: str}
          parent: {description: Parent of a virtual C(fc_host)., type: str}
          wwnn: {description: World-wide node name of an C(fc_host)., type: str}
          wwpn: {description: World-wide port name of an C(fc_host)., type: str}
      initiator:
        description: The initiator's name (IQN) of V(iscsi) and V(iscsi-direct).
        type: str
      auth:
        description: How to log in to V(iscsi), V(iscsi-direct) or V(rbd). M(corral.virt.virt_secret) keeps the secret.
        type: dict
        suboptions:
          type: {description: V(chap) for iSCSI; V(ceph) for Ceph., type: str, choices: [chap, ceph]}
          username: {description: Name of the user., type: str}
          secret: {description: UUID of the secret., type: str}
          secret_usage: {description: "Instead of the UUID: what the secret is used for.", type: str}
  cow:
    description: Whether files of a pool of type V(dir) or V(fs) are copied on write, on filesystems that let one choose
      (btrfs).
    type: bool
  mode:
    description: Permissions of the directory as octal digits in quotes, such as V("0711"). libvirt sets them when the
      pool starts.
    type: raw
  owner:
    description: Numeric owner of the directory; V(-1) keeps it.
    type: int
  group:
    description: Numeric group of the directory; V(-1) keeps it.
    type: int
  label:
    description: SELinux label of the directory.
    type: str
  build:
    description:
      - Make the filesystem (O(type=fs)), the partition table (O(type=disk)) or the volume group (O(type=logical)) on
        the devices of a new pool.
      - The devices must be empty. One with a filesystem, partition table or other signature, or one that something
        holds, is refused, also in check mode, and looked at again right before.
      - A pool whose devices are built already is left as it is. Directories are always created.
    type: bool
    default: false
  refresh:
    description:
      - Let libvirt look at the volumes and sizes of a running pool again, for what has changed behind its back. Nothing
        is reported as changed.
      - It waits for the server of the pool. If libvirt cannot look, it stops the pool, and the task fails.
    type: bool
    default: false
  xml:
    description:
      - A piece of libvirt's XML, C(<pool>...</pool>), that is merged into the definition, for what no option expresses.
    type: str
  state:
    description:
      - V(active) - defined and running, so that its volumes can be used. What libvirt mounts is mounted.
      - V(inactive) - defined, not running. What libvirt has mounted is unmounted.
      - V(absent) - unknown to libvirt. The content stays.
    type: str
    choices: [active, inactive, absent]
    default: active
  autostart:
    description:
      - Start the pool when the host starts.
      - For a new pool, the default is V(true) with O(state=active). An existing pool keeps its setting by default.
    type: bool
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
  - corral.virt.connection.seen
seealso:
  - module: corral.virt.virt_image
  - module: corral.virt.virt_secret
  - module: corral.virt.virt_volume
  - ref: corral.virt.storage role <ansible_collections.corral.virt.storage_role>
    description: Creates directories and pools.
"""

EXAMPLES = r"""
- name: Create a pool on the fast disks
  corral.virt.virt_pool:
    name: fast
    path: /srv/nvme/guests

- name: Mount an NFS export of the storage server as a pool
  corral.virt.virt_pool:
    name: shared
    type: netfs
    path: /srv/shared
    source:
      hosts:
        - name: nas.example.com
      dir: /export/guests
      format: nfs
      protocol: "4.2"

- name: Make a volume group of two empty disks, and use it
  corral.virt.virt_pool:
    name: vg0
    type: logical
    source:
      devices: [/dev/disk/by-id/ata-one, /dev/disk/by-id/ata-two]
    build: true

- name: Use a Ceph pool
  corral.virt.virt_pool:
    name: ceph
    type: rbd
    source:
      name: guests
      hosts:
        - name: mon1.example.com
        - name: mon2.example.com
      auth:
        type: ceph
        username: libvirt
        secret_usage: client.libvirt secret
"""

RETURN = r"""
pool:
  description: The pool as it is, or in check mode would be. Null if it is absent.
  returned: success
  type: dict
  contains:
    name: {description: Name of the pool., type: str, returned: always}
    type: {description: Type of the pool., type: str, returned: always}
    path: {description: Directory of the pool., type: str, returned: if it has one}
    source: {description: Where the volumes come from., type: dict, returned: if it has one}
    active: {description: Whether it runs., type: bool, returned: always}
    autostart: {description: Whether it starts when the host starts., type: bool, returned: always}
steps:
  description: Steps that were done, or in check mode would be done.
  returned: success
  type: list
  elements: str
  sample: [define pool fast in /srv/nvme/guests, set autostart of pool fast on, start pool fast]
pending: {description: Changes that wait for a restart of the pool., returned: success, type: list, elements: str}
seen:
  description: Digest of what the steps were planned from, and of the steps; for O(seen) of a later run.
  returned: success
  type: str
notes: {description: Additional notes; also shown as warnings., returned: success, type: list, elements: str}
"""

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION
from ansible_collections.corral.virt.plugins.module_utils._noun import run_noun_module
from ansible_collections.corral.virt.plugins.module_utils._noun.run_noun_options import argument_spec
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool import POOL
from ansible_collections.corral.virt.plugins.module_utils._storage.run_pool_verbs import API

OPTIONS = {**URI_OPTION, **argument_spec(POOL.schema)}


def main() -> None:
    """Entry point."""
    run_noun_module.run(POOL, API, OPTIONS)


if __name__ == "__main__":
    main()
