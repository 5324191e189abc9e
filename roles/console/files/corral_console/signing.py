# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sign tickets for consoles. ECDSA with P-256: every hypervisor can verify that with `openssl dgst`."""

from __future__ import annotations

import base64
import json
import secrets
import time
import typing as t
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["LIFETIME_S", "Signer"]

LIFETIME_S = 15


class Signer:
    """Holds the key, which the role has made; hypervisors have its public half."""

    def __init__(self, path: Path) -> None:
        self._key = t.cast(
            ec.EllipticCurvePrivateKey, serialization.load_pem_private_key(path.read_bytes(), password=None)
        )

    def ticket(self, **what: t.Any) -> str:
        """A ticket: what it opens, when it ends and a number that is used once, with the signature after a dot."""
        content = {**what, "nonce": secrets.token_hex(16), "expires": int(time.time()) + LIFETIME_S}
        text = json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
        signature = self._key.sign(text, ec.ECDSA(hashes.SHA256()))
        return f"{_encoded(text)}.{_encoded(signature)}"


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
