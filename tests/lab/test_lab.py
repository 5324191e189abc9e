"""The lab itself: it comes up, two stand side by side, and it leaves nothing behind, however it ended."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import Patience

pytestmark = [pytest.mark.lab, pytest.mark.deep]

LAB = Path(__file__).with_name("lab.py")
BUILD = LAB.parents[2] / "build" / "lab"
NAMES = ("tlaba", "tlabb")
UP_TIMEOUT_S = 1800  # for one that hangs
FIRST = {(signal.SIGKILL, 0.4), (signal.SIGINT, 0.8)}


def lab(*arguments: str, ok: bool = True) -> str:
    done = subprocess.run(
        (sys.executable, LAB, *arguments), check=False, capture_output=True, text=True, timeout=UP_TIMEOUT_S
    )
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done.stdout + done.stderr


def ssh(name: str, host: str, *command: str) -> str:
    done = subprocess.run(
        ("ssh", "-F", BUILD / name / "ssh_config", "--", host, *command), check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def traces() -> dict[str, list[str]]:
    """What this machine's own tools show of our labs; other labs may run meanwhile."""
    show = {
        "links": "ip -o link",
        "tables": "nft list tables",
        "mounts": "cat /proc/self/mounts",
        "processes": "ps -eo stat,args",
        "state": "ls /var/lib/corral-lab",
        "cgroups": "find /sys/fs/cgroup -maxdepth 2 -name corral-lab-*",
        "build": f"ls {BUILD}",
    }
    ours = re.compile("|".join(NAMES))
    found = {}
    for what, command in show.items():
        lines = subprocess.run(command.split(), check=False, capture_output=True, text=True).stdout.splitlines()
        found[what] = [
            line for line in lines if ours.search(line) and not line.startswith("Z") and "pytest" not in line
        ]
    return found


def nothing() -> dict[str, list[str]]:
    return {what: [] for what in traces()}


@pytest.fixture(autouse=True)
def cleaned() -> Iterator[None]:
    for name in NAMES:
        lab("down", "--name", name)
    yield
    for name in NAMES:
        lab("down", "--name", name)


def test_up_and_down_leave_nothing() -> None:
    assert traces() == nothing()
    forwarding = Path("/proc/sys/net/ipv4/ip_forward").read_text()
    others = set(lab("status").splitlines())
    lab("up", "--name", NAMES[0], "--hosts", "2", "--no-image")
    shown = traces()
    assert all(shown.values()), shown
    assert "running already" in lab("up", "--name", NAMES[0], "--hosts", "2", "--no-image")
    lab("down", "--name", NAMES[0])
    assert traces() == nothing()
    if set(lab("status").splitlines()) == others:
        assert Path("/proc/sys/net/ipv4/ip_forward").read_text() == forwarding


def test_host_is_a_bare_debian_with_a_firewall() -> None:
    lab("up", "--name", NAMES[0], "--hosts", "1", "--no-image")
    assert ssh(NAMES[0], "hyper1", "systemctl is-system-running").strip() == "running"
    assert "policy drop" in ssh(NAMES[0], "hyper1", "nft list chain inet filter input")
    assert not ssh(NAMES[0], "hyper1", "ls -d /etc/libvirt /usr/bin/qemu* 2>/dev/null; true")
    assert "2" in ssh(NAMES[0], "hyper1", "apt-get install -qq -y tree >/dev/null && tree --version")
    assert lab("exec", "--name", NAMES[0], "hyper1", "--", "hostname").strip() == "hyper1"


def test_two_labs_side_by_side() -> None:
    lab("up", "--name", NAMES[0], "--hosts", "1", "--no-image")
    lab("up", "--name", NAMES[1], "--hosts", "1", "--no-image", "--network", "networkd")
    addresses = [ssh(name, "hyper1", "hostname -I").split()[0] for name in NAMES]
    assert addresses[0] != addresses[1]
    # Systemd's cgroups of one are not those of the other.
    assert all(list(Path("/sys/fs/cgroup").glob(f"**/corral-lab-{name}/hyper1/payload/system.slice")) for name in NAMES)
    lab("down", "--name", NAMES[0])
    assert ssh(NAMES[1], "hyper1", "hostname").strip() == "hyper1"
    assert NAMES[0] not in str(traces())


def test_a_lab_begins_with_a_template() -> None:
    up = ("up", "--name", NAMES[0], "--hosts", "1", "--no-image", "--subnet", "250")
    slot = "tlab"
    templates = Path("/var/cache/corral-lab/templates")
    shutil.rmtree(templates / slot, ignore_errors=True)  # of a run that was killed
    try:
        assert "begins" not in lab(*up, "--template", f"{slot}=one")
        was = ssh(
            NAMES[0],
            "hyper1",
            "rm /etc/nftables.conf; echo kept >/root/made; hostname -I; cat /etc/ssh/ssh_host_ed25519_key.pub",
        )
        lab("template", "--name", NAMES[0], f"{slot}=one")
        lab(*up)
        assert ssh(NAMES[0], "hyper1", "cat /root/made").strip() == "kept"
        lab("down", "--name", NAMES[0])
        assert "begins with the template tlab" in lab(*up, "--template", f"{slot}=one")
        look = (
            "test ! -e /etc/nftables.conf && test $(cat /root/made) = kept && hostname -I; cat "
            "/etc/ssh/ssh_host_ed25519_key.pub"
        )
        assert ssh(NAMES[0], "hyper1", look) == was
        # Of other content, or for other addresses, it is not taken.
        for more in (("--template", f"{slot}=two"), ("--template", f"{slot}=one", "--subnet", "249")):
            lab("down", "--name", NAMES[0])
            assert "begins" not in lab(*up, *more)
            assert ssh(NAMES[0], "hyper1", "ls /root") == ""
    finally:
        shutil.rmtree(templates / slot, ignore_errors=True)


@pytest.mark.parametrize(
    ("end", "after_s"),
    [
        pytest.param(
            end, after_s, marks=[] if (end, after_s) in FIRST else pytest.mark.deep, id=f"{end.name} {after_s} s"
        )
        for end in (signal.SIGKILL, signal.SIGINT)
        for after_s in (0.1, 0.4, 0.8, 1.5)
    ],
)
def test_killed_up_is_mended_by_the_next(end: signal.Signals, after_s: float) -> None:
    command = (sys.executable, LAB, "up", "--name", NAMES[0], "--hosts", "2", "--no-image")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after_s)
    process.send_signal(end)
    process.wait(timeout=300)
    lab("up", "--name", NAMES[0], "--hosts", "2", "--no-image")
    for host in ("hyper1", "hyper2"):
        assert ssh(NAMES[0], host, "hostname").strip() == host


def test_killed_up_is_removed_by_down() -> None:
    command = (sys.executable, LAB, "up", "--name", NAMES[0], "--no-image")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    process.kill()
    process.wait()
    lab("down", "--name", NAMES[0])
    assert traces() == nothing()


def asked(port: int) -> int:
    """The answer's status of who asks a lab's web server for the list of sums."""
    with contextlib.suppress(ConnectionRefusedError):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        connection.request("GET", "/SHA256SUMS")
        return connection.getresponse().status
    return 0


def test_who_asks_for_an_image_that_is_being_built_waits_for_it(tmp_path: Path) -> None:
    """As with `up --image-later`: the process that builds it is one of the lab's by its mark, and may die."""
    image, log = tmp_path / "debian-0", tmp_path / "web.log"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("wb") as out:
        server = subprocess.Popen(
            (sys.executable, LAB, "serve", NAMES[0], "127.0.0.1", str(port), image), stdout=out, stderr=out
        )
    builder: subprocess.Popen[bytes] | None = None
    try:
        patience = Patience(20)
        while not (status := asked(port)) and not patience.is_over:
            time.sleep(0.1)
        assert status == http.HTTPStatus.NOT_FOUND, "nobody builds it"
        assert f"the image was not built: see /var/lib/corral-lab/{NAMES[0]}/logs/image.log" in log.read_text()
        builder = subprocess.Popen(
            ("sleep", "600"), env={"PATH": os.defpath, "CORRAL_LAB_PROCESS": f"{NAMES[0]}/{image.name}"}
        )
        with concurrent.futures.ThreadPoolExecutor() as pool:
            waits = pool.submit(asked, port)
            time.sleep(2)
            assert not waits.done()
            (tmp_path / "new").mkdir()
            (tmp_path / "new/SHA256SUMS").write_text("0  image\n")
            (tmp_path / "new").rename(image)
            assert waits.result(timeout=300) == http.HTTPStatus.OK
    finally:
        for process in filter(None, (server, builder)):
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("up", "--name", "No/Name"), "no name for a lab"),
        (("up", "--name", NAMES[0], "--hosts", "0"), "between 1 and 89"),
        (("up", "--name", NAMES[0], "--host", "hyper9=trixie"), "--host hyper9=trixie"),
        (("exec", "--name", NAMES[0], "hyper1", "--", "true"), f"there is no lab {NAMES[0]}"),
    ],
)
def test_wrong_input_is_said_and_changes_nothing(arguments: tuple[str, ...], says: str) -> None:
    assert says in lab(*arguments, ok=False)
    assert traces() == nothing()


def test_without_root_it_says_all_that_is_missing() -> None:
    done = subprocess.run(
        ("/usr/bin/unshare", "--user", sys.executable, LAB, "up"),  # a user namespace in which we are nobody
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": "/nowhere", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 1
    assert "need root" in done.stderr
    assert "apt-get install --no-install-recommends" in done.stderr


def probed(call: str) -> str:
    code = f"from corral_lab import kvm; print(kvm.{call})"
    return subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=LAB.parent, capture_output=True, text=True
    ).stdout.strip()


def test_kvm_that_starts_no_guest_is_not_given_to_hosts() -> None:
    """What is emulated starts here; whether KVM is given is what it did, not that its device is there."""
    assert probed("boots('tcg', 60)") == "True"
    lab("up", "--name", NAMES[0], "--hosts", "1", "--no-image", "--kvm")
    given = "ls /dev/kvm" in ssh(NAMES[0], "hyper1", "ls /dev/kvm 2>/dev/null && echo ls /dev/kvm; true")
    inventory = BUILD / NAMES[0] / "inventory/group_vars/all/lab.yml"
    assert f"virt_lab_kvm: {str(given).lower()}" in inventory.read_text()


def test_a_lab_of_another_checkout_is_not_removed(tmp_path: Path) -> None:
    lab("up", "--name", NAMES[0], "--hosts", "1", "--no-image")
    record = Path("/var/lib/corral-lab") / NAMES[0] / "lab.json"
    kept = json.loads(record.read_text())
    record.write_text(json.dumps({**kept, "checkout": str(tmp_path)}))
    for command in ("down", "up"):
        refused = subprocess.run(
            [sys.executable, LAB, command, "--name", NAMES[0]], check=False, capture_output=True, text=True
        )
        assert refused.returncode == 1 and f"lab {NAMES[0]} belongs to {tmp_path}: " in refused.stderr, refused.stderr
    assert ssh(NAMES[0], "hyper1", "hostname").strip() == "hyper1", "it goes on"
    record.write_text(json.dumps({**kept, "checkout": str(tmp_path / "gone")}))
    lab("down", "--name", NAMES[0])
    # What an ended run of another checkout left is in nobody's way.
    lab("up", "--name", NAMES[0], "--hosts", "1", "--no-image")
    record.write_text(json.dumps({**json.loads(record.read_text()), "checkout": str(tmp_path)}))
    end = f"from corral_lab import processes; processes.end({NAMES[0]!r})"
    subprocess.run([sys.executable, "-c", end], check=True, cwd=LAB.parent)
    lab("down", "--name", NAMES[0])
    shutil.rmtree(BUILD / NAMES[0])  # where that checkout would have had its own
    assert traces() == nothing()


def test_who_is_not_root_is_told_before_anything_is_made() -> None:
    """By each target of `make` that makes a lab."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place)
        copy.chmod(0o755)
        for part in ("Makefile", "tests/lab/lab.py"):
            (copy / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(LAB.parents[2] / part, copy / part)
        shutil.copytree(LAB.with_name("corral_lab"), copy / "tests/lab/corral_lab")
        nobody = ("setpriv", "--reuid=65534", "--clear-groups", "make", "--no-print-directory", "-C", place)
        for target in ("demo", "demo-down", "test-lab", "faults"):
            told = subprocess.run([*nobody, target], check=False, capture_output=True, text=True)
            assert told.returncode and "run it with sudo" in told.stderr and not told.stdout, told
