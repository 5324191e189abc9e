"""Runs that are killed at any moment while they fill, move, download and wipe: the next run converges, and what it
leaves is complete, or gone. Judged by sha256sum, qemu-img and the directories themselves.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import random
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES, Hypervisors, hypervisors

pytestmark = [pytest.mark.lab, pytest.mark.deep]

LAB = Hypervisors("killed")
on = functools.partial(LAB.on, "hyper1")
RUNS = {"dir": 20, "netfs": 5}
DIRECTORY = {"dir": "/srv/dir", "netfs": "/srv/shared"}
GLUSTER = {"hosts": [{"name": "hyper1"}], "dir": "/vms", "format": "glusterfs"}
PROCESS = "^/usr/bin/python3$"  # a module, which Ansible passes on stdin
WAIT = f"for i in $(seq 3000); do p=$(pgrep -f '{PROCESS}') && break; sleep 0.02; done"
# Kill the module after so many seconds, and with a second argument also the programs that it runs.
KILLER = f"""{WAIT}
sleep $1
kill -9 $p && echo killed >/root/killed
[ -z "$2" ] || pkill -9 -x 'qemu-img|cp|cmp'
"""
STOPWATCH = f"""{WAIT}
began=$(date +%s.%N)
while kill -0 $p; do sleep 0.02; done
echo $began $(date +%s.%N) >/root/duration
"""
GUEST: dict[str, t.Any] = {"name": "g", "vcpus": 1, "memory": "64MiB", "interfaces": [], "state": "present"}


@dataclasses.dataclass(frozen=True)
class Verb:
    """What is killed: how a test begins, the task, and what must be true when the task has ended well."""

    begin: t.Callable[[str], object]
    module: str
    options: t.Callable[[str], dict[str, t.Any]]
    holds: t.Callable[[str], object]


def digest(path: str) -> str:
    """Of the bytes of a file."""
    return on(f"sha256sum < {path}")


def content(path: str) -> str:
    """The digest of what a guest sees of an image."""
    return on(f"qemu-img convert -U -f qcow2 -O raw {path} /root/raw && sha256sum < /root/raw; rm /root/raw")


def files(pool: str) -> list[str]:
    """All in the directories of both pools but directories."""
    return on(f"find {IMAGES} {DIRECTORY[pool]} -type f -printf '%P\\n' | grep -v lost+found || true").split()


def task(module: str, **options: t.Any) -> None:
    """Run it."""
    LAB.module(module, **options)


def guest(pool: str, *, running: bool) -> None:
    """A guest whose disk is in the default pool."""
    task("virt_domain", **GUEST, disks=[{"name": "system", "size": "256MiB"}])
    on(f"qemu-io -f qcow2 -c 'write -q -s /root/data 1M 150M' {IMAGES}/g-system.qcow2")
    on(f"qemu-img convert -f qcow2 -O raw {IMAGES}/g-system.qcow2 /root/raw && sha256sum < /root/raw > /root/before")
    if running:
        on("virsh -q start g --paused")
    assert files(pool) == ["g-system.qcow2"]


def clean(pool: str) -> None:
    """Nothing of an earlier run."""
    on(
        "virsh -q destroy g 2>/dev/null; virsh -q undefine g --nvram 2>/dev/null; rm -rf /root/back /root/.back*; "
        f"find {IMAGES} {DIRECTORY[pool]} -mindepth 1 -not -path '*/.trashcan*' -delete 2>/dev/null; "
        f"for p in default {pool}; do virsh -q pool-refresh $p; done"
    )


def is_moved(pool: str) -> None:
    """The guest's only disk is in the pool, with its content."""
    new = f"{DIRECTORY[pool]}/g-system.qcow2"
    assert files(pool) == ["g-system.qcow2"] and content(new) == on("cat /root/before")
    for flags in ("--inactive", ""):
        assert on(f"virsh domblklist g {flags} | awk '/vda/ {{print $2}}'") == new
    assert "Copy" not in on("virsh blockjob g vda --raw 2>&1 || true")


def is_made(pool: str) -> None:
    """The guest stands on the image, and can start."""
    disk = f"{DIRECTORY[pool]}/g-system.qcow2"
    assert sorted(files(pool)) == ["base.qcow2", "g-system.qcow2"]
    on(f"qemu-img compare -q {disk} {DIRECTORY[pool]}/base.qcow2")
    on(f"qemu-img check -q {disk} && virsh -q start g && virsh -q destroy g")


def base(pool: str) -> None:
    """A volume with content."""
    on(
        f"qemu-img convert -f raw -O qcow2 /root/data {DIRECTORY[pool]}/base.qcow2 && chmod 644 {DIRECTORY[pool]}/base.qcow2 "
        f"&& virsh -q pool-refresh {pool}"
    )


MOVE = {"guest": "g", "disk": "system"}
VERBS = {
    "upload": Verb(
        clean,
        "virt_volume",
        lambda pool: {"name": "u", "pool": pool, "source": "/root/data"},
        lambda pool: files(pool) == ["u"] and digest(f"{DIRECTORY[pool]}/u") == on("cat /root/digest"),
    ),
    "download": Verb(
        base,
        "virt_volume",
        lambda pool: {"name": "base.qcow2", "pool": pool, "dest": "/root/back"},
        lambda pool: digest("/root/back") == digest(f"{DIRECTORY[pool]}/base.qcow2"),
    ),
    "clone": Verb(
        base,
        "virt_volume",
        lambda pool: {"name": "c", "pool": pool, "clone_of": "base.qcow2"},
        lambda pool: (
            sorted(files(pool)) == ["base.qcow2", "c"]
            and content(f"{DIRECTORY[pool]}/c") == content(f"{DIRECTORY[pool]}/base.qcow2")
        ),
    ),
    "wipe": Verb(
        base,
        "virt_volume",
        lambda pool: {"name": "base.qcow2", "pool": pool, "state": "absent", "wipe": True},
        lambda pool: files(pool) == [],
    ),
    "create": Verb(
        base,
        "virt_domain",
        lambda pool: {**GUEST, "disks": [{"name": "system", "image": "base.qcow2", "pool": pool}]},
        is_made,
    ),
    "move": Verb(
        functools.partial(guest, running=False),
        "virt_disk_move",
        lambda pool: {**MOVE, "pool": pool},
        is_moved,
    ),
    "move live": Verb(
        functools.partial(guest, running=True),
        "virt_disk_move",
        lambda pool: {**MOVE, "pool": pool},
        is_moved,
    ),
}


@pytest.fixture(scope="module", autouse=True)
def hypervisor() -> Iterator[None]:
    """A hypervisor with a pool of each kind, and content."""
    with hypervisors("killed"):
        on(
            "systemctl start glusterd && mkdir -p /srv/brick && gluster --mode=script volume create vms hyper1:/srv/brick "
            "force && gluster volume start vms"
        )
        task("virt_pool", name="dir", path=DIRECTORY["dir"])
        task("virt_pool", name="netfs", type="netfs", path=DIRECTORY["netfs"], source=GLUSTER)
        on("cat >/root/killer", given=KILLER)
        on("cat >/root/stopwatch", given=STOPWATCH)
        on("head -c 150M /dev/urandom > /root/data; sha256sum < /root/data > /root/digest")
        try:
            yield
        finally:
            on("virsh -q pool-destroy netfs; true")


def seconds(verb: Verb, pool: str) -> float:
    """How long the module lives when nobody kills it."""
    clean(pool)
    verb.begin(pool)
    on("nohup sh /root/stopwatch >/dev/null 2>&1 &")
    task(verb.module, **verb.options(pool))
    assert verb.holds(pool) is not False
    first, last = on("sleep 0.2; cat /root/duration").split()
    return float(last) - float(first)


@pytest.mark.parametrize("pool", RUNS)
@pytest.mark.parametrize("name", VERBS)
def test_the_next_run_converges(name: str, pool: str) -> None:
    verb, killed = VERBS[name], 0
    whole_s = seconds(verb, pool)
    for number in range(RUNS[pool]):
        after_s = random.Random(f"{name} {pool} {number}").uniform(0, whole_s)
        clean(pool)
        verb.begin(pool)
        on(f"rm -f /root/killed; nohup sh /root/killer {after_s:.3f} {'all' * (number % 2)} >/dev/null 2>&1 &")
        options = json.dumps(verb.options(pool))
        LAB.run("sh", "-c", f"ansible hyper1 -m {verb.module} -a '{options}' || true")
        killed += on("sleep 0.2; cat /root/killed || true") == "killed"
        left = files(pool)
        if name == "clone" and len(left) > 2:  # libvirt alone knows whether it has copied to the end
            assert "an interrupted run was filling it" in LAB.module(verb.module, ok=False, **verb.options(pool))
            LAB.module(verb.module, name="c", pool=pool, state="absent")
        told = LAB.module(verb.module, **verb.options(pool))
        assert verb.holds(pool) is not False, (number, after_s, left, told, files(pool))
        again = LAB.module(verb.module, "--check", **verb.options(pool))
        assert "changed: false" in again, (number, after_s, left, again)
    assert killed > RUNS[pool] // 3, killed
