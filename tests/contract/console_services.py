"""Both services of the console as processes, each with its state on a small file system of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import typing as t
from pathlib import Path

from ansible_collections.corral.virt.roles.console.files.corral_console.accounts import Accounts
from ansible_collections.corral.virt.roles.console.files.corral_console.authority import converge
from ansible_collections.corral.virt.roles.console.files.corral_console.database import Database
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.unit.roles.console.processes import GUEST, PASSWORD, ticket_key

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-P", "-s", "-m", "ansible_collections.corral.virt.roles.console.files.corral_console"]
PLAYBOOK = """#!/bin/sh
echo "it runs"
while [ ! -e {go} ]; do sleep 0.1; done
echo "it has ended"
"""


class Answer(t.NamedTuple):
    status: int
    content: t.Any
    cookie: str


class Services:
    """`jobs` and `web` are the directories of state."""

    def __init__(self, folder: Path, users: t.Sequence[dict[str, t.Any]] = ()) -> None:
        self.folder = folder
        self.jobs, self.web, self.go = folder / "jobs-state", folder / "web-state", folder / "go"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for each in (self.jobs, self.web, folder / "lib", folder / "bin"):
            each.mkdir()
        (folder / "lib/some.js").write_text("export {};")
        (folder / "policy.json").write_text(json.dumps([{"who": "group:admins", "may": "*"}]))
        (folder / "variables.json").write_text("{}")
        (folder / "bin/ansible-playbook").write_text(PLAYBOOK.format(go=self.go))
        (folder / "bin/ansible-playbook").chmod(0o755)
        converge(folder, ["127.0.0.1"], write=True)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / "socket"))
        self._listening.listen(100)
        self.users = list(users) or [{"name": "alice", "password": PASSWORD, "groups": ["admins"]}]

    def prepare(self) -> None:
        """What the role makes in the state of the policy process."""
        ticket_key(self.jobs / "ticket.key")
        Accounts(Database(self.jobs / "console.db")).converge(self.users, write=True)

    def start(self, *names: str, **more: t.Any) -> None:
        """`policy` and `serve`, unless some are named; `more` are settings of the policy process."""
        folder = self.folder
        policy: dict[str, t.Any] = {
            "directory": self.jobs,
            "policy": folder / "policy.json",
            "hosts": ["hyper1"],
            "web_user": "root",
            "group": "hyper",
            "project": folder,
            "ansible": folder / "bin",
            "variables": folder / "variables.json",
        }
        web: dict[str, t.Any] = {
            "names": [f"127.0.0.1:{self.port}"],
            "hosts": {"hyper1": {"uri": "test:///default"}},
            "listen": "127.0.0.1",
            "port": self.port,
            "policy_socket": folder / "socket",
            "libraries": folder / "lib",
            "certificate": folder / "server.crt",
            "key": folder / "server.key",
            "state": self.web,
        }
        for name, config in (("policy", {**policy, **more}), ("serve", web)):
            if name in (names or ("policy", "serve")):
                (self.folder / f"{name}-config.json").write_text(json.dumps(config, default=str))
                self._start(name)
        until(lambda: self.ask("GET", "/api/me").status != 0)

    def _start(self, name: str) -> None:
        words = [*PROGRAM, name, "--config", self.folder / f"{name}-config.json"]
        number = self._listening.fileno()
        as_systemd = ["bash", "-c", 'exec "$@" 3<&"$0"', number]  # its first socket is number 3
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [str(word) for word in [*as_systemd, *words]],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT / ".cache")},
                pass_fds=[number],
            )

    def alive(self) -> bool:
        return all(each.poll() is None for each in self._processes.values())

    def stop(self, *names: str, how: int = signal.SIGTERM) -> None:
        for name in names or tuple(self._processes):
            process = self._processes.pop(name, None)
            if process:
                process.send_signal(how)
                process.wait(20)

    def close(self) -> None:
        self.go.touch()
        self.stop()
        self._listening.close()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def ask(self, method: str, path: str, given: t.Any = None, cookie: str = "") -> Answer:
        """Status 0: there is no answer."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=300, context=context)
        headers = {"origin": f"https://127.0.0.1:{self.port}", "content-type": "application/json", "cookie": cookie}
        try:
            connection.request(method, path, None if given is None else json.dumps(given), headers)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException):
            return Answer(0, None, "")
        finally:
            connection.close()
        cookie = (response.headers.get("set-cookie") or "").partition(";")[0]
        return Answer(response.status, json.loads(content) if content[:1] in b"{[" else content, cookie)

    def send(self, request: bytes) -> bytes:
        """The answer to bytes, as they are."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as plain:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
                connection.sendall(request)
                return connection.recv(65536)

    def log_in(self, user: str = "alice", **more: str) -> str:
        """The cookie."""
        answer = self.ask("POST", "/api/login", {"user": user, "password": PASSWORD, **more})
        assert answer.status == 200, answer
        return answer.cookie

    def start_job(self, cookie: str, *, check: bool = False) -> Answer:
        until(lambda: self.ask("GET", f"/api/hosts/hyper1/guests/{GUEST}", cookie=cookie).status == 200)
        return self.ask("POST", "/api/jobs", {"action": "start", "guests": [GUEST], "check": check}, cookie)

    def problems(self, cookie: str) -> list[str]:
        """What the banner of the page says."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=300, context=context)
        with contextlib.closing(connection):
            connection.request("GET", "/api/events", headers={"cookie": cookie})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            while not (line := response.readline().decode()).startswith("data: "):
                assert line
        values = json.loads(line.removeprefix("data: "))["values"]
        return [text for key, value in values.items() if key.startswith("server/") for text in value["problems"]]
