"""The oldest versions of libraries are the same wherever they are named, and `make test-matrix` runs them."""

from __future__ import annotations

import re
import subprocess
import sys

from ansible_collections.corral.virt.plugins.module_utils._tls import files_tls
from ansible_collections.corral.virt.plugins.plugin_utils._authority import ca
from ansible_collections.corral.virt.tests.tools import payload

REQUIREMENTS = (payload.ROOT / "requirements.txt").read_text()


def test_the_matrix_installs_the_floor_of_each_requirement() -> None:
    code = "import matrix; print(*matrix.floors(), sep='\\n')"
    floors = subprocess.run(
        [sys.executable, "-c", code], cwd=payload.ROOT / "tests/tools", check=True, capture_output=True, text=True
    )
    assert floors.stdout.split() == [
        f"{name}=={version}" for name, version in re.findall(r"^([a-z-]+)>=([\d.]+)$", REQUIREMENTS, re.M)
    ]
    assert len(floors.stdout.split()) == 4


def test_the_ca_asks_for_the_floor() -> None:
    assert f"\ncryptography>={ca.OLDEST}\n" in REQUIREMENTS


def test_the_documentation_tells_the_floors() -> None:
    text = (payload.ROOT / "plugins/modules/virt_tls.py").read_text()
    assert (
        f"  - cryptography >= {files_tls.OLDEST} on the host\n  - cryptography >= {ca.OLDEST} on the controller\n"
        in text
    )
