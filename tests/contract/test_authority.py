"""Whose hypervisors these are: one authority is never replaced by another by accident, and no host gets another one's name."""

from __future__ import annotations

import os
import shutil
import typing as t
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from ansible_collections.corral.virt.tests.contract.play import Play

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the files belong to root")


class Hosts(Play):
    """h1 and h2, with a PKI directory each, and the first controller's authority."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.first, self.second = place / "first ca", place / "second ca"
        self.hosts(hyper={name: {"ansible_host": f"10.0.0.{name[1:]}", "root": str(place / name)} for name in ("h1", "h2")})

    def certify(self, ca_dir: Path | None, *, hosts: str = "hyper", options: t.Sequence[str] = (), **arguments: t.Any) -> t.Any:
        """What the module said on each host."""
        where = {"ca_dir": str(ca_dir)} if ca_dir else {}
        said = {"pki_dir": "{{ root }}", "qemu_group": "root", **where, **arguments}
        return self.run({"corral.virt.virt_tls": said, "register": "told", "ignore_errors": True}, hosts=hosts, options=options)

    def files(self, name: str) -> dict[str, bytes]:
        """Of a host."""
        place = self.place / name
        return {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}

    def fingerprint(self, name: str) -> str:
        """Of the CA that a host's libvirt trusts."""
        return _fingerprint(self.place / name / "CA/cacert.pem")


def _fingerprint(path: Path) -> str:
    return x509.load_pem_x509_certificate(path.read_bytes()).fingerprint(hashes.SHA256()).hex()


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    """Both belong to the first controller."""
    hosts = Hosts(tmp_path)
    told = hosts.certify(hosts.first)
    assert [told[name]["changed"] for name in ("h1", "h2")] == [True, True], hosts.stdout
    return hosts


@pytest.mark.parametrize("options", [[], ["--check"]], ids=["run", "check"])
def test_a_second_controller_replaces_no_authority(hosts: Hosts, options: list[str]) -> None:
    before = hosts.files("h1"), hosts.files("h2")
    told = hosts.certify(hosts.second, options=options, controller=True)
    for name in ("h1", "h2"):
        assert told[name]["failed"] and hosts.fingerprint(name) in told[name]["msg"] and "Here: none yet" in told[name]["msg"]
    assert not hosts.second.exists(), "nothing that would stand in the way of the right one"
    assert (hosts.files("h1"), hosts.files("h2")) == before


def test_both_authorities_are_named_and_the_remedies_mend_it(hosts: Hosts) -> None:
    (hosts.place / "elsewhere").mkdir()
    Hosts(hosts.place / "elsewhere").certify(hosts.second, hosts="h1")
    before = hosts.files("h1")
    told = hosts.certify(hosts.second)["h1"]
    assert told["failed"] and hosts.fingerprint("h1") in told["msg"] and _fingerprint(hosts.second / "libvirt/1/ca-cert.pem") in told["msg"]
    assert "Bring the directory of that authority" in told["msg"] and "pki_replace_authority" in told["msg"]
    assert hosts.files("h1") == before
    shutil.rmtree(hosts.second)
    shutil.copytree(hosts.first, hosts.second)
    assert hosts.certify(hosts.second)["h1"]["changed"] is False
    assert hosts.files("h1") == before


def test_who_means_it_replaces_it(hosts: Hosts) -> None:
    old = hosts.fingerprint("h1")
    assert hosts.certify(hosts.second, replace_authority=True, options=["--check"])["h1"]["changed"]
    assert hosts.fingerprint("h1") == old
    assert hosts.certify(hosts.second, replace_authority=True)["h1"]["changed"]
    assert hosts.fingerprint("h1") == _fingerprint(hosts.second / "libvirt/1/ca-cert.pem") != old
    assert not hosts.certify(hosts.second, replace_authority=True)["h1"]["changed"]


def test_what_somebody_else_has_set_up_is_refused_too(hosts: Hosts) -> None:
    (hosts.place / "h3").mkdir()
    hosts.hosts(hyper={"h3": {"root": str(hosts.place / "h3")}})
    (hosts.place / "h3/CA").mkdir()
    (hosts.place / "h3/CA/cacert.pem").write_text("damaged\n")
    told = hosts.certify(hosts.first)["h3"]
    assert told["failed"] and "CA/cacert.pem, which is no certificate" in told["msg"]
    assert hosts.files("h3") == {"CA/cacert.pem": b"damaged\n"}


def test_an_authority_given_as_texts_serves_and_is_not_written(hosts: Hosts) -> None:
    texts = {
        f"{prefix}ca_{option}": (hosts.first / f"{authority}/1/ca-{name}.pem").read_text()
        for authority, prefix in (("libvirt", ""), ("qemu", "qemu_"))
        for option, name in (("certificate", "cert"), ("key", "key"))
    }
    told = hosts.certify(hosts.second, **texts, controller=True, force=True, options=["-vvvv", "--diff"])
    assert told["h1"]["changed"] and {*told["h1"]["certificates"]} == {"libvirt", "qemu", "controller"}
    for key in (texts[name].splitlines()[5] for name in ("ca_key", "qemu_ca_key")):
        assert key not in hosts.stdout
        assert not [path for place in ("second ca", "h1", "h2") for path in (hosts.place / place).rglob("*.pem") if key in path.read_text()]
    assert hosts.certify(hosts.second, **texts, controller=True)["h1"]["changed"] is False


def test_controllers_share_it_by_an_environment_variable(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRAL_VIRT_CA_DIR", str(hosts.first))
    told = hosts.certify(None)
    assert [(told[name].get("msg"), told[name]["changed"]) for name in ("h1", "h2")] == [(None, False)] * 2


@pytest.mark.parametrize("options", [[], ["--check"]], ids=["run", "check"])
def test_no_host_gets_the_name_of_another_one(hosts: Hosts, options: list[str]) -> None:
    before = hosts.files("h1")
    other = {"root": "/nowhere", "ansible_host": "FD00:0::3"}
    broken = {"root": "/nowhere", "ansible_host": "{{ nobody_says_this }}"}
    hosts.hosts(hyper={"h1": {"root": str(hosts.place / "h1")}, "h2": {"ansible_host": "10.0.0.2"}, "H3": other, "h4": broken})
    wanted = ["h1", "h2", "10.0.0.2", "h3", "fd00::3", "h4"]
    told = hosts.certify(hosts.first, hosts="h1", names=wanted, options=options)["h1"]
    taken = {"h2": "h2", "10.0.0.2": "h2", "h3": "H3", "fd00::3": "H3", "h4": "h4"}
    assert told["failed"] and {f"{name} is {host} in the inventory" for name, host in taken.items()} == {
        problem.partition(": ")[2].partition(";")[0] for problem in told["problems"]
    }
    certificates = {name: content for name, content in hosts.files("h1").items() if not name.endswith("pending.pem")}
    assert certificates == before


def test_no_host_gets_a_name_that_stands_in_a_valid_certificate_of_another_one(hosts: Hosts) -> None:
    hosts.hosts(hyper={"h9": {"ansible_host": "10.0.0.1", "root": str(hosts.place / "h9")}})
    told = hosts.certify(hosts.first)["h9"]
    assert told["failed"] and "10.0.0.1 is h1's until " in told["msg"]
    hosts.run({"corral.virt.virt_tls": {"state": "revoked", "name": "h1", "ca_dir": str(hosts.first)}, "register": "told"})
    assert hosts.certify(hosts.first)["h9"]["changed"]
