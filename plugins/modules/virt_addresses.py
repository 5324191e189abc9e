#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the addresses of running guests, and record them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_addresses
short_description: Find the addresses of running guests and record them
version_added: 0.1.0
description:
  - Finds the IP addresses of the running guests of a host, also on a bridge where an external DHCP server assigns them,
    and records them in libvirt's metadata of the guest. The inventory plugin
    R(corral.virt.virt,ansible_collections.corral.virt.virt_inventory) reads these records.
  - The module examines all guests together, with libvirt's DHCP leases, the host's neighbour table, packets at the
    guests' interfaces, and the guest agents. For a guest that sends nothing, it probes the addresses of the bridge's
    network by ARP at the guest's own interface.
  - A guest can claim any address. The module therefore accepts an address only if it is in a network that the host has
    on that bridge, and does not belong to the host, to a router, to another guest, or to another machine that answers
    for it.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
options:
  names:
    description:
      - Only these guests; by default all running guests. Guests that do not exist or do not run are skipped.
      - Without names, the module records nothing for guests without metadata of this collection, such as guests that
        were created by hand.
    type: list
    elements: str
  wait_timeout:
    description: Maximum number of seconds to search. The search ends early when every guest is found.
    type: int
    default: 3
  boots:
    description: Whether the guests have just been started. A guest that is at work then has more time than
      O(wait_timeout), until it has used as many seconds of CPU, as with M(corral.virt.virt_ready).
    type: bool
    default: false
notes:
  - Only root on the host itself can capture packets, with O(uri=qemu:///system).
  - The record of a guest that sends nothing stays unchanged, until another guest has that address.
seealso:
  - module: corral.virt.virt_domain
    description: Its option O(corral.virt.virt_domain#module:wait_for_ip) waits for a new guest's address and records
      it.
  - module: corral.virt.virt_domain_info
"""

EXAMPLES = r"""
- name: Record the current addresses of all guests
  corral.virt.virt_addresses:

- name: Search for one guest for up to a minute
  corral.virt.virt_addresses:
    names: [web1]
    wait_timeout: 60
  register: found
"""

RETURN = r"""
guests:
  description: The running guests that the module searched for, by name.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: Name., type: str, returned: always}
    uuid: {description: UUID., type: str, returned: always}
    addresses:
      description: Addresses at which the guest was seen in this run, IPv4 before IPv6.
      type: list
      elements: str
      returned: always
    refused:
      description: Addresses that were claimed for the guest but not accepted, and why.
      type: list
      elements: str
      returned: always
steps:
  description: Addresses that were recorded, or in check mode would be recorded.
  returned: always
  type: list
  elements: str
read_only:
  description: Whether the user may read libvirt but not write.
  returned: failure
  type: bool
notes:
  description: Recorded addresses that now belong to another guest; also shown as warnings.
  returned: success
  type: list
  elements: str
"""

import contextlib

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._address import run_addresses
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened

OPTIONS = {
    **URI_OPTION,
    "names": {"type": "list", "elements": "str"},
    "wait_timeout": {"type": "int", "default": 3},
    "boots": {"type": "bool", "default": False},
}


def _may_read(uri: str) -> bool:
    with contextlib.suppress(VirtError), opened(uri, readonly=True):
        return True
    return False


def main() -> None:
    """Look, record, tell."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    with failures(module), contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(opened(module.params["uri"]))
        except Failed as error:
            module.fail_json(msg=str(error), read_only=_may_read(module.params["uri"]))
        gate = Gate(check_mode=module.check_mode)
        wanted = {key: module.params[key] for key in ("names", "wait_timeout", "boots")}
        result = run_addresses.refresh(connection, wanted["names"], wanted["wait_timeout"], gate, boots=wanted["boots"])
    module.end(result)


if __name__ == "__main__":
    main()
