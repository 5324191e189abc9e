"""Role tuning: settings for now and for the next start, libvirt-guests, and SSH keys between hypervisors; judged by sysctl,
systemctl, dpkg-query, ssh and the hosts' files.

Containers share the kernel of this machine: only what a host has of its own (net.ipv4) is set there.
"""

from __future__ import annotations

import functools
import re
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.lab.hypervisors import Hypervisors, hypervisors

pytestmark = pytest.mark.lab

LAB = Hypervisors("tuning")
on = functools.partial(LAB.on, "hyper1")
BOTH = "hyper1,hyper2"
SYSCTL = "/etc/sysctl.d/90-corral-tuning.conf"
TTL = "net.ipv4.ip_default_ttl"
NOTHING = "net.bridge.bridge-nf-call-nothing"  # no module has it
SETTINGS: dict[str, t.Any] = {
    "tuning_sysctl": {TTL: 70, NOTHING: 0},
    "tuning_libvirt_guests": "shutdown",
    "tuning_packages": ["ethtool"],
}
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=5"
# Debian's own grub-mkconfig, which finds no device below a container.
GRUB = """set -e
apt-get -q install --yes --no-install-recommends grub2-common >/dev/null
dpkg-divert --quiet --rename /usr/sbin/grub-probe
printf '#!/bin/sh\\ncase "$*" in *device*) echo /dev/vda1;; *=fs*) echo ext2;; *=abstraction*) ;; *) exit 1;; esac\\n' >/usr/sbin/grub-probe
chmod 755 /usr/sbin/grub-probe
mkdir -p /boot/grub
touch /boot/vmlinuz-6.1.0-1-amd64
update-grub
"""


@pytest.fixture(scope="module", autouse=True)
def hosts() -> Iterator[None]:
    """Two hypervisors."""
    with hypervisors("tuning", hosts=2):
        yield


def role(*flags: str, hosts: str = "hyper1", ok: bool = True, **known: t.Any) -> str:
    """What the role prints, in one line."""
    text = LAB.play(hosts=hosts, flags=flags, ok=ok, roles=["corral.virt.tuning"], vars=known, gather_facts=False)
    return re.sub(r"\s+", " ", text)


def state(host: str = "hyper1") -> str:
    """All that the role may change there."""
    return LAB.on(
        host,
        f"sysctl {TTL}; ls /etc/sysctl.d /etc/tmpfiles.d /etc/ssh/ssh_config.d /etc/default/grub.d "
        "/run/reboot-required /etc/corral-virt/* 2>&1; cat /root/.ssh/authorized_keys /etc/default/libvirt-guests",
    )


def test_settings_come_stay_and_go() -> None:
    before = state()
    told = role("--check", **SETTINGS)
    assert "changed=2" in told and f"no {NOTHING}" in told and state() == before
    assert "changed=2" in role(**SETTINGS)
    for flags in ((), ("--check",)):
        assert "changed=0" in role(*flags, **SETTINGS)
    assert on(f"sysctl -n {TTL}; tail -2 {SYSCTL}").splitlines() == ["70", f"{TTL} = 70", f"{NOTHING} = 0"]
    assert "install ok" in on("dpkg-query -W -f '${Status}' ethtool")
    on(f"sysctl -qw {TTL}=64 && systemctl restart systemd-sysctl")
    assert on(f"sysctl -n {TTL}") == "70"  # as at the start of the host
    assert on(". /etc/default/libvirt-guests; echo $ON_BOOT $ON_SHUTDOWN $PARALLEL_SHUTDOWN") == "ignore shutdown 10"
    assert on("systemctl is-enabled libvirt-guests; systemctl is-active libvirt-guests").split() == [
        "enabled",
        "active",
    ]
    told = role(tuning_packages=["ethtool"])
    assert "changed=1" in told and f"{TTL}, {NOTHING}: no longer set" in told
    assert on(f"sysctl -n {TTL}") == "70"
    on(f"sysctl -qw {TTL}=64")
    assert state() == before


@pytest.mark.deep
def test_files_of_others_win_or_are_left() -> None:
    on(f"echo {TTL}=99 >/etc/sysctl.d/95-theirs.conf")
    told = role("--check", tuning_sysctl={TTL: 70})
    assert f"/etc/sysctl.d/95-theirs.conf sets {TTL} to 99 at the next start, and wins over 70" in told
    on(f"mv /etc/sysctl.d/95-theirs.conf {SYSCTL}")
    before = state()
    told = role(ok=False, tuning_sysctl={TTL: 70})
    assert f"cannot write {SYSCTL}: it is there, and is not ours" in told and state() == before
    assert "changed=0" in role() and on(f"cat {SYSCTL}") == f"{TTL}=99"
    on(f"rm {SYSCTL}")


def test_bad_input_is_red_before_anything_is_changed() -> None:
    before = state()
    told = role(ok=False, tuning_sysctl={"swappiness": 1, TTL: 70}, tuning_kernel_arguments=["a b"])
    assert "'swappiness' must be a key" in told and "'a b' must be NAME" in told
    told = role(
        ok=False,
        tuning_sysctl={TTL: 70},
        tuning_kernel_arguments=["iommu=pt"],
        tuning_hugepages=[{"size": "3M", "count": 1}],
    )
    assert "none of GRUB" in told and "no such ones" in told
    told = role(ok=False, tuning_sysctl={TTL: 999})
    assert "ip_default_ttl to 999: Invalid argument; it takes no '999'" in told and "already done: write" in told
    assert "changed=1" in role()
    assert state() == before


@pytest.mark.deep
def test_each_host_has_a_key_for_the_others_and_for_nothing_else() -> None:
    keys: dict[str, t.Any] = {"tuning_ssh_keys": True, "hosts": BOTH}
    before = [state(host) for host in ("hyper1", "hyper2")]
    assert role("--check", **keys).count("changed=0") == 0
    assert [state(host) for host in ("hyper1", "hyper2")] == before
    assert role(**keys).count("changed=0") == 0
    for flags in ((), ("--check",)):
        assert role(*flags, **keys).count("changed=0") == 2
    assert on(f"{SSH} hyper2 hostname") == "hyper2" and LAB.on("hyper2", f"{SSH} hyper1 hostname") == "hyper1"
    assert "PTY allocation request failed" in on(f"{SSH} -tt hyper2 true 2>&1 || true")
    on("ip address replace 10.254.254.1/32 dev lo")
    address = LAB.on("hyper2", "hostname -I").split()[0]
    LAB.on("hyper2", "ip route replace 10.254.254.1/32 via " + on("hostname -I").split()[0])
    assert "Permission denied" in on(f"{SSH} -b 10.254.254.1 hyper2 true", ok=False)
    assert on(f"{SSH} {address} hostname") == "hyper2"
    assert "hyper2 took no part in this run" in role(tuning_ssh_keys=True, tuning_hypervisors=["hyper1", "hyper2"])
    assert LAB.on("hyper2", f"{SSH} hyper1 hostname") == "hyper1"
    assert "changed=3" in role(tuning_ssh_keys=True, tuning_hypervisors=["hyper1"])  # the other left the group
    assert "Permission denied" in LAB.on("hyper2", f"{SSH} hyper1 true", ok=False)
    assert role(hosts=BOTH).count("changed=0") == 0
    on("ip address del 10.254.254.1/32 dev lo")
    assert [state(host) for host in ("hyper1", "hyper2")] == before
    assert role(hosts=BOTH).count("changed=0") == 2


@pytest.mark.deep
def test_kernel_arguments_reach_the_entries_of_grub() -> None:
    on(GRUB)
    before = entries()
    arguments: dict[str, t.Any] = {"tuning_kernel_arguments": ["intel_iommu=on", "iommu=pt"]}
    told = role("--check", **arguments)
    assert "changed=1" in told and "lacks intel_iommu=on iommu=pt" in told and "rolling_update" in told
    assert entries() == before
    assert "changed=1" in role(**arguments)
    assert before and all("intel_iommu=on iommu=pt" in line for line in entries())
    assert "corral.virt" in on("cat /run/reboot-required")
    assert "changed=0" in role(**arguments)
    on("sed -i s/iommu=pt// /boot/grub/grub.cfg")  # as an update that failed
    assert "changed=1" in role(**arguments) and "changed=0" in role(**arguments)
    assert "changed=1" in role()
    assert entries() == before and on("ls /etc/default/grub.d /run/reboot-required 2>&1 || true").count("corral") == 0


def entries() -> list[str]:
    """What GRUB gives to kernels; its texts depend on the locale of who makes them."""
    return re.findall(r"^\s+linux\s.*$", on("cat /boot/grub/grub.cfg"), re.MULTILINE)


@pytest.mark.deep
@pytest.mark.parametrize(("mode", "left"), [("shutdown", "shut off"), ("suspend", "saved"), ("ignore", "running")])
def test_what_happens_to_a_guest_when_the_host_stops(mode: str, left: str) -> None:
    """The unit stops as it does at the end of the host; the guest has no system that would shut down."""
    assert "changed=1" in role(tuning_libvirt_guests=mode, tuning_libvirt_guests_timeout=3)
    on(
        "virsh -q define /dev/stdin && virsh -q start g",
        given="<domain type='qemu'><name>g</name><memory>65536</memory><os><type>hvm</type></os></domain>",
    )
    try:
        on("systemctl restart libvirt-guests" if mode == "ignore" else "systemctl stop libvirt-guests")
        told = on("virsh domstate g; virsh list --all --with-managed-save --name; journalctl -u libvirt-guests -n 20")
        if mode == "shutdown":
            assert "Timeout expired" in told
        else:
            assert ("g" in told.split()[2:4]) == (mode == "suspend") and told.startswith(
                "shut off" if mode == "suspend" else left
            )
    finally:
        on(
            "systemctl start libvirt-guests; virsh -q destroy g; virsh -q managedsave-remove g; virsh -q undefine g; true"
        )
        role()
