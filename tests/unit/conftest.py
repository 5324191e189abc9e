"""What ansible-test's own settings of pytest do not know of ours."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Each mark; pyproject.toml says what they mean."""
    for mark in ("lab", "deep", "slow"):
        config.addinivalue_line("markers", mark)
