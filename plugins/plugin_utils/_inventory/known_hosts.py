# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which SSH host keys of guests are trusted, and their lines in a `known_hosts` file (sshd(8)). Pure."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import hmac
import re
import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable

_KEY = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)) ([A-Za-z0-9+/]+={0,2})", re.ASCII)


def trusted(placements: t.Mapping[str, str], results: t.Mapping[str, t.Any]) -> tuple[list[dict[str, str]], list[str]]:
    """Name and key of every guest placed on the very host that reports it, and warnings about the others.

    `results` are those of `virt_domains`, by host.
    """
    keys, refused = [], []
    for host, result in results.items():
        reported = result.get("results") if isinstance(result, dict) else None
        for one in reported if isinstance(reported, list) else []:
            name, key = (one.get("name"), one.get("ssh_host_key")) if isinstance(one, dict) else (None, None)
            if key is None:
                continue
            if not isinstance(name, str) or placements.get(name) != host:
                refused.append(
                    printable(
                        f"{host} reports a host key for {name}, which was not placed there: the key is not trusted"
                    )
                )
            elif not is_key(key):
                refused.append(
                    printable(f"{host} reports a host key for {name} that is not a public SSH key: it is not trusted")
                )
            else:
                keys.append({"name": name, "ssh_host_key": key})
    return keys, refused


def is_key(text: object) -> bool:
    """True if the text is one public SSH key of a supported kind: kind, space, and base64 of the same kind."""
    match = _KEY.fullmatch(text) if isinstance(text, str) else None
    try:
        blob = base64.b64decode(match.group(2), validate=True) if match else b""
    except binascii.Error:
        return False
    kind = match.group(1).encode() if match else b""
    return bool(match) and blob.startswith(len(kind).to_bytes(4, "big") + kind)


_HASHED = "|1|"  # and then salt|HMAC-SHA1 of the name
_NO_ENTRY = ("#", "@")  # a comment; @cert-authority and @revoked, which are the user's own


def edited(
    text: str, *, keys: t.Mapping[str, str], absent: t.Collection[str] = (), renamed: t.Mapping[str, str]
) -> str:
    """The text without the names that are `absent`, with those `renamed` (old -> new), and with `keys` (name -> key).

    A name has one key of a kind. A line that has other names too keeps them.
    """
    entries = [_Entry.of(line) for line in text.splitlines()]
    for name in absent:
        entries = _without(entries, name)
    for old, new in renamed.items():
        if any(entry.names(old) for entry in entries):
            entries = [entry.renamed(old, new) for entry in _without(entries, new)]
    for name, key in keys.items():
        same = [entry for entry in entries if entry.names(name) and entry.key == key]
        entries = _without(entries, name, kind=key.partition(" ")[0], keep=same)
        entries += [] if same else [_Entry((name,), key)]
    return "".join(f"{entry}\n" for entry in entries)


class KeyedNames:
    """The names that the text has a key of."""

    def __init__(self, text: str) -> None:
        hosts = [host for line in text.splitlines() for host in _Entry.of(line).hosts]
        self._plain = {host.lower() for host in hosts}
        self._hashed = [host for host in hosts if host.startswith(_HASHED)]

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._plain or any(_means(host, name) for host in self._hashed)


@dataclasses.dataclass(frozen=True)
class _Entry:
    """A line: its host names and their key; or any other text."""

    hosts: tuple[str, ...]
    key: str  # kind and base64, without the comment
    line: str | None = None  # as it was read, while it is unchanged

    @classmethod
    def of(cls, line: str) -> _Entry:
        words = line.split()
        if len(words) < 3 or words[0].startswith(_NO_ENTRY):
            return cls((), "", line)
        return cls(tuple(words[0].split(",")), " ".join(words[1:3]), line)

    def __str__(self) -> str:
        return f"{','.join(self.hosts)} {self.key}" if self.line is None else self.line

    def names(self, name: str) -> bool:
        return any(_means(host, name) for host in self.hosts)

    def renamed(self, old: str, new: str) -> _Entry:
        return self._with(tuple(new if _means(host, old) else host for host in self.hosts))

    def without(self, name: str) -> _Entry | None:
        """The line without that name; None if it has no other."""
        found = self._with(tuple(host for host in self.hosts if not _means(host, name)))
        return found if found.hosts or not self.hosts else None

    def _with(self, hosts: tuple[str, ...]) -> _Entry:
        return self if hosts == self.hosts else _Entry(hosts, self.key)


def _without(
    entries: t.Sequence[_Entry], name: str, *, kind: str | None = None, keep: t.Sequence[_Entry] = ()
) -> list[_Entry]:
    """The entries without a name; with `kind`, only keys of that kind are removed."""
    touched = [kind in (None, entry.key.partition(" ")[0]) and entry not in keep for entry in entries]
    found = [entry.without(name) if other else entry for entry, other in zip(entries, touched, strict=True)]
    return [entry for entry in found if entry is not None]


def _means(host: str, name: str) -> bool:
    """True if a host of a line, which may be hashed, is that name; ssh compares names in lower case."""
    if not host.startswith(_HASHED):
        return host.lower() == name.lower()
    salt, _bar, digest = host.removeprefix(_HASHED).partition("|")
    try:
        return hmac.digest(base64.b64decode(salt), name.lower().encode(), hashlib.sha1) == base64.b64decode(digest)
    except binascii.Error:
        return False
