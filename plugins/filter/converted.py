# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arguments of a playbook that no result shows."""

from __future__ import annotations

DOCUMENTATION = r"""
name: converted
short_description: Convert the arguments of a playbook
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Converts arguments as M(corral.virt.virt_arguments) does, for arguments that it withholds because they may hold
    secrets. Fails for a value that cannot be converted.
positional: _input, action
options:
  _input:
    description: Checked arguments, as they were given.
    type: dict
    required: true
  action:
    description: The playbook.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Count the options in domain
  ansible.builtin.debug:
    msg: "{{ ({'domain': domain} | corral.virt.converted('create')).domain | length }}"
"""

RETURN = r"""
_value:
  description: The same arguments, converted.
  type: dict
"""

import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils import _actions, _arguments


class FilterModule:
    """The filter of the same name."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Filters by name."""
        return {"converted": converted}


def converted(given: t.Mapping[str, t.Any], action: str) -> dict[str, t.Any]:
    """Arguments of an action, of their types."""
    values = _arguments.converted(_actions.action(action), given)
    return {name: values[name] for name in given}
