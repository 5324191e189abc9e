# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of untrusted hosts, with terminal control characters made visible before they are printed."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import gc
import os
import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.corral.virt.plugins.plugin_utils._controller import home_files, packed_modules
from ansible_collections.corral.virt.plugins.plugin_utils._report.expiry_warnings import expiry_warnings
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable


class UntrustedAction(ActionBase):
    """An action whose module runs on an untrusted host; Ansible prints messages and warnings unchanged."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> t.Any:
        """Warn in every play about certificates that will expire; Ansible shows equal warnings once."""
        place = (
            self._templar.template((task_vars or {}).get("pki_ca_dir"))
            or os.environ.get("CORRAL_VIRT_CA_DIR")
            or home_files.CA_DIR
        )
        for sentence in expiry_warnings(self._loader.path_dwim(place), now=datetime.datetime.now(datetime.UTC)):
            Display().warning(printable(sentence))
        return super().run(tmp, task_vars)

    def _configure_module(self, module_name: str, *arguments: t.Any, **more: t.Any) -> t.Any:
        with packed_modules.kept(module_name), _without_collector():
            return super()._configure_module(module_name, *arguments, **more)

    def _execute_module(self, *arguments: t.Any, **more: t.Any) -> t.Any:
        return _cleaned(super()._execute_module(*arguments, **more))

    def _planned(self, **more: t.Any) -> t.Any:
        """What the module would do: its answer in check mode, whatever the mode of the task."""
        mode, self._task.check_mode = self._task.check_mode, True
        try:
            return self._execute_module(**more)
        finally:
            self._task.check_mode = mode

    def _parse_returned_data(self, *arguments: t.Any, **more: t.Any) -> t.Any:
        return _cleaned(super()._parse_returned_data(*arguments, **more))


def _cleaned(value: t.Any) -> t.Any:
    """The value with all texts made printable, also in the objects of warnings and errors."""
    if isinstance(value, dict):
        return {printable(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_cleaned, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(
            value, **{field.name: _cleaned(getattr(value, field.name)) for field in dataclasses.fields(value)}
        )
    return printable(value, keep="\n\t")


@contextlib.contextmanager
def _without_collector() -> t.Iterator[None]:
    """Disable Python's garbage collector: it takes a third of the time of packing, and syntax trees need none."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
