"""A clone as it comes from git: what the README says of a checkout needs no `make`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.tools.payload import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout of git")]


def test_commands_work_in_a_fresh_clone(tmp_path: Path) -> None:
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", ROOT, tmp_path / "clone"], check=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    for command in (
        ["ansible-playbook", "site.yml", "--syntax-check"],
        ["ansible-playbook", "playbooks/query.yml", "--list-hosts"],
        ["ansible-playbook", "corral.virt.query", "--list-hosts"],
        ["ansible-doc", "virt_domain", "-s"],
    ):
        done = subprocess.run(
            command, cwd=tmp_path / "clone", env=environment, check=False, capture_output=True, text=True, timeout=1200
        )
        output = done.stdout + done.stderr
        assert done.returncode == 0 and "Failed to parse" not in output, output
        assert "list" not in command[-1] or "hyper3" in done.stdout
