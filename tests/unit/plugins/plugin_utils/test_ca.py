"""The authorities' directory: made once whoever asks, private, and signing only what the controller wants."""

from __future__ import annotations

import datetime
import multiprocessing
import re
import stat
import subprocess
import typing as t
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused, Unsupported
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._tls import files_tls
from ansible_collections.corral.virt.plugins.module_utils._tls.files_trust import each
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import IDENTITIES, TlsSpec
from ansible_collections.corral.virt.plugins.plugin_utils._authority.authorities import Authorities
from ansible_collections.corral.virt.plugins.plugin_utils._authority.ca import OLDEST, given

GOAL = TlsSpec(IDENTITIES["libvirt"], "hyper1", ("10.0.0.1", "fd00::1", "hyper1"), datetime.timedelta(days=30))


def make(directory: Path, **output: t.Any) -> str:
    authorities = Authorities(str(directory), **output)
    for step in authorities.due("libvirt", days=365):
        authorities.make(step)
    return authorities.trust("libvirt", name="hyper1", gate=Gate(check_mode=False)).text


def request(tmp_path: Path, subject: str = GOAL.subject) -> str:
    return files_tls.request(GOAL.identity, str(tmp_path / "pki"), subject=subject)


def read(text: str) -> t.Any:
    return x509.load_pem_x509_certificate(text.encode())


def test_parallel_forks_make_one(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        certificates = set(pool.map(make, [tmp_path / "ca"] * 8))
    assert len(certificates) == 1


def test_it_is_private(tmp_path: Path) -> None:
    make(tmp_path / "ca")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "ca", *(tmp_path / "ca").rglob("*")]}
    assert modes["ca"] == modes["libvirt"] == modes["1"] == 0o700
    assert modes["ca-key.pem"] == 0o600
    assert (tmp_path / "ca/.gitignore").read_text().endswith("*\n")


def test_a_host_gets_the_name_the_controller_chose_and_a_certificate_for_each_purpose(tmp_path: Path) -> None:
    make(tmp_path / "ca")
    csr = request(tmp_path, "O=corral.virt,OU=libvirt,CN=somebody-else")
    text = Authorities(str(tmp_path / "ca")).sign(csr, GOAL, days=90)
    purposes = []
    for one in map(read, each(text)):
        output = files_tls.describe(one)
        assert (output.subject, output.names) == (GOAL.subject, GOAL.names)
        (extended,) = [extension for extension in one.extensions if isinstance(extension.value, x509.ExtendedKeyUsage)]
        assert extended.critical
        purposes += extended.value
        assert (tmp_path / f"ca/issued/{output.serial}.pem").read_text().partition("\n")[2] in text
    assert purposes == [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    assert len([*(tmp_path / "ca/issued").iterdir()]) == 2


def test_a_broken_ca_is_refused_with_a_remedy(tmp_path: Path) -> None:
    ca, key = tmp_path / "ca", tmp_path / "ca/libvirt/1/ca-key.pem"
    make(ca)
    csr = request(tmp_path)
    key.chmod(0o644)
    with pytest.raises(Refused, match="others can read"):
        Authorities(str(ca)).sign(csr, GOAL, days=90)
    make(tmp_path / "other")
    key.write_bytes((tmp_path / "other/libvirt/1/ca-key.pem").read_bytes())
    key.chmod(0o600)
    with pytest.raises(Refused, match="does not match"):
        Authorities(str(ca)).sign(csr, GOAL, days=90)
    key.unlink()
    with pytest.raises(Refused, match="is missing; restore it"):
        Authorities(str(ca)).trust("libvirt", name="hyper1", gate=Gate(check_mode=True))
    (ca / "libvirt/1/ca-cert.pem").write_text("damaged")
    with pytest.raises(Refused, match="its certificate cannot be read; restore it"):
        Authorities(str(ca)).trust("libvirt", name="hyper1", gate=Gate(check_mode=True))


GARBAGE = b"\xff\xfe\x00{"


@pytest.mark.parametrize("damaged", [GARBAGE, b"", b'{"serial": "5f', b'{"serial": "5f"}\n', b"[]\n", b"\0" * 99])
def test_a_damaged_record_of_a_certificate_is_told_with_a_remedy(tmp_path: Path, damaged: bytes) -> None:
    ca = tmp_path / "ca"
    make(ca)
    Authorities(str(ca)).sign(request(tmp_path), GOAL, days=90)
    path, *_others = (ca / "issued").iterdir()
    content = path.read_bytes()
    path.write_bytes(damaged)
    with pytest.raises(Refused, match=rf"cannot read {path}, a certificate that was signed here; restore it"):
        Authorities(str(ca)).to_revoke(names=["hyper1"])
    path.write_bytes(damaged + b"\n" + content.partition(b"\n")[2])
    assert len(Authorities(str(ca)).to_revoke(names=["hyper1"])) == 2, "the certificate itself tells all"


def test_a_damaged_ca_is_told_with_a_remedy(tmp_path: Path) -> None:
    make(tmp_path / "ca")
    for name, reason in (("ca-key.pem", "its key is not a private key in PEM"), ("ca-cert.pem", "cannot be read")):
        path = tmp_path / "ca/libvirt/1" / name
        path.write_bytes(GARBAGE)
        with pytest.raises(Refused, match=rf"cannot use the CA in .*{reason}.*restore it"):
            Authorities(str(tmp_path / "ca")).sign(request(tmp_path), GOAL, days=90)


@pytest.mark.parametrize("damaged", [GARBAGE, b"", b"-----BEGIN X509 CRL-----\nMII=\n-----END X509 CRL-----\n"])
def test_a_damaged_list_of_revoked_certificates_is_made_again_where_the_key_is(tmp_path: Path, damaged: bytes) -> None:
    make(tmp_path / "ca")
    [path] = (tmp_path / "ca/crl").iterdir()
    content = path.read_bytes()
    path.write_bytes(damaged)
    make(tmp_path / "ca")
    assert path.read_bytes() == content


def test_a_damaged_list_of_a_ca_whose_key_is_elsewhere_is_told_with_a_remedy(tmp_path: Path) -> None:
    make(tmp_path / "ca")
    kept = Authorities(str(tmp_path / "ca"))
    kept.sign(request(tmp_path), GOAL, days=90)
    kept.make(kept.another("libvirt"))
    [first] = (tmp_path / "ca/crl").iterdir()
    kept.trust("libvirt", name="hyper2", gate=Gate(check_mode=False))
    [second] = {*(tmp_path / "ca/crl").iterdir()} - {first}
    (tmp_path / "ca/libvirt/2/ca-key.pem").unlink()
    before = kept.trust("libvirt", name="hyper2", gate=Gate(check_mode=False))
    assert len(each(before.text)) == 2
    second.write_bytes(GARBAGE)
    with pytest.raises(Refused, match=rf"cannot read {second}, the list .* the CA in .*/2 has revoked; restore it"):
        kept.trust("libvirt", name="hyper2", gate=Gate(check_mode=False))


def test_no_certificate_outlives_the_ca(tmp_path: Path) -> None:
    ca = tmp_path / "ca"
    make(ca)
    text = Authorities(str(ca)).sign(request(tmp_path), GOAL, days=100000)
    ends = {
        files_tls.describe(read(pem)).not_after for pem in (*each(text), (ca / "libvirt/1/ca-cert.pem").read_text())
    }
    assert len(ends) == 1


def test_a_key_with_a_passphrase_is_for_who_knows_it(tmp_path: Path) -> None:
    ca, key = tmp_path / "ca", tmp_path / "ca/libvirt/1/ca-key.pem"
    make(ca)
    locking = Authorities(str(ca), passphrase="a secret")
    (step,) = locking.unprotected()
    assert str(step) == f"protect {key} with the passphrase"
    locking.protect(step)
    assert not locking.unprotected() and stat.S_IMODE(key.stat().st_mode) == 0o600
    assert _opens(key, "a secret") and not _opens(key, "another")
    csr = request(tmp_path)
    locking.sign(csr, GOAL, days=90)
    with pytest.raises(Refused, match=r"the CA in .*/libvirt/1: its key has a passphrase; set it with ca_passphrase"):
        Authorities(str(ca)).sign(csr, GOAL, days=90)
    with pytest.raises(Refused, match="cannot be decrypted with this passphrase"):
        Authorities(str(ca), passphrase="another").sign(csr, GOAL, days=90)
    assert Authorities(str(ca)).trust("libvirt", name="hyper1", gate=Gate(check_mode=False)).text, (
        "nothing is signed for whom nothing changes"
    )
    make(tmp_path / "second", passphrase="a secret")
    assert b"ENCRYPTED" in (tmp_path / "second/libvirt/1/ca-key.pem").read_bytes()


def _opens(key: Path, passphrase: str) -> bool:
    words = ["openssl", "pkey", "-in", str(key), "-passin", f"pass:{passphrase}", "-noout"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def test_a_ca_is_restricted_to_domains_and_networks(tmp_path: Path) -> None:
    authorities = Authorities(str(tmp_path / "ca"))
    authorities.make(authorities.another("libvirt"), within=["example.com", "10.0.0.0/8", "fd00::/8"])
    csr = request(tmp_path)
    for names, refused in (
        (("a.example.com", "10.1.2.3", "fd00::1"), False),
        (("a.example.org",), True),
        (("192.0.2.1",), True),
        (("fe80::1",), True),
    ):
        wanted = TlsSpec(GOAL.identity, "hyper1", names, GOAL.renew_before)
        if refused:
            with pytest.raises(
                Refused, match=rf"is restricted to example.com, 10.0.0.0/8, fd00::/8, which excludes {names[0]}"
            ):
                authorities.sign(csr, wanted, days=90)
            continue
        (tmp_path / "cert.pem").write_text(each(authorities.sign(csr, wanted, days=90))[0])
        words = ["openssl", "verify", "-CAfile", str(tmp_path / "ca/libvirt/1/ca-cert.pem"), str(tmp_path / "cert.pem")]
        subprocess.run(words, capture_output=True, check=True)


@pytest.mark.parametrize(
    ("texts", "problems"),
    [
        ({}, None),
        ({"ca_certificate": "c"}, None),
        ({"ca_certificate": "c", "ca_key": "k"}, {"qemu_ca_certificate", "qemu_ca_key"}),
        ({"ca_certificate": "c", "ca_key": "k", "identities": ["libvirt"]}, set()),
        (
            {"ca_certificate": "c", "ca_key": "k", "qemu_ca_certificate": "c", "identities": ["libvirt"]},
            {"qemu_ca_key"},
        ),
        ({"qemu_ca_certificate": "c", "qemu_ca_key": "k"}, {"ca_certificate", "ca_key"}),
        ({"qemu_ca_certificate": "c", "qemu_ca_key": "k", "identities": ["qemu"]}, set()),
        (
            {"qemu_ca_certificate": "c", "qemu_ca_key": "k", "identities": ["qemu"], "controller": True},
            {"ca_certificate", "ca_key"},
        ),
        (
            {"ca_certificate": "c", "ca_key": "k", "identities": ["libvirt"], "ca_crl": "r", "new_authority": True},
            {"ca_crl", "new_authority"},
        ),
    ],
)
def test_half_of_what_is_given_is_refused(texts: dict[str, t.Any], problems: set[str] | None) -> None:
    params = dict.fromkeys(["ca_certificate", "ca_key", "ca_crl", "qemu_ca_certificate", "qemu_ca_key", "qemu_ca_crl"])
    params = {**params, "identities": ["libvirt", "qemu"], "controller": False, "new_authority": False, **texts}
    if not problems:
        assert (given(params) is None) == (problems is None)
        return
    with pytest.raises(BadInput, match="ca_") as caught:
        given(params)
    assert {re.split(r"[: ]", problem)[0] for problem in caught.value.problems} == problems


@pytest.mark.parametrize("version", ["37.0.4", "38.0.3", "3.4.8"])
def test_an_old_library_is_the_reason_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr("cryptography.__version__", version)
    result = rf"requires cryptography 38.0.4 or newer, found {version}; pip install 'cryptography>=38.0.4'"
    with pytest.raises(Unsupported, match=re.escape(result)):
        Authorities(str(tmp_path / "ca"))
    files_tls.need_library()


def test_a_newer_library_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("38.0.4", "38.1", "42.0.0.dev1", "100.0"):
        monkeypatch.setattr("cryptography.__version__", version)
        files_tls.need_library(OLDEST)
