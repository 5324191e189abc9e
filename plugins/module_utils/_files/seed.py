# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Write a NoCloud seed image and make SSH host keys; the bytes stay on the host they are made on."""

from __future__ import annotations

import io
import json
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import Unsupported

try:
    import pycdlib
except ImportError:
    pycdlib = None

__all__ = ["host_key", "host_key_in", "iso"]


def iso(files: t.Mapping[str, str]) -> bytes:
    """An ISO 9660 image labelled `cidata`, with Rock Ridge and Joliet names, holding the files."""
    if pycdlib is None:
        raise Unsupported("writing a cloud-init seed needs pycdlib; install python3-pycdlib on this host")
    image = pycdlib.PyCdlib()
    image.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident="cidata")
    for number, (name, content) in enumerate(sorted(files.items())):
        data = content.encode()
        image.add_fp(io.BytesIO(data), len(data), f"/FILE{number}.;1", rr_name=name, joliet_path=f"/{name}")
    out = io.BytesIO()
    image.write_fp(out)
    image.close()
    return out.getvalue()


def host_key() -> tuple[str, str]:
    """A new Ed25519 SSH host key: private in OpenSSH's format, public as one line."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError as error:
        raise Unsupported("making SSH host keys needs cryptography; install python3-cryptography on this host") from error
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), public.decode()


def host_key_in(image: bytes) -> tuple[str, str] | None:
    """The SSH host key in a seed image of ours, so that a new seed does not change it; None where there is none to read."""
    if pycdlib is None:
        return None
    opened, out = pycdlib.PyCdlib(), io.BytesIO()
    try:
        opened.open_fp(io.BytesIO(image))
        opened.get_file_from_iso_fp(out, joliet_path="/vendor-data")
        opened.close()
        keys = json.loads(out.getvalue().decode().partition("\n")[2])["ssh_keys"]
        return keys["ed25519_private"], keys["ed25519_public"]
    except (pycdlib.pycdlibexception.PyCdlibException, ValueError, KeyError):
        return None  # half-written, or not ours
