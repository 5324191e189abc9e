# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""An object that exists, made by whomever: as data, and as the options of its module that describe it."""

from __future__ import annotations

import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._front.noun_options import argument_spec, fields
from ansible_collections.corral.virt.plugins.module_utils._model.noun import Found
from ansible_collections.corral.virt.plugins.module_utils._noun.words import Words
from ansible_collections.corral.virt.plugins.module_utils._plan.problems import Problems
from ansible_collections.corral.virt.plugins.module_utils._xml.options import as_options
from ansible_collections.corral.virt.plugins.module_utils._xml.row import values

__all__ = ["arguments", "describe"]


def describe(words: Words, name: str, found: Found) -> dict[str, t.Any]:
    """One object as data, in the words of the options: what runs where it runs."""
    return {
        "name": name,
        "uuid": found.uuid,
        "persistent": found.persistent,
        **as_options(words.table, values(found.live_xml or found.xml, words.table)),
        "active": found.active,
        "autostart": found.autostart,
    }


def arguments(words: Words, name: str, found: Found) -> dict[str, t.Any]:
    """The options that describe the definition; said to it they change nothing.

    What no option can say is left out, and so left alone.
    """
    state = "active" if found.active else "inactive"
    given = {"name": name, "state": state, "autostart": found.autostart}
    said = as_options(words.options, values(found.xml, words.table))
    if _accepted(words, {**given, **said}):
        return {**given, **said}
    for option, value in said.items():
        if _accepted(words, {**given, option: value}):
            given[option] = value
    return given


def _accepted(words: Words, given: t.Mapping[str, t.Any]) -> bool:
    result, problems = ArgumentSpecValidator(argument_spec(words)).validate(dict(given)), Problems()
    if not result.error_messages:
        fields(words, result.validated_parameters, problems)
    return not result.error_messages and not problems.found
