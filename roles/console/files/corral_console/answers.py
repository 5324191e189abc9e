# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What requests carry and get: JSON that no cache keeps."""

from __future__ import annotations

import asyncio
import json
import typing as t

from starlette.requests import Request
from starlette.responses import JSONResponse

__all__ = ["BODY_S", "COOKIE", "answer", "body", "error", "number"]

COOKIE = "__Host-corral"

BODY_S = 10.0


def answer(value: t.Any, status: int = 200, **headers: str) -> JSONResponse:
    """A value."""
    return JSONResponse(value, status, headers={"cache-control": "no-store", **headers})


def error(status: int, text: str, **headers: str) -> JSONResponse:
    """Why not."""
    return answer({"error": text}, status, **headers)


async def body(request: Request) -> dict[str, t.Any]:
    """A JSON object; anything else is an empty one."""
    try:
        given = json.loads(await asyncio.wait_for(request.body(), BODY_S))
    except (TimeoutError, ValueError, RecursionError):
        return {}
    return given if isinstance(given, dict) else {}


def number(text: str | None, default: int, most: int) -> int:
    """Of a query; the default for what is none."""
    return min(int(text[:18]), most) if text and text.isdecimal() and text.isascii() else default
