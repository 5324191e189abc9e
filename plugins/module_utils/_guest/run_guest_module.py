# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of modules whose options hold secrets of guests: passwords, keys, seeds."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import Module
from ansible_collections.corral.virt.plugins.module_utils._xml import overlay


class GuestModule(Module):
    """A module whose options hold secrets of guests. Only the guests' names go into the host's log.

    Ansible hides a secret only where it appears exactly as given; within a dictionary its line ends and quotes are
    written in another way.
    """

    def confidential(self) -> t.Iterator[str]:
        """The parts of the arguments that nobody may see."""
        yield from super().confidential()
        yield from _unknown(self.params, self.argument_spec)
        guests = self.params.get("domains", [self.params])
        for guest in guests if isinstance(guests, list) else []:
            if isinstance(guest, dict) and isinstance(guest.get("xml"), str):
                yield from overlay.secrets(guest["xml"])

    def _log_invocation(self) -> None:
        names = [str(guest["name"]) for guest in self.params.get("domains", [self.params])]
        self.log(f"Invoked for {', '.join(map(ascii, names))}")


def _unknown(given: t.Any, options: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """Values of options that do not exist, such as a password below a misspelt one: Ansible refuses the option, and
    shows its value.
    """
    known = {name: one for option, one in options.items() for name in (option, *one.get("aliases", ()))}
    for option, value in given.items() if isinstance(given, dict) else ():
        if option in known:
            for entry in value if isinstance(value, list) else [value]:
                yield from _unknown(entry, known[option]["options"]) if known[option].get("options") else ()
        elif not str(option).startswith("_ansible_"):
            yield from _texts(value)


def _texts(value: t.Any) -> t.Iterator[str]:
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)
