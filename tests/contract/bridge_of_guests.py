"""What `test_addresses.py` runs in a network namespace of its own: a bridge, guests on it that are namespaces, and a
search for them.

Prints what was found as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
import typing as t
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._address import run_addresses
from ansible_collections.corral.virt.plugins.module_utils._address.plan_address import notes
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_steps
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened

NAMES = ("idle", "liar", "mute", "tagged")  # each at 192.0.2.1N, but `mute`, which has no address
UUID = "00000000-0000-0000-0000-00000000000{}"
GUEST = """<domain type='test'><name>{name}</name><uuid>{uuid}</uuid><memory>1024</memory><os><type>hvm</type></os>{seen}
<devices><interface type='bridge'><mac address='{mac}'/><source bridge='br0'/><target dev='tap{number}'/></interface></devices>
<test:runstate xmlns:test="http://libvirt.org/schemas/domain/test/1.0">1</test:runstate></domain>"""
SEEN = "<metadata><g:guest xmlns:g='urn:corral:virt:seen:1'><g:at>{} 192.0.2.10 packets 100</g:at></g:guest></metadata>"
TAG_ONLY = (
    "ip addr flush dev eth0; ip link add link eth0 name v5 type vlan id 5; ip addr add 192.0.2.13/24 dev v5; "
    "ip link set v5 up"
)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def guest(number: int) -> int:
    """A namespace with one end of a cable; the other one is on the bridge."""
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).unshare(0x40000000)  # CLONE_NEWNET
        time.sleep(120)
        os._exit(0)
    time.sleep(0.2)
    ip("link", "add", f"tap{number}", "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    ip("link", "set", f"tap{number}", "master", "br0", "up")
    inside(pid, f"ip link set eth0 address {mac(number)} up")
    if NAMES[number] != "mute":
        inside(pid, f"ip addr add 192.0.2.{10 + number}/24 dev eth0")
    return pid


def inside(pid: int, command: str) -> int:
    return subprocess.run(
        ["nsenter", "-t", str(pid), "-n", "sh", "-c", command], check=False, capture_output=True
    ).returncode


def mac(number: int) -> str:
    return f"52:54:00:00:00:0{number}"


def main(place: str) -> None:
    ip("link", "add", "br0", "type", "bridge", "forward_delay", "0")
    ip("addr", "add", "192.0.2.1/24", "dev", "br0")
    ip("link", "set", "br0", "up")
    pids = [guest(number) for number in range(len(NAMES))]
    try:
        with_vlan = inside(pids[3], TAG_ONLY) == 0
        inside(pids[1], "ip addr flush dev eth0; ip addr add 192.0.2.10/24 dev eth0")
        print(json.dumps({"vlan": with_vlan, **search(place, pids)}))
    finally:
        for pid in pids:
            os.kill(pid, 9)


def search(place: str, pids: t.Sequence[int]) -> dict[str, t.Any]:
    """All guests are looked for; `idle` was at its address before, and `liar` claims that one."""
    texts = []
    for number, name in enumerate(NAMES):
        seen = SEEN.format(mac(number)) if name == "idle" else ""
        texts.append(GUEST.format(name=name, uuid=UUID.format(number), mac=mac(number), number=number, seen=seen))
    Path(place).write_text(f"<node>{''.join(texts)}</node>")
    result: dict[str, t.Any] = {}
    with opened(f"test://{place}") as connection:
        vars(run_addresses)["is_system"] = connection.getURI().__eq__  # whose bridges are here
        talk = "ping -c 20 -i 0.2 -W 1 192.0.2.1"  # also with a tag, where there are such links
        talkers = [subprocess.Popen(["nsenter", "-t", str(pids[at]), "-n", *talk.split()], stdout=-3) for at in (1, 3)]
        begun_s = time.monotonic()
        searches = {
            UUID.format(number): plan_guest_steps.WaitForAddress(name, "packets", 3)
            for number, name in enumerate(NAMES)
        }
        outcomes = run_addresses.find(connection, searches, named=True)
        result["first"] = {one.name: [one.addresses, one.refused, one.record is not None] for one in outcomes.values()}
        for one in talkers:
            one.kill()
        result["seconds"] = time.monotonic() - begun_s
        # Its holder goes; what was recorded is the other one's then.
        inside(pids[0], "ip addr flush dev eth0; ip addr add 192.0.2.20/24 dev eth0")
        searches = {
            UUID.format(number): plan_guest_steps.WaitForAddress(NAMES[number], "packets", 4) for number in (1,)
        }
        outcomes = run_addresses.find(connection, searches, named=True)
        result["moved"] = {one.name: [one.addresses, one.refused] for one in outcomes.values()}
        result["notes"] = notes(outcomes)
        todo = run_addresses.changes(outcomes)
        result["steps"] = sorted(map(str, todo))
        Gate(check_mode=False).run(list(todo), lambda step: run_addresses.do(connection, {step: todo[step]}))
        result["twice"] = sorted(map(str, run_addresses.changes(run_addresses.find(connection, searches, named=True))))
    return result


if __name__ == "__main__":
    main(sys.argv[1])
