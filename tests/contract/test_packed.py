"""ansible-core takes the packs of modules that an earlier run of it has made."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.contract import play
from ansible_collections.corral.virt.tests.tools.payload import ROOT

pytestmark = pytest.mark.slow

MADE, TAKEN = "ANSIBALLZ: Creating module", "ANSIBALLZ: using cached module"


def test_ansible_core_packs_a_module_once(tmp_path: Path) -> None:
    collection = tmp_path / "ansible_collections/corral/virt"
    for name in ("meta", "plugins"):
        shutil.copytree(ROOT / name, collection / name)
    shutil.copy(ROOT / "galaxy.yml", collection)
    units = collection / "plugins/module_utils/_units.py"
    first, again, changed = (state(tmp_path, units, line) for line in (f"# {tmp_path}", "", " other"))
    assert MADE in first and TAKEN not in first
    assert MADE not in again and TAKEN in again
    assert MADE in changed and TAKEN not in changed


def state(collections: Path, source: Path, line: str) -> str:
    """What Ansible says while it asks libvirt's test driver for a guest, with one more line in a file that it packs."""
    with source.open("a") as file:
        file.write(line)
    return subprocess.run(
        ["ansible", "localhost", "-m", "corral.virt.virt_state_info", "-a", "uri=test:///default"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env=play.defaults(ANSIBLE_COLLECTIONS_PATH=str(collections), ANSIBLE_DEBUG="1"),
    ).stdout
