# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters as Ansible looks for them."""

from __future__ import annotations

import typing as t


def provided(**filters: t.Callable[..., t.Any]) -> type:
    """The class `FilterModule` of a plugin with these filters, by name."""
    return type("FilterModule", (), {"filters": lambda _self: filters})
