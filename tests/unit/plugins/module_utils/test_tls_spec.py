"""Which texts of an authority are refused, by what of them cannot be read."""

from __future__ import annotations

import datetime

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import TrustFaults
from ansible_collections.corral.virt.plugins.module_utils._tls.plan_tls import check_trust

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)
BEFORE = NOW - datetime.timedelta(seconds=1)


@pytest.mark.parametrize("faults", [TrustFaults(), TrustFaults(crl_end=NOW), TrustFaults(crl_end=None)])
def test_what_can_be_read_serves(faults: TrustFaults) -> None:
    check_trust(faults, what="ca_certificate", now=NOW)


@pytest.mark.parametrize(
    ("faults", "problems"),
    [
        (TrustFaults(no_certificate=True), ["qemu_ca_certificate: it contains no certificate in PEM"]),
        (TrustFaults(unreadable=True), ["qemu_ca_certificate: a certificate in it cannot be read"]),
        (TrustFaults(unreadable_retired=True), ["retired_ca_certificates: a certificate in it cannot be read"]),
        (TrustFaults(no_crl=True, crl_end=BEFORE), ["qemu_ca_crl: not a list of revoked certificates in PEM"]),
        (TrustFaults(crl_end=BEFORE), ["qemu_ca_crl: it is valid until 2026-01-01 23:59 UTC, and libvirt refuses"]),
        (
            TrustFaults(unreadable=True, unreadable_retired=True, no_crl=True),
            ["qemu_ca_certificate: a", "retired_ca_certificates: a", "qemu_ca_crl: not"],
        ),
    ],
)
def test_all_that_cannot_be_read_is_told(faults: TrustFaults, problems: list[str]) -> None:
    with pytest.raises(BadInput, match=problems[0]) as caught:
        check_trust(faults, what="qemu_ca_certificate", now=NOW)
    assert len(caught.value.problems) == len(problems)
    assert all(text.startswith(problem) for text, problem in zip(caught.value.problems, problems))
