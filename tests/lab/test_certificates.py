"""Whom hosts trust and whom they refuse, while certificates and CAs are replaced and revoked; judged by virsh, openssl
and QEMU.

The guests have no operating system: QEMU moves them all the same.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import typing as t
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from cryptography import x509

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import (
    Hypervisors,
    hypervisors,
)
from ansible_collections.corral.virt.tests.lab.trust import (
    HOSTS,
    Traveller,
    address,
    admitted,
    authority,
    certificate,
    changes,
    everybody_reaches,
    inside,
    role,
    save,
    served,
    travelling,
    trusted,
)

pytestmark = [pytest.mark.lab, pytest.mark.deep]

ROTATE = ("ansible-playbook", "corral.virt.rotate_certificates")
SETS = "/srv/sets"  # of hosts that no machine is, on the first host
SERVER, CLIENT = "TLS Web Server Authentication", "TLS Web Client Authentication"
PURPOSES = {
    "libvirt/servercert.pem": SERVER,
    "libvirt/clientcert.pem": CLIENT,
    "qemu/server-cert.pem": SERVER,
    "qemu/client-cert.pem": CLIENT,
}
# What QEMU does on the host that a guest comes to; it says nothing, and waits, as long as it takes its peer for one
# that may send a guest.
LISTENER = """qemu-system-x86_64 -M none -display none -daemonize -pidfile /run/listener -incoming defer \
-qmp unix:/run/listener.qmp,server,nowait -object tls-creds-x509,id=tls,dir=/etc/pki/qemu,endpoint=server,verify-peer=yes
python3 - <<'END'
import json, socket
stream = socket.socket(socket.AF_UNIX)
stream.connect("/run/listener.qmp")
lines = stream.makefile("rw")
lines.readline()
said = [{"execute": "qmp_capabilities"}, {"execute": "migrate-set-parameters", "arguments": {"tls-creds": "tls"}}]
for each in [*said, {"execute": "migrate-incoming", "arguments": {"uri": "tcp:127.0.0.1:49990"}}]:
    print(json.dumps(each), file=lines, flush=True)
    while "return" not in (said := json.loads(lines.readline())):
        assert "error" not in said, said
END"""
SHOW = """python3 - <<'END'
import socket, ssl
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
context.load_cert_chain("CERTIFICATE", "KEY")
try:
    with socket.create_connection(("127.0.0.1", 49990)) as plain, context.wrap_socket(plain) as stream:
        stream.settimeout(3)
        print("closed" if stream.recv(1) == b"" else "answered")
except socket.timeout:
    print("waits")
except (ssl.SSLError, ConnectionError) as error:
    print("closed", error)
END
kill $(cat /run/listener) 2>/dev/null; true"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Hypervisors]:
    """Three hypervisors, which would admit two more that no machine is."""
    with hypervisors("certs", "hypervisor", "firewall", hosts=3) as lab:
        listed = {"pki_controllers": ["controller", "hyper8", "hyper9"]}
        (lab.folder / "inventory/group_vars/hyper/listed.yml").write_text(json.dumps(listed))
        role(lab, serial=1)
        yield lab


@pytest.fixture(scope="module")
def ca(lab: Hypervisors) -> Path:
    """The controller's directory."""
    return lab.folder / "ca"


def stranger(lab: Hypervisors, name: str, folder: Path) -> Path:
    """A set of certificates for a host that no machine is, made like any other: a copy of it, with the places of
    /etc/pki.
    """
    arguments = {"name": name, "names": [name], "pki_dir": f"{SETS}/{name}", "ca_dir": str(lab.folder / "ca")}
    lab.run("ansible", "hyper1", "-m", "corral.virt.virt_tls", "-a", json.dumps(arguments))
    return copied(lab, "hyper1", f"{SETS}/{name}", folder)


def copied(lab: Hypervisors, host: str, place: str, folder: Path) -> Path:
    """A copy of a set of certificates and keys below `place` of a host; as a client's too."""
    folder.mkdir()
    files = base64.b64decode(lab.on(host, f"tar -C {place} --exclude corral -chf - . | base64"))
    subprocess.run(["tar", "-C", folder, "-xf", "-"], input=files, check=True)
    for name, path in (("cacert.pem", "CA/cacert.pem"), ("clientcert.pem", "libvirt/clientcert.pem")):
        (folder / name).write_bytes((folder / path).read_bytes())
    (folder / "clientkey.pem").write_bytes((folder / "libvirt/private/clientkey.pem").read_bytes())
    return folder


def newest(ca: Path, name: str) -> Path:
    """The folder of the CA that signs."""
    return max((ca / name).iterdir(), key=lambda path: int(path.name))


def pids(lab: Hypervisors) -> list[str]:
    """Of the daemons."""
    return [lab.on(host, "systemctl show --property=MainPID --value libvirtd") for host in HOSTS]


class Open:
    """A connection of virsh to a host that stays open until somebody closes it."""

    def __init__(self, lab: Hypervisors, uri: str, *through: str | Path) -> None:
        words = ["stdbuf", "-o0", "virsh", "-q", "-k", "0", "-c", shlex.quote(uri) if through else uri]
        self.process = subprocess.Popen(
            [*through, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=lab.folder,
        )
        self.first = self.ask("hostname")

    def ask(self, what: str) -> str:
        """One command; the last line of what it says, without the command's echo."""
        assert self.process.stdin and self.process.stdout
        late = threading.Timer(60, self.process.kill)
        late.start()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{what}\npwd\n")
            self.process.stdin.flush()
        lines = list(itertools.takewhile(lambda line: not line.startswith("/"), iter(self.process.stdout.readline, "")))
        late.cancel()
        return next((line.strip() for line in reversed(lines) if line.strip() and "virsh #" not in line), "")

    def close(self) -> None:
        """For good."""
        self.process.kill()
        self.process.communicate()


def clients(lab: Hypervisors, host: str) -> dict[str, str]:
    """Of libvirtd over TLS: whose certificate, by the number of the connection."""
    script = """for id in $(virt-admin client-list libvirtd | awk '$2 == "tls" {print $1}'); do
echo $id $(virt-admin client-info libvirtd $id | awk '/tls_x509_dname/ {print $3}'); done"""
    return dict(line.split() for line in lab.on(host, script).splitlines() if len(line.split()) == 2)


def test_every_certificate_is_for_one_purpose_and_the_authorities_differ(lab: Hypervisors, ca: Path) -> None:
    show = (
        f"for each in {' '.join(PURPOSES)}; do openssl x509 -in /etc/pki/$each -noout -text; echo --; done; "
        "virt-pki-validate"
    )
    for host in HOSTS:
        *parts, output = lab.on(host, show).split("--\n")
        assert len(parts) == len(PURPOSES) and "FAIL" not in output
        for (path, purpose), shown in zip(PURPOSES.items(), parts, strict=True):
            assert re.findall(r"Extended Key Usage: *(.*)\n *(.*)", shown) == [("critical", purpose)]
            unit = path.partition("/")[0]
            assert re.findall(r"(?:Subject|Issuer): .*OU = (\w+)", shown) == [unit, unit]
    shown = lab.run("openssl", "x509", "-in", ca / "controller/clientcert.pem", "-noout", "-text")
    assert re.findall(r"Extended Key Usage: *(.*)\n *(.*)", shown) == [("critical", CLIENT)]
    prints = [
        lab.on("hyper1", f"openssl x509 -in /etc/pki/{path} -noout -pubkey")
        for path in ("CA/cacert.pem", "qemu/ca-cert.pem")
    ]
    assert prints[0] != prints[1]
    assert everybody_reaches(lab, ca_dir=ca)
    assert changes(role(lab)) == 0, "one host after another is the same as all at once"


def test_qemus_key_plays_no_libvirt(lab: Hypervisors, tmp_path: Path) -> None:
    """Neither a server that clients on hosts would take for libvirt, nor a client; libvirt's own key does."""
    pairs = {
        "libvirt": ("libvirt/servercert.pem", "libvirt/private/serverkey.pem"),
        "qemu": ("qemu/server-cert.pem", "qemu/server-key.pem"),
    }
    for kind, (cert, key) in pairs.items():
        output = served(lab, "hyper2", *(f"/etc/pki/{path}" for path in ("CA/cacert.pem", cert, key)))
        assert ("running" in output) == (kind == "libvirt") and ("certificate" in output) == (kind == "qemu"), output
    places = {name: lab.on("hyper2", f"cat /etc/pki/{name}") for name in ("CA/cacert.pem", "qemu/ca-cert.pem")}
    for purpose in ("server", "client"):
        (tmp_path / purpose).mkdir()
        (tmp_path / purpose / "cacert.pem").write_text("".join(places.values()))
        for what in ("cert", "key"):
            (tmp_path / purpose / f"client{what}.pem").write_text(
                lab.on("hyper2", f"cat /etc/pki/qemu/{purpose}-{what}.pem")
            )
        assert not admitted(address(lab, "hyper1"), tmp_path / purpose)
    uri = f"qemu+tls://{address(lab, 'hyper1')}/system?pkipath={tmp_path / 'client'}"
    assert re.search("certificate|TLS confirmation", lab.run("virsh", "-c", uri, "hostname", ok=False))


def test_who_is_not_ours_is_refused(lab: Hypervisors, ca: Path, tmp_path: Path) -> None:
    """Each is wrong in one way only."""
    ours, theirs = authority(newest(ca, "libvirt")), certificate("O=corral.virt,OU=libvirt,CN=corral.virt libvirt CA")
    right = "O=corral.virt,OU=libvirt,CN=hyper1"
    everybody = {
        "right": certificate(right, ours),
        "wrong-CA": certificate(right, theirs),
        "expired": certificate(right, ours, days=(-30, -1)),
        "not-yet": certificate(right, ours, days=(1, 30)),
        "not-listed": certificate("O=corral.virt,OU=qemu,CN=hyper1", ours),
        "of-another-cloud": certificate("O=else,OU=libvirt,CN=hyper1", ours),
        "server": certificate(right, ours, purposes=["SERVER_AUTH"]),
        "QEMUs-CA": certificate(right, authority(newest(ca, "qemu"))),
    }
    for host in ("hyper1", "hyper2"):
        place = address(lab, host)
        assert [
            name for name, pair in everybody.items() if admitted(place, save(tmp_path / name, pair, ours.text))
        ] == ["right"]
    (tmp_path / "ca.pem").write_text(ours.text)
    for name, fault in (("wrong-CA", "local issuer certificate"), ("expired", "expired"), ("server", "purpose")):
        judged = lab.run(
            "openssl",
            "verify",
            "-purpose",
            "sslclient",
            "-CAfile",
            tmp_path / "ca.pem",
            tmp_path / name / "clientcert.pem",
            ok=False,
        )
        assert fault in judged
        assert "ertificate" in lab.run(
            "virsh", "-c", f"qemu+tls://{place}/system?pkipath={tmp_path / name}", "hostname", ok=False
        )


@pytest.mark.deep
def test_who_is_revoked_is_refused_at_once_and_nobody_else(lab: Hypervisors, ca: Path, tmp_path: Path) -> None:
    """Without a restart; open connections of others, and a migration between them, go on."""
    files, before = stranger(lab, "hyper9", tmp_path / "hyper9"), pids(lab)
    places = [address(lab, host) for host in HOSTS]
    assert all(admitted(place, files) for place in places)
    show = SHOW.replace("CERTIFICATE", f"{SETS}/hyper9/qemu/client-cert.pem").replace(
        "KEY", f"{SETS}/hyper9/qemu/client-key.pem"
    )
    assert lab.on("hyper1", f"{LISTENER}\n{show}") == "waits"
    ssh = ("ssh", "-F", lab.folder / "ssh_config", "--", "hyper1")
    guest = Traveller(lab, "hyper1", "hyper3")
    guest.make()
    connections = {
        "hyper9": Open(lab, f"qemu+tls://{places[1]}/system?pkipath={files}"),
        "controller": Open(lab, f"qemu+tls://{places[1]}/system?pkipath={ca}/controller"),
        "hyper1": Open(lab, "qemu+tls://hyper2/system", *ssh),
    }
    migration = lab.start(*guest.command("hyper1", "hyper3", "--bandwidth", "1"))
    try:
        assert [one.first for one in connections.values()] == ["hyper2"] * 3
        known = clients(lab, "hyper2")
        assert sorted(known.values()) == [f"O=corral.virt,OU=libvirt,CN={name}" for name in sorted(connections)]
        until(lambda: "bounded" in lab.on("hyper1", f"virsh domjobinfo {guest.name}"))
        printed = lab.run(*ROTATE, "-e", "revoke=hyper9")
        assert migration.poll() is None
        assert changes(printed) == 4, "one task that revokes, and one on each host"
        assert not [place for place in places if admitted(place, files)]
        after = clients(lab, "hyper2")
        assert after == {number: dname for number, dname in known.items() if not dname.endswith("=hyper9")}
        assert [connections[name].ask("hostname") for name in ("controller", "hyper1")] == ["hyper2", "hyper2"]
        assert "hyper2" not in connections["hyper9"].ask("hostname").split()
        assert pids(lab) == before
        assert "closed" in lab.on("hyper1", f"{LISTENER}\n{show}")
        assert lab.on("hyper1", f"{LISTENER}\n{show.replace(f'{SETS}/hyper9', '/etc/pki')}") == "waits"
        lab.on("hyper1", f"virsh migrate-setspeed {guest.name} 1000")
        assert migration.wait(60) == 0, migration.communicate()
    finally:
        for one in connections.values():
            one.close()
        guest.remove()
    for host, kind in itertools.product(HOSTS, ("libvirt", "qemu")):
        paths = ("CA/cacert.pem", "CA/cacrl.pem") if kind == "libvirt" else ("qemu/ca-cert.pem", "qemu/ca-crl.pem")
        cert = "libvirt/clientcert.pem" if kind == "libvirt" else "qemu/client-cert.pem"
        lists = " ".join(f"-{what}file /etc/pki/{path}" for what, path in zip(("CA", "CRL"), paths, strict=True))
        judged = lab.on(host, f"openssl verify -crl_check {lists} 2>&1 || true", given=(files / cert).read_text())
        assert "certificate revoked" in judged
    assert changes(lab.run(*ROTATE, "-e", "revoke=hyper9")) == 0
    assert everybody_reaches(lab, ca_dir=ca)


def judged(lab: Hypervisors, host: str, files: Path) -> list[str]:
    """What openssl says to a client's certificates, libvirt's and QEMU's, with the lists that a host has."""
    asked = {
        "libvirt/clientcert.pem": "-CAfile /etc/pki/CA/cacert.pem -CRLfile /etc/pki/CA/cacrl.pem",
        "qemu/client-cert.pem": "-CAfile /etc/pki/qemu/ca-cert.pem -CRLfile /etc/pki/qemu/ca-crl.pem",
    }
    return [
        lab.on(host, f"openssl verify -crl_check {lists} 2>&1 || true", given=(files / path).read_text())
        for path, lists in asked.items()
    ]


def test_a_reinstalled_host_refuses_what_was_revoked_after_the_backup_of_the_ca_directory(
    lab: Hypervisors, ca: Path, tmp_path: Path
) -> None:
    """Alone under `--limit`: only the lists of the other hosts tell of the revocation."""
    files, backup = copied(lab, "hyper3", "/etc/pki", tmp_path / "hyper3"), tmp_path / "backup"
    shutil.copytree(ca, backup, symlinks=True)
    lab.run(*ROTATE, "-e", "revoke=hyper3")
    shutil.rmtree(ca)
    shutil.copytree(backup, ca, symlinks=True)
    lab.on("hyper1", "rm -rf /etc/pki/CA /etc/pki/libvirt /etc/pki/qemu")

    def limited(*flags: str) -> str:
        words = ["ansible-playbook", str(lab.folder / "pki.json"), "--limit", "hyper1", *flags]
        return " ".join(lab.run("sh", "-c", f"{shlex.join(words)} 2>&1").split())

    before = written(ca)
    foretold = limited("--check")
    assert written(ca) == before
    printed = limited()
    assert not admitted(address(lab, "hyper1"), files)
    assert all("certificate revoked" in one for one in judged(lab, "hyper1", files))
    for one in (foretold, printed):
        assert "had forgotten revocations that hypervisors hold: those of hyper3 (" in one, one
        assert "on hyper2 and hyper3" in one
    assert everybody_reaches(lab, ca_dir=ca)
    again = limited()
    assert changes(again) == 0 and "forgotten" not in again
    assert changes(role(lab)) == 0, "the lists of the others were complete"


@pytest.mark.deep
def test_who_has_left_the_inventory_is_refused(lab: Hypervisors, ca: Path, tmp_path: Path) -> None:
    files = stranger(lab, "hyper8", tmp_path / "hyper8")
    assert admitted(address(lab, "hyper1"), files)
    assert "hyper8" in role(lab, "--check", "--diff") and admitted(address(lab, "hyper1"), files)
    role(lab)
    assert not [host for host in HOSTS if admitted(address(lab, host), files)]
    assert changes(role(lab)) == 0


@pytest.mark.deep
def test_both_authorities_are_replaced_while_a_guest_goes_round(lab: Hypervisors, ca: Path) -> None:
    before, running = trusted(lab), pids(lab)
    with travelling(lab, *HOSTS, least=6):
        lab.run(*ROTATE, "-e", "authority=true")
    after = trusted(lab)
    assert len(before) == len(after) == 2 and not before & after, "one of libvirt's and one of QEMU's, on all hosts"
    assert all(len(one) == 1 for one in after)
    assert pids(lab) == running
    for host in HOSTS:
        assert "FAIL" not in lab.on(host, "virt-pki-validate")
    assert everybody_reaches(lab, ca_dir=ca)
    assert changes(role(lab)) == 0


@contextlib.contextmanager
def away(lab: Hypervisors, host: str) -> Iterator[None]:
    """A host that its controller does not reach, and other hosts do."""
    rule = f"ip saddr {lab.gateway} tcp dport 22 reject with tcp reset"
    inside(lab, host, f"nft 'table inet away {{ chain in {{ type filter hook input priority -10; {rule}; }}; }}'")
    try:
        yield
    finally:
        inside(lab, host, "nft delete table inet away")


@pytest.mark.deep
def test_a_roll_over_waits_for_a_host_that_is_away(lab: Hypervisors, ca: Path) -> None:
    """It goes on to work with the others in both directions; when it is back, one run completes it."""
    before = trusted(lab)
    with travelling(lab, *HOSTS, least=6):
        with away(lab, "hyper3"):
            printed = lab.run(*ROTATE, "-e", "authority=true", ok=False)
            assert "The new CA waits for hyper3: it" in re.sub(r"\s+", " ", printed)
            assert everybody_reaches(lab)
            printed = role(lab, ok=False)
            assert everybody_reaches(lab) and "waits for" in printed
            assert changes(role(lab, ok=False)) == 0, "again, there is nothing to be done"
        role(lab)
    after = trusted(lab)
    assert len(after) == 2 and not before & after and all(len(one) == 1 for one in after)
    assert everybody_reaches(lab, ca_dir=ca)
    assert changes(role(lab)) == 0


def descendants(pid: int) -> list[int]:
    """A process and all that it started, whatever sessions they made for themselves."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def kill(lab: Hypervisors, ca: Path, command: Sequence[str | Path], moment: str | int) -> None:
    """Start a command and kill it, and all that it started, after it wrote so many files on the controller, or as
    soon as a CA is there.
    """
    known, seen = written(ca), t.cast(set[tuple[Path, int]], set())
    process = lab.start(*command)

    def reached() -> bool:
        seen.update(written(ca) - known)
        enough = (
            len(seen) >= moment if isinstance(moment, int) else any(path.name == "ca-cert.pem" for path, _when in seen)
        )
        return enough or process.poll() is not None

    try:
        until(reached, timeout_s=200)
        killed = process.poll() is None
    finally:
        for pid in descendants(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()
    assert killed
    print(f"killed after {len(seen)} files")


@pytest.mark.deep
@pytest.mark.parametrize("moment", ["CA", 2, 7, 15, 24, 45])
def test_a_roll_over_that_is_killed_shuts_nobody_out(lab: Hypervisors, ca: Path, moment: str | int) -> None:
    kill(lab, ca, [*ROTATE, "-e", "authority=true"], moment)
    assert everybody_reaches(lab, ca_dir=ca)
    role(lab)
    assert everybody_reaches(lab, ca_dir=ca)
    assert changes(role(lab)) == 0
    assert all(len(one) == 1 for one in trusted(lab))


@pytest.mark.deep
@pytest.mark.parametrize("moment", ["CA", 4, 9, 16])
def test_a_first_run_that_is_killed_is_completed_by_the_next(lab: Hypervisors, ca: Path, moment: str | int) -> None:
    role(lab)
    for host in HOSTS:
        lab.on(host, "rm -rf /etc/pki/CA /etc/pki/libvirt /etc/pki/qemu")
    shutil.rmtree(ca)
    kill(lab, ca, ["ansible-playbook", lab.folder / "pki.json"], moment)
    role(lab)
    assert everybody_reaches(lab, ca_dir=ca)
    assert changes(role(lab)) == 0


def written(ca: Path) -> set[tuple[Path, int]]:
    """What a run writes on the controller, and does not replace by links; and when."""
    found = set()
    for path in ca.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.suffix in (".pem", ".json") and "controller" not in path.parts:
                found.add((path, path.stat().st_mtime_ns))
    return found


# What a module on the host does with files, by name.
TRACED = """#!/bin/sh
exec strace -f -y -qq -s 200 -o /root/trace.$$ -e trace=openat,creat,chmod,fchmod,fchmodat,fchown,rename,renameat,renameat2,linkat \
/usr/bin/python3 "$@"
"""


@pytest.mark.deep
def test_no_key_can_be_read_by_others_for_a_moment(lab: Hypervisors, ca: Path) -> None:
    """Neither while it is made nor after that, and none is on the controller but the CAs' and its own."""
    lab.on("hyper1", "DEBIAN_FRONTEND=noninteractive apt-get -qy install strace >/dev/null; rm -f /root/trace.*")
    lab.on("hyper1", "cat >/root/traced && chmod +x /root/traced", given=TRACED)
    arguments = json.dumps({"force": True, "ca_dir": str(ca)})
    call = (
        "ansible",
        "hyper1",
        "-vvvv",
        "-m",
        "corral.virt.virt_tls",
        "-a",
        arguments,
        "-e",
        "ansible_python_interpreter=/root/traced",
    )
    printed = lab.run(*call)
    assert "renewed" in printed and "PRIVATE KEY" not in printed
    calls = [line.partition(" ")[2].strip() for line in lab.on("hyper1", "cat /root/trace.*").splitlines()]
    ours = [line for line in calls if re.search(r"/etc/pki/.*(key|pending)\.pem", line) and " = -1 " not in line]
    made = [line for line in ours if "O_CREAT" in line]
    assert {line.split('"')[1].rpartition("/")[2] for line in made} >= {
        "pending.pem.new",
        "serverkey.pem.new",
        "client-key.pem.new",
    }
    assert [line for line in made if not re.search(r"O_CREAT\|O_EXCL[^,]*, 0600\)", line)] == []
    opened = [line for line in ours if "chmod" in line and not re.search(r", 0600\) ", line)]
    for line in opened:
        path = line.partition("<")[2].partition(">")[0]
        given = [each for each in ours if "chown" in each and path in each and ", -1) " not in each]
        assert (
            path.startswith("/etc/pki/qemu/")
            and re.search(r", 0640\) ", line)
            and ours.index(given[0]) < ours.index(line)
        )
    assert opened
    assert (
        lab.on(
            "hyper1",
            "find -L /etc/pki -name '*key.pem' -perm /027; find -L /etc/pki/libvirt -name '*key.pem' -perm /077",
        )
        == ""
    )
    secrets = lab.run("grep", "-rl", "PRIVATE KEY", ca).split()
    kinds = {re.sub(r"/[0-9]+/|/[0-9a-f]{16}/", "/N/", str(Path(path).relative_to(ca))) for path in secrets}
    assert kinds - {"controller/clientkey.pem"} == {
        "libvirt/N/ca-key.pem",
        "qemu/N/ca-key.pem",
        "controller/corral/N/clientkey.pem",
    }
    assert not [path for path in secrets if Path(path).stat().st_mode & 0o077]
    assert lab.run("sh", "-c", "grep -rl 'PRIVATE KEY' ~/.ansible || true") == ""
    assert everybody_reaches(lab, ca_dir=ca)


@pytest.mark.deep
def test_the_keys_of_the_cas_have_a_passphrase(lab: Hypervisors, ca: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that have nothing to sign do without; others say what is missing."""
    keys = [*ca.glob("*/*/ca-key.pem")]
    check = ("openssl", "rsa", "-noout", "-check", "-passin")
    monkeypatch.setenv("CORRAL_VIRT_CA_PASSPHRASE", "correct horse")
    assert changes(role(lab, "--check")) > 0
    for key in keys:
        lab.run(*check, "pass:", "-in", key)
    try:
        assert changes(role(lab)) > 0
        for key in keys:
            lab.run(*check, "pass:wrong", "-in", key, ok=False)
            lab.run(*check, "pass:correct horse", "-in", key)
            assert key.stat().st_mode & 0o077 == 0
        assert changes(role(lab)) == 0
        monkeypatch.delenv("CORRAL_VIRT_CA_PASSPHRASE")
        assert changes(role(lab)) == 0, "nothing is to be signed"
        output = " ".join(lab.run(*ROTATE, ok=False).split())
        assert "its key has a passphrase; set it with ca_passphrase" in output
        assert everybody_reaches(lab, ca_dir=ca)
        monkeypatch.setenv("CORRAL_VIRT_CA_PASSPHRASE", "wrong")
        assert "cannot be decrypted with this passphrase" in " ".join(lab.run(*ROTATE, ok=False).split())
        monkeypatch.setenv("CORRAL_VIRT_CA_PASSPHRASE", "correct horse")
        lab.run(*ROTATE)
        assert everybody_reaches(lab, ca_dir=ca)
        assert changes(role(lab)) == 0
    finally:
        for key in keys:
            key.write_text(lab.run("openssl", "pkey", "-in", key, "-passin", "pass:correct horse"))


@pytest.mark.deep
def test_cas_that_are_restricted_to_names_are_taken_by_libvirt_and_qemu(
    lab: Hypervisors, ca: Path, tmp_path: Path
) -> None:
    network = address(lab, "hyper1").rpartition(".")[0] + ".0/24"
    lab.run(*ROTATE, "-e", json.dumps({"authority": True, "pki_ca_constraints": [*HOSTS, network]}))
    for name in ("libvirt", "qemu"):
        shown = lab.run("openssl", "x509", "-in", newest(ca, name) / "ca-cert.pem", "-noout", "-text")
        assert (
            re.search(r"Name Constraints: critical\s+Permitted:\s+DNS:hyper1", shown) and f"IP:{network[:-3]}" in shown
        )
    assert everybody_reaches(lab, ca_dir=ca)
    with travelling(lab, *HOSTS, least=3) as guest:
        until(lambda: guest.count >= 3 or guest.failures, timeout_s=120)
    other = certificate(
        "O=corral.virt,OU=libvirt,CN=hyper1", authority(newest(ca, "libvirt")), names=[x509.DNSName("example.com")]
    )
    assert not admitted(address(lab, "hyper1"), save(tmp_path / "other", other, "")), "the CA cannot vouch for others"
    assert changes(role(lab)) == 0
