# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An existing guest as arguments of `virt_domain`, checked by Ansible like the module's own."""

from __future__ import annotations

import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_import
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_import import Import, OptionCheck
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_options import GUEST_OPTIONS, wanted


def imported(xml: str, *, autostart: bool, least: bool = False, uuid: bool = False) -> Import:
    """The options that describe the guest of a definition, which includes its secrets.

    `least` leaves out what defaults give; `uuid` adds the UUID.
    """
    options = OptionCheck(_accepts, _spec)
    return plan_import.imported(xml, options, autostart=autostart, least=least, uuid=uuid)


def _accepts(given: t.Mapping[str, t.Any]) -> bool:
    result = ArgumentSpecValidator(GUEST_OPTIONS).validate(dict(given))
    try:
        return not result.error_messages and bool(wanted(result.validated_parameters))
    except BadInput:
        return False


def _spec(given: t.Mapping[str, t.Any]) -> GuestSpec:
    return wanted(ArgumentSpecValidator(GUEST_OPTIONS).validate(dict(given)).validated_parameters)
