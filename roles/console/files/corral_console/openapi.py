# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The description of the interface: from one table of requests, and the catalogue of actions."""

from __future__ import annotations

import functools
import typing as t

from . import offers

__all__ = ["OPERATIONS", "document"]

# Method, path, what it does, the names of its parameters in the query, the schema of its body.
OPERATIONS: tuple[tuple[str, str, str, tuple[str, ...], str], ...] = (
    ("post", "/api/login", "Begin a session, with a cookie", (), "Login"),
    ("post", "/api/logout", "End the session", (), "Nothing"),
    ("get", "/api/me", "The user, their groups, rules and rights; empty without a session", (), ""),
    ("post", "/api/me", "The same, and tell that the session is in use", (), "Nothing"),
    ("get", "/api/sessions", "The user's sessions", (), ""),
    ("post", "/api/sessions/end", "End a session, or all of a user", (), "Ended"),
    ("get", "/api/tokens", "The user's tokens", (), ""),
    ("post", "/api/tokens", "Make a token; its value is shown once", (), "Token"),
    ("post", "/api/tokens/end", "Revoke a token, or all of a user", (), "Ended"),
    ("get", "/api/users", "All users with their sessions and tokens (right: users)", (), ""),
    ("get", "/api/audit", "The audit, the newest first (right: audit)", ("before", "limit"), ""),
    ("get", "/api/openapi.json", "This description", (), ""),
    ("get", "/api/actions", "The actions that the user may do, with their arguments", (), ""),
    ("post", "/api/tickets", "A ticket for a console: good once, for 15 seconds", (), "Console"),
    ("get", "/api/jobs", "Jobs, the newest first", ("guest", "host", "state", "before", "limit"), ""),
    ("post", "/api/jobs", "Do an action, or with `check` preview it", (), "Job"),
    ("get", "/api/jobs/{id}", "All about a job: report, plan of a preview, error", (), ""),
    ("get", "/api/jobs/{id}/log", "Lines of its output, from byte `since` (`next` of the call before)", ("since",), ""),
    ("post", "/api/jobs/{id}/cancel", "End a job; its migrations are aborted", (), "Nothing"),
    ("post", "/api/jobs/{id}/again", "Do the same once more", (), "Nothing"),
    ("get", "/api/events", "Live state as server-sent events: host/, guest/, figures/, job/, server/", ("since",), ""),
    ("get", "/api/hosts/{host}", "All about a host", (), ""),
    ("get", "/api/hosts/{host}/guests/{uuid}", "All about a guest", (), ""),
    ("get", "/api/targets", "For each host, why it cannot take the guests; null where it can", ("guest",), ""),
    ("get", "/api/history/{host}", "What a host used in the last hour or day", ("span",), ""),
    ("get", "/api/history/{host}/{uuid}", "What a guest used in the last hour or day", ("span",), ""),
    ("get", "/api/images", "Images in the hosts' pools", (), ""),
)

_TEXT, _TRUTH, _OBJECT = {"type": "string"}, {"type": "boolean"}, {"type": "object"}
_TYPES = {"int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}


def _schema(required: t.Sequence[str], **properties: t.Any) -> dict[str, t.Any]:
    return {"type": "object", "required": list(required), "properties": properties}


@functools.cache
def document() -> dict[str, t.Any]:
    """OpenAPI 3.1."""
    paths: dict[str, dict[str, t.Any]] = {}
    for method, path, text, query, body in OPERATIONS:
        paths.setdefault(path, {})[method] = _operation(path, text, query, body)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Web console of corral.virt", "version": "1"},
        "security": [{"session": []}, {"token": []}],
        "paths": paths,
        "components": {"securitySchemes": _SCHEMES, "schemas": {**_bodies(), **_actions()}},
    }


_SCHEMES = {
    "session": {"type": "apiKey", "in": "cookie", "name": "__Host-corral"},
    "token": {"type": "http", "scheme": "bearer"},
}


def _operation(path: str, text: str, query: t.Sequence[str], body: str) -> dict[str, t.Any]:
    inside = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    found: dict[str, t.Any] = {
        "summary": text,
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": _TEXT} for name in inside),
            *({"name": name, "in": "query", "schema": _TEXT} for name in query),
        ],
        "responses": {"default": {"description": "JSON; of what fails: error, and errors by argument"}},
    }
    if body:
        found["requestBody"] = {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{body}"}}}}
    return found


def _bodies() -> dict[str, t.Any]:
    uuids = {"type": "array", "items": {"type": "string", "format": "uuid"}}
    return {
        "Nothing": _OBJECT,
        "Ended": _schema([], id=_TEXT, user={"type": "string", "description": "All of that user, in place of id"}),
        "Login": _schema(["user", "password"], user=_TEXT, password=_TEXT, code=_TEXT),
        "Token": _schema(["name"], name=_TEXT, days={"type": "integer", "minimum": 1}),
        "Console": _schema(
            ["uuid", "kind"], uuid=_TEXT, kind={"type": "string", "enum": ["vnc", "serial"]}, take_over=_TRUTH
        ),
        "Job": _schema(
            ["action"],
            action={"type": "string", "enum": list(offers.names())},
            arguments={"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in offers.names()]},
            guests=uuids,
            hosts={"type": "array", "items": _TEXT},
            check=_TRUTH,
            confirm={"type": "integer", "description": "Number of guests, for what is destructive"},
        ),
    }


def _actions() -> dict[str, t.Any]:
    return {
        name: {
            "type": "object",
            "description": offers.described(name)["description"],
            "properties": {each["name"]: _argument(each) for each in offers.described(name)["arguments"]},
        }
        for name in offers.names()
    }


def _argument(argument: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    found = {"description": argument["description"]}
    if argument["type"] != "raw":
        found["type"] = _TYPES.get(argument["type"], "string")
    names = (("choices", "enum"), ("minimum", "minimum"), ("reaches", "x-reaches"))
    return found | {new: argument[old] for old, new in names if old in argument}
