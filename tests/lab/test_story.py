"""The whole story on bare hosts, judged by virsh, openssl, ss, bridge, nft, qemu-img and a session in the guest; never
by our modules.

The tests build on each other, in the order in which they stand: bare hosts, the demo, converged hosts, then what must
be refused.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import Patience, until
from ansible_collections.corral.virt.tests.lab.hypervisors import (
    KEEP_CODE,
    KEPT_CODE,
)
from ansible_collections.corral.virt.tests.tools import preloaded

pytestmark = pytest.mark.lab

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NAME = "story"
FOLDER = ROOT / "build/lab" / NAME
HOSTS = ("hyper1", "hyper2")
IMAGES = "/var/lib/libvirt/images"
DEMO_S, PLAY_S, COMMAND_S = 3600, 1800, 600  # for what hangs
HUNG_S = 100  # of each processor; one that boots has sent packets after 20, on a very busy machine after 60
# Packages, and every file that a run could have written.
BARE = (
    "dpkg -l | md5sum; find /etc /var/lib -xdev -newer /etc/machine-id -type f | grep -v -e /var/lib/systemd -e "
    "/var/lib/apt | sort | xargs -r md5sum"
)


# What a guest that does not answer is doing, where its packets end, and whether the machine is busy.
EVIDENCE = (
    "uptime; bridge fdb show br br0; for guest in $(virsh list --name); do virsh domstate --reason $guest; virsh "
    "domstats --vcpu --interface $guest; virsh qemu-monitor-command $guest --hmp 'info registers -a' | grep -e CPU# -e RIP; done"
)


def run(*command: str | Path, timeout_s: int = PLAY_S, ok: bool = True) -> str:
    """Run a command as a user of the lab would; what it printed."""
    environment = {**os.environ, "ANSIBLE_CONFIG": str(FOLDER / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    try:
        done = preloaded.run(command, cwd=ROOT, env=environment, timeout_s=timeout_s, given=None)
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"{error}\n{evidence()}") from None
    output = done.stdout + done.stderr
    assert (done.returncode == 0) == ok, f"{command} ended with {done.returncode}:\n{output[-6000:]}\n{evidence()}"
    return output


def evidence() -> str:
    """What the hosts say of their guests."""
    ask = ("timeout", f"{COMMAND_S}s", "ssh", "-F", FOLDER / "ssh_config", "--")
    return "".join(
        f"{host}: {subprocess.run((*ask, host, EVIDENCE), check=False, capture_output=True, text=True).stdout}"
        for host in HOSTS
    )


def lab(*arguments: str) -> str:
    return run(sys.executable, HERE / "lab.py", *arguments, timeout_s=DEMO_S)


def on(host: str, command: str, *, ok: bool = True) -> str:
    """Run a shell command on a host of the lab."""
    return run("ssh", "-F", FOLDER / "ssh_config", "--", host, command, timeout_s=COMMAND_S, ok=ok)


def play(*arguments: str, ok: bool = True) -> str:
    return run("ansible-playbook", *arguments, ok=ok)


def changed(output: str) -> dict[str, int]:
    """`changed=` of every host in the recap."""
    return {host: int(count) for host, count in re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", output, re.MULTILINE)}


def world() -> dict[str, str]:
    """What the hosts hold, as their own tools say."""
    commands = (
        f"virsh list --all; virsh pool-list --all; find {IMAGES} ! -name '*-system.qcow2' -type f -printf '%p %s %t\\n"
        "'; for guest in $(virsh list --all --name); do virsh dumpxml $guest --inactive; done"
    )
    return {host: on(host, commands) for host in HOSTS}


def holders(guest: str = "web1") -> list[tuple[str, str]]:
    """Where a guest is, and its state there."""
    found = [(host, on(host, f"virsh domstate {guest} 2>/dev/null || true").strip()) for host in HOSTS]
    return [(host, state) for host, state in found if state]


@pytest.fixture(scope="module", autouse=True)
def story() -> Iterator[None]:
    """Two bare hosts for all the tests here."""
    lab("down", "--name", NAME)
    lab("up", "--name", NAME, "--hosts", "2")
    yield
    lab("down", "--name", NAME)


def test_check_mode_on_bare_hosts_predicts_and_writes_nothing() -> None:
    run(sys.executable, HERE / "demo.py", "config", "--name", NAME)
    before = {host: on(host, BARE) for host in HOSTS}
    output = play("site.yml", "--check", "--diff")
    assert changed(output)
    assert all(count > 0 for count in changed(output).values()), output
    after = {host: on(host, BARE) for host in HOSTS}
    assert after == before
    assert not (FOLDER / "ca").exists()


def test_demo_tells_the_whole_story() -> None:
    output = run(sys.executable, HERE / "demo.py", "up", "--name", NAME, timeout_s=DEMO_S)
    for seen in ("@on_hyper1:", "ping: pong", "longest gap", "Graphics: vnc - hyper", "Open: ssh -L ", "Together"):
        assert seen in output
    print(output[output.index("Stage ") :])
    for host in HOSTS:  # which are not bare any more
        on(host, f"{KEEP_CODE} <<'END'\n{KEPT_CODE.read_text()}\nEND")


def test_guest_is_in_one_place_with_its_disk() -> None:
    ((host, state),) = holders()
    assert (host, state) == ("hyper2", "running")  # placed on the first of two equals, then migrated
    info = json.loads(on("hyper2", f"qemu-img info -U --output=json {IMAGES}/web1-system.qcow2"))
    assert info["format"] == "qcow2"
    assert info["backing-filename-format"] == "qcow2"
    assert re.fullmatch(rf"{IMAGES}/debian-12\.[0-9a-f]{{12}}\.qcow2", info["full-backing-filename"])
    assert info["virtual-size"] == 8 * 1024**3
    assert "web1" not in on("hyper1", f"ls {IMAGES}"), "the source's disks went after the guest had arrived"
    sums = on("hyper2", f"sha256sum {IMAGES}/debian-12.*.qcow2")
    assert sums.split()[0][:12] == re.findall(r"debian-12\.([0-9a-f]{12})", sums)[0], (
        "the content's name is its checksum"
    )


def test_tls_listens_and_admits_only_libvirts_own_certificates() -> None:
    for here, there in (HOSTS, HOSTS[::-1]):
        assert "hyper" in on(here, f"virsh -c qemu+tls://{there}/system hostname")
        assert ":16514" in on(here, "ss -ltn")
        pki = "/etc/pki/libvirt"
        shown = on(
            here,
            f"openssl s_client -connect {there}:16514 -verify_return_error -verify_hostname {there} -CAfile "
            f"/etc/pki/CA/cacert.pem -cert {pki}/clientcert.pem -key {pki}/private/clientkey.pem </dev/null 2>&1 || "
            "true",
        )
        assert "Verify return code: 0 (ok)" in shown
        assert re.search(r"OU ?= ?libvirt", shown)
    # A QEMU process that breaks out holds QEMU's certificate: it opens no hypervisor.
    copies = {"CA/cacert": "cacert", "qemu/client-cert": "clientcert", "qemu/client-key": "clientkey"}
    on("hyper1", "mkdir -p /tmp/pki; " + "; ".join(f"cp /etc/pki/{a}.pem /tmp/pki/{b}.pem" for a, b in copies.items()))
    on(
        "hyper1",
        "virsh -c 'qemu+tls://hyper2/system?pkipath=/tmp/pki' list; rc=$?; rm -rf /tmp/pki; exit $rc",
        ok=False,
    )
    keys = on("hyper1", "stat -L -c '%a %U:%G %n' /etc/pki/libvirt/private/*.pem /etc/pki/qemu/*key.pem")
    assert len(keys.splitlines()) >= 4, keys
    assert all(line.startswith(("600 root:root", "640 root:")) for line in keys.splitlines()), keys


def test_bridge_holds_the_hosts_address_and_link() -> None:
    for host, address in zip(HOSTS, ("11", "12"), strict=True):
        assert re.search(r"host0.*master br0", on(host, "bridge link"))
        assert re.search(rf"inet 10\.86\.\d+\.{address}/24", on(host, "ip -4 addr show br0"))
        assert "inet " not in on(host, "ip -4 addr show host0")
        assert "dev br0" in on(host, "ip route show default")


def test_firewall_opens_its_ports_and_leaves_the_policy() -> None:
    for host in HOSTS:
        rules = on(host, "nft list ruleset")
        assert "policy drop" in rules
        assert "tcp dport 22 accept" in rules
        assert "16514" in rules
        assert "49152-49215" in rules


def test_second_run_changes_nothing_and_check_predicts_nothing() -> None:
    """And little is printed: at most five lines for each role and host."""
    for flags in (["-e", "ansible_become=true"], ["--check", "--diff"]):
        output = play("site.yml", *flags)
        assert set(changed(output).values()) == {0}
        tasks = re.split(r"^(?=TASK \[)", output.partition("PLAY RECAP")[0], flags=re.MULTILINE)[1:]
        lines = Counter(
            role.group(1)
            for task in tasks
            if (role := re.match(r"TASK \[([\w.]+) : ", task))
            for _line in task.splitlines()
        )
        assert all(count <= 5 * len(HOSTS) for count in lines.values()), output


def test_one_manual_change_is_predicted_and_mended_alone() -> None:
    on("hyper2", "virsh desc web1 --title --config 'changed by hand'; virsh desc web1 --title --live 'changed by hand'")
    before = world()
    output = play("site.yml", "--check", "--diff")
    assert changed(output) == {"hyper1": 0, "hyper2": 1, "web1": 0}
    assert re.search(r"^- *\W?title\W+changed by hand", output, re.MULTILINE)
    assert re.search(r"^\+ *\W?title\W+The demo\W+s guest", output, re.MULTILINE)
    assert world() == before
    assert changed(play("site.yml")) == {"hyper1": 0, "hyper2": 1, "web1": 0}
    assert on("hyper2", "virsh desc web1 --title --config").strip() == "The demo's guest"
    assert on("hyper2", "virsh desc web1 --title --live").strip() == "The demo's guest"
    assert set(changed(play("site.yml", "--check")).values()) == {0}


def test_live_changes_reach_the_running_guest() -> None:
    ((host, _state),) = holders()
    inside = ("ansible", "web1", "-m", "command", "-a")
    more = (
        '{"name": "web1", "disks": [{"name": "data", "size": "1GiB"}], "interfaces": [{"name": "eth1", "bridge": '
        '"br0"}]}'
    )
    less = more.replace('"size": "1GiB"', '"state": "absent"').replace('"bridge": "br0"', '"state": "absent"')
    for wanted, disks, nics in ((more, 3, 2), (less, 2, 1)):
        predicted = run("ansible", host, "-m", "virt_domain", "-a", wanted, "--check", "--diff")
        assert "CHANGED" in predicted
        done = run("ansible", host, "-m", "virt_domain", "-a", wanted)
        assert "CHANGED" in done
        for flags in ("", "--inactive"):
            assert len(on(host, f"virsh -q domblklist web1 {flags}").strip().splitlines()) == disks
            assert len(on(host, f"virsh -q domiflist web1 {flags}").strip().splitlines()) == nics
        assert run(*inside, "lsblk -dno NAME").count("vd") == disks, "the guest sees it without a reboot"
        again = run("ansible", host, "-m", "virt_domain", "-a", wanted)
        assert "SUCCESS" in again
        assert "CHANGED" not in again
    assert "web1-data" in on(host, f"ls {IMAGES}"), "a disk that is taken away is not deleted"
    on(host, f"rm {IMAGES}/web1-data.qcow2; virsh -q pool-refresh default")


CREATE = (
    "corral.virt.create",
    "-e",
    "guest=big1",
    "-e",
    "vcpus=1",
    "-e",
    "memory=256MiB",
    "-e",
    "image=debian-12.qcow2",
)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        pytest.param(
            ("ansible-playbook", *CREATE, "-e", "host=hyper9"),
            ["hyper9 is not a host of the group hyper", "hyper1, hyper2"],
            id="unknown hypervisor",
        ),
        pytest.param(
            ("ansible-playbook", "corral.virt.migrate", "-e", "guest=web1", "-e", "to=hyper9"),
            ["to: hyper9", "hyper1, hyper2"],
            id="migrate to unknown",
        ),
        pytest.param(
            ("ansible-playbook", "corral.virt.migrate", "-e", "guest=nobody", "-e", "to=hyper1"),
            ["none of hyper1, hyper2 has it"],
            id="migrate nobody",
        ),
        pytest.param(
            (
                "ansible",
                "hyper",
                "-m",
                "virt_image",
                "-a",
                "name=bad.qcow2 url={{virt_lab_image_url}} checksum=sha256:" + "0" * 64,
            ),
            ["refusing image bad.qcow2", "checksum belongs to another version"],
            id="wrong checksum",
        ),
        pytest.param(
            ("ansible", "hyper", "-m", "virt_image", "-a", "name=bad.qcow2 url={{virt_lab_image_url}}"),
            ["nothing is downloaded unverified"],
            id="no checksum",
        ),
        pytest.param(
            ("ansible-playbook", *CREATE, "-e", "memory=9999GiB"),
            ["no hypervisor fits", "hyper1: ", "hyper2: "],
            id="too big",
        ),
        pytest.param(("ansible-playbook", *CREATE, "-e", "guest=../../etc/x"), ["not a valid name"], id="path as name"),
        pytest.param(
            ("ansible", "hyper", "-m", "virt_domain", "-a", "name=a/b vcpus=1 memory=256MiB"),
            ["'a/b' is not a valid name"],
            id="slash",
        ),
        pytest.param(
            ("ansible", "hyper", "-m", "virt_domain", "-a", "name='<x/>' vcpus=1 memory=256MiB"),
            ["is not a valid name"],
            id="XML in the name",
        ),
        pytest.param(
            ("ansible-playbook", *CREATE, "-e", '{"options": {"interfaces": [{"name": "eth0", "bridge": "br7"}]}}'),
            ["hyper1: has no bridge br7", "hyper2: has no bridge br7"],
            id="no such bridge",
        ),
        pytest.param(
            ("ansible", "hyper1", "-m", "virt_domain", "-a", "name=big1 vcpus=0 memory=lots uuid=x"),
            ["vcpus.current of big1", "memory.current of big1", "uuid of 'big1'"],
            id="all problems at once",
        ),
    ],
)
def test_wrong_input_is_refused_and_changes_nothing(command: tuple[str, ...], says: list[str]) -> None:
    before = world()
    output = re.sub(r"\s+", " ", run(*command, ok=False))
    for words in says:
        assert words in output, output[-3000:]
    assert world() == before


def test_dead_host_is_shown_and_the_rest_goes_on() -> None:
    inventory = FOLDER / "inventory/zz-dead.yml"
    inventory.write_text('hyper: {hosts: {hyper3: {ansible_host: "192.0.2.3", ansible_ssh_timeout: 3}}}\n')
    # 192.0.2.0/24 is nobody's (RFC 5737); a rule keeps even the attempt on this machine.
    running = holders()
    run("ip", "route", "add", "unreachable", "192.0.2.3/32", timeout_s=COMMAND_S)
    try:
        output = play("corral.virt.query", ok=False)
        assert "hyper3\n  (not reached: its guests are not shown)" in output
        assert "web1" in output
        before = world()
        output = play(*CREATE, ok=False)
        assert "hyper3 could not be reached and may have it" in re.sub(r"\s+", " ", output)
        assert world() == before, "a guest that the dead host may have is not made a second time"
        assert "confirm=hyper3" in play(*CREATE, "-e", "gone=hyper3", ok=False)
        output = play(*CREATE, "-e", "gone=hyper3", "-e", "confirm=hyper3", "--check")
        assert "big1 -> hyper" in output and "hyper3" not in changed(output)
        assert "web1" in run("ansible-inventory", "--graph")
        recap = play("site.yml", ok=False)
        assert re.search(r"hyper1 .*unreachable=0 +failed=0", recap)
        assert re.search(r"hyper2 .*unreachable=0 +failed=0", recap)
        assert re.search(r"hyper3 .*unreachable=1", recap)
        assert holders() == running
    finally:
        inventory.unlink()
        run("ip", "route", "del", "unreachable", "192.0.2.3/32", timeout_s=COMMAND_S)


def test_controller_dies_during_a_migration() -> None:
    ((source, _state),) = holders()
    dest = next(host for host in HOSTS if host != source)
    command = ["ansible-playbook", "corral.virt.migrate", "-e", "guest=web1", "-e", f"to={dest}"]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(FOLDER / "ansible.cfg")}
    dying = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until(lambda: "web1" in on(dest, f"ls {IMAGES}"), COMMAND_S)
    os.killpg(dying.pid, signal.SIGKILL)
    dying.wait()
    # What was under way on the hosts ends by itself, one way or the other.
    job = "virsh domjobinfo web1 2>/dev/null | grep -E 'Job type: +(Un)?bounded' || true"
    until(lambda: not on(source, job), COMMAND_S)
    time.sleep(3)
    running = [host for host, state in holders() if state == "running"]
    assert len(running) <= 1
    play(*command[1:])
    assert holders() == [(dest, "running")]
    assert "web1" not in on(source, f"ls {IMAGES}")
    assert "moving" not in on(dest, "virsh dumpxml web1")
    assert set(changed(play(*command[1:])).values()) == {0}, "it is there: nothing to do"


def test_two_controllers_move_the_same_guest() -> None:
    ((source, _state),) = holders()
    dest = next(host for host in HOSTS if host != source)
    command = ["ansible-playbook", "corral.virt.migrate", "-e", "guest=web1", "-e", f"to={dest}"]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(FOLDER / "ansible.cfg")}
    both = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _controller in range(2)
    ]
    output = [one.communicate(timeout=PLAY_S)[0] for one in both]
    assert any(one.returncode == 0 for one in both), output
    for one, text in zip(both, output, strict=True):
        assert one.returncode == 0 or "another run is migrating it" in re.sub(r"\s+", " ", text), text
    assert holders() == [(dest, "running")]
    assert "web1" not in on(source, f"ls {IMAGES}")
    on(dest, f"qemu-img check -U {IMAGES}/web1-system.qcow2")
    run("ansible", "web1", "-m", "command", "-a", "touch /var/tmp/writable")


def test_installed_tarball_serves_as_the_checkout_does(tmp_path: Path) -> None:
    run("ansible-galaxy", "collection", "build", "--output-path", tmp_path, ROOT)
    (tarball,) = tmp_path.glob("corral-virt-*.tar.gz")
    config = (FOLDER / "ansible.cfg").read_text()
    inventory = next(line for line in config.splitlines() if line.startswith("inventory ="))
    (tmp_path / "ansible.cfg").write_text(
        f"[defaults]\n{inventory}\ncollections_path = {tmp_path}/installed\n[ssh_connection]\npipelining = true\n"
    )
    environment = {**os.environ, "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg")}
    for command in (
        ["ansible-galaxy", "collection", "install", "--offline", str(tarball), "-p", "installed"],
        ["ansible-playbook", "corral.virt.query", "-e", "guest=web1"],
        ["ansible", "hyper", "-m", "corral.virt.virt_host_info"],
    ):
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True, timeout=PLAY_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Failed to parse" not in done.stderr


def commands(document: str) -> list[str]:
    """The shell commands that a document shows, in order."""
    text = (ROOT / document).read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL) + re.findall(
        r"\.\. code-block:: shell\n\n((?:    .*\n|\n)+)", text
    )
    return [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


@pytest.mark.deep  # the next test asks the README's; what the guide has beside them, other tests of the lab ask
def test_commands_of_the_guide_work() -> None:
    shown = commands("docs/docsite/rst/guide_first_guest.rst")
    assert len(shown) >= 11
    for command in shown:
        run(*shlex.split(command))


def test_commands_of_the_readme_work() -> None:
    run(
        "ansible",
        "hyper",
        "-m",
        "virt_image",
        "-a",
        "name=centos.qcow2 url={{virt_lab_image_url}} checksum={{virt_lab_image_sums_url}}",
    )
    # The demo, the tarball and the one line for a first guest are tests of their own: here is another guest, of an image
    # that the lab has.
    elsewhere = ("git", "make", "sudo", "python3", "pip", "ansible-galaxy")
    shown = [command for command in commands("README.md") if not command.startswith(elsewhere)]
    assert len(shown) >= 7
    here = {"web1": DYNAMIC, "image=debian-13": "image=centos.qcow2 -e vcpus=2 -e memory=512MiB"}
    for command in shown:
        run_past_hang(*shlex.split(functools.reduce(lambda text, one: text.replace(*one), here.items(), command)))


DYNAMIC = "centos1"  # which the commands of the README make


def run_past_hang(*command: str) -> None:
    """Run a command; once more if the kernel of the guest hung while it booted, or the guest answered too late.

    Where QEMU emulates two processors on a busy machine, a kernel rarely hangs before it has a network card: both
    processors run all the time, and nothing is ever sent. No option of a guest makes it so.
    """
    try:
        run(*command)
    except AssertionError as error:
        if "waiting for privilege escalation prompt" in str(error):
            run(*command)
            return
        host = next((host for host, _state in holders(DYNAMIC)), None)
        result = on(host, f"virsh domstats --vcpu --interface {DYNAMIC}") if host else ""
        busy_s = [int(time_ns) / 10**9 for time_ns in re.findall(r"vcpu\.\d\.time=(\d+)", result)]
        if not host or "net.0.tx.pkts=0\n" not in result or len(busy_s) != 2 or min(busy_s) < HUNG_S:
            raise
        if "corral.virt.create" in command:  # what is there already is not waited for
            run("ansible-playbook", "corral.virt.purge", "-e", f"guest={DYNAMIC}", "-e", "confirm=1")
        else:
            on(host, f"virsh reset {DYNAMIC}")
        run(*command)


# Its firmware asks for an address by DHCP again and again, and is a guest that has it.
PXE = """<domain type='qemu'><name>pxe</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type><boot dev='network'/><bios rebootTimeout='0'/></os><features><acpi/></features>
<devices><interface type='bridge'><mac address='52:54:00:aa:00:02'/><source bridge='br0'/><model type='virtio'/></interface></devices>
</domain>"""
VICTIM = """<domain type='qemu'><name>victim</name><memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type></os>
<metadata><c:guest xmlns:c='urn:corral:virt:guest:1'><c:address>{}</c:address></c:guest></metadata></domain>"""


def define(host: str, xml: str) -> None:
    """A guest made by virsh."""
    on(host, f"cat >/tmp/guest.xml <<'END'\n{xml}\nEND\nvirsh -q define /tmp/guest.xml")


def facts(guest: str) -> dict[str, str]:
    """What the inventory says of a guest."""
    return dict(json.JSONDecoder().raw_decode(run("ansible-inventory", "--host", guest))[0])  # warnings follow


def dynamic() -> tuple[str, str, str]:
    """Where the guest is that gets its address by DHCP, its MAC, and the address at which the inventory has it."""
    known = facts(DYNAMIC)
    return known["virt_hypervisor"], known["virt_macs"][0], known["ansible_host"]


def test_guest_with_a_dynamic_address_is_known_by_its_name() -> None:
    """Its key stands under its name, and its address where no lease of libvirt's tells it."""
    host, mac, address = dynamic()
    assert re.fullmatch(r"10\.86\.\d+\.2[0-4]\d", address), "of the lab's DHCP server"
    assert f"{mac} {address} " in on(host, f"virsh dumpxml {DYNAMIC} --inactive")
    known = (FOLDER / "known_hosts").read_text()
    assert re.search(rf"^{DYNAMIC} ssh-ed25519 ", known, re.MULTILINE)
    assert address not in known
    again = play("corral.virt.create", "-e", f"guest={DYNAMIC}", "-e", "image=centos.qcow2")
    assert set(changed(again).values()) == {0}
    assert "changed=0" in play("corral.virt.query", "-e", f"guest={DYNAMIC}")


@pytest.mark.deep  # the guest boots again, for minutes where it is emulated
def test_start_and_reboot_end_when_the_guest_can_be_logged_in_to() -> None:
    """One with an address by DHCP, which the inventory forgets while it is off; one that nobody can log in to is red."""
    boots = run("ansible", DYNAMIC, "-m", "command", "-a", "cat /proc/sys/kernel/random/boot_id").splitlines()[-1]
    for action in ("shutdown", "start"):
        more = ("-e", "wait_for_login=true") if action == "start" else ()
        play(f"corral.virt.{action}", "-e", f"guest={DYNAMIC}", *more)
    again = run("ansible", DYNAMIC, "-m", "command", "-a", "cat /proc/sys/kernel/random/boot_id").splitlines()[-1]
    assert again != boots
    define(HOSTS[0], VICTIM.format("").replace("<c:address></c:address>", ""))
    mute = ("-e", "guest=victim", "-e", "wait_for_login=true", "-e", "virt_guest_timeout=5")
    assert "Nobody can log in to victim: no address was seen of it" in play("corral.virt.start", *mute, ok=False)
    on(HOSTS[0], "virsh -q destroy victim; virsh -q undefine victim")


@pytest.mark.deep  # tests/contract/test_addresses.py asks the same of a bridge without guests
def test_guest_that_claims_what_is_anothers_is_not_believed() -> None:
    """For a while it answers for nothing but an address of another guest, which is off, and one of no network here."""
    host, _mac, address = dynamic()
    prefix = address.rpartition(".")[0]
    define(host, VICTIM.format(f"{prefix}.150"))
    claims = " ".join(f"ping -qc1 -W1 -I {each} {prefix}.1;" for each in (f"{prefix}.150", "192.0.2.9"))
    own = "nic=$(ls /sys/class/net | grep ^e); ip addr flush dev $nic"
    lie = (
        f"{own}; ip addr add {prefix}.150/24 dev $nic; ip addr add 192.0.2.9/24 dev $nic; for turn in $(seq 15); do "
        f"{claims} done"
    )
    run(
        "ansible", DYNAMIC, "-m", "shell", "-a", f"systemd-run --on-active=1 sh -c '{lie}; networkctl reconfigure $nic'"
    )
    output = ""
    patience = Patience(COMMAND_S)
    while not ("assigned to victim" in output and "192.0.2.9 (packets): br0 has" in output) and not patience.is_over:
        output = re.sub(r"\s+", " ", run("ansible", host, "-m", "virt_addresses", "-a", f"names={DYNAMIC}"))
        assert "CHANGED" not in output
    assert f"{prefix}.150 (packets): it is assigned to victim" in output
    on(host, "virsh -q undefine victim")
    assert facts(DYNAMIC)["ansible_host"] == address
    run("ansible", DYNAMIC, "-m", "wait_for_connection", "-a", "timeout=120")


@pytest.mark.deep  # the guest reboots; tests/contract/test_addresses.py asks the same of a bridge without guests
def test_another_address_is_found_by_query_and_one_that_was_taken_over_is_told() -> None:
    host, mac, before = dynamic()
    other = next(each for each in HOSTS if each != host)
    after = f"{before.rpartition('.')[0]}.{248 if before.endswith('.249') else 249}"
    lab("reserve", "--name", NAME, mac, after)
    renew = "systemd-run --on-active=1 sh -c 'networkctl reconfigure $(ls /sys/class/net | grep ^e)'"
    run("ansible", DYNAMIC, "-m", "shell", "-a", renew)
    leases = Path(f"/var/lib/corral-lab/{NAME}/dhcp-leases")
    until(lambda: f"{mac} {after} " in leases.read_text(), COMMAND_S)
    lab("reserve", "--name", NAME, "52:54:00:aa:00:02", before)
    define(other, PXE)
    on(other, "virsh -q start pxe")
    output = run("ansible", other, "-m", "virt_addresses", "-a", "names=pxe wait_timeout=120")
    assert before in output
    shown = run("ansible-inventory", "--host", DYNAMIC)
    assert "ansible_host" not in shown
    assert f"{before} of {DYNAMIC} on {host} now belongs to pxe" in re.sub(r"\s+", " ", shown)
    predicted = play("corral.virt.query", "--check")
    assert changed(predicted)[host] == 1
    assert changed(play("corral.virt.query"))[host] == 1
    assert facts(DYNAMIC)["ansible_host"] == after
    run("ansible", DYNAMIC, "-m", "wait_for_connection", "-a", "timeout=120")
    assert changed(play("corral.virt.query"))[host] == 0
    on(other, "virsh -q destroy pxe; virsh -q undefine pxe")


def test_guest_goes_with_its_disks() -> None:
    ((host, _state),) = holders()
    run(
        "ansible",
        host,
        "-m",
        "virt_domain",
        "-a",
        "name=web1 state=absent remove_storage=true force=true wait_timeout=60",
    )
    assert holders() == []
    assert "web1" not in "".join(on(each, f"ls {IMAGES}") for each in HOSTS)
    assert re.search(r"debian-12\.[0-9a-f]{12}\.qcow2", on(host, f"ls {IMAGES}")), (
        "the image stays: it belongs to no guest"
    )
