"""A guest does not move where it cannot start; firmware is found under another path. Between Debian 12 and 13."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.lab.hypervisors import ROOT, Hypervisors, hypervisors, until

pytestmark = [pytest.mark.lab, pytest.mark.deep]

CASES = ROOT / "tests/contract/cold_moves"
CODE, VARIABLES = "/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"
ELSEWHERE = "/usr/share/edk2/ovmf"
NVRAM = "/var/lib/libvirt/qemu/nvram"
# What QEMU takes for a kernel: the magic of its header, and a version that takes any initial RAM disk.
KERNEL = (
    "head -c 65536 /dev/zero >/srv/vmlinuz && head -c 4096 /dev/zero >/srv/initrd && "
    r"printf 'HdrS\002\002' | dd of=/srv/vmlinuz bs=1 seek=514 conv=notrunc status=none"
)


UEFI = f"""<domain type='qemu'><name>uefi</name><memory unit='MiB'>256</memory>
<os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type><loader readonly='yes' type='pflash'>{CODE}</loader>
<nvram template='{VARIABLES}'>{NVRAM}/uefi_VARS.fd</nvram></os><features><acpi/></features></domain>"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Hypervisors]:
    """Guests begin on the older one: the newer one has other firmware, and no virtiofsd."""
    with hypervisors("needs", hosts=2, more=("--host", "hyper2=trixie")) as lab:
        yield lab


def move(lab: Hypervisors, guest: str, to: str, *, ok: bool = True) -> str:
    """By the playbook; what was printed, in one line."""
    arguments = json.dumps({"guest": guest, "to": to})
    command = ("ansible-playbook", "corral.virt.migrate", *lab.ask_nobody, "-v", "-e", arguments)
    return re.sub(r"\s+", " ", lab.run(*command, ok=ok))


def where(lab: Hypervisors, guest: str) -> dict[str, str]:
    """State by host, as virsh says it; of the hosts that have it."""
    states = {host: lab.on(host, f"virsh domstate {guest} 2>/dev/null || true") for host in ("hyper1", "hyper2")}
    return {host: state for host, state in states.items() if state}


def stores(lab: Hypervisors) -> dict[str, list[str]]:
    """What is left where libvirt keeps UEFI variables, by host; of the hosts that have something there."""
    found = {host: lab.on(host, f"ls -A {NVRAM}").split() for host in ("hyper1", "hyper2")}
    return {host: names for host, names in found.items() if names}


def define(lab: Hypervisors, case: str, name: str) -> None:
    """A guest that is off, on hyper1."""
    xml = re.sub("<name>.*</name>", f"<name>{name}</name>", (CASES / f"{case}.xml").read_text())
    lab.on("hyper1", "virsh define /dev/stdin", given=xml)


def starts_and_goes(lab: Hypervisors, guest: str, host: str) -> None:
    """It can start where it is; then it is removed."""
    lab.on(host, f"virsh start {guest} && virsh destroy {guest} && virsh undefine {guest} --nvram")


def test_firmware_that_the_destination_has_not_holds_a_guest_back(lab: Hypervisors) -> None:
    """Debian 13 has no firmware of 2 MiB; in a drain, the guest stays and the reason is told."""
    define(lab, "loader", "small")
    told = r"/usr/share/OVMF/OVMF_CODE\.fd does not exist on hyper2, and .*; install the package that has this firmware"
    assert re.search(told, move(lab, "small", "hyper2", ok=False))
    assert where(lab, "small") == {"hyper1": "shut off"}
    drain = ("ansible-playbook", "corral.virt.drain", *lab.ask_nobody, "-e", "host=hyper1")
    try:
        assert re.search(told, re.sub(r"\s+", " ", lab.run(*drain, ok=False)))
    finally:
        lab.run("ansible-playbook", "corral.virt.undrain", *lab.ask_nobody, "-e", "host=hyper1")
    assert where(lab, "small") == {"hyper1": "shut off"}
    starts_and_goes(lab, "small", "hyper1")


def test_a_kernel_and_a_log_directory_that_are_missing_hold_a_guest_back(lab: Hypervisors) -> None:
    """And nothing does when they are there; live, too."""
    lab.on("hyper2", "rm -rf /srv/vmlinuz /srv/initrd /srv/logs")
    lab.on("hyper1", f"{KERNEL} && mkdir -p /srv/logs /srv/data")
    plain = re.sub(r"\s*<filesystem.*</filesystem>", "", (CASES / "kernel.xml").read_text())
    lab.on("hyper1", "virsh define /dev/stdin && virsh start kernel", given=plain)
    for state in ("running", "shut off"):
        refused = move(lab, "kernel", "hyper2", ok=False)
        assert (
            "/srv/initrd does not exist on hyper2, and /srv/vmlinuz does not exist on hyper2; put it there" in refused
        )
        assert "directory /srv/logs, for logs or sockets of the guest, does not exist on hyper2" in refused
        assert where(lab, "kernel") == {"hyper1": state}
        if state == "running":
            lab.on("hyper1", "virsh destroy kernel")
    lab.on("hyper2", f"{KERNEL} && mkdir -p /srv/logs")
    move(lab, "kernel", "hyper2")
    lab.on("hyper2", "virsh start kernel")
    move(lab, "kernel", "hyper1")
    assert where(lab, "kernel") == {"hyper1": "running"}
    lab.on("hyper1", "virsh destroy kernel && virsh undefine kernel")
    assert "corral-" not in lab.on("hyper1", "virsh pool-list --all") + lab.on("hyper2", "virsh pool-list --all")


def test_a_shared_directory_stays_behind_and_that_is_told(lab: Hypervisors) -> None:
    """Without the directory, and without virtiofsd, the guest could not start."""
    lab.on("hyper1", f"{KERNEL} && mkdir -p /srv/logs /srv/data")
    lab.on("hyper2", "apt-get purge -qy virtiofsd; rm -rf /srv/data")
    define(lab, "kernel", "shares")
    refused = move(lab, "shares", "hyper2", ok=False)
    assert "/srv/data does not exist on hyper2; create the directory and copy what it holds" in refused
    assert "hyper2 has no virtiofsd; install package virtiofsd" in refused
    assert where(lab, "shares") == {"hyper1": "shut off"}
    lab.on("hyper2", f"{KERNEL} && mkdir -p /srv/logs /srv/data && apt-get install -qy virtiofsd")
    assert "the content of /srv/data, which the guest uses, is not copied to hyper2" in move(lab, "shares", "hyper2")
    assert where(lab, "shares") == {"hyper2": "shut off"}
    lab.on("hyper2", "virsh undefine shares")


@pytest.fixture
def no_firmware_and_no_tpm(lab: Hypervisors) -> Iterator[None]:
    """The newer host has neither, as if the packages ovmf and swtpm were not installed."""
    hidden = ("/usr/share/qemu/firmware", "/usr/bin/swtpm")
    lab.on("hyper2", "; ".join(f"mv {path} {path}.hidden" for path in hidden) + "; systemctl restart libvirtd")
    yield
    lab.on("hyper2", "; ".join(f"mv {path}.hidden {path}" for path in hidden) + "; systemctl restart libvirtd")


def test_a_guest_is_not_placed_where_its_firmware_or_tpm_is_missing(
    lab: Hypervisors, no_firmware_and_no_tpm: None
) -> None:
    """By what libvirt says of each host; a task for that very host is refused in check mode, with the packages."""
    asked = {"corral.virt.virt_host_info": {}, "register": "told"}
    told = lab.tell(asked)
    capable = {host: answer["host"]["domain_capabilities"]["platform"] for host, answer in told.items()}
    assert capable == {"hyper1": ["efi", "secure_boot", "tpm"], "hyper2": []}
    wish = {"name": "trusted", "vcpus": 1, "memory": "256MiB", "disks": [], "interfaces": []}
    needs = {"firmware": "efi", "secure_boot": True, "tpm": {"model": "tpm-crb"}}
    hosts = "{{ dict(groups.hyper | zip(groups.hyper | map('extract', hostvars, 'told'))) }}"

    def place(ok: bool, **more: object) -> str:
        placed = {"corral.virt.virt_place": {"hosts": hosts, "guests": [{**wish, **needs, **more}]}, "run_once": True}
        return re.sub(r"\s+", " ", lab.play(asked, placed, hosts="hyper", flags=["-v"], ok=ok))

    assert "trusted -> hyper1: the only host that fits" in place(ok=True)
    assert "hyper2: does not provide guests with efi, secure_boot, tpm" in place(ok=False, vcpus=999)
    made = {"corral.virt.virt_domain": {**wish, "state": "running", "tpm": needs["tpm"]}}
    for flags in (["--check"], []):
        refused = re.sub(r"\s+", " ", lab.play(made, hosts="hyper2", flags=flags, ok=False))
        assert "has no swtpm, which emulates a TPM; install packages swtpm and swtpm-tools on it" in refused
    assert where(lab, "trusted") == {}


@pytest.fixture
def firmware_elsewhere(lab: Hypervisors) -> Iterator[None]:
    """The newer host has the same firmware as other distributions have it, and describes it so."""
    descriptors = "/usr/share/qemu/firmware/*.json"
    there = f"{ELSEWHERE}/code.fd {ELSEWHERE}/variables.fd"
    lab.on(
        "hyper2",
        f"mkdir -p {ELSEWHERE} && mv {CODE} {ELSEWHERE}/code.fd && mv {VARIABLES} {ELSEWHERE}/variables.fd && "
        f"sed -i 's,{CODE},{ELSEWHERE}/code.fd,; s,{VARIABLES},{ELSEWHERE}/variables.fd,' {descriptors}",
    )
    yield
    lab.on(
        "hyper2",
        f"set -- {there}; mv $1 {CODE} && mv $2 {VARIABLES} && "
        f"sed -i 's,{ELSEWHERE}/code.fd,{CODE},; s,{ELSEWHERE}/variables.fd,{VARIABLES},' {descriptors} && rmdir {ELSEWHERE}",
    )


def test_firmware_is_found_under_the_path_of_the_other_host(lab: Hypervisors, firmware_elsewhere: None) -> None:
    """Live there and back, and off; the guest's variables are the same bytes all the time, on the host that has it."""
    lab.on("hyper1", "virsh define /dev/stdin && virsh start uefi", given=UEFI)
    for to, loader in (("hyper2", f"{ELSEWHERE}/code.fd"), ("hyper1", CODE)):
        move(lab, "uefi", to)
        assert where(lab, "uefi") == {to: "running"}
        assert stores(lab) == {to: ["uefi_VARS.fd"]}
        for kind in ("", "--inactive"):
            xml = lab.on(to, f"virsh dumpxml {kind} uefi")
            assert f">{loader}</loader>" in xml
    lab.on("hyper1", "virsh destroy uefi")
    before = lab.on("hyper1", f"sha256sum <{NVRAM}/uefi_VARS.fd")
    move(lab, "uefi", "hyper2")
    assert where(lab, "uefi") == {"hyper2": "shut off"}
    assert lab.on("hyper2", f"sha256sum <{NVRAM}/uefi_VARS.fd") == before
    lab.on("hyper2", "virsh start uefi")
    until(lambda: f">{ELSEWHERE}/code.fd</loader>" in lab.on("hyper2", "virsh dumpxml uefi"))
    lab.on("hyper2", "virsh destroy uefi && virsh undefine uefi --nvram")
