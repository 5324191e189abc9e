"""The CA: made once whoever asks, private, and signing only what the controller wants."""

from __future__ import annotations

import datetime
import multiprocessing
import re
import stat
from pathlib import Path

import pytest
from cryptography import x509

from ansible_collections.corral.virt.plugins.module_utils._errors import Refused, Unsupported
from ansible_collections.corral.virt.plugins.module_utils._files import tls as files
from ansible_collections.corral.virt.plugins.module_utils._model.tls import IDENTITIES, Wanted
from ansible_collections.corral.virt.plugins.plugin_utils._ca import OLDEST, Authority

GOAL = Wanted(IDENTITIES["libvirt"], "hyper1", ("10.0.0.1", "fd00::1", "hyper1"), datetime.timedelta(days=30))


def make(directory: Path) -> str | None:
    authority = Authority(str(directory))
    authority.make()
    return authority.certificate()


def test_parallel_forks_make_one(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        certificates = set(pool.map(make, [tmp_path / "ca"] * 8))
    assert len(certificates) == 1


def test_it_is_private(tmp_path: Path) -> None:
    make(tmp_path / "ca")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "ca", *(tmp_path / "ca").iterdir()]}
    assert modes["ca"] == 0o700
    assert modes["ca-key.pem"] == 0o600
    assert (tmp_path / "ca/.gitignore").read_text().endswith("*\n")


def test_a_host_gets_the_name_the_controller_chose(tmp_path: Path) -> None:
    make(tmp_path / "ca")
    csr = files.request(GOAL.identity, str(tmp_path / "pki"), subject="O=corral.virt,OU=libvirt,CN=somebody-else")
    text = Authority(str(tmp_path / "ca")).sign(csr, GOAL, days=90)
    certificate = files.describe(x509.load_pem_x509_certificate(text.encode()))
    assert certificate.subject == GOAL.subject
    assert certificate.names == GOAL.names
    assert [path.read_text() for path in (tmp_path / "ca/issued").iterdir()] == [text]


def test_a_broken_ca_is_refused_with_a_remedy(tmp_path: Path) -> None:
    ca = tmp_path / "ca"
    make(ca)
    csr = files.request(GOAL.identity, str(tmp_path / "pki"), subject=GOAL.subject)
    (ca / "ca-key.pem").chmod(0o644)
    with pytest.raises(Refused, match="others can read"):
        Authority(str(ca)).sign(csr, GOAL, days=90)
    make(tmp_path / "other")
    (ca / "ca-key.pem").write_bytes((tmp_path / "other/ca-key.pem").read_bytes())
    (ca / "ca-key.pem").chmod(0o600)
    with pytest.raises(Refused, match="does not belong"):
        Authority(str(ca)).sign(csr, GOAL, days=90)
    (ca / "ca-key.pem").unlink()
    with pytest.raises(Refused, match="is missing; restore it"):
        Authority(str(ca)).certificate()


def test_no_certificate_outlives_the_ca(tmp_path: Path) -> None:
    ca = tmp_path / "ca"
    make(ca)
    csr = files.request(GOAL.identity, str(tmp_path / "pki"), subject=GOAL.subject)
    text = Authority(str(ca)).sign(csr, GOAL, days=100000)
    ends = [files.describe(x509.load_pem_x509_certificate(pem)).not_after for pem in (text.encode(), (ca / "ca-cert.pem").read_bytes())]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("version", ["37.0.4", "38.0.3", "3.4.8"])
def test_an_old_library_is_the_reason_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr("cryptography.__version__", version)
    told = rf"needs cryptography 38.0.4 or newer, found {version}; pip install 'cryptography>=38.0.4'"
    with pytest.raises(Unsupported, match=re.escape(told)):
        Authority(str(tmp_path / "ca"))
    files.need_library()


def test_a_newer_library_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("38.0.4", "38.1", "42.0.0.dev1", "100.0"):
        monkeypatch.setattr("cryptography.__version__", version)
        files.need_library(OLDEST)
