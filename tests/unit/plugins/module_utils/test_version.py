"""Versions as libvirt counts them."""

from __future__ import annotations

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core import version


@pytest.mark.parametrize(
    ("release", "counted", "text"),
    [((9, 0), 9_000_000, "9.0.0"), ((10, 3), 10_003_000, "10.3.0"), ((0, 12), 12_000, "0.12.0")],
)
def test_a_release_is_counted_and_written(release: tuple[int, int], counted: int, text: str) -> None:
    assert version.number(*release) == counted and version.text(counted) == text


def test_its_third_number_is_written_too() -> None:
    assert version.text(8_002_014) == "8.2.14"
