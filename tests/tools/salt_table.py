"""The tables of the guide from Salt Virt, made from salt_virt.yml. `--write` puts them there."""

from __future__ import annotations

import functools
import re
import typing as t
from pathlib import Path

import yaml

from ansible_collections.corral.virt.tests.tools.guide_table import GUIDES, Table

__all__ = ["DATA", "SECTIONS", "TABLES", "entries"]

DATA = Path(__file__).with_name("salt_virt.yml")
GUIDE = GUIDES / "guide_salt.rst"
# Section of the data -> its first column.
SECTIONS = {
    "runner": "salt-run virt.…",
    "module": "salt HOST virt.…",
    "states": "State",
    "arguments": "Argument",
    "migrate": "Keyword of virt.migrate",
    "settings": "Setting or part",
    "hosts": "Host state",
    "web": "saltvirtweb",
}
_PREFIX = {"runner": "virt.", "module": "virt."}


def entries(section: str) -> list[dict[str, t.Any]]:
    """What Salt has of that kind, in the order of the data."""
    return t.cast("list[dict[str, t.Any]]", yaml.safe_load(DATA.read_text())[section])


def _literal(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"``\1``", text)


def _further(name: str) -> str:
    """A name beside the command, in the words of the guide."""
    place, _colon, option = name.partition(":")
    if not option:
        return f"variable ``{place}``"
    if place.startswith("virt_"):
        return f"``{option}`` of ``{place}``"
    return f"``{option}`` of the playbook ``{place}``"


def rows(section: str) -> list[tuple[str, str]]:
    """A row for each of them: what is typed here, what else there is, and what differs."""
    found = []
    for entry in entries(section):
        command = [f"``{entry['here']}``"] if "here" in entry else []
        see = [", ".join(map(_further, entry["see"]))] if "see" in entry else []
        note = [_literal(entry["note"])] if "note" in entry else []
        none = [f"no counterpart: {_literal(entry['missing'])}"] if "missing" in entry else []
        found.append((f"``{_PREFIX.get(section, '')}{entry['salt']}``", "; ".join([*command, *see, *note, *none])))
    return found


TABLES = {
    section: Table("salt_table", GUIDE, (head, "corral.virt"), functools.partial(rows, section), section)
    for section, head in SECTIONS.items()
}

if __name__ == "__main__":
    for table in TABLES.values():
        table.main()
