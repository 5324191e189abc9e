# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: a survey that offers what there is."""

from __future__ import annotations

DOCUMENTATION = r"""
name: offered_choices
short_description: Offer hypervisors and images in a survey
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns a survey in which questions for an existing hypervisor or image have choices instead of free text. A
    question for several becomes one with several choices.
positional: _input
options:
  _input:
    description: The questions, as AWX has them.
    type: list
    elements: dict
    required: true
  playbook:
    description: Name of the playbook whose arguments the questions ask for.
    type: str
    required: true
  hypervisors:
    description: Names of the hypervisors. An empty list leaves the questions as they are.
    type: list
    elements: str
    default: []
  images:
    description: Names of the images. An empty list leaves the questions as they are.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Show the survey of a playbook with the hypervisors of the inventory
  ansible.builtin.debug:
    msg: "{{ questions | corral.virt.offered_choices(playbook='migrate', hypervisors=groups['hyper']) }}"
  vars:
    questions: [{variable: to, question_name: To, type: text, required: false}]
"""

RETURN = r"""
_value:
  description: The questions.
  type: list
  elements: dict
"""

import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._commands import surveys
from ansible_collections.corral.virt.plugins.plugin_utils._commands.provided_filters import provided


def offered_choices(
    questions: t.Iterable[surveys.Question],
    playbook: str,
    hypervisors: t.Iterable[str] = (),
    images: t.Iterable[str] = (),
) -> list[surveys.Question]:
    """The survey, with choices where there are any."""
    return surveys.offering(playbook, questions, {"hypervisor": list(hypervisors), "image": list(images)})


FilterModule = provided(offered_choices=offered_choices)
