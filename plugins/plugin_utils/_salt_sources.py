# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The trees of states and pillars that a Salt master serves, read as data, with the minions that each file is for."""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.plugin_utils import _salt_tree, _salt_yaml
from ansible_collections.corral.virt.plugins.plugin_utils._salt import SaltSource
from ansible_collections.corral.virt.plugins.plugin_utils._salt_part import SaltNote
from ansible_collections.corral.virt.plugins.plugin_utils._salt_top import EVERYWHERE, Hosts, Top, sls_name

__all__ = ["Trees"]

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Trees:
    """What was read, and what could not be."""

    def __init__(self, states: str | None, pillar: str | None, hypervisors: t.Sequence[str]) -> None:
        self.notes: list[SaltNote] = []
        self._roots = {kind: root for kind, root in (("states", states), ("pillar", pillar)) if root}
        self._known = set(hypervisors)
        self.asked = bool(self._roots)
        if wrong := [name for name in hypervisors if not _HOST.fullmatch(name)]:
            raise BadInput(f"hypervisors: {', '.join(wrong)}: not the name of a host")

    def names(self) -> set[str]:
        """Minions that are known by name."""
        return set(self._known)

    def read(self) -> list[SaltSource]:
        """Every file that a top file gives to somebody, or every file where there is no top file."""
        trees = {kind: self._tree(kind, root) for kind, root in self._roots.items()}
        tops = {
            kind: Top(self._shown(kind, "top.sls"), files.pop("top.sls", None), self._known, self.notes)
            for kind, files in trees.items()
        }
        for kind, root in self._roots.items():
            if not tops[kind].present and os.path.lexists(os.path.join(root, "top.sls")):
                self.notes.append(SaltNote(tops[kind].file, "", "every file is taken for all hypervisors, without it"))
        for top in tops.values():
            self._known |= {name for name in top.names() if _HOST.fullmatch(name)}
        sources: list[SaltSource] = []
        for kind, files in trees.items():
            hosts = _reached(files, tops[kind])
            for path, data in files.items():
                if (hit := hosts[sls_name(path)])[0]:
                    sources.append(SaltSource(self._shown(kind, path), kind, data, self._safe(hit[1], kind, path)))
                elif data:
                    self.notes.append(SaltNote(self._shown(kind, path), "", "top.sls gives it to no minion; left out"))
        return sources

    def rendered(self, path: str) -> list[SaltSource]:
        """What `state.show_highstate`, `state.show_sls` and `pillar.items` print, by minion."""
        try:
            data = _salt_yaml.load(_salt_tree.content(path), rendered=True)
        except BadInput as error:
            raise BadInput(f"cannot read {path}: {'; '.join(error.problems)}") from error
        found = []
        for minion, values in data.items():
            if not isinstance(values, dict):
                self.notes.append(SaltNote(path, minion, "it is not a mapping; Salt may have printed an error"))
                continue
            hosts = EVERYWHERE if minion == "local" else self._safe((minion,), "rendered", path)
            states = any(isinstance(one, dict) and "__sls__" in one for one in values.values())
            found.append(SaltSource(f"{path} ({minion})", "states" if states else "pillar", values, hosts))
        return found

    def minion(self, path: str) -> list[SaltSource]:
        """The configuration of a minion, or of the master."""
        try:
            return [SaltSource(path, "minion", _salt_yaml.load(_salt_tree.content(path), rendered=True))]
        except BadInput as error:
            raise BadInput(f"cannot read {path}: {'; '.join(error.problems)}") from error

    def image(self, path: str) -> str | None:
        """Where a file of Salt's file server is; None where it is not below the root."""
        root = self._roots.get("states")
        if root is None:
            return None
        place = os.path.realpath(os.path.join(root, path.lstrip("/")))
        inside = place.startswith(os.path.realpath(root) + os.sep)
        return place if inside and os.path.isfile(place) else None

    def _tree(self, kind: str, root: str) -> dict[str, dict[str, t.Any]]:
        paths, unread = _salt_tree.files(root, (".sls",))
        self.notes += [SaltNote(self._shown(kind, path), "", f"not read: {why}") for path, why in unread]
        found = {}
        for path in paths:
            try:
                found[path] = _salt_yaml.load(_salt_tree.content(os.path.join(root, path)))
            except BadInput as error:
                self.notes.append(SaltNote(self._shown(kind, path), "", f"not read: {'; '.join(error.problems)}"))
        return found

    def _shown(self, kind: str, path: str) -> str:
        return os.path.join(self._roots[kind], path)

    def _safe(self, hosts: Hosts, kind: str, path: str) -> Hosts:
        """Without names that are none: they would be names of files."""
        if hosts is EVERYWHERE:
            return hosts
        wrong = [name for name in hosts or () if not _HOST.fullmatch(name)]
        shown = self._shown(kind, path) if kind in self._roots else path
        self.notes += [SaltNote(shown, "", f"{name!r} is not the name of a host") for name in wrong]
        return tuple(name for name in hosts or () if name not in wrong) or EVERYWHERE


def _reached(files: t.Mapping[str, t.Mapping[str, t.Any]], top: Top) -> dict[str, tuple[bool, Hosts]]:
    """Whom each file is given to, also by files that include it."""
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
    """Names of other files; one that begins with a dot is beside this one."""
    included = data.get("include")
    for one in included if isinstance(included, list) else []:
        name = next(iter(one), "") if isinstance(one, dict) else one
        if isinstance(name, str):
            yield os.path.dirname(path).replace("/", ".") + name if name.startswith(".") else name
