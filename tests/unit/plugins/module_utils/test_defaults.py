"""What holds where the user says nothing."""

from __future__ import annotations

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core import defaults


@pytest.mark.parametrize(
    ("offered", "best"),
    [
        (["kvm"], "kvm"),
        (["qemu", "kvm"], "kvm"),
        (["qemu"], "qemu"),
        (["xen", "qemu"], "qemu"),
        (["xen", "hvf"], "xen"),
        ([], "qemu"),
    ],
)
def test_how_guests_are_run(offered: list[str], best: str) -> None:
    assert defaults.virt_type(offered) == best
