"""Guests with snapshots move, grow, are copied and removed; judged by virsh, qemu-img and sha256sum.

The snapshots are virsh's. The guest has no operating system: it writes numbered sectors to its disk.
"""

from __future__ import annotations

import base64
import json
import random
import re
import shlex
import subprocess
import typing as t
from collections.abc import Iterator

import pytest
import yaml

from ansible_collections.corral.virt.tests.faults.boot_sector import COUNTER, boot_sector, count
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES, Hypervisors, hypervisors
from ansible_collections.corral.virt.tests.lab.test_migrate import SHARED, share_storage, there

pytestmark = [pytest.mark.lab, pytest.mark.deep]

LAB = Hypervisors("snapgst")
HOSTS = ("hyper1", "hyper2")
MIB, ODD = 1 << 20, "with space"
PAGES = 100  # written with each tick: 7 MiB in a second
NOTES = "/var/lib/libvirt/corral-snapshots"
# libvirt indents metadata once more whenever it reads them
INDENTED = " | sed 's/^ *//' | sha256sum"
TREE = "virsh snapshot-list {0} --parent; virsh snapshot-current {0} --name 2>/dev/null"
GUEST: dict[str, t.Any] = {"vcpus": 1, "memory": "64MiB", "interfaces": [], "state": "running"}


@pytest.fixture(scope="module", autouse=True)
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Two hypervisors with the image of the guest, and a filesystem that both have."""
    raw = tmp_path_factory.mktemp("image") / "tiny.raw"
    raw.write_bytes(boot_sector(PAGES).ljust(32 * MIB, b"\0"))
    image = raw.with_suffix(".qcow2")
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", raw, image], check=True)
    with hypervisors("snapgst", hosts=2):
        if LAB.on("hyper1", f"mountpoint -q {SHARED} || echo no") == "no":
            share_storage(LAB)
        LAB.play({"corral.virt.virt_image": {"name": "tiny.qcow2", "src": str(image)}}, hosts="hyper")
        here = {"name": "tiny.qcow2", "src": str(image), "pool": "shared"}
        LAB.play({"corral.virt.virt_image": here})
        yield


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """What a test makes goes with it."""
    yield
    for host in HOSTS:
        LAB.on(
            host,
            "for g in $(virsh list --all --name); do virsh -q destroy $g; virsh -q undefine $g --snapshots-metadata "
            f"--managed-save; done 2>/dev/null; find {IMAGES} {SHARED} -maxdepth 1 -name 'g*' -delete; rm -rf {NOTES}; "
            "for p in default shared; do virsh -q pool-refresh $p; done",
        )


def made(pool: str = "default", **more: t.Any) -> None:
    """A guest that writes, on the first host."""
    disk = {"name": "system", "size": "32MiB", "image": "tiny.qcow2", "pool": pool}
    LAB.play({"corral.virt.virt_domain": {"name": "g", **GUEST, "disks": [disk], **more}})


def taken(host: str, name: str, *more: str, directory: str = IMAGES) -> None:
    """An external snapshot by virsh."""
    file = f"{directory}/g.{name.replace(' ', '-')}.qcow2"
    where = ["--diskspec", f"vda,file={file}", *(more or ["--disk-only"])]
    LAB.on(host, shlex.join(["virsh", "-q", "snapshot-create-as", "g", name, "--atomic", *where]))


def chain(host: str = "hyper1", directory: str = IMAGES) -> None:
    """Three of them, each on the one before, the last one with memory."""
    taken(host, "s1", directory=directory)
    taken(host, ODD, directory=directory)
    taken(host, "m1", "--memspec", f"file={directory}/g.m1.memory", directory=directory)


def on() -> dict[str, str]:
    """State by host, as virsh says it; of the hosts that have the guest."""
    states = {host: LAB.on(host, "virsh domstate g 2>/dev/null || true") for host in HOSTS}
    return {host: state for host, state in states.items() if state}


def seen(host: str) -> str:
    """The snapshots as virsh tells them, each with all of its document."""
    names = sorted(LAB.on(host, "virsh snapshot-list g --name").splitlines())
    documents = [
        LAB.on(host, shlex.join(["virsh", "snapshot-dumpxml", "g", name, "--security-info"]) + INDENTED)
        for name in filter(None, names)
    ]
    return "\n".join([LAB.on(host, TREE.format("g")), *documents])


def frozen(host: str, directory: str = IMAGES) -> dict[str, str]:
    """Digests of all files of the guest but the one that it writes."""
    top = LAB.on(host, "virsh domblklist g | awk '/vda/ {print $2}'")
    lines = LAB.on(host, f"sha256sum {directory}/g[.-]*").splitlines()
    return {path: digest for digest, path in (line.split(maxsplit=1) for line in lines) if path != top}


def files(host: str, directory: str = IMAGES) -> list[str]:
    """Files of the guest."""
    return LAB.on(host, f"ls {directory} | grep ^g || true").split()


def written(host: str) -> int:
    """The number that the running guest writes next, from its memory."""
    output = LAB.on(host, f"virsh qemu-monitor-command g --hmp 'xp /1wx {COUNTER:#x}'")
    return int(output.rpartition(":")[2], 16)


def sectors(host: str) -> int:
    """How many a guest that is off has written; each is there once, in order."""
    top = LAB.on(host, "virsh domblklist g | awk '/vda/ {print $2}'")
    text = LAB.on(host, f"qemu-img convert -f qcow2 -O raw {top} /root/raw && gzip -c /root/raw | base64; rm /root/raw")
    raw = subprocess.run(["gunzip"], input=base64.b64decode(text), capture_output=True, check=True).stdout
    return count(raw)


def migrated(host: str, *flags: str, ok: bool = True, **options: t.Any) -> dict[str, t.Any]:
    """What the module answers on a host."""
    arguments = json.dumps({"name": "g", "dest": there(host), **options})
    command = ["ansible", host, "-m", "corral.virt.virt_migrate", "-a", arguments, *flags]
    printed = LAB.run(*command, *LAB.ask_nobody, ok=ok)
    return t.cast("dict[str, t.Any]", yaml.safe_load(printed.partition(" => ")[2])) if ok else {"msg": flat(printed)}


def flat(text: str) -> str:
    """In one line."""
    return re.sub(r"\s+", " ", text)


def domain(**options: t.Any) -> dict[str, t.Any]:
    """What virt_domain answers on the first host."""
    task = {"corral.virt.virt_domain": options, "register": "told"}
    return t.cast("dict[str, t.Any]", LAB.tell(task, hosts="hyper1")["hyper1"])


def test_a_running_guest_takes_a_chain_there_and_back() -> None:
    """There by the module, and back by the playbook that empties a host."""
    made()
    chain()
    until(lambda: written("hyper1") > 1)
    before, kept, first = seen("hyper1"), frozen("hyper1"), written("hyper1")
    assert len(kept) == 4, kept
    checked = migrated("hyper1", "--check")
    assert seen("hyper1") == before and on() == {"hyper1": "running"}
    done = migrated("hyper1")
    assert done["steps"] == checked["steps"] and done["mode"] == "live"
    assert f"define snapshots s1, {ODD}, m1 of g on hyper2" in done["steps"]
    assert on() == {"hyper2": "running"} and seen("hyper2") == before and frozen("hyper2") == kept
    assert files("hyper1") == [] and LAB.on("hyper1", f"ls {NOTES}") == ""
    until(lambda: written("hyper2") > first)
    assert not migrated("hyper1")["changed"]
    LAB.run("ansible-playbook", "corral.virt.drain", *LAB.ask_nobody, "-e", "host=hyper2")
    LAB.run("ansible-playbook", "corral.virt.undrain", *LAB.ask_nobody, "-e", "host=hyper2")
    assert on() == {"hyper1": "running"} and seen("hyper1") == before and frozen("hyper1") == kept
    assert files("hyper2") == []
    last = written("hyper1")
    LAB.on("hyper1", "virsh -q destroy g")
    assert sectors("hyper1") >= last - 1


@pytest.mark.deep
def test_off_it_takes_a_branch_and_what_is_inside_its_disk() -> None:
    made()
    chain()
    LAB.on("hyper1", "virsh -q destroy g")
    branch = f"{IMAGES}/g.branch.qcow2"
    LAB.on(
        "hyper1",
        f"qemu-img create -q -f qcow2 -b {IMAGES}/g.s1.qcow2 -F qcow2 {branch} && virsh dumpxml --inactive g | "
        f"sed 's,{IMAGES}/g.m1.qcow2,{branch},' >/root/g.xml && virsh -q define /root/g.xml && virsh snapshot-dumpxml g "
        f"'{ODD}' >/root/s.xml && virsh -q snapshot-create g --redefine --current /root/s.xml",
    )
    taken("hyper1", "b1")
    LAB.on("hyper1", "virsh -q snapshot-create-as g inside")
    before, kept = seen("hyper1"), frozen("hyper1")
    content = LAB.on("hyper1", f"sha256sum < {IMAGES}/g.b1.qcow2")
    done = migrated("hyper1")
    assert done["mode"] == "cold" and on() == {"hyper2": "shut off"}
    assert seen("hyper2") == before and frozen("hyper2") == kept and len(kept) == 6 and files("hyper1") == []
    assert LAB.on("hyper2", f"sha256sum < {IMAGES}/g.b1.qcow2") == content
    assert "inside" in LAB.on("hyper2", f"qemu-img snapshot -l {IMAGES}/g.b1.qcow2")
    LAB.on("hyper2", "virsh -q start g")
    refused = migrated("hyper2", ok=False)["msg"]
    assert "snapshot inside would be lost" in refused and "virsh snapshot-delete g inside" in refused
    assert on() == {"hyper2": "running"} and seen("hyper2") == before


@pytest.mark.deep
def test_on_shared_storage_no_file_moves() -> None:
    made("shared")
    chain(directory=SHARED)
    before, kept, names = seen("hyper1"), frozen("hyper1", SHARED), files("hyper1", SHARED)
    done = migrated("hyper1")
    assert done["bytes_to_move"] == 0 and on() == {"hyper2": "running"} and seen("hyper2") == before
    assert files("hyper2", SHARED) == names and frozen("hyper2", SHARED) == kept


def killed(after_s: float | None) -> None:
    """A migration whose module is killed, after a time; or an endless one, when the source has forgotten the snapshots."""
    run = LAB.start(
        *("ansible", "hyper1", "-m", "corral.virt.virt_migrate", *LAB.ask_nobody, "-a"),
        json.dumps({"name": "g", "dest": "hyper2", "auto_converge": False, "bandwidth": 1 if after_s is None else 16}),
    )
    forgotten = 'test -z "$(virsh snapshot-list g --name 2>/dev/null)"'
    wait = f"until {forgotten}; do sleep 0.1; done" if after_s is None else f"sleep {after_s:.2f}"
    pid = "for i in $(seq 300); do p=$(pgrep -o -x virt_migrate) && break; sleep 0.1; done"
    LAB.on("hyper1", f"{pid}; {wait}; kill -9 $p || true")
    run.wait()


@pytest.mark.deep
def test_killed_on_the_way_they_are_put_back() -> None:
    made()
    chain()
    before, kept = seen("hyper1"), frozen("hyper1")
    killed(None)
    assert LAB.on("hyper1", "virsh snapshot-list g --name") == "" and LAB.on("hyper1", f"ls {NOTES}")
    migrated("hyper1", state="aborted")
    assert on() == {"hyper1": "running"} and seen("hyper1") == before and frozen("hyper1") == kept
    assert LAB.on("hyper1", f"ls {NOTES}") == "" and files("hyper2") == []
    migrated("hyper1")
    assert on() == {"hyper2": "running"} and seen("hyper2") == before and frozen("hyper2") == kept


@pytest.mark.deep
@pytest.mark.parametrize("number", range(12))
def test_killed_at_any_moment_the_next_run_brings_them_there(number: int) -> None:
    made(state="running" if number % 3 else "present")
    if number % 3:
        chain()
    else:
        taken("hyper1", "s1")
        taken("hyper1", ODD)
    before, kept = seen("hyper1"), frozen("hyper1")
    killed(random.Random(number).uniform(0, 6))
    done = migrated("hyper1")
    print(number, done["steps"])
    assert list(on()) == ["hyper2"] and seen("hyper2") == before and frozen("hyper2") == kept
    assert files("hyper1") == [] and LAB.on("hyper1", f"ls {NOTES} 2>/dev/null || true") == ""
    assert not migrated("hyper1")["changed"]


def test_its_disks_grow_and_change_above_them_and_its_removal_names_every_file() -> None:
    made()
    chain()
    assert not domain(name="g", **GUEST)["changed"]
    top = f"{IMAGES}/g.m1.qcow2"
    grown = domain(name="g", disks=[{"name": "system", "size": "48MiB"}])
    assert grown["notes"] == [f"snapshots s1, {ODD}, m1 of g keep the size of then; what grows is {top}"]
    sizes = LAB.on("hyper1", f"qemu-img info -U --backing-chain --output=json {top}")
    assert [one["virtual-size"] // MIB for one in json.loads(sizes)] == [48, 32, 32, 32, 32]
    LAB.on("hyper1", "virsh -q destroy g")
    refused = flat(LAB.module("virt_domain", ok=False, name="h", renamed_from="g"))
    assert f"libvirt keeps its snapshots s1, {ODD}, m1 under its name" in refused
    more = domain(name="g", disks=[{"name": "system"}, {"name": "data", "size": "1MiB"}])
    assert any("were taken without it" in note for note in more["notes"])
    copy = domain(name="g2", clone_of="g")
    assert f"snapshots s1, {ODD}, m1 of g are not copied to g2" in copy["notes"]
    assert (
        len(json.loads(LAB.on("hyper1", f"qemu-img info --backing-chain --output=json {IMAGES}/g2-system.qcow2"))) == 1
    )
    LAB.on("hyper1", "virsh -q snapshot-create-as g inside")
    refused = flat(LAB.module("virt_domain", ok=False, name="g", disks=[{"name": "system", "size": "64MiB"}]))
    assert "snapshot inside inside it would have another size" in refused
    gone = domain(name="g", state="absent", remove_storage=True)
    left = [name for name in files("hyper1") if not name.startswith("g2")]
    assert "undefine g with its snapshots" in gone["steps"] and len(left) == 5
    assert all(any(f"{IMAGES}/{name}" in note for note in gone["notes"]) for name in left), (left, gone)


def test_snapshots_of_the_collection_are_its_own_on_the_other_host() -> None:
    """With UEFI variables, which are copied for each; disks are removed with the guest, and copies named."""
    made(firmware="efi")
    for name in ("a", "b"):
        LAB.module("virt_snapshot", guests=["g"], name=name)
    LAB.on("hyper1", "virsh -q destroy g")
    before, kept, names = seen("hyper1"), frozen("hyper1"), files("hyper1")
    assert len([name for name in names if "nvram" in name]) == 2, names
    migrated("hyper1")
    assert seen("hyper2") == before and frozen("hyper2") == kept and files("hyper2") == names
    assert files("hyper1") == []
    removal = {"name": "g", "state": "absent", "remove_storage": True}
    told = LAB.tell({"corral.virt.virt_domain": removal, "register": "told"}, hosts="hyper2")["hyper2"]
    left = files("hyper2")
    assert on() == {} and len(left) == 2 and all("nvram" in name for name in left), left
    assert all(any(f"{IMAGES}/{name}" in note for note in told["notes"]) for name in left), told


@pytest.mark.deep
def test_an_image_below_a_chain_is_in_use() -> None:
    made()
    chain()
    content = LAB.on("hyper1", f"qemu-img info -U --backing-chain --output=json {IMAGES}/g.m1.qcow2")
    base = json.loads(content)[-1]["filename"]
    LAB.module("virt_image", name="tiny.qcow2", state="absent", ok=False)
    assert LAB.on("hyper1", f"test -e {base} && echo there") == "there"
