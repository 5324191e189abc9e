# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Change the bridges of this host, and begin or confirm a switch to a new one."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Unsupported
from ansible_collections.corral.virt.plugins.module_utils._host import files_bridge_switch
from ansible_collections.corral.virt.plugins.module_utils._host.model_bridge import (
    RESULT,
    STATE,
    UNIT,
    Document,
    NetworkChange,
    rolled_back,
)
from ansible_collections.corral.virt.plugins.module_utils._system import configuration, private
from ansible_collections.corral.virt.plugins.module_utils._system.command import SYSTEM_PATH, run
from ansible_collections.corral.virt.plugins.module_utils._system.durable import remove

_PROGRAMS = {"bridge-utils": "brctl", "vlan": "vconfig"}  # of a package that may be required
_ANSWER_S = 120
_POLL_S = 0.1


def require(packages: t.Sequence[str]) -> None:
    """Raises Unsupported if one of these packages is not installed."""
    missing = [one for one in packages if not shutil.which(_PROGRAMS[one], path=SYSTEM_PATH)]
    if missing:
        names = " ".join(missing)
        raise Unsupported(f"cannot switch to a bridge without {names}; install {names} first")


def switch_off(bridge: str, field: str) -> None:
    """Set an option of a running bridge to 0."""
    run("ip", "link", "set", bridge, "type", "bridge", field, "0")


def set_sysctl(keys: t.Sequence[str], value: str) -> None:
    """Set keys of the running kernel."""
    for key in keys:
        run("sysctl", "-w", f"{key}={value}")


def start(change: NetworkChange, timeout_s: int) -> None:
    """Start the trial of the bridge in a service that survives the loss of this session."""
    private.make(STATE)
    for leftover in ("confirmed", "result.json"):
        remove(os.path.join(STATE, leftover))
    words = {
        **{name: getattr(change, name) for name in ("bridge", "port", "holder", "down", "up", "reload")},
        **{name: getattr(change, name) for name in ("undo", "up_again", "undo_in_trial", "patience")},
        "trial": {path: _rendered(text) for path, text in change.trial.items()},
        "lasting": {path: _rendered(text) for path, text in change.lasting.items()},
        "timeout_s": timeout_s,
    }
    configuration.write(f"{STATE}/change.json", json.dumps(words), mode=0o600)
    configuration.write(f"{STATE}/bridge.py", _program(), mode=0o600)
    service = ("systemd-run", "--collect", "--unit", UNIT, "--property=Type=exec")
    run(*service, sys.executable, "-I", f"{STATE}/bridge.py")


def confirm(bridge: str) -> None:
    """Tell the service that the controller is back; raises Failed if the bridge was rolled back or no result comes."""
    if not os.path.exists(RESULT):
        configuration.write(f"{STATE}/confirmed", "", mode=0o600)
    deadline = time.monotonic() + _ANSWER_S
    while not os.path.exists(RESULT):
        if time.monotonic() > deadline:
            raise Failed(
                f"cannot confirm bridge {bridge}: the service {UNIT} did not report a result within {_ANSWER_S} s; see "
                f"journalctl -u {UNIT}"
            )
        time.sleep(_POLL_S)
    result = json.loads(configuration.read(RESULT))
    if not result["ok"]:
        raise Failed(f"cannot confirm bridge {bridge}: {rolled_back(result)}; see {RESULT}")


def _rendered(text: str | Document) -> str:
    if isinstance(text, str):
        return text
    import yaml  # whoever read the document has it

    body = yaml.safe_dump(dict(text.content), default_flow_style=False, sort_keys=False)
    return f"{text.head}{body}"


def _program() -> str:
    """The source text of the service, also from the archive in which Ansible sends a module."""
    loader: t.Any = files_bridge_switch.__loader__
    source = loader.get_source(files_bridge_switch.__name__)
    if not source:
        raise Failed("cannot switch to a bridge: the source of the service cannot be read; install the collection anew")
    return str(source)
