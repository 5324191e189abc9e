# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a module that reads guests, and add commands that open their consoles from here."""

from __future__ import annotations

import shlex
import typing as t

from ansible.plugins.action import normal

from ansible_collections.corral.virt.plugins.module_utils._core.uri import SYSTEM
from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import ACTIVE
from ansible_collections.corral.virt.plugins.plugin_utils._report import consoles
from ansible_collections.corral.virt.plugins.plugin_utils._report.safe_results import UntrustedAction


class WithConsoles(UntrustedAction, normal.ActionModule):
    """An action whose results carry console commands; the host's answer is not trusted."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> t.Any:
        """The module's result, with commands for each display and serial console that can be opened."""
        result = super().run(tmp, task_vars)
        domains = result.get("domains") if isinstance(result, dict) else None
        way, uri = self._way(), str(self._task.args.get("uri") or SYSTEM)
        for guest in domains if isinstance(domains, list) else []:
            if isinstance(guest, dict) and guest.get("state") in ACTIVE:
                _add_commands(guest, way, uri)
        return result

    def _way(self) -> consoles.Way:
        """How the user reaches this host, from Ansible's connection."""
        if self._connection.transport == "local":
            return consoles.Way("localhost", local=True)
        extra = [self._option(name) for name in ("ssh_common_args", "ssh_extra_args")]
        user = self._option("remote_user")
        return consoles.Way(
            host=str(self._option("host") or self._play_context.remote_addr),
            user=user,
            port=self._option("port"),
            key=self._option("private_key_file"),
            options=tuple(word for words in extra if words for word in shlex.split(str(words))),
            sudo=self._connection.become is not None and user != "root",
        )

    def _option(self, name: str) -> t.Any:
        """An option of the connection plugin; None if it has no such option."""
        try:
            return self._connection.get_option(name)
        except KeyError:
            return None


def _add_commands(guest: dict[str, t.Any], way: consoles.Way, uri: str) -> None:
    displays = guest.get("graphics")
    for display in displays if isinstance(displays, list) else []:
        if isinstance(display, dict) and (commands := consoles.display(consoles.beyond(way, uri), display)):
            display["connect"] = commands
    if guest.get("console") and guest.get("name"):
        guest["console_command"] = consoles.serial(way, uri, str(guest["name"]))
