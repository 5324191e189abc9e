"""What a role makes of its variables: they are read by a play, as Ansible reads them."""

from __future__ import annotations

import json
import subprocess
import sys
import typing as t
from pathlib import Path

__all__ = ["ROLES", "value"]

ROLES = Path(__file__).parents[3] / "roles"


def value(
    folder: Path,
    expression: str,
    files: t.Sequence[Path],
    known: t.Mapping[str, t.Any],
    *,
    host: str = "localhost",
    inventory: str = "all: {hosts: {localhost: {}}}",
    arguments: t.Sequence[str] = (),
) -> t.Any:
    """An expression's value on one host, with variables of these files and those that are `known`."""
    debug = {"ansible.builtin.debug": {"msg": f"{{{{ {{'value': {expression}}} }}}}"}}
    play = {"hosts": "all", "gather_facts": False, "vars_files": [str(file) for file in files], "vars": known, "tasks": [debug]}
    (folder / "play.yml").write_text(json.dumps([play]))
    (folder / "hosts.yml").write_text(inventory)
    (folder / "ansible.cfg").write_text("[defaults]\nstdout_callback = ansible.builtin.minimal\n")
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.yml", "play.yml", *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8", "ANSIBLE_CONFIG": str(folder / "ansible.cfg")},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout.partition(f"{host} | SUCCESS => ")[2]
    return json.JSONDecoder().raw_decode(printed)[0]["msg"]["value"]
