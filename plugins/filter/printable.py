# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: untrusted text, made printable."""

from __future__ import annotations

DOCUMENTATION = r"""
name: printable
short_description: Escape the control characters of a text
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns the value with every control character in its texts escaped, such as C(\\x1b) for an escape character. Line
    breaks and characters that change the text direction are escaped, too.
  - For messages that contain text from a guest, a host or a file.
positional: _input
options:
  _input:
    description: A text, or lists and dictionaries that hold texts.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Print the name that a host reports
  ansible.builtin.debug:
    msg: "{{ ansible_facts.hostname | corral.virt.printable }}"
"""

RETURN = r"""
_value:
  description: The same value with printable texts.
  type: raw
"""

from ansible_collections.corral.virt.plugins.plugin_utils._commands.provided_filters import provided
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable

FilterModule = provided(printable=printable)
