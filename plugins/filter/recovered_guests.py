# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: which guests of a dead hypervisor others can run."""

from __future__ import annotations

DOCUMENTATION = r"""
name: recovered_guests
short_description: Decide whether a hypervisor counts as dead, and which of its guests others can run
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns the protected guests that a dead hypervisor owns, the most important first, what other hosts cannot run, and
    why the hypervisor does not count as dead.
  - The playbook C(recover) uses it.
positional: _input, reached, arguments, fence, found
options:
  _input:
    description: Results of C(corral-keep show), by living hypervisor.
    type: dict
    required: true
  reached:
    description: Results of M(ansible.builtin.wait_for) for ports of the dead hypervisor, by the host that looked.
    type: dict
    required: true
  arguments:
    description: C(host), C(confirm_dead), C(fence), C(guests), C(from_backup) and C(gone) of the playbook.
    type: dict
    required: true
  fence:
    description: The variable C(virt_fence) of the dead hypervisor, with C(agent) and C(options).
    type: dict
    required: true
  found:
    description: Results of M(corral.virt.virt_backup_info) with its option C(needs) (C(backups)) and of
      M(corral.virt.virt_host_info) (C(hosts)), by living hypervisor, hypervisors that did not answer (C(silent)),
      those that C(--limit) excludes (C(hidden)), and whether the dead one is in the inventory (C(known)).
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Show what would be recovered
  ansible.builtin.debug:
    msg: "{{ shown | corral.virt.recovered_guests(reached, {'host': 'hyper2', 'confirm_dead': 'hyper2'}, {}) }}"
  vars:
    shown: {hyper1: "{{ hostvars.hyper1.shown }}"}
    reached: {hyper1: "{{ hostvars.hyper1.reached.results }}"}
"""

RETURN = r"""
_value:
  description: With C(guests), each with C(name), C(uuid), C(directory), C(of), C(host), C(defined), C(saved),
    C(priority) and C(place), the options for M(corral.virt.virt_place); with C(restored), the guests of
    C(from_backup), each with C(name), C(uuid), C(point), C(hosts) and C(place); with C(lost), texts about all guests
    that only the hypervisor had; with C(refused) for M(corral.virt.virt_place); with C(stays), texts about guests that
    are not recovered; with C(problems), texts that refuse all of it; with C(hosts) for M(corral.virt.virt_place),
    without old definitions of these guests; and with C(answers), whether the hypervisor does.
  type: dict
"""

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._commands import recovered_guests as _recovery
from ansible_collections.corral.virt.plugins.plugin_utils._commands.provided_filters import provided


def recovered_guests(
    shown: t.Mapping[str, t.Any],
    reached: t.Mapping[str, t.Any],
    arguments: t.Mapping[str, t.Any],
    fence: t.Mapping[str, t.Any],
    found: t.Mapping[str, t.Any] | None = None,
) -> dict[str, t.Any]:
    """The guests, where they cannot be, and problems."""
    recovery = _recovery.recovered(shown, reached, arguments, fence, found or {})
    # Results of modules are containers that ansible-core does not let others copy.
    return {**dataclasses.asdict(dataclasses.replace(recovery, hosts={})), "hosts": recovery.hosts}


FilterModule = provided(recovered_guests=recovered_guests)
