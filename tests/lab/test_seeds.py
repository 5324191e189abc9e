"""Seeds, judged from inside real guests by ssh, and on the host by virsh, journalctl and grep; never by our own
modules.

The tests build on each other, in the order in which they stand.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.bench import peers
from ansible_collections.corral.virt.tests.bench.place import CACHE
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import Patience
from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES, ROOT, Hypervisors, guide, hypervisors

pytestmark = pytest.mark.lab

LAB = Hypervisors("seeds")
on = functools.partial(LAB.on, "hyper1")
BOOT_S = 400
MARK = "Xq7Zw4Kd9s"  # long enough to be in no certificate by chance
SECRET = f"{MARK}-secret's\nsecond-line-of-{MARK}"
KEYS = "{{ [virt_lab_ssh_public_key] }}"


def guest(name: str, *, check: bool = False, **output: t.Any) -> dict[str, t.Any]:
    """The module's answer for one guest; its secret is nowhere in what was printed."""
    task = {"corral.virt.virt_domain": {"name": name, **output}, "register": "told", "ignore_errors": True}
    by_host, printed = LAB.tell_all(task, hosts="hyper1", flags=["-vvv", "--diff", *(["--check"] if check else [])])
    assert MARK not in printed
    result = t.cast("dict[str, t.Any]", by_host["hyper1"])
    if result.get("ssh_host_key"):
        (LAB.folder / f"{name}.known").write_text(f"{name} {result['ssh_host_key']}\n")
    return result


def network(number: int) -> dict[str, t.Any]:
    nic = {
        "match": {"name": "e*"},
        "addresses": [f"{{{{ virt_lab_guest_prefix }}}}.{number}/24"],
        "routes": [{"to": "default", "via": "{{ virt_lab_gateway }}"}],
    }
    return {"version": 2, "ethernets": {"all": nic}}


def inside(name: str, user: str, number: int, command: str, *, until: str) -> str:
    """Run a shell command in the guest, with its host key verified, until it prints what is waited for."""
    prefix = LAB.variable("virt_lab_guest_prefix")
    options = (
        f"UserKnownHostsFile={LAB.folder}/{name}.known",
        f"HostKeyAlias={name}",
        "StrictHostKeyChecking=yes",
        "ConnectTimeout=5",
    )
    ssh = ["ssh", "-n", "-i", str(LAB.folder / "id_ed25519"), *(word for option in options for word in ("-o", option))]
    patience, seen = Patience(BOOT_S), ""
    while not patience.is_over:
        words = [*ssh, "--", f"{user}@{prefix}.{number}", command]
        done = subprocess.run(words, capture_output=True, text=True, timeout=BOOT_S, check=False)
        seen = done.stdout + done.stderr
        assert "verification failed" not in seen.lower(), seen
        if until in done.stdout:
            return done.stdout
        time.sleep(4)
    raise AssertionError(f"{name} has not said {until!r} within {BOOT_S} s, but: {seen}")


@pytest.fixture(scope="module", autouse=True)
def hypervisor() -> Iterator[None]:
    """One host, set up by the collection's own roles, with an image."""
    image = {"name": "debian-12.qcow2", "url": "{{ virt_lab_image_url }}", "checksum": "{{ virt_lab_image_sums_url }}"}
    with hypervisors("seeds", image=True):
        LAB.play({"corral.virt.virt_image": image})
        yield


FIRST: dict[str, t.Any] = {
    "vendor_data": "#!/bin/sh\necho vendor >/root/vendor\n",
    "user_data": {
        "users": [{"name": "ops", "sudo": "ALL=(ALL) NOPASSWD:ALL", "shell": "/bin/bash", "ssh_authorized_keys": KEYS}],
        "write_files": [{"path": "/root/secret", "content": SECRET, "permissions": "0600"}],
        "fs_setup": [{"device": "/dev/vdb", "filesystem": "ext4", "label": "data"}],
        "mounts": [["LABEL=data", "/srv"]],
    },
    "meta_data": "local-hostname: first",
    "network_config": network(111),
}
SEEDED: dict[str, t.Any] = {
    "state": "running",
    "vcpus": 1,
    "memory": "512MiB",
    "cpu": {"mode": "custom", "model": "Nehalem"},  # emulated, a newer one boots a third slower
    "disks": [{"name": "system", "image": "debian-12.qcow2"}, {"name": "data", "size": "1GiB"}],
}
SECOND: dict[str, t.Any] = {
    **FIRST,
    "user_data": {**FIRST["user_data"], "runcmd": ["echo again >/root/again"]},
    "meta_data": {"local-hostname": "second"},
}


def test_a_guest_is_made_with_its_seed() -> None:
    made = guest("s1", **SEEDED, cloud_init=FIRST)
    assert not made.get("failed"), made["msg"]
    assert f"{IMAGES}/s1-seed.iso" in on("virsh domblklist s1")


@pytest.mark.deep  # the story logs in to a seeded guest, too
def test_a_seeded_guest_is_as_it_was_told() -> None:
    look = (
        "cloud-init status --wait >/dev/null; hostname; id -un; findmnt -no FSTYPE /srv; sudo cat /root/vendor "
        "/root/secret"
    )
    seen = inside("s1", "ops", 111, look, until="second-line")
    assert seen.split("\n", 4)[:4] == ["first", "ops", "ext4", "vendor"]
    assert seen.split("\n", 4)[4] == SECRET


def test_the_secret_is_only_in_the_seed() -> None:
    """Not in the host's log, its files, the definition; and the seed is for its owner."""
    assert "Invoked for 's1'" in on("journalctl --no-pager | grep corral.virt.virt_domain")
    places = "/var/log /tmp /var/tmp /etc /run /root"
    leaks = on(
        f"journalctl --no-pager | grep -c {MARK}; grep -rls {MARK} {places}; virsh dumpxml s1 | grep {MARK}; true"
    )
    assert leaks.split() == ["0"]
    assert on(f"stat -c %a {IMAGES}/s1-seed.iso") == "600"


def test_a_changed_seed_is_ignored_or_refused() -> None:
    before = on(f"virsh dumpxml s1; md5sum {IMAGES}/s1-seed.iso")
    ignored = guest("s1", cloud_init={**SECOND, "on_change": "ignore"})
    assert not ignored["changed"] and "differs from the seed" in ignored["notes"][0]
    refused = guest("s1", cloud_init={**SECOND, "on_change": "refuse"})
    assert refused["failed"] and "set cloud_init.on_change to next_boot or ignore" in refused["msg"]
    checked = guest("s1", cloud_init={**SECOND, "on_change": "next_boot"}, check=True)
    assert checked["changed"] and checked["steps"][1].startswith("write cloud-init seed")
    assert on(f"virsh dumpxml s1; md5sum {IMAGES}/s1-seed.iso") == before


def test_a_changed_seed_is_written_once_and_waits_for_the_next_boot() -> None:
    output = {**SECOND, "on_change": "next_boot"}
    seed = f"{IMAGES}/s1-seed.iso"
    assert not int(on(f"grep -c /root/again {seed}; true"))
    done = guest("s1", cloud_init=output)
    assert done["changed"] and done["pending"] == ["cloud_init: the new seed is read at the next boot"]
    assert int(on(f"grep -c /root/again {seed}; true")) and seed in on(
        "virsh domblklist s1; virsh domblklist s1 --inactive"
    )
    assert not guest("s1", cloud_init=output)["changed"]


@pytest.mark.deep
def test_a_changed_seed_acts_at_the_next_boot() -> None:
    """A reboot of the guest is enough, and its host key is the same."""
    known = (LAB.folder / "s1.known").read_text()
    assert not guest("s1", state="rebooted").get("failed")
    assert inside("s1", "ops", 111, "hostname; sudo cat /root/again", until="again").split() == ["second", "again"]
    assert (LAB.folder / "s1.known").read_text() == known


@pytest.mark.deep
@pytest.mark.parametrize("connection", ["jump", "agent"])
def test_ansible_reaches_it_without_a_route(connection: str, tmp_path: Path) -> None:
    """Through its hypervisor, whose address is the one that the guest sees; or by its agent, as root."""
    source, static, config, known = (
        tmp_path / name for name in ("virt.yml", "guests.json", "ssh_config", "known_hosts")
    )
    source.write_text(json.dumps({"plugin": "corral.virt.virt", "connection": connection}))
    key = {"ansible_user": "ops", "ansible_ssh_private_key_file": str(LAB.folder / "id_ed25519")}
    static.write_text(json.dumps({"guests": {"vars": key}}))
    address = json.loads(LAB.run("ansible-inventory", *LAB.ask_nobody, "--host", "hyper1"))["ansible_host"]
    config.write_text(f"Host {address}\n  HostKeyAlias hyper1\nInclude {LAB.folder}/ssh_config\n")
    known.write_text((LAB.folder / "s1.known").read_text())
    peers.collection("community.libvirt")
    collections = f"{ROOT}/.cache:{CACHE}/collections"
    settings = (
        f"ANSIBLE_SSH_ARGS=-F {config}",
        f"CORRAL_VIRT_KNOWN_HOSTS={known}",
        f"ANSIBLE_COLLECTIONS_PATH={collections}",
    )
    inventory = (*LAB.ask_nobody, "-i", str(source), "-i", str(static))
    call = ("ansible", "s1", *inventory, "-m", "ansible.builtin.shell")
    told = LAB.run("env", *settings, *call, "-a", "id -un; echo from ${SSH_CONNECTION:-nobody}")
    assert re.findall(r"^(\w+)\nfrom (\S+)", told, re.MULTILINE) == [
        ("ops", address) if connection == "jump" else ("root", "nobody")
    ]


@pytest.mark.deep
def test_guest_agent_gives_the_address_and_does_what_acpi_cannot() -> None:
    """It stands still and answers again; then the guest ignores its power button."""
    (address,) = re.findall(r"(10\.86\.\d+\.\d+)/", on("virsh domifaddr s1 --source agent"))
    assert guest("s1", state="running", wait_for_ip="agent", wait_timeout=60)["addresses"] == [address]
    inside("s1", "ops", 111, "sudo pkill -STOP qemu-ga; echo stopped", until="stopped")
    began = time.monotonic()
    silent = guest("s1", state="running", wait_for_ip="agent", wait_timeout=3)
    assert silent["failed"] and "guest agent: connected" in silent["msg"]
    assert time.monotonic() - began < 30, "a silent agent holds nobody up"
    deaf = (
        "pkill -CONT qemu-ga; echo HandlePowerKey=ignore >>/etc/systemd/logind.conf; systemctl restart systemd-logind"
    )
    inside("s1", "ops", 111, f"sudo sh -c '{deaf}'; echo deaf", until="deaf")
    assert not guest("s1", state="shutdown", wait_timeout=120).get("failed")
    assert on("virsh domstate --reason s1") == "shut off (shutdown)"


@pytest.mark.deep
def test_a_copy_of_a_guest_is_a_machine_of_its_own() -> None:
    """It lets the same people in, and neither the host's key, the machine ID nor the addresses are those of its
    original.
    """
    before = on(f"virsh dumpxml s1; md5sum {IMAGES}/s1-*")
    output: dict[str, t.Any] = {"clone_of": "s1", "state": "running", "cloud_init": {"network_config": network(113)}}
    made = guest("s2", **output)
    assert not made.get("failed"), made["msg"]
    assert made["ssh_host_key"] not in (LAB.folder / "s1.known").read_text()
    look = (
        "cloud-init status --wait >/dev/null; hostname; cat /etc/machine-id; sudo cat /root/secret; echo; hostname -I"
    )
    hostname, machine, *rest = inside("s2", "ops", 113, look, until=".113").split()
    assert hostname == "s2" and rest[:2] == SECRET.split() and not any(address.endswith(".111") for address in rest[2:])
    assert not guest("s2", **output)["changed"]
    assert on(f"virsh dumpxml s1; md5sum {IMAGES}/s1-*") == before, "its original is as it was"
    on("virsh destroy s2")
    guest("s1", state="running", wait_for_ip="any")
    assert machine not in inside("s1", "ops", 111, "cat /etc/machine-id; echo read", until="read")
    for gone in ("s2", "s1"):
        on(f"virsh destroy {gone} || true")
    assert not guest("s2", state="absent", remove_storage=True).get("failed")


@pytest.mark.deep
@pytest.mark.parametrize("seen", ["seed.iso", "system.qcow2"])
def test_a_run_killed_half_way_is_finished_by_the_next(seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed as soon as a file appears: the guest is off, and what it was to be is made by the next run."""
    least = {"state": "running", "vcpus": 1, "memory": "64MiB", "disks": [{"name": "system"}, {"name": "more"}]}
    output: dict[str, t.Any] = {**least, "cloud_init": FIRST}
    monkeypatch.setenv("ANSIBLE_PIPELINING", "0")  # its process has a name then
    find = "until at=$(pgrep -f '^[^ ]*python[^ ]* .*[A]nsiballZ_virt_domain'); do :; done"
    # It is known before the file is there: a busy machine must not give it time to go on.
    kill = f"{find}; until [ -e {IMAGES}/k1-{seen} ]; do :; done; kill -9 $at && echo killed"
    with LAB.start("ssh", "-F", LAB.folder / "ssh_config", "--", "hyper1", kill) as killer:
        time.sleep(1)
        LAB.play({"corral.virt.virt_domain": {"name": "k1", **output}}, ok=False)
        assert killer.communicate(timeout=60)[0].strip() == "killed"
    assert on("virsh domstate k1") == "shut off"
    assert "making>" in on("virsh dumpxml k1")
    if seen == "seed.iso":
        assert "Cannot access storage file" in on("virsh start k1 2>&1", ok=False)
    assert "set its cloud_init again" in guest("k1", **dict[str, t.Any](least))["msg"]
    assert not guest("k1", **output).get("failed")
    assert on("virsh domstate k1") == "running"
    assert "making>" not in on("virsh dumpxml k1")
    assert not guest("k1", **output)["changed"]
    assert not guest("k1", state="absent", remove_storage=True, force=True, wait_timeout=1).get("failed")
    assert "k1" not in on(f"ls {IMAGES}")


@pytest.mark.deep
def test_an_image_without_cloud_init_is_seeded_by_virt_customize() -> None:
    """It is in the image of this lab, and stays off; the seed's options act all the same."""
    packages = "libguestfs-tools linux-image-cloud-amd64"  # its appliance is made from the host's kernel
    install = "DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends"
    if "there" not in on(f"{install} {packages} >/dev/null 2>&1 && echo there; true"):
        pytest.skip(f"the lab's hosts cannot install libguestfs ({packages}): virt_customize was not tried")
    if "works" not in on(
        "LIBGUESTFS_BACKEND=direct timeout 200 libguestfs-test-tool >/tmp/test-tool 2>&1 && echo works; true"
    ):
        pytest.skip(
            f"libguestfs is there but does not run, so virt_customize was not tried: {on('tail -3 /tmp/test-tool')}"
        )
    user_data = {key: FIRST["user_data"][key] for key in ("users", "write_files")}
    seed = {
        "method": "virt_customize",
        "user_data": {**user_data, "runcmd": ["echo ran >/root/ran"]},
        "network_config": network(112),
    }
    wish: dict[str, t.Any] = {**SEEDED, "disks": SEEDED["disks"][:1]}
    refused = guest("c1", **wish, cloud_init={**seed, "user_data": {"swap": {}}})
    assert "these cannot be applied: swap" in refused["msg"] and "c1" not in on("virsh list --all --name")
    on("virsh destroy s1 || true")  # make room
    made = guest("c1", **wish, cloud_init=seed)
    assert not made.get("failed"), made["msg"]
    seen = inside("c1", "ops", 112, "hostname; sudo cat /root/ran /root/secret; ls /run/cloud-init", until="disabled")
    assert seen.split()[:2] == ["c1", "ran"] and SECRET in seen
    assert not guest("c1", **wish, cloud_init=seed)["changed"]
    assert on(f"journalctl --no-pager | grep -c {MARK}; grep -rls {MARK} /var/log /tmp /var/tmp; true").split() == ["0"]


@pytest.mark.deep  # the tests above ask each of them by itself
def test_tasks_of_the_guide_work() -> None:
    """As they stand there, in their order; and nothing is left of what they made."""
    tasks = guide("seeding")
    assert len(tasks) >= 3
    before = on(f"virsh list --all --name | sort; ls {IMAGES}")
    LAB.play(*tasks)
    assert on(f"virsh list --all --name | sort; ls {IMAGES}") == before
