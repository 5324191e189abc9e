"""A lab's network: one bridge, one /24, a way out."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from corral_lab.places import STATE, Lab, Problem, labs, locked
from corral_lab.shell import run, run_json

FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
FORWARD_WAS = STATE / ".ip_forward"


def claim(name: str, checkout: Path, wish: int | None = None) -> Lab:
    """Record a new lab with a network nobody uses: the one that is wished for, if it is free."""
    with locked("networks"):
        taken = {lab.subnet for lab in labs()}
        routes = [
            each["dst"] for each in run_json("ip", "-j", "-4", "route", "show", "table", "all") if "/" in each["dst"]
        ]
        known = [ipaddress.ip_network(each, strict=False) for each in routes]
        for subnet in (*([] if wish is None else [wish]), *range(1, 255)):
            lab = Lab(name, checkout, subnet)
            if subnet not in taken and not any(ipaddress.ip_network(lab.network).overlaps(each) for each in known):
                lab.save()
                return lab
    raise Problem("cannot find a free network in 10.86.0.0/16: remove labs with `lab.py down --all`")


def up(lab: Lab) -> None:
    """Make what is missing; again: nothing."""
    if not Path(f"/sys/class/net/{lab.bridge}").exists():
        run("ip", "link", "add", lab.bridge, "type", "bridge", "forward_delay", "0")
    run("ip", "address", "replace", f"{lab.gateway}/24", "dev", lab.bridge)
    run("ip", "link", "set", lab.bridge, "up")
    with locked("networks"):
        if FORWARD.read_text().strip() == "0":
            FORWARD_WAS.write_text("0\n")
            FORWARD.write_text("1\n")
    out = f"ip saddr {lab.network} ip daddr != {lab.network} masquerade"
    run(
        "nft",
        "-f",
        "-",
        text=f"""
        table ip {lab.table}
        delete table ip {lab.table}
        table ip {lab.table} {{ chain out {{ type nat hook postrouting priority srcnat; {out}; }}; }}
    """,
    )


def drop_ports(lab: Lab) -> None:
    """Remove the cables of hosts that are gone."""
    if Path(f"/sys/class/net/{lab.bridge}").exists():
        for link in run_json("ip", "-j", "link", "show", "master", lab.bridge):
            run("ip", "link", "delete", link["ifname"], ok=(0, 1, 2))  # the kernel may be faster


def down(name: str) -> None:
    """Remove a lab's network, as far as it is there."""
    lab = Lab(name, STATE, 0)
    drop_ports(lab)
    if Path(f"/sys/class/net/{lab.bridge}").exists():
        run("ip", "link", "delete", lab.bridge)
    run("nft", "-f", "-", text=f"table ip {lab.table}\ndelete table ip {lab.table}\n")


def restore_forwarding() -> None:
    """After the last lab: forward no more, if this machine did not before."""
    with locked("networks"):
        if FORWARD_WAS.exists() and not labs():
            FORWARD.write_text(FORWARD_WAS.read_text())
            FORWARD_WAS.unlink()
