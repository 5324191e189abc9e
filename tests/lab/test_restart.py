"""Who is admitted by libvirt's port, and when its daemon is restarted for that; judged by virsh, systemctl and the
hosts' files.

The guest has no operating system: QEMU moves and copies it all the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import typing as t
from collections.abc import Iterator

import pytest
import yaml

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import (
    IMAGES,
    ROOT,
    Hypervisors,
    guide,
    hypervisors,
)

pytestmark = [pytest.mark.lab, pytest.mark.deep]

HOSTS = ("hyper1", "hyper2", "hyper3")
CONF = "/etc/libvirt/libvirtd.conf"
JOB = "virsh domjobinfo web | grep -qE 'Job type: +(Un)?bounded'"
MODULE = "pgrep -fx '[^ ]*/python3[.0-9]*'"  # a module that is under way: it comes by standard input
COPY = f"{IMAGES}/copy"
UNREVOKED = {"pki_revoke_absent": False}  # revoked, it would be refused without a restart


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hypervisors]:
    """Three hypervisors, and a guest that takes more than half a minute to move at 1 MiB/s."""
    disk = tmp_path_factory.mktemp("image") / "tiny.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", disk, "64M"], check=True)
    subprocess.run(["qemu-io", "-c", "write -P 7 1M 12M", disk], check=True, stdout=subprocess.DEVNULL)
    system = {"name": "system", "image": "tiny.qcow2", "size": "64MiB"}
    wish = {"name": "web", "vcpus": 1, "memory": "64MiB", "disks": [system], "interfaces": [], "state": "running"}
    with hypervisors("hrlist", hosts=3) as lab:
        lab.play(
            {"corral.virt.virt_image": {"name": "tiny.qcow2", "src": str(disk)}}, {"corral.virt.virt_domain": wish}
        )
        yield lab


def command(lab: Hypervisors, *flags: str, hosts: t.Collection[str] = HOSTS, **options: t.Any) -> list[str]:
    """That runs role pki with an inventory of these hosts."""
    inventory = yaml.safe_load((lab.folder / "inventory/hosts.yml").read_text())
    for name in set(HOSTS) - set(hosts):
        del inventory["hyper"]["hosts"][name]
    fewer = lab.folder / "fewer"
    if not fewer.exists():
        fewer.mkdir()
        for name in ("group_vars", "host_vars"):
            (fewer / name).symlink_to(lab.folder / "inventory" / name)
    (fewer / "hosts.yml").write_text(yaml.safe_dump(inventory))
    (lab.folder / "pki.json").write_text(
        json.dumps([{"hosts": "hyper", "gather_facts": False, "roles": ["corral.virt.pki"]}])
    )
    return ["ansible-playbook", "-i", str(fewer), str(lab.folder / "pki.json"), "-e", json.dumps(options), *flags]


def role(lab: Hypervisors, *flags: str, hosts: t.Collection[str] = HOSTS, ok: bool = True, **options: t.Any) -> str:
    """What role pki says, in one line."""
    return re.sub(r"\s+", " ", lab.run(*command(lab, *flags, hosts=hosts, **options), ok=ok))


def changes(printed: str) -> list[int]:
    return list(map(int, re.findall(r"changed=(\d+)", printed)))


def admitted(lab: Hypervisors, client: str, server: str) -> bool:
    """Whether libvirt's port of one host admits the other one, or the controller."""
    ask = f"virsh -c qemu+tls://{server}/system{{}} hostname 2>&1 || true"
    if client != "controller":
        return lab.on(client, ask.format("")) == server
    address = lab.on(server, "hostname -I").split()[0]
    return (
        lab.run("sh", "-c", ask.format(f"?pkipath={lab.folder}/ca/controller").replace(server, address, 1)).strip()
        == server
    )


def started(lab: Hypervisors, host: str) -> str:
    """Which process the daemon is. As long as a guest runs, it does not end by itself."""
    return lab.on(
        host,
        "virsh version >/dev/null; systemctl show --property=MainPID,ExecMainStartTimestampMonotonic libvirtd.service",
    )


@pytest.fixture
def host(lab: Hypervisors) -> str:
    """Where the guest is; all hosts are admitted there."""
    role(lab)
    return next(host for host in HOSTS if "web" in lab.on(host, "virsh list --name"))


@contextlib.contextmanager
def copying(lab: Hypervisors, host: str) -> Iterator[None]:
    """A block job that does not end."""
    lab.on(host, f"virsh blockcopy web vda {COPY} --bandwidth 1 --transient-job --format qcow2")
    try:
        yield
    finally:
        lab.on(host, f"virsh blockjob web vda --abort; rm {COPY}")


def other(host: str) -> str:
    return "hyper2" if host == "hyper1" else "hyper1"


@pytest.mark.deep
def test_a_removed_host_is_shut_out_and_no_migration_is_disturbed(lab: Hypervisors) -> None:
    before = {host: started(lab, host) for host in HOSTS}
    assert all(admitted(lab, client, "hyper2") for client in ("controller", "hyper1", "hyper3"))
    book = lab.folder / "move.json"
    move = {"name": "web", "dest": "hyper2", "storage": "full", "bandwidth": 1, "auto_converge": False}
    book.write_text(
        json.dumps([{"hosts": "hyper1", "gather_facts": False, "tasks": [{"corral.virt.virt_migrate": move}]}])
    )
    moving = lab.start("ansible-playbook", str(book))
    try:
        until(lambda: lab.on("hyper1", f"{JOB} && echo yes || true"), timeout_s=60)
        output = role(lab, hosts=HOSTS[:2])
    finally:
        result, _none = moving.communicate(timeout=120)
    assert moving.returncode == 0, result
    assert "web: migration to another host" in output and "web: migration to this host" in output
    assert lab.on("hyper2", "virsh domstate web") == "running" and not lab.on("hyper1", "virsh list --all --name")
    assert all(started(lab, host) != before[host] for host in HOSTS[:2])
    assert not any(admitted(lab, "hyper3", server) for server in HOSTS[:2])
    assert (
        admitted(lab, "hyper1", "hyper2")
        and admitted(lab, "hyper2", "hyper1")
        and admitted(lab, "controller", "hyper2")
    )
    before = {host: started(lab, host) for host in HOSTS}
    assert changes(role(lab, hosts=HOSTS[:2])) == [0, 0]
    assert {host: started(lab, host) for host in HOSTS} == before


@pytest.mark.deep
def test_a_job_that_does_not_end_leaves_the_restart_to_the_next_run(lab: Hypervisors, host: str) -> None:
    before = started(lab, host)
    with copying(lab, host):
        for flags in (["--check"], []):
            conf = lab.on(host, f"cat {CONF}")
            output = role(
                lab, "--limit", host, *flags, hosts=HOSTS[:2], **UNREVOKED, ok=bool(flags), hypervisor_restart_timeout=2
            )
            assert ("would restart" in output) == bool(flags) and (lab.on(host, f"cat {CONF}") == conf) == bool(flags)
        assert "web: block job on vda" in output and "not in effect yet" in output
        assert f"ansible-playbook corral.virt.site --limit {host}" in output
        assert started(lab, host) == before
        assert admitted(lab, "hyper3", host), "the daemon has the former list"
    assert "would restart" in role(lab, "--limit", host, "--check", hosts=HOSTS[:2], **UNREVOKED)
    assert changes(role(lab, "--limit", host, hosts=HOSTS[:2], **UNREVOKED)) == [1]
    assert started(lab, host) != before
    assert not admitted(lab, "hyper3", host) and admitted(lab, other(host), host)


@pytest.mark.deep
def test_a_play_that_was_killed_before_the_restart_is_made_up_for(lab: Hypervisors, host: str) -> None:
    before = started(lab, host)
    with copying(lab, host):  # so that it cannot restart before it is killed
        play = lab.start(*command(lab, "--limit", host, hosts=HOSTS[:2], **UNREVOKED))
        until(lambda: "CN=hyper3" not in lab.on(host, f"cat {CONF}"), timeout_s=60)
        lab.on(host, MODULE)
        workers = subprocess.run(["pgrep", "-P", str(play.pid)], capture_output=True, text=True, check=True).stdout
        for each in (play.pid, *map(int, workers.split())):  # a worker would go on without Ansible
            os.kill(each, signal.SIGKILL)
        play.communicate(timeout=10)
        until(lambda: not lab.on(host, f"{MODULE} || true"), timeout_s=60)  # it waits for ten seconds
    assert started(lab, host) == before and admitted(lab, "hyper3", host)
    assert changes(role(lab, "--limit", host, hosts=HOSTS[:2], **UNREVOKED)) == [1]
    assert started(lab, host) != before and not admitted(lab, "hyper3", host)
    assert changes(role(lab, "--limit", host, hosts=HOSTS[:2], **UNREVOKED)) == [0]


@pytest.mark.deep
def test_a_run_of_virt_migrate_that_has_no_job_yet_is_waited_for(lab: Hypervisors, host: str) -> None:
    """It holds the guest's lock."""
    lock = lab.start("ssh", "-F", str(lab.folder / "ssh_config"), "--", host, "flock /run/corral/web.lock sleep 1000")
    try:
        until(lambda: lab.on(host, "pgrep -f '^sleep 1000' || true"))
        output = role(lab, "--limit", host, hosts=HOSTS[:2], ok=False, hypervisor_restart_timeout=0)
        assert "web: a run of virt_migrate" in output
    finally:
        lab.on(host, "pkill -f '^sleep 1000'")
        lock.communicate(timeout=30)
    role(lab)


@pytest.mark.deep
def test_a_daemon_that_failed_is_started_and_the_first_start_of_the_socket_waits_too(
    lab: Hypervisors, host: str
) -> None:
    lab.on(
        host,
        "pkill -KILL -x libvirtd; systemctl stop libvirtd-tls.socket libvirtd.service; systemctl disable "
        "libvirtd-tls.socket",
    )
    lab.on(host, "virsh version")
    before = started(lab, host)
    with copying(lab, host):
        assert "web: block job on vda" in role(lab, "--limit", host, ok=False, hypervisor_restart_timeout=0)
        assert started(lab, host) == before and not admitted(lab, other(host), host)
    role(lab, "--limit", host)
    assert admitted(lab, other(host), host)
    assert lab.on(host, "systemctl is-enabled libvirtd-tls.socket") == "enabled"
    assert changes(role(lab, "--limit", host)) == [0]
    lab.on(host, f"sed -i '1i nonsense' {CONF}; systemctl restart libvirtd.service", ok=False)
    until(lambda: lab.on(host, "systemctl is-active libvirtd.service || true") == "failed", timeout_s=60)
    lab.on(host, f"sed -i 1d {CONF}")
    assert changes(role(lab, "--limit", host)) == [1]
    assert admitted(lab, other(host), host)


def test_names_of_the_guide_are_admitted(lab: Hypervisors) -> None:
    (output,) = (item for item in guide("tls") if "pki_controllers" in item)
    role(lab, "--limit", "hyper1", **output)
    listed = json.loads(lab.on("hyper1", f"sed -n 's/^tls_allowed_dn_list = //p' {CONF}"))
    assert listed == [f"O=corral.virt,OU=libvirt,CN={name}" for name in sorted({*HOSTS, *output["pki_controllers"]})]


@pytest.mark.deep
def test_a_host_that_dies_during_a_task_is_unreachable_and_the_others_go_on(lab: Hypervisors) -> None:
    """With the configuration that a checkout and the examples have: SSH alone would wait for a quarter of an hour."""
    tasks = [
        {"ansible.builtin.ping": {}},
        {"ansible.builtin.command": "{{ 'sleep 300' if inventory_hostname == 'hyper3' else 'touch /run/began' }}"},
        {"ansible.builtin.command": "touch /run/ended"},
    ]
    (lab.folder / "dies.json").write_text(json.dumps([{"hosts": "hyper", "gather_facts": False, "tasks": tasks}]))
    link = f"vb-{lab.name}-hyper3"
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    argv = ["ansible-playbook", *lab.ask_nobody, str(lab.folder / "dies.json")]
    play = subprocess.Popen(
        argv, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    try:
        until(lambda: lab.on("hyper3", "pgrep -fx 'sleep 300' || true"))
        lab.run("ip", "link", "set", link, "down")
        output, _errors = play.communicate(timeout=150)
    finally:
        play.kill()
        lab.run("ip", "link", "set", link, "up")
    recap = re.search(r"hyper1 .*failed=0.*\n.*hyper2 .*failed=0.*\n.*hyper3 .*unreachable=1", output)
    assert play.returncode == 4 and recap, output
    assert lab.on("hyper1", "ls /run/began /run/ended").split() == ["/run/began", "/run/ended"]
