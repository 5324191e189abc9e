#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start guests, shut them down, and what lies between."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_state
short_description: Start, pause, shut down and reboot guests
version_added: 0.1.0
description:
  - Brings existing guests to a state. Changes nothing else about them.
  - Does the same as option C(state) of M(corral.virt.virt_domain) and takes half the time, but looks only at the host
    on which it runs. A guest that this host does not have is an error.
  - The module checks all options of all guests before it changes anything. After that, a guest that fails does not stop
    the others.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
options:
  domains:
    description: The guests.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the guest, also one that M(corral.virt.virt_domain) does not accept for a new guest.
        type: str
        required: true
      uuid:
        description: UUID of the guest. If the guest with this UUID has another name, the module does not change it and
          reports a failure.
        type: str
      state:
        description:
          - V(running) starts the guest or resumes a paused one. V(paused) pauses it, and starts one that is off as
            paused.
          - V(shutdown) asks the guest to shut down (by ACPI, then by its agent). V(destroyed) powers it off at once,
            without a shutdown.
          - V(rebooted) and V(reset) take effect each time the task runs.
        type: str
        required: true
        choices: [running, paused, shutdown, destroyed, rebooted, reset]
      force:
        description: Power off a guest that does not shut down within O(domains[].wait_timeout), or reset one that does
          not reboot. Also discard a guest that crashed and is preserved.
        type: bool
        default: false
      wait:
        description: Wait until a shutdown or reboot is complete. V(false) only requests it.
        type: bool
        default: true
      wait_timeout:
        description: Seconds to wait for a shutdown or a reboot, at least 1.
        type: int
        default: 300
  at_once:
    description: Number of guests to process at the same time. Raise it if the module waits for guests, for example
      while they shut down.
    type: int
    default: 1
seealso:
  - module: corral.virt.virt_domain
  - module: corral.virt.virt_state_info
"""

EXAMPLES = r"""
- name: Start two guests
  corral.virt.virt_state:
    domains:
      - {name: web1, state: running}
      - {name: web2, state: running}

- name: Shut guests down in parallel, and power off those that are not off after a minute
  corral.virt.virt_state:
    domains:
      - {name: web1, state: shutdown, wait_timeout: 60, force: true}
      - {name: web2, state: shutdown, wait_timeout: 60, force: true}
    at_once: 10
"""

RETURN = r"""
results:
  description: One entry per guest, in the given order, with C(name), C(changed), C(steps) and C(diff); C(failed) and
    C(msg) for a guest that failed.
  returned: always
  type: list
  elements: dict
steps:
  description: Steps that were done for all guests, in order.
  returned: always
  type: list
  elements: str
"""

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._guest import run_guests, run_power
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened

OPTIONS = {
    **URI_OPTION,
    "at_once": {"type": "int", "default": 1},
    "domains": {"type": "list", "elements": "dict", "required": True, "options": run_power.OPTIONS},
}


def main() -> None:
    """Check all, then converge each; one result for all."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    at_once = module.params["at_once"]
    with failures(module):
        wanted = run_power.all_wanted(module.params["domains"], at_once)
        gate = Gate(check_mode=module.check_mode)
        with opened(module.params["uri"], events=True) as connection:
            results = run_guests.each(wanted, lambda one: run_power.converge(connection, one, gate), at_once=at_once)
    summary = run_guests.summary(results)
    if "msg" in summary:
        module.fail_json(**summary)
    module.exit_json(**summary)


if __name__ == "__main__":
    main()
