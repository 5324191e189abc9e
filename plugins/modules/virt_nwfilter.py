#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A network filter of libvirt."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_nwfilter
short_description: Manage libvirt network filters
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Creates, changes and removes network filters, the packet filters between a guest's interface and the host. An
    interface names one as its C(filterref).
  - A change applies at once to running guests that have the filter.
  - Snapshots and saved guests are not searched for filters that they name.
options:
  name:
    description: Name of the filter.
    type: str
    required: true
  uuid:
    description: UUID for a new filter. An existing filter keeps its UUID; another one is refused.
    type: str
  state:
    description:
      - V(present) - defined.
      - V(absent) - unknown to libvirt. Refused while a guest of the host or another filter names it.
    type: str
    choices: [present, absent]
    default: present
  chain:
    description:
      - The chain that the rules are in. V(root) for a new filter by default; others begin with V(mac), V(stp), V(vlan),
        V(arp), V(rarp), V(ipv4) or V(ipv6), have at most 12 characters, and get packets of this protocol only.
      - Another chain has another priority, unless O(priority) is given.
    type: str
  priority:
    description: From -1000 to 1000; chains with the lowest are visited first. By default libvirt's for O(chain).
    type: int
  filterrefs:
    description:
      - Names of the filters that this one includes, in order. The list replaces the one that is there; an empty list
        removes all. A filter that stays in the list keeps its parameters.
      - A filter that includes itself is refused. A note names filters that the host does not have.
    type: list
    elements: str
  rules:
    description:
      - The rules of the filter. The list replaces the one that is there; an empty list removes all.
      - libvirt applies them by priority, those of the same priority in the order of the list.
    type: list
    elements: dict
    suboptions:
      action:
        description: What happens to the packet. V(return) goes on in the filter that includes this one.
        type: str
        required: true
        choices: [accept, continue, drop, reject, return]
      direction:
        description: V(in) - to the guest, V(out) - from it.
        type: str
        required: true
        choices: [in, inout, out]
      priority:
        description: From -1000 to 1000; the lowest is applied first.
        type: int
        default: 500
      protocol:
        description: Without it, all packets of the chain.
        type: str
        choices:
          - ah
          - ah-ipv6
          - all
          - all-ipv6
          - arp
          - esp
          - esp-ipv6
          - icmp
          - icmpv6
          - igmp
          - ip
          - ipv6
          - mac
          - rarp
          - sctp
          - sctp-ipv6
          - stp
          - tcp
          - tcp-ipv6
          - udp
          - udp-ipv6
          - udplite
          - udplite-ipv6
          - vlan
      match:
        description:
          - Attributes of libvirt's protocol and their values, such as C(dstportstart) and V(22), or C(srcipaddr) and
            V($IP), the addresses of the guest. All must fit; C(match) V(no) inverts them. Attributes that the protocol
            does not have are refused, as libvirt would ignore them.
          - Give values as C(virsh nwfilter-dumpxml) prints them, or the filter is defined again in each run. Addresses
            of network cards may be in upper case and masks of IPv4 in dotted form.
        type: dict
      statematch:
        description: Whether the rule also lets the answers of a connection pass.
        type: bool
        default: true
  xml:
    description:
      - A piece of libvirt's XML for what no option covers, such as parameters of an included filter. It is a C(filter)
        element without attributes and rules. What is in it is added if it is missing; nothing is removed.
      - Give included filters here or in O(filterrefs), not in both.
    type: str
  force:
    description: Change or remove a filter that comes with libvirt, such as V(clean-traffic).
    type: bool
    default: false
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
  - corral.virt.connection.seen
seealso:
  - module: corral.virt.virt_nwfilter_info
  - module: corral.virt.virt_network
"""

EXAMPLES = r"""
- name: Let guests be reached by SSH only, and never under another address
  corral.virt.virt_nwfilter:
    name: ssh-only
    filterrefs: [clean-traffic]
    rules:
      - {action: accept, direction: in, protocol: tcp, match: {dstportstart: 22}}
      - {action: drop, direction: in, priority: 1000, protocol: all}

- name: Include a filter with a parameter
  corral.virt.virt_nwfilter:
    name: web
    xml: <filter><filterref filter='ports'><parameter name='PORT' value='443'/></filterref></filter>

- name: Remove a filter that nothing names
  corral.virt.virt_nwfilter:
    name: old
    state: absent
"""

RETURN = r"""
nwfilter:
  description: The filter as it is, or in check mode would be. Null if it is absent.
  returned: success
  type: dict
  contains:
    name: {description: Name., type: str, returned: always}
    uuid: {description: UUID., type: str, returned: unless the filter is new and O(uuid) not given}
    chain: {description: Chain of its rules., type: str, returned: always}
    priority: {description: Priority of its chain., type: int, returned: if it has one}
    filterrefs: {description: Filters that it includes., type: list, elements: str, returned: if it has any}
    rules:
      description: Its rules, as the option; left out if the option cannot express one of them.
      type: list
      elements: dict
      returned: if it has any
steps:
  description: Steps that were done, or in check mode would be done.
  returned: success
  type: list
  elements: str
  sample: [define nwfilter ssh-only]
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
from ansible_collections.corral.virt.plugins.module_utils._nwfilter.libvirt_nwfilter import API
from ansible_collections.corral.virt.plugins.module_utils._nwfilter.plan_nwfilter import NWFILTER

OPTIONS = {**URI_OPTION, **argument_spec(NWFILTER.schema)}


def main() -> None:
    """Entry point."""
    run_noun_module.run(NWFILTER, API, OPTIONS)


if __name__ == "__main__":
    main()
