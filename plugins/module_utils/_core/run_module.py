# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of every module: what it may show, the connection option, and the translation of errors."""

from __future__ import annotations

import contextlib
import decimal
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.corral.virt.plugins.module_utils._core import bytecode_cache
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Failed, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.output import printable, secrets, without_secrets
from ansible_collections.corral.virt.plugins.module_utils._core.uri import SYSTEM

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


bytecode_cache.keep()  # for all that a module imports after this file, so this file is its first import

# Kept in step with plugins/doc_fragments/connection.py.
URI_OPTION: dict[str, t.Any] = {"uri": {"type": "str", "default": SYSTEM}}

_TELLING = 4  # characters; to hide what is shorter would hide half of every sentence


class Module(AnsibleModule):
    """A module that shows no secret, not even in a URL, and nothing that a terminal obeys.

    What Ansible does with the values of options that are `no_log`, it does with all that is `confidential`.
    """

    params: dict[str, t.Any]

    def confidential(self) -> t.Iterator[str]:
        """The parts of the arguments that nobody may see."""
        return secrets(self.params)

    def warn(self, warning: str, **more: t.Any) -> None:
        """Show a warning on the controller's terminal."""
        super().warn(printable(warning), **more)

    def end(self, result: t.Mapping[str, t.Any]) -> None:
        """Answer with a result: as a failure if it has a `msg`; its `notes`, and what is `pending`, are warnings."""
        for note in (*result["notes"], *result.get("pending", ())):
            self.warn(note)
        if "msg" in result:
            self.fail_json(**result)
        self.exit_json(**result)

    def _load_params(self) -> None:
        super()._load_params()  # before they are checked: what is refused is told, too
        self.params = bounded(self.argument_spec, self.params)
        name = without_secrets(str(self.params.get("name")))  # `?arch=amd64` must not hide half of every path
        self.no_log_values.update(part for part in self.confidential() if len(part) >= _TELLING and part not in name)

    def _return_formatted(self, kwargs: dict[str, t.Any]) -> None:
        super()._return_formatted(printable(kwargs, keep="\n\t"))


@contextlib.contextmanager
def failures(module: t.Any) -> t.Iterator[None]:
    """Translate our exceptions into the module's failure."""
    try:
        yield
    except BadInput as error:
        module.fail_json(msg=str(error), problems=error.problems)
    except Failed as error:
        facts = getattr(error.__cause__, "facts", {})  # of what ended a run half-way
        module.fail_json(msg=str(error), done=error.done, changed=bool(error.done), **facts)
    except VirtError as error:
        module.fail_json(msg=str(error), **error.facts)
