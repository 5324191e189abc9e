# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists of words in a sentence."""

from __future__ import annotations

import typing as t


def enumerated(words: t.Sequence[str]) -> str:
    """Words joined as `h1`, `h1 and h2`, `h1, h2 and h3`."""
    return _joined(words, "and")


def either(words: t.Sequence[str]) -> str:
    """Words joined as `h1`, `h1 or h2`, `h1, h2 or h3`."""
    return _joined(words, "or")


def _joined(words: t.Sequence[str], last: str) -> str:
    return f" {last} ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])} {last} {words[-1]}"
