"""Cgroups of a host's own. systemd-nspawn boots a machine below the cgroup that it is started in; two machines in one
remove each other's services' cgroups, so that a service fails to start with 219/CGROUP now and then."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from corral_lab.host import Host
from corral_lab.patience import Patience
from corral_lab.places import Lab, Problem

MOUNTED = Path("/sys/fs/cgroup")
REMOVAL_TIMEOUT_S = 5
# The kernel lets a moment pass between the end of a process and that of its place in a cgroup.
POLL_S = 0.05


def make(lab: Lab, host: Host) -> list[Path]:
    """Make one in each hierarchy in which systemd groups its services (systemd.io/CONTROL_GROUP_INTERFACE).

    Returns them.
    """
    made = [root / _folder(lab.name) / host.name for root in _roots()]
    for each in made:
        each.mkdir(parents=True, exist_ok=True)
    return made


def remove(lab: str) -> None:
    """Remove a lab's, which have no process any more."""
    patience = Patience(REMOVAL_TIMEOUT_S)
    while left := [root / _folder(lab) for root in _roots() if (root / _folder(lab)).exists()]:
        for top in left:
            for folder, _below, _files in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):  # said below, when it lasts
                    Path(folder).rmdir()
        if patience.is_over:
            raise Problem(f"cannot remove {left[0]}: processes in it are listed by `systemd-cgls {left[0]}`")
        time.sleep(POLL_S)


def _folder(lab: str) -> str:
    return f"corral-lab-{lab}"


def _roots() -> list[Path]:
    """The one hierarchy of version 2, or with version 1 beside it systemd's own two."""
    several = [MOUNTED / name for name in ("systemd", "unified")]
    return [root for root in [MOUNTED] if (root / "cgroup.procs").exists()] or [
        root for root in several if root.is_dir()
    ]
