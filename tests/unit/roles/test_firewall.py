"""What the role firewall refuses itself."""

from __future__ import annotations

from pathlib import Path

import yaml

from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, value


def test_an_empty_list_does_not_cut_the_hypervisors_from_each_other(tmp_path: Path) -> None:
    """The role refuses it: it may have meant everybody, which it did once, or nobody."""
    (check,) = (
        one["ansible.builtin.assert"]
        for one in yaml.safe_load((ROLES / "firewall/tasks/main.yml").read_text())
        if "Refuse" in one["name"]
    )
    for output, passes in (({"firewall_sources": []}, False), ({"firewall_sources": ["any"]}, True), ({}, True)):
        assert value(tmp_path, f"({check['that']})", [], output) is passes
    assert "[any]" in check["fail_msg"]
