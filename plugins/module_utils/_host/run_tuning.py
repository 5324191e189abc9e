# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of `virt_tuning`, and how it converges."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import changes
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate, Looked
from ansible_collections.corral.virt.plugins.module_utils._host import files_tuning, plan_tuning
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import HostStep, WriteFile
from ansible_collections.corral.virt.plugins.module_utils._system import configuration

OPTIONS: dict[str, t.Any] = {
    "sysctl": {"type": "dict", "default": {}},
    "hugepages": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "size": {"type": "str", "required": True},
            "count": {"type": "int", "required": True},
            "node": {"type": "int"},
        },
    },
    "kernel_arguments": {"type": "list", "elements": "str", "default": []},
    "transparent_hugepages": {"type": "str", "choices": ["always", "madvise", "never"]},
    "ksm": {"type": "bool"},
    "cpu_governor": {"type": "str"},
    "libvirt_guests": {"type": "str", "choices": ["ignore", "shutdown", "suspend"]},
    "libvirt_guests_timeout": {"type": "int", "default": 300},
    "libvirt_guests_parallel": {"type": "int", "default": 10},
}


def converge(params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    """Read facts, plan, run the steps, and return the result."""
    wanted = plan_tuning.spec(params)
    facts = files_tuning.facts(wanted)
    plan = plan_tuning.decide(wanted, facts)
    gate.run(plan.steps, lambda step: _DOERS[type(step)](step))
    return {
        "changed": bool(plan.steps),
        "diff": changes.diff(plan.changes),
        "steps": [str(step) for step in plan.steps],
        "reboot_needed": plan_tuning.lacking(wanted, facts),
        "pending": list(plan.pending),
        "notes": list(plan.notes),
    }


_DOERS: dict[type[HostStep], t.Callable[[t.Any], object]] = {
    WriteFile: lambda step: configuration.write(step.path, step.content, mode=step.mode),
    plan_tuning.RemoveFile: Looked(
        lambda step: plan_tuning.check_text(step, files_tuning.text(step.path)),
        lambda step: files_tuning.remove_file(step.path),
    ),
    plan_tuning.SetValue: lambda step: files_tuning.set_value(step.paths, step.value),
    plan_tuning.SetPages: lambda step: plan_tuning.check_pages(step, files_tuning.set_pages(step.pages)),
    plan_tuning.UpdateBootLoader: lambda step: files_tuning.update_boot_loader(step.command),
    plan_tuning.StartUnit: lambda step: files_tuning.start_unit(step.unit, enable=step.enable),
    plan_tuning.StopUnit: lambda step: files_tuning.stop_unit(step.unit),
}
