"""A stand-in for AWX's API: objects by endpoint, in memory, with the few rules that the modules of awx.awx rely on."""

from __future__ import annotations

import contextlib
import copy
import json
import re
import threading
import typing as t
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["Awx", "awx"]

TOKEN = "a-token"
ENCRYPTED = "$encrypted$"
API = "/api/v2/"
# What AWX shows of an object that was made without saying it.
DEFAULTS: dict[str, dict[str, t.Any]] = {
    "inventories": {"kind": "", "host_filter": None},
    "projects": {"scm_revision": ""},
    "workflow_job_template_nodes": {"unified_job_template": None},
}
# What one may be allowed to do with an object.
ROLES = {"job_templates": ("admin", "execute", "read"), "teams": ("admin", "member", "read")}
SINGULAR = {"inventories": "inventory"}
# Fields that AWX keeps as texts: what is nothing becomes an empty one.
TEXTS = {"inventories": ("kind",), "inventory_sources": ("source_vars",)}

Thing = dict[str, t.Any]


class Awx:
    """Objects by endpoint, and what stands on each: related objects, surveys, approvals."""

    def __init__(self) -> None:
        self.objects: dict[str, list[Thing]] = {"credential_types": [{"id": 1, "name": "Machine", "inputs": {}}]}
        self.related: dict[str, list[int]] = {}
        self.surveys: dict[int, Thing] = {}
        self.roles: dict[int, Thing] = {}
        self.prefix = API  # of an automation platform: /api/controller/v2/
        self.secrets: dict[int, Thing] = {}
        self.writes: list[str] = []
        self.playbooks: list[str] = []  # what AWX finds in the project
        self.pushed: list[str] = []  # and after it has updated that
        self.broken = False  # updates of the project fail
        self._last = 100
        self.add("credentials", {"name": "hypervisors", "credential_type": 1})
        self.add("instance_groups", {"name": "default"})
        self.add("organizations", {"name": "Default"})

    def add(self, endpoint: str, fields: Thing) -> Thing:
        """Make an object."""
        self._last += 1
        thing = {"id": self._last, **DEFAULTS.get(endpoint, {}), **_stored(endpoint, fields)}
        self.objects.setdefault(endpoint, []).append(thing)
        self.roles[thing["id"]] = {
            f"{role}_role": {"id": self.add("roles", {"name": role})["id"]} for role in ROLES.get(endpoint, ())
        }
        return thing

    def granted(self, kind: str, endpoint: str, name: str, role: str) -> list[str]:
        """Which teams or users have this role on an object."""
        number = self.roles[self.named(endpoint, name)["id"]][f"{role}_role"]["id"]
        ids = self.related.get(f"roles/{number}/{kind}", [])
        return sorted(str(thing.get("name") or thing["username"]) for thing in self.objects[kind] if thing["id"] in ids)

    def named(self, endpoint: str, name: str) -> Thing:
        """The object of that name; IndexError where there is none."""
        return next(thing for thing in self.objects[endpoint] if thing.get("name", thing.get("identifier")) == name)

    def names(self, endpoint: str, ids: t.Iterable[int]) -> list[str]:
        """What these are called."""
        return [
            thing.get("name") or thing["identifier"] for thing in self.objects.get(endpoint, []) if thing["id"] in ids
        ]

    def shown(self, endpoint: str, thing: Thing) -> Thing:
        """As AWX shows it: with its address and without its secrets."""
        url = f"{self.prefix}{endpoint}/{thing['id']}/"
        related = {"survey_spec": f"{url}survey_spec/", "update": f"{url}update/"}
        if endpoint == "workflow_job_template_nodes" and thing["unified_job_template"]:
            kind = "job_templates" if self._find("job_templates", thing["unified_job_template"]) else "approvals"
            related["unified_job_template"] = f"{self.prefix}{kind}/{thing['unified_job_template']}/"
        kind = SINGULAR.get(endpoint, endpoint.removesuffix("s"))
        return {
            **thing,
            "type": kind,
            "url": url,
            "related": related,
            "summary_fields": {"object_roles": self.roles.get(thing["id"], {})},
            **self._hidden(endpoint, thing),
        }

    def _hidden(self, endpoint: str, thing: Thing) -> Thing:
        if endpoint != "credentials" or "inputs" not in thing:
            return {}
        fields = self._find("credential_types", thing["credential_type"])["inputs"].get("fields", [])
        secret = {field["id"] for field in fields if field.get("secret")}
        return {"inputs": {key: ENCRYPTED if key in secret else value for key, value in thing["inputs"].items()}}

    def _find(self, endpoint: str, number: int) -> Thing:
        return next((thing for thing in self.objects.get(endpoint, []) if thing["id"] == number), {})

    def get(self, parts: list[str], query: dict[str, str]) -> tuple[int, Thing | list[str]]:
        """A list, an object, or what is related to it."""
        endpoint = parts[0]
        if len(parts) == 1:
            return 200, self._list(endpoint, query)
        number = int(parts[1])
        thing = self._find(endpoint, number)
        if not thing:
            return 404, {"detail": "Not found."}
        if len(parts) == 2:
            return 200, self.shown(endpoint, thing)
        if endpoint == "approvals":
            return 404, {"detail": "Not found."}
        if parts[2] == "survey_spec":
            return 200, self.surveys.get(number, {})
        if parts[2] == "playbooks":
            return 200, self.playbooks
        ids = self.related.get("/".join(parts), [])
        return 200, _page([{"id": each} for each in ids])

    def _list(self, endpoint: str, query: dict[str, str]) -> Thing:
        stored = ["job_templates", "workflow_job_templates"] if endpoint == "unified_job_templates" else [endpoint]
        everything = [self.shown(each, thing) for each in stored for thing in self.objects.get(each, [])]
        wanted = {key: value for key, value in query.items() if key not in ("page", "page_size")}
        return _page([thing for thing in everything if all(str(thing.get(key)) == wanted[key] for key in wanted)])

    def post(self, parts: list[str], data: Thing) -> tuple[int, Thing]:
        """Make an object, a survey or an approval, update a project, or relate two objects."""
        if len(parts) == 1:
            if parts[0] == "job_templates" and data["playbook"] not in self.playbooks:
                return 400, {"playbook": ["Playbook not found for project."]}
            return 201, self.shown(parts[0], self.add(parts[0], data))
        number = int(parts[1])
        if parts[2] == "update":
            return 202, self._updated(number)
        if parts[2] == "survey_spec":
            if problem := survey_problem(data):
                return 400, {"error": problem}
            self.surveys[number] = data
            return 200, {}
        if parts[2] == "create_approval_template":
            approval = self.add(
                "approvals", {key: data[key] for key in ("name", "description", "timeout") if key in data}
            )
            self._find(parts[0], number)["unified_job_template"] = approval["id"]
            return 201, self.shown("approvals", approval)
        ids = self.related.setdefault("/".join(parts), [])
        if data.get("disassociate"):
            ids.remove(data["id"])
        else:
            ids.append(data["id"])
        return 204, {}

    def _updated(self, project: int) -> Thing:
        """AWX has the project's newest state at once, or never."""
        if not self.broken:
            self.playbooks = list(self.pushed)
        state = {"status": "failed" if self.broken else "successful", "failed": self.broken, "scm_revision": ""}
        update = self.add("project_updates", {"name": "update", "project": project, "finished": "2026-01-01", **state})
        return self.shown("project_updates", update)

    def patch(self, parts: list[str], data: Thing) -> tuple[int, Thing]:
        """Change an object; fields that it does not have are ignored."""
        thing = self._find(parts[0], int(parts[1]))
        known = {key: value for key, value in data.items() if parts[0] != "approvals" or key in thing}
        thing.update(_stored(parts[0], known))
        return 200, self.shown(parts[0], thing)


def _stored(endpoint: str, fields: Thing) -> Thing:
    texts = TEXTS.get(endpoint, ())
    return {key: "" if key in texts and not value else copy.deepcopy(value) for key, value in fields.items()}


def _page(results: list[Thing]) -> Thing:
    return {"count": len(results), "next": None, "previous": None, "results": results}


_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("text", "textarea", "password", "multiplechoice", "multiselect"), str),
    "integer": int,
    "float": (float, int),
}


def survey_problem(survey: Thing) -> str | None:
    """Why AWX refuses a survey; None where it takes it."""
    if not isinstance(survey.get("name"), str) or not isinstance(survey.get("description"), str):
        return "name and description must be texts"
    if not isinstance(survey.get("spec"), list) or not survey["spec"]:
        return "spec has no questions"
    seen: set[str] = set()
    for question in survey["spec"]:
        if problem := _question_problem(question):
            return f"{question.get('variable')}: {problem}"
        if question["variable"] in seen:
            return f"{question['variable']}: twice"
        seen.add(question["variable"])
    return None


def _question_problem(question: Thing) -> str | None:
    if any(not isinstance(question.get(key), str) for key in ("type", "question_name", "variable")):
        return "type, question_name and variable must be texts"
    if not isinstance(question.get("required"), bool):
        return "required must be true or false"
    if question["type"] not in _TYPES:
        return f"there is no type {question['type']}"
    default, choices = question.get("default", ""), question.get("choices")
    if default != "" and (not isinstance(default, _TYPES[question["type"]]) or isinstance(default, bool)):
        return f"the default {default!r} is not of the type"
    if str(default).startswith(ENCRYPTED):
        return "the default is reserved"
    if any(not isinstance(question.get(limit), (int, type(None))) for limit in ("min", "max")):
        return "limits must be whole numbers"
    if question["type"] in ("multiplechoice", "multiselect"):
        lines = str(default).splitlines()
        if choices is None:
            return "it needs choices"
        if any(line not in choices for line in lines) or (question["type"] == "multiplechoice" and len(lines) > 1):
            return f"the default {default!r} is not a choice"
    return None


def _handler(state: Awx) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            url = urllib.parse.urlsplit(self.path)
            path = re.sub(r"/+", "/", url.path)
            if not path.startswith(state.prefix):
                self._send(404, {"detail": "Not found."})
                return
            parts = path.removeprefix(state.prefix).strip("/").split("/")
            length = int(self.headers.get("Content-Length") or 0)
            data = json.loads(self.rfile.read(length) or b"{}")
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self._send(401, {"detail": "Unauthorized"})
            elif self.command == "GET":
                self._send(*state.get(parts, dict(urllib.parse.parse_qsl(url.query))))
            else:
                state.writes.append(f"{self.command} {url.path}")
                self._send(*(state.post if self.command == "POST" else state.patch)(parts, data))

        do_GET = do_POST = do_PATCH = _answer  # noqa: N815

        def _send(self, code: int, body: Thing | list[str]) -> None:
            text = b"" if code == 204 else json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Says nothing."""

    return Handler


@contextlib.contextmanager
def awx() -> t.Iterator[tuple[str, Awx]]:
    """The address of one that runs on this machine, and what it holds."""
    state = Awx()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
