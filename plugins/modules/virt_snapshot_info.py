#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the snapshots of guests."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_snapshot_info
short_description: Read the snapshots of guests
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns the snapshots of guests as a tree, with what they take and what deleting each of them merges, whoever has
    made them.
  - Snapshots that are older than a week, interrupted deletions, and filesystems that snapshots fill are warnings.
  - Sizes are of files of the host on which the module runs.
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.info
options:
  guests:
    description: Names of guests. Without it, all guests of the host that have snapshots.
    type: list
    elements: str
  missing_ok:
    description: Do not fail for guests that the host does not have, since another host may have them. They are in
      RV(missing).
    type: bool
    default: false
seealso:
  - module: corral.virt.virt_snapshot
"""

EXAMPLES = r"""
- name: Read all snapshots of the host
  corral.virt.virt_snapshot_info:
  register: found

- name: Show them
  ansible.builtin.debug:
    msg: "{{ item.tree }}"
  loop: "{{ found.guests }}"
  loop_control:
    label: "{{ item.name }}"
"""

RETURN = r"""
guests:
  description: The guests, by name.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: Name of the guest., type: str, returned: always}
    uuid: {description: Its UUID., type: str, returned: always}
    tree: {description: The snapshots as a text for people., type: str, returned: always}
    snapshots:
      description: The snapshots, parents first.
      type: list
      elements: dict
      returned: always
      contains:
        name: {description: Name., type: str, returned: always}
        parent: {description: Name of the snapshot that it is based on., type: str, returned: always}
        depth: {description: Number of snapshots that it is based on., type: int, returned: always}
        current: {description: Whether the guest's present state is based on it directly., type: bool, returned: always}
        created: {description: "When it was taken, in UTC.", type: str, returned: always}
        age_s: {description: How many seconds ago that was., type: int, returned: always}
        description: {description: Its description., type: str, returned: always}
        state:
          description: State of the guest when it was taken. With V(disk-snapshot), the guest ran, and its memory is not
            stored.
          type: str
          returned: always
        kind: {description: "V(external), V(internal) or V(mixed).", type: str, returned: always}
        memory: {description: Whether memory is in it., type: bool, returned: always}
        scheduled:
          description: Whether M(corral.virt.virt_snapshot) has named it by its time.
          type: bool
          returned: always
        deleting: {description: Whether its deletion was interrupted., type: bool, returned: always}
        disks:
          description: Its disks, each with the file that the guest has written to since (C(path)), and what that
            is based on.
          type: list
          elements: dict
          returned: always
        files: {description: All files that are there for it., type: list, elements: str, returned: always}
        size_bytes: {description: Bytes that these take., type: int, returned: always}
        merge_bytes: {description: Bytes that deleting it merges., type: int, returned: always}
missing: {description: Those of O(guests) that the host does not have., returned: success, type: list, elements: str}
"""

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._snapshot import run_snapshot_info

OPTIONS = {
    **URI_OPTION,
    "guests": {"type": "list", "elements": "str"},
    "missing_ok": {"type": "bool", "default": False},
}


def main() -> None:
    """Open, read, tell."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    with failures(module):
        with opened(module.params["uri"], readonly=True) as connection:
            found = run_snapshot_info.read(connection, module.params["guests"], module.params["missing_ok"])
        for warning in found["warnings"]:
            module.warn(warning)
        module.exit_json(changed=False, guests=found["guests"], missing=found["missing"])


if __name__ == "__main__":
    main()
