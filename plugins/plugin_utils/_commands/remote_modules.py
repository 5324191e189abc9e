# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a read-only module on other hosts of the play, as Ansible itself would for a task there; many at once.

An action runs in a process for one host. It connects to the others with their own variables, each in a process of its
own.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
import typing as t

from ansible import constants
from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import become_loader, connection_loader

from ansible_collections.corral.virt.plugins.plugin_utils._report.safe_results import UntrustedAction

_GIVEN_UP_S = 60
_READ_BYTES = 65536

Answer = dict[str, t.Any]


class Elsewhere(UntrustedAction):
    """An action's connection to another host: same task, that host's variables and connection."""

    @classmethod
    def of(cls, action: ActionBase, variables: dict[str, t.Any]) -> Elsewhere:
        """A connection to the host of these variables, also if the task itself is delegated."""
        task = action._task
        if task.delegate_to is not None:
            task = task.copy()
            task.delegate_to = None
        templar = action._templar.copy_with_new_env(available_variables=variables)
        base = action._play_context.copy()
        base.remote_addr = base.port = None
        context = base.set_task_and_variable_override(task=task, variables=variables, templar=templar)
        context.post_validate(templar=templar)
        context.remote_addr = context.remote_addr or variables["inventory_hostname"]
        connection = _connection(task, context, variables, templar)
        return cls(task, connection, context, action._loader, templar, action._shared_loader_obj)

    def run(self, tmp: str | None = None, task_vars: Answer | None = None) -> Answer:
        """Always raises NotImplementedError: this is not a task of its own."""
        raise NotImplementedError

    def log_in(self) -> None:
        """Raises AnsibleConnectionFailure, with ssh's message, if no login is possible."""
        try:
            self._low_level_execute_command("true", sudoable=False)
        finally:
            self.cleanup()

    def read(self, command: str) -> Answer:
        """The output (`stdout`) of a read-only shell command; `failed` and `msg` if it fails."""
        try:
            done: Answer = self._low_level_execute_command(command)
        finally:
            self.cleanup()
        if done["rc"] != 0:
            reason = " ".join(f"{done['stderr']} {done['stdout'][-200:]}".split())
            return {"failed": True, "msg": reason or f"exit code {done['rc']}"}
        return {"stdout": done["stdout"]}

    def ask(self, module: str, arguments: Answer, variables: dict[str, t.Any]) -> Answer:
        """The module's result."""
        try:
            return t.cast(
                Answer, self._execute_module(module, module_args=arguments, task_vars=variables, wrap_async=False)
            )
        finally:
            self.cleanup()


def _connection(task: t.Any, context: t.Any, variables: dict[str, t.Any], templar: t.Any) -> t.Any:
    kind = (
        templar.template(variables["ansible_connection"])
        if variables.get("ansible_connection") is not None
        else task.connection
    )
    context.connection = kind
    connection, _found = connection_loader.get_with_context(
        kind, context, new_stdin=None, task_uuid=task._uuid, ansible_playbook_pid=str(os.getppid())
    )
    if not connection:
        raise AnsibleError(f"connection plugin {kind} is not installed")
    wanted = variables.get("ansible_become")
    becomes = task.become if wanted is None else boolean(templar.template(wanted))
    method = templar.template(variables.get("ansible_become_method") or task.become_method)
    connection.set_become_plugin(become_loader.get(method) if becomes else None)
    context.set_attributes_from_plugin(connection)
    keys = {
        **task.dump_attrs(),
        "timeout": context.timeout,
        **({"password": context.password} if context.password else {}),
    }
    keys.pop("retries", None)
    connection.set_options(task_keys=keys, var_options=connection._resolve_option_variables(variables, templar))
    _set_options("shell", connection._shell, keys, variables, templar)
    if connection.become is not None:
        context.set_become_plugin(connection.become.name)
        secret = {"become_pass": context.become_pass} if context.become_pass else {}
        _set_options("become", connection.become, {**keys, **secret}, variables, templar)
    return connection


def _set_options(kind: str, plugin: t.Any, keys: dict[str, t.Any], variables: dict[str, t.Any], templar: t.Any) -> None:
    names = [name for name in constants.config.get_plugin_vars(kind, plugin._load_name) if name in variables]
    plugin.set_options(task_keys=keys, var_options={name: templar.template(variables[name]) for name in names})


def in_processes(questions: t.Mapping[str, t.Callable[[], Answer]], *, at_once: int) -> dict[str, Answer]:
    """The answer to each question, each asked in a process of its own.

    `{"failed": True, "msg": why}` if there is no answer.
    """
    waiting, answers = list(questions), dict[str, Answer]()
    # by the end of its pipe: name, process, what was read, deadline
    running: dict[int, tuple[str, int, bytearray, float]] = {}
    with selectors.DefaultSelector() as selector:
        while waiting or running:
            while waiting and len(running) < max(1, at_once):
                name = waiting.pop(0)
                end, process = _begun(questions[name])
                running[end] = (name, process, bytearray(), time.monotonic() + _GIVEN_UP_S)
                selector.register(end, selectors.EVENT_READ)
            for key, _events in selector.select(timeout=1):
                piece = os.read(key.fd, _READ_BYTES)
                running[key.fd][2].extend(piece)
                if not piece:
                    name, process, text, _deadline = running.pop(key.fd)
                    answers[name] = _ended(selector, key.fd, process, bytes(text))
            for end, (name, process, _text, deadline) in list(running.items()):
                if deadline < time.monotonic():
                    os.kill(process, signal.SIGKILL)
                    del running[end]
                    _ended(selector, end, process, b"")
                    answers[name] = {"failed": True, "msg": f"no answer within {_GIVEN_UP_S} s"}
    return answers


def _begun(question: t.Callable[[], Answer]) -> tuple[int, int]:
    """Fork a process that asks; returns the pipe's reading end and the process's id."""
    read, write = os.pipe()
    process = os.fork()
    if process:
        os.close(write)
        return read, process
    try:
        with os.fdopen(write, "w") as pipe:
            pipe.write(_text(question))
    finally:
        os._exit(0)  # nothing of the parent's is done a second time


def _text(question: t.Callable[[], Answer]) -> str:
    try:
        return json.dumps(question(), default=str)
    except Exception as error:  # noqa: BLE001  whatever it is, it is this host's alone
        return json.dumps({"failed": True, "msg": " ".join(str(error).split())})


def _ended(selector: selectors.BaseSelector, end: int, process: int, text: bytes) -> Answer:
    selector.unregister(end)
    os.close(end)
    os.waitpid(process, 0)
    try:
        return t.cast(Answer, json.loads(text))
    except ValueError:
        return {"failed": True, "msg": "the process that queried it died"}
