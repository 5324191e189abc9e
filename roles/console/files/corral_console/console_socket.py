# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest's console for who has a ticket."""

from __future__ import annotations

import json
import logging

from starlette.websockets import WebSocket

from . import consoles, policy
from .policy_client import Unavailable
from .shares import Full
from .site import Site, address_of, credentials

__all__ = ["console"]

_LOG = logging.getLogger("corral_console.audit")


async def console(socket: WebSocket) -> None:
    """Redeem the ticket, and carry bytes while the session and the right are there."""
    site: Site = socket.app.state.site
    text, given = socket.query_params.get("ticket", ""), credentials(socket)
    try:
        identity = await site.identity(given)
    except Unavailable:
        identity = None
    ticket = site.tickets.take(text, identity.digest) if identity else None
    known = site.config.hosts.get(ticket.host) if ticket else None
    if identity is None or ticket is None or known is None:
        await socket.close(consoles.REFUSED)
        return
    who = identity
    try:
        share = site.consoles.take(who.who.name)
    except Full as problem:
        await socket.accept()  # else the browser is not told why
        await socket.close(consoles.TOO_MANY, f"too many consoles are open: {problem}")
        return

    async def alive() -> bool:
        now = None if share.given_up else await site.still(given, who)
        found = site.store.get(f"guest/{ticket.host}/{ticket.guest}")
        if now is None or found is None:
            return now is not None  # a guest that has left ends its console itself
        guest = policy.Guest(found["name"], tuple(found.get("tags") or ()), ticket.host)
        return not now.refusal(policy.Request("console", guests=(guest,)))

    try:
        await socket.accept()
        more = {"user": ticket.user, "address": address_of(socket), "host": ticket.host, "guest": ticket.guest}
        _LOG.info(json.dumps({"audit": "console opened", **more, "kind": ticket.kind}))
        reason = await consoles.connect(socket, [*known.relay, text], alive)
        _LOG.info(json.dumps({"audit": "console closed", **more, "kind": ticket.kind, "reason": reason}))
    finally:
        site.consoles.leave(share)
