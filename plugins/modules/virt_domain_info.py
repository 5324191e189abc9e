#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read guests."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_domain_info
short_description: Read the guests of a host
version_added: 0.1.0
description:
  - Returns the state, addresses, disks, interfaces and displays of the guests of a host. With O(arguments), it also
    describes each guest as arguments of M(corral.virt.virt_domain).
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.info
options:
  name:
    description: Return only this guest. The list is empty if the host has no such guest.
    type: str
  addresses:
    description:
      - Sources of addresses, in addition to the addresses set in the guest's seed and those recorded when it was last
        seen. V(agent) and V(any) query the guest agent of every running guest, which takes seconds for each guest that
        does not answer.
    type: str
    choices: [none, lease, arp, agent, any]
    default: none
  arguments:
    description:
      - Also return the arguments of M(corral.virt.virt_domain) that describe each guest, derived from its definition,
        however it was created. V(minimal) omits the values that M(corral.virt.virt_domain) and libvirt set by default.
      - Applying these arguments to the guest changes nothing. If the guest does not exist, they create it again with
        its disks, which must exist. Settings that no option covers are in O(corral.virt.virt_domain#module:xml).
      - Secrets are omitted, and so is each device that would work without its secret, such as a display with a
        password. Displays without a password that are reachable from outside the host are omitted too.
      - Requires a connection with write access, because libvirt shows which devices have a secret only to those.
    type: str
    choices: ['false', 'true', minimal]
    default: 'false'
  uuid:
    description: With O(arguments), also return the UUID in them. Two guests of a host cannot have the same.
    type: bool
    default: false
  load:
    description: Also measure, for one second, the load of the host and its guests.
    type: bool
    default: false
  observe:
    description: Also return what each running guest has done since its start, and the last lines of a console that is
      written to a file. This tells a guest that boots slowly from one that hangs.
    type: bool
    default: false
seealso:
  - module: corral.virt.virt_domain
  - module: corral.virt.virt_host_info
  - module: corral.virt.virt_state_info
"""

EXAMPLES = r"""
- name: Read all guests of the host
  corral.virt.virt_domain_info:
  register: found

- name: Read one guest, with its addresses
  corral.virt.virt_domain_info:
    name: web1
    addresses: any

- name: Measure the load of the guests
  corral.virt.virt_domain_info:
    load: true

- name: Read a guest that was created by hand
  corral.virt.virt_domain_info:
    name: desk
    arguments: minimal
  register: desk

- name: Save its arguments in a file
  ansible.builtin.copy:
    content: "{{ desk.domains[0].arguments | ansible.builtin.to_nice_yaml }}"
    dest: desk.yml
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
clock: {description: "The host's time, in seconds since 1970.", returned: success, type: float}
domains:
  description: The guests, by name.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: Name., type: str, returned: always}
    uuid: {description: UUID., type: str, returned: always}
    state: {description: 'V(running), V(paused), V(shutdown) or V(crashed).', type: str, returned: always}
    persistent: {description: Whether a definition is stored., type: bool, returned: always}
    autostart: {description: Whether it starts when the host starts., type: bool, returned: always}
    tags: {description: Tags., type: list, elements: str, returned: always}
    vcpus: {description: 'C(current) and C(maximum).', type: dict, returned: always}
    cpu_percent:
      description: Utilisation of its vCPUs, including the work of its devices. Null for a guest that is off, or if
        libvirt does not report it.
      type: float
      returned: with O(load)
    memory: {description: 'C(current_mib) and C(maximum_mib).', type: dict, returned: always}
    disks:
      description: Disks; C(capacity_bytes) is the size that the guest sees, C(physical_bytes) the space used on the
        host.
      type: list
      elements: dict
      returned: always
    interfaces: {description: Network interfaces., type: list, elements: dict, returned: always}
    graphics:
      description:
        - Displays with C(type), C(listen) and C(port). C(connect) contains the commands that open the display from the
          controller, such as C(ssh -L 5901:127.0.0.1:5900 hyper2) and C(vncviewer localhost:5901); it is absent if
          nothing listens.
      type: list
      elements: dict
      returned: always
    console: {description: Whether it has a serial console that C(virsh console) opens., type: bool, returned: always}
    console_command:
      description: Command that opens the serial console from the controller.
      type: str
      returned: when it runs and has one
      sample: ssh -t root@hyper2 virsh --connect qemu:///system console web1
    observed:
      description: What the guest has done since its start; null is what libvirt cannot tell.
      type: dict
      returned: with O(observe), when it runs
      contains:
        cpu_s: {description: 'CPU time that its vCPUs used, in seconds.', type: float, returned: always}
        disk_reads: {description: Number of reads from its disks., type: int, returned: always}
        packets_sent: {description: Number of packets that it sent., type: int, returned: always}
        agent: {description: 'C(connected), C(disconnected), or null without a channel.', type: str, returned: always}
        console: {description: Last lines of its console., type: list, elements: str, returned: always}
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
    ssh_host_key: {description: Public SSH host key that was created with the seed., type: str, returned: always}
    arguments:
      description: Arguments of M(corral.virt.virt_domain) that describe the guest. Null if its definition cannot be
        read; RV(domains[].not_imported) says why.
      type: dict
      returned: with O(arguments)
    withheld_arguments:
      description: Arguments that need a secret, such as C(graphics) of a display with a password, without the secret.
      type: dict
      returned: with O(arguments)
    not_imported:
      description: What the arguments do not describe, with C(path), an XPath in the definition, and C(why). C(option)
        is the argument in RV(domains[].withheld_arguments) that describes it once its secret is set.
      type: list
      elements: dict
      returned: with O(arguments)
      sample: [{path: /domain/devices/graphics, why: "it has a password, and would be open without it"}]
    unfinished: {description: Whether an interrupted run left its disks incomplete., type: bool, returned: always}
    moving:
      description: Destination host of the guest while a migration record exists; otherwise null.
      type: str
      returned: always
    moving_from: {description: UUID of the source host of that migration., type: str, returned: always}
host:
  description: The host; C(cpus), C(cpu_percent) (their utilisation; null if libvirt does not report it), C(memory_mib),
    and C(memory_used_mib), the memory that its running guests may use.
  returned: with O(load)
  type: dict
"""

import functools
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_import, run_describe, run_host_load
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_arguments import imported
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._power import libvirt_wait

OPTIONS = {
    **URI_OPTION,
    "name": {"type": "str"},
    "arguments": {"type": "str", "choices": ["false", "true", "minimal"], "default": "false"},
    "uuid": {"type": "bool", "default": False},
    "load": {"type": "bool", "default": False},
    "observe": {"type": "bool", "default": False},
    "addresses": {"type": "str", "choices": ["none", "lease", "arp", "agent", "any"], "default": "none"},
}


def described(connection: t.Any, guest: t.Mapping[str, t.Any], params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """A guest as arguments; one that cannot be described says why, and hides no other."""
    try:
        domain = libvirt_query.by_uuid(connection, guest["uuid"])
        xml = libvirt_query.definition(domain, secrets=True)
        least = params["arguments"] == "minimal"
        description = imported(xml, autostart=guest["autostart"], least=least, uuid=params["uuid"])
        snapshots = plan_import.of_snapshots([name for name, _xml in libvirt_query.snapshots(domain)])
    except VirtError as error:
        return {"arguments": None, "withheld_arguments": {}, "not_imported": [{"path": "/domain", "why": str(error)}]}
    return {
        "arguments": description.arguments,
        "withheld_arguments": description.withheld,
        "not_imported": [*description.not_imported, *snapshots],
    }


def observed(connection: t.Any, guest: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What a running guest has done; nothing of one that is off."""
    seen = libvirt_wait.observe(connection, guest["name"], guest["uuid"]) if guest["state"] == "running" else None
    if seen is None or seen.unseen:
        return {}
    fields = ("cpu_s", "disk_reads", "packets_sent", "agent", "console")
    return {"observed": {name: getattr(seen, name) for name in fields}}


def main() -> None:
    """Open, read, tell."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    names = None if module.params["name"] is None else {module.params["name"]}
    more: dict[str, t.Any] = {}
    with failures(module):
        writes = module.params["addresses"] in ("agent", "any") or module.params["arguments"] != "false"
        with opened(module.params["uri"], readonly=not writes) as connection:
            describes = functools.partial(run_describe.describe_guests, addresses=module.params["addresses"])
            if module.params["load"]:  # the host's memory is used by all of its guests
                found, more["host"] = run_host_load.measured(connection, lambda: describes(connection))
                found = [guest for guest in found if names is None or guest["name"] in names]
            else:
                found = describes(connection, names=names)
            for guest in found if module.params["observe"] else ():
                guest.update(observed(connection, guest))
            for guest in found if module.params["arguments"] != "false" else ():
                guest.update(described(connection, guest, module.params))
    module.exit_json(changed=False, clock=time.time(), domains=found, **more)


if __name__ == "__main__":
    main()
