# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""An object that exists, made by whomever, as the options of its module that describe it."""

from __future__ import annotations

import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._front.noun import argument_spec, spec
from ansible_collections.corral.virt.plugins.module_utils._model.noun import Found
from ansible_collections.corral.virt.plugins.module_utils._noun.noun import Noun
from ansible_collections.corral.virt.plugins.module_utils._xml import document
from ansible_collections.corral.virt.plugins.module_utils._xml.options import as_options

__all__ = ["arguments"]


def arguments(noun: Noun, name: str, found: Found) -> dict[str, t.Any]:
    """The options that describe the definition; said to it they change nothing.

    What no option can say is left out, and so left alone.
    """
    state = "active" if found.active else "inactive"
    given = {"name": name, "state": state, "autostart": found.autostart}
    words = as_options(noun.options, document.values(found.xml, noun.table))
    if _accepted(noun, {**given, **words}):
        return {**given, **words}
    for option, value in words.items():
        if _accepted(noun, {**given, option: value}):
            given[option] = value
    return given


def _accepted(noun: Noun, given: t.Mapping[str, t.Any]) -> bool:
    result = ArgumentSpecValidator(argument_spec(noun)).validate(dict(given))
    try:
        return not result.error_messages and bool(spec(noun, result.validated_parameters))
    except BadInput:
        return False
