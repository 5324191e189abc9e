# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts that every module shares: the connection, and what the modules promise."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragments of documentation; keep them in step with plugins/module_utils/_core/run_module.py."""

    DOCUMENTATION = r"""
options:
  uri:
    description:
      - libvirt connection URI, as seen from the machine on which the module runs.
    type: str
    default: qemu:///system
attributes:
  action_group:
    description: Use C(group/corral.virt.virt) in C(module_defaults) to set options for all modules that connect to
      libvirt.
    membership:
      - corral.virt.virt
    support: full
requirements:
  - libvirt 6.0 or later and its Python binding (C(python3-libvirt)) on the machine on which the module runs
  - C(python3-lxml) there
"""

    ATTRIBUTES = r"""
options: {}
attributes:
  check_mode:
    description: Predicts the result of a real run, and changes nothing.
    support: full
  diff_mode:
    description: Shows the fields that change, before and after; does not show XML.
    support: full
  platform:
    description: Linux with KVM or QEMU under libvirt.
    platforms: linux
    support: full
"""

    SEEN = r"""
options:
  seen:
    description:
      - Carry out only the plan that was reviewed. This is the RV(ignore:seen) that an earlier run of the same task
        returned, usually one in check mode.
      - If the object, or what is to be done to it, is not as it was then, the task is refused and nothing is changed.
    type: str
"""

    INFO = r"""
options: {}
attributes:
  check_mode:
    description: The module only reads.
    support: full
  diff_mode:
    description: Nothing changes, so there is nothing to show.
    support: N/A
  platform:
    description: Linux with KVM or QEMU under libvirt.
    platforms: linux
    support: full
"""
