# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Connect to another host; if TLS is the cause of a failure, the error explains it."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Unreachable
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, opened
from ansible_collections.corral.virt.plugins.module_utils._tls import files_peer


@contextlib.contextmanager
def reached(uri: str, *, readonly: bool = False, watched: bool = False) -> t.Iterator[Connection]:
    """Connect like `opened`; raises Unreachable with the cause if it can be found, which takes up to 20 s more."""
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(opened(uri, readonly=readonly, watched=watched))
        except Failed as error:
            cause = files_peer.why(uri)
            if not cause:
                raise
            words = getattr(error.__cause__, "get_error_message", lambda: "no answer")()
            raise Unreachable(uri, f"{cause} (libvirt: {words})") from error
        yield connection
