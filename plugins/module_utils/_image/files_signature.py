# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify with gpgv that a trusted key signed a published list."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import tempfile

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Failed, Unsupported
from ansible_collections.corral.virt.plugins.module_utils._system import private
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import remedy

_ARMOUR = re.compile(r"-----BEGIN PGP PUBLIC KEY BLOCK-----\n(?:[^\n]+\n)*\n(.*?)\n(?:=[^\n]*\n)?-----END", re.DOTALL)


def signed(content: bytes, *, signature: bytes | None, keyring: str, what: str) -> bytes:
    """The signed part of the content: all of it, or the inside of an inline signature.

    `keyring` is a file's path or armoured text. Raises Failed if there is no good signature.
    """
    with tempfile.TemporaryDirectory(prefix="corral-", dir=private.folder()) as place:
        keys, data, inside = (os.path.join(place, name) for name in ("keys.gpg", "data", "inside"))
        _write(keys, _keys(keyring))
        _write(data, content)
        command = ["gpgv", "--status-fd", "1", "--keyring", keys]
        if signature is None:
            command += ["--output", inside, data]
        else:
            _write(f"{data}.sig", signature)
            command += [f"{data}.sig", data]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
            )
        except FileNotFoundError as error:
            raise Unsupported(
                f"cannot check the signature of {what}: gpgv is not installed; install gpgv (Debian) or gnupg2 (EL)"
            ) from error
        # A signature by an expired or revoked key has a line of its own instead.
        if done.returncode or "[GNUPG:] GOODSIG " not in done.stdout:
            reason = "; ".join(line.removeprefix("gpgv: ") for line in done.stderr.splitlines()) or done.stdout.strip()
            raise Failed(
                f"refusing {what}: it has no good signature by a key in the keyring ({reason}); add the publisher's "
                "key to keyring if you trust it, or use another source"
            )
        if signature is not None:
            return content
        with open(inside, "rb") as stream:
            return stream.read()


def _keys(keyring: str) -> bytes:
    """The keyring in the binary form that gpgv reads; raises BadInput."""
    text = keyring
    if "BEGIN PGP" not in keyring:
        try:
            with open(keyring, "rb") as stream:
                raw = stream.read()
        except OSError as error:
            raise BadInput(f"keyring: cannot read {keyring}: {error.strerror}; {remedy(error, keyring)}") from error
        if b"BEGIN PGP" not in raw:
            return raw
        text = raw.decode(errors="replace")
    try:
        keys = b"".join(base64.b64decode(block) for block in _ARMOUR.findall(text.replace("\r\n", "\n")))
    except ValueError as error:
        raise BadInput(f"keyring: its armoured text is damaged: {error}") from error
    if not keys:
        raise BadInput(
            "keyring: it contains no PGP PUBLIC KEY BLOCK; specify the path of a keyring, or a key's armoured text"
        )
    return keys


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as out:
        out.write(content)
