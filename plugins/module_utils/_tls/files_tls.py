# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read and write the files of a TLS identity. Private keys are created here and never leave this machine.

A key and its certificate are two files and libvirt reads both, so a power cut between two writes must not leave halves
of different pairs. Every complete set has a directory of its own; the paths libvirt reads are links into `current`,
itself a link, and one rename of it replaces the whole set:

    /etc/pki/libvirt/servercert.pem -> corral/current/servercert.pem
    /etc/pki/libvirt/corral/current -> 5f0c…            (a set)
    /etc/pki/libvirt/corral/pending.pem                 (a key that waits for its certificates)
    /etc/pki/libvirt/corral/loaded                      (what the daemon has read, see _tls/files_daemon.py)
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import grp
import hashlib
import ipaddress
import os
import posixpath
import pwd
import re
import shutil
import stat
import typing as t
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Unsupported
from ansible_collections.corral.virt.plugins.module_utils._system.durable import fsync
from ansible_collections.corral.virt.plugins.module_utils._tls.files_certificate import (
    extension,
    parsed,
    parsed_text,
    signed,
    spelled,
    validity,
)
from ansible_collections.corral.virt.plugins.module_utils._tls.files_trust import called, each, fingerprint, refused
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import (
    KEY_BITS,
    Certificate,
    FoundTls,
    FoundTlsFile,
    Identity,
    NewSet,
    TlsFile,
    TlsSpec,
    Trust,
)

try:
    import cryptography
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:  # said when something is to be read or made: a bare host has neither files nor the library
    x509 = None  # type: ignore[assignment]

LOADED = "loaded"

OLDEST = "3.1"  # cryptography on hosts: the first that needs no backend; Enterprise Linux 9 has 36, Debian 12 38
_QEMU_GROUPS = ("qemu", "libvirt-qemu", "kvm")  # EL, Debian and Ubuntu, others


def read(identity: Identity, root: str, *, trust: Trust) -> FoundTls:
    """The identity's files below `root`, compared with the authority's trust."""
    files: dict[str, FoundTlsFile] = {}
    contents: dict[str, bytes] = {}
    for place in identity.places:
        path = Path(root, place.path)
        with contextlib.suppress(FileNotFoundError):
            contents[place.path], status = path.read_bytes(), path.stat()
            files[place.path] = FoundTlsFile(place, _owner(status), _group(status), stat.S_IMODE(status.st_mode))
    if not files:
        return FoundTls(files={}, same_crl=not trust.crl)
    need_library()
    ours = _own_authorities(trust)
    judged = {path: _judged(file, contents, ours, identity) for path, file in files.items()}
    certificates = {
        file.place.purpose: parsed(contents[path]) for path, file in files.items() if file.place.kind == "cert"
    }
    ca, crl = (place.path for kind in ("ca", "crl") for place in identity.places if place.kind == kind)
    text, list_there = contents.get(ca, b"").decode(errors="replace"), contents.get(crl, b"").decode(errors="replace")
    strangers = {
        word for path, file in judged.items() if file.foreign for word in _vouching(file.place, contents[path], ours)
    }
    return FoundTls(
        files=judged,
        certificates={purpose: describe(one, ours) for purpose, one in certificates.items() if one},
        trusts={fingerprint(one): called(one) for one in map(parsed_text, each(text)) if one},
        refuses=tuple(sorted(refused(list_there) or ())),
        stands=tuple(sorted(refused(list_there, by=each(trust.text)) or ())),
        same_crl=not trust.crl or list_there == trust.crl,
        crl=list_there,
        held=tuple(
            one
            for file in files.values()
            if file.place.kind == "cert"
            for one in each(contents[file.place.path].decode(errors="replace"))[:1]
        ),
        authorities=tuple(sorted(strangers)),
    )


def _judged(file: FoundTlsFile, contents: t.Mapping[str, bytes], ours: t.Any, identity: Identity) -> FoundTlsFile:
    """The file with the problems of its content."""
    foreign, fault = _foreign(file.place, contents[file.place.path], ours), _fault(file.place, contents, identity)
    return dataclasses.replace(file, foreign=foreign, fault=fault)


def request(identity: Identity, root: str, *, subject: str, names: t.Sequence[str] = ()) -> str:
    """Create a private key, store it as pending, and return a request (PEM) for its certificates."""
    need_library()
    key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    with held(identity, root):
        write(Path(root, identity.store, "pending.pem"), pem(key), mode=0o600)
    draft = x509.CertificateSigningRequestBuilder().subject_name(name(subject))
    if names:
        draft = draft.add_extension(x509.SubjectAlternativeName(list(map(general, names))), critical=False)
    return draft.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


@contextlib.contextmanager
def held(identity: Identity, root: str) -> t.Iterator[None]:
    """A context in which one run at a time reads and replaces the sets of an identity."""
    store = Path(root, identity.store)
    _make_directory(store)
    descriptor = os.open(store, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def gather(wanted: TlsSpec, root: str, *, certificate: str | None = None) -> NewSet:
    """The new set: the authority's CAs and CRL, signed certificates (PEM), and the pending key.

    Without certificates, those in place stay, and their key. Raises Failed without a key.
    """
    need_library()
    identity, trust = wanted.identity, wanted.trust
    signed = _signed(identity, Path(root, identity.store), certificate) if certificate else {}
    texts = {"ca": trust.text, "crl": trust.crl}
    says = {place.path: text.encode() for place in identity.places if (text := texts.get(place.kind))}
    before = _in_place(identity, root)
    contents = {**before, **signed, **says}
    places, ours = [place for place in identity.places if place.path in contents], _own_authorities(trust)
    return NewSet(
        contents=contents,
        faults={place.path: fault for place in places if (fault := _fault(place, contents, identity))},
        foreign=frozenset(
            place.path for place in places if place.kind == "cert" and _foreign(place, contents[place.path], ours)
        ),
        unsigned=tuple(
            place.purpose
            for place in identity.places
            if certificate and place.kind == "cert" and place.path not in signed
        ),
        validity=tuple(validity(one) for one in map(parsed, signed.values()) if one),
        is_signed=bool(certificate),
        forgotten=_forgotten(identity, before, trust),
        strangers=_strangers(identity, before, ours),
    )


def _forgotten(identity: Identity, before: t.Mapping[str, bytes], trust: Trust) -> tuple[str, ...]:
    """Serials that the CRL in place revokes for a CA that stays trusted, and that the new CRL lacks."""
    text = _text_of(identity, before, "crl")
    return tuple(sorted({*(refused(text, by=each(trust.text)) or ())} - {*trust.refuses})) if trust.crl else ()


def _strangers(identity: Identity, before: t.Mapping[str, bytes], ours: t.Container[str]) -> tuple[str, ...]:
    """CAs in place that this authority does not know."""
    cas = [parsed_text(text) for text in each(_text_of(identity, before, "ca"))]
    return tuple(called(one) for one in cas if one and fingerprint(one) not in ours)


def in_place(identity: Identity, root: str, kind: str) -> str:
    """The text of the file in place of this kind; empty without it."""
    return _text_of(identity, _in_place(identity, root), kind)


def _text_of(identity: Identity, contents: t.Mapping[str, bytes], kind: str) -> str:
    return "".join(
        contents.get(place.path, b"").decode(errors="replace") for place in identity.places if place.kind == kind
    )


def install(wanted: TlsSpec, root: str, new: NewSet) -> None:
    """Put a set in place in one step; the caller holds the identity's lock since it gathered the set."""
    store = Path(root, wanted.identity.store)
    _exchange(wanted, root, new.contents)
    # From here on the new set is in use; what follows is tidying.
    used = current(wanted.identity, root)
    for path in store.iterdir():
        # a pending key that is not in this set is another run's
        waits = path.name == "pending.pem" and path.read_bytes() not in new.contents.values()
        if path.name not in (used, "current", LOADED) and not waits:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _in_place(identity: Identity, root: str) -> dict[str, bytes]:
    """Contents of the files in place, by path."""
    found = {}
    for place in identity.places:
        with contextlib.suppress(FileNotFoundError):
            found[place.path] = Path(root, place.path).read_bytes()
    return found


def current(identity: Identity, root: str) -> str:
    """The name of the set in use; empty if there is none."""
    path = Path(root, identity.store, "current")
    return os.readlink(path) if path.is_symlink() else ""


def _signed(identity: Identity, store: Path, certificate: str) -> dict[str, bytes]:
    """Certificates and key by path; one given certificate for each purpose."""
    pending = store / "pending.pem"
    try:
        key = pending.read_bytes()
    except FileNotFoundError:
        raise Failed(
            f"cannot install the {identity.name} certificates: there is no pending key for them in {pending}; run again"
        ) from None
    given = {text: describe(parsed_text(text)).usages if parsed_text(text) else () for text in each(certificate)}
    contents = {}
    for place in identity.places:
        if place.kind == "key":
            contents[place.path] = key
        if place.kind == "cert":
            found = [
                text for text, usage in given.items() if any(word.startswith(f"{place.purpose}Auth") for word in usage)
            ]
            if found:
                contents[place.path] = found[0].encode()
    return contents


def _exchange(wanted: TlsSpec, root: str, contents: t.Mapping[str, bytes]) -> None:
    """Write a complete set, and switch all places to it with one rename."""
    identity, store = wanted.identity, Path(root, wanted.identity.store)
    places = [place for place in identity.places if place.path in contents]
    public = b"".join(contents[place.path] for place in places if place.kind != "key")
    fresh = store / hashlib.sha256(public).hexdigest()[:16]
    key_group = _key_group(wanted)
    _make_directory(fresh)
    for place in places:
        owner, owning = user(wanted.owner), key_group if place.kind == "key" else -1
        write(fresh / place.name, contents[place.path], mode=identity.mode(place), uid=owner, gid=owning)
    if not all(_is_ours(identity, root, place) for place in places):
        _adopt(identity, root, places)
    _link(fresh.name, store / "current")


def set_mode(path: str, *, owner: str, group_name: str | None, mode: int) -> None:
    """Set owner, group and permissions of a file, following links."""
    os.chown(path, user(owner), -1 if group_name is None else _gid(group_name))
    Path(path).chmod(mode)


def group(name: str | None) -> str | None:
    """The group QEMU runs in: the given one, or the first known one; None if QEMU is not installed."""
    candidates = [name] if name else _QEMU_GROUPS
    known = {entry.gr_name for entry in grp.getgrall()}
    return next((candidate for candidate in candidates if candidate in known), None)


def user(name: str) -> int:
    """The uid of a user name, or of a number as text (in a container)."""
    return int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid


def me() -> tuple[str, str]:
    """The user and the group this process creates files as."""
    status = Path("/proc/self").stat()
    return _owner(status), _group(status)


def write(path: Path, content: bytes, *, mode: int, uid: int = -1, gid: int = -1) -> None:
    """Replace a file atomically; at no time can others read it than `mode` allows."""
    aside = path.with_name(path.name + ".new")
    aside.unlink(missing_ok=True)
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(content)
        os.fchown(stream.fileno(), uid, gid)
        os.fchmod(stream.fileno(), mode)
        stream.flush()
        os.fsync(stream.fileno())
    aside.replace(path)
    fsync(path.parent)


def pem(key: t.Any) -> bytes:
    """A private key in PEM, without a passphrase."""
    plain = serialization.NoEncryption()
    return t.cast(bytes, key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))


def describe(certificate: t.Any, authorities: t.Mapping[str, str] | None = None) -> Certificate:
    """The facts of a certificate; `authorities` are those (fingerprint -> PEM) that may have signed it."""
    names = extension(certificate, x509.SubjectAlternativeName)
    usage = extension(certificate, x509.KeyUsage)
    permitted = [word for word, on in _plain_usages(usage).items() if on]
    with contextlib.suppress(x509.ExtensionNotFound):
        found = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        short = {ExtendedKeyUsageOID.SERVER_AUTH: "serverAuth", ExtendedKeyUsageOID.CLIENT_AUTH: "clientAuth"}
        mark = " (critical)" if found.critical else ""
        permitted += [short.get(oid, oid.dotted_string) + mark for oid in found.value]
    return Certificate(
        subject=spelled(certificate.subject),
        names=tuple(sorted(str(name.value) for name in names or [])),
        usages=tuple(sorted(permitted)),
        not_after=validity(certificate)[1],
        serial=f"{certificate.serial_number:x}",
        fingerprint=fingerprint(certificate),
        issuer=next((digest for digest, text in (authorities or {}).items() if signed(certificate, text)), ""),
    )


def _plain_usages(usage: t.Any) -> dict[str, bool]:
    """Key usages of a certificate, True if permitted; one that may sign others is a CA."""
    names = {
        "digitalSignature": "digital_signature",
        "keyEncipherment": "key_encipherment",
        "keyCertSign": "key_cert_sign",
    }
    return {word: bool(usage and getattr(usage, name)) for word, name in names.items()}


def general(name: str) -> t.Any:
    """A DNS name or IP address in a certificate's form."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _own_authorities(trust: Trust) -> dict[str, str]:
    """The authority's trusted and retired CAs, PEM by fingerprint."""
    return {**{fingerprint(parsed_text(text)): text for text in each(trust.text)}, **trust.retired}


def _vouching(place: TlsFile, content: bytes, ours: t.Container[str]) -> list[str]:
    """The foreign issuers of a file, in words."""
    if place.kind != "ca":
        certificate = parsed(content)
        return [f"the issuer {certificate.issuer.rfc4514_string()} of {place.path}"]
    cas = [parsed_text(text) for text in each(content.decode(errors="replace"))]
    if not cas or None in cas:
        return [f"{place.path}, which is not a certificate"]
    return [called(one) for one in cas if fingerprint(one) not in ours]


def _foreign(place: TlsFile, content: bytes, ours: t.Mapping[str, str]) -> bool:
    """True if a CA's certificate, or a certificate, comes from another authority."""
    if place.kind == "ca":
        cas = [parsed_text(text) for text in each(content.decode(errors="replace"))]
        return not cas or any(one is None or fingerprint(one) not in ours for one in cas)
    certificate = parsed(content) if place.kind == "cert" else None
    return certificate is not None and not any(signed(certificate, text) for text in ours.values())


def _fault(place: TlsFile, contents: t.Mapping[str, bytes], identity: Identity) -> str | None:
    """The problem of one file's content, in words; None if there is none."""
    if place.kind in ("ca", "crl"):
        return None
    if place.kind == "cert":
        return None if parsed(contents[place.path]) else "is not a certificate"
    # A key belongs to the certificate named just before it.
    partner = identity.places[identity.places.index(place) - 1].path
    certificate = parsed(contents.get(partner, b""))
    public = public_of(contents[place.path])
    if public is None:
        return "is not a private key without a passphrase"
    if certificate is None or public != public_bytes(certificate.public_key()):
        return f"does not match {posixpath.basename(partner)}"
    return None


def name(subject: str) -> t.Any:
    """A name of the simple form that `TlsSpec.subject` gives; the library's own parser came with version 37."""
    oids = {"CN": NameOID.COMMON_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME, "O": NameOID.ORGANIZATION_NAME}
    parts = [part.split("=", 1) for part in subject.split(",")]
    return x509.Name([x509.NameAttribute(oids[key], value) for key, value in parts])


@functools.cache  # the library checks the primes of each key it reads, which takes its time
def public_of(key: bytes, passphrase: str | None = None) -> bytes | None:
    """The public half of a private key (PEM); None if the key cannot be read."""
    try:
        return public_bytes(
            serialization.load_pem_private_key(key, password=passphrase.encode() if passphrase else None).public_key()
        )
    except (ValueError, TypeError):
        return None


def public_bytes(key: t.Any) -> bytes:
    """A public key as bytes: keys themselves can be compared only since version 40 of the library."""
    encoding = serialization.Encoding.DER
    return t.cast(bytes, key.public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo))


def _key_group(wanted: TlsSpec) -> int:
    if wanted.group is None:
        raise Failed(
            f"cannot install the {wanted.identity.name} key: none of the groups {', '.join(_QEMU_GROUPS)} exists; "
            "install QEMU first, or set qemu_group to the group that QEMU runs in"
        )
    return _gid(wanted.group)


def _gid(name: str) -> int:
    return int(name) if name.isdigit() else grp.getgrnam(name).gr_gid


def _is_ours(identity: Identity, root: str, place: TlsFile) -> bool:
    path = Path(root, place.path)
    return path.is_symlink() and os.readlink(path) == _target(identity, place)


def _target(identity: Identity, place: TlsFile) -> str:
    return posixpath.join(posixpath.relpath(identity.store, posixpath.dirname(place.path)), "current", place.name)


def _adopt(identity: Identity, root: str, places: t.Sequence[TlsFile]) -> None:
    """Turn plain files into links without changing what readers see: copy first, then link one by one."""
    store = Path(root, identity.store)
    kept = store / f"adopted-{os.getpid()}"
    _make_directory(kept)
    for place in places:
        path = Path(root, place.path)
        with contextlib.suppress(FileNotFoundError):
            content, status = path.read_bytes(), path.stat()
            write(kept / place.name, content, mode=stat.S_IMODE(status.st_mode), uid=status.st_uid, gid=status.st_gid)
    _link(kept.name, store / "current")
    for place in places:
        path = Path(root, place.path)
        _make_directory(path.parent)
        _link(_target(identity, place), path)


def _link(target: str, path: Path) -> None:
    """Create or redirect a link in one step."""
    aside = path.with_name(path.name + ".new")
    aside.unlink(missing_ok=True)
    aside.symlink_to(target)
    aside.replace(path)
    fsync(path.parent)


def _make_directory(path: Path) -> None:
    """Create a directory that others may enter, except one for private keys."""
    if not path.is_dir():
        path.mkdir(parents=True)
        path.chmod(0o700 if path.name == "private" else 0o755)
        fsync(path.parent)


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
    """Raises Unsupported without cryptography, or with a version before `oldest`."""
    found = "none" if x509 is None else cryptography.__version__
    if x509 is None or _numbers(found) < _numbers(oldest):
        raise Unsupported(
            f"reading and creating certificates requires cryptography {oldest} or newer, found {found}; {install}"
        )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", version)]
