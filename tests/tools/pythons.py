"""The Pythons of this machine that really run, found on PATH and in pyenv."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

NAME = re.compile(r"python3\.(\d+)")


def places() -> list[Path]:
    """Directories to look in: pyenv's versions first, because its shims on PATH name Pythons that do not run."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return [*pyenv.glob("versions/3.*/bin"), *map(Path, os.get_exec_path())]


def version(python: Path) -> str | None:
    """ "3.12" when this interpreter starts and can make virtual environments."""
    code = "import ensurepip, venv, sys; print('%d.%d' % sys.version_info[:2])"
    found = subprocess.run([python, "-c", code], check=False, capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else None


def found() -> dict[str, Path]:
    """One real interpreter for each version, oldest first."""
    pythons: dict[str, Path] = {}
    for place in places():
        for python in place.glob("python3.*"):
            if not NAME.fullmatch(python.name):
                continue
            real = python.resolve()
            named = python.name.removeprefix("python")
            if named not in pythons and version(real) == named:
                pythons[named] = real
    return dict(sorted(pythons.items(), key=lambda item: int(item[0].split(".")[1])))


if __name__ == "__main__":
    for number, path in found().items():
        print(number, path)
