"""Both processes of the console, with libvirt's test driver behind them: the policy process in a thread."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
import typing as t
from collections.abc import Iterator
from pathlib import Path

import argon2
import pytest
from starlette.testclient import TestClient

from ansible_collections.corral.virt.roles.console.files.corral_console import policy_server, web
from ansible_collections.corral.virt.roles.console.files.corral_console.config import Config, Host, PolicyConfig
from ansible_collections.corral.virt.roles.console.files.corral_console.desk import Desk
from ansible_collections.corral.virt.roles.console.files.corral_console.jobs import Jobs
from ansible_collections.corral.virt.roles.console.files.corral_console.site import Site
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until

NAME = "console.example"
ORIGIN = f"https://{NAME}"
PASSWORD = "correct horse battery"
GUEST = "6695eb01-f6a4-8304-79aa-97f2502e193f"  # of libvirt's test driver
USERS = [
    {"name": "alice", "password": PASSWORD, "groups": ["admins"]},
    {"name": "bob", "password": PASSWORD, "groups": ["watchers"]},
    {"name": "carol", "password": PASSWORD, "groups": ["web-team"]},
    {"name": "dave", "password": PASSWORD, "groups": ["admins"]},
]
POLICY: list[dict[str, t.Any]] = [
    {"who": "group:admins", "may": "*"},
    {"who": "group:watchers", "may": "view"},
    {"who": "group:web-team", "may": ["start", "shutdown", "console"], "guests": "web*"},
]


def ticket_key(path: Path) -> Path:
    """As the role makes it."""
    command = ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


class World:
    """What tests look at and change."""

    def __init__(self, folder: Path) -> None:
        (folder / "lib").mkdir()
        (folder / "lib/some.js").write_text("export {};")
        self.folder, self.policy = folder, folder / "policy.json"
        self.policy.write_text(json.dumps(POLICY))
        self.policy_config = PolicyConfig(
            directory=folder,
            policy=self.policy,
            hosts=("hyper1", "hyper2"),
            web_user="root",
            group="hyper",
            project=folder,
            ansible=folder,
            variables=folder / "variables.json",
        )
        ticket_key(folder / "ticket.key")
        self.desk = Desk(self.policy_config)
        self.desk.accounts.converge(USERS, write=True)
        self.socket = folder / "socket"

    def config(self, relay: tuple[str, ...] = ()) -> Config:
        return Config(
            names=(NAME,),
            hosts={"hyper1": Host("test:///default", relay)},
            policy_socket=self.socket,
            libraries=self.folder / "lib",
            certificate=self.folder / "server.crt",
            key=self.folder / "server.key",
            state=self.folder,
        )

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """The policy process, until the end of the test."""
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(self.socket))
            listening.listen(100)
            server = policy_server.server(self.desk, {os.getuid(): policy_server.application(self.desk)})
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
            thread.start()
            until(lambda: server.started)
            yield
            t.cast(t.Any, self.desk.feed).close()
            server.should_exit = True
            thread.join(10)
            assert not thread.is_alive()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    cheap = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(argon2, "PasswordHasher", lambda: cheap)
    made = World(tmp_path)
    with made.serving():
        yield made


@pytest.fixture
def no_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No job begins: its process is another test's."""
    monkeypatch.setattr(Jobs, "_start", lambda *_job: None)


@pytest.fixture
def site(world: World) -> Iterator[tuple[Site, TestClient]]:
    yield from started(world.config())


def browser(app: t.Any) -> TestClient:
    return TestClient(app, base_url=ORIGIN, headers={"origin": ORIGIN}, raise_server_exceptions=False)


def log_in(client: TestClient, user: str = "alice", password: str = PASSWORD) -> int:
    return client.post("/api/login", json={"user": user, "password": password}).status_code


def started(config: Config) -> Iterator[tuple[Site, TestClient]]:
    """The web process, when it has read the guests."""
    app = web.application(config)
    with browser(app) as client:
        until(lambda: app.state.site.store.get(f"guest/hyper1/{GUEST}"))
        yield app.state.site, client
