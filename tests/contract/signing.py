"""A vendor's keys: GnuPG that signs as others do."""

from __future__ import annotations

import contextlib
import subprocess
import typing as t
from pathlib import Path

__all__ = ["Gpg", "signing"]

Gpg = t.Callable[..., bytes]


@contextlib.contextmanager
def signing(home: Path, *users: str) -> t.Iterator[Gpg]:
    """GnuPG with a key for each user, for the length of a `with` block."""
    home.chmod(0o700)

    def gpg(*words: str, given: bytes = b"") -> bytes:
        command = ["gpg", "--homedir", str(home), "--batch", "--pinentry-mode", "loopback", "--passphrase", "", *words]
        return subprocess.run(command, input=given, capture_output=True, check=True).stdout

    try:
        for user in users:
            gpg("--quick-generate-key", f"{user}@example.org", "ed25519", "sign", "never")
        yield gpg
    finally:
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "gpg-agent"], check=True)
