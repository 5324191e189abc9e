"""The controller's certificate in files of random names, as jobs get it: which of them libvirt shows, and what is said
of those that are of no use.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.plugin_utils._authority.credential_files import (
    OPTIONS,
    CredentialFiles,
    check,
)
from ansible_collections.corral.virt.tests.contract.certificates import Authority, write_directory
from ansible_collections.corral.virt.tests.contract.test_inventory import Inventory
from ansible_collections.corral.virt.tests.contract.test_tls_errors import other_key
from ansible_collections.corral.virt.tests.contract.tls_server import served

OURS, OTHERS = Authority("our CA"), Authority("other CA")
ENVIRONMENT = {option: f"CORRAL_VIRT_{option.upper()}" for option in OPTIONS}


def given(
    place: Path, name: str = "controller", *, authority: Authority = OURS, first_day: int = -9, last_day: int = 9
) -> dict[str, str]:
    """Files of random names, by option."""
    directory = write_directory(
        place / name, "client", authority, authority.issue(name, first_day=first_day, last_day=last_day)
    )
    files = {}
    for number, (option, old) in enumerate(OPTIONS.items()):
        files[option] = str((directory / old).rename(directory / f"tmp{number}x7_"))
    return files


def test_libvirt_finds_them_by_its_own_names(tmp_path: Path) -> None:
    files, kept = given(tmp_path), CredentialFiles(str(tmp_path))
    place = Path(kept.directory(files))
    assert kept.directory(dict(files)) == str(place), "one for all hypervisors"
    assert place.stat().st_mode & 0o777 == 0o700
    assert {path.name: str(path.readlink()) for path in place.iterdir()} == {
        name: files[option] for option, name in OPTIONS.items()
    }, "links: no key is copied"
    assert kept.named(f"{place}/clientcert.pem of {place}") == f"{files['cert_file']} of {','.join(files.values())}"
    kept.close()
    assert not place.exists() and Path(files["key_file"]).exists()


def other_pair(files: dict[str, str]) -> None:
    """A key of another certificate."""
    other_key(Path(files["key_file"]).parent)
    Path(files["key_file"]).with_name("clientkey.pem").rename(files["key_file"])


def cut(option: str) -> t.Callable[[dict[str, str]], object]:
    return lambda files: Path(files[option]).unlink()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (
            lambda files: files.update(key_file=""),
            "key_file is not set: set ca_file, cert_file and key_file .CORRAL_VIRT_CA_FILE, ",
        ),
        (lambda files: files.update(ca_file="", cert_file=""), "ca_file is not set: .*; cert_file is not set: "),
        (cut("ca_file"), "ca_file: cannot read {ca_file}: No such file or directory. Update the files of ca_file, "),
        (
            lambda files: [cut("cert_file")(files), cut("key_file")(files)],
            "cert_file: cannot read {cert_file}: No such .*; key_file: cannot read {key_file}: No such .* credential",
        ),
        (lambda files: files.update(key_file="/"), "key_file: cannot read /: Is a directory"),
        (
            other_pair,
            "{key_file} does not match {cert_file}; the role corral.virt.pki issues a new one. Update the files",
        ),
        (lambda files: Path(files["cert_file"]).write_text("x"), "{cert_file} is not a certificate"),
        (lambda files: Path(files["ca_file"]).write_bytes(OTHERS.pem), "{cert_file} is not signed by {ca_file} but by"),
    ],
    ids=["not all", "one alone", "no CA", "two missing", "a directory", "other key", "no PEM", "other CA"],
)
def test_one_message_says_which_file_and_why(
    spoil: t.Callable[[dict[str, str]], object], told: str, tmp_path: Path
) -> None:
    files = given(tmp_path)
    spoil(files)
    with pytest.raises(BadInput, match=r"^cannot use the controller's certificate: ") as caught:
        check(files)
    assert re.search(told.format(**files), str(caught.value)), caught.value


@pytest.mark.parametrize(("first_day", "last_day", "told"), [(-9, -1, "expired on"), (1, 9, "valid only from")])
def test_a_certificate_out_of_its_time(first_day: int, last_day: int, told: str, tmp_path: Path) -> None:
    files = given(tmp_path, first_day=first_day, last_day=last_day)
    with pytest.raises(BadInput, match=told) as caught:
        check(files)
    assert files["cert_file"] in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_of_somebody_else(tmp_path: Path) -> None:
    files = given(tmp_path)
    Path(files["key_file"]).chmod(0)
    with pytest.raises(BadInput, match=r"key_file: cannot read .*: Permission denied"):
        check(files)


class Shown:
    """A server that notes whose certificate it was shown."""

    def __init__(self, place: Path) -> None:
        directory = write_directory(place / "server", "server", OURS, OURS.issue("hyper1", "127.0.0.1"))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(directory / "servercert.pem", directory / "serverkey.pem")
        self._context.load_verify_locations(directory / "cacert.pem")
        self._context.verify_mode = ssl.CERT_REQUIRED
        self.names: list[str] = []

    def __call__(self, client: socket.socket) -> None:
        with self._context.wrap_socket(client, server_side=True) as secured:
            subject = dict(pair for part in secured.getpeercert()["subject"] for pair in part)  # type: ignore[index, misc]
            self.names.append(t.cast(str, subject["commonName"]))


@pytest.mark.slow
@pytest.mark.parametrize("winner", ["option", "environment", "directory"])
def test_which_certificate_libvirt_shows(winner: str, tmp_path: Path) -> None:
    """The option before the environment, and that before the directory."""
    inventory, shown, temporary = Inventory(tmp_path / "inventory"), Shown(tmp_path), tmp_path / "tmp"
    options: dict[str, t.Any] = {
        "pki_dir": str(write_directory(tmp_path / "controller", "client", OURS, OURS.issue("directory")))
    }
    environment = {"ANSIBLE_LOCAL_TEMP": str(temporary)}
    if winner == "option":  # relative to where Ansible runs, as its other paths; a template, as its neighbours
        files = given(tmp_path, "option")
        options |= {option: os.path.relpath(path, tmp_path) for option, path in files.items()}
        options["key_file"] = "{{ inventory_dir }}/../" + options["key_file"]
    if winner != "directory":
        environment |= {ENVIRONMENT[option]: path for option, path in given(tmp_path, "environment").items()}
    with served(shown) as port:
        uri = f"test+tls://127.0.0.1:{port}/default?pkipath={{{{ virt_pki_dir }}}}"
        inventory.write("virt.yml", plugin="corral.virt.virt", hypervisors={"hyper1": uri}, timeout=3, **options)
        inventory.list(**environment)
    assert set(shown.names) == {winner}, inventory.stderr
    assert "guests on hyper1 are not shown" in inventory.stderr and "corral-pki" not in inventory.stderr
    assert not list(temporary.rglob("*.pem")), "the links are gone"


@pytest.mark.slow
def test_the_source_fails_at_once(tmp_path: Path) -> None:
    inventory, files = Inventory(tmp_path / "inventory"), given(tmp_path, last_day=-1)
    inventory.write("virt.yml", plugin="corral.virt.virt", hypervisors={"h1": inventory.host("h1")})
    inventory.ask("--list", **{ENVIRONMENT[option]: path for option, path in files.items()})
    assert f"cannot use the controller's certificate: the certificate {files['cert_file']} expired" in inventory.stderr
    assert "in AWX, update the credential" in inventory.stderr
