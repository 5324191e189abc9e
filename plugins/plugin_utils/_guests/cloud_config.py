# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check a guest's seed against cloud-init's own schema, before the guest boots. Pure.

A message names places and types, never values: these may be secret.
"""

from __future__ import annotations

import difflib
import functools
import json
import os
import re
import typing as t

import yaml

from ansible_collections.corral.virt.plugins.module_utils._seed.plan_seed import is_cloud_config
from ansible_collections.corral.virt.plugins.plugin_utils._report.wording import either, enumerated

VERSION = "26.2"  # of cloud-init, whose schema FILE is
FILE = os.path.join(os.path.dirname(__file__), "schema-cloud-config-v1.json")
UNCHECKED = (
    "cloud_init is not checked against cloud-init's schema: jsonschema is not installed beside ansible-core; "
    "pip install jsonschema"
)
_DOCUMENTS = ("user_data", "vendor_data")
_CLOUDBASE_INIT = frozenset({"set_hostname", "set_timezone"})  # keys of a cloud-config that only Windows' program has
_NAMED = 8  # choices or problems in a message
_TYPES = {
    "array": "a list",
    "object": "a mapping",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "empty",
}
_ALIKE = 0.75  # from 0 to 1: keys of which one may be meant by the other
_EMPTY = ("minItems", "minProperties")

Error = t.Any  # a ValidationError of jsonschema, which has no types


def check(guest: t.Mapping[str, t.Any], warn: t.Callable[[str], None]) -> None:
    """Pass problems of the guest's cloud-configs to `warn`; raise ValueError with `cloud_init.schema: refuse`.

    Unreadable YAML and values that are no options are ignored here; other checks refuse them.
    """
    seed = guest.get("cloud_init")
    if not isinstance(seed, dict) or seed.get("schema") == "ignore" or guest.get("state") == "absent":
        return
    configs = {document: _config(seed.get(document)) for document in _DOCUMENTS}
    if not any(configs.values()):
        return
    validator = _validator()
    if validator is None:
        warn(UNCHECKED)
        return
    found = [
        f"cloud_init.{document} of {guest.get('name')}: cloud-init {VERSION} does not take {'; '.join(problems)}"
        for document, config in configs.items()
        if (problems := _problems(validator.iter_errors(config)))
    ]
    if found and seed.get("schema") == "refuse":
        raise ValueError("; ".join(found))
    for sentence in found:
        warn(f"{sentence}. If the guest's image takes this, set cloud_init.schema to ignore")


def _config(value: object) -> dict[str, t.Any]:
    """The cloud-config of a document as a dictionary; empty if it is none."""
    if isinstance(value, str):
        if not is_cloud_config(value):
            return {}
        try:
            value = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError):
            return {}
    return t.cast("dict[str, t.Any]", _plain(value)) if isinstance(value, dict) else {}


def _plain(value: object) -> object:
    """The value with texts as keys, and with the text of vault secrets, as the seed has them."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, bytes) or getattr(value, "__ENCRYPTED__", False) else value


@functools.cache
def _validator() -> t.Any:
    """A validator; None without jsonschema, whose import takes a tenth of a second and only seeds need."""
    try:
        import jsonschema
    except ImportError:
        return None
    with open(FILE, encoding="utf-8") as stream:
        return jsonschema.Draft4Validator(json.load(stream))


def _problems(errors: t.Iterable[Error]) -> list[str]:
    by_place: dict[str, list[Error]] = {}
    for error in errors:
        for leaf in _leaves(error):
            place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in leaf.absolute_path)
            by_place.setdefault(place.lstrip("."), []).append(leaf)
    found = [one for place, leaves in sorted(by_place.items()) for one in _worded(place, leaves)]
    more = len(found) - _NAMED
    return [*found[:_NAMED], f"and {more} more"] if more > 0 else found


def _leaves(error: Error) -> t.Iterator[Error]:
    """The errors of the form that was most likely meant: of the same type, and deepest."""
    if error.validator not in ("oneOf", "anyOf") or not error.context:
        yield error
        return
    leaves = [leaf for one in error.context for leaf in _leaves(one)]
    here = [one for one in leaves if len(one.absolute_path) == len(error.absolute_path)]
    meant = [one for one in leaves if one not in here or one.validator not in ("type", "enum")] or leaves
    deepest = max(len(one.absolute_path) for one in meant)
    yield from (one for one in meant if len(one.absolute_path) == deepest)


def _worded(place: str, leaves: t.Sequence[Error]) -> t.Iterator[str]:
    """The problems of a place in words."""
    kinds = {kind: [one for one in leaves if one.validator == kind] for kind in (one.validator for one in leaves)}
    place = place or "the document"
    for kind, errors in kinds.items():
        if kind == "additionalProperties":
            yield from _unknown_keys("" if place == "the document" else f"{place}.", errors)
        elif kind == "required":
            lacking = {enumerated([key for key in one.validator_value if key not in one.instance]) for one in errors}
            yield f"{place} without {either(sorted(lacking))}"
        elif kind in _EMPTY:
            yield f"{place} (must not be empty)"
        elif kind not in ("type", "enum"):
            yield f"{place} (violates its rule {kind!r})"
    taken = [*_choices(kinds.get("enum", ())), *_types(kinds.get("type", ()))]
    if taken:
        is_unquoted = taken == ["text"] and not isinstance(leaves[0].instance, (str, list, dict, type(None)))
        yield f"{place} (must be {either(taken)}{'; quote it' if is_unquoted else ''})"


def _unknown_keys(before: str, errors: t.Sequence[Error]) -> t.Iterator[str]:
    """Problems of keys that no form has, with similar ones."""
    known = {key for one in errors for key in one.schema.get("properties", {})}
    patterns = [pattern for one in errors for pattern in one.schema.get("patternProperties", {})]
    ignored = known if before else known | _CLOUDBASE_INIT
    for key in errors[0].instance:
        if key not in ignored and not any(re.search(pattern, key) for pattern in patterns):
            near = difflib.get_close_matches(key, sorted(known), 2, _ALIKE)
            yield f"{before}{key} ({f'did you mean {either(near)}?' if near else 'no such key'})"


def _types(errors: t.Iterable[Error]) -> list[str]:
    values = (one.validator_value for one in errors)
    names = (name for value in values for name in (value if isinstance(value, list) else [value]))
    return [_TYPES.get(name, name) for name in dict.fromkeys(names)]


def _choices(errors: t.Iterable[Error]) -> list[str]:
    found = [value if isinstance(value, str) else json.dumps(value) for one in errors for value in one.validator_value]
    return [*found[:_NAMED], f"another of {len(found)}"] if len(found) > _NAMED else found
