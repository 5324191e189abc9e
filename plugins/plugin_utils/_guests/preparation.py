# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done on the controller before guests are sent to a host. Pure."""

from __future__ import annotations

import shlex
import time
import typing as t

import yaml

from ansible_collections.corral.virt.plugins.module_utils._core.yaml_text import unkept, yaml_text
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import OFFLINE
from ansible_collections.corral.virt.plugins.module_utils._seed.plan_seed import DOCUMENTS, is_cloud_config, sent

Told = dict[int, dict[str, t.Any]]  # results of guests that the host does not work on, by their place in the list

_HEADER = "#cloud-config\n"
_OPTIONS_OF = {"nic_profile": ("interfaces", "virt_nic_profiles"), "disk_profile": ("disks", "virt_disk_profiles")}
PROFILES = tuple(variable for _items, variable in _OPTIONS_OF.values())  # variables that hold profiles


def with_profiles(guest: t.Mapping[str, t.Any], variables: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The guest's options with its profiles merged into `interfaces` and `disks` by item name; its own values win.

    `variables` holds the lists of each profile. Raises ValueError with every problem.
    """
    options, problems = dict(guest), []
    if "networks" in options and options.get("nic_profile"):
        options["interfaces"] = options.pop("networks")
    for option, (items, variable) in _OPTIONS_OF.items():
        wanted = options.pop(option, None)
        if wanted in (None, ""):
            continue
        known = variables.get(variable) or {}
        if not isinstance(known, dict) or wanted not in known:
            names = ", ".join(sorted(map(str, known))) if isinstance(known, dict) and known else "none"
            problems.append(f"{option} of {guest.get('name')}: {variable} has no profile {wanted!r}; known: {names}")
            continue
        merged: dict[str, dict[str, t.Any]] = {}
        for where, entries in (
            (f"{variable}[{wanted}]", known[wanted]),
            (f"{items} of {guest.get('name')}", options.get(items) or []),
        ):
            if not isinstance(entries, list):
                problems.append(f"{where}: must be a list of dictionaries")
                continue
            for index, item in enumerate(entries):
                if not isinstance(item, dict) or not item.get("name"):
                    problems.append(
                        f"{where}: item {index + 1} has no name; items of profile and guest are matched by name"
                    )
                else:
                    merged[item["name"]] = {**merged.get(item["name"], {}), **item}
        options[items] = list(merged.values())
    if problems:
        raise ValueError("; ".join(problems))
    return options


def prepared(guest: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The guest's options with its cloud-init documents as JSON that is also YAML; user data also as its own text.

    Hosts then need no YAML library, and a document is one secret instead of a hundred words to hide. Raises ValueError
    with every problem, such as the place of a value that JSON cannot hold.
    """
    options, problems = dict(guest), list[str]()
    seed = options.get("cloud_init")
    if not isinstance(seed, dict):
        return options
    exact = seed.get("method") == OFFLINE
    options["cloud_init"] = {
        key: _sent(key, value, f"cloud_init.{key} of {options.get('name')}", exact=exact, problems=problems)
        if key in DOCUMENTS
        else value
        for key, value in seed.items()
    }
    if problems:
        raise ValueError("; ".join(problems))
    return options


def merged(decided: Told, made: t.Mapping[str, t.Any] | None) -> dict[str, t.Any]:
    """One result for the guests that were worked on and those that were not.

    `made` is the module's result; None if the module did not run.
    """
    if made is not None and "results" not in made:
        return dict(made)  # it refused all
    results = list(made["results"]) if made else []
    for place in sorted(decided):
        results.insert(place, {key: value for key, value in decided[place].items() if key != "failed" or value})
    failed = [one["msg"] for one in decided.values() if one["failed"]]
    told_by_module = [made["msg"]] if made and made.get("msg") else []
    return {
        "changed": False,
        "steps": [],
        "pending": {},
        **(made or {}),
        "results": results,
        "failed": bool(failed or (made and made.get("failed"))),
        "msg": "; ".join([*told_by_module, *failed] or [one["msg"] for one in decided.values()]),
    }


def add_move(made: dict[str, t.Any], one: dict[str, t.Any], moved: t.Mapping[str, t.Any]) -> None:
    """Add the move of a disk to the result of its guest, and to that of all guests in which it is."""
    for result in [one] if one is made else [one, made]:
        result["changed"] = bool(result.get("changed") or moved.get("changed"))
        result["steps"] = [*(result.get("steps") or ()), *(moved.get("steps") or ())]
        result["notes"] = [*(result.get("notes") or ()), *(moved.get("notes") or ())]
        before = result.get("diff") or []
        result["diff"] = [*(before if isinstance(before, list) else [before]), *filter(None, [moved.get("diff")])]
        if moved.get("failed"):
            reason = str(moved.get("msg") or "a disk could not be moved")
            result |= {"failed": True, "msg": "; ".join(filter(None, (result.get("msg"), reason)))}


def snapshot_problems(guests: t.Iterable[t.Any], *, in_background: bool) -> list[str]:
    """What is wrong with the option `snapshot` of guests; what it must be, the module says."""
    asked = [one for one in guests if isinstance(one, dict) and one.get("snapshot") is not None]
    problems = [
        f"snapshot of {one.get('name')}: a guest that is removed has none; omit it with state: absent"
        for one in asked
        if one.get("state") == "absent"
    ]
    return problems + (["snapshot: is not available with async; omit one of them"] if asked and in_background else [])


def snapshot_name(now_s: float) -> str:
    """The name of a snapshot that is taken before a change, made from the time."""
    return time.strftime("before-%Y%m%dT%H%M%SZ", time.gmtime(now_s))


def add_snapshots(made: dict[str, t.Any], taken: t.Mapping[str, t.Any]) -> None:
    """Add snapshots that were taken before to the results of their guests; to a failure, the way back."""
    before = {one["name"]: one for one in taken.get("results", ())}
    for one in made.get("results", [made]):
        told = before.get(one.get("name"))
        if told is None:
            continue
        name = told["snapshot"]
        one["snapshot"] = name
        for result in [one] if one is made else [one, made]:
            result["changed"] = True
            result["steps"] = [*(told.get("steps") or ()), *(result.get("steps") or ())]
            result["notes"] = [*(told.get("notes") or ()), *(result.get("notes") or ())]
            if one.get("failed"):
                given = {"guest": one["name"], "snapshot": name, "run": "true", "confirm_snapshot": name}
                words = " ".join(f"-e {shlex.quote(f'{option}={value}')}" for option, value in given.items())
                back = f"to go back to before: ansible-playbook corral.virt.revert {words}"
                result["msg"] = "; ".join(filter(None, (result.get("msg"), back)))


def _sent(document: str, value: object, what: str, *, exact: bool, problems: list[str]) -> object:
    """A document as the host reads it; text that is no cloud-config (a script, a template) stays as it is.

    `exact`: the host needs all values of the document, not only its text.
    """
    is_config = document in ("user_data", "vendor_data")
    text = value if isinstance(value, str) else None
    if text is not None:
        if is_config and not is_cloud_config(text):
            return text
        try:
            value = yaml.safe_load(text) or {}
        except (yaml.YAMLError, ValueError) as error:  # the latter: a date that there is not
            problems.append(f"{what}: cannot be read as YAML: {_place(error)}")
            return text
    if value is None:
        return value
    if text is not None and document == "user_data" and not exact:
        problems += [f"{what}: {reason}" for reason in unkept(text)]
        return sent(text, _approximate(value))
    value = _with_text_keys(value)
    reasons = [*unkept(value)]
    problems += [f"{what}: {reason}" for reason in reasons]
    if reasons:
        return value
    return f"{_HEADER}{yaml_text(value)}\n" if is_config else yaml_text(value)


def _with_text_keys(value: t.Any) -> t.Any:
    """The value with numeric keys as texts (`vlans: {100: …}`), unless the text is a key, too.

    A secret of the vault becomes its text: older versions of Ansible leave it in its shell.
    """
    if isinstance(value, dict):
        return {_key(key, value): _with_text_keys(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_text_keys(item) for item in value]
    return str(value) if getattr(value, "__ENCRYPTED__", False) else value


def _key(key: object, among: t.Container[object]) -> object:
    is_number = isinstance(key, int) and not isinstance(key, bool)
    return str(key) if is_number and str(key) not in among else key


def _approximate(value: object) -> object:
    """A value that JSON can hold, close enough to check and compare a document that is also sent as text."""
    if isinstance(value, dict):
        return {_approximate_text(key): _approximate(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_approximate(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(_approximate_text, value))
    is_kept = not isinstance(value, str) and not [*unkept(value)]
    return value if is_kept else _approximate_text(value)


def _approximate_text(value: object) -> str:
    return str(value).encode(errors="backslashreplace").decode()


def _place(error: Exception) -> str:
    """The problem and its place, without the text itself, which may be secret."""
    mark = getattr(error, "problem_mark", None)
    where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return f"{getattr(error, 'problem', None) or type(error).__name__}{where}"
