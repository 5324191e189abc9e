"""Install the system packages of bindep.txt that are missing: as root through apt, else say the command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

BINDEP = Path(__file__).parents[2] / "bindep.txt"
ROW = re.compile(r"(?P<name>[^\s\[#]+)\s*(?:\[(?P<selectors>[^\]]*)\])?")


def wanted(text: str, *, platform: str, profiles: set[str]) -> list[str]:
    """Names of the packages that bindep rows select for a platform and profiles."""
    names = []
    for line in text.splitlines():
        row = ROW.match(line)
        if not row:
            continue
        selectors = set((row["selectors"] or "").split())
        platforms = {s.removeprefix("platform:") for s in selectors if s.startswith("platform:")}
        asked = {s for s in selectors if not s.startswith("platform:")}
        if (not platforms or platform in platforms) and (not asked or asked & profiles):
            names.append(row["name"])
    return names


def installed() -> set[str]:
    """Names of all packages dpkg has installed, and of those that these provide: the nodejs of others brings npm."""
    argv = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}, ${Provides}\n"]
    listing = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    there = [line.removeprefix("installed ") for line in listing.splitlines() if line.startswith("installed ")]
    return {name.split()[0] for line in there for name in line.split(",") if name.strip()}


def main(profiles: set[str]) -> int:
    """Install what is missing; the exit code says whether all is there."""
    text = BINDEP.read_text()
    if not shutil.which("dpkg-query"):
        names = " ".join(wanted(text, platform="rpm", profiles=profiles))
        print(f"No apt on this machine; what is needed goes by these names on EL and Fedora: {names}", file=sys.stderr)
        return 0
    missing = sorted(set(wanted(text, platform="dpkg", profiles=profiles)) - installed())
    if not missing:
        return 0
    command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *missing]
    if os.geteuid() != 0:
        print(f"Packages are missing. Run:\n  sudo {' '.join(command)}", file=sys.stderr)
        return 1
    print(f"Installing packages: {' '.join(missing)}", flush=True)
    return next(filter(None, map(_quietly, (["apt-get", "update", "-q"], command))), 0)


def _quietly(command: list[str]) -> int:
    """The exit code; what was printed is news only when it failed."""
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=env, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        print(f"{done.stdout}`{' '.join(command)}` ended with {done.returncode}", file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main({"compile", "dev", *sys.argv[1:]}))
