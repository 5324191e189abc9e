"""Whose hypervisors these are: one authority is never replaced by another by accident, and no host gets another one's
name.

What the action and the module decide is asked without Ansible between them. Options, inventory and output go through
Ansible.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import re
import shutil
import typing as t
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.tests.contract.play import Play
from ansible_collections.corral.virt.tests.unit.plugins.plugin_utils.months import Cloud
from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="the files belong to root")]

NAMES = ("h1", "h2")


class Hosts(Play):
    """h1 and h2, with a PKI directory each, and the first controller's authority."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.first, self.second = place / "first ca", place / "second ca"
        self.hosts(hyper={name: {"ansible_host": f"10.0.0.{name[1:]}", "root": str(place / name)} for name in NAMES})
        self.cloud = Cloud(place, hosts=len(NAMES))
        self.cloud.now = datetime.datetime.now(datetime.UTC)  # Ansible's clock cannot be turned

    def visit(self, host: str, ca_dir: Path, **output: t.Any) -> dict[str, t.Any]:
        """What the action says of a host, asked without Ansible."""
        return self.cloud.visit(host, **{"ca_dir": str(ca_dir), "controller": False, **output})

    def certify(
        self, ca_dir: Path | None, *, hosts: str = "hyper", options: t.Sequence[str] = (), **arguments: t.Any
    ) -> t.Any:
        """What the module said on each host, through Ansible."""
        where = {"ca_dir": str(ca_dir)} if ca_dir else {}
        output = {"pki_dir": "{{ root }}", "qemu_group": "root", **where, **arguments}
        return self.run(
            {"corral.virt.virt_tls": output, "register": "told", "ignore_errors": True}, hosts=hosts, options=options
        )

    def files(self, name: str) -> dict[str, bytes]:
        """Of a host."""
        place = self.place / name
        return {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}

    def fingerprint(self, name: str) -> str:
        """Of the CA that a host's libvirt trusts."""
        return _fingerprint(self.place / name / "CA/cacert.pem")


def _fingerprint(path: Path) -> str:
    return x509.load_pem_x509_certificate(path.read_bytes()).fingerprint(hashes.SHA256()).hex()


@pytest.fixture(scope="module")
def keys() -> t.Iterator[None]:
    """RSA keys take their time: short ones serve where Ansible's own processes make none."""
    make = rsa.generate_private_key
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ansible_collections.corral.virt.plugins.plugin_utils._authority.ca.KEY_BITS", 1024)
        patch.setattr(rsa, "generate_private_key", lambda **_options: make(public_exponent=65537, key_size=1024))
        yield


@pytest.fixture(scope="module")
def made(keys: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where both belong to the first controller."""
    hosts = Hosts(tmp_path_factory.mktemp("made"))
    for name in NAMES:
        (hosts.place / name).mkdir()
        assert hosts.visit(name, hosts.first)["changed"]
    return hosts.place


@pytest.fixture
def hosts(made: Path, tmp_path: Path) -> Hosts:
    """Both belong to the first controller."""
    shutil.copytree(made, tmp_path / "hosts", symlinks=True)
    return Hosts(tmp_path / "hosts")


@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check"])
def test_a_second_controller_replaces_no_authority(hosts: Hosts, check_mode: bool) -> None:
    before = hosts.files("h1"), hosts.files("h2")
    for name in NAMES:
        with pytest.raises(Refused, match=hosts.fingerprint(name)) as refused:
            hosts.visit(name, hosts.second, check_mode=check_mode, controller=True)
        assert "Here: none yet" in str(refused.value)
    assert not hosts.second.exists(), "nothing that would stand in the way of the right one"
    assert (hosts.files("h1"), hosts.files("h2")) == before


@pytest.mark.parametrize(
    ("serial", "dead", "goes_on"),
    [
        pytest.param(0, False, [], id="together"),
        pytest.param(1, False, [], id="serial"),
        pytest.param(1, True, ["h0", "h1"], id="dead"),
    ],
)
def test_no_host_gets_certificates_before_all_are_asked(
    hosts: Hosts, serial: int, dead: bool, goes_on: list[str]
) -> None:
    """Nobody asks the dead, with serial and without it."""
    away = {"ansible_connection": "ssh", "ansible_ssh_executable": "/bin/false"} if dead else {}
    addresses = {name: {"ansible_host": f"10.0.0.{name[1:]}"} for name in ("h0", "h1", "h2")}
    hosts.hosts(hyper={**addresses, "h2": {**addresses["h2"], **away}})
    for name in ("h0", "h1"):
        shutil.rmtree(hosts.place / name, ignore_errors=True)
        (hosts.place / name).mkdir()
    tasks = yaml.safe_load((ROLES / "pki/tasks/main.yml").read_text())
    before = itertools.takewhile(lambda task: not task["name"].startswith("Revoke"), tasks)
    asked = {"pki_dir": f"{hosts.place}/{{{{ item | default(inventory_hostname) }}}}", "qemu_group": "root"}
    code = hosts.ends(
        *(task for task in before if "ansible.builtin.setup" not in task),
        {"ansible.builtin.debug": {"msg": "certify {{ inventory_hostname }}"}},
        vars_files=[str(ROLES / "pki" / part / "main.yml") for part in ("defaults", "vars")],
        module_defaults={"corral.virt.virt_tls": asked},
        options=["-e", json.dumps({"pki_ca_dir": str(hosts.second), "pki_manage_hosts": False})],
        serial=serial,
    )
    assert re.findall(r'"msg": "certify (h.)"', hosts.stdout) == goes_on and code, hosts.stdout
    assert ("Here: none yet" in hosts.stdout) is not dead


def test_both_authorities_are_named_and_the_remedies_mend_it(hosts: Hosts) -> None:
    (hosts.place / "elsewhere/h1").mkdir(parents=True)
    Hosts(hosts.place / "elsewhere").visit("h1", hosts.second)
    before = hosts.files("h1")
    with pytest.raises(Refused, match=hosts.fingerprint("h1")) as refused:
        hosts.visit("h1", hosts.second)
    assert _fingerprint(hosts.second / "libvirt/1/ca-cert.pem") in str(refused.value)
    assert "Copy the directory of that authority" in str(refused.value) and "pki_replace_authority" in str(
        refused.value
    )
    assert hosts.files("h1") == before
    shutil.rmtree(hosts.second)
    shutil.copytree(hosts.first, hosts.second, symlinks=True)
    assert hosts.visit("h1", hosts.second)["changed"] is False
    assert hosts.files("h1") == before


def test_who_means_it_replaces_it(hosts: Hosts) -> None:
    old = hosts.fingerprint("h1")
    assert hosts.visit("h1", hosts.second, replace_authority=True, check_mode=True)["changed"]
    assert hosts.fingerprint("h1") == old
    assert hosts.visit("h1", hosts.second, replace_authority=True)["changed"]
    assert hosts.fingerprint("h1") == _fingerprint(hosts.second / "libvirt/1/ca-cert.pem") != old
    assert not hosts.visit("h1", hosts.second, replace_authority=True)["changed"]


def test_what_somebody_else_has_set_up_is_refused_too(hosts: Hosts) -> None:
    (hosts.place / "h3/CA").mkdir(parents=True)
    (hosts.place / "h3/CA/cacert.pem").write_text("damaged\n")
    with pytest.raises(Refused, match=r"CA/cacert\.pem, which is not a certificate"):
        hosts.visit("h3", hosts.first)
    assert hosts.files("h3") == {"CA/cacert.pem": b"damaged\n"}


def test_an_authority_given_as_texts_serves_and_is_not_written(hosts: Hosts) -> None:
    texts = {
        f"{prefix}ca_{option}": (hosts.first / f"{authority}/1/ca-{name}.pem").read_text()
        for authority, prefix in (("libvirt", ""), ("qemu", "qemu_"))
        for option, name in (("certificate", "cert"), ("key", "key"))
    }
    result = hosts.certify(hosts.second, **texts, controller=True, force=True, options=["-vvvv", "--diff"])
    assert result["h1"]["changed"], result["h1"]["msg"]
    assert {*result["h1"]["certificates"]} == {"libvirt", "qemu", "controller"}
    for key in (texts[name].splitlines()[5] for name in ("ca_key", "qemu_ca_key")):
        assert key not in hosts.stdout
        assert not [
            path
            for place in ("second ca", "h1", "h2")
            for path in (hosts.place / place).rglob("*.pem")
            if key in path.read_text()
        ]
    assert hosts.certify(hosts.second, **texts, hosts="h1", controller=True)["h1"]["changed"] is False


def test_controllers_share_it_by_an_environment_variable(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one with another authority is told so on each host."""
    for ca_dir, failed in ((hosts.first, False), (hosts.second, True)):
        monkeypatch.setenv("CORRAL_VIRT_CA_DIR", str(ca_dir))
        result = hosts.certify(None)
        assert [(bool(result[name].get("failed")), result[name]["changed"]) for name in NAMES] == [
            (failed, False)
        ] * 2, hosts.stdout
    assert all(hosts.fingerprint(name) in result[name]["msg"] for name in NAMES)


@pytest.mark.parametrize("options", [[], ["--check"]], ids=["run", "check"])
def test_no_host_gets_the_name_of_another_one(hosts: Hosts, options: list[str]) -> None:
    before = hosts.files("h1")
    other = {"root": "/nowhere", "ansible_host": "FD00:0::3"}
    broken = {"root": "/nowhere", "ansible_host": "{{ nobody_says_this }}"}
    hosts.hosts(
        hyper={"h1": {"root": str(hosts.place / "h1")}, "h2": {"ansible_host": "10.0.0.2"}, "H3": other, "h4": broken}
    )
    wanted = ["h1", "h2", "10.0.0.2", "h3", "fd00::3", "h4"]
    result = hosts.certify(hosts.first, hosts="h1", names=wanted, options=options)["h1"]
    taken = {"h2": "h2", "10.0.0.2": "h2", "h3": "H3", "fd00::3": "H3", "h4": "h4"}
    assert result["failed"] and {f"{name} belongs to {host} in the inventory" for name, host in taken.items()} == {
        problem.partition(": ")[2].partition(";")[0] for problem in result["problems"]
    }
    certificates = {name: content for name, content in hosts.files("h1").items() if not name.endswith("pending.pem")}
    assert certificates == before


def test_no_host_gets_a_name_that_stands_in_a_valid_certificate_of_another_one(hosts: Hosts) -> None:
    (hosts.place / "h9").mkdir()
    with pytest.raises(Refused, match=r"10\.0\.0\.1 belongs to h1 until "):
        hosts.visit("h9", hosts.first, names=["h9", "10.0.0.1"])
    hosts.cloud.revoke(ca_dir=str(hosts.first), name="h1")
    assert hosts.visit("h9", hosts.first, names=["h9", "10.0.0.1"])["changed"]


@pytest.mark.parametrize("options", [["--check"], []], ids=["check", "run"])
def test_all_hosts_are_asked_what_is_revoked_before_one_is_written_to(hosts: Hosts, options: list[str]) -> None:
    """Also those that --limit leaves out; once for all hosts of a run."""
    backup, away = hosts.place / "backup", {"ansible_connection": "ssh", "ansible_ssh_executable": "/bin/false"}
    shutil.copytree(hosts.first, backup, symlinks=True)
    old = (hosts.place / "h2/libvirt/clientcert.pem").read_bytes()
    hosts.cloud.revoke(ca_dir=str(hosts.first), name="h2")
    hosts.visit("h2", hosts.first)
    everybody = {name: {"ansible_host": f"10.0.0.{name[1:]}", "root": str(hosts.place / name)} for name in ("h1", "h2")}
    hosts.hosts(hyper={"h0": {"root": str(hosts.place / "h0")}, **everybody, "h3": {"root": "/nowhere", **away}})
    for name in ("h0", "h1"):
        shutil.rmtree(hosts.place / name, ignore_errors=True)
        (hosts.place / name).mkdir()
    group = "{{ groups['hyper'] }}"
    limit = ["--limit", "h0,h1,localhost"]
    result = hosts.certify(backup, hypervisors=group, options=[*options, *limit])
    printed = " ".join(hosts.stdout.split())
    assert all(result[name]["changed"] for name in ("h0", "h1")), hosts.stdout
    assert printed.count("had forgotten revocations") == 1 and "those of h2 (" in printed and "on h2. They" in printed
    assert printed.count("cannot read the lists of revoked certificates of h3 (") == 1
    steps = [step for name in ("h0", "h1") for step in result[name]["steps"] if step.startswith("take over")]
    assert len(steps) == 4
    if options:
        assert not hosts.files("h0") and not hosts.files("h1")
        return
    (hosts.place / "old.pem").write_bytes(old)
    for name in ("h0", "h1"):
        assert "revoked" in hosts.cloud.refused(name, "libvirt", "client", hosts.place / "old.pem")
    again = hosts.certify(backup, hypervisors=group, options=limit)
    assert not any(again[name]["changed"] for name in ("h0", "h1")) and "forgotten" not in hosts.stdout


@pytest.mark.parametrize("revoked", ["{{ item }}", None], ids=["by name", "absent"])
def test_a_check_of_a_revocation_has_what_the_run_changes_on_each_host(hosts: Hosts, revoked: str | None) -> None:
    """As rotate_certificates and the role pki do it: revoke once, then visit all hosts."""
    hosts.certify(hosts.first)
    whom = {"name": revoked} if revoked else {"hypervisors": ["h1"]}
    hosts.hosts(
        hyper={name: {"ansible_host": f"10.0.0.{name[1:]}", "root": str(hosts.place / name)} for name in ("h1",)}
    )
    revoke = {"state": "revoked", "ca_dir": str(hosts.first), **whom}
    visit = {"pki_dir": "{{ root }}", "qemu_group": "root", "ca_dir": str(hosts.first)}
    tasks = (
        {"corral.virt.virt_tls": revoke, "loop": ["h2"], "run_once": True},
        {"corral.virt.virt_tls": visit, "register": "told"},
    )
    before = hosts.files("h1")
    checked = hosts.run(*tasks, options=["--check"])["h1"]
    assert hosts.files("h1") == before and not (hosts.first / "revoked").exists()
    assert checked["steps"] == ["set whom libvirt trusts (refuses)", "set whom qemu trusts (refuses)"]
    assert not hosts.run(*tasks[1:], options=["--check"])["h1"]["changed"], "a note is of one run"
    assert hosts.run(*tasks)["h1"]["steps"] == checked["steps"]
    assert not hosts.run(*tasks, options=["--check"])["h1"]["changed"]


def test_a_list_that_cannot_be_read_is_told(hosts: Hosts) -> None:
    """It is not taken for none."""
    (hosts.place / "h2/CA/cacrl.pem").unlink()
    (hosts.place / "h2/CA/cacrl.pem").mkdir()
    hosts.certify(hosts.first, hosts="h1", options=["--limit", "h1,localhost"])
    assert "cannot read the lists of revoked certificates of h2 (cat: " in " ".join(hosts.stdout.split())
