"""Two years of certificates, month by month, by libvirt's own clock: its servers and clients run with the date of
each month.
"""

from __future__ import annotations

import base64
import datetime
import io
import itertools
import json
import tarfile
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from ansible_collections.corral.virt.tests.lab.hypervisors import Hypervisors, hypervisors
from ansible_collections.corral.virt.tests.unit.plugins.plugin_utils.months import Cloud

pytestmark = [pytest.mark.lab, pytest.mark.deep]

DAY = datetime.timedelta(days=1)
MONTHS = 24
CLIENT = {"clientcert.pem": "libvirt/clientcert.pem", "clientkey.pem": "libvirt/private/clientkey.pem"}
SERVER = {"servercert.pem": "libvirt/servercert.pem", "serverkey.pem": "libvirt/private/serverkey.pem"}
TRUST = {"cacert.pem": "CA/cacert.pem", "cacrl.pem": "CA/cacrl.pem"}
PREPARE = """set -e; DEBIAN_FRONTEND=noninteractive apt-get -qy install faketime >/dev/null
id spare >/dev/null 2>&1 || useradd spare; grep -q months /etc/hosts || echo '127.0.0.1 h1 h2 h3 # months' >>/etc/hosts"""
# On a host: a libvirtd for each server's files, and virsh with each other's; what could not be reached.
ASK = r"""
import base64, io, json, os, pathlib, shutil, subprocess, sys, tarfile, time
given = json.load(sys.stdin)
root = pathlib.Path("/srv/months")
shutil.rmtree(root, ignore_errors=True)
tarfile.open(fileobj=io.BytesIO(base64.b64decode(given["files"]))).extractall(root)
faked = {"LD_PRELOAD": "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1", "FAKETIME": "@" + given["date"], "TZ": "UTC"}
faked |= {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1", "PATH": os.environ["PATH"]}
servers, ports = [], {host: 17000 + number for number, host in enumerate(given["hosts"])}
for host, port in ports.items():
    place = root / host
    lines = [f'{key}_file = "{place}/{name}"' for key, name in (("ca", "cacert.pem"), ("crl", "cacrl.pem"), ("cert", "servercert.pem"))]
    lines += [f'key_file = "{place}/serverkey.pem"', "listen_tls = 1", f'tls_port = "{port}"']
    (place / "libvirtd.conf").write_text("\n".join(lines) + "\n")
subprocess.run(["chown", "-R", "spare", root], check=True)
said = []
try:
    for host in ports:
        own = [f"{key}={value}" for key, value in {**faked, "HOME": root / host, "XDG_RUNTIME_DIR": root / host}.items()]
        words = ["setpriv", "--reuid", "spare", "env", "-i", *own, "libvirtd", "--listen", "-f", root / host / "libvirtd.conf"]
        servers.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=(root / host / "log").open("w"), start_new_session=True))
    for (host, port), server in zip(ports.items(), servers):
        listening = ["ss", "-Hltn", f"sport = {port}"]
        while server.poll() is None and not subprocess.run(listening, capture_output=True, text=True).stdout.strip():
            time.sleep(0.1)
        if server.poll() is not None:
            said.append(f"{host} does not listen: {(root / host / 'log').read_text()[-1500:]}")
    asked = {}
    for client in [*given["hosts"], "controller"]:
        for host, port in ports.items():
            uri = f"test+tls://{host}:{port}/default?pkipath={root}/{client}"
            if client != host:
                words = ["virsh", "-q", "-c", uri, "list", "--all"]
                asked[client, host] = subprocess.Popen(words, env=faked, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for (client, host), process in asked.items():
        answer = process.communicate(timeout=60)[0]
        said += [] if "running" in answer else [f"{client} -> {host}: {answer}"]
    print(json.dumps({"asked": len(asked), "said": said}))
finally:
    subprocess.run(["pkill", "-9", "-u", "spare"])
    for each in servers:
        each.wait()
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Hypervisors]:
    """One hypervisor, for its libvirt."""
    with hypervisors("months", "hypervisor") as lab:
        lab.on("hyper1", PREPARE)
        lab.on("hyper1", "cat >/srv/ask.py", given=ASK)
        yield lab


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """Three hosts and a controller, whose first CAs live for three years.

    Keys that GnuTLS takes, each used several times.
    """
    make = rsa.generate_private_key
    turn = itertools.cycle([make(public_exponent=65537, key_size=2048) for _number in range(24)])
    authorities = "ansible_collections.corral.virt.plugins.plugin_utils._authority.ca"
    monkeypatch.setattr(f"{authorities}.KEY_BITS", 2048)
    monkeypatch.setattr(f"{authorities}.LIFE", 1100 * DAY)
    monkeypatch.setattr(rsa, "generate_private_key", lambda **_options: next(turn))
    for host in ("h1", "h2", "h3"):
        (tmp_path / host).mkdir()
    return Cloud(tmp_path)


def refused(lab: Hypervisors, cloud: Cloud) -> tuple[int, list[str]]:
    """How many connections there were, and which failed, with the files as they are and the clock as it is."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.dereference = True
        for host in cloud.hosts:
            for name, path in {**TRUST, **SERVER, **CLIENT}.items():
                archive.add(cloud.path(host, path), f"{host}/{name}")
        for name in (*TRUST, *CLIENT):
            archive.add(cloud.place / "ca/controller" / name, f"controller/{name}")
    given = {
        "hosts": cloud.hosts,
        "date": f"{cloud.now:%Y-%m-%d %H:%M:%S}",
        "files": base64.b64encode(packed.getvalue()).decode(),
    }
    result = t.cast(dict[str, t.Any], json.loads(lab.on("hyper1", "python3 /srv/ask.py", given=json.dumps(given))))
    return result["asked"], result["said"]


def test_everybody_reaches_everybody_in_every_month(lab: Hypervisors, cloud: Cloud) -> None:
    """At the beginning of each, and before the run of the next one.

    A host is away for a quarter while the CAs are replaced.
    """
    cloud.play()
    connections, signers = 0, set()
    for month in range(MONTHS + 1):
        for days in (0, 29):
            cloud.now += days * DAY
            asked, output = refused(lab, cloud)
            assert not output, f"month {month}, {cloud.now:%Y-%m-%d}: {output}"
            connections += asked
        cloud.now += DAY
        cloud.play(*(host for host in cloud.hosts if not (host == "h3" and 12 <= month < 15)))
        signers.add(cloud.path("h1", "CA/cacert.pem").read_text())
    print(
        f"{connections} connections, {len(list((cloud.place / 'ca/libvirt').iterdir()))} CAs of libvirt, "
        f"{len(signers)} lists of CAs"
    )
    assert connections == 2 * (MONTHS + 1) * 9 and len(list((cloud.place / "ca/libvirt").iterdir())) == 2
    assert cloud.path("h1", "CA/cacert.pem").read_text() == (cloud.place / "ca/libvirt/2/ca-cert.pem").read_text()


def test_the_clock_of_the_witnesses_is_the_one_that_is_set(lab: Hypervisors, cloud: Cloud) -> None:
    """Else the other test would show nothing: after a year without a run, nobody reaches anybody."""
    cloud.play()
    cloud.now += 366 * DAY
    asked, output = refused(lab, cloud)
    assert len([line for line in output if "->" in line]) == asked == 9
    assert any("expired" in line for line in output)
