"""What a module returns of a failure."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import failures
from ansible_collections.corral.virt.plugins.module_utils._core.errors import (
    BadInput,
    Failed,
    Refused,
    Unverified,
    VirtError,
)


class Module:
    """Keeps what it failed with."""

    def __init__(self) -> None:
        self.failed: dict[str, t.Any] = {}

    def fail_json(self, **result: t.Any) -> None:
        """As Ansible's, which ends the process."""
        self.failed = result


UNVERIFIED = {"unverified_image": True}


@pytest.mark.parametrize(
    ("error", "cause", "expected"),
    [
        (Refused("no"), None, {}),
        (BadInput(["a", "b"]), None, {"msg": "a; b", "problems": ["a", "b"]}),
        (Unverified("no"), None, UNVERIFIED),
        (Failed("no"), None, {"done": [], "changed": False}),
        (Failed("no", ["made"]), Refused("full"), {"done": ["made"], "changed": True}),
        (Failed("no", ["made"]), Unverified("other"), {"done": ["made"], "changed": True, **UNVERIFIED}),
        (Failed("no"), OSError(), {"done": [], "changed": False}),
    ],
)
def test_a_failure(error: VirtError, cause: Exception | None, expected: dict[str, t.Any]) -> None:
    """Playbooks decide by its fields, also where it ended a run half-way."""
    module = Module()

    def run() -> None:
        raise error from cause

    with failures(module):
        run()
    assert module.failed == {"msg": "no", **expected}
