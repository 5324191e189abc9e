"""The inventory with real hypervisors: over a slow line."""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.lab.hypervisors import HERE, Hypervisors, hypervisors

pytestmark = [pytest.mark.lab, pytest.mark.deep]

LAB = Hypervisors("reach")
on = functools.partial(LAB.on, "hyper1")
TLS, SLOW = 16514, 49215  # of the ports that role firewall opens, the last one
GUESTS, RUNNING = 30, 3
# A document for each guest, five at a time, addresses of those that run, and what it takes to connect and to end.
ROUND_TRIPS = GUESTS // 5 + 34
SLACK_S = 10  # of a machine that does much else
XML = """<domain type='qemu'><name>{}</name><memory unit='MiB'>32</memory><os><type arch='x86_64' machine='q35'>hvm</type></os>
<devices><interface type='bridge'><source bridge='br0'/></interface>
<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel></devices></domain>"""


@pytest.fixture(scope="module", autouse=True)
def hypervisor() -> Iterator[None]:
    """One host, set up by the collection's own roles."""
    with hypervisors(LAB.test):
        yield


def source(place: Path, **options: t.Any) -> tuple[str, ...]:
    """The lab's hosts, and a source of their guests with these options."""
    file = place / "virt.yml"
    file.write_text(yaml.safe_dump({"plugin": "corral.virt.virt", **options}))
    return (*LAB.ask_nobody, "-i", str(file))


def listed(inventory: tuple[str, ...]) -> tuple[dict[str, t.Any], float]:
    """Variables of all hosts, and the seconds that it took."""
    began = time.monotonic()
    printed = LAB.run("ansible-inventory", *inventory, "--list")
    return json.loads(printed)["_meta"]["hostvars"], time.monotonic() - began


@pytest.fixture(scope="module")
def many() -> Iterator[dict[str, str]]:
    """Guests, a few of which run; the state of each."""
    states = {f"many{number}": "running" if number < RUNNING else "shutdown" for number in range(GUESTS)}
    documents = "".join(XML.format(name).replace("\n", "") + "\n" for name in states)
    on('while read -r one; do echo "$one" >/tmp/one.xml; virsh -q define /tmp/one.xml; done', given=documents)
    on(f"for name in {' '.join(list(states)[:RUNNING])}; do virsh -q start $name; done")
    yield states
    on(f"for name in {' '.join(states)}; do virsh -q destroy $name 2>/dev/null; virsh -q undefine $name; done")


@contextlib.contextmanager
def slow_line(round_trip_ms: int) -> Iterator[subprocess.Popen[str]]:
    """To libvirt, from a port of the same host; gone afterwards."""
    on("cat >/tmp/slow_line.py", given=(HERE / "slow_line.py").read_text())
    command = f"python3 /tmp/slow_line.py {SLOW} {TLS} {round_trip_ms}"
    ssh = ["ssh", "-F", str(LAB.folder / "ssh_config"), "--", "hyper1", command]
    pipe = subprocess.PIPE  # for all three: ssh makes what it inherits non-blocking, which Ansible refuses
    with subprocess.Popen(ssh, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as line:
        try:
            assert line.stdout and line.stdout.readline() == "ready\n"
            yield line
        finally:
            line.terminate()


@pytest.mark.parametrize("round_trip_ms", [20, 200])
def test_a_slow_line_costs_its_round_trips_and_nothing_else(
    many: dict[str, str], tmp_path: Path, round_trip_ms: int
) -> None:
    fast, fast_s = listed(source(tmp_path))
    uri = f"qemu+tls://{{{{ virt_address }}}}:{SLOW}/system?pkipath={{{{ virt_pki_dir }}}}"
    with slow_line(round_trip_ms) as line:
        slow, slow_s = listed(source(tmp_path, uri=uri))
        round_trips = int(line.communicate(timeout=30)[0])
    assert {name: slow[name]["virt_state"] for name in many} == many
    assert {name: slow[name] for name in many} == {name: fast[name] for name in many}
    assert round_trips <= ROUND_TRIPS
    assert round_trips * round_trip_ms / 1000 < slow_s < fast_s + ROUND_TRIPS * round_trip_ms / 1000 + SLACK_S
    print(f"{round_trip_ms} ms: {round_trips} round trips, {slow_s:.1f} s; without, {fast_s:.1f} s")
