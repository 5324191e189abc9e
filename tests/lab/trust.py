"""Who trusts whom in a lab: witnesses that ask hosts over TLS as a client would, and a guest that migrates all the
time.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import datetime
import itertools
import json
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import typing as t
from collections.abc import Iterator, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ansible_collections.corral.virt.tests.lab.hypervisors import HERE, Hypervisors

__all__ = [
    "DAY",
    "HOSTS",
    "PORT",
    "Pair",
    "Traveller",
    "address",
    "admitted",
    "authority",
    "certificate",
    "changes",
    "everybody_reaches",
    "inside",
]
__all__ += ["role", "save", "served", "travelling", "trusted", "unreachable"]

HOSTS = ("hyper1", "hyper2", "hyper3")
PORT = 16514
DAY = datetime.timedelta(days=1)
FILLED_MIB = 96
# No operating system, but memory that is not empty: at 1 MiB/s its migration takes a while.
GUEST = """<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>{name}</name><memory unit='MiB'>128</memory>
<os><type machine='q35'>hvm</type></os><devices><serial type='pty'/></devices><qemu:commandline><qemu:arg value='-device'/>
<qemu:arg value='loader,file=/var/lib/libvirt/images/filled.ram,addr=0x1000000,force-raw=on'/></qemu:commandline></domain>"""
FILL = (
    f"test -s /var/lib/libvirt/images/filled.ram || head -c {FILLED_MIB}M /dev/urandom "
    ">/var/lib/libvirt/images/filled.ram"
)


# Another libvirtd, of an ordinary user; its files are $1 (CA), $2 (certificate) and $3 (key).
SECOND_PORT = 16515
SECOND = f"""set -e; while pkill -u spare; do sleep 0.1; done
id spare >/dev/null 2>&1 || useradd spare; rm -rf /srv/second; mkdir -p /srv/second/run
cp -L $1 /srv/second/ca.pem; cp -L $2 /srv/second/cert.pem; cp -L $3 /srv/second/key.pem
cat >/srv/second/libvirtd.conf <<END
listen_tls = 1
tls_port = "{SECOND_PORT}"
tls_no_sanity_certificate = 1
ca_file = "/srv/second/ca.pem"
cert_file = "/srv/second/cert.pem"
key_file = "/srv/second/key.pem"
END
chown -R spare /srv/second
runuser -u spare -- env XDG_RUNTIME_DIR=/srv/second/run HOME=/srv/second \\
libvirtd -d --listen -f /srv/second/libvirtd.conf -p /srv/second/pid
until ss -Hltn sport = {SECOND_PORT} | grep -q .; do sleep 0.1; done"""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: rsa.RSAPrivateKey

    @property
    def text(self) -> str:
        """The certificate, PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def secret(self) -> str:
        """The key, PEM."""
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return self.key.private_bytes(*form).decode()


def authority(folder: Path) -> Pair:
    """A CA as it stands in a directory."""
    key = serialization.load_pem_private_key((folder / "ca-key.pem").read_bytes(), password=None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return Pair(x509.load_pem_x509_certificate((folder / "ca-cert.pem").read_bytes()), key)


def certificate(
    subject: str,
    issuer: Pair | None = None,
    *,
    names: Sequence[x509.GeneralName] = (),
    purposes: Sequence[str] = ("CLIENT_AUTH",),
    critical: bool = True,
    days: tuple[int, int] = (-1, 365),
    bits: int = 2048,
) -> Pair:
    """A certificate for `O=…,OU=…,CN=…`; without an issuer, a CA. `days` from now: its first and its last."""
    now, key = datetime.datetime.now(datetime.UTC), rsa.generate_private_key(public_exponent=65537, key_size=bits)
    oids = {"O": NameOID.ORGANIZATION_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME, "CN": NameOID.COMMON_NAME}
    name = x509.Name(
        [x509.NameAttribute(oids[kind], value) for kind, value in (part.split("=") for part in subject.split(","))]
    )
    signer = issuer.key if issuer else key
    draft = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer.certificate.subject if issuer else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + days[0] * DAY)
        .not_valid_after(now + days[1] * DAY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None if issuer else 0), critical=True)
        .add_extension(_usage(signs=issuer is None), critical=True)
    )
    if issuer:
        draft = draft.add_extension(
            x509.ExtendedKeyUsage([getattr(ExtendedKeyUsageOID, one) for one in purposes]), critical=critical
        )
        draft = draft.add_extension(x509.SubjectAlternativeName(names or [x509.DNSName("nobody")]), critical=False)
    return Pair(draft.sign(signer, hashes.SHA256()), key)


def _usage(*, signs: bool) -> x509.KeyUsage:
    names = ["digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"]
    names += ["key_cert_sign", "crl_sign", "encipher_only", "decipher_only"]
    on = ("key_cert_sign", "crl_sign") if signs else ("digital_signature", "key_encipherment")
    return x509.KeyUsage(**{name: name in on for name in names})


def save(folder: Path, pair: Pair, trusted: str) -> Path:
    """Where `pkipath` looks for a client's files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cacert.pem").write_text(trusted)
    (folder / "clientcert.pem").write_text(pair.text)
    (folder / "clientkey.pem").write_text(pair.secret)
    return folder


def address(lab: Hypervisors, host: str) -> str:
    """As this machine reaches it."""
    found = subprocess.run(
        ["ssh", "-F", lab.folder / "ssh_config", "-G", host], capture_output=True, text=True, check=True
    )
    return next(line.split()[1] for line in found.stdout.splitlines() if line.startswith("hostname "))


def admitted(
    place: str, folder: Path, *, port: int = PORT, names: tuple[str, str] = ("clientcert.pem", "clientkey.pem")
) -> bool:
    """Whether a daemon lets a client with these files in: libvirt says so with one byte after the handshake.

    This client trusts whatever server answers, and shows whatever certificate it has, as one would that was written to
    break in.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(folder / names[0], folder / names[1])
    try:
        with socket.create_connection((place, port), timeout=20) as plain, context.wrap_socket(plain) as stream:
            return stream.recv(1) == b"\x01"
    except (ssl.SSLError, ConnectionResetError, BrokenPipeError):
        return False


def inside(lab: Hypervisors, host: str, command: str) -> str:
    """A shell command on a host, past its network."""
    return lab.run(*_entering(lab, host), command).strip()


def _entering(lab: Hypervisors, host: str) -> list[str]:
    return [sys.executable, str(HERE / "lab.py"), "exec", "--name", lab.name, host, "--", "sh", "-c"]


def unreachable(lab: Hypervisors, *hosts: str, ca_dir: Path | None = None) -> list[str]:
    """What virsh says of every pair that cannot reach each other over TLS, the controller among them, and openssl of
    QEMU's.
    """
    hosts, found = hosts or HOSTS, []
    ask = (
        "for other in {}; do virsh -q -c qemu+tls://$other/system hostname 2>&1; done; echo; tar -C /etc/pki/qemu "
        "-chf - . | base64"
    )
    with tempfile.TemporaryDirectory() as folder:
        for host in hosts:
            others = [other for other in hosts if other != host]
            output, _blank, files = inside(lab, host, ask.format(" ".join(others))).partition("\n\n")
            found += [f"{host}: {line}" for line in output.split("\n") if line and line not in others]
            Path(folder, host).mkdir()
            subprocess.run(["tar", "-C", f"{folder}/{host}", "-xf", "-"], input=base64.b64decode(files), check=True)
        for (host, other), purpose in itertools.product(itertools.permutations(hosts, 2), ("server", "client")):
            known, crl = ["-CAfile", f"{folder}/{host}/ca-cert.pem"], Path(folder, host, "ca-crl.pem")
            known += ["-CRLfile", str(crl), "-crl_check"] if crl.exists() else []
            words = [
                "openssl",
                "verify",
                "-x509_strict",
                *known,
                "-purpose",
                f"ssl{purpose}",
                f"{folder}/{other}/{purpose}-cert.pem",
            ]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            found += [f"{host}: QEMU's {purpose} of {other}: {done.stderr}"] if done.returncode else []
    for host in hosts if ca_dir else ():
        uri = f"qemu+tls://{address(lab, host)}/system?pkipath={ca_dir}/controller"
        done = subprocess.run(["virsh", "-q", "-c", uri, "hostname"], capture_output=True, text=True, check=False)
        found += [] if done.stdout.strip() == host else [f"controller: {done.stderr}"]
    return found


def everybody_reaches(lab: Hypervisors, *hosts: str, ca_dir: Path | None = None) -> bool:
    """All do; else what was said."""
    output = unreachable(lab, *hosts, ca_dir=ca_dir)
    assert not output, output
    return True


def trusted(lab: Hypervisors) -> set[tuple[str, ...]]:
    """The CAs that the hosts trust: libvirt's and QEMU's, as openssl shows them."""
    show = "openssl crl2pkcs7 -nocrl -certfile /etc/pki/$each | openssl pkcs7 -print_certs -noout"
    show = f"for each in CA/cacert.pem qemu/ca-cert.pem; do {show}; echo --; done"
    return {
        tuple(re.findall(r"subject=(.*)", part))
        for host in HOSTS
        for part in lab.on(host, show).split("--")
        if part.strip()
    }


def served(lab: Hypervisors, host: str, ca: str, cert: str, key: str) -> str:
    """What virsh on a host says of a libvirtd there that has these files, asked as one of the cloud's."""
    end = "pid=$(cat /srv/second/pid); kill $pid; while kill -0 $pid 2>/dev/null; do sleep 0.1; done"
    ask = f"virsh -q -c test+tls://{host}:{SECOND_PORT}/default list --all 2>&1 || true"
    return lab.on(host, f"set -- {ca} {cert} {key}; {SECOND}\n{ask}; {end}")


def role(lab: Hypervisors, *flags: str, ok: bool = True, serial: int = 0, **options: t.Any) -> str:
    """What role pki says; with `serial`, to so many hosts after so many."""
    book = lab.folder / "pki.json"
    play = {"hosts": "hyper", "gather_facts": False, "roles": ["corral.virt.pki"]}
    book.write_text(json.dumps([{**play, "serial": serial} if serial else play]))
    return lab.run("ansible-playbook", book, "-e", json.dumps(options), *flags, ok=ok)


def changes(printed: str) -> int:
    """How many tasks changed something, on all hosts."""
    return sum(map(int, re.findall(r"changed=(\d+)", printed)))


class Traveller:
    """A guest that goes round the hosts, live and over TLS, until the block ends. No migration may fail."""

    def __init__(self, lab: Hypervisors, *route: str, name: str = "traveller") -> None:
        self.lab, self.name, self.route = lab, name, route or HOSTS[:2]
        self.count, self.failures = 0, t.cast(list[str], [])
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._go_round)

    def make(self) -> None:
        """Have it run on the first host of its route."""
        self.remove()
        for host in self.route:
            self.lab.on(host, FILL)
        self.lab.on(self.route[0], "virsh define /dev/stdin", given=GUEST.format(name=self.name))
        self.lab.on(self.route[0], f"virsh start {self.name}")

    def command(self, here: str, there: str, *flags: str) -> list[str]:
        """What moves it once."""
        words = (
            "virsh migrate --live --p2p --tls --persistent --undefinesource",
            *flags,
            self.name,
            f"qemu+tls://{there}/system",
        )
        return [*_entering(self.lab, here), " ".join(words)]

    def _go_round(self) -> None:
        for here, there in itertools.pairwise(itertools.cycle(self.route)):
            # It ends where it began.
            if self._end.is_set() and here == self.route[0]:
                return
            done = subprocess.run(
                self.command(here, there),
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
                stdin=subprocess.DEVNULL,
            )
            if done.returncode:
                self.failures.append(f"{here} to {there}, after {self.count}: {done.stderr}")
                return
            self.count += 1

    def __enter__(self) -> t.Self:
        self.make()
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end.set()
        self._thread.join()
        self.remove()

    def remove(self) -> None:
        """From wherever it is."""
        for host in self.route:
            self.lab.on(host, f"virsh destroy {self.name} 2>&1; virsh undefine {self.name} 2>&1; true")


@contextlib.contextmanager
def travelling(lab: Hypervisors, *route: str, least: int = 2) -> Iterator[Traveller]:
    """For the length of a block, a guest goes round; at the end it has moved so often, and never in vain."""
    with Traveller(lab, *route) as guest:
        yield guest
    print(f"{guest.count} migrations, {len(guest.failures)} failed")
    assert not guest.failures, guest.failures
    assert guest.count >= least
