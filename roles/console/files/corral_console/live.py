# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the page asks beside the stream: where guests can go, what they used, which images there are."""

from __future__ import annotations

import concurrent.futures
import contextlib
import typing as t

from starlette.requests import Request

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, VirtError

from . import targets
from .history import SPANS, History
from .images import merged
from .store import Store, Value
from .view import View
from .watch import Watcher

__all__ = ["ROUTES", "Live"]

_MOST_GUESTS = 100
_AT_ONCE = 16


class Live(t.Protocol):
    """What is asked."""

    store: Store
    watchers: dict[str, Watcher]
    history: History


def _targets(live: Live, view: View, request: Request) -> list[dict[str, str | None]]:
    uuids = request.query_params.getlist("guest")[:_MOST_GUESTS]
    cards = list(live.store.below("guest/").values())
    hosts = {str(host["name"]): host for host in live.store.below("host/").values()}
    needs = [_needs(live, [card for card in cards if view.guest(card)], hosts, uuid) for uuid in uuids]
    found = targets.targets(needs, hosts, cards)
    return [view.cleaned(each, live.store) for each in found if view.host(str(each["host"]))]


def _needs(live: Live, cards: t.Sequence[Value], hosts: t.Mapping[str, Value], uuid: str) -> targets.Needs:
    found = [card for card in cards if card["uuid"] == uuid]
    if not found:
        raise NotFound(f"there is no guest {uuid[:36]}")
    # Of one that migrates: where it runs.
    card = max(found, key=lambda each: str(each["state"]))
    return targets.guest_needs(card, live.watchers[card["host"]].guest(uuid), hosts[card["host"]].get("pools", ()))


def _guest_history(live: Live, view: View, request: Request) -> dict[str, t.Any]:
    name, uuid = request.path_params["host"], request.path_params["uuid"]
    found = live.store.get(f"guest/{name}/{uuid}")
    if found is None or not view.guest(found):
        raise NotFound("there is no such guest")
    return live.history.read(uuid, _span(request))


def _host_history(live: Live, view: View, request: Request) -> dict[str, t.Any]:
    name = request.path_params["host"]
    if name not in live.watchers or not view.host(name):
        raise NotFound("there is no such host")
    return live.history.read(f"host/{name}", _span(request))


def _span(request: Request) -> str:
    span = request.query_params.get("span", "hour")
    if span not in SPANS:
        raise NotFound(f"span must be one of {', '.join(SPANS)}")
    return span


def _images(live: Live, view: View, _request: Request) -> list[dict[str, t.Any]]:
    """Of the hosts that answer."""

    def volumes(watcher: Watcher) -> list[tuple[str, str, list[dict[str, t.Any]]]]:
        with contextlib.suppress(VirtError):
            return watcher.volumes()
        return []

    seen = [watcher for name, watcher in live.watchers.items() if view.host(name)]
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        return merged([each for found in pool.map(volumes, seen) for each in found])


ROUTES: dict[str, t.Callable[[Live, View, Request], t.Any]] = {
    "/api/targets": _targets,
    "/api/history/{host}/{uuid}": _guest_history,
    "/api/history/{host}": _host_history,
    "/api/images": _images,
}
