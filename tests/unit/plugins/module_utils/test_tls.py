"""TLS: what is decided, what is written, and what a power cut leaves."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import datetime
import grp
import itertools
import os
import re
import shutil
import stat
import threading
import typing as t
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.step import Step
from ansible_collections.corral.virt.plugins.module_utils._tls import files_tls
from ansible_collections.corral.virt.plugins.module_utils._tls.files_trust import each
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import (
    CONTROLLER,
    IDENTITIES,
    Certificate,
    FoundTls,
    FoundTlsFile,
    Identity,
    NewSet,
    TlsSpec,
    Trust,
    check_names,
    usages,
)
from ansible_collections.corral.virt.plugins.module_utils._tls.plan_tls import (
    Install,
    Request,
    SetMode,
    SetTrust,
    check_set,
    check_state,
    decide,
    is_read,
    reading,
    refuse_foreign,
    renewal,
    renewed,
    requests,
    unknown_crls,
)
from ansible_collections.corral.virt.plugins.module_utils._tls.plan_tls import plan as plan_all
from ansible_collections.corral.virt.plugins.module_utils._tls.run_tls_arguments import OPTIONS
from ansible_collections.corral.virt.plugins.module_utils._tls.run_tls_options import install, read_trust, wanted

NOW = datetime.datetime(2026, 11, 21, tzinfo=datetime.timezone.utc)
LIBVIRT = IDENTITIES["libvirt"]
CA, OLD = {"aa": "the CA"}, {"bb": "PEM"}
TRUST = Trust("PEM", "CRL", trusts=CA, signer="aa", retired=OLD, refuses=("e0",), revoked={"e0": "CN=gone"})
GOAL = TlsSpec(LIBVIRT, "hyper1", ("10.0.0.1", "hyper1"), datetime.timedelta(days=30), trust=TRUST)
GOOD = Certificate(GOAL.subject, GOAL.names, usages("server"), NOW + datetime.timedelta(days=200), "5f", "ab", "aa")


def found(
    server: Certificate | None = GOOD,
    state: dict[str, t.Any] | None = None,
    without: t.Sequence[str] = (),
    **faults: dict[str, t.Any],
) -> FoundTls:
    """All files in order, except those `without`, what `faults` says by file name (with `_` for `.`), and `state` of
    the rest.
    """
    rows = {}
    for place in LIBVIRT.places:
        if place.name in without:
            continue
        fields = {"owner": "root", "group": "root", "mode": LIBVIRT.mode(place)}
        rows[place.path] = FoundTlsFile(place, **{**fields, **faults.get(place.name.replace(".", "_"), {})})
    client = dataclasses.replace(GOOD, usages=usages("client"), serial="60")
    certificates = {"server": server, "client": client} if server else {}
    return FoundTls(rows, certificates, **{"trusts": CA, "refuses": ("e0",), "stands": ("e0",), **(state or {})})


def changed(**fields: t.Any) -> Certificate:
    return dataclasses.replace(GOOD, **fields)


def test_what_is_as_wanted_needs_nothing() -> None:
    plan = decide(GOAL, found(), now=NOW)
    assert not plan.steps
    assert not plan.changes


NOTHING_YET = [
    (
        "libvirt.files: (unset) -> ['libvirt/clientcert.pem', 'libvirt/private/clientkey.pem', "
        "'libvirt/private/serverkey.pem', 'libvirt/servercert.pem']"
    ),
    "libvirt.server.subject: (unset) -> O=corral.virt,OU=libvirt,CN=hyper1",
    "libvirt.server.names: (unset) -> ['10.0.0.1', 'hyper1']",
    "libvirt.server.usage: (unset) -> ['digitalSignature', 'keyEncipherment', 'serverAuth (critical)']",
    "libvirt.client.subject: (unset) -> O=corral.virt,OU=libvirt,CN=hyper1",
    "libvirt.client.names: (unset) -> ['10.0.0.1', 'hyper1']",
    "libvirt.client.usage: (unset) -> ['clientAuth (critical)', 'digitalSignature', 'keyEncipherment']",
    "libvirt.trusts: (unset) -> ['the CA']",
]
USAGE = "libvirt.server.usage: {} -> ['digitalSignature', 'keyEncipherment', 'serverAuth (critical)']"


@pytest.mark.parametrize(
    ("state", "why", "changes"),
    [
        (FoundTls({}), "missing", NOTHING_YET),
        (
            found(cacert_pem={"foreign": True}),
            "authority",
            ["libvirt.authority: another authority -> this authority"],
        ),
        (
            found(changed(issuer=""), servercert_pem={"foreign": True}),
            "authority",
            ["libvirt.authority: another authority -> this authority"],
        ),
        (
            found(cacert_pem={"foreign": True}, state={"authorities": ("CN=a", "CN=b")}),
            "authority",
            ["libvirt.authority: CN=a, CN=b -> this authority"],
        ),
        (
            found(serverkey_pem={"fault": "does not match servercert.pem"}),
            "files",
            [
                (
                    "libvirt.files: ['libvirt/private/serverkey.pem does not match servercert.pem'] -> "
                    "['libvirt/private/serverkey.pem']"
                )
            ],
        ),
        (
            found(servercert_pem={"fault": "is empty"}, clientcert_pem={"fault": "is no certificate"}),
            "files",
            [
                (
                    "libvirt.files: ['libvirt/clientcert.pem is no certificate', 'libvirt/servercert.pem is empty'] -> "
                    "['libvirt/clientcert.pem', 'libvirt/servercert.pem']"
                )
            ],
        ),
        (
            found(without=("servercert.pem",), clientkey_pem={"fault": "is empty"}),
            "files",
            [
                (
                    "libvirt.files: ['libvirt/private/clientkey.pem is empty'] -> ['libvirt/private/clientkey.pem', "
                    "'libvirt/servercert.pem']"
                )
            ],
        ),
        (
            found(changed(names=("hyper1",))),
            "names",
            ["libvirt.server.names: ['hyper1'] -> ['10.0.0.1', 'hyper1']"],
        ),
        (
            found(changed(names=(*GOAL.names, "old"))),
            "names",
            ["libvirt.server.names: ['10.0.0.1', 'hyper1', 'old'] -> ['10.0.0.1', 'hyper1']"],
        ),
        (
            found(changed(subject="CN=x")),
            "subject",
            ["libvirt.server.subject: CN=x -> O=corral.virt,OU=libvirt,CN=hyper1"],
        ),
        (
            found(changed(usages=(*usages("server"), "clientAuth (critical)"))),
            "usage",
            [USAGE.format("['digitalSignature', 'keyEncipherment', 'serverAuth (critical)', 'clientAuth (critical)']")],
        ),
        (
            found(changed(usages=("digitalSignature", "keyEncipherment", "serverAuth"))),
            "usage",
            [USAGE.format("['digitalSignature', 'keyEncipherment', 'serverAuth']")],
        ),
        (
            found(changed(not_after=NOW + datetime.timedelta(days=29, hours=23))),
            "not_after",
            ["libvirt.server.not_after: 2026-12-20 (29 days left) -> renewed"],
        ),
        (
            found(changed(not_after=NOW - datetime.timedelta(days=5))),
            "not_after",
            ["libvirt.server.not_after: 2026-11-16 (-5 days left) -> renewed"],
        ),
        (found(changed(serial="e0")), "revoked", ["libvirt.server.revoked: e0 is revoked -> another one"]),
        (found(changed(issuer="bb")), "issuer", ["libvirt.server.issuer: a retired CA -> the CA"]),
        (
            found(serverkey_pem={"mode": 0o644}),
            "key",
            ["libvirt.key: libvirt/private/serverkey.pem could be read by others (0644) -> a new key"],
        ),
        (
            found(changed(names=("hyper1",), subject="CN=x", serial="e0"), clientkey_pem={"mode": 0o604}),
            "subject, names, revoked, key",
            [
                "libvirt.server.subject: CN=x -> O=corral.virt,OU=libvirt,CN=hyper1",
                "libvirt.server.names: ['hyper1'] -> ['10.0.0.1', 'hyper1']",
                "libvirt.server.revoked: e0 is revoked -> another one",
                "libvirt.key: libvirt/private/clientkey.pem could be read by others (0604) -> a new key",
            ],
        ),
        (
            found(changed(names=("hyper1",)), state={"trusts": {}}),
            "names",
            [
                "libvirt.server.names: ['hyper1'] -> ['10.0.0.1', 'hyper1']",
                "libvirt.trusts: (unset) -> ['the CA']",
            ],
        ),
    ],
)
def test_anything_wrong_with_a_certificate_asks_for_a_new_one(state: FoundTls, why: str, changes: list[str]) -> None:
    plan = decide(GOAL, state, now=NOW)
    assert ([str(step) for step in plan.steps], [str(change) for change in plan.changes]) == (
        [f"issue libvirt certificate ({why})"],
        changes,
    )


def test_a_certificate_of_a_ca_that_signs_no_more_names_both() -> None:
    trust = dataclasses.replace(TRUST, trusts={**CA, "cc": "the CA of last year"})
    state = found(changed(issuer="cc"), state={"trusts": trust.trusts})
    changes = decide(dataclasses.replace(GOAL, trust=trust), state, now=NOW).changes
    assert [str(change) for change in changes] == ["libvirt.server.issuer: the CA of last year -> the CA"]


@pytest.mark.parametrize(
    ("state", "steps", "changes"),
    [
        (
            found(),
            ["issue libvirt certificate (renewal)"],
            ["libvirt.renewal: not asked for -> asked for"],
        ),
        (FoundTls({}), ["issue libvirt certificate (missing)"], NOTHING_YET),
    ],
)
def test_a_renewal_that_is_asked_for_is_a_change_where_there_is_a_certificate(
    state: FoundTls, steps: list[str], changes: list[str]
) -> None:
    plan = decide(dataclasses.replace(GOAL, force=True), state, now=NOW)
    assert [str(step) for step in plan.steps] == steps
    assert [str(change) for change in plan.changes] == changes


@pytest.mark.parametrize(
    ("state", "why", "change"),
    [
        (
            {"trusts": {**CA, "bb": "an older one"}},
            "trusts",
            "libvirt.trusts: ['an older one', 'the CA'] -> ['the CA']",
        ),
        ({"trusts": {}}, "trusts", "libvirt.trusts: (unset) -> ['the CA']"),
        ({"same_crl": False, "stands": (), "refuses": ()}, "refuses", "libvirt.refuses: [] -> ['e0']"),
        # a list of a CA that is not trusted any more
        ({"same_crl": False, "stands": (), "refuses": ("e1",)}, "refuses", "libvirt.refuses: ['e1'] -> ['e0']"),
    ],
)
def test_whom_others_trust_changes_without_a_new_key(state: dict[str, t.Any], why: str, change: str) -> None:
    plan = decide(GOAL, found(state=state), now=NOW)
    assert [str(step) for step in plan.steps] == [f"set whom libvirt trusts ({why})"]
    assert [str(each) for each in plan.changes] == [change]


@pytest.mark.parametrize("trust", [{"refuses": (), "revoked": {"e0": "CN=gone"}}, {"refuses": ("e0",), "revoked": {}}])
def test_a_certificate_is_revoked_by_the_list_or_by_what_the_authority_says(trust: dict[str, t.Any]) -> None:
    goal = dataclasses.replace(GOAL, trust=dataclasses.replace(TRUST, **trust))
    changes = decide(goal, found(changed(serial="e0")), now=NOW).changes
    assert "libvirt.server.revoked" in {change.where for change in changes}


def test_what_another_controller_revoked_stays_revoked() -> None:
    plan = decide(GOAL, found(state={"same_crl": False, "stands": ("e0", "e1"), "refuses": ("e0", "e1")}), now=NOW)
    assert not plan.steps and not plan.changes


def test_a_host_of_another_authority_is_refused_unless_it_is_meant() -> None:
    state = found(state={"authorities": ("CN=theirs (SHA-256 cc)",)})
    with pytest.raises(Refused, match=r"There: CN=theirs \(SHA-256 cc\). Here: the CA. Copy the directory"):
        refuse_foreign([(GOAL, state)])
    refuse_foreign([(dataclasses.replace(GOAL, replace_authority=True), state), (GOAL, found())])


def test_hosts_renew_on_days_of_their_own() -> None:
    month = datetime.timedelta(days=30)
    days = {renewal("libvirt", f"h{number}", renew_before=month, days=month * 12) for number in range(100)}
    assert len(days) > 90 and month <= min(days) < month * 1.1 and month * 1.9 < max(days) <= month * 2
    assert (
        max(renewal("qemu", f"h{number}", renew_before=month, days=month * 1.2) for number in range(100)) <= month * 1.1
    )


@pytest.mark.parametrize(
    ("identity", "name", "days", "before_end"),
    [
        ("libvirt", "hyper1", 365, datetime.timedelta(days=31, seconds=40608)),
        ("libvirt", "hyper2", 365, datetime.timedelta(days=36, seconds=69984)),
        ("qemu", "hyper1", 36, datetime.timedelta(days=30, seconds=82684, microseconds=800000)),
    ],
)
def test_the_day_on_which_a_host_renews_stays_the_same(
    identity: str, name: str, days: int, before_end: datetime.timedelta
) -> None:
    found = renewal(identity, name, renew_before=datetime.timedelta(days=30), days=datetime.timedelta(days=days))
    assert found == before_end


def test_a_certificate_valid_long_enough_is_kept() -> None:
    assert not decide(GOAL, found(changed(not_after=NOW + datetime.timedelta(days=30))), now=NOW).steps


def test_who_may_write_to_a_certificate_leaves_the_key_as_it_is() -> None:
    plan = decide(GOAL, found(servercert_pem={"mode": 0o666}), now=NOW)
    assert [str(step) for step in plan.steps] == ["set root:root 0644 on libvirt/servercert.pem"]


def test_permissions_alone_keep_the_key() -> None:
    plan = decide(GOAL, found(servercert_pem={"mode": 0o600}, clientkey_pem={"group": "kvm"}), now=NOW)
    assert [type(step) for step in plan.steps] == [SetMode, SetMode]
    assert str(plan.steps[0]) == "set root:root 0644 on libvirt/servercert.pem"
    assert [str(change) for change in plan.changes] == [
        "libvirt/servercert.pem: root:root 0600 -> root:root 0644",
        "libvirt/private/clientkey.pem: root:kvm 0600 -> root:root 0600",
    ]


QEMU = IDENTITIES["qemu"]


def owned(identity: Identity, owner: str, group: str) -> FoundTls:
    """All files of an identity but its CRL, with one owner and group."""
    places = [place for place in identity.places if place.kind != "crl"]
    certificates = {purpose: changed(usages=usages(purpose)) for purpose in identity.purposes}
    files = {place.path: FoundTlsFile(place, owner, group, identity.mode(place)) for place in places}
    subject = f"O=corral.virt,OU={identity.authority},CN=hyper1"
    return FoundTls(
        files,
        {purpose: dataclasses.replace(one, subject=subject) for purpose, one in certificates.items()},
        trusts=CA,
    )


@pytest.mark.parametrize(
    ("identity", "owner", "group", "steps"),
    [
        # QEMU reads its key by its group; what all may read is root's.
        (
            QEMU,
            "root",
            "kvm",
            ["set root:kvm 0640 on qemu/server-key.pem", "set root:kvm 0640 on qemu/client-key.pem"],
        ),
        # A user's own files are the user's.
        (
            CONTROLLER,
            "me",
            "users",
            [
                "set me:users 0644 on controller/cacert.pem",
                "set me:users 0644 on controller/clientcert.pem",
                "set me:users 0600 on controller/clientkey.pem",
            ],
        ),
    ],
)
def test_only_a_key_belongs_to_the_group_of_qemu(identity: Identity, owner: str, group: str, steps: list[str]) -> None:
    goal = dataclasses.replace(GOAL, identity=identity, owner=owner, group=group)
    assert [str(step) for step in decide(goal, owned(identity, "root", "root"), now=NOW).steps] == steps
    assert {str(step) for step in decide(goal, owned(identity, owner, group), now=NOW).steps} == (
        {f"set root:root 0644 on {place.path}" for place in identity.places if place.kind in ("ca", "cert")}
        if owner == "root"
        else set()
    )


QEMU_GOAL = dataclasses.replace(GOAL, identity=QEMU)


def test_a_plan_has_the_steps_of_every_identity() -> None:
    expired = found(changed(not_after=NOW))
    wanted = {"libvirt": GOAL, "qemu": QEMU_GOAL}
    plan = plan_all(wanted, {"libvirt": expired, "qemu": owned(QEMU, "root", "kvm")}, {}, now=NOW)
    assert [str(step) for step in plan.steps] == [
        "issue libvirt certificate (not_after)",
        "set root:root 0644 on qemu/ca-cert.pem",
        "set root:root 0644 on qemu/server-cert.pem",
        "set root:root 0640 on qemu/server-key.pem",
        "set root:root 0644 on qemu/client-cert.pem",
        "set root:root 0640 on qemu/client-key.pem",
    ]
    assert [change.where for change in plan.changes] == [
        "libvirt.server.not_after",
        "qemu/ca-cert.pem",
        "qemu/server-cert.pem",
        "qemu/server-key.pem",
        "qemu/client-cert.pem",
        "qemu/client-key.pem",
    ]
    assert [step.identity for step in plan.steps if isinstance(step, Request)] == [LIBVIRT]


def test_a_signed_certificate_is_installed_whatever_was_found() -> None:
    plan = plan_all(
        {"libvirt": GOAL, "qemu": QEMU_GOAL},
        {"libvirt": FoundTls({}), "qemu": FoundTls({})},
        {"qemu": "SIGNED"},
        now=NOW,
    )
    assert [str(step) for step in plan.steps] == [
        "issue libvirt certificate (missing)",
        "install qemu certificate",
    ]
    assert plan.steps[1] == Install(QEMU_GOAL, "SIGNED")
    assert "SIGNED" not in repr(plan.steps[1])


def test_a_plan_is_refused_where_another_authority_was_found() -> None:
    state = found(state={"authorities": ("CN=theirs",)})
    with pytest.raises(
        Refused, match=r"^cannot issue certificates to hyper1: it belongs to another authority\. There: "
    ):
        plan_all({"libvirt": GOAL}, {"libvirt": state}, {"libvirt": "PEM"}, now=NOW)


@pytest.mark.parametrize("signed", [{}, {"libvirt": "PEM"}])
@pytest.mark.parametrize("state", [FoundTls({}), found(state={"trusts": OLD})], ids=["nothing", "an older CA"])
def test_no_ca_is_put_in_place_before_its_first_day(state: FoundTls, signed: dict[str, str]) -> None:
    goal = dataclasses.replace(GOAL, trust=dataclasses.replace(TRUST, starts={"aa": NOW + datetime.timedelta(hours=2)}))
    with pytest.raises(
        Refused, match=r"hyper1 trust .* the CA is valid from 2026-11-21 02:00 .* says 2026-11-21 00:00; "
    ):
        plan_all({"libvirt": goal}, {"libvirt": state}, signed, now=NOW)
    assert plan_all({"libvirt": goal}, {"libvirt": state}, signed, now=NOW + datetime.timedelta(hours=2)).steps


def test_a_host_that_is_as_it_should_be_needs_no_clock() -> None:
    goal = dataclasses.replace(GOAL, trust=dataclasses.replace(TRUST, starts={"aa": NOW + datetime.timedelta(hours=2)}))
    state = found(state={"trusts": CA, "refuses": ("e0",)})
    assert not decide(goal, state, now=NOW).steps


NOT_LIBVIRTS: list[Step] = [
    Request(QEMU, "missing"),
    Install(QEMU_GOAL, "PEM"),
    SetTrust(QEMU_GOAL, "trusts"),
    SetMode(LIBVIRT.places[0], "root", "root", 0o644),
]
LOADED: dict[str, bool] = {"has_files": True, "is_loaded": True}


@pytest.mark.parametrize(
    ("steps", "serving", "state", "told"),
    [
        ([], None, LOADED, ["record that no daemon has read other certificates"]),
        ([Request(LIBVIRT, "missing")], None, LOADED, ["record that no daemon has read other certificates"]),
        ([], "virtproxyd", LOADED, []),
        (NOT_LIBVIRTS, "virtproxyd", LOADED, []),
        ([*NOT_LIBVIRTS, Request(LIBVIRT, "missing")], "virtproxyd", LOADED, ["let virtproxyd read its certificates"]),
        ([Install(GOAL, "PEM"), *NOT_LIBVIRTS], "libvirtd", LOADED, ["let libvirtd read its certificates"]),
        ([SetTrust(GOAL, "refuses")], "libvirtd", LOADED, ["let libvirtd read its certificates"]),
        ([], "libvirtd", {"has_files": True, "is_loaded": False}, ["let libvirtd read its certificates"]),
        ([], "libvirtd", {"has_files": False, "is_loaded": False}, []),
        ([], "libvirtd", {"has_files": False, "is_loaded": True}, []),
    ],
)
def test_a_daemon_that_serves_reads_what_is_new_to_it(
    steps: list[Step], serving: str | None, state: dict[str, bool], told: list[str]
) -> None:
    now, later = reading(steps, serving, **state)
    found = [*now, *later]
    assert not (now if any(isinstance(step, Request) for step in steps) else later), "certificates come first"
    assert [str(step) for step in found] == told
    assert all(step.changes is (serving is not None) for step in found), "only what a daemon reads is a change"


@pytest.mark.parametrize(
    ("names", "root", "expected"),
    [(["libvirt", "qemu"], "/etc/pki", True), (["qemu"], "/etc/pki", False), (["libvirt"], "/srv/pki", False)],
)
def test_the_daemon_reads_only_its_own_place(names: list[str], root: str, expected: bool) -> None:
    assert is_read(dict.fromkeys(names, GOAL), root) is expected


@pytest.mark.parametrize(
    ("stands", "told"),
    [((), {}), (("e0",), {}), (("e0", "e1"), {"libvirt": "THEIRS"})],
    ids=["nothing", "what the authority refuses", "what it does not know"],
)
def test_a_list_that_refuses_more_is_told(stands: tuple[str, ...], told: dict[str, str]) -> None:
    state = FoundTls(files={}, stands=stands, crl="THEIRS")
    assert unknown_crls({"libvirt": GOAL, "qemu": GOAL}, {"libvirt": state}) == told


def test_requests_are_told_with_their_answers() -> None:
    steps: list[Step] = [SetTrust(GOAL, "trusts"), Request(LIBVIRT, "names")]
    assert renewed(steps) == ["libvirt"]
    assert requests(steps, [None, "CSR"]) == {"libvirt": "CSR"}
    assert requests(steps, []) == {}, "check mode carries none out"


COMPLETE = {place.path: b"x" for place in LIBVIRT.places}
SERVER_CERT, SERVER_KEY = (place.path for place in LIBVIRT.places[2:4])
HOUR = datetime.timedelta(hours=1)
MEANWHILE = "; another run may be in progress"


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ({}, ""),
        ({"validity": ((NOW, NOW + HOUR), (NOW - HOUR, NOW))}, ""),
        ({"contents": {**COMPLETE, "CA/cacrl.pem": b""}}, ""),
        ({"contents": {path: text for path, text in COMPLETE.items() if path != "CA/cacrl.pem"}}, ""),
        (
            {"contents": {path: text for path, text in COMPLETE.items() if path != SERVER_KEY}},
            "serverkey.pem is missing; run again to have it issued",
        ),
        ({"contents": {}}, "cacert.pem is missing; run again to have it issued"),
        ({"unsigned": ("client",)}, "none of the given ones is for clientAuth; issue one for that purpose too"),
        ({"faults": {SERVER_KEY: "does not match x"}}, f"serverkey.pem does not match x{MEANWHILE}"),
        ({"foreign": frozenset({SERVER_CERT})}, f"servercert.pem is not signed by this authority{MEANWHILE}"),
        (
            {"foreign": frozenset({SERVER_CERT}), "faults": {SERVER_CERT: "is not a certificate"}},
            f"servercert.pem is not a certificate{MEANWHILE}",
        ),
        (
            {"forgotten": ("e1", "e2")},
            (
                "the list in place has revoked certificates that the new one lacks (e1, e2); run again to take them "
                "over, or, without the CA's key here, provide a list that has them (ca_crl, qemu_ca_crl)"
            ),
        ),
        (
            {"strangers": ("CN=new",)},
            (
                "the host has come to trust CN=new, which this authority does not know; run again, or restore the "
                "newest backup of the CAs (ca_dir)"
            ),
        ),
        *(
            (
                {"validity": ((NOW - HOUR, NOW + HOUR), (NOW + start, NOW + end))},
                f"they are valid from {NOW + start:%Y-%m-%d %H:%M} until {NOW + end:%Y-%m-%d %H:%M} UTC, and it is 2026-11-21",
            )
            for start, end in ((HOUR, 2 * HOUR), (-2 * HOUR, -HOUR))
        ),
    ],
    ids=str,
)
def test_a_set_that_would_not_serve_is_refused(state: dict[str, t.Any], problem: str) -> None:
    new = NewSet(**{"contents": COMPLETE, **state})
    if problem:
        with pytest.raises(
            Refused,
            match=re.escape(f"cannot install the libvirt certificates: {problem}")
            + "( 00:00 here; set the clocks.*)?$",
        ):
            check_set(GOAL, new, now=NOW)
    else:
        check_set(GOAL, new, now=NOW)
    if "validity" in state:
        check_set(GOAL, new)  # on the controller, whose clock has just signed them
    if "strangers" in state:
        check_set(dataclasses.replace(GOAL, replace_authority=True), new)


@pytest.mark.parametrize(
    ("stands", "crl", "refused"),
    [(("e0",), "CRL", False), (("e0", "e1"), "CRL", True), (("e0", "e1"), "", False)],
    ids=["known", "longer", "none is set"],
)
def test_certificates_come_with_no_list_that_has_revoked_less(stands: tuple[str, ...], crl: str, refused: bool) -> None:
    goal = dataclasses.replace(GOAL, trust=dataclasses.replace(TRUST, crl=crl))
    state = found(state={"stands": stands})
    with pytest.raises(Refused, match=r"lacks \(e1\); run again") if refused else contextlib.nullcontext():
        plan_all({"libvirt": goal}, {"libvirt": state}, {"libvirt": "SIGNED"}, now=NOW)


def test_every_problem_of_the_input_is_told_at_once() -> None:
    params = {name: option.get("default") for name, option in OPTIONS.items()}
    params.update(
        name="a/b", names=["ok", "not a name", "10.0.0.256.1.", "x" * 64], days=10, renew_before=10, identities=[]
    )
    with pytest.raises(BadInput, match="not a valid name") as caught:
        wanted(params, {}, group=lambda name: name)
    assert len(caught.value.problems) == 6


def test_names_have_one_form() -> None:
    assert check_names(["B.example", "a", "2001:DB8:0::1", "a"], what="names") == ("2001:db8::1", "a", "b.example")


@pytest.fixture(scope="session")
def keys() -> list[t.Any]:
    """RSA keys take their time: a few short ones serve all tests, in turn."""
    return [rsa.generate_private_key(public_exponent=65537, key_size=1024) for _number in range(5)]


@pytest.fixture(autouse=True)
def _ready_keys(keys: list[t.Any], monkeypatch: pytest.MonkeyPatch) -> None:
    turn = itertools.cycle(keys)
    monkeypatch.setattr("ansible_collections.corral.virt.plugins.plugin_utils._authority.ca.KEY_BITS", 1024)
    monkeypatch.setattr(rsa, "generate_private_key", lambda **_options: next(turn))


# On disk, with a real CA --------------------------------------------------------------------------------------------


class Signer:
    """A CA in memory."""

    def __init__(self) -> None:
        ca = pytest.importorskip("ansible_collections.corral.virt.plugins.plugin_utils._authority.ca")
        certificate, key = (text.decode() for text in ca.make("libvirt", now=NOW))
        self._authority = ca.CertificateAuthority(certificate, key, passphrase=None, named="the CA")
        self.trust = read_trust(certificate, self._authority.crl([]).decode())

    def revoking(self, *serials: int) -> Trust:
        """What it says when it has revoked these."""
        ca = pytest.importorskip("ansible_collections.corral.virt.plugins.plugin_utils._authority.ca")
        lines = [ca.Revoked(serial, NOW) for serial in serials]
        return read_trust(self.trust.text, self._authority.crl(lines).decode())

    def sign(self, csr: str, wanted: TlsSpec) -> str:
        return "".join(text.decode() for _serial, text in self._authority.sign(csr, wanted, days=100, now=NOW))


@pytest.fixture
def authority() -> Signer:
    return Signer()


def goal(authority: Signer, identity: str = "libvirt", **fields: t.Any) -> TlsSpec:
    owner, group = files_tls.me()
    days = datetime.timedelta(days=30)
    fields = {"trust": authority.trust, **fields}
    return TlsSpec(IDENTITIES.get(identity, CONTROLLER), "hyper1", ("10.0.0.1", "hyper1"), days, owner, group, **fields)


def issue(authority: Signer, wanted: TlsSpec, root: Path) -> None:
    csr = files_tls.request(wanted.identity, str(root), subject=wanted.subject)
    install(wanted, str(root), certificate=authority.sign(csr, wanted))


def read(authority: Signer, wanted: TlsSpec, root: Path) -> FoundTls:
    return files_tls.read(wanted.identity, str(root), trust=authority.trust)


@pytest.mark.parametrize("identity", ["libvirt", "qemu", "controller"])
def test_installed_is_as_wanted(authority: Signer, tmp_path: Path, identity: str) -> None:
    wanted, root = goal(authority, identity), tmp_path / "pki"
    issue(authority, wanted, root)
    state = read(authority, wanted, root)
    assert not decide(wanted, state, now=NOW).changes
    assert {*state.certificates} == {*wanted.identity.purposes}
    assert {one.subject for one in state.certificates.values()} == {
        f"O=corral.virt,OU={wanted.identity.authority},CN=hyper1"
    }
    left = [path.name for path in (root / wanted.identity.store).iterdir() if path.name != "current"]
    assert left == [files_tls.current(wanted.identity, str(root))], "only the set in use stays"


def der(pem: bytes) -> bytes:
    """The content of a PEM file, as a power cut, a hand or a bad disk might leave it."""
    return base64.b64decode(b"".join(pem.strip().split(b"\n")[1:-1]))


@pytest.mark.parametrize(
    "damage",
    [der, lambda _pem: b"\xff\xfe\x00", lambda pem: pem[:200], lambda pem: b"\0" * len(pem), lambda _pem: b""],
    ids=["DER", "garbage", "half", "zeros", "empty"],
)
@pytest.mark.parametrize("identity", ["libvirt", "controller"])
def test_a_damaged_certificate_is_issued_anew(
    authority: Signer, tmp_path: Path, identity: str, damage: t.Callable[[bytes], bytes]
) -> None:
    wanted, root = goal(authority, identity), tmp_path / "pki"
    issue(authority, wanted, root)
    place = next(place for place in wanted.identity.places if place.kind == "cert")
    path = root / place.path
    path.write_bytes(damage(path.read_bytes()))
    [change] = [one for one in decide(wanted, read(authority, wanted, root), now=NOW).changes if "files" in one.where]
    assert f"{place.path} is not a certificate" in t.cast("list[str]", change.before)
    issue(authority, wanted, root)
    assert not decide(wanted, read(authority, wanted, root), now=NOW).changes


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
@pytest.mark.parametrize("kind", ["cert", "ca", "crl"])
def test_a_byte_that_a_bad_disk_has_changed_stops_no_run(authority: Signer, tmp_path: Path, kind: str) -> None:
    """The library reads most parts of a certificate only when they are asked for."""
    wanted, root = goal(authority), tmp_path / "pki"
    issue(authority, wanted, root)
    path = root / next(place for place in wanted.identity.places if place.kind == kind).path
    pem = path.read_bytes()
    first, last = pem.split(b"\n")[0], pem.strip().split(b"\n")[-1]
    content = der(pem)
    for at in range(0, len(content), 3):
        damaged = content[:at] + bytes([content[at] ^ 0x80]) + content[at + 1 :]
        path.write_bytes(b"\n".join([first, base64.encodebytes(damaged).strip(), last, b""]))
        state = read(authority, wanted, root)
        assert state.authorities or decide(wanted, state, now=NOW).steps, at


def test_a_renewal_replaces_key_and_certificate(authority: Signer, tmp_path: Path) -> None:
    key = tmp_path / "pki/libvirt/private/serverkey.pem"
    issue(authority, goal(authority), tmp_path / "pki")
    before = key.read_text()
    issue(authority, goal(authority), tmp_path / "pki")
    assert key.read_text() != before
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_others_are_trusted_with_the_same_key(authority: Signer, tmp_path: Path) -> None:
    root = tmp_path / "pki"
    issue(authority, goal(authority), root)
    before = {place.path: (root / place.path).read_bytes() for place in LIBVIRT.places}
    both = read_trust(authority.trust.text + Signer().trust.text, authority.trust.crl)
    files_tls.request(LIBVIRT, str(root), subject="CN=x")  # another run waits for its certificates
    install(goal(authority, trust=both), str(root))
    after = {place.path: (root / place.path).read_bytes() for place in LIBVIRT.places}
    assert {path for path in after if after[path] != before[path]} == {"CA/cacert.pem"}
    assert after["CA/cacert.pem"].decode() == both.text
    assert (root / "libvirt/corral/pending.pem").exists()


def test_a_list_is_never_replaced_by_one_that_has_revoked_less(authority: Signer, tmp_path: Path) -> None:
    """Whatever was planned: what is in place is looked at just before."""
    root, theirs = tmp_path / "pki", Signer()
    issue(authority, goal(authority, trust=authority.revoking(5, 6)), root)
    place = root / "CA/cacrl.pem"
    for fewer in ((), (5,), (5, 7)):
        before = place.read_bytes()
        with pytest.raises(Refused, match=r"list in place has revoked certificates that the new one lacks"):
            install(goal(authority, trust=authority.revoking(*fewer)), str(root))
        with pytest.raises(Refused, match=r"list in place has revoked certificates that the new one lacks"):
            issue(authority, goal(authority, trust=authority.revoking(*fewer)), root)
        assert place.read_bytes() == before
    install(goal(authority, trust=authority.revoking(5, 6, 7)), str(root))
    place.resolve().write_text("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n" + place.read_text())
    with pytest.raises(Refused, match=r"lacks \(6, 7\)"):
        install(goal(authority, trust=authority.revoking(5)), str(root))
    place.resolve().write_bytes(theirs.revoking(9).crl.encode())
    install(goal(authority, trust=authority.revoking(5)), str(root))


def test_a_ca_that_came_meanwhile_is_not_removed(authority: Signer, tmp_path: Path) -> None:
    root = tmp_path / "pki"
    issue(authority, goal(authority), root)
    newer = Signer()
    both = read_trust(authority.trust.text + newer.trust.text, authority.trust.crl)
    install(goal(authority, trust=both), str(root))
    with pytest.raises(Refused, match=r"come to trust .* which this authority does not know; run again"):
        install(goal(authority), str(root))
    install(
        goal(authority, trust=read_trust(authority.trust.text, authority.trust.crl, retired=newer.trust.text)),
        str(root),
    )
    assert (root / "CA/cacert.pem").read_text() == authority.trust.text


def test_a_key_that_waits_for_another_run_is_kept(authority: Signer, tmp_path: Path) -> None:
    """The set that is put in place has its own."""
    root = tmp_path / "pki"
    goal_here = goal(authority)
    csr = files_tls.request(LIBVIRT, str(root), subject=goal_here.subject)
    with files_tls.held(LIBVIRT, str(root)):
        new = files_tls.gather(goal_here, str(root), certificate=authority.sign(csr, goal_here))
        pending = root / "libvirt/corral/pending.pem"
        pending.write_text("another run's key")
        files_tls.install(goal_here, str(root), new)
    assert pending.read_text() == "another run's key"


def test_one_run_at_a_time_exchanges_files(authority: Signer, tmp_path: Path) -> None:
    root = tmp_path / "pki"
    issue(authority, goal(authority), root)
    other = threading.Thread(target=install, args=(goal(authority, trust=authority.revoking(5)), str(root)))
    with files_tls.held(LIBVIRT, str(root)):
        other.start()
        other.join(0.3)
        assert other.is_alive() and (root / "CA/cacrl.pem").read_text() == authority.trust.crl
    other.join()
    assert (root / "CA/cacrl.pem").read_text() == authority.revoking(5).crl


def test_another_authority_is_seen(authority: Signer, tmp_path: Path) -> None:
    issue(authority, goal(authority), tmp_path / "pki")
    other = Signer()
    state = read(other, goal(other), tmp_path / "pki")
    assert {file.place.kind for file in state.files.values() if file.foreign} == {"ca", "cert"}
    assert not any(file.fault for file in state.files.values())
    assert any(name.startswith("CN=corral.virt libvirt CA ") for name in state.authorities)


def test_a_stranger_beside_our_ca_is_a_stranger(authority: Signer, tmp_path: Path) -> None:
    """Somebody let another authority's clients in; that is theirs to take back."""
    issue(authority, goal(authority), tmp_path / "pki")
    stranger = Signer()
    with (tmp_path / "pki/CA/cacert.pem").open("a") as bundle:
        bundle.write(stranger.trust.text)
    state = read(authority, goal(authority), tmp_path / "pki")
    assert state.authorities == tuple(stranger.trust.trusts.values())


def test_a_certificate_for_another_key_is_refused(authority: Signer, tmp_path: Path) -> None:
    root = str(tmp_path / "pki")
    signed = authority.sign(files_tls.request(LIBVIRT, root, subject=goal(authority).subject), goal(authority))
    files_tls.request(LIBVIRT, root, subject=goal(authority).subject)  # another run
    with pytest.raises(Refused, match="does not match"):
        install(goal(authority), root, certificate=signed)
    assert not (tmp_path / "pki/libvirt/servercert.pem").exists()


def test_a_certificate_for_one_purpose_alone_is_refused(authority: Signer, tmp_path: Path) -> None:
    root = str(tmp_path / "pki")
    signed = authority.sign(files_tls.request(LIBVIRT, root, subject=goal(authority).subject), goal(authority))
    with pytest.raises(Refused, match="none of the given ones is for clientAuth"):
        install(goal(authority), root, certificate=each(signed)[0])
    assert not (tmp_path / "pki/libvirt/servercert.pem").exists()


def test_a_list_that_has_ended_is_refused(authority: Signer, monkeypatch: pytest.MonkeyPatch) -> None:
    """GnuTLS takes nobody's certificate with it."""
    ca = pytest.importorskip("ansible_collections.corral.virt.plugins.plugin_utils._authority.ca")
    monkeypatch.setattr(ca, "LIFE", datetime.timedelta(days=1))
    certificate, key = (
        text.decode() for text in ca.make("libvirt", now=datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc))
    )
    ended = ca.CertificateAuthority(certificate, key, passphrase=None, named="it").crl([]).decode()
    with pytest.raises(BadInput, match="qemu_ca_crl: it is valid until 2020-01-02 00:00 UTC"):
        read_trust(certificate, ended, what="qemu_ca_certificate")
    for text in ("no list", authority.trust.crl.replace("A", "!")):
        with pytest.raises(BadInput, match="ca_crl: not a list of revoked certificates in PEM"):
            read_trust(certificate, text)


def test_without_qemu_its_key_has_nobody_to_belong_to(authority: Signer, tmp_path: Path) -> None:
    wanted = TlsSpec(
        IDENTITIES["qemu"],
        "hyper1",
        ("hyper1",),
        datetime.timedelta(days=30),
        files_tls.me()[0],
        None,
        trust=authority.trust,
    )
    with pytest.raises(Failed, match="install QEMU"):
        issue(authority, wanted, tmp_path / "pki")


def test_the_group_of_qemu() -> None:
    assert files_tls.group("no-such-group") is None
    assert files_tls.group(grp.getgrgid(os.getgid()).gr_name) is not None


class PowerCut(Exception):
    """Nothing after this happens."""


def lay_plain(authority: Signer, root: Path) -> None:
    """Files as somebody else would have put them, with a pair each for server and client."""
    for pair in (0, 1):
        scratch = root.with_name(f"scratch{pair}")
        issue(authority, goal(authority), scratch)
        for place in LIBVIRT.places[2 + 2 * pair : 4 + 2 * pair] + LIBVIRT.places[:2]:
            target = root / place.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((scratch / place.path).read_bytes())
            target.chmod(LIBVIRT.mode(place))


@pytest.mark.parametrize("before", ["nothing", "ours", "plain"])
def test_a_power_cut_leaves_the_old_set_or_the_new(
    authority: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """Cut at each write in turn: what libvirt would read must be whole, and the next run must mend the rest."""
    cut, laid = 0, tmp_path / "laid"
    if before == "ours":
        issue(authority, goal(authority), laid)
    elif before == "plain":
        lay_plain(authority, laid)
    while True:
        cut += 1
        root = tmp_path / f"pki{cut}"
        if before != "nothing":
            shutil.copytree(laid, root, symlinks=True)
        csr = files_tls.request(LIBVIRT, str(root), subject=goal(authority).subject)
        signed = authority.sign(csr, goal(authority))
        old = {place.path: (root / place.path).read_bytes() for place in LIBVIRT.places if (root / place.path).exists()}
        with monkeypatch.context() as patch:
            reached = powerless_after(cut, patch)
            with contextlib.suppress(PowerCut):
                install(goal(authority), str(root), certificate=signed)
        now = {place.path: (root / place.path).read_bytes() for place in LIBVIRT.places if (root / place.path).exists()}
        whole = not any(file.fault or file.foreign for file in read(authority, goal(authority), root).files.values())
        assert now == old or (whole and len(now) == len(LIBVIRT.places)), f"write {cut} left halves"
        issue(authority, goal(authority), root)
        state = read(authority, goal(authority), root)
        assert not decide(goal(authority), state, now=NOW).changes
        if not reached():
            break  # there was no more to cut
    assert cut > 6


def powerless_after(writes: int, patch: pytest.MonkeyPatch) -> t.Callable[[], bool]:
    """Let so many changes of the disk through, then none; the returned function says whether it came to that."""
    count = 0

    def guarded(real: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        def do(*args: t.Any, **kwargs: t.Any) -> t.Any:
            nonlocal count
            count += 1
            if count > writes:
                raise PowerCut
            return real(*args, **kwargs)

        return do

    for name in ("replace", "symlink_to", "unlink", "mkdir", "chmod"):
        patch.setattr(Path, name, guarded(getattr(Path, name)))
    patch.setattr(os, "fdopen", guarded(os.fdopen))
    patch.setattr(shutil, "rmtree", guarded(shutil.rmtree))
    return lambda: count > writes


def test_only_the_controller_revokes() -> None:
    check_state("present")
    with pytest.raises(BadInput, match="state: revoked is for the controller; a host has nothing to revoke"):
        check_state("revoked")
