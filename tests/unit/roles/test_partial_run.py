"""What the roles know of hypervisors that a run leaves out."""

from __future__ import annotations

import base64
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, value

INVENTORY = """
{group}:
  vars: {{ansible_connection: local}}
  hosts:
    hyper1: {{ansible_host: 192.0.2.1}}
    hyper2: {{ansible_host: 192.0.2.2}}
    hyper3: {{}}
"""
KNOWN = (
    "127.0.0.1 localhost\n# BEGIN corral.virt.pki\n192.0.2.9\thyper1\n192.0.2.2\thyper2\n# END "
    "corral.virt.pki\n192.0.2.7 else\n"
)


def told(tmp_path: Path, group: str, *arguments: str) -> dict[str, t.Any]:
    """Variables of the roles as hyper1 has them."""
    names = ("pki_hosts", "firewall_names", "firewall_limited", "firewall_peers")
    expression = "{" + ", ".join(f"'{name}': __{name}" for name in names) + "}"
    files = [ROLES / role / part / "main.yml" for role in ("pki", "firewall") for part in ("defaults", "vars")]
    known = {"__pki_known": {"content": base64.b64encode(KNOWN.encode()).decode()}}
    inventory = INVENTORY.format(group=group)
    found = value(tmp_path, expression, files, known, host="hyper1", inventory=inventory, arguments=arguments)
    return t.cast("dict[str, t.Any]", found)


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
    assert [peer["name"] for peer in found["firewall_peers"]] == (
        ["hyper1"] if limited else ["hyper1", "hyper2", "hyper3"]
    )
