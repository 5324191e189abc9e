# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The members of a host's cluster, as Corosync is configured there (role `cluster`)."""

from __future__ import annotations

import re

_PATH = "/etc/corosync/corosync.conf"
_NODE = re.compile(r"\bnode\s*\{([^{}]*)\}")
_NAME, _ADDRESS = (re.compile(rf"^\s*{key}:\s*(\S+)", re.MULTILINE) for key in ("name", r"ring\d+_addr"))


def members(path: str = _PATH) -> dict[str, list[str]]:
    """Addresses of the members, by name; none on a host that is in no cluster."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            nodes = _NODE.findall(stream.read())
    except FileNotFoundError:
        return {}
    return {name: _ADDRESS.findall(node) for node in nodes for name in _NAME.findall(node)}
