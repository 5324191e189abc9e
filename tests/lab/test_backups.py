"""Backups of guests that write meanwhile: judged by virsh, qemu-img, sha256sum and the numbers that the guest wrote."""

from __future__ import annotations

import base64
import functools
import gzip
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
import typing as t
import urllib.request
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.faults.boot_sector import boot_sector, count
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES, ROOT, Hypervisors, hypervisors, packages

pytestmark = pytest.mark.lab

LAB = Hypervisors("backup")
on = functools.partial(LAB.on, "hyper1")
REPOSITORY = "/srv/backup"
STATE = f"virsh dumpxml --inactive g; virsh checkpoint-list --name g; find {REPOSITORY} | sort"


@pytest.fixture(scope="module", autouse=True)
def hypervisor() -> Iterator[None]:
    """Two hypervisors of two releases."""
    with hypervisors("backup", hosts=2, more=("--host", "hyper2=trixie")):
        for host in ("hyper1", "hyper2"):
            boot = base64.b64encode(boot_sector(1)).decode()
            LAB.on(host, f"base64 -d > /root/boot; mkdir -p {IMAGES} {REPOSITORY}", given=boot)
        yield


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """What a test makes goes with it."""
    yield
    for host in ("hyper1", "hyper2"):
        LAB.on(
            host,
            "virsh -q destroy g; virsh -q undefine g --snapshots-metadata --checkpoints-metadata 2>/dev/null; "
            f"umount {REPOSITORY} 2>/dev/null; find {IMAGES} {REPOSITORY} -mindepth 1 -delete; "
            "virsh -q pool-refresh default; true",
        )


def backup(*, check: bool = False, host: str = "hyper1", **options: t.Any) -> dict[str, t.Any]:
    """What the module answers of the guest."""
    task = {"corral.virt.virt_backup": {"guests": ["g"], "repository": REPOSITORY, **options}, "register": "told"}
    return t.cast("dict[str, t.Any]", LAB.tell(task, hosts=host, check=check)[host]["results"][0])


def refused(**options: t.Any) -> str:
    """Why there is no backup."""
    return LAB.module("virt_backup", ok=False, **{"guests": ["g"], "repository": REPOSITORY, **options})


def points(host: str = "hyper1", **options: t.Any) -> tuple[list[dict[str, t.Any]], list[str]]:
    """The points of the guest, and what there is to see to."""
    task = {"corral.virt.virt_backup_info": {"repository": REPOSITORY, **options}, "register": "told"}
    told = LAB.tell(task, hosts=host)[host]
    return (told["guests"][0]["points"] if told["guests"] else []), told["problems"]


def guest(*, raw: bool = False, start: bool = True) -> None:
    """A guest that numbers the sectors of its first disk, which stands on another file."""
    on(f"qemu-img create -q -f qcow2 {IMAGES}/base 32M; qemu-io -c 'write -q -P 3 24M 2M' {IMAGES}/base")
    on(
        f"qemu-img create -q -f qcow2 -b {IMAGES}/base -F qcow2 {IMAGES}/a; "
        f"qemu-io -c 'write -q -s /root/boot 0 512' {IMAGES}/a"
    )
    on(f"head -c 2M /dev/urandom > {IMAGES}/b; qemu-img resize -q -f raw {IMAGES}/b 8M" if raw else "true")
    forms = {"a": "qcow2", **({"b": "raw"} if raw else {})}
    disks = "".join(
        f"<disk type='file' device='disk'><driver name='qemu' type='{form}'/><source file='{IMAGES}/{name}'/>"
        f"<target dev='vd{name}' bus='virtio'/></disk>"
        for name, form in forms.items()
    )
    xml = (
        "<domain type='qemu'><name>g</name><memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm"
        f"</type></os><features><acpi/></features><devices>{disks}<serial type='pty'/></devices></domain>"
    )
    on("cat > /root/g.xml && virsh -q define /root/g.xml && virsh -q pool-refresh default", given=xml)
    if start:
        on("virsh -q start g")
        grows(0)


def numbers(path: str, host: str = "hyper1") -> int:
    """How many sectors a disk has; all of them are right."""
    raw = LAB.on(
        host,
        f"qemu-img convert -U -O raw {path} /root/raw && head -c 4M /root/raw | gzip | base64 -w0; rm -f /root/raw",
    )
    return count(gzip.decompress(base64.b64decode(raw)))


def grows(before: int) -> None:
    """Wait until the guest has written more."""
    until(lambda: numbers(f"{IMAGES}/a") > before + 3, 60, every_s=0.5)


def file_of(point: str, name: str = "vda.qcow2") -> str:
    return f"{REPOSITORY}/$(virsh domuuid g)/{point}/{name}"


def zero(path: str) -> str:
    """The digest of what a disk holds."""
    return on(f"qemu-img convert -U -O raw {path} /root/raw; sha256sum </root/raw; rm /root/raw").split()[0]


def test_each_point_is_whole_and_holds_only_what_was_changed() -> None:
    guest(raw=True)
    before = on(STATE)
    checked = backup(check=True)
    assert on(STATE) == before, "check mode changes nothing"
    first = backup()
    assert [one.partition(" (")[0] for one in checked["steps"]] == [one.partition(" (")[0] for one in first["steps"]]
    assert [disk["reason"] is not None for disk in first["disks"]] == [True, True]
    made = [first["point"]]
    for _ in range(2):
        grows(numbers(file_of(made[-1])))
        told = backup()
        assert (told["disks"][0]["reason"], told["disks"][0]["parent"]) == (None, made[-1])
        assert "raw" in told["disks"][1]["reason"]
        made.append(told["point"])
    assert on("virsh checkpoint-list --name g").split() == [f"corral-{made[-1]}"]
    held = [numbers(file_of(point)) for point in made]
    assert held == sorted(set(held)), "each has more than the one before"
    sizes = [int(on(f"stat -c %s {file_of(point)}")) for point in made]
    assert max(sizes[1:]) < sizes[0] / 2, "the pattern of the disk below is in the first alone"
    on("virsh -q suspend g")
    last = backup()["point"]
    on("virsh -q destroy g --graceful")
    assert "identical" in on(f"qemu-img compare {file_of(last)} {IMAGES}/a")
    assert "identical" in on(f"qemu-img compare -F raw {file_of(last, 'vdb.qcow2')} {IMAGES}/b")
    there, problems = points(verify=True)
    assert [point["id"] for point in there] == [*made, last] and problems == []
    assert on(f"stat -c '%a %U' {file_of(last)} {file_of(last, '')}").split() == ["400", "root", "700", "root"]
    on(f"printf x | dd of={file_of(made[1])} bs=1 seek=300000 conv=notrunc status=none")
    there, problems = points(verify=True)
    assert [point["restorable"] for point in there] == [True, False, False, False]
    assert f"backup {made[1]} of g: its file vda.qcow2 is damaged" in problems[0]


@pytest.mark.deep
def test_off_it_is_copied_once_and_lost_bitmaps_are_told() -> None:
    guest()
    first = backup()["point"]
    on("virsh -q destroy g --graceful")
    off = backup()
    assert off["disks"][0]["reason"] == "all, as the guest is off"
    assert "identical" in on(f"qemu-img compare {file_of(off['point'])} {IMAGES}/a")
    again = backup()
    assert not again["changed"] and "was not written since" in again["notes"][0]
    on("virsh -q start g")
    on_again = backup()
    assert on_again["disks"][0]["parent"] == first, "its bitmap has gone on since then"
    on("kill -9 $(cat /run/libvirt/qemu/g.pid)")
    until(lambda: on("virsh domstate g") == "shut off", 20, every_s=0.5)
    on("virsh -q start g")
    killed = backup()
    assert "QEMU was killed" in killed["disks"][0]["reason"] and not killed["disks"][0]["parent"]
    on("virsh -q blockresize g vda 40M")
    assert "its size was 32 MiB" in backup()["disks"][0]["reason"]
    assert len(on("virsh checkpoint-list --name g").split()) == 1


@pytest.mark.deep
def test_old_points_go_but_none_that_another_stands_on() -> None:
    guest()
    made = [backup(increments=1)["point"] for _ in range(3)]
    there, _ = points()
    assert [disk["depth"] for point in there for disk in point["disks"]] == [0, 1, 0], "the third was made whole"
    on(f"qemu-img info {file_of(made[2])} | grep -c backing", ok=False)
    assert made[1] in refused(state="absent", point=made[0])
    kept = backup(increments=1, keep={"daily": 1})
    assert [point["id"] for point in points()[0]] == [made[2], kept["point"]], "the last stands on the third"
    assert numbers(file_of(kept["point"])) > 0


def test_a_repository_is_what_it_should_be() -> None:
    guest(start=False)
    for wrong, why in ((f"{REPOSITORY}/none", "there is no directory"), (IMAGES, "is no repository of backups")):
        assert why in refused(repository=wrong)
    on("mkdir -m 700 /srv/closed; mkdir -p /srv/closed/backup")
    assert "chmod o+x /srv/closed" in refused(repository="/srv/closed/backup")
    on(f"mount -t tmpfs -o size=1m,mode=755 none {REPOSITORY}")
    assert "make room" in refused()
    assert on(f"ls {REPOSITORY}") == ""


def test_a_full_repository_and_a_killed_run_leave_the_points_as_they_are() -> None:
    """What was changed until then is in the next one."""
    guest()
    on(f"mount -t tmpfs -o size=80m,mode=755 none {REPOSITORY}")
    first = backup()["point"]
    on(f"dd if=/dev/zero of={REPOSITORY}/$(virsh domuuid g)/filling bs=1M status=none || true", ok=True)
    assert "make room" in refused()
    on(f"rm {REPOSITORY}/$(virsh domuuid g)/filling")
    part = f"{REPOSITORY}/$(virsh domuuid g)/20260101T000000Z-00000000.part"
    on(f"mkdir {part}; echo half > {part}/vda.qcow2")
    on(
        "virsh checkpoint-create-as g corral-20260101T000000Z-00000000 --diskspec vda "
        f"--description 'corral.virt backup, repository '$(grep -o '[0-9a-f-]\\{{36\\}}' {REPOSITORY}/corral-backup.json)"
    )
    grows(numbers(file_of(first)))
    told = backup()
    assert told["disks"][0]["parent"] == first
    assert [step.partition(" of g")[0] for step in told["steps"]][:2] == [
        "delete checkpoint corral-20260101T000000Z-00000000",
        "delete the interrupted backup 20260101T000000Z-00000000",
    ]
    assert on(f"test ! -e {part} && virsh checkpoint-list --name g").split() == [f"corral-{told['point']}"]
    assert numbers(file_of(told["point"])) > numbers(file_of(first))


@pytest.mark.deep
def test_the_chain_goes_on_after_a_migration() -> None:
    """To the other release and back; the repository is the same on both."""
    guest()
    made = [backup()["point"]]
    for source, dest in (("hyper1", "hyper2"), ("hyper2", "hyper1")):
        move = {"corral.virt.virt_migrate": {"name": "g", "dest": dest}}
        LAB.play(move, hosts=source)
        carry = f"tar -C {REPOSITORY} -c . | base64 -w0"
        LAB.on(dest, f"base64 -d | tar -C {REPOSITORY} -x", given=LAB.on(source, carry))
        told = backup(host=dest)
        assert any("let libvirt know checkpoint" in step for step in told["steps"]), told
        assert (told["disks"][0]["reason"], told["disks"][0]["parent"]) == (None, made[-1]), told["notes"]
        made.append(told["point"])
    held = [numbers(file_of(point)) for point in made]
    assert held == sorted(set(held))
    on("virsh -q destroy g --graceful")


def test_the_playbooks_say_what_is_there_and_what_is_due() -> None:
    guest()
    tags = "<guest><tag>backup-24h</tag><tag>proven-7d</tag></guest>"
    on(f"virsh -q metadata g urn:corral:virt:guest:1 --key corral --set '{tags}' --live --config")
    book = ("ansible-playbook", *LAB.ask_nobody, "-e", f"virt_backup_repository={REPOSITORY}", "--limit", "hyper1")
    text = (ROOT / "docs/docsite/rst/guide_backups.rst").read_text()
    shown = [
        shlex.split(line)
        for line in re.findall(r"^    \$ ansible-playbook (corral\.virt\.backups? .*)$", text, re.MULTILINE)
    ]
    output = [
        LAB.run(*book, *(word.replace("web1", "g") for word in words), ok="corral.virt.backups" not in words)
        for words in shown
    ]
    assert re.search(r" g +running .* seconds, not proven ", LAB.run(*book, "corral.virt.query", "-e", "format=table"))
    assert "no backup of g was proven" in " ".join(output)
    assert "finish the backup of g" in output[0]
    reports = [printed for words, printed in zip(shown, output, strict=True) if "corral.virt.backups" in words]
    assert all(re.search(r"hyper1 +g +\d{8}T\d{6}Z-\w{8} .* all ", printed) for printed in reports)
    on(f"rm {file_of('*', 'vda.qcow2')}")
    broken = LAB.run(*book, "corral.virt.backups", "-e", "every=1h", ok=False)
    assert "its file vda.qcow2 is missing" in broken and "g has no backup" in broken


@pytest.fixture
def s3() -> Iterator[str]:
    """A bucket on an S3 server of this machine, as the hosts reach it."""
    log, port = LAB.folder / "moto.log", 5000 + int(LAB.gateway.split(".")[2])
    command = (sys.executable, "-m", "moto.server", "-H", LAB.gateway, "-p", str(port))
    with log.open("w") as out:
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        until(lambda: "Running on" in log.read_text(), 60)
        yield f"http://{LAB.gateway}:{port}/bucket"
    finally:
        server.terminate()
        server.wait(30)
        for host in ("hyper1", "hyper2"):
            LAB.on(
                host,
                "systemctl disable --now corral-backup-copy-offsite.timer; nft delete table inet gone; "
                "rm -rf /etc/corral-virt/backup_copy /etc/systemd/system/corral-backup-copy-* "
                "/var/cache/corral-backup-copy; systemctl daemon-reload; systemctl reset-failed; true",
            )


def stored(bucket: str) -> int:
    """Bytes in a bucket."""
    with urllib.request.urlopen(f"{bucket}?list-type=2") as told:
        return sum(int(size) for size in re.findall(r"<Size>(\d+)</Size>", told.read().decode()))


@pytest.mark.deep
def test_copied_to_s3_and_back(s3: str) -> None:
    """restic of Debian 12 sends only what is new and says why it cannot; that of Debian 13 brings it back."""
    settings: dict[str, t.Any] = {
        "backup_copy_repository": REPOSITORY,
        "backup_copy_destination": f"s3:{s3}",
        "backup_copy_password": "p$HOME %s'word",
        "backup_copy_environment": {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": '"$(b)" \\ `c` %d'},
        "backup_copy_host": "hyper1",
    }

    def task(entry: str = "main", **more: t.Any) -> dict[str, t.Any]:
        role = {"name": "corral.virt.backup_copy", "tasks_from": entry}
        return {"ansible.builtin.include_role": role, "vars": {**settings, **more}}

    def said(*flags: str, host: str = "hyper1", entry: str = "main", ok: bool = True, **more: t.Any) -> str:
        """What the role prints, in one line."""
        printed = LAB.play(task(entry, **more), hosts=host, flags=["--diff", *flags], ok=ok)
        assert "p$HOME" not in printed and "$(b)" not in printed, "no secret is shown"
        return re.sub(r"\s+", " ", printed)

    def copy(**more: t.Any) -> dict[str, t.Any]:
        """The result."""
        result = {"ansible.builtin.set_fact": {"told": "{{ backup_copy_result }}"}}
        return t.cast("dict[str, t.Any]", LAB.tell(task(**more), result, hosts="hyper1")["hyper1"])

    guest(start=False)
    assert "it is no repository of backups" in said(ok=False, backup_copy_repository=IMAGES)
    on(f"head -c 4M /dev/urandom >/root/r; qemu-io -c 'write -q -s /root/r 16M 4M' {IMAGES}/base; virsh -q start g")
    made = [backup()["point"]]
    checked = said("--check")
    assert "before its password and environment are on the host: 5 new files" in checked, checked
    assert on("ls /etc/corral-virt/backup_copy 2>/dev/null || true") == ""
    first = copy(backup_copy_check="structure")
    assert (first["points"], first["new_points"]) == (1, made)
    assert on("stat -c '%a %U' /etc/corral-virt/backup_copy/*").split() == 3 * ["600", "root"]
    environment = "systemd-run -q --wait --pipe -p EnvironmentFile=/etc/corral-virt/backup_copy/offsite.env printenv"
    assert on(f"{environment} AWS_SECRET_ACCESS_KEY") == settings["backup_copy_environment"]["AWS_SECRET_ACCESS_KEY"]
    full = stored(s3)
    assert first["added_bytes"] > 4 * 1024**2 and full > 4 * 1024**2
    again = said()
    assert "changed=0" in again and "changed=0" in said("--check") and first["snapshot"] in again

    grows(numbers(file_of(made[0])))
    made.append(backup()["point"])
    part = f"{REPOSITORY}/$(virsh domuuid g)/20260101T000000Z-00000000.part"
    on(f"mkdir {part}; cp /root/r {part}/vda.qcow2")
    assert "4 new files, 0 deleted ones" in said("--check")
    on("nft 'add table inet gone; add chain inet gone o { type filter hook output priority 0; }'")
    on(f"nft add rule inet gone o tcp dport {s3.split(':')[2].split('/')[0]} reject with tcp reset")
    for flags in ((), ("--check",)):
        assert "connection refused; mend this" in said(*flags, ok=False)
    on("nft delete table inet gone")
    assert "wrong password" in said(ok=False, backup_copy_password="other")
    second = copy(backup_copy_keep={"last": 2}, backup_copy_check="100%")
    assert (second["points"], second["new_points"]) == (2, made[1:])
    changed = int(on(f"stat -c %s {file_of(made[1])}"))
    assert changed < 4 * 1024**2 and stored(s3) - full < changed + 2**18, "only new files were sent"
    on(f"rm -r {part}; virsh -q suspend g")

    said(backup_copy_schedule="*-*-* 04:00")
    assert "changed=0" in said(backup_copy_schedule="*-*-* 04:00")
    assert "04:00:00" in on("systemctl list-timers corral-backup-copy-offsite.timer")
    on("systemctl start corral-backup-copy-offsite.service")
    on(f"mv {REPOSITORY}/corral-backup.json /root/")
    on("systemctl start corral-backup-copy-offsite.service", ok=False)
    on(f"mv /root/corral-backup.json {REPOSITORY}/; systemctl reset-failed")
    assert "changed=0" not in said()
    assert on("ls /etc/systemd/system | grep corral-backup-copy || true") == ""

    made.append(backup()["point"])
    copy()
    uuid, sums = on("virsh domuuid g"), f"cd {REPOSITORY} && find . -type f -exec sha256sum {{}} + | sort"
    before = on(sums)
    on(f"virsh -q destroy g --graceful; find {REPOSITORY} -mindepth 1 -delete")
    assert "it is no repository of backups" in said(ok=False), "what is lost is never copied over what is there"
    assert "is not empty" in said(ok=False, entry="restore", backup_copy_repository=IMAGES)
    assert "has no snapshot latest of that host" in said(
        ok=False, host="hyper2", entry="restore", backup_copy_host="other"
    )
    assert "would restore snapshot" in said("--check", host="hyper2", entry="restore")
    running = LAB.start("ansible-playbook", LAB.folder / "book.json")
    begun = f"test -e {REPOSITORY}/.corral-restore && pkill -9 -x restic"
    LAB.on("hyper2", f"for n in $(seq 2000); do {begun} && break; sleep 0.05; done")
    running.wait(120)
    assert "no repository" in LAB.on("hyper2", f"test -e {REPOSITORY}/corral-backup.json || echo no repository")
    said(host="hyper2", entry="restore")
    said(entry="restore")
    for host in ("hyper1", "hyper2"):
        assert LAB.on(host, sums) == before
    there, problems = points("hyper2", verify=True)
    assert [point["id"] for point in there] == made and problems == []
    task_of = {"corral.virt.virt_restore": {"repository": REPOSITORY, "guest": uuid, "name": "k"}, "register": "told"}
    LAB.tell(task_of, hosts="hyper1")
    assert "identical" in on(f"qemu-img compare {IMAGES}/k-vda.qcow2 {IMAGES}/a")
    on("virsh -q undefine k")


@pytest.mark.deep
def test_thirty_points_of_a_guest_under_load_are_whole() -> None:
    """Each has what was written until then, and nothing that is wrong, also where the chain was made whole."""
    guest()
    held = []
    for number in range(30):
        told = backup(increments=12)
        held.append(told["point"])
        if number:
            assert told["disks"][0]["parent"] == held[-2] or "made whole" in told["disks"][0]["reason"], told
    found = [numbers(file_of(point)) for point in held]
    assert found == sorted(found) and len(set(found)) > 15, found
    there, problems = points(verify=True)
    assert problems == [] and max(disk["depth"] for point in there for disk in point["disks"]) == 12
    on("virsh -q suspend g")
    last = backup()["point"]
    on("virsh -q destroy g --graceful")
    assert "identical" in on(f"qemu-img compare {file_of(last)} {IMAGES}/a")


KILLED = {
    "module": "pkill -9 -x virt_backup",
    "libvirtd": "kill -9 $(pidof libvirtd)",
    "qemu": "kill -9 $(cat /run/libvirt/qemu/g.pid)",
    "host": "(sleep 0.1; systemctl poweroff -ff) >/dev/null 2>&1 &",
}
SHARE = (
    f"mkdir -p {REPOSITORY} /root/.ssh; cat >/root/.ssh/lent; chmod 600 /root/.ssh/lent; "
    "sshfs -o allow_other,default_permissions,IdentityFile=/root/.ssh/lent,StrictHostKeyChecking=no "
    f"hyper2:{REPOSITORY} {REPOSITORY} && mountpoint -q {REPOSITORY}"
)


def share() -> None:
    """Mount the repository of hyper2 on hyper1, again if its server has gone."""
    key = (LAB.folder / "id_ed25519").read_text()
    on(f"umount -l {REPOSITORY} 2>/dev/null; {SHARE}", given=key)


def kill(what: str, running: subprocess.Popen[str], after_s: float) -> None:
    """Let one of those that take part in a backup die, without a word."""
    time.sleep(after_s)
    if what == "controller":
        os.killpg(running.pid, signal.SIGKILL)
    elif what == "repository":
        LAB.on("hyper2", "pkill -9 -x sftp-server; true")
    else:
        on(f"{KILLED[what]}\ntrue")
    if what == "host":
        alive = f"timeout 3 ssh -F {LAB.folder}/ssh_config hyper1 true && echo yes || true"
        until(lambda: "yes" not in LAB.run("sh", "-c", alive), 60)
        again()


def again() -> None:
    """Start what has died."""
    up = ("up", "--name", LAB.name, "--hosts", "2", "--host", "hyper2=trixie", "--packages", ",".join(packages()))
    LAB.run(sys.executable, ROOT / "tests/lab/lab.py", *up, "--no-image", timeout_s=900)


@pytest.mark.deep
@pytest.mark.parametrize("what", [*KILLED, "controller", "repository"])
def test_killed_at_any_moment(what: str) -> None:
    """Whatever is killed, and when: all points that are listed are whole, and the next run makes one more. With
    CORRAL_KILLS=20, it is killed as often.
    """
    seed = int(os.environ.get("CORRAL_SEED", random.randrange(1000)))
    print(f"seed {seed}")
    moments, running = random.Random(seed), None
    guest()
    on(f"dd if=/dev/urandom of={IMAGES}/c bs=1M count=48 status=none")
    on(f"virsh -q attach-disk g {IMAGES}/c vdc --subdriver raw --persistent; virsh -q pool-refresh default")
    if what == "repository":
        share()
    backup()
    options = json.dumps({"guests": ["g"], "repository": REPOSITORY, "bandwidth": 40})
    for number in range(int(os.environ.get("CORRAL_KILLS", "5"))):
        before = {point["id"] for point in points()[0]}
        running = LAB.start("ansible", "hyper1", "-m", "virt_backup", "-a", options)
        on("for n in $(seq 6000); do pgrep -x virt_backup >/dev/null && break; sleep 0.01; done")
        kill(what, running, moments.uniform(0, 2.5))
        until(lambda: not on("pgrep -x virt_backup || true"), 180)
        running.wait(180)
        survived = on("virsh domstate g || true") == "running"
        assert survived or what in ("qemu", "host"), f"round {number}: the guest is off"
        on("systemctl reset-failed libvirtd; systemctl start libvirtd; virsh -q start g 2>/dev/null || true")
        if what == "repository":
            share()
        assert on("virsh domstate g") == "running"
        told = backup()
        there, problems = points(verify=True)
        assert problems == [] and {point["id"] for point in there} >= before | {told["point"]}, f"round {number}"
        found = [numbers(file_of(point["id"])) for point in there[-3:]]
        assert found == sorted(found), f"round {number}"
        assert on("virsh checkpoint-list --name g").split() == [f"corral-{told['point']}"]
        assert on(f"ls -d {REPOSITORY}/*/*.part {REPOSITORY}/*/*.removed 2>/dev/null || true") == ""
    found = [numbers(file_of(point["id"])) for point in points(verify=True)[0]]
    assert found == sorted(found)
