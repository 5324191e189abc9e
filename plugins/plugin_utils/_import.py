# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that exist as files of variables: what a host answered in, YAML out. Pure.

A host may be anybody's: its texts are never templates, and its arguments are those of `virt_domain` or refused.
"""

from __future__ import annotations

import hashlib
import re
import typing as t

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._front.domain_options import GUEST_OPTIONS
from ansible_collections.corral.virt.plugins.plugin_utils._plain import templated

__all__ = ["Guest", "differences", "files", "guest", "notes"]

Guest = dict[str, t.Any]

_SECRETS = {"graphics": "password"}  # the secret of each argument that may be withheld


class _Placeholder(str):
    """A template of ours."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Readable YAML: texts of several lines as they are, lists indented, no text of a host a template."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 (PyYAML calls it)
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 (PyYAML calls it)
        return True


def _text(dumper: _Dumper, value: str) -> yaml.Node:
    tag = "!unsafe" if templated(value) else "tag:yaml.org,2002:str"
    style = "|" if "\n" in value else '"' if tag == "!unsafe" else None
    return dumper.represent_scalar(tag, value, style=style)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(
    _Placeholder, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:str", str(value), style='"')
)


def guest(name: str, told: t.Mapping[str, t.Any]) -> Guest:
    """The arguments of one guest, with a placeholder for each secret; raises BadInput for an answer that is none."""
    arguments, withheld = told.get("arguments"), told.get("withheld_arguments") or {}
    if not isinstance(arguments, dict) or arguments.get("name") != name or not isinstance(withheld, dict):
        raise BadInput(f"cannot import {name}: its host does not answer with arguments of it")
    wrong = ArgumentSpecValidator(GUEST_OPTIONS).validate(_plain({**arguments, **withheld})).error_messages
    if wrong or not set(withheld) <= set(_SECRETS):
        raise BadInput(f"cannot import {name}: its host answers with what are no arguments ({'; '.join(wrong)})")
    variable = f"vault_{_word(name)}"
    placeholders = {
        option: {**said, _SECRETS[option]: _Placeholder(f"{{{{ {variable}_{option}_{_SECRETS[option]} }}}}")}
        for option, said in withheld.items()
    }
    return {**_plain(arguments), **_plain(placeholders)}


def differences(name: str, compared: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """Why the arguments of a guest do not describe it, from what they would do to it."""
    for one in compared.get("results") or ():
        if not isinstance(one, dict) or one.get("name") != name:
            continue
        if one.get("failed"):
            yield f"cannot import {name}: its host refuses the arguments: {one.get('msg')}"
        elif one.get("changed"):
            told = ", ".join(map(str, (one.get("diff") or {}).get("after") or ())) or "unknown"
            remedy = "name the guests without it: -e guest=..."
            yield f"cannot import {name}: the arguments would change it ({told}); {remedy}"


def _word(name: str) -> str:
    """A name in the name of a variable; of two guests, never the same."""
    plain = re.sub(r"[^a-z0-9_]", "_", name.lower())
    return plain if plain == name else f"{plain}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _plain(value: t.Any) -> t.Any:
    """Without Ansible's tags."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value if isinstance(value, _Placeholder) else str(value) if isinstance(value, str) else value


def files(guests: t.Sequence[Guest], dest: str, form: str) -> dict[str, str]:
    """Texts by path: one file with `virt_guests`, or a file with `virt_guest` for each guest below `host_vars`."""
    if form == "list":
        return {dest: _yaml({"virt_guests": list(guests)})}
    return {f"{dest.rstrip('/')}/{one['name']}.yml": _yaml({"virt_guest": one}) for one in guests}


def _yaml(value: object) -> str:
    return "---\n" + yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def notes(name: str, told: t.Mapping[str, t.Any], written: Guest) -> list[str]:
    """What is yet to be done for one guest: secrets to set, and what no argument describes."""
    found = [
        f"{name}: set {value.strip('{} ')} (ansible-vault)"
        for said in written.values()
        if isinstance(said, dict)
        for value in said.values()
        if isinstance(value, _Placeholder)
    ]
    left = [one for one in told.get("not_imported") or () if isinstance(one, dict)]
    told_of = {option for option in _SECRETS if isinstance(written.get(option), dict)}
    return found + [
        f"{name}: {one.get('path')}: {one.get('why')}"
        for one in left
        if not any(str(one.get("path")).startswith(f"/domain/devices/{option}") for option in told_of)
    ]
