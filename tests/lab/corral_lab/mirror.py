"""Which package mirror to use: the one this machine uses itself."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from corral_lab.places import Problem
from corral_lab.shell import run

DEBIAN, UBUNTU = ("bookworm", "trixie"), ("jammy", "noble", "resolute")
RELEASES = (*DEBIAN, *UBUNTU)
KEYRINGS = Path("/usr/share/keyrings")


@dataclass(frozen=True)
class Archive:
    """Where a distribution's releases come from."""

    name: str
    suites: frozenset[str]
    components: tuple[str, ...]
    keyring: str
    example: str


ARCHIVES = (
    Archive(
        "Debian",
        frozenset({*DEBIAN, "bullseye", "forky", "sid", "stable", "testing", "unstable", "oldstable"}),
        ("main",),
        "debian-archive-keyring.gpg",
        "http://deb.debian.org/debian",
    ),
    Archive(
        "Ubuntu",
        frozenset({*UBUNTU, "focal", "devel"}),
        ("main", "universe"),
        "ubuntu-archive-keyring.gpg",
        "http://archive.ubuntu.com/ubuntu",
    ),
)
# What lets this machine's apt reach its mirror, its hosts need too.
INHERITED = re.compile(r"Acquire::(?:https?::|Check-Date|Check-Valid-Until|ForceIPv|Retries)\S* \"[^\"]+\";")


@dataclass(frozen=True)
class Entry:
    """One source of packages."""

    uri: str
    suite: str
    components: tuple[str, ...]


def line_for(release: str, *, mirror: str | None, apt: Path = Path("/etc/apt")) -> str:
    """The sources.list line for a release; a mirror that offers one release is taken to offer the others."""
    archive = next(each for each in ARCHIVES if release in each.suites)
    keyring = KEYRINGS / archive.keyring
    signed = f"[signed-by={keyring}] " if keyring.exists() else ""
    if archive.name == "Ubuntu" and not signed:
        raise Problem(f"{keyring} is missing, which verifies the packages of {release}: install ubuntu-keyring")
    uri = mirror or _mirror_for(release, archive, apt)
    return f"deb {signed}{uri} {release} {' '.join(archive.components)}"


def apt_options() -> list[str]:
    """This machine's own settings about how to reach mirrors (proxies, dates)."""
    if not shutil.which("apt-config"):
        return []
    return [line for line in run("apt-config", "dump").splitlines() if INHERITED.fullmatch(line)]


def _mirror_for(release: str, archive: Archive, apt: Path) -> str:
    usable = [entry for entry in entries(apt) if "main" in entry.components and entry.suite in archive.suites]
    usable.sort(key=lambda entry: entry.suite != release)
    if not usable:
        raise Problem(
            f"found no {archive.name} mirror for {release} in {apt}: name one, for instance --mirror {archive.example}"
        )
    return usable[0].uri


def entries(apt: Path) -> list[Entry]:
    """Every enabled source, in both formats."""
    found: list[Entry] = []
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*.list"))]:
        if path.is_file():
            found += [entry for line in path.read_text().splitlines() for entry in _one_line(line)]
    for path in sorted((apt / "sources.list.d").glob("*.sources")):
        text = "\n".join(line for line in path.read_text().splitlines() if not line.startswith("#"))
        found += [entry for stanza in re.split(r"\n\s*\n", text) for entry in _stanza(stanza)]
    return found


def _one_line(line: str) -> list[Entry]:
    match = re.match(r"deb\s+(?:\[[^\]]*\]\s*)?(\S+)\s+(\S+)\s+([^#]+)", line.strip())
    return [Entry(match[1], match[2], tuple(match[3].split()))] if match else []


def _stanza(text: str) -> list[Entry]:
    fields: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line[:1].isspace():
            fields[name] += line
        elif ":" in line:
            name, value = line.split(":", 1)
            name = name.lower()
            fields[name] = value
    if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").strip() == "no":
        return []
    components = tuple(fields.get("components", "").split())
    return [Entry(uri, suite, components) for uri in fields["uris"].split() for suite in fields["suites"].split()]
