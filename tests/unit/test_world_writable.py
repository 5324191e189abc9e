"""Nothing that runs as root keeps its work where every local user could put a pipe, a link or a program of theirs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from ansible_collections.corral.virt.tests.tools import payload

EVERYBODYS = re.compile(r"(?<![\w./])(/tmp|/var/tmp|/dev/shm|/run/lock|/var/lock)\b")
NAMELESS = {"TemporaryFile"}  # has no name that another process could open


def files(*suffixes: str) -> list[Path]:
    """What is shipped."""
    places = [payload.ROOT / folder for folder in ("plugins", "roles", "playbooks")]
    return sorted(path for place in places for path in place.rglob("*") if path.suffix in suffixes)


def test_no_work_file_lies_where_everybody_may_write() -> None:
    found = [
        f"{path.relative_to(payload.ROOT)}:{number}: {line.strip()}"
        for path in files(".py", ".yml", ".sh", ".j2")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if EVERYBODYS.search(line)
    ]
    assert found == [], "use _system/private.py, or Ansible's own temporary directory"


def test_no_temporary_file_lies_in_the_default_place() -> None:
    calls = [
        (path, node)
        for path in files(".py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and "tempfile." in ast.unparse(node.func)
    ]
    assert calls, "else this looks at nothing"
    without = [
        f"{path.relative_to(payload.ROOT)}: {ast.unparse(call)}"
        for path, call in calls
        if ast.unparse(call.func).rpartition(".")[2] not in NAMELESS
        and "dir" not in [keyword.arg for keyword in call.keywords]
    ]
    assert without == [], "without dir= it is made in /tmp; give private.folder()"
