# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests about what is done: actions, jobs, tickets for consoles."""

from __future__ import annotations

import typing as t

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ansible_collections.corral.virt.plugins.module_utils._model import placement

from . import offers, policy
from .answers import answer, body, error, number
from .desk import Caller, Desk, address, with_caller
from .jobs import ACTIVE, Busy, Job
from .order import BadOrder, Seen, order, seen_guests

__all__ = ["ROUTES"]


@with_caller
async def actions(desk: Desk, _request: Request, caller: Caller) -> Response:
    """Those that the user may do to something."""
    may = desk.may(caller)
    return answer([offers.described(name) for name in offers.names() if name in may])


async def _order(desk: Desk, request: Request, caller: Caller, given: t.Any, seen: t.Any) -> Response:
    """Make a job, when it can be done and the policy allows it."""
    if not isinstance(given, dict):
        return answer({"errors": {"action": "is required"}}, 400)
    try:
        wanted = order(given, seen_guests(seen), desk.config.hosts)
    except BadOrder as problem:
        return answer({"error": str(problem), "errors": problem.errors}, 400)
    reason = policy.refusal(desk.rules, caller.who, wanted.request)
    line: dict[str, t.Any] = {
        "user": caller.who.name,
        "address": address(request),
        "guests": [f"{one.name} {one.uuid}" for one in wanted.guests],
        "arguments": {name: value for name, value in wanted.arguments.items() if name not in wanted.secret},
        "check": wanted.check,
    }
    if reason:
        desk.audit.write(wanted.action, allowed=False, reason=reason, **line)
        return error(403, reason)
    try:
        job = await run_in_threadpool(desk.jobs.add, wanted, caller.who.name)
    except Busy as problem:
        return error(409, str(problem))
    desk.audit.write(wanted.action, allowed=True, job=job.id, **line)
    return answer({"id": job.id}, 201)


@with_caller
async def add(desk: Desk, request: Request, caller: Caller) -> Response:
    """A new job."""
    given = await body(request)
    return await _order(desk, request, caller, given.get("request"), given.get("seen"))


@with_caller
async def again(desk: Desk, request: Request, caller: Caller) -> Response:
    """The same as an earlier job, judged anew."""
    job = _job(desk, request, caller)
    if job is None:
        return error(404, "there is no such job")
    if job.request["secret"] and job.request["user"] != caller.who.name:  # a new guest would tell what is hidden
        more = {"user": caller.who.name, "address": address(request), "job": job.id}
        desk.audit.write("again", allowed=False, **more)
        return error(403, f"its arguments hold a secret of {job.request['user']}, who alone can run it again")
    earlier, seen = job.request, (await body(request)).get("seen")
    given = {
        "action": earlier["action"],
        "arguments": earlier["arguments"],
        "check": earlier["check"],
        "guests": [guest["uuid"] for guest in earlier["guests"]],
        "confirm": len(earlier["guests"]),
    }
    return await _order(desk, request, caller, given, seen)


def _sees(desk: Desk, caller: Caller, job: Job) -> bool:
    """Whether a job is theirs, or they may view all that it is about, or do the same."""
    if job.request["user"] == caller.who.name:
        return True
    guests = tuple(policy.Guest(one["name"], tuple(one["tags"]), one["host"]) for one in job.request["expected"])
    view = policy.Request("view", guests=guests, everywhere=not guests)  # its log may name any guest
    return not policy.refusal(desk.rules, caller.who, view) or (not guests and not _refused(desk, caller, job))


def _job(desk: Desk, request: Request, caller: Caller) -> Job | None:
    job = desk.jobs.get(request.path_params["id"])
    return job if job and _sees(desk, caller, job) else None


@with_caller
async def jobs(desk: Desk, request: Request, caller: Caller) -> Response:
    """The newest first, of one guest, host or state if that is asked for."""
    return answer(await run_in_threadpool(_listed, desk, request.query_params, caller))


def _listed(desk: Desk, query: t.Mapping[str, str], caller: Caller) -> list[dict[str, t.Any]]:
    found: list[dict[str, t.Any]] = []
    limit, before = number(query.get("limit"), 100, 1000), query.get("before")
    for job in desk.jobs.all():
        summary = job.summary()
        hits = (
            not query.get("guest") or any(one["uuid"] == query["guest"] for one in summary["guests"]),
            not query.get("host") or query["host"] in summary["hosts"],
            not query.get("state") or query["state"] == job.state,
            not before or job.id < before,
        )
        if all(hits) and _sees(desk, caller, job):
            found.append(summary)
        if len(found) == limit:
            break
    return found


@with_caller
async def one(desk: Desk, request: Request, caller: Caller) -> Response:
    """All about a job."""
    job = _job(desk, request, caller)
    return answer(job.details()) if job else error(404, "there is no such job")


@with_caller
async def log(desk: Desk, request: Request, caller: Caller) -> Response:
    """Its output, from a line on."""
    job = _job(desk, request, caller)
    if job is None:
        return error(404, "there is no such job")
    return answer(await run_in_threadpool(job.log, number(request.query_params.get("since"), 0, 10**9)))


@with_caller
async def cancel(desk: Desk, request: Request, caller: Caller) -> Response:
    """End a job: one's own, or one that the user might have begun."""
    job = _job(desk, request, caller)
    if job is None:
        return error(404, "there is no such job")
    reason = "" if job.request["user"] == caller.who.name else _refused(desk, caller, job)
    more = {"user": caller.who.name, "address": address(request), "job": job.id}
    desk.audit.write("cancel", allowed=not reason, **more)
    if reason:
        return error(403, reason)
    if job.state not in ACTIVE:
        return error(409, f"the job has ended: {job.state}")
    await run_in_threadpool(desk.jobs.cancel, job)
    return answer({}, 202)


def _refused(desk: Desk, caller: Caller, job: Job) -> str:
    """Why they may not do what the job does."""
    request, hosts = job.request, tuple(desk.config.hosts)
    if job.asked is None or job.asked[0] != hosts:
        given = {**{key: request[key] for key in ("action", "arguments")}, "check": True}
        seen = tuple(Seen(one["uuid"], one["name"], one["host"], "", tuple(one["tags"])) for one in request["expected"])
        try:
            job.asked = hosts, order(given, seen, hosts).request
        except BadOrder as problem:  # one of its hosts is none of the hypervisors any more
            return str(problem)
    return policy.refusal(desk.rules, caller.who, job.asked[1])


@with_caller
async def ticket(desk: Desk, request: Request, caller: Caller) -> Response:
    """A ticket for a console, on the host where the guest runs now."""
    whole = await body(request)
    given = whole.get("request") if isinstance(whole.get("request"), dict) else {}
    kind = str(t.cast("dict[str, t.Any]", given).get("kind", ""))
    try:
        seen = seen_guests(whole.get("seen"))
    except BadOrder as problem:
        return error(400, str(problem))
    if kind not in ("vnc", "serial"):
        return error(400, "kind must be vnc or serial")
    running = sorted((one for one in seen if one.state in placement.ACTIVE), key=lambda one: one.state)
    if not running:
        return error(409, "the guest does not run")
    guest = running[-1]  # of a migration: where it runs
    reason = policy.refusal(desk.rules, caller.who, policy.Request("console", guests=(guest.guest,)))
    more = {"guest": guest.uuid, "name": guest.name, "host": guest.host, "kind": kind}
    desk.audit.write("console", user=caller.who.name, address=address(request), allowed=not reason, **more)
    if reason:
        return error(403, reason)
    if guest.host not in desk.config.hosts:
        return error(409, f"consoles are not set up on {guest.host}")
    made = desk.signer.ticket(
        host=guest.host,
        guest=guest.uuid,
        name=guest.name,
        tags=sorted(set(guest.tags)),
        kind=kind,
        take_over=t.cast("dict[str, t.Any]", given).get("take_over") is True,
        session=caller.digest,
        user=caller.who.name,
    )
    return answer({"ticket": made, "host": guest.host})


ROUTES = [
    Route("/api/actions", actions),
    Route("/api/jobs", jobs),
    Route("/api/jobs", add, methods=["POST"]),
    Route("/api/jobs/{id}", one),
    Route("/api/jobs/{id}/log", log),
    Route("/api/jobs/{id}/cancel", cancel, methods=["POST"]),
    Route("/api/jobs/{id}/again", again, methods=["POST"]),
    Route("/api/tickets", ticket, methods=["POST"]),
]
