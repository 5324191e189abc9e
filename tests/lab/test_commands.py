"""Every playbook of the action catalogue on two real hypervisors, judged by virsh, its event log, ls and a display's
own greeting.

Guests are a boot sector, which obeys ACPI or does not. The first one is made by `create`, the others by virsh.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shlex
import socket
import subprocess
import threading
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import (
    IMAGES,
    ROOT,
    Hypervisors,
    hypervisors,
)
from ansible_collections.corral.virt.tests.lab.test_states import boot_sector

pytestmark = pytest.mark.lab

HOSTS = ("hyper1", "hyper2")
EVENTS = "/var/tmp/events"
OBEYS = {"a": "hyper1", "b": "hyper2"}
GUEST = """<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type><boot dev='hd'/></os><features><acpi/></features><cpu mode='maximum'/>
<devices><disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='/srv/{name}.raw'/>
<target dev='vda' bus='virtio'/></disk></devices></domain>"""
WISH: dict[str, t.Any] = {
    "guest": "web1", "vcpus": "1", "memory": "64MiB", "autostart": "false", "interfaces": [], "graphics": {"type": "vnc"},
    "domain": {"tags": ["front"], "disks": [{"name": "system", "size": "64MiB"}], "cloud_init": {"user_data": {"a": 1}}},
}  # fmt: skip


class Commands(Hypervisors):
    """Two hosts, and playbooks on them."""

    def do(self, action: str, *flags: str, ok: bool = True, **arguments: t.Any) -> str:
        """Run a playbook; what was printed, in one line."""
        output = ("-e", json.dumps(arguments)) if arguments else ()
        command = ("ansible-playbook", f"corral.virt.{action}", *self.ask_nobody, *output, *flags)
        return re.sub(r"\s+", " ", self.run(*command, ok=ok))

    def same(self, action: str, **arguments: t.Any) -> None:
        """Nothing is to be done, neither in check mode nor in a run."""
        for flags in (["--check"], []):
            assert not re.search(r"changed=[1-9]", self.do(action, *flags, **arguments))

    def cycle(self, action: str, **arguments: t.Any) -> str:
        """Check, do, check again, do again; what the run printed."""
        before = self.world()
        checked = self.do(action, "--check", **arguments)
        assert re.search(r"changed=[1-9]", checked) and self.world() == before
        done = self.do(action, **arguments)
        assert re.findall(r"changed=\d+", done) == re.findall(r"changed=\d+", checked)
        self.same(action, **arguments)
        return done

    def world(self) -> dict[str, str]:
        """Guests and files of both hosts, and whose keys are known."""
        look = f"virsh list --all; ls {IMAGES}; md5sum /var/lib/libvirt/corral-maintenance.json 2>/dev/null; true"
        return {
            **{host: self.on(host, look) for host in HOSTS},
            "known": self.known.read_text() if self.known.exists() else "",
        }

    @property
    def known(self) -> Path:
        """SSH host keys of guests."""
        return Path(self.variable("guests_known_hosts"))

    def state(self, name: str) -> dict[str, str]:
        """What virsh says, by host."""
        output = {host: self.on(host, f"virsh domstate --reason {name} 2>/dev/null || true") for host in HOSTS}
        return {host: state for host, state in output.items() if state}

    def reboots(self, name: str) -> int:
        """How many events of that `virsh event` has seen; a reset of a guest gives several."""
        self.on(OBEYS[name], "sleep 2")  # it hears nothing before its code runs
        return len(re.findall(rf"event 'reboot' for domain '{name}'", self.on(OBEYS[name], f"cat {EVENTS}")))


@pytest.fixture(scope="module")
def lab() -> Iterator[Commands]:
    """Two hypervisors with a guest on each."""
    with hypervisors("commands", hosts=2) as made:
        lab = Commands(made.name)
        code = base64.b64encode(boot_sector()).decode()
        for name, host in OBEYS.items():
            lab.on(host, f"setsid -f sh -c 'virsh event --all --loop --timestamp' > {EVENTS} 2>&1 < /dev/null")
            lab.on(host, f"echo {code} | base64 -d > /srv/{name}.raw; truncate -s 1M /srv/{name}.raw")
            lab.on(host, "cat > /tmp/guest.xml && virsh -q define /tmp/guest.xml", given=GUEST.format(name=name))
        yield lab


def test_create_takes_every_option_by_its_name(lab: Commands) -> None:
    assert lab.state("web1") == {}
    checked = lab.do("create", "--check", **WISH)
    assert lab.state("web1") == {} and "reserved" not in checked
    output = lab.do("create", **WISH, ansible_become=True)
    assert "reserved" not in output
    ((host, state),) = lab.state("web1").items()
    assert state == "running (booted)"
    xml = lab.on(host, "virsh dumpxml web1")
    assert "<corral:tag>front</corral:tag>" in xml and "type='vnc'" in xml
    assert "web1 ssh-ed25519" in lab.known.read_text()
    assert "web1-seed.iso" in lab.on(host, f"ls {IMAGES}")
    lab.same("create", **WISH, ansible_become=True)


def test_create_that_creates_nothing_is_red(lab: Commands) -> None:
    before = lab.world()
    ((here, _state),) = lab.state("web1").items()
    (other,) = {*HOSTS} - {here}
    assert f"it is on {here}; move it: ansible-playbook corral.virt.migrate" in lab.do(
        "create", **WISH, host=other, ok=False
    )
    new = {**WISH, "guest": "new"}
    assert "--limit excludes hyper2" in lab.do("create", "--limit", "hyper1", **new, ok=False)
    assert "hyper9 is not a host of the group hyper" in lab.do("create", **new, host="hyper9", ok=False)
    output = lab.do("create", **new, vcpu=2, enable_vnc=True, ok=False)
    assert "did you mean vcpus?" in output and "enable_vnc: create does not take it" in output
    assert lab.world() == before


def test_commands_of_consoles_work_as_they_are_printed(lab: Commands) -> None:
    output = lab.run("ansible-playbook", "corral.virt.console", *lab.ask_nobody, "-e", "guest=web1")
    serial, display = re.findall(r"^  web1: (ssh .*)$", output, re.MULTILINE)
    tunnel, viewer = display.split("; ")
    assert shows(serial, b"Connected to domain 'web1'")
    port = int(viewer.rpartition(":")[2])
    with subprocess.Popen([*shlex.split(tunnel), "sleep 20"], stdin=subprocess.DEVNULL) as ssh:
        try:
            until(lambda: greeting(port) == b"RFB 003.008\n")
        finally:
            ssh.terminate()
    assert tunnel in lab.do("query", guest="web1")


def shows(command: str, text: bytes, timeout_s: float = 20) -> bool:
    """Whether a command that wants a terminal shows a text in time; it is ended then."""
    script = ("script", "-qefc", command, "/dev/null")
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as terminal:
        over = threading.Timer(timeout_s, terminal.kill)
        over.start()
        try:
            return any(text in line for line in terminal.stdout or ())
        finally:
            over.cancel()
            terminal.kill()


def greeting(port: int) -> bytes:
    """What a display says first; nothing while nobody listens."""
    try:
        with socket.create_connection(("localhost", port), timeout=2) as connection:
            return connection.recv(12)
    except OSError:
        return b""


def test_power_states(lab: Commands) -> None:
    lab.cycle("start", guest="a,b")
    assert lab.state("a") == {"hyper1": "running (booted)"} and lab.state("b") == {"hyper2": "running (booted)"}
    lab.cycle("pause", guest=["a"])
    assert lab.state("a") == {"hyper1": "paused (user)"}
    lab.cycle("resume", guest="a")
    assert lab.state("a") == {"hyper1": "running (unpaused)"}
    assert "reset would affect 2 guests (hyper1: a; hyper2: b)" in lab.do("reset", guest="?", ok=False)
    assert (lab.reboots("a"), lab.reboots("b")) == (0, 0)
    lab.do("reset", guest="?", confirm="2")
    assert lab.reboots("a") > 0 and lab.reboots("b") > 0
    count = lab.reboots("a")
    lab.do("reboot", "--check", guest="a")
    assert lab.reboots("a") == count
    lab.do("reboot", guest="a", wait_timeout="60")
    assert lab.reboots("a") > count
    lab.cycle("shutdown", guest="a,b", wait_timeout=60)
    assert lab.state("a") == {"hyper1": "shut off (shutdown)"} and lab.state("b") == {"hyper2": "shut off (shutdown)"}
    for action in ("pause", "resume", "reboot", "reset"):
        assert "it is off on hyper1; start it: ansible-playbook corral.virt.start -e guest=a" in lab.do(
            action, guest="a", ok=False
        )
    assert lab.state("a") == {"hyper1": "shut off (shutdown)"}


def test_a_guest_that_does_not_obey(lab: Commands) -> None:
    """web1 has no system: what is waited for is told, and then it is red, or forced."""
    output = lab.do("shutdown", tag="front", wait_timeout=7, ok=False)
    assert "waiting for web1 to shut down, at most 7 s; 5 s so far" in output and "did not do so within 7 s" in output
    assert [*lab.state("web1").values()] == ["running (booted)"]
    assert "it is running on" in lab.do("rename", guest="web1", to="web9", ok=False)
    lab.cycle("force_off", guest="web1")
    assert [*lab.state("web1").values()] == ["shut off (destroyed)"]


@pytest.mark.deep
def test_a_guest_that_hangs_or_is_off_is_told_by_what_it_does_and_not_waited_for(lab: Commands) -> None:
    """Nobody can log in to either; one has used CPU and sent nothing, the other one is off."""
    (lab.folder / "away.ini").write_text("away ansible_host=127.0.0.1 ansible_port=9\n")
    wait = (
        "ansible",
        "away",
        "-i",
        lab.folder / "inventory",
        "-i",
        lab.folder / "away.ini",
        "-m",
        "corral.virt.virt_ready",
    )
    lab.on("hyper1", "virsh start a")
    hung = re.sub(r"\s+", " ", lab.run(*wait, "-a", "name=a hypervisor=hyper1 timeout=12", ok=False))
    assert re.search(
        r"cannot log in to a on hyper1 within \d\d s \(since its start: \d+ s of CPU, \d+ disk reads", hung
    )
    assert "port 9: Connection refused" in hung and "corral.virt.console -e guest=a" in hung
    lab.on("hyper1", "virsh destroy a")
    off = re.sub(r"\s+", " ", lab.run(*wait, "-a", "name=a hypervisor=hyper1 timeout=600", ok=False))
    assert "it is off there" in off and "start it: ansible-playbook corral.virt.start -e guest=a" in off
    for wrong, told in (
        ("hypervisor=hyper9", "hyper9 is no host of this inventory"),
        ("hypervisor=hyper1 timeout=0", "at least 1 s"),
    ):
        assert told in re.sub(r"\s+", " ", lab.run(*wait, "-a", f"name=a {wrong}", ok=False))
    assert "it is not there" in re.sub(r"\s+", " ", lab.run(*wait, "-a", "name=nobody hypervisor=hyper1", ok=False))
    assert "skipped" in lab.run(*wait, "-a", "name=a hypervisor=hyper1", "--check").lower()


def test_a_guest_gets_another_name(lab: Commands) -> None:
    """The tests after this one know it by that: its files are called as before, and are still its own."""
    before, (host, *_none) = lab.world(), [*lab.state("web1")]
    uuid, key = lab.on(host, "virsh domuuid web1"), lab.known.read_text().partition("web1 ")[2].splitlines()[0]
    assert f"{host} rename web1 to web9" in lab.do("rename", "--check", guest="web1", to="web9")
    assert lab.world() == before
    lab.do("rename", guest="web1", to="web9")
    assert lab.on(host, "virsh domuuid web9") == uuid and lab.state("web1") == {}
    assert f"web9 {key}" in lab.known.read_text() and "web1 " not in lab.known.read_text()
    assert lab.on(host, "virsh -q domblklist web9 | awk '{print $2}' | xargs ls").split() == [
        f"{IMAGES}/web1-seed.iso",
        f"{IMAGES}/web1-system.qcow2",
    ]
    assert f"{host} has web9, so it may already have been renamed" in lab.do(
        "rename", guest="web1", to="web9", ok=False
    )
    lab.cycle("start", guest="web9")
    lab.same("create", **{**WISH, "guest": "web9"})


def test_nobody_is_found(lab: Commands) -> None:
    before = lab.world()
    assert "cannot find web2: none of hyper1, hyper2 has it; did you mean web9 on" in lab.do(
        "start", guest="web2", ok=False
    )
    assert "--limit excludes hyper2" in lab.do("start", "--limit", "hyper1", guest="b", ok=False)
    assert "no guest has the tag back" in lab.do("purge", tag="back", ok=False)
    assert lab.world() == before


def test_migrate_chooses_where_to(lab: Commands) -> None:
    ((here, _state),) = lab.state("web9").items()
    (there,) = {*HOSTS} - {here}
    before = lab.world()
    output = lab.do("migrate", "--check", guest="web9")
    assert f"web9: to {there}, live, " in output and "vda: full, " in output and lab.world() == before
    with sudo_that_asks(lab) as password:
        output = lab.do("migrate", guest="web9", ansible_become_password=password)
    assert re.search(rf"{here}: web9 is on {there}, after [\d.]+ s; downtime \d+ ms, [\d.]+ MiB sent", output)
    assert [*lab.state("web9")] == [there]
    lab.same("migrate", guest="web9", to=there)


@contextlib.contextmanager
def sudo_that_asks(lab: Commands) -> Iterator[str]:
    """On the host that is not used as root; the password."""
    rule, password = "/etc/sudoers.d/ops", "one of ours"
    lab.on("hyper2", f"echo 'ops:{password}' | chpasswd; sed -i 's/NOPASSWD: //' {rule}")
    try:
        lab.on("hyper2", "runuser -u ops -- sudo -n true", ok=False)
        yield password
    finally:
        lab.on("hyper2", f"sed -i 's/(ALL:ALL) /&NOPASSWD: /' {rule}")


def test_reports_and_maintenance(lab: Commands) -> None:
    """What programs read stands alone in a pipe.

    What people read has figures of the hosts and of the guests that run.
    """
    assert "web9" in lab.do("list") and "libvirt:" in lab.do("host_info", format="seed")
    query = shlex.join(["ansible-playbook", *lab.ask_nobody, "corral.virt.query", "-e", "format=json"])
    measured = (
        "select(.cpu_percent > 0 and .memory_used_mib >= 64) | {(.name): [.guests[] | select(.cpu_percent != "
        "null) | .name]}"
    )
    names = f"[.hosts[] | {measured}] | add"
    alone = {**lab.environment, "ANSIBLE_STDOUT_CALLBACK": "corral.virt.report"}
    piped = subprocess.run(
        f"{query} | jq -e '{names}'", shell=True, env=alone, cwd=ROOT, capture_output=True, text=True, check=True
    )
    ((here, _state),) = lab.state("web9").items()
    assert piped.stderr == "" and "web9" in json.loads(piped.stdout)[here]
    assert re.search(
        rf"{here} CPU \[[#.]{{20}}\] \d+ % of \d+ CPUs memory \[[#.]{{20}}\] [\d.]+ MiB of [\d.]+ GiB",
        lab.do("query", format="table"),
    )
    lab.do("rebalance", "--check", stay="a,b,web9")
    lab.do("undrain", host="hyper1")
    assert "drain requires this argument" in lab.do("drain", ok=False)
    assert "it belongs to drain" in lab.do("rebalance", running_only=True, ok=False)


def test_a_disk_an_interface_and_an_iso_need_no_json(lab: Commands) -> None:
    """Each of them in check mode, done, and done again; of a guest that runs and of one that is off."""
    iso, disks = f"{IMAGES}/tools.iso", [{"name": "system", "size": "64MiB"}]
    lab.on("hyper1", f"truncate -s 1M {iso}; virsh -q pool-refresh default")
    lab.do("create", guest="ev1", host="hyper1", vcpus=1, memory="64MiB", interfaces=[], disks=disks)

    def has(what: str, flags: str = "") -> str:
        return lab.on("hyper1", f"virsh {what} ev1 {flags}")

    lab.cycle("add_disk", guest="ev1", disk="data", size="32MiB")
    assert re.search(rf"vdb +{IMAGES}/ev1-data.qcow2", has("domblklist"))
    lab.cycle("add_disk", guest="ev1", disk="data", size="64MiB")
    assert re.search(rf"Capacity: +{64 * 1024**2}\n", has("domblkinfo", "vdb")), "it grows while the guest runs"
    lab.cycle("add_nic", guest="ev1", nic="eth1", bridge="br0")
    assert re.search(r"bridge +br0 +virtio", has("domiflist"))
    assert "waits for the next start of ev1" in lab.do("insert_iso", guest="ev1", iso=iso), "a new drive"
    lab.do("force_off", guest="ev1")
    assert re.search(rf"sda +{iso}", has("domblklist")) and "device='cdrom'" in has("dumpxml")
    lab.cycle("eject", guest="ev1")
    lab.do("start", guest="ev1")
    lab.cycle("insert_iso", guest="ev1", iso="tools.iso")
    assert re.search(r"sda +tools.iso", has("domblklist")), "as the guest runs, and of a pool"
    lab.cycle("eject", guest="ev1")
    assert re.search(r"sda +-", has("domblklist")) and re.search(r"sda +-", has("domblklist", "--inactive"))
    assert "it has no drive of that name; to see its drives: " in lab.do("eject", ok=False, guest="ev1", drive="dvd")

    lab.do("force_off", guest="ev1")
    lab.cycle("remove_nic", guest="ev1", nic="eth1")
    lab.cycle("remove_disk", guest="ev1", disk="data")
    assert "br0" not in has("domiflist") and "ev1-data" not in has("domblklist")
    lab.on("hyper1", f"test -s {IMAGES}/ev1-data.qcow2 && rm {IMAGES}/ev1-data.qcow2 {iso}")
    lab.do("purge", guest="ev1")
    assert "to see all: ansible-playbook corral.virt.list" in lab.do("purge", ok=False, guest="ev1")
    for flags in (["--check"], []):
        told = lab.do("purge", *flags, guest="ev1", missing_ok=True)
        assert "ev1 is not there" in told and not re.search(r"changed=[1-9]", told)


def test_purge_takes_what_is_the_guests_and_nothing_else(lab: Commands) -> None:
    before, (host, *_none) = lab.world(), [*lab.state("web9")]
    output = lab.do("purge", tag="front", ok=False)
    assert f"purge would affect 1 guest ({host}: web9); to confirm: -e confirm=1" in output and lab.world() == before
    lab.do("purge", "--check", guest="web9")
    assert lab.world() == before
    lab.do("purge", guest="web9", wait_timeout=5)
    assert lab.state("web9") == {} and "web9" not in lab.known.read_text()
    assert "web1" not in lab.on(host, f"ls -a {IMAGES}")
    lab.do("purge", guest="a")
    assert lab.state("a") == {} and lab.on("hyper1", "ls /srv/a.raw") == "/srv/a.raw", (
        "a disk that nobody made for it stays"
    )
    assert "cannot find web9" in lab.do("purge", guest="web9", ok=False)
