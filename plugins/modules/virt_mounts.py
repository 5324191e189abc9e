#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filesystems that systemd mounts for pools."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_mounts
short_description: Mount filesystems for storage pools
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Mounts filesystems now and at each start of the host, by systemd mount units, for pools of type C(dir) on them.
  - What one of the mounts speaks against is refused for all, before anything is changed.
  - A mount is refused if its directory is not empty, if another source is mounted there, or if C(/etc/fstab) or a unit
    that this module has not written mounts something there.
  - The directory below a mount is made immutable (C(chattr +i)). If a mount fails when the host starts, pools on it are
    empty, and nothing can be written into the directory by mistake; guests and pools on other storage start as ever.
  - A unit waits at most 45 seconds for its server, and libvirt starts after it.
  - With O(mounts[].passphrase), the filesystem is in a LUKS device or image file. The key is never on a disk of the
    host, so that it is not mounted when the host starts, but by the next run. Until then, nobody can write into the
    directory.
options:
  mounts:
    description: The mounts. Others stay as they are.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Where to mount, an absolute path without symbolic links. The directory is created.
        type: str
        required: true
      src:
        description:
          - What to mount, such as V(nas.example.com:/export/guests), V(hyper1:/volume) for GlusterFS,
            V(//nas.example.com/share) for CIFS, V(/dev/disk/by-id/ata-one) or V(UUID=...).
          - With O(mounts[].passphrase), a device, or the path of an image file, also one on a mounted share.
          - Required if O(mounts[].state=mounted). Something else that is mounted at the path is refused.
        type: str
      fstype:
        description:
          - Type of the filesystem, such as V(nfs), V(nfs4), V(cifs), V(glusterfs), V(ext4) or V(xfs).
          - Required if O(mounts[].state=mounted).
        type: str
      options:
        description:
          - Options of the mount. For a device that needs the network, such as a LUN, add V(_netdev); network
            filesystems have it.
          - Options of a mounted filesystem change when it is mounted again; the result tells it in RV(pending).
          - A password is refused, because all users can read a unit; use C(credentials=FILE).
        type: list
        elements: str
      build:
        description:
          - Make the filesystem (V(ext4) or V(xfs)) on an empty device; with O(mounts[].passphrase), encrypt that first.
          - A device with a filesystem, a partition table or another signature, or one that something holds, is refused,
            also in check mode, and looked at again right before. If it has a filesystem of this type already, that is
            mounted.
        type: bool
        default: false
      passphrase:
        description:
          - Passphrase of the LUKS device at O(mounts[].src), which C(cryptsetup) opens. Without it, nobody can read
            what is there. Keep it in a vault, and elsewhere. An empty one is refused.
          - C(cryptsetup) reads it from standard input. Ansible writes the arguments of modules to a temporary file of
            the host unless pipelining is on; role P(corral.virt.storage#role) turns it on for this.
          - A change of it here changes nothing on the device. For that, use C(cryptsetup luksChangeKey).
          - A device or an image is for one host at a time, also if others can reach it.
        type: str
      size:
        description: Size of the image file to make if there is none at O(mounts[].src), such as V(200GiB). Its room is
          allocated at once. Requires O(mounts[].build=true) and O(mounts[].passphrase).
        type: str
      state:
        description:
          - V(mounted) - mounted, and at each start of the host if it is not encrypted.
          - V(closed) - unmounted, and its LUKS device closed, until a run mounts it again. Nobody can write into the
            directory meanwhile.
          - V(absent) - not mounted any more. It is refused while a pool or a guest has something there, and for what
            this module has not mounted. The directory stays, and can be written into.
        type: str
        choices: [mounted, closed, absent]
        default: mounted
extends_documentation_fragment:
  - corral.virt.connection.attributes
attributes:
  diff_mode:
    description: Shows the settings of units that change, and what is mounted.
  platform:
    description: Linux with systemd.
seealso:
  - module: corral.virt.virt_writable
  - module: corral.virt.virt_pool
    description: Pools of type C(fs) and C(netfs) are mounted by libvirt itself.
  - ref: corral.virt.storage role <ansible_collections.corral.virt.storage_role>
    description: Installs what the filesystems need, and creates pools on them.
"""

EXAMPLES = r"""
- name: Mount an NFS export
  corral.virt.virt_mounts:
    mounts:
      - path: /srv/guests
        src: nas.example.com:/export/guests
        fstype: nfs4
        options: [hard, noatime]

- name: Make a filesystem on an empty disk, and mount it
  corral.virt.virt_mounts:
    mounts:
      - path: /srv/fast
        src: /dev/disk/by-id/nvme-one
        fstype: xfs
        build: true

- name: Encrypt an empty disk for backups, and mount it; after a restart of the host, open and mount it again
  corral.virt.virt_mounts:
    mounts:
      - path: /srv/backup
        src: /dev/disk/by-id/ata-two
        fstype: ext4
        build: true
        passphrase: "{{ vault_backup_passphrase }}"

- name: Close it
  corral.virt.virt_mounts:
    mounts:
      - path: /srv/backup
        state: closed

- name: Unmount it
  corral.virt.virt_mounts:
    mounts:
      - path: /srv/fast
        state: absent
"""

RETURN = r"""
steps:
  description: Steps that were done, or in check mode would be done.
  returned: success
  type: list
  elements: str
  sample:
    - make mount point /srv/guests
    - write /etc/systemd/system/srv-guests.mount
    - enable srv-guests.mount
    - mount nas.example.com:/export/guests at /srv/guests
pending:
  description: Options that apply when a filesystem is mounted again.
  returned: success
  type: list
  elements: str
notes: {description: Additional notes; also shown as warnings., returned: success, type: list, elements: str}
"""

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import Module, failures
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._storage.run_mounts import OPTIONS, converge


def main() -> None:
    """Entry point."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    result: dict[str, t.Any] = {"notes": []}
    with failures(module):
        result = converge(module.params, Gate(check_mode=module.check_mode))
    module.end(result)


if __name__ == "__main__":
    main()
