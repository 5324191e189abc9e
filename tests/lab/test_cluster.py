"""Role cluster on three hosts: a device that lies keeps it from starting; a second run changes nothing; a host that dies is
switched off by a peer before its guest starts elsewhere, once; the guest of a member that leaves goes on elsewhere.
Judged by crm_mon, virsh, ps and the power switch itself.

The switch really ends a host's machine; what it does not show is in power_switch.py.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import re
import subprocess
import sys
import time
import typing as t
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.faults.boot_sector import boot_sector
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import HERE, Hypervisors, hypervisors

pytestmark = [pytest.mark.lab, pytest.mark.deep]

LAB = Hypervisors("cluster")
RELEASE = os.environ.get("CORRAL_LAB_RELEASE", "bookworm")  # trixie has Pacemaker 3
HOSTS = ("hyper1", "hyper2", "hyper3")
SHARED = "/srv/shared"
UUID = "5b1f0c9e-3d0b-4a55-9a1c-3f5b0c7e9d42"
RESOURCE = {"name": "g", "uuid": UUID, "store": SHARED, "stop_timeout": 60}
PORT = "8765"
PORTS = ["16514/tcp", "5403/tcp", "24007-24008/tcp", "49152-60999/tcp"]  # with those of a quorum device and of Gluster
KEEPS = {"hypervisor_keeps_definitions": True, "hypervisor_packages": [], "hypervisor_security_packages": []}
FACTS: dict[str, t.Any] = {"gather_facts": True, "gather_subset": ["!all", "network"]}
on1 = functools.partial(LAB.on, "hyper1")
# Twice: the first may join a run that has looked before.
KEEP = "systemctl start corral-keep && systemctl start corral-keep"
HA = '<ha priority="1" max-restarts="4"><prefer>hyper2</prefer></ha>'
GUEST = f"""<domain type='qemu'><name>g</name><uuid>{UUID}</uuid><memory unit='MiB'>32</memory><vcpu>1</vcpu>
<metadata><corral:guest xmlns:corral='urn:corral:virt:guest:1'><corral:ha priority='1' max-restarts='4'>
<corral:prefer>hyper2</corral:prefer></corral:ha></corral:guest></metadata>
<os><type arch='x86_64' machine='pc'>hvm</type></os><features><acpi/></features>
<devices><disk type='file' device='disk'><driver name='qemu' type='raw' cache='none'/><source file='{SHARED}/g.raw'/>
<target dev='vda' bus='virtio'/></disk><serial type='pty'/></devices></domain>"""


@pytest.fixture(scope="module", autouse=True)
def switch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three hypervisors on a power switch, and a Gluster volume of hyper1 on all; what the switch was told."""
    folder = tmp_path_factory.mktemp("switch")
    log, agent = folder / "log", folder / "fence_lab"
    with (
        hypervisors("cluster", "hypervisor", "firewall", "pki", hosts=3, more=("--release", RELEASE)),
        log.open("w") as stream,
    ):
        program: list[str | Path] = [sys.executable, HERE / "power_switch.py", LAB.name, PORT, agent]
        switch = subprocess.Popen(program, stdout=stream, stderr=subprocess.STDOUT)
        try:
            until(agent.exists, 20)
            for host in HOSTS:
                LAB.on(host, "cat >/usr/sbin/fence_lab && chmod 755 /usr/sbin/fence_lab", given=agent.read_text())
            variables().write_text(yaml.safe_dump(KEEPS))
            LAB.play(hosts="hyper", roles=["corral.virt.hypervisor"], **FACTS)
            yield log
        finally:
            switch.kill()
            switch.wait()


def variables() -> Path:
    """The file of the hosts' variables."""
    return LAB.folder / "inventory/group_vars/hyper/cluster.yml"


def role(*flags: str, ok: bool = True, plug: str = "{{ inventory_hostname }}", **known: object) -> str:
    """What the role prints, in one line."""
    options = {"plug": plug, "pcmk_reboot_action": "off"}
    fencing = {"cluster_token_ms": 5000, "cluster_fencing": {"agent": "fence_lab", "options": options}}
    variables().write_text(yaml.safe_dump({**KEEPS, **fencing, "firewall_ports": PORTS, **known}))
    return re.sub(r"\s+", " ", LAB.play(hosts="hyper", flags=flags, ok=ok, roles=["corral.virt.cluster"], **FACTS))


def where() -> list[str]:
    """The hosts that live and run a QEMU of the guest."""
    found = []
    for host in HOSTS:
        if urllib.request.urlopen(f"http://{LAB.gateway}:{PORT}/{host}/status").read() == b"on":
            found += [host] if LAB.on(host, f"pgrep -f '[-]uuid {UUID}' || true") else []
    return found


def test_what_a_host_does_not_have_is_refused_before_anything_is_touched() -> None:
    told = role(ok=False, cluster_links=["10.99.0.{{ ansible_host | regex_replace('^.*[.]', '') }}"])
    assert all(f"{host} does not have the address 10.99.0.1" in told for host in HOSTS)
    assert "changed=0" in told and not re.search("changed=[1-9]", told)
    told = role(ok=False, cluster_watchdog="/dev/watchdog", cluster_volume_groups=[])
    for host in HOSTS:
        assert f"{host}: cluster_watchdog /dev/watchdog is missing there: load the driver" in told
        assert f"{host}: cluster_volume_groups need the modules dlm and gfs2, which its kernel does not have" in told
        assert not LAB.on(host, "ls -d /etc/default/sbd /etc/corosync 2>/dev/null || true")
    assert "changed=0" in told and not re.search("changed=[1-9]", told)


def test_a_device_that_calls_a_living_host_off_keeps_the_cluster_from_starting() -> None:
    told = role(ok=False, plug="no-{{ inventory_hostname }}")
    assert "it says off, but the node is up: the options name another machine" in told
    assert "active" not in on1("systemctl is-active corosync pacemaker || true").split()


def test_a_second_run_changes_nothing() -> None:
    assert "changed=0" not in role()
    told = role()
    assert told.count("changed=0") == len(HOSTS), told[-2000:]
    seen = on1(
        "crm_mon --one-shot --output-as=xml; corosync-cmapctl totem.crypto_cipher; stat -c %a /etc/corosync/authkey"
    )
    assert seen.count('online="true"') == len(HOSTS) and 'stonith-enabled="true"' in seen
    assert "aes256" in seen and seen.endswith("400")
    results = json.loads(on1("systemctl start corral-cluster-test && cat /var/lib/corral-virt/cluster/fencing.json"))
    assert {name: one["says"] for name, one in results["devices"].items()} == {"hyper2": "on", "hyper3": "on"}
    assert len({LAB.on(host, "sha256sum /etc/corosync/authkey") for host in HOSTS}) == 1


def test_one_of_two_networks_is_cut_and_nobody_is_fenced(switch: Path) -> None:
    for host in HOSTS:
        address = "ip -4 -o address show host0 | sed -n 's/.*inet 10[.][0-9]*[.][0-9]*[.]\\([0-9]*\\).*/10.99.0.\\1/p'"
        LAB.on(host, "ip link add link1 link host0 type macvlan mode bridge && ip link set link1 up")
        LAB.on(host, f"ip address add $({address})/24 dev link1")
    second = "{{ ansible_host | regex_replace('^.*[.]', '10.99.0.') }}"
    known: dict[str, t.Any] = {
        "cluster_links": ["{{ ansible_host }}", second],
        "firewall_extra_sources": ["10.99.0.0/24"],
    }
    role(**known)
    assert role(**known).count("changed=0") == len(HOSTS)
    assert "5405-5406" in on1("nft list ruleset")
    before = switch.read_text().count(" off ")
    table = "add table inet cut; add chain inet cut i { type filter hook input priority -300; }"
    cuts = {
        1: ("ip link set link1 down", "ip link set link1 up"),
        0: (f"nft '{table}; add rule inet cut i udp dport 5405 drop'", "nft delete table inet cut"),
    }
    until(lambda: links() == {(0, True), (1, True)}, 60)
    for number, (cut, mend) in cuts.items():
        LAB.on("hyper3", cut)
        until(functools.partial(is_cut, number), 60)
        time.sleep(15)  # three times the token
        assert "Quorate:          Yes" in LAB.on("hyper3", "corosync-quorumtool -s")
        assert "Online: [ hyper1 hyper2 hyper3 ]" in on1("crm_mon --one-shot")
        LAB.on("hyper3", mend)
        until(lambda: links() == {(0, True), (1, True)}, 60)
    assert switch.read_text().count(" off ") == before
    role()
    assert links() == {(0, True)}


def is_cut(number: int) -> bool:
    """True if hyper1 does not reach another member by the link."""
    return (number, False) in links()


def links() -> set[tuple[int, bool]]:
    """Of hyper1 to the others: the number of each link, and whether it is connected."""
    told = re.split(r"LINK ID ", on1("corosync-cfgtool -s || true"))[1:]
    return {
        (int(one[0]), said == "connected")
        for one in told
        for said in re.findall(r"nodeid: .*:\s+((?:dis)?connected)", one)
    }


SAN = [{"name": "san", "filesystems": [{"volume": "vms", "path": "/srv/vms"}]}]


def test_pacemaker_starts_shared_storage_in_order() -> None:
    """Of a copy of its configuration: the locks need a kernel with dlm."""
    settings = json.loads(on1("cat /etc/corral-virt/cluster/fencing.json"))
    settings |= {"properties": {}, "options": {"no-quorum-policy": "freeze"}, "guests": [], "volume_groups": SAN}
    configure = "cibadmin --query >/root/cib.xml && export CIB_file=/root/cib.xml && corral-cluster configure"
    on1(configure, given=json.dumps(settings))
    on1("crm_verify --xml-file /root/cib.xml")
    told = on1("crm_simulate --xml-file /root/cib.xml --simulate")
    for host in HOSTS:
        found = re.findall(rf"Resource action: corral-storage-([^\s:]+)\S* +start on {host}", told)
        assert found == ["dlm", "lvmlockd", "vg.san", "fs.san.vms"], told
    assert "CIB_file" in configure and "corral-storage" not in on1("cibadmin --query")


def test_a_host_that_dies_is_switched_off_before_its_guest_starts_elsewhere(switch: Path) -> None:
    on1(
        "systemctl start glusterd && mkdir -p /srv/brick && gluster --mode=script volume create vms hyper1:/srv/brick force"
    )
    on1("gluster volume start vms")
    for host in HOSTS:
        LAB.on(host, f"mkdir -p {SHARED} && mount -t glusterfs hyper1:/vms {SHARED}")
    disk = base64.b64encode(boot_sector(1)).decode()
    on1(f"base64 -d >{SHARED}/g.raw && truncate -s 8M {SHARED}/g.raw", given=disk)
    LAB.on(
        "hyper2", "cat >/root/g.xml && virsh -q define /root/g.xml && virsh -q start g && corral-keep save", given=GUEST
    )
    on1(
        "crm_attribute --node hyper1 --name standby --update on; crm_attribute --node hyper3 --name standby --update on"
    )
    role(cluster_guests=[RESOURCE])
    until(lambda: where() == ["hyper2"], 120)
    made = on1("cibadmin --query")
    assert 'id="corral-rule-guest-g.on.hyper2"' in made and 'name="migration-threshold" value="5"' in made
    on1("for n in hyper1 hyper3; do crm_attribute --node $n --name standby --update off; done; crm_resource --wait")
    assert where() == ["hyper2"]
    begun = time.monotonic()
    urllib.request.urlopen(f"http://{LAB.gateway}:{PORT}/hyper2/crash").read()
    until(where, 180)
    print(f"runs elsewhere after {time.monotonic() - begun:.1f} s")
    told = switch.read_text()
    assert re.search(r"^10\.86\.\d+\.1[13] hyper2 off off$", told, re.MULTILINE), told
    time.sleep(10)
    (now,) = where()
    assert now != "hyper2"
    fenced = on1("stonith_admin --history hyper2")
    assert "reboot of hyper2 successful" in fenced, fenced
    assert "started by Pacemaker" in on1(f"cat {SHARED}/.corral/guests/{UUID}/owner")


def test_a_host_that_returns_gets_no_guest_back() -> None:
    """Not even one that prefers it."""
    (host,) = where()
    urllib.request.urlopen(f"http://{LAB.gateway}:{PORT}/hyper2/on").read()
    mount = f"mountpoint -q {SHARED} || mount -t glusterfs hyper1:/vms {SHARED}"
    mounted = f"timeout 60 ssh -F {LAB.folder}/ssh_config -o ConnectTimeout=3 hyper2 '{mount}' && echo yes || true"
    until(lambda: "yes" in LAB.run("sh", "-c", mounted), 120)
    until(lambda: sorted(on1("crm_node --partition").split()) == sorted(HOSTS), 120)
    on1("crm_resource --wait")
    assert where() == [host]
    for one in HOSTS:  # as the timer does each minute
        LAB.on(one, "corral-keep save")
    assert "g" not in LAB.on("hyper2", "virsh list --all --name").split(), "its stale definition is gone"


def shown() -> str:
    """The guest's line of crm_mon, after all has settled."""
    return next(
        line for line in on1("crm_resource --wait; crm_mon --one-shot --inactive").splitlines() if "guest-g" in line
    )


def command(name: str, **options: str) -> str:
    """What a playbook of the collection prints."""
    given = [word for option in options.items() for word in ("-e", "=".join(option))]
    return LAB.run("ansible-playbook", f"corral.virt.{name}", *LAB.ask_nobody, *given)


def test_pacemaker_looks_away_while_playbooks_act() -> None:
    """It keeps a guest off that was shut down, and finds the one that was moved; a host in maintenance gets none."""
    (host,) = where()
    command("force_off", guest="g")
    assert shown().endswith("Stopped (disabled)") and where() == []
    assert "have Pacemaker keep g running (guest-g)" in command("start", guest="g")
    assert shown().endswith(f"Started {host}")
    to = next(one for one in HOSTS if one != host)
    command("migrate", guest="g", to=to)
    assert shown().endswith(f"Started {to}") and where() == [to]
    command("drain", host=to)
    assert f"Node {to}: standby" in on1("crm_mon --one-shot") and to not in where()
    command("undrain", host=to)
    assert "standby" not in on1("crm_mon --one-shot")
    assert "is-managed" not in on1("cibadmin --query") and "Failed Resource Actions" not in on1("crm_mon --one-shot")


def test_a_guest_that_others_have_moved_is_found_and_not_started_again() -> None:
    (host,) = where()
    to = next(one for one in HOSTS if one != host)
    # As the agent does it: QEMU's locks on Gluster go a moment after the migration.
    LAB.on(host, f"virsh -q migrate --live --p2p --persistent --suspend --tls g qemu+tls://{to}/system")
    until(lambda: where() == [to])
    LAB.on(to, "virsh -q resume g")
    until(lambda: shown().endswith(f"Started {to}"), 120)
    assert where() == [to]
    on1("crm_resource --cleanup --resource guest-g")


def test_a_guest_that_leaves_the_cluster_runs_on() -> None:
    before = where()
    assert "delete guest-g, forget guest-g" in role(cluster_guests=[])
    assert "guest-g" not in on1("crm_resource --wait; crm_mon --one-shot --inactive") and where() == before
    assert role(cluster_guests=[]).count("changed=0") == len(HOSTS)
    role(cluster_guests=[RESOURCE])
    assert shown().endswith(f"Started {before[0]}")


SMALL = """<domain type='qemu'><name>s</name><uuid>{uuid}</uuid><memory unit='MiB'>160</memory><vcpu>1</vcpu>
<metadata><corral:guest xmlns:corral='urn:corral:virt:guest:1'><corral:ha monitor-agent='yes'/></corral:guest></metadata>
<os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features><cpu mode='maximum'/>
<devices><disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none'/><source file='{place}/s.qcow2'/>
<target dev='vda' bus='virtio'/></disk><interface type='user'><mac address='52:54:00:00:00:09'/><model type='virtio'/>
</interface><channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
<serial type='pty'/></devices></domain>"""


def test_a_guest_that_hangs_is_started_anew() -> None:
    """Its agent is the lab's: it answers, and hangs when it is asked to."""
    (host,) = where()
    uuid, asks = UUID.replace("5b", "5c", 1), "virsh -q qemu-agent-command s --timeout 5"
    image = LAB.run(sys.executable, HERE / "lab.py", "small-image", "--name", LAB.name).strip()
    LAB.run("scp", "-q", "-F", LAB.folder / "ssh_config", image, f"{host}:{SHARED}/s.qcow2")
    define = "cat >/root/s.xml && virsh -q define /root/s.xml && virsh -q start s && corral-keep save"
    LAB.on(host, define, given=SMALL.format(uuid=uuid, place=SHARED))
    role(cluster_guests=[RESOURCE, {"name": "s", "uuid": uuid, "store": SHARED, "stop_timeout": 120}])
    on1("crm_resource --wait")
    until(lambda: "return" in LAB.on(host, f'{asks} \'{{"execute":"guest-ping"}}\' || true'), 300)
    note = f"cat /run/corral-cluster/agent-{uuid} 2>/dev/null || true"
    until(lambda: LAB.on(host, note).endswith(" 0"), 60)
    first = LAB.on(host, note).split()[0]
    LAB.on(host, f'{asks} \'{{"execute":"guest-hang"}}\' || true')
    until(lambda: "has not answered 3 times" in on1("crm_mon --one-shot"), 180)
    until(lambda: LAB.on(host, note).split()[:1] not in ([], [first]), 300)
    assert "return" in LAB.on(host, f'{asks} \'{{"execute":"guest-ping"}}\'')
    assert where() == [host]
    role(cluster_guests=[RESOURCE])
    LAB.on(host, "virsh -q destroy s && virsh -q undefine s && corral-keep save")
    on1(f"crm_resource --cleanup; rm {SHARED}/s.qcow2")


def test_a_guest_is_a_resource_while_it_is_protected() -> None:
    """Nothing is listed: its definition says it, and corral-keep does the rest."""
    (host,) = where()
    for one in sorted(HOSTS, key=lambda name: name == host):  # those that it has left give it up first
        LAB.on(one, KEEP)
    assert f'"host": "{host}"' in on1(f"cat {SHARED}/.corral/guests/{UUID}/owner")
    role()
    assert shown().endswith(f"Started {host}")
    assert role().count("changed=0") == len(HOSTS)
    for ha, resource in ((None, False), (HA, True)):
        edit = f"virsh -q metadata g urn:corral:virt:guest:1 --config --key corral --set '<guest>{ha or ''}</guest>'"
        LAB.on(host, f"{edit} && {KEEP}")
        assert ('"guest-g"' in on1("crm_resource --wait; cibadmin --query --scope resources")) == resource
        assert where() == [host]
    assert shown().endswith(f"Started {host}")


def test_a_protected_guest_that_is_purged_is_started_by_nobody() -> None:
    """Also if the run is killed while it waits for the guest: the next one ends it."""
    LAB.module("corral.virt.virt_pool", name="shared", type="dir", path=SHARED)
    disk = {"name": "system", "size": "8MiB", "format": "raw", "pool": "shared", "cache": "none"}
    guest: dict[str, t.Any] = {
        "name": "h",
        "memory": "32MiB",
        "vcpus": 1,
        "interfaces": [],
        "disks": [disk],
        "ha": {"mode": "restart"},
        "state": "running",
    }
    LAB.module("corral.virt.virt_domain", **guest)
    on1(f"{KEEP}; crm_resource --wait")
    assert '"guest-h"' in on1("cibadmin --query --scope resources")
    uuid = on1("virsh domuuid h")
    purge = ("ansible-playbook", *LAB.ask_nobody, "corral.virt.purge", "-e", "guest=h", "-e", "confirm=1")
    run = LAB.start(*purge)
    until(lambda: "guest-h-held" in on1("cibadmin --query"), 60)
    on1("kill -9 $(ps -o ppid= -p $(pgrep -of 'corral-cluster hold'))")
    run.communicate(timeout=60)
    assert on1("virsh domstate h") == "running"
    told = LAB.run(*purge, "-e", "wait_timeout=1")
    assert "have Pacemaker forget h (guest-h)" in told
    on1(f"{KEEP}; crm_resource --wait")
    for host in HOSTS:
        LAB.on(host, KEEP)
        assert "h" not in LAB.on(host, "virsh list --all --name").split()
    seen = on1(
        f"crm_mon --one-shot --inactive; cibadmin --query; ls {SHARED}; cat {SHARED}/.corral/guests/{uuid}/owner"
    )
    assert "guest-h" not in seen and "h-system" not in seen and "no longer defined on hyper1" in seen
    # One that is off: the others are asked.
    LAB.module("corral.virt.virt_domain", **guest)
    on1(f"{KEEP}; crm_resource --wait")
    command("force_off", guest="h")
    assert "have Pacemaker forget h (guest-h)" in command("purge", guest="h", confirm="1")
    assert "guest-h" not in on1("cibadmin --query") and "h-system" not in on1(f"ls {SHARED}")


def test_a_member_that_leaves_hands_its_guest_over_alive() -> None:
    (host,) = where()
    leaves = LAB.folder / f"inventory/host_vars/{host}/cluster.yml"
    leaves.parent.mkdir(parents=True, exist_ok=True)
    leaves.write_text("cluster_state: absent\n")
    role(cluster_guests=[RESOURCE])
    (now,) = where()
    assert now != host and "-incoming" in LAB.on(now, f"pgrep -af '[-]uuid {UUID}'"), "it was not started anew"
    nodes = re.findall(r' uname="(\w+)"', LAB.on(now, "cibadmin --query --scope nodes"))
    assert sorted(nodes) == sorted({*HOSTS} - {host})
    left = (
        "systemctl is-active corosync pacemaker; ls /etc/corosync/corosync.conf /etc/corosync/authkey 2>/dev/null; true"
    )
    assert LAB.on(host, left).split() == ["inactive", "inactive"]
    told = role(cluster_guests=[RESOURCE])
    assert told.count("changed=0") == len(HOSTS), told[-2000:]


def test_of_two_members_one_goes_on_with_the_vote_of_a_third_host() -> None:
    (leaves,) = (LAB.folder / "inventory/host_vars").glob("*/cluster.yml")
    leaves.unlink()
    witness = leaves.parent.name
    members = [host for host in HOSTS if host != witness]
    known: dict[str, t.Any] = {"cluster_hosts": members, "cluster_quorum_device": witness, "cluster_guests": [RESOURCE]}
    role(**known)
    assert re.search(r"^Flags: +Quorate Qdevice", LAB.on(members[0], "corosync-quorumtool -s"), re.MULTILINE)
    assert role(**known).count("changed=0") == len(HOSTS)
    dies = members[1] if members[0] == "hyper1" else members[0]  # hyper1 has the storage
    urllib.request.urlopen(f"http://{LAB.gateway}:{PORT}/{dies}/crash").read()
    stays = next(host for host in members if host != dies)
    until(lambda: f"reboot of {dies} successful" in LAB.on(stays, f"stonith_admin --history {dies}"), 120)
    until(lambda: where() == [stays], 180)
    assert "partition with quorum" in LAB.on(stays, "crm_mon --one-shot")
