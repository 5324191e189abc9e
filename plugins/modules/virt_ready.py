#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_ready
short_description: Wait until a guest that boots can be logged in to
version_added: 0.1.0
description:
  - Runs on the guest. Connects to it again and again, as M(ansible.builtin.wait_for_connection) does, and looks at it
    on its hypervisor meanwhile.
  - A fixed number of seconds is too few on a busy host and too many for a guest that hangs. So a guest that is at work
    has more time than O(timeout), until it has used as many seconds of CPU. It is at work while it uses at least a
    twentieth of a processor or reads from its disks.
  - A guest that powers off, or is paused for a minute, is not waited for. If the time is over, the message tells what
    the guest has done since its start, the last lines of its console, and what SSH says.
  - In check mode, the task is skipped.
author:
  - corral.virt contributors (@corral-virt)
attributes:
  check_mode:
    description: Skipped in check mode, as the guest may not exist.
    support: none
  diff_mode:
    description: Nothing changes, so there is nothing to show.
    support: N/A
  action:
    description: Logs in to the guest from the controller, and runs M(corral.virt.virt_domain_info) on its hypervisor.
    support: full
options:
  name:
    description: Name of the guest on its hypervisor.
    type: str
    required: true
  hypervisor:
    description: Inventory name of its hypervisor.
    type: str
    required: true
  timeout:
    description: Seconds to wait for a guest that does nothing, and seconds of CPU that one at work may use. At least 1.
    type: int
    default: 600
  uri:
    description: Connection URI of libvirt on the hypervisor.
    type: str
    default: qemu:///system
seealso:
  - module: ansible.builtin.wait_for_connection
  - module: corral.virt.virt_domain_info
"""

EXAMPLES = r"""
- name: Wait until the guest can be logged in to # in a play for the guests that the inventory knows
  corral.virt.virt_ready:
    name: "{{ virt_name | default(inventory_hostname) }}"
    hypervisor: "{{ virt_hypervisor | default('hyper1') }}"
"""

RETURN = r"""
elapsed:
  description: Seconds that it took.
  returned: always
  type: int
observed:
  description: What the guest had done since its start when it was last looked at, as
    RV(corral.virt.virt_domain_info#module:domains[].observed).
  returned: when it was looked at
  type: dict
"""
