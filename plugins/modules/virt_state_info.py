#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the states of guests."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_state_info
short_description: Read the names, UUIDs and states of the guests of a host
version_added: 0.1.0
description:
  - Returns the name, UUID and state of each guest, and with O(tags) its tags.
  - Reads nothing else, so it is faster than M(corral.virt.virt_domain_info), and a guest that hangs delays no other.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.info
options:
  name:
    description: Return only this guest. The list is empty if the host has no such guest.
    type: str
  tags:
    description: Also return the tags of each guest, and whether a migration of it is recorded.
    type: bool
    default: false
  links:
    description: Also return the names of the host's network interfaces, alternative ones included, and whether the
      host is in maintenance. A migration to it needs both.
    type: bool
    default: false
seealso:
  - module: corral.virt.virt_domain_info
  - module: corral.virt.virt_find
"""

EXAMPLES = r"""
- name: Read the states of all guests of the host
  corral.virt.virt_state_info:
  register: found

- name: Wait until a guest is off
  corral.virt.virt_state_info:
    name: web1
  register: found
  until: found.domains | map(attribute='state') | first == 'shutdown'
  retries: 30
  delay: 2
"""

RETURN = r"""
clock: {description: "The host's time, in seconds since 1970.", returned: success, type: float}
links:
  description: Network interfaces of the host, bridges among them, by all of their names. V(null) if O(uri) leads to
    another machine.
  returned: with O(links)
  type: list
  elements: str
maintenance:
  description: The reason, while the host is in maintenance; otherwise, or if O(uri) leads to another machine, V(null).
  returned: with O(links)
  type: str
domains:
  description: The guests, by name.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: Name., type: str, returned: always}
    uuid: {description: UUID., type: str, returned: always}
    state: {description: 'V(running), V(paused), V(shutdown) or V(crashed).', type: str, returned: always}
    protected:
      description: Whether its definition is kept, so that another host can run it when its host is dead; false with a
        remote connection.
      type: bool
      returned: always
    tags: {description: Tags., type: list, elements: str, returned: with O(tags)}
    moving: {description: Whether a migration of it is recorded., type: bool, returned: with O(tags)}
"""

import time

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._guest import run_states
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened

OPTIONS = {
    **URI_OPTION,
    "name": {"type": "str"},
    "tags": {"type": "bool", "default": False},
    "links": {"type": "bool", "default": False},
}


def main() -> None:
    """Open, read, tell."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    with failures(module):
        with opened(module.params["uri"], readonly=True) as connection:
            found = run_states.described(connection, module.params)
    module.exit_json(changed=False, clock=time.time(), **found)


if __name__ == "__main__":
    main()
