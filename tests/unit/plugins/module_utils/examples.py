"""How many examples are made up: all by default; with CORRAL_EXAMPLES=few half of them, the same ones each time."""

from __future__ import annotations

import os
import typing as t

from hypothesis import HealthCheck, settings

__all__ = ["examples"]

FEW = os.environ.get("CORRAL_EXAMPLES") == "few"


def examples(count: int, **more: t.Any) -> settings:
    """Settings of a test that has so many examples."""
    few: dict[str, t.Any] = {"derandomize": True} if FEW else {}
    if FEW:
        more.setdefault("suppress_health_check", [HealthCheck.too_slow])  # of a busy machine
    return settings(max_examples=count // 2 if FEW else count, deadline=None, **few, **more)
