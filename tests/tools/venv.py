"""Make a virtual environment hold exactly what requirements-dev.txt asks for; free when it already does.

Usage: venv.py DIRECTORY [run]. With `run`, a new environment gets only what it takes to use the collection, in the same
versions. Runs under the Python that the environment is to have, with the standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
REQUIREMENTS = [ROOT / "requirements-dev.txt", ROOT / "requirements.txt"]


TO_RUN = ["ansible-core", "-r", str(REQUIREMENTS[1]), "-c", str(REQUIREMENTS[0])]


def recipe(*wanted: str) -> str:
    """Hash of all that decides what the environment contains."""
    ingredients = [sys.version.encode(), sys.base_prefix.encode(), *(path.read_bytes() for path in REQUIREMENTS)]
    return hashlib.sha256(b"\0".join([*ingredients, *(each.encode() for each in wanted)])).hexdigest()


def same_python(directory: Path) -> bool:
    """Whether the environment runs this very Python, so that adding to it is enough."""
    python = directory / "bin/python"
    return python.exists() and python.resolve() == Path(sys.executable).resolve()


def make(directory: Path, *, to_run: bool) -> None:
    """Bring the environment up to its requirements; another make doing the same is waited for."""
    with REQUIREMENTS[0].open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = directory / "recipe"
        found = stamp.read_text() if stamp.exists() else ""
        if found == recipe() or (to_run and found == recipe(*TO_RUN)):
            return
        started = time.monotonic()
        print(f"Making {directory} with Python {sys.version.split()[0]} (up to a minute the first time)", flush=True)
        clear = [] if same_python(directory) else ["--clear"]
        subprocess.run([sys.executable, "-m", "venv", *clear, str(directory)], check=True)
        pip = [str(directory / "bin/python"), "-m", "pip", "--disable-pip-version-check"]
        # Who only runs things needs a part of it: Python compiles that when it is imported.
        what = ["--no-compile", *TO_RUN] if to_run else ["-r", str(REQUIREMENTS[0])]
        subprocess.run([*pip, "install", "-qq", *what], check=True)
        stamp.write_text(recipe(*TO_RUN) if to_run else recipe())
        print(f"Made {directory} in {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    try:
        make(Path(sys.argv[1]).absolute(), to_run=sys.argv[2:] == ["run"])
    except subprocess.CalledProcessError as error:
        sys.exit(f"Cannot make {sys.argv[1]}: {' '.join(error.cmd)} exited with {error.returncode}")
