"""What is built once and shared by all labs: named after what it was made from, there whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from corral_lab.places import CACHE, locked
from corral_lab.shell import run_logged


def key_of(*parts: str) -> str:
    """A short name for what something is made from."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def built(kind: str, name: str, build: Callable[[Path], None], *, say: Callable[[str], None]) -> Path:
    """The cached directory of that name, built now if it is not there yet."""
    place = CACHE / kind / name
    if place.exists():
        return place
    with locked(f"{kind}-{name}", waiting=f"waiting for another run that builds {name}"):
        if place.exists():
            return place
        for left in place.parent.glob(".*.*"):
            if not Path(f"/proc/{left.suffix[1:]}").exists():
                shutil.rmtree(left)
        new = place.with_name(f".{name}.{os.getpid()}")
        new.mkdir(parents=True)
        say(f"building {kind} {name}")
        began = time.monotonic()
        build(new)
        new.rename(place)
        say(f"built {kind} {name} in {time.monotonic() - began:.0f} s")
    return place


def contained(*command: str | Path, lab: str, log: Path) -> None:
    """Run a builder whose mounts and processes end with it, as it ends with us: a killed run leaves files only."""
    log.parent.mkdir(parents=True, exist_ok=True)
    own = ("unshare", "--mount", "--propagation", "private", "--pid", "--mount-proc", "--fork", "--kill-child=KILL")
    run_logged("setpriv", "--pdeathsig", "KILL", "--", *own, "--", *command, mark=f"{lab}/build", log=log)
