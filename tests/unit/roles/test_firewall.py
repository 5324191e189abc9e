"""What the role firewall refuses itself."""

from __future__ import annotations

from pathlib import Path

import yaml

from ansible_collections.corral.virt.plugins.module_utils._host.run_firewall import DEFAULT_PORTS
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


def test_the_role_opens_what_the_module_opens_by_itself() -> None:
    """YAML cannot import the constants of libvirt's ports."""
    assert yaml.safe_load((ROLES / "firewall/defaults/main.yml").read_text())["firewall_ports"] == DEFAULT_PORTS
