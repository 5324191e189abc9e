# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of the console: its two processes, and those by which the role makes what they need."""

from __future__ import annotations

import argparse
import json
import logging
import sqlite3
import sys
import typing as t
from pathlib import Path

from . import strict
from .config import BadConfig, Config, PolicyConfig

__all__ = ["OneLine", "main"]

_WEB, _POLICY = Path("/etc/corral-console/config.json"), Path("/etc/corral-console-jobs/config.json")


def main(words: t.Sequence[str] | None = None) -> int:
    """The exit code. Errors are a line each on standard error."""
    parser = argparse.ArgumentParser(prog="corral-console", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, run, text, config in (
        ("serve", _serve, "run the web process", _WEB),
        ("policy", _policy, "run the policy process", _POLICY),
        ("users", _users, "make users as a JSON list on standard input describes them", _POLICY),
        (
            "restored",
            _restored,
            "end all sessions and tokens that a backup brought back, and believe the clock",
            _POLICY,
        ),
    ):
        command = commands.add_parser(name, help=text)
        command.set_defaults(run=run)
        command.add_argument("--config", type=Path, default=config)
        command.add_argument("--check", action="store_true", help="only say what would change")
    certificate = commands.add_parser("certificate", help="make a certificate, signed by an authority of its own")
    certificate.set_defaults(run=_certificate)
    certificate.add_argument("directory", type=Path)
    certificate.add_argument("names", nargs="+")
    certificate.add_argument("--check", action="store_true", help="only say what would change")
    given = parser.parse_args(words)
    try:
        return t.cast(int, given.run(given))
    except BadConfig as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2


class OneLine(logging.Formatter):
    """A message is a line: hosts and users have a part in some, and must not write lines such as those of the audit."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (its name in logging)
        """Control characters are visible."""
        record.message = strict.text(record.message).replace("\n", "\\x0a")
        return super().formatMessage(record)


def _log() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine("%(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)


def _serve(given: argparse.Namespace) -> int:
    from .serve import serve

    _log()
    return serve(Config.load(given.config))


def _policy(given: argparse.Namespace) -> int:
    from .policy_server import serve

    _log()
    return serve(PolicyConfig.load(given.config))


def _users(given: argparse.Namespace) -> int:
    from .accounts import Accounts, BadUser
    from .database import Database

    config = PolicyConfig.load(given.config)
    try:
        accounts = Accounts(Database(config.directory / "console.db"))
        steps = accounts.converge(json.load(sys.stdin), write=not given.check)
    except BadUser as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    except sqlite3.Error as error:
        return _unusable(config.directory, error)
    return _said(steps)


def _restored(given: argparse.Namespace) -> int:
    from .accounts import Accounts
    from .audit import Audit
    from .clock import Clock
    from .database import Database

    config = PolicyConfig.load(given.config)
    path = config.directory / "console.db"
    if not path.exists():
        raise BadConfig(f"there is no {path}; restore the backup first")
    try:
        database = Database(path)
        steps = Accounts(database).end_all_access(write=not given.check)
        if not given.check:
            Clock(database).believe()
            Audit(database, days=config.kept_days).write("restored", user="", address="", allowed=True, steps=steps)
    except sqlite3.Error as error:
        return _unusable(config.directory, error)
    return _said(steps)


def _unusable(directory: Path, error: sqlite3.Error) -> int:
    from . import room

    full = room.problem(directory, 1)
    print(f"cannot use {directory / 'console.db'}: {error}{full and '; '}{full}", file=sys.stderr)  # noqa: T201
    return 2


def _certificate(given: argparse.Namespace) -> int:
    from .authority import converge

    return _said(converge(given.directory, given.names, write=not given.check))


def _said(steps: list[str]) -> int:
    print(json.dumps({"changed": bool(steps), "steps": steps}))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
