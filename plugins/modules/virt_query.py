#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the guests of a host for a report, and record where they are."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_query
short_description: Read the guests of a host for a report, and record their addresses
version_added: 0.1.0
description:
  - Returns what the playbook C(corral.virt.query) prints about each guest, and records the addresses of the running
    guests as M(corral.virt.virt_addresses) does, in one call per host.
  - A user who may read libvirt but not write gets the guests, with the addresses that others have recorded and those of
    libvirt's DHCP leases.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
options:
  names:
    description: Only these guests; by default all guests. Guests that do not exist are skipped.
    type: list
    elements: str
  load:
    description: Also measure how busy the host and its guests are. Takes at least one second.
    type: bool
    default: false
  wait_timeout:
    description: Maximum number of seconds to search for addresses. The search ends early when every guest is found.
    type: int
    default: 3
seealso:
  - module: corral.virt.virt_addresses
  - module: corral.virt.virt_domain_info
    description: Returns everything about the guests, and records nothing.
"""

EXAMPLES = r"""
- name: Read the guests, and record where they are
  corral.virt.virt_query:
  register: found

- name: Read one guest, with its processor time
  corral.virt.virt_query:
    names: [web1]
    load: true
"""

RETURN = r"""
domains:
  description: The guests, by name; a part of what M(corral.virt.virt_domain_info) returns.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: Name., type: str, returned: always}
    uuid: {description: UUID., type: str, returned: always}
    state: {description: 'V(running), V(paused), V(shutdown) or V(crashed).', type: str, returned: always}
    autostart: {description: Whether it starts with its host., type: bool, returned: always}
    tags: {description: Tags., type: list, elements: str, returned: always}
    vcpus: {description: 'C(current) and C(maximum).', type: dict, returned: always}
    cpu_percent: {description: Processor time in the last second., type: float, returned: with O(load)}
    memory: {description: 'C(current_mib) and C(maximum_mib).', type: dict, returned: always}
    disks: {description: Disks with target and size., type: list, elements: dict, returned: always}
    interfaces: {description: Network interfaces., type: list, elements: dict, returned: always}
    graphics: {description: Displays and their commands., type: list, elements: dict, returned: always}
    console_command:
      description: Command that opens the serial console.
      type: str
      returned: when it runs and has one
    addresses: {description: Known IP addresses., type: list, elements: str, returned: always}
    snapshots:
      description: C(count), and C(oldest_age_s), the age of the oldest in seconds, which is null without snapshots.
        M(corral.virt.virt_snapshot_info) returns all about them.
      type: dict
      returned: always
      sample: {count: 3, oldest_age_s: 777600}
    backup:
      description: When M(corral.virt.virt_backup) has last made a backup that has all of the guest (C(age_s), in
        seconds), when M(corral.virt.virt_prove) has last proven one on its hypervisor (C(proven_age_s)), and how old
        they may be by tags such as C(backup-24h) and C(proven-7d) (C(every_s), C(proven_every_s)); each is null without
        one. C(late) is true if one is older or missing.
      type: dict
      returned: always
      sample: {age_s: 7200, proven_age_s: 172800, every_s: 86400, proven_every_s: 604800, late: false}
    ha:
      description:
        - C(mode), C(priority) and C(group) of O(corral.virt.virt_domain#module:ha), with which another host runs the
          guest when its host is dead. V(null) for a guest that is not protected.
        - C(kept) is what C(corral-keep) has noted on the host, and null if its definition is not kept, or with a remote
          connection; the C(directory) of the definition; its C(owner), the only host that may start it; the
          C(resource) of Pacemaker, empty if the playbook recover starts it; why it is not kept, or must not be here
          (C(problem)); and the last owners (C(history)), each with C(at), C(from), C(to) and C(why).
      type: dict
      returned: always
      sample:
        mode: restart
        priority: 100
        group: shop
        kept:
          directory: /srv/vms
          owner: hyper1 since 2026-11-30T07:00:00Z (recovered from hyper2)
          resource: ""
          problem: ""
          history: [{at: "2026-11-30T07:00:00Z", from: hyper2, to: hyper1, why: recovered from hyper2}]
    unfinished: {description: Whether an interrupted run left its disks incomplete., type: bool, returned: always}
    moving:
      description: Destination host of the guest while a migration record exists; otherwise null.
      type: str
      returned: always
    moving_from: {description: UUID of the source host of that migration., type: str, returned: always}
similar:
  description: Names of guests that are similar to those in O(names) that do not exist on this host.
  returned: success
  type: list
  elements: str
host:
  description: C(cpus), C(cpu_percent), C(memory_mib), and C(memory_used_mib), the memory that its running guests may
    use.
  returned: with O(load)
  type: dict
steps:
  description: Addresses that were recorded, or in check mode would be recorded.
  returned: success
  type: list
  elements: str
read_only:
  description: Whether the user may read libvirt but not write, so that nothing was recorded.
  returned: success
  type: bool
notes:
  description: Recorded addresses that now belong to another guest; also shown as warnings.
  returned: success
  type: list
  elements: str
"""

import contextlib

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._guest import run_query
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened

OPTIONS = {
    **URI_OPTION,
    "names": {"type": "list", "elements": "str"},
    "load": {"type": "bool", "default": False},
    "wait_timeout": {"type": "int", "default": 3},
}


def main() -> None:
    """Open, record, read, tell."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    params, gate, read_only = module.params, Gate(check_mode=module.check_mode), False
    with failures(module), contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(opened(params["uri"]))
        except Failed:  # where this user may not even read, the next line says why
            connection, read_only = stack.enter_context(opened(params["uri"], readonly=True)), True
        search = run_query.Search(params["names"], params["wait_timeout"])
        result = run_query.guests(connection, search, None if read_only else gate, load=params["load"])
    for note in result["notes"]:
        module.warn(note)
    module.exit_json(**result, read_only=read_only)


if __name__ == "__main__":
    main()
