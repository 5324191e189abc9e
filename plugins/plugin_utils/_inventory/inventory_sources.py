# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of inventory sources that Ansible reads after ours: no guest may have their names."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import yaml
from ansible import constants, context
from ansible.inventory.manager import IGNORED, InventoryManager
from ansible.utils.path import unfrackpath

from ansible_collections.corral.virt.plugins.plugin_utils._inventory.inventory_guests import GROUP, destination

_NO_HOSTS = ("constructed", "ansible.builtin.constructed", "corral.virt.virt", "virt")  # ours looks for itself


def hosts_read_later(loader: t.Any, path: str) -> tuple[dict[str, str], list[str]]:
    """Names and addresses of hosts in later sources (-> host), and a warning for each plugin or script among them.

    Guests that a later source lists are left out.
    """
    scratch, warnings = InventoryManager(loader=loader, sources=None, parse=False), []
    for source in _later(path):
        plugin = _plugin(source)
        if plugin is None:
            scratch.parse_source(source, cache=False)
        elif plugin not in _NO_HOSTS:
            warnings.append(
                f"{source} is read after {path}, so guests cannot be told apart from its hosts: a guest with the name "
                "of one of them replaces it; rename one of the files so that this one is read last"
            )
    hosts = [host for host in scratch.hosts.values() if GROUP not in {group.name for group in host.get_groups()}]
    return {
        destination(str(place)): host.name
        for host in hosts
        for place in (host.name, host.vars.get("ansible_host", host.name))
    }, warnings


def _later(path: str) -> list[str]:
    """Sources after `path`, in Ansible's order; empty if `path` is none of them."""
    given = context.CLIARGS.get("inventory") or constants.DEFAULT_HOST_LIST
    sources = [
        file for source in given for file in ([source] if "," in source else _files(unfrackpath(source, follow=False)))
    ]
    return sources[sources.index(path) + 1 :] if path in sources else []


def _files(source: str) -> list[str]:
    """A source's files, in the order in which Ansible reads a directory."""
    if not os.path.isdir(source):
        return [source]
    names = [name for name in sorted(os.listdir(source)) if not IGNORED.search(os.fsencode(name))]
    return [file for name in names for file in _files(os.path.join(source, name))]


def _plugin(source: str) -> str | None:
    """The inventory plugin of a source, or `script`; None if the source itself lists hosts."""
    if "," in source or not os.path.isfile(source):
        return None
    if os.access(source, os.X_OK):
        return "script"
    try:
        found = yaml.safe_load(Path(source).read_bytes())
    except (OSError, ValueError, yaml.YAMLError):
        return None  # an INI file, or one with vault and the like
    return str(found["plugin"]) if isinstance(found, dict) and "plugin" in found else None
