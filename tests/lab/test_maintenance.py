"""Others act while a host is in maintenance or a guest is held: by virsh, by another controller, by killing a run.

Judged by virsh and the hosts' files. The guests have no operating system: QEMU moves them all the same.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import (
    ROOT,
    Hypervisors,
    hypervisors,
)
from ansible_collections.corral.virt.tests.tools import payload

pytestmark = pytest.mark.lab

HOSTS = ("hyper1", "hyper2", "hyper3")
MARK = "/var/lib/libvirt/corral-maintenance.json"
HOOK = "/etc/libvirt/hooks/qemu.d/50-corral"
CODE = "/root/held/ansible_collections/corral/virt/plugins/module_utils"
# A run as it holds a guest: by the code that modules use, and nothing else.
HOLDER = """
import sys, time
from ansible_collections.corral.virt.plugins.module_utils._host.files_start_block import held, hooked
with held(sys.argv[1], "it is being migrated to hyper2"):
    print("holds" if hooked() else "holds, and nobody heeds it", flush=True)
    time.sleep(300)
"""
DAEMON = "systemctl show --property=MainPID --value libvirtd.service"


@pytest.fixture(scope="module")
def lab() -> Iterator[Hypervisors]:
    """Three hypervisors; all guests are on the first."""
    wish = {"vcpus": 1, "memory": "64MiB", "disks": [{"name": "system", "size": "64MiB"}]}
    here = [{**wish, "name": name, "state": "running"} for name in ("web1", "web2", "web3")]
    here += [{**wish, "name": "late"}, {**wish, "name": "auto", "autostart": True}]
    with hypervisors("maint", hosts=3) as lab:
        lab.play({"corral.virt.virt_domains": {"domains": here}})
        yield lab


@pytest.fixture(autouse=True)
def nobody_is_in_maintenance(lab: Hypervisors) -> Iterator[None]:
    """After each test, also one that fails; and all hosts run the hook."""
    yield
    for host in HOSTS:
        lab.on(host, f"rm -f {MARK}; test -x {HOOK} || {{ chmod 755 {HOOK}; systemctl restart libvirtd.service; }}")


def book(lab: Hypervisors, name: str, options: str, *, ok: bool = True) -> str:
    """Run a playbook, and what was printed, in one line."""
    return re.sub(r"\s+", " ", lab.run(*command(name, options), *lab.ask_nobody, ok=ok))


def command(name: str, options: str) -> list[str]:
    return shlex.split(f"ansible-playbook corral.virt.{name} {options}")


def guests(lab: Hypervisors, state: str = "--all") -> dict[str, set[str]]:
    """Names by host."""
    return {host: set(lab.on(host, f"virsh list --name {state}").split()) for host in HOSTS}


def gather(lab: Hypervisors) -> None:
    """All guests are on the first host."""
    there = guests(lab)
    away = {host: [{"name": name, "dest": "hyper1"} for name in sorted(there[host])] for host in ("hyper2", "hyper3")}
    move = {
        "corral.virt.virt_migrations": {"guests": "{{ away[inventory_hostname] }}"},
        "when": "away[inventory_hostname] | length > 0",
    }
    lab.play(move, hosts="hyper2,hyper3", vars={"away": away})


def mark(lab: Hypervisors, host: str) -> None:
    """As an administrator may do it by hand."""
    lab.on(host, f"cat >{MARK}", given=json.dumps({"reason": "new fan", "since": "2026-11-26", "host": host}))


def hold(lab: Hypervisors, host: str, uuid: str) -> subprocess.Popen[str]:
    """A run that holds a guest there."""
    utils = ROOT / "plugins/module_utils"
    files = [str(path.relative_to(utils)) for path in payload.closure(utils / "_host/files_start_block.py")]
    ssh = f"ssh -F {lab.folder}/ssh_config -- {host}"
    pack = f"tar -C {utils} -c {' '.join(files)} _host/files_start_block.py"
    lab.run("sh", "-c", f"{pack} | {ssh} 'mkdir -p {CODE} && tar -C {CODE} -x'")
    lab.on(host, "cat >/root/held/holder.py", given=HOLDER)
    held = lab.start("ssh", "-F", lab.folder / "ssh_config", "--", host, f"python3 /root/held/holder.py {uuid}")
    assert held.stdout and held.stdout.readline() == "holds\n"
    return held


def test_a_held_guest_is_not_started_by_virsh_and_is_free_when_its_run_is_killed(lab: Hypervisors) -> None:
    uuid = lab.on("hyper1", "virsh domuuid late")
    run = hold(lab, "hyper1", uuid)
    try:
        told = lab.on("hyper1", "virsh start late", ok=False)
        assert "cannot start guest late here: it is being migrated to hyper2" in told and "wait until that run" in told
        lab.on("hyper1", "virsh start auto && virsh destroy auto")
        lab.on("hyper1", "pkill -KILL -f /root/held/holder.p[y]")
        run.wait(30)
        lab.on("hyper1", f"test -e /run/corral/held/{uuid}")
        lab.on("hyper1", "virsh start late && virsh destroy late")
    finally:
        run.kill()
        run.communicate(timeout=30)


@pytest.mark.deep
def test_a_held_guest_does_not_arrive_by_virsh(lab: Hypervisors) -> None:
    """It may be held where it is going to, and starts there by nobody else either."""
    uuid = lab.on("hyper1", "virsh domuuid web1")
    run = hold(lab, "hyper2", uuid)
    migrate = "virsh migrate --live --p2p --unsafe web1 qemu+tls://hyper2/system"
    try:
        assert "it is being migrated to hyper2 (process" in lab.on("hyper1", migrate, ok=False)
    finally:
        lab.on("hyper2", "pkill -KILL -f /root/held/holder.p[y]")
        run.communicate(timeout=30)
    now = guests(lab, "--state-running")
    assert "web1" in now["hyper1"] and not now["hyper2"]


def test_no_guest_starts_or_arrives_in_maintenance_and_those_that_run_there_go_on(lab: Hypervisors) -> None:
    """Also when libvirt's daemon starts again under them."""
    mark(lab, "hyper1")
    before = lab.on("hyper1", "pgrep -a qemu | grep -o 'guest=[a-z0-9]*' | sort; pgrep qemu")
    assert "guest=web1" in before
    daemon = lab.on("hyper1", DAEMON)
    lab.on("hyper1", "systemctl restart libvirtd.service")
    assert lab.on("hyper1", "virsh list --name --state-running | sort").split() == ["web1", "web2", "web3"]
    assert lab.on("hyper1", "pgrep -a qemu | grep -o 'guest=[a-z0-9]*' | sort; pgrep qemu") == before
    assert lab.on("hyper1", DAEMON) != daemon
    told = lab.on("hyper1", "virsh start late", ok=False)
    assert "hyper1 is in maintenance (new fan) and takes no guests" in told
    assert "ansible-playbook corral.virt.undrain -e host=hyper1" in told
    lab.on("hyper1", "virsh suspend web1 && virsh resume web1 && virsh reset web1")
    lab.on("hyper1", f"rm {MARK}")
    mark(lab, "hyper2")
    migrate = "virsh migrate --live --p2p --unsafe web1 qemu+tls://hyper2/system"
    assert "hyper2 is in maintenance (new fan)" in lab.on("hyper1", migrate, ok=False)
    lab.on("hyper2", f"rm {MARK}")
    lab.on("hyper1", "virsh start late && virsh destroy late")


@pytest.mark.deep
@pytest.mark.parametrize("check", ["", pytest.param(" --check", marks=pytest.mark.deep)])
def test_our_own_commands_say_that_a_host_is_in_maintenance_before_they_begin(lab: Hypervisors, check: str) -> None:
    mark(lab, "hyper1")
    told = (
        "cannot start late: this host is in maintenance (new fan) and takes no guests; end that with playbook undrain"
    )
    assert told in book(lab, "start", f"-e guest=late{check}", ok=False)
    wish: dict[str, t.Any] = {"name": "late", "vcpus": 1, "memory": "64MiB", "state": "running"}
    assert told in lab.module("corral.virt.virt_domain", *check.split(), ok=False, **wish)
    # A restart would leave it off.
    wish = {"name": "web1", "vcpus": 1, "memory": "96MiB", "allow_restart": True}
    told = told.replace("late", "web1")
    assert told in lab.module("corral.virt.virt_domain", *check.split(), ok=False, **wish)
    assert "web1" in guests(lab, "--state-running")["hyper1"]
    lab.on("hyper1", f"rm {MARK}")
    mark(lab, "hyper2")
    told = "hyper2 is in maintenance (new fan) and takes no guests; end that with playbook undrain, or choose another"
    assert told in book(lab, "migrate", f"-e guest=web1 -e to=hyper2{check}", ok=False)
    assert told in book(lab, "migrate", f"-e guest=late -e to=hyper2{check}", ok=False)


def act_while_it_moves(lab: Hypervisors, host: str, act: str) -> subprocess.Popen[str]:
    """Somebody does that on the host as soon as libvirt moves a guest away from there."""
    moving = (
        "for g in $(virsh list --name); do virsh domjobinfo $g; done 2>/dev/null | grep -qE 'Job type: +(Un)?bounded'"
    )
    return lab.start("ssh", "-F", lab.folder / "ssh_config", "--", host, f"until {moving}; do :; done; {act}")


SLOW = json.dumps({"options": {"bandwidth": 8, "storage": "full"}})


@pytest.mark.deep
def test_a_guest_that_is_started_during_a_drain_leaves_too(lab: Hypervisors) -> None:
    """On a host whose libvirt runs no hook: it says so."""
    lab.on("hyper1", f"chmod -x {HOOK}")
    acting = act_while_it_moves(lab, "hyper1", "virsh start late")
    output = book(lab, "drain", f"-e host=hyper1 -e running_only=true -e {shlex.quote(SLOW)}")
    assert "Domain 'late' started" in acting.communicate(timeout=60)[0]
    assert "does not run the hook of role corral.virt.hypervisor" in output
    assert guests(lab)["hyper1"] == {"auto"}
    now = guests(lab, "--state-running")
    assert now["hyper2"] | now["hyper3"] == {"web1", "web2", "web3", "late"} and not now["hyper2"] & now["hyper3"]
    lab.on("hyper1", f"test -e {MARK}")


@pytest.mark.deep
def test_a_guest_that_comes_and_cannot_leave_makes_a_drain_red(lab: Hypervisors) -> None:
    gather(lab)
    host = next(host for host in HOSTS if "late" in guests(lab)[host])
    lab.on(host, "virsh destroy late; virsh snapshot-create-as late before")
    lab.on(host, f"chmod -x {HOOK}")
    try:
        acting = act_while_it_moves(lab, host, "virsh start late")
        output = book(lab, "drain", f"-e host={host} -e running_only=true -e {shlex.quote(SLOW)}", ok=False)
        acting.communicate(timeout=60)
    finally:
        lab.on(host, "virsh destroy late; virsh snapshot-delete late before")
    assert f"These guests stay on {host}" in output and "late: cannot migrate late to" in output
    assert not re.search(r"web\d: cannot", output)


@pytest.mark.deep
def test_an_undrain_during_a_drain_makes_it_red(lab: Hypervisors) -> None:
    gather(lab)
    drain = lab.start(*command("drain", f"-e host=hyper1 -e {shlex.quote(SLOW)}"))
    try:
        until(lambda: lab.on("hyper1", f"test -e {MARK} && echo there || true"), timeout_s=90)
        book(lab, "undrain", "-e host=hyper1")
        output, _none = drain.communicate(timeout=300)
    finally:
        if drain.poll() is None:
            os.killpg(drain.pid, signal.SIGINT)
            drain.communicate(timeout=60)
    assert drain.returncode
    assert "hyper1 is no longer in the maintenance that this run began with" in re.sub(r"\s+", " ", output)
    lab.on("hyper1", f"test ! -e {MARK}")


@pytest.mark.deep
def test_of_two_drains_into_each_other_none_is_green_over_a_running_guest(lab: Hypervisors) -> None:
    """With nowhere else to go. Each guest runs once, whatever they did."""
    gather(lab)
    book(lab, "migrate", "-e guest=web2 -e to=hyper2")
    mark(lab, "hyper3")
    drains = {
        host: lab.start(*command("drain", f"-e host={host} -e {shlex.quote(SLOW)}")) for host in ("hyper1", "hyper2")
    }
    output = {host: re.sub(r"\s+", " ", drain.communicate(timeout=390)[0]) for host, drain in drains.items()}
    ended = {host: drain.returncode for host, drain in drains.items()}
    there, running = guests(lab), guests(lab, "--state-running")
    assert any(ended.values()), output
    for host, code in ended.items():
        assert code or not there[host], f"{host} is green and has {there[host]}: {output[host]}"
        assert not code or "These guests stay on" in output[host] or "no hypervisor" in output[host], output[host]
    for name in ("web1", "web2", "web3"):
        assert sum(name in each for each in running.values()) == 1, (name, running)
        assert sum(name in each for each in there.values()) == 1, (name, there)


def marked(lab: Hypervisors, host: str) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads(lab.on(host, f"cat {MARK}")))


@pytest.mark.deep
def test_a_second_drain_keeps_the_mark_and_changes_nothing(lab: Hypervisors) -> None:
    gather(lab)
    book(lab, "drain", "-e host=hyper2 -e reason=fan")
    first = marked(lab, "hyper2")
    assert (first["reason"], first["host"], first["by"]) == ("fan", "hyper2", "drain") and len(first["id"]) == 16
    again = book(lab, "drain", "-e host=hyper2 -e reason=other")
    assert re.findall(r"changed=(\d+)", again) == ["0", "0", "0"] and marked(lab, "hyper2") == first
    book(lab, "undrain", "-e host=hyper2")
    book(lab, "drain", "-e host=hyper2")
    assert marked(lab, "hyper2")["id"] != first["id"]


@pytest.mark.deep
def test_a_daemon_that_has_the_hook_is_not_restarted_and_one_that_has_not_is_once(lab: Hypervisors) -> None:
    """Guests run on over that; check mode says the same."""
    gather(lab)
    role: dict[str, t.Any] = {"hosts": "hyper1", "roles": ["corral.virt.hypervisor"]}
    running = lab.on("hyper1", "pgrep qemu")
    assert re.search(r"hyper1 +: .*changed=0 ", lab.play(**role))
    lab.on("hyper1", f"rm {HOOK}")
    daemon = lab.on("hyper1", DAEMON)
    for flags, restarted in ((["--check"], False), ([], True)):
        assert re.search(r"hyper1 +: .*changed=2 ", lab.play(flags=flags, **role)), "the hook, and the restart"
        assert (lab.on("hyper1", DAEMON) != daemon) is restarted
    daemon = lab.on("hyper1", DAEMON)
    assert re.search(r"hyper1 +: .*changed=0 ", lab.play(**role))
    assert lab.on("hyper1", DAEMON) == daemon and lab.on("hyper1", "pgrep qemu") == running
    assert re.search(r"hyper1 +: .*changed=1 ", lab.play(**role, vars={"hypervisor_hook": False}))
    lab.on("hyper1", f"test ! -e {HOOK}")
    assert lab.on("hyper1", DAEMON) == daemon, "who takes it away need not restart anything"
    assert re.search(r"hyper1 +: .*changed=2 ", lab.play(**role)), "that it had it before does not count"
