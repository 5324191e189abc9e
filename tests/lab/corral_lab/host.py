"""A host's disk: a Debian tree below, all that is its own above."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from corral_lab.places import CACHE, Lab, write
from corral_lab.shell import run, unmount

ARCHIVES = "var/cache/apt/archives"
NETWORKS = {"ifupdown": [], "networkd": [], "networkmanager": ["network-manager"]}  # with what a bare host lacks for it
LINK = "host0"  # so systemd-nspawn calls a machine's network link
# Ansible uses the others as root, and this one as a user with sudo; ssh_config has root everywhere.
NOT_ROOT, USER = "hyper2", "ops"


@dataclass(frozen=True)
class Host:
    """What a host is made of; recorded last, so that a directory with a record is a whole host."""

    name: str
    release: str
    network: str
    address: str
    uuid: str
    tree: Path

    def place(self, lab: Lab) -> Path:
        return lab.state / self.name

    def root(self, lab: Lab) -> Path:
        """Its file system, as seen from outside while it runs."""
        return self.place(lab) / "root"


def hosts(lab: Lab) -> dict[str, Host]:
    """The hosts a lab has, running or not."""
    records = [json.loads(path.read_text()) for path in lab.state.glob("*/host.json")]
    found = (Host(**{**record, "tree": Path(record["tree"])}) for record in records)
    return {host.name: host for host in sorted(found, key=lambda host: (len(host.name), host.name))}


def make(lab: Lab, name: str, *, release: str, network: str, number: int, tree: Path) -> Host:
    """Give a new host its disk, name, address and keys."""
    host = Host(name, release, network, f"{lab.prefix}.{10 + number}", str(uuid.uuid4()), tree)
    root = host.root(lab)
    if root.is_mount():  # an earlier run ended between this and its record: its layers must not go from under the mount
        unmount(root)
    shutil.rmtree(host.place(lab), ignore_errors=True)
    mount(lab, host)
    write(root / "etc/hostname", f"{name}\n")
    write(root / "etc/machine-id", f"{uuid.uuid4().hex}\n", mode=0o444)
    write(
        root / "etc/hosts",
        f"127.0.0.1\tlocalhost\n{host.address}\t{name}\n\n::1\tlocalhost ip6-localhost ip6-loopback\n",
    )
    write(root / "etc/resolv.conf", "".join(f"nameserver {each}\n" for each in nameservers()))
    _write_network(root, lab, host)
    # Ubuntu's makes /dev/kvm in a container; a host has that only when it is given it.
    (root / "etc/systemd/system/qemu-kvm.service").symlink_to("/dev/null")
    (root / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    write(root / "root/.ssh/authorized_keys", lab.key.with_suffix(".pub").read_text(), mode=0o600)
    if name == NOT_ROOT:
        _add_user(lab, root)
    run(
        "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"root@{name}", "-f", root / "etc/ssh/ssh_host_ed25519_key"
    )
    _share_packages(_packages(release), root / ARCHIVES)
    write(host.place(lab) / "host.json", json.dumps(asdict(host), default=str))
    return host


def _add_user(lab: Lab, root: Path) -> None:
    """A user who may become root by sudo, and otherwise nothing."""
    run("useradd", "--root", root, "--create-home", "--shell", "/bin/bash", USER)
    run("chroot", root, "install", "-d", "-o", USER, "-g", USER, "-m", "0700", f"/home/{USER}/.ssh")
    write(root / "home" / USER / ".ssh/authorized_keys", lab.key.with_suffix(".pub").read_text())
    write(root / "etc/sudoers.d" / USER, f"{USER} ALL=(ALL:ALL) NOPASSWD: ALL\n", mode=0o440)


def add_names(lab: Lab) -> None:
    """Tell every host the names of all, without touching what was added there since."""
    known = hosts(lab).values()
    for host in known:
        path = host.root(lab) / "etc/hosts"
        text = path.read_text()
        words = text.split()
        path.write_text(text + "".join(f"{each.address}\t{each.name}\n" for each in known if each.name not in words))


def fetch_packages(lab: Lab, host: Host) -> None:
    """Let a host whose disk is not mounted have the packages of the cache."""
    _share_packages(_packages(host.release), host.place(lab) / "upper" / ARCHIVES)


def keep_packages(lab: Lab, *, away: bool = False) -> None:
    """Put the packages that hosts downloaded into the cache, for the next ones; take them `away` from the hosts."""
    for host in hosts(lab).values():
        archives = host.place(lab) / "upper" / ARCHIVES
        _share_packages(archives, _packages(host.release))
        for package in archives.glob("*.deb") if away else ():
            package.unlink()


def nameservers() -> list[str]:
    """Name servers that can be reached from outside this machine too: not a resolver on its loopback."""
    for path in (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf")):
        if path.exists():
            words = (line.split() for line in path.read_text().splitlines())
            found = [
                word[1] for word in words if word[:1] == ["nameserver"] and not word[1].startswith(("127.", "::1"))
            ]
            if found:
                return found
    return []


def _write_network(root: Path, lab: Lab, host: Host) -> None:
    """A static address, where an administrator would look for it."""
    if host.network == "ifupdown":
        stanza = f"iface {LINK} inet static\n\taddress {host.address}/24\n\tgateway {lab.gateway}\n"
        loopback = "source /etc/network/interfaces.d/*\n\nauto lo\niface lo inet loopback\n"
        write(root / "etc/network/interfaces", f"{loopback}\nauto {LINK}\n{stanza}")
        return
    write(root / "etc/network/interfaces", "auto lo\niface lo inet loopback\n")
    if host.network == "networkmanager":
        profile = f"[connection]\nid={LINK}\nuuid={host.uuid}\ntype=ethernet\ninterface-name={LINK}\n"
        dns = "".join(f"{each};" for each in nameservers())
        settings = f"[ipv4]\nmethod=manual\naddress1={host.address}/24,{lab.gateway}\ndns={dns}\n"
        write(root / f"etc/NetworkManager/system-connections/{LINK}.nmconnection", f"{profile}\n{settings}", mode=0o600)
        return
    settings = f"[Match]\nName={LINK}\n\n[Network]\nAddress={host.address}/24\nGateway={lab.gateway}\n"
    write(root / f"etc/systemd/network/10-{LINK}.network", settings)
    wants = root / "etc/systemd/system/multi-user.target.wants"
    (wants / "systemd-networkd.service").symlink_to("/usr/lib/systemd/system/systemd-networkd.service")


def mount(lab: Lab, host: Host) -> None:
    """Lay the host's own files over its tree."""
    place = host.place(lab)
    root = place / "root"
    if root.is_mount():
        return
    for each in ("root", "upper", "work"):
        (place / each).mkdir(parents=True, exist_ok=True)
    layers = f"lowerdir={host.tree},upperdir={place / 'upper'},workdir={place / 'work'}"
    run("mount", "-t", "overlay", f"{lab.name}-{host.name}", "-o", layers, root)


def _packages(release: str) -> Path:
    return CACHE / "packages" / release


def _share_packages(source: Path, target: Path) -> None:
    """Link packages from one directory into another: apt checks their sums, and replaces but never rewrites them."""
    target.mkdir(parents=True, exist_ok=True)
    for package in source.glob("*.deb"):
        with contextlib.suppress(FileExistsError):
            try:
                os.link(package, target / package.name)
            except OSError as error:
                if isinstance(error, FileExistsError):
                    raise
                shutil.copy2(package, target)
