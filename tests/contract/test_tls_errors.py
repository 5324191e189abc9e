"""A connection over TLS that fails: libvirt's own client against real servers, and the cause that is told."""

from __future__ import annotations

import re
import time
import typing as t
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Unreachable
from ansible_collections.corral.virt.plugins.module_utils._tls import files_credentials, files_peer
from ansible_collections.corral.virt.plugins.module_utils._tls.run_connect import reached
from ansible_collections.corral.virt.plugins.plugin_utils._inventory import hypervisors
from ansible_collections.corral.virt.tests.contract import tls_server
from ansible_collections.corral.virt.tests.contract.certificates import Authority, write_directory
from ansible_collections.corral.virt.tests.contract.test_modules import run
from ansible_collections.corral.virt.tests.contract.tls_server import served, tls

OURS, OTHERS = Authority("our CA"), Authority("other CA")
HERE = ("127.0.0.1", "localhost")
OF_ANOTHER_AUTHORITY = (
    r"127.0.0.1 is 127.0.0.1 here, and the machine there has a certificate for O=cloud,CN=hyper2 from another authority: "
    r"O=cloud,CN=other CA \(key [0-9a-f]{40}\) signed it, and .*/client/cacert.pem here is O=cloud,CN=our CA \(key "
    r"[0-9a-f]{40}\); "
    r"run the role corral.virt.pki on 127.0.0.1 with the CA of this machine"
)
Spoil = t.Callable[[Path], object]


def failure(port: int, directory: Path) -> Failed:
    """What is told of a connection that fails."""
    uri = f"test+tls://127.0.0.1:{port}/default?pkipath={directory}"
    with pytest.raises(Failed, match=r"^cannot connect to test\+tls") as caught, reached(uri):
        pass
    return caught.value


@pytest.fixture
def client(tmp_path: Path) -> Path:
    """Our files, in order."""
    return write_directory(tmp_path / "client", "client", OURS, OURS.issue("hyper1"))


@pytest.mark.parametrize(
    ("authority", "certificate", "told"),
    [
        (
            OTHERS,
            OTHERS.issue("hyper2", *HERE),
            OF_ANOTHER_AUTHORITY,
        ),
        (
            OURS,
            OURS.issue("hyper2", *HERE, last_day=-1),
            r"certificate for O=cloud,CN=hyper2 that expired on \d{4}-\d\d-\d\d: run the role",
        ),
        (
            OURS,
            OURS.issue("hyper2", *HERE, first_day=1),
            r"that is valid only from .* UTC on, and it is .* here: set the clocks",
        ),
        (
            OURS,
            OURS.issue("hyper3", "hyper3", "10.0.0.3"),
            (
                r"certificate for O=cloud,CN=hyper3, valid for hyper3, 10.0.0.3 but not for 127.0.0.1: correct the "
                r"address of 127.0.0.1, or"
            ),
        ),
        (OURS, OURS.issue("\x1b[2Jhyper3", "hyper3"), r"certificate for O=cloud,CN=\\x1b\[2Jhyper3, valid for hyper3"),
    ],
    ids=[
        "other authority",
        "expired",
        "not yet valid",
        "other machine",
        "other machine with a name that a terminal obeys",
    ],
)
def test_what_is_wrong_with_the_certificate_of_the_other_end(
    authority: Authority, certificate: x509.Certificate, told: str, client: Path, tmp_path: Path
) -> None:
    with served(tls(write_directory(tmp_path / "server", "server", authority, certificate))) as port:
        error = failure(port, client)
    assert isinstance(error, Unreachable)
    assert re.search(told, str(error))
    assert " (libvirt: authentication failed: " in str(error)


def test_a_certificate_that_our_list_revokes(client: Path, tmp_path: Path) -> None:
    certificate = OURS.issue("hyper2", *HERE)
    (client / "cacrl.pem").write_bytes(OURS.revoke(certificate))
    with served(tls(write_directory(tmp_path / "server", "server", OURS, certificate))) as port:
        assert f"{client}/cacrl.pem revokes: issue a new one there with virt_tls" in str(failure(port, client))


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A server's files, in order."""
    return write_directory(tmp_path / "server", "server", OURS, OURS.issue("hyper2", *HERE))


def test_a_list_that_cannot_be_read_hides_nothing(client: Path, tmp_path: Path) -> None:
    (client / "cacrl.pem").write_text("x")
    with served(
        tls(write_directory(tmp_path / "server", "server", OURS, OURS.issue("hyper2", *HERE, last_day=-1)))
    ) as port:
        assert "that expired on" in files_peer.why(f"qemu+tls://127.0.0.1:{port}/system?pkipath={client}")


def test_our_certificate_is_refused(client: Path, server: Path) -> None:
    with served(tls(server, takes=False)) as port:
        error = str(failure(port, client))
        assert (
            f"127.0.0.1 refuses the certificate {client}/clientcert.pem of this machine, O=cloud,CN=hyper1: its name "
            "is not" in error
        )
        assert "on 127.0.0.1, `journalctl -u libvirtd -u virtproxyd` shows which" in error
        certificate = x509.load_pem_x509_certificate((client / "clientcert.pem").read_bytes())
        (client / "cacrl.pem").write_bytes(OURS.revoke(certificate))
        assert f"which {client}/cacrl.pem revokes: issue a new one" in str(failure(port, client))


def test_our_authority_is_not_trusted_there(client: Path, server: Path) -> None:
    """It trusts another one than that of its own certificate."""
    (server / "cacert.pem").write_bytes(OTHERS.pem)
    with served(tls(server)) as port:
        assert "127.0.0.1 trusts another authority" in str(failure(port, client))


def other_key(directory: Path, *, passphrase: bytes = b"") -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    kept = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, kept)
    (directory / "clientkey.pem").write_bytes(pem)


def shown(authority: Authority, **days: int) -> Spoil:
    return lambda directory: write_directory(directory, "client", authority, authority.issue("hyper1", **days))


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (
            lambda directory: (directory / "cacert.pem").unlink(),
            "this machine has no {}/cacert.pem yet; the role corral.virt.pki creates it",
        ),
        (lambda directory: (directory / "clientcert.pem").unlink(), "this machine has no {}/clientcert.pem yet"),
        (lambda directory: (directory / "clientkey.pem").unlink(), "this machine has no {}/clientkey.pem yet"),
        (lambda directory: (directory / "clientcert.pem").write_text("x"), "{}/clientcert.pem is not a certificate"),
        (
            lambda directory: (directory / "clientkey.pem").write_text("x"),
            "{}/clientkey.pem cannot be read without a passphrase",
        ),
        (
            lambda directory: other_key(directory, passphrase=b"secret"),
            "{}/clientkey.pem cannot be read without a passphrase",
        ),
        (other_key, "{0}/clientkey.pem does not match {0}/clientcert.pem"),
        (shown(OURS, last_day=-1), "the certificate {}/clientcert.pem expired on "),
        (shown(OURS, first_day=1), "the certificate {}/clientcert.pem is valid only from "),
        (
            lambda directory: [shown(OTHERS)(directory), (directory / "cacert.pem").write_bytes(OURS.pem)],
            "{0}/clientcert.pem is not signed by {0}/cacert.pem but by O=cloud,CN=other CA (key ",
        ),
    ],
    ids=[
        "no CA",
        "no certificate",
        "no key",
        "no PEM",
        "key no PEM",
        "passphrase",
        "other key",
        "expired",
        "not yet valid",
        "other authority",
    ],
)
def test_what_is_wrong_with_our_own_files(spoil: Spoil, told: str, client: Path, server: Path) -> None:
    spoil(client)
    with served(tls(server)) as port:
        assert told.format(client) in str(failure(port, client))


@pytest.mark.parametrize(("uid", "remedy"), [(1000, "run as its owner, or .*"), (0, "root is denied, too: .*")])
def test_a_file_that_may_not_be_read(client: Path, monkeypatch: pytest.MonkeyPatch, uid: int, remedy: str) -> None:
    def closed(path: str, **_how: object) -> t.NoReturn:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(
        "ansible_collections.corral.virt.plugins.module_utils._tls.files_credentials.open", closed, raising=False
    )
    monkeypatch.setattr("os.geteuid", lambda: uid)
    assert re.fullmatch(
        rf"this user \(uid {uid}\) cannot read .*/cacert.pem: Permission denied; {remedy}",
        files_peer.why(f"qemu+tls://here/system?pkipath={client}"),
    )


def test_an_authority_of_several_is_enough(client: Path, server: Path) -> None:
    for directory in (client, server):
        (directory / "cacert.pem").write_bytes(OTHERS.pem + OURS.pem)
    with served(tls(server)) as port:
        assert files_peer.why(f"qemu+tls://127.0.0.1:{port}/system?pkipath={client}") == ""


def test_where_tls_is_in_order_no_cause_is_guessed(client: Path, server: Path) -> None:
    with served(tls(server)) as port:
        error = failure(port, client)
    assert not isinstance(error, Unreachable)
    assert str(error).endswith(
        "; `virt-pki-validate` here and `journalctl -u libvirtd -u virtproxyd` on 127.0.0.1 show more"
    )


def test_something_else_listens(client: Path) -> None:
    with served(tls_server.plain) as port:
        assert f"port {port} of 127.0.0.1 does not complete the TLS handshake (WRONG_VERSION_NUMBER)" in str(
            failure(port, client)
        )


def test_nobody_listens(client: Path) -> None:
    assert "port 1 of 127.0.0.1 refuses connections: libvirt does not listen there, or a firewall" in str(
        failure(1, client)
    )


@pytest.mark.parametrize("answer", [tls_server.hang, tls_server.drip], ids=["silent", "a byte now and then"])
def test_a_black_hole_is_left_in_time(answer: tls_server.Answer, client: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_peer, "_ANSWER_S", 0.5)
    monkeypatch.setattr(files_peer, "_HANDSHAKE_S", 1)
    started = time.monotonic()
    with served(answer) as port:
        assert f"port {port} of 127.0.0.1 " in files_peer.why(f"qemu+tls://127.0.0.1:{port}/system?pkipath={client}")
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "uri", ["qemu:///system", "qemu+ssh://localhost/system", "qemu+tcp://localhost/system", "qemu+tls:///system"]
)
def test_what_is_not_tls_over_the_network_is_not_looked_at(uri: str) -> None:
    assert files_peer.why(uri) == ""


def test_the_inventory_tells_the_cause_without_the_uri(client: Path, tmp_path: Path) -> None:
    server = write_directory(tmp_path / "server", "server", OURS, OURS.issue("hyper3", "hyper3"))
    with served(tls(server)) as port, pytest.raises(Unreachable, match="hyper3") as caught:
        hypervisors.guests(
            f"test+tls://127.0.0.1:{port}/default?pkipath={client}", [], lambda: None, timeout_s=8, own=[]
        )
    assert hypervisors.reason(caught.value).startswith(
        "127.0.0.1 is 127.0.0.1 here, and the machine there has a certificate for O=cloud,CN=hyper3"
    )


def test_virt_migrate_tells_the_cause(client: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIBVIRT_DEBUG", "4")  # its warnings go to stderr
    server = write_directory(tmp_path / "server", "server", OURS, OURS.issue("hyper3", "hyper3"))
    with served(tls(server)) as port:
        uri = f"test+tls://127.0.0.1:{port}/default?pkipath={client}"
        result = run("virt_migrate", uri=uri, name="app1", dest="hyper2", dest_uri=uri)
    assert "127.0.0.1 is 127.0.0.1 here, and the machine there has a certificate for O=cloud,CN=hyper3" in result["msg"]


def test_without_cryptography_only_what_is_known_is_told(
    client: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_peer, "CAN_READ", False)
    monkeypatch.setattr(files_credentials, "CAN_READ", False)
    with served(tls(server, takes=False)) as port:
        assert not isinstance(failure(port, client), Unreachable)
        (client / "clientkey.pem").unlink()
        assert "has no" in str(failure(port, client))
