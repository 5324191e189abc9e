# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which SSH host keys of guests, as hypervisors report them, are trusted. Pure."""

from __future__ import annotations

import base64
import binascii
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
