# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables as YAML for Ansible: foreign text is never a template, and a secret is a variable of the vault. Pure."""

from __future__ import annotations

import hashlib
import re
import typing as t

import yaml

from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import templated


class Placeholder(str):
    """A template that refers to one variable."""

    __slots__ = ()

    @classmethod
    def of(cls, variable: str) -> Placeholder:
        """A template with the value of that variable."""
        return cls(f"{{{{ {variable} }}}}")

    @property
    def variable(self) -> str:
        """The name of the variable."""
        return self.strip("{} ")


class _Dumper(yaml.SafeDumper):
    """Readable YAML: multi-line texts as blocks, lists indented, foreign text never a template."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 (PyYAML calls it)
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 (PyYAML calls it)
        return True


def _text(dumper: _Dumper, value: str) -> yaml.Node:
    tag, style = ("!unsafe", '"') if templated(value) else ("tag:yaml.org,2002:str", None)
    return dumper.represent_scalar(tag, value, style="|" if "\n" in value else style)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(
    Placeholder, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:str", str(value), style='"')
)


def written(value: object) -> str:
    """The text of a file of variables."""
    return "---\n" + yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def word(name: str) -> str:
    """A name as a part of a variable's name, unique for each name."""
    plain = re.sub(r"[^a-z0-9_]", "_", name.lower())
    return plain if plain == name else f"{plain}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def untagged(value: t.Any) -> t.Any:
    """The value without Ansible's tags."""
    if isinstance(value, dict):
        return {str(key): untagged(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [untagged(one) for one in value]
    return str(value) if isinstance(value, str) and not isinstance(value, Placeholder) else value


def placeholders(value: object) -> t.Iterator[str]:
    """Variables of placeholders in the value, which must be set."""
    if isinstance(value, Placeholder):
        yield value.variable
    elif isinstance(value, (dict, list)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from placeholders(one)
