"""SSH keys that only read: what they can and what they cannot, judged by virsh and ssh, never by our modules.

The controller here is as the guide says, in a home of its own. Its `ssh` knows the lab's hosts; the key of root is not
offered.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import subprocess
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import (
    ROOT,
    Hypervisors,
    guide,
    hypervisors,
)

pytestmark = pytest.mark.lab

LAB = Hypervisors("readers")
on = functools.partial(LAB.on, "hyper1")
USER, HOME = "corral-reader", "/var/lib/corral-reader"
PASSWORD = "rootonly"
MACS = {"web1": "52:54:00:00:00:01", "web2": "52:54:00:00:00:02"}
ADDRESS = "192.168.122.77"
STATUS = "/var/lib/libvirt/dnsmasq/virbr0.status"
GUEST = """<domain type='qemu'><name>{}</name><memory unit='MiB'>32</memory><os><type arch='x86_64' machine='q35'>hvm</type></os>
<devices><serial type='pty'/><interface type='network'><mac address='{}'/><source network='default'/><link state='down'/></interface>
<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
<graphics type='vnc' port='-1' passwd='{}'/></devices></domain>"""
REFUSED = (
    "define {xml}",
    "create {xml}",
    "start web2",
    "destroy web1",
    "undefine web2",
    "setmem web1 16M",
    "screenshot web1 {here}/screen",
    "save web1 /tmp/web1",
    "dump web1 /tmp/web1",
    "dumpxml --security-info web1",
    "dumpxml --migratable web1",
    "domifaddr --source agent web1",
    "qemu-agent-command web1 {{}}",
    "qemu-monitor-command web1 --hmp info",
    "migrate --p2p web1 qemu+tls://hyper9/system",
    "pool-create-as new dir --target /tmp",
    "pool-destroy default",
    "pool-delete default",
    "pool-refresh default",
    "vol-create-as default new 1M",
    "vol-download web1 {here}/web1 --pool default",
    "net-destroy default",
    "domcapabilities --emulatorbin /bin/sh",
)
TEXT = (ROOT / "docs/docsite/rst/guide_inventory.rst").read_text()
COMMANDS = re.findall(r"^    \$ (.*)", TEXT, re.MULTILINE)
(VARIABLES,) = (block for block in guide("inventory") if "hypervisor_readers" in block)
(PROGRAM,) = re.findall(r"    (#!/bin/sh\n)    (exec ssh .*\n)", TEXT)
SOURCES = [block for block in guide("inventory") if USER in block.get("uri", "")]


@functools.cache
def address() -> str:
    """The host's."""
    return LAB.variable("ansible_host")


def run(*command: str, given: str = "", timeout_s: int = 60) -> subprocess.CompletedProcess[str]:
    """Exit code 124 where it does not end."""
    limited = ["timeout", f"{timeout_s}s", *command]
    return subprocess.run(limited, check=False, capture_output=True, text=True, input=given)


def uri(key: Path) -> str:
    return f"qemu+ssh://{USER}@{address()}/system?keyfile={key}&no_tty=1"


def read(key: Path, *command: str, ok: bool = True) -> str:
    """What virsh prints to the holder of a key; both of its outputs."""
    done = run("virsh", "-c", uri(key), *command)
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done.stdout + done.stderr


def options(key: Path) -> list[str]:
    """For ssh, scp and sftp."""
    given = (
        "IdentitiesOnly=yes",
        "BatchMode=yes",
        "ExitOnForwardFailure=yes",
        f"UserKnownHostsFile={LAB.folder}/known_hosts",
    )
    return ["-F", "none", "-i", str(key), *(f"-o{option}" for option in given)]


def role(*readers: Path, ok: bool = True, flags: t.Sequence[str] = (), **variables: t.Any) -> str:
    """The part of the role that lets keys read."""
    include = {"name": "corral.virt.hypervisor", "tasks_from": "readers.yml"}
    listed = {"hypervisor_readers": [reader.with_suffix(".pub").read_text() for reader in readers], **variables}
    return LAB.play({"ansible.builtin.include_role": include, "vars": listed}, flags=flags, ok=ok)


def changes(printed: str) -> int:
    return int(re.findall(r"changed=(\d+)", printed)[-1])


def accounts() -> str:
    """All that the role could leave."""
    return on("cat /etc/passwd /etc/shadow /etc/group /etc/gshadow; find /var/lib -path '*reader*' -ls; ls /home")


def shown(project: Path, key: Path, source: dict[str, t.Any], known_hosts: str | None = None) -> dict[str, t.Any]:
    """Variables of the hosts in the inventory of a project with that source."""
    folder = project / "inventory"
    folder.mkdir()
    (project / "known_hosts").write_text(
        (LAB.folder / "known_hosts").read_text() if known_hosts is None else known_hosts
    )
    (project / "reader-ssh").write_text("".join(PROGRAM))
    (project / "reader-ssh").chmod(0o755)
    (folder / "hosts.yml").write_text((LAB.folder / "inventory/hosts.yml").read_text())
    (folder / "virt.yml").write_text(yaml.safe_dump(source))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("READER_KEY", str(key))
        listed = json.loads(LAB.run("ansible-inventory", "-i", folder, "--list"))
    return t.cast("dict[str, t.Any]", listed["_meta"]["hostvars"])


@pytest.fixture(scope="module", autouse=True)
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Its home; one host, set up by the collection's own role, with a guest that runs and one that is off."""
    home = tmp_path_factory.mktemp("home")
    ssh = home / "bin/ssh"
    for folder in (ssh.parent, home / ".ssh"):
        folder.mkdir()
    (home / ".ssh/config").write_text(f"UserKnownHostsFile {LAB.folder}/known_hosts\n")
    ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {home}/.ssh/config "$@"\n')  # by itself it takes root's home
    ssh.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch, hypervisors("readers"):
        for name, mac in MACS.items():
            on(f"cat >/tmp/{name}.xml && virsh define /tmp/{name}.xml", given=GUEST.format(name, mac, PASSWORD))
        lease = {"ip-address": ADDRESS, "mac-address": MACS["web1"], "expiry-time": 4000000000}
        on(f"virsh net-start default; virsh start web1 && cat >{STATUS}", given=json.dumps([lease]))
        patch.setenv("HOME", str(home))
        yield home


@pytest.fixture(scope="module")
def key(controller: Path) -> Path:
    """Made and let in as the guide says."""
    (command,) = (command for command in COMMANDS if command.startswith("ssh-keygen"))
    subprocess.run(command, shell=True, check=True, capture_output=True)
    LAB.play({"ansible.builtin.include_role": {"name": "corral.virt.hypervisor"}}, vars=VARIABLES)
    return controller / ".ssh/corral-reader"


@pytest.fixture(autouse=True)
def ssh_of_the_controller(controller: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{controller}/bin", prepend=os.pathsep)


def test_it_reads(key: Path) -> None:
    listed = read(key, "list", "--all")
    assert re.search(r"web1 +running", listed) and re.search(r"web2 +shut off", listed)
    for word in (MACS["web1"], "<domain type='qemu' id="):
        assert word in read(key, "dumpxml", "web1")
    assert PASSWORD not in read(key, "dumpxml", "web1") + read(key, "dumpxml", "--inactive", "web1")
    assert PASSWORD in on("virsh dumpxml --security-info web1")
    assert ADDRESS in read(key, "domifaddr", "web1")


def test_commands_of_the_guide_work(key: Path) -> None:
    commands = [command for command in COMMANDS if command.startswith("virsh")]
    assert commands
    for command in commands:
        assert "192.0.2.11" in command
        done = subprocess.run(
            command.replace("192.0.2.11", address()), shell=True, check=True, capture_output=True, text=True
        )
        assert re.search(r"web1 +running", done.stdout)


def test_it_changes_nothing_and_sees_no_secret(key: Path, tmp_path: Path) -> None:
    on("virsh pool-info default >/dev/null || virsh pool-create-as default dir --target /var/lib/libvirt/images")
    on("touch /var/lib/libvirt/images/web1; virsh pool-refresh default")
    world = (
        "virsh list --all; virsh pool-list --all; virsh net-list --all; virsh vol-list default; virsh dumpxml "
        "--security-info web1"
    )
    before = on(world)
    xml = tmp_path / "web3.xml"
    xml.write_text(GUEST.format("web3", "52:54:00:00:00:03", PASSWORD))
    for command in REFUSED:
        refusal = read(key, *command.format(xml=xml, here=tmp_path).split(), ok=False)
        assert re.search(r"read.only|forbidden|denied", refusal), refusal
        assert PASSWORD not in refusal
    assert on(world) == before


def test_it_opens_no_console(key: Path) -> None:
    """Which takes a terminal."""
    command = ["script", "-qec", f"virsh -c '{uri(key)}' console --force web1", "/dev/null"]
    done = run(*command)
    assert done.returncode and "read only access prevents virDomainOpenConsole" in done.stdout, done


@pytest.mark.parametrize(
    "command",
    [
        ["ssh", "{user}@{address}", "id"],
        ["ssh", "-tt", "{user}@{address}", "id"],
        ["ssh", "-T", "{user}@{address}"],
        ["ssh", "-W", "127.0.0.1:22", "{user}@{address}"],
        ["ssh", "-N", "-R", "0:127.0.0.1:22", "{user}@{address}"],
        ["ssh", "-s", "{user}@{address}", "sftp"],
        ["sftp", "-b", "/dev/stdin", "{user}@{address}"],
        ["scp", "{user}@{address}:/etc/passwd", "{here}"],
        ["scp", "-O", "{user}@{address}:/etc/passwd", "{here}"],
        ["scp", "-O", "/etc/hostname", "{user}@{address}:/tmp/brought"],
    ],
    ids=" ".join,
)
def test_ssh_gives_nothing_else(key: Path, tmp_path: Path, command: list[str]) -> None:
    program, *words = (word.format(user=USER, address=address(), here=tmp_path) for word in command)
    given = "get /etc/passwd\n" if program == "sftp" else "id\n"
    done = run(program, *options(key), *words, given=given, timeout_s=4)  # scp waits for libvirt to speak its protocol
    assert not re.search(r"uid=|SSH-2|root:", done.stdout), done
    assert not list(tmp_path.iterdir()) and on("ls /tmp/brought 2>&1", ok=False)
    if program != "ssh" or "-W" in command or "-R" in command:
        assert done.returncode, done


@pytest.mark.parametrize("far", ["127.0.0.1:22", "/run/libvirt/libvirt-sock"])
def test_no_port_and_no_socket_is_forwarded(key: Path, tmp_path: Path, far: str) -> None:
    """To libvirt's other socket, say."""
    near = tmp_path / "near"
    session = subprocess.Popen(
        ["ssh", *options(key), "-N", "-L", f"{near}:{far}", f"{USER}@{address()}"], stderr=subprocess.PIPE, text=True
    )
    try:
        until(near.exists)
        other = f"qemu+unix:///system?socket={near}&mode=legacy"
        assert run("virsh", "-c", other, "list").returncode
    finally:
        session.terminate()
    assert "open failed" in session.communicate()[1]


def test_nobody_gets_in_otherwise(key: Path, tmp_path: Path) -> None:
    """By a key that is not listed, by a password, or by files in the user's home."""
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    read(other, "list", ok=False)
    assert on(f"getent shadow {USER} | cut -d: -f2") == "*"
    assert on(f"find {HOME} ! -user root -o ! -group root -o -perm /022") == ""
    writing = (
        f"for each in {HOME} {HOME}/.ssh; do touch $each/new; echo >>$each/authorized_keys; mv $each $each.old; done"
    )
    on(f"runuser -u {USER} -- sh -c '{writing}' 2>/dev/null; test $(find {HOME} | wc -l) = 3")
    assert on(f"id -Gn {USER}") == USER


@pytest.mark.parametrize("source", SOURCES, ids=["home", "project"])
def test_the_inventory_of_the_guide_shows_the_guests(key: Path, tmp_path: Path, source: dict[str, t.Any]) -> None:
    known = shown(tmp_path, key, source)
    assert known["hyper1"]["virt_reachable"] is True
    assert [known[name]["virt_state"] for name in MACS] == ["running", "shutdown"]
    assert [known[name]["virt_macs"] for name in MACS] == [[mac] for mac in MACS.values()]
    assert known["web1"]["ansible_host"] == ADDRESS


def test_the_agent_is_passed_over(key: Path, tmp_path: Path) -> None:
    known = shown(tmp_path, key, {**SOURCES[0], "addresses": ["agent", "lease"]})
    assert known["web1"]["virt_addresses"] == [ADDRESS]


def test_an_unknown_host_is_not_trusted(key: Path, tmp_path: Path) -> None:
    known = shown(tmp_path, key, SOURCES[1], known_hosts="")
    assert known["hyper1"]["virt_reachable"] is False and "web1" not in known
    assert (tmp_path / "known_hosts").read_text() == ""


def test_what_is_there_is_left_and_check_mode_writes_nothing(key: Path) -> None:
    before = accounts()
    assert changes(role(key)) == 0
    for readers in ([], [key, key.with_name("other")]):
        with contextlib.suppress(FileExistsError):
            key.with_name("other.pub").symlink_to(LAB.folder / "id_ed25519.pub")
        assert changes(role(*readers, flags=["--check", "--diff"])) > 0
        assert accounts() == before
    assert "+restrict,command=" in role(key, key.with_name("other"), flags=["--check", "--diff"])


def test_a_key_that_is_removed_reads_no_more(key: Path) -> None:
    other = key.with_name("second")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    role(key, other)
    assert "web1" in read(key, "list") and "web1" in read(other, "list")
    session = subprocess.Popen(
        ["ssh", *options(other), f"{USER}@{address()}"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    until(lambda: on("pgrep -c virt-ssh-helper || true") == "1")
    role(key)
    assert session.wait(30), "its open connection ends too"
    read(other, "list", ok=False)
    assert "web1" in read(key, "list")


def test_a_foreign_user_is_not_taken_over(key: Path) -> None:
    on("useradd --create-home --password x monitor")
    before = accounts()
    assert "set hypervisor_reader_user to another name" in " ".join(
        role(key, ok=False, hypervisor_reader_user="monitor").split()
    )
    assert accounts() == before
    assert changes(role(hypervisor_reader_user="monitor", flags=["--check"])) > 0, "what we made is removed"
    on("userdel --remove monitor 2>&1")


def test_a_private_key_is_refused_and_not_shown(key: Path) -> None:
    secret = key.read_text()
    printed = LAB.play(
        {
            "ansible.builtin.include_role": {"name": "corral.virt.hypervisor", "tasks_from": "readers.yml"},
            "vars": {"hypervisor_readers": [secret]},
        },
        ok=False,
    )
    assert "not a public SSH key" in printed and secret.splitlines()[1][:20] not in printed


def test_a_daemon_that_lets_nobody_read_is_told(key: Path) -> None:
    on("sed -i '1i auth_unix_ro = \"sasl\"' /etc/libvirt/libvirtd.conf && systemctl restart libvirtd")
    try:
        assert "check unix_sock_ro_perms and auth_unix_ro" in " ".join(role(key, ok=False).split())
    finally:
        on("sed -i 1d /etc/libvirt/libvirtd.conf && systemctl restart libvirtd")


@pytest.mark.deep
def test_after_another_name_the_old_user_is_gone_and_an_empty_list_leaves_nothing(key: Path) -> None:
    role()
    bare = accounts()
    assert changes(role()) == 0
    role(key)
    role(key, hypervisor_reader_user="watcher")
    assert on(f"getent passwd {USER} watcher | cut -d: -f1") == "watcher"
    read(key, "list", ok=False)
    session = subprocess.Popen(
        ["ssh", *options(key), f"watcher@{address()}"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    until(lambda: on("pgrep -c virt-ssh-helper || true") == "1")
    role(hypervisor_reader_user="watcher")
    assert session.wait(30)
    assert accounts() == bare
