"""Commands that guides, examples and the site show: their playbooks exist and take these arguments."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions
from ansible_collections.corral.virt.tests.tools import payload

PLACES = ("README.md", "docs/docsite/rst/*.rst", "docs/site/*.rst", "examples/**/README.md", "roles/*/README.md")
TEXTS = sorted(path for place in PLACES for path in payload.ROOT.glob(place))
LINE = re.compile(r"^\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(ansible-playbook corral\.virt\.(\w+).*)$", re.MULTILINE)
REPORT = {"format"}  # with the callback `report`, every playbook takes it
PLAYBOOKS = {path.stem for path in (payload.ROOT / "playbooks").glob("*.yml")}


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Playbook and words of each command that is shown whole."""
    for line, name in LINE.findall(text):
        lexer = shlex.shlex(line.split("  #")[0].split(" | ")[0], posix=True, punctuation_chars=False)
        lexer.whitespace_split = True
        yield name, list(lexer)


def variables(words: list[str]) -> Iterator[str]:
    """Names of the variables that a command sets."""
    for flag, value in itertools.pairwise(words):
        if flag in ("-e", "--extra-vars") and not value.startswith("@"):
            yield from (
                json.loads(value) if value.startswith("{") else (one.partition("=")[0] for one in shlex.split(value))
            )


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_playbooks_and_arguments_of_shown_commands_exist(path: Path) -> None:
    for name, words in commands(path.read_text()):
        assert name in PLAYBOOKS, words
        if name in actions.names():
            unknown = set(variables(words)) - set(actions.action(name).arguments) - actions.role_variables() - REPORT
            assert not unknown, words
