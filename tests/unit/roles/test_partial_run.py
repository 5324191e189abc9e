"""What the roles know of hypervisors that a run leaves out."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

ROLES = Path(__file__).parents[3] / "roles"
INVENTORY = """
{group}:
  vars: {{ansible_connection: local}}
  hosts:
    hyper1: {{ansible_host: 192.0.2.1}}
    hyper2: {{ansible_host: 192.0.2.2}}
    hyper3: {{}}
"""
KNOWN = "127.0.0.1 localhost\n# BEGIN corral.virt.pki\n192.0.2.9\thyper1\n192.0.2.2\thyper2\n# END corral.virt.pki\n192.0.2.7 else\n"


def told(tmp_path: Path, group: str, *arguments: str) -> dict[str, t.Any]:
    """Variables of the roles as hyper1 has them."""
    names = ("pki_hosts", "firewall_names", "firewall_limited", "firewall_peers")
    debug = {"ansible.builtin.debug": {"msg": "{{ {" + ", ".join(f"'{name}': __{name}" for name in names) + "} }}"}}
    files = [str(ROLES / role / part / "main.yml") for role in ("pki", "firewall") for part in ("defaults", "vars")]
    known = {"__pki_known": {"content": base64.b64encode(KNOWN.encode()).decode()}}
    play = {"hosts": "all", "gather_facts": False, "vars_files": files, "vars": known, "tasks": [debug]}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    (tmp_path / "hosts.yml").write_text(INVENTORY.format(group=group))
    (tmp_path / "ansible.cfg").write_text("[defaults]\nstdout_callback = ansible.builtin.minimal\n")
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.yml", "play.yml", *arguments],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8", "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg")},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = done.stdout[done.stdout.index("hyper1 | SUCCESS => ") :].partition("=> ")[2]
    return t.cast("dict[str, t.Any]", json.JSONDecoder().raw_decode(shown)[0]["msg"])


@pytest.mark.parametrize(
    ("group", "arguments", "limited"),
    [
        ("hyper", (), False),
        ("hyper", ("--limit", "hyper1"), False),
        ("cloud", ("-e", "virt_group=cloud", "--limit", "hyper1"), False),
        ("cloud", ("--limit", "hyper1"), True),
    ],
)
def test_nobody_is_forgotten(tmp_path: Path, group: str, arguments: tuple[str, ...], limited: bool) -> None:
    found = told(tmp_path, group, *arguments)
    assert found["pki_hosts"].splitlines() == ["192.0.2.1\thyper1", "192.0.2.2\thyper2"]
    assert found["firewall_limited"] is limited
    assert found["firewall_names"] == ([] if limited else ["hyper3"])
    assert [peer["name"] for peer in found["firewall_peers"]] == (["hyper1"] if limited else ["hyper1", "hyper2", "hyper3"])
