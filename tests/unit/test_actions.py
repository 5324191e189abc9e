"""Every module has an action plugin: one that runs on a host, so that nobody believes what the host says; one that is
documentation alone, so that something is done at all.
"""

from __future__ import annotations

import ast
import importlib
import typing as t
from pathlib import Path

import pytest
from ansible.plugins.action import ActionBase

from ansible_collections.corral.virt.plugins.plugin_utils._report.safe_results import UntrustedAction
from ansible_collections.corral.virt.tests.tools import payload

MODULES = payload.modules()


def runs_on_hosts(module: Path) -> bool:
    """Whether a module has code of its own."""
    return any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in payload.tree(module).body)


def action(module: Path) -> t.Any:
    """The action plugin of a module."""
    path = module.parents[1] / "action" / module.name
    assert path.exists(), (
        f"{module.stem} has no action plugin; add plugins/action/{module.name}, derived from UntrustedAction"
    )
    return importlib.import_module(f"{payload.NAMESPACE}plugins.action.{module.stem}").ActionModule


def test_modules_are_of_both_kinds() -> None:
    assert {runs_on_hosts(module) for module in MODULES} == {True, False}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)
def test_a_module_has_its_action(module: Path) -> None:
    found = action(module)
    assert issubclass(found, UntrustedAction if runs_on_hosts(module) else ActionBase)


def test_an_action_has_its_module() -> None:
    names = {path.stem for path in (payload.ROOT / "plugins/action").glob("*.py")}
    assert names == {module.stem for module in MODULES}
