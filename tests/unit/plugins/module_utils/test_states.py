"""What is told of a host beside its guests."""

from __future__ import annotations

import socket
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._front import states


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


@pytest.mark.parametrize(
    ("uri", "links", "told"),
    [
        ("qemu:///system", True, {"links": sorted(name for _index, name in socket.if_nameindex())}),
        ("qemu+tls://hyper2/system", True, {"links": None}),
        ("qemu:///system", False, {}),
    ],
)
def test_links_are_those_of_the_host_of_the_guests(uri: str, links: bool, told: dict[str, t.Any]) -> None:
    params = {"name": None, "tags": False, "links": links}
    assert states.described(_Libvirt(uri), params) == {"domains": [], **told}
