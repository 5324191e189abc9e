# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replace numbers that Ansible's own check cannot handle (`inf`, `1e999999999`) with words that it refuses."""

from __future__ import annotations

import decimal
import typing as t

_MOST_DIGITS = 30  # no option takes as many


def bounded(spec: t.Mapping[str, t.Any], given: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The parameters, with unbounded numbers replaced by words."""
    return {key: _value(spec[key], value) if key in spec else value for key, value in given.items()}


def _value(option: t.Mapping[str, t.Any], value: t.Any) -> t.Any:
    if isinstance(value, list):
        one = {**option, "type": option.get("elements")}
        return [_value(one, item) for item in value]
    if isinstance(value, dict) and option.get("options"):
        return bounded(option["options"], value)
    return _number(value) if option.get("type") == "int" and isinstance(value, (str, float)) else value


def _number(value: str | float) -> str | float:
    try:
        number = decimal.Decimal(value)
    except decimal.DecimalException:
        return value
    if number.is_finite() and number.adjusted() < _MOST_DIGITS:
        return value
    return f"a number of {number.adjusted() + 1} digits" if number.is_finite() else "infinite"
