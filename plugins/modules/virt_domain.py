#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One guest is as described."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_domain
short_description: Manage a libvirt guest
version_added: 0.1.0
description:
  - Creates, changes, starts, stops and removes a libvirt guest.
  - Settings that the task does not mention stay unchanged. The module edits a definition in place and never rebuilds
    it, so addresses, devices and settings made by hand survive.
  - Changes that a running guest can take are applied at once. All other changes are stored and listed in RV(pending).
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
  - corral.virt.domain
  - corral.virt.domain.duplicates
notes:
  - O(cloud_init) requires C(python3-cryptography), and one of C(python3-pycdlib), C(xorriso) and
    C(genisoimage).
seealso:
  - module: corral.virt.virt_domains
  - module: corral.virt.virt_domain_info
  - module: corral.virt.virt_image
"""

EXAMPLES = r"""
- name: Run a guest from a verified image
  corral.virt.virt_domain:
    name: centos1
    vcpus: 2
    memory: 512MiB
    image: centos.qcow2
    state: running

- name: Add a data disk, a tag and a display
  corral.virt.virt_domain:
    name: centos1
    tags: [web]
    disks:
      - name: data
        size: 20GiB
    graphics:
      type: vnc

- name: Seed a guest with cloud-init
  corral.virt.virt_domain:
    name: web1
    vcpus: 2
    memory: 2GiB
    image: debian-12.qcow2
    cloud_init:
      user_data:
        users:
          - name: admin
            ssh_authorized_keys: "{{ [lookup('ansible.builtin.file', '~/.ssh/id_ed25519.pub')] }}"
    state: running
    wait_for_ip: any

- name: Raise the memory beyond the maximum, with a restart
  corral.virt.virt_domain:
    name: web1
    memory: 4GiB
    allow_restart: true

- name: Remove a guest and the disks that were created for it
  corral.virt.virt_domain:
    name: centos1
    state: absent
    remove_storage: true
"""

RETURN = r"""
name:
  description: Name of the guest.
  returned: success
  type: str
steps:
  description: Steps that were done, or in check mode would be done, in order.
  returned: success
  type: list
  elements: str
  sample: ["define web1 (memory.current, memory.maximum)", "set 2 vcpus on running web1"]
pending:
  description: Changes that are stored and wait for the next boot, including those of earlier runs.
  returned: success
  type: list
  elements: str
notes:
  description: Notes for the user; also shown as warnings.
  returned: success
  type: list
  elements: str
misplaced_disks:
  description: Existing disks that are in another pool than O(disks[].pool), each with C(disk), C(pool) and, if it
    is given, C(thin_pool).
  returned: if there are any, and O(move_disks) has not moved them
  type: list
  elements: dict
snapshot:
  description: Name of the snapshot that was taken before the change.
  returned: with O(snapshot), if something was changed
  type: str
addresses:
  description: Addresses of the guest.
  returned: with O(wait_for_ip)
  type: list
  elements: str
ssh_host_key:
  description: Public SSH host key of a guest seeded by the collection, ready for a known_hosts file.
  returned: when known
  type: str
"""

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, failures
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._guest import run_guest, run_guest_options
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_module import GuestModule
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened


def main() -> None:
    """Parameters in, one guest converged, result out."""
    options = {**URI_OPTION, **run_guest_options.NAMING, **run_guest_options.GUEST_OPTIONS}
    module = GuestModule(argument_spec=options, supports_check_mode=True)
    with failures(module):
        wanted = run_guest_options.wanted(module.params)
        with opened(module.params["uri"], events=True) as connection:
            made = run_guest.converge(connection, wanted, Gate(check_mode=module.check_mode))
            [result] = run_guest.waited(connection, [made])
    for note in result["notes"]:
        module.warn(note)
    if "msg" in result:
        module.fail_json(done=result["steps"], **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
