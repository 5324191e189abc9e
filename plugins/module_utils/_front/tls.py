# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Options of `virt_tls` and what they mean, for the module on the host and the action on the controller."""

from __future__ import annotations

import datetime
import typing as t

from ansible.module_utils.basic import env_fallback

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._model.tls import IDENTITIES, Wanted, check_names
from ansible_collections.corral.virt.plugins.module_utils._units import check_name

__all__ = ["OPTIONS", "wanted"]

OPTIONS: dict[str, t.Any] = {
    "name": {"type": "str"},
    "names": {"type": "list", "elements": "str"},
    "identities": {"type": "list", "elements": "str", "choices": list(IDENTITIES), "default": list(IDENTITIES)},
    "ca_dir": {"type": "path", "default": "~/.config/corral/ca", "fallback": (env_fallback, ["CORRAL_VIRT_CA_DIR"])},
    "controller": {"type": "bool", "default": False},
    "days": {"type": "int", "default": 365},
    "renew_before": {"type": "int", "default": 30},
    "force": {"type": "bool", "default": False},
    "replace_authority": {"type": "bool", "default": False},
    "pki_dir": {"type": "path", "default": "/etc/pki"},
    "qemu_group": {"type": "str"},
    "ca_certificate": {"type": "str"},
    "ca_key": {"type": "str", "no_log": True},
    "certificates": {"type": "dict"},
}


def wanted(params: t.Mapping[str, t.Any], *, group: t.Callable[[str | None], str | None]) -> list[Wanted]:
    """What the user said, one per identity; raises BadInput with every problem. `group` finds that of QEMU."""
    problems: list[str] = []
    names: tuple[str, ...] = ()
    try:
        check_name(params["name"], what="name")
    except BadInput as error:
        problems += error.problems
    try:
        names = check_names(params["names"] or [], what=f"names of {params['name']}")
    except BadInput as error:
        problems += error.problems
    if not 0 <= params["renew_before"] < params["days"]:
        problems.append(f"renew_before ({params['renew_before']}) must be less than days ({params['days']}), or each run would renew")
    if not params["identities"]:
        problems.append("identities: name at least one of " + ", ".join(IDENTITIES))
    if problems:
        raise BadInput(problems)
    return [
        Wanted(
            identity=IDENTITIES[name],
            common_name=params["name"],
            names=names,
            renew_before=datetime.timedelta(days=params["renew_before"]),
            group=group(params["qemu_group"]) if IDENTITIES[name].shared_key else "root",
            force=params["force"],
            replace_authority=params["replace_authority"],
        )
        for name in dict.fromkeys(params["identities"])
    ]
