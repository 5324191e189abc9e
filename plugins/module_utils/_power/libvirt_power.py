# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Performs the steps between a guest's states: one verb each, no choices."""

from __future__ import annotations

import contextlib
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, NotFound, Timeout, Unsupported
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Power
from ansible_collections.corral.virt.plugins.module_utils._libvirt import states
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._power import libvirt_wait, plan_power_steps
from ansible_collections.corral.virt.plugins.module_utils._xml import stdlib_reader

_AGAIN_S, _LOOK_S = 1, 0.1


def find(connection: Connection, name: str, uuid: str | None) -> Power | None:
    """The guest with that UUID, else of that name; None if there is none."""
    with contextlib.suppress(NotFound), explained("read guest", name):
        domain = connection.lookupByUUIDString(uuid) if uuid else connection.lookupByName(name)
        state, stopped_itself = states.seen(domain)
        return Power(
            name=domain.name(),
            uuid=domain.UUIDString(),
            state=state,
            active=bool(domain.isActive()),
            moving=stdlib_reader.moving(states.record(domain), domain.UUIDString()),
            stopped_itself=stopped_itself,
        )
    return None


def definition(connection: Connection, uuid: str) -> tuple[str, bool]:
    """The XML with which a guest starts, and True if it is that of its managed save image."""
    with explained("read guest", uuid):
        domain = connection.lookupByUUIDString(uuid)
        saved = saved_xml(domain)
        return (domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE), False) if saved is None else (saved, True)


def saved_xml(domain: t.Any) -> str | None:
    """The definition in an inactive guest's managed save image; None without an image.

    Empty if it cannot be read: libvirt may discard such an image and start the guest anew.
    """
    with contextlib.suppress(Unsupported), explained("find the managed save image of guest", domain.name()):
        if not domain.isActive() and domain.hasManagedSaveImage():
            with contextlib.suppress(libvirt.libvirtError):
                return t.cast(str, domain.managedSaveGetXMLDesc())
            return ""
    return None


def do(connection: Connection, uuid: str, step: plan_power_steps.GuestStep) -> object:
    """Perform one step on the guest with that UUID, and on no other of its name; returns a note, if any."""
    with explained("find guest", f"{step.guest} ({uuid})"):
        domain = connection.lookupByUUIDString(uuid)
    return DOERS[type(step)](domain, step)


def _start(domain: t.Any, step: plan_power_steps.Start) -> None:
    with explained("start", step.guest):
        domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED if step.paused else 0)


def _allowed() -> None:
    """Does nothing: the default check before a forced power-off."""


def _shutdown(
    domain: t.Any, step: plan_power_steps.Shutdown, before_force: t.Callable[[], None] = _allowed
) -> plan_power_steps.Note | None:
    with explained("shut down", step.guest), _stays(domain, step):
        if _has_failed_io(domain):  # it would hear nothing
            if not step.force:
                raise Failed(step.io_error_message())
            before_force()
            _switch_off(domain)
            return None
        try:
            if not _obeys(domain, step, "shutdown"):
                seen = libvirt_wait.observe(domain.connect(), step.guest, domain.UUIDString())
                before_force()
                _switch_off(domain)
                return step.forced_note(seen)
        except Timeout:
            if step.suspends and not libvirt_wait.is_off(domain):
                domain.suspend()
            raise
        return None


def _destroy(domain: t.Any, step: plan_power_steps.Destroy, before_force: t.Callable[[], None] = _allowed) -> None:
    with explained("destroy", step.guest), _stays(domain, step):
        before_force()
        _switch_off(domain)


@contextlib.contextmanager
def _stays(domain: t.Any, step: plan_power_steps.GuestStep) -> t.Iterator[None]:
    """Raises Failed at the end if the guest has been migrated from this host: it is off here, and runs elsewhere."""
    persistent = libvirt_wait.is_persistent(domain)
    yield
    if libvirt_wait.has_left(domain, persistent=persistent):
        raise Failed(step.moved_message())


def _switch_off(domain: t.Any) -> None:
    """Power the guest off at once; one that powers off by itself at this moment is no error."""
    try:
        domain.destroy()
    except libvirt.libvirtError:
        if not libvirt_wait.is_off(domain):
            raise


def _reboot(domain: t.Any, step: plan_power_steps.Reboot) -> None:
    with explained("reboot", step.guest):
        with _stays(domain, step):
            obeys = _obeys(domain, step, "reboot")
            off = libvirt_wait.is_off(domain)
        if not obeys:
            domain.reset(0)
        elif off:
            domain.create()


def _resume(domain: t.Any, step: plan_power_steps.Resume) -> None:
    with explained("resume", step.guest):
        if domain.state()[0] == libvirt.VIR_DOMAIN_PMSUSPENDED:  # it sent itself to sleep
            domain.pMWakeup()
            return
        failed = _has_failed_io(domain)
        domain.resume()
        if failed and _fails_again(domain) and not step.to_shut_down:
            raise Failed(step.io_error_message())


def _has_failed_io(domain: t.Any) -> bool:
    return bool(domain.state() == [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR])


def _fails_again(domain: t.Any) -> bool:
    """True if QEMU, which retries the I/O at once, pauses the guest again."""
    deadline = time.monotonic() + _AGAIN_S
    while time.monotonic() < deadline:
        if _has_failed_io(domain):
            return True
        time.sleep(_LOOK_S)
    return False


def _obeys(domain: t.Any, step: plan_power_steps.Shutdown | plan_power_steps.Reboot, verb: str) -> bool:
    """True if the guest obeyed, or need not be waited for; raises Timeout if it did not and may not be forced."""
    if not step.wait:
        libvirt_wait.ask(domain.connect(), domain, verb)
    elif not libvirt_wait.obeyed(domain.connect(), domain, verb, timeout_s=step.timeout_s, gives_up=step.gives_up):
        if not step.force:
            raise Timeout(step.timeout_message(libvirt_wait.observe(domain.connect(), step.guest, domain.UUIDString())))
        return False
    return True


def _verb(verb: str, *arguments: object) -> t.Callable[[t.Any, plan_power_steps.GuestStep], None]:
    """A doer for a verb of virDomain with fixed arguments."""

    def do_verb(domain: t.Any, step: plan_power_steps.GuestStep) -> None:
        with explained(verb, step.guest):
            getattr(domain, verb)(*arguments)

    return do_verb


FORCING = (
    plan_power_steps.Destroy,
    plan_power_steps.Shutdown,
)  # their doers take what is called before a plug is pulled
DOERS: dict[type[plan_power_steps.GuestStep], t.Callable[..., object]] = {
    plan_power_steps.Start: _start,
    plan_power_steps.Shutdown: _shutdown,
    plan_power_steps.Destroy: _destroy,
    plan_power_steps.Suspend: _verb("suspend"),
    plan_power_steps.Resume: _resume,
    plan_power_steps.Reset: _verb("reset", 0),
    plan_power_steps.Reboot: _reboot,
}
