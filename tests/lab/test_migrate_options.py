"""Each option of a migration does what it says: judged by what libvirt tells QEMU, as its log has it, by virsh and by
qemu-img.

The guest has no operating system. It writes 32 MiB of memory anew 18 times a second, so that it never converges by
itself, and numbered sectors to its disk.
"""

from __future__ import annotations

import base64
import collections
import json
import re
import subprocess
import typing as t
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from _pytest.mark.structures import ParameterSet

from ansible_collections.corral.virt.tests.faults.boot_sector import COUNTER, SPAN_MIB, boot_sector, count
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import (
    IMAGES,
    Hypervisors,
    allowed_to_fault,
    hypervisors,
)
from ansible_collections.corral.virt.tests.lab.test_migrate import there

pytestmark = pytest.mark.lab

HOSTS = ("hyper1", "hyper2")
NAME, MIB = "busy", 1 << 20
DISKS = [f"{IMAGES}/{NAME}-{disk}.qcow2" for disk in ("system", "data")]
LOG = "/var/log/libvirt/qmp.log"
WRITE_DOWN = f"""printf '%s\\n' 'log_filters = "2:qemu.qemu_monitor"' 'log_outputs = "3:journald 2:file:{LOG}"' >>/etc/libvirt/libvirtd.conf
systemctl restart libvirtd"""
CLEAR = (
    f"for verb in destroy undefine; do virsh $verb {NAME}; done; rm -f {' '.join(DISKS)}; virsh pool-refresh default"
)
OTHER_PORT = """table inet other {
  chain from { type nat hook prerouting priority dstnat; tcp dport 16515 redirect to :16514; }
  chain only { type filter hook input priority -10; tcp dport 16514 ct original proto-dst 16514 reject; }
}"""
BLACK_HOLE = (
    "table inet hole { chain in { type filter hook input priority -10; tcp dport 49152-49215 meta length > "
    "250 drop; }; }"
)
# One directory for both hosts, which no libvirt knows to be shared.
LENT = "/srv/lent"
# Else a host sees for seconds how long a file was before the other one wrote to it.
COHERENT = "direct_io,dir_cache=no,attr_timeout=0,entry_timeout=0,sshfs_sync"
LEND = f"""mkdir -p {LENT} /root/.ssh && cat >/root/.ssh/lent && chmod 600 /root/.ssh/lent
sshfs -o allow_other,IdentityFile=/root/.ssh/lent,StrictHostKeyChecking=no,{COHERENT} hyper1:{LENT} {LENT}"""
BUSY = SPAN_MIB * MIB // 4096  # pages that are written with each tick: all of them
FAST, ENDLESS = {"bandwidth": 48, "auto_converge": False}, {"bandwidth": 1, "auto_converge": False}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It boots a guest that writes all the time; with 20 MiB that the guest does not touch."""
    folder = tmp_path_factory.mktemp("image")
    raw, image = folder / "tiny.raw", folder / "tiny.qcow2"
    raw.write_bytes(boot_sector(BUSY).ljust(64 * MIB, b"\0"))
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", raw, image], check=True)
    subprocess.run(["qemu-io", "-c", "write -q -P 7 32M 20M", image], check=True)
    return image


@pytest.fixture(scope="module")
def lab(image: Path) -> Iterator[Hypervisors]:
    """Two hypervisors that write down what they tell QEMU.

    Libvirt before 9.4 compresses no parallel connections: both of Debian 13.
    """
    with hypervisors("options", hosts=2, more=("--release", "trixie")) as lab:
        for host in HOSTS:
            lab.on(host, f"{CLEAR}; {'' if lab.kept else WRITE_DOWN}")
        made(lab, image)
        yield lab


def made(lab: Hypervisors, image: Path) -> None:
    """The guest, anew, on the first host; the image on both."""
    disks = [{"name": disk, "size": "64MiB", "image": "tiny.qcow2"} for disk in ("system", "data")]
    lab.play({"corral.virt.virt_image": {"name": "tiny.qcow2", "src": str(image)}}, hosts="hyper")
    lab.play(
        {"corral.virt.virt_domain": {"name": NAME, "vcpus": 1, "memory": "64MiB", "disks": disks, "state": "running"}}
    )
    until(lambda: counter(lab, "hyper1") > 0)


def on(lab: Hypervisors) -> dict[str, str]:
    """State by host, as virsh says it; of the hosts that have it."""
    states = {host: lab.on(host, f"virsh domstate {NAME} 2>/dev/null || true") for host in HOSTS}
    return {host: state for host, state in states.items() if state}


def world(lab: Hypervisors) -> dict[str, str]:
    """What a migration could change; libvirt indents metadata as it gets them."""
    look = f"virsh list --all; ls {IMAGES}; virsh dumpxml {NAME} 2>/dev/null | sed 's/^ *//'"
    return {host: lab.on(host, look) for host in HOSTS}


def counter(lab: Hypervisors, host: str) -> int:
    """The number that the guest writes next, from its memory."""
    output = lab.on(host, f"virsh qemu-monitor-command {NAME} --hmp 'xp /1wx {COUNTER:#x}'")
    return int(output.rpartition(":")[2], 16)


def command(host: str, *flags: str, **options: t.Any) -> list[str]:
    """The module, called where the guest is, or was."""
    output = json.dumps({"name": NAME, "dest": there(host), **options})
    return ["ansible", host, "-m", "corral.virt.virt_migrate", "-a", output, *flags]


def told(lab: Hypervisors, host: str, *flags: str, **options: t.Any) -> dict[str, t.Any]:
    """What it returns."""
    return t.cast(
        "dict[str, t.Any]",
        yaml.safe_load(lab.run(*command(host, *flags, *lab.ask_nobody, **options)).partition(" => ")[2]),
    )


def steps(result: dict[str, t.Any]) -> list[str]:
    """Without the size of its disks: the guest goes on writing."""
    return [re.sub(r"[0-9.]+ GiB", "GiB", step) for step in result["steps"]]


def refused(lab: Hypervisors, host: str, *flags: str, **options: t.Any) -> str:
    """What it says when it fails, in one line."""
    return re.sub(r"\s+", " ", lab.run(*command(host, *flags, *lab.ask_nobody, **options), ok=False))


def checked(lab: Hypervisors, options: dict[str, t.Any]) -> tuple[str, dict[str, str], dict[str, t.Any]]:
    """Check mode tells a change and makes none; QEMU's log is empty then.

    Where the guest is, the hosts as they are, and what was told.
    """
    (here,) = on(lab)
    before = world(lab)
    planned = told(lab, here, "--check", **options)
    assert planned["changed"] and world(lab) == before
    lab.on(here, f": >{LOG}")
    return here, before, planned


def moved(lab: Hypervisors, **options: t.Any) -> tuple[str, list[tuple[str, t.Any]]]:
    """To the other host, after it was told what will be; and then nothing is left to do.

    Where it is, and what its QEMU heard before.
    """
    here, _before, planned = checked(lab, options)
    done = told(lab, here, **options)
    assert steps(done) == steps(planned)
    assert on(lab) == {there(here): "running"}
    assert told(lab, here, **options)["changed"] is False
    return there(here), heard(lab, here)


def stayed(lab: Hypervisors, **options: t.Any) -> tuple[str, list[tuple[str, t.Any]]]:
    """It began to move and was given up: all is as it was. What was said, and what its QEMU heard before the end."""
    here, before, _planned = checked(lab, options)
    output = refused(lab, here, **options)
    assert on(lab) == {here: "running"} and world(lab) == before
    commands = heard(lab, here)
    (end,) = [number for number, (word, _its) in enumerate(commands) if word == "migrate_cancel"]
    return output, commands[:end]


def heard(lab: Hypervisors, host: str) -> list[tuple[str, t.Any]]:
    """What libvirt told QEMU since the log was emptied, and between that the passes over the memory that QEMU began."""
    lines = lab.on(
        host, f"""grep -hoE '(SEND_MSG.* msg=|RECV_EVENT.* event=)[{{].*' {LOG} | grep -v '"query-'"""
    ).splitlines()
    output = [json.loads(line[line.index("{") :]) for line in lines]
    return [(one.get("execute") or one["event"], one.get("arguments") or one.get("data") or {}) for one in output]


def settings(commands: list[tuple[str, t.Any]]) -> dict[str, list[t.Any]]:
    """Each capability and parameter of the migration, and argument of the copies of disks, with all its values in
    order.
    """
    found = collections.defaultdict(list)
    for word, its in commands:
        pairs = (
            [(each["capability"], each["state"]) for each in its["capabilities"]]
            if word == "migrate-set-capabilities"
            else []
        )
        for name, value in (*pairs, *(its.items() if word in ("migrate-set-parameters", "blockdev-mirror") else ())):
            found[name].append(value)
    return found


def cases(rows: Sequence[tuple[t.Any, ...]], *, first: set[int]) -> list[ParameterSet]:
    """Rows named after the options in them; those that are not among the first are long by nature together."""
    marks = [[] if number in first else [pytest.mark.deep] for number in range(len(rows))]
    return [pytest.param(*row, marks=its, id=" ".join(row[0])) for row, its in zip(rows, marks, strict=True)]


def backing(lab: Hypervisors, host: str) -> list[bool]:
    """Whether each disk stands on an image there."""
    infos = [json.loads(lab.on(host, f"qemu-img info -U --output json {disk}")) for disk in DISKS]
    return ["backing-filename" in info for info in infos]


TUNED: list[tuple[dict[str, t.Any], dict[str, t.Any]]] = [
    (
        {"parallel": 2, "compression": ["zlib"], "bandwidth": 64, "max_downtime": 2000},
        {
            "multifd": [True],
            "multifd-channels": [2],
            "multifd-compression": ["zlib"],
            "auto-converge": [True],
            "xbzrle": [False],
        }
        | {"max-bandwidth": [64 * MIB], "speed": [64 * MIB] * 2, "downtime-limit": [2000]},
    ),
    (
        {"compression": ["xbzrle"], "auto_converge": False, "max_downtime": 3000},
        {
            "xbzrle": [True],
            "multifd": [False],
            "auto-converge": [False],
            "downtime-limit": [3000],
            "postcopy-ram": [False],
        },
    ),
    # What may be paused is too short for 32 MiB, up to the last step.
    ({"schedule": "suspend_if_needed", **FAST}, {"downtime-limit": [100, 150, 200, 300, 400, 500, 5000]}),
    (
        {"schedule": "very_large", "bandwidth": 16, "auto_converge": False},
        {"downtime-limit": [300, 400, 500, 700, 1000, 1500, 5000]},
    ),
]


@pytest.mark.parametrize(("options", "expected"), cases(TUNED, first={0}))
def test_what_is_said_reaches_qemu(lab: Hypervisors, options: dict[str, t.Any], expected: dict[str, t.Any]) -> None:
    _host, commands = moved(lab, **options)
    found = settings(commands)
    assert {name: found[name] for name in expected} == expected


POSTCOPY: list[tuple[dict[str, t.Any], int]] = [
    ({"schedule": "postcopy", **FAST}, 5),
    ({"postcopy": True, "postcopy_after_passes": 3, **FAST}, 4),
    ({"postcopy": True, "postcopy_after": 2, **ENDLESS}, 1),  # which takes half a minute for a pass
]


@pytest.mark.parametrize(("options", "in_pass"), cases(POSTCOPY, first={1}))
def test_postcopy_begins_when_it_was_said(lab: Hypervisors, options: dict[str, t.Any], in_pass: int) -> None:
    """Of the schedule, four passes that do not help are the least; what is jitter may be more."""
    with allowed_to_fault():
        _host, commands = moved(lab, **options)
    words = [word for word, _arguments in commands]
    passes = [
        its["pass"] for word, its in commands[: words.index("migrate-start-postcopy")] if word == "MIGRATION_PASS"
    ]
    assert passes[-1] >= in_pass if "schedule" in options else passes[-1] == in_pass
    limits = [100, 150, 200] if "schedule" in options else []
    assert settings(commands)["downtime-limit"] == limits and settings(commands)["postcopy-ram"] == [True]


GIVEN_UP: list[tuple[dict[str, t.Any], str, list[int]]] = [
    ({"schedule": "minimal_downtime", **FAST}, "passes made no progress", [100, 150, 200, 300, 400, 500]),
    ({"timeout": 4, "timeout_action": "abort", **ENDLESS}, "it took longer than timeout, 4 s", []),
]


@pytest.mark.parametrize(("options", "why", "limits"), cases(GIVEN_UP, first={1}))
def test_it_is_given_up_when_it_was_said(
    lab: Hypervisors, options: dict[str, t.Any], why: str, limits: list[int]
) -> None:
    output, commands = stayed(lab, **options)
    assert why in output and "Seen on both hosts: still on the source" in output
    assert settings(commands)["downtime-limit"] == limits


@pytest.mark.deep
def test_at_its_timeout_it_is_suspended_and_arrives(lab: Hypervisors) -> None:
    """It could not have arrived otherwise: no pause is allowed."""
    _host, commands = moved(lab, timeout=8, timeout_action="suspend", bandwidth=24, auto_converge=False, max_downtime=1)
    words = [word for word, _arguments in commands]
    assert words.index("migrate") < words.index("stop") < words.index("migrate-continue")


def test_aborted_while_it_is_under_way(lab: Hypervisors) -> None:
    """Who began it is told; nothing is left of it, and a second time there is nothing to abort."""
    (here,) = on(lab)
    before = world(lab)
    run = lab.start(*command(here, **ENDLESS))
    until(lambda: "Unbounded" in lab.on(here, f"virsh domjobinfo {NAME} 2>&1 || true"), timeout_s=90)
    under_way = world(lab)
    planned = told(lab, here, "--check", state="aborted")
    assert planned["changed"] and world(lab) == under_way
    assert "Unbounded" in lab.on(here, f"virsh domjobinfo {NAME}")
    assert "another run is migrating it" in refused(lab, here)
    done = told(lab, here, state="aborted")
    assert done["changed"] and done["steps"] == planned["steps"]  # who began it clears away
    printed = re.sub(r"\s+", " ", run.communicate(timeout=60)[0])
    assert run.returncode != 0 and "Seen on both hosts: still on the source" in printed
    assert on(lab) == {here: "running"} and world(lab) == before
    assert told(lab, here, state="aborted")["changed"] is False


@pytest.mark.deep
def test_a_path_that_drops_large_packets_ends_the_move_and_leaves_nothing(lab: Hypervisors) -> None:
    """Both daemons answer, and QEMU's own connections carry nothing but their first bytes."""
    (here,) = on(lab)
    dest, before = there(here), world(lab)
    lab.on(dest, "nft -f -", given=BLACK_HOLE)
    try:
        assert "nothing was sent for 10 s although both hosts answer" in refused(lab, here, stall_timeout=10, **FAST)
    finally:
        lab.on(dest, "nft delete table inet hole")
    assert on(lab) == {here: "running"} and world(lab) == before


def test_what_will_be_brought_counts_only_in_check_mode(lab: Hypervisors) -> None:
    """A run without the image there sends all, whatever was assumed."""
    (here,) = on(lab)
    dest = there(here)
    lab.on(dest, f"rm -f {IMAGES}/tiny.* {IMAGES}/.tiny.*")
    planned = told(lab, here, "--check", storage="auto", assume_images=True)
    assert "vda delta" in " ".join(planned["steps"])
    told(lab, here, assume_images=True)
    assert on(lab) == {dest: "running"} and backing(lab, dest) == [False, False]


def test_no_sector_was_lost(lab: Hypervisors) -> None:
    """After all these ways it goes on, and every number stands on the disk once, in order."""
    (here,) = on(lab)
    written = counter(lab, here)
    until(lambda: counter(lab, here) > written)
    lab.on(here, f"virsh suspend {NAME} && virsh destroy {NAME} --graceful && qemu-img check -q {DISKS[0]}")
    head = lab.on(
        here, f"qemu-img dd -f qcow2 -O raw bs=1M count=16 if={DISKS[0]} of=/run/head && base64 /run/head; rm /run/head"
    )
    assert count(base64.b64decode(head)) >= written
    lab.on(here, CLEAR)


@pytest.mark.deep
def test_another_uri_and_a_disk_that_travels_whole_and_what_stays_behind(lab: Hypervisors, image: Path) -> None:
    """The usual port is closed. Where one disk travels whole, so does the other.

    Files that were kept are in the way back.
    """
    made(lab, image)
    (here,) = on(lab)
    dest, before = there(here), world(lab)
    lab.on(dest, "nft -f -", given=OTHER_PORT)
    try:
        assert f"qemu+tls://{dest}/system" in refused(lab, here)
        mixed = refused(
            lab,
            here,
            "--check",
            disk_storage={"data": "full", "system": "delta"},
            dest_uri=f"qemu+tls://{dest}:16515/system",
        )
        assert "disk vda: vdb is copied in full, and libvirt copies all disks of a guest in the same way" in mixed
        assert "free (reserve); make room there" in refused(
            lab, here, reserve="100TiB", dest_uri=f"qemu+tls://{dest}:16515/system"
        )
        assert "nowhere" in refused(lab, here, dest_uri="qemu+nowhere:///system")
        assert world(lab) == before
        moved(lab, dest_uri=f"qemu+tls://{dest}:16515/system", disk_storage={"data": "full"}, keep_source_storage=True)
    finally:
        lab.on(dest, "nft delete table inet other")
    assert backing(lab, dest) == [False, False] and backing(lab, here) == [True, True]
    _refused_for_what_was_kept(lab, dest)
    lab.on(here, f"rm {' '.join(DISKS)}")
    found = settings(moved(lab, parallel=3, compression=["zstd"])[1])
    assert (found["multifd-channels"], found["multifd-compression"], found["downtime-limit"]) == ([3], ["zstd"], [])


def _refused_for_what_was_kept(lab: Hypervisors, host: str) -> None:
    before = world(lab)
    output = refused(lab, host, "--check")
    assert refused(lab, host) == output and world(lab) == before
    for disk in DISKS:
        assert f"{disk} already exists on the destination, and no migration of this guest created it" in output
    assert "if it is a leftover, inspect it and remove it there" in output


@pytest.mark.deep
def test_storage_that_only_the_user_calls_shared(lab: Hypervisors, image: Path) -> None:
    """Refused while libvirt would take the disk from a guest that has left.

    Else the guest writes to it before the move and after it.
    """
    for host in HOSTS:
        lab.on(host, CLEAR + " || true")
    lab.on("hyper1", f"mkdir {LENT}")
    lab.on("hyper2", LEND, given=(lab.folder / "id_ed25519").read_text())
    for host in HOSTS:
        lab.on(host, f"virsh pool-define-as lent dir --target {LENT} && virsh pool-start lent")
    lab.module("virt_image", name="tiny.qcow2", src=str(image), pool="lent")
    disk = {"name": "system", "pool": "lent", "image": "tiny.qcow2", "clone": "copy", "cache": "none"}
    lab.play(
        {"corral.virt.virt_domain": {"name": NAME, "vcpus": 1, "memory": "64MiB", "disks": [disk], "state": "running"}}
    )
    assert "would change its owner (dynamic_ownership) when the guest has left" in refused(
        lab, "hyper1", "--check", storage="shared"
    )
    for setting in (f'shared_filesystems = ["{LENT}"]', "dynamic_ownership = 0"):
        for host in HOSTS:
            lab.on(
                host,
                f"sed -i '/^shared_filesystems/d' /etc/libvirt/qemu.conf; echo '{setting}' >>/etc/libvirt/qemu.conf",
            )
            lab.on(host, "systemctl restart libvirtd")
        here, _commands = moved(lab, storage="shared")
        written = counter(lab, here)
        until(lambda here=here, written=written: counter(lab, here) > written)  # type: ignore[misc]
    path = f"{LENT}/{NAME}-system.qcow2"
    lab.on(here, f"virsh suspend {NAME} && virsh destroy {NAME} --graceful && qemu-img check -q {path}")
    head = lab.on(here, f"qemu-img dd -f qcow2 -O raw bs=1M count=16 if={path} of=/run/head && base64 /run/head")
    assert count(base64.b64decode(head)) >= written
