"""The house of the code: below `plugins/module_utils/` a folder is a subject, and a file's first word its role."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.corral.virt.tests.tools import payload

MODULE_UTILS = payload.ROOT / "plugins/module_utils"

# Subjects, from the ground up: each stands on those before it and imports nothing of those behind it.
FLOORS = (
    "_core",
    "_xml",
    "_system",
    "_libvirt",
    "_host",
    "_domain",
    "_tls",
    "_noun",
    "_secret",
    "_nwfilter",
    "_power",
    "_storage",
    "_volume",
    "_image",
    "_network",
    "_address",
    "_seed",
    "_guest",
    "_disk_move",
    "_snapshot",
    "_backup",
    "_migration",
    "_placement",
)

ROLES = ("core", "model", "xml", "fields", "plan", "libvirt", "files", "run")
RULES = ("xml_validate", "constraints", "xml_host_bindings", "overlay", "xml_sources")  # of documents
# What a file is whose name begins with none of these words.
OF_SUBJECT = {"_core": "core", "_xml": "xml", "_system": "files", "_libvirt": "libvirt"}


def files(*roles: str) -> list[Path]:
    """Files of module_utils with one of these roles; all without one."""
    found = sorted(path for path in MODULE_UTILS.rglob("*.py") if path.name != "__init__.py")
    return [path for path in found if not roles or role(path) in roles]


def named(names: t.Collection[str]) -> list[Path]:
    """Files of module_utils with these names; each must be there."""
    found = [path for path in files() if path.stem in names]
    missing = {*names} - {path.stem for path in found}
    assert not missing, f"no file is called {', '.join(sorted(missing))}"
    return found


def deciding() -> list[Path]:
    """Files that decide: plans, the rules of documents, and fronts that choose by what they see."""
    return [*files("plan"), *named((*RULES, "run_reconcile", "run_disk_moves"))]


def subject(path: Path) -> str:
    """The folder of a file of module_utils; empty elsewhere."""
    return path.parent.name if path.is_relative_to(MODULE_UTILS) else ""


def role(path: Path) -> str:
    """What a file of module_utils does; empty elsewhere, and for a file without a role."""
    if not path.is_relative_to(MODULE_UTILS):
        return ""
    first = path.stem.partition("_")[0]
    return first if first in ROLES else OF_SUBJECT.get(subject(path), "")


def imports(path: Path) -> set[Path]:
    """Files of this collection that a file imports."""
    found = {payload.locate(name) for name in payload.imports(path)}
    return {file for file in found if file and file.name != "__init__.py"}


def circles(edges: t.Mapping[t.Any, t.Collection[t.Any]]) -> list[list[t.Any]]:
    """Groups of which each member leads to each other one (R. Tarjan, 1972), of more than one member."""
    order: dict[t.Any, int] = {}
    low: dict[t.Any, int] = {}
    stack: list[t.Any] = []
    found = []

    def visit(node: t.Any) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for following in edges.get(node, ()):
            if following not in order:
                visit(following)
            if following in stack:
                low[node] = min(low[node], low[following])
        if low[node] == order[node]:
            members = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(members) > 1:
                found.append(members)

    for node in edges:
        if node not in order:
            visit(node)
    return found
