#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether guests can have disks in directories."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_writable
short_description: Check that guests can write in directories
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - In each directory, creates a small file as root, gives it to the user that runs QEMU, writes it as that user, and
    removes it, as libvirt and QEMU do with a disk. It finds an export with C(root_squash), a read-only filesystem, a
    directory that the user cannot enter, and a switch of SELinux that is off, before a guest does.
  - The module fails with all directories that guests cannot use, the reason of each, and what mends it.
  - A server that does not answer is given up after 30 seconds.
  - A full filesystem is only a warning.
options:
  paths:
    description: The directories, as absolute paths.
    type: list
    elements: str
    required: true
extends_documentation_fragment:
  - corral.virt.connection.attributes
attributes:
  check_mode:
    description: The module tries nothing, because that would write.
    support: partial
    details: In check mode it succeeds, and RV(tried) is empty.
  diff_mode:
    description: Nothing changes, so there is nothing to show.
    support: N/A
  platform:
    description: Linux with QEMU under libvirt. The module runs as root.
seealso:
  - module: corral.virt.virt_mounts
  - ref: corral.virt.storage role <ansible_collections.corral.virt.storage_role>
    description: Calls this module for pools on mounted filesystems.
"""

EXAMPLES = r"""
- name: Check that guests can have disks on the NFS server
  corral.virt.virt_writable:
    paths: [/srv/guests]
"""

RETURN = r"""
tried:
  description: Directories in which a file was written. Empty in check mode.
  returned: success
  type: list
  elements: str
notes: {description: Additional notes; also shown as warnings., returned: success, type: list, elements: str}
"""

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import Module, failures
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._core.uri import SYSTEM
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._storage.run_writable import OPTIONS, check


def main() -> None:
    """Entry point."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    result: dict[str, t.Any] = {"notes": []}
    with failures(module), opened(SYSTEM, readonly=True) as connection:
        result = check(connection, module.params, Gate(check_mode=module.check_mode))
    module.end(result)


if __name__ == "__main__":
    main()
