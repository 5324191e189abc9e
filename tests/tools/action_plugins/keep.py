"""Write a text into a file of the controller, without the two modules that `ansible.builtin.copy` runs for it, also
in check mode.
"""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """`keep: {content: ..., dest: ...}`, for plays of tests; a link to this directory stands beside them."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """For its owner only."""
        path, content = Path(self._task.args["dest"]), self._task.args["content"]
        path.touch(mode=0o600)
        # Before ansible-core 2.19 what looks like JSON has been read by now.
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return {"changed": False}
