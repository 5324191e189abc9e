"""A host that was filled since the placement refuses what does not fit, and says each lack."""

from __future__ import annotations

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_host_questions import Capacity, check_capacity


@pytest.mark.parametrize(
    ("host", "lacks"),
    [
        ({}, ""),
        ({"memory_used_mib": 2048, "vcpus_used": 2}, ""),
        ({"memory_mib": 2048, "vcpus": 2}, ""),
        ({"memory_used_mib": 2049}, "MiB of memory: 2049 of 4096 are allocated, and it needs 2048"),
        ({"vcpus_used": 3}, "vcpus: 3 of 4 are allocated, and it needs 2"),
        (
            {"memory_mib": 2047, "vcpus": 1},
            "MiB of memory: 0 of 2047 are allocated, and it needs 2048; vcpus: 0 of 1 are allocated",
        ),
    ],
)
def test_a_guest_starts_only_where_it_fits(host: dict[str, int], lacks: str) -> None:
    capacity = Capacity(**{"memory_mib": 4096, "vcpus": 4, **host})
    try:
        check_capacity("web1", capacity, memory_mib=2048, vcpus=2)
    except Refused as error:
        assert lacks and f"cannot start web1: this host no longer has room for it ({lacks}" in str(error)
    else:
        assert not lacks
