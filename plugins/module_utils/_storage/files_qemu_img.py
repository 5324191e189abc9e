# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Call qemu-img: arguments as a list, answers as JSON, never a shell.

It keeps QEMU's locks: an image in use is not written.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Unsupported
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text

Progress = t.Callable[[float], None]  # percent
_PR_SET_PDEATHSIG = 1
_GIB = 1024**3
_OUT_OF_MEMORY = re.compile(
    "annot allocate memory|ould not allocate|failed to (allocate|map segment)|thread_create.*unavailable|out of memory",
    re.I,
)


class _Limits(t.NamedTuple):
    """What one qemu-img may use: an image can be made to exhaust a host."""

    memory_bytes: int  # of address space
    cpu_s: int = 0  # 0: as long as it takes


_READ, _CHECK, _WORK = _Limits(_GIB, 30), _Limits(4 * _GIB, 300), _Limits(4 * _GIB)
_CHECKED = (0, 2, 3)  # sound, corrupt, or with clusters that nothing uses


def info(path: str, form: str) -> dict[str, t.Any]:
    """The report of qemu-img on an image of this format (virtual-size, backing-filename …); also of one in use."""
    return t.cast("dict[str, t.Any]", _answer("read image", path, ["info", "-U", "-f", form], _READ))


def corruptions(path: str) -> int:
    """The number of damaged places in a qcow2, such as those beyond the end of a truncated one."""
    arguments = ["check", "-f", "qcow2", "--output=json", path]
    report = json.loads(_run("check image", path, arguments, limits=_CHECK, accepted=_CHECKED))
    return int(report.get("corruptions", 0)) + int(report.get("check-errors", 0))


def flat_bytes(path: str, form: str = "qcow2") -> int:
    """The bytes that an image's content takes without a backing file, holes left out."""
    return int(_answer("measure image", path, ["measure", "-U", "-f", form, "-O", "qcow2"], _WORK)["required"])


def convert(path: str, to: str, *, from_format: str, to_format: str, progress: Progress | None = None) -> None:
    """Write the content of `path` to the new file `to`, sparse; nothing is left there if that fails."""
    with _complete_or_absent(to):
        _run(f"convert {path} to", to, ["convert", "-p", "-f", from_format, "-O", to_format, path, to], progress)


def convert_onto(
    path: str,
    to: str,
    *,
    from_format: str,
    to_format: str = "raw",
    empty: bool = False,
    progress: Progress | None = None,
) -> None:
    """Write the content of `path` onto a disk that is at least as large. Its holes become zeros, or stay holes where
    that is `empty`: it reads as zeros.
    """
    how = ["-p", "-n", *(["--target-is-zero"] if empty else [])]
    _run(f"copy {path} to", to, ["convert", *how, "-f", from_format, "-O", to_format, path, to], progress)


def compare(path: str, to: str, *, form: str, to_format: str) -> None:
    """Raise Failed if a guest would see something else of two disks; what one has more must be zeros."""
    found = _run(f"compare {path} with", to, ["compare", "-f", form, "-F", to_format, path, to], accepted=(0, 1))
    if "Images are identical" not in found:
        reason = " ".join(found.split())
        raise Failed(f"cannot copy {path} to {to}: {reason}; the disk is where it was; run again")


def rebase(path: str, base: str | None, *, base_format: str = "", progress: Progress | None = None) -> None:
    """Change the backing file of the qcow2 `path` to `base`, or to none, and keep its content.

    In its usual cache mode qemu-img writes the new backing file's name before all copied data is on disk, so a kill
    loses data. With writethrough the name comes last.
    """
    below = ["-b", base, "-F", base_format] if base else ["-b", ""]
    verb = f"{'rebase' if base else 'flatten'} disk"
    _run(verb, path, ["rebase", "-p", "-t", "writethrough", "-f", "qcow2", *below, path], progress)


def commit(path: str, base: str, progress: Progress | None = None) -> None:
    """Write what stands in the qcow2 `path` into `base`, which it stands on; `path` keeps its content."""
    _run("merge disk", path, ["commit", "-p", "-t", "writethrough", "-f", "qcow2", "-b", base, "-d", path], progress)


def repoint(path: str, base: str, base_format: str) -> None:
    """Let the qcow2 `path` name another backing file, which has the same content."""
    _run("rebase disk", path, ["rebase", "-u", "-f", "qcow2", "-b", base, "-F", base_format, path])


def create_overlay(path: str, base: str, base_format: str, size_bytes: int | None = None) -> None:
    """Create the qcow2 `path` with `base` as its backing file, and as large as that unless a size is given."""
    size = [] if size_bytes is None else [str(size_bytes)]
    with _complete_or_absent(path):
        _run("create disk", path, ["create", "-q", "-f", "qcow2", "-b", base, "-F", base_format, path, *size])


def resize(path: str, form: str, size_bytes: int, *, shrink: bool = False) -> None:
    """Grow a disk, or (`shrink`) cut its end off."""
    _run("resize disk", path, ["resize", "-q", "-f", form, *(["--shrink"] if shrink else []), path, str(size_bytes)])


@contextlib.contextmanager
def _complete_or_absent(path: str) -> t.Iterator[None]:
    """Remove the file if its creation inside fails."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        raise


def _answer(verb: str, path: str, arguments: t.Sequence[str], limits: _Limits) -> t.Any:
    return json.loads(_run(verb, path, [*arguments, "--output=json", path], limits=limits))


def _run(
    verb: str,
    what: str,
    arguments: t.Sequence[str],
    progress: Progress | None = None,
    limits: _Limits = _WORK,
    accepted: t.Collection[int] = (0,),
) -> str:
    def prepare() -> None:
        _die_with_us()
        _limit(resource.RLIMIT_AS, limits.memory_bytes)
        _limit(resource.RLIMIT_CPU, limits.cpu_s)

    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                ["qemu-img", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "LC_ALL": "C"},
                preexec_fn=prepare,  # noqa: PLW1509 (no thread of ours does more than wait)
            )
        except FileNotFoundError as error:
            raise Unsupported(
                f"cannot {verb} {what}: qemu-img is not installed; install qemu-utils (qemu-img) on this host"
            ) from error
        with process:
            try:
                output = _listened(t.cast("t.IO[bytes]", process.stdout), progress)
            except BaseException:
                process.kill()
                raise
        if process.returncode in accepted:
            return output
        errors.seek(0)
        raise _failure(verb, what, errors.read().decode(errors="replace"), process.returncode, limits)


def _listened(stream: t.IO[bytes], progress: Progress | None) -> str:
    """The output of the process; percents, which overwrite each other on one line, are passed on."""
    output = b""
    for part in iter(lambda: os.read(stream.fileno(), 65536), b""):
        percents = re.findall(rb"\(([\d.]+)/100%\)", part)
        if progress and percents:
            progress(float(percents[-1]))
        output = b"" if percents else output + part
    return output.decode(errors="replace")


def _limit(kind: int, amount: int) -> None:
    """Lower a limit of this process; a lower one stays."""
    hard = resource.getrlimit(kind)[1]
    if amount:
        soft = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
        resource.setrlimit(kind, (soft, hard))  # at the hard one of time it is killed, and nobody tells by what


def _exceeded(errors: str, code: int, limits: _Limits) -> str:
    """The limit that was reached; empty if none was."""
    if code == -signal.SIGXCPU:
        return f"{limits.cpu_s} s of processor time"
    if _OUT_OF_MEMORY.search(errors):
        return f"{bytes_text(limits.memory_bytes)} of memory"
    return ""


def _failure(verb: str, what: str, errors: str, code: int, limits: _Limits) -> Failed:
    if exceeded := _exceeded(errors, code, limits):
        return Failed(
            f"cannot {verb} {what}: qemu-img reached its limit of {exceeded}; the image is damaged or was made to "
            "exhaust the host: check it with qemu-img check on a machine that may fail, and import it again"
        )
    lines = [line for line in errors.replace("qemu-img: ", "").splitlines() if line.strip()]
    remedy = ""
    if "No space left on device" in errors:
        remedy = f"; make room in {os.path.dirname(what)}"
    elif "Failed to get" in errors and "lock" in errors:
        remedy = "; another process has it open: stop that process first"
    return Failed(f"cannot {verb} {what}: {' '.join(lines) or f'qemu-img ended with {code}'}{remedy}")


def _die_with_us() -> None:
    """Let the kernel kill qemu-img if this process ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
