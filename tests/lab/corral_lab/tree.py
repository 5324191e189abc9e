"""The file system of a bare Debian host, made once per release."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from corral_lab import cache, mirror
from corral_lab.places import CACHE

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
rm -f "$1"/etc/ssh/ssh_host_* "$1/etc/hostname" "$1/etc/resolv.conf"
: > "$1/etc/machine-id"
"""


def tree(release: str, *, mirror_url: str | None, lab: str, say: Callable[[str], None]) -> Path:
    """The directory holding a bare host's files."""
    source = mirror.line_for(release, mirror=mirror_url)
    options = mirror.apt_options()
    key = cache.key_of(release, source, *PACKAGES, FINISH, *options)

    def build(place: Path) -> None:
        cache.contained(
            "mmdebstrap", "--variant=apt", "--mode=root", f"--include={','.join(PACKAGES)}",
            # Its package lists let a host install at once.
            "--skip=cleanup/apt/lists", *(f"--aptopt={each}" for each in options),
            f"--customize-hook={FINISH}", release, place / "root", source,
            lab=lab, log=CACHE / "logs" / f"{release}.log",
        )  # fmt: skip

    return cache.built("trees", f"{release}-{key}", build, say=say) / "root"
