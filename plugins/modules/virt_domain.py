#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One guest is as described."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_domain
short_description: One guest is as described
version_added: 0.1.0
description:
  - Makes, changes, starts, stops and removes a guest of libvirt.
  - What is not mentioned is left alone. A definition is edited in place, never rebuilt, so addresses, devices and
    settings made by hand survive.
  - Changes that a running guest can take are applied at once; the rest is stored and listed in RV(pending).
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
  - corral.virt.domain
  - corral.virt.domain.duplicates
notes:
  - C(python3-pycdlib) and C(python3-cryptography) are needed for O(cloud_init).
seealso:
  - module: corral.virt.virt_domains
  - module: corral.virt.virt_domain_info
  - module: corral.virt.virt_image
"""

EXAMPLES = r"""
- name: A guest on a verified image runs
  corral.virt.virt_domain:
    name: centos1
    vcpus: 2
    memory: 512MiB
    image: centos.qcow2
    state: running

- name: It has a data disk, a tag and a console
  corral.virt.virt_domain:
    name: centos1
    tags: [web]
    disks:
      - name: data
        size: 20GiB
    graphics:
      type: vnc

- name: It is seeded by cloud-init
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

- name: More memory than it was started with, by a restart
  corral.virt.virt_domain:
    name: web1
    memory: 4GiB
    allow_restart: true

- name: It is gone, with the disks that were made for it
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
  description: What was done, or in check mode would be done, in order.
  returned: success
  type: list
  elements: str
  sample: ["define web1 (memory.current_kib, memory.maximum_kib)", "set 2 vcpus on running web1"]
pending:
  description: What is stored and waits for the next boot, also when an earlier run stored it.
  returned: success
  type: list
  elements: str
notes:
  description: What the user should know; also given as warnings.
  returned: success
  type: list
  elements: str
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

from ansible_collections.corral.virt.plugins.module_utils._front import domain_options, guest, many
from ansible_collections.corral.virt.plugins.module_utils._front.guest_module import GuestModule
from ansible_collections.corral.virt.plugins.module_utils._front.module import URI_OPTION, failures
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._run import Gate


def main() -> None:
    """Parameters in, one guest converged, result out."""
    options = {**URI_OPTION, **domain_options.NAMING, **domain_options.GUEST_OPTIONS}
    module = GuestModule(argument_spec=options, supports_check_mode=True)
    with failures(module):
        wanted = domain_options.wanted(module.params)
        with opened(module.params["uri"], events=True) as connection:
            made = guest.converge(connection, wanted, Gate(check_mode=module.check_mode))
            [result] = many.waited(connection, [made])
    for note in result["notes"]:
        module.warn(note)
    if "msg" in result:
        module.fail_json(done=result["steps"], **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
