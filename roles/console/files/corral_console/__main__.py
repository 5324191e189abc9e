# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of the console: its two processes, and those by which the role makes what they need."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import typing as t
from pathlib import Path

from .config import BadConfig, Config, PolicyConfig

__all__ = ["main"]

_WEB, _POLICY = Path("/etc/corral-console/config.json"), Path("/etc/corral-console-jobs/config.json")


def main(words: t.Sequence[str] | None = None) -> int:
    """The exit code. Errors are a line each on standard error."""
    parser = argparse.ArgumentParser(prog="corral-console", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, run, text, config in (
        ("serve", _serve, "run the web process", _WEB),
        ("policy", _policy, "run the policy process", _POLICY),
        ("users", _users, "make users as a JSON list on standard input describes them", _POLICY),
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


def _serve(given: argparse.Namespace) -> int:
    from .serve import serve

    logging.basicConfig(format="%(message)s", level=logging.INFO)
    return serve(Config.load(given.config))


def _policy(given: argparse.Namespace) -> int:
    from .policy_server import serve

    logging.basicConfig(format="%(message)s", level=logging.INFO)
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
    return _said(steps)


def _certificate(given: argparse.Namespace) -> int:
    from .authority import converge

    return _said(converge(given.directory, given.names, write=not given.check))


def _said(steps: list[str]) -> int:
    print(json.dumps({"changed": bool(steps), "steps": steps}))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
