# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and sends frames at guests' interfaces by raw sockets of the host. Requires root."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Unsupported
from ansible_collections.corral.virt.plugins.module_utils._domain.model_address import Nic

_ALL = 0x0003  # ETH_P_ALL
_PACKET, _AUXDATA = 263, 8  # SOL_PACKET, PACKET_AUXDATA
_VLAN = 1 << 4  # TP_STATUS_VLAN_VALID: the kernel took a tag away
_AT_ONCE = 200  # frames of one guest: a busy one must not hold up the others
_GONE = (errno.ENODEV, errno.ENXIO, errno.ENETDOWN)


class Listener:
    """Packet sockets at many guests' interfaces. The kernel buffers frames until they are read, and drops the rest."""

    def __init__(self, *, bytes_each: int) -> None:
        self._bytes_each = bytes_each
        self._sockets: dict[Nic, socket.socket] = {}

    def follow(self, nics: t.Collection[Nic]) -> None:
        """Listen at exactly these interfaces: guests come and go, and get new devices."""
        for nic in [nic for nic in self._sockets if nic not in nics]:
            self._sockets.pop(nic).close()
        for nic in [nic for nic in nics if nic.device and nic not in self._sockets]:
            with contextlib.suppress(FileNotFoundError):
                opened = _opened(nic.device)
                if opened:
                    self._sockets[nic] = opened

    def heard(self) -> t.Iterator[tuple[Nic, bytes, bool]]:
        """Every frame since the last call: interface, first bytes, and True if it goes to the guest."""
        for nic, listening_at in self._sockets.items():
            with contextlib.suppress(OSError):  # nothing more, or the device has gone with its guest
                for _count in range(_AT_ONCE):
                    data, extra, _flags, sender = listening_at.recvmsg(self._bytes_each, socket.CMSG_SPACE(20))
                    if not any(
                        level == _PACKET and kind == _AUXDATA and _tagged(value) for level, kind, value in extra
                    ):
                        yield nic, data, sender[2] == socket.PACKET_OUTGOING

    def put(self, frames: t.Iterable[tuple[str, bytes]]) -> None:
        """Send frames to the guests behind these devices.

        A frame that cannot be sent now is dropped; callers repeat their questions.
        """
        by_device = {nic.device: one for nic, one in self._sockets.items()}
        for device, data in frames:
            if device in by_device:
                with contextlib.suppress(OSError):
                    by_device[device].send(data)

    def close(self) -> None:
        """Close all sockets."""
        for one in self._sockets.values():
            one.close()


@contextlib.contextmanager
def listening(*, bytes_each: int) -> t.Iterator[Listener]:
    """A listener for the length of a `with` block; raises Unsupported without CAP_NET_RAW."""
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except PermissionError as error:
        how = "set ansible_become" if os.geteuid() else "root lacks it here: give this container or service CAP_NET_RAW"
        raise Unsupported(f"cannot capture packets of guests: this requires root with CAP_NET_RAW; {how}") from error
    listener = Listener(bytes_each=bytes_each)
    try:
        yield listener
    finally:
        listener.close()


def _opened(device: str) -> socket.socket | None:
    """A socket that receives from one device only, from the start; None if the device is gone."""
    one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    try:
        one.setsockopt(_PACKET, _AUXDATA, 1)
        one.setblocking(False)
        one.bind((device, _ALL))
    except OSError as error:
        one.close()
        if error.errno in _GONE:
            return None
        raise
    return one


def _tagged(value: bytes) -> bool:
    return len(value) >= 4 and bool(struct.unpack("=I", value[:4])[0] & _VLAN)
