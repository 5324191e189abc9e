"""What is told of a host beside its guests."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._guest import run_states


class _Libvirt:
    """A connection to a host without guests."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def getURI(self) -> str:  # noqa: N802
        """Where it leads."""
        return self._uri

    def getAllDomainStats(self, _kinds: int, _flags: int) -> list[t.Any]:  # noqa: N802
        """None."""
        return []


def described(uri: str, *, links: bool) -> dict[str, t.Any]:
    """What a host says."""
    return run_states.described(_Libvirt(uri), {"name": None, "tags": False, "links": links})


def test_links_are_those_of_the_host_of_the_guests() -> None:
    assert "lo" in described("qemu:///system", links=True)["links"]
    assert described("qemu+tls://hyper2/system", links=True) == {"domains": [], "links": None, "maintenance": None}
    assert described("qemu:///system", links=False) == {"domains": []}
