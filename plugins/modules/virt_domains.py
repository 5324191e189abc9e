#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many guests of one host, over one connection."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_domains
short_description: Manage many libvirt guests on one host
version_added: 0.1.0
description:
  - Does the same as M(corral.virt.virt_domain) for many guests, in one call and over one connection. A hundred guests
    cost about as much as one.
  - The module checks all options of all guests before it changes anything. After that, a guest that fails does not stop
    the others.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
  - corral.virt.domain.domains
  - corral.virt.domain.duplicates
options:
  at_once:
    description:
      - Number of guests to process at the same time. Raise it if the module waits for guests, for example while they
        shut down.
    type: int
    default: 1
  room:
    description:
      - What all guests of the host may use together. A new guest that would be started beyond this is refused, and not
        created. Guests that run count, and so do guests that start with the host (C(autostart)).
      - The host decides under a lock, so two controllers that placed guests at the same time do not overfill it. The
        lock needs a connection to the host's own libvirt (C(qemu:///system)), and is held until the guest has started.
      - M(corral.virt.virt_place) returns it as RV(corral.virt.virt_place#module:rooms).
    type: dict
    suboptions:
      memory_mib:
        description: Memory in MiB.
        type: int
        required: true
      vcpus:
        description: vCPUs.
        type: int
        required: true
notes:
  - O(domains[].cloud_init) requires C(python3-cryptography), and one of C(python3-pycdlib), C(xorriso) and
    C(genisoimage).
seealso:
  - module: corral.virt.virt_domain
"""

EXAMPLES = r"""
- name: Run three guests
  corral.virt.virt_domains:
    domains:
      - {name: web1, vcpus: 2, memory: 2GiB, image: debian-12.qcow2, state: running}
      - {name: web2, vcpus: 2, memory: 2GiB, image: debian-12.qcow2, state: running}
      - {name: db1, vcpus: 4, memory: 8GiB, image: debian-12.qcow2, state: running}

- name: Shut down guests in parallel
  corral.virt.virt_domains:
    domains:
      - {name: web1, state: shutdown}
      - {name: centos1, state: shutdown}
    at_once: 10
"""

RETURN = r"""
results:
  description: One entry per guest, in the given order, as returned by M(corral.virt.virt_domain); C(failed) and C(msg)
    for a guest that failed.
  returned: always
  type: list
  elements: dict
steps:
  description: Steps that were done for all guests, in order.
  returned: always
  type: list
  elements: str
pending:
  description: Changes that wait for the next boot, by guest.
  returned: always
  type: dict
"""

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, failures
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._guest import run_guest, run_guest_options, run_guests
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_host_questions import Capacity
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_module import GuestModule
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened

OPTIONS = {
    **URI_OPTION,
    **run_guest_options.NAMING,
    "at_once": {"type": "int", "default": 1},
    "room": {
        "type": "dict",
        "options": {"memory_mib": {"type": "int", "required": True}, "vcpus": {"type": "int", "required": True}},
    },
    "domains": {"type": "list", "elements": "dict", "required": True, "options": run_guest_options.GUEST_OPTIONS},
}


def main() -> None:
    """Check all, then converge each; one result for all."""
    module = GuestModule(argument_spec=OPTIONS, supports_check_mode=True)
    at_once, limit = module.params["at_once"], module.params["room"]
    capacity = Capacity(**limit) if limit else None
    with failures(module):
        wanted = run_guest_options.all_wanted(module.params["domains"], at_once)
        gate = Gate(check_mode=module.check_mode)
        with opened(module.params["uri"], events=True) as connection:
            made = run_guests.each(
                wanted, lambda one: run_guest.converge(connection, one, gate, capacity), at_once=at_once
            )
            results = run_guest.waited(connection, made)
    summary = run_guests.summary(results)
    for note in summary.pop("notes"):
        module.warn(note)
    if "msg" in summary:
        module.fail_json(**summary)
    module.exit_json(**summary)


if __name__ == "__main__":
    main()
