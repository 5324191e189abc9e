"""What a task would open to others, or protect in name only, is refused by the module: in check mode as for real, with
nothing written.

The test driver has no network filters, so these are recorded ones.
"""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._guest import files_qemu, run_guest
from ansible_collections.corral.virt.plugins.module_utils._system import locks
from ansible_collections.corral.virt.tests.contract.world import snapshot
from ansible_collections.corral.virt.tests.golden.case import options
from ansible_collections.corral.virt.tests.unit.plugins.module_utils.test_nwfilter import CLEAN, OFF, ON, WEB

SAID = {"name": "box1", "memory": 512, "vcpus": 1, "disks": [], "state": "shutdown"}


class Here:
    """The test driver as a hypervisor that is this machine."""

    def __init__(self, connection: t.Any) -> None:
        """All but its name is the driver's."""
        self._connection = connection

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self._connection, name)

    def getURI(self) -> str:  # noqa: N802  libvirt's word
        """As on a host."""
        return "qemu:///system"


@pytest.fixture
def here(connection: t.Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Here:
    """One with bridge br0, the filters above, and a packet filter that sees nothing bridged."""
    monkeypatch.setattr(libvirt_query, "links", lambda _connection: ({"br0"}, {"lan"}))
    monkeypatch.setattr(libvirt_query, "filters", lambda _connection: [CLEAN, WEB])
    monkeypatch.setattr(locks, "bridge_calls", lambda _names: OFF)
    monkeypatch.setattr(files_qemu, "_CONF", str(tmp_path / "qemu.conf"))
    return Here(connection)


def refused(here: Here, why: type[Exception], match: str, **output: t.Any) -> None:
    """By check mode and by a real run, which writes nothing."""
    before = snapshot(here)
    for check_mode in (True, False):
        with pytest.raises(why, match=match):
            run_guest.converge(here, options({**SAID, **output}), Gate(check_mode=check_mode))
    assert snapshot(here) == before


def done(here: Here, **output: t.Any) -> dict[str, t.Any]:
    """What came of it."""
    return run_guest.converge(here, options({**SAID, **output}), Gate(check_mode=False))


def nic(name: str) -> list[dict[str, t.Any]]:
    """An interface with that filter."""
    return [{"name": "eth0", "bridge": "br0", "filterref": {"name": name}}]


def test_a_filter_whose_rules_no_packet_meets_is_refused(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = "the rules of web for all, tcp have no effect on this host.*such as clean-traffic.*bridge_filter_guests"
    refused(here, BadInput, idle, interfaces=nic("web"))
    refused(here, BadInput, "no network filter none", interfaces=nic("none"))
    done(here, interfaces=nic("clean-traffic"))
    refused(here, BadInput, idle, interfaces=nic("web"))
    refused(here, BadInput, idle, xml="<domain><devices><interface type='bridge'><mac address='52:54:00:00:00:07'/>"
            "<source bridge='br0'/><filterref filter='web'/></interface></devices></domain>")  # fmt: skip
    monkeypatch.setattr(locks, "bridge_calls", lambda _names: ON)
    assert done(here, interfaces=nic("web"))["changed"]
    monkeypatch.setattr(locks, "bridge_calls", lambda _names: OFF)
    refused(here, BadInput, idle, interfaces=nic("web"))
    assert not done(here)["changed"], "it is not mentioned"


def test_an_unprotected_display_beyond_loopback_is_refused(here: Here, tmp_path: Path) -> None:
    match = r"vnc of box1 on 0\.0\.0\.0 has neither password nor TLS.*allow_unprotected: true"
    refused(here, Refused, match, interfaces=[], graphics={"type": "vnc", "listen": "0.0.0.0"})
    xml = "<domain><devices><graphics type='vnc' listen='0.0.0.0'/></devices></domain>"
    refused(here, Refused, match, interfaces=[], xml=xml)
    made = done(here, interfaces=[], graphics={"type": "vnc", "listen": "0.0.0.0", "allow_unprotected": True})
    assert (made["changed"], made["notes"]) == (True, [])
    refused(here, Refused, match, graphics={"keymap": "de"})
    silent = done(here)
    assert not silent["changed"] and "vnc of box1 on 0.0.0.0 has neither password nor TLS" in " ".join(silent["notes"])
    (tmp_path / "qemu.conf").write_text("vnc_tls = 1\n")
    assert done(here, graphics={"type": "vnc"})["notes"] == []
