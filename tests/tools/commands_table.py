"""The table of playbooks, for the guide: made from the action catalogue. `--write` puts it there."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions
from ansible_collections.corral.virt.tests.tools.guide_table import GUIDES, Table

__all__ = ["TABLE"]


def rows() -> list[tuple[str, str, str]]:
    """A playbook a row."""
    found = []
    for name in actions.names():
        action = actions.action(name)
        found.append(
            (f"``{name}``", action.kind, action.description + (" (destructive)" if action.destructive else ""))
        )
    return found


TABLE = Table("commands_table", GUIDES / "guide_commands.rst", ("Playbook", "Acts on", "What it does"), rows)

if __name__ == "__main__":
    TABLE.main()
