# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Timers of systemd that act when this process has died before it could."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._system import command


def arm(unit: str, delay_s: int, *program: str) -> None:
    """Let systemd run a program in some seconds, unless `disarm` comes first; raises Failed."""
    disarm(unit)
    when = (f"--on-active={delay_s}", "--timer-property=AccuracySec=1s")
    command.run("systemd-run", "--quiet", "--collect", f"--unit={unit}", *when, *program)


def disarm(unit: str) -> None:
    """Let systemd not run that program any more."""
    command.answer("systemctl", "stop", f"{unit}.timer")


@contextlib.contextmanager
def armed(unit: str, delay_s: int, *program: str) -> t.Iterator[None]:
    """Let systemd run a program in some seconds, unless what is done within ends well."""
    arm(unit, delay_s, *program)
    yield
    disarm(unit)
