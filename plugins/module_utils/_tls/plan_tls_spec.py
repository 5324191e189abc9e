# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What a call says of a host's certificates, checked before anything is looked at. Pure."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems
from ansible_collections.corral.virt.plugins.module_utils._core.units import check_name
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import IDENTITIES, TrustFaults, check_names

__all__ = ["check_trust", "names"]

_MOST_DAYS = 900  # a quarter of a CA's life


def check_trust(faults: TrustFaults, *, what: str, now: datetime.datetime) -> None:
    """Raise BadInput for texts of an authority (`what`: the option of its certificates) that would not serve."""
    crl, end, problems = what.replace("certificate", "crl"), faults.crl_end, Problems()
    if faults.no_certificate:
        problems.found.append(f"{what}: it contains no certificate in PEM")
    for option, unreadable in ((what, faults.unreadable), ("retired_ca_certificates", faults.unreadable_retired)):
        if unreadable:
            problems.found.append(f"{option}: a certificate in it cannot be read")
    if faults.no_crl:
        problems.found.append(f"{crl}: not a list of revoked certificates in PEM")
    elif end is not None and end < now:
        problems.found.append(
            f"{crl}: it is valid until {end:%Y-%m-%d %H:%M} UTC, and libvirt refuses everybody after that; provide a "
            "newer one"
        )
    problems.refuse()


def names(params: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    """The other names and addresses of the host; raises BadInput with every problem of the call."""
    problems = Problems()
    problems.tried(lambda: check_name(params["name"], what="name"))
    found = problems.tried(lambda: check_names(params["names"] or [], what=f"names of {params['name']}"))
    if not 0 <= params["renew_before"] < params["days"]:
        problems.found.append(
            f"renew_before ({params['renew_before']}) must be less than days ({params['days']}), or each run would "
            "renew"
        )
    if params["days"] > _MOST_DAYS:
        problems.found.append(
            f"days ({params['days']}) must be at most {_MOST_DAYS}: a CA is replaced when certificates could outlive it"
        )
    if not params["identities"]:
        problems.found.append("identities: name at least one of " + ", ".join(IDENTITIES))
    problems.refuse()
    return t.cast("tuple[str, ...]", found)
