# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests about what is done: actions, jobs, tickets for consoles."""

from __future__ import annotations

import asyncio
import typing as t

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ansible_collections.corral.virt.plugins.module_utils._placement import model_placement
from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions as _actions

from . import offers, policy, strict
from .answers import answer, body, error, number
from .desk import Caller, Desk, address, with_caller
from .jobs import ACTIVE, Busy, Job, TooMany, Unrecorded
from .order import NOT_AVAILABLE, BadOrder, Order, Others, Seen, order, seen_guests
from .shares import Full

__all__ = ["ROUTES"]

_MOST_VALUES = 1024 * 1024  # characters


@with_caller
async def actions(desk: Desk, _request: Request, caller: Caller) -> Response:
    """Those that the user may do to something."""
    may = desk.may(caller)
    return answer([offers.described(name) for name in offers.names() if name in may])


def _views(desk: Desk, caller: Caller, guest: Seen) -> bool:
    """Whether they may view a guest. Of others, no answer tells that they are there."""
    return not policy.refusal(desk.rules, caller.who, policy.Request("view", guests=(guest.guest,)))


def _views_host(desk: Desk, caller: Caller, name: str) -> bool:
    """Whether they may view a host, and so may name it."""
    return not policy.refusal(desk.rules, caller.who, policy.Request("view", hosts=(name,)))


def _ordered(desk: Desk, caller: Caller, given: dict[str, t.Any], whole: t.Mapping[str, t.Any]) -> Order:
    """The order for what the web process reports; raises BadOrder."""
    seen, named = seen_guests(whole.get("seen")), seen_guests(whole.get("named") or [])
    visible = [tuple(one for one in several if _views(desk, caller, one)) for several in (seen, named)]
    taken = frozenset(one.name for one in (*seen, *named))
    hosts = [name for name in desk.config.hosts if _views_host(desk, caller, name)]
    return order(given, visible[0], hosts, Others(taken, visible[1]))


def _unavailable(argument: str) -> Response:
    """The one answer for a name that a guest has or that a job gives to one, whether the user may view them or not."""
    return answer({"error": f"{argument}: {NOT_AVAILABLE}", "errors": {argument: NOT_AVAILABLE}}, 400)


def _busy(desk: Desk, caller: Caller, wanted: Order, problem: Busy) -> Response:
    """Another job has what this one needs; it is named to those who see it."""
    names = {lock for lock in wanted.exclusive if lock.startswith("name:")}
    if names & set(problem.job.request["exclusive"]):
        return _unavailable(_actions.action(wanted.action).new_name)
    seen = _sees(desk, caller, problem.job)
    return error(409, str(problem) if seen else "another job is not done; wait until it is")


class _Judged(t.NamedTuple):
    """What becomes of a request: an order that is refused for a reason, or that is none for a problem of its values."""

    order: Order
    problem: str
    reason: str


def _judged(desk: Desk, caller: Caller, given: dict[str, t.Any], whole: t.Mapping[str, t.Any]) -> _Judged:
    """Takes up to a second of a large request. Raises BadOrder."""
    wanted = _ordered(desk, caller, given, whole)
    # "inf" is a number to Ansible, and larger than no limit
    problem = strict.problem(wanted.values, most=_MOST_VALUES)
    return _Judged(wanted, problem, "" if problem else policy.refusal(desk.rules, caller.who, wanted.request))


async def _order(desk: Desk, request: Request, caller: Caller, given: t.Any, whole: t.Mapping[str, t.Any]) -> Response:
    """Make a job, when it can be done and the policy allows it."""
    if not isinstance(given, dict):
        return answer({"errors": {"action": "is required"}}, 400)
    try:
        share = desk.judging.take(caller.who.name)
    except Full as problem:
        return error(429, f"too many requests wait to be judged: {problem}")
    try:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(desk.judges, _judged, desk, caller, given, whole)
    except BadOrder as problem:
        return answer({"error": str(problem), "errors": problem.errors}, 400)
    finally:
        desk.judging.leave(share)
    if found.problem:
        return error(400, f"cannot take the arguments: {found.problem}")
    return await _decided(desk, request, caller, found.order, found.reason)


async def _decided(desk: Desk, request: Request, caller: Caller, wanted: Order, reason: str) -> Response:
    """The answer to an order, which is in the audit whatever it is."""
    line: dict[str, t.Any] = {
        "user": caller.who.name,
        "address": address(request),
        "guests": [f"{one.name} {one.uuid}" for one in wanted.guests],
        "arguments": {name: value for name, value in wanted.arguments.items() if name not in wanted.secret},
        "check": wanted.check,
    }
    if reason or wanted.unavailable:
        desk.audit.write(wanted.action, allowed=False, reason=reason or NOT_AVAILABLE, **line)
        return error(403, reason) if reason else _unavailable(wanted.unavailable)
    try:
        job = await run_in_threadpool(desk.jobs.add, wanted, caller.who.name)
    except Busy as problem:
        return _busy(desk, caller, wanted, problem)
    except TooMany as problem:
        return error(429, str(problem))
    except Unrecorded as problem:
        desk.audit.write(wanted.action, allowed=True, reason=str(problem), **line)
        return error(507, str(problem))
    desk.audit.write(wanted.action, allowed=True, job=job.id, **line)
    return answer({"id": job.id}, 201)


@with_caller
async def add(desk: Desk, request: Request, caller: Caller) -> Response:
    """A new job."""
    whole = await body(request)
    return await _order(desk, request, caller, whole.get("request"), whole)


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
    earlier, whole = job.request, await body(request)
    given = {
        "action": earlier["action"],
        "arguments": earlier["arguments"],
        "check": earlier["check"],
        "guests": [guest["uuid"] for guest in earlier["guests"]],
        "confirm": len(earlier["guests"]),
    }
    return await _order(desk, request, caller, given, whole)


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
    try:
        await run_in_threadpool(desk.jobs.cancel, job)
    except Unrecorded as problem:
        return error(507, str(problem))
    return answer({}, 202)


def _refused(desk: Desk, caller: Caller, job: Job) -> str:
    """Why they may not do what the job does."""
    hosts = tuple(desk.config.hosts)
    if job.asked is None or job.asked[0] != hosts:
        try:
            job.asked = hosts, order(*job.asks(hosts)).request
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
        seen = [one for one in seen_guests(whole.get("seen")) if _views(desk, caller, one)]
    except BadOrder as problem:
        return error(400, str(problem))
    if kind not in ("vnc", "serial"):
        return error(400, "kind must be vnc or serial")
    running = sorted((one for one in seen if one.state in model_placement.ACTIVE), key=lambda one: one.state)
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
