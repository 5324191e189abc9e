# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's certificate in files of any names, as a job gets them, for libvirt's `pkipath`.

libvirt expects fixed names in one directory.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import typing as t
import urllib.parse

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._tls import files_credentials

# Options, and libvirt's names for what they hold.
OPTIONS = {"ca_file": "cacert.pem", "cert_file": "clientcert.pem", "key_file": "clientkey.pem"}
_ALL = "ca_file, cert_file and key_file"
_ENVIRONMENT = "CORRAL_VIRT_CA_FILE, CORRAL_VIRT_CERT_FILE, CORRAL_VIRT_KEY_FILE"


class CredentialFiles:
    """Directories of symbolic links, one for each set of files.

    They hold no secret: a run that is killed leaves at most links behind.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._made: dict[str, dict[str, str]] = {}  # files by directory

    def directory(self, files: t.Mapping[str, str]) -> str:
        """The directory in which libvirt finds these files (path by option). Raises BadInput if they are unusable."""
        for place, made in self._made.items():
            if made == files:
                return place
        check(files)
        place = tempfile.mkdtemp(prefix="corral-pki-", dir=self._folder)
        self._made[place] = dict(files)
        for option, name in OPTIONS.items():
            os.symlink(files[option], os.path.join(place, name))
        return place

    def named(self, text: str) -> str:
        """A text with the paths of the links replaced by those of the files: the same in every run."""
        for place, files in self._made.items():
            for option, name in OPTIONS.items():
                text = text.replace(os.path.join(place, name), files[option])
            for spelled in (place, urllib.parse.quote(place)):
                text = text.replace(spelled, ",".join(files[option] for option in OPTIONS))
        return text

    def close(self) -> None:
        """Remove the directories; libvirt has read the files when it connected."""
        for place in self._made:
            shutil.rmtree(place, ignore_errors=True)
        self._made.clear()


def check(files: t.Mapping[str, str]) -> None:
    """Raises BadInput with everything that is wrong with the files (path by option; empty: not set)."""
    unset = [
        f"{option} is not set: set {_ALL} ({_ENVIRONMENT}), or none of them" for option in OPTIONS if not files[option]
    ]
    problems = unset + [
        f"{option}: cannot read {files[option]}: {reason}"
        for option in OPTIONS
        if (reason := _unreadable(files[option]))
    ]
    if not problems:
        authority, certificate, key = (files[option] for option in OPTIONS)
        fault = files_credentials.fault(files_credentials.Credentials(authority, certificate, key, revoked=os.devnull))
        problems = [fault] if fault else []
    if problems:
        remedy = "" if unset else f". Update the files of {_ALL} ({_ENVIRONMENT}); in AWX, update the credential"
        raise BadInput([f"cannot use the controller's certificate: {'; '.join(problems)}{remedy}"])


def _unreadable(path: str) -> str:
    """Why a file cannot be read; empty if it can, or without a path."""
    try:
        if path:
            with open(path, "rb") as stream:
                stream.read(1)
    except OSError as error:
        return error.strerror or str(error)
    return ""
