"""What role image_builder refuses before it builds."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, value


@pytest.mark.parametrize(("everybody_writes", "said"), [(True, ["every user can write to /srv/images"]), (False, [])])
def test_root_runs_nothing_where_everybody_may_write(tmp_path: Path, everybody_writes: bool, said: list[str]) -> None:
    """The recipe is put there, and root runs it."""
    known: dict[str, t.Any] = {
        **yaml.safe_load((ROLES / "image_builder/defaults/main.yml").read_text()),
        "ansible_facts": {"user_uid": 0, "architecture": "x86_64", "os_family": "Debian"},
        "image_builder_image": "a.qcow2",
        "image_builder_dest": "/srv/images",
        "image_builder_release": "bookworm",
        "__image_builder_look": {"stdout_lines": []},
        "__image_builder_there": {"results": [{"stat": {"exists": True, "isdir": True, "woth": everybody_writes}}]},
    }
    problems = value(tmp_path, "__image_builder_problems", [ROLES / "image_builder/vars/main.yml"], known)
    assert [problem.partition(" and so")[0] for problem in problems] == said
