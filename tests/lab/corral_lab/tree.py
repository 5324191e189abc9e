"""The file system of a Debian host, made once per release and set of packages."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from corral_lab import cache, mirror
from corral_lab.places import CACHE
from corral_lab.shell import run

# What a freshly installed Debian server with "standard system utilities" and ssh has, as far as it matters here.
PACKAGES = (
    "ca-certificates", "dbus", "ifupdown", "init", "iproute2", "iputils-ping", "kmod", "less", "netbase", "nftables",
    "openssh-server", "procps", "python3", "python3-apt", "sudo",
)  # fmt: skip

# Debian's own example for a server, with ssh. The firewall role has to live with it and leave it as it is.
NFTABLES = """#!/usr/sbin/nft -f

flush ruleset

table inet filter {
\tchain input {
\t\ttype filter hook input priority filter; policy drop;
\t\tct state established,related accept
\t\tiif "lo" accept
\t\tmeta l4proto { icmp, ipv6-icmp } accept
\t\ttcp dport 22 accept
\t}
\tchain forward {
\t\ttype filter hook forward priority filter; policy accept;
\t}
\tchain output {
\t\ttype filter hook output priority filter; policy accept;
\t}
}
"""

# Keys, names and addresses are each host's own; the kernel's modules are not theirs to load.
FINISH = f"""set -eu
printf %s {shlex.quote(NFTABLES)} > "$1/etc/nftables.conf"
chmod 0755 "$1/etc/nftables.conf"
chroot "$1" systemctl enable --quiet nftables.service ssh.service
chroot "$1" systemctl mask --quiet apt-daily.timer apt-daily-upgrade.timer
# A host is used as soon as it lets root in; the note that others must wait would stand among what a command prints.
ln -s /dev/null "$1/etc/tmpfiles.d/systemd-nologin.conf"
rm -f "$1"/etc/ssh/ssh_host_* "$1/etc/hostname" "$1/etc/resolv.conf"
: > "$1/etc/machine-id"
"""


# Packages as the host itself would install them. Nothing is started: systemd does not run in here.
INSTALL = """set -eu
tree=$1 archives=$2
shift 2
mount -t proc proc "$tree/proc"
mount --bind "$archives" "$tree/var/cache/apt/archives"
cp /etc/resolv.conf "$tree/etc/resolv.conf"
export DEBIAN_FRONTEND=noninteractive
chroot "$tree" apt-get -qq install -o Dpkg::Options::=--force-unsafe-io --no-install-recommends "$@"
rm "$tree/etc/resolv.conf"
umount "$tree/var/cache/apt/archives" "$tree/proc"
"""


def tree(
    release: str, *, packages: Sequence[str], mirror_url: str | None, lab: str, say: Callable[[str], None]
) -> Path:
    """The directory holding a host's files: a bare host's, or those of one on which packages are installed, and
    nothing else is done.
    """
    bare = _bare(release, mirror_url=mirror_url, lab=lab, say=say)
    if not packages:
        return bare
    key = cache.key_of(str(bare), INSTALL, *packages)

    def build(place: Path) -> None:
        archives = CACHE / "packages" / release
        (archives / "partial").mkdir(parents=True, exist_ok=True)
        log = CACHE / "logs" / f"{release}-packages.log"
        run("cp", "-a", "--reflink=auto", bare, place / "root")
        cache.contained("sh", "-c", INSTALL, "install", place / "root", archives, *packages, lab=lab, log=log)

    return cache.built("trees", f"{release}-{key}", build, say=say) / "root"


def _bare(release: str, *, mirror_url: str | None, lab: str, say: Callable[[str], None]) -> Path:
    source = mirror.line_for(release, mirror=mirror_url)
    options = mirror.apt_options()
    key = cache.key_of(release, source, *PACKAGES, FINISH, *options)

    def build(place: Path) -> None:
        cache.contained(
            "mmdebstrap", "--variant=apt", "--mode=root", f"--include={','.join(PACKAGES)}",
            # Its package lists let a host install at once.
            "--skip=cleanup/apt/lists", *(f"--aptopt={each}" for each in options),
            # Stays in the tree: no power cut ends a container of this machine, so packages need not reach its disk one
            # by one.
            "--dpkgopt=force-unsafe-io", f"--customize-hook={FINISH}", release, place / "root", source,
            lab=lab, log=CACHE / "logs" / f"{release}.log",
        )  # fmt: skip

    return cache.built("trees", f"{release}-{key}", build, say=say) / "root"
