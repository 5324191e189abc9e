"""The playbooks of `examples/project`: one for each action of the catalogue, because a job of AWX runs only playbooks of
its project. `--write` puts them there, and removes those of actions that are no more.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ansible_collections.corral.virt.plugins.plugin_utils import _actions

__all__ = ["PLACE", "written"]

PLACE = Path(__file__).parents[2] / "examples/project/playbooks"
TEXT = """---
# Only calls the collection. Its arguments: the guide of commands, or the survey of the job template.
- name: {description}
  ansible.builtin.import_playbook: corral.virt.{name}
"""


def written() -> dict[str, str]:
    """Text by file name."""
    return {
        f"{name}.yml": TEXT.format(name=name, description=_actions.action(name).description)
        for name in _actions.names()
    }


def main() -> None:
    """Print their names; with `--write`, make them."""
    wanted = written()
    if "--write" not in sys.argv:
        print(*wanted, sep="\n")
        return
    PLACE.mkdir(parents=True, exist_ok=True)
    for path in PLACE.glob("*.yml"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (PLACE / name).write_text(text)


if __name__ == "__main__":
    main()
