"""The table of the playbooks' arguments, for the guide: made from the action catalogue. `--write` puts it there."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions
from ansible_collections.corral.virt.plugins.plugin_utils._commands.actions import Argument
from ansible_collections.corral.virt.tests.tools.guide_table import GUIDES, Table

__all__ = ["TABLE"]

SHORT = {
    "list": "list",
    "str": "text",
    "int": "number",
    "float": "number",
    "bool": "true or false",
    "dict": "dictionary",
    "path": "path",
}


def rows() -> list[tuple[str, ...]]:
    """An argument a row; options that a module has are in its documentation."""
    found: list[tuple[str, ...]] = []
    for name in actions.names():
        arguments = [
            each for each in actions.action(name).arguments.values() if not each.option and each.name != "virt_group"
        ]
        found += [(f"``{name}``", f"``{each.name}``", values(each), default(each), meaning(each)) for each in arguments]
    return found


def values(argument: Argument) -> str:
    """What it may be."""
    if choices := argument.spec.get("choices"):
        return ", ".join(f"``{choice}``" for choice in choices)
    return SHORT[argument.spec["type"]] + (f", from {argument.minimum}" if argument.minimum is not None else "")


def default(argument: Argument) -> str:
    """What it is when nobody says it."""
    value = argument.spec.get("default")
    if argument.required:
        return "required"
    return "none" if value in (None, "", []) else f"``{str(value).lower() if isinstance(value, bool) else value}``"


def meaning(argument: Argument) -> str:
    """In the guide's markup."""
    return argument.description.replace("`", "``")


HEAD = ("Playbook", "Argument", "Values", "Default", "Meaning")
TABLE = Table("arguments_table", GUIDES / "guide_commands.rst", HEAD, rows)

if __name__ == "__main__":
    TABLE.main()
