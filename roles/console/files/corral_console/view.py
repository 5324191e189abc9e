# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of the store, and of texts about jobs, a user sees, by the policy's `view`.

A job runs with the rights of Ansible, so what it tells may name guests that its user may not view. Such a line is
replaced whole by one sentence, whatever it was about: a name, an address, room, a disk.
"""

from __future__ import annotations

import hashlib
import re
import time
import typing as t

from . import policy
from .store import Store, Value

__all__ = ["HIDDEN", "View"]

HIDDEN = "(not shown: it is about what you may not view)"
_HOST = "(host)"
_TOLD = ("error", "task", "report", "plan", "lines", "hosts", "refusal")  # of a job, and of a host for a guest
_ASKED = ("arguments", "guests", "creates", "to")  # of it
_WORD, _BREAK = re.compile(r"[\w.-]+"), re.compile(r"[.-]")
# Words of each log, which so tell nothing.
_OF_EACH_LOG = frozenset(
    {"ok", "changed", "failed", "fatal", "skipping", "skipped", "unreachable", "rescued", "ignored"}
)
_OF_EACH_LOG |= {"PLAY", "TASK", "RECAP", "included"}
_KNOWN_S, _LONGEST_NAME = 2.0, 255


class _Names(t.NamedTuple):
    """Of guests that are not visible (`hidden`) and that are, and of hosts that are not."""

    hidden: frozenset[str] = frozenset()
    odd: frozenset[str] = frozenset()  # those that are not one word
    known: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()


class View:
    """Of one user; users with equal rules have equal views."""

    def __init__(self, who: policy.Who, rules: t.Sequence[policy.Rule]) -> None:
        self._who, self._rules = who, rules
        limits = {(rule.guests, rule.tags, rule.hosts) for rule in rules if rule.shows_guests}
        self.whole = ((), (), ()) in limits
        mine = "" if self.whole else who.name  # jobs of a user's own are visible to them
        self._named, self._named_at = _Names(), -_KNOWN_S
        self.key = hashlib.sha256(repr((sorted(limits), mine)).encode()).hexdigest()[:12]

    def of(self, key: str, value: Value, store: Store) -> Value | None:
        """The value as they see it; None: not at all."""
        if self.whole:
            return value
        kind = key.partition("/")[0]
        if kind == "guest":
            return value if self.guest(value) else None
        if kind == "host":
            return value if self.host(str(value["name"])) else None
        if kind == "figures":
            return self._figures(key.partition("/")[2], value, store)
        if kind == "server":
            return value  # all users are told why something does not work
        return self.cleaned(value, store) if kind == "job" and self._job(value, store) else None

    def guest(self, value: Value) -> bool:
        """Whether a guest is visible."""
        guest = policy.Guest(value["name"], tuple(value.get("tags") or ()), value["host"])
        return self._may(policy.Request("view", guests=(guest,)))

    def host(self, name: str) -> bool:
        """Whether a host is visible."""
        return self._may(policy.Request("view", hosts=(name,)))

    def cleaned(self, value: Value, store: Store, job: Value | None = None) -> dict[str, t.Any]:
        """What a job tells, without lines that name guests, and names of hosts, that are not visible.

        What the user asked a job for stays: `job`, or else the value itself, has it.
        """
        if self.whole:
            return dict(value)
        asked, names = job or value, self._names(store)
        told: tuple[str, ...] = _TOLD
        if asked.get("user") == self._who.name:
            own = set(_words([asked.get(key) for key in _ASKED]))
            names = names._replace(known=names.known | own, odd=names.odd - own, hosts=names.hosts - own)
        else:
            told = (*_TOLD, *_ASKED)
        return {key: _cleaned(each, names) if key in told else each for key, each in value.items()}

    def _names(self, store: Store) -> _Names:
        """Names as they are now, give or take seconds."""
        if time.monotonic() - self._named_at >= _KNOWN_S:
            cards = list(store.below("guest/").values())
            hosts = {str(host["name"]) for host in store.below("host/").values()}
            known = frozenset(card["name"] for card in cards if self.guest(card))
            hidden = frozenset(card["name"] for card in cards) - known
            odd = frozenset(name for name in hidden if not _WORD.fullmatch(name))
            unseen = frozenset(host for host in hosts if not self.host(host))
            self._named = _Names(hidden, odd, known | _OF_EACH_LOG, unseen)
            self._named_at = time.monotonic()
        return self._named

    def _figures(self, host: str, value: Value, store: Store) -> Value | None:
        if not self.host(host):
            return None
        seen = {uuid for uuid in value["guests"] if (one := store.get(f"guest/{host}/{uuid}")) and self.guest(one)}
        return {**value, "guests": {uuid: each for uuid, each in value["guests"].items() if uuid in seen}}

    def _job(self, value: Value, store: Store) -> bool:
        """Their own, and those about guests that they all see."""
        if value["user"] == self._who.name:
            return True
        uuids = {guest["uuid"] for guest in value["guests"]}
        known = [one for one in store.below("guest/").values() if one["uuid"] in uuids] if uuids else []
        return len({one["uuid"] for one in known}) == len(uuids) > 0 and all(map(self.guest, known))

    def _may(self, request: policy.Request) -> bool:
        return not policy.refusal(self._rules, self._who, request)


def _words(value: t.Any) -> t.Iterator[str]:
    """Texts at any depth, and the words in them."""
    if isinstance(value, str):
        yield from (value, *map(_bare, _WORD.findall(value)))
    elif isinstance(value, dict):
        yield from (word for each in value.items() for word in _words(each))
    elif isinstance(value, (list, tuple)):
        yield from (word for each in value for word in _words(each))


def _bare(word: str) -> str:
    return word.strip(".-")


def _cleaned(value: t.Any, names: _Names) -> t.Any:
    """A text line by line; what contains texts, at any depth, names of hosts as keys included."""
    if isinstance(value, str):
        return "\n".join(_line(line, names) for line in value.split("\n"))
    if isinstance(value, dict):
        return {_line(str(key), names): _cleaned(each, names) for key, each in value.items()}
    return [_cleaned(each, names) for each in value] if isinstance(value, list) else value


def _line(line: str, names: _Names) -> str:
    if any(_is_of_hidden(word, names) for word in _WORD.findall(line)) or any(name in line for name in names.odd):
        return HIDDEN
    return _WORD.sub(lambda found: _HOST if _bare(found[0]) in names.hosts else found[0], line)


def _is_of_hidden(word: str, names: _Names) -> bool:
    """Whether it is the name of a hidden guest, or begins with it, as the names of its files do."""
    ends = _BREAK.finditer(word, 0, _LONGEST_NAME + 1)  # a word can be much longer
    beginnings = (word, _bare(word), *(word[: end.start()] for end in reversed([*ends])))
    first = next((each for each in beginnings if each in names.known or each in names.hidden), None)
    return first is not None and first not in names.known
