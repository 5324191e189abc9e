"""Power states of guests on a real hypervisor, judged by virsh, its event log and ls; never by our modules.

Guests here are a boot sector, which obeys ACPI (or does not) in no time. What needs a guest agent is in test_seeds.py,
which has a Debian.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
import typing as t
import uuid as uuids
from collections.abc import Iterator
from datetime import datetime

import pytest

from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES, Hypervisors, hypervisors

pytestmark = pytest.mark.lab

LAB = Hypervisors("states")
on = functools.partial(LAB.on, "hyper1")
EVENTS = "/var/tmp/events"
COMMAND_S = 600

NETWORK = "<interface type='network'><source network='default'/><model type='virtio'/></interface>"
# Its firmware would ask the lab's DHCP server for an address.
BRIDGE = "<interface type='bridge'><source bridge='br0'/><model type='virtio'/><rom enabled='no'/></interface>"
AGENT = "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>"
CONSOLE = "<serial type='pty'><log file='/var/log/libvirt/qemu/{}-console.log'/></serial>"


def boot_sector(*, obeys: bool = True, deaf_s: int = 0, says: bytes = b"") -> bytes:
    """A guest in 512 bytes: says its text on the first serial port, hears nothing for a while, then powers off when
    asked to.
    """
    # of what is real-mode code; SeaBIOS puts q35's ACPI status at 0x600, enable at 0x602, control at 0x604
    text_at = 0x7C00 + 0x100
    code = bytes.fromhex("fb 31c0 8ed8")  # sti; xor ax, ax; mov ds, ax
    if says:
        # mov si, text; mov cx, length; mov dx, 0x3f8; 1: lodsb; out dx, al; loop 1b
        code += (
            b"\xbe"
            + text_at.to_bytes(2, "little")
            + b"\xb9"
            + len(says).to_bytes(2, "little")
            + bytes.fromhex("baf803 ac ee e2fc")
        )
    if deaf_s:
        # mov cx, ticks; 1: hlt; loop 1b
        code += b"\xb9" + (deaf_s * 18).to_bytes(2, "little") + bytes.fromhex("f4 e2fd")
    if obeys:
        # Enable the power button; 1: hlt; in ax, status; test ah, 1; jz 1b; out control, sleep type 0 and go.
        code += bytes.fromhex("ba0206 b80001 ef f4 ba0006 ed f6c401 74f6 ba0406 b80020 ef")
    code += bytes.fromhex("f4 ebfd")  # 1: hlt; jmp 1b
    return code.ljust(0x100, b"\0") + says.ljust(0xFE, b"\0") + b"\x55\xaa"


def module(*flags: str, ok: bool = True, **arguments: t.Any) -> str:
    """Call virt_domain: what it says, in one line."""
    name = "virt_domains" if "domains" in arguments else "virt_domain"
    return LAB.module(name, *flags, ok=ok, timeout_s=COMMAND_S, **arguments)


def cycle(**arguments: t.Any) -> None:
    """Check, do, check again, do again."""
    before = on("virsh list --all --title")
    assert "CHANGED" in module("--check", **arguments)
    assert on("virsh list --all --title") == before
    assert "CHANGED" in module(**arguments)
    for flags in (["--check"], []):
        assert "CHANGED" not in module(*flags, **arguments)


def disk(path: str, target: str) -> str:
    """The element of a disk."""
    driver = "<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>"
    return f"{driver}<source file='{path}'/><target dev='{target}' bus='virtio'/></disk>"


def define(
    name: str, code: bytes | None = None, *, devices: str = "", os_more: str = "", firmware: str = "bios"
) -> None:
    """A guest made by virsh; its code is on a disk that the record calls its own."""
    path = f"{IMAGES}/{name}-system.qcow2"
    if code is not None:
        on(f"echo {base64.b64encode(code).decode()} | base64 -d > /tmp/code; truncate -s 1M /tmp/code")
        on(f"qemu-img convert -f raw -O qcow2 /tmp/code {path}")
        devices += disk(path, "vda")
    attribute, os_more = (" firmware='efi'", "") if firmware == "efi" else ("", os_more or "<boot dev='hd'/>")
    uuid, host = uuids.uuid4(), on("virsh capabilities | sed -n 's:.*<uuid>\\(.*\\)</uuid>.*:\\1:p'")
    seal = hashlib.sha256(f"{path}\n{uuid}\n{host}".encode()).hexdigest()[:16]
    xml = f"""<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid><metadata><corral:guest
      xmlns:corral='urn:corral:virt:guest:1'><corral:volume guest='{uuid}' host='{host}' seal='{seal}'>{path}</corral:volume>
      </corral:guest></metadata><memory unit='MiB'>64</memory><vcpu>1</vcpu>
      <os{attribute}><type arch='x86_64' machine='q35'>hvm</type>{os_more}</os><features><acpi/></features><cpu mode='maximum'/>
      <devices>{devices}</devices></domain>"""
    on(f"virsh -q pool-refresh default; cat > /tmp/{name}.xml <<'X'\n{xml}\nX\nvirsh -q define /tmp/{name}.xml")


def state(name: str) -> str:
    """What virsh says, with the reason."""
    return on(f"virsh domstate --reason {name}")


def events(name: str) -> list[tuple[datetime, str]]:
    """What happened to a guest, as `virsh event` has seen it."""
    found = re.findall(rf"^(\S+ \S+): event '(\S+)' for domain '{name}':? ?(.*)$", on(f"cat {EVENTS}"), re.MULTILINE)
    return [
        (datetime.fromisoformat(when.replace("+0000", "+00:00")), f"{kind} {what}".strip())
        for when, kind, what in found
    ]


def kinds(name: str) -> list[str]:
    """The same without times, and without what is said more than once."""
    seen = [what for _when, what in events(name)]
    return [what for index, what in enumerate(seen) if what not in seen[:index]]


@pytest.fixture(scope="module", autouse=True)
def hypervisor() -> Iterator[None]:
    """A hypervisor, and a network on it that gives leases."""
    with hypervisors("states"):
        on("virsh -q net-start default; nft add rule inet filter input iifname virbr0 udp dport 67 accept")
        on(f"setsid -f sh -c 'virsh event --all --loop --timestamp' > {EVENTS} 2>&1 < /dev/null")
        define("plain", boot_sector())
        define("deaf", boot_sector(obeys=False))
        yield


@pytest.fixture
def plain() -> str:
    """A running guest that obeys at once."""
    on("virsh -q destroy plain 2>/dev/null; virsh -q start plain; sleep 1")
    return "plain"


@pytest.fixture
def ports_filtered() -> str:
    """A running guest that hears nothing."""
    on("virsh -q destroy deaf 2>/dev/null; virsh -q start deaf")
    return "deaf"


def test_states_come_about_and_are_left_alone(ports_filtered: str) -> None:
    cycle(name=ports_filtered, state="paused")
    assert state(ports_filtered) == "paused (user)"
    cycle(name=ports_filtered, state="running")
    assert state(ports_filtered) == "running (unpaused)"
    cycle(name=ports_filtered, state="destroyed")
    assert state(ports_filtered) == "shut off (destroyed)"


def test_shutdown_is_known_when_it_happens(plain: str) -> None:
    module(name=plain, state="shutdown", wait_timeout=60)
    now = datetime.fromisoformat(on("date -u +%Y-%m-%dT%H:%M:%S.%N")[:26] + "+00:00")
    assert state(plain) == "shut off (shutdown)"
    (stopped,) = (when for when, what in events(plain)[-3:] if what.startswith("lifecycle Stopped"))
    assert (now - stopped).total_seconds() < 3
    assert "CHANGED" not in module(name=plain, state="shutdown")


def test_paused_guest_hears(plain: str) -> None:
    on(f"virsh -q suspend {plain}")
    module(name=plain, state="shutdown", wait_timeout=60)
    assert state(plain) == "shut off (shutdown)"


@pytest.mark.deep
def test_paused_guest_is_paused_after_a_restart() -> None:
    """Who has paused it did not ask for it to run."""
    define("kept", boot_sector())
    on("virsh -q start kept; sleep 1; virsh -q suspend kept")
    output = module(name="kept", memory="65MiB", allow_restart=True)
    assert "resume kept" in output and "start kept paused" in output
    assert state("kept").startswith("paused") and on("virsh dominfo kept | grep Max").endswith("66560 KiB")
    output = module(name="kept", memory="66MiB", allow_restart=True, state="running")
    assert state("kept") == "running (booted)"
    on("virsh -q destroy kept; virsh -q undefine kept")


@pytest.mark.deep
def test_guest_that_hears_late_is_asked_again() -> None:
    define("late", boot_sector(deaf_s=4))
    on("virsh -q start late")
    module(name="late", state="shutdown", wait_timeout=12)
    assert state("late") == "shut off (shutdown)"
    assert "lifecycle Shutdown Finished after guest request" in kinds("late")


@pytest.mark.deep
def test_deaf_guest_runs_on_unless_forced(ports_filtered: str) -> None:
    output = module(name=ports_filtered, state="shutdown", wait_timeout=2, ok=False)
    assert "cannot shut down deaf: it did not do so within 2 s" in output
    assert "in its firmware or has nothing to boot from" in output, "SeaBIOS has read one sector"
    assert state(ports_filtered) == "running (booted)"
    output = module(name=ports_filtered, state="rebooted", wait_timeout=2, ok=False)
    assert "cannot reboot deaf: it did not do so within 2 s" in output
    assert "set force: true to reset it then" in output
    before = kinds(ports_filtered)
    module(name=ports_filtered, state="rebooted", wait_timeout=2, force=True)
    assert "reboot" not in before
    assert "reboot" in kinds(ports_filtered), "reset"
    module(name=ports_filtered, state="shutdown", wait_timeout=2, force=True)
    assert state(ports_filtered) == "shut off (destroyed)"


def test_only_asked_nobody_waits(plain: str, ports_filtered: str) -> None:
    """Would the deaf one be waited for, this would take all the time there is and fail."""
    assert "ask to shut down deaf" in module(name=ports_filtered, state="shutdown", wait=False, wait_timeout=COMMAND_S)
    assert "ask to reboot deaf" in module(name=ports_filtered, state="rebooted", wait=False, wait_timeout=COMMAND_S)
    assert state(ports_filtered) == "running (booted)"
    module(name=plain, state="shutdown", wait=False)
    on("for try in $(seq 50); do virsh domstate plain | grep -q off && break; sleep 0.2; done")
    assert state(plain) == "shut off (shutdown)"


def test_reboot_and_reset(plain: str) -> None:
    number = on(f"virsh domid {plain}")
    assert "CHANGED" in module("--check", name=plain, state="rebooted")
    assert "reboot" not in kinds(plain)
    module(name=plain, state="rebooted", wait_timeout=60)
    assert "reboot" in kinds(plain)
    assert on(f"virsh domid {plain}") == number, "the same process: the guest did it itself"
    count = len(events(plain))
    module(name=plain, state="reset")
    assert [what for _when, what in events(plain)[count:]][:1] == ["reboot"]
    on(f"virsh -q set-lifecycle-action {plain} reboot destroy; sleep 1")
    module(name=plain, state="rebooted", wait_timeout=60)
    assert on(f"virsh domid {plain}") != number, "it powered off, and was started again"
    assert state(plain) == "running (booted)"


def test_address_from_a_lease() -> None:
    define("pxe", devices=NETWORK, os_more="<boot dev='network'/>")
    output = module(name="pxe", state="running", wait_for_ip="lease", wait_timeout=60)
    (leased,) = re.findall(r"(192\.168\.122\.\d+)/", on("virsh domifaddr pxe"))
    assert f"addresses: - {leased}" in output


def test_reason_why_there_is_no_address() -> None:
    says = b"one\r\n\x1b[31mpanic:\x1b[0m \x07no <root>\r\n" + b"x" * 150 + b"\r\n"
    define("why", boot_sector(obeys=False, says=says), devices=NETWORK + AGENT + CONSOLE.format("why"))
    output = module(name="why", state="running", wait_for_ip="any", wait_timeout=4, ok=False)
    for words in (
        "no address of why within 4 s",
        "disk reads since its start: 1, so it is still in its firmware or has nothing to boot from",
        "guest agent: not connected",
        "packets sent since its start: 0",
        r"leases of network default: none for it",
        "last lines of its console: ",
        "one | panic: no <root> | xxx",
        "already done: start why",
    ):
        assert words in output, words
    assert "\x1b" not in output


def test_reason_on_a_bridge_and_off() -> None:
    define("wired", devices=BRIDGE)
    output = module(name="wired", state="running", wait_for_ip="lease", wait_timeout=1, ok=False)
    assert "no libvirt network gives it leases (use any)" in output
    # Again and again: a busy machine looks at it late, and starts it anew.
    on("setsid -f sh -c 'for turn in 1 2 3 4 5 6; do sleep 4; virsh destroy wired; done' >/dev/null 2>&1 </dev/null")
    output = module(name="wired", state="running", wait_for_ip="any", wait_timeout=60, ok=False)
    assert "no address of wired: it powered off in the meantime" in output


KEPT = "/var/lib/libvirt/qemu/{snapshot,checkpoint}/* /var/lib/libvirt/qemu/{save,nvram} /var/lib/libvirt/swtpm"


@pytest.mark.deep
def test_absent_takes_what_libvirt_keeps() -> None:
    guests = ["snapped", "saved", "checked", "efi", "tpm"]
    for name in guests:
        tpm = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>" if name == "tpm" else ""
        define(name, boot_sector(obeys=False), devices=tpm, firmware="efi" if name in ("efi", "tpm") else "bios")
    on("for guest in snapped saved checked efi tpm; do virsh -q start $guest; done; sleep 1")
    on("virsh -q snapshot-create-as snapped one; virsh -q managedsave saved; virsh -q checkpoint-create-as checked one")
    on("virsh -q destroy efi; virsh -q destroy tpm")
    kept = on(f"bash -c 'ls {KEPT}'")
    for trace in (
        "checked:\none.xml",
        "snapped:\none.xml",
        "saved.save",
        "efi_VARS.fd",
        "tpm_VARS.fd",
        on("virsh domuuid tpm"),
    ):
        assert trace in kept
    wanted = [
        {"name": name, "state": "absent", "remove_storage": True, "force": True, "wait_timeout": 1} for name in guests
    ]
    cycle(domains=wanted)
    left = on(f"virsh list --all --name; ls {IMAGES}; bash -c 'ls {KEPT} 2>/dev/null'; true")
    assert not re.findall(rf"^(?:{'|'.join(guests)}|one\.xml|[0-9a-f-]{{36}})\b.*", left, re.MULTILINE)


def test_absent_takes_only_what_the_guest_owns() -> None:
    on(
        f"cd {IMAGES}; truncate -s 1M some.iso shared.raw; qemu-img create -q -f qcow2 /tmp/base 1M; virsh -q "
        "pool-refresh default"
    )
    LAB.module("virt_image", name="base.qcow2", src="/tmp/base", remote_src=True)
    disks = [
        {"name": "system", "image": "base.qcow2"},
        {"name": "data", "size": "64MiB"},
        {"name": "lent", "size": "64MiB"},
        {"name": "stood-on", "size": "64MiB"},
        {"name": "cd", "device": "cdrom", "source": f"{IMAGES}/some.iso", "bus": "sata"},
        {"name": "shared", "source": f"{IMAGES}/shared.raw", "format": "raw", "shareable": True},
    ]
    module(name="owner", state="shutdown", vcpus=1, memory="64MiB", interfaces=[], disks=disks)
    before = set(on(f"ls {IMAGES}").split())
    define("borrower", devices=disk(f"{IMAGES}/owner-lent.qcow2", "vdb"))
    on(f"qemu-img create -q -f qcow2 -b owner-stood-on.qcow2 -F qcow2 {IMAGES}/overlay.qcow2")
    assert "kept disk" in module("--check", name="owner", state="absent")
    output = module(name="owner", state="absent", remove_storage=True)
    assert "kept disk /var/lib/libvirt/images/owner-lent.qcow2 of owner: guest borrower uses it" in output
    assert before - set(on(f"ls {IMAGES}").split()) == {"owner-system.qcow2", "owner-data.qcow2"}
    assert "owner-lent" in on("virsh vol-list default")
    assert "CHANGED" not in module(name="owner", state="absent", remove_storage=True)


def test_transient_guest_goes_with_its_power() -> None:
    define("passing", boot_sector())
    on("virsh -q undefine passing; virsh -q create /tmp/passing.xml; sleep 1")
    module(name="passing", state="absent", wait_timeout=60)
    assert "passing" not in on("virsh list --all")
    assert kinds("passing")[-1].startswith("lifecycle Stopped Shutdown")
    assert "CHANGED" not in module(name="passing", state="absent")
