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
  - Finds out at which IP addresses the running guests of a host are, also on a bridge where others give addresses by
    DHCP, and records them in libvirt's metadata of the guest. The inventory plugin
    R(corral.virt.virt,ansible_collections.corral.virt.virt_inventory) reads that.
  - All guests are looked at together, from libvirt's DHCP leases, the host's neighbour table, packets at the guests'
    interfaces and the guests' agents. A guest that is silent is asked by ARP, at its own interface, whether it has an
    address of the bridge's network.
  - A guest can claim any address, so an address is believed only where it is in a network that the host has on that
    bridge, and is neither the host's, nor a router's, nor another guest's or another machine's that answers for it.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
options:
  names:
    description:
      - Only these guests; by default all that run. Guests that are not there or do not run are passed over.
      - Without names, nothing is recorded with a guest that the collection keeps nothing with, such as one made by
        hand.
    type: list
    elements: str
  wait_timeout:
    description: Seconds to look at most. It ends earlier when every guest was found.
    type: int
    default: 3
notes:
  - Packets are seen only by root on the host itself, with O(uri=qemu:///system).
  - What is recorded of a guest that is silent stays as it is, until another guest has that address.
seealso:
  - module: corral.virt.virt_domain
    description: Its option O(corral.virt.virt_domain#module:wait_for_ip) waits for a new guest's address and records
      it.
  - module: corral.virt.virt_domain_info
"""

EXAMPLES = r"""
- name: Record where the guests are now
  corral.virt.virt_addresses:

- name: Look for one guest for a minute
  corral.virt.virt_addresses:
    names: [web1]
    wait_timeout: 60
  register: found
"""

RETURN = r"""
guests:
  description: The running guests that were looked for, by name.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: Name., type: str, returned: always}
    addresses:
      description: Addresses at which it was seen now, IPv4 before IPv6.
      type: list
      elements: str
      returned: always
    refused:
      description: Addresses that were claimed for it and are not believed, and why.
      type: list
      elements: str
      returned: always
steps:
  description: What was recorded, or in check mode would be.
  returned: always
  type: list
  elements: str
read_only:
  description: Whether this user may read libvirt, and just not write.
  returned: failure
  type: bool
notes:
  description: Recorded addresses that are another guest's now; also given as warnings.
  returned: success
  type: list
  elements: str
"""

import contextlib

from ansible_collections.corral.virt.plugins.module_utils._errors import Failed, VirtError
from ansible_collections.corral.virt.plugins.module_utils._front import addresses
from ansible_collections.corral.virt.plugins.module_utils._front.module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._run import Gate

OPTIONS = {
    **URI_OPTION,
    "names": {"type": "list", "elements": "str"},
    "wait_timeout": {"type": "int", "default": 3},
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
        result = addresses.refresh(connection, module.params["names"], module.params["wait_timeout"], gate)
    for note in result["notes"]:
        module.warn(note)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
