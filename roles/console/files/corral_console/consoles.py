# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes between a browser and a guest's console, through a command that reaches the guest's host (ssh)."""

from __future__ import annotations

import asyncio
import contextlib
import typing as t
from asyncio.subprocess import Process

from starlette.websockets import WebSocket

__all__ = ["ENDED", "FAILED", "LACKING", "REFUSED", "TOO_MANY", "connect"]

ENDED, REFUSED, LACKING, TOO_MANY, FAILED = 4000, 4403, 4404, 4429, 4503  # close codes
_CHUNK = 64 * 1024
_ANSWER_S = 20.0
_ERRORS_S, _END_S = 5.0, 5.0
_LACKS = "the guest has no "  # so the relay begins what stays so until the guest is changed
_REASON_BYTES = 120  # a close frame holds 123


async def connect(socket: WebSocket, command: t.Sequence[str], alive: t.Callable[[], t.Awaitable[bool]]) -> str:
    """Run the command for an accepted WebSocket until either side ends, or the session does; returns why.

    The command's first line is `ok`, or `error: ` and the reason.
    """
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        problem = await _problem(process)
        if not problem and await _sent(socket.send_text("ok")):
            await _pump(socket, process, alive)
        failed = LACKING if problem.startswith(_LACKS) else FAILED
        code, reason = (failed, problem) if problem else (ENDED, "the console has ended")
        await _sent(socket.close(code, reason.encode()[:_REASON_BYTES].decode(errors="ignore")))
        return reason
    finally:
        await _end(process)


async def _end(process: Process) -> None:
    guest = t.cast(asyncio.StreamWriter, process.stdin)
    guest.close()
    if process.returncode is None:
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _END_S)
    except TimeoutError:
        process.kill()
        await process.wait()
    with contextlib.suppress(OSError):  # what was on its way to the guest is lost
        await guest.wait_closed()


async def _sent(sending: t.Awaitable[None]) -> bool:
    """False when the browser is gone, for which each library of WebSockets has errors of its own."""
    try:
        await sending
    except Exception:  # noqa: BLE001
        return False
    return True


async def _problem(process: Process) -> str:
    """Why there is no console; empty when there is."""
    output, errors = t.cast(asyncio.StreamReader, process.stdout), t.cast(asyncio.StreamReader, process.stderr)
    try:
        line = (await asyncio.wait_for(output.readline(), _ANSWER_S)).decode(errors="replace").strip()
    except (TimeoutError, ValueError):
        return "the host does not answer"
    if line == "ok":
        return ""
    if line.startswith("error: "):
        return line.removeprefix("error: ")
    try:  # a host that says something else may leave the connection open
        said = (await asyncio.wait_for(errors.read(_CHUNK), _ERRORS_S)).decode(errors="replace").strip().splitlines()
    except TimeoutError:
        said = []
    return said[-1] if said else "the host closed the connection"


async def _pump(socket: WebSocket, process: Process, alive: t.Callable[[], t.Awaitable[bool]]) -> None:
    """Until one of these ends."""
    parts = (_to_browser(socket, process), _to_guest(socket, process), _while_alive(alive), _discard(process))
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, OSError):  # the command has ended
                raise outcome


async def _to_browser(socket: WebSocket, process: Process) -> None:
    while data := await t.cast(asyncio.StreamReader, process.stdout).read(_CHUNK):
        if not await _sent(socket.send_bytes(data)):
            break


async def _to_guest(socket: WebSocket, process: Process) -> None:
    guest = t.cast(asyncio.StreamWriter, process.stdin)
    while (message := await socket.receive())["type"] == "websocket.receive":
        guest.write(message.get("bytes") or (message.get("text") or "").encode(errors="replace"))
        await guest.drain()


async def _while_alive(alive: t.Callable[[], t.Awaitable[bool]]) -> None:
    while await alive():
        await asyncio.sleep(1)


async def _discard(process: Process) -> None:
    """A full pipe would stop ssh."""
    while await t.cast(asyncio.StreamReader, process.stderr).read(_CHUNK):
        pass
    await asyncio.Event().wait()
