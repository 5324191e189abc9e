# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices and image files that cryptsetup encrypts. It reads the passphrase from its standard input."""

from __future__ import annotations

import json
import os
import subprocess

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._storage import files_disk
from ansible_collections.corral.virt.plugins.module_utils._storage.model_mount import Luks
from ansible_collections.corral.virt.plugins.module_utils._system import free_space
from ansible_collections.corral.virt.plugins.module_utils._system.command import SYSTEM_PATH, answer, run

_UNFINISHED, _FINISHED = "corral-unfinished", "corral"  # labels: whether it has got its filesystem
_WRONG_PASSPHRASE = 2  # exit code of cryptsetup
_TIMEOUT_S = 600  # a key is made slow to guess by work and memory, and a busy host takes its time


def luks(device: str) -> Luks:
    """What the header of a LUKS device tells."""
    label = answer("blkid", "--probe", "--output=value", "--match-tag=LABEL", "--", device).strip()
    told = answer("cryptsetup", "luksDump", "--dump-json-metadata", "--", device)  # none of LUKS1
    return Luks(label == _UNFINISHED, has_key=not told or bool(json.loads(told)["keyslots"]))


def is_opened_by(device: str, passphrase: str) -> bool:
    """True if the passphrase is that of the device."""
    command = ("open", "--type=luks", "--test-passphrase", "--key-file=-", "--", device)
    return _cryptsetup(passphrase, *command, may_be_wrong=True)


def free_bytes(file: str) -> int:
    """Room for an image, with what a run that was killed has left of it."""
    unfinished = files_disk.hidden(file)
    found = free_space.measure(os.path.dirname(file), None).free_bytes
    return found + (free_space.allocated(unfinished) if os.path.exists(unfinished) else 0)


def create_image(file: str, size_bytes: int, passphrase: str) -> None:
    """Create an encrypted image, with all of its room; it gets its name when its header is on the disk."""
    with files_disk.new(file) as unfinished:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size_bytes)
        finally:
            os.close(descriptor)
        encrypt(unfinished, passphrase)


def encrypt(device: str, passphrase: str) -> None:
    """Write a LUKS header; what was on the device is lost."""
    label = f"--label={_UNFINISHED}"
    _cryptsetup(passphrase, "luksFormat", "--type=luks2", "--batch-mode", label, "--key-file=-", "--", device)


def label_finished(device: str) -> None:
    """Note in the header that the filesystem is made."""
    run("cryptsetup", "config", f"--label={_FINISHED}", "--", device)


def open_device(device: str, name: str, passphrase: str) -> None:
    """Open a device as /dev/mapper/NAME."""
    _cryptsetup(passphrase, "open", "--type=luks", "--key-file=-", "--", device, name)


def close(name: str) -> None:
    """Close a device; the kernel refuses while something uses it."""
    run("cryptsetup", "close", "--", name)


def _cryptsetup(passphrase: str, *options: str, may_be_wrong: bool = False) -> bool:
    """Run cryptsetup; False if the passphrase is wrong, and may be. Raises Failed with its error."""
    text = " ".join(("cryptsetup", *options))
    try:
        done = subprocess.run(
            ["cryptsetup", *options],
            input=passphrase.encode(),
            capture_output=True,
            timeout=_TIMEOUT_S,
            env={**os.environ, "LC_ALL": "C", "PATH": f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"},
            check=False,
        )
    except FileNotFoundError as error:
        raise Failed(f"{text} failed: cryptsetup is not installed; install it (role storage does)") from error
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{text} failed: it did not end within {_TIMEOUT_S} s; look for free memory (free -m)") from error
    if may_be_wrong and done.returncode == _WRONG_PASSPHRASE:
        return False
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip() or f"it exited with {done.returncode}"
        raise Failed(f"{text} failed: {reason}; `cryptsetup status` and the kernel's log (journalctl -k) tell more")
    return True
