"""Addresses for a lab's guests by DHCP, as a company's network gives them: on the lab's bridge and nowhere else."""

from __future__ import annotations

import time
from pathlib import Path

from corral_lab import processes
from corral_lab.host import nameservers
from corral_lab.patience import Patience
from corral_lab.places import Lab, Problem, write
from corral_lab.shell import start

PART = "dhcp"
FIRST, LAST = 200, 249  # the last numbers of its addresses
LEASE = "1h"
START_TIMEOUT_S = 15


def reserve(lab: Lab, mac: str, address: str) -> None:
    """From its next request on, a guest with that MAC address gets this IP address."""
    path = _reservations(lab)
    lines = [line for line in path.read_text().splitlines() if not line.startswith(f"{mac},")]
    write(path, "".join(f"{line}\n" for line in [*lines, f"{mac},{address}"]))
    processes.reload(lab.name, PART)


def ensure(lab: Lab) -> None:
    """Have the server running."""
    if processes.find(lab.name, PART):
        return
    _reservations(lab).touch()
    log = lab.state / "logs/dhcp.log"
    log.parent.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)
    # Its socket is bound to the bridge by the kernel (SO_BINDTODEVICE): other labs, and this machine's own network,
    # never hear it.
    process = start(
        "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", "--user=root", "--log-facility=-",
        "--port=0", "--no-resolv", "--no-hosts", f"--interface={lab.bridge}", "--except-interface=lo", "--bind-interfaces",
        f"--dhcp-range={lab.prefix}.{FIRST},{lab.prefix}.{LAST},255.255.255.0,{LEASE}", "--dhcp-authoritative", "--no-ping",
        f"--dhcp-option=option:router,{lab.gateway}", *(f"--dhcp-option=option:dns-server,{each}" for each in nameservers()[:1]),
        f"--dhcp-leasefile={lab.state / 'dhcp-leases'}", f"--dhcp-hostsfile={_reservations(lab)}",
        mark=f"{lab.name}/{PART}", log=log,
    )  # fmt: skip
    patience = Patience(START_TIMEOUT_S)
    while "IP range" not in log.read_text(errors="replace"):
        if process.poll() is not None or patience.is_over:
            raise Problem(f"the DHCP server of lab {lab.name} does not start: see {log}")
        time.sleep(0.05)


def _reservations(lab: Lab) -> Path:
    """Lines `MAC,ADDRESS`; the server reads them again when it is told to."""
    return lab.state / "dhcp-hosts"
