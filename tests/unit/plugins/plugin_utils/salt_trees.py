"""Trees of a Salt master, for tests of what becomes of them."""

from __future__ import annotations

import textwrap
import typing as t
from pathlib import Path

from ansible.parsing.dataloader import DataLoader

from ansible_collections.corral.virt.plugins.action import virt_from_salt
from ansible_collections.corral.virt.plugins.plugin_utils._salt import salt_inventory

NOTHING: dict[str, t.Any] = {"salt_root": [], "pillar": [], "minion": None, "rendered": [], "hypervisors": []}


class Trees:
    """Trees of a Salt master, and what becomes of them."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.result: salt_inventory.Converted

    def put(self, path: str, text: str | bytes) -> Path:
        """A file of one of the trees."""
        file = self.place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
        return file

    def convert(self, **options: t.Any) -> salt_inventory.Converted:
        """What the action would write."""
        for option, name in (("salt_root", "salt"), ("pillar", "pillar")):
            if (self.place / name).exists():
                options.setdefault(option, [str(self.place / name)])
        self.result = virt_from_salt._converted({**NOTHING, **options})
        return self.result

    def read(self, path: str) -> t.Any:
        """A file of the inventory, as Ansible reads it."""
        return DataLoader().load(self.result.files[path])

    def guests(self, text: str, **options: t.Any) -> dict[str, dict[str, t.Any]]:
        """Guests by name, of one file of states."""
        self.put("salt/guests.sls", text)
        self.convert(**options)
        return {one["name"]: one for one in self.read("group_vars/hyper/guests.yml")["virt_guests"]}

    def settings(self) -> t.Any:
        """Variables of all hypervisors."""
        return self.read("group_vars/hyper/settings.yml")

    @property
    def told(self) -> str:
        """All notes, in one text."""
        return "\n".join(map(str, self.result.notes))
