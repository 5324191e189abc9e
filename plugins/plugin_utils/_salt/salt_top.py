# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which minions Salt's top file assigns a file to. Pure."""

from __future__ import annotations

import fnmatch
import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_mapping import SaltNote, merged

Hosts = tuple[str, ...] | None
EVERYWHERE: Hosts = None  # all hypervisors


def sls_name(path: str) -> str:
    """Salt's name of a file: `kvm.guests` for `kvm/guests.sls` and for `kvm/guests/init.sls`."""
    return path.removesuffix(".sls").removesuffix("/init").replace("/", ".")


class Top:
    """A top file; without one, every file is for all hypervisors."""

    def __init__(self, file: str, data: t.Mapping[str, t.Any] | None, known: t.Iterable[str], notes: list[SaltNote]):
        self.file, self.notes = file, notes
        self.present = data is not None
        self._known = set(known)
        self._matches: list[tuple[str, str, list[str]]] = []  # kind, expression, files
        for environment, body in (data or {}).items():
            self._read(environment, body)
        self._known |= {name for kind, expression, _files in self._matches for name in _names(kind, expression) or ()}

    def _read(self, environment: str, body: t.Any) -> None:
        body = merged(body)
        if not isinstance(body, dict):
            self.notes.append(SaltNote(self.file, environment, "it is not a mapping, and is left out"))
            return
        for expression, targets in body.items():
            entries = targets if isinstance(targets, list) else [targets]
            kinds = [one["match"] for one in entries if isinstance(one, dict) and isinstance(one.get("match"), str)]
            files = [one for one in entries if isinstance(one, str)]
            kind = kinds[0] if kinds else _kind(expression)
            self._matches.append((kind, expression.removeprefix("L@"), files))

    def names(self) -> set[str]:
        """Minions that the top file names, or that were known before."""
        return set(self._known)

    def patterns(self) -> list[str]:
        """The file patterns of the top file, in order."""
        return [pattern for _kind, _expression, files in self._matches for pattern in files]

    def hosts(self, name: str) -> tuple[bool, Hosts]:
        """True if a file is assigned to anybody, and to whom."""
        if not self.present:
            return True, EVERYWHERE
        found: set[str] = set()
        hit = False
        for kind, expression, files in self._matches:
            if any(fnmatch.fnmatchcase(name, one) for one in files):
                hit, hosts = True, self._resolved(kind, expression)
                if hosts is EVERYWHERE:
                    return True, EVERYWHERE
                found |= set(hosts or ())
        return hit, tuple(sorted(found))

    def _resolved(self, kind: str, expression: str) -> Hosts:
        names = _names(kind, expression)
        if names is not None:
            return names
        if expression == "*":
            return EVERYWHERE
        hit = tuple(sorted(name for name in self._known if fnmatch.fnmatchcase(name, expression)))
        if kind == "glob" and hit:
            self._say(expression, f"taken for {', '.join(hit)}, of the minions that are known by name")
            return hit
        self._say(expression, "which minions that is, only Salt knows; taken for all hypervisors")
        return EVERYWHERE

    def _say(self, expression: str, why: str) -> None:
        note = SaltNote(self.file, expression, f"{why} (name them with -e hypervisors=...)")
        if note not in self.notes:
            self.notes.append(note)


def _kind(expression: str) -> str:
    if expression.startswith("L@"):
        return "list"
    return "compound" if "@" in expression or " " in expression else "glob"


def _names(kind: str, expression: str) -> tuple[str, ...] | None:
    """The minions that an expression names; None if it is a pattern."""
    if kind == "list":
        return tuple(name for name in expression.split(",") if name)
    return (expression,) if kind == "glob" and not set("*?[") & set(expression) else None
