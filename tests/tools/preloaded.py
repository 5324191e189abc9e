"""Ansible's commands, each in a fork of a process that has loaded Ansible: loading is half of what a short command
costs.

Ansible's own command line does all that a command does, in a process of its own with directories of its own. Commands
of one environment share Ansible's code, what it made of `ansible.cfg`, and its cache of modules that are ready to be
sent: what lies in the checkout must not change between them. Another environment or another `ansible.cfg` is another
process to fork from.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib.util
import json
import multiprocessing.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import typing as t
from collections.abc import Mapping, Sequence
from pathlib import Path

COMMANDS = {
    "ansible": ("adhoc", "AdHocCLI"),
    "ansible-inventory": ("inventory", "InventoryCLI"),
    "ansible-playbook": ("playbook", "PlaybookCLI"),
}
# Loaded by every run that reaches a host.
USED = (
    "executor.module_common", "executor.playbook_executor", "executor.process.worker", "executor.task_executor", "modules",
    "playbook.role", "plugins.action", "plugins.become", "plugins.callback", "plugins.connection", "plugins.filter", "plugins.lookup",
    "plugins.shell.sh", "plugins.strategy", "plugins.test", "template", "vars.plugins",
)  # fmt: skip
HERE = Path(__file__).parent
CODE = HERE.parents[1] / ".cache/code"
AT_ONCE = 3  # processes, of 60 MiB each
SAYS_NOTHING = {"PYTEST_CURRENT_TEST"}  # another one for each test


_SEEN: set[tuple[t.Any, ...]] = set()
_SERVERS: dict[tuple[t.Any, ...], Server] = {}


def run(
    command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str], timeout_s: float, given: str | None
) -> subprocess.CompletedProcess[str]:
    """What `subprocess.run` does with one of Ansible's commands; any other program is just run."""
    words = [str(word) for word in command]
    server = _server(env) if words[0] in COMMANDS else None
    if server and server.lock.acquire(blocking=False):  # it does one thing at a time
        try:
            return server.run(words, cwd=cwd, timeout_s=timeout_s, given=given)
        finally:
            server.lock.release()
    if words[0] in COMMANDS:
        words[:1] = [sys.executable, "-m", f"ansible.cli.{COMMANDS[words[0]][0]}"]
    return subprocess.run(
        words, cwd=cwd, env=env, check=False, capture_output=True, text=True, timeout=timeout_s, input=given or ""
    )


def link_actions(folder: Path) -> None:
    """Let plays in that folder call the actions of `action_plugins`."""
    link = folder / "action_plugins"
    if not link.exists():
        link.symlink_to(HERE / "action_plugins")


def _server(env: Mapping[str, str]) -> Server | None:
    """The one for this environment; a first command alone is not worth one."""
    config = Path(env.get("ANSIBLE_CONFIG", "ansible.cfg"))
    changed = str(config.stat().st_mtime_ns) if config.exists() else ""
    key = (changed, *sorted((name, value) for name, value in env.items() if name not in SAYS_NOTHING))
    if key not in _SERVERS and key in _SEEN:
        _SERVERS[key] = Server(env)
        while len(_SERVERS) > AT_ONCE:
            _SERVERS.pop(next(iter(_SERVERS))).end()
    _SEEN.add(key)
    return _SERVERS.get(key)


@atexit.register
def _end_all() -> None:
    while _SERVERS:
        _SERVERS.popitem()[1].end()


class Server:
    """The process that is forked, seen from tests; it ends with them."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            words = [sys.executable, "-P", __file__, str(theirs.fileno()), str(CODE)]
            self._process = subprocess.Popen(words, env=env, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)

    def run(
        self, command: Sequence[str], *, cwd: Path, timeout_s: float, given: str | None
    ) -> subprocess.CompletedProcess[str]:
        """One command to its end."""
        with contextlib.ExitStack() as stack:
            stdin, stdout, stderr = (stack.enter_context(tempfile.TemporaryFile("w+")) for _number in range(3))
            stdin.write(given or "")
            stdin.seek(0)
            message = json.dumps([*command, str(cwd)]).encode()
            socket.send_fds(
                self._socket,
                [len(message).to_bytes(8, "big") + message],
                [each.fileno() for each in (stdin, stdout, stderr)],
            )
            pid = self._number()
            self._socket.settimeout(timeout_s)
            try:
                code = self._number()
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                self._socket.settimeout(None)
                self._number()
                raise subprocess.TimeoutExpired(command, timeout_s) from None
            self._socket.settimeout(None)
            for each in (stdout, stderr):
                each.seek(0)
            return subprocess.CompletedProcess(command, code, stdout.read(), stderr.read())

    def end(self) -> None:
        """Let it go; a command that another thread has given ends first."""
        with self.lock:
            self._socket.close()
            self._process.wait()

    def _number(self) -> int:
        received = self._socket.recv(8, socket.MSG_WAITALL)
        assert len(received) == 8, "the process that has loaded Ansible is gone"
        return int.from_bytes(received, "big", signed=True)


def serve(connection: socket.socket) -> None:
    """Load Ansible, and fork for each command, one after the other."""
    classes = {
        name: getattr(importlib.import_module(f"ansible.cli.{module}"), kind)
        for name, (module, kind) in COMMANDS.items()
    }
    for name in USED:
        importlib.import_module(f"ansible.{name}")
    _keep_code()
    gc.collect()
    gc.freeze()  # what is collected in a fork would be copied
    while True:
        head, fds, _flags, _address = socket.recv_fds(connection, 8, 3)
        if len(head) < 8:
            return
        *words, cwd = json.loads(connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
        pid = os.fork()
        if not pid:
            connection.close()
            _become(fds, cwd)
            sys.argv = words
            classes[words[0]].cli_executor(words)  # which ends the process as it always does
        for fd in fds:
            os.close(fd)
        connection.sendall(pid.to_bytes(8, "big"))
        _pid, status = os.waitpid(pid, 0)
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, "big", signed=True))


def _keep_code() -> None:
    """Ansible compiles a collection's plugins anew in every process that it forks for a task."""
    from ansible.utils.collection_loader import _collection_finder

    spec = importlib.util.spec_from_file_location("corral_kept_code", HERE / "kept_code/sitecustomize.py")
    assert spec and spec.loader
    kept_code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kept_code)
    vars(kept_code)["PLACE"] = sys.argv[2]

    def compiled(*, source: t.Any, filename: str, **options: t.Any) -> t.Any:
        text = source if isinstance(source, bytes) else source.encode()
        return kept_code.kept(filename, text) or kept_code.keep(filename, text, compile(source, filename, **options))

    _collection_finder.compile = compiled


def _become(fds: Sequence[int], cwd: str) -> None:
    """What a new process would have of its own: files, a directory, numbers that no other one has."""
    from ansible import constants
    from ansible.utils import vars as identity

    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(cwd)
    atexit._clear()
    atexit.register(getattr(multiprocessing.util, "_exit_function"))  # noqa: B009 - typeshed does not know it
    identity.random_int = secrets.token_hex(4)
    shared = Path(constants.DEFAULT_LOCAL_TMP)
    own = tempfile.mkdtemp(prefix=f"{shared.name}-", dir=shared.parent)
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    modules = shared / "ansiballz_cache"
    modules.mkdir(exist_ok=True)
    (Path(own) / modules.name).symlink_to(modules)
    constants.DEFAULT_LOCAL_TMP = own


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as own_end:
        serve(own_end)
