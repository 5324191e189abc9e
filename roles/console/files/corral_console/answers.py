# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What requests carry and get: strict JSON that no cache keeps."""

from __future__ import annotations

import typing as t

from starlette.requests import Request
from starlette.responses import Response

from . import strict

__all__ = ["BODY_S", "COOKIE", "DEVICE", "DOCUMENT", "answer", "body", "error", "number"]

COOKIE = "__Host-corral"
DEVICE = "__Host-corral-device"  # from which users have logged in

BODY_S = 10.0
DOCUMENT = "corral.document"  # in the scope of a request


def answer(value: t.Any, status: int = 200, **headers: str) -> Response:
    """A value. What JSON cannot hold is shown as unreadable."""
    more = {"cache-control": "no-store", **headers}
    return Response(strict.written(value), status, headers=more, media_type="application/json")


def error(status: int, text: str, **headers: str) -> Response:
    """Why not."""
    return answer({"error": text}, status, **headers)


async def body(request: Request) -> dict[str, t.Any]:
    """The object that the request carries, as `Entry` has read it."""
    return t.cast("dict[str, t.Any]", request.scope[DOCUMENT])


def number(text: str | None, default: int, most: int) -> int:
    """Of a query; the default for what is none."""
    return min(int(text[:18]), most) if text and text.isdecimal() and text.isascii() else default
