"""`--regenerate` writes the expected files of golden cases anew."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Only where golden tests run."""
    parser.addoption("--regenerate", action="store_true", help="write the expected files of golden cases anew")
