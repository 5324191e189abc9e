# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Call qemu-img: arguments as a list, answers as JSON, never a shell."""

from __future__ import annotations

import json
import subprocess
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import Failed, Unsupported

__all__ = ["chain", "convert", "info"]


def info(path: str) -> dict[str, t.Any]:
    """format, virtual-size, backing-filename … of an image, as qemu-img reports them."""
    return t.cast("dict[str, t.Any]", json.loads(_run("read image", path, ["info", "--output=json", path])))


def chain(path: str) -> list[str]:
    """The files an image stands on, itself first; it may be in use."""
    found = json.loads(_run("read image", path, ["info", "-U", "--backing-chain", "--output=json", path]))
    return [each["filename"] for each in found]


def convert(path: str, to: str, *, from_format: str, to_format: str, progress: t.Callable[[float], None] | None = None) -> None:
    """Write the content of `path` to the new file `to`, sparse."""
    _run("convert image", path, ["convert", "-f", from_format, "-O", to_format, path, to])


def _run(verb: str, what: str, arguments: t.Sequence[str]) -> str:
    try:
        done = subprocess.run(["qemu-img", *arguments], check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise Unsupported(f"cannot {verb} {what}: there is no qemu-img; install qemu-utils (qemu-img) on this host") from error
    except subprocess.CalledProcessError as error:
        raise Failed(f"cannot {verb} {what}: {error.stderr.strip() or error}") from error
    return done.stdout
