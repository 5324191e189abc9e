#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prove that backups can be restored."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_prove
short_description: Prove that backups can be restored
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Restores the newest point of a guest, which M(corral.virt.virt_backup) has made, to a temporary guest, starts it,
    waits until it gives evidence that it works, and removes it. How it went is recorded in the repository, beside the
    point.
  - Before, the SHA-256 of each file that the point needs is checked. Each restored disk is compared with the point.
  - The temporary guest C(corral-proof-XXXXXXXX) has another UUID and other MAC addresses, and reaches nothing. All of
    its interfaces are on a network of its own, whose bridge is down, so that no frame leaves it. Host devices, shared
    directories, channels, displays, media of drives and options that libvirt passes to QEMU unseen are left out.
    Autostart is off.
  - The guest, its network and its disks are removed in the end, whether it worked or not. What a killed run has left is
    removed by the next one, which knows it by a record in its definition.
  - A proof is an act. The same task proves again.
  - One run at a time proves backups on a host. This module must run on the host, where the repository is mounted.
options:
  repository:
    description: Directory of the repository.
    type: path
    required: true
  guests:
    description: Names or UUIDs of guests in the repository, which need not be on this host. Without it, a sample
      (O(sample)) of the guests of this host that have a backup.
    type: list
    elements: str
  sample:
    description: How many guests to choose. First those whose last proof is missing or oldest, and of these by name.
    type: int
    default: 1
  evidence:
    description:
      - What shows that the restored guest works. V(agent) is an answer of its guest agent, V(login) a login prompt on
        its serial console, and V(probe) that O(probe) succeeds.
      - By default V(probe) with O(probe), else V(agent) if its definition has a channel for that, else V(login).
    type: str
    choices: [agent, login, probe]
  probe:
    description: A shell command on this host, which is run as root again and again until it succeeds. In its
      environment, E(CORRAL_GUEST) and E(CORRAL_UUID) are name and UUID of the temporary guest, and E(CORRAL_OF) is the
      name of the original. It reaches the guest by its agent or its console, not by the network.
    type: str
  timeout:
    description: Seconds to wait for a guest that does nothing, and seconds of CPU that one at work may use.
    type: int
    default: 600
  pool:
    description: Directory pool for the disks. By default a pool with room among those of their directories, else
      V(default).
    type: str
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
seealso:
  - module: corral.virt.virt_backup
  - module: corral.virt.virt_backup_info
  - module: corral.virt.virt_restore
"""

EXAMPLES = r"""
- name: Prove the backups of two guests, other ones each time
  corral.virt.virt_prove:
    repository: /srv/backup
    sample: 2

- name: Prove that the database of a guest starts
  corral.virt.virt_prove:
    repository: /srv/backup
    guests: [db1]
    probe: /usr/local/sbin/ask-the-agent-of-db1 "$CORRAL_GUEST" # your own script on the hypervisor
"""

RETURN = r"""
results:
  description: Result of each guest.
  returned: always
  type: list
  elements: dict
  contains:
    name: {description: Name of the guest., type: str, returned: always}
    uuid: {description: Its UUID., type: str, returned: always}
    point: {description: ID of the point., type: str, returned: always}
    evidence: {description: What was waited for., type: str, returned: always}
    seconds: {description: How long after its start the guest gave the evidence., type: float, returned: always}
    changed: {description: Whether anything was done., type: bool, returned: always}
    steps: {description: Steps that were done., type: list, elements: str, returned: always}
    notes: {description: "What was left out, for instance.", type: list, elements: str, returned: always}
    failed: {description: Present if it is no proof., type: bool, returned: failure}
    msg: {description: Why it is none., type: str, returned: failure}
steps:
  description: Steps that were done, or in check mode would be.
  type: list
  elements: str
  returned: always
notes: {description: Additional notes; also shown as warnings., type: list, elements: str, returned: always}
"""

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._backup import run_prove
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._system.detached import detach

OPTIONS = {
    **URI_OPTION,
    "repository": {"type": "path", "required": True},
    "guests": {"type": "list", "elements": "str"},
    "sample": {"type": "int", "default": 1},
    "evidence": {"type": "str", "choices": ["agent", "login", "probe"]},
    "probe": {"type": "str"},
    "timeout": {"type": "int", "default": 600},
    "pool": {"type": "str"},
}


def main() -> None:
    """Entry point."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    result: dict[str, t.Any] = {"notes": []}
    with failures(module):
        detach("virt_prove")
        with opened(module.params["uri"]) as connection:
            result = run_prove.converge(connection, module.params, Gate(check_mode=module.check_mode))
    module.end(result)


if __name__ == "__main__":
    main()
