# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host would refuse of a guest's options, found on the controller. Pure.

A file of its own: whoever only sends guests to a host does not wait until the tables of all options are compiled.
"""

from __future__ import annotations

import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.parameters import remove_values

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import bounded
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._core.output import without_secrets
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_options import (
    GUEST_OPTIONS,
    spec_problems,
    wanted,
)
from ansible_collections.corral.virt.plugins.module_utils._xml import overlay
from ansible_collections.corral.virt.plugins.plugin_utils._guests import cloud_config, preparation

_VALIDATOR = ArgumentSpecValidator(GUEST_OPTIONS)


def problems(guest: t.Mapping[str, t.Any], variables: t.Mapping[str, t.Any]) -> list[str]:
    """All problems that a host would find in the guest's options; `variables` hold the profiles."""
    try:
        cloud_config.check(guest, warn=lambda _sentence: None)  # the action warns
        options = preparation.prepared(preparation.with_profiles(guest, variables))
    except ValueError as error:
        return [str(error)]
    result = _VALIDATOR.validate(bounded(GUEST_OPTIONS, options))
    found = list(spec_problems(result, GUEST_OPTIONS, str(options.get("name") or "a guest without a name")))
    if len(found) == len(result.unsupported_parameters):  # the others are of their types
        try:
            wanted(result.validated_parameters)
        except BadInput as error:
            found += error.problems
    hidden = {*result._no_log_values, *overlay.secrets(str(options.get("xml") or ""))}
    return [without_secrets(remove_values(one, hidden)) for one in found]
