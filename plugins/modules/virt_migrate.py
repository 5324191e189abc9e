#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest is on that host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_migrate
short_description: A running guest is on that host
version_added: 0.1.0
description:
  - Moves a running or paused guest to another hypervisor while it runs. Run it on the host that has the guest; a guest that is on O(dest)
    already is left alone.
  - The guest arrives paused, both hosts are looked at, and only then exactly one copy is let run. What libvirt returns decides nothing.
  - Disks on local storage travel too. When the image a disk stands on is on the destination under the same path, only the disk's own
    data travels. The disks on the source are removed after the guest was seen on the destination.
  - The migration goes from host to host; the controller may go away. Running the task again ends in the same state.
  - In check mode, both hosts are looked at and everything that speaks against the move is reported; the diff shows the host.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
options:
  name: {description: "Name of the guest.", type: str, required: true}
  dest: {description: "The destination's name or address, as the source reaches it and its certificate says.", type: str, required: true}
  dest_uri: {description: "The destination's libvirt as the source reaches it. V(qemu+tls://DEST/system) when not given.", type: str}
  transport:
    description:
      - How memory and disks travel. V(tls) is encrypted by QEMU and needs ports 49152-49215 on the destination.
      - V(tunnelled) goes through libvirt's own port 16514, for guests on shared storage. V(plain) is not encrypted.
    type: str
    choices: [tls, tunnelled, plain]
    default: tls
  storage:
    description:
      - V(auto) leaves disks on shared filesystems alone and copies the others, as little as possible.
      - V(shared) says that all disks are on shared storage; V(delta) refuses to copy what an image on the destination holds already;
        V(full) copies everything.
    type: str
    choices: [auto, shared, delta, full]
    default: auto
  bandwidth: {description: "Limit in MiB/s.", type: int}
  max_downtime: {description: "Longest pause at the end, in milliseconds; QEMU's own limit (300) when not given.", type: int}
  auto_converge: {description: "Slow down a guest that changes its memory faster than it can be sent.", type: bool, default: true}
  keep_source_storage: {description: "Keep the disks on the source after the guest has arrived.", type: bool, default: false}
  timeout: {description: "Abort after that many seconds; the guest then stays where it is.", type: int, default: 1800}
"""

EXAMPLES = r"""
- name: It moves to hyper2
  corral.virt.virt_migrate:
    name: web1
    dest: hyper2
  delegate_to: hyper1

- name: Gently, over one open port, on shared storage
  corral.virt.virt_migrate: {name: web1, dest: hyper2, transport: tunnelled, bandwidth: 50}
"""

RETURN = r"""
dest: {description: The destination., returned: success, type: str}
steps: {description: "What was done, or in check mode would be done, in order.", returned: success, type: list, elements: str}
disks:
  description: How each disk travels (C(how)) and C(why), with C(bytes_to_move).
  returned: when it moves
  type: list
  elements: dict
bytes_to_move: {description: "Bytes of disk that travel, as far as known before.", returned: when it moves, type: int}
bytes_sent: {description: Bytes of memory and disk that travelled., returned: when it moved, type: int}
seconds: {description: Duration of the migration., returned: when it moved, type: float}
downtime_ms: {description: Length of the pause as libvirt measured it., returned: when it moved, type: int}
passes: {description: Passes over the memory., returned: when it moved, type: int}
"""

import contextlib

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.corral.virt.plugins.module_utils._front import migrate
from ansible_collections.corral.virt.plugins.module_utils._front.module import URI_OPTION, failures
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._run import Gate


def main() -> None:
    """Parameters in, one guest moved, result out."""
    module = AnsibleModule(argument_spec={**URI_OPTION, **migrate.OPTIONS}, supports_check_mode=True)
    with failures(module), contextlib.ExitStack() as stack:
        source = stack.enter_context(opened(module.params["uri"]))
        ends = migrate.Ends(source, migrate.dest_uri(module.params), lambda uri: stack.enter_context(opened(uri)))
        result = migrate.converge(ends, module.params, Gate(check_mode=module.check_mode))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
