"""Hosts are emptied, filled and upgraded by the commands of the guide; judged by virsh, qemu-img and the files on the
hosts.

The guests have no operating system: QEMU moves them all the same.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import (
    IMAGES,
    ROOT,
    Hypervisors,
    guide,
    hypervisors,
)

pytestmark = pytest.mark.lab

HOSTS = ("hyper1", "hyper2", "hyper3")
MARK = "/var/lib/libvirt/corral-maintenance.json"
LEAVING = {"web1", "web3", "web4", "web5", "off", "kept"}  # hyper1's; web2 is hyper2's
OFF = {"off", "kept"}
GUIDE = (ROOT / "docs/docsite/rst/guide_maintenance.rst").read_text()
# Whatever libvirt is at work on, again and again until told to end: how many migrations there were at the same time.
COUNT = """cd /run && touch count-on && while test -e count-on; do n=0; for g in $(virsh list --name); do
virsh domjobinfo $g 2>/dev/null | grep -qE 'Job type: +(Un)?bounded' && n=$((n+1)); done; echo $n; done >/run/counts 2>/dev/null"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hypervisors]:
    """Three hypervisors; most guests are on the first, and so is the image they stand on."""
    disk = tmp_path_factory.mktemp("image") / "tiny.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", disk, "64M"], check=True)
    subprocess.run(["qemu-io", "-c", "write -P 7 1M 20M", disk], check=True, stdout=subprocess.DEVNULL)
    wish = {"vcpus": 1, "image": "tiny.qcow2", "state": "running"}
    here = [{**wish, "name": name, "memory": f"{64 + 8 * number}MiB"} for number, name in enumerate(sorted(LEAVING))]
    for guest in here:
        guest.update({"tags": ["apart-web"]} if guest["name"] == "web1" else {})
        guest.update({"state": "present"} if guest["name"] in OFF else {})
    there = {
        "name": "web2",
        "vcpus": 1,
        "memory": "64MiB",
        "disks": [{"name": "system", "size": "64MiB"}],
        "tags": ["apart-web"],
    }
    with hypervisors("drain", hosts=3) as lab:
        image = {"corral.virt.virt_image": {"name": "tiny.qcow2", "src": str(disk)}}
        lab.play(image, {"corral.virt.virt_domains": {"domains": here}})
        lab.play({"corral.virt.virt_domain": {**there, "state": "running"}}, hosts="hyper2")
        yield lab


def book(lab: Hypervisors, name: str, options: str, *, ok: bool = True, guests: bool = False) -> str:
    """Run a playbook as the guide says it, with `guests` in the inventory, and what was printed."""
    command = f"ansible-playbook corral.virt.{name} {options}"
    assert f"$ {command}\n" in GUIDE
    output = lab.run(*shlex.split(command), *([] if guests else lab.ask_nobody), ok=ok)
    return output if ok else re.sub(r"\s+", " ", output)


def world(lab: Hypervisors) -> dict[str, str]:
    """What is on the hosts."""
    look = f"virsh list --all --name | sort; ls -lR --time-style=full-iso {IMAGES}; cat {MARK} 2>/dev/null || true"
    return {host: lab.on(host, look) for host in HOSTS}


def guests(lab: Hypervisors) -> dict[str, set[str]]:
    """Names by host."""
    return {host: set(lab.on(host, "virsh list --all --name").split()) for host in HOSTS}


def test_roles_set_up_hypervisors_one_after_another_and_guests_are_not_placed_so(lab: Hypervisors) -> None:
    (play,) = guide("scale")
    printed = lab.play(hosts=play["hosts"], gather_facts=True, serial=1, roles=play["roles"])
    assert "changed=0" in printed and not re.search(r"changed=[1-9]|failed=[1-9]", printed)
    refused = lab.play(hosts="hyper", ok=False, serial=1, roles=["corral.virt.guests"])
    assert "hyper2, hyper3 cannot be queried: this play has serial" in re.sub(r"\s+", " ", refused)


def test_check_mode_says_what_stays_and_writes_nothing(lab: Hypervisors) -> None:
    # A checkpoint stays where it is; a snapshot goes with its guest.
    lab.on("hyper1", "virsh start kept && virsh checkpoint-create-as kept before && virsh destroy kept")
    lab.on("hyper1", "virsh snapshot-create-as off before --disk-only")
    before = world(lab)
    output = book(lab, "drain", "-e host=hyper1 --check", ok=False)
    assert (
        "These guests stay on hyper1" in output
        and "kept: cannot migrate kept to" in output
        and "keeps checkpoints of it" in output
    )
    assert not [name for name in LEAVING - {"kept"} if f"{name}: cannot" in output]
    assert world(lab) == before


@pytest.mark.deep
def test_no_more_is_promised_than_the_guests_were_placed_by(lab: Hypervisors) -> None:
    before = world(lab)
    for said_by in ("guests_cpu_overcommit=0.4", "maintenance_memory_overcommit=0.001"):
        output = lab.run(
            "ansible-playbook", "corral.virt.drain", *lab.ask_nobody, "-e", "host=hyper1", "-e", said_by, ok=False
        )
        assert all(re.search(rf"{name}: .* left", output) for name in LEAVING)
    book(lab, "undrain", "-e host=hyper1")
    assert world(lab) == before, "nobody left"
    for wrong, said_of_it in (("0", "must be above zero"), ("many", "maintenance_cpu_overcommit")):
        output = lab.run(
            "ansible-playbook",
            "corral.virt.drain",
            "-e",
            "host=hyper1",
            "-e",
            f"maintenance_cpu_overcommit={wrong}",
            ok=False,
        )
        assert said_of_it in output
    assert world(lab) == before, "it was refused before the host was marked"


def test_all_but_one_leave(lab: Hypervisors) -> None:
    """Two at a time; on their image, which came before them; and none where its like is."""
    counting = lab.start("ssh", "-F", str(lab.folder / "ssh_config"), "--", "hyper1", COUNT)
    try:
        output = book(lab, "drain", "-e host=hyper1 -e reason=fan", ok=False)
    finally:
        lab.on("hyper1", "rm /run/count-on")
        counting.communicate(timeout=30)
    assert "kept: cannot migrate kept to" in output and not [
        name for name in LEAVING - {"kept"} if f"{name}: cannot" in output
    ]
    assert max(map(int, lab.on("hyper1", "cat /run/counts").split())) == 2
    now = guests(lab)
    assert now["hyper1"] == {"kept"} and now["hyper2"] | now["hyper3"] == LEAVING - {"kept"} | {"web2"}
    assert not now["hyper2"] & now["hyper3"] and "web1" in now["hyper3"]
    (its_host,) = (host for host in HOSTS if "off" in now[host])
    assert lab.on(its_host, "virsh snapshot-list off --name").split() == ["before"]
    lab.on(its_host, f"test -e {IMAGES}/off-system.before && virsh snapshot-dumpxml off before >/dev/null")
    for host in ("hyper2", "hyper3"):
        names = now[host] - {"web2"}
        running = set(lab.on(host, "virsh list --name --state-running").split())
        assert running == now[host] - {"off"}
        for name in names:
            assert "tiny." in lab.on(host, f"qemu-img info -U {IMAGES}/{name}-system.qcow2 | grep 'backing file:'")
            lab.on("hyper1", f"test ! -e {IMAGES}/{name}-system.qcow2")
    assert '"reason": "fan"' in lab.on("hyper1", f"cat {MARK}")


def test_the_last_leaves_and_then_nothing_changes(lab: Hypervisors) -> None:
    lab.on("hyper1", "virsh checkpoint-delete kept before --metadata")
    book(lab, "drain", "-e host=hyper1 -e reason=fan")
    assert guests(lab)["hyper1"] == set()
    before = world(lab)
    again = book(lab, "drain", "-e host=hyper1 -e reason=fan")
    assert re.findall(r"changed=(\d+)", again) == ["0", "0", "0"]
    assert world(lab) == before


def test_nobody_is_placed_there_until_it_is_undrained(lab: Hypervisors) -> None:
    results = "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'found'))) }}"
    place = {"guests": [{"name": "new", "vcpus": 1, "memory": "64MiB", "host": "hyper1"}], "hosts": results}
    tasks = (
        {"corral.virt.virt_host_info": {}, "register": "found"},
        {"corral.virt.virt_place": place, "run_once": True},
    )
    assert "hyper1: is in maintenance: fan" in lab.play(*tasks, hosts="hyper", ok=False)
    book(lab, "undrain", "-e host=hyper1")
    lab.on("hyper1", f"test ! -e {MARK}")
    assert re.findall(r"changed=(\d+)", book(lab, "undrain", "-e host=hyper1")) == ["0", "0", "0"]
    assert "new -> hyper1" in lab.play(*tasks, hosts="hyper")


def test_rebalance_shows_its_plan_and_does_it(lab: Hypervisors) -> None:
    """A guest that cannot move is told, and planned around."""
    before = world(lab)
    planned = re.findall(r"^(\w+) +(hyper\d) -> (hyper\d)", book(lab, "rebalance", "--check"), re.M)
    assert planned and all(dest == "hyper1" for _guest, _source, dest in planned)
    assert world(lab) == before
    fixed, source, _dest = next(move for move in planned if move[0] not in OFF)
    lab.on(source, f"virsh checkpoint-create-as {fixed} before")
    output = re.sub(r"\s+", " ", book(lab, "rebalance", "-e max_moves=2"))
    lab.on(source, f"virsh checkpoint-delete {fixed} before")
    assert (
        "the plan leaves them where they are" in output
        and f"{fixed}: cannot migrate {fixed} to hyper1: libvirt keeps checkpoints of it" in output
    )
    instead = re.findall(r"(\w+) hyper\d -> hyper1 ", output.rpartition(" gain MiB ")[2])
    now = guests(lab)
    assert instead and fixed not in instead and now["hyper1"] == set(instead)
    assert not any({"web1", "web2"} <= there for there in now.values())


@pytest.mark.deep
def test_a_host_is_upgraded_while_another_one_is_dead(lab: Hypervisors) -> None:
    """Its guests leave and it takes guests again; that a fourth host is dead is told, and holds up nobody."""
    dead = lab.folder / "inventory/zz-dead.yml"
    dead.write_text('hyper: {hosts: {hyper4: {ansible_host: "192.0.2.4", ansible_ssh_timeout: 3}}}\n')
    # 192.0.2.0/24 is nobody's (RFC 5737); a rule keeps even the attempt on this machine.
    lab.run("ip", "route", "add", "unreachable", "192.0.2.4/32")
    try:
        output = book(lab, "rolling_update", "-e host=hyper1 -e reboot=never", ok=False, guests=True)
    finally:
        dead.unlink()
        lab.run("ip", "route", "del", "unreachable", "192.0.2.4/32")
    assert re.search(r"hyper1 : ok=\d+ changed=\d+ unreachable=0 failed=0", output)
    assert re.search(r"hyper4 : ok=\d+ changed=0 unreachable=1", output)
    assert guests(lab)["hyper1"] == set()
    lab.on("hyper1", f"test ! -e {MARK}")
    assert lab.on("hyper1", "apt-get -s upgrade").splitlines()[-1].startswith("0 upgraded, 0 newly installed")


@pytest.mark.deep
def test_tasks_of_the_guide_work(lab: Hypervisors) -> None:
    (task,) = (block for block in guide("maintenance") if isinstance(block, dict))
    moves = task["corral.virt.virt_migrations"]["guests"]
    here = {
        host: [{**move, "dest": "hyper1"} for move in moves if move["name"] in names]
        for host, names in guests(lab).items()
    }
    gather = {
        "corral.virt.virt_migrations": {"guests": "{{ here[inventory_hostname] }}"},
        "when": "here[inventory_hostname] | length > 0",
    }
    lab.play(gather, hosts="hyper", vars={"here": here})
    lab.play(task)
    now = guests(lab)
    assert moves and all(move["name"] in now[move["dest"]] for move in moves)


@pytest.mark.deep
def test_ctrl_c_ends_those_under_way_and_begins_no_other(lab: Hypervisors) -> None:
    before = guests(lab)
    host = max(HOSTS, key=lambda name: len(before[name] - OFF))
    # All of their disks, slowly: there is time to end it.
    options = json.dumps({"host": host, "running_only": True, "options": {"bandwidth": 1, "storage": "full"}})
    drain = lab.start("ansible-playbook", "corral.virt.drain", "-e", options)
    busy = (
        "for g in $(virsh list --name); do virsh domjobinfo $g; done 2>/dev/null | grep -cE 'Job type: "
        "+(Un)?bounded' || true"
    )
    until(lambda: lab.on(host, busy) == "2", timeout_s=90)
    os.killpg(drain.pid, signal.SIGINT)
    drain.communicate(timeout=60)
    until(lambda: lab.on(host, f"{busy}; pgrep -x virt_migrations || true") == "0", timeout_s=60)
    assert guests(lab) == before
    assert set(lab.on(host, "virsh list --name --state-running").split()) == before[host] - OFF
    for other in set(HOSTS) - {host}:
        assert not {name for name in before[host] if f"{name}-system" in lab.on(other, f"ls {IMAGES}")}
    lab.on(host, f"rm {MARK}; ls /run/corral | grep -c 'abort$' | grep -qx 0")
