"""An authority that is given to role pki as texts is given whole."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, value

NAMES = ("pki_ca_certificate", "pki_ca_key", "pki_qemu_ca_certificate", "pki_qemu_ca_key")


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ((), ()),
        (NAMES, ()),
        (NAMES[:1], NAMES[1:]),
        (NAMES[:2], NAMES[2:]),
        (NAMES[1:], NAMES[:1]),
    ],
)
@pytest.mark.parametrize("others", [{}, dict.fromkeys(NAMES, "")], ids=["unsaid", "empty"])
def test_a_part_of_the_authorities_is_refused(
    tmp_path: Path, given: t.Sequence[str], missing: t.Sequence[str], others: dict[str, str]
) -> None:
    task = next(
        task for task in yaml.safe_load((ROLES / "pki/tasks/main.yml").read_text()) if "Refuse half" in task["name"]
    )
    refusal = task["ansible.builtin.assert"]
    own = yaml.safe_load((ROLES / "pki/vars/main.yml").read_text())
    result = {
        **others,
        **dict.fromkeys(given, "PEM"),
        "__pki_given": own["__pki_given"],
        "message": refusal["fail_msg"],
    }
    assert value(tmp_path, refusal["that"], [], result) is (not missing)
    assert not missing or value(tmp_path, "message", [], result).startswith(f"{', '.join(missing)} missing")
