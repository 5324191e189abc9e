"""An authority that is given to role pki as texts is given whole."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, value


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, ""),
        ({"pki_ca_certificate": "", "pki_ca_key": ""}, ""),
        ({"pki_ca_certificate": "PEM", "pki_ca_key": "PEM"}, ""),
        ({"pki_ca_certificate": "PEM"}, "pki_ca_key"),
        ({"pki_ca_certificate": "PEM", "pki_ca_key": ""}, "pki_ca_key"),
        ({"pki_ca_key": "PEM"}, "pki_ca_certificate"),
    ],
)
def test_half_an_authority_is_refused(tmp_path: Path, given: dict[str, t.Any], missing: str) -> None:
    task = next(task for task in yaml.safe_load((ROLES / "pki/tasks/main.yml").read_text()) if "Refuse half" in task["name"])
    refusal = task["ansible.builtin.assert"]
    told = {**given, "message": refusal["fail_msg"]}
    assert value(tmp_path, refusal["that"], [], told) is (not missing)
    assert not missing or value(tmp_path, "message", [], told).startswith(f"{missing} is missing")
