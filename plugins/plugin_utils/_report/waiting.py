# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines on the terminal while a host waits for guests: reason, elapsed time and limit."""

from __future__ import annotations

import contextlib
import threading
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.output import some_of
from ansible_collections.corral.virt.plugins.plugin_utils._report import terminal
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable

_EVERY_S = 5
_SHOWN = 5  # names in a line
_TIMEOUT_S = 300  # of the module, when nothing is said
_WAITING = {"shutdown": "shut down", "rebooted": "reboot", "absent": "shut down"}  # states that guests are waited for
_ADDRESSED = ("running", "rebooted")  # those in which wait_for_ip waits

Guest = t.Mapping[str, t.Any]


def waits(host: str, guests: t.Sequence[t.Any]) -> str | None:
    """What the host may wait for: `hyper1: waiting for web1 and web2 to shut down, at most 300 s`.

    None if it waits for nothing.
    """
    waited = [one for one in guests if isinstance(one, dict) and _verbs(one)]
    if not waited:
        return None
    names = some_of([str(one.get("name")) for one in waited], _SHOWN)
    verbs = " or ".join(dict.fromkeys(verb for one in waited for verb in _verbs(one)))
    longest_s = max(_seconds(one) for one in waited)
    of = " of CPU" if "have an address" in verbs else ""  # one that boots slowly has more time
    return str(printable(f"{host}: waiting for {names} to {verbs}, at most {longest_s} s{of}"))


def _verbs(guest: Guest) -> list[str]:
    """What the guest is expected to do while the host waits."""
    state = guest.get("state")
    verbs = [_WAITING[state]] if state in _WAITING and guest.get("wait") is not False else []
    return [
        *verbs,
        *(["have an address"] if guest.get("wait_for_ip") not in (None, "none") and state in _ADDRESSED else []),
    ]


@contextlib.contextmanager
def lines(text: str | None) -> t.Iterator[None]:
    """Inside, print the text every few seconds, with the elapsed seconds."""
    if text is None:
        yield
        return
    ended, begun = threading.Event(), time.monotonic()

    def show() -> None:
        while not ended.wait(_EVERY_S):
            terminal.say(f"{text}; {time.monotonic() - begun:.0f} s so far")

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _seconds(guest: Guest) -> int:
    """The guest's wait timeout in seconds; the default if it is not a number, which the module refuses."""
    try:
        return int(guest.get("wait_timeout") or _TIMEOUT_S)
    except (TypeError, ValueError):
        return _TIMEOUT_S
