# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Read and write the files of a TLS identity. Private keys are made here and never leave this machine.

A key and its certificate are two files and libvirt reads both, so a power cut between two writes must not leave halves
of different pairs. Every complete set has a directory of its own; the places libvirt looks at are links into `current`,
itself a link, and one rename of it exchanges the whole set:

    /etc/pki/libvirt/servercert.pem -> corral/current/servercert.pem
    /etc/pki/libvirt/corral/current -> 5f0c…            (a set)
    /etc/pki/libvirt/corral/pending.pem                 (a key that waits for its certificate)
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import grp
import os
import posixpath
import pwd
import re
import shutil
import stat
import typing as t
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._errors import Failed, Refused, Unsupported
from ansible_collections.corral.virt.plugins.module_utils._files.certificate import extension, parsed, signed, spelled, validity
from ansible_collections.corral.virt.plugins.module_utils._files.durable import settle
from ansible_collections.corral.virt.plugins.module_utils._model.tls import (
    Certificate,
    File,
    Found,
    Identity,
    Place,
    Wanted,
)

try:
    import cryptography
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:  # said when something is to be read or made: a bare host has neither files nor the library
    x509 = None  # type: ignore[assignment]

__all__ = ["authority_of", "describe", "group", "install", "me", "name", "need_library", "pem", "public_bytes", "read", "request", "said"]
__all__ += ["set_mode", "user", "write"]

KEY_BITS = 3072
OLDEST = "3.1"  # cryptography on hosts: the first that needs no backend; Enterprise Linux 9 has 36, Debian 12 38
_QEMU_GROUPS = ("qemu", "libvirt-qemu", "kvm")  # EL, Debian and Ubuntu, others


def read(identity: Identity, root: str, *, authority: str | None) -> Found:
    """The identity below `root` as it stands, judged against the CA certificate (PEM; None: there is none yet)."""
    files: dict[str, File] = {}
    contents: dict[str, bytes] = {}
    for place in identity.places:
        path = Path(root, place.path)
        with contextlib.suppress(FileNotFoundError):
            contents[place.path], status = path.read_bytes(), path.stat()
            files[place.path] = File(place, _owner(status), _group(status), stat.S_IMODE(status.st_mode))
    if not files:
        return Found(files={})
    need_library()
    judged = {
        path: dataclasses.replace(
            file, foreign=_foreign(file.place, contents[path], authority), fault=_fault(file.place, contents, identity)
        )
        for path, file in files.items()
    }
    certificates = (parsed(contents[path]) for path, file in files.items() if file.place.kind == "cert")
    whole = next((certificate for certificate in certificates if certificate), None)
    strangers = sorted({_vouches(file.place, contents[path]) for path, file in judged.items() if file.foreign})
    return Found(files=judged, certificate=describe(whole) if whole else None, authorities=tuple(strangers))


def request(identity: Identity, root: str, *, subject: str) -> str:
    """Make a private key, keep it aside, and return a request (PEM) for its certificate."""
    need_library()
    key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    store = Path(root, identity.store)
    _make_directory(store)
    write(store / "pending.pem", pem(key), mode=0o600)
    csr = x509.CertificateSigningRequestBuilder().subject_name(name(subject)).sign(key, hashes.SHA256())
    return csr.public_bytes(serialization.Encoding.PEM).decode()


def install(wanted: Wanted, root: str, *, certificate: str, authority: str) -> None:
    """Put the signed certificate, the key kept aside for it and the CA's certificate in place, all at once.

    Raises Refused when the certificate is not for that key or not from that CA, Failed without a key.
    """
    need_library()
    identity, store = wanted.identity, Path(root, wanted.identity.store)
    what, pending = f"cannot install the {wanted.identity.name} certificate", store / "pending.pem"
    try:
        key = pending.read_bytes()
    except FileNotFoundError:
        raise Failed(f"{what}: no key waits for it in {pending}; run again") from None
    contents = {"ca": authority.encode(), "cert": certificate.encode(), "key": key}
    by_path = {place.path: contents[place.kind] for place in identity.places}
    for place in identity.places:
        fault = _fault(place, by_path, identity)
        if _foreign(place, by_path[place.path], authority):
            fault = "is not signed by this authority"
        if fault:
            raise Refused(f"{what}: {place.name} {fault}; another run may be at work")
    serial = f"{x509.load_pem_x509_certificate(certificate.encode()).serial_number:x}"
    key_group = _key_group(wanted)
    fresh = store / serial
    _make_directory(fresh)
    for place in identity.places:
        owner, owning = user(wanted.owner), key_group if place.kind == "key" else -1
        write(fresh / place.name, by_path[place.path], mode=identity.mode(place), uid=owner, gid=owning)
    if not all(_is_ours(identity, root, place) for place in identity.places):
        _adopt(identity, root)
    _link(serial, store / "current")
    # From here on the new set is in use; what follows is tidying.
    for path in store.iterdir():
        if path.name not in (serial, "current"):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def set_mode(path: str, *, owner: str, group_name: str | None, mode: int) -> None:
    """Set owner, group and permissions of a file, following links."""
    os.chown(path, user(owner), -1 if group_name is None else _gid(group_name))
    Path(path).chmod(mode)


def group(name: str | None) -> str | None:
    """The group QEMU runs in: the one named, or the first this system has; None where QEMU is not installed."""
    candidates = [name] if name else _QEMU_GROUPS
    known = {entry.gr_name for entry in grp.getgrall()}
    return next((candidate for candidate in candidates if candidate in known), None)


def user(name: str) -> int:
    """The number of a user, who may have only that (in a container)."""
    return int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid


def me() -> tuple[str, str]:
    """The user and the group this process writes files as."""
    status = Path("/proc/self").stat()
    return _owner(status), _group(status)


@contextlib.contextmanager
def said(what: str) -> t.Iterator[None]:
    """Translate the system's exception: what was tried, why it failed."""
    try:
        yield
    except OSError as error:
        remedy = "; become root" if isinstance(error, PermissionError) else ""
        raise Failed(f"cannot {what}: {error.strerror}: {error.filename}{remedy}") from error


def write(path: Path, content: bytes, *, mode: int, uid: int = -1, gid: int = -1) -> None:
    """Write a file so that a power cut leaves the old content or the new, and nobody reads it who may not."""
    aside = path.with_name(path.name + ".new")
    aside.unlink(missing_ok=True)
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(content)
        os.fchown(stream.fileno(), uid, gid)
        os.fchmod(stream.fileno(), mode)
        stream.flush()
        os.fsync(stream.fileno())
    aside.replace(path)
    settle(path.parent)


def pem(key: t.Any) -> bytes:
    """A private key as it is written."""
    plain = serialization.NoEncryption()
    return t.cast(bytes, key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))


def describe(certificate: t.Any) -> Certificate:
    """What a certificate says."""
    names = extension(certificate, x509.SubjectAlternativeName)
    usage = extension(certificate, x509.KeyUsage)
    extended = extension(certificate, x509.ExtendedKeyUsage)
    usages = {
        "digitalSignature": usage and usage.digital_signature,
        "keyEncipherment": usage and usage.key_encipherment,
        "serverAuth": extended and ExtendedKeyUsageOID.SERVER_AUTH in extended,
        "clientAuth": extended and ExtendedKeyUsageOID.CLIENT_AUTH in extended,
    }
    return Certificate(
        subject=spelled(certificate.subject),
        names=tuple(sorted(str(name.value) for name in names or [])),
        usages=tuple(sorted(name for name, on in usages.items() if on)),
        not_after=validity(certificate)[1],
        serial=f"{certificate.serial_number:x}",
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
    )


def authority_of(certificate: str) -> str:
    """A CA's name and fingerprint, for people."""
    return _vouches(Place("", "ca"), certificate.encode())


def _vouches(place: Place, content: bytes) -> str:
    certificate = parsed(content)
    if certificate is None:
        return f"{place.path}, which is no certificate"
    if place.kind != "ca":
        return f"the issuer {certificate.issuer.rfc4514_string()} of {place.path}"
    return f"{certificate.subject.rfc4514_string()} (SHA-256 {certificate.fingerprint(hashes.SHA256()).hex()})"


def _foreign(place: Place, content: bytes, authority: str | None) -> bool:
    """Whether a CA's certificate, or a certificate, comes from another CA."""
    if place.kind == "ca":
        return authority is None or content.strip() != authority.encode().strip()
    certificate = parsed(content) if place.kind == "cert" else None
    return certificate is not None and (authority is None or not signed(certificate, authority))


def _fault(place: Place, contents: t.Mapping[str, bytes], identity: Identity) -> str | None:
    """What is wrong with the content of one place, in words; None when nothing is."""
    if place.kind == "ca":
        return None
    if place.kind == "cert":
        return None if parsed(contents[place.path]) else "is not a certificate"
    # A key belongs to the certificate named just before it.
    partner = identity.places[identity.places.index(place) - 1].path
    certificate = parsed(contents.get(partner, b""))
    public = _public_of(contents[place.path])
    if public is None:
        return "is not a private key without passphrase"
    if certificate is None or public != public_bytes(certificate.public_key()):
        return f"does not belong to {posixpath.basename(partner)}"
    return None


def name(subject: str) -> t.Any:
    """A name of the plain form that `Wanted.subject` gives; the library's own parser came with version 37."""
    oids = {"CN": NameOID.COMMON_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME, "O": NameOID.ORGANIZATION_NAME}
    parts = [part.split("=", 1) for part in subject.split(",")]
    return x509.Name([x509.NameAttribute(oids[key], value) for key, value in parts])


@functools.cache  # the library checks the primes of each key it reads, which takes its time
def _public_of(key: bytes) -> bytes | None:
    try:
        return public_bytes(serialization.load_pem_private_key(key, password=None).public_key())
    except (ValueError, TypeError):
        return None


def public_bytes(key: t.Any) -> bytes:
    """A public key as bytes: keys themselves can be compared only since version 40 of the library."""
    encoding = serialization.Encoding.DER
    return t.cast(bytes, key.public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo))


def _key_group(wanted: Wanted) -> int:
    if wanted.group is None:
        raise Failed(
            f"cannot install the {wanted.identity.name} key: none of the groups {', '.join(_QEMU_GROUPS)} is here; "
            "install QEMU first, or name the group QEMU runs in with qemu_group"
        )
    return _gid(wanted.group)


def _gid(name: str) -> int:
    return int(name) if name.isdigit() else grp.getgrnam(name).gr_gid


def _is_ours(identity: Identity, root: str, place: Place) -> bool:
    path = Path(root, place.path)
    return path.is_symlink() and os.readlink(path) == _target(identity, place)


def _target(identity: Identity, place: Place) -> str:
    return posixpath.join(posixpath.relpath(identity.store, posixpath.dirname(place.path)), "current", place.name)


def _adopt(identity: Identity, root: str) -> None:
    """Turn plain files into links without changing what is read through them: copy first, then link one by one."""
    store = Path(root, identity.store)
    kept = store / f"adopted-{os.getpid()}"
    _make_directory(kept)
    for place in identity.places:
        path = Path(root, place.path)
        with contextlib.suppress(FileNotFoundError):
            content, status = path.read_bytes(), path.stat()
            write(kept / place.name, content, mode=stat.S_IMODE(status.st_mode), uid=status.st_uid, gid=status.st_gid)
    _link(kept.name, store / "current")
    for place in identity.places:
        path = Path(root, place.path)
        _make_directory(path.parent)
        _link(_target(identity, place), path)


def _link(target: str, path: Path) -> None:
    """Make or redirect a link in one step."""
    aside = path.with_name(path.name + ".new")
    aside.unlink(missing_ok=True)
    aside.symlink_to(target)
    aside.replace(path)
    settle(path.parent)


def _make_directory(path: Path) -> None:
    """A directory others may pass, except one for private keys only."""
    if not path.is_dir():
        path.mkdir(parents=True)
        path.chmod(0o700 if path.name == "private" else 0o755)
        settle(path.parent)


def _owner(status: os.stat_result) -> str:
    try:
        return pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        return str(status.st_uid)


def _group(status: os.stat_result) -> str:
    try:
        return grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        return str(status.st_gid)


def need_library(oldest: str = OLDEST, *, install: str = "install python3-cryptography here") -> None:
    """Raises Unsupported without cryptography, or with one before `oldest`."""
    found = "none" if x509 is None else cryptography.__version__
    if x509 is None or _numbers(found) < _numbers(oldest):
        raise Unsupported(f"reading and making certificates needs cryptography {oldest} or newer, found {found}; {install}")


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", version)]
