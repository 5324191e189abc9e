"""A host is killed, and its protected guests run on the other one: on exactly one host at any time, also when the dead host
comes back, and when the run itself is killed. Judged by virsh and ps on both hosts.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.faults.boot_sector import boot_sector, count
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import HERE, Hypervisors, hypervisors, packages

pytestmark = [pytest.mark.lab, pytest.mark.deep]

LAB = Hypervisors("recover")
on1, on2 = (functools.partial(LAB.on, host) for host in ("hyper1", "hyper2"))
PORTS = ["16514/tcp", "24007-24008/tcp", "49152-60999/tcp"]
SHARED = "/srv/shared"
KEEPS = {"hypervisor_keeps_definitions": True, "hypervisor_packages": [], "hypervisor_security_packages": []}
RECOVER = ("ansible-playbook", *LAB.ask_nobody, "playbooks/recover.yml", "-e", "host=hyper2")
CONFIRMED = (*RECOVER, "-e", "confirm_dead=hyper2")
LEASES = f"{SHARED}/.corral/leases"
LUN = "/dev/loop142"  # all hosts of a lab share their kernel's: each sees it as it would see a LUN


@pytest.fixture(scope="module", autouse=True)
def recovering() -> Iterator[None]:
    """Two hypervisors that share a Gluster volume of hyper1; both keep definitions."""
    with hypervisors("recover", hosts=2):
        LAB.play(
            {"ansible.builtin.include_role": {"name": "corral.virt.firewall"}, "vars": {"firewall_ports": PORTS}},
            {"ansible.builtin.setup": {}},
            {"ansible.builtin.include_role": {"name": "corral.virt.hypervisor"}, "vars": KEEPS},
            hosts="hyper",
        )
        on1("systemctl enable --now glusterd")
        create = "gluster --mode=script volume create vms hyper1:/srv/brick force && gluster volume start vms"
        on1(f"mkdir -p /srv/brick; gluster volume info vms >/dev/null 2>&1 || {{ {create}; }}")
        for on in (on1, on2):
            on(
                f"mkdir -p {SHARED}; virsh -q pool-info shared >/dev/null 2>&1 || virsh -q pool-define-as shared netfs "
                f"--source-host hyper1 --source-path /vms --source-format glusterfs --target {SHARED}; "
                "virsh -q pool-autostart shared; virsh -q pool-start shared 2>/dev/null; virsh -q pool-info shared | grep running"
            )
        yield


def power(host: str, *, on: bool) -> None:
    """Pull a host's plug, or boot it again."""
    if on:
        subnet = LAB.gateway.split(".")[2]
        shape = ("--hosts", "2", "--no-image", "--packages", ",".join(packages()), "--subnet", subnet)
        LAB.run(sys.executable, HERE / "lab.py", "up", "--name", LAB.name, *shape, timeout_s=300)
        LAB.on(host, "systemctl start libvirtd; virsh -q pool-start shared; virsh -q pool-info shared | grep running")
        return
    end = f"from corral_lab import processes; processes.end({LAB.name!r}, {host!r})"
    subprocess.run([sys.executable, "-c", end], cwd=HERE, check=True)


def made(name: str, host: str = "hyper2", **more: t.Any) -> None:
    """A protected guest that runs there and writes its disk without end."""
    options = {
        "name": name,
        "vcpus": 1,
        "memory": "64MiB",
        "interfaces": [],
        "disks": [{"name": "system", "size": "64MiB", "pool": "shared", "format": "raw"}],
        "state": "shutdown",
        "ha": {"mode": "restart"},
        **more,
    }
    LAB.tell({"corral.virt.virt_domain": options, "register": "told"}, hosts=host)
    path = LAB.on(host, f"virsh domblklist {name} | awk '/vda/ {{print $2}}'")
    LAB.on(host, f"base64 -d | dd of={path} conv=notrunc status=none", given=_boot())
    LAB.on(host, f"virsh -q start {name}")
    until(lambda: owner(name, host) == host)


@functools.cache
def _boot() -> str:
    return base64.b64encode(boot_sector(1)).decode()


def owner(name: str, host: str) -> str:
    """Who owns a guest, as the file says it."""
    told = LAB.on(host, f"cat {SHARED}/.corral/guests/$(virsh domuuid {name})/owner 2>/dev/null; true")
    return str(json.loads(told)["host"]) if told else "never saved"


def runs_on(name: str) -> list[str]:
    """The hosts where a QEMU of the guest runs."""
    found = [host for host in ("hyper1", "hyper2") if LAB.on(host, f"pgrep -f '[g]uest={name},'; true")]
    for host in found:
        assert LAB.on(host, f"virsh domstate {name}") == "running"
    return found


def writes(name: str, host: str) -> None:
    """The guest writes, and nobody else has written its disk."""
    path = LAB.on(host, f"virsh domblklist {name} | awk '/vda/ {{print $2}}'")

    def written() -> int:
        LAB.on(host, f"virsh -q suspend {name}; cp {path} /root/copy; virsh -q resume {name}")
        copied = subprocess.run(
            ["ssh", "-F", LAB.folder / "ssh_config", host, "cat /root/copy"], capture_output=True, check=True
        )
        return count(copied.stdout)

    first = written()
    until(lambda: written() > first)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Each test begins with no guest."""
    yield
    if subprocess.run(["ssh", "-F", LAB.folder / "ssh_config", "hyper2", "true"], check=False).returncode:
        power("hyper2", on=True)
    for on in (on1, on2):
        on(
            "for g in $(virsh list --all --name); do virsh -q destroy $g; virsh -q undefine $g --nvram; done 2>/dev/null; "
            f"rm -rf {SHARED}/* {SHARED}/.corral; /usr/local/sbin/corral-keep save >/dev/null; true"
        )


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_guests_of_a_killed_host_run_on_the_other_one_and_never_on_both() -> None:
    made("g")
    made("h", ha={"mode": "restart", "priority": 100})
    said = flat(LAB.run(*CONFIRMED, ok=False))
    assert "hyper2 answers" in said and runs_on("g") == ["hyper2"] and owner("g", "hyper2") == "hyper2"
    on2(f"virsh -q dumpxml g --inactive > {SHARED}/g.xml")
    on1(f"virsh -q define {SHARED}/g.xml")
    refused = on1("virsh start g 2>&1; true")
    assert "its owner is hyper2 since" in refused and "corral-keep claim" in refused, refused
    on1("virsh -q undefine g")

    power("hyper2", on=False)
    said = flat(LAB.run(*RECOVER, ok=False))
    assert "nothing proves that hyper2 is dead" in said and "-e fence=true" in said and "-e confirm_dead=hyper2" in said
    said = LAB.run(*CONFIRMED, "--check")
    assert "g -> hyper1" in said and not on1("virsh list --all --name")
    LAB.run(*CONFIRMED)
    assert on1("virsh list --name").split() == ["h", "g"], "by their priority"
    for name in ("g", "h"):
        assert owner(name, "hyper1") == "hyper1"
        writes(name, "hyper1")
    assert "no protected guest of it is kept" in LAB.run(*CONFIRMED)
    here = ("ansible-playbook", *LAB.ask_nobody, "--limit", "hyper1")
    said = LAB.run(*here, "playbooks/query.yml", "-e", "guest=h")
    assert (
        "Protected: restart, priority 100, by playbook recover" in said and f"Kept in: {SHARED}/.corral/guests/" in said
    )
    assert re.search(r"Failed over: \S+ from hyper2 to hyper1: recovered from hyper2", said), said
    assert "g (protected)" in LAB.run(*here, "playbooks/list.yml")

    power("hyper2", on=True)
    refused = on2("mv /usr/local/sbin/corral-keep /root/later; virsh start g 2>&1; true")
    assert "its owner is hyper1 since" in refused and "recovered from hyper2" in refused, refused
    assert runs_on("g") == ["hyper1"] and not on2("virsh list --name")
    refused = flat(LAB.run("ansible-playbook", *LAB.ask_nobody, "playbooks/pause.yml", "-e", "guest=g", ok=False))
    assert "g is on hyper1 (running) and on hyper2 (off)" in refused, refused
    text = on2("virsh -q dumpxml g --inactive --security-info | sha256sum")
    saved = on2("mv /root/later /usr/local/sbin/corral-keep; corral-keep save")
    lines = {line["guest"]: line for line in map(json.loads, saved.splitlines())}
    assert {name: line["action"] for name, line in lines.items()} == {"g": "removed", "h": "removed"}, lines
    assert on2("virsh list --all --name") == "" and on2("corral-keep save") == ""
    assert on2(f"sha256sum <{SHARED}/.corral/guests/{lines['g']['uuid']}/stale.xml") == text
    for name in ("g", "h"):
        assert owner(name, "hyper1") == "hyper1" and runs_on(name) == ["hyper1"], "it was not hyper2's to give up"
        told = json.loads(on1(f"cat {SHARED}/.corral/guests/{lines[name]['uuid']}/history"))
        assert [(one["from"], one["to"], one["why"]) for one in told] == [
            ("", "hyper2", "saved"),
            ("hyper2", "hyper1", "recovered from hyper2"),
        ]


LOOK = r"""#!/bin/sh
# Copies what a guest's firmware and TPM are, at the moment before it starts.
[ "$2" = prepare ] && tar -C /var/lib/libvirt -cf "/root/$1.tar" --exclude .lock qemu/nvram swtpm
exit 0
"""


def test_a_recovered_guest_has_the_uefi_variables_and_the_tpm_that_were_kept() -> None:
    """Byte for byte at its start; a variable store that differs from every new one, and a TPM that was made once."""
    wish = {
        "name": "u",
        "state": "running",
        "vcpus": 1,
        "memory": "256MiB",
        "interfaces": [],
        "ha": {"mode": "restart"},
    }
    wish |= {"disks": [{"name": "system", "size": "8MiB", "pool": "shared"}], "firmware": "efi"}
    LAB.tell({"corral.virt.virt_domain": {**wish, "tpm": {"model": "tpm-crb"}}, "register": "told"}, hosts="hyper2")
    files = "$(find qemu/nvram swtpm -type f ! -name '*.lock' ! -path '*/.*' | sort)"
    sums = f"cd /var/lib/libvirt && sha256sum {files}"
    until(lambda: on2(sums).count("\n") >= 1, 60)
    on2("virsh -q suspend u")  # neither its firmware nor its TPM writes any more
    on2(
        "printf corral >/root/mark && dd if=/root/mark of=$(ls /var/lib/libvirt/qemu/nvram/u_VARS.fd) bs=1 seek=250000 conv=notrunc"
    )
    before = on2(sums)
    assert "u_VARS.fd" in before and "tpm2-00.permall" in before
    on2("corral-keep save")
    assert owner("u", "hyper2") == "hyper2"
    power("hyper2", on=False)
    on1(
        "cat >/etc/libvirt/hooks/qemu.d/90-look && chmod 755 /etc/libvirt/hooks/qemu.d/90-look && systemctl restart libvirtd",
        given=LOOK,
    )
    LAB.run(*CONFIRMED)
    on1("rm /etc/libvirt/hooks/qemu.d/90-look")
    assert (
        on1(f"rm -rf /root/u && mkdir /root/u && tar -C /root/u -xf /root/u.tar && cd /root/u && sha256sum {files}")
        == before
    )
    assert on1("virsh list --name") == "u" and on1("pgrep -f '[s]wtpm.*u-swtpm'")
    on1("corral-keep save")
    kept = f"{SHARED}/.corral/guests/$(virsh domuuid u)/nvram"
    assert (
        on1(f"cmp $(virsh dumpxml u | sed -n 's:.*<nvram[^>]*>\\(.*\\)</nvram>.*:\\1:p') {kept} && echo same") == "same"
    )


def test_a_guest_that_only_the_dead_host_had_comes_back_from_its_backup() -> None:
    wish = {"name": "l", "vcpus": 1, "memory": "64MiB", "interfaces": [], "state": "shutdown"}
    wish |= {"disks": [{"name": "system", "size": "64MiB", "pool": "default", "format": "raw"}]}
    LAB.tell({"corral.virt.virt_domain": wish, "register": "told"}, hosts="hyper2")
    path = on2("virsh domblklist l | awk '/vda/ {print $2}'")
    on2(f"base64 -d | dd of={path} conv=notrunc status=none && virsh -q start l", given=_boot())
    on2(f"mkdir -p {SHARED}/backup")
    backup = {"repository": f"{SHARED}/backup", "guests": ["l"]}
    LAB.tell({"corral.virt.virt_backup": backup, "register": "told"}, hosts="hyper2")
    confirmed = (*CONFIRMED, "-e", f"repository={SHARED}/backup")
    restoring = (*confirmed, "-e", "from_backup=l")
    assert "hyper2 answers" in flat(LAB.run(*restoring, ok=False)) and runs_on("l") == ["hyper2"]

    power("hyper2", on=False)
    told = (
        r"l: only hyper2 had it; its backup \S+ is \d+ (seconds|minutes) old, not proven, in the repository of hyper1"
    )
    for run in (confirmed, (*restoring, "--check")):
        assert re.search(told, flat(LAB.run(*run))) and not on1("virsh list --all --name")
    unproven = (*RECOVER, "-e", f"repository={SHARED}/backup", "-e", "from_backup=l")
    assert "nothing proves that hyper2 is dead" in flat(LAB.run(*unproven, ok=False))
    said = flat(LAB.run(*restoring))
    assert re.search(told, said) and "l -> hyper1" in said and "hyper2 still has its own copies" in said, said
    assert on1("virsh list --name") == "l"
    writes("l", "hyper1")
    assert "from_backup: l is on hyper1; start it" in flat(LAB.run(*restoring, ok=False))


def kill_while_it_recovers(running: subprocess.Popen[str]) -> None:
    """Kill a run, and all that it started here, when it has done one more thing."""
    look = f"cat {SHARED}/.corral/guests/*/owner; virsh list --all"
    before = on1(look)
    until(lambda: running.poll() is not None or on1(look) != before)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def test_a_run_that_is_killed_is_continued() -> None:
    for name in ("a", "b", "c"):
        made(name)
    power("hyper2", on=False)
    for _again in range(3):
        kill_while_it_recovers(LAB.start(*CONFIRMED))
    LAB.run(*CONFIRMED)
    assert sorted(on1("virsh list --name").split()) == ["a", "b", "c"]
    power("hyper2", on=True)
    assert {name: runs_on(name) for name in ("a", "b", "c")} == {name: ["hyper1"] for name in "abc"}


def test_a_guest_whose_disk_has_moved_starts_from_where_it_is() -> None:
    """Its old directory leads there; a host with the old definition does not start it from a copy that was left."""
    made("g")
    for on in (on1, on2):
        pool = f"virsh -q pool-define-as other dir --target {SHARED}/other; virsh -q pool-start other"
        on(f"mkdir -p {SHARED}/other; virsh -q pool-info other >/dev/null 2>&1 || {{ {pool}; }}")
    on2(f"virsh -q dumpxml g --inactive >{SHARED}/g.xml; cp {SHARED}/g-system* /root/")
    on1(f"virsh -q define {SHARED}/g.xml")
    moved = {"guest": "g", "disk": "system", "pool": "other"}
    LAB.tell({"corral.virt.virt_disk_move": moved, "register": "told"}, hosts="hyper2")
    until(lambda: f"{SHARED}/other" in on2('corral-keep show | grep -o \'"directory": "[^"]*\''), 90)
    assert on2("corral-keep show").count("\n") == 0 and "moved to" in owner_why("g")
    on2(f"cp /root/g-system* {SHARED}/")
    refused = on1("virsh start g 2>&1; true")
    assert f"its disk has moved to {SHARED}/other" in refused, refused
    power("hyper2", on=False)
    LAB.run(*CONFIRMED)
    assert on1("virsh list --name") == "g" and f"{SHARED}/other" in on1("virsh domblklist g")
    writes("g", "hyper1")


def owner_why(name: str) -> str:
    """Why the directory that a guest's disk has left has no owner."""
    told = on1(f"cat {SHARED}/.corral/guests/$(virsh domuuid {name})/owner")
    return str(json.loads(told)["why"])


def test_a_migration_hands_the_guest_over_also_by_hand() -> None:
    made("g")
    LAB.tell({"corral.virt.virt_migrate": {"name": "g", "dest": "hyper1"}, "register": "told"}, hosts="hyper2")
    assert runs_on("g") == ["hyper1"]
    until(lambda: owner("g", "hyper1") == "hyper1", 90)
    on1("virsh -q migrate --live --p2p --persistent g qemu+tls://hyper2/system")  # its definition stays
    assert runs_on("g") == ["hyper2"]
    until(lambda: owner("g", "hyper2") == "hyper2", 90)
    refused = on1("virsh start g 2>&1; true")
    assert "its owner is hyper2" in refused, refused
    writes("g", "hyper2")


def test_a_fence_agent_powers_the_host_off(tmp_path: Path) -> None:
    made("g")
    agent = tmp_path / "fence_lab"
    agent.write_text(
        textwrap.dedent(f"""\
        #!{sys.executable}
        import sys
        sys.path.insert(0, {str(HERE)!r})
        from corral_lab import processes
        given = dict(line.rstrip("\\n").split("=", 1) for line in sys.stdin)
        if given["action"] == "off":
            processes.end({LAB.name!r}, given["plug"])
            sys.exit(0)
        sys.exit(0 if processes.find({LAB.name!r}, given["plug"]) else 2)
        """)
    )
    agent.chmod(0o755)
    fence = json.dumps({"virt_fence": {"agent": str(agent), "options": {"plug": "hyper2"}}})
    said = flat(LAB.run(*RECOVER, "-e", "fence=true", "-e", fence, ok=False))
    assert "hyper2 answers" in said and runs_on("g") == ["hyper2"]
    LAB.run(*CONFIRMED, "-e", "fence=true", "-e", fence)
    assert on1("virsh list --name") == "g"
    writes("g", "hyper1")


def test_a_fence_agent_that_lies_starts_nothing(tmp_path: Path) -> None:
    """It says off, and the host goes on: only one host writes, and the command that is told gives the guest back."""
    made("g")
    agent = tmp_path / "fence_liar"
    agent.write_text("#!/bin/sh\ngrep -q action=off && exit 0\nexit 2\n")
    agent.chmod(0o755)
    fence = json.dumps({"virt_fence": {"agent": str(agent)}})
    said = flat(LAB.run(*CONFIRMED, "-e", "fence=true", "-e", fence, ok=False))
    assert "g: hyper2 answers again, so it may run there" in said, said
    assert runs_on("g") == ["hyper2"] and not on1("virsh list --all --name")
    told = re.search(r"if it does, run on it: (corral-keep claim .*?'it runs here')", said)
    assert told, said
    on2(told[1])
    assert owner("g", "hyper2") == "hyper2"
    writes("g", "hyper2")


def leases(directory: str, *flags: str) -> str:
    """What the role storage prints, on both hosts."""
    options = {"storage_pools": [], "storage_leases": directory}
    role = {"ansible.builtin.include_role": {"name": "corral.virt.storage"}, "vars": options}
    return flat(LAB.play({"ansible.builtin.setup": {}}, role, hosts="hyper", flags=flags))


@pytest.fixture
def lun() -> Iterator[None]:
    """A block device of both hosts, and a guest on each that has it: `one` on hyper1, `two` on hyper2."""
    for name, on in (("one", on1), ("two", on2)):
        xml = (
            f"<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory>"
            "<os><type arch='x86_64' machine='pc'>hvm</type></os><devices><disk type='block' device='disk'>"
            f"<driver name='qemu' type='raw'/><source dev='{LUN}'/><target dev='vda' bus='virtio'/></disk></devices></domain>"
        )
        on(f"mknod {LUN} b 7 142; cat >/root/guest.xml && virsh -q define /root/guest.xml", given=xml)
    on1(f"truncate -s 8M /root/lun && losetup {LUN} /root/lun")
    yield
    for on in (on1, on2):
        on("virsh -q destroy one; virsh -q destroy two; true")
    leases("")
    on1(f"losetup -d {LUN}")


@pytest.mark.usefixtures("lun")
def test_with_leases_no_disk_is_opened_twice() -> None:
    files = "sha256sum /etc/libvirt/qemu.conf /etc/libvirt/qemu-lockd.conf"
    before = on1(files)
    on1("virsh -q start one")
    pid = on1("pgrep -f '[g]uest=one,'")
    assert "changed=0" not in leases(LEASES, "--check") and on1(f"{files}; ls {SHARED}/.corral; true") == before
    told = leases(LEASES)
    assert "without leases of their disks until their next start: one;" in told and told.count("next start:") == 1, told
    assert leases(LEASES).count("changed=0") == 2
    assert on1("pgrep -f '[g]uest=one,'") == pid and on1(f"ls {LEASES}") == ""

    on1("virsh -q destroy one; virsh -q start one")
    assert "without leases" not in leases(LEASES)
    assert "is locked" in on2("virsh start two 2>&1; true") and not on2("virsh list --name")
    options = {"corral.virt.virt_domain": {"name": "two", "state": "running"}}
    told = flat(LAB.play(options, hosts="hyper2", ok=False))
    assert "is locked; run ansible-playbook corral.virt.query to find the guest" in told, told
    told = flat(LAB.run("ansible-playbook", "corral.virt.start", *LAB.ask_nobody, "-e", "guest=two", ok=False))
    assert "two: its disks are held by one on hyper1 (running)" in told, told
    on1("virsh -q destroy one")
    on2("virsh -q start two")
    assert "is locked" in on1("virsh start one 2>&1; true")

    made("g")
    LAB.tell({"corral.virt.virt_migrate": {"name": "g", "dest": "hyper1"}, "register": "told"}, hosts="hyper2")
    assert runs_on("g") == ["hyper1"] and "without leases" not in leases(LEASES)
    on1("virsh -q destroy g")
    assert len(on1(f"ls {LEASES}").split()) == 1, "only that of the guest two"

    leases("")
    assert on1(files) == before and leases("").count("changed=0") == 2
    on2("virsh -q destroy two; virsh -q start two")
    on1("virsh -q start one")  # nothing else guarded the device


def test_leases_on_a_filesystem_of_the_host_are_refused() -> None:
    options = {"block": "leases", "leases": "/var/lib/leases"}
    said = flat(LAB.play({"corral.virt.virt_daemon": options}, ok=False))
    assert "cannot keep leases in /var/lib/leases: it is on a filesystem of this host alone" in said
