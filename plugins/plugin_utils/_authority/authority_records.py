# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records of the authorities: what they signed and revoked, and whom hosts were seen to trust.

Ansible runs the actions of hosts in parallel processes: writers hold the lock, and decide what to sign under it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import fcntl
import json
import typing as t
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._core.step import Step
from ansible_collections.corral.virt.plugins.module_utils._tls import files_tls
from ansible_collections.corral.virt.plugins.plugin_utils._authority.ca import pem_text
from ansible_collections.corral.virt.plugins.plugin_utils._report.wording import enumerated


@dataclasses.dataclass(frozen=True)
class Issued:
    """A certificate that was signed here."""

    path: Path
    serial: str  # hex
    holder: str  # its common name
    authority: str  # whose identity it is for
    issuer: str  # SHA-256 of the CA, hex; empty: one that is not here
    subject: str
    names: tuple[str, ...]
    not_after: datetime.datetime

    @property
    def superseded(self) -> bool:
        """True if a newer certificate has taken its place."""
        return self.path.parent.name == "superseded"

    def line(self) -> str:
        """A line of JSON that precedes the certificate in its file: a hundred times faster to read than that."""
        fields = {**vars(self), "path": None, "not_after": self.not_after.isoformat()}
        return json.dumps(fields, sort_keys=True) + "\n"

    @classmethod
    def of(cls, path: Path, text: bytes) -> Issued | None:
        """The certificate from the JSON line of its file; None if that is damaged, or an earlier version wrote none."""
        try:
            fields = json.loads(text.split(b"\n", 1)[0])
            ends = datetime.datetime.fromisoformat(fields["not_after"])
            return cls(**{**fields, "path": path, "names": tuple(fields["names"]), "not_after": ends})
        except (ValueError, KeyError, TypeError):
            return None


@dataclasses.dataclass(frozen=True)
class Revoke(Step):
    """Revoke one certificate."""

    certificate: Issued

    def __str__(self) -> str:
        one = self.certificate
        return f"revoke {one.serial} of {one.holder} ({one.subject}, valid until {one.not_after:%Y-%m-%d})"


@dataclasses.dataclass(frozen=True)
class TakeOver(Step):
    """Revoke here what the lists of hosts have revoked."""

    serial: str  # hex
    issuer: str  # SHA-256 of the CA, hex
    subject: str  # empty: no certificate of this serial is known here
    since: datetime.datetime
    hosts: tuple[str, ...]

    @property
    def holder(self) -> str:
        """The common name of the certificate's holder; empty if unknown."""
        return self.subject.rpartition("CN=")[2]

    def __str__(self) -> str:
        known = f" of {self.holder}" if self.subject else ""
        return f"take over the revocation of {self.serial}{known} from {enumerated(self.hosts)}"


class Records:
    """The files of one directory, and what check mode assumes to be in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._inside = False
        self._assumed: dict[str, dict[str, str]] = {}
        self._assumed_lists: dict[str, str] = {}

    @contextlib.contextmanager
    def locked(self) -> t.Iterator[None]:
        """A context that one process at a time may enter; it can be nested."""
        if self._inside:
            yield
            return
        if not self.directory.exists():
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        ignore = self.directory / ".gitignore"
        if not ignore.exists():
            ignore.write_text("# Nothing here belongs into version control.\n*\n")
        with (self.directory / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._inside = True
            try:
                yield
            finally:
                self._inside = False

    def steady(self) -> contextlib.AbstractContextManager[None]:
        """A context in which no other process writes; it creates nothing if the directory does not exist."""
        return self.locked() if self.directory.exists() else contextlib.nullcontext()

    def issued(self, parsed: t.Callable[[Path, bytes], Issued]) -> list[Issued]:
        """Certificates that were signed here and are not revoked.

        `parsed` reads a file without the JSON line.
        """
        revoked = self.revoked()
        found = []
        for path in sorted([*self.directory.glob("issued/*.pem"), *self.directory.glob("superseded/*.pem")]):
            if path.stem in revoked:
                continue
            try:
                text = path.read_bytes()
            except FileNotFoundError:
                return self.issued(parsed)  # another process has just put it aside
            found.append(Issued.of(path, text) or parsed(path, text))
        return found

    def revoked(self) -> dict[str, dict[str, str]]:
        """Revocations by serial number: signing CA (`issuer`), holder (`subject`) and time (`since`)."""
        found = {}
        for path in sorted(self.directory.glob("revoked/*.json")):
            try:
                found[path.stem] = {
                    key: str(json.loads(path.read_text())[key]) for key in ("issuer", "subject", "since")
                }
            except (ValueError, KeyError, TypeError) as error:
                raise Refused(
                    f"cannot read {path}, which records a revoked certificate; restore it from the backup"
                ) from error
        return {**self._assumed, **found}

    def crl(self, digest: str) -> str | None:
        """A CA's last list of revoked certificates (PEM); None if there is none yet."""
        path = self.directory / f"crl/{digest}.pem"
        return self._assumed_lists.get(digest) or (pem_text(path) if path.exists() else None)

    def assume(self, revoked: t.Mapping[str, dict[str, str]], lists: t.Mapping[str, str] | None = None) -> None:
        """In check mode, treat these revocations (by serial) and lists as written."""
        self._assumed = {**revoked, **self._assumed}
        self._assumed_lists.update(lists or {})

    def host(self, name: str) -> dict[str, t.Any]:
        """The record of a host; empty if there is none, or if it cannot be read."""
        try:
            host_record = json.loads((self.directory / f"hosts/{name}.json").read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return host_record if isinstance(host_record, dict) and isinstance(host_record.get("trusts"), dict) else {}

    def revoke(self, serial: str, issuer: str, subject: str, *, now: datetime.datetime) -> None:
        """Write down that a certificate is revoked."""
        self.write(f"revoked/{serial}.json", json.dumps(revocation(issuer, subject, now)).encode() + b"\n")

    def write(self, name: str, content: bytes) -> None:
        """Replace a file of the directory."""
        path = self.directory / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        files_tls.write(path, content, mode=0o644)


def revocation(issuer: str, subject: str, since: datetime.datetime) -> dict[str, str]:
    """The record of a revocation."""
    return {"issuer": issuer, "subject": subject, "since": since.replace(microsecond=0).isoformat()}
