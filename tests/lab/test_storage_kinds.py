"""The same operations on a guest's disk in pools of each type that the lab's kernel can have. Judged by virsh, qemu-img,
sha256sum and the directories; build/storage_kinds.txt has the table. Logical volumes, thick and thin, are in test_logical.py:
containers have no device-mapper.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.lab.hypervisors import ROOT, Hypervisors, hypervisors

pytestmark = [pytest.mark.lab, pytest.mark.deep]

LAB = Hypervisors("kinds")
HOSTS = ("hyper1", "hyper2")
on1, on2 = (functools.partial(LAB.on, host) for host in HOSTS)
KINDS = {"dir": "/srv/dir", "fs": "/srv/fs", "netfs": "/srv/netfs"}
PORTS = ["16514/tcp", "24007-24008/tcp", "49152-60999/tcp"]
GUEST: dict[str, t.Any] = {"name": "g", "vcpus": 1, "memory": "64MiB", "interfaces": []}
LOOP = (
    "truncate -s 3G /root/fs; for n in $(seq 60 119); do rm -f /dev/kinds; mknod /dev/kinds b 7 $n; "
    "losetup /dev/kinds /root/fs 2>/dev/null && break; done; mkfs.ext4 -q /dev/kinds"
)
MIB = 1024**2
RAN: dict[tuple[str, str], str] = {}


@pytest.fixture(scope="module", autouse=True)
def kinds() -> Iterator[None]:
    """Two hypervisors with a pool of each type; the mount is of one Gluster volume on both."""
    with hypervisors("kinds", hosts=2):
        LAB.play(
            {"ansible.builtin.include_role": {"name": "corral.virt.firewall"}, "vars": {"firewall_ports": PORTS}},
            hosts="hyper",
        )
        on1("systemctl enable --now glusterd; mkdir -p /srv/brick")
        on1("gluster --mode=script volume create kinds hyper1:/srv/brick force; gluster volume start kinds")
        for host in HOSTS:
            LAB.on(host, LOOP)
            device: dict[str, t.Any] = {"devices": ["/dev/kinds"], "format": "ext4"}
            export: dict[str, t.Any] = {"hosts": [{"name": "hyper1"}], "dir": "/kinds", "format": "glusterfs"}
            for kind, source in (("dir", None), ("fs", device), ("netfs", export)):
                more = {"source": source} if source else {}
                told(host, "virt_pool", check=False, name=kind, type=kind, path=KINDS[kind], **more)
        try:
            yield
        finally:
            for host in HOSTS:
                LAB.on(host, "for p in fs netfs; do virsh -q pool-destroy $p; done; losetup -d /dev/kinds; true")
            table()


def table() -> None:
    """What ran, by operation and type."""
    rows = [("", *KINDS), *((what, *(RAN.get((kind, what), "-") for kind in KINDS)) for what in _operations())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.append("logical: tests/lab/test_logical.py, on a host with a Linux of its own")
    (ROOT / "build/storage_kinds.txt").write_text("\n".join(lines) + "\n")


def _operations() -> list[str]:
    return list(dict.fromkeys(what for _kind, what in RAN))


def told(host: str, module: str, *, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
    """What a module answers."""
    task = {f"corral.virt.{module}": options, "register": "told"}
    return t.cast("dict[str, t.Any]", LAB.tell(task, hosts=host, check=check)[host])


def converged(host: str, module: str, **options: t.Any) -> dict[str, t.Any]:
    """Check, do, do again: the same steps, and then none."""
    checked = told(host, module, check=True, **options)
    done = told(host, module, **options)
    assert done["changed"] and done["steps"] == checked["steps"], (done["steps"], checked["steps"])
    again = told(host, module, **options)
    assert not again["changed"], again
    return done


def content(host: str, path: str) -> str:
    """The digest of what a guest sees of an image."""
    return LAB.on(host, f"qemu-img convert -U -f qcow2 -O raw {path} /root/raw && sha256sum < /root/raw; rm /root/raw")


def disk(host: str, guest: str = "g", *flags: str) -> str:
    """The file of a guest's disk, by its definition, or as it runs."""
    return LAB.on(host, f"virsh domblklist {guest} {' '.join(flags)} | awk '/vda/ {{print $2}}'")


def seen(host: str, path: str) -> dict[str, t.Any]:
    """What qemu-img says of an image."""
    return t.cast("dict[str, t.Any]", json.loads(LAB.on(host, f"qemu-img info -U --output json {path}")))


def files(host: str, kind: str) -> list[str]:
    """What is in a pool's directory."""
    return LAB.on(host, f"ls -I lost+found {KINDS[kind]}").split()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A type; its pool has an image, on both hosts."""
    name, image = str(request.param), tmp_path / "base.qcow2"
    (tmp_path / "raw").write_bytes(bytes(MIB) + os.urandom(20 * MIB) + bytes(43 * MIB))
    LAB.run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", tmp_path / "raw", image)
    for host in HOSTS if name != "netfs" else HOSTS[:1]:
        told(host, "virt_image", name="base.qcow2", src=str(image), pool=name)
    yield name
    for host in HOSTS:
        LAB.on(
            host,
            "for g in $(virsh list --all --name); do virsh -q destroy $g; virsh -q undefine $g; done 2>/dev/null; "
            f"find {' '.join(KINDS.values())} -mindepth 1 -not -path '*/lost+found*' -delete 2>/dev/null; "
            f"for p in {' '.join(KINDS)}; do virsh -q pool-refresh $p; done",
        )


def test_a_disk_lives_and_goes(kind: str) -> None:
    place, here = KINDS[kind], files("hyper1", kind)
    path = f"{place}/g-system.qcow2"
    system = {"name": "system", "pool": kind, "image": "base.qcow2", "size": "64MiB"}

    def note(what: str, how: str) -> None:
        RAN[kind, what] = how

    converged("hyper1", "virt_domain", **GUEST, disks=[system], state="present")
    base = seen("hyper1", path)["backing-filename"]
    assert base.startswith(place)
    before = content("hyper1", base)
    assert content("hyper1", path) == before
    note("create from an image", "overlay")

    converged("hyper1", "virt_domain", **GUEST, disks=[{**system, "size": "80MiB"}])
    assert seen("hyper1", path)["virtual-size"] == 80 * MIB
    note("grow while off", "ok")
    on1("virsh -q start g")
    converged("hyper1", "virt_domain", **GUEST, disks=[{**system, "size": "96MiB"}])
    assert on1("virsh domblkinfo g vda | awk '/Capacity/ {print $2}'") == str(96 * MIB)
    note("grow while running", "ok")
    on1("virsh -q destroy g")

    before = content("hyper1", path)
    converged("hyper1", "virt_domain", name="h", clone_of="g", state="present")
    assert disk("hyper1", "h") == f"{place}/h-system.qcow2" and content("hyper1", disk("hyper1", "h")) == before
    told("hyper1", "virt_domain", name="h", state="absent", remove_storage=True)
    assert sorted(files("hyper1", kind)) == sorted([*here, "g-system.qcow2"])
    note("clone_of", "ok")

    for state in ("off", "running"):
        if state == "running":
            on1("virsh -q start g")
        for there, back in (HOSTS, HOSTS[::-1]):
            disks = converged(there, "virt_migrate", name="g", dest=back)["disks"]
            [its] = [one for one in disks if one["dest_path"] == path]
            assert content(back, disk(back)) == before and not LAB.on(there, "virsh list --all --name")
            assert LAB.on(back, "virsh domstate g") == ("shut off" if state == "off" else "running")
        assert (its["how"] == "shared") == (kind == "netfs") and (its["bytes_to_move"] == 0 or kind != "netfs")
        note(f"virt_migrate, {state}", "nothing copied" if kind == "netfs" else "copied")

    # The guest runs.
    for other, state in itertools.product((each for each in KINDS if each != kind), ("running", "off")):
        if state == "off":
            on1("virsh -q destroy g")
        there = f"{KINDS[other]}/g-system.qcow2"
        for pool, file in ((other, there), (kind, path)):
            converged("hyper1", "virt_disk_move", guest="g", disk="system", pool=pool)
            assert disk("hyper1") == disk("hyper1", "g", "--inactive") == file and content("hyper1", file) == before
            assert seen("hyper1", file)["backing-filename"] == base
        assert files("hyper1", other) == []
        note(f"virt_disk_move to {other} and back, {state}", "ok")
        on1("virsh -q start g; true")

    on1("virsh -q destroy g")
    converged("hyper1", "virt_domain", name="g", state="absent", remove_storage=True)
    assert files("hyper1", kind) == files("hyper2", kind) == here
    note("remove_storage", "the guest's own file")
