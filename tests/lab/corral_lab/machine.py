"""A host's machine: a container that boots Debian's own systemd."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from corral_lab import cgroups, kvm, processes
from corral_lab.host import Host, mount
from corral_lab.patience import Patience
from corral_lab.places import Lab, Problem
from corral_lab.shell import MARK, start

BOOT_TIMEOUT_S = 120
# Into cgroups of its own, named up to --.
INTO = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit 1; shift; done; shift'
# A machine that reboots ends with systemd-nspawn's code for "start me again".
AGAIN = ("sh", "-c", f'{INTO}; until "$@"; [ $? -ne 133 ]; do :; done', "nspawn")
CLEAN = (
    "env",
    "-i",
    "--chdir=/root",
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LANG=C.UTF-8",
)


def running(lab: Lab, host: Host) -> bool:
    return bool(processes.find(lab.name, host.name))


def boot(lab: Lab, host: Host) -> None:
    """Start a host's machine; it outlives us."""
    if not host.tree.is_dir():
        remedy = f"remove the lab with `lab.py down --name {lab.name}`"
        raise Problem(f"cannot start {host.name}: its tree {host.tree} is gone: {remedy}")
    mount(lab, host)
    process = start(
        *AGAIN, *cgroups.make(lab, host), "--",
        "systemd-nspawn", "--boot", f"--directory={host.root(lab)}", f"--machine={lab.name}-{host.name}", "--quiet",
        "--settings=no", "--register=no", "--keep-unit", "--console=pipe", "--link-journal=no", "--resolv-conf=off",
        "--timezone=off", f"--network-bridge={lab.bridge}", f"--setenv={MARK}={lab.name}/{host.name}",
        # All a hypervisor needs, but the kernel's modules, which are this machine's.
        "--capability=all", "--drop-capability=CAP_SYS_MODULE", "--bind=/dev/net/tun", "--bind=/dev/fuse",
        *([f"--bind={kvm.node(lab.state)}:{kvm.DEVICE}"] if kvm.node(lab.state).exists() else []),
        mark=f"{lab.name}/{host.name}", log=_log(lab, host),
    )  # fmt: skip
    time.sleep(0.2)
    if process.poll() is not None:
        raise Problem(f"cannot start {host.name}: {_tail(lab, host)}")


def wait(lab: Lab, host: Host) -> str:
    """Wait until a host is up and lets its user in; returns the units that failed."""
    patience = Patience(BOOT_TIMEOUT_S)
    ask = "systemctl is-system-running --wait; systemctl list-units --failed --plain --no-legend"
    ssh = ("ssh", "-F", lab.build / "ssh_config", "-o", "ConnectTimeout=3", host.name, ask)
    while not patience.is_over:
        if not running(lab, host):
            time.sleep(1)  # /proc once did not show what ran: two looks decide
            if not running(lab, host):
                raise Problem(f"{host.name} ended while it was to come up: {_tail(lab, host)}")
        state, *failed = subprocess.run(ssh, check=False, capture_output=True, text=True).stdout.splitlines() or [""]
        if state in ("running", "degraded"):
            return ", ".join(line.split()[0] for line in failed)
        time.sleep(0.3)
    raise Problem(f"{host.name} did not come up in {BOOT_TIMEOUT_S} s: {_tail(lab, host)}")


def execute(lab: Lab, host: Host, command: list[str]) -> int:
    """Run a command inside a host, even one whose network is broken; returns its exit code."""
    init = processes.init_of(lab.name, host.name)
    if init is None:
        raise Problem(f"{host.name} is not running: start it with `lab.py up --name {lab.name}`")
    enter = ("nsenter", f"--target={init}", "--all", *CLEAN, f"TERM={os.environ.get('TERM', 'dumb')}")
    return subprocess.run((*enter, *command), check=False).returncode


def _log(lab: Lab, host: Host) -> Path:
    return lab.state / "logs" / f"{host.name}.log"


def _tail(lab: Lab, host: Host) -> str:
    log = _log(lab, host)
    return f"the end of {log}:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-15:])
