# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Call qemu-img: arguments as a list, answers as JSON, never a shell. It keeps QEMU's locks: an image in use is not written."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import tempfile
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import Failed, Unsupported

__all__ = ["Progress", "chain", "convert", "create", "flat_bytes", "info", "rebase", "resize"]

Progress = t.Callable[[float], None]  # percent
_PR_SET_PDEATHSIG = 1


def info(path: str) -> dict[str, t.Any]:
    """format, virtual-size, backing-filename … of an image, as qemu-img reports them; also of one in use."""
    return t.cast("dict[str, t.Any]", _answer("read image", path, ["info", "-U"]))


def chain(path: str, form: str) -> list[dict[str, t.Any]]:
    """The same of an image and all it stands on."""
    return t.cast("list[dict[str, t.Any]]", _answer("read image", path, ["info", "-U", "-f", form, "--backing-chain"]))


def flat_bytes(path: str) -> int:
    """Room a qcow2 image takes when it stands on nothing."""
    return int(_answer("measure image", path, ["measure", "-U", "-f", "qcow2", "-O", "qcow2"])["required"])


def create(path: str, *, base: str, base_format: str, size_bytes: int) -> None:
    """Make the new qcow2 `path` that stands on `base`."""
    with _whole(path):
        _run("create disk", path, ["create", "-q", "-f", "qcow2", "-b", base, "-F", base_format, path, str(size_bytes)])


def convert(path: str, to: str, *, from_format: str, to_format: str, progress: Progress | None = None) -> None:
    """Write the content of `path` to the new file `to`, sparse; nothing is left there when that fails."""
    with _whole(to):
        _run(f"convert {path} to", to, ["convert", "-p", "-f", from_format, "-O", to_format, path, to], progress)


def rebase(path: str, base: str | None, *, base_format: str = "", progress: Progress | None = None) -> None:
    """Let the qcow2 `path` stand on `base`, or on nothing, with the same content.

    In its usual cache mode qemu-img says in the file what it stands on before all that was copied is found in it: who kills it then
    loses data. With writethrough that comes last.
    """
    below = ["-b", base, "-F", base_format] if base else ["-b", ""]
    verb = f"{'rebase' if base else 'flatten'} disk"
    _run(verb, path, ["rebase", "-p", "-t", "writethrough", "-f", "qcow2", *below, path], progress)


def resize(path: str, form: str, size_bytes: int, *, shrink: bool = False) -> None:
    """Grow a disk, or cut its end off."""
    _run("resize disk", path, ["resize", "-q", "-f", form, *(["--shrink"] if shrink else []), path, str(size_bytes)])


@contextlib.contextmanager
def _whole(path: str) -> t.Iterator[None]:
    """What is made inside is there afterwards, or nothing is."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        raise


def _answer(verb: str, path: str, arguments: t.Sequence[str]) -> t.Any:
    return json.loads(_run(verb, path, [*arguments, "--output=json", path]))


def _run(verb: str, what: str, arguments: t.Sequence[str], progress: Progress | None = None) -> str:
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                ["qemu-img", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "LC_ALL": "C"},
                preexec_fn=_die_with_us,  # noqa: PLW1509 (no thread of ours does more than wait)
            )
        except FileNotFoundError as error:
            raise Unsupported(f"cannot {verb} {what}: there is no qemu-img; install qemu-utils (qemu-img) on this host") from error
        with process:
            try:
                said = _listened(t.cast("t.IO[bytes]", process.stdout), progress)
            except BaseException:
                process.kill()
                raise
        if process.returncode == 0:
            return said
        errors.seek(0)
        raise _failure(verb, what, errors.read().decode(errors="replace"), process.returncode)


def _listened(stream: t.IO[bytes], progress: Progress | None) -> str:
    """All that is said; percents, which overwrite each other on one line, are passed on."""
    said = b""
    for part in iter(lambda: os.read(stream.fileno(), 65536), b""):
        percents = re.findall(rb"\(([\d.]+)/100%\)", part)
        if progress and percents:
            progress(float(percents[-1]))
        said = b"" if percents else said + part
    return said.decode(errors="replace")


def _failure(verb: str, what: str, errors: str, code: int) -> Failed:
    lines = [line for line in errors.replace("qemu-img: ", "").splitlines() if line.strip()]
    remedy = ""
    if "No space left on device" in errors:
        remedy = f"; make room in {os.path.dirname(what)}"
    elif "Failed to get" in errors and "lock" in errors:
        remedy = "; another process has it open: end that first"
    return Failed(f"cannot {verb} {what}: {' '.join(lines) or f'qemu-img ended with {code}'}{remedy}")


def _die_with_us() -> None:
    """A killed run leaves no qemu-img at work behind it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
