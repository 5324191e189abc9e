# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring an image to a host: from the controller, from its source, or from another host that has it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import shlex
import time
import typing as t
from pathlib import Path

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.utils.display import Display

from ansible_collections.corral.virt.plugins.module_utils._core.defaults import POOL
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text
from ansible_collections.corral.virt.plugins.module_utils._core.uri import tls
from ansible_collections.corral.virt.plugins.plugin_utils._images.catalogue import Catalogue
from ansible_collections.corral.virt.plugins.plugin_utils._images.distribution import FanOut
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable
from ansible_collections.corral.virt.plugins.plugin_utils._report.progress_lines import WatchedAction
from ansible_collections.corral.virt.plugins.plugin_utils._report.tables import amount

_PIECE_BYTES = 16 * 1024 * 1024
_MIB = 1024 * 1024
_SOURCE = ("url", "src", "remote_src", "signature", "keyring")


class ActionModule(WatchedAction):
    """Serves `virt_image`: queries the host first, and transfers only what is missing."""

    TRANSFERS_FILES = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the module; a host that has the image costs one call."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        try:
            arguments, local, fan_out = self._prepared(variables)
        except ValueError as error:
            raise AnsibleActionFail(str(error)) from error
        answer: dict[str, t.Any] = self._planned(module_args=dict(arguments), task_vars=variables)
        host = str(variables.get("inventory_hostname"))
        if answer.get("failed") or self._task.check_mode:
            return answer
        image = (arguments.get("pool", POOL), answer.get("name"), answer.get("content"))
        turns = FanOut(Path(constants.DEFAULT_LOCAL_TMP), *map(str, image)) if fan_out else None
        if answer.get("part"):
            answer = self._fetched(host, arguments, local, turns, answer, variables)
        elif answer.get("progress"):
            answer = self._watched(arguments, variables, {f"{host}: {answer['name']}": answer["progress"]})
        elif answer.get("changed") or answer.get("read_again"):  # its manifest then says that it was
            answer = self._execute_module(module_args=arguments, task_vars=variables)
        if turns and answer.get("content") and not answer.get("failed"):
            turns.holds(host)
        return answer

    def _prepared(self, variables: dict[str, t.Any]) -> tuple[dict[str, t.Any], Path | None, bool]:
        """The module's arguments, the file on the controller, and True if hosts feed each other; raises ValueError."""
        arguments = dict(self._task.args)
        fan_out = boolean(arguments.pop("fan_out", False), strict=False)
        named, arch = arguments.pop("catalogue", None), arguments.pop("arch", None)
        if named:
            taken = [option for option in ("url", "src", "origin", "checksum") if arguments.get(option)]
            if taken:
                raise ValueError(f"catalogue sets the source of {named}; omit {', '.join(taken)}")
            arguments |= self._known(str(named), arch, arguments.get("keyring"), variables)
        if not arguments.get("src") or boolean(arguments.get("remote_src", False), strict=False):
            return arguments, None, fan_out
        try:
            local = Path(self._find_needle("files", str(arguments["src"])))
        except AnsibleError as error:
            raise ValueError(f"src: {error}; set remote_src: true for a file on the host") from error
        arguments["src"] = str(local)
        if arguments.get("checksum") in (None, "none"):
            arguments["checksum"] = f"sha256:{_digest(local)}"
        return arguments, local, fan_out

    def _known(self, name: str, arch: object, keyring: object, variables: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        """The image's source in the catalogue, for `arch` or else the host's architecture; raises ValueError."""
        catalogue = Catalogue.of(variables, self._templar.template)
        facts = variables.get("ansible_facts") or {}
        known = catalogue.resolve(name, str(arch or facts.get("architecture") or "x86_64"))
        found = {"url": known["url"], "checksum": known["checksum"]}
        keyring = keyring or known["keyring"]
        if keyring and known["signature"]:
            inside = known["checksum"].endswith(known["signature"])  # the list holds its signature itself
            found |= {"keyring": keyring, "signature": "inline" if inside else known["signature"]}
        return found

    def _fetched(
        self,
        host: str,
        arguments: dict[str, t.Any],
        local: Path | None,
        turns: FanOut | None,
        offer: dict[str, t.Any],
        variables: dict[str, t.Any],
    ) -> dict[str, t.Any]:
        """Fetch the image from the host whose turn it is, or from the source if that fails."""
        part = offer["part"]
        work = part["path"].rpartition("/")[0]
        if offer.get("checksum") and offer.get("verified"):  # known by now: no list is read a second time
            arguments = {key: value for key, value in arguments.items() if key not in ("signature", "keyring")}
            arguments["checksum"] = offer["checksum"]

        def have(source: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
            return self._watched(source, variables, {f"{host}: {offer['name']}": f"{work}/progress"})

        with contextlib.ExitStack() as stack:
            feeder = stack.enter_context(turns.turn()) if turns else None
            if turns and feeder:
                given = {key: value for key, value in arguments.items() if key not in _SOURCE}
                result = have({**given, "origin": feeder, "origin_uri": tls(feeder), "origin_pool": None})
                if not result.get("failed"):
                    return result
                Display().warning(
                    printable(f"{host}: cannot fetch it from {feeder}, using its source: {result.get('msg')}")
                )
                stack.enter_context(turns.source())
            if local:
                self._upload(f"{host}: {offer['name']}", local, part)
            result = have(arguments)
            if turns and not result.get("failed"):
                turns.holds(host)  # before the source is free for others
            return result

    def _upload(self, what: str, local: Path, part: t.Mapping[str, t.Any]) -> None:
        """Upload the missing rest of the file in pieces, so that a broken transfer resumes where it ended.

        Every piece has a fixed position, so parallel uploads of the same file write the same. When another one has
        finished, the part is gone, and the module finds the image.
        """
        path, total = shlex.quote(part["path"]), local.stat().st_size
        if total > part["max_bytes"]:
            fits = f"it is {bytes_text(total)}, and max_size and reserve allow {bytes_text(part['max_bytes'])} there"
            raise AnsibleActionFail(
                f"cannot send {what}: {fits}; make room there, or set a larger max_size or a smaller reserve"
            )
        directory = shlex.quote(part["path"].rpartition("/")[0])
        done = int(part["bytes"]) if part["bytes"] <= total else 0
        begun, start, shown = done, time.monotonic(), time.monotonic()
        cut = "" if part["bytes"] > total else " conv=notrunc"
        begin = f"umask 077; mkdir -p {directory} && dd of={path} count=0 oflag=nofollow status=none{cut}"
        self._send(f"{begin} < /dev/null", b"", what)
        with local.open("rb") as stream:
            stream.seek(done)
            for piece in iter(lambda: stream.read(_PIECE_BYTES), b""):
                write = (
                    f"dd of={path} bs=1M seek={done} oflag=seek_bytes,nofollow iflag=fullblock "
                    "conv=notrunc,nocreat status=none"
                )
                self._send(f"{write} || test ! -e {path}", piece, what)
                done += len(piece)
                if time.monotonic() - shown > 2:
                    shown = time.monotonic()
                    rate = (done - begun) / (shown - start) / _MIB
                    self._show(what, f"sending {100 * done // total} %, {amount(done, total)}, {rate:.1f} MiB/s")

    def _send(self, command: str, piece: bytes, what: str) -> None:
        done = self._low_level_execute_command(command, in_data=piece or None)
        if done["rc"]:
            raise AnsibleActionFail(
                printable(f"cannot send {what}: {(done.get('stderr') or done.get('stdout') or '').strip()}")
            )


def _digest(path: Path) -> str:
    """The SHA-256 of a file of the controller, computed once for all hosts of a run."""
    place, status = Path(constants.DEFAULT_LOCAL_TMP) / "corral-digests", path.stat()
    place.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(f"{path} {status.st_mtime_ns} {status.st_size}".encode()).hexdigest()
    with (place / name).open("a+") as known, path.open("rb") as stream:
        fcntl.flock(known, fcntl.LOCK_EX)
        known.seek(0)
        digest = known.read() or hashlib.file_digest(stream, "sha256").hexdigest()
        known.truncate(0)
        known.write(digest)
    return digest
