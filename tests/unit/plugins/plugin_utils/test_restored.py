"""A CA directory that is older than what hosts hold: nobody accepts again what was revoked since its backup."""

from __future__ import annotations

import itertools
import os
import shutil
import typing as t
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.plugin_utils._authority import ca
from ansible_collections.corral.virt.tests.unit.plugins.plugin_utils.months import Cloud

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="the files belong to root")]

CLIENT = {"libvirt": "libvirt/clientcert.pem", "qemu": "qemu/client-cert.pem"}
LISTS = ("CA/cacrl.pem", "qemu/ca-crl.pem")


@pytest.fixture(scope="module")
def keys() -> list[t.Any]:
    """RSA keys take their time: short ones serve all tests, in turn."""
    return [rsa.generate_private_key(public_exponent=65537, key_size=1024) for _number in range(24)]


@pytest.fixture
def cloud(tmp_path: Path, keys: list[t.Any], monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """Three hosts with certificates, and a backup of the CA directory."""
    turn = itertools.cycle(keys)
    monkeypatch.setattr("ansible_collections.corral.virt.plugins.plugin_utils._authority.ca.KEY_BITS", 1024)
    monkeypatch.setattr(rsa, "generate_private_key", lambda **_options: next(turn))
    for host in ("h1", "h2", "h3"):
        (tmp_path / host).mkdir()
    cloud = Cloud(tmp_path)
    cloud.asks = True
    cloud.play()
    backup(cloud, "backup")
    return cloud


def backup(cloud: Cloud, name: str) -> None:
    """Copy the CA directory."""
    shutil.copytree(cloud.place / "ca", cloud.place / name, symlinks=True)


def restore(cloud: Cloud, name: str = "backup") -> None:
    """Replace the CA directory by a backup."""
    shutil.rmtree(cloud.place / "ca")
    shutil.copytree(cloud.place / name, cloud.place / "ca", symlinks=True)


def reinstall(cloud: Cloud, host: str) -> None:
    """A host without any file."""
    shutil.rmtree(cloud.place / host)
    (cloud.place / host).mkdir()


def stolen(cloud: Cloud, host: str) -> dict[str, Path]:
    """Copies of the certificates that a host has now, as a client."""
    return {
        kind: Path(shutil.copy(cloud.path(host, name), cloud.place / f"stolen-{host}-{kind}.pem"))
        for kind, name in CLIENT.items()
    }


def tree(place: Path) -> dict[str, bytes]:
    """All files below."""
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def refuses(cloud: Cloud, host: str, certificates: t.Mapping[str, Path]) -> bool:
    """Whether openssl, with the files of a host, takes each of these for revoked."""
    return all("certificate revoked" in cloud.refused(host, kind, "client", one) for kind, one in certificates.items())


def test_a_reinstalled_host_refuses_what_the_others_know_to_be_revoked(cloud: Cloud) -> None:
    old = stolen(cloud, "h3")
    cloud.revoke(name="h3")
    cloud.play()
    restore(cloud)
    reinstall(cloud, "h1")
    before = tree(cloud.place)
    foretold, warned = cloud.visit("h1", check_mode=True), cloud.warnings
    assert tree(cloud.place) == before
    done = cloud.visit("h1")
    assert cloud.warnings == warned
    (warning,) = warned
    assert f"{cloud.place}/ca had forgotten revocations" in warning and "those of h3 (" in warning
    assert "on h2 and h3. They are taken over" in warning and "restore the newest backup" in warning
    taken = [step for step in done["steps"] if step.startswith("take over the revocation of ")]
    assert len(taken) == 4 and [step for step in foretold["steps"] if step.startswith("take over")] == taken
    assert foretold["changed"] and foretold["steps"][:4] == taken
    assert {**foretold["diff"]["before"]}.items() >= {
        field: "valid" for field in done["diff"]["before"] if field.startswith("h3.")
    }.items()
    assert refuses(cloud, "h1", old) and refuses(cloud, "h2", old)
    assert not cloud.refusals()
    lists = [cloud.path(host, name).read_bytes() for host in ("h1", "h2", "h3") for name in LISTS]
    assert len({*lists}) == 2, "the list that the others have serves; no other is signed"
    assert not any(one["changed"] for one in cloud.play().values()) and not cloud.warnings


def test_what_two_copies_of_the_directory_revoked_is_revoked_by_both(cloud: Cloud) -> None:
    """No list has all of it."""
    old = {host: stolen(cloud, host) for host in ("h2", "h3")}
    for host in ("h2", "h3"):
        cloud.revoke(name=host)
        cloud.asks = False
        cloud.visit(host)
        restore(cloud)
    cloud.asks = True
    reinstall(cloud, "h1")
    cloud.visit("h1")
    (warning,) = cloud.warnings
    assert "those of h2 (" in warning and "on h2; those of h3 (" in warning
    assert refuses(cloud, "h1", old["h2"]) and refuses(cloud, "h1", old["h3"])
    cloud.play()
    assert all(refuses(cloud, host, one) for host in cloud.hosts for one in old.values())
    assert not cloud.refusals()


def test_a_host_that_does_not_answer_is_named_and_stops_nobody(cloud: Cloud) -> None:
    old = stolen(cloud, "h3")
    cloud.revoke(name="h3")
    cloud.visit("h2")
    restore(cloud)
    reinstall(cloud, "h1")
    cloud.silent = {"h2": "No route to host"}
    assert cloud.visit("h1")["changed"]
    (warning,) = cloud.warnings
    assert "cannot read the lists of revoked certificates of h2 (No route to host)" in warning
    assert not refuses(cloud, "h1", old), "nobody could tell"
    assert cloud.visit("h2")["changed"] is False, "its list stays, whatever the directory knows"
    assert any("those of h3 (" in one and "on h2" in one for one in cloud.warnings), "it is told when it is seen"
    assert refuses(cloud, "h2", old)
    cloud.silent = {}
    cloud.play()
    assert refuses(cloud, "h1", old) and not cloud.refusals()


@pytest.mark.parametrize("lie", ["garbage", "foreign", "older"])
def test_a_list_that_is_no_news_changes_nothing(cloud: Cloud, lie: str) -> None:
    """A host can show whatever it likes."""
    texts = {"garbage": "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"}
    texts["older"] = cloud.path("h2", LISTS[0]).read_text()
    certificate, key = (text.decode() for text in ca.make("libvirt", now=cloud.now))
    theirs = ca.CertificateAuthority(certificate, key, passphrase=None, named="theirs")
    texts["foreign"] = theirs.crl([ca.Revoked(5, cloud.now)]).decode()
    cloud.revoke(name="h3")
    cloud.play()
    place = cloud.path("h2", LISTS[0]).resolve()
    place.write_text(texts[lie])
    before = tree(cloud.place / "ca")
    assert not cloud.visit("h1")["changed"] and not cloud.warnings
    assert tree(cloud.place / "ca") == before


def test_a_certificate_that_was_issued_after_the_backup_can_be_revoked(cloud: Cloud) -> None:
    """Also of a host that is not visited."""
    cloud.visit("h3", force=True)
    new = stolen(cloud, "h3")
    restore(cloud)
    cloud.visit("h1")
    assert cloud.revoke(name="h3")["changed"]
    cloud.visit("h1")
    assert refuses(cloud, "h1", new)


def test_a_ca_that_is_newer_than_the_backup_is_told(cloud: Cloud) -> None:
    cloud.play(new_authority=True)
    restore(cloud)
    reinstall(cloud, "h1")
    cloud.visit("h1")
    (warning,) = cloud.warnings
    assert "hypervisors trust CAs that" in warning and "on h2 and h3" in warning
    cloud.visit("h1", replace_authority=True)
    assert not cloud.warnings, "who means it is not warned"


def test_a_job_that_begins_with_an_empty_directory_learns_of_revocations_without_a_warning(cloud: Cloud) -> None:
    old = stolen(cloud, "h3")
    cloud.revoke(name="h3")
    cloud.visit("h2")
    texts: dict[str, t.Any] = {
        f"{prefix}ca_{option}": (cloud.place / f"ca/{authority}/1/ca-{name}.pem").read_text()
        for authority, prefix in (("libvirt", ""), ("qemu", "qemu_"))
        for option, name in (("certificate", "cert"), ("key", "key"))
    }
    reinstall(cloud, "h1")
    cloud.visit("h1", ca_dir=str(cloud.place / "job"), controller=False, **texts)
    assert refuses(cloud, "h1", old) and not cloud.warnings


def test_a_given_list_that_has_revoked_less_is_left_out_and_told(cloud: Cloud) -> None:
    """Of CAs whose keys are elsewhere."""
    old, empty = stolen(cloud, "h3"), cloud.path("h1", LISTS[0]).read_text()
    cloud.revoke(name="h3")
    cloud.visit("h1")
    texts: dict[str, t.Any] = {
        f"{prefix}ca_certificate": (cloud.place / f"ca/{authority}/1/ca-cert.pem").read_text()
        for authority, prefix in (("libvirt", ""), ("qemu", "qemu_"))
    }
    assert not cloud.visit("h1", controller=False, ca_crl=empty, **texts)["changed"]
    (warning,) = cloud.warnings
    assert "h1 refuses certificates that the list in ca_crl has not revoked" in warning
    assert refuses(cloud, "h1", old)


def test_a_list_that_became_longer_meanwhile_is_not_replaced(cloud: Cloud) -> None:
    """Another controller writes to the host between the two halves of the talk."""
    old = stolen(cloud, "h3")
    backup(cloud, "other")
    cloud.asks = False

    def meddle(ask: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
        def between(params: dict[str, t.Any]) -> t.Any:
            if params.get("certificates"):
                cloud.answer = lambda plain: plain
                cloud.revoke(name="h3", ca_dir=str(cloud.place / "other"))
                cloud.visit("h1", ca_dir=str(cloud.place / "other"))
            return ask(params)

        return between

    cloud.answer = meddle
    with pytest.raises(Refused, match="list in place has revoked certificates that the new one lacks") as refused:
        cloud.visit("h1", force=True)
    assert "run again to take them over" in str(refused.value)
    assert refuses(cloud, "h1", old)
    cloud.visit("h1")
    assert refuses(cloud, "h1", old) and not cloud.refusals("h1", "h2")
