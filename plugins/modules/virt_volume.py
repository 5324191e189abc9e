#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A volume of a storage pool."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_volume
short_description: Manage volumes of storage pools
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Creates volumes in storage pools that are directories, empty or with content, changes their size, copies their
    content to and from files, and deletes them.
  - A guest's own disks are options of M(corral.virt.virt_domain). This module is for volumes that belong to no guest
    yet, such as a data disk that is attached later, or an installation medium.
  - The module works through libvirt, so that with O(uri) of another host files of the machine on which the module runs
    are sent there.
  - A volume that an interrupted run has filled half is recorded as such. The same task finishes it; anything else
    refuses to use it.
options:
  name:
    description: Name of the volume, which is the name of its file.
    type: str
    required: true
  pool:
    description:
      - Name of the storage pool. It must be active.
      - Everything can be done in pools of type V(dir), V(fs) and V(netfs). In a pool of type V(logical), volumes are
        created and deleted. What cannot be done is refused; the guide of storage lists it by type.
    type: str
    required: true
  state:
    description:
      - V(present) - there, with its content if it is new.
      - V(absent) - deleted. Refused while a guest of the host uses it (stored, running, saved, in a snapshot or
        backup), another volume stands on it, or a process of any host has it open.
    type: str
    choices: [present, absent]
    default: present
  capacity:
    description:
      - Size that a guest sees, in MiB or with a unit, such as V(20GiB).
      - A volume that is smaller grows. One that is larger is refused, unless O(shrink) is set.
      - Refused while a running guest uses the volume, or a process of any host has it open. M(corral.virt.virt_domain)
        grows disks of running guests.
      - Required for a new volume without content.
    type: raw
  format:
    description:
      - Format of the file. By default V(qcow2) for a new volume, V(raw) for an encrypted one, and with O(source) that
        of the file.
      - A volume keeps its format.
    type: str
    choices: [raw, qcow2, qed, vdi, vmdk, vpc]
  encryption:
    description: Encrypt a new volume. It keeps its encryption.
    type: str
    choices: [luks]
  secret:
    description: UUID of the secret with the passphrase of a new volume with O(encryption). See
      M(corral.virt.virt_secret).
    type: str
  backing:
    description: Create an overlay on another file, which must not change from then on.
    type: dict
    suboptions:
      path:
        description: Path of the file. Refused if a running guest writes it.
        type: path
      format:
        description: Format of the file. It is required beside O(backing.path), because a guest could choose what is
          guessed.
        type: str
        choices: [raw, qcow2, qed, vdi, vmdk, vpc]
  clone_of:
    description:
      - Create the volume as a copy of this one, without a backing file. If the filesystem can, both share their blocks.
      - Refused while a running guest writes the original, and for an encrypted one, whose copy libvirt would write in
        the clear.
    type: str
  clone_pool:
    description: Pool of O(clone_of). The same pool by default.
    type: str
  source:
    description:
      - Upload this file of the machine on which the module runs into a new volume. Holes stay holes.
      - An interrupted upload continues where it ended.
      - Refused if the file needs more than the pool has left, or names other files, such as a backing file.
      - A volume that exists keeps its content.
    type: path
  dest:
    description:
      - Download the volume's content into this file of the machine on which the module runs. The file is replaced
        complete or not at all, and its mode is C(0600).
      - An interrupted download continues. Nothing happens if the file has this content already.
      - Refused while a running guest writes the volume.
    type: path
  preallocate:
    description: Reserve the whole space of a new empty volume. It requires O(format=raw). Required in a pool of type
      V(logical).
    type: bool
    default: false
  shrink:
    description: Allow a smaller O(capacity). What is behind the new end is lost.
    type: bool
    default: false
  wipe:
    description: With O(state=absent), overwrite the content with zeros before the volume is deleted. Filesystems that
      write elsewhere than in place, and flash memory, may keep it nevertheless.
    type: bool
    default: false
  mode:
    description: Mode of the file of a new volume, three octal digits in quotes, such as V("0600").
    type: raw
  owner:
    description: Number of the user who owns the file of a new volume. libvirt changes it while a guest runs.
    type: int
  group:
    description: Number of the group of the file of a new volume.
    type: int
  label:
    description: Label of the file of a new volume for SELinux.
    type: str
  progress:
    description: File in which the module records its progress as JSON while it uploads or downloads.
    type: path
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
  - corral.virt.connection.seen
seealso:
  - module: corral.virt.virt_volume_info
  - module: corral.virt.virt_secret
  - module: corral.virt.virt_pool
  - module: corral.virt.virt_image
"""

EXAMPLES = r"""
- name: Create an empty volume
  corral.virt.virt_volume:
    name: data.qcow2
    pool: default
    capacity: 20GiB

- name: Keep the passphrase of an encrypted volume
  corral.virt.virt_secret:
    name: /var/lib/libvirt/images/accounts.luks
    usage: volume
    value: "{{ vault_accounts_passphrase }}"
  register: passphrase

- name: Create an encrypted volume
  corral.virt.virt_volume:
    name: accounts.luks
    pool: default
    capacity: 5GiB
    encryption: luks
    secret: "{{ passphrase.secret.uuid }}"

- name: Upload a file of the controller
  corral.virt.virt_volume:
    name: installer.iso
    pool: default
    source: /srv/media/installer.iso
    format: raw
    uri: qemu+tls://hyper1/system
  delegate_to: localhost

- name: Delete a volume, and overwrite it before
  corral.virt.virt_volume:
    name: accounts.luks
    pool: default
    state: absent
    wipe: true
"""

RETURN = r"""
volume:
  description: The volume as it is, or in check mode would be. Null if it is absent.
  returned: success
  type: dict
  contains:
    name: {description: Name., type: str, returned: always}
    pool: {description: Name of the pool., type: str, returned: always}
    capacity: {description: Size that a guest sees., type: str, returned: always}
    format: {description: Format of the file., type: str, returned: always}
steps:
  description: Steps that were done, or in check mode would be done.
  returned: success
  type: list
  elements: str
  sample: ["create volume data.qcow2 of pool default (qcow2, 20GiB)"]
pending: {description: Always empty., returned: success, type: list, elements: str}
seen:
  description: Digest of what the steps were planned from, and of the steps; for O(seen) of a later run.
  returned: success
  type: str
notes: {description: Additional notes; also shown as warnings., returned: success, type: list, elements: str}
"""

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION
from ansible_collections.corral.virt.plugins.module_utils._noun import run_noun_module
from ansible_collections.corral.virt.plugins.module_utils._noun.run_noun_options import argument_spec
from ansible_collections.corral.virt.plugins.module_utils._volume.plan_volume import VOLUME
from ansible_collections.corral.virt.plugins.module_utils._volume.run_volume import API

OPTIONS = {**URI_OPTION, **argument_spec(VOLUME.schema)}


def main() -> None:
    """Entry point."""
    run_noun_module.run(VOLUME, API, OPTIONS)


if __name__ == "__main__":
    main()
