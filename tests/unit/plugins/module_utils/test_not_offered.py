"""What libvirt's driver does not offer counts as nothing there; that something else is too old or wrong does not."""

from __future__ import annotations

import typing as t

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Unsupported
from ansible_collections.corral.virt.plugins.module_utils._disk_move import libvirt_disk_move
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._guest import libvirt_prerequisites
from ansible_collections.corral.virt.plugins.module_utils._libvirt import statistics
from ansible_collections.corral.virt.plugins.module_utils._network import libvirt_network_lookup

QUESTIONS: dict[str, tuple[t.Callable[[t.Any], object], object]] = {
    "domain capabilities": (lambda driver: statistics.domain_capabilities(driver, "kvm"), None),
    "network filters": (libvirt_query.filters, None),
    "missing secrets": (lambda driver: libvirt_prerequisites.missing_secrets(driver, ["a"]), frozenset()),
    "missing filters": (lambda driver: libvirt_prerequisites.missing_filters(driver, {"a": ()}), frozenset()),
    "block job": (lambda driver: libvirt_disk_move.job(driver, "u", "vda"), None),
    "leases": (libvirt_network_lookup.leases, []),
}


class Driver:
    """A connection, guest or network whose questions all end with one error."""

    def __init__(self, code: int) -> None:
        self._code = code

    def __getattr__(self, _question: str) -> t.Callable[..., t.NoReturn]:
        return self._fail

    def _fail(self, *_arguments: object) -> t.NoReturn:
        error = libvirt.libvirtError("told")
        error.err = (self._code, 10, "told", 2, "", None, None, 0, 0)
        raise error

    def getURI(self) -> str:  # noqa: N802 (libvirt's)
        """See `virConnectGetURI`."""
        return "test:///default"

    def name(self) -> str:
        """The name of a guest or network."""
        return "web1"

    def isActive(self) -> bool:  # noqa: N802 (libvirt's)
        """True, so that a network is asked for its leases."""
        return True

    def lookupByUUIDString(self, _uuid: str) -> Driver:  # noqa: N802 (libvirt's)
        """The guest."""
        return self


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_driver_that_does_not_offer_it_has_none(question: str) -> None:
    ask, none = QUESTIONS[question]
    assert ask(Driver(libvirt.VIR_ERR_NO_SUPPORT)) == none


@pytest.mark.parametrize("code", [libvirt.VIR_ERR_CONFIG_UNSUPPORTED, libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED])
@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_too_old_for_it_is_told(question: str, code: int) -> None:
    with pytest.raises(Unsupported, match="told"):
        QUESTIONS[question][0](Driver(code))
