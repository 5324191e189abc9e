# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values of `virt_tls`'s options, for the module on the host and the action on the controller."""

from __future__ import annotations

import datetime
import functools
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems
from ansible_collections.corral.virt.plugins.module_utils._tls import files_tls, plan_tls
from ansible_collections.corral.virt.plugins.module_utils._tls.files_trust import trust
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import (
    AUTHORITIES,
    IDENTITIES,
    TlsSpec,
    Trust,
)
from ansible_collections.corral.virt.plugins.module_utils._tls.plan_tls import check_set, renewal

_PREFIXES = dict(zip(AUTHORITIES, ("", "qemu_")))


def trusts(params: t.Mapping[str, t.Any]) -> dict[str, Trust]:
    """The trust of each authority, by name; raises BadInput with every problem."""
    problems = Problems()
    found = {
        authority: problems.tried(functools.partial(_trust, params, prefix)) for authority, prefix in _PREFIXES.items()
    }
    problems.refuse()
    return {authority: one for authority, one in found.items() if one}


def _trust(params: t.Mapping[str, t.Any], prefix: str) -> Trust:
    return read_trust(
        params[f"{prefix}ca_certificate"] or "",
        params[f"{prefix}ca_crl"] or "",
        retired=params["retired_ca_certificates"] or "",
        revoked=params["revoked"],
        what=f"{prefix}ca_certificate",
    )


def read_trust(
    text: str,
    crl: str = "",
    *,
    retired: str = "",
    revoked: t.Mapping[str, str] | None = None,
    what: str = "ca_certificate",
) -> Trust:
    """The trust from an authority's PEM texts; the first of its CAs signs. Raises BadInput for invalid texts."""
    found, faults = trust(text, crl, retired=retired, revoked=revoked)
    plan_tls.check_trust(faults, what=what, now=datetime.datetime.now(datetime.timezone.utc))
    return found


def trust_options(found: t.Mapping[str, Trust]) -> dict[str, t.Any]:
    """The options that carry the trust of the authorities."""
    texts = {f"{prefix}ca_{what}": found[name] for name, prefix in _PREFIXES.items() for what in ("certificate", "crl")}
    return {
        **{option: trust.crl if option.endswith("crl") else trust.text for option, trust in texts.items()},
        "retired_ca_certificates": "".join(
            dict.fromkeys(text for trust in found.values() for text in trust.retired.values())
        ),
        "revoked": {serial: subject for trust in found.values() for serial, subject in trust.revoked.items()},
    }


def wanted(
    params: t.Mapping[str, t.Any], trusts: t.Mapping[str, Trust], *, group: t.Callable[[str | None], str | None]
) -> dict[str, TlsSpec]:
    """The desired files, by identity; raises BadInput with every problem. `group` finds QEMU's group."""
    names = plan_tls.certificate_names(params)
    return {
        name: TlsSpec(
            identity=IDENTITIES[name],
            common_name=params["name"],
            names=names,
            renew_before=renew_before(params, name),
            group=group(params["qemu_group"]) if IDENTITIES[name].shared_key else "root",
            force=params["force"],
            replace_authority=params["replace_authority"],
            trust=trusts[IDENTITIES[name].authority],
        )
        for name in dict.fromkeys(params["identities"])
    }


def renew_before(params: t.Mapping[str, t.Any], identity: str) -> datetime.timedelta:
    """How long before its end this host's certificate is renewed."""
    before, days = (datetime.timedelta(days=params[option]) for option in ("renew_before", "days"))
    return renewal(identity, params["name"], renew_before=before, days=days)


def install(
    wanted: TlsSpec, root: str, *, certificate: str | None = None, now: datetime.datetime | None = None
) -> None:
    """Put a set in place: signed certificates (PEM), or those in place, with the authority's CAs and CRL.

    Raises Refused for an unusable set.
    """
    with files_tls.held(wanted.identity, root):
        new = files_tls.gather(wanted, root, certificate=certificate)
        check_set(wanted, new, now=now)
        files_tls.install(wanted, root, new)
