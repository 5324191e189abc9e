"""ansible-core takes the packs of modules that an earlier run of it has made."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.contract import play
from ansible_collections.corral.virt.tests.tools.payload import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.deep]  # of ansible-core's own; what is taken has its unit tests

MADE, TAKEN = "ANSIBALLZ: Creating module", "ANSIBALLZ: using cached module"


def test_ansible_core_packs_a_module_once(tmp_path: Path) -> None:
    collection = tmp_path / "ansible_collections/corral/virt"
    for name in ("meta", "plugins"):
        shutil.copytree(ROOT / name, collection / name)
    shutil.copy(ROOT / "galaxy.yml", collection)
    module = collection / "plugins/modules/virt_state_info.py"
    code = f"{module.read_text()}\n# {tmp_path}\n"
    module.write_text(code)
    first, again = state(tmp_path), state(tmp_path)
    assert MADE in first and TAKEN not in first and "SUCCESS" in first
    assert MADE not in again and TAKEN in again and "SUCCESS" in again
    module.write_text(code.replace("    main()\n", '    raise RuntimeError("new code")\n'))
    changed = state(tmp_path)
    assert MADE in changed and TAKEN not in changed and "new code" in changed


def state(place: Path) -> str:
    """What Ansible says while it asks libvirt's test driver for its guests."""
    return subprocess.run(
        ["ansible", "localhost", "-m", "corral.virt.virt_state_info", "-a", "uri=test:///default"],
        check=False,
        capture_output=True,
        text=True,
        timeout=1200,
        env=play.defaults(
            ANSIBLE_COLLECTIONS_PATH=str(place), ANSIBLE_DEBUG="1", ANSIBLE_MODULE_UTILS=str(place / "none")
        ),
    ).stdout
