# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Salt master's trees of states and pillars, read as data, with the minions that each file is for."""

from __future__ import annotations

import fnmatch
import functools
import os
import re
import stat
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.plugin_utils._salt import salt_yaml
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_inventory import SaltSource
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_mapping import SaltNote, is_about
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_states import after
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_top import EVERYWHERE, Hosts, Top, sls_name
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_yaml import LARGEST_BYTES

_MOST_FILES = 5000
Unread = tuple[str, str]  # a path, and why it is not read


def content(path: str) -> bytes:
    """The content of one file, cut above the size limit; raises BadInput if it is no regular file."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise BadInput("it is not a file")
            return stream.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise BadInput(str(error.strerror)) from error


def files(root: str, endings: t.Sequence[str]) -> tuple[list[str], list[Unread]]:
    """Paths of the files with one of these endings, below the root, in order; and skipped ones, with the reason.

    A link is followed only to a file of the same tree.
    """
    if not os.path.isdir(root):
        raise BadInput(f"{root}: there is no such directory")
    real = os.path.realpath(root)
    found: list[str] = []
    unread: list[Unread] = []
    for folder, folders, names in os.walk(root, onerror=functools.partial(_denied, root, unread)):
        unread += [
            (os.path.relpath(os.path.join(folder, name), root), "a link to a directory is not followed")
            for name in sorted(folders)
            if os.path.islink(os.path.join(folder, name))
        ]
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted(names):
            path = os.path.join(folder, name)
            inside = os.path.relpath(path, root)
            if not name.endswith(tuple(endings)):
                continue
            if os.path.islink(path) and not os.path.realpath(path).startswith(real + os.sep):
                unread.append((inside, "it is a link that leads out of the tree"))
            else:
                found.append(inside)
            if len(found) > _MOST_FILES:
                raise BadInput(f"{root}: it has more than {_MOST_FILES} files")
    return found, unread


def _denied(root: str, unread: list[Unread], error: OSError) -> None:
    unread.append((os.path.relpath(str(error.filename), root), str(error.strerror)))


_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Trees:
    """Reads the trees of states and pillars; `notes` are what could not be read."""

    def __init__(self, states: t.Sequence[str], pillar: t.Sequence[str], hypervisors: t.Sequence[str]) -> None:
        self.notes: list[SaltNote] = []
        self._roots = {kind: roots for kind, roots in (("states", states), ("pillar", pillar)) if roots}
        self._hints: dict[str, None] = {}
        self._places: dict[tuple[str, str], str] = {}  # by kind and path in the tree
        self._known = set(hypervisors)
        self.asked = bool(self._roots)
        if wrong := [name for name in hypervisors if not _HOST.fullmatch(name)]:
            raise BadInput(f"hypervisors: {', '.join(wrong)}: not the name of a host")

    def names(self) -> set[str]:
        """Minions that are known by name."""
        return set(self._known)

    def read(self) -> list[SaltSource]:
        """Every file that a top file assigns, or every file without a top file, in Salt's order."""
        trees = {kind: self._tree(kind, roots) for kind, roots in self._roots.items()}
        tops = {
            kind: Top(self._shown(kind, "top.sls"), files.pop("top.sls", None), self._known, self.notes)
            for kind, files in trees.items()
        }
        for kind, roots in self._roots.items():
            if not tops[kind].present and any(os.path.lexists(os.path.join(root, "top.sls")) for root in roots):
                self.notes.append(SaltNote(tops[kind].file, "", "every file is taken for all hypervisors, without it"))
        self.notes += [SaltNote("", "", hint) for hint in self._hints]
        for top in tops.values():
            self._known |= {name for name in top.names() if _HOST.fullmatch(name)}
        sources: list[SaltSource] = []
        for kind, files in trees.items():
            hosts = _reached(files, tops[kind])
            for path in _in_order(files, tops[kind]):
                shown, (hit, minions) = self._shown(kind, path), hosts[sls_name(path)]
                if hit:
                    sources.append(SaltSource(shown, kind, files[path], self._safe(minions, kind, path)))
                elif files[path]:
                    about = is_about(f"{path} {files[path]}")
                    why = "top.sls gives it to no minion; left out" if about else "file for no minion"
                    self.notes.append(SaltNote(shown, "", why, about=about))
        return sources

    def rendered(self, path: str) -> list[SaltSource]:
        """The output of `state.show_highstate`, `state.show_sls` and `pillar.items`, by minion."""
        try:
            data = salt_yaml.load(content(path), rendered=True)
        except BadInput as error:
            raise BadInput(f"cannot read {path}: {'; '.join(error.problems)}") from error
        found = []
        for minion, values in data.items():
            if (kind := _rendered_kind(values)) is None:
                shown = " ".join(map(str, values) if isinstance(values, list) else [str(values)])[:300]
                self.notes.append(SaltNote(path, minion, f"nothing is known of it, because Salt printed: {shown}"))
                continue
            if minion == "local":
                why = "salt-call does not name the minion; taken for all hypervisors"
                self.notes.append(SaltNote(path, minion, why))
            hosts = EVERYWHERE if minion == "local" else self._safe((minion,), "rendered", path)
            found.append(SaltSource(f"{path} ({minion})", kind, values, hosts))
        return found

    def minion(self, path: str) -> list[SaltSource]:
        """The configuration of a minion, or of the master."""
        try:
            return [SaltSource(path, "minion", salt_yaml.load(content(path), rendered=True))]
        except BadInput as error:
            raise BadInput(f"cannot read {path}: {'; '.join(error.problems)}") from error

    def image(self, path: str) -> str | None:
        """The path of a file of Salt's file server; None if it is below no root."""
        for root in self._roots.get("states", ()):
            place = os.path.realpath(os.path.join(root, path.lstrip("/")))
            if place.startswith(os.path.realpath(root) + os.sep) and os.path.isfile(place):
                return place
        return None

    def _tree(self, kind: str, roots: t.Sequence[str]) -> dict[str, dict[str, t.Any]]:
        """The files below all roots; of two with the same path, the first root's."""
        found = {}
        others: list[str] = []
        for root in roots:
            paths, unread = files(root, (".sls",))
            self.notes += [SaltNote(os.path.join(root, path), "", f"not read: {why}") for path, why in unread]
            for path in paths:
                place = os.path.join(root, path)
                if (first := self._places.setdefault((kind, path), place)) != place:
                    self.notes.append(SaltNote(place, "", f"not read: {first} comes first, as in Salt"))
                    continue
                try:
                    data = content(place)
                    found[path] = salt_yaml.load(data)
                except BadInput as error:
                    if isinstance(error, salt_yaml.NotRendered) and not is_about(f"{path} {data.decode()}"):
                        others.append(path)
                        continue
                    self.notes.append(SaltNote(place, "", f"not read: {'; '.join(error.problems)}"))
                    if isinstance(error, salt_yaml.NotRendered):
                        self._hints[salt_yaml.RENDER] = None
        if others:
            why = f"{len(others)} not read that only Salt can render, and that do not mention virtualization"
            self.notes.append(SaltNote(roots[0], "", f"{why}: {', '.join(others)}"))
        return found

    def _shown(self, kind: str, path: str) -> str:
        return self._places.get((kind, path)) or os.path.join(self._roots[kind][0], path)

    def _safe(self, hosts: Hosts, kind: str, path: str) -> Hosts:
        """The hosts without invalid names, which would become names of files."""
        if hosts is EVERYWHERE:
            return hosts
        wrong = [name for name in hosts or () if not _HOST.fullmatch(name)]
        shown = self._shown(kind, path) if kind in self._roots else path
        self.notes += [SaltNote(shown, "", f"{name!r} is not the name of a host") for name in wrong]
        return tuple(name for name in hosts or () if name not in wrong) or EVERYWHERE


def _rendered_kind(values: t.Any) -> str | None:
    """The kind of Salt's rendered data for a minion; None if it is an error."""
    if isinstance(values, list):
        return "low" if values and all(isinstance(one, dict) and "fun" in one for one in values) else None
    if not isinstance(values, dict):
        return None
    return "states" if any(isinstance(one, dict) and "__sls__" in one for one in values.values()) else "pillar"


def _in_order(files: t.Mapping[str, t.Mapping[str, t.Any]], top: Top) -> list[str]:
    """Paths in the order of the top file, or of their names; each after those that it includes."""
    paths = {sls_name(path): path for path in files}
    matched = [name for pattern in top.patterns() for name in sorted(fnmatch.filter(paths, pattern))]
    names = list(dict.fromkeys([*matched, *paths]))
    number = {name: count for count, name in enumerate(names)}
    includes = [[number[one] for one in _includes(paths[name], files[paths[name]]) if one in number] for name in names]
    return [paths[names[count]] for count in after(includes)]


def _reached(files: t.Mapping[str, t.Mapping[str, t.Any]], top: Top) -> dict[str, tuple[bool, Hosts]]:
    """The minions that each file is given to, also by files that include it."""
    found = {sls_name(path): top.hosts(sls_name(path)) for path in files}
    includes = {sls_name(path): list(_includes(path, data)) for path, data in files.items()}
    for _round in files:
        changed = False
        for name, others in includes.items():
            for other in others:
                if other in found and (both := _both(found[name], found[other])) != found[other]:
                    found[other], changed = both, True
        if not changed:
            break
    return found


def _both(first: tuple[bool, Hosts], second: tuple[bool, Hosts]) -> tuple[bool, Hosts]:
    if not first[0] or not second[0]:
        return second if second[0] else first
    if first[1] is EVERYWHERE or second[1] is EVERYWHERE:
        return True, EVERYWHERE
    return True, tuple(sorted({*(first[1] or ()), *(second[1] or ())}))


def _includes(path: str, data: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """Names of included files. One dot at the beginning is this file's folder, each further dot a folder above it."""
    included = data.get("include")
    for one in included if isinstance(included, list) else []:
        name = next(iter(one), "") if isinstance(one, dict) else one
        if isinstance(name, str):
            bare = name.lstrip(".")
            folder = os.path.dirname(path).split("/")[: 1 - (len(name) - len(bare)) or None]
            yield ".".join([*filter(None, folder), bare]) if bare != name else name
