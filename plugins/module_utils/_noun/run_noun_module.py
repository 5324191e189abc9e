# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module of a noun."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import Module, failures
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._noun import run_noun
from ansible_collections.corral.virt.plugins.module_utils._noun.libvirt_api import ObjectApi
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun_stages import Noun


def run(noun: Noun, api: ObjectApi, options: t.Mapping[str, t.Any]) -> None:
    """Be the module of a noun."""
    module = Module(argument_spec=options, supports_check_mode=True)
    with failures(module):
        with opened(module.params["uri"]) as connection:
            result = run_noun.converge(connection, noun, api, module.params, Gate(check_mode=module.check_mode))
    for note in result["notes"]:
        module.warn(note)
    module.exit_json(**result)
