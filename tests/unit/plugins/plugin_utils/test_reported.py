"""What placement and balance take alike."""

from __future__ import annotations

import pytest

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._plan.placement import Policy
from ansible_collections.corral.virt.plugins.plugin_utils import _reported


def test_every_number_that_must_be_above_zero_is_told() -> None:
    options = {"max_moves": 0, "min_gain": 0.5, "cpu_overcommit": 2.0, "memory_overcommit": -1.0}
    with pytest.raises(BadInput, match=r"^max_moves, memory_overcommit: must be above zero$"):
        _reported.policy(options, "max_moves", "min_gain")
    assert _reported.policy({**options, "memory_overcommit": 0.9}) == Policy(2.0, 0.9)
