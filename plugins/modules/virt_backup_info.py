#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the backups in a repository, and check them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_backup_info
short_description: Read the backups in a repository, and check them
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns the guests in a repository that M(corral.virt.virt_backup) has made, each with its points, what they take,
    and what they stand on. Guests that exist no longer are among them.
  - Damaged and interrupted points are warnings, and guests of the host whose backup is missing or too old (O(every)),
    or whose last proven restore is (O(proven)).
  - Sizes of files are checked always, and their SHA-256 with O(verify).
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.info
options:
  repository:
    description: Directory of the repository.
    type: path
    required: true
  guests:
    description: Names or UUIDs of guests. Without it, all. The module fails if neither the repository nor the host has
      one of them.
    type: list
    elements: str
  missing_ok:
    description: Do not fail for guests that are not known here, since another host may have them. They are in
      RV(missing).
    type: bool
    default: false
  tag:
    description: Only guests that have this tag in their last point.
    type: str
  at:
    description: A time such as V(2026-11-25T03:00:00Z). Later points are left out, so the last point of each guest is
      that which M(corral.virt.virt_restore) restores for this time. A time without an offset is UTC. Not with
      O(every) and O(proven).
    type: str
  needs:
    description: Also return what each guest needs of its host, from the definition in its last point.
    type: bool
    default: false
  verify:
    description: Read all files, and compare them with their SHA-256. A point is also damaged if one that it stands on
      is.
    type: bool
    default: false
  every:
    description: How old the last backup of each guest of the host may be, such as V(24h) or V(7d).
    type: str
  proven:
    description: How old the last restore of each guest of the host may be that M(corral.virt.virt_prove) has proven,
      such as V(7d).
    type: str
seealso:
  - module: corral.virt.virt_backup
  - module: corral.virt.virt_prove
  - module: corral.virt.virt_restore
"""

EXAMPLES = r"""
- name: Check all backups of the host's guests
  corral.virt.virt_backup_info:
    repository: /srv/backup
    verify: true
    every: 24h
    proven: 7d
  register: found

- name: Be red if one is damaged, missing or too old
  ansible.builtin.assert:
    that: found.problems | length == 0
    fail_msg: "{{ found.problems | join('\n') }}"
"""

RETURN = r"""
guests:
  description: The guests, by name.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: Its name at its last point., type: str, returned: always}
    uuid: {description: Its UUID., type: str, returned: always}
    last: {description: ID of its last point., type: str, returned: always}
    host: {description: UUID of the host on which that was made., type: str, returned: always}
    needs:
      description: C(vcpus), C(memory_mib), C(interfaces), each with C(bridge) or C(network), and C(tags); none if the
        definition of its last point cannot be read.
      type: dict
      returned: with O(needs)
    age_s: {description: How many seconds ago that was., type: int, returned: always}
    stored_bytes: {description: What all of its points take., type: int, returned: always}
    chain: {description: How many points its last one needs; 1 if it holds all., type: int, returned: always}
    full_reason: {description: Why all of its disks was copied the last time., type: str, returned: always}
    proven:
      description: Its last proven restore, with C(point) and the keys of C(points[].proof); none without one.
      type: dict
      returned: always
    points:
      description: Its points, oldest first.
      type: list
      elements: dict
      returned: always
      contains:
        id: {description: ID of the point., type: str, returned: always}
        guest: {description: The guest's name then., type: str, returned: always}
        created: {description: "When it was made, in UTC.", type: str, returned: always}
        age_s: {description: How many seconds ago that was., type: int, returned: always}
        running: {description: Whether the guest ran., type: bool, returned: always}
        quiesced: {description: Whether its agent had frozen the filesystems., type: bool, returned: always}
        stored_bytes: {description: What the files of its disks take., type: int, returned: always}
        restorable: {description: Whether no problem is known., type: bool, returned: always}
        problems: {description: Why it cannot be restored., type: list, elements: str, returned: always}
        proof:
          description: How its last restore went that was to prove it; none if there was none.
          type: dict
          returned: always
          contains:
            at: {description: "When it ended, in UTC.", type: str, returned: always}
            age_s: {description: How many seconds ago that was., type: int, returned: always}
            ok: {description: Whether the guest gave its evidence., type: bool, returned: always}
            evidence: {description: "What that was: agent, login or probe.", type: str, returned: always}
            seconds: {description: How long after its start it gave the evidence., type: float, returned: always}
            why: {description: Why it is no proof., type: str, returned: always}
        disks:
          description: Its disks, each with C(target), C(size_bytes), C(stored_bytes), C(reason) why all of it was
            copied, C(parent), the ID of the point below, and C(depth), the number of points that it stands on.
          type: list
          elements: dict
          returned: always
problems: {description: What to see to; also shown as warnings., returned: success, type: list, elements: str}
missing: {description: Those of O(guests) that are not known here., returned: success, type: list, elements: str}
"""

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._backup import run_backup_info
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened

OPTIONS = {
    **URI_OPTION,
    "repository": {"type": "path", "required": True},
    "guests": {"type": "list", "elements": "str"},
    "missing_ok": {"type": "bool", "default": False},
    "tag": {"type": "str"},
    "at": {"type": "str"},
    "needs": {"type": "bool", "default": False},
    "verify": {"type": "bool", "default": False},
    "every": {"type": "str"},
    "proven": {"type": "str"},
}


def main() -> None:
    """Open, read, tell."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    with failures(module):
        with opened(module.params["uri"], readonly=True) as connection:
            found = run_backup_info.read(connection, module.params)
        for problem in found["problems"]:
            module.warn(problem)
        module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
