# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a NoCloud seed image, apply a seed to a disk, and create SSH host keys.

Keys and seeds stay on the host on which they are created.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import tempfile
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Failed, NotMade, Unsupported
from ansible_collections.corral.virt.plugins.module_utils._storage import files_disk
from ansible_collections.corral.virt.plugins.module_utils._system import command, durable, private
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import remedy

try:
    import pycdlib
except ImportError:
    pycdlib = None
try:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519
except ImportError:
    serialization = None  # type: ignore[assignment]

_CUSTOMIZE_S = 1800  # an emulated appliance takes half a minute to boot


def iso(files: t.Mapping[str, str]) -> bytes:
    """An ISO 9660 image labelled `cidata`, with Rock Ridge and Joliet names, holding the files."""
    if pycdlib is None:
        return _iso_by_program(files)
    image = pycdlib.PyCdlib()
    image.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident="cidata")
    for number, (name, content) in enumerate(sorted(files.items())):
        data = content.encode()
        image.add_fp(io.BytesIO(data), len(data), f"/FILE{number}.;1", rr_name=name, joliet_path=f"/{name}")
    out = io.BytesIO()
    image.write_fp(out)
    image.close()
    return out.getvalue()


# Enterprise Linux has pycdlib in EPEL only, and openSUSE has none; one of these comes with every distribution.
_WRITERS = (("xorriso", "-as", "mkisofs"), ("genisoimage",))


def _iso_by_program(files: t.Mapping[str, str]) -> bytes:
    writer = next((words for words in _WRITERS if shutil.which(words[0])), None)
    if writer is None:
        raise Unsupported(
            "writing a cloud-init seed requires pycdlib, xorriso or genisoimage; install python3-pycdlib or xorriso on "
            "this host"
        )
    with tempfile.TemporaryDirectory(prefix="corral-", dir=private.folder()) as folder:
        content, image = os.path.join(folder, "content"), os.path.join(folder, "seed.iso")
        os.mkdir(content)
        for name, text in files.items():
            with open(os.path.join(content, name), "w", encoding="utf-8", newline="") as handle:
                handle.write(text)
        # -r: readable by all in the guest, as an ISO 9660 image without Rock Ridge is.
        command.run(*writer, "-quiet", "-volid", "cidata", "-joliet", "-r", "-output", image, content)
        with open(image, "rb") as handle:
            return handle.read()


def host_key() -> tuple[str, str]:
    """A new Ed25519 SSH host key: private in OpenSSH's format, public as one line."""
    _need_cryptography()
    made = ed25519.Ed25519PrivateKey.generate()
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    private = made.private_bytes(*form).decode()
    return private, public_key(private)


def public_key(private: str) -> str:
    """The public part of a private SSH key, as one line."""
    _need_cryptography()
    try:
        load = serialization.load_ssh_private_key if "OPENSSH" in private else serialization.load_pem_private_key
        public = load(private.encode(), password=None).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadInput(
            f"ssh_keys in cloud_init: a private key cannot be read ({type(error).__name__}); specify it unencrypted"
        ) from None
    return public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def _need_cryptography() -> None:
    if serialization is None:
        raise Unsupported(
            "reading and creating SSH host keys requires cryptography; install python3-cryptography on this host"
        )


def host_key_in(image: bytes) -> tuple[str, str] | None:
    """The SSH host key in a seed image of ours, so that a new seed keeps it.

    None if it cannot be read.
    """
    try:
        vendor_data = _vendor_data(image) if pycdlib else _vendor_data_by_program(image)
        keys = json.loads(vendor_data.rpartition("#cloud-config\n")[2].partition("\n")[0])["ssh_keys"]
        return keys["ed25519_private"], keys["ed25519_public"]
    except (Failed, ValueError, KeyError):
        return None  # half-written, or not ours


def _vendor_data(image: bytes) -> str:
    opened, out = pycdlib.PyCdlib(), io.BytesIO()
    try:
        opened.open_fp(io.BytesIO(image))
        opened.get_file_from_iso_fp(out, joliet_path="/vendor-data")
        opened.close()
    except pycdlib.pycdlibexception.PyCdlibException as error:
        raise ValueError("not an ISO image of ours") from error
    return out.getvalue().decode()


def _vendor_data_by_program(image: bytes) -> str:
    with tempfile.TemporaryDirectory(prefix="corral-", dir=private.folder()) as folder:
        there, out = os.path.join(folder, "seed.iso"), os.path.join(folder, "vendor-data")
        with open(there, "wb") as handle:
            handle.write(image)
        if not shutil.which("xorriso"):
            return command.run("isoinfo", "-J", "-i", there, "-x", "/vendor-data")
        command.run("xorriso", "-osirrox", "on", "-indev", there, "-extract", "/vendor-data", out)
        with open(out, encoding="utf-8", newline="") as handle:
            return handle.read()


def need_customize(guest: str) -> None:
    """Raises Unsupported if virt-customize is missing."""
    if shutil.which("virt-customize") is None:
        raise Unsupported(
            f"cannot apply cloud_init of {guest} with method virt_customize: virt-customize is not installed; install "
            "libguestfs-tools (Enterprise Linux: guestfs-tools)"
        )


def _ends_with_us() -> t.Sequence[str]:
    """Words of setpriv that kill virt-customize when this process dies; empty with util-linux before 2.33."""
    with contextlib.suppress(OSError):
        help_text = subprocess.run(["setpriv", "--help"], check=False, stdin=subprocess.DEVNULL, capture_output=True)
        return ("setpriv", "--pdeathsig", "KILL") if b"--pdeathsig" in help_text.stdout else ()
    return ()


_CUSTOMIZER = (
    "virt-customize",
    "--quiet",
    "--no-network",
    "--no-logfile",
    "--selinux-relabel",
    "--format",
    "qcow2",
    "-a",
)


def customize(path: str, commands: t.Sequence[tuple[str, str]], *, to: str, replace: bool = False) -> None:
    """Run virt-customize on a qcow2 disk, then move it to `to` in one step.

    Raises NotMade if `to` exists, unless `replace`.
    """
    with tempfile.TemporaryDirectory(prefix="corral-", dir=private.folder()) as folder:
        arguments = []
        for option, value in commands:
            script = os.path.join(folder, option)
            if option in ("run", "firstboot"):
                with open(script, "w", encoding="utf-8") as handle:
                    handle.write(value)
            arguments += [f"--{option}", script if os.path.exists(script) else value]
        try:
            done = subprocess.run(
                [*_ends_with_us(), *_CUSTOMIZER, path, *arguments],
                env={**os.environ, "LIBGUESTFS_BACKEND": "direct", "LC_ALL": "C.UTF-8"},
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_CUSTOMIZE_S,
            )
        except subprocess.TimeoutExpired:
            raise Failed(
                f"cannot customize disk {to}: virt-customize took more than {_CUSTOMIZE_S} s; try libguestfs-test-tool"
            ) from None
    if done.returncode:
        raise Failed(f"cannot customize disk {to}: {' '.join(done.stderr.split())[-500:]}; see libguestfs-test-tool")
    _publish(path, to, replace=replace)


def _publish(path: str, to: str, *, replace: bool) -> None:
    try:
        if replace:
            durable.replace(path, to)
        else:
            durable.fsync(path)
            files_disk.publish(path, to)
            durable.fsync(os.path.dirname(to))
    except FileExistsError as error:
        raise NotMade(
            f"cannot customize disk {to}: a file with this name appeared in the meantime; inspect it"
        ) from error
    except OSError as error:
        raise Failed(f"cannot customize disk {to}: {error.strerror}; {remedy(error, to)}, and run again") from error
