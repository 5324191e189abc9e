#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of a hypervisor's kernel, and what it does with guests when it stops."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_tuning
short_description: Tune the kernel of a hypervisor
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Sets the kernel of a hypervisor now and at each start. The options are all that this module sets. What an earlier
    call has set and this one omits is removed from its files; the running kernel keeps such a value until the host is
    rebooted, and RV(pending) lists it.
  - Its files begin with a line that names the module. It refuses to replace a file of somebody else. In
    C(libvirt-guests)' file, it writes a marked block at the end.
  - It never reboots the host. If the running kernel lacks arguments, the result lists them, and the module writes
    C(/run/reboot-required), so that the playbook C(rolling_update) drains and reboots the host.
options:
  sysctl:
    description:
      - Settings of the kernel, by key as in C(sysctl), such as V(vm.swappiness). They are set now, and at each start by
        C(/etc/sysctl.d/90-corral-tuning.conf).
      - A key that the running kernel does not have, because its module is not loaded, is only set for the next start; a
        note tells it. Another note names a file that sets the key to another value later, and wins at the next start.
    type: dict
    default: {}
  hugepages:
    description:
      - Huge pages of memory, for guests that ask for them. They are taken now and at each start by
        C(/etc/tmpfiles.d/corral-tuning.conf); pages of 1 GiB and more by kernel arguments, too.
      - The module fails if the running kernel cannot take all of them, because the rest of its memory is in use or in
        pieces. They are then taken at the next start. Pages that leave the host less than 512 MiB are refused.
      - Pages of another size than the kernel's default get a mount for libvirt, C(/dev/hugepages1G).
    type: list
    elements: dict
    default: []
    suboptions:
      size:
        description: Size of a page, as the kernel has it, such as V(2M) or V(1G).
        type: str
        required: true
      count:
        description: Number of pages.
        type: int
        required: true
      node:
        description: NUMA node that the pages are of. By default, the kernel spreads them.
        type: int
  kernel_arguments:
    description:
      - Arguments of the kernel, such as V(intel_iommu=on), for all entries of the boot loader. Others stay as they are.
      - GRUB gets them by C(/etc/default/grub.d/90-corral-tuning.cfg) and C(update-grub), a host with C(grubby) by that,
        and systemd-boot by C(/etc/kernel/cmdline) and C(kernel-install). On other hosts they are refused.
    type: list
    elements: str
    default: []
  transparent_hugepages:
    description: When the kernel uses transparent huge pages. By default, this stays as it is.
    type: str
    choices: [always, madvise, never]
  ksm:
    description:
      - Whether the kernel shares equal pages of memory (KSM). By default, this stays as it is. V(false) shares no more
        pages; those that are shared stay so until they are written.
    type: bool
  cpu_governor:
    description: Governor of all processors, such as V(performance). A host without C(cpufreq) gets a note.
    type: str
  libvirt_guests:
    description:
      - What C(libvirt-guests.service) does with running guests when the host stops. By default, this stays as it is.
      - V(shutdown) - shuts guests down. When the host starts, libvirt starts those with autostart.
      - V(suspend) - saves their memory on disk, and starts them again when the host starts, also those without
        autostart. On a host in maintenance the hook of P(corral.virt.hypervisor#role) refuses that.
      - V(ignore) - nothing. Guests that run are then switched off when the host stops.
    type: str
    choices: [ignore, shutdown, suspend]
  libvirt_guests_timeout:
    description: Seconds in which all guests must shut down (O(libvirt_guests=shutdown)).
    type: int
    default: 300
  libvirt_guests_parallel:
    description: Number of guests that shut down at the same time (O(libvirt_guests=shutdown)).
    type: int
    default: 10
extends_documentation_fragment:
  - corral.virt.connection.attributes
attributes:
  diff_mode:
    description: Shows values that change, and the texts of files.
  platform:
    description: Linux with systemd.
seealso:
  - ref: corral.virt.tuning role <ansible_collections.corral.virt.tuning_role>
    description: Calls this module, installs packages, and exchanges SSH keys.
"""

EXAMPLES = r"""
- name: Swap late, and have pages for guests
  corral.virt.virt_tuning:
    sysctl:
      vm.swappiness: 0
    hugepages:
      - {size: 2M, count: 4096}
    transparent_hugepages: madvise

- name: Pass devices to guests, and shut guests down with the host
  corral.virt.virt_tuning:
    kernel_arguments: [intel_iommu=on, iommu=pt]
    libvirt_guests: shutdown

- name: Remove all of that
  corral.virt.virt_tuning:
"""

RETURN = r"""
steps:
  description: Steps that were done, or in check mode would be done.
  returned: success
  type: list
  elements: str
  sample:
    - write /etc/sysctl.d/90-corral-tuning.conf
    - set vm.swappiness to 0 now
reboot_needed:
  description: Arguments that the running kernel lacks.
  returned: success
  type: list
  elements: str
  sample: [intel_iommu=on]
pending:
  description: What waits for a reboot of the host.
  returned: success
  type: list
  elements: str
notes: {description: Additional notes; also shown as warnings., returned: success, type: list, elements: str}
"""

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import Module, failures
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._host.run_tuning import OPTIONS, converge


def main() -> None:
    """Entry point."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    result: dict[str, t.Any] = {"notes": []}
    with failures(module):
        result = converge(module.params, Gate(check_mode=module.check_mode))
    module.end(result)


if __name__ == "__main__":
    main()
