# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CAs of an authority, from the directory or from options."""

from __future__ import annotations

import stat
import typing as t
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._tls import files_tls
from ansible_collections.corral.virt.plugins.module_utils._tls.files_certificate import parsed
from ansible_collections.corral.virt.plugins.module_utils._tls.files_trust import each, fingerprint
from ansible_collections.corral.virt.plugins.module_utils._tls.plan_authority import Generation
from ansible_collections.corral.virt.plugins.plugin_utils._authority import ca

ANEW = "move the directory away to start over (replace_authority: true then issues new certificates to every host)"


class Pair(t.NamedTuple):
    """A CA from the directory or from options; `place` describes it in messages.

    `key` returns PEM, or an empty text if only the certificate is known.
    """

    generation: Generation
    certificate: str
    place: str
    key: t.Callable[[], str]


class Pairs:
    """All CAs of a directory; with `given` (certificates and key in PEM by authority), only those."""

    def __init__(self, directory: Path, given: t.Mapping[str, tuple[str, str]] | None, passphrase: str | None) -> None:
        self._directory, self._given, self._passphrase = directory, given, passphrase

    def of(self, authority: str) -> list[Pair]:
        """The CAs of an authority, oldest first. Raises Refused if one cannot be used."""
        if self._given is not None:
            return self._given_pairs(authority)
        pairs = [self._kept(folder, shared=False) for folder in self.folders(authority)]
        if (self._directory / "ca-cert.pem").exists():
            pairs.insert(0, self._kept(self._directory, shared=authority != "libvirt"))
        return pairs

    def folders(self, authority: str) -> list[Path]:
        """The folders of an authority's CAs, oldest first."""
        found = [
            path.parent for path in self._directory.glob(f"{authority}/*/ca-cert.pem") if path.parent.name.isdecimal()
        ]
        return sorted(found, key=lambda folder: int(folder.name))

    def _kept(self, folder: Path, *, shared: bool) -> Pair:
        named, path, text = f"the CA in {folder}", folder / "ca-key.pem", (folder / "ca-cert.pem").read_text()
        certificate = parsed(text.encode())
        if certificate is None:
            raise Refused(f"cannot use {named}: its certificate cannot be read; restore it")

        def key() -> str:
            if not path.exists():
                raise Refused(f"cannot use {named}: ca-key.pem is missing; restore it, or {ANEW}")
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & 0o077:
                raise Refused(
                    f"cannot use {named}: others can read ca-key.pem ({mode:04o}); if nobody has, chmod 0600 it, else "
                    f"{ANEW}"
                )
            return path.read_text()

        generation = Generation(fingerprint(certificate), files_tls.describe(certificate).not_after, shared=shared)
        return Pair(generation, text, named, key)

    def _given_pairs(self, authority: str) -> list[Pair]:
        """The CAs that options give: the last one has the key, the others are only trusted."""
        certificates, key = (self._given or {}).get(authority, ("", ""))
        named = f"the CA given for {authority}"
        pairs = []
        for text in each(certificates):
            certificate = parsed(text.encode())
            if certificate is None:
                raise Refused(f"cannot use {named}: a certificate in it cannot be read; provide the right one")
            generation = Generation(fingerprint(certificate), files_tls.describe(certificate).not_after)
            fits = key and files_tls.public_of(key.encode(), self._passphrase) == files_tls.public_bytes(
                certificate.public_key()
            )
            pairs.append(Pair(generation, text, named, (lambda: key) if fits else str))
        fitting = [pair for pair in pairs if pair.key()]
        if pairs and not fitting:
            # says what is wrong with it
            ca.CertificateAuthority(pairs[0].certificate, key, passphrase=self._passphrase, named=named)
        return [*(pair for pair in pairs if pair not in fitting), *fitting]

    def generations(self, authority: str) -> list[Generation]:
        """Fingerprint and end of each of the authority's CAs, oldest first."""
        return [pair.generation for pair in self.of(authority)]

    @staticmethod
    def can_sign(pair: Pair) -> bool:
        """True if the CA's key is here and readable; a replaced CA's key may be elsewhere."""
        try:
            return bool(pair.key())
        except Refused:
            return False

    def open(self, pair: Pair) -> ca.CertificateAuthority:
        """The CA, ready to sign; raises Refused if its key cannot be used."""
        return ca.CertificateAuthority(pair.certificate, pair.key(), passphrase=self._passphrase, named=pair.place)


def _missing_halves(name: str, certificate: str, key: str, *, needed: bool) -> list[str]:
    """Options that are missing for a needed, or only partly given, authority."""
    prefix = "qemu_" if name == "qemu" else ""
    halves = {f"{prefix}ca_certificate": certificate, f"{prefix}ca_key": key}
    return [option for option, text in halves.items() if not text and (needed or any(halves.values()))]


def given(params: t.Mapping[str, t.Any]) -> dict[str, tuple[str, str]] | None:
    """Certificates and key (PEM) of each authority from the options; None: use those of the directory.

    Raises BadInput if an authority is given in part.
    """
    texts = {
        "libvirt": (params["ca_certificate"] or "", params["ca_key"] or ""),
        "qemu": (params["qemu_ca_certificate"] or "", params["qemu_ca_key"] or ""),
    }
    if not any(key for _certificate, key in texts.values()):
        return None
    needed = {*params["identities"], *(["libvirt"] if params["controller"] else [])}
    problems = [
        f"{option} is missing: the authority of {name} requires both its certificate and its key"
        for name in texts
        for option in _missing_halves(name, *texts[name], needed=name in needed)
    ]
    problems += [
        f"{option}: with ca_key, the list of revoked certificates is created here"
        for option in ("ca_crl", "qemu_ca_crl")
        if params[option]
    ]
    if params["new_authority"]:
        problems.append(
            "new_authority: with ca_key, add the new CA to the old one in ca_certificate, and set ca_key to its key"
        )
    if problems:
        raise BadInput(problems)
    return texts
