"""Hypervisors are upgraded one after another, and rebooted; judged by virsh, dpkg and the boots of the hosts.

The guests have no operating system: QEMU moves them all the same.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES, ROOT, Hypervisors, hypervisors

pytestmark = pytest.mark.lab

HOSTS = ("hyper1", "hyper2")
GUESTS = {"web1", "web2", "kept"}  # the last one is off, and starts with its host
MARK = "/var/lib/libvirt/corral-maintenance.json"
HOOK = "/etc/libvirt/hooks/qemu.d/50-corral"
RUNNING_ONLY = (
    *("ansible-playbook", "corral.virt.rolling_update", "-e", "host=hyper1"),
    *("-e", "reboot=always", "-e", "running_only=true"),
)
GUIDE = (ROOT / "docs/docsite/rst/guide_maintenance.rst").read_text()
BOOT = "cat /proc/sys/kernel/random/boot_id"
# A repository of the host's own: `publish NAME VERSION MORE` puts a package there, MORE being lines of its control
# file.
PUBLISH = r"""publish() {
    rm -rf /srv/new && mkdir -p /srv/new/DEBIAN /srv/packages && cd /srv/packages
    printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: X <x@example.org>\nDescription: x\n' "$1" "$2" >/srv/new/DEBIAN/control
    printf "$3" >>/srv/new/DEBIAN/control
    printf '#!/bin/sh\n%s\n' "${4:-true}" >/srv/new/DEBIAN/postinst && chmod +x /srv/new/DEBIAN/postinst
    dpkg-deb --build /srv/new "$1_$2.deb" >/dev/null
    for each in *.deb; do
        dpkg-deb --field "$each"
        printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$each" "$(stat -c %s "$each")" "$(sha256sum <"$each" | cut -d' ' -f1)"
    done >Packages
}
set -e
"""
# Version 2 of `rival` cannot be installed unless `old` is removed.
REPOSITORY = f"""{PUBLISH}
rm -rf /srv/packages; publish dummy 1; publish rival 1; publish old 1
dpkg -i /srv/packages/*_1.deb
publish dummy 2; publish rival 2 'Conflicts: old\\n'
echo 'deb [trusted=yes] file:/srv/packages ./' >/etc/apt/sources.list.d/local.list
apt-get -q update && apt-mark hold dummy rival && apt-get -qy upgrade && apt-mark unhold dummy rival
"""
# A bridge and a pool that are gone when the host boots, and what keeps them.
FLEETING = """set -e; ip link add br9 type bridge; mkdir /run/data
virsh pool-define-as data dir --target /run/data && virsh pool-start data && virsh pool-autostart data"""
MENDED = r"""set -e; echo 'd /run/data' >/etc/tmpfiles.d/data.conf && systemd-tmpfiles --create data.conf && virsh pool-start data
printf 'auto br9\niface br9 inet manual\n\tpre-up ip link add br9 type bridge\n' >/etc/network/interfaces.d/br9 && ifup br9"""
LACKS = "hyper1 lacks what it had before (bridges: br9; active storage pools: data)"


@pytest.fixture(scope="module")
def lab() -> Iterator[Hypervisors]:
    """Two hypervisors with guests, and newer packages for them."""
    wish = {"vcpus": 1, "memory": "64MiB", "disks": [{"name": "system", "size": "64MiB"}], "state": "running"}
    here = [
        {**wish, "name": "web1", "autostart": True},
        {**wish, "name": "kept", "autostart": True, "state": "present"},
    ]
    with hypervisors("upgrade", hosts=2) as lab:
        lab.play({"corral.virt.virt_domains": {"domains": here}})
        lab.play({"corral.virt.virt_domain": {**wish, "name": "web2"}}, hosts="hyper2")
        for host in HOSTS:
            lab.on(host, REPOSITORY)
        yield lab


def upgrade(lab: Hypervisors, options: str = "", *, ok: bool = True) -> str:
    """Run the playbook as the guide says it, and what was printed."""
    command = f"ansible-playbook corral.virt.rolling_update {options}"
    assert f"$ {command}\n" in GUIDE
    return re.sub(r"\s+", " ", lab.run(*shlex.split(command), *lab.ask_nobody, ok=ok))


def guests(lab: Hypervisors, state: str = "--all") -> dict[str, set[str]]:
    """Names by host."""
    return {host: set(lab.on(host, f"virsh list --name {state}").split()) for host in HOSTS}


def boots(lab: Hypervisors) -> dict[str, str]:
    """What is another one after a reboot, by host."""
    return {host: lab.on(host, BOOT) for host in HOSTS}


def packages(lab: Hypervisors, host: str) -> dict[str, str]:
    """Versions by name."""
    lines = lab.on(host, "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n'").splitlines()
    return {name: version for name, version, status in map(str.split, lines) if status == "installed"}


def world(lab: Hypervisors) -> dict[str, object]:
    """What an upgrade changes."""
    look = (
        f"{BOOT}; virsh list --all | sort; virsh pool-list --all; ls -lR --time-style=full-iso {IMAGES}; ls {MARK} "
        "2>/dev/null || true"
    )
    return {host: (lab.on(host, look), packages(lab, host)) for host in HOSTS}


@pytest.mark.deep
def test_check_mode_tells_and_changes_nothing(lab: Hypervisors) -> None:
    before = world(lab)
    output = upgrade(lab, "-e reboot=always --check --diff")
    assert "web1 -> hyper2: " in output and "web2 -> hyper1: " in output and "upgraded: dummy" in output
    for host in HOSTS:
        assert re.search(rf"Upgrade packages \(apt\)\] \*+ [^\[]*changed: \[{host}\]", output)
        assert re.search(rf"Reboot\] \*+ changed: \[{host}\]", output)
    assert world(lab) == before


@pytest.mark.deep
def test_a_host_that_lacks_something_stays_in_maintenance_and_ends_it(lab: Hypervisors) -> None:
    """It is upgraded and rebooted by then, and its guests are elsewhere, once; the next host is as it was."""
    booted, there = boots(lab), packages(lab, "hyper2")
    lab.on("hyper1", FLEETING)
    output = upgrade(lab, "-e reboot=always", ok=False)
    assert LACKS in output
    assert (
        "hyper1 failed and stays in maintenance; the hosts after it are unchanged. Fix it and run the same command again."
        in output
    )
    assert '"reason": "upgrade"' in lab.on("hyper1", f"cat {MARK}")
    now = boots(lab)
    assert now["hyper1"] != booted["hyper1"] and now["hyper2"] == booted["hyper2"]
    assert packages(lab, "hyper1")["dummy"] == "2" and packages(lab, "hyper2") == there
    lab.on("hyper2", f"test ! -e {MARK}")
    assert guests(lab) == {"hyper1": set(), "hyper2": GUESTS}
    assert guests(lab, "--state-running")["hyper2"] == GUESTS - {"kept"}


@pytest.mark.deep
def test_what_it_lacks_is_not_forgotten(lab: Hypervisors) -> None:
    """Run again, the host begins without them."""
    booted = boots(lab)
    output = upgrade(lab, "-e host=hyper1", ok=False)
    assert LACKS in output
    lab.on("hyper1", f"test -e {MARK}")
    assert boots(lab) == booted


@pytest.mark.deep
def test_mended_the_same_command_finishes(lab: Hypervisors) -> None:
    booted, there = boots(lab), {host: packages(lab, host) for host in HOSTS}
    lab.on("hyper1", MENDED)
    upgrade(lab, "-e reboot=always -e snapshot=before")
    taken = {lab.on("hyper1", f"virsh snapshot-list {guest} --name").strip() for guest in GUESTS}
    (name,) = taken  # it moved with them, and was taken once
    assert re.fullmatch(r"before-\d{8}T\d{6}Z", name)
    lab.run(
        "ansible-playbook",
        "corral.virt.delete_snapshot",
        "-e",
        f"guest={','.join(GUESTS)}",
        "-e",
        f"snapshot={name}",
    )
    assert not set(boots(lab).values()) & set(booted.values())
    for host in HOSTS:
        assert packages(lab, host) == {**there[host], "dummy": "2"} and packages(lab, host)["rival"] == "1"
        lab.on(host, f"test ! -e {MARK} && test -d /sys/class/net/br0/bridge")
        assert re.search(r"default +active +yes", lab.on(host, "virsh pool-list --all"))
        other = next(each for each in HOSTS if each != host)
        lab.on(host, f"virsh -c qemu+tls://{other}/system hostname")
    assert "bridge" in lab.on("hyper1", "ls /sys/class/net/br9")
    assert "data" in lab.on("hyper1", "virsh pool-list --name").split()
    assert guests(lab) == {"hyper1": GUESTS, "hyper2": set()}
    assert guests(lab, "--state-running")["hyper1"] == GUESTS - {"kept"}


@pytest.mark.deep
def test_a_package_that_fails_and_a_new_kernel(lab: Hypervisors) -> None:
    """No reboot where the upgrade failed.

    When it is mended, one because of the kernel, and a guest that stayed starts with its host.
    """
    booted = boots(lab)
    lab.on("hyper1", f"{PUBLISH} publish dummy 3 '' false; touch /boot/vmlinuz-new")
    output = upgrade(lab, "-e host=hyper1 -e running_only=true", ok=False)
    assert "hyper1 failed and stays in maintenance" in output and "dummy" in output
    lab.on("hyper1", f"test -e {MARK}")
    assert boots(lab) == booted and guests(lab) == {"hyper1": {"kept"}, "hyper2": GUESTS - {"kept"}}
    lab.on("hyper1", f"{PUBLISH} publish dummy 4")
    upgrade(lab, "-e host=hyper1 -e running_only=true")
    now = boots(lab)
    assert now["hyper1"] != booted["hyper1"] and now["hyper2"] == booted["hyper2"]
    assert packages(lab, "hyper1")["dummy"] == "4"
    lab.on("hyper1", f"test ! -e {MARK}")
    assert guests(lab, "--state-running") == {"hyper1": {"kept"}, "hyper2": GUESTS - {"kept"}}


@pytest.mark.deep
def test_a_host_is_not_rebooted_under_a_guest_that_appears_during_its_upgrade(lab: Hypervisors) -> None:
    """A package starts it, where libvirt runs no hook that would refuse that."""
    lab.on(
        "hyper1", f"virsh destroy kept 2>/dev/null; chmod -x {HOOK}; {PUBLISH} publish dummy 5 '' 'virsh start kept'"
    )
    booted = boots(lab)
    output = re.sub(r"\s+", " ", lab.run(*RUNNING_ONLY, ok=False))
    assert "hyper1 does not run the hook of role corral.virt.hypervisor" in output
    assert "These guests run on hyper1, which is to be rebooted kept: running" in output and "-e force=true" in output
    assert "hyper1 failed and stays in maintenance" in output
    assert boots(lab) == booted and packages(lab, "hyper1")["dummy"] == "5"
    assert guests(lab, "--state-running") == {"hyper1": {"kept"}, "hyper2": GUESTS - {"kept"}}
    lab.on("hyper1", f"test -e {MARK}; chmod +x {HOOK}; systemctl restart libvirtd.service")


@pytest.mark.deep
def test_forced_it_shuts_guests_down_that_cannot_leave_and_starts_them_again(lab: Hypervisors) -> None:
    booted = boots(lab)
    lab.on("hyper1", "virsh snapshot-create-as kept before; virsh autostart --disable kept")
    assert "kept: cannot migrate kept to hyper2" in re.sub(r"\s+", " ", lab.run(*RUNNING_ONLY, ok=False))
    # It has no operating system that would shut it down.
    ends = f'until grep -q \'"stopped": \\["\' {MARK}; do sleep 0.2; done; sleep 2; virsh destroy kept'
    ending = lab.start("ssh", "-F", lab.folder / "ssh_config", "--", "hyper1", ends)
    output = re.sub(r"\s+", " ", lab.run(*RUNNING_ONLY, "-e", "force=true"))
    assert "Domain 'kept' destroyed" in ending.communicate(timeout=60)[0]
    assert "kept: running" in output and "These guests start on hyper1: kept" in output
    now = boots(lab)
    assert now["hyper1"] != booted["hyper1"] and now["hyper2"] == booted["hyper2"]
    lab.on("hyper1", f"test ! -e {MARK}")
    assert guests(lab, "--state-running") == {"hyper1": {"kept"}, "hyper2": GUESTS - {"kept"}}
    lab.on("hyper1", "virsh snapshot-delete kept before; virsh autostart kept")


@pytest.mark.deep
def test_a_guest_that_starts_with_its_host_starts_when_the_maintenance_ends(lab: Hypervisors) -> None:
    """Not before, and not from a package either. A host that was drained before stays in maintenance."""
    lab.on("hyper1", f"virsh destroy kept; {PUBLISH} publish dummy 6 '' 'virsh start kept || true'")
    lab.run("ansible-playbook", "corral.virt.drain", "-e", "host=hyper1", "-e", "reason=fan", "-e", "running_only=true")
    booted = boots(lab)
    output = re.sub(r"\s+", " ", lab.run(*RUNNING_ONLY))
    assert "hyper1 was in maintenance before (fan) and stays in maintenance" in output
    assert boots(lab)["hyper1"] != booted["hyper1"] and packages(lab, "hyper1")["dummy"] == "6"
    assert guests(lab, "--state-running")["hyper1"] == set() and "kept" in guests(lab)["hyper1"]
    undrain = ("ansible-playbook", "corral.virt.undrain", "-e", "host=hyper1")
    output = lab.run(*undrain, "--check")
    assert "These guests start on hyper1: kept" in output and guests(lab, "--state-running")["hyper1"] == set()
    lab.on("hyper1", f"test -e {MARK}")
    assert "start kept" in lab.run(*undrain, "-v") and guests(lab, "--state-running")["hyper1"] == {"kept"}
    lab.on("hyper1", f"test ! -e {MARK}; virsh destroy kept")
    assert "These guests start" not in lab.run(*undrain), "it is off because somebody wants that"
    assert guests(lab, "--state-running")["hyper1"] == set()


# The version before: the last release, and until there is one, a commit that stored guests, disks and certificates.
EARLIER = "63fb05dd"
KINDS = ("ACTION", "FILTER", "INVENTORY")
# Guests as a user of that version has them in the inventory.
SITE_GUESTS: list[dict[str, t.Any]] = [
    {"name": "old1", "memory": "64MiB", "vcpus": 1, "disks": [{"name": "system", "size": "64MiB"}], "state": "running"},
    {
        "name": "old2",
        "memory": "64MiB",
        "vcpus": 2,
        "tags": ["front"],
        "autostart": True,
        "state": "present",
        "disks": [{"name": "system", "size": "64MiB"}, {"name": "data", "size": "32MiB", "serial": "d1"}],
        "interfaces": [{"name": "eth0", "bridge": "br0"}],
        "graphics": {"type": "vnc"},
    },
]


@pytest.fixture
def versions(lab: Hypervisors, tmp_path: Path) -> dict[str, dict[str, str]]:
    """Environments with the version before and with this one, each installed from its tarball."""
    git = ("git", "-C", ROOT)
    tag = subprocess.run(
        [*git, "describe", "--tags", "--abbrev=0", "HEAD^"], check=False, capture_output=True, text=True
    )
    earlier = tag.stdout.strip() or EARLIER
    if subprocess.run([*git, "cat-file", "-e", f"{earlier}^{{commit}}"], check=False, capture_output=True).returncode:
        pytest.skip(f"this clone has no {earlier}: git fetch --unshallow --tags")
    found = {}
    for name, commit in (("before", earlier), ("now", "HEAD")):
        place = tmp_path / name
        lab.run(*git, "worktree", "add", "--detach", place / "checkout", commit)
        lab.run("ansible-galaxy", "collection", "build", "--output-path", place, place / "checkout")
        lab.run(*git, "worktree", "remove", "--force", place / "checkout")
        (tarball,) = place.glob("*.tar.gz")
        found[name] = {**lab.environment, "ANSIBLE_COLLECTIONS_PATH": str(place)}
        # The lab's ansible.cfg names the plugins of this checkout, for short names of modules.
        found[name] |= dict.fromkeys(("ANSIBLE_LIBRARY", *(f"ANSIBLE_{kind}_PLUGINS" for kind in KINDS)), str(place))
        found[name].pop("PYTHONPATH", None)  # Ansible looks for collections there, too, and finds this checkout
        install = ("ansible-galaxy", "collection", "install", "--offline", "--force", "-p", place, tarball)
        subprocess.run(install, env=found[name], check=True, capture_output=True)
    return found


@pytest.mark.deep
def test_the_version_before_made_all_and_this_one_changes_nothing(
    lab: Hypervisors, versions: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """Hosts, certificates and guests of `site`, and the definitions of guests byte by byte."""
    variables = tmp_path / "vars.yml"
    variables.write_text(json.dumps({"virt_guests": SITE_GUESTS}))
    command = ("ansible-playbook", "corral.virt.site", *lab.ask_nobody, "-e", f"@{variables}")

    def run(version: str, *words: str) -> dict[str, str]:
        done = subprocess.run(
            [*command, *words], cwd=tmp_path, env=versions[version], check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        (tmp_path / f"{version}{len(words)}.log").write_text(done.stdout)
        return dict(re.findall(r"^(\S+) +: .*changed=(\d+)", done.stdout, re.MULTILINE))

    def definitions() -> dict[str, str]:
        return {
            each["name"]: lab.on(where[each["name"]], f"virsh dumpxml --inactive {each['name']}")
            for each in SITE_GUESTS
        }

    run("before")
    where = {name: host for host, names in guests(lab).items() for name in names}
    made = definitions()
    assert set(run("now", "--check").values()) == {"0"}
    assert set(run("now").values()) == {"0"}
    assert definitions() == made
