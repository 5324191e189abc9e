# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text from outside: what may be trusted, as it contains no template, and what may be printed."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.output import printable
from ansible_collections.corral.virt.plugins.plugin_utils._controller.ansible_core import trust_as_template

__all__ = ["printable", "templated", "trusted"]


def templated(text: str) -> bool:
    """True if the text contains Jinja, or a header line, which could rename its delimiters."""
    return text.startswith("#jinja2:") or ("{" in text and any(mark in text for mark in ("{{", "{%", "{#")))


def trusted(value: t.Any) -> t.Any:
    """The value with every text that is no template marked as trusted.

    ansible-core wraps untrusted text into `__ansible_unsafe` when it prints an inventory, and AWX stores that wrapping.
    Trusting a text without a template changes nothing else; all other text stays inert.
    """
    if isinstance(value, str):
        return value if templated(value) else trust_as_template(value)
    if isinstance(value, (list, tuple)):
        return [trusted(item) for item in value]
    if isinstance(value, dict):
        return {key: trusted(item) for key, item in value.items()}
    return value
