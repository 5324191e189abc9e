# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of variables on the controller: all are written, or none; existing content is replaced only on request."""

from __future__ import annotations

import hashlib
import os
import re
import typing as t

import yaml

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import WriteFile
from ansible_collections.corral.virt.plugins.module_utils._system import configuration
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import OWNER
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


def write(wanted: t.Mapping[str, str], *, replace: bool, gate: Gate) -> list[dict[str, str]]:
    """Write texts by absolute path; returns the diff of what is, or in check mode would be, changed.

    Raises Refused before anything is written, and restores the files if one of them cannot be written.
    """
    _check_places(wanted)
    found = {path: configuration.read(path, denied=OWNER) for path in wanted}
    _check(wanted, found, replace=replace)
    changed = [WriteFile(path, text) for path, text in wanted.items() if text != found[path]]
    gate.perform(lambda: _write_all(changed, found), otherwise=lambda: None)
    return [
        {"before": found[step.path], "after": step.content, "before_header": step.path, "after_header": step.path}
        for step in changed
    ]


def _check_places(wanted: t.Iterable[str]) -> None:
    """Raises Refused for an existing path that is no file, which writing would replace, such as `/dev/null`."""
    for path in wanted:
        if os.path.lexists(path) and not os.path.isfile(path):
            what = "a directory; name a file in it" if os.path.isdir(path) else "not a file"
            raise Refused(f"cannot write {path}: it is {what}")


def _check(wanted: t.Mapping[str, str], found: t.Mapping[str, str], *, replace: bool) -> None:
    """Raises Refused if a file exists with other content, unless it may be replaced."""
    others = [path for path, text in found.items() if text not in ("", wanted[path])]
    if others and not replace:
        raise Refused(
            f"cannot write {', '.join(others)}: it exists with other content; choose another place, or replace it: "
            "-e replace=true"
        )


def _write_all(steps: t.Iterable[WriteFile], found: t.Mapping[str, str]) -> None:
    done: list[str] = []
    try:
        for step in steps:
            os.makedirs(os.path.dirname(step.path), exist_ok=True)
            configuration.write(step.path, step.content, denied=OWNER)
            done.append(step.path)
    except (VirtError, OSError):
        for path in done:
            _restore(path, found[path])
        raise


def _restore(path: str, text: str) -> None:
    if text:
        configuration.write(path, text, denied=OWNER)
    else:
        os.unlink(path)
