"""A name that leads to another machine: the user is told which one answers."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._files import ports
from ansible_collections.corral.virt.plugins.module_utils._front.ends import Ends


@pytest.fixture
def uri(tmp_path: Path) -> t.Iterator[str]:
    """Of a machine whose certificate is for hyper3."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    files = ["-keyout", str(key), "-out", str(certificate)]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, "-subj", "/O=cloud/CN=hyper3"]
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as one, context.wrap_socket(one, server_side=True) as secured:
                secured.recv(1)

        worker = threading.Thread(target=answer, daemon=True)
        worker.start()
        yield f"qemu+tls://127.0.0.1:{server.getsockname()[1]}/system"
        worker.join(10)


def test_the_machine_that_answers_is_named(uri: str) -> None:
    def refused(_uri: str) -> t.NoReturn:
        raise Failed("cannot connect: authentication failed: Failed to verify the peer's certificate")

    with pytest.raises(Failed, match=r"peer's certificate; 127.0.0.1 is 127.0.0.1 here, .* for CN=hyper3,O=cloud$"):
        _connection = Ends("here", uri, refused).dest


@pytest.mark.parametrize("uri", ["qemu:///system", "qemu+ssh://localhost/system", "qemu+tls://127.0.0.1:1/system"])
def test_where_nobody_can_tell_nothing_is_told(uri: str) -> None:
    assert ports.shown(uri) == ""
